"""The commits and compactions after a checkpoint, read together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txlog.actions.base import Action
from txlog.actions.columns import decode_rows, empty_rows
from txlog.errors import LogCorruptError, NotFoundError, TxlogError
from txlog.log.names import LogFile
from txlog.reconcile.files import reconcile_files
from txlog.snapshot.collector import collector_paused
from txlog.snapshot.commits import Commit, commit_of, gone, parse_many
from txlog.store.base import Store
from txlog.store.many import read_many

_BYTES_AT_ONCE = 512 * 1024  # To be looked at together: more takes memory, and as long.


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
    last: Commit | None = None
    with collector_paused():
        for some, texts in _batches(store, files):
            table, own, last = _parsed(some, texts)
            tables.append(table)
            controls += own
    return Replayed(tuple(controls), pa.concat_tables(tables), last)


def _parsed(
    files: Sequence[LogFile], texts: Sequence[bytes]
) -> tuple[pa.Table, list[tuple[int, Action]], Commit]:
    """Return what some log files hold: `FILE_ROWS`, controls, and the last of them."""
    controls: list[tuple[int, Action]] = []
    read: list[tuple[int, list[dict[str, Any]], str]] = []
    own: tuple[tuple[int, Action], ...] = ()
    try:
        for file, (rows, own) in zip(files, parse_many(texts, files), strict=True):
            held = (file.last_version, rows, file.path)
            if file.kind == "compaction":  # Some writers leave what a later commit undid.
                reconcile_files(decode_rows([held]))
            read.append(held)
            controls += own
    except LogCorruptError as error:
        raise DamagedError((files[len(read)],), error) from error
    try:
        table = decode_rows(read)
    except LogCorruptError as error:
        damaged = [file for file in files if file.path == error.path]
        raise DamagedError(damaged, error) from error
    return table, controls, commit_of(files[-1], read[-1][1], own)


def _batches(
    store: Store, files: Sequence[LogFile]
) -> Iterator[tuple[Sequence[LogFile], list[bytes]]]:
    """Yield some files at a time with their contents; an error comes after those before it."""
    texts: list[bytes] = []
    start = held = 0
    try:
        for at, data in enumerate(_contents(store, files), start=1):
            texts.append(data)
            held += len(data)
            if held >= _BYTES_AT_ONCE:
                yield files[start:at], texts
                texts, start, held = [], at, 0
    except (DamagedError, TxlogError):
        if texts:
            yield files[start : start + len(texts)], texts
        raise
    if texts:
        yield files[start:], texts


def _contents(store: Store, files: Sequence[LogFile]) -> Iterator[bytes]:
    asked = [(file.path, file.size) for file in files if file.content is None]
    found = read_many(store, asked)
    for file in files:
        if file.content is not None:
            yield file.content
            continue
        try:
            yield next(found)
        except NotFoundError as error:
            raise DamagedError((file,), gone(file)) from error
