"""From predicates to another engine's, where the two mean the very same. Pure.

`translated` walks the tree of a bound predicate. A `Target` says for each leaf (a comparison, a
list, a pattern) what the engine has for it. Where the engine might see a leaf otherwise, it raises
`OtherwiseError`, and the whole predicate is left to `evaluate`. Three-valued AND, OR and NOT are
the same in all engines.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_
from typing import Any, Generic, Protocol, TypeVar

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
from txlog.schema.types import PrimitiveType


class OtherwiseError(Exception):
    """An engine has no expression that means the same."""


class _Condition(Protocol):
    def __and__(self, other: Any) -> Any: ...

    def __or__(self, other: Any) -> Any: ...

    def __invert__(self) -> Any: ...


Condition = TypeVar("Condition", bound=_Condition)


class Target(Generic[Condition]):
    """What an engine has for the leaves of a predicate; what it does not have, it does not define.

    Each method raises `OtherwiseError` where the engine might see a leaf otherwise.
    """

    def truth(self, node: Column | Literal) -> Condition:
        """Return a column or a literal of truth values."""
        raise OtherwiseError

    def is_null(self, column: Column) -> Condition:
        """Return whether a column is null."""
        raise OtherwiseError

    def compare(self, op: str, left: Expression, right: Expression) -> Condition:
        """Return a comparison of two operands."""
        raise OtherwiseError

    def is_in(self, operand: Expression, values: tuple[Literal, ...]) -> Condition:
        """Return whether an operand is one of some values."""
        raise OtherwiseError

    def like(self, operand: Expression, pattern: str) -> Condition:
        """Return whether a text is like a pattern of SQL."""
        raise OtherwiseError


def translated(where: Expression, target: Target[Condition]) -> Condition | None:
    """Return a bound predicate for an engine, or None if it cannot say exactly the same."""
    try:
        return _translated(where, target)
    except OtherwiseError:
        return None


def _translated(node: Expression, target: Target[Condition]) -> Condition:
    match node:
        case And(parts):
            return reduce(and_, (_translated(part, target) for part in parts))
        case Or(parts):
            return reduce(or_, (_translated(part, target) for part in parts))
        case Not(operand):
            return ~_translated(operand, target)  # type: ignore[no-any-return]
        case IsNull(Column() as column):
            return target.is_null(column)
        case Column(_, PrimitiveType("boolean")) | Literal(_, PrimitiveType("boolean")):
            return target.truth(node)
        case Comparison(op, left, right):
            return target.compare(op, left, right)
        case In(operand, values):
            return target.is_in(operand, values)
        case Like(operand, pattern):
            return target.like(operand, pattern)
    raise OtherwiseError
