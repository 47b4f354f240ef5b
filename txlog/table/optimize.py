"""`Table.optimize`: reorganize files so that the same rows are read faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from txlog.base.errors import require_flags
from txlog.table.handle import Namespace

if TYPE_CHECKING:
    from txlog.commit.app_versions import AppVersion
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Outcome
    from txlog.data_files.curves import Curve
    from txlog.data_files.options import WriteOptions
    from txlog.expressions.sql import Where


class TableOptimize(Namespace):
    """Commits that reorganize data files without changing rows."""

    _name = "optimize"

    def compact(
        self,
        where: Where = None,
        *,
        options: WriteOptions | None = None,
        min_file_bytes: int | None = None,
        max_deleted_fraction: float = 0.05,
        max_column_files: int = 8,
        sort_by: Sequence[str] | str | None = None,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Rewrite small files, and files with many deleted rows, into fewer files.

        No row changes. Rows keep their ids if the table tracks rows; the new files are new
        fragments. Only files of the same partition are combined. If there is nothing to do, the
        outcome has no version.

        Parameters
        ----------
        where
            Only files of the partitions for which this is true; a predicate over partition
            columns alone.
        options
            The sizes and the encoding of new files. Default size: the table's
            `delta.targetFileSize`, or 128 MiB.
        min_file_bytes
            Files with fewer bytes count as small. Default: three quarters of the target.
        max_deleted_fraction
            A file with a greater fraction of deleted rows is rewritten even if it is the only one.
        max_column_files
            A fragment with more column files is rewritten too; 0 merges all column files.
        sort_by
            Sort the rows of each new file by these columns, nulls last. A small file whose rows
            have another order is rewritten even if it is the only one. Large files stay unless
            `min_file_bytes` is above their size. Memory holds the rows of one new file for each
            thread. To sort across files, use `z_order` with one column.

        Raises
        ------
        InvalidInputError
            The predicate uses other columns than partition columns, a number is invalid, or rows
            cannot be sorted by a column.
        UnsupportedFeatureError
            The table cannot be written by txlog, or its rows would lose their ids.
        """
        from txlog.data_files.options import as_names
        from txlog.expressions.sql import as_expression
        from txlog.verbs.compact import Compact

        operation = Compact(
            as_expression(where, self._table._zone),
            min_file_bytes=min_file_bytes,
            max_deleted_fraction=max_deleted_fraction,
            max_column_files=max_column_files,
            sort_by=() if sort_by is None else as_names(sort_by, argument="sort_by"),
            options=options,
        )
        return self._table._run(operation, txn, user_metadata)

    def z_order(
        self,
        columns: Sequence[str] | str,
        where: Where = None,
        *,
        curve: Curve = "hilbert",
        options: WriteOptions | None = None,
        task_bytes: int | None = None,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Rewrite all rows so that rows with similar values are in the same files.

        Predicates over any of the columns then skip most files. No row changes; rows keep their ids
        if the table tracks rows. If another writer deletes rows meanwhile, the operation is redone;
        concurrent appends do not matter. Memory holds the rows of a few tasks. Larger partitions
        use temporary files in the table's folder `_txlog_spill`.

        Parameters
        ----------
        columns
            The columns; write fields of structs with dots. Two to four columns are most effective.
        curve
            `hilbert`, which is better for predicates, or `z-order`, which interleaves the columns'
            bits.
        where
            Only the partitions for which this is true; a predicate over partition columns alone.
        options
            As for `compact`.
        task_bytes
            The size of the files whose rows one task holds in memory. There, rows are several times
            larger. Default: 128 MiB.

        Raises
        ------
        InvalidInputError
            A column is not in the table, is a partition column, or has no order; or the predicate
            uses other columns than partition columns.
        UnsupportedFeatureError
            The table cannot be written by txlog, or its rows would lose their ids.
        """
        from txlog.data_files.options import as_names
        from txlog.expressions.sql import as_expression
        from txlog.verbs.cluster import Cluster

        operation = Cluster(
            as_names(columns, argument="columns"),
            as_expression(where, self._table._zone),
            curve=curve,
            options=options,
            task_bytes=task_bytes,
        )
        return self._table._run(operation, txn, user_metadata)

    def cluster(
        self,
        where: Where = None,
        *,
        full: bool = False,
        curve: Curve = "hilbert",
        options: WriteOptions | None = None,
        task_bytes: int | None = None,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Cluster the files that were added since the last call by the clustering columns.

        The other arguments and the errors are those of `z_order`.

        Parameters
        ----------
        full
            Also rewrite files that are already clustered by these columns.

        Raises
        ------
        InvalidInputError
            The table has no clustering columns.
        """
        require_flags(full=full)
        from txlog.expressions.sql import as_expression
        from txlog.verbs.cluster import Cluster

        operation = Cluster(
            None,
            as_expression(where, self._table._zone),
            curve=curve,
            full=full,
            options=options,
            task_bytes=task_bytes,
        )
        return self._table._run(operation, txn, user_metadata)

    def compute_statistics(
        self,
        columns: Sequence[str] | str | None = None,
        *,
        where: Where = None,
        recompute: bool = False,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Add the statistics that the writers of files omitted; no row changes.

        Row counts, null counts and bounds come from the footers of the files. They come from the
        rows for floating-point columns, which may contain NaN, and for lists and maps. The files
        are logged again with the same paths; streams and the change data feed do not see this. If
        no file lacks statistics, the outcome has no version.

        Parameters
        ----------
        columns
            The columns; write nested ones with dots. Default: the first
            `delta.dataSkippingNumIndexedCols` (32), as for written files. Statistics of other
            columns do not change.
        where
            Only files of the partitions for which this is true; a predicate over partition
            columns alone.
        recompute
            Compute statistics for all files, not only for incomplete ones. Use this if the log is
            wrong.

        Raises
        ------
        InvalidInputError
            A column is not in the files, or the predicate uses other columns than partition
            columns.
        UnsupportedFeatureError
            The table cannot be written by txlog.
        DataFileError
            A file is missing or unreadable, or contradicts the log.
        """
        require_flags(recompute=recompute)
        from txlog.expressions.sql import as_expression
        from txlog.verbs.statistics import ComputeStatistics

        operation = ComputeStatistics(
            columns, where=as_expression(where, self._table._zone), recompute=recompute
        )
        return self._table._run(operation, txn, user_metadata)
