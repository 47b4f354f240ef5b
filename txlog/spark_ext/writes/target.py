"""Spark writes: the driver plans the target, tasks write the files, the driver commits once.

Rules: spec/streaming.md, STR-40 to STR-49.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql.types import StructType as SparkStruct

from txlog.actions.file import Add
from txlog.actions.table import Metadata
from txlog.base.effects import REAL
from txlog.base.errors import AlreadyExistsError, CommitConflictError, NotFoundError
from txlog.base.texts import without_secrets
from txlog.base.threads import Engine
from txlog.commit.app_versions import AnyAppVersion
from txlog.commit.context import Context, require_shared
from txlog.commit.intent import Intent, Reads
from txlog.commit.operation import (
    Companion,
    Done,
    Operation,
    Outcome,
    discarding,
    execute,
    require_table_writable,
    skip_recorded,
)
from txlog.data_files.identity import counted, identities, with_marks
from txlog.data_files.modes import require_version_known
from txlog.data_files.options import WriteOptions
from txlog.data_files.write import discard_files
from txlog.data_files.write_plan import (
    AddedFiles,
    partitioned_by,
    plan_append,
    plan_write,
    require_still_fits,
    schema_after,
)
from txlog.protocol.mapping import MAPPING_MODE
from txlog.protocol.properties import Properties
from txlog.scan.lazy_plan import planner_of
from txlog.schema.arrow import from_arrow
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.spark_ext.spark_types import frame_schema, require_storable
from txlog.spark_ext.writes.write_tasks import Refused, StreamBatch, Target, WriteRequest
from txlog.store.base import Store
from txlog.store.branches import chain_of
from txlog.table.write_table import require_defined
from txlog.verbs.append import Append
from txlog.verbs.create import CreateTable, NewTable, already_exists, create, existing, table_for
from txlog.verbs.overwrite import Overwrite
from txlog.verbs.quarantine import (
    COLUMNS,
    Quarantine,
    Write,
    WrittenQuarantine,
    place_of,
    require_columns,
    table_id,
)
from txlog.verbs.replace import ReplaceTable, replacement
from txlog.verbs.settle import settle


class StreamingUpdate(Operation):
    """An operation that is committed as a micro-batch of a streaming query."""

    name = "STREAMING UPDATE"

    def __init__(self, operation: Operation, batch: StreamBatch) -> None:
        self._operation = operation
        self._batch = batch
        self.removes_rows = operation.removes_rows
        self.keeps_files = operation.keeps_files

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the intent of the wrapped operation, as that of a micro-batch."""
        intent = self._in_context().intent(base)
        return None if intent is None else stated(intent, self._batch)

    def creation(self) -> Intent:
        """Return the intent of the wrapped operation, as that of a micro-batch."""
        return stated(self._in_context().creation(), self._batch)

    def read(self) -> Reads:
        """Return the rows that the wrapped operation read."""
        return self._in_context().read()

    def companions(self, txn: AnyAppVersion | None) -> Sequence[Companion]:
        """Return those of the wrapped operation."""
        return self._in_context().companions(txn)

    def side_metrics(self) -> Mapping[str, int]:
        """Return those of the wrapped operation."""
        return self._in_context().side_metrics()

    def landed(self, intent: Intent) -> None:
        """Clean up after the wrapped operation."""
        self._in_context().landed(intent)

    def discard(self) -> None:
        """Delete the files of the wrapped operation."""
        self._in_context().discard()

    def _in_context(self) -> Operation:
        self._operation.context = self.context
        return self._operation


def stated(intent: Intent, batch: StreamBatch) -> Intent:
    """Return an intent with Delta's name and parameters for the commit of a stream."""
    metrics = {
        "numAddedFiles": intent.metrics.get("numFiles", 0),
        "numRemovedFiles": intent.metrics.get("numRemovedFiles", 0),
        **{name: value for name, value in intent.metrics.items() if name != "numFiles"},
    }
    parameters = {
        "outputMode": batch.output_mode,
        "queryId": batch.query_id,
        "epochId": str(batch.epoch_id),
    }
    return replace(intent, operation="STREAMING UPDATE", parameters=parameters, metrics=metrics)


def plan_target(
    store: Store, request: WriteRequest, schema: SparkStruct, table: Snapshot | None
) -> Target:
    """Check a write against the table (None: it does not exist), before tasks run.

    Raises
    ------
    InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
        As for the verbs of `Table`.
    """
    store.require_writable()
    # In a store in memory, each worker would write to its own memory.
    require_shared(
        store, argument="path", remedy="Put the table in a store that all workers can access"
    )
    if request.computed_from is not None:
        latest = None if table is None else table.version
        require_version_known(request.computed_from, latest, store.root)
    data, modes = frame_schema(schema), request.modes
    planned = None
    if table is None:
        require_storable(data)
        new = table_for(data, request.definition, effects=REAL)
        metadata, final = new.metadata, new.schema
    elif request.replaces:
        require_table_writable(table, removes_rows=True)
        require_storable(data)
        planned = replacement(table, data, request.definition, effects=REAL)
        metadata, final = planned.metadata, planned.schema
    else:
        require_table_writable(table, removes_rows=request.mode == "overwrite")
        require_defined(table, request.definition, modes)
        final = schema_after(table, data, modes)
        metadata = partitioned_by(table.metadata, final, modes.partition_by)
    require_storable(final)
    mode = Properties(metadata.configuration).get(MAPPING_MODE)
    protocol = None if table is None else table.protocol
    if planned is not None:
        protocol = planned.protocol
    return Target(
        store=store,
        request=request,
        plan=plan_write(
            _compressed(metadata, request.codec),
            final,
            request.options,
            mapping_mode=mode if table is None or planned is not None else table.mapping_mode,
            protocol=protocol,
            replaced=request.where,
        ),
        metadata=metadata,
        base=None if table is None else table.without_files(),
        numbered=tuple(name for name in identities(final) if data.get(name) is None),
        replacement=planned,
    )


def with_refused(target: Target, there: Context) -> Target:
    """Return a target whose tasks put rows that do not fit into a quarantine.

    The quarantine is made if there is none.

    Raises
    ------
    InvalidInputError
        The table would be its own quarantine.
    SchemaMismatchError
        The quarantine has other columns.
    """
    require_shared(
        there.store,
        argument="quarantine",
        remedy="Put it in a store that all workers can access",
    )
    Quarantine(there, Context(target.store))  # It raises.
    base = existing(there.store)
    if base is None:
        try:
            base = create(there, from_arrow(COLUMNS)).snapshot
        except AlreadyExistsError:
            base = load_snapshot(there.store)
    require_table_writable(base, removes_rows=False)
    require_columns(base)
    version = None if target.base is None else target.base.version
    named = table_id(target.store, target.base)
    refused = Refused(
        there.store,
        plan_append(base, base.schema, WriteOptions()),
        Write(without_secrets(target.store.root), version, "WRITE"),
        base.without_files(),
        named,
        place_of(target.store, named),
        REAL.uuid(),
    )
    return replace(target, refused=refused)


def kept_of(target: Target, adds: list[Add], txn: AnyAppVersion | None) -> WrittenQuarantine | None:
    """Return the rows that tasks wrote to the quarantine of a target; None: it has none.

    `txn` is the application's version that the tasks knew.
    """
    refused = target.refused
    if refused is None:
        return None
    return WrittenQuarantine(
        Context(refused.store),
        Context(target.store),
        table_id=refused.table_id,
        own_id=refused.own_id,
        base=refused.base,
        adds=adds,
        txn=txn,
    )


def _compressed(metadata: Metadata, codec: str | None) -> Metadata:
    """Return metadata whose property names a codec; only the plan of the files uses it."""
    if codec is None:
        return metadata
    changed = metadata.configuration | {"delta.parquet.compression.codec": codec}
    return metadata.model_copy(update={"configuration": changed})


def commit_files(
    target: Target,
    adds: list[Add],
    txn: AnyAppVersion | None,
    *,
    written_for: Collection[str] = (),
    may_make: bool = True,
    quarantine: WrittenQuarantine | None = None,
    engine: Engine | None = None,
) -> Outcome:
    """Commit the files of tasks as one version; runs on the driver.

    Files that are not committed are deleted, unless the outcome is unknown.

    Parameters
    ----------
    written_for
        The digests of the states for which tasks wrote files (`Target.written_for`).
    may_make
        Whether the table may be missing.
    quarantine
        The rows that do not fit.
    engine
        Does the work of an overwrite if its workers plan changes of a table of this size.

    Raises
    ------
    NotFoundError
        There is no table, and `may_make` is false.
    CommitConflictError
        The table was created, replaced or changed since the tasks wrote for it.
    AlreadyExistsError
        The table was created in the meantime, and the mode is `error`.
    """
    context = Context(target.store)

    def discard() -> None:
        discard_files(target.store, adds)
        if quarantine is not None:
            quarantine.discard()

    with discarding(discard):
        latest = existing(target.store)
        settled = None if latest is None else _settled(target, latest, txn)
        if settled is None:
            _require_planned(target, latest, written_for)
        if latest is None and not may_make:
            raise _vanished(target)
        if latest is not None and settled is None:
            _require_same_branch(target, latest)
            if target.request.mode == "overwrite":
                planner = planner_of(target.store, latest, engine)
                context = context if planner is None else replace(context, engine=planner)
    if settled is not None:
        discard()
        return settled.outcome
    if latest is not None:
        landed = _changed(context, target, latest, adds, txn, quarantine)
        if landed.outcome.skipped and quarantine is not None:
            quarantine.discard()
    else:
        landed = _made(context, target, adds, txn, quarantine)
    settle(context, landed)
    return landed.outcome


def _settled(target: Target, latest: Snapshot, txn: AnyAppVersion | None) -> Done | None:
    """Return the result of the write if the table needs no change, or None."""
    recorded = skip_recorded(latest, txn)
    if recorded is None and target.request.mode == "ignore":
        return Done(Outcome("WRITE", None), latest)
    return recorded


def _require_planned(target: Target, latest: Snapshot | None, written_for: Collection[str]) -> None:
    """Raise if the table was deleted, created or changed after the files were written."""
    if target.base is None and latest is not None:
        if target.request.mode == "error":
            raise already_exists(target.store)
        reason = "another writer created the table"
    elif target.base is not None and latest is None:
        reason = "the table was deleted"
    elif any(one != target.written_for for one in written_for):
        reason = "the table was created, replaced or changed"
    else:
        return
    raise _conflict(target, latest, f"{reason} while the rows were written")


def _require_same_branch(target: Target, latest: Snapshot) -> None:
    """Raise unless a branch has the earlier batches of a stream.

    It lacks them if it was made anew, or if the query wrote them elsewhere.

    A query names its branch, and each batch looks the name up. A batch without rows is a version,
    too (STR-43), so the branch, or its table before the branch was made, has recorded the last one.

    Raises
    ------
    NotFoundError
        The last batch is not recorded.
    """
    branch, batch = chain_of(target.store), target.request.stream_batch
    if branch is None or batch is None or not batch.epoch_id:
        return
    if latest.properties.get("delta.setTransactionRetentionDuration") is not None:
        return  # What was recorded may be forgotten.
    recorded = latest.transaction_version(batch.query_id)
    if recorded is None or recorded < batch.epoch_id - 1:
        raise NotFoundError(
            path=target.store.root,
            reason=f"the branch {branch.name!r} lacks the record of batch {batch.epoch_id - 1}, "
            "the last one that the query wrote: the query wrote it elsewhere (to the table, or to "
            "a branch that was discarded or published), or the branch was made or restored from "
            "a version before it",
            remedy="Nothing was committed. Start the query again with a new checkpoint, on this "
            "branch or on another one",
        )


def _vanished(target: Target) -> NotFoundError:
    return NotFoundError(
        path=target.store.root,
        reason="the query wrote earlier batches to a table here, and it no longer exists",
        remedy="Restore the table, or create an empty one for the later batches. With a new "
        "checkpoint, the query starts again",
    )


def _conflict(target: Target, latest: Snapshot | None, reason: str) -> CommitConflictError:
    return CommitConflictError(
        version=-1 if latest is None else latest.version,
        rule="CON-2",
        path=target.store.root,
        reason=reason,
        remedy="Nothing was committed; write again",
    )


def _made(
    context: Context,
    target: Target,
    adds: list[Add],
    txn: AnyAppVersion | None,
    quarantine: WrittenQuarantine | None,
) -> Done:
    """Create the table from the files."""
    request = target.request
    new = NewTable(target.metadata, target.plan.schema, request.definition.clustering())
    create_table = CreateTable(partial(new.intent, adds), owned=adds, quarantine=quarantine)
    operation = _of_stream(create_table, request)
    try:
        return execute(operation, context, None, txn=txn, user_metadata=request.user_metadata)
    except AlreadyExistsError:
        if request.mode == "error":
            raise
    latest = existing(context.store)
    settled = None if latest is None else _settled(target, latest, txn)
    if quarantine is not None and (settled is None or not settled.outcome.skipped):
        quarantine.withdraw(txn)  # No run of this write is in the table.
    if settled is None:
        raise _conflict(target, latest, "another writer created the table at the same time")
    return settled


def _of_stream(operation: Operation, request: WriteRequest) -> Operation:
    """Return an operation as that of the request's micro-batch, if it is one."""
    batch = request.stream_batch
    return operation if batch is None else StreamingUpdate(operation, batch)


def _changed(
    context: Context,
    target: Target,
    latest: Snapshot,
    adds: list[Add],
    txn: AnyAppVersion | None,
    quarantine: WrittenQuarantine | None,
) -> Done:
    """Add the files to the table, or replace other files by them."""
    if target.base is None:  # `_require_planned` raises first.
        raise _conflict(target, latest, "another writer created the table")
    request = target.request
    if target.replacement is not None:
        replacing = ReplaceTable.of_files(
            target.replacement, adds, written_for=target.computed_from, or_create=True
        )
        return execute(replacing, context, latest, txn=txn, user_metadata=request.user_metadata)
    files = AddedFiles.written(
        adds,
        with_marks(
            target.plan.schema,
            counted(target.plan.schema, target.numbered, adds, target.base.mapping_mode),
        ),
        partial(require_still_fits, written_for=target.base, numbered=target.numbered),
        modes=request.modes,
    )
    operation: Operation
    if request.mode == "overwrite":
        operation = Overwrite(
            files,
            options=request.options,
            computed_from=target.computed_from,
            quarantine=quarantine,
        )
    else:
        operation = Append.of_files(files, quarantine)
    operation = _of_stream(operation, request)
    return execute(operation, context, latest, txn=txn, user_metadata=request.user_metadata)
