"""Copy the pages that hold wanted rows into a small Parquet file, which pyarrow decodes.

pyarrow reads only whole column chunks. So the pages that hold the wanted rows are copied unchanged,
one after another, and a footer that describes only these pages is appended. pyarrow decodes this
file, with all codecs, encodings and nested types.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from txlog.parquet.file_footer import MAGIC
from txlog.parquet.footer import Chunk, Footer, Numbers, PageStarts
from txlog.parquet.page import page_header, rows_of_page
from txlog.parquet.thrift import STRUCT, ThriftError, list_header, zigzag

ByteRange = tuple[int, int]
"""A range of a file's bytes: the first byte, and the byte after the last."""


@dataclass(frozen=True, slots=True)
class PickedPages:
    """Pages of a row group that hold wanted rows. The pages of all columns cover the same rows.

    Parameters
    ----------
    columns
        Names of top-level columns.
    starts, counts
        The covered rows as ascending ranges with gaps between them, from the row group's first row.
    pages
        For each leaf of the columns, the numbers of its pages.
    size
        The size of the pages in bytes, without dictionaries.
    """

    footer: Footer
    group: int
    columns: tuple[str, ...]
    starts: Numbers
    counts: Numbers
    pages: Mapping[int, Numbers]
    size: int

    @property
    def num_rows(self) -> int:
        """The number of covered rows."""
        return int(self.counts.sum())

    def offsets(self, positions: Numbers) -> Numbers:
        """Return the index of rows of the row group among all covered rows."""
        before = np.cumsum(self.counts) - self.counts
        if len(before) == 1:
            ranges = np.zeros(1, np.int64)
        else:
            ranges = np.searchsorted(self.starts, positions, "right") - 1
        return before[ranges] + positions - self.starts[ranges]


def leaves_of(footer: Footer, columns: Sequence[str]) -> list[int]:
    """Return the leaves of top-level columns."""
    return [leaf for name in columns for leaf in range(*footer.columns[name])]


def missing_indexes(footer: Footer, group: int, columns: Sequence[str]) -> list[int] | None:
    """Return the leaves whose offset index is not parsed yet; None if a leaf has no index."""
    chunks = footer.row_group(group).chunks
    leaves = leaves_of(footer, columns)
    if any(chunks[leaf].index is None for leaf in leaves):
        return None
    return [leaf for leaf in leaves if footer.pages(group, leaf) is None]


def pick_pages(
    footer: Footer, group: int, columns: Sequence[str], positions: Numbers
) -> list[PickedPages]:
    """Return the pages that hold rows of a row group.

    Columns whose pages cover the same rows are picked together.

    Parameters
    ----------
    positions
        Ascending, from the row group's first row. The columns' offset indexes must be parsed.
    """
    rows = footer.group_rows[group]
    covers: dict[tuple[bytes, bytes], tuple[list[str], Numbers, Numbers, dict[int, Numbers]]] = {}
    known: dict[int, _Cover] = {}  # The pages of most columns begin at the same rows.
    for name in columns:
        first, stop = footer.columns[name]
        pages = [_pages(footer, group, leaf) for leaf in range(first, stop)]
        found = [_cover(starts.first_row, positions, rows, known) for starts in pages]
        numbers = [cover.numbers for cover in found]
        cover = found[0]
        if any(other.key != cover.key for other in found[1:]):
            cover = _Cover.of(np.zeros(0, np.int64), np.zeros(1, np.int64), np.array([rows]))
            numbers = [np.arange(len(starts.offset)) for starts in pages]
        together = covers.setdefault(cover.key, ([], cover.starts, cover.counts, {}))
        together[0].append(name)
        together[3].update(zip(range(first, stop), numbers, strict=True))
    return [
        PickedPages(
            footer, group, tuple(names), starts, counts, values, _size(footer, group, values)
        )
        for names, starts, counts, values in covers.values()
    ]


@dataclass(frozen=True, slots=True)
class _Cover:
    """The pages of a leaf that hold wanted rows, and the rows that they cover."""

    numbers: Numbers
    starts: Numbers
    counts: Numbers
    key: tuple[bytes, bytes]  # Equal if the rows are the same.

    @classmethod
    def of(cls, numbers: Numbers, starts: Numbers, counts: Numbers) -> _Cover:
        return cls(numbers, starts, counts, (starts.tobytes(), counts.tobytes()))


def _cover(first_row: Numbers, positions: Numbers, rows: int, known: dict[int, _Cover]) -> _Cover:
    """Return the pages that `positions` need; `known` caches the result for equal page starts."""
    cover = known.get(id(first_row))
    if cover is None:
        numbers = _holding(first_row, positions)
        cover = known[id(first_row)] = _Cover.of(numbers, *_covered(first_row, numbers, rows))
    return cover


def _size(footer: Footer, group: int, pages: Mapping[int, Numbers]) -> int:
    sizes = [_pages(footer, group, leaf).size[numbers] for leaf, numbers in pages.items()]
    return int(np.concatenate(sizes).sum())


def _pages(footer: Footer, group: int, leaf: int) -> PageStarts:
    pages = footer.pages(group, leaf)
    assert pages is not None, "the offset index was not parsed"
    return pages


def _holding(first_row: Numbers, positions: Numbers) -> Numbers:
    """Return the numbers of the pages that hold ascending positions."""
    # All pages between the first and the last.
    if positions[-1] - positions[0] == len(positions) - 1:
        first, last = np.searchsorted(first_row, positions[[0, -1]], "right") - 1
        return np.arange(first, last + 1)
    numbers = np.searchsorted(first_row, positions, "right") - 1
    distinct = np.ones(len(numbers), bool)
    distinct[1:] = numbers[1:] != numbers[:-1]
    return numbers[distinct]


def _page_rows(first_row: Numbers, numbers: Numbers, rows: int) -> Numbers:
    """Return the number of rows of pages."""
    last = len(first_row) - 1
    ends = first_row[np.minimum(numbers + 1, last)]
    if numbers[-1] == last:
        ends[-1] = rows
    return ends - first_row[numbers]


def _covered(first_row: Numbers, numbers: Numbers, rows: int) -> tuple[Numbers, Numbers]:
    """Return the rows of pages as ranges with gaps between them: starts and counts."""
    counts = _page_rows(first_row, numbers, rows)
    if len(numbers) == 1:
        return first_row[numbers], counts
    first = np.flatnonzero(np.diff(numbers, prepend=-2) > 1)
    return first_row[numbers[first]], np.add.reduceat(counts, first)


def byte_ranges(picked: PickedPages) -> list[ByteRange]:
    """Return the byte ranges of picked pages and dictionaries; adjacent ranges are merged."""
    found: list[ByteRange] = []
    footer = picked.footer
    chunks = footer.row_group(picked.group).chunks
    for leaf, numbers in picked.pages.items():
        pages = _pages(footer, picked.group, leaf)
        first = int(pages.offset[0])
        if chunks[leaf].start < first:
            found.append((chunks[leaf].start, first))
        offsets, ends = pages.offset[numbers], pages.offset[numbers] + pages.size[numbers]
        found += zip(offsets.tolist(), ends.tolist(), strict=True)
    return merge_ranges(found, gap=0)


def merge_ranges(ranges: Sequence[ByteRange], *, gap: int) -> list[ByteRange]:
    """Sort ranges, and merge those that are at most `gap` bytes apart."""
    merged: list[ByteRange] = []
    for start, stop in sorted(ranges):
        if merged and start <= merged[-1][1] + gap:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((start, stop))
    return merged


class FetchedBytes:
    """Ranges of a file's bytes."""

    def __init__(self, ranges: Sequence[ByteRange], parts: Sequence[bytes]) -> None:
        self._starts = [start for start, _ in ranges]
        self._parts = parts

    def get(self, start: int, stop: int) -> bytes:
        """Return bytes within one of the ranges; `ThriftError` if the file ended before."""
        number = bisect_right(self._starts, start) - 1
        begin = start - self._starts[number]
        found = self._parts[number][begin : begin + stop - start]
        if number < 0 or len(found) != stop - start:
            raise ThriftError(f"the file ends before byte {stop}")
        return found


FetchedPages = tuple[PickedPages, FetchedBytes]
"""Picked pages, with a file's bytes that contain at least their `byte_ranges`."""


def miniature(picks: Sequence[FetchedPages]) -> bytes:
    """Build a Parquet file from picked pages, row group by row group.

    Parameters
    ----------
    picks
        Pages of different row groups with the same columns, from files with the same schema.

    Raises
    ------
    ThriftError
        A page contradicts its offset index.
    """
    parts: list[bytes] = [MAGIC]
    at = len(MAGIC)
    groups: list[bytes] = []
    rows = 0
    for together in _alike(picks):
        first = together[0][0]
        chunks = first.footer.row_group(first.group).chunks
        described: list[bytes] = []
        for leaf, chunk in enumerate(chunks):
            if leaf not in first.pages:
                described.append(_chunk_bytes(chunk, 0, 0, 0, at))
                continue
            pages, values, unpacked = _copied_pages(together, leaf)
            size = sum(map(len, pages))
            described.append(_chunk_bytes(chunk, values, unpacked, size, at))
            parts += pages
            at += size
        count = sum(pick.num_rows for pick, _ in together)
        rows += count
        groups.append(
            b"\x19" + list_header(len(described), STRUCT) + b"".join(described)
            # total_byte_size and num_rows
            + b"\x16" + zigzag(at) + b"\x16" + zigzag(count) + b"\x00"
        )  # fmt: skip
    footer = picks[0][0].footer
    # version, schema, num_rows, row_groups
    tail = b"\x15\x04\x19" + footer.schema + b"\x16" + zigzag(rows)
    tail += b"\x19" + list_header(len(groups), STRUCT) + b"".join(groups)
    if footer.pairs is not None:
        tail += b"\x19" + footer.pairs
    if footer.created_by is not None:
        tail += (b"\x18" if footer.pairs is not None else b"\x28") + footer.created_by
    tail += b"\x00"
    return b"".join([*parts, tail, len(tail).to_bytes(4, "little"), MAGIC])


def _alike(picks: Sequence[FetchedPages]) -> list[list[FetchedPages]]:
    """Group picks that may form one row group: equally encoded and without dictionaries."""
    found: list[list[FetchedPages]] = []
    before: tuple[bytes, ...] | None = None
    for pick, fetched in picks:
        chunks = pick.footer.row_group(pick.group).chunks
        kinds: tuple[bytes, ...] | None = tuple(chunks[leaf].kind for leaf in pick.pages)
        if any(
            chunks[leaf].start < _pages(pick.footer, pick.group, leaf).offset[0]
            for leaf in pick.pages
        ):
            kinds = None
        if kinds is not None and kinds == before:
            found[-1].append((pick, fetched))
        else:
            found.append([(pick, fetched)])
        before = kinds
    return found


def _copied_pages(picks: Sequence[FetchedPages], leaf: int) -> tuple[list[bytes], int, int]:
    """Return a leaf's pages, their number of values, and their uncompressed size."""
    found: list[bytes] = []
    values = unpacked = 0
    for pick, fetched in picks:
        footer = pick.footer
        levels = footer.repeated[leaf]
        row_group = footer.row_group(pick.group)
        codec = row_group.chunks[leaf].codec
        pages = _pages(footer, pick.group, leaf)
        numbers = pick.pages[leaf]
        start, first = row_group.chunks[leaf].start, int(pages.offset[0])
        if start < first:
            found.append(fetched.get(start, first))
            header = page_header(found[-1])
            unpacked += header.end + header.unpacked
        for offset, size, rows in zip(
            pages.offset[numbers].tolist(),
            pages.size[numbers].tolist(),
            _page_rows(pages.first_row, numbers, row_group.rows).tolist(),
            strict=True,
        ):
            page = fetched.get(offset, offset + size)
            header = page_header(page)
            if not header.is_data:
                raise ThriftError("an offset index points to bytes that are not a data page")
            counted = header.values if not levels else rows_of_page(page, header, codec, levels)
            if counted != rows:
                raise ThriftError(f"a page has {counted} rows, its offset index says {rows}")
            found.append(page)
            values += header.values
            unpacked += header.end + header.unpacked
    return found, values, unpacked


def _chunk_bytes(chunk: Chunk, values: int, unpacked: int, size: int, at: int) -> bytes:
    """Return the metadata of a column chunk that begins at a byte offset."""
    return (
        # file_offset; then the metadata: type to codec, num_values, both sizes, data_page_offset
        b"\x26" + zigzag(at) + b"\x1c" + chunk.kind + b"\x16" + zigzag(values)
        + b"\x16" + zigzag(unpacked) + b"\x16" + zigzag(size) + b"\x26" + zigzag(at) + b"\x00\x00"
    )  # fmt: skip
