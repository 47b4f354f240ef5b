"""The data source `txlog`."""

from __future__ import annotations

import json

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType as SparkStruct

from txlog.errors import InvalidInputError
from txlog.expressions import as_expression
from txlog.schema import schema_json
from txlog.snapshot import Snapshot, load_snapshot, parse_timestamp, version_at
from txlog.spark_ext.options import Options
from txlog.spark_ext.reader import FragmentsReader
from txlog.spark_ext.writer import BatchWriter, StreamWriter, plan_spark_write
from txlog.store import Store


class TxlogDataSource(DataSource):
    """Delta tables for Spark, without a JVM package.

    Options for reading: `versionAsOf`, `timestampAsOf`, `columns` (names with commas: Spark does
    not tell a Python source which ones it needs), `where` (SQL text). For writing: `partitionBy`,
    `replaceWhere`, `partitionOverwriteMode`, `mergeSchema`, `overwriteSchema`, `maxRecordsPerFile`,
    `txnAppId`, `txnVersion`, `userMetadata`. For both: `storageOptions` (a JSON object).
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
        whole = SparkStruct.fromJson(json.loads(schema_json(snapshot.schema)))
        columns = self._options.names("columns")
        if columns is None:
            return whole
        found = [snapshot.schema.get(name) for name in columns]
        missing = [name for name, held in zip(columns, found, strict=True) if held is None]
        if missing:
            raise InvalidInputError(
                argument="columns",
                field=missing[0],
                reason="the table has no such column",
                remedy=f"Choose from {', '.join(snapshot.schema.names())}",
            )
        return SparkStruct([whole[held.name] for held in found if held is not None])

    def reader(self, schema: SparkStruct) -> FragmentsReader:
        """Return a reader of the columns of `schema`."""
        store, snapshot = self._snapshot()
        where = as_expression(self._options.text("where"))
        return FragmentsReader(store, snapshot, schema, where)

    def writer(self, schema: SparkStruct, overwrite: bool) -> BatchWriter:
        """Return a writer of one batch."""
        return BatchWriter(plan_spark_write(self._options, schema, overwrite))

    def streamWriter(self, schema: SparkStruct, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Return a writer of micro-batches; `overwrite` is Spark's complete mode."""
        return StreamWriter(plan_spark_write(self._options, schema, overwrite))

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
