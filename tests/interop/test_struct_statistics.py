"""Checkpoints of txlog with statistics as structs, read by others and by txlog itself."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import txlog

STRUCTS = {"delta.checkpoint.writeStatsAsStruct": "true"}
ONLY_STRUCTS = STRUCTS | {"delta.checkpoint.writeStatsAsJson": "false"}
V2 = {"delta.checkpointPolicy": "v2", "delta.feature.v2Checkpoint": "supported"}


def rows(number: int) -> pa.Table:
    day = date(2026, 1, 1 + number)
    return pa.table(
        {
            "day": pa.array([day, day, None], pa.date32()),
            "part": pa.array([number, number, 7], pa.int32()),
            "id": pa.array([number * 10, number * 10 + 1, None], pa.int64()),
            "small": pa.array([number, -number, 3], pa.int8()),
            "ratio": pa.array([0.1 * number, None, 2.5], pa.float64()),
            "name": ["a" * 40, f"n{number}", None],
            "price": pa.array([Decimal("1.25"), Decimal(number), None], pa.decimal128(12, 2)),
            "moment": pa.array([number * 10**15, 1, None], pa.timestamp("us", "UTC")),
            "flag": [True, None, False],
            "list": [[1], [], None],
            "inside": [{"a": number, "b": "x"}, {"a": None, "b": None}, None],
        }
    )


def made(
    root: Path, properties: dict[str, str], by: tuple[str, ...] = ("day", "part")
) -> txlog.Table:
    table = txlog.Table.create(root, rows(1).schema, partition_by=by, properties=properties)
    for number in range(1, 4):
        table.append(rows(number))
    table.maintenance.checkpoint()
    for version in range(table.version):  # So that only the checkpoint tells.
        (root / "_delta_log" / f"{version:020d}.json").unlink()
    return txlog.Table(root)


def actions(root: Path) -> list[dict[str, Any]]:
    found = pa.table(DeltaTable(root).get_add_actions(flatten=True)).to_pylist()
    leave = {"path", "modification_time", "size_bytes"}
    found = [{k: v for k, v in row.items() if k not in leave} for row in found]
    return sorted(found, key=repr)


CASES = {
    "both": STRUCTS, "only structs": ONLY_STRUCTS, "V2": ONLY_STRUCTS | V2, "V2, both": STRUCTS | V2
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("by", [("day", "part"), ()])
@pytest.mark.parametrize("case", CASES)
def test_others_see_what_they_see_in_json(tmp_path: Path, case: str, by: tuple[str, ...]) -> None:
    table = made(tmp_path / "structs", CASES[case], by)
    plain = made(tmp_path / "json", {}, by)
    assert actions(tmp_path / "structs") == actions(tmp_path / "json")
    for where in ("id < 15", "price > 2.5", "inside.a = 2", "moment > '1995-01-01'", "name > 'n2'"):
        planned = [held.scan(where=where).explain().files_to_read for held in (table, plain)]
        assert planned[0] == planned[1]
        assert table.scan(where=where).count() == plain.scan(where=where).count()


def test_a_checkpoint_from_structs_alone_says_the_same(tmp_path: Path) -> None:
    table = made(tmp_path, ONLY_STRUCTS)
    table.append(rows(5))
    before = read_structs(tmp_path, 3)
    table.maintenance.checkpoint()
    after = read_structs(tmp_path, 4)
    assert [row for row in after if row["path"] in {held["path"] for held in before}] == before
    assert len(after) == len(before) + 2


def read_structs(root: Path, version: int) -> list[dict[str, Any]]:
    held = pq.read_table(root / "_delta_log" / f"{version:020d}.checkpoint.parquet")
    return [add for add in held["add"].to_pylist() if add]


def test_the_kernel_reads_them(tmp_path: Path) -> None:
    kernel = pytest.importorskip("polars_deltalake")
    for name, properties in CASES.items():
        made(tmp_path / name, properties)
        found = kernel.scan_delta(str(tmp_path / name)).filter(pl.col("id") < 15).collect()
        assert sorted(found["id"].to_list()) == [10, 11]
