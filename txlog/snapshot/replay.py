"""The commits and compactions after a checkpoint, read together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txlog.actions import Action, decode_rows, empty_rows
from txlog.errors import LogCorruptError, NotFoundError, TxlogError
from txlog.log import LogFile
from txlog.reconcile import reconcile_files
from txlog.snapshot.collector import collector_paused
from txlog.snapshot.commits import Commit, commit_of, gone, parse_many
from txlog.store import Store, read_many

_ROWS_AT_ONCE = 4096  # Their memory is used again; that of twice as many is given back each time.
_BYTES_AT_ONCE = 64 * 1024  # To be looked at together.

_Read = tuple[int, list[dict[str, Any]], str]  # A file's version, its JSON objects, its path.


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
    waiting: list[_Read] = []
    count = 0
    rows: list[dict[str, Any]] = []
    own: tuple[tuple[int, Action], ...] = ()
    with collector_paused():
        for some, texts in _batches(store, files):
            done = 0
            try:
                for rows, own in parse_many(texts, some):
                    file = some[done]
                    read = (file.last_version, rows, file.path)
                    if file.kind == "compaction":  # Some writers leave what a later commit undid.
                        reconcile_files(decode_rows([read]))
                    controls += own
                    waiting.append(read)
                    count += len(rows)
                    done += 1
            except LogCorruptError as error:
                raise DamagedError((some[done],), error) from error
            if count >= _ROWS_AT_ONCE:
                tables.append(_decoded(waiting, files))
                waiting, count = [], 0
        tables.append(_decoded(waiting, files))
    last = commit_of(files[-1], rows, own) if files else None
    return Replayed(tuple(controls), pa.concat_tables(tables), last)


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


def _decoded(read: Sequence[_Read], files: Sequence[LogFile]) -> pa.Table:
    try:
        return decode_rows(read)
    except LogCorruptError as error:
        damaged = [file for file in files if file.path == error.path]
        raise DamagedError(damaged, error) from error
