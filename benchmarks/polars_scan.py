"""Scans as Arrow and as polars: txlog, the plain readers of its files, and other engines.

Each run is a process of its own, in turn, with its peak of memory. The files are in the page cache.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from typing import Any

LIMIT = 10_000  # Of `a`, which is even from 0 to 1,000,000 and unsorted: 1% of the rows.
FILTER = f"a < {LIMIT}"
# For each scan: its table, and whether it filters.
SCANS = {
    "all columns": ("plain", False),
    "1% by an unsorted column": ("plain", True),
    "all columns, 1% deleted in every file": ("deleted", False),
    "1% by an unsorted column, 1% deleted": ("deleted", True),
}


def make_tables(folder: Path, rows: int, files: int) -> None:
    if (folder / "made").exists():
        return
    from bench import SCHEMA, reader

    import txlog

    shutil.rmtree(folder, ignore_errors=True)
    for name, enabled in (("plain", "false"), ("deleted", "true")):
        properties = {"delta.enableDeletionVectors": enabled}
        table = txlog.Table.create(folder / name, SCHEMA, properties=properties)
        table.append(
            reader(rows, files),
            options=txlog.WriteOptions(
                max_rows_per_file=-(-rows // files), target_file_bytes=1 << 40
            ),
        )
    txlog.Table(folder / "deleted").delete("a % 100 = 7")
    (folder / "made").touch()


def to_arrow(root: Path, filtered: bool) -> Any:
    import txlog

    return txlog.Table(root).to_arrow(where=FILTER if filtered else None)


def to_polars(root: Path, filtered: bool) -> Any:
    import txlog

    return txlog.Table(root).to_polars(where=FILTER if filtered else None)


def plain_pyarrow(root: Path, filtered: bool) -> Any:
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    files = sorted(map(str, root.glob("*.parquet")))
    return ds.dataset(files).to_table(filter=pc.field("a") < LIMIT if filtered else None)


def plain_polars(root: Path, filtered: bool) -> Any:
    import polars as pl

    frame = pl.scan_parquet(sorted(root.glob("*.parquet")))
    return (frame.filter(pl.col("a") < LIMIT) if filtered else frame).collect()


def deltalake_query(root: Path, filtered: bool) -> Any:
    from deltalake import DeltaTable, QueryBuilder

    where = f" WHERE {FILTER}" if filtered else ""
    found = QueryBuilder().register("t", DeltaTable(root)).execute(f"SELECT * FROM t{where}")
    return found.read_all()


def deltalake_pyarrow(root: Path, filtered: bool) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(root).to_pyarrow_table(filters=[("a", "<", LIMIT)] if filtered else None)


def kernel(root: Path, filtered: bool) -> Any:
    import polars as pl
    import polars_deltalake

    if not filtered:
        return polars_deltalake.read_delta(str(root))
    return polars_deltalake.scan_delta(str(root)).filter(pl.col("a") < LIMIT).collect()


WORKS: dict[str, Callable[[Path, bool], Any]] = {
    "txlog `to_arrow`": to_arrow,
    "txlog `to_polars`": to_polars,
    "plain pyarrow": plain_pyarrow,
    "plain polars": plain_polars,
    "deltalake `QueryBuilder`": deltalake_query,
    "deltalake `to_pyarrow_table`": deltalake_pyarrow,
    "polars-deltalake": kernel,
}
# Of a table with deletions: the plain readers know nothing of them, and deltalake hands none to
# pyarrow.
BLIND = ("plain pyarrow", "plain polars", "deltalake `to_pyarrow_table`")


OURS = ("pyarrow.parquet", "sqlglot.dialects.spark", "txlog.table")
LIBRARIES = {
    "txlog `to_arrow`": OURS,
    "txlog `to_polars`": (*OURS, "txlog.scan.frames"),
    "plain pyarrow": ("pyarrow.dataset",),
    "plain polars": ("polars",),
    "deltalake `QueryBuilder`": ("deltalake",),
    "deltalake `to_pyarrow_table`": ("deltalake", "pyarrow.dataset"),
    "polars-deltalake": ("polars_deltalake",),
}


def one(root: Path, work: str, filtered: bool) -> dict[str, float]:
    # Libraries are loaded before the clock starts; pandas too, which pyarrow imports with the first
    # array, if it is installed.
    import pyarrow

    for name in LIBRARIES[work]:
        import_module(name)
    pyarrow.array([1])
    cpu, start = time.process_time(), time.perf_counter()
    found = WORKS[work](root, filtered)
    seconds = time.perf_counter() - start
    cpu = time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "cpu": cpu, "rows": found.shape[0], "peak": peak}


def table_of(runs: dict[str, list[dict[str, float]]]) -> list[str]:
    lines = ["| | rows | s | txlog ÷ it | CPU s | peak MB |", "|---|---|---|---|---|---|"]
    middle = {
        work: {key: median(run[key] for run in found) for key in found[0]}
        for work, found in runs.items()
    }
    for work, one in middle.items():
        ours = middle["txlog `to_polars`" if "polars" in work else "txlog `to_arrow`"]
        lines.append(
            f"| {work} | {one['rows']:,.0f} | {one['seconds']:.2f} "
            f"| {ours['seconds'] / one['seconds']:.2f} | {one['cpu']:.2f} | {one['peak']:,.0f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "txlog-polars-scan")
    parser.add_argument("--dry", action="store_true", help="do not write RESULTS.md")
    parser.add_argument("--only", nargs=2, help="one work and one scan, as JSON")
    given = parser.parse_args()
    if given.only:
        work, scan = given.only
        name, filtered = SCANS[scan]
        print(json.dumps(one(given.folder / name, work, filtered)))
        return
    from bench import (  # Only here: peaks of memory are told.
        SCHEMA,
        commit,
        machine,
        peers,
        put_section,
    )

    make_tables(given.folder, given.rows, given.files)
    lines = ["## Scans as Arrow and as polars", ""]
    lines.append(
        f"{datetime.now(UTC):%Y-%m-%d}, commit {commit()}. {given.rows:,} rows, {len(SCHEMA)} "
        f"columns, {given.files} files. Medians of {given.repeat} runs of each, in turn. "
        f"{peers()}, {machine()}."
    )
    for scan, (name, _) in SCANS.items():
        runs: dict[str, list[dict[str, float]]] = {
            work: [] for work in WORKS if name == "plain" or work not in BLIND
        }
        for _ in range(given.repeat):
            for work, found in runs.items():
                command = [sys.executable, __file__, "--folder",
                           str(given.folder), "--only", work, scan]  # fmt: skip
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                # Some engines crash when the process ends, after all was said.
                if not done.stdout.strip():
                    raise SystemExit(f"{work}, {scan}:\n{done.stderr}")
                found.append(json.loads(done.stdout.splitlines()[-1]))
        if len({run["rows"] for found in runs.values() for run in found}) > 1:
            raise SystemExit(f"{scan}: the engines do not agree")
        print(scan, *table_of(runs), sep="\n", flush=True)
        lines += ["", f"{scan}:", "", *table_of(runs)]
    text = "\n".join(lines) + "\n"
    print("\n" + text)
    if not given.dry:
        put_section(text)


if __name__ == "__main__":
    main()
