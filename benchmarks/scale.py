"""What verbs cost by files, commits, rows, columns, partitions and pins: requests, memory, time.

    python benchmarks/scale.py
    python benchmarks/scale.py --kinds columns pins

Tables that grow in files or commits are log alone: their data files do not exist. Those that grow
in files have a V2 checkpoint with sidecars of 100,000 files each, in 1,000 partitions. Those that
grow in commits have one file for each commit, and no checkpoint. Rows are in files of 1,000,000;
columns have three rows in each of two files; a partition is a file of one row; and a pinned version
has one file of one row more than the one before. Each run is a process of its own; imports and the
same work on a small table come first and are not timed. A request is what an object store would
get: one for a file or a range of it, and one for 1,000 names. docs/scale.md has the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import log_tables
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bench import commit, machine
from cluster_plan import peak

RELAXED = {"txlog.durability": "relaxed"}
PARTITION = "region = 'r03' and day = '2026-01-05'"
BY_FILES: dict[str, Callable[[Any], Any]] = {
    "open": lambda table: table.version,
    "plan of one of 1,000 partitions": lambda table: table.scan(where=PARTITION).fragments(),
    "`count()`": lambda table: table.count(),
    "`files()`": lambda table: table.files(),
    "`files` of three columns": lambda table: table.files(["path", "size_bytes", "num_records"]),
    "a commit": lambda table: table.alter.set_properties({"a.b": "c"}),
    "`delete` of a partition": lambda table: table.delete(PARTITION),
    "`maintenance.checkpoint()`": lambda table: table.maintenance.checkpoint(),
    "`vacuum()` (a dry run)": lambda table: table.vacuum(),
    "`doctor()`": lambda table: table.doctor(),
}
BY_COMMITS: dict[str, Callable[[Any], Any]] = {
    "open": lambda table: table.version,
    "`history(10)`": lambda table: table.history(10),
    "a commit": lambda table: table.alter.set_properties({"a.b": "c"}),
    "`doctor()`": lambda table: table.doctor(),
}
FILE_ROWS = 1_000_000


def summed(table: Any) -> None:
    """Read a column of all rows, a batch at a time."""
    sum(pc.sum(batch["x"]).as_py() for batch in table.scan(["x"]).to_batches())


BY_ROWS: dict[str, Callable[[Any], Any]] = {
    "`count()`": lambda table: table.count(),
    "a column of all rows": summed,
    "one row by its sorted key": lambda table: table.to_arrow(where="id = 765432"),
    "one row by another column": lambda table: table.to_arrow(where="y = 765432"),
    "`delete` of one row in 1,000": lambda table: table.delete("y % 1000 = 7"),
    "`upsert` of 1,000 rows of one file": lambda table: table.upsert(keyed(), on="id"),
}
BY_COLUMNS: dict[str, Callable[[Any], Any]] = {
    "`append` of 3 rows": lambda table: table.append(wide(len(table.schema))),
    "`to_arrow()`": lambda table: table.to_arrow(),
    "`to_arrow` of two columns": lambda table: table.to_arrow(["c1", "c3"]),
    "plan with a predicate": lambda table: table.scan(where="c7 > 6").fragments(),
    "`update` of a column": lambda table: table.update({"c3": "4"}),
    "`upsert` of a row": lambda table: table.upsert(wide(len(table.schema)).slice(0, 1), on="c1"),
    "`maintenance.checkpoint()`": lambda table: table.maintenance.checkpoint(),
}
BY_PARTITIONS: dict[str, Callable[[Any], Any]] = {
    "`overwrite` of all, a row in each": lambda table: table.overwrite(small(table.count())),
    "`to_arrow()`": lambda table: table.to_arrow(),
    "`partitions()`": lambda table: table.partitions(),
    "`to_arrow` of one partition": lambda table: table.to_arrow(where="p = 'k7'"),
    "`delete` of one partition": lambda table: table.delete("p = 'k7'"),
}
BY_PINS: dict[str, Callable[[Any], Any]] = {
    "open": lambda table: table.version,
    "open the first pin": lambda table: table.at("pin-0").version,
    "a new pin": lambda table: table.pins.create("new"),
    "`history(10)`": lambda table: table.history(10),
    "`vacuum()` (a dry run)": lambda table: table.vacuum(),
    "`maintenance.expire()` (a dry run)": lambda table: table.maintenance.expire(),
}


def keyed() -> pa.Table:
    ids = np.arange(1_000) * 3
    return pa.table({"id": ids, "x": ids, "y": ids})


def wide(columns: int) -> pa.Table:
    return pa.table({f"c{at}": [float(at), 1.0, 2.0] for at in range(columns)})


def small(partitions: int) -> pa.Table:
    return pa.table({"p": [f"k{at}" for at in range(partitions)], "x": range(partitions)})


def write_rows(root: Path, size: int) -> None:
    import txlog

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, size, FILE_ROWS):
            ids = np.arange(start, start + FILE_ROWS)
            # 7,919 has no factor in common with the sizes, so `y` has each number once.
            yield pa.record_batch({"id": ids, "x": ids % 1_000, "y": ids * 7_919 % size})

    options = txlog.WriteOptions(max_rows_per_file=FILE_ROWS)
    schema = pa.schema([(name, pa.int64()) for name in ("id", "x", "y")])
    data = pa.RecordBatchReader.from_batches(schema, batches())
    txlog.write(root, data, options=options, storage_options=RELAXED)


def write_columns(root: Path, size: int) -> None:
    import txlog

    for _ in range(2):
        txlog.write(root, wide(size), mode="append", storage_options=RELAXED)


def write_partitions(root: Path, size: int) -> None:
    import txlog

    txlog.write(root, small(size), partition_by="p", storage_options=RELAXED)


def write_pins(root: Path, size: int) -> None:
    import txlog

    table = txlog.write(root, pa.table({"x": [0]}), storage_options=RELAXED)
    for at in range(size):
        table.append(pa.table({"x": [at]}))
        table.pins.create(f"pin-{at}")


WAYS: dict[str, tuple[dict[str, Callable[[Any], Any]], Callable[[Path, int], object], int]] = {
    "files": (BY_FILES, log_tables.write_sidecars, 1_000),
    "commits": (BY_COMMITS, lambda root, size: log_tables.write_commits(root, size, 1), 1_000),
    "rows": (BY_ROWS, write_rows, FILE_ROWS),
    "columns": (BY_COLUMNS, write_columns, 10),
    "partitions": (BY_PARTITIONS, write_partitions, 10),
    "pins": (BY_PINS, write_pins, 2),
}
"""For each kind of growth: the works, what makes a table of a size, and the size that is warm."""


def made(kind: str, size: int, folder: Path) -> Path:
    root = folder / f"{kind}-{size}"
    if not root.exists():
        WAYS[kind][1](root, size)
    return root


def once(kind: str, name: str, size: int, folder: Path) -> dict[str, float]:
    from txlog.extend import open_table
    from txlog.store.open import open_store
    from txlog.testing import CountingStore

    works, _, warm = WAYS[kind]
    work = works[name]
    root = folder / "work"
    for count in (warm, size):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(made(kind, count, folder), root, copy_function=os.link)
        store = CountingStore(open_store(str(root), RELAXED))
        cpu, start = time.process_time(), time.perf_counter()
        work(open_table(store))
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    shutil.rmtree(root, ignore_errors=True)
    requests = sum(store.requests.values())
    # `getrusage` would begin with the peak of the process that started this one.
    memory = peak(os.getpid())
    return {"seconds": seconds, "cpu": cpu, "peak": memory, "requests": requests}


def measured(kind: str, name: str, size: int, given: argparse.Namespace) -> dict[str, float] | None:
    command = [sys.executable, __file__, "--folder", str(given.folder)]
    command += ["--only", json.dumps([kind, name, size])]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=given.patience
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def cell(found: dict[str, float] | None, patience: int) -> str:
    if found is None:
        return f"more than {patience} s"
    return (
        f"{found['seconds']:.2f} s ({found['cpu']:.2f}), {found['peak']:,.0f} MB, "
        f"{found['requests']:,.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "txlog-scale")
    parser.add_argument("--files", type=int, nargs="+", default=[30_000, 300_000, 3_000_000])
    parser.add_argument("--commits", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--columns", type=int, nargs="+", default=[500, 2_000, 10_000])
    parser.add_argument("--partitions", type=int, nargs="+", default=[300, 3_000, 30_000])
    parser.add_argument("--pins", type=int, nargs="+", default=[10, 100, 1_000])
    parser.add_argument("--kinds", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--works", nargs="+", help="only works with one of these words")
    parser.add_argument("--patience", type=int, default=600, help="seconds for each work")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.only:
        kind, name, size = json.loads(given.only)
        print(json.dumps(once(kind, name, size, given.folder)))
        return
    for kind in given.kinds:
        works, _, warm = WAYS[kind]
        sizes = getattr(given, kind)
        print(f"\n| | {' | '.join(f'{size:,} {kind}' for size in sizes)} |")
        print(f"|---|{'---|' * len(sizes)}")
        for size in (warm, *sizes):  # Not in the process that is measured.
            made(kind, size, given.folder)
        for name in works:
            if given.works and not any(word in name for word in given.works):
                continue
            cells = [cell(measured(kind, name, size, given), given.patience) for size in sizes]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print(f"\nCommit {commit()}. {machine()}.")


if __name__ == "__main__":
    main()
