"""Committing fragments in the place of others that have the same rows (rule FRG-27)."""

from __future__ import annotations

from txlog.commit.intent import Intent
from txlog.errors import InvalidInputError, UnsupportedFeatureError
from txlog.snapshot.snapshot import Snapshot
from txlog.writing.operation import AppTransaction, Done, Place, txn_action
from txlog.writing.options import WriteOptions
from txlog.writing.vectors import removes_of
from txlog.writing.workers.base import base_of, put
from txlog.writing.workers.new_files import Fit, new_files
from txlog.writing.workers.operations import Operation


def commit_rewrites(
    place: Place,
    snapshot: Snapshot,
    operation: Operation.Rewrite,
    txn: AppTransaction | None,
    options: WriteOptions,
) -> Done:
    """Commit fragments in the place of others; errors as for `commit_fragments`."""
    if snapshot.has_stable_row_ids:
        raise UnsupportedFeatureError(
            path=snapshot.root,
            features=("rowTracking",),
            reason="the table tracks rows, whose ids fragments of workers do not carry",
            remedy="Use Table.compact, which keeps them",
        )
    old = [held for group in operation.groups for held in group.old_fragments]
    new = [held for group in operation.groups for held in group.new_fragments]
    base = base_of(place, snapshot, old)
    adds = new_files(new)
    Fit(place, new)(base.snapshot)
    for group in operation.groups:
        _require_same_place(group, base.snapshot)
        before = [base.changed(held).num_rows for held in group.old_fragments]
        after = [held.num_rows for held in group.new_fragments]
        if None in before or None in after or sum(before) != sum(after):  # type: ignore[arg-type]
            raise InvalidInputError(
                argument="groups",
                reason=f"the old fragments have {before} rows, the new ones {after}: "
                "a rewrite keeps all rows",
                remedy="Write all rows of the old fragments, and no others",
            )
    leaving = base.rows([base.changed(held) for held in old])
    removes = [
        remove.model_copy(update={"data_change": False})
        for remove in removes_of(leaving, place.effects.now_ms())
    ]
    intent = Intent(
        operation="OPTIMIZE",
        kind="compact",
        read_version=base.snapshot.version,
        removes=tuple(removes),
        adds=tuple(add.model_copy(update={"data_change": False}) for add in adds),
        isolation="SnapshotIsolation",
        txn=txn_action(txn, place.effects),
        metrics={"numRemovedFiles": len(removes), "numAddedFiles": len(adds)},
        user_metadata=options.user_metadata,
    )
    return put(place, base, intent, txn)


def _require_same_place(group: Operation.RewriteGroup, base: Snapshot) -> None:
    """Refuse new fragments that were not made from the old ones' version, or partition."""
    partitions = [dict(held.adds[0].partition_values) for held in group.old_fragments]
    for held in group.new_fragments:
        if held.read_version != base.version:
            reason = f"it was written on version {held.read_version}, not {base.version}"
        elif dict(held.adds[0].partition_values) not in partitions:
            reason = "none of the old fragments is in its partition"
        else:
            continue
        raise InvalidInputError(
            argument="groups",
            field=held.adds[0].path,
            reason=reason,
            remedy="Read and write the rows of the old fragments at one version",
        )
