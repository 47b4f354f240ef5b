"""Rules about types, and what bound predicates become: casts, lists, and other engines' terms."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Sequence
from datetime import date
from decimal import ROUND_FLOOR, Decimal, localcontext
from functools import reduce
from operator import and_, invert, or_
from typing import Any, Generic, TypeVar, cast

from txlog.base.errors import InvalidInputError
from txlog.base.texts import is_unicode
from txlog.expressions.operators import OPERATORS, Operator
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
    nodes,
)
from txlog.schema.timestamps import Nanos
from txlog.schema.types import NANOS, WHOLE_NUMBERS, DataType, DecimalType, PrimitiveType

BOOLEAN = PrimitiveType("boolean")
DOUBLE = PrimitiveType("double")
FLOAT = PrimitiveType("float")
LONG = PrimitiveType("long")
VOID = PrimitiveType("void")

LONG_DIGITS = 19  # Of the decimals to which whole numbers are cast.
INTEGERS = frozenset(WHOLE_NUMBERS)
FLOATS = frozenset({"float", "double"})
TIMESTAMPS = frozenset({"timestamp", "timestamp_ntz"})


def primitive_name(kind: DataType) -> str:
    """Return the name of a primitive type; an empty string for another type."""
    return kind.name if isinstance(kind, PrimitiveType) else ""


def is_number(kind: DataType) -> bool:
    """Return whether values of a type are numbers."""
    return isinstance(kind, DecimalType) or primitive_name(kind) in INTEGERS | FLOATS


def arithmetic_type(op: str, have: DataType, other: DataType) -> DataType:
    """Return the type of a computed number.

    It is exact if both sides are exact and 38 digits are enough. It is a float if both sides are,
    except of a division, else a double.
    """
    if {primitive_name(have), primitive_name(other)} <= INTEGERS and op != "/":
        return LONG
    if have == other == FLOAT and op != "/":
        return FLOAT
    a, b = _as_decimal(have), _as_decimal(other)
    if a is None or b is None or op == "/":
        return DOUBLE
    if op == "%":
        scale = max(kind.scale for kind in (have, other) if isinstance(kind, DecimalType))
        return DecimalType(38, scale)
    if op == "*":
        precision, scale = a.precision + b.precision + 1, a.scale + b.scale
    else:
        scale = max(a.scale, b.scale)
        precision = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
    return DecimalType(precision, scale) if precision <= 38 else DOUBLE


def _as_decimal(kind: DataType) -> DecimalType | None:
    if isinstance(kind, DecimalType):
        return kind
    return DecimalType(LONG_DIGITS, 0) if primitive_name(kind) in INTEGERS else None


def common_type(kinds: Sequence[DataType]) -> DataType | None:
    """Return the common type of several types, or None if they have none.

    Integers and other numbers together have the type of their sum.
    """
    known = [kind for kind in kinds if kind != VOID]
    if not known:
        return VOID
    result = known[0]
    for kind in known[1:]:
        if kind == result:
            continue
        if not (is_number(kind) and is_number(result)):
            return None
        names = {primitive_name(kind), primitive_name(result)}
        if names <= INTEGERS:
            order = list(WHOLE_NUMBERS)
            result = max(kind, result, key=lambda one: order.index(primitive_name(one)))
        elif names & FLOATS:
            result = DOUBLE
        else:
            result = _common_decimal(kind, result)
    return result


def _common_decimal(one: DataType, other: DataType) -> DataType:
    a, b = _as_decimal(one), _as_decimal(other)
    assert a is not None
    assert b is not None
    scale = max(a.scale, b.scale)
    precision = max(a.precision - a.scale, b.precision - b.scale) + scale
    return DecimalType(precision, scale) if precision <= 38 else DOUBLE


def is_castable(have: DataType, kind: DataType) -> bool:
    """Return whether Arrow's cast between two types means the same as Spark's."""
    if have in (kind, VOID):
        return True
    old, new = _group(have), _group(kind)
    if new == "text":  # Spark formats fractions and timestamps differently from Arrow.
        return primitive_name(have) not in FLOATS | TIMESTAMPS.union(NANOS) and old != "other"
    if old == "text":
        return new != "other"
    if "binary" in (old, new) or "other" in (old, new):
        return False
    temporal = (old == "temporal", new == "temporal")
    return all(temporal) or not any(temporal)


def _group(kind: DataType) -> str:
    if is_number(kind) or kind == BOOLEAN:
        return "number"
    if primitive_name(kind) in TIMESTAMPS.union(NANOS, ("date",)):
        return "temporal"
    return {"string": "text", "binary": "binary"}.get(primitive_name(kind), "other")


def floor_of(value: Decimal, scale: int) -> tuple[int, bool]:
    """Return a number as a multiple of 10^-scale, rounded down, and whether this is exact."""
    if value.adjusted() > 400:  # Out of every range; its digits are not needed.
        return (-1 if value < 0 else 1) * 10**400, False
    with localcontext() as context:
        context.prec = 1000
        scaled = value.scaleb(scale)
        floor = scaled.to_integral_value(ROUND_FLOOR)
        return int(floor), floor == scaled


def nearest_float(value: float | Decimal) -> float:
    """Return the double nearest to a number; an infinity if it is out of range."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def nearest_of(kind: DataType, value: float) -> float:
    """Return the value of a floating point type nearest to a double; an infinity out of range."""
    # A constant of type FLOAT compares as its 32 bits do: 0.1F is not 0.1.
    return float(struct.unpack("f", struct.pack("f", value))[0]) if kind == FLOAT else value


def require_constant(value: Any) -> None:
    """Raise `InvalidInputError` for a constant that no type can hold."""
    if type(value) is str and not is_unicode(value):
        reason = f"{value!r} contains a lone UTF-16 surrogate, which is not a character"
        raise InvalidInputError(argument="where", reason=reason)
    if type(value) is int and abs(value) >= 1 << 1023:
        reason = f"a number of {value.bit_length()} bits is too large for a double"
        raise InvalidInputError(argument="where", reason=reason)


def require_unquoted(predicate: Expression, names: Collection[str]) -> None:
    """Raise if a quoted text is compared only with constants, and is the name of a column.

    In engines such as DataFusion, `"n" > 3` reads the column `n`. In Spark `"n"` is a text, so the
    predicate would be true for all rows or for none.
    """
    for node in nodes(predicate):
        match node:
            case Comparison(_, Literal(one), Literal(other)):
                texts = (one, other)
            case In(Literal(one)) | Like(Literal(one)) | IsNull(Literal(one)):
                texts = (one, None)
            case _:
                continue
        for text in texts:
            if isinstance(text, str) and text in names:
                raise InvalidInputError(
                    argument="where",
                    field=text,
                    reason=f"{text!r} in quotes is a text and not a column, as in Spark",
                    remedy=f"Write the column in backticks: `{text}`",
                )


def beside_text(value: Any) -> DataType | None:
    """Return the type to which Spark casts a text that is compared with a constant, or None."""
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int | float | Decimal) and not isinstance(value, Nanos):
        return LONG if isinstance(value, int) else DOUBLE
    return PrimitiveType("date") if type(value) is date else None


_FEW_PARTS = 20  # Up to this number of parts, a disjunction is not changed.


def any_of(parts: Sequence[Expression]) -> Expression:
    """Return a disjunction. In a long one, equalities of one column with constants become IN."""
    if len(parts) <= _FEW_PARTS:
        return Or(tuple(parts))
    equal: dict[tuple[str, ...], tuple[Column, list[Literal]]] = {}
    others: list[Expression] = []
    for part in parts:
        match part:
            case Comparison("=", Column(path) as column, Literal(value) as literal) if (
                value is not None and value == value
            ):
                equal.setdefault(path, (column, []))[1].append(literal)
            case _:
                others.append(part)
    lists = [In(column, tuple(literals)) for column, literals in equal.values()]
    return Or((*lists, *others)) if others or len(lists) > 1 else lists[0]


Condition = TypeVar("Condition")


class OtherwiseError(Exception):
    """An engine has no expression with the same meaning."""


class Dialect(Generic[Condition]):
    """An engine's expressions for the parts of a predicate, for `translated`.

    A method raises `OtherwiseError` if the engine might read a part differently. A dialect does not
    define methods for parts that the engine lacks. Three-valued AND, OR and NOT are the same in all
    engines.
    """

    def truth(self, node: Column | Literal) -> Condition:
        """Return a boolean column or constant."""
        raise OtherwiseError

    def is_null(self, column: Column) -> Condition:
        """Return whether a column is null."""
        raise OtherwiseError

    def is_unknown(self, condition: Condition) -> Condition:
        """Return whether a condition is neither true nor false."""
        raise OtherwiseError

    def compare(self, op: Operator, left: Expression, right: Expression) -> Condition:
        """Return a comparison of two operands."""
        raise OtherwiseError

    def is_in(self, operand: Expression, values: tuple[Literal, ...]) -> Condition:
        """Return whether an operand is one of some values."""
        raise OtherwiseError

    def like(self, operand: Expression, pattern: str) -> Condition:
        """Return whether a string matches a SQL LIKE pattern."""
        raise OtherwiseError

    def all_of(self, parts: Sequence[Condition]) -> Condition:
        """Return AND of conditions."""
        return reduce(and_, parts)

    def any_of(self, parts: Sequence[Condition]) -> Condition:
        """Return OR of conditions."""
        return reduce(or_, parts)

    def negated(self, part: Condition) -> Condition:
        """Return NOT of a condition."""
        return cast(Condition, invert(cast(Any, part)))


def translated(where: Expression, dialect: Dialect[Condition]) -> Condition | None:
    """Return a predicate for an engine, or None if the engine cannot express exactly the same."""
    try:
        return _translated(where, dialect)
    except OtherwiseError:
        return None


def _translated(node: Expression, dialect: Dialect[Condition]) -> Condition:
    match node:
        case And(parts):
            return dialect.all_of([_translated(part, dialect) for part in parts])
        case Or(parts):
            return dialect.any_of([_translated(part, dialect) for part in parts])
        case Not(operand):
            return dialect.negated(_translated(operand, dialect))
        case IsNull(Column() as column):
            return dialect.is_null(column)
        case IsNull(operand):
            return dialect.is_unknown(_translated(operand, dialect))
        case Column() | Literal():
            return dialect.truth(node)
        case Comparison(op, left, right):
            return dialect.compare(OPERATORS[op], left, right)
        case In(operand, values):
            return dialect.is_in(operand, values)
        case Like(operand, pattern):
            return dialect.like(operand, pattern)
    raise OtherwiseError
