"""Commits and compactions, read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from txlog.actions import (
    Action,
    CommitInfo,
    Metadata,
    Protocol,
    decode_action,
    decode_rows,
    rows,
)
from txlog.errors import LogCorruptError, NotFoundError
from txlog.log import COMMIT_MARK, LogFile, is_broken
from txlog.protocol import is_stamped
from txlog.store import Store, map_many

_CONTROLS = ("protocol", "metaData", "txn", "domainMetadata")


@dataclass(frozen=True)
class Commit:
    """One log file, read: its controls as models, its file actions as JSON objects."""

    version: int  # Of a compaction, its last.
    path: str
    modified_ms: int
    controls: tuple[tuple[int, Action], ...]
    told: tuple[int, dict[str, Any]] | None  # Its line with a `commitInfo`, and what that says.
    rows: list[dict[str, Any]]

    @cached_property
    def info(self) -> CommitInfo | None:
        """What its writer noted; raises `LogCorruptError` if that breaks the protocol."""
        if self.told is None:
            return None
        line, body = self.told
        action = decode_action("commitInfo", body, path=self.path, line=line)
        return action if isinstance(action, CommitInfo) else None

    def made_ms(self, protocol: Protocol | None, metadata: Metadata | None) -> int:
        """Return when it was made: the in-commit timestamp where those are in force in it.

        Elsewhere, or if it has none, it is the file's time.
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
        The file is missing or empty, a line is no JSON object, or an action breaks the protocol.
    """
    try:
        data = store.read(file.path) if file.content is None else file.content
    except NotFoundError as error:
        raise gone(file) from error
    return parse_commit(data, file)


def gone(file: LogFile) -> LogCorruptError:
    """Return the error of a log file that is not there any more."""
    return LogCorruptError(
        path=file.path,
        reason="the file was listed, but is gone",
        remedy="Open the table again; the log was being cleaned up",
    )


def parse_commit(data: bytes, file: LogFile) -> Commit:
    """Return the commit that bytes make. Pure; errors as in `read_commit`."""
    if not data.strip():
        raise LogCorruptError(
            path=file.path,
            reason="the file is empty, so the commit was torn",
            remedy="Restore it from a copy, or delete it if it is the newest",
        )
    version = file.last_version
    found = rows(data, path=file.path)
    controls: list[tuple[int, Action]] = []
    told = None
    for line, row in enumerate(found, start=1):
        if len(row) == 1 and ("add" in row or "remove" in row):
            continue  # Files stay columns. Some writers spell out the other actions as nulls.
        if told is None and isinstance(body := row.get("commitInfo"), dict):
            told = line, body
            if len(row) == 1:
                continue
        controls.extend(
            (version, decode_action(name, body, path=file.path, line=line))
            for name in _CONTROLS
            if (body := row.get(name)) is not None
        )
    first_line = data.find(b"\n")
    if is_broken(data, COMMIT_MARK, within=None if first_line < 0 else first_line):
        raise LogCorruptError(
            path=file.path,
            reason="it is not as it was written: its bytes do not fit the checksum in it",
            remedy="Restore it from a copy; if it was changed on purpose, take out txlogCrc32",
        )
    return Commit(version, file.path, file.modified_ms, tuple(controls), told, found)


def read_commits(store: Store, files: Iterable[LogFile]) -> list[Commit]:
    """Return several commits, in the order given."""
    return list(map_many(store, partial(read_commit, store), list(files)))


def file_rows(commits: Iterable[Commit]) -> pa.Table:
    """Return the file actions of commits as `FILE_ROWS`."""
    return decode_rows((commit.version, commit.rows, commit.path) for commit in commits)
