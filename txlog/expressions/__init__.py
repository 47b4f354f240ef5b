"""Predicates: SQL text or `col()` → a tree → Arrow. Pure."""

from __future__ import annotations

from txlog.errors import InvalidInputError
from txlog.expressions.bind import bind, bind_value, children, columns_of
from txlog.expressions.evaluate import evaluate, is_true, mask
from txlog.expressions.sql import parse_sql, quote_name, to_sql
from txlog.expressions.tree import (
    And,
    Arithmetic,
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
    col,
    lit,
)

__all__ = [
    "And",
    "Arithmetic",
    "Cast",
    "Column",
    "Comparison",
    "Expression",
    "In",
    "IsNull",
    "Like",
    "Literal",
    "Not",
    "Or",
    "as_expression",
    "bind",
    "bind_value",
    "children",
    "col",
    "columns_of",
    "evaluate",
    "is_true",
    "lit",
    "mask",
    "parse_sql",
    "quote_name",
    "to_sql",
]


def as_expression(where: str | Expression | None) -> Expression | None:
    """Return a predicate as an expression: SQL text is parsed, None stays None.

    Raises
    ------
    InvalidInputError
        The text is no SQL predicate, or the argument is neither text nor an expression.
    """
    if where is None or isinstance(where, Expression):
        return where
    if not isinstance(where, str) or not where.strip():
        raise InvalidInputError(
            argument="where",
            reason=f"{where!r} is no predicate",
            remedy="Pass SQL text such as \"a > 1\", or an expression such as col('a') > 1",
        )
    return parse_sql(where)
