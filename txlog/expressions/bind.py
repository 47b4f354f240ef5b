"""Bind expressions to a schema: resolve names to columns, and type constants."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal, localcontext
from typing import Any

from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.expressions.operators import OPERATORS, Comparator
from txlog.expressions.tree import (
    And,
    Arithmetic,
    Call,
    Case,
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
    Variable,
    Zoned,
    children,
    col,
    varies,
)
from txlog.expressions.type_rules import (
    BOOLEAN,
    DOUBLE,
    FLOATS,
    INTEGERS,
    LONG,
    TIMESTAMPS,
    VOID,
    any_of,
    arithmetic_type,
    as_decimal,
    beside_text,
    common_type,
    floor_of,
    is_castable,
    is_number,
    is_ordered,
    nearest_float,
    nearest_of,
    number_type,
    primitive_name,
    require_constant,
    require_unquoted,
    unnamed,
    wider,
)
from txlog.schema.timestamps import Nanos, moment_of, nanos_of, nanos_of_scalar, parse_date
from txlog.schema.types import (
    NANOS,
    STRING,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
    fields_at,
    type_name,
)


def column_path(schema: StructType, name: str) -> tuple[str, ...]:
    """Return the path of a column that a caller names, in the caller's spelling.

    Dots separate the fields of structs, and backticks surround names with special characters. A
    text that is the whole name of a column means this column.

    Raises
    ------
    InvalidInputError, InvalidTypeError
        As for `col`.
    """
    return (name,) if isinstance(name, str) and schema.get(name) is not None else col(name).path


_NESTED = (ArrayType, MapType, StructType)
_BAD_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\(?![\\%_])")


def bind(expression: Expression, schema: StructType) -> Expression:
    """Return a predicate bound to a schema: columns are resolved, and all types are checked.

    Names are looked up exactly first, then ignoring case. A constant takes the type of the value
    that it is compared with. A constant outside of that type's range still compares correctly.

    Raises
    ------
    InvalidInputError
        A column is unknown, types are not compatible, or the result is not boolean.
    """
    require_unquoted(expression, schema.names())
    bound, kind = bind_value(expression, schema)
    if kind not in (BOOLEAN, VOID):
        raise _bad(f"a predicate was expected, but the type is {type_name(kind)}")
    return bound


def bind_value(expression: Expression, schema: StructType) -> tuple[Expression, DataType]:
    """Return an expression bound to a schema, and its type.

    Raises
    ------
    InvalidInputError
        A column is unknown, or types are not compatible.
    """
    try:
        return _bound(expression, Scope(schema))
    except RecursionError as error:
        raise _bad("the expression is nested too deeply") from error
    except InvalidInputError:
        raise
    except (ValueError, TypeError, ArithmeticError, LookupError) as error:
        raise _bad(f"the expression cannot be read: {error}") from error


def depends_on_zone(expression: Expression, schema: StructType) -> bool:
    """Return whether an expression means something else in another time zone."""
    from txlog.expressions.sql import to_sql

    texts = []
    for zone in ("UTC", "+09:30"):
        try:
            texts.append(to_sql(bind_value(Zoned(expression, zone), schema)[0]))
        except InvalidInputError:
            texts.append("")
    return texts[0] != texts[1]


def columns_of(expression: Expression) -> tuple[tuple[str, ...], ...]:
    """Return the distinct paths of the columns that an expression reads."""
    found: dict[tuple[str, ...], None] = {}
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Column):
            found[node.path] = None
        elif isinstance(node, In):
            waiting.append(node.operand)  # There may be very many values, which are literals.
        else:
            waiting.extend(reversed(children(node)))
    return tuple(found)


def _bad(reason: str, field: str | None = None) -> InvalidInputError:
    return InvalidInputError(argument="where", field=field, reason=reason)


@dataclass(frozen=True)
class Scope:
    """What an expression is bound in."""

    schema: StructType
    zone: str = ""  # The time zone of dates and times; empty for UTC.


def _bound(node: Expression, scope: Scope) -> tuple[Expression, DataType]:
    zone = scope.zone
    match node:
        case Column(path):
            return _column(path, scope.schema)
        case Literal():
            return _typed(node, zone)
        case Comparison(op, left, right):
            return _comparison(op, _bound(left, scope), _bound(right, scope), zone), BOOLEAN
        case And(parts) | Or(parts):
            united = And if isinstance(node, And) else any_of
            return united(tuple(_truth(part, scope) for part in parts)), BOOLEAN
        case Not(operand):
            return Not(_truth(operand, scope)), BOOLEAN
        case IsNull(operand):
            return IsNull(_bound(operand, scope)[0]), BOOLEAN
        case In(operand, values):
            return _in(_bound(operand, scope), values, zone), BOOLEAN
        case Zoned(operand, name):
            return _bound(operand, Scope(scope.schema, _zone_for(operand, name, scope.schema)))
        case Like(operand, pattern):
            bound, kind = _bound(operand, scope)
            if kind not in (PrimitiveType("string"), VOID):
                raise _bad(f"LIKE needs text, not {type_name(kind)}", _label(bound))
            if _BAD_ESCAPE.search(pattern):
                raise _bad(f"LIKE pattern {pattern!r}: a backslash must precede %, _ or \\")
            return Like(bound, pattern), BOOLEAN
        case Arithmetic(op, left, right):
            return _arithmetic(node, _bound(left, scope), _bound(right, scope))
        case Cast(operand, kind, tried):
            return _cast(_bound(operand, scope), kind, tried, zone)
        case Call("current_date" | "current_timestamp" as name):
            raise _bad(f"{name}() is not allowed here: the value must not depend on the time")
        case Variable(name, kind) if kind is not None:
            return node, kind
        case Call(name, args):
            from txlog.expressions.functions import bound_call  # Only calls need this.

            return bound_call(name, args, lambda arg: _bound(arg, scope), zone)
        case Case(branches, default):
            return _case(branches, default, scope)
    raise _bad(f"{type(node).__name__} is not an expression")


def _zone_for(node: Expression, name: str, schema: StructType) -> str:
    """Return the zone of an expression; an unknown one is an error only if it matters."""
    try:
        return str(_zones().known_zone(name))
    except InvalidInputError:
        if depends_on_zone(node, schema):
            raise
        return ""


def _case(
    branches: tuple[tuple[Expression, Expression], ...], default: Expression, scope: Scope
) -> tuple[Case, DataType]:
    """Return a bound CASE, whose values must have a common type."""
    conditions = [_truth(condition, scope) for condition, _ in branches]
    values = [_bound(value, scope) for value in (*(value for _, value in branches), default)]
    if scope.zone:
        values = _zones().same_times(values, scope.zone)
    kind = common_type([kind for _, kind in values])
    if kind is None:
        raise _bad("the values of CASE have no common type")
    *found, (last, _) = values
    pairs = tuple(zip(conditions, (value for value, _ in found), strict=True))
    return Case(pairs, last, kind), kind


def _truth(node: Expression, scope: Scope) -> Expression:
    bound, kind = _bound(node, scope)
    if kind not in (BOOLEAN, VOID):
        raise _bad(f"AND, OR and NOT need boolean values, not {type_name(kind)}", _label(bound))
    return bound


def _label(node: Expression) -> str | None:
    return ".".join(node.path) if isinstance(node, Column) else None


def _column(path: tuple[str, ...], schema: StructType) -> tuple[Column, DataType]:
    fields = fields_at(schema, path, argument="where")
    kind = fields[-1].type
    return Column(tuple(field.name for field in fields), kind), kind


def _typed(node: Literal, zone: str) -> tuple[Literal, DataType]:
    """Return a constant with the type of its Python value."""
    require_constant(node.value)
    if node.type is not None:
        return _coerced(node.value, node.type, zone), node.type
    match node.value:
        case None:
            return Literal(None, VOID), VOID
        case bool():
            kind: DataType = BOOLEAN
        case float():
            kind = DOUBLE
        case int() | Decimal() as value if isinstance(value, int) or value.is_finite():
            kind = number_type(value)
            if kind == DOUBLE:
                return Literal(float(value), DOUBLE), DOUBLE
        case str():
            kind = PrimitiveType("string")
        case bytes():
            kind = PrimitiveType("binary")
        case datetime() as moment:
            kind = PrimitiveType("timestamp_ntz" if moment.tzinfo is None else "timestamp")
        case date():
            kind = PrimitiveType("date")
        case value if (nanos := nanos_of_scalar(value)) is not None:
            return Literal(nanos[0], nanos[1]), nanos[1]
        case value if hasattr(value, "as_py"):
            return _typed(Literal(value.as_py()), zone)
        case value if hasattr(value, "item"):
            return _typed(Literal(value.item()), zone)
        case _:
            raise InvalidTypeError(argument="where", reason=f"{type(node.value)} is not a constant")
    return Literal(node.value, kind), kind


def _comparison(
    op: Comparator,
    left: tuple[Expression, DataType],
    right: tuple[Expression, DataType],
    zone: str,
) -> Expression:
    (a, have), (b, other) = (
        (node, kind) if varies(node) else (_constant(node, kind), kind)
        for node, kind in (left, right)
    )
    if isinstance(a, Literal) and not isinstance(b, Literal):
        a, have, b, other, op = b, other, a, have, OPERATORS[op].flipped.sign
    if VOID in (have, other):
        return Comparison(op, a, b)
    if isinstance(b, Literal) and not isinstance(a, Literal):
        return _with_constant(op, a, have, b.value, zone)
    if (beside := beside_text(have, other)) is not None:
        a = _cast((a, have), beside, False, zone)[0] if have == STRING else a
        b = _cast((b, other), beside, False, zone)[0] if other == STRING else b
        return Comparison(op, a, b)
    _require_comparable(have, other, a)
    if zone:
        (a, have), (b, other) = _zones().same_times([(a, have), (b, other)], zone)
    if isinstance(have, DecimalType) and isinstance(other, DecimalType):
        both = wider(have, other)
        if both.scale < max(have.scale, other.scale):  # Spark rounds both.
            a, b = Cast(a, both), Cast(b, both)
    return Comparison(op, a, b)


def _constant(node: Expression, kind: DataType) -> Expression:
    """Return an expression without columns as a constant, which data skipping can use."""
    if not isinstance(node, Call | Arithmetic | Cast) or isinstance(kind, _NESTED):
        return node
    from txlog.expressions.evaluate import constant  # Only such values need this.

    return constant(node, kind)


def _require_comparable(have: DataType, other: DataType, node: Expression) -> None:
    plain = is_ordered(have)
    nested = isinstance(have, _NESTED) and common_type([unnamed(have), unnamed(other)]) is not None
    together = (
        have == other
        or (nested and is_ordered(other))
        or (is_number(have) and is_number(other))
        or {primitive_name(have), primitive_name(other)} <= TIMESTAMPS | {"date"}
    )
    if not (plain and together):
        raise _bad(f"{type_name(have)} cannot be compared with {type_name(other)}", _label(node))


def _with_constant(
    op: Comparator, node: Expression, kind: DataType, value: Any, zone: str
) -> Expression:
    """Return a comparison whose constant is converted to the type of the other side."""
    if value is None:
        return Comparison(op, node, Literal(None, kind))
    if zone and kind == PrimitiveType("date") and getattr(value, "tzinfo", None) is not None:
        value = _zones().moment_in(value, zone, zoned=False)
    if zone and kind == PrimitiveType("timestamp") and _zones().is_beyond(value, zone):
        return Comparison(op, node, _zones().instant_of(value, zone))
    if kind == STRING and (beside := beside_text(kind, _typed(Literal(value), zone)[1])):
        # As in Spark, the text has to be such a value.
        node, kind = _cast((node, kind), beside, False, zone)
    elif (
        isinstance(value, str)
        and primitive_name(kind) not in NANOS  # Out of their range there are texts, too.
        and (beside := beside_text(STRING, kind)) is not None
    ):
        value = _read(value, beside, kind, node, zone)
    odd = isinstance(value, bool) != (kind == BOOLEAN) and not isinstance(value, str)
    if odd or (isinstance(value, Nanos) and is_number(kind)):
        raise _clash(kind, value, node)
    if primitive_name(kind) in NANOS:
        return _with_nanos(op, node, kind, value, zone)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool | Nanos):
        if not is_number(kind):
            raise _clash(kind, value, node)
        if primitive_name(kind) in FLOATS:
            return Comparison(op, node, Literal(nearest_float(value), DOUBLE))
        return _with_exact(op, node, kind, value)
    if kind == PrimitiveType("date") and isinstance(value, datetime) and value.time() != time():
        node, kind = _cast((node, kind), PrimitiveType("timestamp"), False, zone)
    try:
        return Comparison(op, node, _coerced(value, kind, zone))
    except InvalidInputError as error:
        error.field = _label(node)
        raise


def _with_nanos(
    op: Comparator, node: Expression, kind: DataType, value: Any, zone: str
) -> Expression:
    """Return a comparison of nanoseconds with a constant, which may be out of their range."""
    try:
        nanos = nanos_of(value)
        if zone and not isinstance(value, Nanos):
            zoned = primitive_name(kind) == "timestamp_nanos"
            shift = _zones().moment_in(value, zone, zoned=zoned) - moment_of(value, zoned=zoned)
            nanos += shift // timedelta(microseconds=1) * 1000
    except ValueError as error:
        raise _bad(f"{value!r} is no {type_name(kind)}: {error}", _label(node)) from error
    near = min(max(nanos, -(2**63)), 2**63 - 1)
    return _against(op, node, Literal(Nanos(near), kind), exact=near == nanos, above=nanos < near)


def _clash(kind: DataType, value: Any, node: Expression) -> InvalidInputError:
    reason = f"{type_name(kind)} cannot be compared with {value!r} ({type(value).__name__})"
    return _bad(reason, _label(node))


def _read(text: str, beside: DataType, kind: DataType, node: Expression, zone: str) -> Any:
    """Return the value of a text that is compared with a column of another type."""
    try:
        found = _cast((Literal(text, STRING), STRING), beside, False, zone)[0]
    except InvalidInputError as error:
        error.field = _label(node)
        raise
    if not isinstance(found, Literal) or (
        isinstance(kind, DecimalType) and not math.isfinite(found.value)
    ):
        raise _clash(kind, text, node)
    # A decimal is compared with all digits of the text.
    return Decimal(text.strip().rstrip("dDfF")) if isinstance(kind, DecimalType) else found.value


def _with_exact(
    op: Comparator, node: Expression, kind: DataType, value: float | Decimal
) -> Expression:
    """Return a comparison of an integer or decimal whose constant its type can represent.

    A constant between two values of the type is replaced by the lower one: `x < 1.5` becomes `x <=
    1`. A constant out of range is replaced by the lowest or highest value.
    """
    scale = kind.scale if isinstance(kind, DecimalType) else 0
    if isinstance(kind, DecimalType):
        greatest = 10**kind.precision - 1
        least = -greatest
        if isinstance(value, float) and math.isfinite(value):
            value = Decimal(repr(value))  # The shortest text of the double, not its exact value.
    else:
        least, greatest = -(2**63), 2**63 - 1
    if isinstance(value, float) and not math.isfinite(value):
        # NaN is greater than all numbers.
        steps, exact, above = (least, False, True) if value < 0 else (greatest, False, False)
    else:
        steps, exact = floor_of(Decimal(value), scale)
        above = steps < least
        if not least <= steps <= greatest:
            steps, exact = (least if above else greatest), False
    constant = _steps(steps, kind, scale)
    return _against(op, node, constant, exact=exact, above=above)


def _against(
    op: Comparator, node: Expression, constant: Literal, *, exact: bool, above: bool
) -> Expression:
    """Return a comparison with a constant that may replace the original constant.

    `exact` means that both are equal. Otherwise the original is below the constant (`above`), or
    between the constant and the next value of the type: no value equals it.
    """
    if exact:
        return Comparison(op, node, constant)
    operator = OPERATORS[op]
    if operator.null_safe:
        return Literal(False, BOOLEAN)
    less = Comparison("<" if above else "<=", node, constant)
    greater = Comparison(">=" if above else ">", node, constant)
    if operator.less != operator.greater:
        return less if operator.less else greater
    return Or((less, greater)) if operator.less else And((less, greater))


def _steps(steps: int, kind: DataType, scale: int) -> Literal:
    if not isinstance(kind, DecimalType):
        return Literal(steps, number_type(steps))
    with localcontext() as context:
        context.prec = 80
        return Literal(Decimal(steps).scaleb(-scale), DecimalType(38, scale))


def _coerced(value: Any, kind: DataType, zone: str) -> Literal:
    """Convert a constant to a type; strings are parsed in the type's text form."""
    name = primitive_name(kind)
    try:
        if zone and name in TIMESTAMPS and value is not None:
            return Literal(_zones().moment_in(value, zone, zoned=name == "timestamp"), kind)
        match name, value:
            case _, None:
                return Literal(None, kind)
            case ("string", str()) | ("binary", bytes()) | ("boolean", bool()):
                return Literal(value, kind)
            case "binary", str():
                return Literal(value.encode(), kind)
            case "boolean", str() if value.strip().lower() in ("true", "false"):
                return Literal(value.strip().lower() == "true", kind)
            case "date", str():
                return Literal(date(1970, 1, 1) + timedelta(parse_date(value)), kind)
            case "date", datetime() if value.time() == time():
                return Literal(value.date(), kind)
            case "date", date() if not isinstance(value, datetime):
                return Literal(value, kind)
            case (("timestamp" | "timestamp_ntz"), _):
                return Literal(moment_of(value, zoned=name == "timestamp"), kind)
            case (("timestamp_nanos" | "timestamp_nanos_ntz"), _):
                nanos = nanos_of(value)
                if not -(2**63) <= nanos < 2**63:
                    raise ValueError("nanoseconds only cover the years 1677 to 2262")
                return Literal(Nanos(nanos), kind)
            case (("float" | "double"), int() | float() | Decimal() | str()):
                return Literal(nearest_of(kind, float(value)), kind)
            case (("byte" | "short" | "integer" | "long"), int() | str()):
                return Literal(int(value), kind)
            case "", int() | Decimal() | str() if isinstance(kind, DecimalType):
                return Literal(Decimal(value), kind)
    except (ValueError, OverflowError, ArithmeticError) as error:
        raise _bad(f"{value!r} is no {type_name(kind)}: {error}") from error
    raise _bad(f"{type_name(kind)} cannot be compared with {value!r} ({type(value).__name__})")


def _in(operand: tuple[Expression, DataType], values: tuple[Literal, ...], zone: str) -> Expression:
    """Bind IN: drop values that no row can equal, but keep nulls."""
    node, kind = operand
    if not values:
        return Literal(False, BOOLEAN)  # As in Spark, the result is false for null operands too.
    if kind == VOID:
        return In(node, tuple(Literal(None, VOID) for _ in values))
    _require_comparable(kind, kind, node)
    if primitive_name(kind) in INTEGERS and all(
        type(one.value) is int and one.type is None for one in values
    ):  # As below, but faster: there may be very many.
        numbers = [one.value for one in values if -(2**63) <= one.value < 2**63]
        if numbers:
            return In(node, tuple(Literal(number, number_type(number)) for number in numbers))
    others: list[Expression] = []
    if zone and kind == PrimitiveType("timestamp"):
        far = [_zones().is_beyond(one.value, zone) for one in values]  # For Python.
        pairs = list(zip(values, far, strict=True))
        others = [
            Comparison("=", node, _zones().instant_of(v.value, zone)) for v, no in pairs if no
        ]
        values = tuple(value for value, no in pairs if not no)
    constants = [_typed(value, zone) for value in values]
    kinds = [beside for _, other in constants if (beside := beside_text(kind, other)) is not None]
    if kinds and kind == STRING:
        kind = DOUBLE if LONG in kinds and DOUBLE in kinds else kinds[0]
        node = _cast((node, STRING), kind, False, zone)[0]
    bound = []
    for typed, _ in constants:
        if typed.value is None:
            bound.append(Literal(None, kind))
            continue
        comparison = _with_constant("=", node, kind, typed.value, zone)
        if isinstance(comparison, Comparison) and isinstance(comparison.right, Literal):
            bound.append(comparison.right)
    if others:
        return any_of((*others, *([In(node, tuple(bound))] if bound else ())))
    if not bound:  # No value can be equal: the result is false, or null if the operand is null.
        return Comparison("<>", node, node)
    return In(node, tuple(bound))


def _arithmetic(
    node: Arithmetic, left: tuple[Expression, DataType], right: tuple[Expression, DataType]
) -> tuple[Expression, DataType]:
    (a, have), (b, other) = left, right
    if have == PrimitiveType("date") and primitive_name(other) in INTEGERS and node.op in "+-":
        return Call("date_add" if node.op == "+" else "date_sub", (a, b), have), have
    for side, kind in (left, right):
        if not is_number(kind) and kind != VOID:
            raise _bad(f"{node.op} needs numbers, not {type_name(kind)}", _label(side))
    kind = arithmetic_type(node.op, have, other)
    if isinstance(kind, DecimalType):
        a, have = _as_decimal(node.left, a, have)
        b, other = _as_decimal(node.right, b, other)
        kind = arithmetic_type(node.op, have, other)
    return Arithmetic(node.op, a, b, kind, node.tried), kind


def _as_decimal(given: Expression, node: Expression, kind: DataType) -> tuple[Expression, DataType]:
    """Return an operand of decimal arithmetic; a whole constant has only the digits it needs."""
    wanted = as_decimal(kind)
    if wanted is None or wanted == kind:
        return node, kind
    if isinstance(given, Literal) and isinstance(node, Literal) and node.value is not None:
        wanted = DecimalType(len(str(abs(node.value))), 0)
    return _cast((node, kind), wanted, False, "")


def _cast(
    operand: tuple[Expression, DataType], kind: DataType, tried: bool, zone: str
) -> tuple[Expression, DataType]:
    node, have = operand
    if isinstance(node, Literal) and node.value is None:
        return Literal(None, kind), kind
    timed = primitive_name(kind) in TIMESTAMPS.union(NANOS, ("date",))
    if isinstance(node, Literal) and isinstance(node.value, str) and timed and not tried:
        return _time_constant(node, kind, zone), kind
    if not is_castable(have, kind):
        raise _bad(
            f"a cast of {type_name(have)} to {type_name(kind)} is not supported", _label(node)
        )
    found = _cast_node(node, have, kind, tried, zone)
    return _constant(found, kind) if isinstance(node, Literal) else found, kind


def _time_constant(node: Literal, kind: DataType, zone: str) -> Expression:
    """Return a date or timestamp that SQL text names; the usual forms are read without Arrow."""
    try:
        return _coerced(node.value, kind, zone)
    except InvalidInputError as error:
        is_nanos = primitive_name(kind) in NANOS
        found = Literal(None) if is_nanos else _cast_node(node, STRING, kind, True, zone)
        read = _constant(found, kind)
        if isinstance(read, Literal) and read.value is None:
            raise error
        return _cast_node(node, STRING, kind, False, zone)


def _cast_node(
    node: Expression, have: DataType, kind: DataType, tried: bool, zone: str
) -> Expression:
    return _zones().cast_in(node, have, kind, tried, zone) if zone else Cast(node, kind, tried)


def _zones() -> Any:
    from txlog.expressions import zones  # Only zones other than UTC need it.

    return zones
