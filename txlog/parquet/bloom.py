"""Bloom filters of Parquet files: whether a row group may have a value. Pure.

They are split-block filters of xxHash64 of plainly encoded values, as Parquet's document
"BloomFilter" specifies them. A filter may say that a value is there that is not, never the reverse.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.parquet.thrift import I32, STRUCT, Cursor, ThriftError

HEADER_BYTES = 64
"""No header is longer."""

_MOST_BYTES = 128 << 20  # As in the specification.
_BLOCK = 32  # Bytes.
_SALT = np.array(
    [
        0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D,
        0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
    ],
    np.uint32,
)  # fmt: skip
_MASK = (1 << 64) - 1
_FLOATS = {"FLOAT": "<f", "DOUBLE": "<d"}
_EXACT = Context(prec=77)  # More digits than a decimal has.
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)  # fmt: skip


class BloomFilterError(ValueError):
    """The bytes are not a filter of the one known kind, or contradict the footer."""


@dataclass(frozen=True)
class BloomFilter:
    """The bits of a filter: blocks of eight words."""

    blocks: NDArray[np.uint32]

    def may_have(self, value: bytes) -> bool:
        """Return whether a row may have a value, given in its plain encoding."""
        hashed = xxh64(value)
        block = self.blocks[(hashed >> 32) * len(self.blocks) >> 32]
        bits = (np.uint32(hashed & 0xFFFFFFFF) * _SALT) >> np.uint32(27)
        return bool(((block >> bits) & np.uint32(1)).all())


def header(data: bytes) -> tuple[int, int]:
    """Return the length of a filter's header, and that of the bits behind it.

    Raises
    ------
    BloomFilterError
        It is no header of a split-block filter of xxHash without compression.
    """
    cursor = Cursor(data)
    size, kinds = 0, set[int]()
    try:
        for number, kind in cursor.fields():
            if number == 1 and kind == I32:
                size = cursor.number()
            elif number in (2, 3, 4) and kind == STRUCT:
                # Unions, whose one known member is an empty struct.
                members = []
                for member, of in cursor.fields():
                    members.append(member)
                    cursor.skip(of)
                if members == [1]:
                    kinds.add(number)
            else:
                cursor.skip(kind)
    except ThriftError as error:
        raise BloomFilterError(str(error)) from error
    if kinds != {2, 3, 4}:
        raise BloomFilterError("it is of an unknown kind")
    if not _BLOCK <= size <= _MOST_BYTES or size % _BLOCK:
        raise BloomFilterError(f"it has {size} bytes")
    return cursor.at, size


def parse(bits: bytes, size: int, known: Iterable[bytes]) -> BloomFilter:
    """Return a filter from its bits.

    Parameters
    ----------
    size
        The number of bytes that its header states.
    known
        Values that the row group has, in their plain encoding: the bounds of its statistics.

    Raises
    ------
    BloomFilterError
        The bits are cut, or lack a known value: they are damaged, or of another file.
    """
    if len(bits) != size:
        raise BloomFilterError(f"it has {len(bits)} bytes in place of {size}")
    made = BloomFilter(np.frombuffer(bits, "<u4").astype(np.uint32, copy=False).reshape(-1, 8))
    if not made.blocks.any() or not all(map(made.may_have, known)):
        raise BloomFilterError("it lacks a value of the row group, so it is damaged")
    return made


def plain(
    value: Any, kind: pa.DataType, physical: str, length: int = 0
) -> tuple[bytes, ...] | None:
    """Return the plain encodings of all values of a column that equal a value.

    None if they are unknown, as those of a value that the column cannot have exactly.

    Parameters
    ----------
    kind, physical, length
        The types of the column in the file, and the bytes of each value if that is fixed.
    """
    if physical == "BYTE_ARRAY":
        if isinstance(value, str):
            return (value.encode("utf-8", "surrogatepass"),)
        return (value,) if isinstance(value, bytes) else None
    if physical in _FLOATS:
        return _floats(value, _FLOATS[physical])
    if physical == "FIXED_LEN_BYTE_ARRAY" and isinstance(value, bytes):
        return (value,) if pa.types.is_fixed_size_binary(kind) and len(value) == length else None
    if physical not in ("INT32", "INT64", "FIXED_LEN_BYTE_ARRAY"):
        return None
    if isinstance(value, bool) or not isinstance(value, int | Decimal | date | datetime):
        return None
    try:
        given: Any = value
        if isinstance(value, int) and pa.types.is_decimal(kind):
            given = Decimal(value)
        scalar = pa.array([given], kind)
        if scalar.to_pylist() != [value]:
            return None
        if pa.types.is_decimal(kind):
            number = int(scalar[0].as_py().scaleb(kind.scale, _EXACT))
        elif pa.types.is_date32(kind):
            number = scalar.cast(pa.int32())[0].as_py()
        else:
            number = scalar.cast(pa.int64())[0].as_py()
        if physical == "FIXED_LEN_BYTE_ARRAY":
            if not pa.types.is_decimal(kind):
                return None
            return (number.to_bytes(length, "big", signed=True),)
        return (struct.pack("<i" if physical == "INT32" else "<q", number),)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, struct.error):
        return None


def _floats(value: Any, form: str) -> tuple[bytes, ...] | None:
    """Return the encodings of a floating point number: both of zero. NaN has too many."""
    if type(value) not in (float, int):
        return None
    try:
        data = struct.pack(form, value)
    except (OverflowError, struct.error):
        return None
    if struct.unpack(form, data)[0] != value:
        return None
    return (data,) if value else (struct.pack(form, 0.0), struct.pack(form, -0.0))


def xxh64(data: bytes) -> int:
    """Return the 64 bits of xxHash64 with the seed 0."""
    size, at = len(data), 0
    if size >= 32:
        sums = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while at + 32 <= size:
            words = struct.unpack_from("<4Q", data, at)
            sums = [_round(one, word) for one, word in zip(sums, words, strict=True)]
            at += 32
        a, b, c, d = sums
        found = (_turned(a, 1) + _turned(b, 7) + _turned(c, 12) + _turned(d, 18)) & _MASK
        for one in sums:
            found = ((found ^ _round(0, one)) * _P1 + _P4) & _MASK
    else:
        found = _P5
    found = (found + size) & _MASK
    while at + 8 <= size:
        (word,) = struct.unpack_from("<Q", data, at)
        found = (_turned(found ^ _round(0, word), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= size:
        (half,) = struct.unpack_from("<I", data, at)
        found = (_turned(found ^ half * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        found = _turned(found ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    found = (found ^ found >> 33) * _P2 & _MASK
    found = (found ^ found >> 29) * _P3 & _MASK
    return found ^ found >> 32


def _round(sum_: int, word: int) -> int:
    return _turned((sum_ + word * _P2) & _MASK, 31) * _P1 & _MASK


def _turned(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK
