"""The data source `txlog`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType as SparkStruct

from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.expressions.sql import as_expression
from txlog.schema.types import StructType
from txlog.spark_ext.source.options import OF_CHANGES, Options
from txlog.spark_ext.source.plain import plainly
from txlog.spark_ext.spark_types import read_schema

if TYPE_CHECKING:
    from txlog.snapshot.snapshot import Snapshot
    from txlog.store.base import Store

# Spark starts a process for each step of a job, and each process imports this module. So modules
# that only some steps need are imported in methods.


class TxlogDataSource(DataSource):
    """Delta tables for Spark, without a JVM package.

    Options for reading (Spark gives a Python source neither columns nor limits):

    - `versionAsOf`, `timestampAsOf`: another version than the latest. A timestamp without a zone
      is in UTC, because a Python source does not get the session's time zone.
    - `columns`: names separated by commas, or a JSON list; columns of the table, fields of structs
      (`st.a`), or metadata columns (`_rowid`, `_rowaddr`, `_fragid`,
      `_row_last_updated_at_version`). Empty text means no columns, for a count of rows, which needs
      only the log if possible.
    - `where`: SQL text; only rows for which it is true.
    - `limit`: at most so many rows for which `where` is true: the first ones, by fragment and
      position. If the log has row counts, only the necessary fragments are opened. Spark applies
      its own filters after the limit.
    - `onlyWithDeletions`: only fragments that have deleted rows.
    - `useIndex`: with `false`, do not use an index for `where`. The rows are the same.
    - `maxPartitionBytes`: several tasks read a larger fragment, by row groups. Default: 134217728
      (128 MB). Spark does not pass its own setting for files to Python sources.
    - `readChangeFeed` (or `readChangeData`): the change data feed of the versions from
      `startingVersion` or `startingTimestamp` (default: the first version) to `endingVersion` or
      `endingTimestamp` (default: the latest version).

    For reading as a stream, in addition to `columns`, `where` and `maxPartitionBytes`:

    - `maxFilesPerTrigger`, `maxBytesPerTrigger` (`1073741824` or `1g`): how much a micro-batch
      reads. Default: 1000 files. A file that is larger than the limit is read alone.
    - `startingVersion` (a number or `latest`), `startingTimestamp`: begin with the commit of a
      version. Default: all rows of the table, then the commits after them.
    - `ignoreDeletes`, `ignoreChanges`, `skipChangeCommits`: how to treat commits that delete or
      change rows. By default they end the query.
    - `readChangeFeed`: changes of rows instead of new rows.
    - `failOnDataLoss`: with `false`, continue if commits were cleaned up before they were read.

    For writing: `partitionBy`, `clusterBy`, `replaceWhere`, `partitionOverwriteMode`,
    `mergeSchema`, `overwriteSchema`, `maxRecordsPerFile`, `compression`, `txnAppId`, `txnVersion`
    (for a stream, only `txnAppId`), `userMetadata`; `onError=quarantine` with `quarantine`, the
    location of the table for rows that do not fit. Properties of a new table are options that
    begin with `delta.`, or a JSON object in `tableProperties`.

    For reading and writing: `storageOptions` (a JSON object), or `secretStorageOptions`, which
    Spark does not show in the plans of writes, even without `register`. And `branch`: the name of
    an open branch to read or to write to.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        Options(options).require_spelled()

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "txlog"

    @property
    def _options(self) -> Options:
        return Options(self.options)

    @plainly
    def schema(self) -> SparkStruct:
        """Return the table's schema, or that of the chosen columns."""
        from txlog.scan.read_plan import choose_fields, scan_schema

        columns = self._options.columns()
        if self._options.reads_changes:
            return self._changes_schema(columns)
        _, snapshot = self._snapshot()
        chosen = snapshot.schema
        if columns is not None:
            chosen = StructType(choose_fields(scan_schema(snapshot), columns)[0])
        return read_schema(chosen)

    def _changes_schema(self, columns: list[str] | None) -> SparkStruct:
        """Return the schema of changes; for a stream, the options name no last version."""
        from txlog.changes.changes import feed_read_plan
        from txlog.snapshot.time_travel import snapshot_at
        from txlog.spark_ext.source.reader import feed_of

        options = self._options
        last = snapshot_at(options.store())
        if options.text("endingVersion") or options.text("endingTimestamp"):
            _, _, last = feed_of(options)
        return read_schema(StructType(feed_read_plan(last, columns, None).columns))

    @plainly
    def reader(self, schema: SparkStruct) -> DataSourceReader:
        """Return a reader of the columns of `schema`."""
        from txlog.spark_ext.source.reader import FragmentsReader

        options = self._options
        if options.reads_changes:
            from txlog.spark_ext.source.reader import ChangesReader

            where = as_expression(options.text("where"), options.text("timeZone"))
            return ChangesReader(options, schema, where, options.max_partition_bytes)
        options.refuse(OF_CHANGES, "it is for streams, or for batches with readChangeFeed")
        store, snapshot = self._snapshot()
        return FragmentsReader(
            store,
            snapshot,
            schema,
            as_expression(options.text("where"), zone := options.text("timeZone")),
            zone=zone,
            columns=options.columns(),
            limit=options.number("limit", least=0),
            max_partition_bytes=options.max_partition_bytes,
            only_with_deletions=options.flag("onlyWithDeletions"),
            use_index=options.flag("useIndex", default=True),
            only_files=options.names("onlyFiles"),
        )

    @plainly
    def streamReader(self, schema: SparkStruct) -> DataSourceStreamReader:  # noqa: N802
        """Return a reader of new rows or changes of the table, in the columns of `schema`.

        Raises
        ------
        UnsupportedFeatureError
            Spark is older than 4.2, which brought limits of micro-batches to Python sources.
        """
        try:
            from txlog.spark_ext.source.stream_reader import StreamReader
        except ImportError as error:
            raise UnsupportedFeatureError(
                features=("streaming",),
                reason="this Spark cannot limit the micro-batches of a Python source",
                remedy="Use Spark 4.2 or later for streams from tables",
            ) from error
        return StreamReader(self._options, schema)

    @plainly
    def writer(self, schema: SparkStruct, overwrite: bool) -> DataSourceArrowWriter:
        """Return a writer of one batch."""
        from txlog.spark_ext.source.writer import batch_writer

        self._options.require_writing()
        return batch_writer(self._options, schema, overwrite)

    @plainly
    def streamWriter(  # noqa: N802
        self, schema: SparkStruct, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """Return a writer of micro-batches; `overwrite` is Spark's complete mode."""
        from txlog.spark_ext.source.writer import stream_writer

        self._options.require_writing()
        return stream_writer(self._options, schema, overwrite)

    def _snapshot(self) -> tuple[Store, Snapshot]:
        from txlog.snapshot.time_travel import snapshot_at

        options = self._options
        store = options.store()
        version, moment = options.number("versionAsOf", least=0), options.moment("timestampAsOf")
        if version is not None and moment is not None:
            raise InvalidInputError(
                argument="timestampAsOf",
                reason="versionAsOf and timestampAsOf both choose a version",
                remedy="Pass only one of them",
            )
        return store, snapshot_at(store, version, moment)
