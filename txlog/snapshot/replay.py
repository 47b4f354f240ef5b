"""The commits and compactions after a checkpoint, read together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txlog.actions.base import Action
from txlog.actions.bulk import decode_large
from txlog.actions.columns import decode_rows, empty_rows
from txlog.errors import LogCorruptError, NotFoundError, TxlogError
from txlog.log.names import LogFile
from txlog.reconcile.files import reconcile_files
from txlog.snapshot.collector import collector_paused
from txlog.snapshot.commits import Commit, checked_rows, commit_of, gone, parse_many
from txlog.store.base import Store

_BYTES_AT_ONCE = 512 * 1024  # To be looked at together: more takes memory, and as long.
_LARGE_BYTES = 256 * 1024  # Of one file: from then on, Arrow's JSON reader is faster.


@dataclass(frozen=True)
class Replayed:
    """What the log files after a checkpoint hold."""

    controls: tuple[tuple[int, Action], ...]
    files: pa.Table  # `FILE_ROWS`.
    last: Commit | None  # Of a large file, `rows` lacks the file actions.


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
    if len(files) == 1 and len(texts[0]) >= _LARGE_BYTES:
        large = _parsed_large(files[0], texts[0])
        if large is not None:
            return large
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


def _parsed_large(
    file: LogFile, data: bytes
) -> tuple[pa.Table, list[tuple[int, Action]], Commit] | None:
    """Return what `_parsed` does of one large file, or None if the slower way must tell."""
    decoded = decode_large(data, version=file.last_version)
    if decoded is None:
        return None
    table, others = decoded
    try:
        _, controls = checked_rows(others, data, file)
        if file.kind == "compaction":
            reconcile_files(table)
    except LogCorruptError:  # The slower way names the line too.
        return None
    return table, list(controls), commit_of(file, others, controls)


def _batches(
    store: Store, files: Sequence[LogFile]
) -> Iterator[tuple[Sequence[LogFile], list[bytes]]]:
    """Yield some files at a time with their contents; an error comes after those before it."""
    texts: list[bytes] = []
    start = held = 0
    try:
        for at, data in enumerate(_contents(store, files), start=1):
            if texts and len(data) >= _LARGE_BYTES:  # A large file is read by itself.
                yield files[start : at - 1], texts
                texts, start, held = [], at - 1, 0
            texts.append(data)
            held += len(data)
            if held >= _BYTES_AT_ONCE or len(data) >= _LARGE_BYTES:
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
    found = store.read_many(asked)
    for file in files:
        if file.content is not None:
            yield file.content
            continue
        try:
            yield next(found)
        except NotFoundError as error:
            raise DamagedError((file,), gone(file)) from error
