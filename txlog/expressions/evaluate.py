"""Evaluate bound expressions over Arrow columns."""

from __future__ import annotations

import re
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.base.errors import InvalidInputError, resource_error
from txlog.expressions.operators import ARITHMETIC, OPERATORS, Operator, in_one_decimal
from txlog.expressions.signatures import (
    cast_number,
    numbers,
    one_array,
    over_arrays,
    over_numbers,
    remainder,
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
from txlog.expressions.type_rules import LONG_DIGITS
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
    except pa.ArrowException as error:
        if (lacking := resource_error(error)) is not None:
            raise lacking from error
        raise InvalidInputError(
            argument="where", reason=f"a value cannot be computed: {error}"
        ) from error
    if isinstance(value, pa.Scalar):
        return pa.repeat(value, data.num_rows)
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
            return _compare(OPERATORS[op], _value(left, data), _value(right, data))
        case And(parts):
            return reduce(pc.and_kleene, (_truth(part, data) for part in parts))
        case Or(parts):
            return reduce(pc.or_kleene, (_truth(part, data) for part in parts))
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
        case Arithmetic(op, left, right, kind):
            assert kind is not None
            return _arithmetic(op, _value(left, data), _value(right, data), arrow_type(kind))
        case Cast(operand, kind):
            return _cast(_value(operand, data), arrow_type(kind))
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
            true = pa.repeat(true, rows.num_rows)
        others = pc.invert(true)
        places.append(left.filter(one_array(true)))
        parts.append(_of_rows(value, kind, rows.filter(true)))
        rows, left = rows.filter(others), left.filter(one_array(others))
    places.append(left)
    parts.append(_of_rows(default, kind, rows))
    return pa.concat_arrays(parts).take(pc.sort_indices(pa.concat_arrays(places)))


def _of_rows(node: Expression, kind: pa.DataType, data: pa.RecordBatch | pa.Table) -> pa.Array:
    value = _value(node, data)
    if isinstance(value, pa.Scalar):
        value = pa.repeat(value, data.num_rows)
    return cast_number(one_array(value), kind)


def _cast(value: Any, kind: pa.DataType) -> Any:
    """Cast a value; a cast to an integer cuts the fraction off."""
    if pa.types.is_integer(value.type) and pa.types.is_floating(kind):
        return value.cast(kind, safe=False)  # Round to the nearest value, as Spark does.
    if pa.types.is_string(value.type) and not (
        pa.types.is_string(kind) or pa.types.is_binary(kind)
    ):
        value = pc.utf8_trim_whitespace(value)
    if pa.types.is_timestamp(value.type) and value.type.unit == "ns":
        finest = pa.types.is_timestamp(kind) and kind.unit == "ns"
        value = value if finest else pc.floor_temporal(value, unit="microsecond")
    fractional = pa.types.is_floating(value.type) or pa.types.is_decimal(value.type)
    if fractional and pa.types.is_integer(kind):
        value = pc.trunc(value)
    elif pa.types.is_timestamp(value.type) and pa.types.is_date(kind):
        return value.cast(kind, safe=False)
    return value.cast(kind)


def _truth(node: Expression, data: pa.RecordBatch | pa.Table) -> Any:
    value = _value(node, data)
    return value.cast(pa.bool_()) if pa.types.is_null(value.type) else value


def _compare(op: Operator, left: Any, right: Any) -> Any:
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        if not op.null_safe:
            rows = left if isinstance(right, pa.Scalar) else right
            return _all_null(rows)
        return pc.and_(pc.is_null(left), pc.is_null(right))
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
    """Compare floats; NaN is equal to itself and greater than every number."""
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
        return _as_double(left), _as_double(right)
    if pa.types.is_decimal(a) or pa.types.is_decimal(b):
        return in_one_decimal(left, right)
    if pa.types.is_timestamp(a) or pa.types.is_timestamp(b):
        zone = next((kind.tz for kind in (a, b) if getattr(kind, "tz", None)), None)
        return left.cast(pa.timestamp("us", zone)), right.cast(pa.timestamp("us", zone))
    return left, right


def _as_double(value: Any) -> Any:
    # Round to the nearest double, as Spark does: a long may have more digits.
    return value.cast(pa.float64(), safe=False)


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


def _as_decimal(value: Any) -> Any:
    if pa.types.is_integer(value.type):
        return value.cast(pa.int64()).cast(pa.decimal128(LONG_DIGITS, 0))
    return value


def _arithmetic(op: str, left: Any, right: Any, kind: pa.DataType) -> Any:
    """Compute a number of the type that `arithmetic_type` gives."""
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return arrow_scalar(None, kind)
    function = ARITHMETIC[op].arrow
    if pa.types.is_decimal(kind):
        if function is None:
            return _decimal_remainder(left, right, kind)
        return getattr(pc, function)(_as_decimal(left), _as_decimal(right))
    if kind == pa.float64():
        left, right = _as_double(left), _as_double(right)
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
            return _remainder_of_integers(left, divisor)
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


@over_arrays
def _decimal_remainder(left: pa.Array, right: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    """Return the exact remainder of decimals, computed on integers of a common scale."""
    steps = remainder(_steps(left, kind.scale), _steps(right, kind.scale))
    absent = (
        np.ma.getmaskarray(steps) | numpy_array(pc.is_null(left)) | numpy_array(pc.is_null(right))
    )
    low = np.where(absent, 0, np.ma.getdata(steps))
    words = np.stack([low, low >> 63], axis=1)
    valid = pa.py_buffer(np.packbits(~absent, bitorder="little"))
    wide = pa.decimal128(38, kind.scale)
    return pa.Array.from_buffers(wide, len(left), [valid, pa.py_buffer(words)]).cast(kind)


def _steps(value: pa.Array, scale: int) -> Any:
    """Return decimals as multiples of 10^-scale, 0 for null; raise above 18 digits."""
    wide = _as_decimal(value).cast(pa.decimal128(38, scale))
    data = np.frombuffer(wide.buffers()[1], np.int64, 2 * (wide.offset + len(wide))).reshape(-1, 2)
    low, high = data[wide.offset :].T
    null = numpy_array(pc.is_null(wide))
    if np.any((high != low >> 63) & ~null):
        raise InvalidInputError(
            argument="where", reason="a value cannot be computed: % of more than 18 digits"
        )
    return np.where(null, 0, low)
