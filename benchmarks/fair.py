"""How long verbs take to finish beside processes that append without a pause.

They are of deltalake, or of txlog. The first verbs change rows that the others add, so each of
their commits conflicts with these verbs. An append, an update of other rows and a compaction
conflict with none.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import shutil
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median
from tempfile import gettempdir

import pyarrow as pa
from bench import commit, machine, put_section

import txlog

WRITERS = 4


def rows(*xs: int) -> pa.Table:
    return pa.table({"x": pa.array(xs, pa.int64()), "y": pa.array([0] * len(xs), pa.int64())})


def write(path: str, number: int, stop: Event) -> None:
    """Append small files until told to stop."""
    import deltalake

    while not stop.is_set():
        try:
            deltalake.write_deltalake(path, rows(1000 + number), mode="append")
        except Exception:
            continue


def write_own(path: str, number: int, stop: Event) -> None:
    """Append small files with txlog until told to stop."""
    table = txlog.Table(path)
    while not stop.is_set():
        table.append(rows(1000 + number))


def merge(table: txlog.Table) -> None:
    merging = table.merge(rows(1, 1001, 100), on="x").when_matched_update_all()
    merging.when_not_matched_insert_all().execute()


def transaction(table: txlog.Table) -> None:
    with table.transaction() as both:
        both.update({"y": "y + 1"}, "x < 1002")
        both.append(rows(50))
        both.delete("y > 40")


VERBS: dict[str, Callable[[txlog.Table], object]] = {
    "append": lambda table: table.append(rows(1)),
    "update": lambda table: table.update({"y": "y + 1"}, "x < 1002"),
    "delete": lambda table: table.delete("x = 1001"),
    "merge": merge,
    "transaction": transaction,
    "update apart": lambda table: table.update({"y": "y + 1"}, "x = 3"),
    "compact": lambda table: table.optimize.compact(),
}
OTHERS = {"deltalake": write, "txlog": write_own}


class Conflicts(logging.Handler):
    """Counts the attempts that were lost."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += ": retried" in record.getMessage()


def measure(folder: Path, verb: Callable[[txlog.Table], object], times: int, writers: str) -> str:
    """Return a row's cells: median and longest time, lost attempts, others' commits a second."""
    shutil.rmtree(folder, ignore_errors=True)
    # deltalake does not write tables with deletion vectors.
    properties = {"delta.enableDeletionVectors": "false"}
    txlog.write(folder, rows(0, 1, 2, 3, 4), properties=properties)
    stop = multiprocessing.Event()
    others = [
        multiprocessing.Process(target=OTHERS[writers], args=(str(folder), number, stop))
        for number in range(WRITERS)
    ]
    seen = Conflicts()
    logger = logging.getLogger("txlog")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(seen)
    for one in others:
        one.start()
    try:
        while len(txlog.Table(folder).to_arrow(["x"])["x"].unique()) < 5 + WRITERS:
            time.sleep(0.5)  # Until all of them commit.
        took, lost, failed = [], [], 0
        first, began = txlog.Table(folder).version, time.perf_counter()
        for _ in range(times):
            table, seen.count, start = txlog.Table(folder), 0, time.perf_counter()
            try:
                verb(table)
            except txlog.RetriesExhaustedError:
                failed += 1
            took.append(time.perf_counter() - start)
            lost.append(seen.count)
        rate = (txlog.Table(folder).version - first) / (time.perf_counter() - began)
    finally:
        stop.set()
        for one in others:
            one.join(30)
        logger.removeHandler(seen)
    return (
        f"{times - failed} of {times} | {median(took):.2f} s | {max(took):.2f} s "
        f"| {median(lost):.0f} | {max(lost)} | {rate:.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "txlog-fair")
    parser.add_argument("--verbs", nargs="+", choices=VERBS, default=list(VERBS))
    parser.add_argument("--writers", choices=OTHERS, default="deltalake")
    parser.add_argument("--dry", action="store_true", help="only print")
    given = parser.parse_args()
    lines = []
    for name in given.verbs:
        lines.append(
            f"| {name} | {measure(given.folder, VERBS[name], given.times, given.writers)} |"
        )
        print(lines[-1], flush=True)
    shutil.rmtree(given.folder)
    head = [
        f"## Beside fast writers of {given.writers}",
        "",
        (
            f"{time.strftime('%Y-%m-%d')}, commit {commit()}, `python benchmarks/fair.py --times "
            f"{given.times} --writers {given.writers}`. {WRITERS} processes of {given.writers} "
            f"append a row each time, as fast as they can; each of their commits conflicts with "
            f"all verbs but the append, the update apart and the compaction. The transaction is "
            f"an update, an append and a delete. {machine()}"
        ),
        "",
        "| verb | finished | median | longest | lost attempts, median | most | commits a second |",
        "|---|---|---|---|---|---|---|",
    ]
    text = "\n".join([*head, *lines]) + "\n"
    print("\n" + text)
    if not given.dry:
        put_section(text)


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
