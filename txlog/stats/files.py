"""Statistics of files and of fragments, from JSON texts, structs and partition values. Pure.

The statistics of a fragment's column come from the file that gives the column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from txlog.base.arrow import pc
from txlog.base.columns import flat
from txlog.base.errors import LogCorruptError
from txlog.expressions.bind import columns_of
from txlog.expressions.tree import Expression
from txlog.fragments.rows import FragmentRows
from txlog.protocol.form import logged_partition_values, physical_path
from txlog.schema.types import StructField, StructType
from txlog.stats.file_bounds import bound_type, struct_bounds, struct_count
from txlog.stats.json_bounds import json_bounds, json_counts
from txlog.stats.partition import parse_partition_values
from txlog.stats.skip import ALL, EVERYTHING, Bounds, ColumnBounds, Known, merged


def num_records(files: pa.Table) -> pa.Array:
    """Return the number of physical rows of each file in `FILE_ROWS`; null if it is not stated.

    All are null without the column `stats`.
    """
    if "stats" not in files.column_names:
        return pa.nulls(files.num_rows, pa.int64())
    counts = json_counts(files["stats"])
    if "stats_parsed" in files.column_names:
        rows = struct_count(flat(files["stats_parsed"]), ("numRecords",))
        counts = pc.coalesce(counts, rows)
    return counts


def count_texts(counts: pa.Array) -> pa.Array:
    """Return numbers of rows as texts of statistics, which state nothing else; null: null."""
    return pc.binary_join_element_wise('{"numRecords":', pc.cast(counts, pa.string()), "}", "")


def file_bounds(
    files: pa.Table,
    schema: StructType,
    partition_columns: Sequence[str],
    where: Expression,
    *,
    mapping_mode: str = "none",
    known: Collection[Known] = EVERYTHING,
    counts: pa.Array | None = None,
) -> Bounds:
    """Return the bounds of the columns that a bound predicate reads, for each file.

    Parameters
    ----------
    files
        `FILE_ROWS`. The result has one row for each of them.
    counts
        Their `num_records`, if the caller has them.
    known
        The kinds of statistics to read; all others are unknown.
    """
    paths = columns_of(where)
    if counts is None:
        asked = Known.COUNTS in known
        counts = num_records(files) if asked else pa.nulls(files.num_rows, pa.int64())
    in_partition = [path for path in paths if path[0] in partition_columns]
    bounds = Bounds(
        counts,
        {path: _partition_bounds(files, schema, path[0], mapping_mode) for path in in_partition}
        if Known.PARTITIONS in known
        else {},
    )
    if not {Known.RANGES, Known.COUNTS}.intersection(known):
        return bounds
    # A scan's metadata columns are not in the schema, and files have no statistics of them.
    others = [path for path in paths if path not in in_partition and schema.get(path[0])]
    if not others:
        return bounds
    physical = {path: physical_path(schema, path, mapping_mode) for path in others}
    stated = json_bounds(files["stats"], schema, others, physical, rows=counts, known=known)
    if "stats_parsed" in files.column_names:
        parsed = struct_bounds(files["stats_parsed"], schema, others, physical, known=known)
        stated = merged(stated, parsed)
    return merged(bounds, stated)


def _partition_bounds(files: pa.Table, schema: StructType, name: str, mode: str) -> ColumnBounds:
    """Return the bounds of a partition column, which has one value for each file."""
    column = schema.get(name)
    assert column is not None
    typed = partition_values(files, column, mode)
    nulls = pc.if_else(pc.is_null(typed), ALL, 0)
    low = high = pc.cast(typed, bound_type(column.type))
    if pa.types.is_floating(low.type):
        # Nothing is above NaN, and Arrow does not order NaN.
        nan = pc.is_nan(low)
        low, high = pc.if_else(nan, math.inf, low), pc.if_else(nan, None, high)
    return ColumnBounds(low, high, nulls)


def partition_values(files: pa.Table, column: StructField, mode: str) -> pa.Array:
    """Return a partition column's typed value for each of `FILE_ROWS`.

    `mode` is the table's column mapping. Errors as for `parse_partition_values`.
    """
    return parse_partition_values(partition_texts(files, column, mode), column.type)


def partition_texts(files: pa.Table, column: StructField, mode: str) -> pa.Array:
    """Return a partition column's logged text for each of `FILE_ROWS`.

    `mode` is the table's column mapping.
    """
    return logged_partition_values(flat(files["partition_values"]), column, mode)


def physical_rows(rows: FragmentRows) -> pa.Array:
    """Return the number of physical rows of each fragment; null if it is not stated.

    Raises
    ------
    LogCorruptError
        A column file has another number of rows than its primary, or states none (rule FRG-16).
    """
    counts = num_records(rows.primaries)
    require_same_counts(rows, counts)
    return counts


def require_same_counts(rows: FragmentRows, counts: pa.Array | None = None) -> None:
    """Raise as `physical_rows` if a column file and its primary have different row counts.

    `counts` are the row counts of the primaries, if the caller has them.
    """
    columns = rows.columns
    if not columns.rows.num_rows:
        return
    ours = (num_records(rows.primaries) if counts is None else counts).take(columns.owners)
    theirs = num_records(columns.rows)
    same = pc.fill_null(pc.equal(theirs, ours), False)
    _require(
        columns.rows,
        same,
        "stats",
        lambda at: f"it has {theirs[at]} rows, but the primary file of its fragment has {ours[at]}",
    )


def require_same_partitions(
    rows: FragmentRows, partitioned: Sequence[StructField], mode: str
) -> None:
    """Raise if a column file is in another partition than its primary (rule FRG-16).

    Raises
    ------
    LogCorruptError
        The error names the file.
    """
    columns = rows.columns
    for column in partitioned if columns.rows.num_rows else ():
        theirs = partition_texts(columns.rows, column, mode)
        ours = partition_texts(rows.primaries, column, mode).take(columns.owners)
        same = pc.fill_null(pc.equal(theirs, ours), pc.and_(theirs.is_null(), ours.is_null()))
        _require(
            columns.rows, same, "partitionValues", partial(_elsewhere, column.name, theirs, ours)
        )


def _elsewhere(name: str, theirs: pa.Array, ours: pa.Array, row: int) -> str:
    return f"its {name} is {theirs[row]}, but that of the primary file is {ours[row]}"


def _require(rows: pa.Table, same: pa.Array, field: str, reason: Callable[[int], str]) -> None:
    """Raise unless all column files fit their fragments; `reason` describes the misfit of a row."""
    if pc.all(same).as_py():
        return
    row = pc.index(same, False).as_py()
    raise LogCorruptError(
        path=rows["path"][row].as_py(),
        field=field,
        reason=f"a column file does not fit its fragment: {reason(row)}",
        remedy="The writer of this log made an error: restore a version without the file",
    )


def fragment_bounds(
    rows: FragmentRows,
    schema: StructType,
    partition_columns: Sequence[str],
    where: Expression,
    *,
    mapping_mode: str = "none",
    known: Collection[Known] = EVERYTHING,
    counts: pa.Array | None = None,
) -> Bounds:
    """Return the bounds of the columns that a bound predicate reads, for each fragment.

    The parameters are those of `file_bounds`. If a column file gives a column to all rows, the
    statistics of the primary file are not used for it. If one gives it to some rows, its bounds
    widen those of the other files, and the number of nulls is unknown (FRG-18).
    """

    def bounds_of(files: pa.Table, counts: pa.Array | None = None) -> Bounds:
        return file_bounds(
            files,
            schema,
            partition_columns,
            where,
            mapping_mode=mapping_mode,
            known=known,
            counts=counts,
        )

    bounds = bounds_of(rows.primaries, counts)
    if set(known) == {Known.PARTITIONS} or not rows.columns.rows.num_rows:
        return bounds
    theirs = bounds_of(rows.columns.rows)
    places = pa.arange(0, rows.primaries.num_rows)
    columns = dict(bounds.columns)
    for path in columns_of(where):
        field = schema.get(path[0])
        if field is None or path[0] in partition_columns:
            continue
        every = rows.columns.giving(field.name_in_files(mapping_mode))
        if path not in columns or not pc.any(every).as_py():
            continue
        layers = rows.columns.layers
        for layer in sorted(layers.filter(every).unique().to_pylist()):
            giving = pc.and_(every, pc.equal(layers, layer))
            order = pc.sort_indices(rows.columns.owners.filter(giving))
            mask = pc.is_in(places, value_set=rows.columns.owners.filter(giving))
            new = _taken(theirs.columns[path], giving, order)
            if layer:
                new = _widened(_taken(columns[path], mask, None), new)
            columns[path] = ColumnBounds(
                *(
                    pc.replace_with_mask(old, mask, given)
                    for old, given in zip(_sides(columns[path]), _sides(new), strict=True)
                )
            )
    return replace(bounds, columns=columns)


def _sides(bounds: ColumnBounds) -> tuple[pa.Array, pa.Array, pa.Array]:
    return bounds.low, bounds.high, bounds.nulls


def _taken(bounds: ColumnBounds, chosen: pa.Array, order: pa.Array | None) -> ColumnBounds:
    found = [side.filter(chosen) for side in _sides(bounds)]
    return ColumnBounds(*(found if order is None else [side.take(order) for side in found]))


def _widened(ours: ColumnBounds, theirs: ColumnBounds) -> ColumnBounds:
    """Return bounds of the values of both; unknown if one of them is."""
    low = pc.if_else(pc.less(theirs.low, ours.low), theirs.low, ours.low)
    high = pc.if_else(pc.greater(theirs.high, ours.high), theirs.high, ours.high)
    return ColumnBounds(low, high, pa.nulls(len(low), ours.nulls.type))
