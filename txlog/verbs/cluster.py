"""Clustering: write rows with similar values in several columns to the same files.

Rules: spec/maintenance.md, MNT-30 to MNT-33.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from txlog.actions.file import Add
from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.columns import flat
from txlog.base.errors import InvalidInputError, cleaning, warn_caller
from txlog.base.threads import map_all
from txlog.base.thresholds import Threshold
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.data_files.curves import Curve, Numbers, bits_for, column_at, cuts_of, keys, ranks
from txlog.data_files.deletions import plan_changes
from txlog.data_files.options import WriteOptions, as_options
from txlog.data_files.rewrite import (
    RewritePlan,
    bytes_left,
    moved_rows,
    order_of,
    plan_rewrite,
    require_movable,
    require_partition_columns,
)
from txlog.data_files.write import discard_groups, write_data_files
from txlog.expressions.bind import column_path
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import Expression, col
from txlog.fragments.fragment import Fragment
from txlog.scan.data_file import BATCH_ROWS
from txlog.scan.read import FragmentReader
from txlog.schema.arrow import arrow_schema
from txlog.schema.types import ArrayType, MapType, StructField, StructType, no_field, type_name
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store
from txlog.verbs.mapped_columns import clustering_columns, logical_path
from txlog.verbs.rewrite import Rewrite, optimize_metrics

SPILL = "_txlog_spill"  # A hidden folder for temporary files of an operation.
PROVIDER = "txlog"
# The files whose rows one task holds; in memory they are larger.
_TASK_BYTES: Threshold = 128 << 20
_SAMPLED_ROWS: Threshold = 200_000  # The number of sampled rows of a partition.
_SPILLED_BYTES: Threshold = 256 << 20  # The bytes that a task collects before it writes them.
_KEY = "txlog.key"  # A column of the temporary files.


@dataclass(frozen=True)
class ClusterOptions:
    """How rows are ordered, and which files are rewritten."""

    columns: tuple[tuple[str, ...], ...]  # Paths.
    curve: Curve
    task_bytes: int = _TASK_BYTES
    sort_by: tuple[str, ...] = ()  # The order within files, if it is not that of the curve.


class Cluster(Rewrite):
    """Rewrite the rows of partitions along a curve over some columns; no row changes."""

    name = "OPTIMIZE"
    deadline_s = 3600.0  # As for `Compact`.

    def __init__(
        self,
        columns: Sequence[str] | None,
        where: Expression | None = None,
        *,
        curve: Curve = "hilbert",
        full: bool = True,
        options: WriteOptions | None = None,
        task_bytes: int | None = None,
    ) -> None:
        """Take the columns.

        Parameters
        ----------
        columns
            None: the table's clustering columns.
        where
            Only partitions for which this is true.
        full
            Whether to also rewrite files that are already clustered by these columns.
        task_bytes
            The size of the files whose rows a task may hold in memory.

        Raises
        ------
        InvalidInputError
            No column is given, or the curve or a number is invalid.
        """
        if columns is not None and not columns:
            raise InvalidInputError(argument="columns", reason="no column is given")
        if curve not in ("z-order", "hilbert"):
            raise InvalidInputError(
                argument="curve", reason=f"{curve!r} is not hilbert or z-order", remedy="Choose one"
            )
        if task_bytes is not None and (type(task_bytes) is not int or task_bytes < 1):
            raise InvalidInputError(
                argument="task_bytes", reason=f"{task_bytes!r} is not a whole number above 0"
            )
        for name in columns or ():
            col(name)  # Raises if it is not a name.
        self._columns = None if columns is None else tuple(columns)
        self._where = where
        self._curve: Curve = curve
        self._full = full
        self._options = as_options(options)
        self._task_bytes = task_bytes or _TASK_BYTES

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the files to remove, and the new files with their rows.

        Raises
        ------
        InvalidInputError
            The predicate is not over partition columns alone; or a column is not in the table, is
            a partition column, or has no order.
        UnsupportedFeatureError
            The table's rows would lose their ids.
        """
        require_movable(base)
        paths = (
            _of_table(base)
            if self._columns is None
            else [column_path(base.schema, name) for name in self._columns]
        )
        wanted = ClusterOptions(
            tuple(_checked(base, path) for path in paths), self._curve, self._task_bytes
        )
        scan = plan_changes(self.context, base, self._where)
        require_partition_columns(scan.reading.where, base)
        mark = _mark_of(wanted)
        fragments: Iterable[Fragment] = scan.fragments
        if not self._full:
            fragments = _unclustered(fragments, scan.files.rows.primaries, mark)
        plan = plan_rewrite(base, self._options.of_optimize(base.properties))
        groups = _by_partition(fragments)
        replaced = [fragment for group in groups for fragment in group]
        self._written.extend(write_clustered(self.context, plan, groups, wanted))
        if not replaced:
            return None
        rows = scan.rows_at(file.path for fragment in replaced for file in fragment.files)
        cube = {**mark, "ZCUBE_ID": self.context.effects.uuid()}
        for place, add in enumerate(self._written):
            self._written[place] = add.model_copy(update={"tags": {**(add.tags or {}), **cube}})
        change: dict[str, Any] = {}
        if self._columns is None:
            change["clustering_provider"] = PROVIDER
        return replace(
            self._moved(base, rows, "compact", change),
            isolation="SnapshotIsolation",
            parameters={
                "predicate": [] if scan.reading.where is None else [to_sql(scan.reading.where)],
                "zOrderBy": [] if self._columns is None else _names(wanted.columns),
                "clusterBy": _names(wanted.columns) if self._columns is None else None,
                "auto": False,
            },
            metrics=optimize_metrics(rows, self._written),
        )


def write_clustered(
    context: Context, plan: RewritePlan, groups: Iterable[list[Fragment]], wanted: ClusterOptions
) -> Iterator[Add]:
    """Rewrite groups of files, and yield the new ones: small groups together, others in ranges.

    A range fits a task.
    """
    small: list[list[Fragment]] = []
    for group in groups:
        tasks = -(-sum(map(bytes_left, group)) // wanted.task_bytes)
        if tasks > 1:
            yield from _in_ranges(context, plan, group, wanted, tasks)
        else:
            small.append(group)
    write = partial(_sorted, context, plan, wanted)
    written = map_all(context.engine, write, small, undo=partial(discard_groups, context.store))
    yield from (add for adds in written for add in adds)


def _names(columns: Iterable[Sequence[str]]) -> list[str]:
    return [".".join(path) for path in columns]


def _of_table(snapshot: Snapshot) -> list[tuple[str, ...]]:
    """Return the paths of a table's clustering columns, by their logical names.

    Raises
    ------
    InvalidInputError
        The table has no clustering columns.
    """
    found = clustering_columns(snapshot)
    if not found:
        raise InvalidInputError(
            reason="the table has no clustering columns",
            remedy="Set them with alter.cluster_by",
        )
    return [logical_path(snapshot, path) for path in found]


def _disorder(snapshot: Snapshot, fields: Sequence[StructField]) -> str:
    """Return why a column, given by the fields on its path, cannot order rows; empty if it can."""
    kind = fields[-1].type
    if fields[0].name in snapshot.partition_columns:
        return "it is a partition column, and all rows of a partition have the same value"
    nested = isinstance(kind, StructType | ArrayType | MapType)
    if nested or type_name(kind) in ("variant", "void"):
        return f"values of type {type_name(kind)} have no order"
    return ""


def _checked(snapshot: Snapshot, path: Sequence[str]) -> tuple[str, ...]:
    """Return the path, in the schema's spelling, of a column that can order rows."""
    fields = snapshot.schema.along(path)
    if len(fields) < len(path):
        kind = fields[-1].type if fields else snapshot.schema
        if isinstance(kind, StructType):
            fit = (one for one in kind.fields if not _disorder(snapshot, [*fields, one]))
            kind = StructType(tuple(fit))
        above, name, below = path[: len(fields)], path[len(fields)], path[len(fields) + 1 :]
        raise no_field(kind, name, above, below, argument="columns")
    found = [field.name for field in fields]
    physical = [field.name_in_files(snapshot.mapping_mode) for field in fields]
    problem = _disorder(snapshot, fields)
    if problem:
        raise InvalidInputError(
            argument="columns", field=".".join(found), reason=problem, remedy="Choose other columns"
        )
    layout = plan_rewrite(snapshot, WriteOptions()).layout
    if tuple(found) not in layout.stats_columns and tuple(physical) not in layout.stats_columns:
        warn_caller(
            f"files have no statistics of {'.'.join(found)}, so scans cannot skip files by it; "
            "see delta.dataSkippingStatsColumns and delta.dataSkippingNumIndexedCols"
        )
    return tuple(found)


def _mark_of(wanted: ClusterOptions) -> dict[str, str]:
    """Return Delta's tags for files that were clustered in this way."""
    return {
        "ZCUBE_ZORDER_BY": orjson.dumps(_names(wanted.columns)).decode(),
        "ZCUBE_ZORDER_CURVE": "hilbert" if wanted.curve == "hilbert" else "zorder",
    }


def _unclustered(
    fragments: Iterable[Fragment], files: pa.Table, mark: dict[str, str]
) -> list[Fragment]:
    """Return the fragments whose files do not have these tags."""
    tags = files.select(["path", "tags"]).to_pylist(maps_as_pydicts="lossy")
    done = {row["path"] for row in tags if mark.items() <= (row["tags"] or {}).items()}
    return [fragment for fragment in fragments if fragment.path not in done]


def _by_partition(fragments: Iterable[Fragment]) -> list[list[Fragment]]:
    groups: dict[tuple[tuple[str, str | None], ...], list[Fragment]] = {}
    for fragment in sorted(fragments, key=lambda fragment: fragment.id):
        key = tuple(sorted(fragment.partition_values.items()))
        groups.setdefault(key, []).append(fragment)
    return list(groups.values())


def _in_ranges(
    context: Context,
    plan: RewritePlan,
    group: list[Fragment],
    wanted: ClusterOptions,
    count: int,
) -> list[Add]:
    """Rewrite the rows of a partition in their order on the curve.

    They are first written to temporary files by range of the curve, then each range is sorted.
    Memory holds the rows of one range for each task.
    """
    ranges = _plan_ranges(context, plan, group, wanted, count)
    if ranges is None:
        return []
    with _spilling(context) as folder:
        spill = partial(_spilled, context, plan, ranges, folder)
        spilled = list(context.engine.map(spill, list(enumerate(group))))
        items = [
            [(name, places) for name, found in spilled if (places := found.get(number))]
            for number in range(len(ranges.starts) + 1)
        ]
        write = partial(_range_written, context, plan, ranges)
        chosen = [item for item in items if item]
        written = map_all(
            context.engine, write, chosen, undo=partial(discard_groups, context.store)
        )
    return [add for adds in written for add in adds]


def _sorted(
    context: Context, plan: RewritePlan, wanted: ClusterOptions, group: list[Fragment]
) -> list[Add]:
    """Rewrite the rows of a few fragments in their order on the curve."""
    schema = arrow_schema(plan.layout.row_schema)
    batches = [batch for fragment in group for batch in _alive(context, plan, fragment)]
    rows = pa.Table.from_batches(batches, schema)
    if not rows.num_rows:
        return []
    bits = bits_for(len(wanted.columns))
    numbers = [ranks(column_at(rows, path), None, bits) for path in wanted.columns]
    return _written_in_order(context, plan, rows, keys(numbers, bits, wanted.curve), wanted)


def _alive(context: Context, plan: RewritePlan, fragment: Fragment) -> Iterator[pa.RecordBatch]:
    deleted = FragmentReader(context.store, plan.read, fragment).deletions()
    return moved_rows(context, plan, fragment, deleted)


def _written_in_order(
    context: Context, plan: RewritePlan, rows: pa.Table, key: Numbers, wanted: ClusterOptions
) -> list[Add]:
    if wanted.sort_by:
        order = arrow_array(order_of(rows, wanted.sort_by), pa.int64())
    elif len(wanted.columns) == 1:  # The number of values that the keys of one column distinguish.
        order = pc.array_sort_indices(column_at(rows, wanted.columns[0]))
    else:
        order = arrow_array(np.argsort(key, kind="stable"), pa.int64())

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(order), BATCH_ROWS):
            yield from rows.take(order.slice(start, BATCH_ROWS)).combine_chunks().to_batches()

    layout = replace(plan.layout, sorts=False)
    return write_data_files(context.store, batches(), layout, effects=context.effects)


@dataclass(frozen=True)
class Ranges:
    """Parts of a curve with about the same number of rows."""

    wanted: ClusterOptions
    cuts: tuple[pa.Array, ...]  # The quantiles of each column.
    starts: Numbers  # The start of each range except the first.

    def keys_of(self, rows: pa.RecordBatch | pa.Table) -> Numbers:
        """Return the positions of rows on the curve."""
        bits = bits_for(len(self.cuts))
        columns = [
            ranks(column_at(rows, path), cuts, bits)
            for path, cuts in zip(self.wanted.columns, self.cuts, strict=True)
        ]
        return keys(columns, bits, self.wanted.curve)


def _plan_ranges(
    context: Context,
    plan: RewritePlan,
    group: Sequence[Fragment],
    wanted: ClusterOptions,
    count: int,
) -> Ranges | None:
    """Divide the curve into `count` ranges with a sample of the rows; None if there is no row."""
    total = sum(fragment.num_rows or 0 for fragment in group)
    stride = max(1, total // _SAMPLED_ROWS)
    names = {path[0] for path in wanted.columns}
    read = replace(plan.read, columns=tuple(c for c in plan.read.columns if c.name in names))
    sampled = context.engine.map(partial(_sampled, context.store, read, wanted, stride), group)
    tables = [table for table in sampled if table is not None]
    if not tables:
        return None
    sample = pa.concat_tables(tables)
    bits = bits_for(len(wanted.columns))
    columns = [(name,) for name in sample.column_names]
    cuts = tuple(cuts_of(column_at(sample, name), bits) for name in columns)
    places = replace(wanted, columns=tuple(columns))
    found = np.sort(Ranges(places, cuts, np.zeros(0, np.uint64)).keys_of(sample))
    at = [len(found) * number // count for number in range(1, count)]
    return Ranges(wanted, cuts, np.unique(found[at]) if len(found) else found)


def _sampled(
    store: Store, read: Any, wanted: ClusterOptions, stride: int, fragment: Fragment
) -> pa.Table | None:
    """Return the columns of each `stride`-th row of a fragment, including deleted rows.

    None: the file has no row.
    """
    reader = FragmentReader(store, read, fragment)
    parts = []
    for start, batch in reader.batches(
        read.columns, prune=False, batch_rows=BATCH_ROWS, threads=True
    ):
        places = arrow_array(np.arange(-start % stride, batch.num_rows, stride), pa.int64())
        rows = batch.take(places)
        reader.require_texts(rows)
        parts.append(
            pa.table(
                [column_at(rows, path) for path in wanted.columns],
                names=[str(number) for number in range(len(wanted.columns))],
            )
        )
    return pa.concat_tables(parts) if parts else None


@contextmanager
def _spilling(context: Context) -> Iterator[str]:
    """Return the name prefix of temporary files, which are deleted at the end of the `with`."""
    prefix = f"{context.effects.uuid()}-"

    def clean() -> None:
        names = [info.name for info in context.store.list_tree(SPILL)]
        context.store.delete([f"{SPILL}/{name}" for name in names if name.startswith(prefix)])

    with cleaning(clean):
        yield f"{SPILL}/{prefix}"


_Spilled = tuple[str, dict[int, list[int]]]  # A file, and the batches of each range in it.
_Part = tuple[str, list[int]]


def _spilled(
    context: Context, plan: RewritePlan, ranges: Ranges, prefix: str, item: tuple[int, Fragment]
) -> _Spilled:
    """Write the rows of a fragment to a temporary file, grouped by range."""
    number, fragment = item
    path = f"{prefix}{number}.arrow"
    schema = arrow_schema(plan.layout.row_schema).append(pa.field(_KEY, pa.uint64()))
    found: dict[int, list[int]] = {}
    batches: list[pa.RecordBatch] = []
    count = 0
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        context.store.open_output(path) as sink,
        pa.ipc.new_file(sink, schema, options=options) as writer,
    ):

        def flush() -> None:
            nonlocal count
            rows = pa.Table.from_batches(batches, schema)
            if not rows.num_rows:
                return
            batches.clear()
            key = numpy_array(flat(rows[_KEY]))
            of_range = np.searchsorted(ranges.starts, key, side="right")
            order = np.argsort(of_range, kind="stable")
            numbers, begins = np.unique(of_range[order], return_index=True)
            ends = [*begins[1:].tolist(), len(order)]
            for one, begin, end in zip(numbers.tolist(), begins.tolist(), ends, strict=True):
                part = rows.take(arrow_array(order[begin:end], pa.int64())).combine_chunks()
                for batch in part.to_batches():
                    writer.write_batch(batch)
                    found.setdefault(one, []).append(count)
                    count += 1

        for batch in _alive(context, plan, fragment):
            key = arrow_array(ranges.keys_of(batch), pa.uint64())
            batches.append(pa.RecordBatch.from_arrays([*batch.columns, key], schema=schema))
            if sum(one.nbytes for one in batches) > _SPILLED_BYTES:
                flush()
        flush()
    return path, found


def _range_written(
    context: Context, plan: RewritePlan, ranges: Ranges, parts: Sequence[_Part]
) -> list[Add]:
    """Write the rows of a range in their order on the curve."""
    batches: list[pa.RecordBatch] = []
    for path, places in parts:
        with context.store.open_input(path) as source, pa.ipc.open_file(source) as reader:
            batches.extend(reader.get_batch(place) for place in places)
    rows = pa.Table.from_batches(batches)
    key = numpy_array(flat(rows[_KEY]))
    return _written_in_order(context, plan, rows.drop_columns([_KEY]), key, ranges.wanted)
