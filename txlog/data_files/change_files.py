"""Change data files: the row changes of a commit that its adds and removes do not show.

Without them, readers treat rows of new files as inserted and rows of removed files as deleted. If a
commit has change data files, they must contain all of its changes. Rules: the Delta protocol,
"Change Data Files".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import pyarrow as pa
from pyroaring import BitMap64

from txlog.actions.file import Add, Cdc
from txlog.base.arrow import arrow_scalar, pc
from txlog.base.errors import tidied
from txlog.base.threads import in_shares, map_all
from txlog.base.thresholds import Threshold
from txlog.commit.context import Context
from txlog.data_files.write import FileLayout, write_data_files
from txlog.fragments.deletion_vector import alive_mask
from txlog.fragments.fragment import DataFile, Fragment
from txlog.fragments.packs import own_packs
from txlog.log.paths import decode_path
from txlog.protocol.properties import Properties
from txlog.scan.data_file import BATCH_ROWS
from txlog.scan.read import FragmentReader
from txlog.scan.read_plan import ReadPlan, read_plan
from txlog.schema.arrow import arrow_schema
from txlog.schema.types import CHANGE_TYPE, PrimitiveType, StructField, StructType
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store

FOLDER = "_change_data"

ChangeType = Literal["insert", "delete", "update_preimage", "update_postimage"]

# The size of the files whose changes one worker writes.
_GROUP_BYTES: Threshold = 256 * 1024 * 1024


@dataclass(frozen=True)
class RowsOf:
    """Rows of a fragment that have the same change type."""

    change: ChangeType
    fragment: Fragment
    rows: BitMap64 | None  # Positions; None means all rows that are not deleted.


def records_changes(snapshot: Snapshot) -> bool:
    """Return whether writers of a table must record changes."""
    return snapshot.is_active("changeDataFeed")


def change_layout(snapshot: Snapshot, schema: StructType) -> FileLayout:
    """Return the layout of change data files: the table's columns, and the type of change."""
    raw = {
        name: text
        for name, text in snapshot.metadata.configuration.items()
        if name != "delta.dataSkippingStatsColumns"
    }
    kind = StructField(CHANGE_TYPE, PrimitiveType("string"), nullable=False)
    return FileLayout(
        StructType((*schema.fields, kind)),
        tuple(snapshot.partition_columns),
        Properties({**raw, "delta.dataSkippingNumIndexedCols": "0"}),
        folder=FOLDER,
        prefix="cdc",
        mapping_mode=snapshot.mapping_mode,
        sorts=False,
    )


def as_changes(rows: pa.RecordBatch, change: ChangeType, layout: FileLayout) -> pa.RecordBatch:
    """Convert rows of the table to rows of a change data file."""
    schema = arrow_schema(layout.schema)
    known = set(rows.schema.names)
    arrays = [
        rows.column(field.name) if field.name in known else pa.nulls(rows.num_rows, field.type)
        for field in list(schema)[:-1]
    ]
    arrays.append(pa.repeat(arrow_scalar(change), rows.num_rows))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def write_changes(
    context: Context, batches: Iterable[pa.RecordBatch], layout: FileLayout
) -> list[Cdc]:
    """Write change rows; on an error, the files are deleted."""
    adds = write_data_files(context.store, batches, layout, effects=context.effects)
    return [
        Cdc(path=add.path, partition_values=add.partition_values, size=add.size, tags=add.tags)
        for add in adds
    ]


def discard_changes(store: Store, files: Sequence[Cdc]) -> None:
    """Delete change data files that no commit needs; a failure is a warning."""
    paths = [place for file in files for place in (file.path, *own_packs([file]))]
    tidied(lambda: store.delete([decode_path(path) for path in paths]))


def write_rows_of(
    context: Context,
    snapshot: Snapshot,
    parts: Sequence[RowsOf],
    *,
    schema: StructType | None = None,
) -> list[Cdc]:
    """Write rows of fragments as changes.

    Parameters
    ----------
    schema
        The table's schema after the commit. Default: the current one.
    """
    layout = change_layout(snapshot, schema or snapshot.schema)
    plan = _read_plan(snapshot, schema or snapshot.schema)
    write = partial(_write_group, context, plan, layout)

    def undo(written: list[list[Cdc]]) -> None:
        discard_changes(context.store, [file for files in written for file in files])

    groups = map_all(context.engine, write, _groups(parts), undo=undo)
    return [file for files in groups for file in files]


def _read_plan(snapshot: Snapshot, schema: StructType) -> ReadPlan:
    plan = read_plan(snapshot)
    return replace(plan, columns=schema.fields, needed=schema.fields)


def rows_of_files(
    context: Context, snapshot: Snapshot, schema: StructType, adds: Sequence[Add]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of new files of a version in the columns of a schema."""
    plan = _read_plan(snapshot, schema)
    for part in inserted_rows(adds):
        yield from _rows(context, plan, part)


def _groups(parts: Sequence[RowsOf]) -> list[list[RowsOf]]:
    sizes = [sum(file.size for file in part.fragment.files) for part in parts]
    return in_shares(parts, sizes, _GROUP_BYTES)


def _write_group(
    context: Context, plan: ReadPlan, layout: FileLayout, group: Sequence[RowsOf]
) -> list[Cdc]:
    batches = (
        as_changes(rows, part.change, layout)
        for part in group
        for rows in _rows(context, plan, part)
    )
    return write_changes(context, batches, layout)


def _rows(context: Context, plan: ReadPlan, part: RowsOf) -> Iterator[pa.RecordBatch]:
    reader = FragmentReader(context.store, plan, part.fragment)
    deleted = reader.deletions() if part.rows is None else None
    for start, batch in reader.batches(
        plan.columns, prune=False, batch_rows=BATCH_ROWS, threads=True, only=part.rows
    ):
        if part.rows is None:
            alive = alive_mask(deleted, start, batch.num_rows)
            live = batch if alive is None else batch.filter(alive)
            reader.require_texts(live)
            yield live
            continue
        chosen = chosen_rows(part.rows, start, batch)
        if chosen is not None:
            reader.require_texts(chosen)
            yield chosen


def chosen_rows(rows: BitMap64, start: int, batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """Return the rows of a batch at some positions; None if there are none."""
    others = alive_mask(rows, start, batch.num_rows)
    return None if others is None else batch.filter(pc.invert(others))


def inserted_rows(adds: Sequence[Add]) -> list[RowsOf]:
    """Return the rows of new files as inserted ones."""
    return [
        RowsOf(
            "insert",
            Fragment(0, (DataFile(add.path, add.size),), partition_values=add.partition_values),
            None,
        )
        for add in adds
    ]


def deleted_rows(fragments: Iterable[Fragment]) -> list[RowsOf]:
    """Return all rows of fragments as deleted ones."""
    return [RowsOf("delete", fragment, None) for fragment in fragments]
