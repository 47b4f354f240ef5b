"""Every plain table of the corpus: version, files, rows, and the hash of the rows."""

import warnings
from typing import Any

import pytest
from corpus import ROOT, Case, cases, columns_sha256, rows_sha256

import txlog

# Reader features that are not covered yet: these tables must be refused, by name.
NOT_COVERED = {
    "variantType", "variantType-preview", "variantShredding", "variantShredding-preview",
    "catalogManaged",
}  # fmt: skip

# Where the reference is wrong, and the protocol says otherwise: OVERRULED.md explains each.
OVERRULED = {"delta_rs/table_with_edge_timestamps", "trino/databricks73/old_timestamps"}

# Some are listed, but not extracted.
PLAIN = [case for case in cases() if case.is_plain and case.path.exists()]


def test_the_corpus_is_there() -> None:
    if not ROOT.exists():
        pytest.skip(f"the corpus of other engines' tables is not at {ROOT}")
    assert len(PLAIN) > 200


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
def test_a_table_reads_as_its_answers_say(case: Case) -> None:
    lacking = NOT_COVERED & set(case.index["reader_features"].split(","))
    if lacking:
        with pytest.raises(txlog.UnsupportedFeatureError) as caught:
            txlog.Table(case.path)
        assert lacking <= set(caught.value.features)
        return
    assert case.references
    for reference in case.references:
        check(case, reference)


def check(case: Case, reference: dict[str, Any]) -> None:
    version = None if reference["is_latest"] else reference["version"]
    with warnings.catch_warnings():
        # Some of these logs are damaged on purpose; reading them right is the point.
        warnings.simplefilter("ignore", txlog.TxlogWarning)
        table = txlog.Table(case.path, version=version)
    replay = reference.get("replay") or {}
    assert table.version == reference["version"]
    if "num_files" in replay:
        files = table.files()
        assert files.num_rows == replay["num_files"]
        assert sum(files["size_bytes"].to_pylist()) == replay["size_bytes"]
        assert table.partition_columns == replay["partition_columns"]
        assert files.num_rows - files["deletion_vector"].null_count == replay["num_dvs"]
    answer = reference.get("expected") or reference.get("answer") or {}
    if answer.get("rows") is not None:
        assert table.count() == answer["rows"]
    if answer.get("rows_sha256") is None or case.name in OVERRULED:
        return
    rows = table.to_arrow()
    assert rows.schema == table.schema
    assert rows.num_rows == answer["rows"]
    assert rows_sha256(rows) == answer["rows_sha256"]
    if "columns_sha256" in answer:
        assert columns_sha256(rows) == answer["columns_sha256"]
