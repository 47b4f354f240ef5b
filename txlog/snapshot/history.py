"""The commits of a table, newest first."""

from __future__ import annotations

from typing import Any

from txlog.log import LogFile
from txlog.snapshot.commits import read_commit
from txlog.snapshot.load import list_commits
from txlog.snapshot.snapshot import Snapshot
from txlog.store import Store


def history(store: Store, snapshot: Snapshot, limit: int | None = None) -> list[dict[str, Any]]:
    """Return what `commitInfo` says of each commit up to a snapshot's version, newest first.

    Each entry has `version` and `timestamp` (milliseconds since the epoch), whatever the writer
    left out. Versions whose commits were cleaned up are not in the list.
    """
    return [_entry(store, file) for file in list_commits(store, snapshot)[::-1][:limit]]


def _entry(store: Store, file: LogFile) -> dict[str, Any]:
    commit = read_commit(store, file)
    info = commit.info.to_json() if commit.info else {}
    stamp = info.get("inCommitTimestamp", info.get("timestamp"))
    return {
        **info,
        "version": file.version,
        "timestamp": file.modified_ms if stamp is None else stamp,
    }
