"""SQL functions of dates and timestamps, in UTC."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.base.columns import nulled
from txlog.base.errors import InvalidInputError
from txlog.base.moments import DAY_US
from txlog.expressions.casts import cast_value
from txlog.expressions.signatures import (
    DATE,
    INTEGER,
    TIMESTAMP,
    Args,
    Function,
    Typed,
    refuse,
    same,
    text,
)
from txlog.expressions.tree import Cast, Literal
from txlog.expressions.type_rules import DOUBLE, LONG
from txlog.expressions.values import (
    Compute,
    numbers,
    of_numbers,
    one_array,
    over_arrays,
    over_numbers,
)
from txlog.schema.types import STRING, DataType

_UNITS = {
    "YEAR": "year", "YYYY": "year", "YY": "year", "QUARTER": "quarter", "MONTH": "month",
    "MM": "month", "MON": "month", "WEEK": "week", "DAY": "day", "DD": "day", "HOUR": "hour",
    "MINUTE": "minute", "SECOND": "second", "MILLISECOND": "millisecond",
    "MICROSECOND": "microsecond",
}  # fmt: skip
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September",
           "October", "November", "December")  # fmt: skip
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

# Days and months -------------------------------------------------------------------------------


def _as_date(value: Any) -> Any:
    return value if pa.types.is_date(value.type) else value.cast(pa.date32(), safe=False)


def _of_dates(function: Callable[..., Any], *, masked: str | None = None) -> Compute:
    """Return a function of days since the epoch that also accepts timestamps."""
    over_days = over_numbers(function, masked=masked)

    def compute(*values: Any) -> Any:
        *given, kind = values
        return over_days(
            *(
                _as_date(value)
                if pa.types.is_temporal(getattr(value, "type", pa.null()))
                else value
                for value in given
            ),
            kind,
        )

    return compute


def _months(days: Any) -> Any:
    """Return months since the epoch."""
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _first_day(months: Any) -> Any:
    """Return the first day of months, in days since the epoch."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _add_months(days: Any, count: Any, _kind: Any = None) -> Any:
    months = _months(days)
    of_month = days - _first_day(months)
    later = months + np.clip(count, -_INT, _INT)
    first, following = _first_day(later), _first_day(later + 1)
    return _in_range(np.minimum(first + of_month, following - 1), _INT, _is_int(count))


def _plus_months(value: Any, count: Any, kind: pa.DataType) -> Any:
    if pa.types.is_date(kind):
        return _add_months(value, count)
    days = value // DAY_US
    moved = _add_months(days, count)
    limit = (1 << 63) // DAY_US - 1
    inside = np.ma.getdata((moved >= -limit) & (moved <= limit))
    whole = np.where(inside, np.ma.getdata(moved), 0) * DAY_US + (value - days * DAY_US)
    return np.ma.array(whole, mask=np.ma.getmaskarray(moved) | ~inside)


def _months_between(last: Any, first: Any, *more: Any) -> Any:
    days, months, of_month, of_day, ends = [], [], [], [], []
    for micros in (last, first):
        days.append(micros // DAY_US)
        months.append(_months(days[-1]))
        of_month.append(days[-1] - _first_day(months[-1]))
        of_day.append((micros - days[-1] * DAY_US) // 1_000_000)
        ends.append(_first_day(months[-1] + 1) - 1 == days[-1])
    whole = (months[0] - months[1]).astype(np.float64)
    seconds = (of_month[0] - of_month[1]) * 86_400 + of_day[0] - of_day[1]
    parts = whole + seconds / 2_678_400.0
    if len(more) < 2 or more[0]:
        parts = np.floor(parts * 1e8 + 0.5) / 1e8
    return np.where((of_month[0] == of_month[1]) | (ends[0] & ends[1]), whole, parts)


def _as_micros(value: Any) -> Any:
    return value.cast(pa.timestamp("us")) if pa.types.is_date(value.type) else value


def _next_day(days: Any, name: str, _kind: Any) -> Any:
    known = [day.upper() for day in _WEEKDAYS]
    found = [n for n, day in enumerate(known) if name.upper() in (day, day[:3], day[:2])]
    if not found:
        raise refuse("next_day", f"does not know the day of the week {name!r}")
    weekday = (days + 3) % 7  # 1970-01-01 was a Thursday.
    return days + 1 + (found[0] - weekday - 1) % 7


@over_arrays
def _make_date(*values: Any) -> Any:
    *given, kind = values
    absent = reduce(pc.or_, map(pc.is_null, given))
    parts = (numbers(pc.coalesce(value, arrow_scalar(1, value.type))) for value in given)
    return of_numbers(_days_of(*parts), kind, numpy_array(absent))


_LAST_YEAR = 5_000_000  # Dates of later years need more than 32 bits.


def _days_of(years: Any, months: Any, days: Any) -> Any:
    """Return dates as days since the epoch; raise if one is not in the calendar."""
    fits = (abs(years) < _LAST_YEAR) & (months >= 1) & (months <= 12)
    month = np.where(fits, (years - 1970) * 12 + months - 1, 0)
    first, last = _first_day(month), _first_day(month + 1)
    if not np.all(fits & (days >= 1) & (days <= last - first)):
        raise InvalidInputError(
            argument="where", reason="a value cannot be computed: there is no such date"
        )
    return first + days - 1


_ERA_DAYS = 146_097  # The days of 400 years, after which the calendar repeats, and the weekdays.
_ERA_YEARS = 400
_NEAR = 3_000_000  # Arrow's calendar has all days up to so many from the epoch.


def _in_era(value: Any) -> tuple[Any, Any]:
    """Return dates or timestamps in years that Arrow knows, and by how many eras they were moved.

    None for the latter if all are near enough.
    """
    value = one_array(value)
    moments = numbers(value)
    era = _ERA_DAYS if pa.types.is_date(value.type) else _ERA_DAYS * DAY_US
    near = _NEAR if pa.types.is_date(value.type) else _NEAR * DAY_US
    if not np.any((moments > near) | (moments < -near)):
        return value, None
    eras = moments // era
    return of_numbers(moments - eras * era, value.type, numpy_array(pc.is_null(value))), eras


def _truncated(name: str, value: Any, unit: str, kind: pa.DataType) -> Any:
    known = _UNITS.get(unit.upper())
    if known is None or (name == "trunc" and known not in ("year", "quarter", "month", "week")):
        raise refuse(name, f"does not know the unit {unit!r}")
    if not pa.types.is_date(kind):
        value = cast_value(value, kind)
    scalar = isinstance(value, pa.Scalar)
    value, eras = _in_era(value)
    found = pc.floor_temporal(value, unit=known).cast(kind)
    if eras is not None:
        era = _ERA_DAYS if pa.types.is_date(kind) else _ERA_DAYS * DAY_US
        moved = _summed(numbers(found), eras * era)
        found = of_numbers(np.ma.getdata(moved), kind, numpy_array(pc.is_null(found)))
    return found[0] if scalar else found


def _part(name: str, **options: Any) -> Compute:
    """Return a function of Arrow that is looked up when it is called: the import is slow."""

    def compute(value: Any, kind: pa.DataType) -> Any:
        scalar = isinstance(value, pa.Scalar)
        value, eras = _in_era(value)
        found = getattr(pc, name)(value, **options)
        if eras is not None and name == "year":
            found = pc.add(found, arrow_array(eras * _ERA_YEARS))
        found = found.cast(kind)
        return found[0] if scalar else found

    return compute


# Patterns --------------------------------------------------------------------------------------

_PATTERN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z'])")
_DIGITS = {
    "yyyy": r"(?P<y>\d{4})", "MM": r"(?P<M>\d{2})", "M": r"(?P<M>\d{1,2})",
    "dd": r"(?P<d>\d{2})", "d": r"(?P<d>\d{1,2})", "HH": r"(?P<H>\d{2})",
    "H": r"(?P<H>\d{1,2})", "mm": r"(?P<m>\d{2})", "ss": r"(?P<s>\d{2})",
    "SSS": r"(?P<S>\d{3})", "SSSSSS": r"(?P<S>\d{6})",
}  # fmt: skip


def _pieces(name: str, pattern: str) -> list[tuple[str, str]]:
    """Split a pattern of Java's `DateTimeFormatter` into its fields and literal texts."""
    pieces, place = [], 0
    while place < len(pattern):
        found = _PATTERN.match(pattern, place)
        if found is None or (found[3] and found[3] in "[]{}#"):
            raise refuse(name, f"does not support the pattern {pattern!r}")
        place = found.end()
        if found[2]:
            pieces.append((found[0], ""))
        else:
            plain = found[3] if found[1] is None else (found[1].replace("''", "'") or "'")
            pieces.append(("", plain))
    return pieces


def _parsed(name: str, value: Any, pattern: str) -> tuple[Any, Any]:
    """Return days and microseconds of the day; all strings must match the pattern exactly."""
    regex, fields = "", []
    pieces = _pieces(name, pattern)
    for place, (field, plain) in enumerate(pieces):
        if field and (field not in _DIGITS or field[0] in fields):
            raise refuse(name, f"does not support {field} in the pattern {pattern!r}")
        beside = len(field) == 1 and place + 1 < len(pieces) and pieces[place + 1][0]
        if beside:
            raise refuse(name, f"needs a separator after {field} in the pattern {pattern!r}")
        regex += _DIGITS[field] if field else re.escape(plain)
        fields.append(field[:1])
    if "y" not in fields or ("d" in fields and "M" not in fields):
        raise refuse(name, f"needs year, month and day in the pattern {pattern!r}")
    found = pc.extract_regex(value, f"^(?:{regex})\\z")
    if pc.any(pc.and_(pc.is_valid(value), pc.is_null(found))).as_py():
        odd = value.filter(pc.and_(pc.is_valid(value), pc.is_null(found)))[0].as_py()
        raise InvalidInputError(
            argument="where",
            reason=f"a value cannot be computed: {odd!r} does not match the pattern {pattern!r}",
        )

    def number(field: str, absent: int) -> Any:
        if field not in fields:
            return np.full(len(value), absent, np.int64)
        texts = pc.fill_null(pc.struct_field(found, field), str(absent))
        return numpy_array(texts.cast(pa.int64()))

    days = _days_of(number("y", 1970), number("M", 1), number("d", 1))
    hour, minute, second = number("H", 0), number("m", 0), number("s", 0)
    if np.any((hour > 23) | (minute > 59) | (second > 59)):
        raise InvalidInputError(
            argument="where", reason="a value cannot be computed: there is no such time of day"
        )
    fraction = number("S", 0) * (1000 if any(field == "SSS" for field, _ in pieces) else 1)
    return days, ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction


@over_arrays
def _to_time(name: str, value: pa.Array, pattern: str, kind: pa.DataType) -> Any:
    value = text(value)
    days, micros = _parsed(name, value, pattern)
    absent = pc.is_null(value)
    whole = days if pa.types.is_date(kind) else days * DAY_US + micros
    return of_numbers(whole, kind, numpy_array(absent))


def _read_as(name: str) -> Compute:
    """Return `to_date` or `to_timestamp`: a cast, or parsing with a pattern."""

    def compute(value: Any, *more: Any) -> Any:
        *pattern, kind = more
        if pattern and pa.types.is_temporal(value.type):
            pattern = []
        if pattern:
            return _to_time(name, value, pattern[0], kind)
        if pa.types.is_string(value.type):
            return pc.utf8_trim_whitespace(value).cast(kind)
        return value.cast(kind, safe=False)

    return compute


_FORMATS: dict[str, tuple[str, int]] = {
    "yyyy": ("year", 4), "yy": ("year", 2), "MM": ("month", 2), "M": ("month", 1),
    "dd": ("day", 2), "d": ("day", 1), "HH": ("hour", 2), "H": ("hour", 1), "mm": ("minute", 2),
    "ss": ("second", 2), "SSS": ("fraction", 3), "SSSSSS": ("fraction", 6),
    "MMM": ("month", 0), "MMMM": ("month", 0), "E": ("weekday", 0), "EEE": ("weekday", 0),
    "EEEE": ("weekday", 0),
}  # fmt: skip


@over_arrays
def _date_format(value: pa.Array, pattern: str, kind: pa.DataType) -> Any:
    micros = one_array(_as_micros(value)).cast(pa.timestamp("us")).cast(pa.int64())
    count = numpy_array(pc.fill_null(micros, 0))
    days = count // DAY_US
    months = _months(days)
    of_day = count - days * DAY_US
    years = months // 12 + 1970
    if np.any(years < 1):
        raise InvalidInputError(
            argument="where", reason="a value cannot be computed: date_format of a year before 1"
        )
    numbers = {
        "year": years, "month": months % 12 + 1, "day": days - _first_day(months) + 1,
        "hour": of_day // 3_600_000_000, "minute": of_day // 60_000_000 % 60,
        "second": of_day // 1_000_000 % 60, "fraction": of_day % 1_000_000,
        "weekday": (days + 3) % 7,
    }  # fmt: skip
    parts: list[Any] = []
    for field, plain in _pieces("date_format", pattern):
        if not field:
            parts.append(plain)
            continue
        if field not in _FORMATS:
            raise refuse("date_format", f"does not support {field} in the pattern {pattern!r}")
        part, width = _FORMATS[field]
        found = numbers[part]
        if width == 0:
            names = _WEEKDAYS if part == "weekday" else _MONTHS
            short = [name if len(field) == 4 else name[:3] for name in names]
            parts.append(arrow_array(short).take(arrow_array(found - (part == "month"))))
            continue
        if part == "fraction":
            found = found // 10 ** (6 - width)
        elif field == "yy":
            found = found % 100
        digits = arrow_array(found).cast(pa.string())
        padded = pc.utf8_lpad(digits, width=width, padding="0")
        if field == "yyyy":
            late = arrow_array(years > 9999, pa.bool_())
            signed = pc.binary_join_element_wise("+", padded, "")
            padded = pc.if_else(late, signed, padded)
        parts.append(padded)
    joined = pc.binary_join_element_wise(*parts, "") if parts else pa.repeat("", len(value))
    return nulled(joined, pc.is_null(value)).cast(kind)


# The table -------------------------------------------------------------------------------------


def _of_day(name: str, **options: Any) -> Function:
    return Function(INTEGER, ("day",), _part(name, **options))


def _of_time(name: str) -> Function:
    return Function(INTEGER, ("timestamp",), _part(name))


def _epoch(step: int) -> Function:
    """Return a function to the whole units of time since the epoch."""
    return Function(LONG, ("timestamp",), over_numbers(lambda value, _: value // step))


def _unix_timestamp(value: Any, _kind: Any) -> Any:
    """Return seconds since the epoch; fractions are cut towards zero, as in Spark."""
    return np.sign(value) * (np.abs(value) // 1_000_000)


def _moment(step: int) -> Function:
    """Return a function from units of time since the epoch to timestamps."""
    return Function(TIMESTAMP, ("whole",), over_numbers(lambda value, _: _times(value, step)))


def _times(value: Any, step: int) -> Any:
    limit = (2**63 - 1) // step
    if np.any((value > limit) | (value < -limit)):
        raise InvalidInputError(
            argument="where", reason="a value cannot be computed: a timestamp is out of range"
        )
    return value * step


_INT = 1 << 31  # Days and months are numbers of 32 bits.
_BEYOND = "a date or timestamp is out of range"


def _in_range(values: Any, limit: int, *fits: Any) -> Any:
    """Return numbers, masked where one is beyond the range of its type."""
    bad = (values < -limit) | (values >= limit)
    for one in fits:
        bad = bad | ~one
    return np.ma.array(values, mask=bad)


def _is_int(count: Any) -> Any:
    return (count >= -_INT) & (count < _INT)


def _timed(_name: str, args: Sequence[Typed]) -> DataType:
    return TIMESTAMP if args[0][1] == DATE else args[0][1]


def _plus(sign: int) -> Function:
    def compute(days: Any, count: Any, _kind: Any) -> Any:
        return _in_range(days + sign * np.clip(count, -_INT, _INT), _INT, _is_int(count))

    return Function(DATE, ("day", "whole"), _of_dates(compute, masked="so many days make no date"))


def _summed(value: Any, more: Any) -> Any:
    """Return sums of 64 bits, masked where they overflow."""
    with np.errstate(over="ignore"):
        found = value + more
    return np.ma.array(found, mask=((value ^ found) & (more ^ found)) < 0)


def _plus_micros(value: Any, micros: Any, kind: pa.DataType) -> Any:
    return over_numbers(lambda first, more, _: _summed(first, more), masked=_BEYOND)(
        _as_micros(value), micros, kind
    )


def _plus_days(value: Any, days: Any, kind: pa.DataType) -> Any:
    if pa.types.is_date(kind):
        return _in_range(value + np.clip(days, -_INT, _INT), _INT, _is_int(days))
    most = (1 << 63) // DAY_US
    moved = _summed(value, np.clip(days, -most, most) * DAY_US)
    return np.ma.array(np.ma.getdata(moved), mask=np.ma.getmaskarray(moved) | (abs(days) > most))


def _from_unixtime(value: Any, *more: Any) -> Any:
    pattern = more[0] if len(more) > 1 else "yyyy-MM-dd HH:mm:ss"
    moment = over_numbers(lambda seconds, _: _times(seconds, 1_000_000))(
        value, pa.timestamp("us", "UTC")
    )
    return _date_format(moment, pattern, more[-1])


def _interval_text(unit: str) -> Callable[[Args, Sequence[str]], str]:
    def text(args: Args, texts: Sequence[str]) -> str:
        count = args[1]
        if not isinstance(count, Literal):
            raise InvalidInputError(
                argument="where",
                reason=f"+ INTERVAL needs a constant number, not {type(count).__name__}",
                remedy="Pass a constant",
            )
        return f"({texts[0]} + INTERVAL '{count.value}' {unit})"

    return text


_DAY = "day"

DATES: dict[str, Function] = {
    "year": _of_day("year"),
    "month": _of_day("month"),
    "day": replace(_of_day("day"), aliases=("dayofmonth",)),
    "quarter": _of_day("quarter"),
    "dayofweek": _of_day("day_of_week", count_from_zero=False, week_start=7),
    "weekday": _of_day("day_of_week"),
    "dayofyear": _of_day("day_of_year"),
    "weekofyear": _of_day("iso_week"),
    "hour": _of_time("hour"),
    "minute": _of_time("minute"),
    "second": _of_time("second"),
    "date_add": replace(_plus(1), aliases=("dateadd",)),
    "date_sub": _plus(-1),
    "datediff": Function(
        INTEGER,
        (_DAY, _DAY),
        _of_dates(lambda a, b, _: _in_range(a - b, _INT), masked="so many days are no INT"),
        aliases=("date_diff",),
    ),
    "add_months": Function(DATE, (_DAY, "whole"), _of_dates(_add_months, masked=_BEYOND)),
    "months_between": Function(
        DOUBLE,
        (_DAY, _DAY, "boolean!"),
        lambda a, b, *more: over_numbers(_months_between)(_as_micros(a), _as_micros(b), *more),
        least=2,
    ),
    "last_day": Function(
        DATE, (_DAY,), _of_dates(lambda days, _: _first_day(_months(days) + 1) - 1)
    ),
    "next_day": Function(DATE, (_DAY, "string!"), _of_dates(_next_day)),
    "trunc": Function(DATE, ("date", "string!"), lambda *v: _truncated("trunc", *v)),
    "date_trunc": Function(
        TIMESTAMP,
        ("string!", _DAY),
        lambda unit, value, kind: _truncated("date_trunc", value, unit, kind),
    ),
    "make_date": Function(DATE, ("whole", "whole", "whole"), _make_date),
    "to_date": Function(
        DATE,
        ("string|day", "string!"),
        _read_as("to_date"),
        least=1,
        rewrite=lambda args: Cast(args[0], DATE) if len(args) == 1 else None,
    ),
    "to_timestamp": Function(
        TIMESTAMP,
        ("string|day", "string!"),
        _read_as("to_timestamp"),
        least=1,
        rewrite=lambda args: Cast(args[0], TIMESTAMP) if len(args) == 1 else None,
    ),
    "date_format": Function(STRING, (_DAY, "string!"), _date_format),
    "from_unixtime": Function(STRING, ("whole", "string!"), _from_unixtime, least=1),
    "unix_timestamp": Function(
        LONG,
        ("timestamp",),
        over_numbers(_unix_timestamp),
        aliases=("to_unix_timestamp",),
    ),
    "unix_seconds": _epoch(1_000_000),
    "unix_millis": _epoch(1_000),
    "unix_micros": _epoch(1),
    "unix_date": Function(INTEGER, ("date",), over_numbers(lambda days, _: days)),
    "date_from_unix_date": Function(
        DATE, ("whole",), over_numbers(lambda days, _: _in_range(days, _INT), masked=_BEYOND)
    ),
    "timestamp_seconds": _moment(1_000_000),
    "timestamp_millis": _moment(1_000),
    "timestamp_micros": _moment(1),
    # The functions for `+ INTERVAL`.
    "plus_months": Function(
        same,
        (_DAY, "whole"),
        over_numbers(_plus_months, masked=_BEYOND),
        hidden=True,
        text=_interval_text("MONTH"),
    ),
    "plus_days": Function(
        same,
        (_DAY, "whole"),
        over_numbers(_plus_days, masked=_BEYOND),
        hidden=True,
        text=_interval_text("DAY"),
    ),
    "plus_micros": Function(
        _timed, (_DAY, "whole"), _plus_micros, hidden=True, text=_interval_text("MICROSECOND")
    ),
}
