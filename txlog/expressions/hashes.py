"""SQL hash functions: digests of bytes, and Spark's `hash` and `xxhash64` of several values."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.expressions.signatures import INTEGER, Function, Result, Typed, refuse
from txlog.expressions.tree import Cast, Column
from txlog.expressions.type_rules import INTEGERS, LONG
from txlog.expressions.values import Compute, numbers, of_distinct, of_numbers, over_arrays
from txlog.schema.types import STRING, DataType, DecimalType, PrimitiveType, type_name

_SEED = 42
_LONG_DIGITS = 18  # Decimals of more digits are hashed as bytes.
_HASHED = INTEGERS | {
    "boolean",
    "date",
    "timestamp",
    "timestamp_ntz",
    "float",
    "double",
    "string",
    "binary",
}


def _digest(function: Callable[..., Any]) -> Compute:
    def compute(value: Any, *more: Any) -> Any:
        *constants, kind = more
        return of_distinct(
            lambda item: function(item.encode() if isinstance(item, str) else item, *constants)
        )(value, kind)

    return compute


def _sha2(data: bytes, bits: int) -> str | None:
    if bits not in (0, 224, 256, 384, 512):
        return None
    return hashlib.new(f"sha{bits or 256}", data).hexdigest()


def _rule(gives: DataType) -> Result:
    def result(name: str, args: Sequence[Typed]) -> DataType:
        for node, kind in args:
            primitive = kind.name if isinstance(kind, PrimitiveType) else ""
            is_decimal = isinstance(kind, DecimalType)
            if primitive not in _HASHED and not is_decimal:
                raise refuse(name, f"does not support {type_name(kind)}")
            # In Spark a computed number may have another type, and so another hash.
            if (is_decimal or primitive in INTEGERS) and not isinstance(node, Column | Cast):
                raise refuse(name, "needs columns or casts, not computed numbers or constants")
        return gives

    return result


# Each of the two hashes has a function for 4 bytes, for 8 bytes, and for any number of bytes.

Step = Callable[[Any, Any], Any]


def _chain(
    of_int: Step, of_long: Step, of_bytes: Callable[[bytes, int], int], word: Any
) -> Compute:
    """Return a hash of columns: each hash is the seed of the next; nulls do not change it."""

    @over_arrays
    def compute(*values: Any) -> Any:
        *columns, kind = values
        result = np.full(len(columns[0]), _SEED, word)
        with np.errstate(over="ignore"):
            for column in columns:
                absent = numpy_array(pc.is_null(column))
                result = np.where(absent, result, hashed(column, result))
        return of_numbers(result.astype(np.int32 if word == np.uint32 else np.int64), kind)

    def hashed(column: pa.Array, seeds: Any) -> Any:
        kind = column.type
        if pa.types.is_decimal(kind):
            found = [None if one is None else _unscaled(one) for one in column.to_pylist()]
            if kind.precision <= _LONG_DIGITS:
                return of_long(np.array([one or 0 for one in found], np.int64), seeds)
            texts = [None if one is None else _as_java(one) for one in found]
            column = arrow_array(texts, pa.binary())
            kind = column.type
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            known: dict[tuple[bytes, int], int] = {}
            items = column.cast(pa.binary()).to_pylist()
            for pair in zip(items, seeds.tolist(), strict=True):
                if pair not in known:
                    known[pair] = of_bytes(pair[0] or b"", pair[1])
            pairs = zip(items, seeds.tolist(), strict=True)
            return np.fromiter((known[pair] for pair in pairs), word, len(seeds))
        plain = numbers(column.cast(pa.int8()) if pa.types.is_boolean(kind) else column)
        if plain.dtype.kind == "f":
            plain = np.where(np.isnan(plain), np.nan, plain + 0.0).astype(plain.dtype)
            plain = plain.view(np.int64 if plain.itemsize == 8 else np.int32).astype(np.int64)
        is_long = kind.bit_width == 64
        return (of_long if is_long else of_int)(plain, seeds)

    return compute


def _unscaled(number: Decimal) -> int:
    """Return the digits of a decimal as a whole number."""
    sign, digits, _ = number.as_tuple()
    whole = int("".join(map(str, digits)))
    return -whole if sign else whole


def _as_java(number: int) -> bytes:
    """Return a whole number as the bytes of Java's `BigInteger`."""
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def _rotated(value: Any, count: int) -> Any:
    bits = value.dtype.itemsize * 8
    return (value << value.dtype.type(count)) | (value >> value.dtype.type(bits - count))


def _murmur_mixed(seed: Any, word: Any) -> Any:
    word = _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(seed ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _murmur_end(value: Any, length: int) -> Any:
    value = value ^ np.uint32(length)
    value = (value ^ (value >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    value = (value ^ (value >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return value ^ (value >> np.uint32(16))


def _murmur_int(value: Any, seed: Any) -> Any:
    return _murmur_end(_murmur_mixed(seed, value.astype(np.uint32)), 4)


def _murmur_long(value: Any, seed: Any) -> Any:
    bits = value.astype(np.uint64)
    low = (bits & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    high = (bits >> np.uint64(32)).astype(np.uint32)
    return _murmur_end(_murmur_mixed(_murmur_mixed(seed, low), high), 8)


def _murmur_bytes(data: bytes, seed: int) -> int:
    """Return Spark's murmur3, in which each byte after the last whole word counts as a word."""
    whole = len(data) // 4 * 4
    words = [*np.frombuffer(data[:whole], "<i4"), *np.frombuffer(data[whole:], np.int8)]
    value = np.array([seed], np.uint32)
    for word in words:
        value = _murmur_mixed(value, np.array([word], np.int64).astype(np.uint32))
    return int(_murmur_end(value, len(data))[0])


_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)  # fmt: skip
_MASK = 2**64 - 1
_u64 = np.uint64


def _xx_end(value: Any) -> Any:
    value = (value ^ (value >> _u64(33))) * _u64(_P2)
    value = (value ^ (value >> _u64(29))) * _u64(_P3)
    return value ^ (value >> _u64(32))


def _xx_int(value: Any, seed: Any) -> Any:
    low = value.astype(np.uint64) & _u64(0xFFFFFFFF)
    mixed = (seed + _u64(_P5 + 4)) ^ (low * _u64(_P1))
    return _xx_end(_rotated(mixed, 23) * _u64(_P2) + _u64(_P3))


def _xx_long(value: Any, seed: Any) -> Any:
    word = _rotated(value.astype(np.uint64) * _u64(_P2), 31) * _u64(_P1)
    return _xx_end(_rotated((seed + _u64(_P5 + 8)) ^ word, 27) * _u64(_P1) + _u64(_P4))


def _left(value: int, count: int) -> int:
    value &= _MASK
    return ((value << count) | (value >> (64 - count))) & _MASK


def _xx_round(value: int, word: int) -> int:
    return _left(value + word * _P2, 31) * _P1 & _MASK


def _xx_bytes(data: bytes, seed: int) -> int:
    place, total = 0, len(data)

    def word(size: int) -> int:
        nonlocal place
        place += size
        return int.from_bytes(data[place - size : place], "little")

    if total >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        while place <= total - 32:
            lanes = [_xx_round(lane, word(8)) for lane in lanes]
        value = sum(_left(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            value = ((value ^ _xx_round(0, lane)) * _P1 + _P4) & _MASK
    else:
        value = seed + _P5
    value = (value + total) & _MASK
    while place <= total - 8:
        value = (_left(value ^ _xx_round(0, word(8)), 27) * _P1 + _P4) & _MASK
    if place <= total - 4:
        value = (_left(value ^ (word(4) * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
    while place < total:
        value = _left(value ^ (word(1) * _P5 & _MASK), 11) * _P1 & _MASK
    value = (value ^ (value >> 33)) * _P2 & _MASK
    value = (value ^ (value >> 29)) * _P3 & _MASK
    return value ^ (value >> 32)


_BYTES = "string|binary"

HASHES: dict[str, Function] = {
    "md5": Function(STRING, (_BYTES,), _digest(lambda data: hashlib.md5(data).hexdigest())),
    "sha1": Function(
        STRING,
        (_BYTES,),
        _digest(lambda data: hashlib.sha1(data).hexdigest()),
        aliases=("sha",),
    ),
    "sha2": Function(STRING, (_BYTES, "whole!"), _digest(_sha2)),
    "crc32": Function(LONG, (_BYTES,), _digest(zlib.crc32)),
    "hash": Function(
        _rule(INTEGER),
        ("any",),
        _chain(_murmur_int, _murmur_long, _murmur_bytes, np.uint32),
        repeats=True,
    ),
    "xxhash64": Function(
        _rule(LONG), ("any",), _chain(_xx_int, _xx_long, _xx_bytes, np.uint64), repeats=True
    ),
}
