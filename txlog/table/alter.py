"""`Table.alter`: other columns, other features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txlog.commit.app_versions import AppVersion
    from txlog.commit.operation import Outcome
    from txlog.table.handle import Handle


class TableAlter:
    """Commits that change which columns or features a table has."""

    def __init__(self, table: Handle) -> None:
        self._table = table

    def add_columns(
        self,
        columns: Any,
        *,
        read_columns: Sequence[str] | None = None,
        txn: AppVersion | None = None,
        user_metadata: str | None = None,
    ) -> Outcome:
        """Add columns with values for all rows, in one commit that rewrites no data file.

        Each fragment gets one new file with the columns. The table needs the feature
        `txlog.fragments` (see `add_features`), and can then be read by txlog alone.

        Parameters
        ----------
        columns
            Names and their values, `{"score": …}`: SQL text (`"2 * a"`), an expression
            (`col("a") + 1`), a function that gets a RecordBatch and returns an array, a pyarrow
            type (nulls), or Arrow data with a value for each row in the table's order. Or a
            function that returns a batch, a pyarrow schema (nulls), or Arrow data, of several
            columns. Functions run for several fragments at once, in no order.
        read_columns
            The columns that functions get. Default: all.

        Raises
        ------
        InvalidInputError
            A column is there already, or values do not fit; nothing was committed.
        CommitConflictError
            Another writer added the same column, or rows that the data has no values for.
        """
        from txlog.verbs.columns import GiveValues

        operation = GiveValues(
            self._table._context, "add columns", columns, read_columns=read_columns
        )
        return self._table._run(operation, txn, user_metadata)

    def replace_columns(
        self,
        columns: Any,
        *,
        read_columns: Sequence[str] | None = None,
        txn: AppVersion | None = None,
        user_metadata: str | None = None,
    ) -> Outcome:
        """Give columns other values in all rows; as `add_columns` otherwise.

        Raises
        ------
        UnsupportedFeatureError
            The table tracks rows, records changes, or is append-only.
        """
        from txlog.verbs.columns import GiveValues

        operation = GiveValues(
            self._table._context, "replace columns", columns, read_columns=read_columns
        )
        return self._table._run(operation, txn, user_metadata)

    def drop_columns(
        self,
        columns: Sequence[str] | str,
        *,
        txn: AppVersion | None = None,
        user_metadata: str | None = None,
    ) -> Outcome:
        """Take columns out of the table, in one commit that rewrites no data file.

        Needs the feature `txlog.fragments`. The values stay in the files, for older versions.

        Raises
        ------
        InvalidInputError
            There is no such column, a constraint or the partitioning needs it, or none is left.
        """
        from txlog.data_files.options import as_names
        from txlog.verbs.columns import DropColumns

        return self._table._run(
            DropColumns(self._table._context, as_names(columns)), txn, user_metadata
        )

    def add_features(
        self,
        *features: str,
        txn: AppVersion | None = None,
        user_metadata: str | None = None,
    ) -> Outcome:
        """List table features in the protocol, in one commit; engines without them are shut out.

        `txlog.fragments` also gives every fragment a durable id, and brings `deletionVectors`.

        Raises
        ------
        InvalidInputError
            txlog cannot write tables with one of them.
        """
        from txlog.verbs.features import AddFeatures

        return self._table._run(AddFeatures(self._table._context, features), txn, user_metadata)
