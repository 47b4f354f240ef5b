"""SQL functions: what each takes and returns, and how it is computed over Arrow columns.

Each means what Spark's function of the name means; a property test holds them to Spark's answers.
What Spark would compute otherwise is refused. Timestamps are taken in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa

from txlog.arrow import arrow_array, arrow_scalar, pc
from txlog.errors import InvalidInputError
from txlog.expressions.tree import Expression, Literal
from txlog.expressions.types import (
    BOOLEAN,
    DOUBLE,
    FLOATS,
    INTEGERS,
    LONG,
    TIMESTAMPS,
    VOID,
    common_type,
    primitive_name,
)
from txlog.schema.types import STRING, ArrayType, DataType, MapType, PrimitiveType, type_name

DATE = PrimitiveType("date")
_DAYS = ("date", "timestamp", "timestamp_ntz")

Typed = tuple[Expression, DataType]
Compute = Callable[..., Any]


@dataclass(frozen=True)
class Function:
    """One function: `result` refuses arguments that it does not take, or returns its type."""

    least: int
    most: int | None  # Of arguments; None: any number.
    result: Callable[[str, Sequence[Typed]], DataType]
    compute: Compute  # Of the values of the arguments, and the Arrow type of the result.


def _refuse(name: str, reason: str) -> InvalidInputError:
    return InvalidInputError(argument="where", reason=f"{name} {reason}")


def _takes(*names: str, gives: DataType | None = None) -> Callable[..., DataType]:
    """Return the rule of a function whose first argument is of one of some types."""

    def result(name: str, args: Sequence[Typed]) -> DataType:
        kind = args[0][1]
        if kind != VOID and primitive_name(kind) not in names:
            raise _refuse(name, f"takes {' or '.join(names)}, not {type_name(kind)}")
        return kind if gives is None else gives

    return result


def _with_constants(
    rule: Callable[..., DataType], *kinds: type[Any]
) -> Callable[[str, Sequence[Typed]], DataType]:
    """Return a rule by which the arguments after the first are constants of some types."""

    def result(name: str, args: Sequence[Typed]) -> DataType:
        for (node, _), kind in zip(args[1:], kinds, strict=False):
            if not isinstance(node, Literal) or type(node.value) is not kind:
                raise _refuse(name, f"needs constants of type {kind.__name__} after the first")
        return rule(name, args)

    return result


def _common(name: str, args: Sequence[Typed]) -> DataType:
    kind = common_type([kind for _, kind in args])
    if kind is None:
        raise _refuse(name, f"needs values of one type, not {_names(args)}")
    return kind


def _names(args: Sequence[Typed]) -> str:
    return ", ".join(type_name(kind) for _, kind in args)


def _whole_numbers(name: str, args: Sequence[Typed]) -> DataType:
    for _, kind in args:
        if kind != VOID and primitive_name(kind) not in INTEGERS:
            raise _refuse(name, f"takes whole numbers, not {type_name(kind)}")
    return LONG


def _number(gives: DataType | None = None) -> Callable[..., DataType]:
    return _takes(*INTEGERS, *FLOATS, gives=gives)


def _texts(name: str, args: Sequence[Typed]) -> DataType:
    for _, kind in args:
        if kind not in (STRING, VOID) and primitive_name(kind) not in {*INTEGERS, "date"}:
            raise _refuse(name, f"takes text, whole numbers and dates, not {type_name(kind)}")
    return STRING


def _plus_days(name: str, args: Sequence[Typed]) -> DataType:
    _takes("date")(name, args)
    _whole_numbers(name, args[1:])
    return DATE


def _two_dates(name: str, args: Sequence[Typed]) -> DataType:
    for arg in args:
        _takes("date")(name, [arg])
    return PrimitiveType("integer")


def _array(name: str, args: Sequence[Typed]) -> DataType:
    if not isinstance(args[0][1], ArrayType):
        raise _refuse(name, f"takes an array, not {type_name(args[0][1])}")
    return PrimitiveType("integer")


def _map_value(name: str, args: Sequence[Typed]) -> DataType:
    kind, key = args[0][1], args[1][0]
    if not isinstance(kind, MapType) or kind.key != STRING:
        raise _refuse(name, f"takes a map whose keys are text, not {type_name(kind)}")
    if not isinstance(key, Literal) or not isinstance(key.value, str):
        raise _refuse(name, "needs a constant key")
    return kind.value


# Computing ------------------------------------------------------------------------------------


def _null(value: Any, kind: pa.DataType) -> Any:
    return arrow_scalar(None, kind) if isinstance(value, pa.Scalar) else pa.nulls(len(value), kind)


def cast_number(value: Any, kind: pa.DataType) -> Any:
    """Return values in a wider type; the nearest one of a whole number that has more digits."""
    rounds = pa.types.is_integer(value.type) and pa.types.is_floating(kind)
    return value.cast(kind, safe=not rounds)


def _text(value: Any) -> Any:
    return value if pa.types.is_string(value.type) else value.cast(pa.string())


def _of_distinct(function: Callable[[str], str]) -> Compute:
    """Return a function of text that is computed once for each distinct value."""

    def compute(value: Any, kind: pa.DataType) -> Any:
        if isinstance(value, pa.Scalar):
            text = value.as_py()
            return arrow_scalar(None if text is None else function(text), kind)
        encoded = _text(value).dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.unify_dictionaries().combine_chunks()
        texts = [
            None if text is None else function(text) for text in encoded.dictionary.to_pylist()
        ]
        return arrow_array(texts, kind).take(encoded.indices)

    return compute


def _case(ascii_name: str, function: Callable[[str], str]) -> Compute:
    of_distinct = _of_distinct(function)

    def compute(value: Any, kind: pa.DataType) -> Any:
        value = _text(value)
        plain = pc.string_is_ascii(value)
        if (plain.as_py() is not False) if isinstance(plain, pa.Scalar) else pc.all(plain).as_py():
            return getattr(pc, ascii_name)(value)
        return of_distinct(value, kind)

    return compute


def _substring(value: Any, start: Any, *more: Any) -> Any:
    kind, count = more[-1], more[0].as_py() if len(more) > 1 else None
    first = start.as_py()
    if first < 0:
        return _of_distinct(lambda text: _from_end(text, first, count))(value, kind)
    first = max(0, first - 1)
    stop = None if count is None else first + max(0, count)
    return pc.utf8_slice_codeunits(_text(value), first, stop)


def _from_end(text: str, start: int, count: int | None) -> str:
    """Return what `substring` does for a start that is counted from the end."""
    first = len(text) + start
    stop = len(text) if count is None else first + max(0, count)
    return text[max(0, first) : max(0, stop)]


def _right(value: Any, count: Any, _kind: pa.DataType) -> Any:
    wanted = count.as_py()
    if wanted <= 0:
        return pc.utf8_slice_codeunits(_text(value), 0, 0)
    return pc.utf8_slice_codeunits(_text(value), -wanted, None)


def _concat(*values: Any) -> Any:
    *texts, _ = values
    return pc.binary_join_element_wise(*map(_text, texts), "", null_handling="emit_null")


def _pad(name: str) -> Compute:
    def compute(value: Any, width: Any, *more: Any) -> Any:
        wanted = max(0, width.as_py())
        fill = more[0].as_py() if len(more) > 1 else " "
        if len(fill) != 1:
            raise _refuse(name[-4:], "pads with one character alone")
        padded = getattr(pc, name)(_text(value), width=wanted, padding=fill)
        return pc.utf8_slice_codeunits(padded, 0, wanted)

    return compute


def _abs(value: Any, _kind: pa.DataType) -> Any:
    return pc.abs(value) if pa.types.is_floating(value.type) else pc.abs_checked(value)


def _rounded(name: str) -> Compute:
    def compute(value: Any, kind: pa.DataType) -> Any:
        if pa.types.is_floating(value.type):
            return getattr(pc, name)(value).cast(kind)
        return value.cast(kind)

    return compute


def _extreme(name: str) -> Compute:
    def compute(*values: Any) -> Any:
        *given, kind = values
        cast = [cast_number(value, kind) for value in given]
        found = getattr(pc, name)(*cast, skip_nulls=True)
        if pa.types.is_floating(kind) and name.startswith("max"):
            any_nan = reduce(pc.or_, (pc.fill_null(pc.is_nan(value), False) for value in cast))
            return pc.if_else(any_nan, arrow_scalar(float("nan"), kind), found)
        return found

    return compute


def _div(left: Any, right: Any, kind: pa.DataType) -> Any:
    left, right = left.cast(kind), right.cast(kind)
    zero = pc.equal(right, arrow_scalar(0, kind))
    return pc.divide(left, pc.if_else(zero, arrow_scalar(None, kind), right))


def _part(name: str, **options: Any) -> Compute:
    """Return a function of Arrow, looked up when it is called: importing them takes long."""
    return lambda value, kind: getattr(pc, name)(value, **options).cast(kind)


def _days(value: Any) -> Any:
    return value.cast(pa.int32()).cast(pa.int64())


def _plus(date: Any, days: Any, kind: pa.DataType) -> Any:
    return pc.add(_days(date), days.cast(pa.int64())).cast(pa.int32()).cast(kind)


_UNITS = {
    "YEAR": "year", "YYYY": "year", "YY": "year", "QUARTER": "quarter", "MONTH": "month",
    "MM": "month", "MON": "month", "WEEK": "week", "DAY": "day", "DD": "day", "HOUR": "hour",
    "MINUTE": "minute", "SECOND": "second",
}  # fmt: skip


def _truncated(name: str, value: Any, unit: Any, kind: pa.DataType) -> Any:
    known = _UNITS.get(str(unit.as_py()).upper())
    if known is None or (name == "trunc" and known in ("day", "hour", "minute", "second")):
        raise _refuse(name, f"knows no unit {unit.as_py()!r}")
    return pc.floor_temporal(value, unit=known).cast(kind)


def _last_day(value: Any, kind: pa.DataType) -> Any:
    following = pc.ceil_temporal(value, unit="month", ceil_is_strictly_greater=True)
    return pc.subtract(_days(following.cast(kind)), 1).cast(pa.int32()).cast(kind)


INTEGER = PrimitiveType("integer")
_of_text = _takes("string")
_length = Function(1, 1, _takes("string", gives=INTEGER), _part("utf8_length"))


def _of_day(name: str, **options: Any) -> Function:
    return Function(1, 1, _takes(*_DAYS, gives=INTEGER), _part(name, **options))


def _of_time(name: str) -> Function:
    return Function(1, 1, _takes(*sorted(TIMESTAMPS), gives=INTEGER), _part(name))


FUNCTIONS: dict[str, Function] = {
    "coalesce": Function(
        1, None, _common, lambda *v: pc.coalesce(*(cast_number(value, v[-1]) for value in v[:-1]))
    ),
    "greatest": Function(2, None, _common, _extreme("max_element_wise")),
    "least": Function(2, None, _common, _extreme("min_element_wise")),
    "upper": Function(1, 1, _of_text, _case("ascii_upper", str.upper)),
    "lower": Function(1, 1, _of_text, _case("ascii_lower", str.lower)),
    "length": _length,
    "concat": Function(1, None, _texts, _concat),
    "substring": Function(2, 3, _with_constants(_of_text, int, int), _substring),
    "left": Function(
        2,
        2,
        _with_constants(_of_text, int),
        lambda value, count, _: pc.utf8_slice_codeunits(_text(value), 0, max(0, count.as_py())),
    ),
    "right": Function(2, 2, _with_constants(_of_text, int), _right),
    "trim": Function(1, 1, _of_text, lambda value, _: pc.utf8_trim(_text(value), " ")),
    "ltrim": Function(1, 1, _of_text, lambda value, _: pc.utf8_ltrim(_text(value), " ")),
    "rtrim": Function(1, 1, _of_text, lambda value, _: pc.utf8_rtrim(_text(value), " ")),
    "reverse": Function(1, 1, _of_text, lambda value, _: pc.utf8_reverse(_text(value))),
    "replace": Function(
        3,
        3,
        _with_constants(_of_text, str, str),
        lambda value, old, new, _: (
            pc.replace_substring(_text(value), old.as_py(), new.as_py()) if old.as_py() else value
        ),
    ),
    "repeat": Function(
        2,
        2,
        _with_constants(_of_text, int),
        lambda value, count, _: pc.binary_repeat(_text(value), max(0, count.as_py())),
    ),
    "lpad": Function(2, 3, _with_constants(_of_text, int, str), _pad("utf8_lpad")),
    "rpad": Function(2, 3, _with_constants(_of_text, int, str), _pad("utf8_rpad")),
    "abs": Function(1, 1, _number(), _abs),
    "floor": Function(1, 1, _number(LONG), _rounded("floor")),
    "ceil": Function(1, 1, _number(LONG), _rounded("ceil")),
    "sqrt": Function(
        1,
        1,
        _number(DOUBLE),
        lambda value, kind: pc.sqrt(value.cast(kind, safe=False)),
    ),
    "isnan": Function(
        1,
        1,
        _takes("float", "double", gives=BOOLEAN),
        lambda value, _: pc.fill_null(pc.is_nan(value), False),
    ),
    "div": Function(2, 2, _whole_numbers, _div),
    "year": _of_day("year"),
    "month": _of_day("month"),
    "day": _of_day("day"),
    "quarter": _of_day("quarter"),
    "dayofweek": _of_day("day_of_week", count_from_zero=False, week_start=7),
    "weekday": _of_day("day_of_week"),
    "dayofyear": _of_day("day_of_year"),
    "weekofyear": _of_day("iso_week"),
    "hour": _of_time("hour"),
    "minute": _of_time("minute"),
    "second": _of_time("second"),
    "last_day": Function(1, 1, _takes("date"), _last_day),
    "date_add": Function(2, 2, _plus_days, _plus),
    "datediff": Function(
        2, 2, _two_dates, lambda a, b, kind: pc.subtract(_days(a), _days(b)).cast(kind)
    ),
    "trunc": Function(
        2, 2, _with_constants(_takes("date"), str), lambda *v: _truncated("trunc", *v)
    ),
    "date_trunc": Function(
        2,
        2,
        _with_constants(_takes(*sorted(TIMESTAMPS)), str),
        lambda *v: _truncated("date_trunc", *v),
    ),
    "size": Function(1, 1, _array, _part("list_value_length")),
    "map_value": Function(
        2, 2, _map_value, lambda value, key, _: pc.map_lookup(value, key.as_py(), "first")
    ),
}


def bound_call(name: str, args: Sequence[Typed]) -> DataType:
    """Return the type of a call.

    Raises
    ------
    InvalidInputError
        The arguments are too few or many, or of types that the function does not take.
    """
    function = FUNCTIONS[name]
    most = function.most
    if len(args) < function.least or (most is not None and len(args) > most):
        wanted = f"{function.least}" if most == function.least else f"at least {function.least}"
        raise _refuse(name, f"takes {wanted} arguments, not {len(args)}")
    return function.result(name, args)


def call(name: str, values: Sequence[Any], kind: pa.DataType) -> Any:
    """Return what a function computes of the values of its arguments."""
    if pa.types.is_null(values[0].type) and name not in ("coalesce", "greatest", "least"):
        return _null(values[0], kind)
    return FUNCTIONS[name].compute(*values, kind)
