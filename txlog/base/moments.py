"""Times of any year as text, and durations that callers give.

Python's own types end with the year 9999; tables do not. The calendar is the proleptic Gregorian.
"""

from __future__ import annotations

from txlog.base.errors import InvalidInputError, InvalidTypeError

DAY_US = 86_400_000_000


def days_of(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 of a calendar date."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def date_of(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a number of days since 1970-01-01."""
    era, of_era = divmod(days + 719_468, 146_097)
    years = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * years + years // 4 - years // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + (3 if shifted < 10 else -9)
    return years + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def format_date(days: int) -> str:
    """Return days since the epoch as text such as `2020-01-31`."""
    year, month, day = date_of(days)
    return f"{year:04d}-{month:02d}-{day:02d}"


def format_moment(micros: int, *, digits: int, separator: str = "T", zone: str = "") -> str:
    """Return microseconds since the epoch as text, rounded down to `digits` decimals."""
    days, of_day = divmod(micros, DAY_US)
    seconds, fraction = divmod(of_day, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    decimals = f"{fraction:06d}"[:digits]
    return f"{format_date(days)}{separator}{hour:02d}:{minute:02d}:{second:02d}.{decimals}{zone}"


_FIRST_MS = days_of(1, 1, 1) * 86_400_000


_END_MS = days_of(10_000, 1, 1) * 86_400_000


def moment_text(
    time_ms: int | None, *, separator: str = " ", digits: int = 0, zone: str = ""
) -> str:
    """Return a time as text for readers, in UTC; `unknown` for None.

    If no year of four digits fits, it is the number of milliseconds.
    """
    if time_ms is None:
        return "unknown"
    if not _FIRST_MS <= time_ms < _END_MS:
        return str(time_ms)
    text = format_moment(time_ms * 1000, digits=digits, separator=separator)
    return text.rstrip(".") + zone


LONGEST_MS = 1_000_000_000 * 3_600_000
"""The longest duration, of 100,000 years. With it, all times before and after now fit 64 bits."""


def require_duration(argument: str, value: object, unit: str = "seconds") -> float:
    """Return a duration that a caller gave, a number from 0. Infinity waits for ever.

    Raises
    ------
    InvalidTypeError, InvalidInputError
        It is not a number, not a number at all (NaN), or below 0.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidTypeError(
            argument=argument, reason=f"a number of {unit} was expected, not {value!r}"
        )
    if not value >= 0:
        raise InvalidInputError(
            argument=argument, reason=f"a number from 0 was expected, not {value!r}"
        )
    return value


def duration_ms(argument: str, value: object, unit: str, unit_ms: int) -> int:
    """Return how long a caller wants to keep something, in milliseconds.

    Raises
    ------
    InvalidTypeError, InvalidInputError
        As for `require_duration`, or it is infinite or longer than `LONGEST_MS`.
    """
    given = require_duration(argument, value, unit)
    if given * unit_ms > LONGEST_MS:
        raise InvalidInputError(
            argument=argument,
            reason=f"{given!r} {unit} are more than {LONGEST_MS // unit_ms:,}",
            remedy=f"Pass at most {LONGEST_MS // unit_ms} {unit}. Pin what is to stay for ever",
        )
    return int(given * unit_ms)
