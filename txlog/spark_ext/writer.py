"""Writing with Spark: tasks write data files, the driver commits them once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType as SparkStruct

from txlog.actions import Add, Metadata
from txlog.effects import REAL
from txlog.errors import InvalidInputError
from txlog.expressions import Expression, as_expression, bind
from txlog.protocol import Properties
from txlog.schema import StructField, StructType, parse_schema
from txlog.snapshot import Snapshot
from txlog.spark_ext.options import Options
from txlog.store import Store
from txlog.writing import (
    AppTransaction,
    FileLayout,
    Outcome,
    PartitionMode,
    SchemaMode,
    Workplace,
    commit_append,
    commit_new_table,
    commit_overwrite,
    existing,
    maintain,
    new_metadata,
    write_data_files,
)
from txlog.writing.constraints import Constraint, checked, constraints_of
from txlog.writing.data import fitted, target_schema
from txlog.writing.operation import is_recorded, require_table_writable
from txlog.writing.overwrite import require_modes, satisfying

_QUERY_ID = "sql.streaming.queryId"


@dataclass
class Written(WriterCommitMessage):
    """What a task wrote, and of which streaming query it is a part."""

    adds: list[dict[str, Any]]
    query_id: str | None


@dataclass(frozen=True)
class Target:
    """What a write is to do, decided once on the driver: tasks and the commit go by it."""

    store: Store
    options: Options
    schema: StructType  # Of the table, after the write.
    layout: FileLayout
    rules: tuple[Constraint, ...]
    metadata: Metadata | None  # Of the table to be made, or None if it is there.
    overwrite: bool
    replaced: Expression | None  # Replace only these rows.
    partition_mode: PartitionMode
    schema_mode: SchemaMode


def plan_write(options: Options, schema: SparkStruct, overwrite: bool) -> Target:
    """Check a write against the table, before a task runs.

    Raises
    ------
    InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
        As for the verbs of `Table`.
    """
    store = options.store()
    store.require_writable()
    snapshot = existing(store)
    data = nullable(parse_schema(schema.json()))
    replaced = as_expression(options.text("replaceWhere")) if overwrite else None
    dynamic = (options.text("partitionOverwriteMode") or "static").lower() == "dynamic"
    mode: PartitionMode = "dynamic" if dynamic and overwrite else "static"
    schema_mode: SchemaMode = None
    if options.flag("overwriteSchema") and overwrite:
        schema_mode = "overwrite"
    elif options.flag("mergeSchema"):
        schema_mode = "merge"
    partition_by = options.names("partitionBy")
    if snapshot is None:
        metadata: Metadata | None = new_metadata(
            data,
            partition_by=partition_by or [],
            properties=options.properties(),
            name=None,
            description=None,
            effects=REAL,
        )
        assert metadata is not None
        final, partitions, held = data, partition_by or [], metadata
    else:
        require_table_writable(snapshot, removes_rows=overwrite)
        if partition_by is not None and partition_by != snapshot.partition_columns:
            raise InvalidInputError(
                argument="partitionBy",
                reason=f"the table is partitioned by {snapshot.partition_columns or 'nothing'}",
                remedy="Leave the option out; only a new table can be partitioned",
            )
        if overwrite:
            require_modes(snapshot, replaced, mode, schema_mode)
        final = target_schema(snapshot.schema, data, schema_mode)
        metadata, partitions, held = None, snapshot.partition_columns, snapshot.metadata
    properties = Properties(held.configuration)
    cut = options.write_options()
    return Target(
        store=store,
        options=options,
        schema=final,
        layout=FileLayout(
            final, tuple(partitions), properties, cut.target_file_bytes, cut.max_rows_per_file
        ),
        rules=tuple(constraints_of(held, final)),
        metadata=metadata,
        overwrite=overwrite,
        replaced=replaced,
        partition_mode=mode,
        schema_mode=schema_mode,
    )


def nullable(schema: StructType) -> StructType:
    """Return a frame's schema with all columns nullable: Spark's flags only say what it knows."""
    return StructType(tuple(StructField(f.name, f.type, True, f.metadata) for f in schema.fields))


def write_task(target: Target, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write a task's rows as data files; runs on an executor."""
    reader = _reader(batches)
    context = TaskContext.get()
    query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
    if reader is None:
        return Written([], query_id)
    rows = checked(fitted(reader, target.schema), list(target.rules))
    if target.replaced is not None:
        rows = satisfying(rows, bind(target.replaced, target.schema))
    adds = write_data_files(target.store, rows, target.layout, effects=REAL)
    return Written([add.to_json() for add in adds], query_id)


def _reader(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader | None:
    """Return batches as a stream, or None if there are none to tell the schema."""
    first = next(batches, None)
    if first is None:
        return None

    def all_batches() -> Iterator[pa.RecordBatch]:
        yield first
        yield from batches

    return pa.RecordBatchReader.from_batches(first.schema, all_batches())


def commit_task_files(
    target: Target, messages: Sequence[Any], txn: AppTransaction | None
) -> Outcome:
    """Commit what the tasks wrote, in one version; runs on the driver."""
    adds = [Add.model_validate(add) for message in messages if message for add in message.adds]
    place = Workplace(target.store)
    cut = target.options.write_options()
    snapshot: Snapshot | None = existing(target.store)
    if snapshot is None and target.metadata is not None:
        made = commit_new_table(
            place,
            target.metadata,
            target.schema,
            adds,
            txn=txn,
            options=cut,
            allow_existing=False,
        )
        assert made is not None
        return made.outcome
    if snapshot is None:
        raise InvalidInputError(
            argument="path",
            reason=f"the table {target.store.root} vanished while it was written to",
            remedy="Write again",
        )
    if is_recorded(snapshot, txn):
        return Outcome("WRITE", None, skipped=True)
    if target.overwrite:
        done = commit_overwrite(
            place,
            snapshot,
            adds,
            target.schema,
            predicate=target.replaced,
            partition_mode=target.partition_mode,
            schema_mode=target.schema_mode,
            txn=txn,
            options=cut,
        )
    else:
        done = commit_append(place, snapshot, adds, target.schema, txn=txn, options=cut)
    maintain(place, done)
    return done.outcome


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("txlog")`."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write a task's rows; runs on an executor."""
        return write_task(self._target, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit all tasks' files."""
        commit_task_files(self._target, messages, self._target.options.transaction())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave the files: nothing refers to them, unless the commit landed after all."""


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("txlog")`: each micro-batch is one version, exactly once.

    The version records `txn(appId, batch id)`. A batch that Spark runs again after a crash finds
    its id recorded, and changes nothing.
    """

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write a task's rows; runs on an executor."""
        return write_task(self._target, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit a micro-batch, unless its id is recorded already."""
        commit_task_files(self._target, messages, (self._app_id(messages), batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Leave the files: nothing refers to them, unless the commit landed after all."""

    def _app_id(self, messages: Sequence[Any]) -> str:
        """Return the option `txnAppId`, or the query's id, which its checkpoint keeps."""
        given = self._target.options.text("txnAppId")
        if given:
            return given
        for message in messages:
            if message is not None and message.query_id:
                return str(message.query_id)
        raise InvalidInputError(
            argument="txnAppId",
            reason="Spark did not tell the streaming query's id, so a batch could be doubled",
            remedy="Set the option txnAppId to a name that is stable across restarts",
        )
