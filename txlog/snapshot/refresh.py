"""Refresh: from a snapshot to the latest version, by reading only newer commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count, takewhile

from txlog.checkpoint.hint import read_hint
from txlog.errors import CommitConflictError, NotFoundError, UnsupportedFeatureError
from txlog.log.names import LogFile, commit_name, log_path
from txlog.snapshot.commits import read_commits
from txlog.snapshot.load import list_log, load_snapshot
from txlog.snapshot.snapshot import Snapshot, advance
from txlog.store.base import Store, is_far, naming


def refresh(store: Store, snapshot: Snapshot) -> Snapshot:
    """Return the latest version, reading only the commits that are newer than a snapshot.

    Raises
    ------
    NotFoundError
        The table is gone.
    CommitConflictError
        Another table has taken its place since the snapshot was loaded.
    UnsupportedFeatureError
        The table is catalog-managed.
    """
    require_refreshable(snapshot)
    with naming(store):
        if is_far(store):
            return _refreshed_by_listing(store, snapshot)
        return _refreshed_by_looking(store, snapshot)


def _refreshed_by_looking(store: Store, snapshot: Snapshot) -> Snapshot:
    """Return the latest version, by a look at each commit that may follow."""
    if not _is_there(store, snapshot):
        return _reloaded(store, snapshot)
    newer = list(newer_commits(store, snapshot.version))
    latest = snapshot.version + len(newer)
    hint = read_hint(store)
    if hint is not None and hint.version > latest:
        # The next commits were cleaned up: only a checkpoint leads on.
        return _reloaded(store, snapshot)
    return advance(snapshot, read_commits(store, newer)) if newer else snapshot


def _refreshed_by_listing(store: Store, snapshot: Snapshot) -> Snapshot:
    """Return the latest version, by one request if there is nothing newer.

    A listing shows the snapshot's own commit, those after it, and whether a checkpoint leads on.
    """
    files = list_log(store, since=snapshot.version)
    commits = {file.version: file for file in files if file.kind == "commit"}
    own = commits.get(snapshot.version)
    if own is None or own.modified_ms != snapshot.head_ms:
        return _reloaded(store, snapshot)
    newer = _following(commits, snapshot.version)
    latest = snapshot.version + len(newer)
    if any(file.kind == "checkpoint" and file.version > latest for file in files):
        return _reloaded(store, snapshot)  # The next commits were cleaned up.
    return advance(snapshot, read_commits(store, newer)) if newer else snapshot


def _following(commits: Mapping[int, LogFile], version: int) -> list[LogFile]:
    """Return the commits that follow a version without a gap, ascending."""
    versions = takewhile(commits.__contains__, count(version + 1))
    return [commits[at] for at in versions]


def require_refreshable(snapshot: Snapshot) -> None:
    """Raise if only a catalog knows the newer versions of a table.

    Raises
    ------
    UnsupportedFeatureError
        The table is catalog-managed.
    """
    if snapshot.catalog is not None:
        raise UnsupportedFeatureError(
            path=snapshot.root,
            features=("catalogManaged",),
            reason="only its catalog knows the latest version of this table",
            remedy="Ask the catalog, and open the table again with the commits that it names",
        )


def _is_there(store: Store, snapshot: Snapshot) -> bool:
    """Return whether the snapshot's own commit is still the file that it was."""
    try:
        info = store.info(log_path(commit_name(snapshot.version)))
    except NotFoundError:
        return False
    return info.modified_ms == snapshot.head_ms


def _reloaded(store: Store, snapshot: Snapshot) -> Snapshot:
    latest = load_snapshot(store)
    if latest.metadata.id != snapshot.metadata.id or latest.version < snapshot.version:
        raise CommitConflictError(
            version=latest.version,
            rule="CON-2",
            path=store.root,
            reason="another table has taken this one's place since it was opened",
            remedy="Open it again with txlog.Table",
        )
    return latest


def newer_commits(store: Store, version: int) -> Iterator[LogFile]:
    """Yield the commits after a version.

    Each is asked for, which is cheaper than listing a long log; a store far away is asked once.
    """
    if is_far(store):
        files = list_log(store, since=version + 1)
        commits = {file.version: file for file in files if file.kind == "commit"}
        yield from _following(commits, version)
        return
    while True:
        version += 1
        name = commit_name(version)
        try:
            info = store.info(log_path(name))
        except NotFoundError:
            return
        yield LogFile(name, "commit", version, info.size, info.modified_ms)
