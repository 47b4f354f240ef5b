"""The commits of a table, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txlog.log.names import LogFile
from txlog.snapshot.commits import read_commit
from txlog.snapshot.load import list_commits
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.times import file_times
from txlog.store.base import Store


def history(store: Store, snapshot: Snapshot, limit: int | None = None) -> list[dict[str, Any]]:
    """Return what `commitInfo` says of each commit up to a snapshot's version, newest first.

    Each entry has `version` and `timestamp` (milliseconds since the epoch), whatever the writer
    said: the time by which time travel finds this version. Versions whose commits were cleaned up
    are not in the list.
    """
    commits = list_commits(store, snapshot)
    times = file_times(snapshot, commits)
    return [_entry(store, snapshot, file, times) for file in commits[::-1][:limit]]


def _entry(
    store: Store, snapshot: Snapshot, file: LogFile, times: Mapping[int, int]
) -> dict[str, Any]:
    commit = read_commit(store, file)
    made_ms = times.get(file.version)
    if made_ms is None:
        made_ms = commit.made_ms(snapshot.protocol, snapshot.metadata)
    info = commit.info.to_json() if commit.info else {}
    return {**info, "version": file.version, "timestamp": made_ms}
