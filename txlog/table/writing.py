"""Changing the rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from txlog.table.handle import Handle

if TYPE_CHECKING:
    from txlog.commit.app_versions import AppVersion
    from txlog.commit.operation import Outcome
    from txlog.data_files.incoming import SchemaMode
    from txlog.table.reading import Where
    from txlog.table.transaction import TableTransaction
    from txlog.verbs.overwrite import PartitionMode


class Writing(Handle):
    """The part of `Table` that changes rows, and files."""

    def append(
        self,
        data: Any,
        *,
        schema_mode: SchemaMode = None,
        txn: AppVersion | None = None,
        target_file_bytes: int | None = None,
        max_rows_per_file: int | None = None,
        user_metadata: str | None = None,
    ) -> Outcome:
        """Add rows, in one commit.

        Parameters
        ----------
        data
            Anything that speaks Arrow: pyarrow, polars, pandas, duckdb, a reader, a scan.
        schema_mode
            `merge` adds columns that only the data has. Default: refuse them.
        txn
            `(app_id, version)`: if the table records that version of the application, or a later
            one, nothing is written and the outcome says `skipped`. Else the commit records it.
        user_metadata
            Text to note in the commit.

        Raises
        ------
        SchemaMismatchError
            The data does not fit the table. Nothing was committed.
        CommitConflictError, OutcomeUnknownError, StoreError
            As their names say.
        """
        from txlog.data_files.options import write_options
        from txlog.verbs.append import Append

        options = write_options(target_file_bytes, max_rows_per_file)
        operation = Append.of_data(self._context, data, schema_mode=schema_mode, options=options)
        return self._run(operation, txn, user_metadata)

    def overwrite(
        self,
        data: Any,
        where: Where = None,
        *,
        partition_mode: PartitionMode = "static",
        schema_mode: SchemaMode = None,
        txn: AppVersion | None = None,
        target_file_bytes: int | None = None,
        max_rows_per_file: int | None = None,
        user_metadata: str | None = None,
    ) -> Outcome:
        """Replace all rows, those of a predicate, or those of the data's partitions.

        Parameters
        ----------
        where
            Replace only the rows of which this is true; every new row must satisfy it.
        partition_mode
            `dynamic` replaces only the partitions that the data has rows of.
        schema_mode
            `overwrite` replaces the schema too, `merge` adds columns.

        The other arguments and the errors are those of `append`.
        """
        from txlog.data_files.options import write_options
        from txlog.expressions.sql import as_expression
        from txlog.verbs.overwrite import Overwrite

        operation = Overwrite.of_data(
            self._context,
            data,
            where=as_expression(where),
            partition_mode=partition_mode,
            schema_mode=schema_mode,
            options=write_options(target_file_bytes, max_rows_per_file),
        )
        return self._run(operation, txn, user_metadata)

    def delete(
        self,
        where: Where,
        *,
        txn: AppVersion | None = None,
        user_metadata: str | None = None,
    ) -> Outcome:
        """Delete the rows that a predicate is true of; None deletes all rows.

        Data files are not rewritten: deletion vectors mark the rows, unless the table has them
        disabled.

        Raises
        ------
        InvalidInputError
            The predicate does not fit the table.
        UnsupportedFeatureError
            The table is append-only, or may not be written by txlog.
        """
        from txlog.expressions.sql import as_expression
        from txlog.verbs.delete import Delete

        operation = Delete(self._context, as_expression(where))
        return self._run(operation, txn, user_metadata)

    @contextmanager
    def transaction(
        self, *, txn: AppVersion | None = None, user_metadata: str | None = None
    ) -> Iterator[TableTransaction]:
        """Put several changes into one version::

            with table.transaction() as tx:
                tx.delete("day = '2026-11-24'")
                tx.append(corrected)

        Each change is decided on the state that the ones before it leave. All of them are
        committed when the block ends, checked for conflicts as a whole; if it ends by an error,
        none is. The outcome is `tx.outcome`.

        Raises
        ------
        CommitConflictError
            Another writer's commit forbids one of the changes. Nothing was committed.
        """
        from txlog.commit.app_versions import is_recorded, require_app_version
        from txlog.commit.operation import execute
        from txlog.table.transaction import TableTransaction

        require_app_version(txn)
        latest = self._latest()
        changes = TableTransaction(self._context, latest, is_recorded(latest, txn))
        try:
            yield changes
        except BaseException:
            changes.operation.discard()
            raise
        changes.outcome = self._finish(
            execute(changes.operation, latest, txn=txn, user_metadata=user_metadata)
        )

    def compact(
        self,
        where: Where = None,
        *,
        target_file_bytes: int | None = None,
        max_rows_per_file: int | None = None,
        min_file_bytes: int | None = None,
        max_deleted_fraction: float = 0.05,
        max_column_files: int = 8,
        txn: AppVersion | None = None,
        user_metadata: str | None = None,
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
            How large the new files may be, at most about.
        min_file_bytes
            Files of fewer bytes are small. Default: three quarters of the target.
        max_deleted_fraction
            A file of which a greater share of rows is deleted is rewritten even alone.
        max_column_files
            So is a fragment with more files of added columns; 0 folds all of them in.

        Raises
        ------
        InvalidInputError
            The predicate is not over partition columns alone, or a number is none.
        UnsupportedFeatureError
            The table may not be written by txlog, or its rows would lose their ids.
        """
        from txlog.data_files.options import write_options
        from txlog.expressions.sql import as_expression
        from txlog.verbs.compact import Compact

        operation = Compact(
            self._context,
            as_expression(where),
            min_file_bytes=min_file_bytes,
            max_deleted_fraction=max_deleted_fraction,
            max_column_files=max_column_files,
            options=write_options(target_file_bytes, max_rows_per_file),
        )
        return self._run(operation, txn, user_metadata)

    def compute_statistics(
        self,
        columns: Sequence[str] | str | None = None,
        *,
        where: Where = None,
        recompute: bool = False,
        txn: AppVersion | None = None,
        user_metadata: str | None = None,
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
            self._context, columns, where=as_expression(where), recompute=recompute
        )
        return self._run(operation, txn, user_metadata)

    def restore(
        self,
        version: int | None = None,
        timestamp: str | datetime | int | None = None,
        *,
        txn: AppVersion | None = None,
        user_metadata: str | None = None,
    ) -> Outcome:
        """Make a new version that is what an older one was: rows, schema, properties.

        Nothing of the versions between is lost: they can still be read, and restored. The
        protocol stays at least what it is. If the table is so already, the outcome has no version.

        Parameters
        ----------
        version, timestamp
            The version, or a moment at which it was the latest: one of the two.

        Raises
        ------
        NotFoundError
            There is no such version, or it was cleaned up.
        DataFileError
            Files that the version needs are gone. They are named, and nothing is committed.
        UnsupportedFeatureError
            The table is append-only, or may not be written by txlog as it is or was.
        """
        from txlog.verbs.restore import Restore

        return self._run(Restore(self._context, version, timestamp), txn, user_metadata)

    def checkpoint(self) -> int:
        """Write a checkpoint of this version, and return the version."""
        from txlog.verbs.checkpoint import checkpoint

        snapshot = self._snapshot
        checkpoint(self._context, snapshot)
        return snapshot.version
