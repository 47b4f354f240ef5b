"""SQL functions of lambdas, of arrays and of maps.

A lambda is computed for the elements of all rows at once: its variables are columns of a batch that
has a row for each element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.expressions.nested_functions import (
    flat_values,
    list_of,
    map_of,
    require_key,
    require_keys,
    where_all,
)
from txlog.expressions.signatures import (
    INTEGER,
    Args,
    Bind,
    LambdaFunction,
    Typed,
    Value,
    cast_number,
    refuse,
    variable_column,
)
from txlog.expressions.tree import (
    Call,
    Cast,
    Column,
    Expression,
    Lambda,
    Variable,
    nodes,
    rewritten,
)
from txlog.expressions.type_rules import BOOLEAN, INTEGERS, LONG, VOID, primitive_name
from txlog.expressions.values import one_array
from txlog.schema.types import ArrayType, DataType, MapType, type_name

Gives = Callable[[str, Any, DataType], DataType]
"""The type of a call, for its name, the type of its first argument and that of its lambda."""


def _bound_over_array(counts: tuple[int, ...], gives: Gives) -> Callable[[str, Args, Bind], Typed]:
    """Return how a call is bound whose lambda has the element, and maybe its place."""

    def bound(name: str, args: Args, bind: Bind) -> Typed:
        array, kind = _array(name, args, bind, (2, 2))
        function = _required(name, args[1], counts)
        body, result = bind(_with_types(function, (kind.element, INTEGER)))
        given = gives(name, kind, result)
        return Call(name, (array, Lambda(function.names, body)), given), given

    return bound


def _array(
    name: str, args: Args, bind: Bind, counts: tuple[int, int]
) -> tuple[Expression, ArrayType]:
    """Return the first argument, bound, and its type; raise unless a call has such arguments."""
    least, most = counts
    if not least <= len(args) <= most:
        raise refuse(name, f"needs {least if least == most else f'{least} or {most}'} arguments")
    array, kind = bind(args[0])
    if not isinstance(kind, ArrayType):
        raise refuse(name, f"needs an array, not {type_name(kind)}")
    return array, kind


def _bound_aggregate(name: str, args: Args, bind: Bind) -> Typed:
    array, kind = _array(name, args, bind, (3, 4))
    start, start_type = bind(args[1])
    function = _required(name, args[2], (2,))
    body, merged = bind(_with_types(function, (start_type, kind.element)))
    if (
        merged not in (start_type, VOID)
        and {primitive_name(start_type), primitive_name(merged)} <= INTEGERS
    ):
        start_type = LONG
        body, merged = bind(_with_types(function, (start_type, kind.element)))
    if start_type == VOID or merged not in (start_type, VOID):
        raise refuse(
            name,
            f"has a start value of type {type_name(start_type)}, but its function gives "
            f"{type_name(merged)}: write CAST(… AS {type_name(merged)}) around the start value",
        )
    parts: list[Expression] = [array, Cast(start, start_type), Lambda(function.names, body)]
    if len(args) == 4:
        last = _required(name, args[3], (1,))
        body, start_type = bind(_with_types(last, (start_type,)))
        parts.append(Lambda(last.names, body))
    return Call(name, tuple(parts), start_type), start_type


def _bound_over_arrays(gives: Gives) -> Callable[[str, Args, Bind], Typed]:
    """Return how a call is bound whose lambda has an element of each of two arrays."""

    def bound(name: str, args: Args, bind: Bind) -> Typed:
        given, kinds = _collections(name, args, bind, 2, ArrayType)
        variables = [kind.element for kind in kinds]
        return _bound_entries(name, args, bind, given, gives, kinds[0], variables)

    return bound


def _bound_over_maps(count: int, gives: Gives) -> Callable[[str, Args, Bind], Typed]:
    """Return how a call is bound whose lambda has a key, and its value in each of the maps."""

    def bound(name: str, args: Args, bind: Bind) -> Typed:
        given, kinds = _collections(name, args, bind, count, MapType)
        first = kinds[0]
        if any(kind.key != first.key for kind in kinds):
            raise refuse(name, "needs two maps with keys of one type")
        variables = [first.key, *(kind.value for kind in kinds)]
        return _bound_entries(name, args, bind, given, gives, first, variables)

    return bound


def _collections(
    name: str, args: Args, bind: Bind, count: int, wanted: type[Any]
) -> tuple[list[Expression], list[Any]]:
    """Return the arguments before the lambda, bound, and their types."""
    if len(args) != count + 1:
        raise refuse(name, f"needs {count + 1} arguments")
    given = [bind(arg) for arg in args[:count]]
    for _, kind in given:
        if not isinstance(kind, wanted):
            what = "an array" if wanted is ArrayType else "a map"
            raise refuse(name, f"needs {what}, not {type_name(kind)}")
    return [node for node, _ in given], [kind for _, kind in given]


def _bound_entries(
    name: str,
    args: Args,
    bind: Bind,
    given: Sequence[Expression],
    gives: Gives,
    first: DataType,
    variables: Sequence[DataType],
) -> Typed:
    function = _required(name, args[-1], (len(variables),))
    body, result = bind(_with_types(function, variables))
    kind = gives(name, first, result)
    return Call(name, (*given, Lambda(function.names, body)), kind), kind


def _predicate(name: str, first: DataType, result: DataType) -> DataType:
    if result not in (BOOLEAN, VOID):
        raise refuse(name, f"needs a function that is true or false, not {type_name(result)}")
    return first


def _truth(name: str, first: DataType, result: DataType) -> DataType:
    _predicate(name, first, result)
    return BOOLEAN


def _typed_result(name: str, result: DataType) -> DataType:
    if result == VOID:
        raise refuse(name, "needs a typed NULL: CAST(NULL AS …)")
    return result


def _array_of(name: str, _first: DataType, result: DataType) -> DataType:
    return ArrayType(_typed_result(name, result))


def _map_to(name: str, first: MapType, result: DataType) -> DataType:
    return MapType(first.key, _typed_result(name, result))


def _joined_map_to(name: str, first: MapType, result: DataType) -> DataType:
    kind = _map_to(name, first, result)
    require_key(name, first.key)  # Its keys are compared.
    return kind


def _map_from(name: str, first: MapType, result: DataType) -> DataType:
    key = _typed_result(name, result)
    require_key(name, key)
    return MapType(key, first.value)


def _required(name: str, node: Expression, counts: tuple[int, ...]) -> Lambda:
    """Return an argument as a lambda; raise unless its number of variables is in `counts`."""
    if not isinstance(node, Lambda) or len(node.names) not in counts:
        wanted = {2: "(a, x) -> a + x", 3: "(k, a, b) -> a + b"}.get(min(counts), "x -> x + 1")
        raise refuse(name, f"needs a function such as {wanted}")
    if len({one.lower() for one in node.names}) < len(node.names):
        raise refuse(name, "needs variables with different names")
    return node


def _with_types(function: Lambda, kinds: Sequence[DataType]) -> Expression:
    """Return the body of a lambda with the types of its variables."""
    return _typed_within(function.body, dict(zip(function.names, kinds, strict=False)))


def _typed_within(node: Expression, kinds: Mapping[str, DataType]) -> Expression:
    def typed(part: Expression) -> Expression | None:
        if isinstance(part, Lambda):  # Its own variables hide others of the same names.
            left = {name: kind for name, kind in kinds.items() if name not in part.names}
            return Lambda(part.names, _typed_within(part.body, left))
        if isinstance(part, Variable) and part.name in kinds:
            return Variable(part.name, kinds[part.name])
        return None

    return rewritten(node, typed)


@dataclass(frozen=True)
class _Elements:
    """The elements of the arrays or maps of all rows."""

    variables: Sequence[pa.Array]  # Of a lambda, with a row for each element.
    rows: Any  # The row of each element.
    lengths: Any  # The number of elements of each row.
    absent: Any  # Whether a row's array or map is null.


Find = Callable[[Sequence[pa.Array]], tuple[Any, Sequence[pa.Array]]]
"""The number of elements in each row, and the values of a lambda's variables, for the arguments."""
Finish = Callable[[str, pa.Array, _Elements, pa.DataType], pa.Array]
"""The result of a call, for its name, the lambda's values, their elements, and its type."""


def _over_elements(
    bound: Callable[[str, Args, Bind], Typed], find: Find, finish: Finish
) -> LambdaFunction:
    """Return a function whose last argument, a lambda, is computed once for all elements."""

    def compute(name: str, args: Args, kind: pa.DataType, data: Any, value: Value) -> pa.Array:
        given = [one_array(value(arg, data), data.num_rows) for arg in args[:-1]]
        if len(given) == 1:
            absent = numpy_array(pc.is_null(given[0]))
        else:  # A row where one argument is null has no elements.
            given, absent = where_all(*given)
        lengths, variables = find(given)
        rows = np.repeat(np.arange(len(absent)), lengths)
        found = _applied(args[-1], data, rows, variables, value)
        return finish(name, found, _Elements(variables, rows, lengths, absent), kind)

    return LambdaFunction(bound, compute)


def _places(given: Sequence[pa.Array]) -> tuple[Any, list[pa.Array]]:
    """Return the lengths of an array's rows, its elements, and their places from 0."""
    flat, starts, lengths = flat_values(given[0])
    places = np.arange(len(flat)) - np.repeat(starts, lengths)
    return lengths, [flat, arrow_array(places, pa.int32())]


def _entries(given: Sequence[pa.Array]) -> tuple[Any, list[pa.Array]]:
    """Return the number of entries of a map's rows, and the keys and values."""
    flat, _, lengths = flat_values(given[0])
    return lengths, [pc.struct_field(flat, "key"), pc.struct_field(flat, "value")]


def _zipped(arrays: Sequence[pa.Array]) -> tuple[Any, list[pa.Array]]:
    """Return the lengths of arrays side by side, and their elements; null after the end of one."""
    parts = [flat_values(array) for array in arrays]
    longest = np.max([lengths for *_, lengths in parts], axis=0)
    rows = np.repeat(np.arange(len(longest)), longest)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(longest) - longest, longest)
    return longest, [
        flat.take(arrow_array(starts[rows] + places, pa.int64(), mask=places >= lengths[rows]))
        for flat, starts, lengths in parts
    ]


def _joined(maps: Sequence[pa.Array]) -> tuple[Any, list[pa.Array]]:
    """Return the number of distinct keys in two maps of each row, and the keys with their values.

    The keys of the first map come first. A value is null where a map lacks the key.
    """
    parts = [flat_values(one) for one in maps]
    rows = np.concatenate([np.repeat(np.arange(len(maps[0])), lengths) for *_, lengths in parts])
    keys = pa.concat_arrays([pc.struct_field(flat, "key") for flat, *_ in parts])
    codes = numpy_array(keys.dictionary_encode().indices).astype(np.int64)
    _, first, which = np.unique(
        np.stack([rows, codes]), axis=1, return_index=True, return_inverse=True
    )
    which = which.ravel()  # Some versions of NumPy 2 return two dimensions.
    order = np.lexsort((first, rows[first]))
    variables = [keys.take(arrow_array(first[order], pa.int64()))]
    done = 0
    for flat, *_ in parts:
        places = np.full(len(first), -1)
        entries = np.arange(len(flat))[::-1]  # If a key occurs twice, the first counts.
        places[which[done + entries]] = entries
        done += len(flat)
        taken = arrow_array(places[order], pa.int64(), mask=places[order] < 0)
        variables.append(pc.struct_field(flat, "value").take(taken))
    return np.bincount(rows[first], minlength=len(maps[0])), variables


def _applied(
    function: Expression, data: Any, rows: Any, variables: Sequence[pa.Array], value: Value
) -> pa.Array:
    """Return the values of a lambda for rows of the data and values of its variables."""
    assert isinstance(function, Lambda)  # `bind` has checked it.
    given = {
        variable_column(name): array for name, array in zip(function.names, variables, strict=False)
    }
    taken = arrow_array(rows, pa.int64())
    stored = frozenset(data.schema.names)
    for node in nodes(function.body):
        if isinstance(node, Column):
            name = node.path[0]
        elif isinstance(node, Variable):
            name = variable_column(node.name)
        else:
            continue
        if name in stored and name not in given:
            given[name] = one_array(data.column(name)).take(taken)
    batch = pa.RecordBatch.from_arrays(list(given.values()), list(given))
    return one_array(value(function.body, batch), len(rows))


def _as_list(_name: str, found: pa.Array, elements: _Elements, kind: pa.DataType) -> pa.Array:
    return list_of(found, elements.lengths, elements.absent, kind)


def _kept(found: pa.Array, elements: _Elements) -> tuple[pa.Array, Any]:
    """Return which elements a predicate keeps, and how many of each row."""
    kept = pc.fill_null(found.cast(pa.bool_()), False)
    left = np.bincount(elements.rows[numpy_array(kept)], minlength=len(elements.absent))
    return kept, left


def _filtered(_name: str, found: pa.Array, elements: _Elements, kind: pa.DataType) -> pa.Array:
    kept, left = _kept(found, elements)
    return list_of(elements.variables[0].filter(kept), left, elements.absent, kind)


def _filtered_map(_name: str, found: pa.Array, elements: _Elements, kind: pa.DataType) -> pa.Array:
    kept, left = _kept(found, elements)
    keys, items = (one.filter(kept) for one in elements.variables)
    return map_of(keys, items, left, elements.absent, kind)


def _any_is(wanted: bool) -> Finish:
    """Return `exists`; or `forall`, which is false if the lambda is false of any element."""

    def finish(_name: str, found: pa.Array, elements: _Elements, _kind: pa.DataType) -> pa.Array:
        found = found.cast(pa.bool_())
        rows, count = elements.rows, len(elements.absent)
        is_wanted = numpy_array(pc.fill_null(found if wanted else pc.invert(found), False))
        some = np.bincount(rows[is_wanted], minlength=count) > 0
        unknown = np.bincount(rows[numpy_array(pc.is_null(found))], minlength=count) > 0
        mask = elements.absent | (unknown & ~some)
        return arrow_array(some if wanted else ~some, pa.bool_(), mask=mask)

    return finish


def _as_values(_name: str, found: pa.Array, elements: _Elements, kind: pa.DataType) -> pa.Array:
    return map_of(elements.variables[0], found, elements.lengths, elements.absent, kind)


def _as_keys(name: str, found: pa.Array, elements: _Elements, kind: pa.DataType) -> pa.Array:
    require_keys(name, found, elements.rows)
    return map_of(found, elements.variables[1], elements.lengths, elements.absent, kind)


def _folded(_name: str, args: Args, kind: pa.DataType, data: Any, value: Value) -> pa.Array:
    """Return `aggregate`: one step takes the next element of every row that has one."""
    array = one_array(value(args[0], data), data.num_rows)
    absent = numpy_array(pc.is_null(array))
    flat, starts, lengths = flat_values(array)
    state = one_array(value(args[1], data), data.num_rows)
    merge, *last = args[2:]
    rows, ended, results = np.arange(len(array)), [], []
    for place in count():
        goes_on = lengths[rows] > place
        ended.append(rows[~goes_on])
        results.append(state.filter(arrow_array(~goes_on)))
        rows = rows[goes_on]
        if not len(rows):
            break
        element = flat.take(arrow_array(starts[rows] + place, pa.int64()))
        before = state.filter(arrow_array(goes_on))
        state = cast_number(_applied(merge, data, rows, (before, element), value), state.type)
    order = np.argsort(np.concatenate(ended), kind="stable")
    result = pa.concat_arrays(results).take(arrow_array(order, pa.int64(), mask=absent))
    for finish in last:
        found = _applied(finish, data, np.arange(len(array)), (result,), value)
        result = found.take(arrow_array(np.arange(len(array)), pa.int64(), mask=absent))
    return cast_number(result, kind)


LAMBDAS: dict[str, LambdaFunction] = {
    "transform": _over_elements(_bound_over_array((1, 2), _array_of), _places, _as_list),
    "filter": _over_elements(_bound_over_array((1, 2), _predicate), _places, _filtered),
    "exists": _over_elements(_bound_over_array((1,), _truth), _places, _any_is(True)),
    "forall": _over_elements(_bound_over_array((1,), _truth), _places, _any_is(False)),
    "aggregate": LambdaFunction(_bound_aggregate, _folded, aliases=("reduce",)),
    "zip_with": _over_elements(_bound_over_arrays(_array_of), _zipped, _as_list),
    "transform_keys": _over_elements(_bound_over_maps(1, _map_from), _entries, _as_keys),
    "transform_values": _over_elements(_bound_over_maps(1, _map_to), _entries, _as_values),
    "map_filter": _over_elements(_bound_over_maps(1, _predicate), _entries, _filtered_map),
    "map_zip_with": _over_elements(_bound_over_maps(2, _joined_map_to), _joined, _as_values),
}
