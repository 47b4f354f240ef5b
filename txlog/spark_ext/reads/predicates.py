"""Translate predicates of txlog to Spark, if they have the same meaning in every session.

Predicates with casts that could change a value, and those that depend on the time zone or the ANSI
mode, are not translated.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it

from txlog.expressions.operators import Operator
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import Column, Expression, Literal
from txlog.expressions.type_rules import Dialect, OtherwiseError, translated
from txlog.schema.types import WHOLE_NUMBERS, DataType, DecimalType, PrimitiveType

_EXACT_IN_DOUBLES = 1 << 53
_MAX_PRECISION = 38  # Spark rounds decimals that need more digits.
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}  # As Spark makes them decimals.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_spark(where: Expression) -> SparkColumn | None:
    """Return a bound predicate for Spark, or None if its meaning in Spark may differ."""
    return translated(where, _Spark())


class _Spark(Dialect[SparkColumn]):
    def truth(self, node: Column | Literal) -> SparkColumn:
        if isinstance(node, Literal) or node.type != PrimitiveType("boolean"):
            raise OtherwiseError
        return _column(node)

    def is_null(self, column: Column) -> SparkColumn:
        return _column(column).isNull()

    def compare(self, op: Operator, left: Expression, right: Expression) -> SparkColumn:
        if not _alike(left, right):
            raise OtherwiseError
        a, b = _operand(left), _operand(right)
        found: SparkColumn = a.eqNullSafe(b) if op.null_safe else op.python(a, b)
        return found

    def is_in(self, operand: Expression, values: tuple[Literal, ...]) -> SparkColumn:
        if not isinstance(operand, Column) or not all(_alike(operand, value) for value in values):
            raise OtherwiseError
        if _is_exact(operand.type) and not _fit([operand, *values]):
            raise OtherwiseError
        return _column(operand).isin([_literal(value) for value in values])

    def like(self, operand: Expression, pattern: str) -> SparkColumn:
        if not isinstance(operand, Column) or operand.type != PrimitiveType("string"):
            raise OtherwiseError
        return _column(operand).like(pattern)


def _alike(left: Expression, right: Expression) -> bool:
    """Whether two operands are compared without a conversion that could change one of them."""
    if isinstance(left, Literal) and isinstance(right, Column):
        left, right = right, left
    if not isinstance(left, Column) or not isinstance(right, Column | Literal):
        return False
    of = left.type
    if isinstance(right, Column):
        if of == right.type:
            return True
        return _is_exact(of) and _is_exact(right.type) and _fit([left, right])
    value = right.value
    if value is None:
        return True
    match of:
        case PrimitiveType("boolean"):
            return isinstance(value, bool)
        case PrimitiveType("string"):
            return isinstance(value, str)
        case PrimitiveType("binary"):
            return isinstance(value, bytes)
        case PrimitiveType("date"):
            return type(value) is date
        case PrimitiveType("timestamp"):
            return isinstance(value, datetime) and value.tzinfo is not None
        case PrimitiveType("timestamp_ntz"):
            return isinstance(value, datetime) and value.tzinfo is None
        case PrimitiveType("double"):
            whole = type(value) is int and abs(value) < _EXACT_IN_DOUBLES
            return whole or (isinstance(value, float) and right.type in (None, of))
    if not _is_exact(of) or not isinstance(value, int | Decimal) or isinstance(value, bool):
        return False
    return _fit([left, right])


def _is_exact(kind: DataType | None) -> bool:
    return isinstance(kind, DecimalType) or (
        isinstance(kind, PrimitiveType) and kind.name in WHOLE_NUMBERS
    )


def _fit(operands: Iterable[Expression]) -> bool:
    """Return whether one decimal type has all values of exact columns and literals."""
    digits = [_digits(operand) for operand in operands]
    return max(whole for whole, _ in digits) + max(parts for _, parts in digits) <= _MAX_PRECISION


def _digits(operand: Any) -> tuple[int, int]:
    """Return the digits before and after the point that Spark gives to an exact value."""
    if isinstance(operand, Literal):
        match operand.value:
            case Decimal() as value:
                _, digits, exponent = value.as_tuple()
                assert isinstance(exponent, int)  # A literal is finite.
                return max(len(digits) + exponent, 0), max(-exponent, 0)
            case int(value):
                return (_DIGITS["integer"] if -(1 << 31) <= value < 1 << 31 else _DIGITS["long"]), 0
        return 0, 0
    kind = operand.type
    if isinstance(kind, DecimalType):
        return kind.precision - kind.scale, kind.scale
    return _DIGITS[kind.name], 0


def _operand(node: Expression) -> SparkColumn:
    return _column(node) if isinstance(node, Column) else _literal(node)


def _column(column: Any) -> SparkColumn:
    return F.col(to_sql(column))


def _literal(node: Any) -> SparkColumn:
    value = node.value
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return F.lit(value.isoformat(sep=" ")).cast("timestamp_ntz")
        return F.timestamp_micros(F.lit((value - _EPOCH) // timedelta(microseconds=1)))
    if isinstance(value, bytes):
        return F.lit(bytearray(value))
    return F.lit(value)
