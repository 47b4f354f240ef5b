"""Rows of a data file at known positions, at the cost of the pages that hold them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from txlog.arrow import rows_among, without_views
from txlog.parquet.file_footer import FOOTER_END, FileFooter, end_bytes, footer_start, open_buffer
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


Picks = list[tuple[PickedPages, Numbers]]
"""Pages of a file, and the positions of the wanted rows in their row groups."""


@dataclass(slots=True)
class PagedFile:
    """A data file whose footer is read, and, as far as they were asked for, its offset indexes."""

    store: Store
    name: str
    size: int
    told: FileFooter
    footer: Footer
    cost: int  # Bytes that its footer takes, about.
    tail: FetchedBytes  # The bytes from `tail_start` on, if offset indexes are among them.
    tail_start: int
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
        try:
            picks = self.picked(columns, positions)
            return None if picks is None else rows_of([(self, picks)], columns)
        except ThriftError:
            return None  # pyarrow says what is wrong with the file, if it has more luck.

    @property
    def layout(self) -> tuple[bytes, bytes | None, bytes | None]:
        """What is the same of files whose pages can be decoded as those of one."""
        return self.footer.schema, self.footer.pairs, self.footer.created_by

    def picked(self, columns: Sequence[str], positions: Numbers) -> Picks | None:
        """Return the pages that hold rows at ascending positions; None: row groups cost less.

        Raises
        ------
        ThriftError
            The file's metadata is damaged.
        """
        footer = self.footer
        if not footer.columns.keys() >= set(columns):
            return None
        ends = np.cumsum(np.array(footer.group_rows, np.int64))
        stops = np.searchsorted(positions, ends)
        starts = np.append(0, stops[:-1])
        wanted = [
            (
                group,
                positions[starts[group] : stops[group]] - (ends[group] - footer.group_rows[group]),
            )
            for group in np.flatnonzero(stops > starts).tolist()
        ]
        if not self._load_indexes(columns, [group for group, _ in wanted]):
            return None
        picks: Picks = []
        total = 0
        for group, part in wanted:
            picks += [(pick, part) for pick in pick_pages(footer, group, columns, part)]
            chunks = footer.row_group(group).chunks
            total += sum(chunks[leaf].size for leaf in leaves_of(footer, columns))
        if 2 * sum(pick.size for pick, _ in picks) > total:
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
        if not places:
            return True
        fetched = self.tail
        if any(start < self.tail_start for _, _, (start, _) in places):
            ((_, fetched),) = fetch([(self, [place for _, _, place in places])])
        size = 0
        for group, leaf, (start, stop) in places:
            pages = footer.keep_pages(group, leaf, fetched.get(start, stop))
            size += 3 * pages.offset.nbytes
        self.grow(size)
        return True


def rows_of(parts: Sequence[tuple[PagedFile, Picks]], columns: Sequence[str]) -> pa.Table:
    """Return the wanted rows of picked pages, in the order of the files.

    Parameters
    ----------
    parts
        Files of the same `layout`, and what `picked` gave for the same columns.

    Raises
    ------
    ThriftError, ArrowException, OSError, StoreError
        The pages cannot be read or decoded, or are other than the files' metadata says.
    """
    wanted = [
        (file, [place for pick, _ in picks for place in byte_ranges(pick)]) for file, picks in parts
    ]
    fetched: list[tuple[PickedPages, Numbers, FetchedBytes]] = [
        (pick, part, data)
        for (_, picks), (_, data) in zip(parts, fetch(wanted), strict=True)
        for pick, part in picks
    ]
    together: dict[tuple[str, ...], list[tuple[PickedPages, Numbers, FetchedBytes]]] = {}
    for pick, part, data in _same_columns(columns, fetched):
        together.setdefault(pick.columns, []).append((pick, part, data))
    arrays: dict[str, pa.ChunkedArray] = {}
    for names, some in together.items():
        rows = pa.concat_tables([_decoded(names, few) for few in _bounded(some)])
        arrays.update(zip(names, rows.columns, strict=True))
    return pa.table([arrays[name] for name in columns], names=list(columns))


_Fetched = tuple[PickedPages, Numbers, FetchedBytes]


def _same_columns(columns: Sequence[str], picks: Sequence[_Fetched]) -> Iterator[_Fetched]:
    """Yield picks whose columns are the same in all row groups.

    Where row groups group the columns differently, each column is by itself.
    """
    groups = {(id(pick.footer), pick.group) for pick, _, _ in picks}
    sets = {pick.columns for pick, _, _ in picks}
    if len(sets) * len(groups) == len(picks):
        yield from picks
        return
    for name in columns:
        for pick, part, data in picks:
            if name in pick.columns:
                leaves = range(*pick.footer.columns[name])
                pages = {leaf: pick.pages[leaf] for leaf in leaves}
                yield replace(pick, columns=(name,), pages=pages), part, data


def _bounded(picks: Sequence[_Fetched]) -> Iterator[list[_Fetched]]:
    """Yield picks by so many as are decoded at once."""
    some: list[_Fetched] = []
    size = 0
    for pick, part, data in picks:
        size += pick.size
        if some and size > _DECODED_AT_ONCE:
            yield some
            some, size = [], pick.size
        some.append((pick, part, data))
    yield some


def _decoded(names: Sequence[str], picks: Sequence[_Fetched]) -> pa.Table:
    """Return the wanted rows of pages that cover the same rows in all columns."""
    data = miniature([(pick, fetched) for pick, _, fetched in picks])
    covered = open_buffer(data).read(columns=list(names), use_threads=False)
    rows = np.array([pick.num_rows for pick, _, _ in picks], np.int64)
    if covered.num_rows != rows.sum():
        raise ThriftError(f"pages hold {covered.num_rows} rows, {rows.sum()} were expected")
    before = (np.cumsum(rows) - rows).tolist()
    offsets = [
        start + pick.offsets(part) for start, (pick, part, _) in zip(before, picks, strict=True)
    ]
    return rows_among(without_views(covered.select(list(names))), np.concatenate(offsets))


def fetch(
    wanted: Sequence[tuple[PagedFile, Sequence[ByteRange]]],
) -> list[tuple[PagedFile, FetchedBytes]]:
    """Read ranges of files: far away neighbours together, and several at a time."""
    far = any(is_far(file.store) for file, _ in wanted)
    merged = [
        (file, merge_ranges(ranges, gap=_FAR_GAP if is_far(file.store) else _NEAR_GAP))
        for file, ranges in wanted
    ]
    if not far:
        return [(file, FetchedBytes(ranges, _read(file, ranges))) for file, ranges in merged]
    single = [(file, [place]) for file, ranges in merged for place in ranges]
    store = wanted[0][0].store
    parts = list(map_many(store, lambda one: _read(*one)[0], single))
    found, begin = [], 0
    for file, ranges in merged:
        found.append((file, FetchedBytes(ranges, parts[begin : begin + len(ranges)])))
        begin += len(ranges)
    return found


def _read(file: PagedFile, ranges: Sequence[ByteRange]) -> list[bytes]:
    """Read ranges of a file one after the other."""
    if not ranges:
        return []
    parts = []
    with file.store.open_input(file.name, size=file.size) as source:
        for start, stop in ranges:
            source.seek(start)
            parts.append(bytes(source.read(stop - start)))
    return parts


def load_paged(
    store: Store, name: str, size: int, tail: tuple[int, bytes] | None = None
) -> PagedFile | None:
    """Read the footer of a data file; None if its pages cannot be read by themselves.

    Parameters
    ----------
    size
        In bytes, as the log has it; where it is wrong, the answer is None.
    tail
        The file's bytes from a position on, if they are known.
    """
    try:
        start, data = _end_of(store, name, size) if tail is None else tail
        end = data[footer_start(data, size) - size :]
        footer = parse_footer(end[:-FOOTER_END])
    except ValueError:
        return None
    try:
        told = FileFooter.parse(end)
    except UnicodeDecodeError:  # A damaged name of a column.
        return None
    held = FetchedBytes([(start, size)], [data])
    return PagedFile(store, name, size, told, footer, 4 * len(end) + len(data), held, start)


def _end_of(store: Store, name: str, size: int) -> tuple[int, bytes]:
    """Return the end of a file, with its footer, and where that begins."""
    with store.open_input(name, size=size) as source:
        data = end_bytes(source, size)
    return size - len(data), data


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

    def __init__(
        self,
        max_bytes: int = _CACHED_BYTES,
        tails: Callable[[str, int], tuple[int, bytes] | None] = lambda *_: None,
    ) -> None:
        """Take what knows the last bytes of a file by its name and size, as `load_paged`."""
        self._files: BoundedCache[_FileKey, _Loaded] = BoundedCache(max_bytes)
        self._tails = tails

    def __reduce__(self) -> tuple[type[FooterCache], tuple[int]]:
        return FooterCache, (self._files.max_bytes,)

    def paged(self, store: Store, name: str, size: int) -> PagedFile | None:
        """Return a file; errors and None as of `load_paged`."""
        key = store.root, name, size
        loaded = self._files.get(key)
        if loaded is None:
            file = load_paged(store, name, size, self._tails(name, size))
            loaded = (file,)
            self._files.put(key, loaded, _LEAST_BYTES if file is None else file.cost)
            if file is not None:
                file.grow = partial(self._files.grow, key)
        return loaded[0]


_FileKey = tuple[str, str, int]
_Loaded = tuple[PagedFile | None]
