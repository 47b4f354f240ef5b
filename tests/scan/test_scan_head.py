"""The first rows of a scan, and the fragments that they need."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.scan.read import FragmentReader
from txlog.scan.scan import limited


def add(table: txlog.Table, name: str, values: list[int]) -> None:
    """Commit a data file of which the log says nothing, as another writer might."""
    root = Path(table.uri)
    pq.write_table(pa.table({"x": values}), root / name)
    body = {"path": name, "partitionValues": {}, "size": (root / name).stat().st_size,
            "modificationTime": 0, "dataChange": True}  # fmt: skip
    log = root / "_delta_log" / f"{table.refresh().version + 1:020d}.json"
    log.write_bytes(orjson.dumps({"add": body}))
    table.refresh()


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    """Six fragments of five rows each; of the second no row is left in the first two places."""
    made = txlog.write(
        tmp_path, pa.table({"x": list(range(30))}), options=txlog.WriteOptions(max_rows_per_file=5)
    )
    made.delete("x IN (5, 6)")
    return made


def keep_files(table: txlog.Table, fragments: set[int]) -> None:
    """Delete the data files of all other fragments."""
    for place, fragment in enumerate(table.fragments()):
        if place not in fragments:
            (Path(table.uri) / fragment.files[0].path).unlink()


@settings(max_examples=examples(40))
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
    st.integers(1, 4),
    st.none() | st.integers(0, 5),
    st.sampled_from([None, "x < 2", "x >= 0", "x IS NOT NULL", "x = 3", "_fragid = 1"]),
    st.integers(0, 14),
    st.booleans(),
)
def test_the_first_rows_are_those_of_the_whole_scan(
    values: list[int], size: int, gone: int | None, where: str | None, rows: int, silent: bool
) -> None:
    with TemporaryDirectory() as root:
        table = txlog.write(
            root, pa.table({"x": values}), options=txlog.WriteOptions(max_rows_per_file=size)
        )
        if gone is not None:
            table.delete(f"x = {gone}")
        if silent:
            add(table, "silent.parquet", [1, 3])
        expected = table.to_arrow(where=where)
        assert table.head(rows, where=where).equals(expected.slice(0, rows))
        assert table.head(rows, [], where).num_rows == min(rows, expected.num_rows)


@pytest.mark.spec("FRG-43")
def test_no_more_fragments_are_opened_than_the_rows_need(table: txlog.Table) -> None:
    keep_files(table, {0, 1})
    assert table.head(8)["x"].to_pylist() == [0, 1, 2, 3, 4, 7, 8, 9]
    assert table.head(3, ["x"])["x"].to_pylist() == [0, 1, 2]
    assert table.head(0).num_rows == 0
    with pytest.raises(txlog.DataFileError, match="is missing"):
        table.head(9)


@pytest.mark.spec("FRG-43")
def test_a_predicate_that_is_certain_does_not_hinder(table: txlog.Table) -> None:
    keep_files(table, {3, 4})
    assert table.head(7, where="x >= 15")["x"].to_pylist() == list(range(15, 22))
    with pytest.raises(txlog.DataFileError, match="is missing"):
        table.head(11, where="x >= 15")


@pytest.mark.spec("FRG-43")
def test_what_the_log_cannot_count_is_read_in_turn(
    table: txlog.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    whole = FragmentReader.__init__

    def counted(self: FragmentReader, store: Any, plan: Any, fragment: Any) -> None:
        opened.append(fragment.files[0].path)
        whole(self, store, plan, fragment)

    monkeypatch.setattr(FragmentReader, "__init__", counted)
    paths = [fragment.files[0].path for fragment in table.fragments()]
    assert table.head(4, where="x % 2 = 1")["x"].to_pylist() == [1, 3, 7, 9]
    assert opened == paths[:2]
    opened.clear()
    # Of the one that is not certain, a row at least is unknown, so the next may be needed.
    where = "x >= 3"
    shares = limited(table.scan(where=where).plan, 6)
    assert [(len(share.fragments), share.rows, share.counted) for share in shares] == [
        (3, 6, False)
    ]
    assert table.head(6, where=where)["x"].to_pylist() == [3, 4, 7, 8, 9, 10]
    assert opened == paths[:3]


def test_shares_of_a_scan_that_is_counted(table: txlog.Table) -> None:
    shares = limited(table.scan().plan, 10)
    assert [(share.rows, share.counted) for share in shares] == [(5, True), (3, True), (2, True)]
    assert [share.fragments for share in shares] == [(one.value,) for one in table.fragments()[:3]]
    assert sum(share.rows for share in limited(table.scan().plan, 10**9)) == table.count() == 28
    assert limited(table.scan().plan, 0) == []


@pytest.mark.parametrize("rows", [-1, 1.5, "3", None])
def test_a_number_of_rows_is_expected(table: txlog.Table, rows: Any) -> None:
    with pytest.raises(txlog.InvalidInputError, match="num_rows"):
        table.head(rows)


def test_without_a_number_there_are_five(table: txlog.Table) -> None:
    expected = table.to_arrow().slice(0, 5)
    assert table.head() == table.scan().head() == expected
    assert table.head(columns=["x"], where="x > 3") == table.to_arrow(where="x > 3").slice(0, 5)
    assert table.fragments()[0].head() == expected
