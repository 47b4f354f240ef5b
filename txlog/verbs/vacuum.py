"""Delete files to which no version within the retention refers.

Rules: spec/vacuum.md. The decision is a pure function over columns. Only files that it names are
deleted, and it is made again if the table has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from txlog.actions.columns import empty_rows
from txlog.actions.file import DeletionVectorDescriptor
from txlog.base.arrow import arrow_array, pc
from txlog.base.columns import flat
from txlog.base.errors import (
    InvalidInputError,
    LogCorruptError,
    NotFoundError,
    TxlogError,
)
from txlog.base.observe import removing
from txlog.base.threads import Engine, Threads, tracked
from txlog.base.thresholds import Threshold
from txlog.commit.context import Context
from txlog.commit.intent import UserMetadata
from txlog.commit.operation import (
    execute,
    require_table_writable,
    require_user_metadata,
)
from txlog.fragments.packs import packs_of
from txlog.log.paths import canonical_keys
from txlog.lookup.segments import FOLDER as INDEX_FOLDER
from txlog.lookup.segments import SUFFIX as SEGMENT_SUFFIX
from txlog.lookup.segments import read_paths
from txlog.protocol.properties import index_definitions
from txlog.reconcile.files import FileState
from txlog.scan.deletions import vector_path
from txlog.scan.lazy_plan import planner_of
from txlog.snapshot.branches import Branch, registry_of
from txlog.snapshot.commits import DamagedError, read_deltas
from txlog.snapshot.live_files import fold_states_in_turn, load_columns
from txlog.snapshot.load import list_commits, load_snapshot, refresh
from txlog.snapshot.references import RegisteredClone, clones_of, held_versions
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.time_travel import snapshot_at
from txlog.snapshot.together import Together, each_together
from txlog.store.base import ObjectInfo, Store, is_far, is_older, is_there, map_many
from txlog.store.branches import (
    BRANCHES_FOLDER,
    BranchStore,
    closed_chains,
    require_main,
    without_branch,
)
from txlog.store.file_times import ahead_ms
from txlog.store.managed import require_cleaned_here
from txlog.store.open import open_store
from txlog.store.places import NamesNeeded, absolute_keys, names_below
from txlog.verbs.listing import DECISIONS, found_table, list_files
from txlog.verbs.restore import VACUUM_HOLDS_MS
from txlog.verbs.settle import settle
from txlog.verbs.trash import (
    HOUR_MS,
    DeletionNote,
    delete_files,
    hours_ms,
    move_to_trash,
)

Take = Callable[[pa.Array], None]

_ELSEWHERE = r"^(/|\w+:)"  # Files of other tables.

# What decides about the files of a version.
_COLUMNS = ("deletion_vector", "deletion_timestamp", "size", "tags")

# The number of files that are deleted between two checks of the clock.
_AT_ONCE: Threshold = 20_000


def retention_ms(snapshot: Snapshot, hours: float | None, *, enforce: bool) -> int:
    """Return how long unreferenced files are kept, in milliseconds.

    Raises
    ------
    InvalidInputError
        It is below the table's own retention, and `enforce` is set.
    """
    own = int(snapshot.properties.get("delta.deletedFileRetentionDuration"))
    if hours is None:
        return own
    asked = hours_ms(hours)
    if enforce and asked < own:
        raise InvalidInputError(
            argument="retention_hours",
            reason=f"{hours} hours are less than the table's delta.deletedFileRetentionDuration, "
            f"{own / HOUR_MS:g} hours: running writers and readers may need the files",
            remedy="Pass enforce_retention_duration=False if there are no such writers and readers",
        )
    return asked


@dataclass(frozen=True)
class Vacuumed:
    """The decisions of a vacuum, and the version of the table after it."""

    decided: pa.Table  # As `DECISIONS`.
    snapshot: Snapshot


@dataclass(frozen=True)
class VacuumRequest:
    """What the caller of a vacuum asked for. Each round of the vacuum gets the same value.

    Parameters
    ----------
    hours
        The retention in hours. None: that of the table.
    dry_run
        Write nothing. So a vacuum may keep more: it measures how far the clock of this process is
        ahead of the store's, by which files have their times.
    enforce
        Refuse a retention below that of the table.
    lite
        Check only files that the log records as removed, and list no folder.
    trash
        Move the files to the trash, from which they can be put back.
    keep_versions
        Versions, or names of pins, whose files are kept.
    """

    hours: float | None = None
    dry_run: bool = True
    enforce: bool = True
    lite: bool = False
    trash: bool = False
    keep_versions: Sequence[int | str] = ()
    user_metadata: UserMetadata | None = None


@dataclass(frozen=True)
class _Round:
    """One round of a vacuum: its decisions, and the part of them that it carried out."""

    decided: pa.Table  # As `DECISIONS`.
    gone: pa.Table  # The decisions to delete.
    deleted: int  # The number of deleted files, from the first row of `gone`.
    snapshot: Snapshot  # The version after it.


@removing("VACUUM")
def vacuum(
    context: Context,
    snapshot: Snapshot,
    request: VacuumRequest,
    *,
    files: FileState | None = None,
) -> Vacuumed:
    """Decide which files are deleted, and delete them unless it is a dry run.

    If a round cannot delete all files in its time, the decision about the others is made again.

    Parameters
    ----------
    snapshot
        The latest version.
    files
        The files of the snapshot, if they are loaded already.

    Raises
    ------
    InvalidInputError
        The retention is too short.
    UnsupportedFeatureError
        The table cannot be written by txlog.
    NotFoundError
        A version to keep, a pinned version, or a registered clone does not exist.
    """
    require_main(context.store, "a vacuum")
    require_cleaned_here(context.store, "a vacuum")
    require_table_writable(snapshot, removes_rows=False)
    require_user_metadata(request.user_metadata)
    retention_ms(snapshot, request.hours, enforce=request.enforce)
    store = context.store
    versions = [snapshot_at(store, one, catalog=snapshot.catalog) for one in request.keep_versions]
    # They are the same in every round, even if a pin is moved or the log is cleaned up meanwhile.
    kept = [key for version in versions for key in _needed_by(context, version)]
    before: list[pa.Table] = []  # The files that earlier rounds deleted.
    while True:
        done = _round(context, snapshot, request, kept, files)
        if request.dry_run or done.deleted == done.gone.num_rows:
            break
        before.append(done.gone.slice(0, done.deleted))
        snapshot, files = refresh(store, done.snapshot), None
    if not before:
        return Vacuumed(done.decided, done.snapshot)
    decided = pa.concat_tables([*before, done.decided])
    return Vacuumed(decided.sort_by("file"), done.snapshot)


def _round(
    context: Context,
    snapshot: Snapshot,
    request: VacuumRequest,
    kept: Sequence[pa.Array],
    files: FileState | None,
) -> _Round:
    """Decide, and delete files until the commit that starts the deletion is too old."""
    store = context.store
    kept_ms = retention_ms(snapshot, request.hours, enforce=request.enforce)
    listed = None
    if not request.lite:
        listing = list_files(context, snapshot)
        listed, chains = listing.files, listing.chains
    covered: dict[str, pa.Array] = {}  # For each segment of an index, the files that it covers.
    if listed is not None:
        segments, covered = _segments(store, snapshot)
        listed = pa.concat_tables([listed, segments])
    log = _VacuumLog(context, request, kept_ms)
    ahead: int | None = None  # How far this process's clock is ahead of the store's.
    while True:
        cutoff_ms = context.effects.now_ms() - (ahead or 0) - kept_ms
        if listed is None:
            files = files or load_columns(store, snapshot, _COLUMNS)
            found = _expired(files, cutoff_ms, snapshot.root)
        else:
            found = pa.concat_tables([listed, _closed(snapshot, chains)])
        asked = NamesNeeded(
            snapshot.root,
            flat(found["file"]),
            is_listing=not request.lite,
            besides=pa.concat_arrays([arrow_array([], pa.string()), *covered.values()]),
        )
        if files is None:
            each_referenced(store, snapshot, cutoff_ms, asked.add, context.engine)
        else:
            asked.add(referenced(files, cutoff_ms))
        needed_elsewhere(context, snapshot, kept_ms, cutoff_ms, asked.add)
        for keys in kept:
            asked.add(keys)
        needed = asked.needed()
        needed = pa.concat_arrays([needed, _needed_segments(covered, needed)])
        decided = decide(found, needed, cutoff_ms)
        if listed is None:
            decided = _without_absent(store, decided)
        gone = decided.filter(pc.equal(decided["decision"], "delete"))
        if request.dry_run or (not gone.num_rows and not log.has_started):
            return _Round(decided, gone, 0, snapshot)
        store.require_writable()
        if ahead is None and kept_ms:  # Without a retention, no clock matters.
            ahead = ahead_ms(store, context.effects)
            if ahead:  # Decide again: the files are younger than they seemed.
                continue
        latest = refresh(store, snapshot)
        if latest.version == snapshot.version:
            if log.has_started:
                break
            latest = log.start(snapshot, gone)
            if latest.version == snapshot.version + 1:  # No other writer has committed in between.
                snapshot = latest
                break
        snapshot, files = latest, None  # A restore may have brought files back.
    snapshot, deleted = log.carry_out(snapshot, gone)
    return _Round(decided, gone, deleted, snapshot)


def _closed(snapshot: Snapshot, chains: Sequence[ObjectInfo]) -> pa.Table:
    """Return the files of the logs of branches that are not open, as `list_files` does (BRA-41).

    Temporary files are in the listing anyway.
    """
    known = [branch.id for branch in registry_of(snapshot).open]
    found = [one for one in closed_chains(known, chains) if not one.name.endswith(".tmp")]
    return found_table(found)


def _without_absent(store: Store, decided: pa.Table) -> pa.Table:
    """Return decisions without deletions of files that do not exist.

    The log records a removed file until its tombstone expires, also after a vacuum deleted it.
    """
    is_gone = pc.equal(decided["decision"], "delete")
    paths = flat(decided["file"]).filter(flat(is_gone)).to_pylist()
    there = arrow_array(list(map_many(store, partial(is_there, store), paths)), pa.bool_())
    keep = pc.replace_with_mask(
        arrow_array([True] * decided.num_rows, pa.bool_()), flat(is_gone), there
    )
    return decided.filter(keep)


@dataclass
class _VacuumLog:
    """The two commits that record a vacuum, as in Delta."""

    context: Context
    request: VacuumRequest
    kept_ms: int
    has_started: bool = False
    _started_s: float = 0.0

    def start(self, snapshot: Snapshot, gone: pa.Table) -> Snapshot:
        """Commit that files are about to be deleted."""
        self.has_started = True
        self._started_s = self.context.effects.monotonic_s()
        parameters = {
            "retentionCheckEnabled": self.request.enforce,
            "defaultRetentionMillis": retention_ms(snapshot, None, enforce=False),
        }
        if self.request.hours is not None:
            parameters["specifiedRetentionMillis"] = self.kept_ms
        size = int(pc.sum(gone["bytes"]).as_py() or 0)
        metrics = {"numFilesToDelete": gone.num_rows, "sizeOfDataToDelete": size}
        return self._commit(snapshot, "VACUUM START", parameters, metrics)

    def carry_out(self, snapshot: Snapshot, gone: pa.Table) -> tuple[Snapshot, int]:
        """Delete the files, and commit the result; return the number of deleted files.

        After some time the decision about the remaining files must be made again: the first commit
        blocks restores (CON-25) only for a limited time.
        """
        paths: list[str] = gone["file"].to_pylist()
        deleted = 0
        try:
            starts = range(0, len(paths), _AT_ONCE)
            for count in tracked(
                (self._remove(paths[at : at + _AT_ONCE]) for at in starts), starts
            ):
                deleted += count
                if not self._holds():
                    break
        except TxlogError:
            self._commit(snapshot, "VACUUM END", {"status": "FAILED"}, {})
            raise
        folders = {path.rpartition("/")[0] for path in paths[:deleted]}
        metrics = {"numDeletedFiles": deleted, "numVacuumedDirectories": len(folders)}
        return self._commit(snapshot, "VACUUM END", {"status": "COMPLETED"}, metrics), deleted

    def _remove(self, paths: list[str]) -> int:
        """Delete files, or move them to the trash; return their number."""
        if self.request.trash:
            move_to_trash(self.context, paths)
        else:
            delete_files(self.context, paths)
        return len(paths)

    def _holds(self) -> bool:
        """Return whether the first commit is young enough, by the clock of this process."""
        waited_ms = 1000 * (self.context.effects.monotonic_s() - self._started_s)
        return waited_ms < VACUUM_HOLDS_MS / 2

    def _commit(
        self,
        snapshot: Snapshot,
        name: str,
        parameters: Mapping[str, Any],
        metrics: Mapping[str, int],
    ) -> Snapshot:
        note = DeletionNote(name, parameters, metrics)
        done = execute(
            note,
            self.context,
            snapshot,
            user_metadata=self.request.user_metadata,
            looked_s=self._started_s,
        )
        settle(self.context, done)
        return done.snapshot


def needed_elsewhere(
    context: Context,
    snapshot: Snapshot,
    kept_ms: int,
    cutoff_ms: int,
    take: Take,
    visited: dict[tuple[str, str], int] | None = None,
) -> None:
    """Give `take` the keys of files that are needed in addition to those of the latest version.

    They come in parts, some perhaps twice. These are files of pins and registered clones, and of
    versions within a retention that is longer than the table's own: checkpoints may have dropped
    their tombstones. Keys of the table's own files may be relative; those of clones are absolute.

    Parameters
    ----------
    context
        The workers of its engine read the checkpoints of large tables.
    visited
        The locations and ids of clones, with the time since which their versions are needed. Two
        tables may be clones of each other.

    Raises
    ------
    NotFoundError, LogCorruptError
        A pinned version or a clone cannot be read, so it is unknown which files it needs.
    """
    store, engine = context.store, context.engine
    if visited is None:  # The caller decides about the files of the table itself.
        visited = {(store.root, snapshot.metadata.id): -(1 << 63)}
    now_ms = cutoff_ms + kept_ms
    if kept_ms > retention_ms(snapshot, None, enforce=False):
        removed = _removed_since(store, snapshot, cutoff_ms)
        take(referenced(FileState(empty_rows(), removed), cutoff_ms))
    _each_of_branches(context, snapshot, cutoff_ms, take)
    every = held_versions(snapshot, now_ms)
    alone = set[int]()  # Versions that must be loaded one by one.
    for versions, together in each_together(store, {held.version for held in every}):
        if together is None or not _taken_together(context, together, take):
            alone.update(versions)
    for held in every:
        if held.version not in alone:
            continue
        alone.remove(held.version)
        try:
            version = load_snapshot(store, version=held.version)
            each_referenced(store, version, None, take, engine)
        except (NotFoundError, LogCorruptError) as error:
            if held in held_versions(refresh(store, snapshot), now_ms):
                error.remedy = f"Nothing was deleted; {held.remedy}"
                raise
            # Another writer has changed the pin or the clone, and its version was cleaned up.
    _each_of_attempts(context, snapshot, now_ms, take)
    for clone in clones_of(snapshot):
        with _remedy(
            "Nothing was deleted; if the clone no longer exists, call "
            f"Table.maintenance.forget_clone({clone.uri!r}). Clones of it, which only it knew, may "
            "need the same files: make deep clones of them first"
        ):
            theirs = open_store(clone.uri, without_branch(store.options))
            latest = _latest_of(theirs, clone)
            if latest is None or latest.metadata.id != clone.id:
                continue  # It is not made yet, or another table is at its place now.
            # The clone's own vacuum decides about its versions that are older than its retention.
            kept = max(kept_ms, retention_ms(latest, None, enforce=False))
            oldest_ms = cutoff_ms + kept_ms - kept
            here = (theirs.root, clone.id)
            if visited.get(here, oldest_ms + 1) <= oldest_ms:
                continue
            visited[here] = oldest_ms
            theirs_too = partial(_take_of_clone, take, latest.root)
            there = replace(context, store=theirs, engine=_reaching(context, theirs))
            each_referenced(theirs, latest, oldest_ms, theirs_too, there.engine)
            needed_elsewhere(there, latest, kept, oldest_ms, theirs_too, visited)


def _each_of_attempts(context: Context, snapshot: Snapshot, now_ms: int, take: Take) -> None:
    """Give `take` the keys of versions of other tables of which clones are being made (MNT-15).

    Raises
    ------
    NotFoundError, LogCorruptError
        Such a version cannot be read.
    """
    store = context.store
    for clone in clones_of(snapshot):
        for attempt in clone.attempts:
            if attempt.of is None or not attempt.is_young(now_ms):
                continue
            try:
                there = open_store(attempt.of, without_branch(store.options))
                version = load_snapshot(there, version=attempt.version)
                keys = partial(_take_of_clone, take, version.root)
                each_referenced(there, version, None, keys, _reaching(context, there))
            except (NotFoundError, LogCorruptError) as error:
                if clone in clones_of(refresh(store, snapshot)):
                    error.remedy = f"Nothing was deleted; {clone.remedy}"
                    raise
                # The attempt has ended, and its version was cleaned up.


def _taken_together(context: Context, together: Together, take: Take) -> bool:
    """Give `take` the keys of the files of several versions; return whether they can be read."""
    try:
        each_referenced(context.store, together.first, None, take, context.engine)
    except (NotFoundError, LogCorruptError):
        return False
    take(referenced(FileState(together.others, empty_rows()), 0))
    return True


def _reaching(context: Context, clone: Store) -> Engine:
    """Return an engine that reads the log of a clone.

    Workers that read the table may not reach a disk, or the memory, of this process.
    """
    reach = is_far(clone) or (type(clone) is type(context.store) and not is_far(context.store))
    return context.engine if reach else Threads()


def _each_of_branches(context: Context, snapshot: Snapshot, cutoff_ms: int, take: Take) -> None:
    """Give `take` the keys of the files that open branches need, as `each_referenced` does.

    The files of their bases are those of kept versions (`held_versions`).

    Raises
    ------
    NotFoundError, LogCorruptError
        A branch cannot be read, so it is unknown which files it needs.
    """
    store = context.store
    for branch in _written_branches(store, snapshot):
        view = BranchStore.of(store, branch.chain)
        try:
            each_referenced(view, load_snapshot(view), cutoff_ms, take, context.engine)
        except (NotFoundError, LogCorruptError) as error:
            if branch in registry_of(refresh(store, snapshot)).open:
                error.remedy = (
                    "Nothing was deleted; if the branch is not needed, discard it with "
                    f"branches.discard({branch.name!r})"
                )
                raise


def _written_branches(store: Store, snapshot: Snapshot) -> list[Branch]:
    """Return the open branches that have commits."""
    opened = registry_of(snapshot).open
    if not opened:
        return []
    written = {info.name.partition("/")[0] for info in store.list_tree(BRANCHES_FOLDER)}
    return [branch for branch in opened if branch.id in written]


def _take_of_clone(take: Take, root: str, keys: pa.Array) -> None:
    take(absolute_keys(root, keys))


def each_referenced(
    store: Store,
    snapshot: Snapshot,
    cutoff_ms: int | None,
    take: Take,
    engine: Engine | None = None,
) -> None:
    """Give `take` the keys of `referenced` of a version, in parts; only few parts are in memory.

    If a checkpoint proves to be damaged, keys come again from other files of the log. Errors are
    those of `load_files`; then keys are missing.

    Parameters
    ----------
    cutoff_ms
        None: only the live files and their deletion vectors count.
    engine
        Its workers read the checkpoint if they plan changes of a table of this size.
    """

    def fold(parts: Iterator[pa.Array]) -> None:
        for keys in parts:
            take(keys)

    part = partial(_keys_of, cutoff_ms)
    planner = planner_of(store, snapshot, engine)
    fold_states_in_turn(store, snapshot, _COLUMNS, part, fold, engine=planner)


def _keys_of(cutoff_ms: int | None, states: Iterator[FileState]) -> pa.Array:
    """Return the keys of `referenced` of some files, as `each_referenced` has them. Pure."""
    found = [arrow_array([], pa.string())]
    for state in states:
        if cutoff_ms is None:
            state = replace(state, tombstones=state.tombstones.slice(0, 0))
        found.append(referenced(state, cutoff_ms or 0))
    return pa.concat_arrays(found)


def _latest_of(store: Store, clone: RegisteredClone) -> Snapshot | None:
    """Return the latest version of a clone; None if it is not made yet (MNT-15)."""
    try:
        return load_snapshot(store)
    except NotFoundError:
        if clone.is_made:
            raise
    return None


def _needed_by(context: Context, version: Snapshot) -> list[pa.Array]:
    """Return the keys of the files of one version."""
    keys: list[pa.Array] = []
    each_referenced(context.store, version, None, keys.append, context.engine)
    return keys


@contextmanager
def _remedy(text: str) -> Iterator[None]:
    try:
        yield
    except (NotFoundError, LogCorruptError) as error:
        error.remedy = text
        raise


def _removed_since(store: Store, snapshot: Snapshot, cutoff_ms: int) -> pa.Table:
    """Return the `FILE_ROWS` of removes in commits that were written since a time."""
    young = [
        file for file in list_commits(store, snapshot) if not is_older(file.modified_ms, cutoff_ms)
    ]
    try:
        rows = read_deltas(store, young).files
    except DamagedError as error:
        raise error.cause from error
    return rows.filter(pc.invert(rows["is_add"]))


def _segments(store: Store, snapshot: Snapshot) -> tuple[pa.Table, dict[str, pa.Array]]:
    """Return the segments of indexes, as `list_files` does, and the files that each covers.

    Segments that cannot be read, or whose index was dropped, are omitted.
    """
    found = [
        (f"{INDEX_FOLDER}/{info.name}", info.size, info.modified_ms)
        for info in store.list_tree(INDEX_FOLDER)
        if info.name.endswith(SEGMENT_SUFFIX)
    ]
    known = set(index_definitions(snapshot.metadata.configuration))
    if any(path.split("/")[1] not in known for path, _, _ in found):
        known |= _indexes_of_branches(store, snapshot)
    covered = {}
    for path, size, _ in found:
        paths = read_paths(store, path, size) if path.split("/")[1] in known else None
        if paths is not None:
            keys = flat(canonical_keys(arrow_array(paths, pa.string())))
            covered[path] = names_below(snapshot.root, keys.cast(pa.string()))
    return found_table(found), covered


def _indexes_of_branches(store: Store, snapshot: Snapshot) -> set[str]:
    """Return the names of the indexes that open branches define; errors as `_each_of_branches`."""
    views = (BranchStore.of(store, one.chain) for one in _written_branches(store, snapshot))
    tips = (load_snapshot(view) for view in views)
    return {name for tip in tips for name in index_definitions(tip.metadata.configuration)}


def _needed_segments(covered: Mapping[str, pa.Array], needed: pa.Array) -> pa.Array:
    """Return the segments that cover a file that is needed. Pure."""
    found = [
        path for path, files in covered.items() if pc.any(pc.is_in(files, value_set=needed)).as_py()
    ]
    return arrow_array(found, pa.string())


def _expired(files: FileState, cutoff_ms: int, root: str) -> pa.Table:
    """Return the files that were removed before a time, as `list_files` does."""
    rows = files.tombstones
    rows = rows.filter(pc.invert(_is_young(rows["deletion_timestamp"], cutoff_ms)))
    times = flat(rows["deletion_timestamp"])
    keys = flat(canonical_keys(rows["path"])).cast(pa.string())
    vectors = arrow_array(sorted(_vectors(rows)), pa.string())
    packs = flat(canonical_keys(packs_of(rows))).cast(pa.string())
    besides = pa.concat_arrays([vectors, packs])
    nothing = arrow_array([0] * len(besides), pa.int64())
    # Each was removed at this time or before.
    removed = arrow_array([pc.max(times).as_py()] * len(besides), pa.int64())
    found = pa.table(
        [
            names_below(root, pa.concat_arrays([keys, besides])),
            pa.concat_arrays([flat(pc.fill_null(rows["size"], 0)), nothing]),
            pa.concat_arrays([times, removed]),
        ],
        names=DECISIONS.names[:3],
    )
    return found.filter(pc.invert(pc.match_substring_regex(found["file"], _ELSEWHERE)))


def referenced(files: FileState, cutoff_ms: int) -> pa.Array:
    """Return the keys of the files that versions since a time refer to. Pure.

    They are the live files, the files that were removed after the time, and the deletion vectors
    and packs of both.
    """
    removed = files.tombstones
    young = removed.filter(_is_young(removed["deletion_timestamp"], cutoff_ms))
    paths = [flat(canonical_keys(rows["path"])) for rows in (files.live, young)]
    vectors = _vectors(files.live) | _vectors(young)
    packs = [flat(canonical_keys(packs_of(rows))) for rows in (files.live, young)]
    found = [*paths, arrow_array(sorted(vectors), pa.string()), *packs]
    return pa.concat_arrays([part.cast(pa.string()) for part in found])


def _is_young(times_ms: pa.ChunkedArray, cutoff_ms: int) -> pa.ChunkedArray:
    """Return which times are not before another one. A time that is not known may not be. Pure.

    Writers that do not know a time write 0.
    """
    late = pc.or_(pc.greater_equal(times_ms, cutoff_ms), pc.less_equal(times_ms, 0))
    return pc.fill_null(late, True)


def _vectors(rows: pa.Table) -> set[str]:
    """Return the deletion vector files that file actions refer to."""
    vectors = flat(rows.filter(pc.is_valid(rows["dv_id"]))["deletion_vector"])
    kinds = pc.struct_field(vectors, "storageType")
    texts = pc.struct_field(vectors, "pathOrInlineDv")
    pairs = set(zip(kinds.to_pylist(), texts.to_pylist(), strict=True))
    paths = set()
    for kind, text in pairs:
        descriptor = DeletionVectorDescriptor(
            storage_type=kind, path_or_inline_dv=text, size_in_bytes=0, cardinality=0
        )
        path = vector_path(descriptor)
        paths |= set() if path is None else {path}
    return paths


def decide(found: pa.Table, needed: pa.Array, cutoff_ms: int) -> pa.Table:
    """Return for each file whether it is kept or deleted, and why, as `DECISIONS`. Pure.

    Parameters
    ----------
    found
        Files by path, size, and the time when they were written or removed (null: unknown).
    needed
        Files that versions within the retention refer to.
    """
    is_needed = pc.is_in(found["file"], value_set=needed)
    is_young = _is_young(found["modified_ms"], cutoff_ms)
    decision = pc.if_else(pc.or_(is_needed, is_young), "keep", "delete")
    reason = pc.if_else(
        is_needed,
        "a version within the retention, a pin, a branch or a clone needs it",
        pc.if_else(
            is_young,
            pc.if_else(
                pc.is_null(found["modified_ms"]),
                "the store does not say when it was written: a writer may be about to commit it",
                "it is younger than the retention: a writer may be about to commit it",
            ),
            "no version within the retention needs it",
        ),
    )
    columns = [*found.columns, decision, reason]
    decided = pa.table([flat(column) for column in columns], schema=DECISIONS)
    names = flat(decided["file"])
    # A listing comes in this order, and to sort a million names takes two seconds.
    is_sorted = pc.all(pc.less_equal(names[:-1], names[1:])).as_py() is not False
    return decided if is_sorted else decided.sort_by("file")
