"""Checkpoints of a table: when they are due, and what its properties require."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import txlog

ROWS = pa.table({"a": [1]})


def checkpoints(path: Path) -> list[int]:
    return sorted(
        int(file.name[:20]) for file in (path / "_delta_log").glob("*.checkpoint.parquet")
    )


def test_one_is_written_when_it_is_due(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, ROWS, properties={"delta.checkpointInterval": "3"})
    for _ in range(7):
        table.append(ROWS)
    assert checkpoints(tmp_path) == [3, 6]
    for file in (tmp_path / "_delta_log").glob("0000000000000000000[0-5].json"):
        file.unlink()
    assert txlog.Table(tmp_path).count() == 8


def test_statistics_are_left_out_where_the_table_says_so(tmp_path: Path) -> None:
    properties = {"delta.checkpoint.writeStatsAsJson": "false"}
    table = txlog.write(tmp_path, ROWS, properties=properties)
    table.maintenance.checkpoint()
    held = pq.read_table(tmp_path / "_delta_log" / "00000000000000000000.checkpoint.parquet")
    assert [add["stats"] for add in held["add"].to_pylist() if add] == [None]
    assert txlog.Table(tmp_path).count() == 1


def test_statistics_as_structs_are_written_when_a_checkpoint_is_due(tmp_path: Path) -> None:
    properties = {
        "delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpointInterval": "1"
    }  # fmt: skip
    table = txlog.write(tmp_path, ROWS, properties=properties)
    assert table.append(ROWS).version == 1
    held = pq.read_table(tmp_path / "_delta_log" / "00000000000000000001.checkpoint.parquet")
    found = [add["stats_parsed"]["numRecords"] for add in held["add"].to_pylist() if add]
    assert found == [1, 1]
    assert txlog.Table(tmp_path).count() == 2
