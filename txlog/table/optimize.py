"""`Table.optimize`: the same rows, read faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from txlog.table.handle import Handle, checked

if TYPE_CHECKING:
    from txlog.commit.app_versions import AppVersion
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Outcome
    from txlog.data_files.curves import Curve
    from txlog.data_files.options import WriterProperties
    from txlog.expressions.sql import Where


@checked
class TableOptimize:
    """Commits that change no row, but how fast rows are read."""

    def __init__(self, table: Handle) -> None:
        self._table = table

    def compact(
        self,
        where: Where = None,
        *,
        target_file_bytes: int | None = None,
        max_rows_per_file: int | None = None,
        writer_properties: WriterProperties | None = None,
        min_file_bytes: int | None = None,
        max_deleted_fraction: float = 0.05,
        max_column_files: int = 8,
        sort_by: Sequence[str] | str | None = None,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Rewrite small files, and files with many deleted rows, into fewer; no row changes.

        Rows keep their values, and their ids where the table tracks rows; the new files are new
        fragments. Files are put together only within a partition. Without anything to do the
        outcome has no version.

        Parameters
        ----------
        where
            Only files of the partitions of which this is true; a predicate over partition
            columns alone.
        target_file_bytes, max_rows_per_file
            How large the new files may be, at most about. Default: the table's
            `delta.targetFileSize`, or 128 MiB.
        min_file_bytes
            Files of fewer bytes are small. Default: three quarters of the target.
        max_deleted_fraction
            A file of which a greater share of rows is deleted is rewritten even alone.
        max_column_files
            So is a fragment with more files of added columns; 0 folds all of them in.
        sort_by
            Sort the rows of each new file by these columns, nulls last. Small files whose rows are
            in another order are rewritten even alone; large ones stay, unless `min_file_bytes` is
            above their size. Memory holds the rows of one new file for each thread. To sort across
            files, see `z_order` with one column.

        Raises
        ------
        InvalidInputError
            The predicate is not over partition columns alone, a number is none, or rows cannot be
            sorted by a column.
        UnsupportedFeatureError
            The table may not be written by txlog, or its rows would lose their ids.
        """
        from txlog.data_files.options import as_names, write_options
        from txlog.expressions.sql import as_expression
        from txlog.verbs.compact import Compact

        operation = Compact(
            self._table._context,
            as_expression(where),
            min_file_bytes=min_file_bytes,
            max_deleted_fraction=max_deleted_fraction,
            max_column_files=max_column_files,
            sort_by=() if sort_by is None else as_names(sort_by, argument="sort_by"),
            options=write_options(target_file_bytes, max_rows_per_file, writer_properties),
        )
        return self._table._run(operation, txn, user_metadata)

    def z_order(
        self,
        columns: Sequence[str] | str,
        where: Where = None,
        *,
        curve: Curve = "hilbert",
        target_file_bytes: int | None = None,
        max_rows_per_file: int | None = None,
        writer_properties: WriterProperties | None = None,
        task_bytes: int | None = None,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Write all rows anew so that rows which are near in some columns come into few files.

        Predicates over any of the columns then skip most files. No row changes; rows keep their ids
        where the table tracks rows. A commit of another writer that deletes rows meanwhile has it
        done again, one that appends does not. Memory holds the rows of a few tasks: larger
        partitions go through files in the table's folder `_txlog_spill`, which are gone at the end.

        Parameters
        ----------
        columns
            The columns, fields of structs with dots. Two to four are of most use.
        curve
            `hilbert`, which serves predicates better, or `z-order`: the columns' bits in turn.
        where
            Only the partitions of which this is true; a predicate over partition columns alone.
        target_file_bytes, max_rows_per_file, writer_properties
            As for `compact`.
        task_bytes
            Of how many bytes of files one task holds the rows in memory, where they are several
            times as large. Default: 128 MiB.

        Raises
        ------
        InvalidInputError
            A column is not in the table, is a partition column, or has no order; or the predicate
            is not over partition columns alone.
        UnsupportedFeatureError
            The table may not be written by txlog, or its rows would lose their ids.
        """
        from txlog.data_files.options import as_names, write_options
        from txlog.expressions.sql import as_expression
        from txlog.verbs.cluster import Cluster

        operation = Cluster(
            self._table._context,
            as_names(columns, argument="columns"),
            as_expression(where),
            curve=curve,
            options=write_options(target_file_bytes, max_rows_per_file, writer_properties),
            task_bytes=task_bytes,
        )
        return self._table._run(operation, txn, user_metadata)

    def cluster(
        self,
        where: Where = None,
        *,
        full: bool = False,
        curve: Curve = "hilbert",
        target_file_bytes: int | None = None,
        max_rows_per_file: int | None = None,
        writer_properties: WriterProperties | None = None,
        task_bytes: int | None = None,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Do as `z_order` does by the table's clustering columns, for files that came since.

        Parameters
        ----------
        full
            Write files anew that are clustered by these columns already, too.

        The other arguments and the errors are those of `z_order`; `InvalidInputError` too if the
        table has no clustering columns.
        """
        from txlog.data_files.options import write_options
        from txlog.expressions.sql import as_expression
        from txlog.verbs.cluster import Cluster

        operation = Cluster(
            self._table._context,
            None,
            as_expression(where),
            curve=curve,
            full=full,
            options=write_options(target_file_bytes, max_rows_per_file, writer_properties),
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
        """Give files the statistics that their writers left out; no row changes.

        Row counts, null counts and bounds come from the footers of the files, or from the rows
        where a footer does not tell them: of floating-point columns, which may hold NaN, and of
        lists and maps. Files are logged again under their paths; streams and the change data feed
        see nothing of it. If no file lacks anything, the outcome has no version.

        Parameters
        ----------
        columns
            Which columns, nested ones with dots. Default: the first
            `delta.dataSkippingNumIndexedCols` (32), as when files are written. What the log says
            of other columns stays.
        where
            Only files of the partitions of which this is true; a predicate over partition
            columns alone.
        recompute
            Compute them for all files, not only for those that lack some: where the log is wrong.

        Raises
        ------
        InvalidInputError
            There is no such column in files, or the predicate is not over partition columns alone.
        UnsupportedFeatureError
            The table may not be written by txlog.
        DataFileError
            A file is missing, unreadable, or other than the log says.
        """
        from txlog.expressions.sql import as_expression
        from txlog.verbs.statistics import ComputeStatistics

        operation = ComputeStatistics(
            self._table._context, columns, where=as_expression(where), recompute=recompute
        )
        return self._table._run(operation, txn, user_metadata)
