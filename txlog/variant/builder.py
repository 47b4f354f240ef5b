"""Build the binary encoding of one variant.

Rules: the Parquet format, "Variant Binary Encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import accumulate, pairwise
from typing import Any

from txlog.base.errors import InvalidInputError
from txlog.variant.encoding import ARRAY, MAX_DEPTH, OBJECT, SHORT_STRING, SORTED, VERSION, Kind

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_INTEGERS = ((1, Kind.INT8), (2, Kind.INT16), (4, Kind.INT32), (8, Kind.INT64))
# Digits, and bytes of the unscaled number.
_DECIMALS = ((9, 4, Kind.DECIMAL4), (18, 8, Kind.DECIMAL8), (38, 16, Kind.DECIMAL16))


def encode_variant(value: Any) -> tuple[bytes, bytes]:
    """Encode a Python value as a variant; return its metadata and its value.

    Parameters
    ----------
    value
        `None`, `bool`, `int`, `float`, `Decimal`, `str`, `bytes`, `date`, `time`, `datetime`, and
        lists, tuples and dictionaries (of text keys) of them. A `datetime` with a zone becomes a
        timestamp, one without a timestamp_ntz. An `int` beyond 64 bits becomes a decimal.

    Raises
    ------
    InvalidInputError
        A variant cannot hold the value, or it is nested too deeply.
    """
    names: set[str] = set()
    try:
        _collect(value, names, 0)
        ordered = sorted(names)
        return encode_names(ordered), _any(value, {name: at for at, name in enumerate(ordered)})
    except RecursionError as error:
        raise _invalid("the value is nested too deeply for Python's stack") from error
    except UnicodeEncodeError as error:
        raise _invalid(f"a text is not Unicode: {error}") from error


def encode_names(names: Sequence[str]) -> bytes:
    """Return the metadata whose dictionary holds names, in their order."""
    texts = [name.encode() for name in names]
    size = sum(map(len, texts))
    width = _width(max(size, len(texts)))
    ascend = all(first < second for first, second in pairwise(texts))
    header = VERSION | (SORTED if ascend and texts else 0) | (width - 1) << 6
    numbers = [len(texts), *_offsets(texts)]
    return bytes([header]) + _pack(numbers, width) + b"".join(texts)


def encode_object(fields: Sequence[tuple[int, bytes]]) -> bytes:
    """Return an object of name ids and encoded values, which are already sorted by name."""
    values = [value for _, value in fields]
    ids = [id_ for id_, _ in fields]
    offsets = _offsets(values)
    width, id_width = _width(offsets[-1]), _width(max(ids, default=0))
    large = len(fields) > 255
    info = large << 4 | (id_width - 1) << 2 | (width - 1)
    count = len(fields).to_bytes(4 if large else 1, "little")
    head = bytes([info << 2 | OBJECT]) + count + _pack(ids, id_width) + _pack(offsets, width)
    return head + b"".join(values)


def encode_array(values: Sequence[bytes]) -> bytes:
    """Return an array of encoded values."""
    offsets = _offsets(values)
    width = _width(offsets[-1])
    large = len(values) > 255
    count = len(values).to_bytes(4 if large else 1, "little")
    head = bytes([(large << 2 | (width - 1)) << 2 | ARRAY]) + count + _pack(offsets, width)
    return head + b"".join(values)


def encode_bool(value: bool) -> bytes:
    """Return an encoded boolean."""
    return _primitive(Kind.TRUE if value else Kind.FALSE)


def encode_int(value: int) -> bytes:
    """Return an integer in the fewest bytes that hold it. Raises `InvalidInputError`."""
    for width, kind in _INTEGERS:
        if -(1 << 8 * width - 1) <= value < 1 << 8 * width - 1:
            return _primitive(kind, value.to_bytes(width, "little", signed=True))
    return encode_decimal(Decimal(value))


def encode_decimal(value: Decimal) -> bytes:
    """Return a decimal with the scale it has. Raises `InvalidInputError` beyond 38 digits."""
    sign, digits, power = value.as_tuple()
    if not isinstance(power, int):
        raise _invalid(f"{value} is not a finite number")
    # Zero is zero at any scale.
    exponent: int = power if value else max(min(power, 0), -38)
    scale = max(-exponent, 0)
    if len(digits) + exponent > 39 or scale > 38:
        raise _invalid(f"{value} has more than 38 digits")
    unscaled: int = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
    for precision, width, kind in _DECIMALS:
        if unscaled < 10**precision and scale <= precision:
            signed = (-unscaled if sign else unscaled).to_bytes(width, "little", signed=True)
            return _primitive(kind, bytes([scale]) + signed)
    raise _invalid(f"{value} has more than 38 digits")


def encode_double(value: float) -> bytes:
    """Return an encoded double."""
    return _primitive(Kind.DOUBLE, struct.pack("<d", value))


def encode_float(value: float) -> bytes:
    """Return an encoded float, which must hold the value exactly."""
    return _primitive(Kind.FLOAT, struct.pack("<f", value))


def encode_text(value: str) -> bytes:
    """Return an encoded string."""
    data = value.encode()
    if len(data) < 64:
        return bytes([len(data) << 2 | SHORT_STRING]) + data
    return _primitive(Kind.STRING, len(data).to_bytes(4, "little") + data)


def encode_binary(value: bytes) -> bytes:
    """Return encoded bytes."""
    return _primitive(Kind.BINARY, len(value).to_bytes(4, "little") + value)


def encode_uuid(value: bytes) -> bytes:
    """Return an encoded UUID, given as 16 bytes."""
    return _primitive(Kind.UUID, value)


def encode_date(days: int) -> bytes:
    """Return an encoded date, given as days since the epoch."""
    return _primitive(Kind.DATE, days.to_bytes(4, "little", signed=True))


def encode_moment(kind: Kind, ticks: int) -> bytes:
    """Return an encoded time or timestamp, in the unit of its kind."""
    return _primitive(kind, ticks.to_bytes(8, "little", signed=True))


def _primitive(kind: Kind, body: bytes = b"") -> bytes:
    return bytes([kind << 2]) + body


def _collect(value: Any, names: set[str], depth: int) -> None:
    """Collect the names of all objects, and check their keys and depth."""
    if not isinstance(value, (dict, list, tuple)):
        return
    if depth >= MAX_DEPTH:
        raise _invalid(f"the value is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise _invalid(f"the key {name!r} of an object is not a string")
        names.update(value)
        value = value.values()
    for item in value:
        _collect(item, names, depth + 1)


def _any(value: Any, ids: dict[str, int]) -> bytes:
    if isinstance(value, dict):
        fields = []
        for name in sorted(value):
            fields.append((ids[name], _any(value[name], ids)))  # noqa: PERF401
        return encode_object(fields)
    if isinstance(value, (list, tuple)):
        items = []
        for item in value:
            items.append(_any(item, ids))  # noqa: PERF401
        return encode_array(items)
    return _scalar(value)


def _scalar(value: Any) -> bytes:
    match value:
        case None:
            return _primitive(Kind.NULL)
        case bool():
            return encode_bool(value)
        case int():
            return encode_int(value)
        case float():
            return encode_double(value)
        case Decimal():
            return encode_decimal(value)
        case str():
            return encode_text(value)
        case bytes() | bytearray() | memoryview():
            return encode_binary(bytes(value))
        case datetime():
            offset = value.utcoffset()
            kind = Kind.TIMESTAMP_NTZ if offset is None else Kind.TIMESTAMP
            since = value.replace(tzinfo=None) - _EPOCH - (offset or timedelta())
            return encode_moment(kind, since // _MICROSECOND)
        case date():
            return encode_date((value - _EPOCH.date()).days)
        case time() if value.tzinfo is None:
            return encode_moment(
                Kind.TIME, (datetime.combine(_EPOCH, value) - _EPOCH) // _MICROSECOND
            )
    raise _invalid(f"the Python type {type(value).__name__} has no counterpart")


def _offsets(parts: Sequence[bytes]) -> list[int]:
    return list(accumulate(map(len, parts), initial=0))


def _width(largest: int) -> int:
    """Return how many bytes an unsigned number needs."""
    return max(1, (largest.bit_length() + 7) // 8)


def _pack(numbers: Sequence[int], width: int) -> bytes:
    if width == 1:
        return bytes(numbers)
    return b"".join(number.to_bytes(width, "little") for number in numbers)


def _invalid(reason: str) -> InvalidInputError:
    return InvalidInputError(
        reason=f"the value cannot be a variant: {reason}",
        argument="value",
        remedy="Convert the value to a type that a variant can hold",
    )
