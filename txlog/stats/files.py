"""Statistics of a table's files, from whatever the log holds of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import pyarrow as pa

from txlog.actions.columns import flat
from txlog.arrow import pc
from txlog.expressions.bind import columns_of
from txlog.expressions.tree import Expression
from txlog.schema.types import DataType, StructField, StructType
from txlog.stats.bounds import ALL, EVERYTHING, Bounds, ColumnBounds, Known, Path, merged
from txlog.stats.json_bounds import json_bounds, json_counts
from txlog.stats.maps import entries
from txlog.stats.partition import logged_partition_values, parse_partition_values
from txlog.stats.read import bound_type, struct_bounds, struct_count


def num_records(files: pa.Table) -> pa.Array:
    """Return the number of physical rows that `FILE_ROWS` state; null where they do not.

    Nothing is known of them without the column `stats`.
    """
    if "stats" not in files.column_names:
        return pa.nulls(files.num_rows, pa.int64())
    found = json_counts(files["stats"])
    if "stats_parsed" in files.column_names:
        rows = struct_count(flat(files["stats_parsed"]), ("numRecords",))
        found = pc.coalesce(found, rows)
    return found


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
    """Return what the log knows of the columns that a bound predicate reads.

    Parameters
    ----------
    files
        `FILE_ROWS`, which the rows of the result belong to.
    counts
        Their `num_records`, if the caller has them.
    known
        What is asked for; all else is unknown.
    """
    paths = columns_of(where)
    if counts is None:
        asked = Known.COUNTS in known
        counts = num_records(files) if asked else pa.nulls(files.num_rows, pa.int64())
    in_partition = [path for path in paths if path[0] in partition_columns]
    found = Bounds(
        counts,
        {path: _partition_bounds(files, schema, path[0], mapping_mode) for path in in_partition}
        if Known.PARTITIONS in known
        else {},
    )
    if not {Known.RANGES, Known.COUNTS}.intersection(known):
        return found
    # A scan's metadata columns are not in the schema; no file has statistics of them.
    others = [path for path in paths if path not in in_partition and schema.get(path[0])]
    if not others:
        return found
    physical = {path: physical_path(schema, path, mapping_mode) for path in others}
    told = json_bounds(files["stats"], schema, others, physical, rows=counts, known=known)
    if "stats_parsed" in files.column_names:
        parsed = struct_bounds(files["stats_parsed"], schema, others, physical, known=known)
        told = merged(told, parsed)
    return merged(found, told)


def physical_path(schema: StructType, path: Path, mode: str) -> Path:
    """Return a column's path by the names that data files and statistics use."""
    if mode == "none":
        return path
    kind: DataType = schema
    names = []
    for name in path:
        field = kind.get(name) if isinstance(kind, StructType) else None
        if field is None:
            return path
        names.append(field.physical_name)
        kind = field.type
    return tuple(names)


def _partition_bounds(files: pa.Table, schema: StructType, name: str, mode: str) -> ColumnBounds:
    """Return the bounds of a partition column: each file has one value of it."""
    column = schema.get(name)
    assert column is not None
    typed = partition_values(files, column, mode)
    nulls = pc.if_else(pc.is_null(typed), ALL, 0)
    low = high = typed.cast(bound_type(column.type))
    if pa.types.is_floating(low.type):
        # Nothing is above NaN, which Arrow has no order for.
        nan = pc.is_nan(low)
        low, high = pc.if_else(nan, math.inf, low), pc.if_else(nan, None, high)
    return ColumnBounds(low, high, nulls)


def partition_values(files: pa.Table, column: StructField, mode: str) -> pa.Array:
    """Return a partition column's values, in its type, for each of `FILE_ROWS`.

    `mode` is the table's column mapping. Errors as for `parse_partition_values`.
    """
    texts = logged_partition_values(flat(files["partition_values"]), column, mode)
    return parse_partition_values(texts, column.type)


def partition_texts(files: pa.Table, name: str) -> pa.Array:
    """Return a partition column's values as logged, for each of `FILE_ROWS`."""
    return entries(flat(files["partition_values"]), name)
