"""Thrift's compact protocol, as far as footers and page headers of Parquet need it.

A reader walks over fields without making values of them: what is wanted is a few numbers, and the
places of bytes that are copied as they are. Every length and depth is bounded by the bytes there
are, so that a damaged file costs no more than its size.
"""

from __future__ import annotations

from collections.abc import Iterator

I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12
"""Types of fields, as the protocol numbers them."""

_TRUE, _FALSE, _BYTE, _DOUBLE, _SET, _MAP = 1, 2, 3, 7, 10, 11
_MAX_DEPTH = 16  # Of structs and lists in each other; those of Parquet have at most seven.


class ThriftError(ValueError):
    """The bytes are not what the protocol allows."""


class Cursor:
    """A position in bytes, and what can be read from there on.

    Every method moves the position behind what it read, and raises `ThriftError` if the bytes end
    before, or are no such value.
    """

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end

    def varint(self) -> int:
        """Return an unsigned number of at most ten bytes."""
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
        """Return a signed number (i16, i32 or i64)."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def binary(self) -> bytes:
        """Return the bytes of a text or binary value."""
        return self.take(self.varint())

    def take(self, length: int) -> bytes:
        """Return so many bytes as they are."""
        start = self.at
        self._advance(length)
        return self.data[start : self.at]

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield the number and the type of each field of a struct.

        The caller reads or skips each value before it asks for the next field.
        """
        number = 0
        while True:
            header = self._byte()
            if not header:
                return
            number = number + (header >> 4) if header >> 4 else self.number()
            yield number, header & 0x0F

    def items(self) -> tuple[int, int]:
        """Return the length of a list and the type of its values, which follow."""
        header = self._byte()
        length = header >> 4
        if length == 15:
            length = self.varint()
        if length > self.end - self.at:  # A value takes a byte at least.
            raise ThriftError(
                f"a list at byte {self.at} of {length} values is longer than the file"
            )
        return length, header & 0x0F

    def skip(self, kind: int, depth: int = 0) -> None:
        """Go behind a value of a type."""
        if depth > _MAX_DEPTH:
            raise ThriftError(f"values at byte {self.at} are nested too deeply")
        if I32 - 1 <= kind <= I64:
            self.varint()
        elif kind == BINARY:
            self._advance(self.varint())
        elif kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif kind in (LIST, _SET):
            length, inner = self.items()
            for _ in range(length):
                self._skip_item(inner, depth + 1)
        elif kind == _MAP:
            length = self.varint()
            if length > self.end - self.at:
                raise ThriftError(f"a map at byte {self.at} is longer than the file")
            kinds = self._byte() if length else 0
            for _ in range(length):
                self._skip_item(kinds >> 4, depth + 1)
                self._skip_item(kinds & 0x0F, depth + 1)
        elif kind == _DOUBLE:
            self._advance(8)
        elif kind == _BYTE:
            self._advance(1)
        elif kind not in (_TRUE, _FALSE):  # A field of those has no bytes of its own.
            raise ThriftError(f"type {kind} at byte {self.at} is unknown")

    def _skip_item(self, kind: int, depth: int) -> None:
        if kind in (_TRUE, _FALSE):
            self._advance(1)
        else:
            self.skip(kind, depth)

    def _byte(self) -> int:
        if self.at >= self.end:
            raise ThriftError(f"the bytes end at {self.at}, inside of a value")
        self.at += 1
        return self.data[self.at - 1]

    def _advance(self, length: int) -> None:
        if length > self.end - self.at:
            raise ThriftError(f"{length} bytes at byte {self.at} are more than there are")
        self.at += length


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


def list_header(length: int, kind: int) -> bytes:
    """Return the bytes before the values of a list."""
    return bytes([length << 4 | kind]) if length < 15 else bytes([0xF0 | kind]) + varint(length)
