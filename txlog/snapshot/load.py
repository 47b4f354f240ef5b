"""Loading a snapshot from a store."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

from txlog.actions import Action, Sidecar
from txlog.checkpoint import read_controls, read_files, read_hint
from txlog.errors import (
    CommitConflictError,
    LogCorruptError,
    NotFoundError,
    StoreError,
    TxlogWarning,
)
from txlog.log import (
    LOG_FOLDER,
    LogFile,
    Segment,
    choose_segment,
    commit_name,
    log_path,
    parse_name,
)
from txlog.protocol import Properties
from txlog.reconcile import Controls, FileState, controls_of, overlay, reconcile_files
from txlog.snapshot.commits import Commit, file_rows, read_commit, read_commits
from txlog.snapshot.snapshot import Snapshot, advance, make_snapshot
from txlog.store import Store


def list_log(store: Store, *, since: int = 0) -> list[LogFile]:
    """Return the log's files of versions from `since` on; whatever has another name is ignored."""
    try:
        return [
            file
            for info in store.list_after(LOG_FOLDER, f"{since:020d}")
            if (file := parse_name(info.name, size=info.size, modified_ms=info.modified_ms))
        ]
    except StoreError as error:
        error.path = store.resolve(LOG_FOLDER)  # Say which table it is.
        raise


def load_snapshot(
    store: Store, *, version: int | None = None, unusable: Sequence[str] = ()
) -> Snapshot:
    """Return a version of the table in the store, or its latest.

    A damaged checkpoint or compaction that other files make redundant is passed over, with a
    `TxlogWarning` that names it; those named in `unusable` are not even tried.

    Raises
    ------
    NotFoundError
        There is no table here, or no such version.
    LogCorruptError
        The log is damaged beyond what its other files make good.
    UnsupportedFeatureError
        The table needs features that txlog lacks.
    """
    hint = read_hint(store)
    since = hint.version if hint and (version is None or hint.version <= version) else 0
    files = list_log(store, since=since)
    passed_over = list(unusable)
    first_error: LogCorruptError | None = None
    while True:
        try:
            segment = choose_segment(files, version=version, unusable=passed_over)
            return _load(store, segment, files)
        except _UnusableError as error:
            first_error = first_error or error.cause
            passed_over.extend(error.names)
        except (NotFoundError, LogCorruptError) as error:
            if since:  # The hint led too far: look at the whole log.
                since, files = 0, list_log(store)
            elif first_error is not None:
                raise first_error from error
            elif not files:
                raise _no_table(store) from error
            else:
                error.path = error.path or store.root
                raise


def refresh(store: Store, snapshot: Snapshot) -> Snapshot:
    """Return the latest version, reading only the commits that are newer than a snapshot.

    Raises
    ------
    NotFoundError
        The table is gone.
    CommitConflictError
        Another table has taken its place since the snapshot was loaded.
    """
    if not _is_there(store, snapshot):
        return _reloaded(store, snapshot)
    newer = list(newer_commits(store, snapshot.version))
    if newer:
        return advance(snapshot, read_commits(store, newer))
    hint = read_hint(store)
    if hint is not None and hint.version > snapshot.version:
        # The next commits were cleaned up: only a checkpoint leads on.
        return _reloaded(store, snapshot)
    return snapshot


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
    """Yield the commits after a version, by asking for each: cheaper than listing a long log."""
    while True:
        version += 1
        name = commit_name(version)
        try:
            info = store.info(log_path(name))
        except NotFoundError:
            return
        yield LogFile(name, "commit", version, info.size, info.modified_ms)


def load_files(store: Store, snapshot: Snapshot) -> FileState:
    """Return the live files and tombstones of a snapshot.

    A checkpoint whose files cannot be read is passed over with a `TxlogWarning`, if other files
    make it redundant.

    Raises
    ------
    LogCorruptError
        A checkpoint or sidecar is unreadable, or commits contradict themselves.
    """
    names: list[str] = []
    current = snapshot
    while True:
        try:
            base = read_files(store, current.checkpoint, current.sidecars)
            return overlay(base, current.tail)
        except LogCorruptError as error:
            if not current.checkpoint:
                raise
            names.extend(_passed_over(current.checkpoint, error).names)
            try:
                current = load_snapshot(store, version=snapshot.version, unusable=names)
            except (LogCorruptError, NotFoundError):
                raise error from None


class _UnusableError(Exception):
    """A redundant file is damaged: choose another segment."""

    def __init__(self, names: Sequence[str], cause: LogCorruptError) -> None:
        super().__init__(*names)
        self.names = names
        self.cause = cause


def _no_table(store: Store) -> NotFoundError:
    return NotFoundError(
        path=store.root,
        reason=f"there is no Delta table here: no {LOG_FOLDER} with a commit or checkpoint",
        remedy="Check the path, or make a table with txlog.Table.create or txlog.write",
    )


def _load(store: Store, segment: Segment, files: list[LogFile]) -> Snapshot:
    base, sidecars = _load_checkpoint(store, segment)
    commits: list[Commit] = []
    for file in segment.deltas:
        try:
            commit = read_commit(store, file)
            if file.kind == "compaction":  # Some writers leave what a later commit undid.
                reconcile_files(file_rows([commit]))
            commits.append(commit)
        except LogCorruptError as error:
            if file.kind == "compaction":
                raise _passed_over((file,), error) from error
            raise
    controls = controls_of((pair for commit in commits for pair in commit.controls), base)
    return make_snapshot(
        store.root,
        segment,
        controls,
        sidecars=sidecars,
        tail=file_rows(commits),
        timestamp_ms=_timestamp_ms(store, segment, files, commits, controls),
        head_ms=_head_ms(segment, files),
    )


def _load_checkpoint(store: Store, segment: Segment) -> tuple[Controls, tuple[Sidecar, ...]]:
    if not segment.checkpoint:
        return Controls(), ()
    try:
        actions: tuple[Action, ...] = read_controls(store, segment.checkpoint)
        sidecars = tuple(action for action in actions if isinstance(action, Sidecar))
        at = segment.checkpoint_version
        return controls_of((at, action) for action in actions), sidecars
    except LogCorruptError as error:
        raise _passed_over(segment.checkpoint, error) from error


def _passed_over(files: Sequence[LogFile], error: LogCorruptError) -> _UnusableError:
    names = [file.name for file in files]
    warnings.warn(
        f"{', '.join(names)} is damaged and passed over: {error}", TxlogWarning, stacklevel=4
    )
    return _UnusableError(names, error)


def _head_ms(segment: Segment, files: list[LogFile]) -> int:
    name = commit_name(segment.version)
    return next((file.modified_ms for file in files if file.name == name), 0)


def _timestamp_ms(
    store: Store,
    segment: Segment,
    files: list[LogFile],
    commits: list[Commit],
    controls: Controls,
) -> int:
    """Return when the version was made, from its own commit if that is still there."""
    name = commit_name(segment.version)
    if commits and commits[-1].path.endswith(name):
        return commits[-1].timestamp_ms
    file = next((file for file in files if file.name == name), None)
    if file is None:
        return max((part.modified_ms for part in segment.checkpoint), default=0)
    stamped = controls.metadata is not None and Properties(controls.metadata.configuration).get(
        "delta.enableInCommitTimestamps"
    )
    return read_commit(store, file).timestamp_ms if stamped else file.modified_ms
