"""The tasks of a write, which write their rows as files of the table.

A Python worker imports this module for its first task, so the module imports no code of commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark import TaskContext

from txlog.data_files.definition import PLAIN, Definition
from txlog.data_files.modes import (
    ComputedFrom,
    PartitionMode,
    SchemaMode,
    WriteMode,
    WriteModes,
    computed_from_in,
)
from txlog.data_files.options import WriteOptions, as_names

if TYPE_CHECKING:
    from txlog.actions.table import Metadata
    from txlog.commit.app_versions import AnyAppVersion
    from txlog.data_files.write_plan import WritePlan
    from txlog.expressions.tree import Expression
    from txlog.snapshot.snapshot import Snapshot
    from txlog.store.base import Store
    from txlog.verbs.quarantine import Write
    from txlog.verbs.replace import Replacement

QUERY_ID = "sql.streaming.queryId"  # A local property of the thread and the tasks of a micro-batch.
BATCH_ID = "streaming.sql.batchId"  # Another one.
SESSION_PARTITION_MODE = "spark.sql.sources.partitionOverwriteMode"
SESSION_APP_ID = "spark.databricks.delta.write.txnAppId"  # Settings of delta-spark.
SESSION_TXN = "spark.databricks.delta.write.txnVersion"
SESSION_AUTO_RESET = f"{SESSION_TXN}.autoReset.enabled"
OF_SESSION = (SESSION_PARTITION_MODE, SESSION_APP_ID, SESSION_TXN, SESSION_AUTO_RESET)
"""Settings of the session that a write by the format must follow. Only tasks can read them."""


@dataclass(frozen=True)
class StreamBatch:
    """A micro-batch of a streaming query, for the parameters of its commit."""

    query_id: str
    epoch_id: int
    output_mode: Literal["Append", "Complete"]


@dataclass(frozen=True)
class WriteRequest:
    """The request of a caller, before the table is known.

    Raises
    ------
    InvalidInputError
        As for `WriteModes`.
    """

    mode: WriteMode = "append"
    definition: Definition = PLAIN  # Of a new table; an existing one must already have it.
    where: Expression | None = None  # Replace only these rows.
    partition_mode: PartitionMode = "static"
    follows_session: bool = False  # Whether the session may change `partition_mode`.
    schema_mode: SchemaMode = None
    options: WriteOptions = field(default_factory=WriteOptions)
    user_metadata: str | None = None
    stream_batch: StreamBatch | None = None  # The micro-batch, if a stream makes the commit.
    replaces: bool = False  # Whether the table becomes what `definition` says, as a new one.
    codec: str | None = None  # Of the files of this write. None: as the table's property says.
    computed_from: ComputedFrom = None  # What the caller says of the rows. None: nothing is said.

    def __post_init__(self) -> None:
        _ = self.modes  # It raises.
        computed_from_in(self.mode, self.computed_from)

    @property
    def modes(self) -> WriteModes:
        """What is replaced."""
        columns = self.definition.partition_by if self.schema_mode == "overwrite" else None
        return WriteModes(
            mode=self.mode,
            where=self.where,
            partition_mode=self.partition_mode,
            schema_mode=self.schema_mode,
            partition_by=None if columns is None else as_names(columns),
        )


@dataclass(frozen=True)
class Refused:
    """Where tasks write rows that do not fit, as files of the quarantine. It pickles."""

    store: Store
    plan: WritePlan
    write: Write
    base: Snapshot  # The version of the quarantine, without its list of files.
    table_id: str  # What names the table that is written.
    place: tuple[str, ...]  # Its ids, as `place_of` returns them.
    own_id: str  # The id of the rows, if no application names the write.

    def batch(self, txn: AnyAppVersion | None) -> str:
        """Return the id of the rows of an application's version."""
        from txlog.verbs.quarantine import batch_id

        return batch_id(txn, self.place) or self.own_id


@dataclass(frozen=True)
class Target:
    """A checked write to a table, or to a new one. It pickles, without what only the log needs."""

    store: Store
    request: WriteRequest
    plan: WritePlan
    metadata: Metadata  # Of the existing table, or of the new one.
    base: Snapshot | None  # The version for which files are written, without its list of files.
    numbered: tuple[str, ...] = ()  # Identity columns that the rows leave out.
    replacement: Replacement | None = None  # What the table becomes, if it is replaced.
    computed_from: int | None = None  # The version of the table that the frame reads, if it does.
    refused: Refused | None = None  # None: rows that do not fit are an error.

    def from_version(self, found: int | None) -> Target:
        """Return the target for rows from a version, unless the caller says something else."""
        stated = self.request.computed_from
        if stated is not None:
            found = None if isinstance(stated, str) else stated
        return replace(self, computed_from=found)

    @property
    def written_for(self) -> str:
        """A digest of the state on which the files of this write depend."""
        return self.plan.written_for(None if self.base is None else self.metadata.id)

    def in_session(self, partition_mode: str | None) -> Target:
        """Return the target with a session's `SESSION_PARTITION_MODE`, if it applies.

        As in Delta, it does not apply if the caller defines what is replaced, or if the table has
        no partitions.
        """
        request = self.request
        is_explicit = request.where is not None or request.modes.replaces_schema
        if is_explicit or not request.follows_session or not self.metadata.partition_columns:
            return self
        if (partition_mode or "").lower() != "dynamic":
            return self
        return replace(self, request=replace(request, partition_mode="dynamic"))

    def in_stream(self, query_id: str, epoch_id: int) -> Target:
        """Return the target for a micro-batch of a query; the commit has its id."""
        mode: Literal["Append", "Complete"]
        mode = "Complete" if self.request.mode == "overwrite" else "Append"
        batch = StreamBatch(query_id, epoch_id, mode)
        return replace(self, request=replace(self.request, stream_batch=batch))


def write_task(target: Target, batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Write a task's rows as data files, and return their `add` actions; runs on an executor.

    If anything fails, the files of this attempt are deleted.
    """
    from txlog.commit.context import Context

    reader = _reader(batches)
    plan = counting(target.plan) if target.numbered else target.plan
    adds = [] if reader is None else plan.write(Context(target.store), reader)
    return [add.to_json() for add in adds]


def any_task(
    target: Target, batches: Iterator[pa.RecordBatch], txn: AnyAppVersion | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Write a task's rows; returns and errors as `sifting_task`, if there is a quarantine."""
    if target.refused is None:
        return write_task(target, batches), []
    return sifting_task(target, batches, txn)


def sifting_task(
    target: Target, batches: Iterator[pa.RecordBatch], txn: AnyAppVersion | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Write a task's rows, and those that do not fit to the quarantine; runs on an executor.

    `txn` is the application's version of the write, if it has one.

    Returns
    -------
    The `add` actions of the table, and those of the quarantine. If anything fails, the files of
    this attempt are deleted.
    """
    from txlog.base.effects import REAL
    from txlog.commit.context import Context
    from txlog.data_files.sieve import Faults, sieve_into
    from txlog.data_files.write import discard_files
    from txlog.verbs.quarantine import Spool, described

    reader, refused = _reader(batches), target.refused
    assert refused is not None
    if reader is None:
        return [], []
    spool = Spool()

    def take(batch: pa.RecordBatch, faults: Faults) -> None:
        for rows in described(batch, faults, refused.write, REAL.now_ms()):
            spool.add(rows)

    plan = counting(target.plan) if target.numbered else target.plan
    adds = plan.write(Context(target.store), reader, sieve=sieve_into(take))
    kept = []
    if spool.num_rows:
        try:
            kept = refused.plan.write(Context(refused.store), spool.reader(refused.batch(txn)))
        except BaseException:
            discard_files(target.store, adds)
            raise
    return [add.to_json() for add in adds], [add.to_json() for add in kept]


def counting(plan: WritePlan) -> WritePlan:
    """Return a plan in which identity columns get other values than in other tasks.

    Raises
    ------
    SchemaMismatchError
        There are more tasks than `LANES`.
    """
    from txlog.base.errors import SchemaMismatchError
    from txlog.data_files.identity import LANES

    context = TaskContext.get()
    place = 0 if context is None else context.partitionId()
    if place >= LANES:
        raise SchemaMismatchError(
            argument="data",
            reason=f"at most {LANES} tasks can number identity columns, and this is task {place}",
            remedy="Write fewer partitions: call coalesce on the frame",
        )
    return replace(plan, lane=(place, LANES))


def task_property(name: str) -> str | None:
    """Return a local property of the running task, or None if it has none."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _reader(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader | None:
    """Return batches as a stream, or None without batches, because the schema is unknown then."""
    first = next(batches, None)
    if first is None:
        return None

    def all_batches() -> Iterator[pa.RecordBatch]:
        yield first
        yield from batches

    return pa.RecordBatchReader.from_batches(first.schema, all_batches())
