"""Committing, appending, checkpointing, deleting, by txlog and by deltalake: a function for each.

Each prepares what is not measured (a table in an empty folder, actions, rows), and returns the
work. That returns an answer.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pyarrow as pa
from log_tables import adds, schema_string, write_commits

Prepare = Callable[[Path], Callable[[], Any]]
COMMITS = 1_000
APPENDS = 200
ROWS = 1_000
WRITERS, EACH = 4, 100
PATIENCE = 600
"""Seconds that one process waits for the others."""
SPENT: list[float] = []
"""CPU seconds of each of the processes that did the last work, without starting them."""


def rows_of(number: int, rows: int = ROWS) -> pa.Table:
    first = number * rows
    return pa.table(
        {
            "key": pa.array(range(first, first + rows), pa.int64()),
            "part": pa.array([f"p{at % 7}" for at in range(rows)]),
            "value": pa.array([(first + at) * 0.5 for at in range(rows)]),
        }
    )


# -- txlog

ROOMS = (
    "actions checkpoint commit data_files expressions fragments log parquet protocol reconcile "
    "scan schema snapshot stats store table verbs"
)
"""The rooms of the core; others need extras, such as Spark."""


def load_txlog() -> None:
    """Import the rooms of the core, which txlog imports at their first use."""
    for room in ROOMS.split():
        package = import_module(f"txlog.{room}")
        for found in walk_packages(package.__path__, f"{package.__name__}."):
            if "polars" not in found.name:
                import_module(found.name)


def txlog_fragments(root: Path, first: int, count: int) -> list[Any]:
    """Return prepared fragments: what `write_fragments` gave, if each file had been written."""
    import txlog
    from txlog.actions.file import Add

    table = txlog.Table(root)
    row = {name: [None] for name in table.schema.names}
    (held,) = txlog.write_fragments(pa.table(row), root)
    return [replace(held, adds=(Add.model_validate(add),)) for add in adds(first, count)]


def txlog_commits(root: Path, first: int = 0, count: int = COMMITS) -> Callable[[], Any]:
    import txlog

    load_txlog()  # As all imports, it is not timed.
    if first == 0:
        write_commits(root, 0, 0)
    fragments = txlog_fragments(root, first, count)

    def work() -> Any:
        table = txlog.Table(root)
        for fragment in fragments:
            table.commit(txlog.FragmentOperation.Append([fragment]))
        return table.version

    return work


def txlog_appends(root: Path, first: int = 0, count: int = APPENDS) -> Callable[[], Any]:
    import txlog

    load_txlog()
    data = [rows_of(number) for number in range(first, first + count)]
    if first == 0:
        txlog.Table.create(root, rows_of(0).schema)

    def work() -> Any:
        table = txlog.Table(root)
        for rows in data:
            table.append(rows)
        return table.version

    return work


# -- deltalake


def delta_actions(first: int, count: int) -> list[Any]:
    from deltalake.transaction import AddAction

    return [
        AddAction(
            add["path"],
            add["size"],
            add["partitionValues"],
            add["modificationTime"],
            True,
            add["stats"],
        )
        for add in adds(first, count)
    ]


def delta_commits(root: Path, first: int = 0, count: int = COMMITS) -> Callable[[], Any]:
    from deltalake import CommitProperties, DeltaTable, Schema

    if first == 0:
        write_commits(root, 0, 0)
    actions = delta_actions(first, count)
    schema = Schema.from_json(schema_string())
    patient = CommitProperties(max_commit_retries=10_000)  # Others may win often.

    def work() -> Any:
        table = DeltaTable(root)
        for action in actions:
            table.create_write_transaction(
                [action], "append", schema, ["region", "day"], commit_properties=patient
            )
            table.update_incremental()  # Else each commit is checked against all before it.
        return table.version()

    return work


def delta_appends(root: Path, first: int = 0, count: int = APPENDS) -> Callable[[], Any]:
    from deltalake import CommitProperties, DeltaTable, write_deltalake

    data = [rows_of(number) for number in range(first, first + count)]
    if first == 0:
        DeltaTable.create(root, schema=rows_of(0).schema)
    patient = CommitProperties(max_commit_retries=10_000)  # Others may win often.

    def work() -> Any:
        table = DeltaTable(root)
        for rows in data:
            write_deltalake(table, rows, mode="append", commit_properties=patient)
        return table.version()

    return work


# -- floors: as many files of the like, written, synced and linked to the next free name


def floor_commits(root: Path, first: int = 0, count: int = COMMITS) -> Callable[[], Any]:
    if first == 0:
        write_commits(root, 0, 0)
    texts = [json.dumps({"add": add}).encode() for add in adds(first, count)]
    log = f"{root}/_delta_log"

    def work() -> Any:
        version = 0
        for text in texts:
            version = _commit_durably(log, version + 1, text)
        return version

    return work


def floor_appends(root: Path, first: int = 0, count: int = APPENDS) -> Callable[[], Any]:
    import pyarrow.parquet as pq

    data = [rows_of(number) for number in range(first, first + count)]
    text = json.dumps({"add": next(iter(adds(1, 1)))}).encode()
    log = root / "_delta_log"
    if first == 0:
        log.mkdir(parents=True)
        (log / f"{0:020d}.json").touch()

    def work() -> Any:
        version = 0
        for number, rows in enumerate(data, start=first):
            with (root / f"{number}.parquet").open("xb") as file:
                pq.write_table(rows, file, compression="zstd", use_dictionary=["part"])
                file.flush()
                os.fsync(file.fileno())
            _sync_folder(str(root))
            version = _commit_durably(str(log), version + 1, text)
        return version

    return work


def _commit_durably(log: str, version: int, text: bytes) -> int:
    """Write and sync a file, and give it the first name that is free, from a version's on."""
    temporary = Path(log, f".{os.getpid()}")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(file, text)
    os.fsync(file)
    os.close(file)
    while True:
        try:
            os.link(temporary, f"{log}/{version:020d}.json")
        except FileExistsError:
            version += 1
        else:
            break
    temporary.unlink()
    _sync_folder(log)
    return version


def _sync_folder(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)


# -- several processes


def in_processes(one: Callable[..., Callable[[], Any]], root: Path) -> Callable[[], Any]:
    """Have processes that are ready write to one table, which is made here, at the same time."""
    one(root, 0, 0)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(WRITERS + 1, timeout=PATIENCE)
    spent = context.Array("d", WRITERS)
    writers = [
        context.Process(target=_writer, args=(one, root, number, barrier, spent))
        for number in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    barrier.wait()

    def work() -> Any:
        barrier.wait()
        barrier.wait()  # All have committed; how long an interpreter takes to end is no matter.
        SPENT[:] = spent[:]
        return len(list((root / "_delta_log").glob("*.json"))) - 1

    return work


def _writer(
    one: Callable[..., Callable[[], Any]], root: Path, number: int, barrier: Any, spent: Any
) -> None:
    work = one(root, 1 + number * EACH, EACH)
    barrier.wait()
    barrier.wait()
    before = time.process_time()
    try:
        work()
    except BaseException:  # An interrupt too: else the others wait until the time is up.
        barrier.abort()
        raise
    spent[number] = time.process_time() - before
    barrier.wait()


def writers(one: Callable[..., Callable[[], Any]]) -> Prepare:
    return lambda root: in_processes(one, root)


# -- checkpoints, of a copy of a table that log_tables made


def txlog_checkpoint(root: Path) -> Callable[[], Any]:
    import txlog

    return lambda: txlog.Table(root).maintenance.checkpoint()


def delta_checkpoint(root: Path) -> Callable[[], Any]:
    from deltalake import DeltaTable

    def work() -> Any:
        table = DeltaTable(root)
        table.create_checkpoint()
        return table.version()

    return work


# -- deleting one row in a thousand, from every file of a copy of a table that `make_rows` made

GONE = "key % 1000 = 7"
"""No statistics help: each file has such rows, in any order."""


def txlog_delete(root: Path) -> Callable[[], Any]:
    import txlog

    def work() -> Any:
        table = txlog.Table(root / "vectors")
        table.delete(GONE)
        return table.version

    return work


def delta_delete(root: Path) -> Callable[[], Any]:
    from deltalake import DeltaTable

    def work() -> Any:
        table = DeltaTable(root / "plain")
        table.delete(GONE)
        return table.version()

    return work
