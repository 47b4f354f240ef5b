"""Delete rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyroaring import BitMap64

from txlog.commit.intent import Intent, Reads
from txlog.commit.operation import Operation
from txlog.data_files.deletions import (
    RowDeletes,
    delete_positions,
    delete_rows,
    discard_deletes,
    united_with,
)
from txlog.data_files.options import WriteOptions, as_options
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import Expression
from txlog.snapshot.commits import Commit
from txlog.snapshot.snapshot import Snapshot

FindRows = Callable[[Snapshot], Mapping[int, BitMap64]]
"""A function that returns rows of a version: positions by fragment id."""


class Delete(Operation):
    """Delete the rows for which a predicate is true; None: all rows."""

    name = "DELETE"
    removes_rows = True

    def __init__(
        self,
        where: Expression | None,
        *,
        options: WriteOptions | None = None,
    ) -> None:
        self._options = as_options(options)
        self._where = where
        self._deletes: RowDeletes | None = None

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the files to remove and those with new deletion vectors.

        Raises
        ------
        InvalidInputError
            The predicate does not fit the table.
        """
        deletes = self._deletes = self._find(base)
        if not deletes.removes:
            return None
        text = self._description(deletes)
        return Intent(
            operation=self.name,
            kind="delete",
            read_version=base.version,
            removes=deletes.removes,
            adds=deletes.adds,
            own_files=deletes.own_files,
            cdc=deletes.cdc,
            reads=self._reads(deletes),
            row_deletes=frozenset(file.fragment.path for file in deletes.files),
            parameters={"predicate": [] if text is None else [text]},
            metrics={
                "numDeletedRows": deletes.rows,
                "numRemovedFiles": deletes.files_removed,
                "numAddedFiles": len(deletes.written),
                "numCopiedRows": sum(add.num_records or 0 for add in deletes.written),
                "numDeletionVectorsAdded": len(deletes.files),
            },
        )

    def read(self) -> Reads:
        """Return the predicate."""
        return super().read() if self._deletes is None else self._reads(self._deletes)

    def _find(self, base: Snapshot) -> RowDeletes:
        return delete_rows(self.context, base, self._where, self._options)

    def _description(self, deletes: RowDeletes) -> str | None:
        return None if deletes.where is None else to_sql(deletes.where)

    def _reads(self, deletes: RowDeletes) -> Reads:
        # With a predicate, each row is deleted only because of its own values.
        return Reads(everything=self._where is None, where=deletes.where)

    def rebase(self, current: Snapshot, intent: Intent, winners: Sequence[Commit]) -> Intent | None:
        """Merge the deletion vectors with those of winners (rule CON-10)."""
        if self._deletes is None:
            return None
        united = united_with(self.context, current, self._deletes, winners)
        if united is None:
            return None
        self.context.store.delete(list(self._deletes.vector_files))
        self._deletes = united
        return replace(intent, removes=united.removes, adds=united.adds, own_files=united.own_files)

    def discard(self) -> None:
        """Delete the vectors and data files of the last attempt."""
        deletes, self._deletes = self._deletes, None
        discard_deletes(self.context, deletes)


class DeleteFound(Delete):
    """Delete the rows that another engine finds."""

    def __init__(
        self,
        find: FindRows,
        *,
        description: str,
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
        """
        super().__init__(None, options=options)
        self._find_rows = find
        self._text = description

    def _find(self, base: Snapshot) -> RowDeletes:
        """Return the changes that delete the rows; `InternalError` if a row does not exist."""
        return delete_positions(self.context, base, self._find_rows(base), self._options)

    def _description(self, deletes: RowDeletes) -> str:
        return self._text

    def rebase(self, current: Snapshot, intent: Intent, winners: Sequence[Commit]) -> Intent | None:
        """Return None, because the rows must be found again (rule CON-18)."""
        return None
