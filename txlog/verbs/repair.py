"""Repair a table: write files of the log again, and remove entries of lost files.

It deletes no file that is needed, and by default it writes nothing. Rules: spec/vacuum.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from txlog.base.arrow import pc, table_of_rows
from txlog.base.columns import flat
from txlog.base.effects import is_rehearsing
from txlog.base.errors import LogCorruptError
from txlog.commit.context import Context
from txlog.commit.intent import Intent, UserMetadata
from txlog.commit.operation import (
    Operation,
    execute,
    require_table_writable,
    require_user_metadata,
)
from txlog.data_files.deletions import removes_of
from txlog.fragments.rows import FEATURE, UNLISTED, fragment_rows
from txlog.reconcile.files import file_keys
from txlog.scan.files import as_fragments
from txlog.snapshot.checksum import verify_checksum
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import list_log, older_sound, refresh
from txlog.snapshot.snapshot import Snapshot
from txlog.store.branches import require_main
from txlog.verbs.checkpoint import checkpoint
from txlog.verbs.doctor import checkpoint_faults, missing_files
from txlog.verbs.settle import settle

REPAIRS = pa.schema(
    [
        pa.field("action", pa.string(), False),
        pa.field("path", pa.string(), False),
        pa.field("rows", pa.int64()),
        pa.field("decision", pa.string(), False),
        pa.field("reason", pa.string(), False),
    ]
)
"""A row for each repair: the action, the file, the number of removed rows (null: unknown), `do` or
`skip`, and the reason."""

_REMOVE, _CHECKPOINT, _CHECKSUM = "remove entry", "write checkpoint", "delete checksum"
_RESTORE = "restore version"


@dataclass(frozen=True)
class Repaired:
    """The decisions of a repair, and the version of the table after it."""

    decided: pa.Table  # As `REPAIRS`.
    snapshot: Snapshot


class RemoveLostFiles(Operation):
    """Remove files whose data or deletion vectors do not exist from a table (Delta's FSCK)."""

    name = "FSCK"
    removes_rows = True

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the removes of the missing files and their fragments; None if all files exist."""
        found = _lost(self.context, base)
        if not found.files.num_rows:
            return None
        removes = (*removes_of(found.files, self.context.effects.now_ms()),)
        return Intent(
            operation=self.name,
            kind="delete",
            read_version=base.version,
            removes=removes,
            metrics={"numRemovedFiles": len(removes)},
        )


@dataclass(frozen=True)
class _Lost:
    """The files that leave the table because some are missing."""

    files: pa.Table  # `FILE_ROWS`: primaries, then column files.
    is_missing: pa.Array  # bool for each: whether its data or its deletion vector is missing.
    primaries: int  # How many of the files have rows.


def _lost(context: Context, snapshot: Snapshot) -> _Lost:
    """Return the missing files of a version, and the other files of their fragments.

    If a file with a column of the table is missing, nobody can read the rows of its fragment as a
    whole, so all files of the fragment leave. A column file without such a column leaves alone.
    """
    live = load_files(context.store, snapshot).live
    data, vectors = missing_files(context.store, live)
    if not data.num_rows and not vectors.num_rows:
        return _Lost(data, pa.nulls(0, pa.bool_()), 0)
    keys = pa.concat_arrays([flat(file_keys(data)), flat(file_keys(vectors))])
    rows = fragment_rows(live, listed=snapshot.supports(FEATURE))
    primaries, columns = rows.primaries, rows.columns
    first, second = (
        flat(pc.is_in(file_keys(one), value_set=keys)) for one in (primaries, columns.rows)
    )
    needed = pc.and_(second, columns.giving(*_needed_names(snapshot)))
    places = pa.arange(0, primaries.num_rows)
    leave = pc.or_(first, pc.is_in(places, value_set=columns.owners.filter(needed)))
    also = pc.or_(second, leave.take(columns.owners))
    return _Lost(
        pa.concat_tables([primaries.filter(leave), columns.rows.filter(also)]),
        pa.concat_arrays([first.filter(leave), second.filter(also)]),
        pc.sum(leave).as_py() or 0,
    )


def _needed_names(snapshot: Snapshot) -> set[str]:
    """Return the names in files of the columns that somebody may read."""
    names = {one.name_in_files(snapshot.mapping_mode) for one in snapshot.schema.fields}
    tracking = snapshot.form.row_tracking
    if tracking is not None and tracking.row_version_column is not None:
        names.add(tracking.row_version_column)
    return names


def repair(
    context: Context,
    snapshot: Snapshot,
    *,
    dry_run: bool,
    lost_files: bool,
    user_metadata: UserMetadata | None = None,
) -> Repaired:
    """Decide the repairs, and do them unless it is a dry run; arguments as `maintenance.repair`.

    `snapshot` is a version that the caller knows: the latest is loaded, or if it cannot be loaded,
    the newest that can.
    """
    require_main(context.store, "a repair")
    require_user_metadata(user_metadata)
    cause = None
    try:
        snapshot = refresh(context.store, snapshot)
        load_files(context.store, snapshot)
    except LogCorruptError as error:
        snapshot, cause = (
            older_sound(context.store, error, partial(load_files, context.store, explains=False)),
            error,
        )
    require_table_writable(snapshot, removes_rows=lost_files)
    rows = list(_decisions(context, snapshot, lost_files, cause))
    decided = table_of_rows(rows, REPAIRS)
    if dry_run or is_rehearsing():
        return Repaired(decided, snapshot)
    actions = {row["action"] for row in rows if row["decision"] == "do"}
    wrong = snapshot
    if _REMOVE in actions:
        done = execute(RemoveLostFiles(), context, snapshot, user_metadata=user_metadata)
        settle(context, done)
        snapshot = done.snapshot
    if _CHECKPOINT in actions:
        checkpoint(context, snapshot)
    if _CHECKSUM in actions:
        report = verify_checksum(context.store, wrong, load_files(context.store, wrong))
        if not report.ok:
            context.store.delete([report.path])
    return Repaired(decided, snapshot)


def _decisions(
    context: Context, snapshot: Snapshot, lost_files: bool, cause: LogCorruptError | None
) -> Iterator[dict[str, object]]:
    if cause is not None:
        at = snapshot.version
        listing = f'alter.add_features("{FEATURE}") lists it, or '
        yield {
            "action": _RESTORE,
            "path": cause.path or "",
            "rows": None,
            "decision": "skip",
            "reason": f"{cause.reason}; {listing if cause.reason == UNLISTED else ''}"
            f"Table.restore({at}) makes a new version with the rows of "
            f"version {at}, the newest that opens",
        }
    lost = _lost(context, snapshot)
    for at, (path, missing, fragment) in enumerate(
        zip(
            lost.files["path"].to_pylist(),
            lost.is_missing.to_pylist(),
            as_fragments(lost.files),
            strict=True,
        )
    ):
        yield {
            "action": _REMOVE,
            "path": path,
            "rows": fragment.num_rows if at < lost.primaries else 0,
            "decision": "do" if lost_files and cause is None else "skip",
            "reason": (
                "its data or its deletion vector is missing"
                if missing
                else "another file with columns of the same rows is missing"
            )
            + ("" if lost_files else "; only missing_files=True removes its rows from the table")
            + ("" if cause is None else "; the latest version must be restored first"),
        }
    log = list_log(context.store, catalog=snapshot.catalog)
    for finding in checkpoint_faults(context.store, log):
        yield {
            "action": _CHECKPOINT,
            "path": finding.path or "",
            "rows": 0,
            "decision": "do",
            "reason": finding.reason,
        }
    report = verify_checksum(context.store, snapshot, load_files(context.store, snapshot))
    if not report.ok:
        yield {
            "action": _CHECKSUM,
            "path": report.path,
            "rows": 0,
            "decision": "do",
            "reason": "; ".join(map(str, report.problems)),
        }
