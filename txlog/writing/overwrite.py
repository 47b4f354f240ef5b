"""Replacing rows: all of them, those of a predicate, or those of the partitions written to."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import pyarrow as pa

from txlog.actions.file import Add
from txlog.actions.table import Metadata
from txlog.arrow import arrow_array
from txlog.commit.intent import Intent, Reads
from txlog.commit.loop import run
from txlog.errors import InvalidInputError
from txlog.expressions.sql import as_expression, to_sql
from txlog.expressions.tree import Expression
from txlog.schema.json import schema_json
from txlog.schema.types import DataType, StructType
from txlog.snapshot.files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.files import partition_texts
from txlog.stats.partition import format_partition_values, parse_partition_values
from txlog.writing.append import evolved, require_supported_types, write_metrics
from txlog.writing.data import SchemaMode, incoming
from txlog.writing.delete import RowsGone, discard_gone, take_rows
from txlog.writing.dropped import with_dropped
from txlog.writing.files import discard_files, discarding
from txlog.writing.operation import (
    AppTransaction,
    Done,
    Place,
    Transaction,
    done,
    is_recorded,
    query_actions,
    require_table_writable,
    require_transaction,
    skip_recorded,
    txn_action,
)
from txlog.writing.options import WriteOptions
from txlog.writing.plan import RequireFit, plan_write, require_still_fits
from txlog.writing.vectors import removes_of

PartitionMode = Literal["static", "dynamic"]


def overwrite(
    place: Place,
    snapshot: Snapshot,
    data: Any,
    *,
    where: str | Expression | None = None,
    partition_mode: PartitionMode = "static",
    schema_mode: SchemaMode = None,
    txn: AppTransaction | None = None,
    options: WriteOptions | None = None,
) -> Done:
    """Replace rows of a table by others, in one commit.

    Parameters
    ----------
    where
        Replace the rows of which this is true; every new row must satisfy it. None: all rows.
    partition_mode
        `dynamic` replaces only the partitions that the data has rows of.

    Raises
    ------
    SchemaMismatchError
        The data does not fit the table, or a row does not satisfy `where`.
    UnsupportedFeatureError
        The table may not be written by txlog, or is append-only.
    """
    options = options or WriteOptions()
    predicate = as_expression(where)
    require_modes(snapshot, predicate, partition_mode, schema_mode)
    require_transaction(txn)
    require_table_writable(snapshot, removes_rows=True)
    if recorded := skip_recorded(snapshot, txn):
        return recorded
    taken = incoming(data, snapshot.schema, schema_mode)
    plan = plan_write(snapshot.metadata, taken.schema, options, replaced=predicate)
    adds = plan.write(place, taken.reader)
    return commit_overwrite(
        place,
        snapshot,
        adds,
        taken.schema,
        predicate=predicate,
        partition_mode=partition_mode,
        schema_mode=schema_mode,
        txn=txn,
        options=options,
    )


def commit_overwrite(
    place: Place,
    snapshot: Snapshot,
    adds: list[Add],
    schema: StructType,
    *,
    predicate: Expression | None,
    partition_mode: PartitionMode,
    schema_mode: SchemaMode,
    txn: Transaction | None,
    options: WriteOptions,
    require_fit: RequireFit | None = None,
    owned: bool = True,
) -> Done:
    """Commit data files that are written already, in place of the rows that they replace.

    The last two parameters are those of `commit_append`.
    """
    require_fit = require_fit or partial(require_still_fits, written_for=snapshot)
    skipped = False
    gone: RowsGone | None = None

    def build(base: Snapshot) -> Intent | None:
        nonlocal skipped, gone
        require_table_writable(base, removes_rows=True)
        discard_gone(place, gone)
        gone = None
        skipped = is_recorded(base, txn)
        if skipped:
            return None
        require_fit(base)
        if predicate is not None:
            gone = take_rows(place, base, predicate, options)
        else:
            rows = load_files(place.store, base).live
            if partition_mode == "dynamic":
                rows = _in_partitions(rows, adds, base)
            gone = RowsGone(None, tuple(removes_of(rows, place.effects.now_ms())))
        return Intent(
            operation="WRITE",
            read_version=base.version,
            # No predicate says which partitions a dynamic one replaces, so any file may matter: as
            # "overwrite", it finds its files anew after every change of them, and writes none.
            kind="overwrite" if predicate is None else "replace",
            removes=gone.removes,
            adds=(*gone.adds, *adds),
            metadata=_metadata(base, schema, schema_mode),
            txn=txn_action(txn, place.effects),
            query_txns=query_actions(txn, place.effects),
            reads=Reads(everything=predicate is None, where=gone.where),
            parameters={
                "mode": "Overwrite",
                "partitionBy": base.partition_columns,
                "predicate": None if gone.where is None else to_sql(gone.where),
                "partitionOverwriteMode": partition_mode if predicate is None else None,
            },
            metrics={**write_metrics(adds), "numRemovedFiles": len(gone.removes)},
            user_metadata=options.user_metadata,
        )

    def discard() -> None:
        discard_gone(place, gone)
        if owned:
            discard_files(place.store, adds)

    with discarding(discard):
        after, committed = run(place.store, snapshot, build, effects=place.effects)
    if committed is None and owned:
        discard_files(place.store, adds)
    return done("WRITE", after, committed, skipped=skipped)


def require_modes(
    snapshot: Snapshot,
    predicate: Expression | None,
    partition_mode: PartitionMode,
    schema_mode: SchemaMode,
) -> None:
    """Refuse arguments of an overwrite that contradict each other or the table.

    Raises
    ------
    InvalidInputError
        Names the argument.
    """
    if partition_mode not in ("static", "dynamic"):
        raise InvalidInputError(
            argument="partition_mode", reason=f"{partition_mode!r} is not static or dynamic"
        )
    if partition_mode == "dynamic" and predicate is not None:
        raise InvalidInputError(
            argument="where",
            reason="a predicate and dynamic partitions both say what is replaced",
            remedy="Pass only one of them",
        )
    if partition_mode == "dynamic" and not snapshot.partition_columns:
        raise InvalidInputError(
            argument="partition_mode",
            reason="the table has no partition columns",
            remedy='Use partition_mode="static", or a predicate',
        )
    if schema_mode == "overwrite" and (predicate is not None or partition_mode == "dynamic"):
        raise InvalidInputError(
            argument="schema_mode",
            reason="the schema can be replaced only together with all rows",
            remedy='Use schema_mode="merge" to add columns',
        )


def _in_partitions(rows: pa.Table, adds: list[Add], snapshot: Snapshot) -> pa.Table:
    """Keep the live files that are in one of the partitions of the new ones.

    By value: writers spell some types in more than one way.
    """
    new = [add.partition_values for add in adds]
    held, touched = [], []
    for name in snapshot.partition_columns:
        column = snapshot.schema.get(name)
        assert column is not None
        texts = arrow_array([values.get(name) for values in new], pa.string())
        touched.append(_respelled(texts, column.type))
        held.append(_respelled(partition_texts(rows, name), column.type))
    wanted = set(zip(*touched, strict=True))
    return rows.filter(arrow_array([key in wanted for key in zip(*held, strict=True)], pa.bool_()))


def _respelled(texts: pa.Array, kind: DataType) -> list[str | None]:
    """Return logged partition values as txlog spells them, in which NaN equals itself."""
    respelled: list[str | None] = format_partition_values(
        parse_partition_values(texts, kind), kind
    ).to_pylist()
    return respelled


def _metadata(base: Snapshot, schema: StructType, schema_mode: SchemaMode) -> Metadata | None:
    if schema_mode is None:
        return None
    if schema_mode == "merge":
        return evolved(base, schema)
    if schema == base.schema:
        return None
    require_supported_types(base, schema)
    metadata = with_dropped(base.metadata, ())  # No file is left that has them.
    return metadata.model_copy(update={"schema_string": schema_json(schema)})
