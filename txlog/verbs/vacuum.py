"""Delete files to which no version within the retention refers.

Rules: spec/vacuum.md. The decision is a pure function over columns. Only files that it names are
deleted, and it is made again if the table has changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from txlog.actions.columns import empty_rows, flat
from txlog.actions.file import DeletionVectorDescriptor
from txlog.arrow import arrow_array, pc
from txlog.commit.context import Context
from txlog.commit.intent import Intent, UserMetadata
from txlog.commit.operation import (
    Operation,
    execute,
    require_table_writable,
    require_user_metadata,
)
from txlog.errors import (
    InvalidInputError,
    LogCorruptError,
    NotFoundError,
    TxlogError,
)
from txlog.log.paths import canonical_keys, encode_path
from txlog.lookup.segments import FOLDER as INDEX_FOLDER
from txlog.lookup.segments import SUFFIX as SEGMENT_SUFFIX
from txlog.lookup.segments import read_paths
from txlog.observe import removing
from txlog.protocol.properties import index_definitions
from txlog.reconcile.files import FileState
from txlog.scan.deletions import vector_path
from txlog.snapshot.commits import DamagedError, read_deltas
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import list_commits, load_snapshot, refresh
from txlog.snapshot.references import RegisteredClone, clones_of, held_versions
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.time_travel import snapshot_at
from txlog.store.base import Store
from txlog.store.open import open_store
from txlog.verbs.checkpoint import checkpoint_if_due
from txlog.verbs.restore import VACUUM_HOLDS_MS
from txlog.verbs.trash import (
    DECISIONS,
    HOUR_MS,
    delete_files,
    hours_ms,
    listed_files,
    move_to_trash,
)

_ELSEWHERE = r"^(/|\w+:)"  # Files of other tables.

_AT_ONCE = 20_000  # The number of files that are deleted between two checks of the clock.


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


@removing("VACUUM")
def vacuum(
    context: Context,
    snapshot: Snapshot,
    *,
    hours: float | None,
    dry_run: bool,
    enforce: bool,
    lite: bool,
    trash: bool = False,
    keep_versions: Sequence[int | str] = (),
    user_metadata: UserMetadata | None = None,
    files: FileState | None = None,
) -> Vacuumed:
    """Decide which files are deleted, and delete them unless it is a dry run.

    Parameters
    ----------
    snapshot
        The latest version.
    lite
        Check only files that the log records as removed, and list no folder.
    trash
        Move the files to the trash, from which they can be put back.
    keep_versions
        Versions, or names of pins, whose files are kept.
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
    require_table_writable(snapshot, removes_rows=False)
    require_user_metadata(user_metadata)
    kept_ms = retention_ms(snapshot, hours, enforce=enforce)
    listed = None if lite else listed_files(context.store.list_tree(""), snapshot)
    covered: dict[str, pa.Array] = {}  # For each segment of an index, the files that it covers.
    if listed is not None:
        segments, covered = _segments(context.store, snapshot)
        listed = pa.concat_tables([listed, segments])
    kept = [snapshot_at(context.store, one, catalog=snapshot.catalog) for one in keep_versions]
    log = _VacuumLog(context, hours, kept_ms, enforce, user_metadata)
    while True:
        cutoff_ms = context.effects.now_ms() - kept_ms
        files = files or load_files(context.store, snapshot)
        found = _expired(files, cutoff_ms, snapshot.root) if listed is None else listed
        needed = [
            referenced(files, cutoff_ms, snapshot.root),
            *needed_elsewhere(context.store, snapshot, kept_ms, cutoff_ms),
            *(_needed_by(context.store, version, cutoff_ms) for version in kept),
        ]
        needed.append(_needed_segments(covered, pa.concat_arrays(needed)))
        decided = decide(found, pa.concat_arrays(needed), cutoff_ms)
        gone = decided.filter(pc.equal(decided["decision"], "delete"))
        if dry_run or (not gone.num_rows and not log.has_started):
            return Vacuumed(decided, snapshot)
        context.store.require_writable()
        latest = refresh(context.store, snapshot)
        if latest.version == snapshot.version:
            if log.has_started:
                break
            latest = log.start(snapshot, gone)
            if latest.version == snapshot.version + 1:  # No other writer has committed in between.
                snapshot = latest
                break
        snapshot, files = latest, None  # A restore may have brought files back.
    snapshot, deleted = log.carry_out(snapshot, gone, trash=trash)
    if deleted == gone.num_rows:
        return Vacuumed(decided, snapshot)
    rest = vacuum(
        context,
        refresh(context.store, snapshot),
        hours=hours,
        dry_run=False,
        enforce=enforce,
        lite=lite,
        trash=trash,
        user_metadata=user_metadata,
    )
    both = pa.concat_tables([gone.slice(0, deleted), rest.decided])
    return Vacuumed(both.sort_by("file"), rest.snapshot)


@dataclass
class _VacuumLog:
    """The two commits that record a vacuum, as in Delta."""

    context: Context
    hours: float | None
    kept_ms: int
    enforce: bool
    user_metadata: UserMetadata | None
    has_started: bool = False
    _started_s: float = 0.0

    def start(self, snapshot: Snapshot, gone: pa.Table) -> Snapshot:
        """Commit that files are about to be deleted."""
        self.has_started = True
        self._started_s = self.context.effects.monotonic_s()
        parameters = {
            "retentionCheckEnabled": self.enforce,
            "defaultRetentionMillis": retention_ms(snapshot, None, enforce=False),
        }
        if self.hours is not None:
            parameters["specifiedRetentionMillis"] = self.kept_ms
        size = int(pc.sum(gone["bytes"]).as_py() or 0)
        metrics = {"numFilesToDelete": gone.num_rows, "sizeOfDataToDelete": size}
        return self._commit(snapshot, "VACUUM START", parameters, metrics)

    def carry_out(self, snapshot: Snapshot, gone: pa.Table, *, trash: bool) -> tuple[Snapshot, int]:
        """Delete the files, and commit the result; return the number of deleted files.

        After some time the decision about the remaining files must be made again: the first commit
        blocks restores (CON-25) only for a limited time.
        """
        paths: list[str] = gone["file"].to_pylist()
        deleted = 0
        try:
            while deleted < len(paths) and (deleted == 0 or self._holds()):
                share = paths[deleted : deleted + _AT_ONCE]
                if trash:
                    move_to_trash(self.context, share)
                else:
                    delete_files(self.context, share)
                deleted += len(share)
        except TxlogError:
            self._commit(snapshot, "VACUUM END", {"status": "FAILED"}, {})
            raise
        folders = {path.rpartition("/")[0] for path in paths[:deleted]}
        metrics = {"numDeletedFiles": deleted, "numVacuumedDirectories": len(folders)}
        return self._commit(snapshot, "VACUUM END", {"status": "COMPLETED"}, metrics), deleted

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
        note = _Note(self.context, name, parameters, metrics)
        done = execute(note, snapshot, user_metadata=self.user_metadata)
        checkpoint_if_due(self.context, done)
        return done.snapshot


class _Note(Operation):
    """A commit that only records information."""

    def __init__(
        self,
        context: Context,
        name: str,
        parameters: Mapping[str, Any],
        metrics: Mapping[str, int],
    ) -> None:
        super().__init__(context)
        self.name = name
        self._parameters = parameters
        self._metrics = metrics

    def intent(self, base: Snapshot) -> Intent:
        """Return the intent with the information."""
        return Intent(
            operation=self.name,
            kind="append",
            read_version=base.version,
            parameters=self._parameters,
            metrics=self._metrics,
        )


def needed_elsewhere(
    store: Store, snapshot: Snapshot, kept_ms: int, cutoff_ms: int
) -> Iterator[pa.Array]:
    """Yield the files that are needed in addition to those of the latest version.

    These are files of pins and registered clones, and of versions within a retention that is longer
    than the table's own: checkpoints may have dropped their tombstones.

    Raises
    ------
    NotFoundError, LogCorruptError
        A pinned version or a clone cannot be read, so it is unknown which files it needs.
    """
    root, now_ms = snapshot.root, cutoff_ms + kept_ms
    if kept_ms > retention_ms(snapshot, None, enforce=False):
        yield referenced(
            FileState(empty_rows(), _removed_since(store, snapshot, cutoff_ms)), cutoff_ms, root
        )
    for held in held_versions(snapshot, now_ms):
        try:
            yield _needed_by(store, load_snapshot(store, version=held.version), cutoff_ms)
        except (NotFoundError, LogCorruptError) as error:
            if held in held_versions(refresh(store, snapshot), now_ms):
                error.remedy = f"Nothing was deleted; {held.remedy}"
                raise
            # Another writer has changed the pin or the clone, and its version was cleaned up.
    for clone in clones_of(snapshot):
        with _remedy(
            "Nothing was deleted; if the clone no longer exists, call "
            f"Table.maintenance.forget_clone({clone.uri!r})"
        ):
            theirs = open_store(clone.uri, store.options)
            latest = _latest_of(theirs, clone)
            if latest is None or latest.metadata.id != clone.id:
                continue  # It is not made yet, or another table is at its place now.
            # The clone's own vacuum decides about its versions that are older than its retention.
            kept = max(kept_ms, retention_ms(latest, None, enforce=False))
            oldest_ms = cutoff_ms + kept_ms - kept
            for part in (
                referenced(load_files(theirs, latest), oldest_ms, latest.root),
                *needed_elsewhere(theirs, latest, kept, oldest_ms),
            ):
                yield _relative(part, root)


def _latest_of(store: Store, clone: RegisteredClone) -> Snapshot | None:
    """Return the latest version of a clone; None if it is not made yet (MNT-15)."""
    try:
        return load_snapshot(store)
    except NotFoundError:
        if clone.is_made:
            raise
    return None


def _needed_by(store: Store, version: Snapshot, cutoff_ms: int) -> pa.Array:
    """Return the files of one version."""
    files = replace(load_files(store, version), tombstones=empty_rows())
    return referenced(files, cutoff_ms, version.root)


@contextmanager
def _remedy(text: str) -> Iterator[None]:
    try:
        yield
    except (NotFoundError, LogCorruptError) as error:
        error.remedy = text
        raise


def _removed_since(store: Store, snapshot: Snapshot, cutoff_ms: int) -> pa.Table:
    """Return the `FILE_ROWS` of removes in commits that were written since a time."""
    young = [file for file in list_commits(store, snapshot) if file.modified_ms >= cutoff_ms]
    try:
        rows = read_deltas(store, young).files
    except DamagedError as error:
        raise error.cause from error
    return rows.filter(pc.invert(rows["is_add"]))


def _segments(store: Store, snapshot: Snapshot) -> tuple[pa.Table, dict[str, pa.Array]]:
    """Return the segments of indexes, as `listed_files` does, and the files that each covers.

    Segments that cannot be read, or whose index was dropped, are omitted.
    """
    found = [
        (f"{INDEX_FOLDER}/{info.name}", info.size, info.modified_ms)
        for info in store.list_tree(INDEX_FOLDER)
        if info.name.endswith(SEGMENT_SUFFIX)
    ]
    known = index_definitions(snapshot.metadata.configuration)
    covered = {}
    for path, size, _ in found:
        paths = read_paths(store, path, size) if path.split("/")[1] in known else None
        if paths is not None:
            keys = flat(canonical_keys(arrow_array(paths, pa.string())))
            covered[path] = _relative(keys.cast(pa.string()), snapshot.root)
    columns = [[one[place] for one in found] for place in range(3)]
    kinds = DECISIONS.types[:3]
    arrays = [arrow_array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, names=DECISIONS.names[:3]), covered


def _needed_segments(covered: Mapping[str, pa.Array], needed: pa.Array) -> pa.Array:
    """Return the segments that cover a file that is needed. Pure."""
    found = [
        path for path, files in covered.items() if pc.any(pc.is_in(files, value_set=needed)).as_py()
    ]
    return arrow_array(found, pa.string())


def _expired(files: FileState, cutoff_ms: int, root: str) -> pa.Table:
    """Return the files that were removed before a time, as `listed_files` does."""
    rows = files.tombstones
    times = pc.fill_null(rows["deletion_timestamp"], 0)
    old = pc.less(times, cutoff_ms)
    rows, times = rows.filter(old), times.filter(old)
    paths = _relative(flat(canonical_keys(rows["path"])), root)
    found = pa.table(
        [paths, flat(pc.fill_null(rows["size"], 0)), flat(times)], names=DECISIONS.names[:3]
    )
    vectors = arrow_array(sorted(_vectors(rows)), pa.string())
    nothing = arrow_array([0] * len(vectors), pa.int64())
    more = pa.table([_relative(vectors, root), nothing, nothing], names=DECISIONS.names[:3])
    found = pa.concat_tables([found, more])
    return found.filter(pc.invert(pc.match_substring_regex(found["file"], _ELSEWHERE)))


def referenced(files: FileState, cutoff_ms: int, root: str) -> pa.Array:
    """Return the files that versions since a time refer to, relative to the table. Pure.

    They are the live files, the files that were removed after the time, and the deletion vectors of
    both.
    """
    young = files.tombstones.filter(
        pc.greater_equal(pc.fill_null(files.tombstones["deletion_timestamp"], 0), cutoff_ms)
    )
    paths = [flat(canonical_keys(rows["path"])) for rows in (files.live, young)]
    vectors = _vectors(files.live) | _vectors(young)
    found = [*paths, arrow_array(sorted(vectors), pa.string())]
    return _relative(pa.concat_arrays([part.cast(pa.string()) for part in found]), root)


def _relative(keys: pa.Array, root: str) -> pa.Array:
    """Return keys of files, relative to the table if they are below it."""
    (key,) = canonical_keys(arrow_array([encode_path(root) if "://" in root else root])).to_pylist()
    prefix = f"{key}/"
    below = pc.starts_with(keys, prefix)
    if not pc.any(below).as_py():
        return keys
    return pc.if_else(below, pc.utf8_slice_codeunits(keys, len(prefix)), keys)


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
        Files by path, size, and the time when they were written or removed (0: unknown).
    needed
        Files that versions within the retention refer to.
    """
    is_needed = pc.is_in(found["file"], value_set=needed)
    is_young = pc.greater_equal(found["modified_ms"], cutoff_ms)
    decision = pc.if_else(pc.or_(is_needed, is_young), "keep", "delete")
    reason = pc.if_else(
        is_needed,
        "a version within the retention, a pin or a clone needs it",
        pc.if_else(
            is_young,
            "it is younger than the retention: a writer may be about to commit it",
            "no version within the retention needs it",
        ),
    )
    columns = [*found.columns, decision, reason]
    decided = pa.table([flat(column) for column in columns], schema=DECISIONS)
    names = flat(decided["file"])
    # A listing comes in this order, and to sort a million names takes two seconds.
    is_sorted = pc.all(pc.less_equal(names[:-1], names[1:])).as_py() is not False
    return decided if is_sorted else decided.sort_by("file")
