"""A Parquet file's footer and offset indexes, which locate each page.

Only the parts that copying pages needs are parsed. Schema, key-value pairs and encodings stay raw
bytes. Row groups are parsed at their first use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from txlog.base.thresholds import Threshold
from txlog.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Cursor, ThriftError

Numbers = NDArray[np.int64]

_REPEATED = 2  # A value of FieldRepetitionType.
_MAX_PAGES = 1 << 24
# Bytes of offset indexes. Parsing uses many times this memory.
_PARSED_AT_ONCE: Threshold = 1 << 20


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column of a row group. Offsets are bytes from the file's start."""

    kind: bytes
    """The raw bytes of fields 1 to 4 of its metadata: type, encodings, path, codec."""
    num_values: int
    start: int
    """The offset of its first page, which is the dictionary if it has one."""
    size: int
    index: tuple[int, int] | None
    """The start and size of its offset index; None if it has none or is encrypted."""

    @property
    def codec(self) -> int:
        """The codec that compresses the pages: a number of Parquet's `CompressionCodec`."""
        return self.kind[-1] >> 1  # It is the last field, and has one byte.


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The number of rows of a row group, and its columns in the order of the schema's leaves."""

    rows: int
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class PageStarts:
    """The data pages of a chunk in order.

    `offset` and `size` are bytes of the file and include headers. `first_row` counts from the row
    group's first row; chunks of a row group with equal values share one array.
    """

    offset: Numbers
    size: Numbers
    first_row: Numbers


@dataclass(slots=True)
class Footer:
    """A parsed footer.

    Parameters
    ----------
    columns
        The top-level columns by name, each with the numbers of its first leaf and of the leaf after
        its last one.
    repeated
        For each leaf, in how many lists and maps it lies: in any, a row may have many values.
    schema, pairs, created_by
        The raw bytes of fields 2, 5 and 6 of the footer, without field headers; `pairs` and
        `created_by` may be None.
    """

    rows: int
    schema: bytes
    pairs: bytes | None
    created_by: bytes | None
    columns: dict[str, tuple[int, int]]
    repeated: list[int]
    group_rows: list[int]
    """The number of rows of each row group."""
    _data: bytes
    _groups: list[int]
    _parsed: dict[int, RowGroup] = field(default_factory=dict)
    _pages: dict[tuple[int, int], PageStarts] = field(default_factory=dict)
    _first_rows: dict[bytes, Numbers] = field(default_factory=dict)

    @property
    def num_row_groups(self) -> int:
        """The number of row groups."""
        return len(self._groups)

    def by_group(self, positions: Numbers) -> list[tuple[int, Numbers]]:
        """Return ascending positions by their row groups, each from its row group's first row."""
        if len(self.group_rows) == 1:
            return [(0, positions)]
        ends = np.cumsum(np.array(self.group_rows, np.int64))
        stops = np.searchsorted(positions, ends)
        starts = np.append(0, stops[:-1])
        return [
            (
                group,
                positions[starts[group] : stops[group]] - (ends[group] - self.group_rows[group]),
            )
            for group in np.flatnonzero(stops > starts).tolist()
        ]

    def page_end(self, columns: Sequence[str], position: int) -> int:
        """Return the position behind the page that has a row, in the largest of some columns.

        `keep_pages` must have stored the pages of the columns.
        """
        ((group, (row,)),) = self.by_group(np.array([position], np.int64))
        chunks = self.row_group(group).chunks
        leaves = [leaf for name in columns for leaf in range(*self.columns[name])]
        first_row = self._pages[group, max(leaves, key=lambda leaf: chunks[leaf].size)].first_row
        ends = np.append(first_row[1:], self.group_rows[group])
        return position + int(ends[np.searchsorted(first_row, row, "right") - 1] - row)

    def dictionary(self, group: int, leaf: int) -> tuple[int, int] | None:
        """Return the byte range of a chunk's dictionary, before its data pages, or None."""
        pages, start = self._pages[group, leaf], self.row_group(group).chunks[leaf].start
        first = pages.offset.item(0)
        return (start, first) if start < first else None

    def row_group(self, number: int) -> RowGroup:
        """Return a row group; `ThriftError` if its bytes are damaged."""
        parsed = self._parsed.get(number)
        if parsed is None:
            parsed = self._parsed[number] = _row_group(
                Cursor(self._data, self._groups[number]), len(self.repeated)
            )
        return parsed

    def pages(self, group: int, leaf: int) -> PageStarts | None:
        """Return the pages that `keep_pages` stored for a chunk."""
        return self._pages.get((group, leaf))

    def keep_pages(self, group: int, indexes: Mapping[int, bytes]) -> int:
        """Parse and store the offset indexes of chunks; errors as for `parse_offset_indexes`.

        Parameters
        ----------
        indexes
            Their bytes by the number of the leaf.

        Returns
        -------
        int
            How many bytes are stored, about.
        """
        row_group, size = self.row_group(group), 0
        chunks = [row_group.chunks[leaf] for leaf in indexes]
        found = parse_offset_indexes(list(indexes.values()), row_group.rows, chunks)
        for leaf, pages in zip(indexes, found, strict=True):
            same = self._first_rows.setdefault(pages.first_row.tobytes(), pages.first_row)
            self._pages[group, leaf] = PageStarts(pages.offset, pages.size, same)
            size += 3 * pages.offset.nbytes
        return size


def parse_footer(data: bytes) -> Footer:
    """Parse the bytes of a footer, given without the length and the magic after it.

    Raises
    ------
    ThriftError
        The bytes are not a footer, or the file is encrypted.
    """
    cursor = Cursor(data)
    rows = 0
    schema: bytes | None = None
    pairs = created_by = None
    columns: dict[str, tuple[int, int]] = {}
    repeated: list[int] = []
    groups: list[int] | None = None
    group_rows: list[int] = []
    for number, kind in cursor.fields():
        start = cursor.at
        if number == 3 and kind == I64:
            rows = cursor.number()
        elif number == 2 and kind == LIST:
            columns, repeated = _schema(cursor)
            schema = data[start : cursor.at]
        elif number == 4 and kind == LIST:
            groups, group_rows = _row_groups(cursor)
        else:
            if number == 8:
                raise ThriftError("the file is encrypted")
            cursor.skip(kind)
            if number == 5 and kind == LIST:
                pairs = data[start : cursor.at]
            elif number == 6 and kind == BINARY:
                created_by = data[start : cursor.at]
    if schema is None or groups is None:
        raise ThriftError("the footer lacks its schema or its row groups")
    if sum(group_rows) != rows:
        raise ThriftError(
            f"the footer states {rows} rows, but its row groups have {sum(group_rows)}"
        )
    return Footer(rows, schema, pairs, created_by, columns, repeated, group_rows, data, groups)


def _row_groups(cursor: Cursor) -> tuple[list[int], list[int]]:
    """Return the offset and the number of rows of each row group."""
    count, kind = cursor.items()
    if count and kind != STRUCT:
        raise ThriftError("row groups are not structs")
    starts: list[int] = []
    rows: list[int] = []
    for _ in range(count):
        starts.append(cursor.at)
        found = -1
        for number, inner in cursor.fields():
            if number == 3 and inner == I64:
                found = cursor.number()
            else:
                cursor.skip(inner)
        if found < 0:
            raise ThriftError(f"row group {len(rows)} has {found} rows")
        rows.append(found)
    return starts, rows


def _schema(cursor: Cursor) -> tuple[dict[str, tuple[int, int]], list[int]]:
    """Return the columns at the top, and in how many repeated groups each leaf is."""
    count, kind = cursor.items()
    if not count or kind != STRUCT:
        raise ThriftError("the schema has no root")
    elements = [_element(cursor) for _ in range(count)]
    columns: dict[str, tuple[int, int]] = {}
    repeated: list[int] = []
    left = [elements[0][1] or 0]  # For each open group: the number of remaining children,
    in_lists = [0]  # and the number of lists around it.
    top, first = "", 0
    for name, children, is_repeated in elements[1:]:
        if not left:
            raise ThriftError("the schema has elements after the last child of its root")
        if len(left) == 1:
            top, first = name, len(repeated)
            if top in columns:
                raise ThriftError(f"two columns have the name {top!r}")
        left[-1] -= 1
        within = in_lists[-1] + is_repeated
        if children is None:
            repeated.append(within)
        else:
            left.append(children)
            in_lists.append(within)
        while left and left[-1] <= 0:
            left.pop()
            in_lists.pop()
        if len(left) <= 1:
            columns[top] = first, len(repeated)
    if left and left[0]:
        raise ThriftError("the schema ends before the last child of its root")
    return columns, repeated


def _element(cursor: Cursor) -> tuple[str, int | None, bool]:
    """Return an element's name, its number of children (None: a leaf), whether it is repeated."""
    name, children, is_repeated = "", None, False
    for number, kind in cursor.fields():
        if number == 4 and kind == BINARY:
            name = cursor.binary().decode("utf-8", "replace")
        elif number == 5 and kind == I32:
            children = cursor.number() or None
        elif number == 3 and kind == I32:
            is_repeated = cursor.number() == _REPEATED
        else:
            cursor.skip(kind)
    return name, children, is_repeated


class ChunkFacts(NamedTuple):
    """What the metadata of a chunk repeats of the schema."""

    kind: int
    """A number of Parquet's enum `Type`, or -1."""
    text_bytes: bool
    """Whether its size statistics state the bytes of its values, as only those of texts may."""
    repetitions: int
    """How many levels of repetition its size statistics count, or 0."""
    definitions: int
    """How many levels of definition its size statistics count, or 0."""


def chunk_facts(data: bytes, at: int) -> list[ChunkFacts]:
    """Return facts of the chunks of all row groups, in order.

    Parameters
    ----------
    data, at
        Bytes that contain a footer, and its start in them.

    Raises
    ------
    ThriftError
        The bytes are no footer.
    """
    cursor, found = Cursor(data, at), []
    for _ in _structs(cursor, 4):  # Row groups,
        for _ in _structs(cursor, 1):  # their chunks,
            facts = ChunkFacts(-1, False, 0, 0)
            for _ in _structs(cursor, 3):  # and the metadata of each.
                facts = _chunk_facts(cursor)
            found.append(facts)
    return found


def _chunk_facts(cursor: Cursor) -> ChunkFacts:
    type_number, text_bytes, counts = -1, False, [0, 0]
    for number, kind in cursor.fields():
        if (number, kind) == (1, I32):
            type_number = cursor.number()
        elif (number, kind) == (16, STRUCT):
            for inner, inner_kind in cursor.fields():
                begin = cursor.at
                cursor.skip(inner_kind)
                text_bytes = text_bytes or inner == 1
                if inner in (2, 3) and inner_kind == LIST:
                    counts[inner - 2], _ = Cursor(cursor.data, begin).items()
        else:
            cursor.skip(kind)
    return ChunkFacts(type_number, text_bytes, *counts)


def _structs(cursor: Cursor, field: int) -> Iterator[None]:
    """Step into a field of the current struct, or into each value of it; skip the others."""
    for number, kind in cursor.fields():
        if (number, kind) == (field, STRUCT):
            yield
        elif (number, kind) == (field, LIST):
            count, of = cursor.items()
            if of != STRUCT:
                raise ThriftError(f"a list at byte {cursor.at} has other values than structs")
            for _ in range(count):
                yield
        else:
            cursor.skip(kind)


def _row_group(cursor: Cursor, leaves: int) -> RowGroup:
    rows = -1
    chunks: tuple[Chunk, ...] = ()
    for number, kind in cursor.fields():
        if number == 1 and kind == LIST:
            count, _ = cursor.items()
            chunks = tuple(_chunk(cursor) for _ in range(count))
        elif number == 3 and kind == I64:
            rows = cursor.number()
        else:
            cursor.skip(kind)
    if rows < 0 or len(chunks) != leaves:
        raise ThriftError(f"a row group has {rows} rows and {len(chunks)} columns")
    return RowGroup(rows, chunks)


def _chunk(cursor: Cursor) -> Chunk:
    kind_bytes, values, start, size = b"", -1, -1, -1
    index_start = index_size = -1
    readable = True
    for number, kind in cursor.fields():
        if number == 3 and kind == STRUCT:
            kind_bytes, values, start, size = _chunk_metadata(cursor)
        elif number == 4 and kind == I64:
            index_start = cursor.number()
        elif number == 5 and kind == I32:
            index_size = cursor.number()
        else:
            # Bytes in another file and encrypted bytes cannot be copied.
            readable = readable and number not in (1, 8, 9)
            cursor.skip(kind)
    index = (index_start, index_size) if index_start > 0 and index_size > 0 and readable else None
    if not kind_bytes or values < 0 or start < 0 or size < 0:
        index = None
    return Chunk(kind_bytes, values, start, size, index)


def _chunk_metadata(cursor: Cursor) -> tuple[bytes, int, int, int]:
    """Return fields 1 to 4 as bytes (none if their order is unusual), value count, start, size."""
    begin = cursor.at
    kind_end, expected = -1, 1
    values = size = data_start = dictionary_start = -1
    for number, kind in cursor.fields():
        if number <= 4:
            cursor.skip(kind)
            if number == expected:
                expected += 1
                kind_end = cursor.at
        elif number == 5 and kind == I64:
            values = cursor.number()
        elif number == 7 and kind == I64:
            size = cursor.number()
        elif number == 9 and kind == I64:
            data_start = cursor.number()
        elif number == 11 and kind == I64:
            dictionary_start = cursor.number()
        else:
            cursor.skip(kind)
    start = min(data_start, dictionary_start) if dictionary_start > 0 else data_start
    return cursor.data[begin:kind_end] if expected == 5 else b"", values, start, size


def parse_offset_indexes(
    indexes: Sequence[bytes], rows: int, chunks: Sequence[Chunk]
) -> list[PageStarts]:
    """Parse offset indexes of a row group. NumPy decodes all of their varints at once.

    Raises
    ------
    ThriftError
        Bytes are not an offset index, or its pages are not consecutive in the chunk from row 0.
    """
    found: list[PageStarts] = []
    some: list[tuple[bytes, int]] = []
    size = 0
    for data in indexes:
        cursor = Cursor(data)
        number, kind = next(cursor.fields(), (0, 0))
        if number != 1 or kind != LIST:
            raise ThriftError("an offset index does not begin with its pages")
        count, kind = cursor.items()
        if not 0 < count <= _MAX_PAGES or kind != STRUCT:
            raise ThriftError(f"an offset index has {count} pages")
        if some and size + len(data) > _PARSED_AT_ONCE:
            found += _consecutive(some, rows, chunks[len(found) :])
            some, size = [], 0
        some.append((data[cursor.at :], count))
        size += len(data)
    return found + (_consecutive(some, rows, chunks[len(found) :]) if some else [])


def _consecutive(
    lists: Sequence[tuple[bytes, int]], rows: int, chunks: Sequence[Chunk]
) -> list[PageStarts]:
    """Return the pages of the first chunks; `lists` has bytes and a number of pages for each."""
    offset, size, first = _locations(lists)
    ends = offset + size
    # pyarrow sometimes writes pages without rows.
    is_odd = (size[1:] <= 0) | (first[1:] < first[:-1]) | (offset[1:] < ends[:-1])
    found, start = [], 0
    for (_, count), chunk in zip(lists, chunks, strict=False):
        stop = start + count
        if (
            first.item(start)
            or size.item(start) <= 0
            or first.item(stop - 1) > rows
            or offset.item(start) < chunk.start
            or ends.item(stop - 1) > chunk.start + chunk.size
            or is_odd[start : stop - 1].any()
        ):
            raise ThriftError("the pages of an offset index are not consecutive in their chunk")
        found.append(PageStarts(offset[start:stop], size[start:stop], first[start:stop]))
        start = stop
    return found


def _locations(lists: Sequence[tuple[bytes, int]]) -> tuple[Numbers, Numbers, Numbers]:
    """Return the offsets, sizes and first rows of page locations, one list after another.

    A location is seven varints: three field headers, three numbers, and the zero at its end.

    Parameters
    ----------
    lists
        For each list the bytes that begin with it, and how many locations it has.
    """
    raw = np.frombuffer(b"".join([data for data, _ in lists]), np.uint8)
    stops = np.cumsum([len(data) for data, _ in lists])
    wanted = np.array([7 * count for _, count in lists])
    last = np.flatnonzero(raw < 0x80)  # The last byte of each varint.
    known = np.searchsorted(last, stops)
    begins = np.append(0, known[:-1])
    if (known - begins < wanted).any():
        raise ThriftError("an offset index ends before its last page")
    before = np.cumsum(wanted) - wanted
    last = last[np.arange(wanted.sum()) + np.repeat(begins - before, wanted)]
    heads = np.empty_like(last)
    heads[1:] = last[:-1] + 1
    heads[before] = np.append(0, stops[:-1])
    lengths = last - heads + 1
    if int(lengths.max()) > 9:
        raise ThriftError("a number of an offset index is too large")
    values = np.zeros(len(last), np.uint64)
    for byte in range(int(lengths.max())):
        longer = lengths > byte
        part = (raw[heads[longer] + byte] & 0x7F).astype(np.uint64)
        values[longer] |= part << np.uint64(7 * byte)
    table = values.reshape(-1, 7)
    if (table[:, [0, 2, 4, 6]] != np.array([0x16, 0x15, 0x16, 0], np.uint64)).any():
        raise ThriftError("an offset index has unexpected fields")
    numbers = (table[:, [1, 3, 5]] >> np.uint64(1)).astype(np.int64)
    if (table[:, [1, 3, 5]] & np.uint64(1)).any():
        raise ThriftError("an offset index has negative numbers")
    return numbers[:, 0], numbers[:, 1], numbers[:, 2]
