"""Delete rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from txlog.base.errors import tidied
from txlog.commit.intent import Intent, Reads
from txlog.data_files.deletions import (
    delete_positions,
    delete_rows,
    plan_changes,
    united_with,
)
from txlog.data_files.options import WriteOptions, as_options
from txlog.data_files.row_changes import RowChanges
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import Expression
from txlog.scan.plan import plan_scan
from txlog.snapshot.commits import Commit
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.change_rows import ChangeRows

FindRows = Callable[[Snapshot], Mapping[int, BitMap64]]
"""A function that returns rows of a version: positions by fragment id."""
FindMoreRows = Callable[[Snapshot, pa.ChunkedArray], Mapping[int, BitMap64] | None]
"""A function that returns the rows of files of a version, which their logged paths name.

None: a row does not depend on itself alone, so all must be found again.
"""


class Delete(ChangeRows):
    """Delete the rows for which a predicate is true; None: all rows."""

    name = "DELETE"
    kind = "delete"

    def __init__(
        self,
        where: Expression | None,
        *,
        options: WriteOptions | None = None,
    ) -> None:
        self._options = as_options(options)
        self._where = where

    def changed(self, base: Snapshot) -> RowChanges:
        """Return the files to remove and those with new deletion vectors.

        Raises
        ------
        InvalidInputError
            The predicate does not fit the table.
        """
        return delete_rows(self.context, base, self.look(base, self._where), self._options)

    def extended(self, base: Snapshot, changes: RowChanges, added: pa.Table) -> RowChanges | None:
        """Return the changes with those of added files: each row is deleted by its own values."""
        plan = plan_scan(base, added, columns=[], where=self._where)
        more = delete_rows(self.context, base, plan, self._options)
        return changes.extended_by(more, self.context.store)

    def metrics(self, changes: RowChanges) -> dict[str, int]:
        """Return Delta's metrics of DELETE."""
        return {
            "numDeletedRows": changes.rows,
            "numRemovedFiles": changes.files_removed,
            "numAddedFiles": len(changes.written),
            "numCopiedRows": changes.copied_rows,
            "numDeletionVectorsAdded": len(changes.files),
        }

    def parameters(self, changes: RowChanges) -> Mapping[str, Any]:
        """Return the predicate."""
        return {"predicate": [] if changes.where is None else [to_sql(changes.where)]}

    def reads(self, changes: RowChanges) -> Reads:
        """Return the predicate: each row is deleted only because of its own values."""
        return Reads(everything=self._where is None, where=changes.where)

    def rebase(self, current: Snapshot, intent: Intent, winners: Sequence[Commit]) -> Intent | None:
        """Merge the deletion vectors with those of winners (rule CON-10)."""
        if self._changes is None:
            return None
        united = united_with(self.context, current, self._changes, winners)
        if united is None:
            return None
        before, self._changes = self._changes.vector_files, united
        self._looked = None  # The vectors are those of another version.
        tidied(lambda: self.context.store.delete(list(before)))
        return replace(intent, removes=united.removes, adds=united.adds, own_files=united.own_files)


class DeleteFound(Delete):
    """Delete the rows that another engine finds."""

    def __init__(
        self,
        find: FindRows,
        *,
        description: str,
        find_more: FindMoreRows | None = None,
        options: WriteOptions | None = None,
    ) -> None:
        """Take a function that finds rows.

        Parameters
        ----------
        find
            Gets a version of the table, and returns the rows to delete: positions by fragment id.
            It is called again if another writer's commit may have changed the result.
        description
            The description of the rows for the commit.
        find_more
            Finds the rows of files that were added since the last attempt. None: all rows are found
            again.
        """
        super().__init__(None, options=options)
        self._find_rows = find
        self._find_more = find_more
        self._text = description

    def changed(self, base: Snapshot) -> RowChanges:
        """Return the changes that delete the rows; `InternalError` if a row does not exist."""
        found = self._find_rows(base)
        return delete_positions(self.context, base, self.look(base, None), found, self._options)

    def extended(self, base: Snapshot, changes: RowChanges, added: pa.Table) -> RowChanges | None:
        """Return the changes with those of added files, if their rows can be found alone."""
        found = None if self._find_more is None else self._find_more(base, added["path"])
        if found is None:
            return None
        plan = plan_changes(self.context, base, None, only=added["path"])
        return changes.extended_by(
            delete_positions(self.context, base, plan, found, self._options), self.context.store
        )

    def parameters(self, changes: RowChanges) -> Mapping[str, Any]:
        """Return the description."""
        return {"predicate": [self._text]}

    def rebase(self, current: Snapshot, intent: Intent, winners: Sequence[Commit]) -> Intent | None:
        """Return None, because the rows must be found again (rule CON-18)."""
        return None
