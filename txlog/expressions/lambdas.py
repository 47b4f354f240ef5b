"""SQL functions of lambdas: `transform`, `filter`, `exists`, `forall` and `aggregate` of arrays.

A lambda is computed for the elements of all rows at once: its variables are columns of a batch that
has a row for each element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.arrow import arrow_array, numpy_array, pc
from txlog.expressions.nested_functions import flat_values, list_of
from txlog.expressions.signatures import INTEGER, Typed, one_array, refuse, variable_column
from txlog.expressions.tree import (
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
from txlog.schema.types import ArrayType, DataType, type_name

Bind = Callable[[Expression], Typed]
Value = Callable[[Expression, pa.RecordBatch], Any]


def bound_lambda_call(name: str, args: Sequence[Expression], bound: Bind) -> Typed:
    """Return a bound call of a function of lambdas, and its type; errors as for `bind_value`."""
    if name not in LAMBDA_FUNCTIONS:
        raise refuse(name, "takes no function such as x -> x + 1 here")
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
    start, held = bound(args[0])
    function = _required("aggregate", args[1], (2,))
    body, merged = bound(_with_types(function, (held, kind.element)))
    if merged not in (held, VOID) and {primitive_name(held), primitive_name(merged)} <= INTEGERS:
        held = LONG
        body, merged = bound(_with_types(function, (held, kind.element)))
    if held == VOID or merged not in (held, VOID):
        raise refuse(
            "aggregate",
            f"begins with {type_name(held)}, but its function gives {type_name(merged)}: write "
            f"CAST(… AS {type_name(merged)}) around what it begins with",
        )
    parts: list[Expression] = [array, Cast(start, held), Lambda(function.names, body)]
    if len(args) == 3:
        last = _required("aggregate", args[2], (1,))
        body, held = bound(_with_types(last, (held,)))
        parts.append(Lambda(last.names, body))
    return Call("aggregate", tuple(parts), held), held


def _required(name: str, node: Expression, counts: tuple[int, ...]) -> Lambda:
    """Return a lambda of one of some numbers of variables."""
    if not isinstance(node, Lambda) or len(node.names) not in counts:
        wanted = "(a, x) -> a + x" if counts == (2,) else "x -> x + 1"
        raise refuse(name, f"needs a function such as {wanted}")
    if len({one.lower() for one in node.names}) < len(node.names):
        raise refuse(name, "needs variables with names that differ")
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
    held = one_array(value(args[0], data), data.num_rows)
    merge, *last = args[1:]
    assert isinstance(merge, Lambda)
    rows, ended, results = np.arange(len(array)), [], []
    for place in count():
        goes_on = lengths[rows] > place
        ended.append(rows[~goes_on])
        results.append(held.filter(arrow_array(~goes_on)))
        rows = rows[goes_on]
        if not len(rows):
            break
        element = flat.take(arrow_array(starts[rows] + place, pa.int64()))
        before = held.filter(arrow_array(goes_on))
        held = _applied(merge, data, rows, (before, element), value).cast(held.type)
    order = np.argsort(np.concatenate(ended), kind="stable")
    result = pa.concat_arrays(results).take(arrow_array(order, pa.int64(), mask=absent))
    for finish in last:
        assert isinstance(finish, Lambda)
        found = _applied(finish, data, np.arange(len(array)), (result,), value)
        result = found.take(arrow_array(np.arange(len(array)), pa.int64(), mask=absent))
    return result.cast(kind)
