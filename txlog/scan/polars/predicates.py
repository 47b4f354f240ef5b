"""From predicates to polars, where its expressions mean the very same. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_

import polars as pl

from txlog.expressions.tree import Column, Expression, Literal
from txlog.scan.translate import OtherwiseError, Target, translated
from txlog.schema.types import DataType, PrimitiveType

_INTEGERS = frozenset({"byte", "short", "integer", "long"})
_FLOATS = frozenset({"float", "double"})
_OTHERS: Mapping[str, pl.DataType] = {
    "boolean": pl.Boolean(),
    "string": pl.String(),
    "binary": pl.Binary(),
    "date": pl.Date(),
    "timestamp": pl.Datetime("us", "UTC"),
    "timestamp_ntz": pl.Datetime("us"),
}


def as_polars(where: Expression, columns: Mapping[str, pl.Expr]) -> pl.Expr | None:
    """Return a bound predicate for polars, or None if it cannot say exactly the same.

    Parameters
    ----------
    columns
        What each column of the table is: one of a frame, or a constant.

    Notes
    -----
    Polars has NaN equal to itself and above all numbers, and three-valued logic, as Spark does.
    What computes values, or compares across types, is left to `evaluate`.
    """
    return translated(where, _Polars(columns))


@dataclass(frozen=True)
class _Polars(Target[pl.Expr]):
    columns: Mapping[str, pl.Expr]

    def truth(self, node: Column | Literal) -> pl.Expr:
        return _value(node, self.columns)[1]

    def is_null(self, column: Column) -> pl.Expr:
        if len(column.path) > 1:
            raise OtherwiseError
        return self.columns[column.path[0]].is_null()

    def compare(self, op: str, left: Expression, right: Expression) -> pl.Expr:
        return _comparison(op, left, right, self.columns)

    def is_in(self, operand: Expression, values: tuple[Literal, ...]) -> pl.Expr:
        return _in(operand, values, self.columns)

    def like(self, operand: Expression, pattern: str) -> pl.Expr:
        return _like(operand, pattern, self.columns)


def _value(node: Expression, columns: Mapping[str, pl.Expr]) -> tuple[pl.DataType, pl.Expr]:
    """Return a column or a constant, and the type in which its values compare."""
    match node:
        case Column((name,), kind):
            wide = _compared_as(kind)
            # Widening floats is exact. Integers are left as they are, so that polars can hold
            # their row groups' statistics against a constant.
            return wide, columns[name].cast(wide) if wide == pl.Float64 else columns[name]
        case Literal(value, kind):
            wide = _compared_as(kind)
            return wide, pl.lit(value, dtype=wide)
    raise OtherwiseError


def _compared_as(kind: DataType | None) -> pl.DataType:
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    if name in _INTEGERS:
        return pl.Int64()
    if name in _FLOATS:
        return pl.Float64()
    if name in _OTHERS:
        return _OTHERS[name]
    raise OtherwiseError


def _comparison(
    op: str, left: Expression, right: Expression, columns: Mapping[str, pl.Expr]
) -> pl.Expr:
    (kind, a), (other, b) = _value(left, columns), _value(right, columns)
    if kind != other or (kind == pl.Boolean and op not in ("=", "<>", "<=>")):
        raise OtherwiseError
    match op:
        case "=":
            return a.eq(b)
        case "<>":
            return a.ne(b)
        case "<":
            return a.lt(b)
        case "<=":
            return a.le(b)
        case ">":
            return a.gt(b)
        case ">=":
            return a.ge(b)
        case "<=>":
            return a.eq_missing(b)
    raise OtherwiseError


def _in(
    operand: Expression, values: tuple[Literal, ...], columns: Mapping[str, pl.Expr]
) -> pl.Expr:
    kind, value = _value(operand, columns)
    known = [literal.value for literal in values if literal.value is not None]
    if not known or any(_compared_as(literal.type) != kind for literal in values):
        raise OtherwiseError
    if kind == pl.Float64:  # Equality, of which it is known what it makes of NaN and -0.0.
        found = reduce(or_, (value.eq(pl.lit(one, dtype=kind)) for one in known))
    else:
        found = value.cast(kind).is_in(pl.Series(known, dtype=kind).implode())
    return found if len(known) == len(values) else found | pl.lit(None, dtype=pl.Boolean)


def _like(operand: Expression, pattern: str, columns: Mapping[str, pl.Expr]) -> pl.Expr:
    kind, text = _value(operand, columns)
    body = pattern.removeprefix("%").removesuffix("%")
    if kind != pl.String or any(special in body for special in "%_\\") or pattern == "%":
        raise OtherwiseError
    match pattern[:1] == "%", pattern[-1:] == "%":
        case True, True:
            return text.str.contains(body, literal=True)
        case True, False:
            return text.str.ends_with(body)
        case False, True:
            return text.str.starts_with(body)
    return text.eq(pl.lit(body))
