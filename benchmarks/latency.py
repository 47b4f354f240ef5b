"""What a store far away costs: each request takes 50 ms, whatever it asks for."""

import argparse
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
from bench import commit, machine, put_section

import txlog
from txlog.testing import CountingStore, LatencyStore, open_store, open_table

COMMITS_AFTER = 10


def make(uri: str, files: int) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    table = txlog.Table.create(uri, schema, properties={"delta.checkpointInterval": "1000000"})
    for n in range(files):
        if n == files - COMMITS_AFTER:
            table.maintenance.checkpoint()
        ids = range(100 * n, 100 * n + 100)
        table.append(pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{i}" for i in ids]}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--delay-ms", type=float, default=50)
    parser.add_argument("--dry", action="store_true", help="only print")
    given = parser.parse_args()
    uri = f"memory://{uuid4()}"
    make(uri, given.files)
    store = CountingStore(LatencyStore(open_store(uri), given.delay_ms / 1000))
    lines = ["| | s | requests | KB |", "|---|---|---|---|"]

    def told(label: str, work: Callable[[], Any]) -> Any:
        store.reset()
        started = time.perf_counter()
        found = work()
        seconds = time.perf_counter() - started
        kilobytes = store.bytes.total() / 1000
        lines.append(f"| {label} | {seconds:.2f} | {store.requests.total():,} | {kilobytes:,.0f} |")
        return found

    table = told("open", lambda: open_table(store))
    told("refresh, nothing new", table.refresh)
    told("plan with a predicate, one file left", lambda: table.scan(where="id = 50").fragments())
    told("read that one file", lambda: table.to_arrow(where="id = 50"))
    told("scan all files, `to_arrow`", table.to_arrow)
    told("scan all files, `to_batches`", lambda: list(table.scan().to_batches()))
    row = pa.table({"id": pa.array([-1], pa.int64()), "name": ["x"]})
    told("append one row", lambda: table.append(row))
    told("open without the checkpoint: all commits", lambda: open_early(store, uri))
    text = "\n".join(
        [
            f"## A store far away, {given.delay_ms:.0f} ms a request",
            "",
            (
                f"{datetime.now(UTC):%Y-%m-%d}, commit {commit()}. {given.files:,} files of 100 "
                f"rows, a checkpoint and {COMMITS_AFTER} commits after it; `LatencyStore` "
                f"around memory, one run. {machine()}."
            ),
            "",
            *lines,
            "",
        ]
    )
    print("\n" + text)
    if not given.dry:
        put_section(text)


def open_early(store: CountingStore, uri: str) -> txlog.Table:
    return open_table(store, version=txlog.Table(uri).version - COMMITS_AFTER - 2)


if __name__ == "__main__":
    main()
