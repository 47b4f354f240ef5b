"""Clean up the log: delete files that no version within the retention, pin or clone needs.

Rules: spec/maintenance.md, MNT-1 to MNT-6. The decision is a pure function over names.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txlog.actions.file import Sidecar
from txlog.actions.table import Protocol
from txlog.base.arrow import arrow_array, table_of_rows
from txlog.base.errors import (
    LogCorruptError,
    NotFoundError,
    TxlogError,
    TxlogWarning,
)
from txlog.base.observe import removing
from txlog.checkpoint.hint import hinted_version
from txlog.checkpoint.read import file_batches, sources_of
from txlog.checkpoint.table_state import read_controls
from txlog.commit.context import Context
from txlog.commit.operation import require_table_writable
from txlog.log.catalog import STAGED_FOLDER
from txlog.log.names import LOG_FOLDER, LogFile, log_path, parse_name
from txlog.log.paths import decode_path
from txlog.log.segment import choose_segment, complete_checkpoints
from txlog.protocol.access import PROTECTED, require_readable
from txlog.snapshot.commits import read_commit
from txlog.snapshot.load import list_log, load_snapshot, refresh
from txlog.snapshot.references import Held, held_versions
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.time_travel import version_until
from txlog.store.base import ObjectInfo, Store, is_older
from txlog.store.branches import branch_name, require_main
from txlog.store.file_times import ahead_ms
from txlog.store.managed import ManagedStore, is_cleaned_elsewhere, require_cleaned_here
from txlog.verbs.listing import DECISIONS
from txlog.verbs.trash import HOUR_MS, delete_files, hours_ms

_DAY_MS = 24 * HOUR_MS
_SIDECARS = log_path("_sidecars")
# Commits are deleted before checkpoints.
_NO_VERSION = 1 << 63  # It is after all versions.
_ORDER = ("commit", "checksum", "compaction", "checkpoint")


@removing("EXPIRE")
def expire(context: Context, snapshot: Snapshot, *, hours: float | None, dry_run: bool) -> pa.Table:
    """Decide which files of the log to delete, and delete them unless it is a dry run.

    Parameters
    ----------
    snapshot
        The latest version.
    dry_run
        Write nothing. So a clean-up may keep more: it measures how far the clock of this process
        is ahead of the store's, by which files have their times.
    hours
        How long versions are kept. None: the table's `delta.logRetentionDuration`, counted back
        from midnight as in the protocol.

    Returns
    -------
    pyarrow.Table
        As `DECISIONS`; paths are relative to the table.

    Raises
    ------
    UnsupportedFeatureError
        The table or the store cannot be written by txlog.
    LogCorruptError
        The checkpoint that must replace the deleted files cannot be read. Nothing was deleted.
    NotFoundError
        A version that a pin or a clone needs can no longer be reconstructed; the error names it.
        Nothing was deleted.
    """
    store = context.store
    require_main(store, "a clean-up of the log")
    require_cleaned_here(store, "a clean-up of the log")
    ahead: int | None = None  # How far this process's clock is ahead of the store's.
    while True:
        now_ms = context.effects.now_ms() - (ahead or 0)
        require_table_writable(snapshot, removes_rows=False)
        held = held_versions(snapshot, now_ms)
        try:
            cutoff_ms = _cutoff_ms(snapshot, hours, now_ms)
            log = list_log(store)
            plan = plan_expiry(
                log,
                last_kept=min(_version_at(store, snapshot, cutoff_ms), _last_old(log, cutoff_ms)),
                hinted=hinted_version(store),
                held=held,
                protected=protected_before(snapshot),
            )
            if dry_run or not plan.gone:
                break
            store.require_writable()
            if ahead is None:
                ahead = ahead_ms(store, context.effects)
                if ahead:  # Decide again: versions and sidecars are younger than they seemed.
                    continue
            require_rebuildable(store, plan)
            if protected_before(snapshot):
                require_known_protocols(store, plan.gone, snapshot.root)
        except (NotFoundError, LogCorruptError):
            latest = refresh(store, snapshot)
            if held_versions(latest, now_ms) == held:
                raise
        else:
            latest = refresh(store, snapshot)
            if held_versions(latest, now_ms) == held:
                break
        snapshot = latest  # Another writer has changed a pin, or registered or made a clone.
    if not dry_run:
        delete_log(context, plan)
    decided = plan.decided()
    sidecars = [*_sidecars(store, plan, now_ms), *_staged(store, snapshot, now_ms)]
    if not dry_run and ahead is None and any(row["decision"] == "delete" for row in sidecars):
        now_ms -= ahead_ms(store, context.effects)
        sidecars = [*_sidecars(store, plan, now_ms), *_staged(store, snapshot, now_ms)]
    if not dry_run:
        delete_files(context, [row["file"] for row in sidecars if row["decision"] == "delete"])
    return pa.concat_tables([decided, table_of_rows(sidecars, DECISIONS)]).sort_by("file")


def delete_log(context: Context, plan: Expiry) -> None:
    """Delete the files that a plan does not keep; commits before checkpoints."""
    for kind in _ORDER:
        delete_files(context, [file.path for file in plan.gone if file.kind == kind])


def oldest_version(store: Store) -> int:
    """Return the lowest version of which the log has a commit or a checkpoint; -1 if none."""
    found = (file.version for file in list_log(store) if file.kind in ("commit", "checkpoint"))
    return min(found, default=-1)


def _cutoff_ms(snapshot: Snapshot, hours: float | None, now_ms: int) -> int:
    """Return the start of the retention: all versions that were the latest since then are kept."""
    if hours is None:
        kept_ms = int(snapshot.properties.get("delta.logRetentionDuration"))
        return (now_ms - kept_ms) // _DAY_MS * _DAY_MS
    return now_ms - hours_ms(hours)


def _version_at(store: Store, snapshot: Snapshot, cutoff_ms: int) -> int:
    """Return the version that was the latest at a time; -1 if there was none yet."""
    try:
        return version_until(store, snapshot, cutoff_ms)
    except NotFoundError:
        return -1


def _last_old(files: Iterable[LogFile], cutoff_ms: int) -> int:
    """Return the last version before the first one whose commit was written after a time. Pure.

    An in-commit timestamp of a slow clock makes a version look older than it is. Files without a
    time do not count.
    """
    young = (
        file.version
        for file in files
        if file.kind == "commit" and file.modified_ms is not None and file.modified_ms > cutoff_ms
    )
    return min(young, default=_NO_VERSION) - 1


def protected_before(snapshot: Snapshot) -> int:
    """Return the version before which all log files are deleted together (checkpointProtection)."""
    text = snapshot.metadata.configuration.get(PROTECTED) or "0"
    return int(text) if text.isdecimal() else snapshot.version + 1  # Unknown: the whole log.


@dataclass(frozen=True)
class Expiry:
    """Which files of a log to keep and which to delete."""

    # The version of the checkpoint that replaces the deleted files; -1: nothing is deleted.
    base: int
    kept: Mapping[LogFile, str]  # With the reasons.
    gone: tuple[LogFile, ...]

    def decided(self) -> pa.Table:
        """Return the files as `DECISIONS`."""
        older = (
            f"it is older than the checkpoint of version {self.base}, which no kept version needs"
        )
        rows = [*self.kept.items(), *((file, "") for file in self.gone)]
        return pa.table(
            [
                arrow_array([file.path for file, _ in rows], pa.string()),
                arrow_array([file.size for file, _ in rows], pa.int64()),
                arrow_array([file.modified_ms for file, _ in rows], pa.int64()),
                arrow_array(["keep" if why else "delete" for _, why in rows], pa.string()),
                arrow_array([why or older for _, why in rows], pa.string()),
            ],
            schema=DECISIONS,
        )


def plan_expiry(
    files: Iterable[LogFile],
    *,
    last_kept: int,
    hinted: int,
    held: Collection[Held],
    protected: int = 0,
) -> Expiry:
    """Decide which files of a log to delete. Pure.

    Parameters
    ----------
    last_kept
        The oldest version that is kept; -1: all are.
    hinted
        The version in `_last_checkpoint`, or -1. Files that readers may need from this version are
        kept.
    protected
        The files of versions below this are deleted together or not at all.
    held
        Versions that are kept, as `held_versions` returns them.

    Raises
    ------
    NotFoundError, LogCorruptError
        A version to keep cannot be rebuilt.
    """
    listed = list(files)
    # Publishing a branch compares it with each commit after its base.
    last_kept = min([last_kept, *(one.version for one in held if one.onward)])
    wanted = min(last_kept, hinted)
    base = max((at for at in complete_checkpoints(listed) if at <= wanted), default=-1)
    needed = {file: one for one in held for file in made_of(listed, one)}
    if base < protected or any(one.version < min(protected, base) for one in held):
        base = -1
    kept: dict[LogFile, str] = {}
    gone: list[LogFile] = []
    for file in listed:
        if base < 0:
            kept[file] = _why_all(last_kept, hinted, protected)
        elif file.version >= base and not (file.kind == "compaction" and file.version == base):
            kept[file] = "a version within the retention may need it"
        elif file in needed:
            kept[file] = f"{needed[file].holder} needs it"
        else:
            gone.append(file)
    return Expiry(base, kept, tuple(gone))


def _why_all(last_kept: int, hinted: int, protected: int) -> str:
    if last_kept < 0:
        return "all versions are within the retention, or it is unknown how old they are"
    if hinted < 0:
        return "_last_checkpoint names no checkpoint. Write one with Table.maintenance.checkpoint"
    if protected:
        return f"versions below {protected} are protected: they can only be deleted all together"
    return "no checkpoint replaces the versions before the retention"


def made_of(files: list[LogFile], held: Held) -> list[LogFile]:
    """Return the files of the log that a kept version needs, including its own commit."""
    try:
        segment = choose_segment(files, version=held.version)
    except (NotFoundError, LogCorruptError) as error:
        error.remedy = f"Nothing was deleted; {held.remedy}"
        raise
    own = [f for f in files if f.version == held.version and f.kind in ("commit", "checksum")]
    return [*segment.checkpoint, *segment.deltas, *own]


def require_rebuildable(store: Store, plan: Expiry) -> None:
    """Read the checkpoint that replaces the deleted files.

    Raises
    ------
    LogCorruptError
        The checkpoint cannot be read.
    """
    with warnings.catch_warnings():
        # The check below detects that it was ignored.
        warnings.simplefilter("ignore", TxlogWarning)
        base = load_snapshot(store, version=plan.base)
    remedy = "Nothing was deleted. Write another checkpoint with Table.maintenance.checkpoint"
    if not base.checkpoint or base.checkpoint[0].version != plan.base:
        raise LogCorruptError(
            path=store.root,
            version=plan.base,
            reason=f"the checkpoint of version {plan.base} is damaged, so older files of the log "
            "are needed",
            remedy=remedy,
        )
    try:
        for _ in file_batches(store, sources_of(base.checkpoint, base.sidecars), plan.base):
            pass
    except LogCorruptError as error:
        error.remedy = remedy
        raise


def require_known_protocols(store: Store, gone: Iterable[LogFile], root: str) -> None:
    """Raise if a version to delete has unknown features and the table has checkpointProtection.

    Raises
    ------
    UnsupportedFeatureError
        The error names them.
    """
    for file in gone:
        actions: Iterable[object] = ()
        if file.kind == "commit":
            actions = [action for _, action in read_commit(store, file).controls]
        elif file.kind == "checkpoint":
            actions = read_controls(store, [file])
        for action in actions:
            if isinstance(action, Protocol):
                require_readable(action, load_snapshot(store).metadata, path=root)


def _sidecars(store: Store, plan: Expiry, now_ms: int) -> list[dict[str, Any]]:
    """Return the decisions on sidecars: those that no remaining checkpoint needs are deleted.

    Sidecars of a checkpoint that is being written are young, so they are kept.
    """
    found = list(store.list_tree(_SIDECARS))
    if not found:
        return []
    # List again after checkpoints were deleted: a writer that reuses a sidecar checks, after it
    # wrote its own checkpoint, that the previous checkpoint still exists.
    gone = {file.name for file in plan.gone}
    left = [f for f in list_log(store) if f.kind == "checkpoint" and f.name not in gone]
    named = _named_by(store, left)
    young_ms = (now_ms - _DAY_MS) // _DAY_MS * _DAY_MS

    def why(info: ObjectInfo) -> str | None:
        if named is None:
            return "a checkpoint cannot be read, and may need it"
        if info.name.rpartition("/")[2] in named:
            return "a checkpoint that is kept needs it"
        if not is_older(info.modified_ms, young_ms):
            return "it may be younger than a day, so its checkpoint may not be complete yet"
        return None

    return [
        {
            "file": f"{_SIDECARS}/{info.name}",
            "bytes": info.size,
            "modified_ms": info.modified_ms,
            "decision": "keep" if (reason := why(info)) else "delete",
            "reason": reason or "no checkpoint that is kept needs it",
        }
        for info in found
    ]


def _staged(store: Store, snapshot: Snapshot, now_ms: int) -> list[dict[str, Any]]:
    """Return the decisions on staged commits of a managed table (CAT-17)."""
    if not isinstance(store, ManagedStore):
        return []
    folder = f"{LOG_FOLDER}/{STAGED_FOLDER}"
    found = list(store.list_tree(folder))
    if not found:
        return []
    # Asked after the listing: what was ratified meanwhile is in the answer, or published.
    latest, needed, _ = store.database.ratified(store.table_id)
    names = {name.rpartition("/")[2] for name in needed.values()}
    # If the catalog was restored from an older copy, a repair may need what seems to be left over.
    young_ms = min(_cutoff_ms(snapshot, None, now_ms), now_ms - _DAY_MS)

    def why(info: ObjectInfo) -> str | None:
        if info.name in names:
            return "the catalog ratified it, and it is not published yet"
        version = info.name.partition(".")[0]
        is_lost = version.isdecimal() and int(version) <= latest
        if not is_lost and not is_older(info.modified_ms, young_ms):
            return "its version is free, so its writer may still propose it, or a repair need it"
        return None

    return [
        {
            "file": f"{folder}/{info.name}",
            "bytes": info.size,
            "modified_ms": info.modified_ms,
            "decision": "keep" if (reason := why(info)) else "delete",
            "reason": reason or "the catalog did not ratify it",
        }
        for info in found
    ]


def _named_by(store: Store, checkpoints: Iterable[LogFile]) -> set[str] | None:
    """Return the sidecars that checkpoints name; None if a checkpoint cannot be read."""
    try:
        actions = [action for file in checkpoints for action in read_controls(store, [file])]
    except TxlogError:
        return None
    paths = {decode_path(action.path) for action in actions if isinstance(action, Sidecar)}
    return {path.rpartition("/")[2] for path in paths}


def expire_if_due(context: Context, snapshot: Snapshot) -> None:
    """Clean up the log after a checkpoint if the table's properties enable it.

    If the oldest commit is within the retention, nothing else is read. On a branch, nothing is
    done.
    """
    store = context.store
    if not snapshot.properties.get("delta.enableExpiredLogCleanup") or branch_name(store):
        return
    if is_cleaned_elsewhere(store):
        return
    listed = store.list_briefly(LOG_FOLDER, "")
    names = (file for name, *_ in listed if (file := parse_name(name)) and file.kind == "commit")
    oldest = next(names, None)  # Names of commits ascend like their versions.
    if oldest is None:
        return
    try:
        made_ms = store.info(oldest.path).modified_ms
    except NotFoundError:  # Another writer cleans up now.
        return
    is_unknown = not made_ms and snapshot.is_active("inCommitTimestamp")
    if is_unknown or is_older(made_ms, _cutoff_ms(snapshot, None, context.effects.now_ms())):
        latest = refresh(store, snapshot)  # The latest version has all pins.
        expire(context, latest, hours=None, dry_run=False)
