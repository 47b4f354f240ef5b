"""Each verb once, on a table where it has work, for tests that interrupt it anywhere.

A case runs on whatever store it is given, so that a test can count its steps, fail one of them, or
run it beside another case.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyroaring import BitMap64

import txlog
from tests.moved import moved
from tests.verb_calls import delete_found
from txlog import verbs
from txlog.base.effects import Effects
from txlog.base.errors import CommitConflictError
from txlog.base.threads import Threads
from txlog.commit.context import Context
from txlog.commit.operation import Operation, execute
from txlog.data_files.definition import Definition
from txlog.data_files.options import WriteOptions, as_schema
from txlog.extend import context_of as context_of_table
from txlog.snapshot.branches import registry_of
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.references import RegisteredClone, clones_of
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store
from txlog.store.branches import BranchStore
from txlog.store.managed import PublishedStore
from txlog.store.memory import MemoryStore
from txlog.testing import CrashingStore
from txlog.verbs.append import Append
from txlog.verbs.branches import CreateBranch, DiscardBranch, PublishBranch, ReopenBranch
from txlog.verbs.clone import CloneOptions, _Clone, clone
from txlog.verbs.cluster import Cluster
from txlog.verbs.columns import GiveValues
from txlog.verbs.compact import Compact
from txlog.verbs.constraints import AddConstraints, DropConstraint
from txlog.verbs.convert import convert
from txlog.verbs.create import CreateTable, create, write_new_table
from txlog.verbs.delete import Delete, DeleteFound
from txlog.verbs.drop_feature import DropFeature
from txlog.verbs.features import AddFeatures, ClusterBy, UpgradeProtocol
from txlog.verbs.fragments.column_commits import CommitColumns
from txlog.verbs.fragments.commit import CommitRewrites
from txlog.verbs.fragments.deletes import CommitDeletes
from txlog.verbs.fragments.workers import write_new_fragments
from txlog.verbs.indexes import CreateIndex, DropIndex
from txlog.verbs.managed import LetOut, TakeIn
from txlog.verbs.mapped_columns import DropColumns, RenameColumn, SetMapping
from txlog.verbs.merge.clauses import UPSERT, MergeRequest
from txlog.verbs.merge.merge import Merge
from txlog.verbs.metadata import Describe, SetProperties
from txlog.verbs.overwrite import Overwrite
from txlog.verbs.quarantine import KeepRows, Quarantine
from txlog.verbs.references import DropPin, FinishClone, ForgetClone, RegisterClone, SetPin
from txlog.verbs.repair import RemoveLostFiles
from txlog.verbs.replace import ReplaceTable
from txlog.verbs.restore import Restore
from txlog.verbs.schema import AddFields, ChangeColumn, ReplaceFields, SetDefault, SyncIdentity
from txlog.verbs.statistics import ComputeStatistics
from txlog.verbs.transaction import Transaction
from txlog.verbs.trash import DeletionNote
from txlog.verbs.update import Update

TXN = ("job", 1)
FEATURES = ("domainMetadata", "deletionVectors")  # Of a table with pins.
KINDS = {"id": pa.int64(), "n": pa.int32(), "s": pa.string()}
SCHEMA = pa.schema(list(KINDS.items()))
HOUR_MS = 3_600_000
LAYERS = {"_BITS": 0, "_LAYER_TIMES": 1}  # With these costs, layers are always cheaper.


def rows(start: int, stop: int, n: int = 0) -> pa.Table:
    ids = range(start, stop)
    columns = {"id": list(ids), "n": [n + i for i in ids], "s": [f"s{i % 3}" for i in ids]}
    return pa.table(columns, schema=SCHEMA)


@dataclass(frozen=True)
class Later(Effects):
    """A clock that is ahead, so that files are old at once; nothing waits."""

    hours: int = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.hours * HOUR_MS

    def sleep_s(self, seconds: float) -> None:
        pass


def context_of(store: Store, hours: int = 0) -> Context:
    return Context(store, Later(hours), Threads(1))


def opened(store: Store, hours: int = 0) -> txlog.Table:
    """Open the table in a store; its files are so many hours old."""
    return txlog.Table._of(context_of(store, hours), load_snapshot(store))


# Bases ----------------------------------------------------------------------------------------


def plain(context: Context, **properties: str) -> txlog.Table:
    """Make a table at version 4: three files, and one of them has a deleted row."""
    settings = {"delta.checkpointInterval": "1000", **properties}
    create(context, as_schema(SCHEMA), Definition(properties=settings))
    table = opened(context.store)
    for start in (0, 10, 20):
        table.append(rows(start, start + 10))
    table.delete("id = 5")
    return table


def base(**properties: str) -> Callable[[Context], object]:
    """Return a builder of a `plain` table with properties. `__` in a name stands for a dot."""
    return lambda context: plain(
        context, **{name.replace("__", "."): value for name, value in properties.items()}
    )


def with_blobs(context: Context) -> None:
    """Make a table at version 4 whose values are in three packs."""
    settings = {"delta.checkpointInterval": "1000", "delta.enableDeletionVectors": "false"}
    schema = SCHEMA.append(txlog.blob("b", above=10))
    create(context, as_schema(schema), Definition(properties=settings))
    table = opened(context.store)
    for start in (0, 10, 20):
        table.append(blob_rows(start, start + 10))
    table.delete("id = 5")


def blob_rows(start: int, stop: int) -> pa.Table:
    values = [bytes([i]) * (20 + i) for i in range(start, stop)]
    return rows(start, stop).append_column("b", pa.array(values, pa.binary()))


def in_transaction_with_blobs(table: txlog.Table) -> object:
    with table.transaction(txn=TXN) as changes:
        changes.append(blob_rows(30, 35))
        changes.update({"n": "n + 1"}, "id > 25")
    return changes.outcome


def nothing(context: Context) -> None:
    """Leave no table."""


def loose_files(context: Context) -> None:
    """Leave Parquet files without a log."""
    table = plain(context)
    log = [f"_delta_log/{info.name}" for info in context.store.list_tree("_delta_log")]
    names = set(table.files()["path"].to_pylist())
    rest = [i.name for i in context.store.list_tree("") if i.name not in names]
    context.store.delete(sorted({*log, *rest}))


def with_checkpoint(context: Context) -> None:
    plain(context).maintenance.checkpoint()


def with_history(context: Context) -> None:
    """Make a table of which much is old: files that no version needs, and a checkpoint."""
    table = plain(context)
    table.overwrite(rows(0, 10))
    table.maintenance.checkpoint()
    table.append(rows(10, 12))


def with_trash(context: Context) -> None:
    with_history(context)
    opened(context.store, 2).vacuum(0, False, False, trash=True)


def with_pin(context: Context) -> None:
    plain(context).pins.create("good", version=2)


def with_branch(context: Context) -> None:
    """Make a table with a branch that has commits."""
    table = plain(context)
    table.branches.create("audit", version=3)
    branch = branch_of(context.store)
    branch.append(rows(30, 35))
    branch.delete("id = 1")


def branch_of(store: Store) -> txlog.Table:
    """Open the branch of the table in a store, which is open."""
    (entry,) = registry_of(load_snapshot(store)).open
    return opened(BranchStore.of(store, entry.chain))


def has_no_branch(store: Store) -> None:
    """Raise if the branch is open, or if a log of it can be written."""
    assert not registry_of(load_snapshot(store)).open
    for entry in registry_of(load_snapshot(store)).branches:
        with pytest.raises(CommitConflictError):
            opened(BranchStore.of(store, entry.chain)).append(rows(40, 41))


def with_clone(context: Context) -> None:
    plain(context)
    _clone_beside(context, register=True)


def with_unknown_clone(context: Context) -> None:
    plain(context)
    _clone_beside(context, register=False)


def _clone_beside(context: Context, *, register: bool) -> None:
    target = context_of(beside(context.store))
    options = CloneOptions(shallow=True, register=register)
    clone(context, load_snapshot(context.store), target, options)


def with_lost_file(context: Context) -> None:
    table = plain(context)
    context.store.delete([table.files()["path"].to_pylist()[1]])


def with_constraint(context: Context) -> None:
    plain(context).alter.add_constraint({"positive": "id >= 0"})


def with_index(context: Context) -> None:
    plain(context).indexes.create("id", name="by_id")


def with_unique_key(context: Context) -> None:
    table = plain(context)
    table.indexes.create("id", name="by_id")
    table.alter.add_constraint({"pk": txlog.unique("id")})


def with_unbuilt_index(context: Context) -> None:
    plain(context).indexes.create("id", name="by_id", build=False)


def with_identity(context: Context) -> None:
    table = txlog.Table.create(
        "memory://unused-identity",
        SCHEMA,
        mode="ignore",
        identity={"id": txlog.Identity(explicit=True)},
    )
    create(context, table.snapshot.schema)
    opened(context.store).append(rows(0, 10))


def partitioned(context: Context) -> None:
    create(context, as_schema(SCHEMA), Definition(partition_by=["s"]))
    opened(context.store).append(rows(0, 9))


def beside(store: Store) -> Store:
    """Return a store beside another one, for a second table; its steps are not counted."""
    inner = getattr(store, "inner", store)
    return dataclasses.replace(inner, root=f"{inner.root}-clone")


class SameProcess(CrashingStore):
    """The store of a second table of the same process: its steps count with those of the first."""

    def __init__(self, inner: Store, first: CrashingStore) -> None:
        super().__init__(inner)
        self.first = first
        self.calls = first.calls

    @contextmanager
    def _call(self, operation: str, path: str) -> Iterator[Any]:
        self.point, self.crashed = self.first.point, self.first.crashed
        try:
            with super()._call(operation, path) as kind:
                yield kind
        finally:
            self.first.crashed = self.crashed


def beside_in_process(store: Store) -> Store:
    """Return a store beside another one, whose steps fail like those of that one."""
    there = beside(store)
    return SameProcess(there, store) if isinstance(store, CrashingStore) else there


# Cases ----------------------------------------------------------------------------------------

Run = Callable[[Context, Any], object]
"""Runs a verb; of a table, on the handle that is given."""


@dataclass(frozen=True)
class Case:
    """A verb, and the table that it is run on.

    `commits` is how many versions it makes. Without `retries` it takes no `txn`; to run it again
    then does what is left to do.
    """

    run: Run
    covers: tuple[type, ...] = ()
    make: Callable[[Context], object] = plain
    commits: int = 1
    retries: bool = True
    hours: int = 0  # How old the files of the base are for it.
    new: bool = False  # Whether it makes the table.
    gives_up: int = 0  # How many versions it makes to give up after a failure.
    between: Run | None = None  # A verb that makes what the table may be between two commits.
    holds: Callable[[Store], object] = lambda _: None  # Raises if the end is not as it should be.
    frees: Callable[[Context], object] = lambda _: None  # Lets anybody write the table again.


def on(verb: Callable[[txlog.Table], object], *covers: type, **more: Any) -> Case:
    """Return a case of a verb of an opened table."""
    return Case(lambda _, table: verb(table), covers, **more)


def of(operation: Callable[[txlog.Table], Operation], *covers: type, **more: Any) -> Case:
    """Return a case of an operation that is run as it is."""
    return on(lambda table: table._run(operation(table), TXN, None), *covers, **more)


def published(context: Context) -> Snapshot:
    """Return the latest version for the catalog that manages the table."""
    return load_snapshot(PublishedStore(context.store))


def taken_in(context: Context, _: object) -> object:
    return execute(TakeIn("writes", "a catalog"), context, published(context))


def let_out(context: Context) -> object:
    return execute(LetOut(), context, published(context))


def recorded(context: Context) -> None:
    """Make a table whose files can have column files, and whose changes of rows are recorded."""
    table = plain(
        context,
        **{
            "delta.feature.txlog.fragments": "supported",
            "delta.enableRowTracking": "true",
            "delta.enableChangeDataFeed": "true",
        },
    )
    by_column_files(table, LAYERS, {"s": "'t'"})


def by_column_files(
    table: txlog.Table, costs: dict[str, int], given: dict[str, str] | None = None
) -> object:
    """Update rows of two files by column files, although the files are small."""
    costs = {"_FILE_BYTES": -(1 << 40), **costs}
    with moved({f"txlog.data_files.column_updates:{name}": n for name, n in costs.items()}):
        txn = None if given else TXN
        return table.update(given or {"n": "n + 1", "s": "'u'"}, "id < 15", txn=txn)


def in_transaction(table: txlog.Table) -> object:
    with table.transaction(txn=TXN) as tx:
        tx.delete("id = 11")
        tx.append(rows(100, 105))
        tx.update({"n": "n + 1"}, "id < 3")
    return tx.outcome


def merged(table: txlog.Table) -> object:
    merger = table.merge(rows(8, 14, 500), "target.id = source.id", txn=TXN)
    merger = merger.when_matched_update_all("source.id < 10").when_matched_delete()
    return merger.when_not_matched_insert_all().execute()


def by_workers(kind: str) -> Callable[[txlog.Table], object]:
    """Return what commits fragments that workers write.

    A job that is run again looks first whether it is done.
    """

    def run(table: txlog.Table) -> object:
        if table.refresh().transaction_version(TXN[0]) == TXN[1]:
            return None
        fragment = table.fragments().of_id(1)
        operation: Any
        if kind == "delete":
            updated = fragment.delete("id = 12") if fragment else None
            operation = txlog.FragmentOperation.Delete([updated] if updated else [])
        elif kind == "columns":
            assert fragment is not None
            made, schema = fragment.merge_columns({"twice": "2 * n"})
            operation = txlog.FragmentOperation.Merge([made], schema)
        else:
            assert fragment is not None
            new = list(_fragments(table, fragment.to_table()))
            group = txlog.FragmentOperation.RewriteGroup([fragment.metadata], new)
            operation = txlog.FragmentOperation.Rewrite([group])
        return table.commit(operation, txn=TXN)

    return run


def _fragments(table: txlog.Table, data: pa.Table) -> Any:
    """Return new fragments of a table."""
    return write_new_fragments(table._context, table.snapshot, data, WriteOptions())


def cloned(context: Context, _: object, **options: Any) -> object:
    source = context_of(beside_in_process(context.store))
    # To register a clone adds a version to the source.
    snapshot = load_snapshot(source.store, version=4)
    return clone(source, snapshot, context, CloneOptions(**options), txn=TXN)


def is_registered(store: Store) -> None:
    """Raise unless the source knows the clone, and keeps the files that it needs."""
    source, made = opened(beside(store), 24 * 8), opened(store)
    (known,) = clones_of(source.snapshot)
    assert (known.id, known.uri, known.is_made) == (made.metadata.id, store.root, True)
    source.overwrite(rows(0, 1))
    opened(beside(store), 24 * 16).vacuum(0, False, False)
    assert made.to_arrow().num_rows == made.count()


def with_a_fault(table: txlog.Table) -> object:
    """Append rows of which one breaks a constraint, and goes to the table beside."""
    context = table._context
    quarantine = Quarantine(
        dataclasses.replace(context, store=beside_in_process(context.store)), context
    )
    data = pa.concat_tables([rows(30, 35), rows(-1, 0)])
    return table._run(Append(data, quarantine=quarantine), TXN, None)


def merged_with_a_fault(table: txlog.Table) -> object:
    """Upsert rows of which one breaks a constraint, and goes to the table beside."""
    context = table._context
    there = dataclasses.replace(context, store=beside_in_process(context.store))
    data = pa.concat_tables([rows(8, 12, 500), rows(-1, 0)])
    request = MergeRequest(data, on=["id"], quarantine=Quarantine(there, context))
    return table._run(Merge(request, UPSERT), TXN, None)


def is_kept_once(store: Store) -> None:
    """Raise unless the row at fault is in the quarantine once."""
    assert opened(beside(store)).to_arrow()["name"].to_pylist() == ["positive"]


def beside_a_source(context: Context) -> None:
    plain(context_of(beside(context.store)))


def beside_a_source_and_there(context: Context) -> None:
    beside_a_source(context)
    plain(context)


def has_no_history(store: Store) -> None:
    """Raise unless the log begins with a checkpoint, and nothing is protected."""
    table = opened(store)
    assert min(one["version"] for one in table.versions().to_pylist()) > 4
    assert "checkpointProtection" not in (table.protocol.writer_features or ())


CASES: dict[str, Case] = {
    "append": on(lambda t: t.append(rows(30, 35), txn=TXN), Append),
    "append a column": on(
        lambda t: t.append(rows(30, 35).append_column("w", [list(range(5))]),
                           schema_mode="merge", txn=TXN)
    ),
    "append, checkpoint and clean up": on(
        lambda t: t.append(rows(30, 35), txn=TXN),
        make=base(delta__checkpointInterval="5", delta__logRetentionDuration="interval 1 hours",
                  txlog__writeChecksums="true"),
        hours=100,
    ),
    "append, V2 checkpoint": on(
        lambda t: t.append(rows(30, 35), txn=TXN),
        make=base(delta__checkpointInterval="5", delta__checkpointPolicy="v2",
                  delta__feature__v2Checkpoint="supported", txlog__logCompactionInterval="2"),
    ),
    "append with timestamps and row ids": on(
        lambda t: t.append(rows(30, 35), txn=TXN),
        make=base(delta__enableInCommitTimestamps="true", delta__enableRowTracking="true"),
    ),
    "delete": on(lambda t: t.delete("id % 4 = 1", txn=TXN), Delete),
    "delete by rewriting": on(
        lambda t: t.delete("id % 4 = 1", txn=TXN),
        make=base(delta__enableDeletionVectors="false"),
    ),
    "delete with change data": on(
        lambda t: t.delete("id % 4 = 1", txn=TXN), make=base(delta__enableChangeDataFeed="true")
    ),
    "delete in Lance's form": on(
        lambda t: t.delete("id % 4 = 1", txn=TXN), make=base(txlog__deletionFormat="lance")
    ),
    "delete what is found": on(
        lambda t: delete_found(
            t._context, load_snapshot(t._context.store), _third_rows, description="third", txn=TXN
        ),
        DeleteFound,
    ),
    "update": on(lambda t: t.update({"n": "n + 1"}, "id < 15", txn=TXN), Update),
    "merge": on(merged, Merge),
    "upsert": on(lambda t: t.upsert(rows(25, 35, 900), on="id", txn=TXN)),
    "overwrite": on(lambda t: t.overwrite(rows(50, 60), txn=TXN), Overwrite),
    "overwrite a part": on(lambda t: t.overwrite(rows(8, 12, 7), "id >= 8 AND id < 12", txn=TXN)),
    "overwrite partitions": on(
        lambda t: t.overwrite(rows(9, 10), partition_mode="dynamic", txn=TXN), make=partitioned
    ),
    "transaction": on(in_transaction, Transaction),
    "append blobs": on(lambda t: t.append(blob_rows(30, 35), txn=TXN), make=with_blobs),
    "update beside blobs": on(
        lambda t: t.update({"n": "n + 1"}, "id < 15", txn=TXN), make=with_blobs
    ),
    "update blobs": on(
        lambda t: t.update({"b": txlog.lit(bytes(50))}, "id < 15", txn=TXN), make=with_blobs
    ),
    "transaction with blobs": on(in_transaction_with_blobs, make=with_blobs),
    "compact blobs": on(lambda t: t.optimize.compact(txn=TXN), make=with_blobs),
    "restore": on(lambda t: t.restore(2, txn=TXN), Restore),
    "replace": of(
        lambda _: ReplaceTable(as_schema(pa.schema([("z", pa.int64())]))), ReplaceTable
    ),
    "add computed columns": on(
        lambda t: t.alter.add_columns({"twice": "2 * n"}, txn=TXN),
        GiveValues,
        make=base(delta__feature__txlog__fragments="supported"),
    ),
    "replace columns": on(
        lambda t: t.alter.replace_columns({"n": "n + 1"}, txn=TXN),
        make=base(delta__feature__txlog__fragments="supported"),
    ),
    "replace columns of tracked rows": on(
        lambda t: t.alter.replace_columns({"n": "n + 1"}, txn=TXN), make=recorded
    ),
    "update by layers": on(lambda t: by_column_files(t, LAYERS), make=recorded),
    "update whole columns": on(lambda t: by_column_files(t, {"_MOST_LAYERS": 0}), make=recorded),
    "add a column": on(lambda t: t.alter.add_columns({"y": pa.int64()}, txn=TXN), AddFields),
    "list the columns anew": of(
        lambda t: ReplaceFields(t.snapshot.schema.fields[::-1]), ReplaceFields
    ),
    "rename a column": on(
        lambda t: t.alter.rename_column("n", "number", txn=TXN),
        RenameColumn,
        make=base(delta__columnMapping__mode="name"),
    ),
    "drop a column": on(
        lambda t: t.alter.drop_columns("n", txn=TXN),
        DropColumns,
        make=base(delta__columnMapping__mode="name"),
    ),
    "widen a type": on(lambda t: t.alter.widen_type("n", pa.int64(), txn=TXN), ChangeColumn),
    "forbid nulls": on(lambda t: t.alter.set_nullable("id", False, txn=TXN)),
    "set a default": on(lambda t: t.alter.set_default("n", "7", txn=TXN), SetDefault),
    "sync an identity": on(
        lambda t: t.alter.sync_identity("id", txn=TXN), SyncIdentity, make=with_identity
    ),
    "set properties": on(
        lambda t: t.alter.set_properties({"txlog.pageRows": "500"}, txn=TXN),
        SetProperties,
    ),
    "end column mapping": on(
        lambda t: t.alter.set_properties({"delta.columnMapping.mode": "none"}, txn=TXN),
        SetMapping,
        make=base(delta__columnMapping__mode="name"),
    ),
    "add a constraint": on(
        lambda t: t.alter.add_constraint({"positive": "id >= 0"}, txn=TXN), AddConstraints
    ),
    "drop a constraint": on(
        lambda t: t.alter.drop_constraint("positive", txn=TXN),
        DropConstraint,
        make=with_constraint,
    ),
    "describe": on(lambda t: t.alter.set_description("new", txn=TXN), Describe),
    "add features": on(lambda t: t.alter.add_features("v2Checkpoint", txn=TXN), AddFeatures),
    "upgrade": on(lambda t: t.alter.upgrade_protocol(3, 7, txn=TXN), UpgradeProtocol),
    "drop a feature": on(
        lambda t: t.alter.drop_feature("deletionVectors", txn=TXN), DropFeature
    ),
    "drop a feature and its history": on(
        lambda t: t.alter.drop_feature("deletionVectors", truncate_history=True, txn=TXN),
        DeletionNote,
        commits=4,
        between=lambda _, t: t.alter.drop_feature("deletionVectors", txn=TXN),
        holds=has_no_history,
    ),
    "cluster by": on(lambda t: t.alter.cluster_by("id", txn=TXN), ClusterBy),
    "pin": on(lambda t: t.pins.create("good", version=2, txn=TXN), SetPin),
    "unpin": on(lambda t: t.pins.delete("good", txn=TXN), DropPin, make=with_pin),
    "take in": Case(taken_in, (TakeIn,), retries=False, frees=let_out),
    "let out": Case(
        lambda context, _: let_out(context),
        (LetOut,),
        lambda context: taken_in(context, plain(context)),
        retries=False,
    ),
    "create a branch": on(lambda t: t.branches.create("audit", txn=TXN), CreateBranch),
    "publish a branch": on(
        lambda t: t.branches.publish("audit", txn=TXN),
        PublishBranch,
        make=with_branch,
        gives_up=1,
        holds=has_no_branch,
    ),
    "discard a branch": on(
        lambda t: t.branches.discard("audit", txn=TXN),
        DiscardBranch,
        make=with_branch,
        gives_up=1,
        holds=has_no_branch,
    ),
    "open a branch again": of(
        lambda t: ReopenBranch(registry_of(t.snapshot).open[0]), ReopenBranch, make=with_branch
    ),
    "register a clone": of(
        lambda t: RegisterClone(RegisteredClone("an-id", beside(context_of_table(t).store).root)),
        RegisterClone,
        make=with_unknown_clone,
    ),
    "forget a clone": on(
        lambda t: t.maintenance.forget_clone(beside(context_of_table(t).store).root, txn=TXN),
        ForgetClone,
        make=with_clone,
    ),
    "compact": on(lambda t: t.optimize.compact(txn=TXN), Compact),
    "z-order": on(lambda t: t.optimize.z_order(["id", "n"], txn=TXN), Cluster),
    "compute statistics": on(
        lambda t: t.optimize.compute_statistics(["s"], recompute=True, txn=TXN),
        ComputeStatistics,
        make=base(delta__dataSkippingStatsColumns="id"),
    ),
    "delete by workers": on(by_workers("delete"), CommitDeletes),
    "columns by workers": on(
        by_workers("columns"),
        CommitColumns,
        make=base(delta__feature__txlog__fragments="supported"),
    ),
    "rewrite by workers": on(by_workers("rewrite"), CommitRewrites),
    "create an index": on(lambda t: t.indexes.create("id", build=False, txn=TXN), CreateIndex),
    "append with an index": on(lambda t: t.append(rows(30, 35), txn=TXN), make=with_index),
    "append with a unique key": on(
        lambda t: t.append(rows(30, 35), txn=TXN), make=with_unique_key
    ),
    "update with a unique key": on(
        lambda t: t.update({"n": "n + 1"}, where="id > 3", txn=TXN), make=with_unique_key
    ),
    "append and ignore": on(
        lambda t: t.append(rows(0, 35), on_conflict="ignore", txn=TXN), make=with_unique_key
    ),
    "add a unique key": on(
        lambda t: t.alter.add_constraint({"pk": "UNIQUE (id)"}, txn=TXN),
        AddConstraints,
        make=with_index,
    ),
    "build an index": on(
        lambda t: t.indexes.build("by_id"), make=with_unbuilt_index, commits=0, retries=False
    ),
    "drop an index": on(lambda t: t.indexes.drop("by_id", txn=TXN), DropIndex, make=with_index),
    "give lost files up": on(
        lambda t: t.maintenance.repair(False, True),
        RemoveLostFiles,
        make=with_lost_file,
        retries=False,
    ),
    "vacuum": on(
        lambda t: t.vacuum(0, False, False), DeletionNote,
        make=with_history, commits=2, retries=False, hours=2,
    ),
    "vacuum to the trash": on(
        lambda t: t.vacuum(0, False, False, trash=True),
        make=with_history, commits=2, retries=False, hours=2,
    ),
    "vacuum by the log": on(
        lambda t: t.vacuum(0, False, False, lite=True),
        make=with_history, commits=2, retries=False, hours=2,
    ),
    "put back": on(
        lambda t: t.maintenance.put_back(), make=with_trash, commits=0, retries=False
    ),
    "empty the trash": on(
        lambda t: t.maintenance.empty_trash(), make=with_trash, commits=0, retries=False
    ),
    "checkpoint": on(lambda t: t.maintenance.checkpoint(), commits=0, retries=False),
    "expire": on(
        lambda t: t.maintenance.expire(0, False),
        make=with_history, commits=0, retries=False, hours=2,
    ),
    "generate": on(
        lambda t: t.maintenance.generate(),
        make=base(delta__enableDeletionVectors="false"), commits=0, retries=False,
    ),
    "write a checksum": on(lambda t: t.maintenance.write_checksum(), commits=0, retries=False),
    "compact the log": on(lambda t: t.maintenance.compact_log(1, 3), commits=0, retries=False),
    "append with a quarantine": on(
        with_a_fault, KeepRows, make=with_constraint, holds=is_kept_once
    ),
    "upsert with a quarantine": on(
        merged_with_a_fault, make=with_constraint, holds=is_kept_once
    ),
    "create": Case(
        lambda context, _: create(context, as_schema(SCHEMA), txn=TXN), (CreateTable,),
        make=nothing, new=True,
    ),
    "write": Case(
        lambda context, _: write_new_table(
            context, rows(0, 10), options=WriteOptions(), allow_existing=True, txn=TXN,
        ),
        make=nothing,
        new=True,
    ),
    "convert": Case(
        lambda context, _: convert(
            context, partition_by=None, properties={}, name=None, description=None, txn=TXN,
            user_metadata=None,
        ),
        make=loose_files,
        new=True,
    ),
    "clone": Case(
        lambda context, table: cloned(context, table, shallow=False),
        (_Clone,),
        make=beside_a_source,
        new=True,
    ),
    "clone, shallow and registered": Case(
        lambda context, table: cloned(context, table, shallow=True, register=True),
        (FinishClone,),
        make=beside_a_source,
        new=True,
        holds=is_registered,
    ),
    "clone over a table, shallow and registered": Case(
        lambda context, table: cloned(context, table, shallow=True, register=True, replace=True),
        make=beside_a_source_and_there,
        holds=is_registered,
    ),
    "clone over a table": Case(
        lambda context, table: cloned(context, table, shallow=False, replace=True),
        make=beside_a_source_and_there,
    ),
}  # fmt: skip


def _third_rows(_: object) -> dict[int, BitMap64]:
    return {1: BitMap64([3])}


# Which verbs there are ------------------------------------------------------------------------


def operations() -> Iterator[type[Operation]]:
    """Yield the operations of the core; tests of Spark break off its own."""
    for module in pkgutil.walk_packages(verbs.__path__, "txlog.verbs."):
        importlib.import_module(module.name)
    waiting: list[type[Operation]] = [Operation]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("txlog.verbs.") and not kind.__abstractmethods__:
            yield kind


# Tables in memory -----------------------------------------------------------------------------

Files = dict[str, bytes]


def files_below(store: MemoryStore) -> Files:
    """Return the files of a table and of the one beside it."""
    prefix = store.root.removeprefix("memory:/")
    held = MemoryFileSystem.store.items()
    return {key[len(prefix) :]: f.getvalue() for key, f in held if key.startswith(prefix)}


def fill(store: MemoryStore, files: Files) -> None:
    """Put files where a table is to be."""
    system, prefix = MemoryFileSystem(), store.root.removeprefix("memory:/")
    for key, data in files.items():
        system.pipe_file(prefix + key, data)


def clear(store: MemoryStore) -> None:
    """Remove the files of a table and of the one beside it."""
    prefix = store.root.removeprefix("memory:/")
    for key in [key for key in MemoryFileSystem.store if key.startswith(prefix)]:
        del MemoryFileSystem.store[key]


def state_of(table: txlog.Table) -> Any:
    """Return all that a version says, but for times, ids and names of files."""
    snapshot = table.snapshot
    try:
        held = table.to_arrow()
    except txlog.DataFileError:  # Of the case that mends it.
        held = pa.table({"lost": []})
    metadata = {
        name: value
        for name, value in snapshot.metadata.configuration.items()
        if not name.startswith(("delta.rowTracking.", "delta.inCommitTimestampEnablement"))
    }
    if "b" in held.schema.names:  # Its structs have names of files.
        blobs = [b and b.read() for b in table.blobs(held["b"])]
        held = held.set_column(held.schema.get_field_index("b"), "b", [blobs])
    values = sorted(repr(row) for row in held.to_pylist())
    domains = sorted(name for name, d in snapshot.controls.domains.items() if not d.removed)
    features = snapshot.protocol.reader_features, snapshot.protocol.writer_features
    return (
        str(held.schema), values, metadata, snapshot.metadata.description, features, domains,
        table.transaction_version(TXN[0]), snapshot.schema.names(),
    )  # fmt: skip
