"""Change values of rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from txlog.commit.intent import Intent, Reads
from txlog.commit.operation import Operation
from txlog.data_files.assignments import Assignments, Updates, assignments
from txlog.data_files.deletions import find_rows
from txlog.data_files.options import WriteOptions, as_options
from txlog.data_files.row_changes import FileChange, Places, RowChanges, change_rows
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import Expression
from txlog.scan.plan import plan_scan
from txlog.scan.read_plan import require_table_columns
from txlog.snapshot.live_files import load_files
from txlog.snapshot.snapshot import Snapshot


class Update(Operation):
    """Change values in the rows for which a predicate is true; None: all rows."""

    name = "UPDATE"
    removes_rows = True

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
        self._changes: RowChanges | None = None
        self._read = Reads(everything=True)

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the removed files, the files with new deletion vectors, and the new files.

        Raises
        ------
        InvalidInputError
            The predicate or a value does not fit the table.
        SchemaMismatchError
            A new value does not fit its column, or breaks a constraint.
        """
        given = assignments(
            self._updates,
            self._new_values,
            base.schema,
            error_on_type_mismatch=self._options.error_on_type_mismatch,
        )
        files = load_files(self.context.store, base).live
        plan = plan_scan(base, files, columns=[], where=self._where)
        where = plan.reading.where
        require_table_columns(where, base, row_ids=True)
        self._read = Reads(everything=where is None, where=where)
        rows = find_rows(self.context.store, plan, self.context.engine)
        if not rows:
            return None
        changes = self._changes = change_rows(
            self.context,
            base,
            plan,
            files,
            [FileChange(one, one.rows) for one in rows],
            partial(_new_rows, given),
            options=self._options,
        )
        return Intent(
            operation=self.name,
            kind="replace",
            read_version=base.version,
            removes=changes.deletes.removes,
            adds=changes.adds,
            own_files=changes.own_files,
            cdc=changes.cdc,
            reads=self._read,
            row_deletes=frozenset(file.fragment.path for file in changes.deletes.files),
            parameters={"predicate": [] if where is None else [to_sql(where)]},
            metrics={
                "numUpdatedRows": changes.deletes.rows,
                "numCopiedRows": changes.copied_rows,
                "numAddedFiles": len(changes.written),
                "numRemovedFiles": changes.deletes.files_removed,
                "numDeletionVectorsAdded": len(changes.deletes.files),
            },
        )

    def read(self) -> Reads:
        """Return the predicate."""
        return self._read

    def discard(self) -> None:
        """Delete the vectors and data files of the last attempt."""
        changes, self._changes = self._changes, None
        if changes is not None:
            changes.discard(self.context)


def _new_rows(
    given: Assignments, _places: Sequence[Places], rows: pa.RecordBatch
) -> pa.RecordBatch:
    return given.of(rows)
