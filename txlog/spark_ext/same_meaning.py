"""Whether Spark compares and stores values as txlog does, without a cast of them. Pure.

Spark casts values of different kinds to one type. The result depends on its version and on settings
of the session, such as the time zone and the ANSI mode, so txlog leaves such values to Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from txlog.expressions.tree import Column, Expression, Literal
from txlog.schema.timestamps import Nanos
from txlog.schema.types import (
    STRING,
    WHOLE_NUMBERS,
    DataType,
    DecimalType,
    PrimitiveType,
)

BOOLEAN = PrimitiveType("boolean")
DATE = PrimitiveType("date")
DOUBLE = PrimitiveType("double")
EXACT = "exact"
"""The kind of whole numbers and decimals, which Spark compares as decimals."""

_EXACT_IN_DOUBLES = 1 << 53
_MAX_PRECISION = 38  # Spark rounds decimals that need more digits.
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}  # As Spark makes them decimals.


def kind_of(value: Expression) -> DataType | str | None:
    """Return the kind of a constant, or of a column with a type: its type, or `EXACT`.

    None for all other expressions, and for constants that Spark may read in another way.
    """
    match value:
        case Column(_, kind):
            return EXACT if _is_exact(kind) else kind
        case Literal(_, PrimitiveType("date")):
            return DATE
        case Literal(bool()):
            return BOOLEAN
        case Literal(Nanos()):
            return None
        case Literal(int() | Decimal()):
            return EXACT
        case Literal(float(), kind):
            return DOUBLE if kind in (None, DOUBLE) else None
        case Literal(str()):
            return STRING
        case Literal(bytes()):
            return PrimitiveType("binary")
        case Literal(datetime() as moment):
            return PrimitiveType("timestamp" if moment.tzinfo is not None else "timestamp_ntz")
        case Literal(date()):
            return DATE
    return None


def is_compared_alike(operands: Sequence[Expression]) -> bool:
    """Return whether Spark compares columns and constants without changing one of them.

    They are of one kind, and if they are exact, one decimal type has all of their values. A
    constant NULL is of every kind.
    """
    known = [one for one in operands if not (isinstance(one, Literal) and one.value is None)]
    doubles = any(isinstance(one, Column) and one.type == DOUBLE for one in known)
    kinds = [DOUBLE if doubles and _is_whole_double(one) else kind_of(one) for one in known]
    if None in kinds or any(kind != kinds[0] for kind in kinds):
        return False
    return EXACT not in kinds or _fit(known)


def is_stored_alike(value: Expression, kind: DataType) -> bool:
    """Return whether Spark stores a column or a constant of SQL text in a type as it is."""
    match value:
        case Column(_, have):
            return have == kind
        case Literal(bool() | str(), None):
            return kind_of(value) == kind
        case Literal(int(), None):
            return kind in (PrimitiveType("integer"), PrimitiveType("long"))
    return False


def _is_exact(kind: DataType | None) -> bool:
    return isinstance(kind, DecimalType) or (
        isinstance(kind, PrimitiveType) and kind.name in WHOLE_NUMBERS
    )


def _is_whole_double(value: Expression) -> bool:
    """Return whether a constant is a whole number that a double has exactly."""
    return (
        isinstance(value, Literal)
        and type(value.value) is int
        and abs(value.value) < _EXACT_IN_DOUBLES
    )


def _fit(operands: Sequence[Expression]) -> bool:
    """Return whether one decimal type has all values of exact columns and constants."""
    digits = [_digits(operand) for operand in operands]
    return max(whole for whole, _ in digits) + max(parts for _, parts in digits) <= _MAX_PRECISION


def _digits(operand: Any) -> tuple[int, int]:
    """Return the digits before and after the point that Spark gives to an exact value."""
    if isinstance(operand, Column):
        if isinstance(operand.type, DecimalType):
            return operand.type.precision - operand.type.scale, operand.type.scale
        assert isinstance(operand.type, PrimitiveType)
        return _DIGITS[operand.type.name], 0
    value = operand.value
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)  # A constant is finite.
        return max(len(digits) + exponent, 0), max(-exponent, 0)
    return _DIGITS["integer" if -(1 << 31) <= value < 1 << 31 else "long"], 0
