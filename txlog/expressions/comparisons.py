"""Comparisons of Arrow values as in Spark. Pure.

NaN equals itself and is the greatest number. Structs are compared field by field, and arrays value
by value, then by length; a null in one is less than any value, and equals another null. Maps, which
SQL does not compare, are equal if their entries are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.base.columns import nearest_floats
from txlog.expressions.operators import OPERATORS, Operator, in_one_decimal
from txlog.expressions.values import numbers, one_array, over_arrays


def compare(op: Operator, left: Any, right: Any) -> Any:
    """Return for each row whether an operator is true of two values; null if one is null."""
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        if not op.null_safe:
            return _all_null(left if isinstance(right, pa.Scalar) else right)
        return pc.and_(pc.is_null(left), pc.is_null(right))
    if pa.types.is_nested(left.type):
        found = _compare_nested(op, left, right)
    else:
        left, right = alike(left, right)
        of_floats = pa.types.is_floating(left.type)
        found = _compare_floats(op, left, right) if of_floats else op.compute(left, right)
    if op.null_safe:
        both = pc.and_(pc.is_null(left), pc.is_null(right))
        return pc.or_(both, pc.fill_null(found, False))
    return found


def _all_null(rows: Any) -> Any:
    if isinstance(rows, pa.Scalar):
        return arrow_scalar(None, pa.bool_())
    return pa.nulls(len(rows), pa.bool_())


def _compare_floats(op: Operator, left: Any, right: Any) -> Any:
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    # Each operator is true of one of the three orders, or of all others.
    if op.less == op.greater:
        found, wanted = pc.or_(pc.equal(left, right), pc.and_(left_nan, right_nan)), op.equal
    elif op.equal == op.greater:
        less = pc.or_(pc.less(left, right), pc.and_(pc.invert(left_nan), right_nan))
        found, wanted = less, op.less
    else:
        greater = pc.or_(pc.greater(left, right), pc.and_(left_nan, pc.invert(right_nan)))
        found, wanted = greater, op.greater
    return found if wanted else pc.invert(found)


def alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Cast both sides to a common type if Arrow's own promotion fails or loses digits."""
    a, b = left.type, right.type
    if a == b:
        return left, right
    if pa.types.is_floating(a) or pa.types.is_floating(b):
        return as_double(left), as_double(right)
    if pa.types.is_decimal(a) or pa.types.is_decimal(b):
        return in_one_decimal(left, right)
    if pa.types.is_timestamp(a) or pa.types.is_timestamp(b):
        zone = next((kind.tz for kind in (a, b) if getattr(kind, "tz", None)), None)
        return left.cast(pa.timestamp("us", zone)), right.cast(pa.timestamp("us", zone))
    return left, right


def as_double(value: Any) -> Any:
    """Return the doubles nearest to numbers: longs and decimals may have more digits."""
    if pa.types.is_decimal(value.type):
        return nearest_floats(value)
    return value.cast(pa.float64(), safe=False)


# Structs and arrays ------------------------------------------------------------------------------


@over_arrays
def _compare_nested(op: Operator, left: pa.Array, right: pa.Array) -> pa.Array:
    order = _order(left, right)
    wanted = ((order < 0) & op.less) | ((order == 0) & op.equal) | ((order > 0) & op.greater)
    absent = numpy_array(pc.or_(pc.is_null(left), pc.is_null(right)))
    return arrow_array(wanted, pa.bool_(), mask=absent)


def _order(left: pa.Array, right: pa.Array) -> Any:
    """Return -1, 0 or 1 for each pair of values, of which null is the least."""
    if pa.types.is_struct(left.type):
        fields = zip(left.flatten(), right.flatten(), strict=True)
        order = _first_difference([_order(a, b) for a, b in fields], len(left))
    elif pa.types.is_map(left.type):
        order = _order_of_lists(_by_key(left), _by_key(right))
    elif pa.types.is_nested(left.type):
        order = _order_of_lists(left, right)
    elif pa.types.is_null(left.type) or pa.types.is_null(right.type):
        order = np.zeros(len(left), np.int8)
    else:
        less, greater = (
            numpy_array(pc.fill_null(compare(OPERATORS[sign], left, right), False))
            for sign in ("<", ">")
        )
        order = greater.astype(np.int8) - less.astype(np.int8)
    there, others = (numpy_array(pc.is_valid(one)).astype(np.int8) for one in (left, right))
    return np.where((there & others) == 1, order, there - others)


def _first_difference(orders: Sequence[Any], count: int) -> Any:
    nothing = np.zeros(count, np.int8)
    return reduce(lambda before, order: np.where(before == 0, order, before), orders, nothing)


def _by_key(maps: pa.Array) -> pa.Array:
    """Return maps as lists of their entries, in the order of their keys."""
    entries = pa.struct([("key", maps.type.key_type), ("value", maps.type.item_type)])
    lists = maps.cast(pa.list_(entries))
    lengths = numbers(pc.list_value_length(lists))
    flat = pc.list_flatten(lists)
    columns = {
        "row": arrow_array(np.repeat(np.arange(len(lists)), lengths), pa.int64()),
        "key": pc.struct_field(flat, "key"),
    }
    keys = [("row", "ascending"), ("key", "ascending")]
    ordered = flat.take(pc.sort_indices(pa.table(columns), sort_keys=keys))
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(arrow_array(ends), ordered, type=lists.type)


def _order_of_lists(left: pa.Array, right: pa.Array) -> Any:
    flats, starts, lengths = [], [], []
    for one in (left, right):
        counts = numbers(pc.list_value_length(one))
        flats.append(pc.list_flatten(one))
        starts.append(np.cumsum(counts) - counts)
        lengths.append(counts)
    shared = np.minimum(*lengths)
    rows = np.repeat(np.arange(len(left)), shared)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(shared) - shared, shared)
    a, b = (
        one_array(flat).take(arrow_array(start[rows] + within, pa.int64()))
        for flat, start in zip(flats, starts, strict=True)
    )
    orders = _order(a, b)
    order = np.sign(lengths[0] - lengths[1])
    different = np.flatnonzero(orders)
    found, first = np.unique(rows[different], return_index=True)
    order[found] = orders[different[first]]
    return order
