"""Footers without bounds of columns with NaN. Pure.

Arrow's writer states the minimum and maximum of the other values, and readers that compare NaN as
the greatest value, such as Spark and duckdb, would skip rows by them. parquet-mr states no bounds
if there is a NaN; so do files of txlog.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import pyarrow as pa

from txlog.base.arrow import pq
from txlog.parquet.file_footer import FOOTER_END, MAGIC
from txlog.parquet.thrift import STRUCT, Cursor, field_header, list_header

Span = tuple[int, int, int]
"""A leaf column, by its number, and a range of rows: from the first one to before the last one."""

_METADATA, _STATISTICS = 3, 12  # Fields of ColumnChunk and of ColumnMetaData.
_COLUMN_INDEX = {6, 7}  # Fields of ColumnChunk: the place of the bounds of pages.
_BOUNDS = {1, 2, 5, 6, 7, 8}  # Fields of Statistics; 3 and 4 count nulls and distinct values.


def footer_end(footer: pq.FileMetaData, spans: Collection[Span]) -> bytes:
    """Return the bytes to write after a complete file, so that its end has the right footer.

    Readers begin at the end, so they do not see the footer before it, which cannot be changed: it
    is in the store already.
    """
    sink = pa.BufferOutputStream()
    footer.write_metadata_file(sink)
    bare = sink.getvalue().to_pybytes()[len(MAGIC) : -FOOTER_END]
    found = without_bounds(bare, spans)
    return found + len(found).to_bytes(4, "little") + MAGIC


def without_bounds(footer: bytes, spans: Collection[Span]) -> bytes:
    """Return a footer that states no bounds of columns in row groups that have some of the spans.

    Null counts and the locations of pages stay.

    Parameters
    ----------
    footer
        Its bytes, without the length and the magic after it.

    Raises
    ------
    ThriftError
        The bytes are not a footer.
    """
    cursor, first = Cursor(footer), 0
    later, open_spans = sorted(spans, key=lambda span: -span[1]), list[Span]()

    def row_group(cursor: Cursor) -> bytes:
        nonlocal first, open_spans
        start = first
        first += _rows(Cursor(cursor.data, cursor.at))
        while later and later[-1][1] < first:
            open_spans.append(later.pop())
        open_spans = [span for span in open_spans if start < span[2]]  # Row groups ascend.
        leaves = {leaf for leaf, _, _ in open_spans}
        chunks = iter(range(2**31))

        def column(cursor: Cursor) -> bytes:
            if next(chunks) not in leaves:
                return _whole(cursor, STRUCT)
            metadata = {_STATISTICS: lambda cursor: _copied(cursor, _BOUNDS)}
            return _copied(
                cursor, _COLUMN_INDEX, {_METADATA: lambda cursor: _copied(cursor, (), metadata)}
            )

        return _copied(cursor, (), {1: lambda cursor: _each(cursor, column)})

    return _copied(cursor, (), {4: lambda cursor: _each(cursor, row_group)})


def _rows(cursor: Cursor) -> int:
    """Return the number of rows of a row group."""
    for number, kind in cursor.fields():
        if number == 3:
            return cursor.number()
        cursor.skip(kind)
    return 0


_Copy = Callable[[Cursor], bytes]


def _copied(
    cursor: Cursor, omitted: Collection[int], changed: dict[int, _Copy] | None = None
) -> bytes:
    """Return a struct without some of its fields, and with others changed."""
    parts, last = [], 0
    for number, kind in cursor.fields():
        copy = (changed or {}).get(number)
        value = _whole(cursor, kind) if copy is None else copy(cursor)
        if number not in omitted:
            parts += [field_header(number, last, kind), value]
            last = number
    return b"".join((*parts, b"\x00"))


def _each(cursor: Cursor, copy: _Copy) -> bytes:
    """Return a list of structs, each of them changed."""
    count, kind = cursor.items()
    return list_header(count, kind) + b"".join([copy(cursor) for _ in range(count)])


def _whole(cursor: Cursor, kind: int) -> bytes:
    start = cursor.at
    cursor.skip(kind)
    return cursor.data[start : cursor.at]
