"""Rules about types, and what bound predicates become: casts, lists, and other engines' terms."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Sequence
from dataclasses import replace
from decimal import ROUND_FLOOR, Decimal, localcontext
from functools import reduce
from itertools import permutations
from operator import and_, invert, or_
from typing import Any, Generic, TypeVar, cast

from txlog.base.errors import InvalidInputError
from txlog.base.texts import is_unicode
from txlog.base.thresholds import Threshold
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
from txlog.schema.types import (
    NANOS,
    STRING,
    WHOLE_NUMBERS,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
)

BOOLEAN = PrimitiveType("boolean")
DOUBLE = PrimitiveType("double")
FLOAT = PrimitiveType("float")
LONG = PrimitiveType("long")
INTEGER = PrimitiveType("integer")
VOID = PrimitiveType("void")

MOST_DIGITS = 38  # Of a decimal.
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}  # Of decimals with the same values.
_LEAST_FRACTION = 6  # So many fractional digits stay if a computed number has too many digits.
INTEGERS = frozenset(WHOLE_NUMBERS)
FLOATS = frozenset({"float", "double"})
TIMESTAMPS = frozenset({"timestamp", "timestamp_ntz"})


def primitive_name(kind: DataType) -> str:
    """Return the name of a primitive type; an empty string for another type."""
    return kind.name if isinstance(kind, PrimitiveType) else ""


def is_number(kind: DataType) -> bool:
    """Return whether values of a type are numbers."""
    return isinstance(kind, DecimalType) or primitive_name(kind) in INTEGERS | FLOATS


def number_type(value: int | Decimal) -> DataType:
    """Return the type of an exact number in SQL text; a double if it has more than 38 digits."""
    if isinstance(value, Decimal):
        scale = max(0, -int(value.as_tuple().exponent))
        precision = max(value.adjusted() + 1 + scale, scale, 1)
        return DecimalType(precision, scale) if precision <= MOST_DIGITS else DOUBLE
    if -(2**31) <= value < 2**31:
        return INTEGER
    if -(2**63) <= value < 2**63:
        return LONG
    digits = len(str(abs(value)))
    return DecimalType(digits, 0) if digits <= MOST_DIGITS else DOUBLE


def arithmetic_type(op: str, have: DataType, other: DataType) -> DataType:
    """Return the type of a computed number, as in Spark.

    Whole numbers have the larger of their two types, but a quotient of them is a double. A float
    and another type than float give a double. All others are decimals, see `decimal_result`.
    """
    if VOID in (have, other):
        have = other = next((kind for kind in (have, other) if kind != VOID), DOUBLE)
    names = {primitive_name(have), primitive_name(other)}
    if names & FLOATS:
        return FLOAT if names == {"float"} and op != "/" else DOUBLE
    if names <= INTEGERS:
        return DOUBLE if op == "/" else _larger(have, other)
    a, b = as_decimal(have), as_decimal(other)
    assert a is not None
    assert b is not None
    return decimal_result(op, a, b)


def _larger(have: DataType, other: DataType) -> DataType:
    order = list(WHOLE_NUMBERS)
    return max(have, other, key=lambda one: order.index(primitive_name(one)))


def as_decimal(kind: DataType) -> DecimalType | None:
    """Return the decimal type that has all values of an exact number; None for another type."""
    if isinstance(kind, DecimalType):
        return kind
    digits = _DIGITS.get(primitive_name(kind))
    return None if digits is None else DecimalType(digits, 0)


def _adjusted(precision: int, scale: int) -> DecimalType:
    """Return the type of a computed decimal: if it has too many digits, with a smaller fraction."""
    if precision <= MOST_DIGITS:
        return DecimalType(precision, scale)
    whole = precision - scale
    return DecimalType(MOST_DIGITS, max(MOST_DIGITS - whole, min(scale, _LEAST_FRACTION)))


def wider(a: DecimalType, b: DecimalType) -> DecimalType:
    """Return the type that values of two types are cast to: whole digits come before fractions."""
    scale = max(a.scale, b.scale)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    if whole + scale <= MOST_DIGITS:
        return DecimalType(whole + scale, scale)
    return DecimalType(MOST_DIGITS, max(0, MOST_DIGITS - whole))


def decimal_result(op: str, a: DecimalType, b: DecimalType) -> DecimalType:
    """Return the type of `a op b`."""
    if op == "*":
        return _adjusted(a.precision + b.precision + 1, a.scale + b.scale)
    if op == "/":
        scale = max(_LEAST_FRACTION, a.scale + b.precision + 1)
        return _adjusted(a.precision - a.scale + b.scale + scale, scale)
    scale = max(a.scale, b.scale)
    whole = (a.precision - a.scale, b.precision - b.scale)
    if op == "%":
        return _adjusted(min(whole) + scale, scale)
    return _adjusted(max(whole) + scale + 1, scale)


def common_type(kinds: Sequence[DataType]) -> DataType | None:
    """Return the common type of several types, or None if they have none."""
    known = [kind for kind in kinds if kind != VOID]
    if not known:
        return VOID
    result = known[0]
    for kind in known[1:]:
        if kind == result:
            continue
        if not (is_number(kind) and is_number(result)):
            other = _common_time(result, kind) or _common_nested(result, kind)
            if other is None:
                return None
            result = other
            continue
        names = {primitive_name(kind), primitive_name(result)}
        a, b = as_decimal(kind), as_decimal(result)
        if names <= INTEGERS:
            result = _larger(kind, result)
        elif a is None or b is None:
            result = DOUBLE
        else:
            result = wider(a, b)
    return result


def unnamed(kind: DataType) -> DataType:
    """Return a type whose structs have fields without names: they are compared by their places."""
    match kind:
        case ArrayType(element):
            return replace(kind, element=unnamed(element))
        case MapType(key, value):
            return replace(kind, key=unnamed(key), value=unnamed(value))
        case StructType(fields):
            return StructType(
                tuple(
                    replace(field, name=str(place), type=unnamed(field.type))
                    for place, field in enumerate(fields)
                )
            )
    return kind


def _common_time(one: DataType, other: DataType) -> DataType | None:
    """Return the common type of dates and timestamps; None if one is of another type."""
    order = ("date", "timestamp_ntz", "timestamp")
    if not {primitive_name(one), primitive_name(other)} <= set(order):
        return None
    return max(one, other, key=lambda kind: order.index(primitive_name(kind)))


def _common_nested(one: DataType, other: DataType) -> DataType | None:
    """Return the common type of two arrays, maps or structs; None if they have none."""
    match one, other:
        case ArrayType(a, some), ArrayType(b, others):
            element = common_type([a, b])
            return None if element is None else ArrayType(element, some or others)
        case MapType(a, values, some), MapType(b, others, more):
            key, value = common_type([a, b]), common_type([values, others])
            return None if key is None or value is None else MapType(key, value, some or more)
        case StructType(fields), StructType(rest):
            if [field.name.lower() for field in fields] != [field.name.lower() for field in rest]:
                return None
            kinds = [common_type([a.type, b.type]) for a, b in zip(fields, rest, strict=True)]
            if None in kinds:
                return None
            return StructType(
                tuple(
                    replace(a, type=kind, nullable=a.nullable or b.nullable)
                    for a, b, kind in zip(fields, rest, kinds, strict=True)
                    if kind is not None
                )
            )
    return None


def is_castable(have: DataType, kind: DataType) -> bool:
    """Return whether txlog casts one type to another. Spark casts all of these."""
    if have in (kind, VOID):
        return True
    old, new = _group(have), _group(kind)
    if "other" in (old, new):
        return False
    return old == new or (old, new) in _CASTS


_CASTS = frozenset(
    {
        *((old, "text") for old in ("number", "boolean", "date", "timestamp", "local", "binary")),
        *(("text", new) for new in ("number", "boolean", "date", "timestamp", "local", "nanos")),
        ("text", "binary"),
        ("number", "boolean"),
        ("boolean", "number"),
        ("number", "timestamp"),
        ("timestamp", "number"),
        *permutations(("date", "timestamp", "local", "nanos"), 2),
    }
)


def _group(kind: DataType) -> str:
    if is_number(kind):
        return "number"
    name = primitive_name(kind)
    if name in NANOS:
        return "nanos"
    names = {"string": "text", "timestamp_ntz": "local"}
    known = ("binary", "boolean", "date", "timestamp")
    return names.get(name, name if name in known else "other")


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


def beside_text(one: DataType, other: DataType) -> DataType | None:
    """Return the type to which Spark casts the text of two values that are compared.

    None if none of them is a text, or both are.
    """
    kinds = {one, other} - {STRING}
    if STRING not in (one, other) or len(kinds) != 1:
        return None
    (kind,) = kinds
    if is_number(kind):
        return LONG if primitive_name(kind) in INTEGERS else DOUBLE
    known = TIMESTAMPS.union(NANOS, ("date", "boolean"))
    return kind if primitive_name(kind) in known else None


def is_ordered(kind: DataType) -> bool:
    """Return whether two values of a type can be compared."""
    if isinstance(kind, StructType):
        return all(is_ordered(field.type) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return is_ordered(kind.element)
    return not isinstance(kind, MapType) and primitive_name(kind) != "variant"


_FEW_PARTS: Threshold = 20  # Up to this number of parts, a disjunction is not changed.


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
