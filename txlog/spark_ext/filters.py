"""Spark's filters as predicates of txlog."""

from __future__ import annotations

from typing import Any

from pyspark.sql import datasource as spark

from txlog.expressions import Column, Comparison, Expression, Like, Literal


def as_predicate(found: Any) -> Expression | None:
    """Return what a filter of Spark says, or None if it has no counterpart."""
    if isinstance(found, spark.Not):
        inner = as_predicate(found.child)
        return None if inner is None else ~inner
    path = getattr(found, "attribute", None)
    if path is None:
        return None
    column = Column(tuple(path))
    match found:
        case spark.EqualTo():
            return Comparison("=", column, Literal(found.value))
        case spark.EqualNullSafe():
            return Comparison("<=>", column, Literal(found.value))
        case spark.GreaterThan():
            return Comparison(">", column, Literal(found.value))
        case spark.GreaterThanOrEqual():
            return Comparison(">=", column, Literal(found.value))
        case spark.LessThan():
            return Comparison("<", column, Literal(found.value))
        case spark.LessThanOrEqual():
            return Comparison("<=", column, Literal(found.value))
        case spark.In():
            return column.isin(found.value)
        case spark.IsNull():
            return column.is_null()
        case spark.IsNotNull():
            return column.is_not_null()
        case spark.StringStartsWith():
            return column.startswith(found.value)
        case spark.StringEndsWith():
            return Like(column, "%" + _escaped(found.value))
        case spark.StringContains():
            return Like(column, "%" + _escaped(found.value) + "%")
    return None


def _escaped(text: str) -> str:
    for character in "\\%_":
        text = text.replace(character, "\\" + character)
    return text
