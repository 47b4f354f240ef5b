"""Encode and decode deletion vectors, and test rows against them. Pure.

Rules: the Delta protocol, "Deletion Vector Format".
"""

from __future__ import annotations

import struct
import zlib
from array import array

import pyarrow as pa
from pyroaring import BitMap64

from txlog.actions.file import DeletionVectorDescriptor
from txlog.base.arrow import pc
from txlog.base.errors import BadDeletionVectorError
from txlog.base.thresholds import Threshold
from txlog.fragments import deletion_vector as z85

ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {character: value for value, character in enumerate(ALPHABET)}


def encode(data: bytes) -> str:
    """Return Z85 text of bytes, padded with zero bytes to a multiple of four."""
    data = data + bytes(-len(data) % 4)
    text = []
    for start in range(0, len(data), 4):
        number = int.from_bytes(data[start : start + 4], "big")
        group = ""
        for _ in range(5):
            number, digit = divmod(number, 85)
            group = ALPHABET[digit] + group
        text.append(group)
    return "".join(text)


def decode(text: str) -> bytes:
    """Return the bytes of Z85 text, padding included.

    Raises `ValueError` if the length is not a multiple of five, a character is not in the alphabet,
    or a group encodes more than 32 bits.
    """
    if len(text) % 5:
        raise ValueError(f"the length {len(text)} is not a multiple of five")
    data = bytearray()
    for start in range(0, len(text), 5):
        number = 0
        for character in text[start : start + 5]:
            if character not in _VALUES:
                raise ValueError(f"{character!r} is not a character of Z85")
            number = number * 85 + _VALUES[character]
        if number >= 1 << 32:
            raise ValueError(f"{text[start : start + 5]!r} encodes more than 32 bits")
        data += number.to_bytes(4, "big")
    return bytes(data)


_FEW: Threshold = 8
"""Deletions are few if at most one in eight positions is deleted."""


def as_bitmap(positions: pa.Array) -> BitMap64:
    """Return the positions in an unsigned 64-bit array without nulls as a bitmap."""
    data = array("Q")
    if len(positions):
        start = positions.offset * 8
        data.frombytes(positions.buffers()[1].slice(start, len(positions) * 8))
    return BitMap64(data)


def as_array(bitmap: BitMap64) -> pa.Array:
    """Return a bitmap's positions, ascending, as an unsigned 64-bit array."""
    data = bitmap.to_array()
    return pa.Array.from_buffers(pa.uint64(), len(data), [None, pa.py_buffer(data)])


def alive_mask(deleted: BitMap64 | None, start: int, count: int) -> pa.Array | None:
    """Return which of a run of positions are not deleted, or None if no position is deleted."""
    if deleted is None:
        return None
    here = deleted & BitMap64(range(start, start + count))
    if not here:
        return None
    if len(here) * _FEW > count:
        run = pa.arange(start, start + count).cast(pa.uint64())
        return pc.invert(pc.is_in(run, value_set=as_array(here)))
    alive = bytearray(b"\1" * count)  # To mark few positions is faster than to look up all of them.
    for position in here:
        alive[position - start] = 0
    flags = pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(alive)])
    return pc.cast(flags, pa.bool_())


MAGIC = 1681511377
NATIVE_MAGIC = 1681511376  # The magic of an older layout that only Spark could read.
FILE_VERSION = 1
INLINE_LIMIT: Threshold = 512  # A vector with more bytes is stored in a file.

_REWRITE = "Restore the file from a copy, or time travel to a version before the delete"


def encode_vector(positions: BitMap64) -> bytes:
    """Return the bytes of a vector: magic, then a 64-bit Roaring bitmap in the portable format."""
    return struct.pack("<I", MAGIC) + positions.serialize()


def decode_vector(data: bytes, *, cardinality: int, path: str) -> BitMap64:
    """Return the positions of the deleted rows of one data file.

    Parameters
    ----------
    data
        The vector itself, without the length before it and the checksum after it.
    cardinality
        The number of deleted rows in the log.
    path
        The vector's file, or the data file of an inline vector, for error messages.

    Returns
    -------
    Row positions from 0 in the order of the Parquet file, before any filter.

    Raises
    ------
    BadDeletionVectorError
        The magic is wrong, the bitmap is damaged, or its number of positions is not `cardinality`.
        Bytes after the bitmap are ignored.
    """
    if len(data) < 12:
        raise _bad(path, f"{len(data)} bytes are too few for a vector")
    magic = struct.unpack_from("<I", data)[0]
    if magic != MAGIC:
        old = NATIVE_MAGIC in (magic, struct.unpack_from(">I", data)[0])
        what = "is in the native format of old Spark versions" if old else f"has the magic {magic}"
        raise _bad(path, f"a portable vector was expected, but this one {what}")
    try:
        positions = BitMap64.deserialize(data[4:])
    except Exception as error:  # pyroaring raises various errors for damaged input.
        raise _bad(path, f"the bitmap cannot be decoded: {error}") from error
    if len(positions) != cardinality:
        raise _bad(path, f"it holds {len(positions)} rows, but the log says {cardinality}")
    return positions


def encode_file(vectors: list[bytes]) -> tuple[bytes, list[int]]:
    """Return the bytes of a file of vectors, and the offset of each vector for its descriptor."""
    parts = [bytes([FILE_VERSION])]
    offsets = []
    at = 1
    for vector in vectors:
        offsets.append(at)
        parts.append(struct.pack(">I", len(vector)) + vector)
        parts.append(struct.pack(">I", zlib.crc32(vector)))
        at += len(vector) + 8
    return b"".join(parts), offsets


def block_range(descriptor: DeletionVectorDescriptor) -> tuple[int, int]:
    """Return the offset and length in bytes of a stored vector's block in its file.

    The block is the length word, the vector, and its checksum. If the descriptor has no offset, the
    block is the first one, after the version byte.
    """
    offset = 1 if descriptor.offset is None else descriptor.offset
    return offset, descriptor.size_in_bytes + 8


def vector_in_block(
    version: bytes, block: bytes, descriptor: DeletionVectorDescriptor, *, path: str
) -> bytes:
    """Return the vector of a descriptor from its block, after checks.

    Parameters
    ----------
    version
        The file's first byte.
    block
        The bytes at `block_range(descriptor)`, fewer if the file ends before.

    Raises
    ------
    BadDeletionVectorError
        The file's version is unknown, the length word or the checksum is wrong, or the file is too
        short.
    """
    if version != bytes([FILE_VERSION]):
        raise _bad(path, f"file version {version.hex() or 'missing'}, expected {FILE_VERSION}")
    offset, length = block_range(descriptor)
    if offset < 1 or length < 8 or len(block) < length:
        raise _bad(path, f"it is too short for {length} bytes at offset {offset}")
    size = descriptor.size_in_bytes
    stored = struct.unpack_from(">I", block)[0]
    if stored != size:
        raise _bad(
            path, f"the file says {stored} bytes at offset {offset}, but the log says {size}"
        )
    vector = block[4 : 4 + size]
    if zlib.crc32(vector) != struct.unpack_from(">I", block, 4 + size)[0]:
        raise _bad(path, "the checksum is wrong")
    return vector


def inline_vector(descriptor: DeletionVectorDescriptor, *, path: str) -> bytes:
    """Return the bytes of an inline vector, which the log itself contains."""
    try:
        data = z85.decode(descriptor.path_or_inline_dv)
    except ValueError as error:
        raise _bad(path, f"the inline vector is not Z85: {error}") from error
    if not 0 <= descriptor.size_in_bytes <= len(data) < descriptor.size_in_bytes + 4:
        raise _bad(path, f"it has {len(data)} bytes, but the log says {descriptor.size_in_bytes}")
    return data[: descriptor.size_in_bytes]


def inline_descriptor(vector: bytes, cardinality: int) -> DeletionVectorDescriptor:
    """Return the descriptor of a vector that is stored inline in the log."""
    return DeletionVectorDescriptor(
        storage_type="i",
        path_or_inline_dv=z85.encode(vector),
        size_in_bytes=len(vector),
        cardinality=cardinality,
    )


def stored_descriptor(
    uuid: str, *, offset: int, size: int, cardinality: int
) -> DeletionVectorDescriptor:
    """Return the descriptor of a vector in the file `file_name(uuid)`."""
    return DeletionVectorDescriptor(
        storage_type="u",
        path_or_inline_dv=z85.encode(bytes.fromhex(uuid.replace("-", ""))),
        offset=offset,
        size_in_bytes=size,
        cardinality=cardinality,
    )


def file_name(uuid: str) -> str:
    """Return the path of a file of vectors, relative to the table's root."""
    return f"deletion_vector_{uuid}.bin"


def logged_path(descriptor: DeletionVectorDescriptor, *, path: str) -> str:
    """Return the path of a stored vector's file in the form of logged paths.

    Raises
    ------
    BadDeletionVectorError
        The storage type is unknown, or the text is not a UUID in Z85.
    """
    text = descriptor.path_or_inline_dv
    if descriptor.storage_type == "p":
        return text
    if descriptor.storage_type != "u":
        raise _bad(path, f"storage type {descriptor.storage_type!r} is unknown")
    prefix, encoded = text[:-20], text[-20:]
    try:
        uuid = _uuid_text(z85.decode(encoded))
    except ValueError as error:
        raise _bad(path, f"{text!r} does not end in a UUID in Z85") from error
    return f"{prefix}/{file_name(uuid)}" if prefix else file_name(uuid)


def _uuid_text(data: bytes) -> str:
    if len(data) != 16:
        raise ValueError(f"a UUID has 16 bytes, not {len(data)}")
    text = data.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _bad(path: str, reason: str) -> BadDeletionVectorError:
    return BadDeletionVectorError(path=path, reason=reason, remedy=_REWRITE)
