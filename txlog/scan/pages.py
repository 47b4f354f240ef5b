"""Read rows of a data file at known positions by reading only their pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from txlog.base.columns import flat, rows_among, without_views
from txlog.base.threads import BoundedCache
from txlog.base.thresholds import Threshold
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
from txlog.parquet.values import (
    MOST_STEPS,
    ChunkPlace,
    ColumnsOfGroup,
    Dictionary,
    FewOfChunk,
    FlatColumn,
    add_few,
    flat_column,
    read_dictionary,
    values_array,
    values_of_page,
)
from txlog.store.base import Store, is_far
from txlog.store.ranged import FileRanges, read_concurrently

_FAR_GAP: Threshold = 1 << 20  # Ranges with at most this gap are one request to a remote store;
_NEAR_GAP: Threshold = 1 << 12  # the same for a local disk.
_DECODED_AT_ONCE: Threshold = 32 << 20  # The bytes of pages that are decoded at a time.
_CACHED_BYTES: Threshold = 64 << 20
_LEAST_BYTES = 256  # The smallest size of a file in a cache.
MANY_ROWS, _SMALL_PAGE = 512, 2_048  # pyarrow's threads read many rows from pages of few rows.

Picks = list[tuple[PickedPages, Numbers]]
"""Pages of a file, and the positions of the wanted rows in their row groups."""


@dataclass(frozen=True, slots=True)
class Picked:
    """The pages of a file that contain wanted rows, ascending.

    Parameters
    ----------
    few
        The pages of columns whose values are decoded here, by the columns' names.
    picks
        The pages of all other columns, which pyarrow decodes.
    size
        The size of all pages in bytes, without dictionaries.
    """

    positions: Numbers
    few: Mapping[str, list[FewOfChunk]]
    picks: Picks
    size: int


@dataclass(slots=True)
class PagedFile:
    """A data file with its parsed footer and the offset indexes that were used."""

    store: Store
    name: str
    size: int
    parsed: FileFooter
    footer: Footer
    cost: int  # The approximate size of the footer in memory, in bytes.
    tail: FetchedBytes  # The bytes from `tail_start` on, which may contain offset indexes.
    tail_start: int
    grow: Callable[[int], None] = lambda _: None  # It is called with the bytes of new indexes.
    opened: tuple[object, int, object] | None = None  # A plan, a fragment, and its `OpenFile`.
    _flat: dict[str, FlatColumn | None] = field(default_factory=dict)
    _dictionaries: dict[ChunkPlace, Dictionary | None] = field(default_factory=dict)
    _columns: dict[tuple[int, tuple[str, ...]], ColumnsOfGroup] = field(default_factory=dict)

    def read_rows(self, columns: Sequence[str], positions: Numbers) -> pa.Table | None:
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
            picked = self.picked(columns, positions)
            if picked is None:
                return None
            return pa.Table.from_batches([decode_rows([(self, picked)], columns)])
        except ThriftError:
            return None  # pyarrow then reads the file, or raises the error.

    @property
    def layout(self) -> tuple[bytes, bytes | None, bytes | None]:
        """The properties that files share if their pages can be decoded together."""
        return self.footer.schema, self.footer.pairs, self.footer.created_by

    def picked(
        self, columns: Sequence[str], positions: Numbers, many: bool = False
    ) -> Picked | None:
        """Return the pages with rows at ascending positions; None if row groups cost less.

        `many`: at least `MANY_ROWS` of all files are wanted. Damaged metadata is a `ThriftError`.
        """
        footer, names = self.footer, tuple(columns)
        wanted = footer.by_group(positions)
        new = [group for group, _ in wanted if (group, names) not in self._columns]
        if new and not (footer.columns.keys() >= set(names) and self._load_indexes(names, new)):
            return None
        kinds = [
            self._columns.get((group, names)) or self._kinds(group, names) for group, _ in wanted
        ]
        few: dict[str, list[FewOfChunk]] = {name: [] for name, _, _ in kinds[0].flat}
        size = 0
        for (_, part), kind in zip(wanted, kinds, strict=True):
            # A column is decoded in the same way in all row groups. Meanwhile another thread may
            # have left columns to pyarrow.
            added = None
            if few and kind.others == kinds[0].others and not (many and kind.has_small_pages):
                added = add_few(footer, kind, part, few)
            if added is None:
                few, size = {}, 0
                break
            size += added
        others = kinds[0].others if few else names
        picks: Picks = []
        for group, part in wanted if others else ():
            for pick in pick_pages(footer, group, others, part):
                picks.append((pick, part))
                size += pick.size
        total = sum([kind.size for kind in kinds])
        return None if 2 * size > total else Picked(positions, few, picks, size)

    def _kinds(self, group: int, names: tuple[str, ...]) -> ColumnsOfGroup:
        """Group a row group's columns by how they are read; their offset indexes are known."""
        footer = self.footer
        flat, others = [], []
        for name in names:
            leaf, stop = footer.columns[name]
            pages = footer.pages(group, leaf)
            if stop == leaf + 1 and pages is not None and self.flat_column(name) is not None:
                flat.append((name, ChunkPlace(group, leaf), pages))
            else:
                others.append(name)
        chunks = footer.row_group(group).chunks
        size = sum(chunks[leaf].size for leaf in leaves_of(footer, names))
        pages_of = sum([len(pages.offset) for _, _, pages in flat])
        is_small = len(flat) * footer.group_rows[group] <= _SMALL_PAGE * pages_of
        kinds = ColumnsOfGroup(tuple(flat), tuple(others), size, is_small)
        return self._columns.setdefault((group, names), kinds)

    def flat_column(self, name: str) -> FlatColumn | None:
        """Return a column if its values are read without pyarrow, in all row groups."""
        if name not in self._flat:
            leaf = self.footer.columns[name][0]
            found = flat_column(self.parsed, leaf, self.parsed.places[name])
            # The end of a text shows where the next one begins, so texts of long pages take long.
            if found is not None and found.physical == "BYTE_ARRAY" and self._is_long(leaf):
                found = None
            self._flat[name] = found
        return self._flat[name]

    def _is_long(self, leaf: int) -> bool:
        """Return whether a chunk of the column has pages of many rows, and no dictionary."""
        footer = self.footer
        return any(
            rows > MOST_STEPS * len(pages.offset) and footer.dictionary(group, leaf) is None
            for group, rows in enumerate(footer.group_rows)
            if (pages := footer.pages(group, leaf)) is not None
        )

    def leave(self, names: Iterable[str]) -> None:
        """Leave the values of columns to pyarrow from now on."""
        self._flat.update(dict.fromkeys(names))
        self._columns.clear()

    def ranges(self, picked: Picked) -> list[ByteRange]:
        """Return the byte ranges that `picked` needs, including dictionaries not read yet."""
        found: list[ByteRange] = []
        for chunks in picked.few.values():
            for chunk, pages in chunks:
                found += [(start, stop) for start, stop, _, _ in pages]
                place = self._dictionary_place(chunk)
                if place is not None:
                    found.append(place)
        for pick, _ in picked.picks:
            found += byte_ranges(pick)
        return found

    def add_values(
        self,
        found: list[bytes | None],
        few: Sequence[FewOfChunk],
        column: FlatColumn,
        fetched: FetchedBytes,
    ) -> bool:
        """Add the values of a column; False if pyarrow has to decode it.

        Raises
        ------
        ThriftError
            A page is damaged, or differs from its offset index.
        """
        for chunk, pages in few:
            codec = self.footer.row_group(chunk.group).chunks[chunk.leaf].codec
            place = self._dictionary_place(chunk)
            if place is not None:
                new = read_dictionary(fetched.get(*place), column, codec)
                self._dictionaries[chunk] = new
                self.grow(0 if new is None else new.nbytes)
            known = self._dictionaries[chunk]
            for start, stop, rows, places in pages:
                page = fetched.get(start, stop)
                values = values_of_page(page, rows, places, column, codec, known)
                if values is None:
                    return False
                found += values
        return True

    def _dictionary_place(self, chunk: ChunkPlace) -> ByteRange | None:
        """Return the byte range of a dictionary; None if it is known or does not exist."""
        if chunk in self._dictionaries:
            return None
        place = self.footer.dictionary(*chunk)
        if place is None:
            self._dictionaries[chunk] = None
        return place

    def _load_indexes(self, columns: Sequence[str], groups: Sequence[int]) -> bool:
        """Read missing offset indexes of columns; return false if the file does not have them."""
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
            (fetched,) = fetch([(self, [place for _, _, place in places])])
        indexes: dict[int, dict[int, bytes]] = {}
        for group, leaf, (start, stop) in places:
            indexes.setdefault(group, {})[leaf] = fetched.get(start, stop)
        self.grow(sum([footer.keep_pages(group, some) for group, some in indexes.items()]))
        return True


def decode_rows(
    parts: Sequence[tuple[PagedFile, Picked]], columns: Sequence[str]
) -> pa.RecordBatch:
    """Return the wanted rows of picked pages in the order of the files.

    Parameters
    ----------
    parts
        Files of the same `layout`, with the results of `picked` for the same columns. The results
        have the same columns in `few`.

    Raises
    ------
    ThriftError, ArrowException, OSError, StoreError
        The pages cannot be read or decoded, or differ from the files' metadata.
    """
    fetched = fetch([(file, file.ranges(picked)) for file, picked in parts])
    arrays: dict[str, pa.Array | pa.ChunkedArray] = {}
    left: list[str] = []
    for name in parts[0][1].few:
        values = _few_values(parts, fetched, name)
        if values is None:
            left.append(name)
        else:
            arrays[name] = values
    together: dict[tuple[str, ...], list[_Fetched]] = {}
    picks = [
        (pick, part, data)
        for (_, picked), data in zip(parts, fetched, strict=True)
        for pick, part in picked.picks
    ]
    others = [name for name in columns if name not in parts[0][1].few]
    for pick, part, data in _same_columns(others, picks) if picks else ():
        together.setdefault(pick.columns, []).append((pick, part, data))
    for names, some in together.items():
        rows = pa.concat_tables([_decoded(names, few) for few in _bounded(some)])
        arrays.update(zip(names, rows.columns, strict=True))
    if left:
        rows = _left(parts, left)
        arrays.update(zip(left, rows.columns, strict=True))
    return pa.RecordBatch.from_arrays([flat(arrays[name]) for name in columns], names=list(columns))


def _few_values(
    parts: Sequence[tuple[PagedFile, Picked]], fetched: Sequence[FetchedBytes], name: str
) -> pa.Array | None:
    """Return a column with few wanted rows in each page; None if pyarrow must decode it."""
    column = parts[0][0].flat_column(name)
    found: list[bytes | None] = []
    if column is None or not all(
        file.add_values(found, picked.few[name], column, data)
        for (file, picked), data in zip(parts, fetched, strict=True)
    ):
        return None
    return values_array(found, column)


def _left(parts: Sequence[tuple[PagedFile, Picked]], names: Sequence[str]) -> pa.RecordBatch:
    """Return columns that seemed flat, but have pages that pyarrow must decode."""
    again = []
    for file, picked in parts:
        file.leave(names)
        pages = file.picked(names, picked.positions)
        if pages is None:
            raise ThriftError("row groups cost less")
        again.append((file, pages))
    return decode_rows(again, names)


_Fetched = tuple[PickedPages, Numbers, FetchedBytes]


def _same_columns(columns: Sequence[str], picks: Sequence[_Fetched]) -> Iterator[_Fetched]:
    """Yield picks whose columns are the same in all row groups.

    If the row groups divide the columns differently, each pick has one column.
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
    """Yield picks in groups that are decoded at once."""
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


def fetch(wanted: Sequence[tuple[PagedFile, Sequence[ByteRange]]]) -> list[FetchedBytes]:
    """Read ranges of files. Neighbouring ranges are read together, remote ones concurrently."""
    files = []
    for file, ranges in wanted:
        gap = _FAR_GAP if is_far(file.store) else _NEAR_GAP
        files.append(FileRanges(file.store, file.name, merge_ranges(ranges, gap=gap), file.size))
    parts = read_concurrently(files)
    return [FetchedBytes(file.ranges, part) for file, part in zip(files, parts, strict=True)]


def load_paged(
    store: Store, name: str, size: int, tail: tuple[int, bytes] | None = None
) -> PagedFile | None:
    """Read the footer of a data file; None if its pages cannot be read separately.

    Parameters
    ----------
    size
        The size in bytes, from the log. If it is wrong, the result is None.
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
        parsed = FileFooter.parse(end)
    except UnicodeDecodeError:  # The name of a column is damaged.
        return None
    fetched = FetchedBytes([(start, size)], [data])
    return PagedFile(store, name, size, parsed, footer, 4 * len(end) + len(data), fetched, start)


def _end_of(store: Store, name: str, size: int) -> tuple[int, bytes]:
    """Return the offset of a file's last bytes, which contain the footer, and these bytes."""
    with store.open_input(name, size=size) as source:
        data = end_bytes(source, size)
    return size - len(data), data


class FooterCache:
    """A cache of data files' footers by logged path and size. Data files never change."""

    def __init__(
        self,
        max_bytes: int = _CACHED_BYTES,
        tails: Callable[[str, int], tuple[int, bytes] | None] = lambda *_: None,
    ) -> None:
        """Take a function that returns the known last bytes of a file, as for `load_paged`."""
        self._files: BoundedCache[tuple[str, int], tuple[PagedFile | None]] = BoundedCache(
            max_bytes
        )
        self._tails = tails

    def __reduce__(self) -> tuple[type[FooterCache], tuple[int]]:
        return FooterCache, (self._files.max_bytes,)

    def known(self, path: str, size: int) -> tuple[PagedFile | None] | None:
        """Return the cached result of `paged` for a file."""
        return self._files.get((path, size))

    def without_request(self, store: Store, name: str, size: int, path: str) -> PagedFile | None:
        """Return a file if its footer is known; errors as for `load_paged`."""
        known = self.known(path, size)
        if known is not None:
            return known[0]
        tail = self._tails(name, size)
        return None if tail is None else self._paged(store, name, size, path, tail)

    def paged(self, store: Store, name: str, size: int, path: str) -> PagedFile | None:
        """Return a file, and cache it by its logged path; errors and None as for `load_paged`."""
        return self._paged(store, name, size, path, self._tails(name, size))

    def _paged(
        self, store: Store, name: str, size: int, path: str, tail: tuple[int, bytes] | None
    ) -> PagedFile | None:
        file = load_paged(store, name, size, tail)
        self._files.put((path, size), (file,), _LEAST_BYTES if file is None else file.cost)
        if file is not None:
            file.grow = partial(self._files.grow, (path, size))
        return file
