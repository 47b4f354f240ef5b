"""The commits and compactions after a checkpoint, read together."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from txlog.actions import Action, empty_rows
from txlog.errors import LogCorruptError, NotFoundError
from txlog.log import LogFile
from txlog.reconcile import reconcile_files
from txlog.snapshot.commits import Commit, file_rows, gone, parse_commit
from txlog.store import Store, read_many

_ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class Replayed:
    """What the log files after a checkpoint hold."""

    controls: tuple[tuple[int, Action], ...]
    files: pa.Table  # `FILE_ROWS`.
    last: Commit | None


class DamagedError(Exception):
    """Files of the log are damaged: they are to be done without, if others make them good."""

    def __init__(self, files: Sequence[LogFile], cause: LogCorruptError) -> None:
        self.names = [file.name for file in files]
        super().__init__(*self.names)
        self.cause = cause


def read_deltas(store: Store, files: Sequence[LogFile]) -> Replayed:
    """Return what commits and compactions hold, in the order given.

    Of what their JSON becomes, a bounded part is held at a time.

    Raises
    ------
    DamagedError
        One of them is missing, is no commit, or breaks the protocol.
    """
    controls: list[tuple[int, Action]] = []
    tables = [empty_rows()]
    waiting: list[Commit] = []
    rows, commit = 0, None
    with _collector_paused():
        for file, data in zip(files, _contents(store, files), strict=True):
            try:
                commit = parse_commit(data, file)
                if file.kind == "compaction":  # Some writers leave what a later commit undid.
                    reconcile_files(file_rows([commit]))
            except LogCorruptError as error:
                raise DamagedError((file,), error) from error
            controls += commit.controls
            waiting.append(commit)
            rows += len(commit.rows)
            if rows >= _ROWS_AT_ONCE:
                tables.append(_decoded(waiting, files))
                waiting, rows = [], 0
        tables.append(_decoded(waiting, files))
    return Replayed(tuple(controls), pa.concat_tables(tables), commit)


def _contents(store: Store, files: Sequence[LogFile]) -> Iterator[bytes]:
    found = read_many(store, [file.path for file in files if file.content is None])
    for file in files:
        if file.content is not None:
            yield file.content
            continue
        try:
            yield next(found)
        except NotFoundError as error:
            raise DamagedError((file,), gone(file)) from error


def _decoded(commits: Sequence[Commit], files: Sequence[LogFile]) -> pa.Table:
    try:
        return file_rows(commits)
    except LogCorruptError as error:
        damaged = [file for file in files if file.path == error.path]
        raise DamagedError(damaged, error) from error


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Do without garbage collection: parsed JSON is many objects, and none of it is garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
