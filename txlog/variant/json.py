"""A variant as JSON text, in the form of Spark's `to_json`."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from math import isfinite, isnan

from txlog.base.moments import DAY_US, date_of
from txlog.variant.encoding import Form, Kind

_ESCAPED = re.compile(r'[\x00-\x1f"\\]')
_ESCAPES = {
    **{chr(code): f"\\u{code:04X}" for code in range(32)},
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
    '"': '\\"',
    "\\": "\\\\",
}


def _array(items: list[str]) -> str:
    return f"[{','.join(items)}]"


def _object(fields: dict[str, str]) -> str:
    return "{" + ",".join([f"{quoted(name)}:{text}" for name, text in fields.items()]) + "}"


def quoted(text: str) -> str:
    """Return a string as a quoted JSON string."""
    return f'"{_ESCAPED.sub(lambda found: _ESCAPES[found[0]], text)}"'


def decimal_text(unscaled: int, scale: int) -> str:
    """Return a decimal without exponent and without trailing zeros."""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :].rstrip("0")
    return ("-" if unscaled < 0 else "") + (f"{whole}.{fraction}" if fraction else whole)


def double_text(value: float) -> str:
    """Return a finite double in the fewest digits that identify it, as in Java 19 and later."""
    shortest = Decimal(repr(value))
    if len(shortest.as_tuple().digits) == 1:
        # Java always prints at least two digits, and chooses the second one for accuracy.
        longer = f"{value:.1e}"
        shortest = Decimal(longer) if float(longer) == value else shortest
    return _java(shortest)


def float_text(value: float) -> str:
    """Return a finite float in the fewest digits that identify it, as in Java 19 and later."""
    if value == 0:
        return _java(Decimal(repr(value)))
    exact = Decimal(value)
    data = struct.pack("<f", value)
    for digits in range(2, 10):
        near = [
            Context(prec=digits, rounding=rounding).plus(exact)
            for rounding in (ROUND_FLOOR, ROUND_CEILING)
        ]
        near = [number for number in near if _same_float(number, data)]
        if near:
            return _java(min(near, key=lambda number: abs(number - exact)))
    raise AssertionError("nine digits identify every float")


def uuid_text(data: bytes) -> str:
    """Return the text of a UUID, given as 16 bytes."""
    text = data.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def date_text(days: int) -> str:
    """Return days since the epoch as text such as `2020-01-31`; years beyond 9999 have a sign."""
    year, month, day = date_of(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def _moment_text(nanos: int) -> str:
    days, of_day = divmod(nanos, DAY_US * 1000)
    return f"{date_text(days)} {_clock_text(of_day)}"


def _clock_text(nanos: int) -> str:
    seconds, fraction = divmod(nanos, 1_000_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    decimals = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{hour:02d}:{minute:02d}:{second:02d}{decimals}"


def _number(value: float, text: Callable[[float], str]) -> str:
    if isfinite(value):
        return text(value)
    return '"NaN"' if isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _same_float(number: Decimal, data: bytes) -> bool:
    try:
        return struct.pack("<f", float(number)) == data
    except OverflowError:
        return False


def _java(number: Decimal) -> str:
    """Return a number as Java prints floating point: plain from 0.001 to 10 million."""
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0")
    if not text:
        return "-0.0" if sign else "0.0"
    power = len(digits) + exponent - 1  # The power of ten of the first digit.
    if 0 <= power < 7:
        plain = f"{text[: power + 1]:0<{power + 1}}.{text[power + 1 :] or '0'}"
    elif -3 <= power < 0:
        plain = f"0.{'0' * (-power - 1)}{text}"
    else:
        plain = f"{text[0]}.{text[1:] or '0'}E{power}"
    return ("-" if sign else "") + plain


_INTEGERS = (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64)
_DECIMALS = (Kind.DECIMAL4, Kind.DECIMAL8, Kind.DECIMAL16)

JSON: Form[str] = Form(
    scalars={
        **dict.fromkeys(_INTEGERS, str),
        **dict.fromkeys(_DECIMALS, lambda number: decimal_text(*number)),
        Kind.NULL: lambda _: "null",
        Kind.TRUE: lambda _: "true",
        Kind.FALSE: lambda _: "false",
        Kind.DOUBLE: lambda value: _number(value, double_text),
        Kind.FLOAT: lambda value: _number(value, float_text),
        Kind.STRING: quoted,
        Kind.BINARY: lambda data: f'"{base64.b64encode(data).decode()}"',
        Kind.UUID: lambda data: f'"{uuid_text(data)}"',
        Kind.DATE: lambda days: f'"{date_text(days)}"',
        Kind.TIME: lambda micros: f'"{_clock_text(micros * 1000)}"',
        Kind.TIMESTAMP: lambda micros: f'"{_moment_text(micros * 1000)}+00:00"',
        Kind.TIMESTAMP_NTZ: lambda micros: f'"{_moment_text(micros * 1000)}"',
        Kind.TIMESTAMP_NS: lambda nanos: f'"{_moment_text(nanos)}+00:00"',
        Kind.TIMESTAMP_NTZ_NS: lambda nanos: f'"{_moment_text(nanos)}"',
    },
    array=_array,
    object=_object,
)
