"""Change values of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from txlog.base.errors import InternalError, clean_after
from txlog.data_files.assignments import Assignments, Updates, assignments
from txlog.data_files.column_updates import Way, plan_column_update, update_columns, ways_of
from txlog.data_files.deletions import find_rows
from txlog.data_files.options import WriteOptions, as_options
from txlog.data_files.replace_rows import FileChange, Places, replace_rows
from txlog.data_files.row_changes import RowChanges
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import Expression
from txlog.scan.plan import ScanPlan, plan_scan
from txlog.scan.read_plan import require_table_columns
from txlog.snapshot.snapshot import Snapshot
from txlog.store.branches import branch_name
from txlog.verbs.change_rows import ChangeRows


class Update(ChangeRows):
    """Change values in the rows for which a predicate is true; None: all rows."""

    name = "UPDATE"

    def __init__(
        self,
        updates: Updates | None,
        where: Expression | None,
        *,
        new_values: Updates | None = None,
        options: WriteOptions | None = None,
    ) -> None:
        """Take the new values, by column: SQL text or expressions, and Python values."""
        self._updates = updates
        self._new_values = new_values
        self._where = where
        self._options = as_options(options)
        self._given: Assignments | None = None  # Of the last attempt that was not extended.

    def changed(self, base: Snapshot) -> RowChanges:
        """Return the removed files, the files with new deletion vectors, and the new files.

        Raises
        ------
        InvalidInputError
            The predicate or a value does not fit the table.
        SchemaMismatchError
            A new value does not fit its column, or breaks a constraint.
        """
        self._given = assignments(
            self._updates,
            self._new_values,
            base.schema,
            error_on_type_mismatch=self._options.error_on_type_mismatch,
            zone=self.context.zone,
        )
        return self._changes_of(base, self.look(base, self._where))

    def extended(self, base: Snapshot, changes: RowChanges, added: pa.Table) -> RowChanges | None:
        """Return the changes with those of added files: each row changes by its own values."""
        plan = plan_scan(base, added, columns=[], where=self._where)
        return changes.extended_by(self._changes_of(base, plan), self.context.store)

    def _changes_of(self, base: Snapshot, plan: ScanPlan) -> RowChanges:
        assert self._given is not None
        require_table_columns(plan.reading.where, base, plan.live, row_ids=True)
        if self._options.use_index:
            plan = self.context.indexed(base, plan)
        rows = find_rows(self.context.store, plan, self.context.engine)
        if not rows:
            return RowChanges(plan.reading.where)
        update = None
        # A part of a transaction may change rows that have no ids yet. On a branch, new column
        # files would make every change of files in the table a conflict (BRA-25).
        if not self.is_part and branch_name(self.context.store) is None:
            update = plan_column_update(self.context, base, self._given, self._options)
        if update is not None:
            update.read.memo.footers = plan.reading.memo.footers  # Footers are not read again.
        ways: list[Way] = ["move"] * len(rows) if update is None else ways_of(update, rows)
        parts = [(one, way) for one, way in zip(rows, ways, strict=True) if way != "move"]
        moved = [one for one, way in zip(rows, ways, strict=True) if way == "move"]
        given = RowChanges(plan.reading.where)
        if update is not None and parts:
            given = update_columns(self.context, base, plan, update, parts)
        if not moved:
            return given
        try:
            changed = replace_rows(
                self.context,
                base,
                plan,
                [FileChange(one, one.rows) for one in moved],
                partial(_new_rows, self._given),
                options=self._options,
            )
        except BaseException as error:
            clean_after(error, lambda: given.discard(self.context.store))
            raise
        both = changed.with_more(given)
        if both is None:
            given.discard(self.context.store)
            changed.discard(self.context.store)
            raise InternalError(
                reason="some changes of an update are in change files, and others are not",
                remedy="Nothing was committed. Please report this error with the table's log",
            )
        return both

    def parameters(self, changes: RowChanges) -> Mapping[str, Any]:
        """Return the predicate."""
        return {"predicate": [] if changes.where is None else [to_sql(changes.where)]}

    def metrics(self, changes: RowChanges) -> dict[str, int]:
        """Return Delta's metrics of UPDATE."""
        return update_metrics(changes)


def update_metrics(changes: RowChanges) -> dict[str, int]:
    """Return Delta's metrics of UPDATE."""
    return {
        "numUpdatedRows": changes.rows,
        "numCopiedRows": changes.copied_rows,
        "numAddedFiles": len(changes.written),
        "numRemovedFiles": changes.files_removed,
        "numDeletionVectorsAdded": len(changes.files),
    }


def _new_rows(
    given: Assignments, _places: Sequence[Places], rows: pa.RecordBatch
) -> pa.RecordBatch:
    return given.of(rows)
