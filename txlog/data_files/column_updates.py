"""Give columns new values in some rows, by column files: no row moves.

A file has the values of all rows of a fragment, or only the new ones (a *layer*), whichever is
cheaper. Where moving the rows is cheaper, they move. Rules: spec/fragments.md, FRG-48 to FRG-50.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from txlog.actions.file import Add, Cdc
from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.errors import clean_after
from txlog.base.threads import map_all
from txlog.base.thresholds import Threshold
from txlog.commit.context import Context
from txlog.data_files.assignments import Assignments
from txlog.data_files.change_files import RowsOf, records_changes, write_rows_of
from txlog.data_files.column_files import (
    ONE_FILE,
    outdated_files,
    require_addressable,
    written_for,
)
from txlog.data_files.constraints import (
    constraints_of,
    generated_columns,
    given_list_error,
)
from txlog.data_files.options import WriteOptions
from txlog.data_files.replace_rows import are_few
from txlog.data_files.rewrite import bytes_of, version_column
from txlog.data_files.row_changes import FileDeletes, RowChanges
from txlog.data_files.sort_order import SORT_BY, sort_columns
from txlog.data_files.write import FileLayout, discard_files
from txlog.data_files.write_plan import WritePlan, plan_write
from txlog.expressions.bind import columns_of
from txlog.expressions.tree import Expression
from txlog.fragments.deletion_vector import alive_mask, as_array
from txlog.fragments.fragment import Fragment
from txlog.fragments.ids import settled_ids
from txlog.fragments.metadata import data_file
from txlog.fragments.rows import FEATURE, GIVEN
from txlog.scan.columns import ROW_VERSION
from txlog.scan.data_file import BATCH_ROWS
from txlog.scan.plan import ScanPlan
from txlog.scan.read import FragmentReader
from txlog.scan.read_plan import ReadPlan, read_plan, stored_list_error
from txlog.schema.arrow import arrow_schema
from txlog.schema.types import PrimitiveType, StructField, StructType
from txlog.snapshot.snapshot import Snapshot

Numbers = NDArray[np.int64]
Way = Literal["whole", "layer", "move"]
"""A column file of all rows, one of the new values alone, or rows in other files."""

# One file more to open has about this price, in bytes that are written.
_FILE_BYTES: Threshold = 16 * 1024
# A column with so many layers gets a file of all rows with the next update.
_MOST_LAYERS: Threshold = 4
_MOST_LAYERS_OF_VERSIONS: Threshold = 16
# A layer has to be so many times smaller than a file of all rows, because readers read both files.
_LAYER_TIMES: Threshold = 4
# A layer says in about as many bits for each row and column which rows it gives.
_BITS: Threshold = 1


@dataclass(frozen=True)
class ColumnUpdate:
    """The plan for giving columns new values in some rows. It pickles."""

    context: Context
    read: ReadPlan  # The columns that are needed to compute and check the values.
    given: Assignments
    write: WritePlan  # Of these columns, with the rules that concern the new values.
    columns: tuple[StructField, ...]  # The columns with new values.
    version: StructField | None  # The files' column of the versions of rows, if these are tracked.

    @property
    def names(self) -> list[str]:
        """The physical names of all columns that the files give."""
        mode = self.read.form.mapping_mode
        names = [column.name_in_files(mode) for column in self.columns]
        return names if self.version is None else [*names, self.version.name]

    def write_file(self, part: tuple[FileDeletes, Way]) -> Add:
        """Write the column file of a fragment with the rows that change; errors as `replace_rows`.

        Deleted rows have nulls in it.
        """
        change, way = part
        fragment = change.fragment
        require_addressable(fragment)
        moved = () if self.version is None else (self.version,)
        batches = self._whole(change)
        layer = 0
        if way == "layer":
            moved = (*moved, StructField(GIVEN, PrimitiveType("boolean")))
            batches = self._layer(change)
            layer = fragment.highest_layer + 1
        layout = replace(
            self.write.layout,
            schema=StructType(tuple(replace(one, nullable=True) for one in self.columns)),
            partition_by=(),
            target_file_bytes=ONE_FILE,
            max_rows_per_file=None,
            moved=moved,
            materializes=False,
            sorts=False,
            is_indexed=self.write.layout.is_indexed and not layer,
        )
        return written_for(
            self.context, self.read.version, fragment, self._in(layout, batches), layout,
            self.names, layer=layer,
        )  # fmt: skip

    def _in(
        self, layout: FileLayout, batches: Iterator[list[pa.Array]]
    ) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(layout.row_schema)
        return (pa.RecordBatch.from_arrays(arrays, schema=schema) for arrays in batches)

    def _whole(self, change: FileDeletes) -> Iterator[list[pa.Array]]:
        """Yield the columns for all rows, with the new values of the rows that change."""
        reader = FragmentReader(self.context.store, self.read, change.fragment)
        for start, batch in reader.batches(
            self.read.columns, prune=False, batch_rows=BATCH_ROWS, threads=True
        ):
            count = batch.num_rows
            order = np.arange(count)
            alive = alive_mask(change.deleted, start, count)
            reader.require_texts(batch if alive is None else batch.filter(alive))
            arrays = self._old(batch)
            others = alive_mask(change.rows, start, count)
            if others is not None:
                mask = pc.invert(others)
                new = self._new(change.fragment, batch.filter(mask))
                changed = numpy_array(mask)
                order[changed] = count + np.arange(int(changed.sum()))
                arrays = [pa.concat_arrays(pair) for pair in zip(arrays, new, strict=True)]
            dead = None if alive is None else ~numpy_array(alive)
            if others is not None or dead is not None:
                places = arrow_array(order, mask=dead)
                arrays = [array.take(places) for array in arrays]
            yield arrays

    def _layer(self, change: FileDeletes) -> Iterator[list[pa.Array]]:
        """Yield the columns with the new values alone, and the mark of the rows that have them."""
        rows = change.fragment.physical_rows or 0
        schema = [arrow_schema(StructType((one,))).field(0).type for one in self.columns]
        kinds = schema if self.version is None else [*schema, pa.int64()]
        begin = 0
        for positions, new in self._changed(change):
            end = int(positions[-1]) + 1
            yield from _spread(new, positions, begin, end)
            begin = end
        nothing = [pa.nulls(0, kind) for kind in kinds]
        yield from _spread(nothing, np.zeros(0, np.int64), begin, rows)

    def _changed(self, change: FileDeletes) -> Iterator[tuple[Numbers, list[pa.Array]]]:
        """Yield the new values of rows that change, with their ascending positions."""
        reader = FragmentReader(self.context.store, self.read, change.fragment)
        if are_few(len(change.rows), change.physical_rows):
            numbers = numpy_array(as_array(change.rows).cast(pa.int64()))
            for positions, batch in reader.at(self.read.columns, numbers, BATCH_ROWS):
                reader.require_texts(batch)
                yield positions, self._new(change.fragment, batch)
            return
        for start, batch in reader.batches(
            self.read.columns, prune=False, batch_rows=BATCH_ROWS, threads=True, only=change.rows
        ):
            others = alive_mask(change.rows, start, batch.num_rows)
            if others is None:
                continue
            mask = pc.invert(others)
            old = batch.filter(mask)
            reader.require_texts(old)
            yield np.flatnonzero(numpy_array(mask)) + start, self._new(change.fragment, old)

    def _old(self, rows: pa.RecordBatch) -> list[pa.Array]:
        arrays = [rows.column(one.name) for one in self.columns]
        return arrays if self.version is None else [*arrays, settled_ids(rows.column(ROW_VERSION))]

    def _new(self, fragment: Fragment, rows: pa.RecordBatch) -> list[pa.Array]:
        """Return the new values of rows, checked; the commit gives their version."""
        new = self.given.of(rows)
        reader = pa.RecordBatchReader.from_batches(new.schema, [new])

        def list_error(column: StructField) -> Exception:
            if column.name in self._names_given:
                return given_list_error(column)
            physical = column.name_in_files(self.read.form.mapping_mode)
            path = fragment.files_giving(physical)[0].path
            return stored_list_error(path, self.read.version, column)

        (checked,) = self.write.checked(reader, list_error=list_error)
        arrays = [checked.column(one.name) for one in self.columns]
        versions = pa.nulls(rows.num_rows, pa.int64())
        return arrays if self.version is None else [*arrays, versions]

    @property
    def _names_given(self) -> set[str]:
        return {one.path[0] for one in self.given.values}


def _spread(
    arrays: Sequence[pa.Array], positions: Numbers, begin: int, end: int
) -> Iterator[list[pa.Array]]:
    """Yield values at their positions among rows, nulls elsewhere, and the mark of the values."""
    for start in range(begin, end, BATCH_ROWS):
        stop = min(end, start + BATCH_ROWS)
        first, last = np.searchsorted(positions, [start, stop])
        order = np.zeros(stop - start, np.int64)
        given = np.zeros(stop - start, np.bool_)
        given[positions[first:last] - start] = True
        order[given] = np.arange(first, last)
        places = arrow_array(order, mask=~given)
        marks = arrow_array(given, mask=~given)
        yield [*(array.take(places) for array in arrays), marks]


def plan_column_update(
    context: Context, snapshot: Snapshot, given: Assignments, options: WriteOptions
) -> ColumnUpdate | None:
    """Return the plan for giving values by column files; None if rows must move.

    They must if the table lacks the feature `txlog.fragments`, if the values determine the files
    of rows (partitions) or their order in them, or if a column has the name of the mark.

    Raises
    ------
    UnsupportedFeatureError
        As for `plan_write` and `plan_rewrite`.
    """
    if not snapshot.supports(FEATURE):
        return None
    generated = generated_columns(snapshot.schema)
    sources = {name: _names_of([expression]) for name, expression in generated.items()}
    assigned = {one.path[0] for one in given.values}
    changed = assigned | {
        name for name, reads in sources.items() if name not in assigned and reads & assigned
    }
    fixed = {*snapshot.partition_columns}
    if snapshot.properties.raw.get(SORT_BY) is not None:
        fixed |= {*sort_columns(snapshot.properties, snapshot.schema, snapshot.partition_columns)}
    columns = tuple(one for one in snapshot.schema.fields if one.name in changed)
    mode = snapshot.mapping_mode
    if changed & fixed or any(one.name_in_files(mode).lower() == GIVEN for one in columns):
        return None
    rules = tuple(
        rule
        for rule in constraints_of(snapshot.metadata, snapshot.schema)
        if _names_of([rule.predicate]) & changed
    )
    reads = {*snapshot.partition_columns, *changed, *given.reads}
    reads |= _names_of([rule.predicate for rule in rules])
    while more := set().union(*(sources.get(name, set()) for name in reads)) - reads:
        reads |= more  # A generated column is computed from its sources.
    fields = tuple(one for one in snapshot.schema.fields if one.name in reads)
    writing = plan_write(
        snapshot.metadata,
        snapshot.schema,
        options,
        mapping_mode=mode,
        protocol=snapshot.protocol,
    )
    layout = replace(writing.layout, schema=StructType(fields))
    version = version_column(snapshot)
    names = [one.name for one in fields]
    return ColumnUpdate(
        context,
        read_plan(snapshot, columns=names if version is None else [*names, ROW_VERSION]),
        replace(given, schema=StructType(fields)),
        replace(writing, layout=layout, rules=rules),
        columns,
        version,
    )


def _names_of(expressions: Sequence[Expression]) -> set[str]:
    return {path[0] for one in expressions for path in columns_of(one)}


def ways_of(update: ColumnUpdate, changes: Sequence[FileDeletes]) -> list[Way]:
    """Return the cheapest way for the rows of each fragment, by the bytes that are written."""
    sizes = update.context.engine.map(partial(_stored_bytes, update), changes)
    return [_way(update, change, size) for change, size in zip(changes, sizes, strict=True)]


def _stored_bytes(update: ColumnUpdate, change: FileDeletes) -> int:
    """Return the bytes of the columns with new values in the files of a fragment."""
    fragment = change.fragment
    if fragment.physical_rows is None or not fragment.is_durable:
        return 0
    mode = update.read.form.mapping_mode
    names = [column.name_in_files(mode) for column in update.columns]
    return FragmentReader(update.context.store, update.read, fragment).stored_bytes(names)


def _way(update: ColumnUpdate, change: FileDeletes, size: int) -> Way:
    fragment, rows = change.fragment, change.physical_rows
    if fragment.physical_rows is None or not fragment.is_durable or not rows:
        return "move"
    share = len(change.rows) / rows
    whole = size + _FILE_BYTES
    marks = _BITS * rows * (len(update.columns) + 1) / 8
    layer = size * share + marks + _FILE_BYTES
    way: Way = "whole"
    cost = whole
    if _takes_layer(update, fragment) and layer * _LAYER_TIMES <= whole:
        way, cost = "layer", int(layer)
    return way if cost <= bytes_of(fragment) * share else "move"


def _takes_layer(update: ColumnUpdate, fragment: Fragment) -> bool:
    """Return whether no column has as many layers as it may.

    Layers of all columns give versions of rows, so for these the limit is higher.
    """
    mode = update.read.form.mapping_mode
    most = {column.name_in_files(mode): _MOST_LAYERS for column in update.columns}
    if update.version is not None:
        most[update.version.name] = _MOST_LAYERS_OF_VERSIONS
    return all(len(fragment.files_giving(name)) <= limit for name, limit in most.items())


def update_columns(
    context: Context,
    snapshot: Snapshot,
    plan: ScanPlan,
    update: ColumnUpdate,
    parts: Sequence[tuple[FileDeletes, Way]],
) -> RowChanges:
    """Write the column files of fragments, and the changes of their rows if they are recorded.

    After an error no new file remains.
    """
    written = map_all(
        context.engine, update.write_file, parts, undo=partial(discard_files, context.store)
    )
    names = {*update.names}
    whole = [
        file.path
        for (change, way) in parts
        for file in (change.fragment.files if way == "whole" else ())
    ]
    changes = [change for change, _ in parts]
    try:
        removes, shortened = outdated_files(plan.rows_at(whole), names, context.effects.now_ms())
        cdc = write_images(
            context,
            snapshot,
            [
                (change.fragment, change.rows, change.fragment.with_file(data_file(add)))
                for change, add in zip(changes, written, strict=True)
            ],
        )
    except BaseException as error:
        clean_after(error, lambda: discard_files(context.store, written))
        raise
    return RowChanges(
        plan.reading.where,
        removes=tuple(removes),
        written=tuple(written),
        shortened=tuple(shortened),
        columns=frozenset(names),
        cdc=tuple(cdc),
        rows=sum(len(change.rows) for change in changes),
        files_removed=len(removes),
    )


def write_images(
    context: Context,
    snapshot: Snapshot,
    parts: Sequence[tuple[Fragment, BitMap64 | None, Fragment]],
) -> list[Cdc]:
    """Record rows as they are, and as they are in fragments with new column files.

    Nothing is written if the table records no changes.

    Parameters
    ----------
    parts
        The fragment as it is, the positions of the rows (None: all), and the new fragment.
    """
    if not records_changes(snapshot):
        return []
    before = [RowsOf("update_preimage", fragment, rows) for fragment, rows, _ in parts]
    after = [RowsOf("update_postimage", fragment, rows) for _, rows, fragment in parts]
    return write_rows_of(context, snapshot, [*before, *after])
