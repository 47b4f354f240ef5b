"""The plan of an append is made once for a table's metadata, and again if something differs."""

from pathlib import Path

import pyarrow as pa

import txlog
from txlog.data_files.options import WriteOptions
from txlog.data_files.write_plan import plan_append, plan_write
from txlog.schema.arrow import from_arrow

ROWS = pa.table({"x": pa.array([1, 2], pa.int64()), "p": ["a", "b"]})


def test_plans_are_those_made_anew(tmp_path: Path) -> None:
    properties = {"delta.constraints.least": "x > 0", "delta.dataSkippingNumIndexedCols": "1"}
    table = txlog.Table.create(tmp_path / "t", ROWS.schema, ["p"], properties)
    snapshot = table.snapshot
    wider = from_arrow(ROWS.schema.append(pa.field("y", pa.string())))
    for options in (
        WriteOptions(),
        WriteOptions(target_file_bytes=7),
        WriteOptions(max_rows_per_file=1),
    ):
        for schema in (snapshot.schema, wider):
            made = plan_append(snapshot, schema, options)
            anew = plan_write(
                snapshot.metadata,
                schema,
                options,
                mapping_mode="none",
                protocol=snapshot.protocol,
            )
            assert made.layout == anew.layout
            assert [rule.text for rule in made.rules] == [rule.text for rule in anew.rules]
    usual = plan_append(snapshot, snapshot.schema, WriteOptions())
    assert plan_append(snapshot, snapshot.schema, WriteOptions()) is usual


def test_other_metadata_has_another_plan(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", ROWS.schema)
    table.append(ROWS)
    before = plan_append(table.snapshot, table.snapshot.schema, WriteOptions())
    table.append(ROWS.append_column("y", pa.array([1, 2])), schema_mode="merge")
    after = plan_append(table.snapshot, table.snapshot.schema, WriteOptions())
    assert before.schema.names() == ["x", "p"]
    assert after.schema.names() == ["x", "p", "y"]
    table.append(ROWS, options=txlog.WriteOptions(max_rows_per_file=1))
    assert table.files().num_rows == 4
