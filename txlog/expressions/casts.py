"""Casts as in Spark: which texts are numbers, dates and times, and what texts become of them.

A value that cannot be cast is an error for CAST, and null for try_cast. Zones are UTC. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.base.columns import nearest_floats, nulled
from txlog.base.errors import InvalidInputError
from txlog.base.moments import DAY_US, days_of, format_date, format_moment
from txlog.expressions.values import numbers, of_numbers, over_arrays

Read = Callable[[str], Any]
"""Return the value of a text without spaces around it; None if it is none."""

_BLANKS = "".join(map(chr, range(33)))  # The characters that Spark trims.
_WIDEST = 76  # The digits of Arrow's widest decimals.
_MICRO = Decimal("0.000001")


@over_arrays
def cast_value(value: pa.Array, kind: pa.DataType, tried: bool = False) -> pa.Array:
    """Return values as another type, as Spark does with ANSI rules.

    Parameters
    ----------
    tried
        A value that cannot be cast becomes null. Otherwise it is an error.

    Raises
    ------
    InvalidInputError
        A value cannot be cast, and `tried` is false.
    """
    if value.type == kind:
        return value
    if pa.types.is_null(value.type):
        return pa.nulls(len(value), kind)
    found = _FUNCTIONS[_group(value.type), _group(kind)](value, kind)
    if not tried and found.null_count > value.null_count:
        lost = pc.and_(pc.is_valid(value), pc.is_null(found))
        if pa.types.is_floating(value.type) and pa.types.is_decimal(kind):
            lost = pc.and_(lost, pc.is_finite(value))  # Others are null as decimals.
        odd = value.filter(lost)
        if not len(odd):
            return found
        shown = cast_value(odd[:1], pa.string())[0].as_py()
        raise InvalidInputError(
            argument="where",
            reason=f"a value cannot be computed: the {value.type} {shown!r} cannot be cast to "
            f"{kind}",
            remedy="Use try_cast, which makes null of such values",
        )
    return found


def _group(kind: pa.DataType) -> str:
    types = pa.types
    tests = (
        ("whole", types.is_integer),
        ("float", types.is_floating),
        ("decimal", types.is_decimal),
        ("boolean", types.is_boolean),
        ("date", types.is_date),
        ("timestamp", types.is_timestamp),
    )
    for name, test in tests:
        if test(kind):
            return name
    return "text" if types.is_string(kind) or types.is_large_string(kind) else "binary"


def _where(fits: Any, value: pa.Array) -> pa.Array:
    """Return values, with null where they do not fit."""
    if pc.all(fits).as_py() is not False:
        return value
    return nulled(value, pc.invert(fits))


# Numbers ---------------------------------------------------------------------------------------


def _to_whole(value: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast numbers to whole numbers, without their fractions; null where one is out of range."""
    limit = 1 << (kind.bit_width - 1)
    if pa.types.is_integer(value.type):
        if value.type.bit_width <= kind.bit_width:
            return value.cast(kind)
        wide = value.cast(pa.int64())
        fits = pc.and_(pc.greater_equal(wide, -limit), pc.less_equal(wide, limit - 1))
        return _where(fits, value).cast(kind)
    if pa.types.is_floating(value.type):
        whole = pc.trunc(value).cast(pa.float64())
        greatest = float(limit)
        # As in Java, the double 2^63 is the greatest long.
        above = pc.equal(whole, greatest) if kind == pa.int64() else None
        fits = pc.and_(pc.greater_equal(whole, -greatest), pc.less(whole, greatest))
        found = _where(fits, whole).cast(kind)
        return found if above is None else pc.if_else(above, limit - 1, found).cast(kind)
    whole = pc.trunc(value.cast(pa.decimal256(_WIDEST, value.type.scale)))
    whole = whole.cast(pa.decimal256(_WIDEST, 0))
    ends = (Decimal(-limit), Decimal(limit - 1))
    least, greatest = (arrow_scalar(one, pa.decimal256(_WIDEST, 0)) for one in ends)
    fits = pc.and_(pc.greater_equal(whole, least), pc.less_equal(whole, greatest))
    return _where(fits, whole).cast(kind)


def _to_float(value: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(value.type):
        return nearest_floats(value, kind)
    return value.cast(kind, safe=False)


def _to_decimal(value: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    """Cast exact numbers to decimals, rounded half up; null where there are too many digits."""
    if pa.types.is_integer(value.type):
        value = value.cast(pa.int64()).cast(pa.decimal128(19, 0))
    old, new = value.type, kind
    if new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale:
        return value.cast(kind)
    value = value.cast(pa.decimal256(_WIDEST, old.scale))
    if old.scale > new.scale:
        value = pc.round(value, ndigits=new.scale, round_mode="half_towards_infinity")
    end = arrow_scalar(Decimal(10) ** (new.precision - new.scale), pa.decimal256(39, 0))
    return _where(pc.less(pc.abs(value), end.cast(value.type)), value).cast(kind)


def _float_to_decimal(value: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    """Cast the decimal text of floats: 1.005 rounds to 1.01. Infinities and NaN become null."""
    step = Decimal(1).scaleb(-kind.scale)

    def read(number: float) -> Decimal | None:
        return _rounded(Decimal(repr(number)), step, kind) if math.isfinite(number) else None

    return _each(value.cast(pa.float64()), kind, read)


def _rounded(number: Decimal, step: Decimal, kind: pa.Decimal128Type) -> Decimal | None:
    if number and number.adjusted() >= kind.precision - kind.scale + 1:
        return None
    with localcontext() as context:
        context.prec = 1200
        found = number.quantize(step, rounding=ROUND_HALF_UP)
    return found if not found or found.adjusted() < kind.precision - kind.scale else None


def _each(value: pa.Array, kind: pa.DataType, read: Callable[[Any], Any]) -> pa.Array:
    """Return the results of a function of Python values, called once for each distinct value."""
    encoded = value.dictionary_encode()
    items = [None if item is None else read(item) for item in encoded.dictionary.to_pylist()]
    return arrow_array(items, kind).take(encoded.indices)


def _not_zero(value: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(value.type):
        return pc.not_equal(value, arrow_scalar(Decimal(0), value.type))
    return value.cast(kind)


def _truth(value: pa.Array, kind: pa.DataType) -> pa.Array:
    value = value.cast(pa.int8())
    return _to_decimal(value, kind) if pa.types.is_decimal(kind) else value.cast(kind)


# Times -----------------------------------------------------------------------------------------


def _micros(value: pa.Array) -> Any:
    """Return timestamps as microseconds, rounded down; 0 for null."""
    if value.type.unit == "ns":
        value = pc.floor_temporal(value, unit="microsecond")
    return numbers(value)


def _timed(micros: Any, kind: pa.DataType, absent: Any) -> pa.Array:
    found = of_numbers(micros, pa.timestamp("us", kind.tz), absent)
    return found if kind.unit == "us" else found.cast(kind)


def _between_times(value: pa.Array, kind: pa.DataType) -> pa.Array:
    if value.type.unit == "ns" != kind.unit:
        value = pc.floor_temporal(value, unit="microsecond")
    return value.cast(kind)


def _time_to_date(value: pa.Array, kind: pa.DataType) -> pa.Array:
    return of_numbers(_micros(value) // DAY_US, kind, numpy_array(pc.is_null(value)))


def _date_to_time(value: pa.Array, kind: pa.DataType) -> pa.Array:
    days = numbers(value)
    absent = numpy_array(pc.is_null(value)) | (np.abs(days) > (1 << 63) // DAY_US - 1)
    return _timed(np.where(absent, 0, days) * DAY_US, kind, absent)


def _seconds(value: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return whole numbers of seconds as timestamps; the range of microseconds ends them."""
    limit = ((1 << 63) - 1) // 1_000_000
    given = numbers(value)
    micros = np.clip(given, -limit, limit) * 1_000_000
    micros = np.where(given > limit, (1 << 63) - 1, np.where(given < -limit, -(1 << 63), micros))
    return _timed(micros, kind, numpy_array(pc.is_null(value)))


def _float_seconds(value: pa.Array, kind: pa.DataType) -> pa.Array:
    micros = pc.multiply(value.cast(pa.float64()), 1e6)
    whole = _to_whole(micros, pa.int64())
    return _timed(numbers(whole), kind, numpy_array(pc.is_null(whole)))


def _decimal_seconds(value: pa.Array, kind: pa.DataType) -> pa.Array:
    wide = value.cast(pa.decimal256(60, value.type.scale))
    micros = pc.multiply(wide, arrow_scalar(Decimal(10**6), pa.decimal256(7, 0)))
    whole = _to_whole(micros, pa.int64())
    return _timed(numbers(whole), kind, numpy_array(pc.is_null(whole)))


def _epoch_seconds(value: pa.Array, kind: pa.DataType) -> pa.Array:
    micros, absent = _micros(value), numpy_array(pc.is_null(value))
    if pa.types.is_integer(kind):
        return _to_whole(arrow_array(micros // 1_000_000, pa.int64(), mask=absent), kind)
    if pa.types.is_decimal(kind):
        whole = arrow_array(micros, pa.int64(), mask=absent).cast(pa.decimal128(19, 0))
        return _to_decimal(pc.multiply(whole, arrow_scalar(_MICRO, pa.decimal128(6, 6))), kind)
    return arrow_array(micros / 1e6, pa.float64(), mask=absent).cast(kind, safe=False)


# To text ---------------------------------------------------------------------------------------


def _plain_text(value: pa.Array, kind: pa.DataType) -> pa.Array:
    return value.cast(kind)


def _float_text(value: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the shortest text of floats in Java's form: `1.0`, `0.001`, `1.0E7`."""
    size = pc.abs(value)
    zero = pc.equal(value, arrow_scalar(0.0, value.type))
    least, end = (arrow_scalar(one, value.type) for one in (1e-3, 1e7))
    plain = pc.or_(zero, pc.and_(pc.greater_equal(size, least), pc.less(size, end)))
    plain = pc.fill_null(plain, True)
    texts = value.cast(pa.string())
    texts = pc.if_else(
        pc.match_substring(texts, pattern="."),
        texts,
        pc.binary_join_element_wise(texts, ".0", ""),
    )
    if pc.all(plain).as_py():
        return texts.cast(kind)
    single = value.type == pa.float32()
    others = value.filter(pc.invert(plain))
    found = _each(others, pa.string(), lambda one: _java_text(one, single))
    return pc.replace_with_mask(texts, pc.invert(plain), found).cast(kind)


def _java_text(number: float, single: bool) -> str:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    nearest = np.float32 if single else float

    def digits_of(text: str) -> tuple[str, int]:
        mantissa, _, exponent = text.lower().partition("e")
        return mantissa.replace(".", ""), int(exponent)

    shortest = np.format_float_scientific(nearest(abs(number)), unique=True, trim="-")
    digits, exponent = digits_of(shortest)
    if len(digits) == 1:  # Java writes two digits at least, and the nearest ones.
        two = f"{abs(number):.1e}"
        if nearest(two) == nearest(abs(number)):
            digits, exponent = digits_of(two)
    sign = "-" if number < 0 else ""
    if -3 <= exponent < 7:
        shown = Decimal(f"{digits}e{exponent - len(digits) + 1}")
        plain = f"{shown:f}"
        return sign + (plain if "." in plain else f"{plain}.0")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _decimal_text(value: pa.Array, kind: pa.DataType) -> pa.Array:
    texts = value.cast(pa.string())
    if value.type.scale <= 6:  # Arrow writes others with an exponent if they are small.
        return texts.cast(kind)
    short = pc.fill_null(pc.match_substring(texts, pattern="E"), False)
    if not pc.any(short).as_py():
        return texts.cast(kind)
    found = _each(texts.filter(short), pa.string(), lambda one: f"{Decimal(one):f}")
    return pc.replace_with_mask(texts, short, found).cast(kind)


_YEARS = (days_of(1, 1, 1), days_of(10_000, 1, 1))  # Arrow writes these years as Spark does.


def _date_text(value: pa.Array, kind: pa.DataType) -> pa.Array:
    days = numbers(value)
    usual = (days >= _YEARS[0]) & (days < _YEARS[1])
    if usual.all():
        return value.cast(kind)
    written = [
        None if absent else _signed(format_date(day))
        for day, absent in zip(days.tolist(), numpy_array(pc.is_null(value)).tolist(), strict=True)
    ]
    return arrow_array(written, kind)


def _signed(text: str) -> str:
    """Return a date or time whose year beyond 9999 has a sign, and four digits at least."""
    if text.startswith("-"):
        year, _, rest = text[1:].partition("-")
        return f"-{year.zfill(4)}-{rest}"
    return f"+{text}" if text.index("-") > 4 else text


_ZEROS = r"\.0*$|(\.\d*[1-9])0+$"


def _time_text(value: pa.Array, kind: pa.DataType) -> pa.Array:
    micros = _micros(value)
    usual = (micros >= _YEARS[0] * DAY_US) & (micros < _YEARS[1] * DAY_US)
    absent = numpy_array(pc.is_null(value))
    if (usual | absent).all():
        texts = of_numbers(micros, pa.timestamp("us"), absent).cast(pa.string())
    else:
        written = [
            None if null else _signed(format_moment(one, digits=6, separator=" "))
            for one, null in zip(micros.tolist(), absent.tolist(), strict=True)
        ]
        texts = arrow_array(written, pa.string())
    return pc.replace_substring_regex(texts, pattern=_ZEROS, replacement=r"\1").cast(kind)


# From text -------------------------------------------------------------------------------------

_FLOAT_TEXT = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?$"
_HEX_FLOAT = re.compile(r"[+-]?0[xX][0-9a-fA-F.]+[pP][+-]?\d+[dDfF]?", re.ASCII)
_SPECIAL = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
_EXACT_TEXT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?")  # Digits of any script.
_TRUTHS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}


def _trimmed(value: pa.Array) -> pa.Array:
    return pc.utf8_trim(value.cast(pa.string()), characters=_BLANKS)


def _read(
    value: pa.Array,
    kind: pa.DataType,
    usual: str,
    cast: Callable[[pa.Array], pa.Array],
    read: Read,
) -> pa.Array:
    """Return the values of texts: those of the usual form by Arrow, others one by one."""
    texts = _trimmed(value)
    plain = pc.fill_null(pc.match_substring_regex(texts, pattern=usual), True)
    if pc.all(plain).as_py():
        return cast(texts)
    others = pc.invert(plain)
    found = cast(nulled(texts, others))
    return pc.replace_with_mask(found, others, _each(texts.filter(others), kind, read))


def _text_to_whole(value: pa.Array, kind: pa.DataType) -> pa.Array:
    def cast(texts: pa.Array) -> pa.Array:
        return _to_whole(pc.utf8_ltrim(texts, characters="+").cast(pa.int64()), kind)

    def read(one: str) -> int | None:
        if re.fullmatch(r"[+-]?\d+", one, re.ASCII) is None:
            return None
        limit = 1 << (kind.bit_width - 1)
        number = int(one) if len(one) < 4000 else limit
        return number if -limit <= number < limit else None

    return _read(value, kind, r"^[+-]?[0-9]{1,18}$", cast, read)


def _text_to_float(value: pa.Array, kind: pa.DataType) -> pa.Array:
    def cast(texts: pa.Array) -> pa.Array:
        plain = pc.utf8_rtrim(pc.utf8_ltrim(texts, characters="+"), characters="dDfF")
        return plain.cast(kind)

    def read(one: str) -> float | None:
        if _HEX_FLOAT.fullmatch(one) is not None:
            _refuse(f"a cast does not read hexadecimal numbers, as in {one!r}")
        number = _SPECIAL.get(one.lstrip("+-").lower())
        if number is None or len(one) - len(one.lstrip("+-")) > 1:
            return None
        if math.isnan(number):
            return number if one[0] not in "+-" else None
        return -number if one[0] == "-" else number

    return _read(value, kind, _FLOAT_TEXT, cast, read)


def _text_to_decimal(value: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    wide, step = pa.decimal256(_WIDEST, 38), Decimal(1).scaleb(-kind.scale)

    def read(one: str) -> Decimal | None:
        known = _EXACT_TEXT.fullmatch(one) is not None
        return _rounded(Decimal(one), step, kind) if known else None

    def cast(texts: pa.Array) -> pa.Array:
        return _to_decimal(texts.cast(wide), kind)

    return _read(value, kind, r"^[+-]?[0-9]{1,37}(?:\.[0-9]{1,38})?$", cast, read)


def _text_to_boolean(value: pa.Array, kind: pa.DataType) -> pa.Array:
    return _each(_trimmed(value), kind, lambda one: _TRUTHS.get(one.lower()))


_YEAR = r"(?P<year>[+-]?\d{4,%d})"
_DATE_TEXT = re.compile(
    _YEAR % 7 + r"(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL
)
_TIME_TEXT = re.compile(
    _YEAR % 6 + r"(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})(?:[ T](?P<hour>\d{1,2})"
    r"(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?(?P<zone>\D.*)?)?)?"
    r")?)?)?",
    re.ASCII | re.DOTALL,
)
_TIME_ALONE = re.compile(r"T?\d{1,2}(:\d{1,2}(:\d{1,2}(\.\d*)?(\D.*)?)?)?", re.ASCII | re.DOTALL)
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::(\d{1,2})(?::(\d{2}))?|(\d{2})(\d{2})?)?", re.ASCII
)
_USUAL_DATE = r"(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
_USUAL_TIME = (
    _USUAL_DATE + r"(?:[ T](?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{1,2})"
    r"(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]{0,9}))?Z?)?)?)?"
)
_MONTH_DAYS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def _days(year: int, month: int, day: int) -> int | None:
    """Return a date as days since the epoch; None if it is not in the calendar."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _MONTH_DAYS[month - 1] + (month == 2 and leap):
        return None
    return days_of(year, month, day)


def _parts(texts: pa.Array, pattern: str) -> tuple[Callable[[str, int], Any], Any]:
    """Return a function to the numbers of a pattern's groups, and where texts are null."""
    found = pc.extract_regex(texts, f"^{pattern}$")
    absent = numpy_array(pc.is_null(found))

    def number(name: str, default: int) -> Any:
        part = pc.fill_null(pc.struct_field(found, name), "")
        part = pc.if_else(pc.equal(part, ""), str(default), part)
        return numpy_array(part.cast(pa.int64()))

    return number, absent


def _days_of_parts(number: Callable[[str, int], Any]) -> tuple[Any, Any]:
    """Return dates as days since the epoch, and which are in the calendar."""
    year, month, day = number("year", 1970), number("month", 1), number("day", 1)
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    known = (month >= 1) & (month <= 12)
    last = _MONTH_DAYS[np.where(known, month, 1) - 1] + ((month == 2) & leap)
    known &= (day >= 1) & (day <= last)
    months = ((year - 1970) * 12 + np.where(known, month, 1) - 1).astype("datetime64[M]")
    return months.astype("datetime64[D]").astype(np.int64) + day - 1, known


def _text_to_date(value: pa.Array, kind: pa.DataType) -> pa.Array:
    def cast(texts: pa.Array) -> pa.Array:
        number, absent = _parts(texts, _USUAL_DATE)
        days, known = _days_of_parts(number)
        return of_numbers(days, kind, absent | ~known)

    def read(one: str) -> int | None:
        found = _DATE_TEXT.fullmatch(one)
        return None if found is None else _days_in(found)

    return _read_as_number(value, kind, f"^{_USUAL_DATE}$", cast, read)


def _days_in(found: re.Match[str]) -> int | None:
    return _days(int(found["year"]), int(found["month"] or 1), int(found["day"] or 1))


def _text_to_time(value: pa.Array, kind: pa.DataType) -> pa.Array:
    local = kind.tz is None

    def cast(texts: pa.Array) -> pa.Array:
        number, absent = _parts(texts, _USUAL_TIME)
        days, known = _days_of_parts(number)
        hour, minute, second = (number(name, 0) for name in ("hour", "minute", "second"))
        known &= (hour <= 23) & (minute <= 59) & (second <= 59)
        found = pc.struct_field(pc.extract_regex(texts, f"^{_USUAL_TIME}$"), "fraction")
        digits = pc.utf8_slice_codeunits(pc.fill_null(found, ""), start=0, stop=6)
        fraction = numpy_array(pc.utf8_rpad(digits, width=6, padding="0").cast(pa.int64()))
        micros = ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction
        return _timed(days * DAY_US + micros, kind, absent | ~known)

    def read(one: str) -> int | None:
        return _read_time(one, local)

    return _read_as_number(value, kind, f"^{_USUAL_TIME}$", cast, read)


def _read_as_number(
    value: pa.Array, kind: pa.DataType, usual: str, cast: Callable[[pa.Array], pa.Array], read: Read
) -> pa.Array:
    """Do as `_read`, if `read` returns days or microseconds since the epoch."""
    texts = _trimmed(value)
    plain = pc.fill_null(pc.match_substring_regex(texts, pattern=usual), True)
    others = pc.invert(plain)
    found = cast(nulled(texts, others))
    if pc.all(plain).as_py():
        return found
    whole = pa.int32() if pa.types.is_date(kind) else pa.int64()
    more = _each(texts.filter(others), whole, read)
    if not pa.types.is_date(kind):
        more = _timed(numbers(more), kind, numpy_array(pc.is_null(more)))
    return pc.replace_with_mask(found, others, more.cast(kind))


def _read_time(one: str, local: bool) -> int | None:
    """Return a timestamp as microseconds since the epoch; None if the text is none."""
    found = _TIME_TEXT.fullmatch(one)
    if found is None:
        if (
            not local
            and one
            and _TIME_ALONE.fullmatch(one)
            and ":" in one + one[:1].replace("T", ":")
        ):
            _refuse(f"a time without a date, as in {one!r}, depends on the day of the cast")
        return None
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    days = _days_in(found)
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    fraction = int((found["fraction"] or "").ljust(6, "0")[:6])
    micros = days * DAY_US + ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction
    if found["zone"] is None:
        return micros
    offset = _offset(found["zone"].strip(_BLANKS), micros)
    if offset is None:
        return None
    return micros if local else micros - offset * 1_000_000


def _offset(zone: str, micros: int) -> int | None:
    """Return the seconds that a zone is ahead of UTC at a local time; None if there is none."""
    if zone in ("Z", "UTC", "GMT", "UT"):
        return 0
    if _OFFSET.fullmatch(zone) is not None:
        return fixed_offset(zone)
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9~/._+-]+", zone) is None:
        return None
    from datetime import datetime, timedelta
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        region = ZoneInfo(zone)
        moment = datetime(1970, 1, 1) + timedelta(microseconds=micros)
    except (ZoneInfoNotFoundError, ValueError, OverflowError, OSError):
        return None
    offset = moment.replace(tzinfo=region).utcoffset()
    return None if offset is None else int(offset.total_seconds())


def fixed_offset(zone: str) -> int | None:
    """Return the seconds of an offset such as `+05:30`, `-8` or `UTC+1`; None if it is none."""
    found = _OFFSET.fullmatch(zone)
    if found is None:
        return None
    hours, minutes, seconds = int(found[2]), found[3] or found[5], found[4] or found[6]
    total = hours * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    fits = int(minutes or 0) < 60 and int(seconds or 0) < 60 and total <= 18 * 3600
    return (-total if found[1] == "-" else total) if fits else None


def _refuse(reason: str) -> NoReturn:
    raise InvalidInputError(argument="where", reason=f"a value cannot be computed: {reason}")


Cast = Callable[[pa.Array, Any], pa.Array]

_FUNCTIONS: dict[tuple[str, str], Cast] = {
    **{(old, "whole"): _to_whole for old in ("whole", "float", "decimal")},
    **{(old, "float"): _to_float for old in ("whole", "float", "decimal")},
    **{(old, "decimal"): _to_decimal for old in ("whole", "decimal")},
    ("float", "decimal"): _float_to_decimal,
    **{(old, "boolean"): _not_zero for old in ("whole", "float", "decimal")},
    **{("boolean", new): _truth for new in ("whole", "float", "decimal")},
    ("timestamp", "timestamp"): _between_times,
    ("timestamp", "date"): _time_to_date,
    ("date", "timestamp"): _date_to_time,
    ("whole", "timestamp"): _seconds,
    ("float", "timestamp"): _float_seconds,
    ("decimal", "timestamp"): _decimal_seconds,
    **{("timestamp", new): _epoch_seconds for new in ("whole", "float", "decimal")},
    **{(old, "text"): _plain_text for old in ("whole", "boolean", "text", "binary")},
    ("float", "text"): _float_text,
    ("decimal", "text"): _decimal_text,
    ("date", "text"): _date_text,
    ("timestamp", "text"): _time_text,
    ("text", "whole"): _text_to_whole,
    ("text", "float"): _text_to_float,
    ("text", "decimal"): _text_to_decimal,
    ("text", "boolean"): _text_to_boolean,
    ("text", "date"): _text_to_date,
    ("text", "timestamp"): _text_to_time,
    **{(old, "binary"): _plain_text for old in ("text", "binary")},
}
"""The casts by the groups of both types. They return null for a value that cannot be cast."""
