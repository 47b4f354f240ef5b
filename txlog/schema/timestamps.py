"""Dates and timestamps of any year as numbers since the epoch.

Python's own types end with the year 9999; tables do not. The calendar is the proleptic Gregorian.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from txlog.base.moments import days_of, format_moment
from txlog.schema.types import DataType, PrimitiveType

_DATE = r"([+-]?\d{4,6})-(\d{1,2})-(\d{1,2})"
_DATE_TEXT = re.compile(_DATE, re.ASCII)
_MOMENT_TEXT = re.compile(
    _DATE + r"(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:[.,](\d{1,9}))?)?)?"
    r"\s*([zZ]|UTC|GMT|[+-]\d{2}(?::?\d{2}(?::?\d{2})?)?)?",
    re.ASCII,
)
_DAY_OF_TEXT = r"^\s*[+-]?[0-9]+-[0-9]{1,2}-[0-9]{1,2}"
_TIME_OF_TEXT = r"[ T][0-9]{1,2}(?::[0-9]{1,2}(?::[0-9]{1,2}(?:[.,][0-9]*)?)?)?"
OF_A_ZONE = rf"{_DAY_OF_TEXT}(?:{_TIME_OF_TEXT}\s*[A-Za-z+-]|\s*[A-SU-Za-z+-])"
"""What texts of timestamps begin with that name a zone; for Python and for Arrow."""
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def parse_date(text: str) -> int:
    """Return days since the epoch of `2020-01-31`. Raises `ValueError`."""
    found = _DATE_TEXT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a date such as 2020-01-31")
    return _days(text, found)


def parse_moment(text: str, *, digits: int = 6) -> int:
    """Return a timestamp text as microseconds since the epoch; further digits are dropped.

    With `digits=9` the result is in nanoseconds.

    `2020-01-31`, `2020-01-31 10:00:00.5` and ISO 8601 with `T` and a zone are read; without a
    zone, UTC is meant. Raises `ValueError`.
    """
    found = _MOMENT_TEXT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a timestamp such as 2020-01-31 10:00:00")
    hour, minute, second = (int(found[at] or 0) for at in (4, 5, 6))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text!r} has an invalid time of day")
    seconds = (hour * 60 + minute) * 60 + second - _offset_s(found[8])
    seconds += _days(text, found) * 86_400
    units: int = 10**digits
    return seconds * units + int((found[7] or "").ljust(9, "0")[:digits])


def _days(text: str, found: re.Match[str]) -> int:
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _DAYS[month - 1] - (month == 2 and not leap):
        raise ValueError(f"{text!r} is not a day of the calendar")
    return days_of(year, month, day)


def _offset_s(zone: str | None) -> int:
    if zone in (None, "Z", "z", "UTC", "GMT"):
        return 0
    assert zone is not None
    digits = zone[1:].replace(":", "").ljust(6, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:4]) * 60 + int(digits[4:])
    return -seconds if zone[0] == "-" else seconds


def micros_of(time_ms: int | None) -> int | None:
    """Return milliseconds as microseconds; None for None, and if they do not fit into 64 bits."""
    if time_ms is None or not -(1 << 63) <= time_ms * 1000 < 1 << 63:
        return None
    return time_ms * 1000


class Nanos(int):
    """Nanoseconds since the epoch: a constant that Python's `datetime` cannot hold."""


def format_nanos(nanos: int, *, zone: str = "") -> str:
    """Return nanoseconds since the epoch as text, with all nine decimals.

    Without a zone, date and time are separated by a space: the feature's proposal has a `T`, but
    deltalake does not read it there.
    """
    micros, below = divmod(nanos, 1000)
    moment = format_moment(micros, digits=6, separator="T" if zone else " ")
    return f"{moment}{below:03d}{zone}"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment_of(value: Any, *, zoned: bool = True) -> datetime:
    """Return a predicate's constant as microseconds since the epoch, or raise `ValueError`."""
    if isinstance(value, str):
        moment = _EPOCH + timedelta(microseconds=parse_moment(value))
    elif isinstance(value, Nanos):
        moment = _EPOCH + timedelta(microseconds=value // 1000)
    elif isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    elif isinstance(value, date):
        moment = datetime.combine(value, time(), UTC)
    else:
        raise ValueError("a timestamp was expected")
    moment = moment.astimezone(UTC)
    return moment if zoned else moment.replace(tzinfo=None)


def nanos_of(value: Any) -> int:
    """Return a predicate's constant, of any year, as nanoseconds since the epoch."""
    match value:
        case Nanos():
            return value
        case str():
            return parse_moment(value, digits=9)
    of_epoch = moment_of(value) - _EPOCH
    # Timestamps of pandas have more digits than those of Python.
    below: int = getattr(value, "nanosecond", 0)
    return of_epoch // timedelta(microseconds=1) * 1000 + below


def nanos_of_scalar(value: Any) -> tuple[Nanos, DataType] | None:
    """Return a nanosecond scalar of NumPy or Arrow as a constant; None for other scalars."""
    if getattr(getattr(value, "dtype", None), "str", "")[1:] == "M8[ns]" and value == value:
        return Nanos(value.astype("int64")), PrimitiveType("timestamp_nanos_ntz")
    kind: Any = getattr(value, "type", None)
    if getattr(kind, "unit", None) != "ns" or not hasattr(kind, "tz") or value.value is None:
        return None
    return Nanos(value.value), PrimitiveType("timestamp_nanos" + ("" if kind.tz else "_ntz"))
