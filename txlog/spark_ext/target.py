"""What a write of Spark is to do: decided on the driver, done by tasks, committed once.

Rules: spec/streaming.md, STR-40 to STR-49.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from pyspark.sql.types import StructType as SparkStruct

from txlog.actions.file import Add
from txlog.actions.table import Metadata
from txlog.effects import REAL
from txlog.errors import CommitConflictError, NotFoundError
from txlog.snapshot.snapshot import Snapshot
from txlog.spark_ext.types import frame_schema, require_storable
from txlog.spark_ext.write_tasks import Target, WriteRequest
from txlog.store.base import Store
from txlog.write_table import require_same
from txlog.writing.append import commit_append
from txlog.writing.checkpoint import maintain
from txlog.writing.create import already_exists, commit_new_table, existing, new_metadata
from txlog.writing.data import target_schema
from txlog.writing.files import discard_files, discarding
from txlog.writing.operation import (
    AppTransaction,
    Done,
    Outcome,
    Place,
    QueryTransaction,
    Transaction,
    done,
    require_shared,
    require_table_writable,
    skip_recorded,
)
from txlog.writing.overwrite import commit_overwrite, require_modes
from txlog.writing.plan import plan_write, require_still_fits


def plan_target(
    store: Store, request: WriteRequest, schema: SparkStruct, table: Snapshot | None
) -> Target:
    """Check a write against the table (None: there is none), before a task runs.

    Raises
    ------
    InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
        As for the verbs of `Table`.
    """
    store.require_writable()
    # Each worker would write its files to memory of its own, and they would be gone with it.
    require_shared(store, argument="path", remedy="Put the table where all workers reach it")
    data = frame_schema(schema)
    if table is None:
        final = data
        metadata = new_metadata(
            data,
            partition_by=request.partition_by or (),
            properties=request.properties,
            name=None,
            description=None,
            effects=REAL,
        )
    else:
        overwrites = request.mode == "overwrite"
        require_table_writable(table, removes_rows=overwrites)
        require_same(table, request.partition_by, request.properties)
        if overwrites:
            require_modes(table, request.where, request.partition_mode, request.schema_mode)
        final = target_schema(table.schema, data, request.schema_mode)
        metadata = table.metadata
    require_storable(final)
    return Target(
        store=store,
        request=request,
        plan=plan_write(
            _compressed(metadata, request.codec), final, request.options, replaced=request.where
        ),
        metadata=metadata,
        base=None if table is None else table.without_files(),
    )


def _compressed(metadata: Metadata, codec: str | None) -> Metadata:
    """Return a table's metadata as if its property named a codec; only files are planned by it."""
    if codec is None:
        return metadata
    changed = metadata.configuration | {"delta.parquet.compression.codec": codec}
    return metadata.model_copy(update={"configuration": changed})


def transaction_in(query_id: str | None, txn: AppTransaction | None) -> Transaction | None:
    """Return a batch write's transaction, in a micro-batch with its query (STR-49)."""
    if txn is None or query_id in (None, txn[0]):
        return txn
    return QueryTransaction(*txn, query_id, whole_batch=False)


def commit_files(
    target: Target,
    adds: list[Add],
    txn: Transaction | None,
    *,
    written_for: Collection[str] = (),
    may_make: bool = True,
) -> Outcome:
    """Commit what the tasks wrote, in one version; runs on the driver.

    Files that are not committed are deleted, unless that is uncertain.

    Parameters
    ----------
    written_for
        What the files depend on, if the target was made after they were written.
    may_make
        Whether there may be no table yet.

    Raises
    ------
    NotFoundError
        There is no table, and none may be made.
    CommitConflictError
        The table is not what the tasks wrote for: it was made, replaced or changed meanwhile.
    AlreadyExistsError
        It was made meanwhile, and the mode is `error`.
    """
    place = Place(target.store)
    with discarding(lambda: discard_files(target.store, adds)):
        latest = existing(target.store)
        settled = None if latest is None else _settled(target, latest, txn)
        if settled is None:
            _require_planned(target, latest, written_for)
        if latest is None and not may_make:
            raise _vanished(target)
    if settled is not None:
        discard_files(target.store, adds)
        return settled.outcome
    if latest is None:
        landed = _made(place, target, adds, txn)
    else:
        landed = _changed(place, target, latest, adds, txn)
    maintain(place, landed)
    return landed.outcome


def _settled(target: Target, latest: Snapshot, txn: Transaction | None) -> Done | None:
    """Return what comes of the write if the table as it is leaves nothing to do, or None."""
    recorded = skip_recorded(latest, txn)
    if recorded is None and target.request.mode == "ignore":
        return done("WRITE", latest, None, skipped=False)
    return recorded


def _require_planned(target: Target, latest: Snapshot | None, written_for: Collection[str]) -> None:
    """Refuse files that were written for a table which is not there now, or was not then."""
    if target.base is None and latest is not None:
        if target.request.mode == "error":
            raise already_exists(target.store)
        reason = "another writer made the table"
    elif target.base is not None and latest is None:
        reason = "the table vanished"
    elif any(one != target.written_for for one in written_for):
        reason = "the table was made, replaced or changed"
    else:
        return
    raise _conflict(target, latest, f"{reason} while the rows were written")


def _vanished(target: Target) -> NotFoundError:
    return NotFoundError(
        path=target.store.root,
        reason="the query has written batches to a table here, and there is none now",
        remedy="Bring it back, or make an empty one for the batches that follow; with a new "
        "checkpoint the query begins anew",
    )


def _conflict(target: Target, latest: Snapshot | None, reason: str) -> CommitConflictError:
    return CommitConflictError(
        version=-1 if latest is None else latest.version,
        rule="CON-2",
        path=target.store.root,
        reason=reason,
        remedy="Nothing was committed; write again",
    )


def _made(place: Place, target: Target, adds: list[Add], txn: Transaction | None) -> Done:
    """Make the table of the files."""
    made = commit_new_table(
        place,
        target.metadata,
        target.plan.schema,
        adds,
        txn=txn,
        options=target.request.options,
        allow_existing=target.request.mode != "error",
    )
    if made is not None:
        return made
    latest = existing(place.store)
    settled = None if latest is None else _settled(target, latest, txn)
    if settled is None:
        raise _conflict(target, latest, "another writer made the table at the same moment")
    return settled


def _changed(
    place: Place, target: Target, latest: Snapshot, adds: list[Add], txn: Transaction | None
) -> Done:
    """Add the files to the table, or put them in the place of others."""
    assert target.base is not None
    request = target.request
    shared: dict[str, Any] = {
        "schema_mode": request.schema_mode,
        "txn": txn,
        "options": request.options,
        "require_fit": partial(require_still_fits, written_for=target.base),
    }
    if request.mode != "overwrite":
        return commit_append(place, latest, adds, target.plan.schema, **shared)
    shared |= {"predicate": request.where, "partition_mode": request.partition_mode}
    return commit_overwrite(place, latest, adds, target.plan.schema, **shared)
