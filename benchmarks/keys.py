"""Changes and reads by key, with an index, without it, and by deltalake.

    python benchmarks/keys.py --rows 20000000 --files 100

The keys of all files are a random permutation of even numbers: each file may have each key, and
statistics exclude none. Each run is a process of its own with a copy of the table; imports and a
run on a small table are not timed, but opening the table is. "kept" means that the same process has
read one key before, so that the index is in memory. "insert" adds rows whose keys no row has: txlog
by an append to a table with a unique key, deltalake by a merge that inserts rows without a match.
The last columns are the CPU seconds without the index, and of deltalake, as multiples of those with
it.

    python benchmarks/keys.py --joins --rows 20000000 --files 100

joins keys of one table with another one of the same size, both in no order, each with an index: the
same SQL by `txlog.sql`, and by duckdb over the same Parquet files. The last columns are the times
of duckdb as multiples of those with tables that are kept open.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from math import nan
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from typing import Any

import numpy as np
import pyarrow as pa
from bench import commit, machine, put_section

TITLE = "Changes and reads by key"
JOINS_TITLE = "Joins of keys"
ENGINES = ("index", "no index", "deltalake")
WORKS = ("where", "where, kept", "delete", "update", "upsert", "insert")


def rows(keys: Any, rng: Any) -> pa.Table:
    """Return rows with keys: 16 characters of text and three numbers each."""
    size = len(keys)
    return pa.table(
        {
            "id": keys,
            "name": pa.array([f"{number:016x}" for number in rng.integers(0, 1 << 60, size)]),
            "amount": rng.random(size),
            "count": rng.integers(0, 1_000, size),
            "at": pa.array(rng.integers(0, 1 << 40, size), pa.timestamp("us", "UTC")),
        }
    )


def make(root: Path, total: int, files: int, page_rows: int) -> None:
    import txlog

    rng = np.random.default_rng(7)
    options = {"txlog.durability": "relaxed"}
    properties: dict[str, str] | None = {"txlog.pageRows": str(page_rows)}
    for part in np.array_split(2 * rng.permutation(total), files):
        table = rows(part, rng)
        txlog.write(root, table, mode="append", storage_options=options, properties=properties)
        properties = None
    no_index = root.with_name(root.name.replace("index", "no index"))
    shutil.copytree(root, no_index, copy_function=os.link)
    txlog.Table(root, storage_options=options).indexes.create("id")


def asked(count: int, total: int) -> Any:
    """Return keys of rows; the odd numbers are no keys."""
    return 2 * np.random.default_rng(11).choice(total, count, replace=False)


def by_txlog(work: str, root: Path, keys: Any) -> Callable[[], Any]:
    import txlog

    if work == "insert":
        table = txlog.Table(root)
        keeps = bool(table.indexes.list())
        table.alter.add_constraint({"pk": txlog.unique("id")})
        if not keeps:
            table.indexes.drop("id")
        keys = keys + 1
    chosen = txlog.col("id").isin(keys.tolist())
    kept = txlog.Table(root, storage_options={"txlog.durability": "relaxed"})
    if work == "where, kept":
        kept.to_arrow(where=txlog.col("id") == int(keys[0]) + 1)

    def opened() -> txlog.Table:
        return txlog.Table(root, storage_options={"txlog.durability": "relaxed"})

    source = rows(keys, np.random.default_rng(12))
    works: dict[str, Callable[[], Any]] = {
        "where": lambda: opened().to_arrow(where=chosen).num_rows,
        "where, kept": lambda: kept.to_arrow(where=chosen).num_rows,
        "delete": lambda: opened().delete(chosen).metrics["numDeletedRows"],
        "update": lambda: opened().update({"count": "-1"}, chosen).metrics["numUpdatedRows"],
        "upsert": lambda: opened().upsert(source, on="id").metrics["numTargetRowsUpdated"],
        "insert": lambda: opened().append(source).metrics["numOutputRows"],
    }
    return works[work]


def by_deltalake(work: str, root: Path, keys: Any) -> Callable[[], Any]:
    from deltalake import DeltaTable

    if work == "insert":
        keys = keys + 1
    where = f"id IN ({', '.join(map(str, keys.tolist()))})"
    pairs = [("id", "in", keys.tolist())]
    source = rows(keys, np.random.default_rng(12))

    def upsert() -> Any:
        merging = DeltaTable(root).merge(source, "s.id = t.id", source_alias="s", target_alias="t")
        done = merging.when_matched_update_all().when_not_matched_insert_all().execute()
        return done["num_target_rows_updated"]

    def insert() -> Any:
        merging = DeltaTable(root).merge(source, "s.id = t.id", source_alias="s", target_alias="t")
        return merging.when_not_matched_insert_all().execute()["num_target_rows_inserted"]

    kept = DeltaTable(root)
    works: dict[str, Callable[[], Any]] = {
        "where": lambda: DeltaTable(root).to_pyarrow_table(filters=pairs).num_rows,
        "where, kept": lambda: kept.to_pyarrow_table(filters=pairs).num_rows,
        "delete": lambda: DeltaTable(root).delete(where)["num_deleted_rows"],
        "update": lambda: DeltaTable(root).update({"count": "-1"}, predicate=where)[
            "num_updated_rows"
        ],
        "upsert": upsert,
        "insert": insert,
    }
    return works[work]


JOIN = """
    SELECT a.id, b.name, b.amount FROM {a} AS a JOIN {b} AS b ON a.ref = b.id
    WHERE a.id IN ({keys}) ORDER BY a.id
"""


def make_joined(root: Path, total: int, files: int, page_rows: int) -> None:
    """Make a table of references to the rows of the one that `make` makes."""
    import txlog

    rng = np.random.default_rng(8)
    properties: dict[str, str] | None = {"txlog.pageRows": str(page_rows)}
    options = {"txlog.durability": "relaxed"}
    ids, refs = rng.permutation(total), 2 * rng.permutation(total)
    for id_, ref in zip(np.array_split(ids, files), np.array_split(refs, files), strict=True):
        data = pa.table({"id": id_, "ref": ref, "weight": rng.random(len(id_))})
        txlog.write(root, data, mode="append", storage_options=options, properties=properties)
        properties = None
    txlog.Table(root, storage_options=options).indexes.create("id")


def by_sql(query: str, folders: dict[str, Path]) -> pa.Table:
    import txlog

    return txlog.sql(query, {name: txlog.Table(folder) for name, folder in folders.items()})


def by_duckdb(connection: Any, query: str) -> pa.Table:
    return connection.sql(query).to_arrow_table()


def joins(given: argparse.Namespace) -> str:
    """Return how long joins of some keys take by txlog, opened anew and kept, and by duckdb."""
    import duckdb

    import txlog

    folders = {"a": given.folder / "joined", "b": given.folder / "index"}
    if not folders["a"].exists():
        make_joined(folders["a"], given.rows, given.files, given.page_rows)
    kept = {name: txlog.Table(folder) for name, folder in folders.items()}
    connection = duckdb.connect()
    parquet = {name: f"read_parquet('{folder}/*.parquet')" for name, folder in folders.items()}
    lines = [
        "| keys | opened anew s | CPU | kept s | CPU | duckdb s | CPU | x | x by CPU |",
        "|" + "---|" * 9,
    ]
    for count in given.keys:
        keys = np.random.default_rng(13).choice(given.rows, count, replace=False)
        texts = ", ".join(map(str, keys.tolist()))
        query = JOIN.format(a="a", b="b", keys=texts)
        works = (
            partial(by_sql, query, folders),
            partial(txlog.sql, query, kept),
            partial(by_duckdb, connection, JOIN.format(**parquet, keys=texts)),
        )
        answers = [work() for work in works]
        assert all(one.to_pylist() == answers[0].to_pylist() for one in answers)
        assert answers[0].num_rows == count
        spent: list[list[tuple[float, float]]] = [[] for _ in works]
        for _ in range(given.repeat):
            for work, times in zip(works, spent, strict=True):
                cpu, start = time.process_time(), time.perf_counter()
                work()
                times.append((time.perf_counter() - start, time.process_time() - cpu))
        found = [[median(one) for one in zip(*times, strict=True)] for times in spent]
        cells = [f"{seconds:.3f} | {cpu:.3f}" for seconds, cpu in found]
        cells += [f"{found[2][at] / found[1][at]:.1f}" for at in (0, 1)]
        lines.append(f"| {count:,} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def peak_mb() -> float:
    """Return the peak memory of this process; `getrusage` would count that of its parent, too."""
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in one)
    return int(line.split()[1]) / 1e3


def once(work: str, engine: str, count: int, given: argparse.Namespace) -> dict[str, float]:
    root = given.folder / "work"
    for made, total, wanted in (("small ", 20_000, 1), ("", given.rows, count)):
        shutil.rmtree(root, ignore_errors=True)
        made += engine.replace("deltalake", "no index")
        shutil.copytree(given.folder / made, root, copy_function=os.link)
        keys = asked(wanted, total)
        call = (by_deltalake if engine == "deltalake" else by_txlog)(work, root, keys)
        cpu, start = time.process_time(), time.perf_counter()
        found = call()
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        assert found == wanted, (found, wanted)
    return {"seconds": seconds, "cpu": cpu, "peak": peak_mb()}


def measured(work: str, engine: str, count: int, given: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, __file__, "--folder", str(given.folder)]
    command += ["--rows", str(given.rows), "--only", json.dumps([work, engine, count])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{work} of {engine} failed:\n{done.stderr[-500:]}", file=sys.stderr)
        return {"seconds": nan, "cpu": nan, "peak": nan}
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "txlog-keys")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--page-rows", type=int, default=1_024, help="txlog.pageRows")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--keys", type=int, nargs="+", default=[1, 1_000, 100_000])
    parser.add_argument("--works", nargs="+", default=WORKS)
    parser.add_argument("--joins", action="store_true", help="only the joins")
    parser.add_argument("--dry", action="store_true", help="only print")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.only:
        print(json.dumps(once(*json.loads(given.only), given)))
        return
    if not (given.folder / "index").exists():
        make(given.folder / "small index", 20_000, 2, given.page_rows)
        make(given.folder / "index", given.rows, given.files, given.page_rows)
    told = (
        f"{datetime.now(UTC):%Y-%m-%d}, commit {commit()}. {given.rows:,} rows in {given.files} "
        f"files, pages of {given.page_rows:,} rows. Medians of {given.repeat} runs. {machine()}."
    )
    if given.joins:
        text = f"## {JOINS_TITLE}\n\n{told}\n\n{joins(given)}"
        print("\n" + text)
        if not given.dry:
            put_section(text)
        return
    lines = [
        "| | keys | index s | CPU | MB | no index s | CPU | MB | deltalake s | CPU | MB | x | x |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for work in given.works:
        for count in given.keys:
            runs: dict[str, list[dict[str, float]]] = {engine: [] for engine in ENGINES}
            for _ in range(given.repeat):
                for engine in ENGINES:
                    runs[engine].append(measured(work, engine, count, given))
            found = {
                engine: [median(run[what] for run in of) for what in ("seconds", "cpu", "peak")]
                for engine, of in runs.items()
            }
            cells = [f"{s:.3f} | {c:.3f} | {m:,.0f}" for s, c, m in found.values()]
            cpu = {engine: values[1] for engine, values in found.items()}
            cells += [f"{cpu[one] / cpu['index']:.1f}" for one in ("no index", "deltalake")]
            lines.append(f"| {work} | {count:,} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    text = "\n".join([f"## {TITLE}", "", told, "", *lines]) + "\n"
    print("\n" + text)
    if not given.dry:
        put_section(text)


if __name__ == "__main__":
    main()
