"""Z-order and vacuum beside deltalake: time, and how many files predicates have read afterwards.

python benchmarks/maintenance.py [ROWS] [FILES]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa

import txlog

PLAIN = {"delta.enableDeletionVectors": "false"}


def timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def share_read(table: txlog.Table, column: str) -> float:
    """Return which share of files a predicate over 1% of a column's values has read."""
    found = [
        len(table.scan(where=f"{column} BETWEEN {low} AND {low + 10_000}").file_uris())
        for low in range(5_000, 1_000_000, 50_000)
    ]
    return sum(found) / len(found) / table.files().num_rows


def z_order(folder: Path, rows: int) -> None:
    random = np.random.default_rng(1)
    data = pa.table(
        {
            "x": random.integers(0, 1_000_000, rows),
            "y": random.integers(0, 1_000_000, rows),
            "price": random.random(rows),
            "name": [f"name {number}" for number in random.integers(0, 10_000, rows)],
        }
    )
    tables = {}
    for name in ("txlog", "deltalake"):
        tables[name] = txlog.write(folder / name, data.slice(0, rows // 10), properties=PLAIN)
        for part in range(1, 10):
            tables[name].append(data.slice(part * (rows // 10), rows // 10))
    size = sum(tables["txlog"].files()["size_bytes"].to_pylist()) // 32
    before = [share_read(tables["txlog"], column) for column in ("x", "y")]
    took = timed(
        lambda: tables["txlog"].optimize.z_order(
            ["x", "y"], options=txlog.WriteOptions(max_rows_per_file=rows // 32)
        )
    )
    other = deltalake.DeltaTable(folder / "deltalake")
    theirs = timed(lambda: other.optimize.z_order(["x", "y"], target_size=size))
    print(f"z_order of {rows} rows; read before: x {before[0]:.0%}, y {before[1]:.0%} of files")
    for name, seconds in (("txlog", took), ("deltalake", theirs)):
        table = tables[name].refresh()
        shares = [share_read(table, column) for column in ("x", "y")]
        files = table.files().num_rows
        print(f"  {name}: {seconds:.2f} s, {files} files, x {shares[0]:.0%}, y {shares[1]:.0%}")


def vacuum(folder: Path, files: int) -> None:
    for name in ("txlog", "deltalake"):
        txlog.write(folder / f"v-{name}", pa.table({"x": [1]}), properties=PLAIN)
        for number in range(files):
            at = folder / f"v-{name}" / f"p={number % 100}"
            at.mkdir(exist_ok=True)
            path = at / f"part-{number}.parquet"
            path.write_bytes(b"x")
            os.utime(path, (1, 1))
    print(f"vacuum of {files} files: list, list and delete")
    ours = txlog.Table(folder / "v-txlog")
    other = deltalake.DeltaTable(folder / "v-deltalake")
    calls = {
        "txlog": lambda dry: ours.vacuum(0, dry, False),
        "deltalake": lambda dry: other.vacuum(0, dry, False, full=True),
    }
    for name, call in calls.items():
        listed, deleted = timed(partial(call, True)), timed(partial(call, False))
        print(f"  {name}: {listed:.2f} s, {deleted:.2f} s")
        left = sum(1 for path in (folder / f"v-{name}").rglob("*.parquet"))
        print(f"    {left} files are left")


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as place:
        z_order(Path(place), given[0] if given else 1_000_000)
        vacuum(Path(place), given[1] if given[1:] else 100_000)
