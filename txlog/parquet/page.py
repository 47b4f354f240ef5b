"""Pages of a Parquet file: read their headers, check them, and decompress them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa

from txlog.base.thresholds import Threshold
from txlog.parquet.file_footer import FileFooter
from txlog.parquet.thrift import I32, STRUCT, Cursor, ThriftError

DATA_PAGE, DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3  # Values of PageType.
# Values of CompressionCodec; 0 means uncompressed.
_CODECS = {1: "snappy", 6: "zstd", 7: "lz4_raw"}
_ALL_CODECS = {0: "", 2: "gzip", 4: "brotli", **_CODECS}
_MOST_UNPACKED: Threshold = 16 << 20  # Pages of up to this number of bytes are decompressed here.


class PageHeader(NamedTuple):  # One is created for each page, and this costs less than a dataclass.
    """The content of a page's header."""

    kind: int
    values: int  # The number of values, including nulls.
    unpacked: int  # The uncompressed size of the page without its header.
    end: int  # The size of the header.
    # The checksum of the stored page, perhaps as a varint; None without one.
    crc: int | bytes | None
    encoding: int
    levels: int  # The encoding of the levels that mark nulls; -1 for a dictionary.
    rows: int = -1  # Stated by pages of version 2.

    @property
    def is_data(self) -> bool:
        """Whether this is a data page."""
        return self.kind in (DATA_PAGE, _DATA_PAGE_V2)


_VARINT = rb"([\x80-\xff]{0,4}[\x00-\x7f])"
_USUAL = re.compile(
    # A data page with its sizes, perhaps a checksum, the number of values and three encodings, and
    # nothing else.
    rb"\x15\x00\x15" + _VARINT + rb"\x15" + _VARINT + rb"(?:\x15" + _VARINT + rb"\x1c|\x2c)\x15"
    + _VARINT + rb"\x15([\x00-\x7f])\x15([\x00-\x7f])\x15[\x00-\x7f]\x00\x00"
)  # fmt: skip


def page_header(page: bytes) -> PageHeader:
    """Parse the header of a page; raise `ThriftError` if it is damaged or states another size."""
    usual = _USUAL.match(page)
    if usual is None:
        return _any_header(page)
    unpacked, packed, crc, values, encoding, levels = usual.groups()
    end = usual.end()
    numbers = _number(values), _number(unpacked), end, crc, _number(encoding), _number(levels)
    return _sized(page, _number(packed), PageHeader(DATA_PAGE, *numbers))


def _sized(page: bytes, packed: int, header: PageHeader) -> PageHeader:
    if header.values < 0 or header.unpacked < 0 or packed < 0 or header.end + packed != len(page):
        raise ThriftError("the size of a page differs from its offset index")
    return header


def _any_header(page: bytes) -> PageHeader:
    header, packed = _stated(Cursor(page))
    return _sized(page, packed, header)


def _stated(cursor: Cursor) -> tuple[PageHeader, int]:
    """Return the content of a header, and the size of the page after it."""
    numbers: dict[int, int] = {}
    inside: dict[int, int] = {}
    for number, field in cursor.fields():
        if field == I32 and number <= 4:
            numbers[number] = cursor.number()
        elif field == STRUCT and number in (5, 7, 8):
            for inner, inner_kind in cursor.fields():
                if inner_kind == I32:
                    inside[inner] = cursor.number()
                else:
                    cursor.skip(inner_kind)
        else:
            cursor.skip(field)
    kind, unpacked, packed = (numbers.get(number, -1) for number in (1, 2, 3))
    encoding = inside.get(4 if kind == _DATA_PAGE_V2 else 2, -1)
    levels = inside.get(3, -1) if kind == DATA_PAGE else -1
    values, crc = inside.get(1, -1), numbers.get(4)
    rows = inside.get(3, -1) if kind == _DATA_PAGE_V2 else -1
    return PageHeader(kind, values, unpacked, cursor.at, crc, encoding, levels, rows), packed


def _zigzag(data: bytes) -> int:
    """Return the signed number of a varint of at most five bytes."""
    raw = int.from_bytes(data, "little")
    value = (
        raw & 0x7F | raw >> 1 & 0x3F80 | raw >> 2 & 0x1FC000 | raw >> 3 & 0xFE00000
        | raw >> 4 & 0x7F0000000
    )  # fmt: skip
    return (value >> 1) ^ -(value & 1)


_number = lru_cache(4_096)(_zigzag)  # Sizes and counts of pages are often the same.


def page_body(page: bytes, header: PageHeader, codec: int) -> bytes | None:
    """Return the decompressed bytes of a page; None if pyarrow must decompress it.

    Raises
    ------
    ThriftError
        The page does not match its checksum, or it cannot be decompressed.
    """
    size, crc, data = header.unpacked, header.crc, page[header.end :]
    if crc is not None:
        if isinstance(crc, bytes):
            crc = _zigzag(crc)
        if crc32(data) != crc & 0xFFFFFFFF:
            raise ThriftError("a page does not match its checksum")
    if not codec:
        return data if len(data) == size else None
    name = _CODECS.get(codec)
    if name is None or not 0 < size <= _MOST_UNPACKED or not _may_unpack_to(name, data, size):
        return None
    try:
        body: bytes = pa.Codec(name).decompress(data, size, asbytes=True)
    except (pa.ArrowException, OSError) as error:
        raise ThriftError(f"a page cannot be decompressed: {error}") from error
    # The codec does not store the uncompressed size. LZ4 blocks end with literal bytes.
    if name == "lz4_raw" and body[-5:] != data[-min(5, size) :]:
        return None
    return body


def rows_of_page(page: bytes, header: PageHeader, codec: int, levels: int) -> int:
    """Return the number of rows of a data page of a nested column, from its repetition levels.

    Parameters
    ----------
    levels
        The column's largest repetition level.

    Raises
    ------
    ThriftError
        The levels cannot be read.
    """
    if header.kind == _DATA_PAGE_V2:
        return header.rows
    name = _ALL_CODECS.get(codec)
    if name is None or header.unpacked > _MOST_UNPACKED:
        raise ThriftError("the levels of a page cannot be read")
    data = page[header.end :]
    try:
        body = data if not codec else pa.Codec(name).decompress(data, header.unpacked, asbytes=True)
    except (pa.ArrowException, OSError) as error:
        raise ThriftError(f"a page cannot be decompressed: {error}") from error
    end = 4 + int.from_bytes(body[:4], "little")
    cursor, width = Cursor(body, 4, min(end, len(body))), levels.bit_length()
    rows = found = 0
    while found < header.values:
        head = cursor.varint()
        if head & 1:
            packed = np.frombuffer(cursor.take((head >> 1) * width), np.uint8)
            bits = np.unpackbits(packed, bitorder="little").reshape(-1, width)
            inside = bits[: header.values - found].any(axis=1)
            rows += int(np.count_nonzero(~inside))
            found += head >> 1 << 3
        else:
            is_first = not any(cursor.take((width + 7) >> 3))
            rows += min(head >> 1, header.values - found) if is_first else 0
            found += head >> 1
    return rows


def _may_unpack_to(codec: str, data: bytes, size: int) -> bool:
    """Return whether compressed bytes state this uncompressed size, which the codec enforces."""
    try:
        if codec == "snappy":
            return Cursor(data).varint() == size
        if codec == "zstd":
            return _zstd_size(data) == size
    except (ThriftError, IndexError):
        return False
    return True


def _zstd_size(data: bytes) -> int:
    """Return the uncompressed size that a zstd frame states; -1 if it states none."""
    if data[:4] != b"\x28\xb5\x2f\xfd":
        return -1
    flags = data[4]
    is_single = flags >> 5 & 1
    width = (is_single, 2, 4, 8)[flags >> 6]
    at = 6 - is_single + (0, 1, 2, 4)[flags & 3]
    if not width:
        return -1
    return int.from_bytes(data[at : at + width], "little") + (256 if width == 2 else 0)


_HEADER_BYTES = 256, 1 << 20  # The usual and the largest size of a header.
# The largest uncompressed size of a column in a row group. Up to `_MOST_TIMES` its compressed size,
# a column may also be larger.
_UNPACKED_BYTES = 256 << 20
_MOST_TIMES = 1_000
_UNPACKED_VALUES = 1 << 25  # The same for the number of values of a column of lists or maps.


def require_pages(source: Any, footer: FileFooter, group: int, columns: Collection[str]) -> None:
    """Check the page headers of columns, before pyarrow trusts them.

    Parameters
    ----------
    source
        The file, open for random reading.
    footer, group
        The file's footer, and the number of a row group.
    columns
        Paths of leaves, or of structs and lists that contain them.

    Raises
    ------
    pyarrow.ArrowInvalid
        The footer contradicts itself.
    ThriftError
        Pages are not data pages, have another number of values than the footer states, or
        decompress to more bytes than the footer states or the bound allows.
    """
    schema = footer.metadata.schema
    for at, chunk in chunks_of(footer, group, columns):
        flat = not schema.column(at).max_repetition_level
        _require_chunk(source, chunk, footer.rows(group) if flat else None)


def chunks_of(
    footer: FileFooter, group: int, columns: Collection[str]
) -> Iterator[tuple[int, Any]]:
    """Yield the chunks of leaves, and of those in structs, with their numbers.

    Errors are those of `FileFooter.chunk`.
    """
    begins = tuple(f"{column}." for column in columns)
    for at, path in enumerate(footer.paths):
        if path in columns or path.startswith(begins):
            yield at, footer.chunk(group, at)


def chunk_range(chunk: Any) -> tuple[int, int]:
    """Return the start and the end of a chunk in its file, from pyarrow's metadata."""
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    return start, start + chunk.total_compressed_size


def _require_chunk(source: Any, chunk: Any, rows: int | None) -> None:
    at, stop = chunk_range(chunk)
    most = max(_UNPACKED_BYTES, _MOST_TIMES * (stop - at))
    left, values = min(chunk.total_uncompressed_size, most), 0
    while at < stop:
        header, packed = _header_at(source, at, stop)
        at += header.end + packed
        left -= header.end + header.unpacked
        if header.unpacked < 0 or packed < 0 or left < 0 or at > stop:
            raise ThriftError(f"a page at byte {at - packed} is larger than its column can be")
        if header.is_data and header.values >= 0:
            values += header.values
        elif header.kind != DICTIONARY_PAGE:
            raise ThriftError(f"a page at byte {at - packed} is of the kind {header.kind}")
    expected = chunk.num_values if rows is None else rows
    if values != expected:
        raise ThriftError(
            f"a column has {expected} values according to the footer, but {values} in its pages"
        )
    if rows is None and values > max(_UNPACKED_VALUES, _MOST_TIMES * chunk.total_compressed_size):
        raise ThriftError(f"a column of {values} values has {chunk.total_compressed_size} bytes")


def _header_at(source: Any, at: int, stop: int) -> tuple[PageHeader, int]:
    """Return the result of `_stated` for a header in a file."""
    few, many = _HEADER_BYTES
    while True:
        source.seek(at)
        try:
            return _stated(Cursor(bytes(source.read(min(few, stop - at)))))
        except ThriftError:
            if few == many or at + few >= stop:
                raise
            few = many
