"""Verbs without `Table`, one function each, for tests that choose the snapshot and the context."""

from collections.abc import Callable, Sequence
from typing import Any

from txlog.commit.app_versions import AnyAppVersion
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.commit.operation import Done, Operation, execute
from txlog.data_files.definition import Definition
from txlog.data_files.options import WriteOptions
from txlog.expressions.sql import as_expression
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.append import Append
from txlog.verbs.columns import GiveValues
from txlog.verbs.compact import Compact
from txlog.verbs.delete import Delete, DeleteFound
from txlog.verbs.features import AddFeatures
from txlog.verbs.mapped_columns import DropColumns
from txlog.verbs.merge.clauses import Clause, MergeRequest
from txlog.verbs.merge.merge import Merge
from txlog.verbs.overwrite import Overwrite
from txlog.verbs.replace import ReplaceTable
from txlog.verbs.restore import Restore
from txlog.verbs.statistics import ComputeStatistics
from txlog.verbs.update import Update


class Built(Operation):
    """An operation whose intent a function builds."""

    name = "TEST"

    def __init__(self, build: Callable[[Snapshot], Intent | None]) -> None:
        self._build = build

    def intent(self, base: Snapshot) -> Intent | None:
        return self._build(base)


def run(
    operation: Operation,
    context: Context,
    snapshot: Snapshot,
    txn: AnyAppVersion | None = None,
    user_metadata: str | None = None,
) -> Done:
    return execute(operation, context, snapshot, txn=txn, user_metadata=user_metadata)


def append(
    context: Context,
    snapshot: Snapshot,
    data: Any,
    *,
    schema_mode: Any = None,
    options: WriteOptions | None = None,
    **noted: Any,
) -> Done:
    operation = Append(data, schema_mode=schema_mode, options=options)
    return run(operation, context, snapshot, **noted)


def overwrite(
    context: Context,
    snapshot: Snapshot,
    data: Any,
    *,
    where: Any = None,
    partition_mode: Any = "static",
    schema_mode: Any = None,
    options: WriteOptions | None = None,
    **noted: Any,
) -> Done:
    operation = Overwrite.of_data(
        data,
        where=as_expression(where),
        partition_mode=partition_mode,
        schema_mode=schema_mode,
        options=options,
    )
    return run(operation, context, snapshot, **noted)


def delete(
    context: Context,
    snapshot: Snapshot,
    where: Any,
    *,
    options: WriteOptions | None = None,
    **noted: Any,
) -> Done:
    return run(Delete(as_expression(where), options=options), context, snapshot, **noted)


def update(
    context: Context, snapshot: Snapshot, updates: Any, where: Any = None, **noted: Any
) -> Done:
    return run(Update(updates, as_expression(where)), context, snapshot, **noted)


def upsert(context: Context, snapshot: Snapshot, data: Any, on: str, **noted: Any) -> Done:
    clauses = [Clause("matched", "update"), Clause("not_matched", "insert")]
    request = MergeRequest(data, on=[on], schema_mode="merge")
    operation = Merge(request, clauses)
    return run(operation, context, snapshot, **noted)


def delete_found(
    context: Context,
    snapshot: Snapshot,
    find: Any,
    *,
    description: str,
    options: WriteOptions | None = None,
    **noted: Any,
) -> Done:
    operation = DeleteFound(find, description=description, options=options)
    return run(operation, context, snapshot, **noted)


def compact(
    context: Context, snapshot: Snapshot, where: Any, *, user_metadata: Any = None, **limits: Any
) -> Done:
    operation = Compact(as_expression(where), **limits)
    return run(operation, context, snapshot, user_metadata=user_metadata)


def compute_statistics(
    context: Context, snapshot: Snapshot, columns: Any = None, *, where: Any = None, **asked: Any
) -> Done:
    operation = ComputeStatistics(columns, where=as_expression(where), **asked)
    return run(operation, context, snapshot)


def restore(
    context: Context, snapshot: Snapshot, version: Any = None, timestamp: Any = None, **noted: Any
) -> Done:
    return run(Restore(version, timestamp), context, snapshot, **noted)


def replace_table(context: Context, snapshot: Snapshot, schema: Any, **definition: Any) -> Done:
    return run(ReplaceTable(schema, Definition(**definition)), context, snapshot)


def add_features(context: Context, snapshot: Snapshot, names: Sequence[str], **noted: Any) -> Done:
    return run(AddFeatures(names), context, snapshot, **noted)


def add_columns(
    context: Context, snapshot: Snapshot, columns: Any, *, read_columns: Any = None, **noted: Any
) -> Done:
    operation = GiveValues("add columns", columns, read_columns=read_columns)
    return run(operation, context, snapshot, **noted)


def replace_columns(
    context: Context, snapshot: Snapshot, columns: Any, *, read_columns: Any = None, **noted: Any
) -> Done:
    operation = GiveValues("replace columns", columns, read_columns=read_columns)
    return run(operation, context, snapshot, **noted)


def drop_columns(context: Context, snapshot: Snapshot, names: Sequence[str], **noted: Any) -> Done:
    return run(DropColumns(names), context, snapshot, **noted)
