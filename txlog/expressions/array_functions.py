"""SQL functions that make arrays and maps from others: sets, sequences, parts put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.expressions.nested_functions import (
    equal_values,
    flat_values,
    in_turn,
    list_of,
    map_of,
    require_key,
    require_keys,
    where_all,
    with_element,
)
from txlog.expressions.signatures import DATE, Function, Typed, cast_number, common, refuse, same
from txlog.expressions.text_functions import TEXT, joined, reversed_text
from txlog.expressions.type_rules import (
    BOOLEAN,
    FLOATS,
    INTEGERS,
    VOID,
    common_type,
    primitive_name,
)
from txlog.expressions.values import numbers, of_numbers, over_arrays
from txlog.schema.arrow import arrow_type, from_arrow
from txlog.schema.types import (
    STRING,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    type_name,
)

_MOST_VALUES = 2**27  # Of `sequence`, for the rows of a batch: 1 GiB.


def _common_array(name: str, args: Sequence[Typed]) -> ArrayType:
    """Return the type of arrays that hold the elements of all arguments."""
    kinds = [kind for _, kind in args if isinstance(kind, ArrayType)]
    if not kinds:
        raise refuse(name, "needs an array, not only NULL")
    found = common(name, [(args[0][0], kind.element) for kind in kinds])
    return ArrayType(found, any(kind.contains_null for kind in kinds))


def _together(arrays: Sequence[pa.Array], element: pa.DataType) -> tuple[pa.Array, Any, Any]:
    """Return the values of the arrays of each row, one array after the other.

    Also return the row of each value, and the place of the array from which it comes.
    """
    parts = [flat_values(array) for array in arrays]
    lengths = [own for *_, own in parts]
    rows = np.concatenate([np.repeat(np.arange(len(own)), own) for own in lengths])
    places = np.repeat(np.arange(len(parts)), [int(own.sum()) for own in lengths])
    order = np.argsort(rows, kind="stable")
    flat = pa.concat_arrays([_as_element(values, element) for values, *_ in parts])
    return flat.take(arrow_array(order, pa.int64())), rows[order], places[order]


def _as_element(values: pa.Array, element: pa.DataType) -> pa.Array:
    return values if values.type == element else cast_number(values, element)


# Sets ------------------------------------------------------------------------------------------


def _set_type(name: str, args: Sequence[Typed]) -> DataType:
    kind = _common_array(name, args)
    plain = isinstance(kind.element, PrimitiveType) and kind.element.name not in _NOT_IN_SETS
    if not plain and not isinstance(kind.element, DecimalType):
        raise refuse(name, f"does not support {type_name(kind)}")
    if name == "arrays_overlap":
        return BOOLEAN
    may_contain_nulls = [isinstance(one, ArrayType) and one.contains_null for _, one in args]
    if name == "array_except":
        return ArrayType(kind.element, may_contain_nulls[0])
    return ArrayType(kind.element, all(may_contain_nulls)) if name == "array_intersect" else kind


_NOT_IN_SETS = FLOATS | {"variant"}  # Floats have two zeros, and NaN of different bits.


def _coded(left: pa.Array, right: pa.Array, element: pa.DataType) -> Any:
    """Return the values of two arrays of each row, numbered.

    Returned are the values, the row and the number of each distinct value of a row (-1 for null),
    where it is first, and whether each of the arrays has it.
    """
    flat, rows, places = _together([left, right], element)
    codes = numpy_array(pc.fill_null(flat.dictionary_encode().indices, -1)).astype(np.int64)
    pairs, first, which = np.unique(
        np.stack([rows, codes]), axis=1, return_index=True, return_inverse=True
    )
    which = which.ravel()  # Some versions of NumPy 2 return two dimensions.
    among = [np.bincount(which[places == one], minlength=len(first)) > 0 for one in (0, 1)]
    return flat, pairs, first, among


def _of_sets(kept: Callable[[Any, Any], Any]) -> Any:
    """Return a function of two arrays, which keeps each value once, in the order of the first.

    `kept` says for values whether they are kept, by whether each of the arrays has them.
    """

    @over_arrays
    def compute(left: pa.Array, right: pa.Array, kind: pa.DataType) -> Any:
        (left, right), absent = where_all(left, right)
        flat, pairs, first, among = _coded(left, right, kind.value_type)
        taken = kept(*among)
        lengths = np.bincount(pairs[0][taken], minlength=len(left))
        places = arrow_array(np.sort(first[taken]), pa.int64())
        return list_of(flat.take(places), lengths, absent, kind)

    return compute


@over_arrays
def _overlap(left: pa.Array, right: pa.Array, _kind: pa.DataType) -> Any:
    (left, right), absent = where_all(left, right)
    kinds = {side.type.value_type for side in (left, right)} - {pa.null()}
    fields = from_arrow(pa.schema([(str(kind), kind) for kind in kinds])).fields
    element = arrow_type(common_type([field.type for field in fields]) or VOID)
    _, (rows, codes), _, (in_left, in_right) = _coded(left, right, element)
    found = np.bincount(rows[in_left & in_right & (codes >= 0)], minlength=len(left)) > 0
    nulls = np.bincount(rows[codes < 0], minlength=len(left)) > 0
    filled = (flat_values(left)[2] > 0) & (flat_values(right)[2] > 0)
    return arrow_array(found, pa.bool_(), mask=absent | (nulls & filled & ~found))


# Parts -----------------------------------------------------------------------------------------


def _without_type(name: str, args: Sequence[Typed]) -> DataType:
    with_element(BOOLEAN)(name, args)
    kind = args[0][1]
    if not isinstance(kind, ArrayType):
        return kind
    element = common_type([kind.element, args[1][1]])
    return replace(kind, element=kind.element if element is None else element)


@over_arrays
def _without(value: pa.Array, unwanted: pa.Array, kind: pa.DataType) -> Any:
    (value, unwanted), absent = where_all(value, unwanted)
    equal, rows, _, lengths = equal_values(value, unwanted)
    left = lengths - np.bincount(rows[equal], minlength=len(value))
    return list_of(flat_values(value)[0].filter(arrow_array(~equal)), left, absent, kind)


def _reversed(value: Any, kind: pa.DataType) -> Any:
    return _reversed_list(value, kind) if pa.types.is_list(kind) else reversed_text(value, kind)


@over_arrays
def _reversed_list(value: pa.Array, kind: pa.DataType) -> Any:
    flat, starts, lengths = flat_values(value)
    places = np.repeat(2 * starts + lengths - 1, lengths) - np.arange(len(flat))
    absent = numpy_array(pc.is_null(value))
    return list_of(flat.take(arrow_array(places, pa.int64())), lengths, absent, kind)


def _concat_type(name: str, args: Sequence[Typed]) -> DataType:
    arrays = [isinstance(kind, ArrayType) for _, kind in args if kind != VOID]
    if not any(arrays):
        return STRING
    if not all(arrays):
        raise refuse(name, "puts texts together, or arrays, but not both")
    return _common_array(name, args)


def _concat(*values: Any) -> Any:
    return _concat_lists(*values) if pa.types.is_list(values[-1]) else joined(*values)


@over_arrays
def _concat_lists(*values: Any) -> Any:
    *given, kind = values
    arrays, absent = where_all(*given)
    flat, rows, _ = _together(arrays, kind.value_type)
    return list_of(flat, np.bincount(rows, minlength=len(absent)), absent, kind)


def _flatten_type(name: str, args: Sequence[Typed]) -> DataType:
    kind = args[0][1]
    inner = kind.element if isinstance(kind, ArrayType) else VOID
    if kind != VOID and not isinstance(inner, ArrayType):
        raise refuse(name, f"needs an array of arrays, not {type_name(kind)}")
    return inner


@over_arrays
def _flatten(value: pa.Array, kind: pa.DataType) -> Any:
    inner, _, lengths = flat_values(value)
    rows = np.repeat(np.arange(len(value)), lengths)
    absent = numpy_array(pc.is_null(value)).copy()
    absent[rows[numpy_array(pc.is_null(inner))]] = True
    flat, _, sizes = flat_values(inner)
    inside = np.repeat(rows, sizes)
    there = ~absent[inside]
    left = np.bincount(inside[there], minlength=len(value))
    return list_of(flat.filter(arrow_array(there)), left, absent, kind)


def _joined_type(name: str, args: Sequence[Typed]) -> DataType:
    if args[0][1] not in (VOID, ArrayType(STRING), ArrayType(STRING, False), ArrayType(VOID)):
        raise refuse(name, f"needs an array of strings, not {type_name(args[0][1])}")
    return STRING


@over_arrays
def _joined(value: pa.Array, separator: str | None, *more: Any) -> Any:
    *nulls, kind = more
    if separator is None or None in nulls:
        return pa.nulls(len(value), kind)
    flat, _, lengths = flat_values(value)
    flat, absent = _as_element(flat, kind), numpy_array(pc.is_null(value))
    if nulls:
        flat = pc.fill_null(flat, nulls[0])
    elif flat.null_count:
        there = numpy_array(pc.is_valid(flat))
        rows = np.repeat(np.arange(len(value)), lengths)
        lengths = np.bincount(rows[there], minlength=len(value))
        flat = flat.drop_null()
    return pc.binary_join(list_of(flat, lengths, absent, pa.list_(kind)), separator)


# Sequences -------------------------------------------------------------------------------------


def _sequence_type(name: str, args: Sequence[Typed]) -> DataType:
    kinds = [kind for _, kind in args]
    if all(kind in (DATE, VOID) for kind in kinds) and len(args) == 2:
        return ArrayType(DATE, False)
    if all(kind == VOID or primitive_name(kind) in INTEGERS for kind in kinds):
        return ArrayType(common(name, args), False)
    raise refuse(name, "needs whole numbers, or two dates without a step")


@over_arrays
def _sequence(*values: Any) -> Any:
    *given, kind = values
    given, absent = where_all(*given)
    first, last = numbers(given[0]), numbers(given[1])
    step = numbers(given[2]) if len(given) > 2 else np.where(first <= last, 1, -1)
    ends = np.where(step == 0, first == last, np.where(step > 0, first <= last, first >= last))
    if np.any(~ends & ~absent):
        row = np.flatnonzero(~ends & ~absent)[0]
        raise refuse("sequence", f"does not reach {last[row]} from {first[row]} by {step[row]}")
    span = np.where(step > 0, last - first, first - last).astype(np.uint64)
    steps = span // np.maximum(np.abs(step).astype(np.uint64), np.uint64(1))
    steps = np.where(absent, np.uint64(0), steps)
    if steps.astype(np.float64).sum() > _MOST_VALUES:
        raise refuse("sequence", f"gives more than {_MOST_VALUES} values for the rows of a batch")
    lengths = np.where(absent, 0, steps.astype(np.int64) + 1)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    flat = of_numbers(first[rows] + within * step[rows], kind.value_type)
    return list_of(flat, lengths, absent, kind)


# Maps ------------------------------------------------------------------------------------------


def _map_type(name: str, args: Sequence[Typed]) -> DataType:
    if len(args) % 2:
        raise refuse(name, "needs keys and values alternately")
    key, value = common(name, args[::2]), common(name, args[1::2])
    return _typed_map(name, key, value)


def _typed_map(name: str, key: DataType, value: DataType) -> MapType:
    if VOID in (key, value):
        raise refuse(name, "needs a typed NULL: CAST(NULL AS …)")
    require_key(name, key)
    return MapType(key, value)


@over_arrays
def _map(*values: Any) -> Any:
    *given, kind = values
    keys = in_turn(given[::2], kind.key_type)
    items = in_turn(given[1::2], kind.item_type)
    lengths = np.full(len(given[0]), len(given) // 2)
    require_keys("map", keys, np.repeat(np.arange(len(lengths)), lengths))
    return map_of(keys, items, lengths, np.zeros(len(lengths), bool), kind)


def _map_from_type(name: str, args: Sequence[Typed]) -> DataType:
    key, value = (kind.element if isinstance(kind, ArrayType) else VOID for _, kind in args)
    return _typed_map(name, key, value)


@over_arrays
def _map_from(keys: pa.Array, items: pa.Array, kind: pa.DataType) -> Any:
    (keys, items), absent = where_all(keys, items)
    flat, _, lengths = flat_values(keys)
    values, _, others = flat_values(items)
    if np.any(lengths != others):
        raise refuse("map_from_arrays", "needs as many values as keys")
    require_keys("map_from_arrays", flat, np.repeat(np.arange(len(lengths)), lengths))
    return map_of(flat, values, lengths, absent, kind)


_TWO = ("array", "array")

ARRAYS: dict[str, Function] = {
    "array_union": Function(_set_type, _TWO, _of_sets(lambda left, right: left | right)),
    "array_intersect": Function(_set_type, _TWO, _of_sets(lambda left, right: left & right)),
    "array_except": Function(_set_type, _TWO, _of_sets(lambda left, right: left & ~right)),
    "arrays_overlap": Function(_set_type, _TWO, _overlap),
    "array_remove": Function(_without_type, ("array", "any"), _without),
    "array_join": Function(_joined_type, ("array", "string!", "string!"), _joined, 2),
    "reverse": Function(same, ("string|array",), _reversed),
    "concat": Function(_concat_type, (f"{TEXT}|array",), _concat, repeats=True),
    "flatten": Function(_flatten_type, ("array",), _flatten),
    "sequence": Function(_sequence_type, ("whole|date", "whole|date", "whole"), _sequence, 2),
    "map": Function(_map_type, ("any", "any"), _map, repeats=True, of_null=True),
    "map_from_arrays": Function(_map_from_type, _TWO, _map_from),
}
