"""SQL functions of arrays, maps and structs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.base.columns import map_entries
from txlog.base.errors import InvalidInputError
from txlog.expressions.signatures import INTEGER, Args, Function, Typed, cast_number, common, refuse
from txlog.expressions.tree import Literal, quote_name
from txlog.expressions.type_rules import (
    BOOLEAN,
    FLOATS,
    INTEGERS,
    LONG,
    VOID,
    common_type,
    primitive_name,
)
from txlog.expressions.values import numbers, over_arrays
from txlog.schema.types import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    type_name,
)


def _element(name: str, args: Sequence[Typed]) -> DataType:
    """Return the type of an array's element, or of a map's value for a constant key."""
    (_, kind), (key, key_kind) = args
    if isinstance(kind, ArrayType):
        if primitive_name(key_kind) not in INTEGERS:
            raise refuse(name, f"needs whole numbers as the index, not {type_name(key_kind)}")
        return kind.element
    if not isinstance(kind, MapType):
        raise refuse(name, f"needs a map or an array, not {type_name(kind)}")
    if not isinstance(key, Literal) or key.value is None:
        raise refuse(name, "needs a constant key")
    if common_type([kind.key, key_kind]) is None or not isinstance(kind.key, PrimitiveType):
        raise refuse(name, f"needs keys of type {type_name(kind.key)}, not {type_name(key_kind)}")
    return kind.value


def flat_values(value: pa.Array) -> tuple[pa.Array, Any, Any]:
    """Return the values of all lists or maps, and the start and length of each."""
    if pa.types.is_map(value.type):
        keys, items, lengths = map_entries(value)
        flat = pa.StructArray.from_arrays([keys, items], fields=list(_entries(value.type)))
        return flat, np.cumsum(lengths) - lengths, lengths
    lengths = numbers(pc.list_value_length(value))
    return pc.list_flatten(value), np.cumsum(lengths) - lengths, lengths


def _entries(kind: pa.DataType) -> tuple[pa.Field, pa.Field]:
    return pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)


def _lookup(name: str, value: Any, key: Any, kind: pa.DataType) -> Any:
    if pa.types.is_map(value.type):
        query = arrow_scalar(key.as_py(), value.type.key_type)
        return pc.map_lookup(value, query, "first")
    return _at(name, value, key, kind)


@over_arrays
def _at(name: str, value: pa.Array, place: pa.Array, _kind: pa.DataType) -> Any:
    """Return the values at indexes: from 0 for `l[0]` and `get`, else from 1 or from the end."""
    flat, starts, lengths = flat_values(value)
    given = numbers(place)
    there = numpy_array(pc.and_(pc.is_valid(value), pc.is_valid(place)))
    if name.endswith("element_at"):
        if np.any(there & (given == 0)):
            raise refuse(name, "counts from 1, or from -1 at the end; 0 is not an index")
        given = np.where(given < 0, lengths + given, given - 1)
    inside = (given >= 0) & (given < lengths)
    if name in ("[]", "element_at") and np.any(there & ~inside):
        raise InvalidInputError(
            argument="where",
            reason="a value cannot be computed: the index is out of the bounds of an array",
            remedy="Use get(array, index) or try_element_at(array, index), which return null in "
            "this case",
        )
    return flat.take(arrow_array(starts + given, pa.int64(), mask=~(inside & there)))


def with_element(gives: DataType) -> Any:
    """Return the rule of the type of a function of an array or a map, and of a value in it."""

    def result(name: str, args: Sequence[Typed]) -> DataType:
        kind, other = args[0][1], args[1][1]
        element = kind.element if isinstance(kind, ArrayType) else getattr(kind, "key", VOID)
        both = common_type([element, other])
        if both is None or not isinstance(element, PrimitiveType):
            raise refuse(name, f"looks for {type_name(element)}, not for {type_name(other)}")
        return gives

    return result


def equal_values(value: pa.Array, wanted: pa.Array) -> tuple[Any, Any, Any, Any]:
    """Return which values of all lists equal the wanted value of their row.

    Also return the row of each value, the values, and the number of values of each row.
    """
    if pa.types.is_map(value.type):
        flat, _, lengths = flat_values(value)
        flat = pc.struct_field(flat, "key")
    else:
        flat, _, lengths = flat_values(value)
    rows = np.repeat(np.arange(len(value)), lengths)
    if pa.types.is_null(flat.type):
        return np.zeros(len(rows), bool), rows, flat, lengths
    other = wanted.take(arrow_array(rows, pa.int64()))
    if flat.type != other.type:
        wide = (
            pa.float64()
            if pa.types.is_floating(flat.type) or pa.types.is_floating(other.type)
            else pa.int64()
        )
        if pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type):
            flat, other = cast_number(flat, wide), cast_number(other, wide)
        else:
            other = other.cast(flat.type)
    equal = pc.equal(flat, other)
    if pa.types.is_floating(flat.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(flat), pc.is_nan(other)))
    return numpy_array(pc.fill_null(equal, False)), rows, flat, lengths


@over_arrays
def _contains(value: pa.Array, wanted: pa.Array, _kind: pa.DataType) -> Any:
    equal, rows, flat, _ = equal_values(value, wanted)
    found = np.bincount(rows[equal], minlength=len(value)) > 0
    nulls = np.bincount(rows[numpy_array(pc.is_null(flat))], minlength=len(value)) > 0
    known = numpy_array(pc.and_(pc.is_valid(value), pc.is_valid(wanted)))
    return arrow_array(found, pa.bool_(), mask=~(known & (found | ~nulls)))


@over_arrays
def _position(value: pa.Array, wanted: pa.Array, kind: pa.DataType) -> Any:
    equal, rows, _, lengths = equal_values(value, wanted)
    places = np.flatnonzero(equal)
    found, first = np.unique(rows[places], return_index=True)
    result = np.zeros(len(value), np.int64)
    starts = np.cumsum(lengths) - lengths
    result[found] = places[first] - starts[found] + 1
    known = numpy_array(pc.and_(pc.is_valid(value), pc.is_valid(wanted)))
    return arrow_array(result, kind, mask=~known)


def _orderable(name: str, args: Sequence[Typed]) -> DataType:
    kind = args[0][1]
    element = kind.element if isinstance(kind, ArrayType) else VOID
    if not isinstance(element, PrimitiveType) or element.name in FLOATS | {"variant", "boolean"}:
        raise refuse(name, f"does not support {type_name(kind)}")
    return element


def _extreme(order: str) -> Any:
    @over_arrays
    def compute(value: pa.Array, _kind: pa.DataType) -> Any:
        flat, starts, lengths = flat_values(value)
        rows = np.repeat(np.arange(len(value)), lengths)
        table = pa.table({"row": arrow_array(rows, pa.int64()), "value": flat})
        keys = [("row", "ascending"), ("value", order)]
        ordered = flat.take(pc.sort_indices(table, sort_keys=keys))  # Nulls sort last.
        return ordered.take(arrow_array(starts, pa.int64(), mask=lengths == 0))

    return compute


def _same_list(name: str, args: Sequence[Typed]) -> DataType:
    _orderable(name, args)
    return args[0][1]


def _sorted(nulls_first: bool) -> Any:
    """Return a function that sorts lists; a second argument of false reverses the order."""

    def compute(value: Any, *more: Any) -> Any:
        *falls, kind = more
        rises = not falls or bool(falls[0])
        return over_arrays(_in_order(rises, nulls_first and rises))(value, kind)

    return compute


def _in_order(rises: bool, nulls_first: bool) -> Any:
    def compute(value: pa.Array, kind: pa.DataType) -> Any:
        flat, _, lengths = flat_values(value)
        columns = {
            "row": arrow_array(np.repeat(np.arange(len(value)), lengths), pa.int64()),
            "null": pc.is_null(flat).cast(pa.int8()),
            "value": flat,
        }
        keys = [
            ("row", "ascending"),
            ("null", "descending" if nulls_first else "ascending"),
            ("value", "ascending" if rises else "descending"),
        ]
        ordered = flat.take(pc.sort_indices(pa.table(columns), sort_keys=keys))
        return list_of(ordered, lengths, numpy_array(pc.is_null(value)), kind)

    return compute


@over_arrays
def _distinct(value: pa.Array, kind: pa.DataType) -> Any:
    flat, _, lengths = flat_values(value)
    rows = np.repeat(np.arange(len(value)), lengths)
    codes = numpy_array(pc.fill_null(flat.dictionary_encode().indices, -1)).astype(np.int64)
    _, first = np.unique(np.stack([rows, codes]), axis=1, return_index=True)
    kept = np.sort(first)
    left = np.bincount(rows[kept], minlength=len(value))
    return list_of(
        flat.take(arrow_array(kept, pa.int64())), left, numpy_array(pc.is_null(value)), kind
    )


@over_arrays
def _slice(value: pa.Array, start: pa.Array, length: pa.Array, kind: pa.DataType) -> Any:
    flat, starts, lengths = flat_values(value)
    first, count = numbers(start), numbers(length)
    absent = ~numpy_array(
        pc.and_(pc.is_valid(value), pc.and_(pc.is_valid(start), pc.is_valid(length)))
    )
    if np.any(~absent & ((first == 0) | (count < 0))):
        raise refuse(
            "slice", "needs a start from 1, or from -1 at the end, and a length of at least 0"
        )
    begin = np.where(first < 0, lengths + first, first - 1)
    inside = (begin >= 0) & (begin < lengths) & ~absent
    taken = np.where(inside, np.minimum(count, lengths - begin), 0)
    within = np.arange(taken.sum()) - np.repeat(np.cumsum(taken) - taken, taken)
    places = np.repeat(starts + begin, taken) + within
    return list_of(flat.take(arrow_array(places, pa.int64())), taken, absent, kind)


def list_of(flat: pa.Array, lengths: Any, absent: Any, kind: pa.DataType) -> pa.Array:
    """Return lists of values that follow each other; null where `absent` is true."""
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    mask = None if absent is None else np.append(absent, False)
    return pa.ListArray.from_arrays(
        arrow_array(ends, mask=mask), cast_number(flat, kind.value_type), type=kind
    )


def map_of(
    keys: pa.Array, items: pa.Array, lengths: Any, absent: Any, kind: pa.DataType
) -> pa.Array:
    """Return maps of keys and values that follow each other; null where `absent` is true."""
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    offsets = arrow_array(ends, mask=np.append(absent, False))
    keys, items = cast_number(keys, kind.key_type), cast_number(items, kind.item_type)
    return cast_number(pa.MapArray.from_arrays(offsets, keys, items), kind)


def where_all(*arrays: pa.Array) -> tuple[list[pa.Array], Any]:
    """Return arrays that are null in each row in which one is, and whether a row is null."""
    absent = np.any([numpy_array(pc.is_null(one)) for one in arrays], axis=0)
    if not absent.any():
        return list(arrays), absent
    places = arrow_array(np.arange(len(absent)), pa.int64(), mask=absent)
    return [one.take(places) for one in arrays], absent


def in_turn(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """Return the first values of arrays, then the second values, and so on, in one type."""
    count = len(arrays[0])
    order = (np.arange(count)[:, None] + np.arange(len(arrays)) * count).ravel()
    cast = [cast_number(one, kind) for one in arrays]
    return pa.concat_arrays(cast).take(arrow_array(order, pa.int64()))


def require_keys(name: str, keys: pa.Array, rows: Any) -> None:
    """Raise if a key is null, or is there twice in the map of one row."""
    codes = keys.dictionary_encode().indices
    if codes.null_count:
        raise refuse(name, "gave a null, which is not a key of a map")
    pairs = np.stack([rows, numpy_array(codes).astype(np.int64)])
    if np.unique(pairs, axis=1).shape[1] < len(rows):
        raise refuse(name, "gave a key twice in one map")


def require_key(name: str, kind: DataType) -> None:
    """Raise if txlog does not compare keys of a type as Spark does."""
    if not isinstance(kind, PrimitiveType) or kind.name in FLOATS | {"variant"}:
        raise refuse(name, f"does not support keys of type {type_name(kind)}")


@over_arrays
def _array(*values: Any) -> Any:
    *given, kind = values
    lengths = np.full(len(given[0]), len(given))
    return list_of(in_turn(given, kind.value_type), lengths, None, kind)


def _struct_type(name: str, args: Sequence[Typed]) -> DataType:
    names = [node.value if isinstance(node, Literal) else None for node, _ in args[::2]]
    if len(args) % 2 or not all(isinstance(one, str) for one in names):
        raise refuse(name, "needs pairs of a constant name and a value")
    if len({str(one).lower() for one in names}) < len(names):
        raise refuse(name, "needs different names")
    kinds = [kind for _, kind in args[1::2]]
    if VOID in kinds:
        raise refuse(name, "needs a typed NULL: CAST(NULL AS …)")
    fields = (StructField(str(one), kind) for one, kind in zip(names, kinds, strict=True))
    return StructType(tuple(fields))


@over_arrays
def _struct(*values: Any) -> Any:
    *given, kind = values
    arrays = [
        value.cast(field.type, safe=False) if value.type != field.type else value
        for value, field in zip(given[1::2], kind, strict=True)
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _field_type(_name: str, args: Sequence[Typed]) -> DataType:
    (_, kind), (field, _) = args
    assert isinstance(kind, StructType)
    assert isinstance(field, Literal)
    found = kind.get(str(field.value))
    if found is None:
        raise refuse(str(field.value), f"is not a field of {type_name(kind)}")
    return found.type


def _field(value: Any, name: str, _kind: pa.DataType) -> Any:
    names = [value.type.field(place).name for place in range(value.type.num_fields)]
    exact = name if name in names else next(one for one in names if one.lower() == name.lower())
    return pc.struct_field(value, exact)


def _map_part(part: str) -> Any:
    @over_arrays
    def compute(value: pa.Array, kind: pa.DataType) -> Any:
        flat, _, lengths = flat_values(value)
        absent = numpy_array(pc.is_null(value))
        return list_of(pc.struct_field(flat, part), lengths, absent, kind)

    return compute


@over_arrays
def _size(value: pa.Array, kind: pa.DataType) -> Any:
    if pa.types.is_map(value.type):
        _, _, lengths = map_entries(value)
        return pc.if_else(value.is_valid(), arrow_array(lengths), None).cast(kind)
    return pc.list_value_length(value).cast(kind)


def _of_map(part: str) -> Any:
    def result(_name: str, args: Sequence[Typed]) -> DataType:
        kind = args[0][1]
        if not isinstance(kind, MapType):
            return ArrayType(VOID)
        return ArrayType(kind.key, False) if part == "key" else ArrayType(kind.value)

    return result


def _place(name: str) -> Function:
    taken = "array|map" if name != "get" else "array"
    return Function(
        _element, (taken, "any"), lambda value, key, kind: _lookup(name, value, key, kind)
    )


def _field_text(args: Args, texts: Sequence[str]) -> str:
    name = args[1]
    assert isinstance(name, Literal)
    return f"({texts[0]}).{quote_name(str(name.value))}"


NESTED: dict[str, Function] = {
    "[]": replace(_place("[]"), hidden=True, text=lambda _, texts: f"{texts[0]}[{texts[1]}]"),
    "element_at": _place("element_at"),
    "try_element_at": _place("try_element_at"),
    "get": _place("get"),
    "size": Function(INTEGER, ("array|map",), _size, aliases=("cardinality", "array_size")),
    "array_contains": Function(with_element(BOOLEAN), ("array", "any"), _contains),
    "array_position": Function(with_element(LONG), ("array", "any"), _position),
    "array_min": Function(_orderable, ("array",), _extreme("ascending")),
    "array_max": Function(_orderable, ("array",), _extreme("descending")),
    "sort_array": Function(_same_list, ("array", "boolean!"), _sorted(True), least=1),
    "array_sort": Function(_same_list, ("array",), _sorted(False)),
    "array_distinct": Function(_same_list, ("array",), _distinct),
    "slice": Function(lambda _name, args: args[0][1], ("array", "whole", "whole"), _slice),
    "map_contains_key": Function(with_element(BOOLEAN), ("map", "any"), _contains),
    "map_keys": Function(_of_map("key"), ("map",), _map_part("key")),
    "map_values": Function(_of_map("value"), ("map",), _map_part("value")),
    "array": Function(
        lambda name, args: ArrayType(common(name, args)),
        ("any",),
        _array,
        repeats=True,
        of_null=True,
    ),
    "named_struct": Function(_struct_type, ("any", "any"), _struct, repeats=True, of_null=True),
    "field": Function(_field_type, ("struct", "string!"), _field, hidden=True, text=_field_text),
}
