"""Time zones other than UTC, in which a predicate may be. Pure.

All expressions compute in UTC. A predicate in another zone is bound so that whatever depends on the
zone is a call of one of two functions with the zone's name: `convert_timezone`, between timestamps
without a zone, and `timestamp_in_zone`, which reads text. So bounds, other engines and executors
need to know nothing of zones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.base.moments import DAY_US
from txlog.expressions.casts import cast_value, fixed_offset
from txlog.expressions.signatures import DATE, TIMESTAMP, Args, Bind, Function, Typed, refuse
from txlog.expressions.tree import Call, Cast, Expression, Literal
from txlog.expressions.type_rules import BOOLEAN, common_type
from txlog.expressions.values import over_numbers
from txlog.schema.timestamps import OF_A_ZONE, moment_of
from txlog.schema.types import (
    STRING,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructType,
)

NTZ = PrimitiveType("timestamp_ntz")
_TIMES = (DATE, NTZ, TIMESTAMP)
_UTC = frozenset(
    {
        *("UTC", "GMT", "UT", "UCT", "Z", "Zulu", "Universal", "Greenwich", "GMT0"),
        *(
            "Etc/GMT0",
            "Etc/GMT+0",
            "Etc/GMT-0",
            "Etc/UTC",
            "Etc/GMT",
            "Etc/UCT",
            "Etc/Zulu",
            "Etc/Universal",
            "Etc/Greenwich",
        ),
    }
)

_SHORT = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "ART": "Africa/Cairo",
    "AGT": "America/Argentina/Buenos_Aires",
    "AST": "America/Anchorage",
    "BST": "Asia/Dhaka",
    "BET": "America/Sao_Paulo",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "PRT": "America/Puerto_Rico",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
    "EST": "-05:00:00",
    "MST": "-07:00:00",
    "HST": "-10:00:00",
}
"""What Java means by short names, which a session of Spark may have."""


@lru_cache(maxsize=64)
def known_zone(zone: str) -> str:
    """Return a time zone in one form: a region, an offset as `+05:30:00`, or "" for UTC.

    Raises
    ------
    InvalidInputError
        There is no such zone.
    InvalidTypeError
        It is no text.
    """
    if not isinstance(zone, str):
        raise InvalidTypeError(
            argument="time_zone", reason=f"text was expected, not {type(zone).__name__}"
        )
    zone = zone if zone in _UTC else _SHORT.get(zone, zone)
    offset = fixed_offset(zone)
    if offset is not None:
        minutes, seconds = divmod(abs(offset), 60)
        text = f"{'-' if offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"
        return text if offset else ""
    if zone in _UTC:
        return ""
    try:
        if not zone:
            raise ValueError
        _offsets(np.zeros(1, np.int64), zone)
    except (pa.ArrowException, ValueError) as error:
        raise InvalidInputError(
            argument="time_zone",
            reason=f"{zone!r} is no time zone",
            remedy="Use a name such as America/New_York, or an offset such as +05:30",
        ) from error
    return zone


# Values ------------------------------------------------------------------------------------------

_ERA_US = 146_097 * DAY_US  # 400 years, after which the calendar repeats, and the rules of zones.
_FIRST = -170 * 366 * DAY_US  # Before 1800 no zone had a rule.
_LAST = 67 * 365 * DAY_US  # Until 2037 a zone's file lists the changes, and Arrow knows no others.
_BUCKET_US = 900_000_000  # Clocks change at quarters of an hour.


def _offsets(micros: Any, zone: str) -> Any:
    """Return by how many microseconds local times are ahead of UTC at instants."""
    if zone[0] in "+-":
        hours, minutes, seconds = map(int, zone[1:].split(":"))
        size = (hours * 3600 + minutes * 60 + seconds) * 1_000_000
        return np.full(len(micros), -size if zone[0] == "-" else size, np.int64)
    near = np.clip(micros, _FIRST, _LAST)
    moments = arrow_array(near, pa.int64()).cast(pa.timestamp("us", zone))
    local: Any = numpy_array(pc.local_timestamp(moments).cast(pa.int64()))
    found = local - near
    late = micros > _LAST
    if late.any():
        buckets, places = np.unique(
            (_LAST + (micros[late] - _LAST) % _ERA_US) // _BUCKET_US, return_inverse=True
        )
        found[late] = np.array([_late_offset(int(one), zone) for one in buckets])[places]
    return found


def _late_offset(bucket: int, zone: str) -> int:
    from zoneinfo import ZoneInfo

    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=bucket * _BUCKET_US)
    offset = moment.astimezone(ZoneInfo(zone)).utcoffset()
    assert offset is not None
    return offset // timedelta(microseconds=1)


def _local(micros: Any, zone: str) -> Any:
    """Return the local times of instants, in microseconds."""
    return micros if not zone else micros + _offsets(micros, zone)


def _instant(micros: Any, zone: str) -> Any:
    """Return the instants of local times, in microseconds.

    As in Java, a time that a clock shows twice is the first one, and a time that it skips is later
    by what it skips: both times, the offset before the change of the clock counts.
    """
    if not zone:
        return micros
    limit = (1 << 63) - 1 - 2 * DAY_US
    near = np.clip(micros, -limit, limit)
    before, after = (_offsets(near + by, zone) for by in (-DAY_US, DAY_US))
    is_after = (_offsets(near - before, zone) != before) & (_offsets(near - after, zone) == after)
    return micros - np.where(is_after, after, before)


def _converted(source: str, target: str, value: Any, kind: pa.DataType) -> Any:
    source, target = known_zone(source), known_zone(target)
    return over_numbers(lambda micros, _: _local(_instant(micros, source), target))(value, kind)


def _read(value: Any, zone: str, tried: bool, kind: pa.DataType) -> Any:
    """Return timestamps from text; a text without a zone is a local time."""
    utc = cast_value(value, kind, tried)
    named = pc.match_substring_regex(value, pattern=OF_A_ZONE)
    return pc.if_else(named, utc, _instants(utc, zone, kind))


def _instants(value: Any, zone: str, kind: pa.DataType) -> Any:
    return over_numbers(lambda micros, _: _instant(micros, known_zone(zone)))(value, kind)


ZONES: dict[str, Function] = {
    "convert_timezone": Function(NTZ, ("string!", "string!", "timestamp_ntz"), _converted),
    "timestamp_in_zone": Function(TIMESTAMP, ("string", "string!", "boolean!"), _read),
}


# Binding -----------------------------------------------------------------------------------------

_OF_LOCAL_TIMES = frozenset(
    {
        *("year", "month", "day", "quarter", "dayofweek", "weekday", "dayofyear", "weekofyear"),
        *("hour", "minute", "second", "date_add", "date_sub", "datediff", "add_months"),
        *("months_between", "last_day", "next_day", "date_trunc", "to_date", "to_timestamp"),
        *("date_format", "plus_months", "plus_days", "concat", "concat_ws"),
    }
)
"""The functions whose results depend on the local time that a timestamp is."""


def _text(value: str) -> Literal:
    return Literal(value, STRING)


def local_time(node: Expression, zone: str) -> Expression:
    """Return the local time of a bound timestamp, as a timestamp without a zone."""
    return Call("convert_timezone", (_text("UTC"), _text(zone), Cast(node, NTZ)), NTZ)


def instant(node: Expression, zone: str) -> Expression:
    """Return the timestamp of a bound local time."""
    return Cast(Call("convert_timezone", (_text(zone), _text("UTC"), node), NTZ), TIMESTAMP)


def cast_in(node: Expression, have: DataType, kind: DataType, tried: bool, zone: str) -> Expression:
    """Return a bound cast in a zone."""
    if have == TIMESTAMP and kind in (DATE, NTZ, STRING):
        found = local_time(node, zone)
        return found if kind == NTZ else Cast(found, kind, tried)
    if kind == TIMESTAMP and have in (DATE, NTZ):
        return instant(node if have == NTZ else Cast(node, NTZ), zone)
    if kind == TIMESTAMP and have == STRING:
        args = (node, _text(zone), Literal(tried, BOOLEAN))
        return Call("timestamp_in_zone", args, TIMESTAMP)
    if any(name.startswith("timestamp_nanos") for name in _names(have) | _names(kind)):
        raise InvalidInputError(
            argument="where",
            reason=f"timestamps in nanoseconds are not cast in the time zone {zone}",
            remedy="Use the time zone UTC",
        )
    return Cast(node, kind, tried)


def same_times(typed: Sequence[Typed], zone: str) -> list[Typed]:
    """Return values of which none is a time of another type than the others.

    Raises
    ------
    InvalidInputError
        Times of several types are within arrays, maps or structs.
    """
    found = set().union(*(_names(kind) & _NAMES for _, kind in typed)) if typed else set()
    if len(found) < 2:
        return list(typed)
    times = [kind for _, kind in typed if kind in _TIMES]
    kind = common_type(times)
    if kind is None or any(_names(one) & _NAMES and one not in _TIMES for _, one in typed):
        raise InvalidInputError(
            argument="where",
            reason="dates and timestamps in nested values are compared in UTC alone, not in the "
            f"time zone {zone}",
            remedy="Cast them to one type",
        )
    return [
        (cast_in(node, have, kind, False, zone), kind) if have in _TIMES and have != kind
        else (node, have)
        for node, have in typed
    ]  # fmt: skip


_NAMES = frozenset(("date", "timestamp_ntz", "timestamp"))


def _names(kind: DataType) -> frozenset[str]:
    """Return the names of the primitive types in a type."""
    match kind:
        case PrimitiveType(name):
            return frozenset((name,))
        case ArrayType(element):
            return _names(element)
        case MapType(key, value):
            return _names(key) | _names(value)
        case StructType(fields):
            return frozenset().union(*(_names(field.type) for field in fields))
    return frozenset()


_OF_ONE_TYPE = frozenset(
    {
        *("greatest", "least", "array", "array_contains", "array_position", "array_remove"),
        *("arrays_overlap", "array_union", "array_except", "array_intersect", "sequence"),
    }
)
"""The functions whose arguments get a common type."""


def _with_same_times(name: str, typed: Sequence[Typed], zone: str) -> list[Typed]:
    """Return arguments so that a function compares and unites times of one type alone."""
    if name in _OF_ONE_TYPE:
        return same_times(typed, zone)
    if name == "map":
        found = list(typed)
        found[::2], found[1::2] = same_times(typed[::2], zone), same_times(typed[1::2], zone)
        return found
    if len(typed) > 1 and isinstance(typed[0][1], MapType):  # A key, as in `m[key]`.
        wanted, (node, have) = typed[0][1].key, typed[1]
        if wanted in _TIMES and have in _TIMES and have != wanted:
            return [typed[0], (cast_in(node, have, wanted, False, zone), wanted), *typed[2:]]
    return list(typed)


def bound_alike(args: Args, bound: Bind, zone: str) -> Bind:
    """Return a function that binds arguments which get a common type."""
    typed = same_times([bound(arg) for arg in args], zone)
    known = {id(arg): one for arg, one in zip(args, typed, strict=True)}
    return lambda arg: known[id(arg)]


def call_in(name: str, typed: Sequence[Typed], kind_of: Any, zone: str) -> Typed:
    """Return a bound call in a zone, and its type.

    Parameters
    ----------
    kind_of
        Returns the type of the call for its bound arguments.
    """
    if name == "from_unixtime":
        kind = kind_of(name, typed)
        moment = Call("timestamp_seconds", (typed[0][0],), TIMESTAMP)
        pattern = typed[1][0] if len(typed) > 1 else _text("yyyy-MM-dd HH:mm:ss")
        return Call("date_format", (local_time(moment, zone), pattern), STRING), kind
    if name == "plus_micros" and typed[0][1] == DATE:
        typed = [(cast_in(typed[0][0], DATE, TIMESTAMP, False, zone), TIMESTAMP), *typed[1:]]
    if name not in _OF_LOCAL_TIMES:
        typed = _with_same_times(name, typed, zone)
        kind = kind_of(name, typed)
        return Call(name, tuple(node for node, _ in typed), kind), kind
    wanted = kind_of(name, typed)
    given = [
        (local_time(node, zone), NTZ) if have == TIMESTAMP else (node, have) for node, have in typed
    ]
    if any("timestamp" in _names(have) for _, have in given):
        raise refuse(name, f"takes no timestamps in arrays in the time zone {zone}")
    kind = kind_of(name, given)
    found: Expression = Call(name, tuple(node for node, _ in given), kind)
    if wanted == TIMESTAMP:
        found = instant(found if kind == NTZ else Cast(found, NTZ), zone)
    return found, wanted


def moment_in(value: Any, zone: str, *, zoned: bool) -> datetime:
    """Return a constant as a timestamp; without a zone of its own, it is a local time.

    Raises
    ------
    ValueError
        It is none.
    """
    is_local = isinstance(value, date) and getattr(value, "tzinfo", None) is None
    if isinstance(value, str):
        is_local = re.match(OF_A_ZONE, value) is None
    if not zone or is_local != zoned:
        if zone and not is_local and not zoned and not isinstance(value, str):
            return _moved(moment_of(value), zone, _local).replace(tzinfo=None)
        return moment_of(value, zoned=zoned)
    return _moved(moment_of(value), zone, _instant) if zoned else moment_of(value, zoned=False)


def is_beyond(value: Any, zone: str) -> bool:
    """Return whether a constant is a timestamp that Python's `datetime` cannot hold."""
    try:
        moment_in(value, zone, zoned=True)
    except OverflowError:
        return True
    except ValueError:
        pass
    return False


def instant_of(value: Any, zone: str) -> Expression:
    """Return the timestamp of a constant that is a local time, not yet computed."""
    return instant(Literal(moment_of(value, zoned=False), NTZ), zone)


def _moved(moment: datetime, zone: str, by: Any) -> datetime:
    epoch, unit = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
    micros = np.array([(moment - epoch) // unit], np.int64)
    return epoch + int(by(micros, zone)[0]) * unit
