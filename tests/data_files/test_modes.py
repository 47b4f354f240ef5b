"""Modes of a write contradict each other, or the table, in the same way for all writers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import InvalidInputError
from txlog.data_files.modes import WriteModes
from txlog.data_files.write_plan import schema_after
from txlog.expressions.sql import as_expression
from txlog.schema.arrow import schema_of

WHERE = as_expression("p = 1")
REPLACED: dict[str, Any] = {"mode": "overwrite", "schema_mode": "overwrite"}


@pytest.mark.parametrize(
    ("modes", "argument"),
    [
        ({"mode": "upsert"}, "mode"),
        ({"schema_mode": "evolve"}, "schema_mode"),
        ({"mode": "overwrite", "partition_mode": "some"}, "partition_mode"),
        ({"where": WHERE}, "mode"),
        ({"mode": "ignore", "partition_mode": "dynamic"}, "mode"),
        ({"schema_mode": "overwrite"}, "schema_mode"),
        ({"mode": "overwrite", "where": WHERE, "partition_mode": "dynamic"}, "where"),
        ({"mode": "overwrite", "partition_by": ["p"]}, "partition_by"),
        ({**REPLACED, "partition_by": ["p"], "where": WHERE}, "partition_by"),
        ({**REPLACED, "partition_by": ["p"], "partition_mode": "dynamic"}, "partition_by"),
    ],
)
def test_modes_that_contradict_each_other_are_refused(modes: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        WriteModes(**modes)
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    ("modes", "columns", "after"),
    [
        ({}, ["p"], ["p", "x"]),
        ({"schema_mode": "merge"}, ["p", "y"], ["p", "x", "y"]),
        (REPLACED, ["y"], ["y"]),
        ({**REPLACED, "where": WHERE}, ["p", "x"], ["p", "x"]),
        ({**REPLACED, "where": WHERE}, ["p", "y"], "schema_mode"),
        ({**REPLACED, "partition_mode": "dynamic"}, ["p", "y"], "partition_mode"),
        ({"mode": "overwrite", "partition_mode": "dynamic"}, ["p"], "partition_mode"),
        ({}, ["p", "y"], "data"),
    ],
)
def test_the_schema_after_a_write(
    tmp_path: Path, modes: dict[str, Any], columns: list[str], after: list[str] | str
) -> None:
    table = txlog.Table.create(tmp_path / "t", pa.schema([("p", pa.int64()), ("x", pa.int64())]))
    data = schema_of(pa.schema([(name, pa.int64()) for name in columns]), None, nanos=False)
    if isinstance(after, list):
        assert schema_after(table.snapshot, data, WriteModes(**modes)).names() == after
        return
    with pytest.raises(txlog.TxlogError) as caught:
        schema_after(table.snapshot, data, WriteModes(**modes))
    assert getattr(caught.value, "argument", None) == after


def test_a_schema_that_cannot_be_replaced_is_refused_before_a_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"p": [1, 2]}))

    def written(*_: Any, **__: Any) -> None:
        raise AssertionError("a file was written")

    monkeypatch.setattr("txlog.data_files.write_plan.write_data_files", written)
    with pytest.raises(InvalidInputError, match="together with all rows"):
        table.overwrite(pa.table({"p": [1], "y": [1]}), "p = 1", schema_mode="overwrite")
