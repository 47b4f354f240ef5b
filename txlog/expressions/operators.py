"""Comparisons and arithmetic: the signs, and what follows from them. Pure.

A comparison is three booleans: whether it is true if the left value is less than the right one,
equal to it, or greater. What it means with its sides exchanged, negated, or of all values between
two bounds, follows from these.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from typing import Literal as OneOf

import pyarrow as pa

from txlog.base.arrow import pc

Comparator = OneOf["=", "<>", "<", "<=", ">", ">=", "<=>"]
ArithmeticSign = OneOf["+", "-", "*", "/", "%"]


@dataclass(frozen=True)
class Operator:
    """A comparison of two values.

    Parameters
    ----------
    sign
        The sign in SQL and in a tree.
    parsed
        The name of the parser's node.
    less, equal, greater
        Whether it is true if the left value is less than, equal to, or greater than the right one.
    arrow
        The name of Arrow's function, which gives null if a value is null.
    python
        The function of Python objects, which polars and Spark define for their columns.
    also
        Further spellings in filters.
    null_safe
        Two nulls are equal, and the result is never null.
    """

    sign: Comparator
    parsed: str
    less: bool
    equal: bool
    greater: bool
    arrow: str
    python: Callable[[Any, Any], Any]
    also: tuple[str, ...] = ()
    null_safe: bool = False

    @property
    def is_equality(self) -> bool:
        """Whether it is true of equal values only."""
        return self.equal and not (self.less or self.greater)

    @property
    def flipped(self) -> Operator:
        """The operator of the same meaning with left and right exchanged."""
        if self.less == self.greater:
            return self
        return _BY_MEANING[self.greater, self.equal, self.less]

    @property
    def negated(self) -> Operator:
        """The operator that is true where this one is false; of values that are not null."""
        return _BY_MEANING[not self.less, not self.equal, not self.greater]

    def compute(self, left: Any, right: Any) -> Any:
        """Return the comparison of Arrow values of one type; null if a value is null."""
        return getattr(pc, self.arrow)(left, right)

    def possible(self, low: pa.Array, high: pa.Array, constant: pa.Scalar) -> pa.Array:
        """Return whether any value between two bounds may compare so with a constant.

        Null where that is unknown, because a bound is null. The constant is neither null nor NaN.
        """
        if self.less and self.greater:
            return pc.invert(self.negated.certain(low, high, constant))
        if self.less or self.greater:
            return _compared(self, low if self.less else high, constant)
        return pc.and_kleene(
            _compared(OPERATORS["<="], low, constant), _compared(OPERATORS[">="], high, constant)
        )

    def certain(self, low: pa.Array, high: pa.Array, constant: pa.Scalar) -> pa.Array:
        """Return whether all values between two bounds compare so with a constant.

        Null where that is unknown, because a bound is null. The constant is neither null nor NaN.
        """
        if self.less and self.greater:
            return pc.or_kleene(
                _compared(OPERATORS[">"], low, constant), _compared(OPERATORS["<"], high, constant)
            )
        if self.less or self.greater:
            return _compared(self, high if self.less else low, constant)
        return pc.and_kleene(_compared(self, low, constant), _compared(self, high, constant))


OPERATORS: dict[str, Operator] = {
    one.sign: one
    for one in (
        Operator("=", "EQ", False, True, False, "equal", operator.eq, also=("==",)),
        Operator("<>", "NEQ", True, False, True, "not_equal", operator.ne, also=("!=",)),
        Operator("<", "LT", True, False, False, "less", operator.lt),
        Operator("<=", "LTE", True, True, False, "less_equal", operator.le),
        Operator(">", "GT", False, False, True, "greater", operator.gt),
        Operator(">=", "GTE", False, True, True, "greater_equal", operator.ge),
        Operator("<=>", "NullSafeEQ", False, True, False, "equal", operator.eq, null_safe=True),
    )
}
"""The comparisons by their signs."""

_BY_MEANING = {
    (one.less, one.equal, one.greater): one for one in OPERATORS.values() if not one.null_safe
}

FILTERS: dict[str, Operator] = {
    spelling: one
    for one in OPERATORS.values()
    if not one.null_safe
    for spelling in (one.sign, *one.also)
}
"""The comparisons by their spellings in filters such as `("a", "!=", 1)`."""


def _compared(op: Operator, bound: pa.Array, constant: pa.Scalar) -> pa.Array:
    """Return the comparison of bounds with a constant; null if the bound is unknown."""
    if pa.types.is_decimal(bound.type) or pa.types.is_decimal(constant.type):
        bound, constant = in_one_decimal(bound, constant)
    return op.compute(bound, constant)


def in_one_decimal(left: Any, right: Any) -> tuple[Any, Any]:
    """Return decimals and whole numbers in a type that has all values of both, to compare them."""
    wide = pa.decimal256(76, max(getattr(one.type, "scale", 0) for one in (left, right)))
    return _widened(left, wide), _widened(right, wide)


def _widened(value: Any, kind: pa.Decimal256Type) -> Any:
    if pa.types.is_integer(value.type):  # A cast at once needs room for all numbers of its type.
        value = value.cast(pa.int64()).cast(pa.decimal256(19, 0))
    return value.cast(kind)


@dataclass(frozen=True)
class ArithmeticOperator:
    """A number that is computed from two numbers.

    Parameters
    ----------
    sign
        The sign in SQL and in a tree.
    parsed
        The name of the parser's node.
    arrow
        The name of Arrow's function; None if Arrow has none.
    """

    sign: ArithmeticSign
    parsed: str
    arrow: str | None


ARITHMETIC: dict[str, ArithmeticOperator] = {
    one.sign: one
    for one in (
        ArithmeticOperator("+", "Add", "add_checked"),
        ArithmeticOperator("-", "Sub", "subtract_checked"),
        ArithmeticOperator("*", "Mul", "multiply_checked"),
        ArithmeticOperator("/", "Div", "divide"),
        ArithmeticOperator("%", "Mod", None),
    )
}
"""Arithmetic by its signs."""

PARSED: dict[str, Operator | ArithmeticOperator] = {
    **{one.parsed: one for one in OPERATORS.values()},
    **{one.parsed: one for one in ARITHMETIC.values()},
}
"""All operators by the names of the parser's nodes."""
