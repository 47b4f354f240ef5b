"""Rows of a data file at known positions, at the cost of the pages that hold them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from txlog.arrow import arrow_array
from txlog.parquet.file_footer import FOOTER_END, FileFooter, footer_bytes, open_buffer
from txlog.parquet.footer import Footer, Numbers, parse_footer
from txlog.parquet.miniature import (
    ByteRange,
    FetchedBytes,
    PickedPages,
    byte_ranges,
    leaves_of,
    merge_ranges,
    miniature,
    missing_indexes,
    pick_pages,
)
from txlog.parquet.thrift import ThriftError
from txlog.store.base import Store, is_far, map_many

_FAR_GAP = 1 << 20  # Bytes between two ranges that are still one request, far away,
_NEAR_GAP = 1 << 12  # and on a local disk.
_DECODED_AT_ONCE = 32 << 20  # Bytes of pages.
_CACHED_BYTES = 64 << 20
_LEAST_BYTES = 256  # That a file takes in a cache.

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(slots=True)
class PagedFile:
    """A data file whose footer is read, and, as far as they were asked for, its offset indexes."""

    store: Store
    name: str
    size: int
    told: FileFooter
    footer: Footer
    cost: int  # Bytes that its footer takes, about.
    grow: Callable[[int], None] = lambda _: None  # Told how many more the offset indexes take.

    def rows_at(self, columns: Sequence[str], positions: Numbers) -> pa.Table | None:
        """Return rows at ascending positions of the file; None where row groups cost less.

        Parameters
        ----------
        columns
            Names of columns at the top of the file's schema.

        Raises
        ------
        ArrowException, OSError, StoreError
            The pages cannot be read or decoded.
        """
        if not self.footer.columns.keys() >= set(columns):
            return None
        try:
            picks = self._picked(columns, positions)
            return None if picks is None else self._decoded(columns, picks)
        except ThriftError:
            return None  # pyarrow says what is wrong with the file, if it has more luck.

    def _picked(
        self, columns: Sequence[str], positions: Numbers
    ) -> list[tuple[PickedPages, Numbers]] | None:
        """Return pages, and the positions of the wanted rows in their row groups."""
        footer = self.footer
        ends = np.cumsum(np.array(footer.group_rows, np.int64))
        groups = np.searchsorted(ends, positions, "right")
        borders = np.flatnonzero(np.diff(groups)) + 1
        wanted = [
            (int(footer_group), part - (ends[footer_group] - footer.group_rows[footer_group]))
            for footer_group, part in zip(
                groups[np.append(0, borders)], np.split(positions, borders), strict=True
            )
        ]
        if not self._load_indexes(columns, [group for group, _ in wanted]):
            return None
        picks: list[tuple[PickedPages, Numbers]] = []
        total = 0
        for group, part in wanted:
            picks += [(pick, part) for pick in pick_pages(footer, group, columns, part)]
            chunks = footer.row_group(group).chunks
            total += sum(chunks[leaf].size for leaf in leaves_of(footer, columns))
        if 2 * sum(pick.size(footer) for pick, _ in picks) > total:
            return None
        return picks

    def _load_indexes(self, columns: Sequence[str], groups: Sequence[int]) -> bool:
        """Read the offset indexes of columns that are not known yet; False if there are none."""
        footer = self.footer
        places: list[tuple[int, int, ByteRange]] = []
        for group in groups:
            missing = missing_indexes(footer, group, columns)
            if missing is None:
                return False
            for leaf in missing:
                start, size = footer.row_group(group).chunks[leaf].index or (0, 0)
                places.append((group, leaf, (start, start + size)))
        fetched = self._fetch([place for _, _, place in places])
        size = 0
        for group, leaf, (start, stop) in places:
            pages = footer.keep_pages(group, leaf, fetched.get(start, stop))
            size += 3 * pages.offset.nbytes
        self.grow(size)
        return True

    def _decoded(
        self, columns: Sequence[str], picks: Sequence[tuple[PickedPages, Numbers]]
    ) -> pa.Table:
        """Return the wanted rows of picked pages, in their order."""
        together: dict[tuple[str, ...], list[tuple[PickedPages, Numbers]]] = {}
        for names, parts in self._same_columns(columns, picks):
            together.setdefault(names, []).extend(parts)
        arrays: dict[str, pa.ChunkedArray] = {}
        for names, parts in together.items():
            rows = pa.concat_tables([self._miniature(names, some) for some in self._bounded(parts)])
            arrays.update(zip(names, rows.columns, strict=True))
        return pa.table([arrays[name] for name in columns], names=list(columns))

    def _same_columns(
        self, columns: Sequence[str], picks: Sequence[tuple[PickedPages, Numbers]]
    ) -> Iterator[tuple[tuple[str, ...], list[tuple[PickedPages, Numbers]]]]:
        """Yield picks with the names of their columns, which are the same in all row groups.

        Where row groups group the columns differently, each column is by itself.
        """
        groups = {pick.group for pick, _ in picks}
        sets = {pick.columns for pick, _ in picks}
        if len(sets) * len(groups) == len(picks):
            yield from ((pick.columns, [(pick, part)]) for pick, part in picks)
            return
        for name in columns:
            leaves = range(*self.footer.columns[name])
            for pick, part in picks:
                if name in pick.columns:
                    pages = {leaf: pick.pages[leaf] for leaf in leaves}
                    yield (name,), [(replace(pick, columns=(name,), pages=pages), part)]

    def _bounded(
        self, picks: Sequence[tuple[PickedPages, Numbers]]
    ) -> Iterator[list[tuple[PickedPages, Numbers]]]:
        """Yield picks by so many as are decoded at once."""
        some: list[tuple[PickedPages, Numbers]] = []
        size = 0
        for pick, part in picks:
            size += pick.size(self.footer)
            if some and size > _DECODED_AT_ONCE:
                yield some
                some, size = [], pick.size(self.footer)
            some.append((pick, part))
        yield some

    def _miniature(
        self, names: Sequence[str], picks: Sequence[tuple[PickedPages, Numbers]]
    ) -> pa.Table:
        """Return the wanted rows of pages that cover the same rows in all columns."""
        pages = [pick for pick, _ in picks]
        fetched = self._fetch([place for pick in pages for place in byte_ranges(self.footer, pick)])
        data = miniature(self.footer, pages, fetched)
        covered = open_buffer(data).read(columns=list(names), use_threads=False)
        rows = np.array([pick.num_rows for pick in pages], np.int64)
        if covered.num_rows != rows.sum():
            raise ThriftError(f"pages hold {covered.num_rows} rows, {rows.sum()} were expected")
        before = (np.cumsum(rows) - rows).tolist()
        offsets = [
            start + pick.offsets(part) for start, (pick, part) in zip(before, picks, strict=True)
        ]
        return covered.select(list(names)).take(arrow_array(np.concatenate(offsets)))

    def _fetch(self, ranges: Sequence[ByteRange]) -> FetchedBytes:
        """Read ranges of the file: far away neighbours together, and several at a time."""
        far = is_far(self.store)
        merged = merge_ranges(ranges, gap=_FAR_GAP if far else _NEAR_GAP)

        if far:

            def fetch(place: ByteRange) -> bytes:
                with self.store.open_input(self.name, size=self.size) as source:
                    source.seek(place[0])
                    return bytes(source.read(place[1] - place[0]))

            return FetchedBytes(merged, list(map_many(self.store, fetch, merged)))
        parts = []
        if merged:
            with self.store.open_input(self.name, size=self.size) as source:
                for start, stop in merged:
                    source.seek(start)
                    parts.append(source.read(stop - start))
        return FetchedBytes(merged, parts)


def load_paged(store: Store, name: str, size: int) -> PagedFile | None:
    """Read the footer of a data file; None if its pages cannot be read by themselves.

    Parameters
    ----------
    size
        In bytes, as the log has it; where it is wrong, the answer is None.
    """
    with store.open_input(name, size=size) as source:
        try:
            data = footer_bytes(source, size)
            footer = parse_footer(data[:-FOOTER_END])
        except ValueError:
            return None
    try:
        told = FileFooter.parse(data)
    except UnicodeDecodeError:  # A damaged name of a column.
        return None
    return PagedFile(store, name, size, told, footer, 4 * len(data))


class BoundedCache(Generic[Key, Value]):
    """The values that were used last, of a bounded size together; the last one always stays.

    When they become too large, those that were used least recently go until a quarter is free, so
    that the sizes need not be added up at every call. Threads may share it.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._bytes = 0  # About: threads may miss each other's changes.

    def get(self, key: Key) -> Value | None:
        """Return a value, or None if there is none."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self._entries[key] = entry
        return entry[0]

    def put(self, key: Key, value: Value, size: int) -> None:
        """Keep a value of a size in bytes, in place of an older one."""
        older = self._entries.pop(key, None)
        self._entries[key] = value, size
        self._bytes += size - (0 if older is None else older[1])
        if self._bytes > self.max_bytes:
            self._shrink()

    def grow(self, key: Key, size: int) -> None:
        """Note that a value, if it is still there, takes so many bytes more."""
        entry = self._entries.get(key)
        if entry is not None:
            self.put(key, entry[0], entry[1] + size)

    def _shrink(self) -> None:
        kept = sum(size for _, size in list(self._entries.values()))
        enough = kept if kept <= self.max_bytes else self.max_bytes * 3 // 4
        while kept > enough and len(self._entries) > 1:
            kept -= self._entries.popitem(last=False)[1][1]
        self._bytes = kept


class FooterCache:
    """Footers of data files by their paths and sizes; the bytes of a data file never change."""

    def __init__(self, max_bytes: int = _CACHED_BYTES) -> None:
        self._files: BoundedCache[_FileKey, _Loaded] = BoundedCache(max_bytes)

    def __reduce__(self) -> tuple[type[FooterCache], tuple[int]]:
        return FooterCache, (self._files.max_bytes,)

    def paged(self, store: Store, name: str, size: int) -> PagedFile | None:
        """Return a file; errors and None as of `load_paged`."""
        key = store.root, name, size
        loaded = self._files.get(key)
        if loaded is None:
            file = load_paged(store, name, size)
            loaded = (file,)
            self._files.put(key, loaded, _LEAST_BYTES if file is None else file.cost)
            if file is not None:
                file.grow = partial(self._files.grow, key)
        return loaded[0]


_FileKey = tuple[str, str, int]
_Loaded = tuple[PagedFile | None]
