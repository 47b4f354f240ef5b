"""Replacing a table: what remains of it, and what does not."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import txlog
from tests.verb_calls import replace_table
from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.extend import context_of
from txlog.schema.arrow import from_arrow

NEW = from_arrow(pa.schema([("b", pa.string())]))


def test_the_table_is_as_if_just_made(tmp_path: Path) -> None:
    table = txlog.write(
        tmp_path / "t",
        pa.table({"a": [1, 2], "p": ["x", "y"]}),
        partition_by=["p"],
        properties={"delta.enableInCommitTimestamps": "true"},
        description="old",
    )
    done = replace_table(context_of(table), table.snapshot, NEW, properties={"user.x": "1"})
    assert done.outcome.metrics["numRemovedFiles"] == 2
    now = txlog.Table(table.uri)
    assert now.schema == pa.schema([("b", pa.string())])
    assert (now.count(), now.partition_columns, now.metadata.description) == (0, [], None)
    assert now.metadata.id == table.metadata.id
    assert now.properties == {
        "txlog.deletionVectors": "auto",
        "user.x": "1",
        "delta.enableInCommitTimestamps": "true",  # It tells of the log.
    }
    now.append(pa.table({"b": ["z"]}))
    independent = DeltaTable(table.uri)
    assert independent.metadata().partition_columns == []
    assert [field.name for field in independent.schema().fields] == ["b"]
    assert len(independent.get_add_actions().to_struct_array()) == 1
    now.restore(0)
    assert sorted(now.to_arrow()["a"].to_pylist()) == [1, 2]


def test_timestamps_in_commits_begin_with_a_replacement(tmp_path: Path) -> None:
    stamps = {"delta.enableInCommitTimestamps": "true"}
    table = txlog.write(tmp_path / "t", pa.table({"a": [1]}))
    replace_table(context_of(table), table.snapshot, NEW, properties=stamps)
    assert table.refresh().properties["delta.inCommitTimestampEnablementVersion"] == "1"
    made = txlog.write(tmp_path / "stamped", pa.table({"a": [1]}), properties=stamps)
    replace_table(context_of(made), made.snapshot, NEW, properties=stamps)
    assert made.refresh().properties["delta.enableInCommitTimestamps"] == "true"


def test_it_finds_the_files_of_others(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"a": [1]}))
    before = table.snapshot
    txlog.Table(table.uri).append(pa.table({"a": [2]}))
    replace_table(context_of(table), before, NEW)
    assert txlog.Table(table.uri).count() == 0


def test_tables_that_may_not_be_replaced(tmp_path: Path) -> None:
    table = txlog.write(
        tmp_path / "t", pa.table({"a": [1]}), properties={"delta.appendOnly": "true"}
    )
    with pytest.raises(UnsupportedFeatureError, match="append-only"):
        replace_table(context_of(table), table.snapshot, NEW)
    assert table.refresh().version == 0


def test_definitions_that_cannot_be(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"a": [1]}))
    for wrong in ({"partition_by": ["nope"]}, {"properties": {"delta.enableNope": "1"}}):
        with pytest.raises(InvalidInputError):
            replace_table(context_of(table), table.snapshot, NEW, **wrong)
    assert table.refresh().version == 0
