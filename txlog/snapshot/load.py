"""Load a snapshot from a store, and refresh one by reading only newer commits."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from txlog.actions.action import Action
from txlog.actions.file import Sidecar
from txlog.base.errors import (
    CommitConflictError,
    LogCorruptError,
    NotFoundError,
    StoreError,
    TxlogError,
    TxlogWarning,
    UnsupportedFeatureError,
    warn_caller,
)
from txlog.base.thresholds import Threshold
from txlog.checkpoint.hint import HINT_PATH, Hint, hinted_version, read_hint
from txlog.checkpoint.parquet import REMEDY, Footers
from txlog.checkpoint.table_state import read_controls
from txlog.log.catalog import CatalogCommits, ratified
from txlog.log.names import COMPACTED, LOG_FOLDER, LogFile, commit_name, log_path, parse_name
from txlog.log.segment import Segment, choose_segment, incomplete_checkpoints, rebuildable
from txlog.protocol.access import is_stamped
from txlog.reconcile.files import Controls, controls_of, newest
from txlog.snapshot.branches import require_branch
from txlog.snapshot.commits import Commit, DamagedError, read_commit, read_commits, read_deltas
from txlog.snapshot.process import collector_paused
from txlog.snapshot.snapshot import Snapshot, advance, make_snapshot
from txlog.store.base import Store, is_far, naming
from txlog.store.branches import Chain, branch_name, chain_of, finds_branches


def list_log(
    store: Store, *, since: int = 0, catalog: CatalogCommits | None = None, briefly: bool = False
) -> list[LogFile]:
    """List the log's files of versions from `since`; files with other names are ignored.

    For a catalog-managed table, only files that its catalog ratified are returned. In a brief
    listing, sizes may be 0 and times None: `_with_size` adds them if they are needed. Commits that
    the store's listing lacks because they were made while it ran are added.
    """
    first = f"{since:020d}"
    try:
        if briefly:
            listed = store.list_briefly(LOG_FOLDER, first)
        else:
            listed = list(store.list_after(LOG_FOLDER, first))
    except StoreError as error:
        error.path = store.resolve(LOG_FOLDER)  # Add the table's name to errors.
        raise
    with collector_paused():
        published = [
            file
            for name, size, modified_ms in listed
            if (file := parse_name(name, size=size, modified_ms=modified_ms or None))
        ]
        missed = _missed(store, published)
    if missed:
        published = sorted([*published, *missed])
    if catalog is None:
        return published
    staged = [
        _staged(store, name, version)
        for version, name in catalog.staged_versions().items()
        if version >= since
    ]
    return ratified(published, staged, catalog)


def _missed(store: Store, files: Sequence[LogFile]) -> list[LogFile]:
    """Return the commits that a listing lacks between the versions that it shows.

    A listing is not one moment: it may show a commit, or a checkpoint of it, and lack one that was
    made before it, but after the listing began. So the newest missing commits are requested, until
    one does not exist: of the ones before it, the log was cleaned up, or it is damaged.
    """
    shown = [file for file in files if file.kind != "checksum"]
    listed = {file.version for file in shown if file.kind == "commit"}
    first = min((file.version for file in shown), default=0)
    last = max((file.last_version for file in shown), default=0)
    found: list[LogFile] = []
    if len(listed) <= last - first:
        for version in range(last, first, -1):
            if version not in listed:
                file = commit_at(store, version)
                if file is None:
                    break
                found.append(file)
    return found


def list_commits(store: Store, snapshot: Snapshot, *, since: int = 0) -> list[LogFile]:
    """Return the existing commits from `since` to a snapshot's version, ascending."""
    return sorted(
        (
            file
            for file in list_log(store, since=since, catalog=snapshot.catalog)
            if file.kind == "commit" and since <= file.version <= snapshot.version
        ),
        key=lambda file: file.version,
    )


def _with_size(store: Store, file: LogFile) -> LogFile | None:
    """Return a briefly listed file with its size and time, or None if it does not exist."""
    if file.size or file.content is not None:
        return file
    try:
        _, size, modified_ms = store.info(file.path)
    except NotFoundError:
        return None
    return file._replace(size=size, modified_ms=modified_ms)


def _staged(store: Store, name: str, version: int) -> LogFile:
    try:
        info = store.info(log_path(name))
    except NotFoundError as error:
        raise LogCorruptError(
            path=log_path(name),
            version=version,
            reason="the catalog names this staged commit, but it does not exist",
            remedy="Ask the catalog again. The commit may have been published meanwhile",
        ) from error
    return LogFile(name, "commit", version, info.size, info.modified_ms)


def load_snapshot(
    store: Store,
    *,
    version: int | None = None,
    unusable: Sequence[str] = (),
    catalog: CatalogCommits | None = None,
) -> Snapshot:
    """Load a version of the table in the store, or its latest version.

    A catalog-managed table is opened with the answer of its catalog (`catalog`).

    A damaged checkpoint or compaction that other files can replace is skipped, with a
    `TxlogWarning` that names it. Files named in `unusable` are not tried.

    Raises
    ------
    NotFoundError
        There is no table here, or no such version.
    LogCorruptError
        The log is damaged, and its other files cannot replace the damaged ones.
    UnsupportedFeatureError
        The table needs features that txlog lacks.
    """
    with naming(store):
        try:
            return _load_sound(store, version, unusable, catalog)
        except (NotFoundError, LogCorruptError) as error:
            _explain_branch(store, error)
            raise


def _explain_branch(store: Store, error: NotFoundError | LogCorruptError) -> None:
    """Say what to do if the log of a branch's table no longer has the base of the branch."""
    file = parse_name((error.path or "").rpartition("/")[2])
    chain = None if file is None or branch_name(store) is None else chain_of(store)
    if chain is not None and file is not None and file.version <= chain.base:
        error.remedy = (
            f"The branch begins at version {chain.base}, whose log another engine may have cleaned "
            "up. Restore the file from a copy, or discard the branch"
        )


@finds_branches
def find_branch(store: Store, name: str) -> Chain:
    """Return the open branch of a table by its name, from the table's latest version.

    Raises
    ------
    NotFoundError
        There is none. Other errors as for `load_snapshot`.
    """
    return require_branch(load_snapshot(store), name).chain


_CLEANUPS = 5  # The listings during one load before a missing file raises.


def _load_sound(
    store: Store, version: int | None, unusable: Sequence[str], catalog: CatalogCommits | None
) -> Snapshot:
    if version is None and catalog is not None:
        version = catalog.latest_version
    hint = read_hint(store)
    since = hint.version if hint and (version is None or hint.version <= version) else 0
    files = list_log(store, since=since, catalog=catalog, briefly=True)
    passed_over: list[DamagedError] = []
    relisted, cleanups = False, _CLEANUPS
    while True:
        names = [*unusable, *(name for damage in passed_over for name in damage.names)]
        try:
            segment = choose_segment(files, version=version, unusable=names)
            snapshot, _ = load_segment(store, segment, files, catalog)
        except DamagedError as error:
            passed_over.append(error)
        except (NotFoundError, LogCorruptError) as error:
            if since:  # The hint is too new: list the whole log.
                relisted = True
                since, files = 0, list_log(store, catalog=catalog, briefly=True)
            elif cleanups and any(damage.is_gone for damage in passed_over):
                cleanups -= 1  # The log was cleaned up while it was read.
                passed_over, files = [], list_log(store, catalog=catalog, briefly=True)
            elif passed_over:
                if version is None and catalog is None:
                    explain(store, passed_over[0].cause)
                raise passed_over[0].cause from error
            elif not files:
                raise _no_table(store) from error
            else:
                error.path = error.path or store.root
                if isinstance(error, LogCorruptError) and version is None and catalog is None:
                    explain(store, error)
                raise
        else:
            for damage in passed_over:
                warn_of_damage(damage)
            _warn_of_oddities(files, segment, hint if relisted and not names else None)
            return snapshot


def explain(
    store: Store, error: LogCorruptError, check: Callable[[Snapshot], object] | None = None
) -> None:
    """Add to the remedy of an error of the latest version which version can be used."""
    with suppress(TxlogError):
        opens = older_sound(store, error, check).version
        error.remedy = (
            f"{error.remedy or 'Restore the file from a copy'}. Version {opens} opens, and its "
            f"restore({opens}) makes a new version with its rows"
        )


def newest_sound(store: Store) -> tuple[Snapshot, LogCorruptError | None]:
    """Return the newest version that can be loaded, and why the latest cannot; None if it can.

    Raises
    ------
    NotFoundError, UnsupportedFeatureError
        As for `load_snapshot`.
    LogCorruptError
        No version can be loaded; this is the error of the latest.
    """
    try:
        return load_snapshot(store), None
    except LogCorruptError as error:
        return older_sound(store, error), error


def older_sound(
    store: Store, cause: LogCorruptError, check: Callable[[Snapshot], object] | None = None
) -> Snapshot:
    """Return the newest version that can be loaded, if the latest cannot because of `cause`.

    `check` raises `LogCorruptError` for a version that cannot be used either. Default: it checks
    that no file of the commits after the checkpoint is in doubt (rule REC-5).

    Raises
    ------
    LogCorruptError
        There is none; this is `cause`.
    """
    files = list_log(store)
    known = {file.name for file in files}
    error, unusable, left = cause, list[str](), list[int]()

    def opened(version: int) -> Snapshot:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TxlogWarning)
            snapshot = load_snapshot(store, version=version, unusable=unusable)
            (check or _require_no_doubt)(snapshot)
        return snapshot

    while True:
        name = (error.path or "").rpartition("/")[2]
        if name in known and name not in unusable:
            unusable.append(name)
        elif unusable or error is not cause:
            return _newest_of(left[:-1], opened, cause)  # No file is at fault, but a version.
        left = rebuildable(file for file in files if file.name not in unusable)
        if not left:
            raise cause
        try:
            return opened(left[-1])
        except LogCorruptError as again:
            error = again
        except NotFoundError:
            raise cause from None


def _newest_of(
    versions: Sequence[int], opened: Callable[[int], Snapshot], cause: LogCorruptError
) -> Snapshot:
    """Return the newest version that opens. The versions ascend, and only a few are tried.

    It is expected that all versions before some version open, and no later one does. Else the
    result opens, but a newer version may open, too. Raises `cause` if none is found.
    """
    low, high, step, found = 0, len(versions), 1, None
    while low < high:
        at = max(low, high - step) if found is None else (low + high) // 2
        try:
            found, low = opened(versions[at]), at + 1
        except (LogCorruptError, NotFoundError):
            high, step = at, 2 * step
    if found is None:
        raise cause
    return found


def _require_no_doubt(snapshot: Snapshot) -> None:
    newest(snapshot.tail.rows)


def _no_table(store: Store) -> NotFoundError:
    return NotFoundError(
        path=store.root,
        reason=f"there is no Delta table here: there is no {LOG_FOLDER} with a commit or "
        "checkpoint",
        remedy="Check the path, or create a table with txlog.Table.create or txlog.write",
    )


def load_segment(
    store: Store,
    segment: Segment,
    files: Sequence[LogFile],
    catalog: CatalogCommits | None = None,
) -> tuple[Snapshot, tuple[tuple[int, Action], ...]]:
    """Load the version of a segment from its files alone, with the controls of its commits.

    Parameters
    ----------
    files
        The listed files of the log, or those up to the version.

    Raises
    ------
    DamagedError
        A file is missing or damaged. Other errors as for `load_snapshot`.
    """
    head = _head(store, segment, files)
    segment = _with_sizes(store, segment, head)
    footers = Footers()
    base, sidecars = _load_checkpoint(store, segment, footers)
    tail = read_deltas(store, segment.deltas)
    controls = controls_of(tail.controls, base)
    if segment.checkpoint:
        _require_state(controls, segment)
    snapshot = make_snapshot(
        store.root,
        segment,
        controls,
        sidecars=sidecars,
        tail=tail.files,
        timestamp_ms=_timestamp_ms(store, segment, head, tail.last, controls),
        head_ms=None if head is None else head.modified_ms,
        catalog=catalog,
        is_managed=store.is_managed,
        footers=footers,
    )
    return snapshot, tail.controls


def _load_checkpoint(
    store: Store, segment: Segment, footers: Footers
) -> tuple[Controls, tuple[Sidecar, ...]]:
    if not segment.checkpoint:
        return Controls(), ()
    try:
        actions: tuple[Action, ...] = read_controls(store, segment.checkpoint, footers)
        sidecars = tuple(action for action in actions if isinstance(action, Sidecar))
        at = segment.checkpoint_version
        return controls_of((at, action) for action in actions), sidecars
    except LogCorruptError as error:
        raise DamagedError(segment.checkpoint, error) from error


def _require_state(controls: Controls, segment: Segment) -> None:
    """Raise `DamagedError` if a checkpoint lacks actions that older commits may contain."""
    for name, found in (("protocol", controls.protocol), ("metaData", controls.metadata)):
        if found is None:
            cause = LogCorruptError(
                path=segment.checkpoint[0].path,
                version=segment.version,
                field=name,
                reason=f"neither the checkpoint nor a commit after it contains a {name} action",
                remedy=REMEDY,
            )
            raise DamagedError(segment.checkpoint, cause)


def _warn_of_oddities(files: Sequence[LogFile], segment: Segment, hint: Hint | None) -> None:
    """Warn of missing files that were not needed."""
    complete = {file.version for file in segment.checkpoint}
    if hint is not None and hint.version not in complete:
        _say(
            f"{HINT_PATH} names a checkpoint of version {hint.version}, which does not lead to "
            "this version; write a new one with Table.maintenance.checkpoint"
        )
    torn = incomplete_checkpoints(
        file
        for file in files
        if file.kind == "checkpoint"
        and segment.checkpoint_version < file.version <= segment.version
    )
    for file in torn:
        _say(
            f"the checkpoint of version {file.version} is skipped, because only some of its parts "
            f"exist, such as {file.name}; restore the other parts, or delete these"
        )


def _say(text: str) -> None:
    warn_caller(text)


def warn_of_damage(damage: DamagedError) -> None:
    """Warn that files of the log were ignored, with the reason."""
    _say(f"{', '.join(damage.names)} is damaged and skipped: {damage.cause}")


def _head(store: Store, segment: Segment, files: Sequence[LogFile]) -> LogFile | None:
    """Return the version's own commit with its size and time, if it still exists."""
    # Names ascend, and usually the newest commit is needed.
    for file in reversed(files):
        if file.kind == "commit" and file.version == segment.version:
            return _with_size(store, file)
    return None


def _with_sizes(store: Store, segment: Segment, head: LogFile | None) -> Segment:
    """Return a segment with sizes and times of the checkpoint and of the version's own commit."""
    checkpoint = tuple(_with_size(store, part) or part for part in segment.checkpoint)
    deltas = segment.deltas
    if head is not None and deltas and deltas[-1].name == head.name:
        deltas = (*deltas[:-1], head)
    return replace(segment, checkpoint=checkpoint, deltas=deltas)


def _timestamp_ms(
    store: Store,
    segment: Segment,
    file: LogFile | None,
    last: Commit | None,
    controls: Controls,
) -> int | None:
    """Return the time of the version, from its own commit if that still exists."""
    if file is None:
        known = (part.modified_ms for part in segment.checkpoint)
        return max((ms for ms in known if ms is not None), default=None)
    protocol, metadata = controls.protocol, controls.metadata
    if last is not None and last.path == file.path:
        return last.made_ms(protocol, metadata)
    if not is_stamped(protocol, metadata):
        return file.modified_ms
    try:
        return read_commit(store, file).made_ms(protocol, metadata)
    except LogCorruptError as error:  # The checkpoint has everything except the time.
        warn_of_damage(DamagedError((file,), error))
        return file.modified_ms


def refresh(store: Store, snapshot: Snapshot) -> Snapshot:
    """Return the latest version; if possible, only the commits after a snapshot are read.

    A held snapshot may assume two things: its own commit is unchanged, and the commits that follow
    without a gap are the later versions, up to the end of the log (`look_ahead`). If one of them
    is not true, or if a commit cannot be read, the table is opened again: then the result is the
    version, or the error, of a table that is newly opened.

    Raises
    ------
    NotFoundError
        The table no longer exists.
    CommitConflictError
        Another table replaced it after the snapshot was loaded, or its newest commits are missing.
    LogCorruptError
        The log is damaged, and its other files cannot replace the damaged ones.
    UnsupportedFeatureError
        The table is catalog-managed.
    """
    require_refreshable(snapshot)
    with naming(store):
        ahead = look_ahead(store, snapshot.version)
        if not is_loaded(ahead.own, snapshot) or not ahead.is_whole:
            return reloaded(store, snapshot)
        if not ahead.newer:
            return snapshot
        try:
            return advance(snapshot, read_commits(store, ahead.newer))
        except LogCorruptError:  # It was cleaned up meanwhile, or other files may replace it.
            return reloaded(store, snapshot)


def from_newer_checkpoint(store: Store, snapshot: Snapshot) -> Snapshot:
    """Return the same version, from a newer checkpoint if there is one: it has a shorter tail.

    A table that stays open keeps the checkpoint with which it was opened.
    """
    with suppress(TxlogError):
        again = load_snapshot(store, version=snapshot.version)
        is_same = again.metadata.id == snapshot.metadata.id
        if is_same and again.tail.num_actions < snapshot.tail.num_actions:
            return again
    return snapshot


def is_unchanged(store: Store, snapshot: Snapshot) -> bool:
    """Return whether the store still has the commit of a snapshot's version that was loaded."""
    return is_loaded(commit_at(store, snapshot.version), snapshot)


def is_loaded(file: LogFile | None, snapshot: Snapshot) -> bool:
    """Return whether the commit of a snapshot's version, as the store has it, was loaded.

    If it was not, another table may have taken the place, or the log was cleaned up or copied.
    """
    return file is not None and file.modified_ms == snapshot.head_ms


def require_refreshable(snapshot: Snapshot) -> None:
    """Raise if only a catalog knows the newer versions of the table.

    Raises
    ------
    UnsupportedFeatureError
        The table is catalog-managed.
    """
    if snapshot.catalog is not None:
        raise UnsupportedFeatureError(
            path=snapshot.root,
            features=("catalogManaged",),
            reason="only the catalog of this table knows its latest version",
            remedy="Ask the catalog, and open the table again with the commits that it names",
        )


def reloaded(store: Store, snapshot: Snapshot) -> Snapshot:
    """Return the latest version of the table of a snapshot, opened again.

    Raises
    ------
    CommitConflictError
        There is another table, or an older version. Other errors as for `load_snapshot`.
    """
    latest = load_snapshot(store)
    require_successor(latest, snapshot, store.root)
    return latest


def require_successor(latest: Snapshot, snapshot: Snapshot, root: str) -> None:
    """Raise unless the latest version of a place may follow one that was read there before.

    Raises
    ------
    CommitConflictError
        It is of another table, or older.
    """
    if latest.metadata.id != snapshot.metadata.id:
        raise other_table(latest.version, root)
    if latest.version < snapshot.version:
        raise CommitConflictError(
            version=latest.version,
            rule="CON-2",
            path=root,
            reason=f"the log ends at version {latest.version}, but version {snapshot.version} was "
            "read from it before",
            remedy="Restore the missing files of the log from a copy. To go on without the later "
            "versions, open the table again with txlog.Table",
        )


def other_table(version: int, root: str) -> CommitConflictError:
    """Return the error for a version that is of another table than those that were read before."""
    return CommitConflictError(
        version=version,
        rule="CON-2",
        path=root,
        reason="another table replaced this one after it was opened",
        remedy="Open it again with txlog.Table",
    )


class Ahead(NamedTuple):
    """The log from a version on, as seen by `look_ahead`."""

    own: LogFile | None  # The commit of the version itself.
    newer: list[LogFile]  # The commits that follow the version without a gap, ascending.
    # False: the log has a commit, checkpoint or compaction of a later version, so the next version
    # exists, but its commit was cleaned up or lost. A commit with its name would fill the gap.
    is_whole: bool


def look_ahead(store: Store, version: int) -> Ahead:
    """Return the commits after a version, and whether the log ends with them.

    Every choice of the next version begins here: a version is the latest, and the next name is
    free, only if the log has nothing above it. To know this exactly, the log must be listed. A
    listing of a remote store is one request, which also shows the commits. On a near store, a
    request for a name that does not exist takes 7 µs, and a listing takes 0.5 µs for each file of
    the log, wherever it begins: 25 ms for 50,000 files, which is ten times as long as an append.
    So a short log is listed each time, in about the time of the requests that this saves. A log of
    n files is listed in each (n / `_NAMES_A_CALL`)th call, and the other calls request a few names
    after the first missing one. They find a gap if at least as many commits follow it as it lacks,
    up to 16. So all calls cost about the same, and a longer gap is found some calls later.
    """
    if (ratified := store.latest_version()) is not None:  # A catalog knows it.
        newer, is_whole = _following(store, version, {}, ratified)
    elif is_far(store):
        files = list_log(store, since=version)
        commits = {file.version: file for file in files if file.kind == "commit"}
        following = _following(store, version, commits, _last_version(files, version))
        return Ahead(commits.get(version), *following)
    else:
        newer, is_whole = _ahead_of_near(store, version)
    # After the others: of a table that was replaced meanwhile, they may be those of the new one.
    return Ahead(commit_at(store, version), newer, is_whole)


def _ahead_of_near(store: Store, version: int) -> tuple[list[LogFile], bool]:
    if (calls := _CALLS_LEFT.pop(store.root, 0)) > 0:
        found = _looked_for(store, version)
        if found is not None:
            _CALLS_LEFT[store.root] = calls - 1
            return found
    names = [name for name, _, _ in store.list_briefly(LOG_FOLDER, "")]
    if len(_CALLS_LEFT) >= _MOST_ROOTS:
        _CALLS_LEFT.clear()
    if len(names) > _SHORT:
        _CALLS_LEFT[store.root] = len(names) // _NAMES_A_CALL
    first = f"{version:020d}"
    # The name of a compaction begins with its first version.
    later = [name for name in names if name >= first or name.endswith(COMPACTED)]
    files = [file for name in later if (file := parse_name(name)) is not None]
    return _following(store, version, {}, _last_version(files, version))


_SHORT: Threshold = 128  # The most files of a short log.
_NAMES_A_CALL: Threshold = 32
_MOST_ROOTS = 1024
# By table: the number of calls before its log is listed again. Threads that lose an update only
# list it earlier or later.
_CALLS_LEFT: dict[str, int] = {}
_STEPS = (1, 2, 4, 8, 16)  # Names that are requested, counted from the first missing one.


def _last_version(files: Iterable[LogFile], version: int) -> int:
    """Return the last version that files of the log show."""
    shown = (file.last_version for file in files if file.kind != "checksum")
    return max(shown, default=version)


def _following(
    store: Store, version: int, commits: Mapping[int, LogFile], last: int
) -> tuple[list[LogFile], bool]:
    """Return the commits after a version without a gap, and whether they reach `last`.

    A listing is not one moment: it may lack commits that were made while it ran. So a commit that
    it lacks is requested.
    """
    newer: list[LogFile] = []
    for at in range(version + 1, last + 1):
        file = commits.get(at) or commit_at(store, at)
        if file is None:
            return newer, False
        newer.append(file)
    return newer, True


def _looked_for(store: Store, version: int) -> tuple[list[LogFile], bool] | None:
    """Return the result of `_following` without a listing, as far as a few requests show it.

    None: `_last_checkpoint` names a later version. It may be wrong, so only a listing decides.
    """
    newer: list[LogFile] = []
    while True:
        while (file := commit_at(store, version + len(newer) + 1)) is not None:
            newer.append(file)
        missing = version + len(newer) + 1
        shown = any(commit_at(store, missing + step) for step in _STEPS)
        if not shown:
            return None if hinted_version(store) >= missing else (newer, True)
        file = commit_at(store, missing)  # Other writers may have made all of them meanwhile.
        if file is None:
            return newer, False
        newer.append(file)


def commit_at(store: Store, version: int) -> LogFile | None:
    """Return the commit of a version, or None if it does not exist."""
    name = commit_name(version)
    try:
        info = store.info(log_path(name))
    except NotFoundError:
        return None
    return LogFile(name, "commit", version, info.size, info.modified_ms)
