"""Requests of txlog's and deltalake's verbs to one server, counted in front of it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from fault_proxy import Proxy, proxy
from servers import localbucket

import txlog
from txlog.store.base import Store
from txlog.store.open import open_store

FILES = 20
VERBS = ("open", "plan", "append", "merge")
AFTER = 3  # Commits after the checkpoint.
ROWS_AFTER = 100 * FILES + 10 + 5  # What the verbs leave.
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])

Counts = dict[str, tuple[int, int]]
"""By verb: how many requests txlog sends, and deltalake."""


def rows(first: int, count: int) -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table({"id": ids, "n": ids}, schema=SCHEMA)


def make(root: Path) -> None:
    """Make a table of files of a hundred rows, a checkpoint, and commits after it."""
    settings = {"delta.checkpointInterval": "1000", "delta.enableDeletionVectors": "false"}
    table = txlog.Table.create(root, SCHEMA, properties=settings)
    for n in range(FILES):
        if n == FILES - AFTER:
            table.maintenance.checkpoint()
        table.append(rows(100 * n, 100))


def put(root: Path, store: Store) -> None:
    for path in sorted(root.rglob("*")):
        if path.is_file():
            store.write_new(path.relative_to(root).as_posix(), path.read_bytes())


def count() -> Counts:
    """Run each verb once by each engine, each on a table of its own."""
    with tempfile.TemporaryDirectory() as folder, localbucket() as server:
        root = Path(folder) / "t"
        make(root)
        with proxy(server.url) as counter:
            near, far = server.options, {**server.options, "AWS_ENDPOINT_URL": counter.url}
            uris = {name: f"s3://{server.bucket}/{name}" for name in ("ours", "theirs")}
            for uri in uris.values():
                put(root, open_store(uri, near))
            warm = f"s3://{server.bucket}/warm"  # The probe of the bucket is once for a process.
            txlog.write(warm, rows(0, 1), storage_options=far)
            ours = Ours(uris["ours"], far)
            mine = {verb: _sent(counter, getattr(ours, verb)) for verb in VERBS}
            with _theirs(uris["theirs"], far) as ask:
                other = {verb: _sent(counter, partial(ask, verb)) for verb in VERBS}
            tables = [txlog.Table(uri, storage_options=near) for uri in uris.values()]
            assert [table.count() for table in tables] == [ROWS_AFTER] * 2
        return {verb: (mine[verb], other[verb]) for verb in VERBS}


@contextmanager
def _theirs(uri: str, options: dict[str, Any]) -> Iterator[Callable[[str], None]]:
    """Run deltalake in a process of its own: its calls may keep the interpreter, and the proxy."""
    command = [sys.executable, __file__, uri, json.dumps(options)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask(verb: str) -> None:
            stdin.write(f"{verb}\n")
            stdin.flush()
            assert stdout.readline() == "done\n", verb

        try:
            yield ask
        finally:
            stdin.close()


def _sent(counter: Proxy, verb: Callable[[], Any]) -> int:
    counter.requests.clear()
    verb()
    return len(counter.requests)


class Ours:
    """The verbs by txlog."""

    def __init__(self, uri: str, options: dict[str, Any]) -> None:
        self._uri, self._options = uri, options

    def open(self) -> None:
        self.table = txlog.Table(self._uri, storage_options=self._options)

    def plan(self) -> None:
        assert (
            len(txlog.Table(self._uri, storage_options=self._options).scan().file_uris()) == FILES
        )

    def append(self) -> None:
        self.table.append(rows(10_000, 10))

    def merge(self) -> None:
        self.table.upsert(rows(1995, 10), on="id")


class Theirs:
    """The same by deltalake."""

    def __init__(self, uri: str, options: dict[str, Any]) -> None:
        self._uri, self._options = uri, {k: str(v) for k, v in options.items()}

    def open(self) -> None:
        self.table = deltalake.DeltaTable(self._uri, storage_options=self._options)

    def plan(self) -> None:
        table = deltalake.DeltaTable(self._uri, storage_options=self._options)
        assert len(table.file_uris()) == FILES

    def append(self) -> None:
        deltalake.write_deltalake(self.table, rows(10_000, 10), mode="append")

    def merge(self) -> None:
        merger = self.table.merge(rows(1995, 10), "t.id = s.id", source_alias="s", target_alias="t")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()


if __name__ == "__main__":
    other = Theirs(sys.argv[1], json.loads(sys.argv[2]))
    for line in sys.stdin:
        getattr(other, line.strip())()
        print("done", flush=True)
