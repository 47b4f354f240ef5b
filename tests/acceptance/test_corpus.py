"""Every table of the corpus is read with its known content, or refused because of its fault."""

import pyarrow as pa
import pytest
from corpus import Case, cases, require_corpus
from judging import FAULTS, OVERRULED, fault_of, judge, opened

import txlog

BY_NAME = {case.name: case for case in cases()}


def named(name: str) -> Case:
    require_corpus()
    return BY_NAME[name]


def test_the_corpus_is_there() -> None:
    require_corpus()
    assert len(cases()) > 300


@pytest.mark.slow
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_table_is_what_is_known_of_it(case: Case) -> None:
    findings = judge(case)
    assert findings, "nothing is known of this table, so nothing was tested"
    assert [f"{f.version}: {f.detail}" for f in findings if f.verdict != "right"] == []


IMPLEMENTED = ("reader feature timestampNanos",)


def test_nothing_is_overruled_in_vain() -> None:
    require_corpus()
    assert set(OVERRULED) <= set(BY_NAME)
    expectations = [case.index["expectation"] for case in cases()]
    for key in FAULTS:
        assert any(text.startswith(key) for text in expectations), key
    # Whatever is expected to fail has a fault that is named, or is implemented and read right.
    for case in cases():
        expectation = case.index["expectation"]
        if expectation.startswith("FAIL") and not expectation.endswith(IMPLEMENTED):
            assert fault_of(case), case.name


def test_timestamps_beyond_64_bits_of_nanoseconds() -> None:
    found = opened(named("delta_rs/table_with_edge_timestamps"), None).to_arrow()
    stamps = found["BIG_DATE"].cast(pa.string()).to_pylist()
    assert [text[:10] for text in stamps] == ["9999-12-31", "9999-12-30"]
    old = opened(named("trino/databricks73/old_timestamps"), None).to_arrow()
    years = {
        text[:4]
        for field in old.schema
        if pa.types.is_timestamp(field.type)
        for text in old[field.name].cast(pa.string()).to_pylist()
        if text
    }
    assert years & {"0099", "1582"}


@pytest.mark.parametrize("name", ["logical_names", "nested_struct"])
def test_columns_go_by_field_id_though_names_differ(name: str) -> None:
    rows = opened(named(f"duckdb/column_mapping_id_mode_{name}"), None).to_arrow()
    assert rows.num_rows == 2
    for column in rows.columns:
        assert column.null_count == 0
        if pa.types.is_struct(column.type):
            assert all(child.null_count == 0 for child in column.combine_chunks().flatten())


def test_versions_before_a_gap_cannot_be_rebuilt() -> None:
    case = named("delta_rs_err_logs/table_b")
    assert opened(case, None).version >= 10
    for version in (7, 8, 9):
        with pytest.raises(txlog.TxlogError, match=r"00000000000000000007\.json"):
            opened(case, version)


def test_a_writer_feature_that_no_column_uses_hinders_nobody() -> None:
    table = opened(named("trino/deltalake/unsupported_writer_feature"), None)
    assert "generatedColumns" in (table.protocol.writer_features or [])
    assert table.capabilities()["append"]


@pytest.mark.parametrize(
    ("name", "staged", "rows"),
    [
        ("kernel_rs/catalog_managed_0", 2, 200),
        ("delta_kernel_benchmarks/basic_catalog_managed", 2, 0),
    ],
)
def test_catalog_managed_tables_are_read_by_their_catalog(
    name: str, staged: int, rows: int
) -> None:
    case = named(name)
    with pytest.raises(txlog.UnsupportedFeatureError, match="catalog_commits"):
        txlog.Table(case.path)
    names = sorted(path.name for path in (case.path / "_delta_log/_staged_commits").iterdir())
    assert len(names) == staged
    latest = int(names[-1][:20])
    table = txlog.Table(case.path, catalog_commits=txlog.CatalogCommits(latest, names))
    assert table.version == latest
    assert table.count() == rows
    if rows:  # The other table's staged commits remove all files.
        assert table.to_arrow()["col1"].to_pylist() == list(range(200))
