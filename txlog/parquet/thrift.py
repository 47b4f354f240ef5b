"""Thrift's compact protocol, as far as Parquet's footers and page headers use it.

A reader skips over fields without creating values: only a few numbers are needed, and the offsets
of bytes that are copied unchanged. Each length and depth is limited by the available bytes, so that
the cost of a damaged file is bounded by its size.
"""

from __future__ import annotations

from collections.abc import Iterator

I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12
"""Field types with the protocol's numbers."""

_TRUE, _FALSE, _BYTE, _DOUBLE, _SET = 1, 2, 3, 7, 10  # Parquet has no maps.
# The greatest depth of nested structs and lists. Parquet's have at most seven levels.
_MAX_DEPTH = 16


class ThriftError(ValueError):
    """The bytes violate the protocol."""


class Cursor:
    """A position in bytes, and methods that read from it.

    Each method moves the position to the end of what it read. It raises `ThriftError` if the bytes
    end before that or do not encode such a value.
    """

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end

    def varint(self) -> int:
        """Read an unsigned number of at most ten bytes."""
        value = shift = 0
        data, at, end = self.data, self.at, self.end
        while True:
            if at >= end or shift > 63:
                raise ThriftError(f"a number at byte {self.at} does not end")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at = at
                return value
            shift += 7

    def number(self) -> int:
        """Read a signed number (i16, i32 or i64)."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def binary(self) -> bytes:
        """Read the bytes of a string or binary value."""
        return self.take(self.varint())

    def take(self, length: int) -> bytes:
        """Read `length` bytes unchanged."""
        start = self.at
        self._advance(length)
        return self.data[start : self.at]

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield the number and the type of each field of a struct.

        The caller must read or skip each value before it requests the next field.
        """
        number = 0
        while True:
            header = self._byte()
            if not header:
                return
            number = number + (header >> 4) if header >> 4 else self.number()
            yield number, header & 0x0F

    def items(self) -> tuple[int, int]:
        """Read the header of a list: its length and the type of its values."""
        header = self._byte()
        length = header >> 4
        if length == 15:
            length = self.varint()
        if length > self.end - self.at:  # A value takes at least one byte.
            raise ThriftError(
                f"a list at byte {self.at} of {length} values is longer than the file"
            )
        return length, header & 0x0F

    def skip(self, kind: int) -> None:
        """Skip a value of a type."""
        try:
            self.at = _behind(self.data, self.at, kind)
        except IndexError:
            self.at = self.end + 1
        if self.at > self.end:
            raise ThriftError("a value does not end before the bytes do")

    def _byte(self) -> int:
        if self.at >= self.end:
            raise ThriftError(f"the bytes end at {self.at}, inside a value")
        self.at += 1
        return self.data[self.at - 1]

    def _advance(self, length: int) -> None:
        if length > self.end - self.at:
            raise ThriftError(
                f"a value of {length} bytes at byte {self.at} is longer than the file"
            )
        self.at += length


def _behind(data: bytes, at: int, kind: int) -> int:
    """Return the end of a value of a type, or a place after the bytes; or raise `IndexError`.

    Most of a footer is skipped, so this makes no call for each value.
    """
    if I32 - 1 <= kind <= I64:  # A number ends with the first byte below 0x80.
        while data[at] >= 0x80:
            at += 1
        return at + 1
    if kind in (_TRUE, _FALSE):  # As a field these values have no bytes; in a list each has one.
        return at
    kinds = [kind]  # For each open struct or list: the type of its remaining values,
    left = [1]  # and their number; -1 for the fields of a struct.
    while left:
        if left[-1] < 0:
            head = data[at]
            at += 1
            if not head:
                kinds.pop()
                left.pop()
                continue
            if head < 0x10:  # The number of the field is next.
                while data[at] >= 0x80:
                    at += 1
                at += 1
            kind = head & 0x0F
            if kind in (_TRUE, _FALSE):
                continue
        elif not left[-1]:
            kinds.pop()
            left.pop()
            continue
        else:
            left[-1] -= 1
            kind = kinds[-1]
        if I32 - 1 <= kind <= I64:
            while data[at] >= 0x80:
                at += 1
            at += 1
        elif kind == BINARY:
            size = shift = 0
            while (byte := data[at]) >= 0x80:
                size |= (byte & 0x7F) << shift
                shift += 7
                at += 1
                if shift > 63:
                    raise ThriftError(f"a length at byte {at} does not end")
            at += 1 + (size | byte << shift)
        elif kind == STRUCT:
            kinds.append(STRUCT)
            left.append(-1)
        elif kind in (LIST, _SET):
            cursor = Cursor(data, at)
            count, kind = cursor.items()
            at = cursor.at
            kinds.append(kind)
            left.append(count)
        elif kind == _DOUBLE:
            at += 8
        elif kind in (_TRUE, _FALSE, _BYTE):
            at += 1
        else:
            raise ThriftError(f"type {kind} at byte {at} is unknown")
        if len(left) > _MAX_DEPTH:
            raise ThriftError(f"values at byte {at} are nested too deeply")
    return at


def varint(value: int) -> bytes:
    """Return an unsigned number as bytes."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def zigzag(value: int) -> bytes:
    """Return a number from zero as the bytes of a signed one."""
    return varint(value << 1)


def field_header(number: int, last: int, kind: int) -> bytes:
    """Return the bytes before a field of a struct, which follows the field `last`; 0: none."""
    step = number - last
    return bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + zigzag(number)


def list_header(length: int, kind: int) -> bytes:
    """Return the bytes before the values of a list."""
    return bytes([length << 4 | kind]) if length < 15 else bytes([0xF0 | kind]) + varint(length)
