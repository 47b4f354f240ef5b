"""Read commits and compactions, one by one or many together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from typing import Any

import pyarrow as pa

from txlog.actions.action import Action
from txlog.actions.columns import decode_rows, empty_rows
from txlog.actions.ndjson import COMMIT_MARK, decode_action, is_broken, rows, rows_of_all
from txlog.actions.table import CommitInfo, Metadata, Protocol
from txlog.base.errors import LogCorruptError, NotFoundError, TxlogError
from txlog.base.threads import cached_property
from txlog.base.thresholds import Threshold
from txlog.log.names import LogFile
from txlog.log.paths import canonical_key
from txlog.protocol.access import is_stamped
from txlog.reconcile.files import in_doubt, reconcile_files
from txlog.snapshot.process import collector_paused
from txlog.store.base import Store, map_many, naming

_CONTROLS = ("protocol", "metaData", "txn", "domainMetadata")
_ANY_CONTROL = frozenset(_CONTROLS)

FEW_FILES: Threshold = 64
"""Up to this number of lines, file actions are cheaper to read as models than as columns."""

Rows = tuple[list[dict[str, Any]], tuple[tuple[int, Action], ...]]
"""The JSON objects of a log file, and its table state actions with their version."""


@dataclass(frozen=True)
class Commit:
    """A parsed log file: its table state actions as models, its file actions as JSON objects."""

    version: int  # The last version of a compaction.
    path: str
    modified_ms: int | None  # As in `LogFile`.
    controls: tuple[tuple[int, Action], ...]
    # The number of the line with its `commitInfo`, and the JSON object.
    info_line: tuple[int, dict[str, Any]] | None
    rows: list[dict[str, Any]]

    @cached_property
    def info(self) -> CommitInfo | None:
        """The commit's `commitInfo`; raises `LogCorruptError` if it breaks the protocol."""
        if self.info_line is None:
            return None
        line, body = self.info_line
        action = decode_action("commitInfo", body, path=self.path, line=line)
        return action if isinstance(action, CommitInfo) else None

    def made_ms(self, protocol: Protocol | None, metadata: Metadata | None) -> int | None:
        """Return the time of the commit: its in-commit timestamp if the table enables these.

        Otherwise the result is the file's time, which may be None. It is not yet adjusted to the
        times of other versions.
        """
        if not is_stamped(protocol, metadata) or self.info is None:
            return self.modified_ms
        stamp = self.info.in_commit_timestamp
        return self.modified_ms if stamp is None else stamp


def read_commit(store: Store, file: LogFile) -> Commit:
    """Return one commit or compaction.

    Raises
    ------
    LogCorruptError
        The file is missing or empty, a line is not a JSON object, or an action breaks the protocol.
    """
    data = _content(store, file)
    with naming(store):
        return parse_commit(data, file)


def gone(file: LogFile) -> LogCorruptError:
    """Return the error for a log file that no longer exists."""
    return LogCorruptError(
        path=file.path,
        reason="the file was listed, but it no longer exists",
        remedy="Open the table again. The log was cleaned up meanwhile",
    )


def is_gone(error: LogCorruptError) -> bool:
    """Return whether an error is that of `gone`."""
    return isinstance(error.__cause__, NotFoundError)


# The size of a log file from which on Arrow's JSON reader is faster.
_ARROW_BYTES: Threshold = 256 * 1024
_LARGE_BYTES: Threshold = 1 << 20
_INFO = b'{"commitInfo"'


def glance_at_commit(store: Store, file: LogFile) -> Commit:
    """Return one commit; errors as for `read_commit`. A large one is without its file actions.

    Arrow nevertheless reads these as columns, so that damage is found.
    """
    data = _content(store, file)
    large = large_commit(data, file) if len(data) >= _LARGE_BYTES else None
    if large is not None:
        return large[1]
    with naming(store):
        return parse_commit(data, file)


def read_whole(store: Store, file: LogFile) -> tuple[Commit, bool]:
    """Return one commit as `glance_at_commit` does, and whether it leaves a file in doubt (REC-5).

    Raises
    ------
    LogCorruptError
        As for `read_commit`, or a file action breaks the protocol.
    """
    data = _content(store, file)
    large = large_commit(data, file) if len(data) >= _LARGE_BYTES else None
    if large is not None:
        return large[1], in_doubt(large[0])[1].num_rows > 0
    with naming(store):
        commit = parse_commit(data, file)
        with suppress(LogCorruptError):  # Columns, which are slower, may accept more than models.
            if are_readable_as_models([commit]):
                named = [canonical_key(body["path"]) for body in _file_bodies(commit)]
                if len(set(named)) == len(named):
                    return commit, False
        return commit, in_doubt(file_rows([commit]))[1].num_rows > 0


def _file_bodies(commit: Commit) -> Iterator[dict[str, Any]]:
    for row in commit.rows:
        for name in ("add", "remove"):
            if (body := row.get(name)) is not None:
                yield body


def large_commit(data: bytes, file: LogFile) -> tuple[pa.Table, Commit] | None:
    """Return the `FILE_ROWS` of a large log file, and its other actions as a commit. Pure.

    None if Arrow cannot read it, or if it breaks the protocol: `parse_commit` names the line.
    """
    from txlog.actions.bulk import decode_large

    decoded = decode_large(data, version=file.last_version)
    if decoded is None:
        return None
    table, others = decoded
    with suppress(LogCorruptError):
        commit = commit_of(file, *checked_rows(others, data, file))
        if file.kind == "compaction":
            reconcile_files(table)
        _ = commit.info  # Raises if it breaks the protocol.
        return table, commit
    return None


def told_by_commit(store: Store, file: LogFile) -> Commit:
    """Return one commit. A large one has only its `commitInfo`, if this has a plain line."""
    data = _content(store, file)
    start = 0 if data.startswith(_INFO) else data.find(b"\n" + _INFO) + 1
    if len(data) < _LARGE_BYTES or not data.startswith(_INFO, start):
        return glance_at_commit(store, file._replace(content=data))
    end = data.find(b"\n", start)
    found = commit_of(file, rows(data[start : None if end < 0 else end], path=file.path), ())
    if found.info_line is not None:
        found = replace(found, info_line=(data.count(b"\n", 0, start) + 1, found.info_line[1]))
    return replace(found, rows=[])


def _content(store: Store, file: LogFile) -> bytes:
    if file.content is not None:
        return file.content
    with naming(store):
        try:
            return store.read(file.path)
        except NotFoundError as error:
            raise gone(file) from error


def parse_commit(data: bytes, file: LogFile) -> Commit:
    """Parse the bytes of a commit. Pure; errors as for `read_commit`."""
    found, controls = parse_rows(data, file)
    return commit_of(file, found, controls)


def parse_rows(data: bytes, file: LogFile) -> Rows:
    """Return the JSON objects of a commit or compaction, and its table state actions.

    Pure; errors as in `read_commit`.
    """
    path = file.path
    if not data or data.isspace():
        raise LogCorruptError(
            path=path,
            reason="the file is empty, so the commit is incomplete",
            remedy="Restore it from a copy, or delete it if it is the newest",
        )
    return checked_rows(rows(data, path=path), data, file)


def parse_many(texts: Sequence[bytes], files: Sequence[LogFile]) -> Iterator[Rows]:
    """Yield the result of `parse_rows` for several files; errors are raised in their order.

    The usual form of files is checked for all of them together.
    """
    found = rows_of_all(texts)
    if found is None:
        yield from map(parse_rows, texts, files)
    elif any(map(_is_sealed, texts)) or _any_control(chain.from_iterable(found)):
        yield from map(checked_rows, found, texts, files)
    else:
        yield from zip(found, repeat(()), strict=False)


def _is_sealed(data: bytes) -> bool:
    """Return whether there may be a seal in the first line."""
    return data.find(COMMIT_MARK, 0, data.find(b"\n")) >= 0


def _any_control(found: Iterable[dict[str, Any]]) -> bool:
    return not _ANY_CONTROL.isdisjoint(chain.from_iterable(found))


def checked_rows(found: list[dict[str, Any]], data: bytes, file: LogFile) -> Rows:
    """Return the objects of a file and its table state actions after checks."""
    # Nearly all commits of a log have no table state actions.
    controls = _controls(found, file) if _any_control(found) else ()
    first_line = data.find(b"\n")
    if is_broken(data, COMMIT_MARK, within=None if first_line < 0 else first_line):
        raise LogCorruptError(
            path=file.path,
            reason="the file was changed after it was written: its bytes do not match the "
            "checksum in it",
            remedy="Restore it from a copy. If the change was intended, remove txlogCrc32",
        )
    return found, controls


def commit_of(
    file: LogFile, found: list[dict[str, Any]], controls: tuple[tuple[int, Action], ...]
) -> Commit:
    """Return the commit for the result of `parse_rows`."""
    info = next(
        (
            (line, body)
            for line, row in enumerate(found, start=1)
            if isinstance(body := row.get("commitInfo"), dict)
        ),
        None,
    )
    return Commit(file.last_version, file.path, file.modified_ms, controls, info, found)


def _controls(found: list[dict[str, Any]], file: LogFile) -> tuple[tuple[int, Action], ...]:
    """Return the table state actions among JSON objects. Some writers write absent ones as null."""
    controls = []
    for line, row in enumerate(found, start=1):
        for name in _CONTROLS:
            if (body := row.get(name)) is None:
                continue
            action = decode_action(name, body, path=file.path, line=line)
            controls.append((file.last_version, action))
            if name == "metaData":
                _require_named(body, file, line)
    return tuple(controls)


def _require_named(body: Mapping[str, Any], file: LogFile, line: int) -> None:
    """Raise if metadata lacks a field that determines how files are read.

    A null means empty. Checkpoints are not checked, because Parquet cannot distinguish an empty map
    from a missing one.
    """
    for name in ("partitionColumns", "configuration"):
        if name not in body:
            raise LogCorruptError(
                path=file.path,
                line=line,
                field=f"metaData.{name}",
                reason="the field is missing, so it is unknown how files must be read",
                remedy="Restore the file from a copy; other versions may still open",
            )


def are_readable_as_models(commits: Sequence[Commit]) -> bool:
    """Read the file actions of commits one by one if they are few; raise if one is wrong.

    Then the columns can be made later: they accept everything that the models accept.
    """
    if sum(len(commit.rows) for commit in commits) > FEW_FILES:
        return False
    for commit in commits:
        for line, row in enumerate(commit.rows, start=1):
            for name in ("add", "remove"):
                if (body := row.get(name)) is not None:
                    decode_action(name, body, path=commit.path, line=line)
    return True


def read_commits(store: Store, files: Iterable[LogFile]) -> list[Commit]:
    """Return several commits, in the order given."""
    return list(map_many(store, partial(read_commit, store), list(files)))


def file_rows(commits: Iterable[Commit]) -> pa.Table:
    """Return the file actions of commits as `FILE_ROWS`."""
    return decode_rows((commit.version, commit.rows, commit.path) for commit in commits)


# The size of files that are read together; more needs memory and is not faster.
_BYTES_AT_ONCE: Threshold = 512 * 1024


@dataclass(frozen=True)
class Replayed:
    """The actions of the log files after a checkpoint."""

    controls: tuple[tuple[int, Action], ...]
    files: pa.Table  # `FILE_ROWS`.
    last: Commit | None  # If it is large, its `rows` lack the file actions.


class DamagedError(Exception):
    """Files of the log are damaged. Other files may replace them."""

    def __init__(self, files: Sequence[LogFile], cause: LogCorruptError) -> None:
        self.names = [file.name for file in files]
        super().__init__(*self.names)
        self.cause = cause
        # Files that were listed but no longer exist, because of a clean-up.
        self.is_gone = is_gone(cause)


def read_deltas(store: Store, files: Sequence[LogFile]) -> Replayed:
    """Return the actions of commits and compactions in the given order.

    Only a bounded part of their JSON objects is in memory at the same time.

    Raises
    ------
    DamagedError
        One of them is missing, is not a commit, or breaks the protocol.
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
    """Return the `FILE_ROWS` and controls of log files, and the last file."""
    if len(files) == 1 and len(texts[0]) >= _ARROW_BYTES:
        large = large_commit(texts[0], files[0])
        if large is not None:
            table, commit = large
            return table, list(commit.controls), commit
    controls: list[tuple[int, Action]] = []
    read: list[tuple[int, list[dict[str, Any]], str]] = []
    own: tuple[tuple[int, Action], ...] = ()
    try:
        for file, (rows, own) in zip(files, parse_many(texts, files), strict=True):
            entry = (file.last_version, rows, file.path)
            if file.kind == "compaction":  # Some writers keep actions that a later commit undid.
                reconcile_files(decode_rows([entry]))
            read.append(entry)
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
    """Yield groups of files with their contents; an error is raised after the files before it.

    A file that Arrow reads is a group of its own.
    """
    texts: list[bytes] = []
    start = size = 0
    try:
        for at, data in enumerate(_contents(store, files), start=1):
            if texts and len(data) >= _ARROW_BYTES:
                yield files[start : at - 1], texts
                texts, start, size = [], at - 1, 0
            texts.append(data)
            size += len(data)
            if size >= _BYTES_AT_ONCE or len(data) >= _ARROW_BYTES:
                yield files[start:at], texts
                texts, start, size = [], at, 0
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
            cause = gone(file)
            cause.__cause__ = error
            raise DamagedError((file,), cause) from error
