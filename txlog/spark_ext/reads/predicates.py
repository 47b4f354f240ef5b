"""Translate predicates of txlog to Spark, if they have the same meaning in every session.

Predicates with casts that could change a value, and those that depend on the time zone or the ANSI
mode, are not translated.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it

from txlog.expressions.operators import Operator
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import Column, Expression, Literal
from txlog.expressions.type_rules import Dialect, OtherwiseError, translated
from txlog.schema.types import STRING
from txlog.spark_ext.same_meaning import BOOLEAN, is_compared_alike

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_spark(where: Expression) -> SparkColumn | None:
    """Return a bound predicate for Spark, or None if its meaning in Spark may differ."""
    return translated(where, _Spark())


class _Spark(Dialect[SparkColumn]):
    def truth(self, node: Column | Literal) -> SparkColumn:
        if isinstance(node, Literal) or node.type != BOOLEAN:
            raise OtherwiseError
        return _column(node)

    def is_null(self, column: Column) -> SparkColumn:
        return _column(column).isNull()

    def compare(self, op: Operator, left: Expression, right: Expression) -> SparkColumn:
        _require_alike((left, right))
        a, b = _operand(left), _operand(right)
        found: SparkColumn = a.eqNullSafe(b) if op.null_safe else op.python(a, b)
        return found

    def is_in(self, operand: Expression, values: tuple[Literal, ...]) -> SparkColumn:
        if not isinstance(operand, Column):
            raise OtherwiseError
        _require_alike((operand, *values))
        return _column(operand).isin([constant_column(value) for value in values])

    def like(self, operand: Expression, pattern: str) -> SparkColumn:
        if not isinstance(operand, Column) or operand.type != STRING:
            raise OtherwiseError
        return _column(operand).like(pattern)


def _require_alike(operands: Sequence[Expression]) -> None:
    has_column = any(isinstance(one, Column) for one in operands)
    if not has_column or not is_compared_alike(operands):
        raise OtherwiseError


def _operand(node: Expression) -> SparkColumn:
    if isinstance(node, Literal):
        return constant_column(node)
    return _column(node)


def _column(column: Any) -> SparkColumn:
    return F.col(to_sql(column))


def constant_column(node: Literal) -> SparkColumn:
    """Return a constant with a type as a column of Spark."""
    value: Any = node.value
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return F.lit(value.isoformat(sep=" ")).cast("timestamp_ntz")
        return F.timestamp_micros(F.lit((value - _EPOCH) // timedelta(microseconds=1)))
    if isinstance(value, date):  # Spark does not take the text that Python gives years before 1000.
        return F.date_from_unix_date(F.lit((value - _EPOCH.date()).days))
    if isinstance(value, bytes):
        return F.lit(bytearray(value))
    return F.lit(value)
