"""Changing the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from txlog.maintain.limits import MAX_COLUMN_FILES, MAX_DELETED_FRACTION
from txlog.table.handle import Handle

if TYPE_CHECKING:
    from txlog.table.reading import Where
    from txlog.writing.data import SchemaMode
    from txlog.writing.operation import AppTransaction, Outcome
    from txlog.writing.overwrite import PartitionMode


class Writing(Handle):
    """The part of `Table` that changes rows, and files."""

    def append(
        self,
        data: Any,
        txn: AppTransaction | None = None,
        *,
        schema_mode: SchemaMode = None,
        target_file_bytes: int | None = None,
        max_rows_per_file: int | None = None,
        user_metadata: str | None = None,
    ) -> Outcome:
        """Add rows, in one commit.

        Parameters
        ----------
        data
            Anything that speaks Arrow: pyarrow, polars, pandas, duckdb, a reader, a scan.
        txn
            `(app_id, version)`: if that version of the application, or a later one, is recorded
            already, nothing is written and the outcome says `skipped`.
        schema_mode
            `merge` adds columns that only the data has. Default: refuse them.
        user_metadata
            Text to note in the commit.

        Raises
        ------
        SchemaMismatchError
            The data does not fit the table. Nothing was committed.
        CommitConflictError, OutcomeUnknownError, StoreError
            As their names say.
        """
        from txlog.writing.append import append
        from txlog.writing.arguments import write_options

        options = write_options(target_file_bytes, max_rows_per_file, user_metadata)
        return self._finish(
            append(
                self._place, self._latest(), data, schema_mode=schema_mode, txn=txn, options=options
            )
        )

    def overwrite(
        self,
        data: Any,
        where: Where = None,
        *,
        partition_mode: PartitionMode = "static",
        schema_mode: SchemaMode = None,
        txn: AppTransaction | None = None,
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
        from txlog.writing.arguments import write_options
        from txlog.writing.overwrite import overwrite

        options = write_options(target_file_bytes, max_rows_per_file, user_metadata)
        return self._finish(
            overwrite(
                self._place,
                self._latest(),
                data,
                where=where,
                partition_mode=partition_mode,
                schema_mode=schema_mode,
                txn=txn,
                options=options,
            )
        )

    def delete(
        self,
        where: Where = None,
        *,
        txn: AppTransaction | None = None,
        user_metadata: str | None = None,
    ) -> Outcome:
        """Delete the rows of which a predicate is true; without one, all rows.

        Data files are not rewritten: deletion vectors mark the rows, unless the table has them
        disabled.

        Raises
        ------
        InvalidInputError
            The predicate does not fit the table.
        UnsupportedFeatureError
            The table is append-only, or may not be written by txlog.
        """
        from txlog.writing.arguments import write_options
        from txlog.writing.delete import delete

        options = write_options(None, None, user_metadata)
        return self._finish(delete(self._place, self._latest(), where, txn=txn, options=options))

    def compact(
        self,
        where: Where = None,
        *,
        target_file_bytes: int | None = None,
        max_rows_per_file: int | None = None,
        min_file_bytes: int | None = None,
        max_deleted_fraction: float = MAX_DELETED_FRACTION,
        max_column_files: int = MAX_COLUMN_FILES,
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
        from txlog.maintain.compact import compact
        from txlog.writing.arguments import write_options

        options = write_options(target_file_bytes, max_rows_per_file, user_metadata)
        return self._finish(
            compact(
                self._place,
                self._latest(),
                where,
                min_file_bytes=min_file_bytes,
                max_deleted_fraction=max_deleted_fraction,
                max_column_files=max_column_files,
                options=options,
            )
        )

    def compute_statistics(
        self,
        columns: Sequence[str] | str | None = None,
        *,
        where: Where = None,
        recompute: bool = False,
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
        from txlog.maintain.statistics import compute_statistics
        from txlog.writing.arguments import write_options

        options = write_options(None, None, user_metadata)
        return self._finish(
            compute_statistics(
                self._place,
                self._latest(),
                columns,
                where=where,
                recompute=recompute,
                options=options,
            )
        )

    def restore(
        self,
        version: int | None = None,
        timestamp: str | datetime | int | None = None,
        *,
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
        from txlog.maintain.restore import restore
        from txlog.writing.arguments import write_options

        options = write_options(None, None, user_metadata)
        return self._finish(
            restore(self._place, self._latest(), version, timestamp, options=options)
        )

    def checkpoint(self) -> int:
        """Write a checkpoint of this version, and return the version."""
        from txlog.writing.checkpoint import checkpoint

        checkpoint(self._place, self._snapshot)
        return self._snapshot.version
