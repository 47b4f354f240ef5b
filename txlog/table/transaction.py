"""`Table.transaction`: several changes in one version."""

from __future__ import annotations

from typing import Any, Literal

from txlog.commit.context import Context
from txlog.commit.operation import Operation, Outcome
from txlog.data_files.assignments import Updates
from txlog.data_files.incoming import SchemaMode
from txlog.data_files.options import WriteOptions
from txlog.expressions.sql import Where, as_expression
from txlog.expressions.tree import Expression
from txlog.snapshot.snapshot import Snapshot
from txlog.table.merge import TableMerger
from txlog.verbs.append import Append
from txlog.verbs.delete import Delete
from txlog.verbs.merge.clauses import MergeRequest
from txlog.verbs.merge.merge import Merge
from txlog.verbs.overwrite import Overwrite, PartitionMode
from txlog.verbs.transaction import Transaction
from txlog.verbs.update import Update


class TableTransaction:
    """Changes of a table that become one version when their `with` block ends.

    `outcome` is None until then. If the table already records the transaction's `txn`, the changes
    do nothing, and the outcome is `skipped`.
    """

    def __init__(self, context: Context, base: Snapshot, is_recorded: bool) -> None:
        self.outcome: Outcome | None = None
        self.operation = Transaction(context, base)
        self._context = context
        self._is_recorded = is_recorded

    def append(
        self,
        data: Any,
        *,
        schema_mode: SchemaMode = None,
        options: WriteOptions | None = None,
    ) -> None:
        """Add rows; arguments and errors are those of `Table.append`."""
        self._add(Append.of_data(data, schema_mode=schema_mode, options=options))

    def overwrite(
        self,
        data: Any,
        where: Where = None,
        *,
        partition_mode: PartitionMode = "static",
        schema_mode: SchemaMode = None,
        options: WriteOptions | None = None,
    ) -> None:
        """Replace rows; arguments and errors are those of `Table.overwrite`."""
        operation = Overwrite.of_data(
            data,
            where=as_expression(where),
            partition_mode=partition_mode,
            schema_mode=schema_mode,
            options=options,
        )
        self._add(operation)

    def delete(self, where: Where, *, options: WriteOptions | None = None) -> None:
        """Delete the rows for which a predicate is true; None deletes all rows.

        This includes rows that the transaction added before.
        """
        self._add(Delete(as_expression(where), options=options))

    def update(
        self,
        updates: Updates | None = None,
        where: Where = None,
        *,
        new_values: Updates | None = None,
        options: WriteOptions | None = None,
    ) -> None:
        """Update rows; arguments and errors are those of `Table.update`."""
        predicate = as_expression(where)
        self._add(
            Update(
                updates,
                predicate,
                new_values=new_values,
                options=options,
            )
        )

    def merge(
        self,
        source: Any,
        predicate: str | Expression,
        source_alias: str = "source",
        target_alias: str = "target",
        *,
        schema_mode: Literal["merge"] | None = None,
        options: WriteOptions | None = None,
    ) -> TableMerger:
        """Merge a source into the table; arguments are those of `Table.merge`.

        `execute` of the result adds the merge to the transaction.
        """
        request = MergeRequest(
            data=source,
            predicate=predicate,
            source_alias=source_alias,
            target_alias=target_alias,
            schema_mode=schema_mode,
            options=options,
        )
        return _MergeWithin(self, request)

    def _add(self, operation: Operation) -> None:
        if not self._is_recorded:
            self.operation.add(operation)


class _MergeWithin(TableMerger):
    """A merge that becomes part of a transaction."""

    def __init__(self, transaction: TableTransaction, request: MergeRequest) -> None:
        self._transaction = transaction
        self._request = request
        self._clauses = []

    def execute(self) -> None:  # type: ignore[override]
        """Add the merge to the transaction; errors as for `TableMerger.execute`."""
        self._transaction._add(Merge(self._request, self._clauses))
