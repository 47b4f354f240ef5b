"""The kinds of primitive values, and the reader of a variant's bytes.

Rules: the Parquet format, "Variant Binary Encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar

from txlog.base.moments import DAY_US


class MalformedError(ValueError):
    """The bytes are not a variant. Callers turn this into an error that names the row."""


class Kind(IntEnum):
    """The kinds of primitive values, with their numbers in the encoding."""

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


# Bytes after the header byte; binary and string store their own length.
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
    """Return the string that bytes encode. Raises `MalformedError`."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedError(f"a text is not UTF-8: {error}") from error


def _integer(body: bytes) -> int:
    return int.from_bytes(body, "little", signed=True)


def _decimal(body: bytes) -> tuple[int, int]:
    unscaled, scale = _integer(body[1:]), body[0]
    if scale > 38 or abs(unscaled) >= 10**38:
        raise MalformedError(f"a decimal has more than 38 digits, or the scale {scale}")
    return unscaled, scale


def _time(body: bytes) -> int:
    micros = _integer(body)
    if not 0 <= micros < DAY_US:
        raise MalformedError(f"a time of {micros} microseconds is not within a day")
    return micros


# Functions from the bytes after the header byte to the plain value.
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


VERSION = 1
SORTED = 0x10  # The header bit of a dictionary with sorted names.
MAX_DEPTH = 500  # Levels of nesting; Python's own stack does not allow many more.
NULL_VALUE = b"\x00"
NO_NAMES = b"\x01\x00\x00"  # The metadata of a variant without objects.

PRIMITIVE, SHORT_STRING, OBJECT, ARRAY = range(4)

T = TypeVar("T")


@dataclass(frozen=True)
class Form(Generic[T]):
    """How to convert a variant: one function for each kind of value.

    The functions in `scalars` are looked up by `Kind` and get the plain value: `None`, `bool`,
    `int` (also for dates, times and timestamps), `float`, `str`, `bytes` (also for a UUID), or the
    unscaled number and the scale of a decimal.
    """

    scalars: Mapping[int, Callable[[Any], T]]
    array: Callable[[list[T]], T]
    object: Callable[[dict[str, T]], T]


def decode(value: bytes, names: Sequence[str], form: Form[T]) -> T:
    """Return one value, converted by `form`. Bytes after the value are ignored.

    Raises
    ------
    MalformedError
        The bytes break the encoding, share parts between values, or nest too deeply.
    """
    try:
        if not value:
            raise MalformedError("the value is empty")
        return _Reader(value, names, form).read(0, len(value), 0)
    except RecursionError as error:
        raise MalformedError("it is nested too deeply for Python's stack") from error


def decode_names(metadata: bytes) -> list[str]:
    """Return the names of a variant's dictionary. Raises `MalformedError`."""
    if not metadata:
        raise MalformedError("the metadata is empty")
    if (version := metadata[0] & 0x0F) != VERSION:
        raise MalformedError(f"the metadata has version {version}, expected {VERSION}")
    width = (metadata[0] >> 6) + 1
    if len(metadata) < 1 + width:
        raise MalformedError("the metadata ends inside its size field")
    count = int.from_bytes(metadata[1 : 1 + width], "little")
    start = 1 + width * (count + 2)
    if start > len(metadata):
        raise MalformedError(f"the metadata is too short for {count} names")
    offsets = _numbers(metadata, 1 + width, start, width)
    text = metadata[start : start + offsets[-1]]
    if len(text) < offsets[-1]:
        raise MalformedError(f"the metadata ends inside its {count} names")
    names = []
    for index in range(count):
        first, last = offsets[index], offsets[index + 1]
        if first > last or last > len(text):
            raise MalformedError(f"name {index} of the metadata has an invalid offset")
        names.append(read_text(text[first:last]))
    return names


def object_parts(value: bytes, names: Sequence[str]) -> dict[str, bytes]:
    """Return the bytes of each field of an object. Raises `MalformedError`."""
    if not value or value[0] & 3 != OBJECT:
        raise MalformedError("a value next to shredded fields is not an object")
    layout = _layout(value, 0, len(value))
    left = layout.stop - layout.start
    parts: dict[str, bytes] = {}
    for id_, at in zip(layout.ids(value), layout.places(value), strict=True):
        size = _size(value, at, layout.stop)
        left -= size
        if left < 0:
            raise MalformedError("values overlap")
        name = _name(names, id_, parts)
        parts[name] = value[at : at + size]
    return parts


class _Reader(Generic[T]):
    """Reads one value recursively.

    Values of a variant share no bytes. `left` counts the bytes that are not read yet, so that a
    small input whose offsets all point to one place cannot expand without bound.
    """

    def __init__(self, data: bytes, names: Sequence[str], form: Form[T]) -> None:
        self.data = data
        self.names = names
        self.form = form
        self.left = len(data)

    def read(self, at: int, end: int, depth: int) -> T:
        """Return the value at a byte offset; it must end before `end`."""
        data = self.data
        if at >= end:
            raise MalformedError(f"a value at byte {at} lies behind its container")
        basic = data[at] & 3
        if basic in (PRIMITIVE, SHORT_STRING):
            kind, plain, size = _scalar(data, at, end)
            self._take(size)
            return self.form.scalars[kind](plain)
        if depth >= MAX_DEPTH:
            raise MalformedError(f"it is nested more than {MAX_DEPTH} levels deep")
        layout = _layout(data, at, end)
        self._take(layout.start - at)
        # Plain loops: a comprehension would cost a second frame for each level.
        if basic == ARRAY:
            items = []
            for start in layout.places(data):
                items.append(self.read(start, layout.stop, depth + 1))  # noqa: PERF401
            return self.form.array(items)
        fields: dict[str, T] = {}
        for id_, start in zip(layout.ids(data), layout.places(data), strict=True):
            name = _name(self.names, id_, fields)
            fields[name] = self.read(start, layout.stop, depth + 1)
        return self.form.object(fields)

    def _take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise MalformedError("values overlap")


class _Layout(NamedTuple):
    """The offsets of the parts of an object or an array."""

    ids_at: int
    id_width: int  # 0 for an array.
    offsets_at: int
    offset_width: int
    start: int  # The offset of the children's first byte.
    stop: int  # The offset after their last byte.

    def ids(self, data: bytes) -> list[int]:
        return _numbers(data, self.ids_at, self.offsets_at, self.id_width)

    def places(self, data: bytes) -> list[int]:
        stop = self.start - self.offset_width  # The last offset is the end of the last child.
        offsets = _numbers(data, self.offsets_at, stop, self.offset_width)
        return [self.start + offset for offset in offsets]


def _layout(data: bytes, at: int, end: int) -> _Layout:
    info = data[at] >> 2
    is_object = data[at] & 3 == OBJECT
    count_width = 4 if info & (16 if is_object else 4) else 1
    id_width = (info >> 2 & 3) + 1 if is_object else 0
    offset_width = (info & 3) + 1
    ids_at = at + 1 + count_width
    if ids_at > end:
        raise MalformedError(f"the size of the container at byte {at} is cut off")
    count = int.from_bytes(data[at + 1 : ids_at], "little")
    offsets_at = ids_at + count * id_width
    start = offsets_at + (count + 1) * offset_width
    if start > end:
        raise MalformedError(f"the value is too short for {count} children at byte {at}")
    stop = start + int.from_bytes(data[start - offset_width : start], "little")
    if stop > end:
        raise MalformedError(f"the container at byte {at} ends at {stop}, after {end}")
    return _Layout(ids_at, id_width, offsets_at, offset_width, start, stop)


def _scalar(data: bytes, at: int, end: int) -> tuple[int, Any, int]:
    """Return the kind, the plain value and the size with header of a primitive or short string."""
    size = _size(data, at, end)
    if data[at] & 3 == SHORT_STRING:
        return Kind.STRING, read_text(data[at + 1 : at + size]), size
    kind = data[at] >> 2
    return kind, PLAIN[kind](data[at + 1 : at + size]), size


def _size(data: bytes, at: int, end: int) -> int:
    """Return the size of the value at a byte offset; raise unless it ends before `end`."""
    if at >= end:
        raise MalformedError(f"a value at byte {at} lies behind its container")
    basic, info = data[at] & 3, data[at] >> 2
    if basic == SHORT_STRING:
        size = 1 + info
    elif basic == PRIMITIVE:
        width = WIDTHS.get(info)
        if width is not None:
            size = 1 + width
        elif info not in PLAIN:
            raise MalformedError(f"type {info} is unknown")
        else:
            if at + 5 > end:
                raise MalformedError(f"the length of the value at byte {at} is cut off")
            size = 5 + int.from_bytes(data[at + 1 : at + 5], "little")
    else:
        size = _layout(data, at, end).stop - at
    if at + size > end:
        raise MalformedError(f"the value at byte {at} is cut off")
    return size


def _name(names: Sequence[str], id_: int, fields: dict[str, T]) -> str:
    """Return the name of a field; raise if an earlier field of the object has the same name."""
    if id_ >= len(names):
        raise MalformedError(f"field id {id_} is not among {len(names)} names")
    if names[id_] in fields:
        raise MalformedError(f"an object has two fields named {names[id_]!r}")
    return names[id_]


def _numbers(data: bytes, start: int, stop: int, width: int) -> list[int]:
    if width == 1:
        return list(data[start:stop])
    return [int.from_bytes(data[at : at + width], "little") for at in range(start, stop, width)]
