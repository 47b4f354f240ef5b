"""Committing fragments in the place of others that have the same rows (rule FRG-27)."""

from __future__ import annotations

from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.errors import InvalidInputError, UnsupportedFeatureError
from txlog.snapshot.snapshot import Snapshot
from txlog.writing.vectors import removes_of
from txlog.writing.workers.base import Base, FragmentsOperation
from txlog.writing.workers.new_files import Fit, new_files
from txlog.writing.workers.operations import Operation


class CommitRewrites(FragmentsOperation):
    """Commit fragments in the place of others that have the same rows."""

    name = "OPTIMIZE"

    def __init__(self, context: Context, opened: Snapshot, request: Operation.Rewrite) -> None:
        self._old = [old for group in request.groups for old in group.old_fragments]
        self._new = [new for group in request.groups for new in group.new_fragments]
        super().__init__(context, opened, self._old)
        self._request = request

    def base(self, latest: Snapshot) -> Snapshot:
        """Refuse tables that track rows; else as for other fragments."""
        if latest.has_stable_row_ids:
            raise UnsupportedFeatureError(
                path=latest.root,
                features=("rowTracking",),
                reason="the table tracks rows, whose ids fragments of workers do not carry",
                remedy="Use Table.compact, which keeps them",
            )
        return super().base(latest)

    def changes(self, base: Base) -> Intent:
        """Return the old files as removed, and the new ones as added."""
        adds = new_files(self._new)
        Fit(self.context, self._new)(base.snapshot)
        for group in self._request.groups:
            _require_same_place(group, base.snapshot)
            _require_same_rows(group, base)
        leaving = base.rows([base.changed(old) for old in self._old])
        now_ms = self.context.effects.now_ms()
        removes = removes_of(leaving, now_ms, data_change=False)
        return Intent(
            operation=self.name,
            kind="compact",
            read_version=base.snapshot.version,
            removes=tuple(removes),
            adds=tuple(add.model_copy(update={"data_change": False}) for add in adds),
            isolation="SnapshotIsolation",
            metrics={"numRemovedFiles": len(removes), "numAddedFiles": len(adds)},
        )


def _require_same_rows(group: Operation.RewriteGroup, base: Base) -> None:
    """Refuse new fragments with more or fewer rows than the old ones."""
    before = [base.changed(old).num_rows for old in group.old_fragments]
    after = [new.num_rows for new in group.new_fragments]
    if None in before or None in after or sum(before) != sum(after):  # type: ignore[arg-type]
        raise InvalidInputError(
            argument="groups",
            reason=f"the old fragments have {before} rows, the new ones {after}: "
            "a rewrite keeps all rows",
            remedy="Write all rows of the old fragments, and no others",
        )


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
