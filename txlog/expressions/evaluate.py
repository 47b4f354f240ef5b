"""Evaluate bound expressions over Arrow columns."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.base.errors import InvalidInputError, resource_error
from txlog.expressions.comparisons import as_double, compare
from txlog.expressions.operators import ARITHMETIC, OPERATORS
from txlog.expressions.signatures import (
    UNCOMPUTED,
    cast_number,
    of_rows,
    require_divisors,
    variable_column,
)
from txlog.expressions.tree import (
    And,
    Arithmetic,
    Call,
    Case,
    Cast,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Variable,
)
from txlog.expressions.values import numbers, one_array, over_numbers, remainder
from txlog.schema.arrow import arrow_type
from txlog.schema.types import DataType


def mask(expression: Expression, data: pa.RecordBatch | pa.Table) -> Any:
    """Return for each row whether a bound predicate is true, false, or unknown (null).

    Raises
    ------
    InvalidInputError
        A value cannot be computed: a cast fails, or a number overflows.
    """
    return pc.cast(evaluate(expression, data), pa.bool_())


def is_true(expression: Expression, data: pa.RecordBatch | pa.Table) -> Any:
    """Return for each row whether a bound predicate is true, not null. Errors as for `mask`."""
    return pc.fill_null(mask(expression, data), False)


def evaluate(expression: Expression, data: pa.RecordBatch | pa.Table) -> Any:
    """Return the value of a bound expression for each row, as an array.

    Raises
    ------
    InvalidInputError
        A value cannot be computed: a cast fails, or a number overflows.
    """
    try:
        value = _value(expression, data)
    except InvalidInputError:
        raise
    except (pa.ArrowException, ValueError, TypeError, ArithmeticError, LookupError) as error:
        if (lacking := resource_error(error)) is not None:
            raise lacking from error
        raise InvalidInputError(
            argument="where", reason=f"a value cannot be computed: {error}"
        ) from error
    if isinstance(value, pa.Scalar):
        return one_array(value, data.num_rows)
    return value


def constant(expression: Expression, kind: DataType) -> Expression:
    """Return the value of a bound expression without columns as a constant.

    The expression itself is returned if computing it fails or Python cannot hold the value. The
    error is then raised at its use.
    """
    row = pa.record_batch([arrow_array([None], pa.int8())], ["row"])
    try:
        return Literal(evaluate(expression, row)[0].as_py(), kind)
    except (InvalidInputError, OverflowError, ValueError):
        return expression


def _value(node: Expression, data: pa.RecordBatch | pa.Table) -> Any:
    match node:
        case Column(path):
            column = data.column(path[0])
            return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column
        case Literal(value, kind):
            return arrow_scalar(value, arrow_type(kind) if kind else None)
        case Comparison(op, left, right):
            return compare(OPERATORS[op], _value(left, data), _value(right, data))
        case And(parts):
            return _connected(parts, data, pc.and_kleene, last=False)
        case Or(parts):
            return _connected(parts, data, pc.or_kleene, last=True)
        case Not(operand):
            return pc.invert(_truth(operand, data))
        case IsNull(operand):
            return pc.is_null(_value(operand, data))
        case In(operand, values):
            return _in(_value(operand, data), values)
        case Like(operand, pattern):
            text = _value(operand, data)
            if pa.types.is_null(text.type):
                return _all_null(text)
            return pc.match_substring_regex(text, like_regex(pattern))
        case Arithmetic(op, left, right, kind, tried):
            assert kind is not None
            sides = _value(left, data), _value(right, data)
            if op in "/%" and not tried:
                require_divisors(op, *sides)
            return _arithmetic(op, *sides, arrow_type(kind))
        case Cast(operand, kind, tried):
            return _cast(_value(operand, data), arrow_type(kind), tried)
        case Variable(name):
            return data.column(variable_column(name))
        case Call(name, args, kind):
            from txlog.expressions.functions import call  # Only calls need it.

            assert kind is not None
            return call(name, args, arrow_type(kind), data, _value)
        case Case(branches, default, kind):
            assert kind is not None
            return _case(branches, default, arrow_type(kind), data)
    raise TypeError(f"{type(node).__name__} cannot be evaluated")


def _case(
    branches: tuple[tuple[Expression, Expression], ...],
    default: Expression,
    kind: pa.DataType,
    data: pa.RecordBatch | pa.Table,
) -> Any:
    """Compute each branch only for its own rows, because it may fail for others."""
    left = arrow_array(np.arange(data.num_rows))
    rows, places, parts = data, [], []
    for condition, value in branches:
        true = is_true(condition, rows)
        if isinstance(true, pa.Scalar):
            true = one_array(true, rows.num_rows)
        others = pc.invert(true)
        places.append(left.filter(one_array(true)))
        parts.append(_branch(value, kind, rows.filter(true)))
        rows, left = rows.filter(others), left.filter(one_array(others))
    places.append(left)
    parts.append(_branch(default, kind, rows))
    return pa.concat_arrays(parts).take(pc.sort_indices(pa.concat_arrays(places)))


def _branch(node: Expression, kind: pa.DataType, data: pa.RecordBatch | pa.Table) -> pa.Array:
    value = _value(node, data)
    if isinstance(value, pa.Scalar):
        value = one_array(value, data.num_rows)
    return cast_number(one_array(value), kind)


def _cast(value: Any, kind: pa.DataType, tried: bool) -> Any:
    from txlog.expressions.casts import cast_value  # Only casts need it.

    return cast_value(value, kind, tried)


def _connected(
    parts: tuple[Expression, ...],
    data: pa.RecordBatch | pa.Table,
    connect: Callable[[Any, Any], Any],
    last: bool,
) -> Any:
    """Return AND or OR of parts, from left to right: `last` is the value that ends it for a row.

    If a part cannot be computed, it is computed only for the rows that are still open, as in Spark.
    """
    found = _truth(parts[0], data)
    for part in parts[1:]:
        try:
            value = _truth(part, data)
        except UNCOMPUTED:
            open_ = pc.fill_null(pc.invert(found) if last else found, True)
            if pc.all(open_).as_py() is not False:
                raise
            value = of_rows(part, data, open_, pa.bool_(), _truth)
        found = connect(found, value)
    return found


def _truth(node: Expression, data: pa.RecordBatch | pa.Table) -> Any:
    value = _value(node, data)
    return value.cast(pa.bool_()) if pa.types.is_null(value.type) else value


def _all_null(rows: Any) -> Any:
    if isinstance(rows, pa.Scalar):
        return arrow_scalar(None, pa.bool_())
    return pa.nulls(len(rows), pa.bool_())


def _in(operand: Any, values: tuple[Literal, ...]) -> Any:
    known = [v for v in values if v.value is not None]
    kind = operand.type
    if pa.types.is_null(kind) or not known:
        return _all_null(operand)
    if pa.types.is_integer(kind):
        operand, kind = operand.cast(pa.int64()), pa.int64()  # A constant may need 64 bits.
    elif pa.types.is_floating(kind):
        operand, kind = operand.cast(pa.float64()), pa.float64()
    constants = [v.value for v in known]
    if pa.types.is_floating(kind) and 0 in constants:
        constants += [0.0, -0.0]  # Arrow distinguishes the two zeros.
    is_one = pc.is_in(operand, value_set=arrow_array(constants, kind))
    is_one = pc.if_else(pc.is_null(operand), None, is_one)
    if len(known) < len(values):
        return pc.if_else(is_one, True, None)
    return is_one


def _arithmetic(op: str, left: Any, right: Any, kind: pa.DataType) -> Any:
    """Compute a number of the type that `arithmetic_type` gives."""
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return arrow_scalar(None, kind)
    function = ARITHMETIC[op].arrow
    if pa.types.is_decimal(kind):
        from txlog.expressions.decimals import computed  # Only decimals need it.

        return computed(op, left, right, kind)
    if kind == pa.float64():
        left, right = as_double(left), as_double(right)
    else:
        left, right = left.cast(kind), right.cast(kind)
    if op == "/":
        right = pc.if_else(pc.equal(right, arrow_scalar(0, kind)), arrow_scalar(None, kind), right)
    if function is not None:
        return getattr(pc, function)(left, right)
    integers = pa.types.is_integer(kind)
    if integers and isinstance(right, pa.Scalar) and not isinstance(left, pa.Scalar):
        divisor = right.as_py()
        if divisor is not None and abs(divisor) > 1:
            return _remainder_of_integers(left, divisor).cast(kind)
    return _remainder(left, right, kind)


def _remainder_of_integers(left: Any, divisor: int) -> pa.Array:
    """Return the remainders of a constant divisor that is not 0, 1 or -1.

    NumPy's rounded quotient of a constant takes a fraction of the time of its remainder.
    """
    left = one_array(left)
    values = numbers(left)
    found = values - values // divisor * divisor  # It has the divisor's sign.
    wrong = (found != 0) & ((values < 0) != (divisor < 0))
    if wrong.any():
        found[wrong] -= divisor
    return arrow_array(found, mask=numpy_array(pc.is_null(left)) if left.null_count else None)


def like_regex(pattern: str) -> str:
    """Return the regular expression for a LIKE pattern with backslash as the escape character."""
    parts = []
    characters = iter(pattern)
    for character in characters:
        if character == "%":
            parts.append(".*")
        elif character == "_":
            parts.append(".")
        else:
            if character == "\\":
                character = next(characters, character)
            parts.append(re.escape(character))
    return f"(?s)^(?:{''.join(parts)})$"


@over_numbers
def _remainder(left: Any, right: Any, _kind: pa.DataType) -> Any:
    return remainder(left, right)
