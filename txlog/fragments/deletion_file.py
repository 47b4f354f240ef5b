"""Encode and decode Lance's deletion files, which hold the offsets of deleted rows.

Rules: spec/fragments.md; the Lance format, "Deletion".
"""

from __future__ import annotations

import re
import struct
import zlib
from array import array
from itertools import pairwise
from typing import Literal, NamedTuple, cast

import pyarrow as pa
from pyroaring import BitMap, BitMap64

from txlog.actions.file import DeletionVectorDescriptor
from txlog.base.errors import BadDeletionVectorError, InvalidInputError, reason_of
from txlog.base.thresholds import Threshold
from txlog.fragments.deletion_vector import as_array, as_bitmap

DeletionKind = Literal["arrow", "bin"]

DELETIONS_FOLDER = "_deletions"  # Relative to the table's root.
BITMAP_FROM: Threshold = 5000  # A set with fewer offsets is written as an Arrow file.

_SCHEMA = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
_ARROW_MAGIC = b"ARROW1"
_COOKIE = 12346  # No container is a list of runs.
# The low half of the word; the high half is the number of containers minus one.
_RUNS_COOKIE = 12347
# The number of containers from which offsets are stored with the runs cookie.
_NO_OFFSETS_BELOW = 4
_CONTAINERS = 1 << 16  # At most one container for each high half of a 32-bit offset.
_ARRAY_LIMIT = 4096  # A container with more offsets and without runs is a bitset.
_BITSET_BYTES = 8192

_PADDING = 64  # The size of a buffer's descriptor in bytes.
_MOST_BUFFERS = 8  # A column has two buffers.

_REMEDY = "Restore the file from a copy, or time travel to a version before the delete"
_NUMBER = "(0|[1-9][0-9]{0,19})"
_NAME = re.compile(rf"{_NUMBER}-{_NUMBER}-{_NUMBER}\.(arrow|bin)")
_COPY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.(arrow|bin)")  # In a deep clone.
_WORDS = 1 << 64  # All numbers in a name are below this.


class DeletionFileName(NamedTuple):
    """The parts of a deletion file's name. A reader needs only the kind."""

    fragment_id: int
    read_version: int  # The version from which the delete was computed.
    id: int  # Random, so that concurrent deletes have different names.
    kind: DeletionKind


def parse_deletion_name(name: str) -> DeletionFileName | None:
    """Parse a name; return None unless it has exactly the form of `deletion_name`."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    fragment_id, read_version, number = (int(found[at]) for at in (1, 2, 3))
    if max(fragment_id, read_version, number) >= _WORDS:
        return None
    return DeletionFileName(fragment_id, read_version, number, cast(DeletionKind, found[4]))


def is_deletion_file(path: str) -> bool:
    """Return whether a path below a table has a name that only deletion files get."""
    folder, _, name = path.partition("/")
    return folder == DELETIONS_FOLDER and (
        parse_deletion_name(name) is not None or _COPY.fullmatch(name) is not None
    )


def deletion_name(fragment_id: int, read_version: int, number: int, kind: DeletionKind) -> str:
    """Return the name of a deletion file. All three numbers are from 0 to 2^64 - 1.

    `number` is a random number from the caller; no two files of a fragment may share it.
    """
    name = f"{fragment_id}-{read_version}-{number}.{kind}"
    if parse_deletion_name(name) is None:
        raise InvalidInputError(
            argument="name",
            reason=f"{name!r} is not a valid name of a deletion file",
            remedy="Pass numbers from 0 to 2^64 - 1",
        )
    return name


def deletion_kind(count: int) -> DeletionKind:
    """Return the encoding for a new file with a number of offsets."""
    return "arrow" if count < BITMAP_FROM else "bin"


def checksum_of(data: bytes) -> int:
    """Return the CRC-32 of bytes as a signed number, which a descriptor's `offset` can hold."""
    return int.from_bytes(zlib.crc32(data).to_bytes(4, "big"), "big", signed=True)


def lance_descriptor(name: str, data: bytes, cardinality: int) -> DeletionVectorDescriptor:
    """Return the descriptor of a deletion file, with its checksum (rule FRG-12).

    `name` is a name in the table's `_deletions` folder, or an absolute URI.
    """
    return DeletionVectorDescriptor(
        storage_type="lance",
        path_or_inline_dv=name,
        offset=checksum_of(data),
        size_in_bytes=len(data),
        cardinality=cardinality,
    )


def encode_deletions(positions: BitMap64, *, kind: DeletionKind) -> bytes:
    """Return the bytes of a deletion file.

    Parameters
    ----------
    positions
        Row positions from 0 in the order of the data file, all below 2^32.
    kind
        `arrow`: an Arrow file of one batch, sorted, compressed with ZSTD. `bin`: a 32-bit Roaring
        bitmap in the portable format, without runs; the same bytes that Lance writes.

    Raises
    ------
    InvalidInputError
        A position is 2^32 or more, which Lance cannot store.
    """
    if positions and positions.max() >= 1 << 32:
        raise InvalidInputError(
            argument="positions",
            reason=f"row {positions.max()} does not fit a deletion file of 32-bit offsets",
            remedy="Write a deletion vector instead",
        )
    column = as_array(positions).cast(pa.uint32())
    if kind == "bin":
        # Built from an array, because a copy of a bitmap would keep its runs.
        return BitMap(array("I", column.buffers()[1].to_pybytes()), optimize=False).serialize()
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, _SCHEMA, options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([column], schema=_SCHEMA))
    return cast(bytes, sink.getvalue().to_pybytes())


def decode_deletions(
    data: bytes, *, kind: DeletionKind, cardinality: int | None, rows: int | None, path: str
) -> BitMap64:
    """Return the positions of a fragment's deleted rows.

    The result has the type and the meaning of the result of `decode_vector`. Lance's offsets have
    32 bits, so all positions are below 2^32.

    Parameters
    ----------
    data
        The whole file.
    kind
        The extension of the file's name. Do not derive it from the number of offsets: Lance also
        writes bitmaps of three.
    cardinality
        The number of deleted rows in the log; None accepts any number.
    rows
        The number of rows of the fragment, including deleted ones; None accepts any offset.
    path
        The file, for error messages.

    Raises
    ------
    BadDeletionVectorError
        The file is incomplete, has the other encoding, or has a form that Lance does not read. Or
        a row occurs twice or is not in the fragment, or the number of rows is not `cardinality`.
    """
    most = min(count for count in (cardinality, rows, 1 << 32) if count is not None)
    found = _from_arrow(data, most, path) if kind == "arrow" else _from_roaring(data, path)
    if rows is not None and found and found.max() >= rows:
        raise _bad(path, f"it deletes row {found.max()} of a fragment that has {rows}")
    if cardinality is not None and len(found) != cardinality:
        raise _bad(path, f"it holds {len(found)} rows, but the log says {cardinality}")
    return found


def _from_arrow(data: bytes, most: int, path: str) -> BitMap64:
    # Arrow itself checks only the end of the file.
    if not data.startswith(_ARROW_MAGIC):
        raise _bad(path, "it is not an Arrow file: the magic is missing")
    try:
        reader = pa.ipc.open_file(data)
        schema, batches = reader.schema, reader.num_record_batches
        described = _described(schema)  # A damaged name may not be UTF-8.
    except Exception as error:  # Damaged input fails with many kinds of errors.
        raise _bad(path, f"it is not an Arrow file: {reason_of(error)}") from error
    if not schema.equals(_SCHEMA, check_metadata=True):
        raise _bad(path, f"its schema is {described}, expected {_described(_SCHEMA)}")
    if batches != 1:
        raise _bad(path, f"it has {batches} record batches, expected 1")
    try:
        unpacked = _unpacked_bytes(data)
    except (struct.error, IndexError) as error:
        raise _bad(path, f"its record batch cannot be decoded: {error}") from error
    if unpacked > 4 * most + _PADDING:  # Check this before a small file expands to gigabytes.
        raise _bad(path, f"its record batch would need {unpacked} bytes for at most {most} rows")
    try:
        batch = reader.get_batch(0)
        batch.validate(full=True)
    except Exception as error:
        raise _bad(path, f"its record batch cannot be decoded: {error}") from error
    column = batch.column(0)
    if column.null_count:
        raise _bad(path, f"{column.null_count} of its {len(column)} offsets are null")
    found = as_bitmap(column.cast(pa.uint64()))
    if len(found) != len(column):
        raise _bad(path, f"only {len(found)} of its {len(column)} offsets are distinct")
    return found


def _unpacked_bytes(data: bytes) -> int:
    """Return the uncompressed size that an Arrow file's first batch states for its largest buffer.

    Raises
    ------
    struct.error, IndexError
        The bytes are not an Arrow file. Arrow itself checks the rest.
    """
    (length,) = struct.unpack_from("<i", data, len(data) - 10)
    footer = _Record(data, len(data) - 10 - length)
    # The first of the batches: its offset and the length of its metadata.
    block = footer.vector(3)[1]
    start, size = struct.unpack_from("<qi", data, block)
    prefix = 8 if data[start : start + 4] == b"\xff\xff\xff\xff" else 4
    batch = _Record(data, start + prefix).record(2)
    body = start + size
    count, first = batch.vector(2)
    sizes = [0]
    for at in range(first, first + 16 * min(count, _MOST_BUFFERS), 16):
        offset, extent = struct.unpack_from("<qq", data, at)
        packed = batch.place(3) is not None and extent >= 8
        stated = struct.unpack_from("<q", data, body + offset)[0] if packed else -1
        sizes.append(extent if stated == -1 else stated)
    if min(sizes) < 0 or count > _MOST_BUFFERS:
        raise IndexError("a buffer has no size")
    return max(sizes)


class _Record:
    """A table of a flatbuffer, whose offset is stored in four bytes.

    Source: "FlatBuffers: internals"; the fields are numbered as in Arrow's `Message.fbs` and
    `File.fbs`.
    """

    def __init__(self, data: bytes, pointer: int) -> None:
        self._data = data
        self._at = pointer + struct.unpack_from("<I", data, pointer)[0]

    def place(self, field: int) -> int | None:
        """Return the offset of a field's value; None if it is absent."""
        names = self._at - struct.unpack_from("<i", self._data, self._at)[0]
        if 4 + 2 * field >= struct.unpack_from("<H", self._data, names)[0]:
            return None
        offset: int = struct.unpack_from("<H", self._data, names + 4 + 2 * field)[0]
        return self._at + offset if offset else None

    def record(self, field: int) -> _Record:
        return _Record(self._data, self._required(field))

    def vector(self, field: int) -> tuple[int, int]:
        """Return the length of a vector and the offset of its first item."""
        pointer = self._required(field)
        start = pointer + struct.unpack_from("<I", self._data, pointer)[0]
        return struct.unpack_from("<I", self._data, start)[0], start + 4

    def _required(self, field: int) -> int:
        place = self.place(field)
        if place is None:
            raise IndexError(f"field {field} is missing")
        return place


def _described(schema: pa.Schema) -> str:
    parts = []
    for field in schema:
        metadata = " with metadata" if field.metadata else ""
        parts.append(f"{field.name}: {field.type}{'' if field.nullable else ' not null'}{metadata}")
    return repr(", ".join(parts)) + (" with metadata" if schema.metadata else "")


def _from_roaring(data: bytes, path: str) -> BitMap64:
    try:
        end = _bitmap_end(data)
    except struct.error as error:
        raise _bad(path, f"the bitmap is cut off after {len(data)} bytes") from error
    except ValueError as error:
        raise _bad(path, f"the bitmap cannot be decoded: {reason_of(error)}") from error
    if end > len(data):
        raise _bad(path, f"the bitmap is cut off after {len(data)} of {end} bytes")
    if end < len(data):
        raise _bad(path, f"{len(data) - end} bytes follow the bitmap")
    try:
        # In the portable format, a 64-bit bitmap is a list of 32-bit bitmaps, each after its high
        # half.
        return BitMap64.deserialize(struct.pack("<QI", 1, 0) + data)
    except Exception as error:  # pyroaring raises various errors for damaged input.
        raise _bad(path, f"the bitmap cannot be decoded: {reason_of(error)}") from error


def _bitmap_end(data: bytes) -> int:
    """Return the end offset that a portable bitmap states, which may be after the end of `data`.

    Only the headers are read: pyroaring checks the containers, but it does not return the end.
    """
    cookie: int = struct.unpack_from("<I", data)[0]
    if cookie == _COOKIE:
        count: int = struct.unpack_from("<I", data, 4)[0]
        if count > _CONTAINERS:
            raise ValueError(f"it states {count} containers, which is more than a bitmap can have")
        flags, at, has_offsets = b"", 8, True
    elif cookie & 0xFFFF == _RUNS_COOKIE:
        count = (cookie >> 16) + 1
        at = 4 + (count + 7) // 8
        flags = data[4:at]  # One bit for each container: whether it is a list of runs.
        has_offsets = count >= _NO_OFFSETS_BELOW
    else:
        raise ValueError(f"the cookie {cookie} is unknown")
    heads = struct.unpack_from(f"<{2 * count}H", data, at)
    if any(one >= next_ for one, next_ in pairwise(heads[::2])):
        raise ValueError("its containers are out of order")
    at += 4 * count * (2 if has_offsets else 1)
    for index, last in enumerate(heads[1::2]):  # The container's size minus one.
        if flags and flags[index >> 3] >> (index & 7) & 1:
            at += 2 + 4 * struct.unpack_from("<H", data, at)[0]
        else:
            at += 2 * last + 2 if last < _ARRAY_LIMIT else _BITSET_BYTES
    return at


def _bad(path: str, reason: str) -> BadDeletionVectorError:
    return BadDeletionVectorError(path=path, reason=reason, remedy=_REMEDY)
