"""Move rows to other files: they keep their values, and their ids if the table tracks rows.

Rules: spec/fragments.md, FRG-32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from txlog.actions.file import Add
from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.base.threads import map_all
from txlog.commit.context import Context
from txlog.data_files.options import WriteOptions
from txlog.data_files.write import FileLayout, discard_groups, write_data_files
from txlog.expressions.bind import columns_of
from txlog.expressions.tree import Expression
from txlog.fragments.deletion_vector import alive_mask
from txlog.fragments.fragment import Fragment
from txlog.fragments.ids import settled_ids
from txlog.protocol.access import materializes_partitions
from txlog.protocol.form import ROW_ID_COLUMN, ROW_VERSION_COLUMN
from txlog.protocol.iceberg import moved_ids
from txlog.protocol.mapping import ID
from txlog.scan.columns import ROW_ID, ROW_VERSION, visible_metadata
from txlog.scan.data_file import BATCH_ROWS
from txlog.scan.read import FragmentReader
from txlog.scan.read_plan import ReadPlan, read_plan
from txlog.schema.arrow import arrow_schema
from txlog.schema.types import PrimitiveType, StructField
from txlog.snapshot.snapshot import Snapshot


@dataclass(frozen=True)
class RewritePlan:
    """The plan for reading rows of one version and writing them again. It pickles."""

    read: ReadPlan
    layout: FileLayout


def plan_rewrite(snapshot: Snapshot, options: WriteOptions) -> RewritePlan:
    """Return the plan for moving a version's rows to other files. Pure.

    Raises
    ------
    UnsupportedFeatureError
        The table tracks rows, but moved rows would lose their ids.
    """
    columns, moved = snapshot.schema.names(), tuple[StructField, ...]()
    names = _moved_columns(snapshot)
    if names:
        columns = [*columns, ROW_ID, ROW_VERSION]
        ids = moved_ids(snapshot.metadata.configuration)
        metadata = [{ID: number} for number in ids] if ids else [{}, {}]
        moved = tuple(
            StructField(name, PrimitiveType("long"), metadata=described)
            for name, described in zip(names, metadata, strict=True)
        )
    layout = FileLayout(
        snapshot.schema,
        tuple(snapshot.partition_columns),
        snapshot.properties,
        options.file_bytes,
        options.max_rows_per_file,
        moved,
        mapping_mode=snapshot.mapping_mode,
        writer_properties=options.encoding,
        materializes=materializes_partitions(snapshot.protocol, snapshot.properties),
    )
    return RewritePlan(read_plan(snapshot, columns=columns), layout)


def require_movable(snapshot: Snapshot) -> None:
    """Raise if a table's rows would lose their ids in other files; errors as above."""
    _moved_columns(snapshot)


def version_column(snapshot: Snapshot) -> StructField | None:
    """Return the files' column of the versions of rows; None if the table does not track rows.

    Errors as for `plan_rewrite`.
    """
    moved = plan_rewrite(snapshot, WriteOptions()).layout.moved
    return moved[1] if moved else None


def _moved_columns(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the names of the files' columns for ids and versions, if the table tracks rows."""
    tracking = snapshot.form.row_tracking
    if tracking is None:
        return ()
    named = (tracking.row_id_column, tracking.row_version_column)
    if not all(named):
        reason = "no property names the columns for the ids and versions of moved rows"
        remedy = (
            f"Set {ROW_ID_COLUMN} and {ROW_VERSION_COLUMN} with the engine that created the table"
        )
    elif not {ROW_ID, ROW_VERSION} <= visible_metadata(snapshot).keys():
        reason = f"columns of the table hide {ROW_ID} or {ROW_VERSION}, so that ids cannot be read"
        remedy = "Rename these columns, or rewrite files with another engine"
    else:
        return tuple(name for name in named if name)
    raise UnsupportedFeatureError(
        path=snapshot.root,
        features=("rowTracking",),
        reason=f"the table tracks rows, but {reason}",
        remedy=remedy,
    )


RewrittenPart = tuple[Fragment, BitMap64 | None]
"""A fragment, and the positions of its rows to omit, including those deleted before."""


def rewrite(context: Context, plan: RewritePlan, parts: Iterable[RewrittenPart]) -> list[Add]:
    """Write the rows of fragments into new files of the same partitions, in their order.

    Memory is bounded as in `write_data_files`.

    Parameters
    ----------
    parts
        Fragments, each with the rows to omit.
    """
    batches = (batch for part in parts for batch in moved_rows(context, plan, *part))
    return write_data_files(context.store, batches, plan.layout, effects=context.effects)


def moved_rows(
    context: Context, plan: RewritePlan, fragment: Fragment, without: BitMap64 | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a fragment to write again, without the omitted ones."""
    schema = arrow_schema(plan.layout.row_schema)
    reader = FragmentReader(context.store, plan.read, fragment)
    for start, batch in reader.batches(
        plan.read.columns, prune=False, batch_rows=BATCH_ROWS, threads=True
    ):
        alive = alive_mask(without, start, batch.num_rows)
        kept = batch if alive is None else pc.filter(batch, alive)
        reader.require_texts(kept)
        columns = kept.columns
        if plan.layout.moved:  # The last two are the ids and versions.
            columns = [*columns[:-2], *map(settled_ids, columns[-2:])]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def rewrite_all(
    context: Context,
    plan: RewritePlan,
    groups: Sequence[tuple[Fragment, ...]],
    *,
    sort_by: Sequence[str] = (),
) -> list[tuple[tuple[Fragment, ...], list[Add]]]:
    """Rewrite each group; if one fails, all new files are deleted."""

    rewriting = partial(_rewritten, context, plan, tuple(sort_by))
    made = map_all(context.engine, rewriting, groups, undo=partial(discard_groups, context.store))
    return list(zip(groups, made, strict=True))


def _rewritten(
    context: Context, plan: RewritePlan, sort_by: Sequence[str], group: tuple[Fragment, ...]
) -> list[Add]:
    """Write the rows of a group into new files."""
    if not sort_by:
        return rewrite(context, plan, _parts(context, plan, group))
    rows = rows_in(context, plan, group)
    order = order_of(rows, sort_by)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(order), BATCH_ROWS):
            some = arrow_array(order[start : start + BATCH_ROWS])
            yield from rows.take(some).combine_chunks().to_batches()

    layout = replace(plan.layout, sorts=False)
    return write_data_files(context.store, batches(), layout, effects=context.effects)


def _parts(
    context: Context, plan: RewritePlan, group: Sequence[Fragment]
) -> Iterator[RewrittenPart]:
    return (
        (fragment, FragmentReader(context.store, plan.read, fragment).deletions())
        for fragment in group
    )


def rows_in(context: Context, plan: RewritePlan, group: Sequence[Fragment]) -> pa.Table:
    """Return all rows of a group as one table in memory."""
    batches = [
        batch for part in _parts(context, plan, group) for batch in moved_rows(context, plan, *part)
    ]
    return pa.Table.from_batches(batches, arrow_schema(plan.layout.row_schema))


def order_of(rows: pa.Table, sort_by: Sequence[str]) -> NDArray[np.int64]:
    """Return the stable sort order of rows."""
    keys = [(name, "ascending") for name in sort_by]
    order: NDArray[np.int64] = numpy_array(pc.sort_indices(rows, sort_keys=keys)).astype(np.int64)
    return order


def bytes_of(fragment: Fragment) -> int:
    """Return the size of a fragment's files."""
    return sum(file.size for file in fragment.files)


def bytes_left(fragment: Fragment) -> int:
    """Return the approximate size of a fragment without its deleted rows."""
    left = fragment.num_rows
    if left is None or not fragment.physical_rows:
        return bytes_of(fragment)
    return bytes_of(fragment) * left // fragment.physical_rows


def require_partition_columns(where: Expression | None, snapshot: Snapshot) -> None:
    """Raise if a predicate reads other columns than partition columns.

    Raises
    ------
    InvalidInputError
        The error names the column.
    """
    for path in () if where is None else columns_of(where):
        if path[0] not in snapshot.partition_columns:
            raise InvalidInputError(
                argument="where",
                field=".".join(path),
                reason="files are chosen by partition, and this is not a partition column",
                remedy=f"Use {', '.join(snapshot.partition_columns) or 'no predicate'}",
            )
