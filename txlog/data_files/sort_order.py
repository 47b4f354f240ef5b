"""The order of rows within files and across them, as the property `txlog.sortBy` declares it. Pure.

Rows are ascending, with nulls last; rows with equal values keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from txlog.actions.stats_text import Path
from txlog.base.arrow import pc
from txlog.data_files.listed_columns import require_listed
from txlog.expressions.tree import And, Column, IsNull
from txlog.protocol.properties import Properties
from txlog.schema.arrow import arrow_type
from txlog.schema.types import StructField, StructType
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.collect import has_bounds
from txlog.stats.files import fragment_bounds

if TYPE_CHECKING:  # An append needs no fragments.
    from txlog.fragments.fragment import Fragment
    from txlog.fragments.rows import FragmentRows

SORT_BY = "txlog.sortBy"
_TEXT = 31  # Longer bounds of texts may be cut.


def has_order(column: StructField) -> bool:
    """Return whether rows can be sorted by a column."""
    try:
        pc.sort_indices(pa.nulls(0, arrow_type(column.type)))
    except pa.ArrowException:
        return False
    return True


def sort_columns(
    properties: Properties, schema: StructType, partition_by: Iterable[str]
) -> tuple[str, ...]:
    """Return the columns by which the rows of a table's files are sorted, by their logical names.

    Columns that another engine has dropped end the list.
    """
    listed: Sequence[Path] = properties.get(SORT_BY) or ()
    partitions = {name.lower() for name in partition_by}
    names: list[str] = []
    for path in listed:
        found = schema.along(path) if len(path) == 1 else []
        if len(found) != 1 or found[0].name.lower() in partitions or not has_order(found[0]):
            break
        names.append(found[0].name)
    return tuple(names)


def require_sort_columns(
    schema: StructType, partition_by: Sequence[str], properties: Properties
) -> None:
    """Raise if `txlog.sortBy` names a column by which rows cannot be sorted.

    Raises
    ------
    InvalidInputError
        A column is unknown, is nested or a partition column, has no order, or occurs twice.
    """
    require_listed(
        SORT_BY,
        schema,
        partition_by,
        properties,
        has_order,
        lacking="order",
        of_partitions="and all rows of a file have the same value",
        once=True,
    )


def in_order(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return rows in the order of some columns; the same table if they have it already."""
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names])
    if order.equals(pa.arange(0, rows.num_rows).cast(order.type)):
        return rows
    return rows.take(order)


def files_in_order(
    snapshot: Snapshot, rows: FragmentRows, fragments: Iterable[Fragment], column: str
) -> list[list[tuple[Fragment, bool]]]:
    """Return the fragments of each partition by their least values of a column.

    The second value is whether the values of the fragment and of another one overlap. Fragments of
    which the log has no bounds are left out. Equal values at the ends of two fragments are no
    overlap.
    """
    field = snapshot.schema.get(column)
    if field is None or not has_bounds(field.type):
        return []
    one = And((IsNull(Column((column,), field.type)),))
    found = fragment_bounds(
        rows, snapshot.schema, snapshot.partition_columns, one, mapping_mode=snapshot.mapping_mode
    ).columns.get((column,))
    if found is None:
        return []
    lows, highs = (_comparable(side).to_pylist() for side in (found.low, found.high))
    bounds = dict(zip(rows.ids.to_pylist(), zip(lows, highs, strict=True), strict=True))
    known = [
        (tuple(sorted(one.partition_values.items())), *bounds[one.id], one)
        for one in fragments
        if None not in bounds.get(one.id, (None,))
    ]
    known.sort(key=lambda one: (str(one[0]), one[1], one[2], one[3].id))
    ordered = []
    for _, group in groupby(known, key=lambda one: one[0]):
        files = list(group)
        overlaps = [False] * len(files)
        highest = 0  # The place of the fragment with the largest value up to now.
        for place in range(1, len(files)):
            if files[place][1] < files[highest][2]:
                overlaps[highest] = overlaps[place] = True
            if files[place][2] > files[highest][2]:
                highest = place
        ordered.append([(one[3], is_over) for one, is_over in zip(files, overlaps, strict=True)])
    return ordered


def _comparable(bounds: pa.Array) -> pa.Array:
    if pa.types.is_string(bounds.type):
        return pc.utf8_slice_codeunits(bounds, 0, _TEXT).cast(pa.binary())
    return bounds
