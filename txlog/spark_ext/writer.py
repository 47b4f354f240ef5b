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
from txlog.errors import CommitConflictError, InvalidInputError
from txlog.expressions import Expression, as_expression
from txlog.schema import StructField, StructType, parse_schema
from txlog.snapshot import Snapshot
from txlog.spark_ext.options import Options
from txlog.store import Store
from txlog.writing import (
    AppTransaction,
    Outcome,
    PartitionMode,
    Place,
    SchemaMode,
    WritePlan,
    commit_append,
    commit_new_table,
    commit_overwrite,
    discard_files,
    existing,
    maintain,
    new_metadata,
    plan_write,
    require_modes,
    require_table_writable,
    target_schema,
)

_QUERY_ID = "sql.streaming.queryId"


@dataclass
class Written(WriterCommitMessage):
    """What a task wrote, of which streaming query it is a part, and for which table."""

    adds: list[dict[str, Any]]
    query_id: str | None
    written_for: str


@dataclass(frozen=True)
class Target:
    """What a write is to do, decided on the driver before its tasks run. It pickles."""

    store: Store
    options: Options
    plan: WritePlan
    metadata: Metadata  # Of the table as it is, or as it will be made.
    makes_table: bool
    snapshot: Snapshot | None  # The table as it is, where it is known.
    overwrite: bool
    replaced: Expression | None  # Replace only these rows.
    partition_mode: PartitionMode
    schema_mode: SchemaMode

    def __getstate__(self) -> dict[str, Any]:
        # Tasks need no snapshot; what the driver commits on, it holds itself.
        return {**self.__dict__, "snapshot": None}

    @property
    def written_for(self) -> str:
        """What the files of this write depend on, as text: a commit for anything else is refused.

        A streaming commit is planned anew, after its tasks have written.
        """
        return self.plan.written_for(None if self.makes_table else self.metadata.id)


def plan_spark_write(options: Options, schema: SparkStruct, overwrite: bool) -> Target:
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
        final = data
        metadata = new_metadata(
            data,
            partition_by=partition_by or [],
            properties=options.properties(),
            name=None,
            description=None,
            effects=REAL,
        )
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
        metadata = snapshot.metadata
    return Target(
        store=store,
        options=options,
        plan=plan_write(metadata, final, options.write_options(), replaced=replaced),
        metadata=metadata,
        makes_table=snapshot is None,
        snapshot=snapshot,
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
    context = TaskContext.get()
    query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
    reader = _reader(batches)
    adds = [] if reader is None else target.plan.write(Place(target.store), reader)
    return Written([add.to_json() for add in adds], query_id, target.written_for)


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
    """Commit what the tasks wrote, in one version; runs on the driver.

    Raises
    ------
    CommitConflictError
        The table is not what the tasks wrote for: it was made, replaced or changed meanwhile.
    """
    written = [message for message in messages if message is not None]
    adds = [Add.model_validate(add) for message in written for add in message.adds]
    place = Place(target.store)
    cut = target.options.write_options()
    snapshot = target.snapshot
    if snapshot is None and not target.makes_table:
        snapshot = existing(target.store)  # The plan came from another process.
    if any(message.written_for != target.written_for for message in written):
        discard_files(target.store, adds)
        raise CommitConflictError(
            version=-1 if snapshot is None else snapshot.version,
            rule="CON-2",
            path=target.store.root,
            reason="the table was made, replaced or changed while the rows were written",
            remedy="Nothing was committed; write again",
        )
    if snapshot is None:
        made = commit_new_table(
            place,
            target.metadata,
            target.plan.schema,
            adds,
            txn=txn,
            options=cut,
            allow_existing=False,
        )
        assert made is not None
        done = made
    elif target.overwrite:
        done = commit_overwrite(
            place,
            snapshot,
            adds,
            target.plan.schema,
            predicate=target.replaced,
            partition_mode=target.partition_mode,
            schema_mode=target.schema_mode,
            txn=txn,
            options=cut,
        )
    else:
        done = commit_append(
            place,
            snapshot,
            adds,
            target.plan.schema,
            schema_mode=target.schema_mode,
            txn=txn,
            options=cut,
        )
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
