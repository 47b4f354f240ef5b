"""SQL functions of lambdas, of arrays and of maps.

A lambda is computed for the elements of all rows at once: its variables are columns of a batch that
has a row for each element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    Typed,
    cast_number,
    one_array,
    refuse,
    variable_column,
)
from txlog.expressions.tree import (
    ENTRY_FUNCTIONS,
    LAMBDA_FUNCTIONS,
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
from txlog.schema.types import ArrayType, DataType, MapType, type_name

Bind = Callable[[Expression], Typed]
Value = Callable[[Expression, pa.RecordBatch], Any]


def bound_lambda_call(name: str, args: Sequence[Expression], bound: Bind) -> Typed:
    """Return a bound call of a function of lambdas, and its type; errors as for `bind_value`."""
    if name not in LAMBDA_FUNCTIONS:
        raise refuse(name, "takes no function such as x -> x + 1 here")
    if name in ENTRY_FUNCTIONS:
        return _bound_of_entries(name, args, bound)
    least, most = (3, 4) if name == "aggregate" else (2, 2)
    if not least <= len(args) <= most:
        raise refuse(name, f"needs {least if least == most else '3 or 4'} arguments")
    array, kind = bound(args[0])
    if not isinstance(kind, ArrayType):
        raise refuse(name, f"needs an array, not {type_name(kind)}")
    if name == "aggregate":
        return _bound_aggregate(array, kind, args[1:], bound)
    function = _required(name, args[1], (1,) if name in ("exists", "forall") else (1, 2))
    body, result = bound(_with_types(function, (kind.element, INTEGER)))
    if name == "transform":
        if result == VOID:
            raise refuse(name, "needs a typed NULL: CAST(NULL AS …)")
        gives: DataType = ArrayType(result)
    else:
        if result not in (BOOLEAN, VOID):
            raise refuse(name, f"needs a function that is true or false, not {type_name(result)}")
        gives = kind if name == "filter" else BOOLEAN
    return Call(name, (array, Lambda(function.names, body)), gives), gives


def _bound_aggregate(
    array: Expression, kind: ArrayType, args: Sequence[Expression], bound: Bind
) -> Typed:
    start, start_type = bound(args[0])
    function = _required("aggregate", args[1], (2,))
    body, merged = bound(_with_types(function, (start_type, kind.element)))
    if (
        merged not in (start_type, VOID)
        and {primitive_name(start_type), primitive_name(merged)} <= INTEGERS
    ):
        start_type = LONG
        body, merged = bound(_with_types(function, (start_type, kind.element)))
    if start_type == VOID or merged not in (start_type, VOID):
        raise refuse(
            "aggregate",
            f"has a start value of type {type_name(start_type)}, but its function gives "
            f"{type_name(merged)}: write CAST(… AS {type_name(merged)}) around the start value",
        )
    parts: list[Expression] = [array, Cast(start, start_type), Lambda(function.names, body)]
    if len(args) == 3:
        last = _required("aggregate", args[2], (1,))
        body, start_type = bound(_with_types(last, (start_type,)))
        parts.append(Lambda(last.names, body))
    return Call("aggregate", tuple(parts), start_type), start_type


def _bound_of_entries(name: str, args: Sequence[Expression], bound: Bind) -> Typed:
    """Return a bound call of a function of one or two maps, or of two arrays."""
    count = 2 if name.endswith("zip_with") else 1
    if len(args) != count + 1:
        raise refuse(name, f"needs {count + 1} arguments")
    given = [bound(arg) for arg in args[:count]]
    kinds = []
    for _, kind in given:
        if not isinstance(kind, ArrayType if name == "zip_with" else MapType):
            wanted = "an array" if name == "zip_with" else "a map"
            raise refuse(name, f"needs {wanted}, not {type_name(kind)}")
        kinds.append(kind)
    variables = [kind.element if isinstance(kind, ArrayType) else kind.value for kind in kinds]
    first = kinds[0]
    if isinstance(first, MapType):
        variables.insert(0, first.key)
        if any(isinstance(kind, MapType) and kind.key != first.key for kind in kinds):
            raise refuse(name, "needs two maps with keys of one type")
    function = _required(name, args[-1], (len(variables),))
    body, result = bound(_with_types(function, variables))
    gives = _entries_type(name, first, result)
    return Call(name, (*(node for node, _ in given), Lambda(function.names, body)), gives), gives


def _entries_type(name: str, first: DataType, result: DataType) -> DataType:
    """Return the type of a function of maps or of two arrays, by the type of its lambda."""
    if name == "map_filter":
        if result not in (BOOLEAN, VOID):
            raise refuse(name, f"needs a function that is true or false, not {type_name(result)}")
        return first
    if result == VOID:
        raise refuse(name, "needs a typed NULL: CAST(NULL AS …)")
    if not isinstance(first, MapType):
        return ArrayType(result)
    key = result if name == "transform_keys" else first.key
    if name != "transform_values":  # All other functions compare keys.
        require_key(name, key)
    return MapType(key, first.value if name == "transform_keys" else result)


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


def lambda_call(
    name: str, args: Sequence[Expression], kind: pa.DataType, data: Any, value: Value
) -> Any:
    """Return the result of a function of lambdas for each row. It computes all elements at once."""
    if name in ENTRY_FUNCTIONS:
        return _of_entries(name, args, kind, data, value)
    array = one_array(value(args[0], data), data.num_rows)
    absent = numpy_array(pc.is_null(array))
    if name == "aggregate":
        return _folded(array, absent, args[1:], kind, data, value)
    function = args[1]
    assert isinstance(function, Lambda)
    flat, starts, lengths = flat_values(array)
    rows = np.repeat(np.arange(len(array)), lengths)
    places = arrow_array(np.arange(len(rows)) - np.repeat(starts, lengths), pa.int32())
    found = _applied(function, data, rows, (flat, places), value)
    if name == "transform":
        return list_of(found, lengths, absent, kind)
    found = found.cast(pa.bool_())
    if name == "filter":
        kept = numpy_array(pc.fill_null(found, False))
        left = np.bincount(rows[kept], minlength=len(array))
        return list_of(flat.filter(arrow_array(kept)), left, absent, kind)
    wanted = name == "exists"
    is_wanted = numpy_array(pc.fill_null(found if wanted else pc.invert(found), False))
    some = np.bincount(rows[is_wanted], minlength=len(array)) > 0
    unknown = np.bincount(rows[numpy_array(pc.is_null(found))], minlength=len(array)) > 0
    result = some if wanted else ~some
    return arrow_array(result, pa.bool_(), mask=absent | (unknown & ~some))


def _of_entries(
    name: str, args: Sequence[Expression], kind: pa.DataType, data: Any, value: Value
) -> pa.Array:
    """Return the result of a function of maps, or of two arrays, for each row."""
    function = args[-1]
    assert isinstance(function, Lambda)
    given = [one_array(value(arg, data), data.num_rows) for arg in args[:-1]]
    given, absent = where_all(*given)  # A row where one argument is null has no entries.
    flat, _, lengths = flat_values(given[0])
    if name == "zip_with":
        lengths, variables = _zipped(given)
    elif name == "map_zip_with":
        lengths, variables = _joined(given)
    else:
        variables = [pc.struct_field(flat, "key"), pc.struct_field(flat, "value")]
    rows = np.repeat(np.arange(len(absent)), lengths)
    found = _applied(function, data, rows, variables, value)
    if name == "zip_with":
        return list_of(found, lengths, absent, kind)
    if name == "map_filter":
        kept = pc.fill_null(found.cast(pa.bool_()), False)
        left = np.bincount(rows[numpy_array(kept)], minlength=len(absent))
        keys, items = (one.filter(kept) for one in variables)
        return map_of(keys, items, left, absent, kind)
    if name != "transform_keys":
        return map_of(variables[0], found, lengths, absent, kind)
    require_keys(name, found, rows)
    return map_of(found, variables[1], lengths, absent, kind)


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
    function: Lambda, data: Any, rows: Any, variables: Sequence[pa.Array], value: Value
) -> pa.Array:
    """Return the values of a lambda for rows of the data and values of its variables."""
    given = {
        variable_column(name): array for name, array in zip(function.names, variables, strict=False)
    }
    taken = arrow_array(rows, pa.int64())
    for node in nodes(function.body):
        if isinstance(node, Column):
            name = node.path[0]
        elif isinstance(node, Variable):
            name = variable_column(node.name)
        else:
            continue
        if name in data.schema.names and name not in given:
            given[name] = one_array(data.column(name)).take(taken)
    batch = pa.RecordBatch.from_arrays(list(given.values()), list(given))
    return one_array(value(function.body, batch), len(rows))


def _folded(
    array: pa.Array,
    absent: Any,
    args: Sequence[Expression],
    kind: pa.DataType,
    data: Any,
    value: Value,
) -> pa.Array:
    """Return `aggregate`: one step takes the next element of every row that has one."""
    flat, starts, lengths = flat_values(array)
    state = one_array(value(args[0], data), data.num_rows)
    merge, *last = args[1:]
    assert isinstance(merge, Lambda)
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
        assert isinstance(finish, Lambda)
        found = _applied(finish, data, np.arange(len(array)), (result,), value)
        result = found.take(arrow_array(np.arange(len(array)), pa.int64(), mask=absent))
    return cast_number(result, kind)
