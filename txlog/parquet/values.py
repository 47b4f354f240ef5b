"""The values of flat columns at a few rows of each page, without a library that decodes pages.

pyarrow decodes a page only in a file that is made around it. If few rows of each page are wanted,
reading their values here is faster: from pages of version 1 with plain or dictionary values of
columns that are not nested. pyarrow decodes everything else, and everything unexpected.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from struct import Struct
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from txlog.base.thresholds import Threshold
from txlog.parquet.file_footer import FileFooter
from txlog.parquet.footer import Footer, Numbers, PageStarts
from txlog.parquet.page import DATA_PAGE, DICTIONARY_PAGE, page_body, page_header
from txlog.parquet.thrift import Cursor, ThriftError, varint

_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8  # Values of Encoding.
MOST_STEPS: Threshold = 2_048  # The number of texts that are skipped one by one.
_FEW_OF_PAGE, _FEW = 4, 64  # With more rows of a page, or of all pages, pyarrow is faster.
_FEW_STEPS: Threshold = 16
_MOST_BYTES = 1 << 30  # The bytes of texts in one array, which may have 2 GiB.
_WIDTHS = {"BOOLEAN": 0, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 0}
_SAME = {  # Arrow types whose values are the values of a Parquet type, or their first bytes.
    "BOOLEAN": {pa.bool_(): 1},
    "INT32": {
        pa.int32(): 4, pa.uint32(): 4, pa.date32(): 4, pa.int16(): 2, pa.uint16(): 2,
        pa.int8(): 1, pa.uint8(): 1,
    },
    "INT64": {pa.int64(): 8, pa.uint64(): 8},
    "FLOAT": {pa.float32(): 4},
    "DOUBLE": {pa.float64(): 8},
    "BYTE_ARRAY": {pa.string(): 0, pa.binary(): 0},
}  # fmt: skip
_UNITS = {"us": "microseconds", "ns": "nanoseconds", "ms": "milliseconds"}
_length = Struct("<I").unpack_from


@dataclass(frozen=True, slots=True)
class FlatColumn:
    """A column whose values can be read here.

    Parameters
    ----------
    kind
        Its type in Arrow.
    physical
        Its type in Parquet.
    width
        The bytes of a value in pages; 0 for booleans (one bit), texts and binary values (any size).
    cut
        The number of bytes of a value that Arrow keeps; 0 means all bytes.
    optional
        Whether it may have nulls.
    """

    kind: pa.DataType
    physical: str
    width: int
    cut: int
    optional: bool


def flat_column(footer: FileFooter, leaf: int, place: int) -> FlatColumn | None:
    """Return a column of a file if its values can be read here.

    Parameters
    ----------
    place
        The place of the column among the top-level columns; `leaf` is its first leaf.
    """
    column = footer.metadata.schema.column(leaf)
    kind, physical = footer.schema.field(place).type, str(column.physical_type)
    if column.max_repetition_level or column.max_definition_level > 1:
        return None
    optional = column.max_definition_level == 1
    cut = _SAME.get(physical, {}).get(kind)
    if cut is not None:
        return FlatColumn(kind, physical, _WIDTHS[physical], cut, optional)
    if pa.types.is_timestamp(kind) and physical == "INT64":
        unit = _UNITS.get(kind.unit)
        same = unit is not None and f"timeUnit={unit}" in str(column.logical_type)
        return FlatColumn(kind, physical, 8, 8, optional) if same else None
    if pa.types.is_decimal128(kind) and physical in ("INT32", "INT64", "FIXED_LEN_BYTE_ARRAY"):
        width = _WIDTHS.get(physical) or int(column.length)
        return FlatColumn(kind, physical, width, 0, optional) if width <= 16 else None
    return None


@dataclass(frozen=True, slots=True)
class Dictionary:
    """The values of a dictionary page; `starts` are the starts of values without a fixed width."""

    data: bytes
    count: int
    width: int
    starts: array[int] | None

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return len(self.data) + (0 if self.starts is None else 4 * len(self.starts))

    def value(self, number: int) -> bytes:
        """Return a value by its number; `ThriftError` if there is none."""
        if number >= self.count:
            raise ThriftError(f"a page names value {number} of {self.count} in its dictionary")
        start = number * self.width if self.starts is None else self.starts[number] + 4
        size = self.width or _length(self.data, start - 4)[0]
        return self.data[start : start + size]


class ChunkPlace(NamedTuple):
    """A column chunk: its row group and the number of its leaf."""

    group: int
    leaf: int


FewRows = tuple[int, int, int, list[int]]
"""A page with few wanted rows: its byte range in the file, its rows, and the wanted rows."""


class FewOfChunk(NamedTuple):
    """The pages of a column chunk that have few wanted rows."""

    chunk: ChunkPlace
    pages: list[FewRows]


@dataclass(frozen=True, slots=True)
class ColumnsOfGroup:
    """Some columns of a row group: those whose values can be read here, and the others.

    Parameters
    ----------
    flat
        The flat columns by name, with the pages of their chunks.
    size
        The size of all chunks in bytes.
    """

    flat: tuple[tuple[str, ChunkPlace, PageStarts], ...]
    others: tuple[str, ...]
    size: int
    has_small_pages: bool  # Those of `flat`.


def add_few(
    footer: Footer,
    columns: ColumnsOfGroup,
    positions: Numbers,
    few: dict[str, list[FewOfChunk]],
) -> int | None:
    """Add the pages of flat columns that have wanted rows of a row group.

    Parameters
    ----------
    positions
        Ascending, from the row group's first row.
    few
        The pages are added to it, by the columns' names.

    Returns
    -------
    int or None
        The size of the pages in bytes; None if so many rows are wanted that pyarrow is faster.
    """
    known: dict[int, list[tuple[int, int, list[int]]]] = {}  # Most columns have the same pages.
    total = 0
    numbers: list[int] = []
    for name, chunk, pages in columns.flat:
        first_row, offset, size = pages.first_row, pages.offset, pages.size
        places = known.get(id(first_row))
        if places is None:
            if len(positions) > _FEW:  # First a quick check: do the positions span enough pages?
                first, last = np.searchsorted(first_row, positions[[0, -1]], "right").tolist()
                if len(positions) > _FEW_OF_PAGE * (last - first + 1) + _FEW:
                    return None
            numbers = numbers or positions.tolist()
            rows = footer.group_rows[chunk.group]
            places = known[id(first_row)] = _by_page(first_row, numbers, rows)
            if len(positions) > _FEW_OF_PAGE * len(places) + _FEW:
                return None
        pages_of = []
        for page, count, wanted in places:
            start, length = offset.item(page), size.item(page)
            pages_of.append((start, start + length, count, wanted))
            total += length
        few[name].append(FewOfChunk(chunk, pages_of))
    return total


def _by_page(
    first_row: Numbers, positions: Sequence[int], rows: int
) -> list[tuple[int, int, list[int]]]:
    """Return the pages that have positions: their numbers, their row counts, the wanted rows."""
    found = []
    last, at, count = len(first_row) - 1, 0, len(positions)
    while at < count:
        page = bisect_right(first_row, positions[at]) - 1
        start = first_row.item(page)
        stop = first_row.item(page + 1) if page < last else rows
        end = bisect_left(positions, stop, at)
        found.append((page, stop - start, [position - start for position in positions[at:end]]))
        at = end
    return found


def read_dictionary(page: bytes, column: FlatColumn, codec: int) -> Dictionary | None:
    """Return the dictionary of a page; None if pyarrow must decode it; raises `ThriftError`."""
    header = page_header(page)
    if header.kind != DICTIONARY_PAGE or header.encoding not in (_PLAIN, _PLAIN_DICTIONARY):
        return None
    if column.physical == "BOOLEAN" or (not column.width and header.values > MOST_STEPS):
        return None
    data = page_body(page, header, codec)
    if data is None:
        return None
    if column.width:
        if len(data) < header.values * column.width:
            raise ThriftError("a dictionary ends before its last value")
        return Dictionary(data, header.values, column.width, None)
    return Dictionary(data, header.values, 0, array("I", _starts(data, 0, range(header.values))))


def values_of_page(
    page: bytes,
    rows: int,
    places: Sequence[int],
    column: FlatColumn,
    codec: int,
    dictionary: Dictionary | None,
) -> Sequence[bytes | None] | None:
    """Return values of a page as bytes; None if pyarrow must decode it.

    Parameters
    ----------
    rows
        The page's row count in the offset index.
    places
        The places of the wanted rows, ascending.
    dictionary
        The dictionary of the column chunk, if it is known.

    Raises
    ------
    ThriftError
        The page is damaged, or contradicts its offset index.
    """
    header = page_header(page)
    if header.kind != DATA_PAGE or (column.optional and header.levels != _RLE):
        return None
    if header.values != rows:
        raise ThriftError(f"a page has {header.values} values, its offset index says {rows}")
    data = page_body(page, header, codec)
    if data is None:
        return None
    start, ranks, present = 0, places, None
    if column.optional:
        start = 4 + _length_at(data, 0)
        levels = data[4:start]
        if levels != _all_there(rows):
            present = _present(levels, places)
            ranks = [rank for rank in present if rank is not None]
    # A page without levels must be as long as its values, because the schema may wrongly say that
    # there are no nulls.
    exact = None if column.optional else rows
    if not ranks:
        values: Sequence[bytes] | None = ()
    elif header.encoding == _PLAIN:
        values = _plain_values(data, start, ranks, column, exact)
    elif dictionary is not None and header.encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY):
        values = list(map(dictionary.value, _numbers(data, start, ranks, exact)))
    else:
        return None
    if present is None or values is None:
        return values
    known = iter(values)
    return [None if rank is None else next(known) for rank in present]


@lru_cache(1_024)
def _all_there(rows: int) -> bytes:
    """Return the levels of a page without nulls, as most writers write them."""
    return varint(rows << 1) + b"\1"


def _length_at(data: bytes, at: int) -> int:
    if at + 4 > len(data):
        raise ThriftError("a page ends before its values")
    return int(_length(data, at)[0])


def _present(levels: bytes, places: Sequence[int]) -> list[int | None]:
    """Return for each row the number of values before it in the page; None for a null row."""
    found: list[int | None] = []
    stop, before, at, wanted = 0, 0, 0, places[0]
    while True:
        head, at = _head(levels, at)
        count, size = (head >> 1 << 3, head >> 1) if head & 1 else (head >> 1, 1)
        bits, at = int.from_bytes(levels[at : at + size], "little"), at + size
        if at > len(levels):
            raise ThriftError("the levels of a page end before its last row")
        start, stop = stop, stop + count
        if stop > wanted:  # Most runs have no wanted row.
            some = places[len(found) : bisect_left(places, stop)]
            if head & 1:  # One bit for each row, in groups of eight.
                for row in [place - start for place in some]:
                    rank = before + (bits & ((1 << row) - 1)).bit_count()
                    found.append(rank if bits >> row & 1 else None)
            else:
                found += [before + place - start if bits == 1 else None for place in some]
            if len(found) == len(places):
                return found
            wanted = places[len(found)]
        before += bits.bit_count() if head & 1 else count * (bits == 1)


def _head(data: bytes, at: int) -> tuple[int, int]:
    """Return the header of a run of numbers, and the place after it."""
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    cursor = Cursor(data, at)
    return cursor.varint(), cursor.at


def _numbers(data: bytes, at: int, ranks: Sequence[int], exact: int | None) -> list[int]:
    """Return numbers of a dictionary's values, by their ranks among the values of the page.

    `exact` is the exact number of values, if it is known.
    """
    width, at = _head(data, at)
    if width > 32:
        raise ThriftError(f"a page has numbers of {width} bits")
    mask, octets = (1 << width) - 1, (width + 7) >> 3
    found: list[int] = []
    first = 0
    while len(found) < len(ranks) or (exact is not None and first < exact):
        head, at = _head(data, at)
        if head & 1:
            count = head >> 1 << 3
            stop = bisect_left(ranks, first + count)
            for rank in ranks[len(found) : stop]:
                bit = (rank - first) * width
                begin, end = at + (bit >> 3), at + ((bit + width + 7) >> 3)
                if end > len(data):
                    raise ThriftError("a page ends before its last value")
                found.append(int.from_bytes(data[begin:end], "little") >> (bit & 7) & mask)
            at += (head >> 1) * width
        else:
            count = head >> 1
            value = int.from_bytes(data[at : at + octets], "little")
            at += octets
            stop = bisect_left(ranks, first + count)
            found += [value] * (stop - len(found))
        first += count
    if exact is not None and at < len(data):  # The last group may be cut off.
        raise ThriftError("a page is larger than its values")
    return found


def _plain_values(
    data: bytes, start: int, ranks: Sequence[int], column: FlatColumn, exact: int | None
) -> Sequence[bytes] | None:
    """Return values by their ranks; None if there are too many texts before them.

    `exact` is the exact number of values, if it is known.
    """
    width = column.width
    if column.physical == "BOOLEAN":
        if start + (ranks[-1] >> 3) >= len(data) or (exact and len(data) != (exact + 7) >> 3):
            raise ThriftError("a page is larger or smaller than its values")
        return [b"\1" if data[start + (rank >> 3)] >> (rank & 7) & 1 else b"\0" for rank in ranks]
    if width:
        end = start + ((ranks[-1] + 1) if exact is None else exact) * width
        if end > len(data) or (exact and end != len(data)):
            raise ThriftError("a page is larger or smaller than its values")
        return [data[(at := start + rank * width) : at + width] for rank in ranks]
    if (exact or ranks[-1]) >= MOST_STEPS:
        return None
    if exact:
        *starts, last = _starts(data, start, [*ranks, exact - 1])
        if last + 4 + _length_at(data, last) != len(data):
            raise ThriftError("a page is larger than its values")
    else:
        starts = _starts(data, start, ranks)
    return [data[at + 4 : at + 4 + _length_at(data, at)] for at in starts]


def _starts(data: bytes, at: int, ranks: Sequence[int]) -> list[int]:
    """Return the starts of texts or bytes of a page, each of which follows its length."""
    found: list[int] = []
    before = 0
    last = len(data) - 4
    for rank in ranks:
        if rank - before > _FEW_STEPS:  # Keys often have equal lengths.
            size = _length_at(data, at)
            end = at + (rank - before) * (size + 4)
            if size < 256 and end <= last and _are_lengths(data, at, end, size):
                before, at = rank, end
        for _ in range(rank - before):
            if at > last:
                break
            at += 4 + _length(data, at)[0]
        if at > last or at + 4 + _length(data, at)[0] > len(data):
            raise ThriftError("a page ends before its last value")
        before = rank
        found.append(at)
    return found


def _are_lengths(data: bytes, at: int, end: int, size: int) -> bool:
    """Return whether all texts after a place have a length below 256."""
    step = size + 4
    count = (end - at) // step
    return data[at:end:step].count(size) == count and not any(
        data[at + byte : end : step].strip(b"\0") for byte in (1, 2, 3)
    )


def values_array(values: list[bytes | None], column: FlatColumn) -> pa.Array | None:
    """Return values of pages as an Arrow array; None if they are too large for one."""
    kind, count = column.kind, len(values)
    valid = None
    nulls = values.count(None)
    if nulls:
        truths = np.array([value is not None for value in values])
        valid = pa.py_buffer(np.packbits(truths, bitorder="little"))
    if column.physical == "BYTE_ARRAY":
        texts = [value or b"" for value in values]
        data = b"".join(texts)
        if len(data) > _MOST_BYTES:
            return None
        offsets = array("i", accumulate(map(len, texts), initial=0))
        buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(kind, count, buffers, nulls)
    if pa.types.is_decimal(kind):
        is_big = column.physical == "FIXED_LEN_BYTE_ARRAY"  # Other values are little-endian.
        digits = [value or b"" for value in values]
        data = b"".join(
            int.from_bytes(some[::-1] if is_big else some, "little", signed=True).to_bytes(
                16, "little", signed=True
            )
            for some in digits
        )
    else:
        nothing = bytes(column.width or 1)
        fixed = [nothing if value is None else value for value in values] if nulls else values
        if column.cut < column.width:
            fixed = [value[: column.cut] for value in fixed if value is not None]
        data = b"".join(fixed)  # type: ignore[arg-type]  # No value is None.
    if column.physical == "BOOLEAN":
        bits = np.packbits(np.frombuffer(data, np.uint8), bitorder="little")
        return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(bits)], nulls)
    return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(data)], nulls)
