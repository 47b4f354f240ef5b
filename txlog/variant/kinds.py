"""The kinds of primitive values, and how each is read.

Rules: the Parquet format, "Variant Binary Encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from txlog.schema.moments import DAY_US


class MalformedError(ValueError):
    """The bytes are no variant. Callers turn it into an error that says where."""


class Kind(IntEnum):
    """What a primitive value is, by the number that the encoding gives it."""

    NULL = 0
    TRUE = 1
    FALSE = 2
    INT8 = 3
    INT16 = 4
    INT32 = 5
    INT64 = 6
    DOUBLE = 7
    DECIMAL4 = 8
    DECIMAL8 = 9
    DECIMAL16 = 10
    DATE = 11  # Days since the epoch.
    TIMESTAMP = 12  # Microseconds since the epoch, UTC.
    TIMESTAMP_NTZ = 13
    FLOAT = 14
    BINARY = 15
    STRING = 16
    TIME = 17  # Microseconds since midnight.
    TIMESTAMP_NS = 18
    TIMESTAMP_NTZ_NS = 19
    UUID = 20


# Bytes behind the header byte; binary and string say theirs themselves.
WIDTHS: dict[int, int] = {
    Kind.NULL: 0,
    Kind.TRUE: 0,
    Kind.FALSE: 0,
    Kind.INT8: 1,
    Kind.INT16: 2,
    Kind.INT32: 4,
    Kind.INT64: 8,
    Kind.DOUBLE: 8,
    Kind.DECIMAL4: 5,
    Kind.DECIMAL8: 9,
    Kind.DECIMAL16: 17,
    Kind.DATE: 4,
    Kind.TIMESTAMP: 8,
    Kind.TIMESTAMP_NTZ: 8,
    Kind.FLOAT: 4,
    Kind.TIME: 8,
    Kind.TIMESTAMP_NS: 8,
    Kind.TIMESTAMP_NTZ_NS: 8,
    Kind.UUID: 16,
}


def read_text(data: bytes) -> str:
    """Return a text of its bytes. Raises `MalformedError`."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedError(f"a text is not UTF-8: {error}") from error


def _integer(body: bytes) -> int:
    return int.from_bytes(body, "little", signed=True)


def _decimal(body: bytes) -> tuple[int, int]:
    unscaled, scale = _integer(body[1:]), body[0]
    if scale > 38 or abs(unscaled) >= 10**38:
        raise MalformedError(f"a decimal has more than 38 digits, or scale {scale}")
    return unscaled, scale


def _time(body: bytes) -> int:
    micros = _integer(body)
    if not 0 <= micros < DAY_US:
        raise MalformedError(f"a time of {micros} microseconds is not within a day")
    return micros


# From the bytes behind the header byte to the plain value.
PLAIN: dict[int, Callable[[bytes], Any]] = {
    **dict.fromkeys(Kind, _integer),
    Kind.NULL: lambda _: None,
    Kind.TRUE: lambda _: True,
    Kind.FALSE: lambda _: False,
    Kind.DOUBLE: lambda body: struct.unpack("<d", body)[0],
    Kind.FLOAT: lambda body: struct.unpack("<f", body)[0],
    Kind.DECIMAL4: _decimal,
    Kind.DECIMAL8: _decimal,
    Kind.DECIMAL16: _decimal,
    Kind.STRING: lambda body: read_text(body[4:]),
    Kind.BINARY: lambda body: body[4:],
    Kind.TIME: _time,
    Kind.UUID: bytes,
}
