"""`Table`: a table at a version, and one call for each verb."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa

from txlog.actions import Metadata, Protocol
from txlog.errors import (
    InvalidInputError,
    LogCorruptError,
    UnsupportedFeatureError,
)
from txlog.expressions import Expression, as_expression
from txlog.feed import Changes, feed_range, plan_feed
from txlog.fragments import FEATURE, fragment_rows
from txlog.log import CatalogCommits
from txlog.maintain import MAX_DELETED_FRACTION, compact, restore
from txlog.reconcile import FileState
from txlog.scan import Scan, plan_scan, take_rows
from txlog.scan.files import file_table
from txlog.schema import StructType, arrow_schema
from txlog.snapshot import (
    ChecksumReport,
    OutOfRange,
    Snapshot,
    history,
    load_files,
    load_snapshot,
    parse_timestamp,
    refresh,
    verify_checksum,
    version_at,
)
from txlog.store import Store, open_store
from txlog.table_fragment import TableFragment
from txlog.writing import (
    AppTransaction,
    Capability,
    Done,
    Operation,
    Outcome,
    PartitionMode,
    Place,
    SchemaMode,
    add_columns,
    add_features,
    append,
    as_names,
    as_schema,
    capabilities,
    checkpoint,
    commit_fragments,
    create,
    delete,
    drop_columns,
    existing,
    maintain,
    overwrite,
    replace_columns,
    write_options,
)

Where = str | Expression | None
WriteMode = Literal["append", "overwrite", "error", "ignore"]


class Table:
    """A Delta table at one version.

    Reading verbs answer for that version. Writing verbs commit on top of the latest version and
    move the table on to what they made.

    Parameters
    ----------
    uri
        A folder, or a URI such as `file:///data/flights` or `memory://flights`. Plain paths are
        taken literally, `file:` URIs are percent-decoded.
    version
        Open this version. Default: the latest.
    timestamp
        Open the version that was the latest at this moment: ISO 8601 text, a datetime, or
        milliseconds since the epoch; UTC where there is no zone.
    storage_options
        Passed to the store, and to Spark's executors; never shown.
    out_of_range
        `nearest` takes the first or last version for a timestamp before or after all of them.
    catalog_commits
        Of a catalog-managed table, what its catalog answered: which commits count. Without it
        such a table is refused.

    Raises
    ------
    NotFoundError
        There is no table, no such version, or none at that moment.
    UnsupportedFeatureError
        The table needs features to be read that txlog lacks; all are named.
    LogCorruptError
        The log is damaged; the file is named.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        version: int | None = None,
        timestamp: str | datetime | int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        *,
        out_of_range: OutOfRange = "error",
        catalog_commits: CatalogCommits | None = None,
    ) -> None:
        if version is not None and timestamp is not None:
            raise InvalidInputError(
                argument="timestamp",
                reason="version and timestamp both choose a version",
                remedy="Pass only one of them",
            )
        if version is not None and (type(version) is not int or version < 0):
            raise InvalidInputError(
                argument="version", reason=f"{version!r} is no whole number from 0"
            )
        store = open_store(uri, storage_options)
        snapshot = load_snapshot(store, version=version, catalog=catalog_commits)
        if timestamp is not None:
            at = version_at(store, snapshot, parse_timestamp(timestamp), out_of_range=out_of_range)
            snapshot = load_snapshot(store, version=at, catalog=catalog_commits)
        self._place = Place(store)
        self._outcome: Outcome | None = None
        self._move(snapshot)

    @classmethod
    def _of(cls, place: Place, snapshot: Snapshot) -> Table:
        table = cls.__new__(cls)
        table._place = place
        table._outcome = None
        table._move(snapshot)
        return table

    @classmethod
    def _made(cls, place: Place, done: Done) -> Table:
        table = cls._of(place, done.snapshot)
        table._finish(done)
        return table

    def _move(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._file_state: FileState | None = None

    def __repr__(self) -> str:
        return f"txlog.Table({self.uri!r}, version={self.version})"

    def __getstate__(self) -> dict[str, Any]:
        return {"place": self._place, "snapshot": self._snapshot}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._place = state["place"]
        self._outcome = None
        self._move(state["snapshot"])

    # What the table is ---------------------------------------------------------------------

    @staticmethod
    def exists(
        uri: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
    ) -> bool:
        """Return whether there is a Delta table at `uri`, readable or not."""
        try:
            return existing(open_store(uri, storage_options)) is not None
        except (LogCorruptError, UnsupportedFeatureError):
            return True

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self._place.store.root

    @property
    def version(self) -> int:
        """The version that this object stands at."""
        return self._snapshot.version

    @property
    def timestamp_ms(self) -> int:
        """When this version was made, milliseconds since the epoch, UTC."""
        return self._snapshot.timestamp_ms

    @property
    def schema(self) -> pa.Schema:
        """The columns, in Arrow's terms; every scan of all columns has exactly this schema."""
        return arrow_schema(self._snapshot.schema)

    @property
    def delta_schema(self) -> StructType:
        """The columns, in Delta's terms, field metadata included."""
        return self._snapshot.schema

    @property
    def metadata(self) -> Metadata:
        """The `metaData` action in force."""
        return self._snapshot.metadata

    @property
    def protocol(self) -> Protocol:
        """The `protocol` action in force."""
        return self._snapshot.protocol

    @property
    def properties(self) -> dict[str, str | None]:
        """The table's properties, as set."""
        return dict(self._snapshot.metadata.configuration)

    @property
    def partition_columns(self) -> list[str]:
        """The partition columns, in order."""
        return list(self._snapshot.partition_columns)

    @property
    def snapshot(self) -> Snapshot:
        """This version as a value: it pickles, and does not move when the table does."""
        return self._snapshot

    @property
    def store(self) -> Store:
        """The store that holds the table."""
        return self._place.store

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return what each commit up to this version says of itself, newest first.

        Each entry has `version` and `timestamp` (milliseconds since the epoch), and what its
        writer noted: `operation`, `operationParameters`, `operationMetrics`, `engineInfo`, …
        """
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidInputError(argument="limit", reason=f"{limit!r} is no count")
        return history(self._place.store, self._snapshot, limit)

    def verify_checksum(self) -> ChecksumReport:
        """Hold this version against its checksum (`.crc`), if its writer left one.

        The report says which fields were compared and which differ; print it to read it. A
        checksum that is wrong or cannot be read is a problem of the report, not an error: the
        log decides, and the table reads the same either way.

        Raises
        ------
        LogCorruptError
            The files of this version cannot be read from the log.
        StoreError
            The store failed.
        """
        return verify_checksum(self._place.store, self._snapshot, self._files())

    def capabilities(self) -> dict[str, Capability]:
        """Return for each verb whether this version of the table lets it be done.

        The verbs are `scan`, `stable_row_ids`, `changes`, `refresh`, `append`, `overwrite`,
        `delete` and `checkpoint`. Each capability is true or false, and says of a verb that
        cannot be done which features stand in the way, why, and what to do.
        """
        return capabilities(self._place.store, self._snapshot)

    def files(self) -> pa.Table:
        """Return the data files of this version, one row each.

        Columns: `path` (as logged), `size_bytes`, `num_records` (rows in the file; null if
        unknown), `num_deleted`, `partition_values` (a map), `modification_time` (milliseconds),
        `fragment_id`, `stats` (JSON text), `deletion_vector` (its unique id).
        """
        return file_table(
            fragment_rows(self._files().live, listed=self._snapshot.supports(FEATURE))
        )

    def fragments(self) -> list[TableFragment]:
        """Return the fragments of this version, ordered by id."""
        live = self._files().live
        return [
            TableFragment(self._place, self._snapshot, live, fragment)
            for fragment in plan_scan(self._snapshot, live, columns=[]).fragments
        ]

    def get_fragments(self) -> list[TableFragment]:
        """Return the fragments, by the name that pylance gives this."""
        return self.fragments()

    def get_fragment(self, fragment_id: int) -> TableFragment | None:
        """Return the fragment of an id, or None if this version has none."""
        found = (fragment for fragment in self.fragments() if fragment.id == fragment_id)
        return next(found, None)

    @property
    def outcome(self) -> Outcome | None:
        """What the last writing verb of this object did, or None if there was none.

        Also after `txlog.write`, which returns the table.
        """
        return self._outcome

    def transaction_version(self, app_id: str) -> int | None:
        """Return the last version that an application recorded with `txn`, or None."""
        return self._snapshot.transaction_version(app_id)

    # Reading -------------------------------------------------------------------------------

    def scan(self, columns: list[str] | None = None, where: Where = None) -> Scan:
        """Plan a scan of this version; nothing is read until its rows are asked for.

        Parameters
        ----------
        columns
            The columns to return, in this order. Default: all.
        where
            Keep the rows of which this is true: SQL text (`"dep_delay > 60 AND carrier = 'UA'"`)
            or an expression (`col("dep_delay") > 60`).

        Raises
        ------
        InvalidInputError
            A column is not in the table, or the predicate does not fit it.
        """
        plan = plan_scan(
            self._snapshot, self._files().live, columns=columns, where=as_expression(where)
        )
        return Scan(self._place.store, plan, self._place.engine)

    def to_arrow(self, columns: list[str] | None = None, where: Where = None) -> pa.Table:
        """Return rows as one Arrow table; arguments as for `scan`."""
        return self.scan(columns, where).to_arrow()

    def to_batches(
        self, columns: list[str] | None = None, where: Where = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows as Arrow batches; arguments as for `scan`."""
        return self.scan(columns, where).to_batches()

    def head(
        self, num_rows: int, columns: list[str] | None = None, where: Where = None
    ) -> pa.Table:
        """Return the first rows as one Arrow table; the other arguments are as for `scan`.

        No more fragments are opened than they need, as far as the log counts rows.
        """
        return self.scan(columns, where).head(num_rows)

    def count(self, where: Where = None) -> int:
        """Return the number of rows, from the log alone where it knows."""
        return self.scan([], where).count()

    def take(
        self,
        row_addresses: Sequence[int] | None = None,
        columns: list[str] | None = None,
        *,
        row_ids: Sequence[int] | None = None,
    ) -> pa.Table:
        """Return rows by their addresses or ids, in the order given.

        Only the row groups that hold the rows are read; ids are looked up first, which reads the
        ids of all rows unless they are addresses (see `_rowid`).

        Parameters
        ----------
        row_addresses, row_ids
            Values of `_rowaddr` or `_rowid`, one of the two; one may occur more than once.
        columns
            As for `scan`.

        Raises
        ------
        InvalidInputError
            Both or neither are given, or one is no whole number from 0.
        NotFoundError
            A row is not in this version, or deleted in it; those at fault are named.
        """
        return take_rows(
            self._place.store,
            lambda chosen: plan_scan(self._snapshot, self._files().live, columns=chosen),
            addresses=row_addresses,
            row_ids=row_ids,
            columns=columns,
            engine=self._place.engine,
        )

    def changes(
        self,
        starting_version: int | None = None,
        ending_version: int | None = None,
        *,
        starting_timestamp: str | datetime | int | None = None,
        ending_timestamp: str | datetime | int | None = None,
        columns: list[str] | None = None,
        where: Where = None,
    ) -> Changes:
        """Plan the reading of the change data feed: which rows came, went or changed.

        The columns are those of the last version in the range, then `_change_type` (`insert`,
        `delete`, `update_preimage`, `update_postimage`), `_commit_version`, and
        `_commit_timestamp`. The table's writers must have had `delta.enableChangeDataFeed` on.

        Parameters
        ----------
        starting_version, ending_version
            The range, both included. Default: from the first version to this one.
        starting_timestamp, ending_timestamp
            Instead of a version: the first one made at that moment or later, the last one made
            before it or at it.
        columns, where
            As for `scan`; the three columns of the feed may be named too.

        Raises
        ------
        InvalidInputError
            The range is no range, or a column or the predicate does not fit.
        NotFoundError
            A version of the range does not exist, or its commit was cleaned up.
        UnsupportedFeatureError
            A version recorded no changes, or had other columns. It is named.
        """
        store = self._place.store
        first, last = feed_range(
            store,
            self._snapshot,
            starting=(starting_version, starting_timestamp),
            ending=(ending_version, ending_timestamp),
        )
        return plan_feed(
            store, last, first, columns=columns, where=as_expression(where),
            engine=self._place.engine,
        )  # fmt: skip

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.scan().__arrow_c_stream__(requested_schema)

    # Writing -------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        uri: str | os.PathLike[str],
        schema: pa.Schema | StructType,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Table:
        """Make an empty table.

        Deletion vectors are enabled unless `properties` has
        `delta.enableDeletionVectors=false`; the protocol lists only what the table uses.

        Raises
        ------
        AlreadyExistsError
            There is a table already.
        InvalidInputError
            The schema, the partitioning or a property is wrong.
        """
        place = Place(open_store(uri, storage_options))
        snapshot = create(
            place,
            as_schema(schema),
            partition_by=as_names(partition_by),
            properties=properties,
            name=name,
            description=description,
        )
        return cls._of(place, snapshot)

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
        options = write_options(target_file_bytes, max_rows_per_file, user_metadata)
        return self._finish(
            append(
                self._place,
                self._latest(),
                data,
                schema_mode=schema_mode,
                txn=txn,
                options=options,
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
        options = write_options(None, None, user_metadata)
        return self._finish(delete(self._place, self._latest(), where, txn=txn, options=options))

    def add_features(self, *features: str, user_metadata: str | None = None) -> Outcome:
        """List table features in the protocol, in one commit; engines without them are shut out.

        `txlog.fragments` also gives every fragment a durable id, and brings `deletionVectors`.

        Raises
        ------
        InvalidInputError
            txlog cannot write tables with one of them.
        """
        options = write_options(None, None, user_metadata)
        return self._finish(add_features(self._place, self._latest(), features, options=options))

    def add_columns(
        self,
        columns: Any,
        *,
        read_columns: Sequence[str] | None = None,
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
        options = write_options(None, None, user_metadata)
        return self._finish(
            add_columns(
                self._place, self._latest(), columns, read_columns=read_columns, options=options
            )
        )

    def replace_columns(
        self,
        columns: Any,
        *,
        read_columns: Sequence[str] | None = None,
        user_metadata: str | None = None,
    ) -> Outcome:
        """Give columns other values in all rows; as `add_columns` otherwise.

        Raises
        ------
        UnsupportedFeatureError
            The table tracks rows, records changes, or is append-only.
        """
        options = write_options(None, None, user_metadata)
        return self._finish(
            replace_columns(
                self._place, self._latest(), columns, read_columns=read_columns, options=options
            )
        )

    def drop_columns(
        self, columns: Sequence[str] | str, *, user_metadata: str | None = None
    ) -> Outcome:
        """Take columns out of the table, in one commit that rewrites no data file.

        Needs the feature `txlog.fragments`. The values stay in the files, for older versions.

        Raises
        ------
        InvalidInputError
            There is no such column, a constraint or the partitioning needs it, or none is left.
        """
        options = write_options(None, None, user_metadata)
        names = as_names(columns)
        return self._finish(drop_columns(self._place, self._latest(), names, options=options))

    def commit(
        self,
        operation: Operation.Base,
        *,
        txn: AppTransaction | None = None,
        user_metadata: str | None = None,
    ) -> Outcome:
        """Commit fragments that workers wrote (`txlog.write_fragments`, `TableFragment`).

        Parameters
        ----------
        operation
            `Operation.Append`, `Overwrite`, `Delete`, `Merge` or `Rewrite`.

        Raises
        ------
        InvalidInputError
            A fragment is there twice, is not in the table or in it already, or is none.
        CommitConflictError
            What the fragments were made from has changed since. Nothing was committed, and no
            file deleted.
        """
        options = write_options(None, None, user_metadata)
        return self._finish(
            commit_fragments(self._place, self._snapshot, operation, txn=txn, options=options)
        )

    def compact(
        self,
        where: Where = None,
        *,
        target_file_bytes: int | None = None,
        max_rows_per_file: int | None = None,
        min_file_bytes: int | None = None,
        max_deleted_fraction: float = MAX_DELETED_FRACTION,
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

        Raises
        ------
        InvalidInputError
            The predicate is not over partition columns alone, or a number is none.
        UnsupportedFeatureError
            The table may not be written by txlog, or its rows would lose their ids.
        """
        options = write_options(target_file_bytes, max_rows_per_file, user_metadata)
        return self._finish(
            compact(
                self._place,
                self._latest(),
                where,
                min_file_bytes=min_file_bytes,
                max_deleted_fraction=max_deleted_fraction,
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
        options = write_options(None, None, user_metadata)
        return self._finish(
            restore(self._place, self._latest(), version, timestamp, options=options)
        )

    def checkpoint(self) -> int:
        """Write a checkpoint of this version, and return the version."""
        checkpoint(self._place, self._snapshot)
        return self.version

    def refresh(self) -> Table:
        """Move on to the latest version, and return this table."""
        self._move(self._latest())
        return self

    # Inside --------------------------------------------------------------------------------

    def _files(self) -> FileState:
        if self._file_state is None:
            self._file_state = load_files(self._place.store, self._snapshot)
        return self._file_state

    def _latest(self) -> Snapshot:
        return refresh(self._place.store, self._snapshot)

    def _finish(self, done: Done) -> Outcome:
        """Take over what an operation made, and write a checkpoint when one is due."""
        self._move(done.snapshot)
        self._outcome = done.outcome
        maintain(self._place, done)
        return done.outcome
