"""The data source `txlog`."""

from __future__ import annotations

import json

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
)
from pyspark.sql.types import StructType as SparkStruct

from txlog.errors import InvalidInputError
from txlog.expressions import as_expression
from txlog.scan import choose_columns, scan_schema
from txlog.schema import StructType, schema_json
from txlog.snapshot import Snapshot, load_snapshot, parse_timestamp, version_at
from txlog.spark_ext.options import Options
from txlog.spark_ext.reader import MAX_PARTITION_BYTES, FragmentsReader
from txlog.spark_ext.writer import batch_writer, stream_writer
from txlog.store import Store


class TxlogDataSource(DataSource):
    """Delta tables for Spark, without a JVM package.

    Options for reading, as Spark tells a Python source neither columns nor limits:

    - `versionAsOf`, `timestampAsOf`: another version than the latest.
    - `columns`: names with commas, or a JSON list; the table's, or metadata columns (`_rowid`,
      `_rowaddr`, `_fragid`, `_row_last_updated_at_version`). Empty text is no column: rows that
      can be counted, from the log alone where it knows.
    - `where`: SQL text; only rows of which it is true.
    - `limit`: at most so many rows, of those that `where` keeps: the first ones, by fragment and
      position. No more fragments are opened than they need, as far as the log counts rows. What
      Spark filters by itself, it filters after that.
    - `maxPartitionBytes`: a larger fragment is read by several tasks, by row groups. Default:
      134217728 (128 MB). Spark's own setting for files does not reach Python sources.

    For writing: `partitionBy`, `replaceWhere`, `partitionOverwriteMode`, `mergeSchema`,
    `overwriteSchema`, `maxRecordsPerFile`, `txnAppId`, `txnVersion`, `userMetadata`,
    `tableProperties` (a JSON object). For a stream: `txnAppId`. For both: `storageOptions` (a JSON
    object), or `secretStorageOptions`, which Spark keeps out of plans without `register`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "txlog"

    @property
    def _options(self) -> Options:
        return Options(self.options)

    def schema(self) -> SparkStruct:
        """Return the table's schema, or that of the chosen columns."""
        _, snapshot = self._snapshot()
        columns = self._options.columns()
        chosen = snapshot.schema
        if columns is not None:
            chosen = StructType(choose_columns(scan_schema(snapshot), columns))
        return SparkStruct.fromJson(json.loads(schema_json(chosen)))

    def reader(self, schema: SparkStruct) -> FragmentsReader:
        """Return a reader of the columns of `schema`."""
        store, snapshot = self._snapshot()
        options = self._options
        return FragmentsReader(
            store,
            snapshot,
            schema,
            as_expression(options.text("where")),
            limit=options.number("limit", least=0),
            max_partition_bytes=options.number("maxPartitionBytes", least=1) or MAX_PARTITION_BYTES,
        )

    def writer(self, schema: SparkStruct, overwrite: bool) -> DataSourceArrowWriter:
        """Return a writer of one batch."""
        return batch_writer(self._options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: SparkStruct, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """Return a writer of micro-batches; `overwrite` is Spark's complete mode."""
        return stream_writer(self._options, schema, overwrite)

    def _snapshot(self) -> tuple[Store, Snapshot]:
        options = self._options
        store = options.store()
        version, moment = options.number("versionAsOf"), options.text("timestampAsOf")
        if version is not None and moment is not None:
            raise InvalidInputError(
                argument="timestampAsOf", reason="versionAsOf and timestampAsOf exclude each other"
            )
        snapshot = load_snapshot(store, version=version)
        if moment is not None:
            at = version_at(store, snapshot, parse_timestamp(moment))
            snapshot = load_snapshot(store, version=at)
        return store, snapshot
