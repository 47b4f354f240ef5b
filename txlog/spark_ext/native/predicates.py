"""Predicates of txlog as Spark's, where the two mean the same in every session.

What Spark coerces, or reads by the session's time zone or ANSI mode, is no such predicate.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it

from txlog.expressions.sql import to_sql
from txlog.expressions.tree import (
    And,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
)
from txlog.schema.types import WHOLE_NUMBERS, DataType, DecimalType, PrimitiveType

_EXACT_IN_DOUBLES = 1 << 53
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARED: dict[str, Callable[[SparkColumn, SparkColumn], SparkColumn]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "<=>": lambda left, right: left.eqNullSafe(right),
}


def as_spark(where: Expression) -> SparkColumn | None:
    """Return a bound predicate for Spark, or None where Spark might see it otherwise."""
    match where:
        case And(parts) | Or(parts):
            found = [as_spark(part) for part in parts]
            known = [part for part in found if part is not None]
            if len(known) < len(found):
                return None
            return reduce(operator.and_ if isinstance(where, And) else operator.or_, known)
        case Not(operand):
            inner = as_spark(operand)
            return None if inner is None else ~inner
        case IsNull(Column() as column):
            return _column(column).isNull()
        case Column(_, PrimitiveType("boolean")):
            return _column(where)
        case In(Column() as column, values):
            if not all(_alike(column, value) for value in values):
                return None
            return _column(column).isin([_literal(value) for value in values])
        case Like(Column(_, PrimitiveType("string")) as column, pattern):
            return _column(column).like(pattern)
        case Comparison(op, left, right) if _alike(left, right):
            return _COMPARED[op](_operand(left), _operand(right))
    return None


def _alike(left: Expression, right: Expression) -> bool:
    """Whether two operands are compared without a conversion that could change either."""
    if isinstance(left, Literal) and isinstance(right, Column):
        left, right = right, left
    if not isinstance(left, Column) or not isinstance(right, Column | Literal):
        return False
    of = left.type
    if isinstance(right, Column):
        return of == right.type or (_is_exact(of) and _is_exact(right.type))
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
    return _is_exact(of) and isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_exact(kind: DataType | None) -> bool:
    return isinstance(kind, DecimalType) or (
        isinstance(kind, PrimitiveType) and kind.name in WHOLE_NUMBERS
    )


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
