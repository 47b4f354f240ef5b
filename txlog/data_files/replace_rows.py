"""Change rows: the old rows are removed from their files, and new files contain the new rows.

With deletion vectors, files keep the rows that do not change. Otherwise these rows are written
again, together with the changed ones. Rows keep their ids if the table tracks rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from txlog.actions.file import Add, Cdc
from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.threads import Threads, for_sizes, in_shares, map_ahead, map_all, together
from txlog.base.thresholds import Threshold
from txlog.commit.context import Context
from txlog.data_files.change_files import (
    RowsOf,
    as_changes,
    change_layout,
    discard_changes,
    inserted_rows,
    records_changes,
    write_changes,
    write_rows_of,
)
from txlog.data_files.constraints import given_list_error
from txlog.data_files.deletions import apply_deletes
from txlog.data_files.identity import Numbering, with_marks
from txlog.data_files.options import WriteOptions
from txlog.data_files.rewrite import plan_rewrite
from txlog.data_files.row_changes import FileDeletes, RowChanges
from txlog.data_files.write import FileLayout, discard_groups, write_data_files
from txlog.data_files.write_plan import WritePlan, plan_write
from txlog.fragments.deletion_vector import alive_mask, as_array
from txlog.fragments.fragment import Fragment
from txlog.fragments.ids import settled_ids
from txlog.scan.columns import ROW_ID, ROW_VERSION
from txlog.scan.data_file import BATCH_ROWS
from txlog.scan.plan import ScanPlan
from txlog.scan.positions import Numbers
from txlog.scan.read import FragmentReader
from txlog.scan.read_plan import ReadPlan, stored_list_error
from txlog.schema.arrow import arrow_schema
from txlog.schema.types import StructField, StructType
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store, is_far, threads_for

Places = tuple[Fragment, pa.Array]
"""A fragment, and positions of rows in it (uint64, ascending)."""
NewRows = Callable[[Sequence[Places], pa.RecordBatch], pa.RecordBatch]
"""Return new rows from the places and the values of the old rows.

There is one new row for each old row, in the same order. It pickles.
"""

# The size of the files whose changed rows one worker writes.
_GROUP_BYTES: Threshold = 256 * 1024 * 1024
# The same, if the worker also writes their other rows.
_REWRITTEN_BYTES: Threshold = 64 * 1024 * 1024
_GROUP_FILES: Threshold = 4096
_TOGETHER_ROWS: Threshold = 16_384  # Rows of several fragments that are computed together.
# Of a file in which fewer than one of as many rows change, only the pages of these are read.
_PAGED_SHARE: Threshold = 8
_AHEAD_BYTES: Threshold = 64 << 20  # About so many bytes of rows are read ahead.


@dataclass(frozen=True)
class FileChange:
    """The rows of one fragment that are removed, and those of them that get new values."""

    deletes: FileDeletes
    updated: BitMap64  # Some of `deletes.rows`.

    @property
    def fragment(self) -> Fragment:
        """The fragment."""
        return self.deletes.fragment


@dataclass(frozen=True)
class _ChangePlan:
    """The plan for reading and writing changed rows. It pickles."""

    read: ReadPlan
    columns: tuple[StructField, ...]  # The columns to read.
    write: WritePlan
    new_rows: NewRows
    keeps: bool  # Whether rows that do not change stay in their files.
    at_once: int  # The number of fragments of which one worker reads few rows at the same time.


def replace_rows(
    context: Context,
    snapshot: Snapshot,
    plan: ScanPlan,
    changes: Sequence[FileChange],
    new_rows: NewRows,
    *,
    reads: Collection[str] | None = None,
    inserted: Iterable[pa.RecordBatch] = (),
    schema: StructType | None = None,
    options: WriteOptions,
) -> RowChanges:
    """Write the new rows, and the vectors or files without the old rows.

    Memory is bounded by a few batches for each worker of the engine, and by the positions. After an
    error no new file remains.

    Parameters
    ----------
    plan
        The plan that found the rows.
    reads
        The columns that `new_rows` needs: it may get more of them. Default: all.
    inserted
        New rows; columns that they lack get their default.
    schema
        The table's schema after the change. Default: the current one, which stays.

    Raises
    ------
    SchemaMismatchError
        A new row does not fit the table, or breaks a constraint.
    UnsupportedFeatureError
        The table tracks rows, but moved rows would lose their ids.
    """
    keeps = snapshot.marks_deletions
    rewriting = plan_rewrite(snapshot, options)
    writing = plan_write(
        snapshot.metadata,
        schema or snapshot.schema,
        options,
        mapping_mode=snapshot.mapping_mode,
        protocol=snapshot.protocol,
    ).with_moved(rewriting.layout.moved)
    columns = rewriting.read.columns
    if keeps and reads is not None:
        chosen = {*reads, ROW_ID}
        columns = tuple(field for field in columns if field.name in chosen)
    moving = [one for one in changes if one.updated or (not keeps and not one.deletes.is_whole)]
    undo = partial(discard_groups, context.store)
    groups = _groups(moving, _GROUP_BYTES if keeps else _REWRITTEN_BYTES)
    at_once = _at_once(context.store, moving, workers=len(groups))
    rewriting.read.memo.footers = plan.reading.memo.footers  # Footers are not read again.
    steps = _ChangePlan(rewriting.read, columns, writing, new_rows, keeps, at_once)
    numbering = writing.numbering()

    def updated() -> RowChanges:
        write = partial(_write_group, context, steps)
        written = map_all(context.engine, write, groups, undo=undo)
        return RowChanges(written=tuple(add for group in written for add in group))

    def new() -> RowChanges:
        return RowChanges(written=tuple(_write_inserted(context, writing, inserted, numbering)))

    def left_out() -> RowChanges:
        return _leave_out(context, snapshot, plan, changes, options, keeps=keeps)

    def discard(parts: Sequence[RowChanges]) -> None:
        for part in parts:
            part.discard(context.store)

    # None of them depends on another one, and those of a remote store mostly wait.
    parts = together([updated, new, left_out], at_once=is_far(context.store), undo=discard)
    changed, added, deletes = parts
    cdc: list[Cdc] = []
    if records_changes(snapshot) and not all(_is_gone(one) for one in changes):
        try:
            cdc += _write_images(context, snapshot, steps, changes)
            new_rows_of = inserted_rows(added.written)
            cdc += write_rows_of(context, snapshot, new_rows_of, schema=writing.schema)
        except BaseException:
            discard(parts)
            discard_changes(context.store, cdc)
            raise
    marks = {} if numbering is None else numbering.marks()
    return replace(
        deletes,
        written=changed.written + added.written,
        cdc=tuple(cdc),
        copied_rows=0 if keeps else sum(_left(one) for one in changes),
        schema=None if schema is None else with_marks(schema, marks),
    )


def _is_gone(change: FileChange) -> bool:
    """Return whether a whole file is removed, so that its remove records all of its changes."""
    deletes = change.deletes
    return deletes.is_whole and not change.updated and len(deletes.fragment.files) == 1


def _left(change: FileChange) -> int:
    deletes = change.deletes
    return deletes.physical_rows - len(deletes.deleted) - len(deletes.rows)


def _leave_out(
    context: Context,
    snapshot: Snapshot,
    plan: ScanPlan,
    changes: Sequence[FileChange],
    options: WriteOptions,
    *,
    keeps: bool,
) -> RowChanges:
    deletes = [one.deletes for one in changes]
    if keeps:
        return apply_deletes(context, snapshot, plan, [], deletes, options, records=False)
    fragments = [one.fragment for one in deletes]  # The remaining rows are already written.
    left_out = apply_deletes(context, snapshot, plan, fragments, [], options, records=False)
    return replace(left_out, rows=sum(len(one.rows) for one in deletes))


def _groups(changes: Sequence[FileChange], most_bytes: int) -> list[list[FileChange]]:
    """Return changes in groups for one worker each: few files, and not many rows."""
    sizes = [sum(file.size for file in change.fragment.files) for change in changes]
    shares = [max(size / most_bytes, 1 / _GROUP_FILES) for size in sizes]
    return in_shares(changes, shares, 1)


def _at_once(store: Store, changes: Sequence[FileChange], workers: int) -> int:
    """Return of how many fragments each worker reads rows at the same time."""
    if not is_far(store):
        return 1
    usual = threads_for(store)
    sizes = (file.size for change in changes for file in change.fragment.files)
    found = for_sizes(usual, sizes)
    assert isinstance(found, Threads)
    return max(1, found.workers // max(1, min(workers, usual.workers)))


def _write_group(context: Context, steps: _ChangePlan, group: Sequence[FileChange]) -> list[Add]:
    """Write the changed rows of fragments, and the rows that cannot stay in their files."""
    batches = _rows(context, steps, group)
    return write_data_files(context.store, batches, steps.write.layout, effects=context.effects)


def _rows(
    context: Context, steps: _ChangePlan, group: Sequence[FileChange]
) -> Iterator[pa.RecordBatch]:
    if not steps.columns:
        return _rows_unread(steps, group)
    return _rows_read(context.store, steps, group)


def _rows_read(
    store: Store, steps: _ChangePlan, group: Sequence[FileChange]
) -> Iterator[pa.RecordBatch]:
    read = partial(_few_read, store, steps)
    ahead = map_ahead(
        read,
        group,
        workers=steps.at_once,
        ahead=steps.at_once,
        size=_about_bytes,
        ahead_size=_AHEAD_BYTES,
    )
    reading: AbstractContextManager[Iterator[_FewRows | None]] = (
        closing(ahead) if steps.at_once > 1 else nullcontext(map(read, group))
    )
    with reading as parts:
        for change, few in zip(group, parts, strict=True):
            if few is None:
                yield from _many_read(store, steps, change)
                continue
            for positions, batch in few:
                places = arrow_array(positions.astype(np.uint64))
                yield _updated(steps, [(change.fragment, places)], batch)


_FewRows = list[tuple[Numbers, pa.RecordBatch]]


def are_few(count: int, rows: int) -> bool:
    """Return whether so few rows of a file change that only the pages of these are read."""
    return count <= BATCH_ROWS and _PAGED_SHARE * count <= rows


def _about_bytes(change: FileChange) -> int:
    """Return about how many bytes the updated rows of a fragment have."""
    size = sum(file.size for file in change.fragment.files)
    return size * len(change.updated) // max(1, change.deletes.physical_rows)


def _few_read(store: Store, steps: _ChangePlan, change: FileChange) -> _FewRows | None:
    """Return the updated rows of a fragment with their positions; None if it is read in batches."""
    count = len(change.updated)
    # Files of a remote store are waited for, so several are read even where this costs more.
    waits = steps.at_once > 1 and count <= BATCH_ROWS
    if not steps.keeps or not (waits or are_few(count, change.deletes.physical_rows)):
        return None
    reader = FragmentReader(store, steps.read, change.fragment)
    numbers = numpy_array(as_array(change.updated).cast(pa.int64()))
    found = list(reader.at(steps.columns, numbers, BATCH_ROWS))  # By pages, if this is faster.
    for _, batch in found:
        reader.require_texts(batch)
    return found


def _many_read(store: Store, steps: _ChangePlan, change: FileChange) -> Iterator[pa.RecordBatch]:
    reader = FragmentReader(store, steps.read, change.fragment)
    only = change.updated if steps.keeps else None
    gone = change.deletes.rows | change.deletes.deleted
    for start, batch in reader.batches(
        steps.columns, prune=False, batch_rows=BATCH_ROWS, threads=True, only=only
    ):
        stay = None if steps.keeps else alive_mask(gone, start, batch.num_rows)
        others = alive_mask(change.updated, start, batch.num_rows)
        if others is None:  # No row of the batch gets new values.
            if not steps.keeps:
                left = batch if stay is None else batch.filter(stay)
                reader.require_texts(left)
                yield _as_written(steps, left)
            continue
        mask = pc.invert(others)
        places = pc.indices_nonzero(mask).cast(pa.uint64())
        old = batch.filter(mask)
        reader.require_texts(old)
        new = _updated(steps, [(change.fragment, pc.add(places, start))], old)
        if steps.keeps:
            yield new
            continue
        assert stay is not None  # Updated rows do not remain.
        places = pa.concat_arrays([places, pc.indices_nonzero(stay).cast(pa.uint64())])
        left = batch.filter(stay)
        reader.require_texts(left)
        both = pa.Table.from_batches([new, _as_written(steps, left)])
        yield from both.take(pc.sort_indices(places)).to_batches()


def _rows_unread(steps: _ChangePlan, group: Sequence[FileChange]) -> Iterator[pa.RecordBatch]:
    """Yield new rows for which the old ones need not be read: their positions are sufficient.

    Rows of several fragments are computed together.
    """
    for parts in _places(group):
        positions = pa.concat_arrays([part for _, part in parts])
        # A batch without columns would have no rows.
        yield _updated(steps, parts, pa.RecordBatch.from_arrays([positions], names=[""]))


def _places(group: Sequence[FileChange]) -> Iterator[list[Places]]:
    """Yield the positions of updated rows, each time of a batch of rows."""
    parts: list[Places] = []
    size = 0
    for change in group:
        positions = as_array(change.updated)
        for start in range(0, len(positions), BATCH_ROWS):
            part = positions.slice(start, BATCH_ROWS)
            if parts and size + len(part) > _TOGETHER_ROWS:
                yield parts
                parts, size = [], 0
            parts.append((change.fragment, part))
            size += len(part)
    if parts:
        yield parts


def _updated(steps: _ChangePlan, places: Sequence[Places], rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the new rows: checked, with the ids of the old rows, and the commit's version."""
    new = steps.new_rows(places, rows)
    reader = pa.RecordBatchReader.from_batches(new.schema, [new])

    def list_error(column: StructField) -> Exception:
        name = column.name
        if name not in rows.schema.names or not new.column(name).equals(rows.column(name)):
            return given_list_error(column)
        ((fragment, _),) = places  # Only rows of one fragment are read together.
        physical = column.name_in_files(steps.read.form.mapping_mode)
        path = fragment.files_giving(physical)[0].path
        return stored_list_error(path, steps.read.version, column)

    (checked,) = steps.write.checked(reader, list_error=list_error)
    moved = steps.write.layout.moved
    versions = pa.nulls(rows.num_rows, pa.int64())
    ids = [settled_ids(rows.column(ROW_ID)), versions] if moved else []
    return _with_ids(steps, checked, ids)


def _as_written(steps: _ChangePlan, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return unchanged rows in the columns to write, with ids and versions."""
    names = [field.name for field in steps.write.schema.fields]
    known = set(rows.schema.names)
    schema = arrow_schema(steps.write.schema)
    arrays = [
        rows.column(name) if name in known else pa.nulls(rows.num_rows, schema.field(name).type)
        for name in names
    ]
    moved = steps.write.layout.moved
    ids = [settled_ids(rows.column(name)) for name in (ROW_ID, ROW_VERSION)] if moved else []
    return _with_ids(steps, pa.RecordBatch.from_arrays(arrays, schema=schema), ids)


def _with_ids(steps: _ChangePlan, rows: pa.RecordBatch, ids: Sequence[pa.Array]) -> pa.RecordBatch:
    schema = arrow_schema(steps.write.layout.row_schema)
    return pa.RecordBatch.from_arrays([*rows.columns, *ids], schema=schema)


def _write_images(
    context: Context, snapshot: Snapshot, steps: _ChangePlan, changes: Sequence[FileChange]
) -> list[Cdc]:
    """Record the old and the new values of changed rows as change rows."""
    parts = [
        part
        for one in changes
        for part in (
            RowsOf("delete", one.fragment, one.deletes.rows - one.updated),
            RowsOf("update_preimage", one.fragment, one.updated),
        )
        if part.rows
    ]
    schema = steps.write.schema
    before = write_rows_of(context, snapshot, parts, schema=schema)
    write = partial(_write_postimages, context, steps, change_layout(snapshot, schema))

    def undo(written: list[list[Cdc]]) -> None:
        discard_changes(context.store, [file for files in written for file in files])

    try:
        groups = _groups([one for one in changes if one.updated], _GROUP_BYTES)
        after = map_all(context.engine, write, groups, undo=undo)
    except BaseException:
        discard_changes(context.store, before)
        raise
    return [*before, *(file for files in after for file in files)]


def _write_postimages(
    context: Context, steps: _ChangePlan, layout: FileLayout, group: Sequence[FileChange]
) -> list[Cdc]:
    keeping = replace(steps, keeps=True)  # Only the changed rows are needed.
    batches = (
        as_changes(rows, "update_postimage", layout) for rows in _rows(context, keeping, group)
    )
    return write_changes(context, batches, layout)


def _write_inserted(
    context: Context,
    plan: WritePlan,
    inserted: Iterable[pa.RecordBatch],
    numbering: Numbering | None,
) -> list[Add]:
    """Write new rows; the commit gives them new ids."""
    rows = (
        checked
        for batch in inserted
        for checked in plan.checked(
            pa.RecordBatchReader.from_batches(batch.schema, [batch]), numbering
        )
    )
    layout = replace(plan.layout, moved=())
    return write_data_files(context.store, rows, layout, effects=context.effects)
