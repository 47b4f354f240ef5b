"""Rows by key: indexes of txlog beside pylance's BTREE, and what other engines do without one.

python benchmarks/lookup.py [--rows N] [--files N] [--repeat N] [--folder F] [--dry | --appends]

Tables of six columns, in the order of the key and in no order, 1% of the rows deleted. All engines
answer the same keys in one process, operation by operation in turn, after each has warmed up.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from typing import Any

import deltalake
import duckdb
import lance
import numpy as np
import polars as pl
import pyarrow as pa
from bench import SEED, commit, machine, put_section

import txlog

STEP = 7  # Between keys, so that some numbers are none.
PROPERTIES = {
    "txlog.pageRows": "256",
    "delta.parquet.compression.codec": "lz4_raw",
    "delta.enableDeletionVectors": "true",
}
KINDS = ("sorted", "unsorted")


def parts(kind: str, rows: int, files: int) -> Iterator[pa.Table]:
    dice = np.random.default_rng(SEED)
    keys = np.arange(rows) if kind == "sorted" else dice.permutation(rows)
    for some in np.array_split(keys * STEP, files):
        count = len(some)
        yield pa.table(
            {
                "k": some,
                "a": dice.integers(0, 1 << 60, count),
                "b": dice.random(count),
                "c": dice.integers(0, 1_000, count),
                "s": pa.array(some).cast(pa.string()),
                "t": pa.array(dice.integers(0, 1 << 40, count)).cast(pa.string()),
            }
        )


def timed(call: Callable[[], Any]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def make(folder: Path, rows: int, files: int) -> dict[str, tuple[float, float]]:
    """Make the tables that are not there; return how long each index took to build."""
    took: dict[str, tuple[float, float]] = {}
    for kind in KINDS:
        home = folder / f"{kind}-{rows}-{files}"
        if (home / "done").exists():
            continue
        table: txlog.Table | None = None
        for data in parts(kind, rows, files):
            if table is None:
                table = txlog.Table.create(home / "txlog", data.schema, properties=PROPERTIES)
            table.append(data)
            lance.write_dataset(data, str(home / "lance"), mode="append")
        assert table is not None
        took[f"txlog, {kind}: build"] = timed(partial(table.indexes.create, "k"))
        table.delete("a % 100 = 0")
        other = lance.dataset(str(home / "lance"))
        took[f"pylance, {kind}: build"] = timed(partial(other.create_scalar_index, "k", "BTREE"))
        other.delete("a % 100 = 0")
        if kind == "sorted":
            rowids = sqlite3.connect(home / "sqlite.db")
            rowids.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, a, b, c, s, t)")
            for data in parts(kind, rows, files):
                columns = [column.to_pylist() for column in data.columns]
                rowids.executemany("INSERT INTO t VALUES (?,?,?,?,?,?)", zip(*columns, strict=True))
            rowids.execute("DELETE FROM t WHERE a % 100 = 0")
            rowids.commit()
            rowids.close()
        (home / "done").touch()
    return took


Ask = Callable[[list[int]], int]


def engines(home: Path, kind: str) -> dict[str, Ask]:
    """Return a function for each engine: it finds rows, and returns their number."""
    table = txlog.Table(home / "txlog")
    other = lance.dataset(str(home / "lance"))
    files = list(table.scan().file_uris())
    base = duckdb.connect()
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(home / "txlog")))

    def listed(keys: list[int]) -> str:
        return ",".join(map(str, keys))

    found: dict[str, Ask] = {
        "txlog": lambda keys: table.lookup(keys).num_rows,
        "pylance, BTREE": lambda keys: other.to_table(filter=f"k IN ({listed(keys)})").num_rows,
        "DuckDB, the same files without deletions": lambda keys: len(
            base.execute(f"SELECT * FROM read_parquet({files!r}) WHERE k IN ({listed(keys)})")
            .to_arrow_table()
        ),
        "polars, the same files without deletions": lambda keys: (
            pl.scan_parquet(files).filter(pl.col("k").is_in(keys)).collect().height
        ),
        "deltalake, SQL": lambda keys: pa.table(
            builder.execute(f"SELECT * FROM t WHERE k IN ({listed(keys)})")
        ).num_rows,
    }  # fmt: skip
    if kind == "sorted":
        lite = sqlite3.connect(home / "sqlite.db")
        found["SQLite, clustered"] = lambda keys: len(
            lite.execute(f"SELECT * FROM t WHERE k IN ({listed(keys)})").fetchall()
        )
    return found


def kept(answer: list[int], ask: Ask, keys: list[int]) -> None:
    answer.append(ask(keys))


SLOW = ("DuckDB", "polars", "deltalake")


def measured(given: argparse.Namespace, kind: str) -> list[str]:
    home = given.folder / f"{kind}-{given.rows}-{given.files}"
    asks = engines(home, kind)
    dice = np.random.default_rng(SEED + 1)

    def keys(count: int) -> list[int]:
        return [int(key) for key in dice.integers(0, given.rows, count) * STEP]

    for name, ask in asks.items():
        if not name.startswith(SLOW):
            for _ in range(30):  # Every file is met, and its pages are in the page cache.
                ask(keys(100))
    lines = []
    for count, repeat in ((1, 10 * given.repeat), (100, 2 * given.repeat), (10_000, 3)):
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in asks}
        for turn in range(repeat):
            chosen = keys(count)
            held: set[int] = set()
            for name, ask in asks.items():
                if name.startswith(SLOW) and (turn >= 3 or count == 10_000):
                    continue
                answer: list[int] = []
                times[name].append(timed(partial(kept, answer, ask, chosen)))
                rows = answer[0]
                if not name.startswith(("DuckDB", "polars")):
                    held.add(rows)
            # A key that is asked for twice is answered twice by txlog alone.
            if count < 10_000 and len(set(chosen)) == count and len(held) > 1:
                raise SystemExit(f"the engines found {held} rows")
        base = median(wall for wall, _ in times["pylance, BTREE"])
        base_cpu = median(cpu for _, cpu in times["pylance, BTREE"])
        for name, found in times.items():
            if found:
                wall, cpu = (median(column) for column in zip(*found, strict=True))
                lines.append(
                    f"| {kind} | {count:,} | {name} | {1e3 * wall:.2f} | {1e3 * cpu:.2f} | "
                    f"{base / wall:.2f} | {base_cpu / max(cpu, 1e-6):.2f} |"
                )
                print(lines[-1], flush=True)
    return lines


APPENDED_ROWS = 200_000
APPENDS = 10


def appends(folder: Path, kind: str) -> str:
    """Return how an append with an index compares with one without, in turn, by medians."""
    data = next(parts(kind, APPENDED_ROWS, 1))
    tables = []
    for name in ("indexed", "plain"):
        home = folder / f"append-{kind}-{name}"
        shutil.rmtree(home, ignore_errors=True)
        table = txlog.Table.create(home, data.schema, properties=PROPERTIES)
        if name == "indexed":
            table.indexes.create("k")
        table.append(data)
        tables.append(table)
    times = [[timed(partial(table.append, data)) for table in tables] for _ in range(APPENDS)]
    (wall, plain_wall), (cpu, plain_cpu) = (
        [median(turn[of][which] for turn in times) for of in range(2)] for which in range(2)
    )
    return (
        f"Append of {APPENDED_ROWS:,} rows, {kind}: {1e3 * wall:.0f} ms with an index and "
        f"{1e3 * plain_wall:.0f} without ({wall / plain_wall:.2f}); CPU {1e3 * cpu:.0f} and "
        f"{1e3 * plain_cpu:.0f} ms ({cpu / plain_cpu:.2f})."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "txlog-lookup")
    parser.add_argument("--dry", action="store_true", help="only print")
    parser.add_argument("--appends", action="store_true", help="print the cost of appends alone")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.appends:
        print("\n".join(appends(given.folder, kind) for kind in KINDS))
        return
    took = make(given.folder, given.rows, given.files)
    text = [
        "## Rows by key",
        "",
        (
            f"{time.strftime('%Y-%m-%d')}, commit {commit()}, `python benchmarks/lookup.py --rows "
            f"{given.rows} --files {given.files} --repeat {given.repeat}`. {given.rows:,} rows of "
            f"six columns in {given.files} files, 1% deleted; lz4, 256 rows a page. Medians; "
            f"{machine()}"
        ),
        "",
        "| rows are | keys | engine | ms | CPU ms | pylance / it | by CPU |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        text += measured(given, kind)
    text.append("")
    for kind in KINDS:
        home = given.folder / f"{kind}-{given.rows}-{given.files}"
        (info,) = txlog.Table(home / "txlog").indexes.list().values()
        size = sum(
            f.stat().st_size for f in (home / "lance" / "_indices").rglob("*") if f.is_file()
        )
        text.append(
            f"Index, {kind}: {info.bits_per_key:.1f} bits a key in {info.runs} run; pylance "
            f"{8 * size / given.rows:.1f}."
        )
    text += [f"{name} {wall:.1f} s, {cpu:.1f} s of CPU." for name, (wall, cpu) in took.items()]
    text += [appends(given.folder, kind) for kind in KINDS]
    print("\n".join(text))
    if not given.dry:
        put_section("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
