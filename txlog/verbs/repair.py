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
from txlog.base.errors import LogCorruptError, UnsupportedFeatureError
from txlog.commit.context import Context
from txlog.commit.intent import Intent, UserMetadata
from txlog.commit.operation import (
    Operation,
    execute,
    require_table_writable,
    require_user_metadata,
)
from txlog.data_files.deletions import removes_of
from txlog.fragments.ids import tag_texts
from txlog.fragments.rows import FEATURE, FIELDS_TAG
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
        """Return the removes of the missing files; None if all files exist.

        Raises
        ------
        UnsupportedFeatureError
            A fragment has column files: the remaining part of it would be wrong.
        """
        lost = _lost(self.context, base)
        if not lost.num_rows:
            return None
        live = load_files(self.context.store, base).live
        if base.supports(FEATURE) and pc.any(pc.is_valid(tag_texts(live, FIELDS_TAG))).as_py():
            raise UnsupportedFeatureError(
                path=lost["path"][0].as_py(),
                features=(FEATURE,),
                reason="files are missing in a table with column files",
                remedy="Restore a version whose files all exist",
            )
        return Intent(
            operation=self.name,
            kind="delete",
            read_version=base.version,
            removes=tuple(removes_of(lost, self.context.effects.now_ms())),
            metrics={"numRemovedFiles": lost.num_rows},
        )


def _lost(context: Context, snapshot: Snapshot) -> pa.Table:
    live = load_files(context.store, snapshot).live
    data, vectors = missing_files(context.store, live)
    known = flat(file_keys(data))
    return pa.concat_tables(
        [data, vectors.filter(pc.invert(pc.is_in(file_keys(vectors), value_set=known)))]
    )


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
            older_sound(context.store, error, partial(load_files, context.store)),
            error,
        )
    require_table_writable(snapshot, removes_rows=lost_files)
    rows = list(_decisions(context, snapshot, lost_files, cause))
    decided = table_of_rows(rows, REPAIRS)
    if dry_run:
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
        yield {
            "action": _RESTORE,
            "path": cause.path or "",
            "rows": None,
            "decision": "skip",
            "reason": f"{cause.reason}; Table.restore({at}) makes a new version with the rows of "
            f"version {at}, the newest that opens",
        }
    lost = _lost(context, snapshot)
    for path, fragment in zip(lost["path"].to_pylist(), as_fragments(lost), strict=True):
        yield {
            "action": _REMOVE,
            "path": path,
            "rows": fragment.num_rows,
            "decision": "do" if lost_files and cause is None else "skip",
            "reason": "its data or its deletion vector is missing"
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
