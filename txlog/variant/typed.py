"""Shredded columns of one type, encoded value by value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from txlog.variant.builder import (
    encode_binary,
    encode_bool,
    encode_date,
    encode_decimal,
    encode_double,
    encode_float,
    encode_int,
    encode_moment,
    encode_text,
    encode_uuid,
)
from txlog.variant.kinds import Kind, MalformedError

_TYPES = pa.types


def encode_typed(array: pa.Array) -> list[bytes | None]:
    """Return each value of a primitive column as a variant, None for null.

    Raises
    ------
    MalformedError
        No variant is shredded as this type.
    """
    plain, encode = _prepared(array)
    return [None if value is None else encode(value) for value in plain]


def _prepared(array: pa.Array) -> tuple[Iterable[Any], Callable[[Any], bytes]]:
    """Return plain values (numbers for dates and times, whose years have no end) and an encoder."""
    kind = array.type
    if _TYPES.is_boolean(kind):
        return array.to_pylist(), encode_bool
    if _TYPES.is_signed_integer(kind):
        return array.to_pylist(), encode_int
    if _TYPES.is_float64(kind):
        return array.to_pylist(), encode_double
    if _TYPES.is_float32(kind):
        return array.to_pylist(), encode_float
    if _TYPES.is_decimal(kind):
        return array.to_pylist(), encode_decimal
    if _TYPES.is_string(kind) or _TYPES.is_large_string(kind) or _TYPES.is_string_view(kind):
        return array.to_pylist(), encode_text
    if _TYPES.is_binary(kind) or _TYPES.is_large_binary(kind) or _TYPES.is_binary_view(kind):
        return array.to_pylist(), encode_binary
    if _TYPES.is_fixed_size_binary(kind) and kind.byte_width == 16:
        return array.to_pylist(), encode_uuid
    if _TYPES.is_date(kind):
        return array.cast(pa.date32()).cast(pa.int32()).to_pylist(), encode_date
    if _TYPES.is_time(kind):
        return array.cast(pa.time64("us")).cast(pa.int64()).to_pylist(), _moments(Kind.TIME)
    if _TYPES.is_timestamp(kind):
        zoned = kind.tz is not None
        if kind.unit == "ns":
            moment = Kind.TIMESTAMP_NS if zoned else Kind.TIMESTAMP_NTZ_NS
        else:
            array = array.cast(pa.timestamp("us", kind.tz))
            moment = Kind.TIMESTAMP if zoned else Kind.TIMESTAMP_NTZ
        return array.cast(pa.int64()).to_pylist(), _moments(moment)
    if _TYPES.is_null(kind):
        return array.to_pylist(), encode_bool  # None of them is anything.
    raise MalformedError(f"no variant is shredded as {kind}")


def _moments(kind: Kind) -> Callable[[int], bytes]:
    return lambda ticks: encode_moment(kind, ticks)
