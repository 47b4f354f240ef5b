"""Read the rows of blocks, and convert them to the views of their columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from txlog import Fragment
from txlog.base.arrow import arrow_array, empty_table
from txlog.base.columns import rows_among
from txlog.base.errors import DataFileError, InvalidInputError, TxlogError
from txlog.base.thresholds import Threshold
from txlog.extend import FragmentReader, ReadPlan, Store, chosen_columns
from txlog.training.loader.epoch_plan import BlockPlan, Kept
from txlog.training.loader.images import Image
from txlog.training.loader.large import Blobs
from txlog.training.loader.order import Numbers, Piece, Selected
from txlog.training.loader.views import Rows, UnfitError, View, filled

# The rows that one step decodes: few, so that the CPU's cache holds them.
_STREAMED_ROWS: Threshold = 1 << 14
_WORTH = 4 / 3  # A piece is divided only if at least a quarter of it is left for a later read.

Columns = dict[str, Rows]
"""Rows as columns, by name."""

Portion = tuple[Piece, Piece]
"""A piece, and a part of it."""

Chunk = tuple[Piece, int, Columns]
"""A piece, the offset in its block of the first row that was read, and the rows that were read."""

# Names that no column of a table has.
ADDRESS = "\0address"  # The address of each row: fragment id × 2³² + position.
RECORDS = "\0records"  # The columns of a fixed size as one array, so that one copy moves a row.


@dataclass(frozen=True)
class BlockReader:
    """Reads pieces of blocks. A value: it pickles.

    Parameters
    ----------
    views, fill
        The views and the replacements of nulls, by the name of the column.
    """

    plan: BlockPlan
    views: Mapping[str, View]
    fill: Mapping[str, Any]

    def load(self, wanted: Sequence[Portion]) -> list[Chunk]:
        """Return the rows of portions of one file. The portions do not overlap.

        A page or row group that has rows of several portions is decoded once.

        Raises
        ------
        DataFileError
            A file cannot be read, or contradicts the log.
        InvalidInputError
            A row does not fit the view of its column; the error names column, fragment and
            position.
        """
        plan = self.plan
        owner = self.owner(wanted[0][0])
        wanted = sorted(wanted, key=lambda portion: (portion[1].block, portion[1].start))
        parts = [plan.positions(part) for _, part in wanted]
        positions = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if plan.weights is None:
            rows = self.rows_of(owner, positions)
        else:
            # A row that comes several times is read once.
            once, places = np.unique(positions, return_inverse=True)
            rows = chosen(self.rows_of(owner, once), places)
        ends = np.cumsum([len(part) for part in parts]).tolist()
        return [
            (piece, part.start, chosen(rows, slice(first, stop)))
            for (piece, part), first, stop in zip(wanted, [0, *ends], ends, strict=False)
        ]

    def rows_of(self, owner: int, positions: Numbers) -> Columns:
        """Return rows of a fragment by its place; errors as for `load`.

        Parameters
        ----------
        positions
            Ascending, none of them twice.
        """
        fragment = self.plan.fragments[owner]
        return self._prepared(fragment, positions, self._read(fragment, positions))

    def owner(self, piece: Piece) -> int:
        """Return the place of the fragment that has a piece."""
        return int(self.plan.owners[piece.block])

    def end_of_pages(self, portion: Portion) -> int:
        """Return the offset behind the page of the last row of a part, or the end of the piece.

        The page is a page of the largest column. The result is the end of the piece if less than
        a quarter of the rows is behind the page, or if whole row groups are read.
        """
        piece, part = portion
        positions = self.plan.positions(replace(part, stop=piece.stop))
        last = int(positions[part.stop - part.start - 1])
        end = self._page_end(self.owner(piece), last)
        if end is None:
            return piece.stop
        count = int(np.searchsorted(positions, end))
        return piece.stop if count * _WORTH > len(positions) else part.start + count

    def has_pages(self, owner: int) -> bool:
        """Return whether single pages of a fragment are read, and not whole row groups."""
        return self._page_end(owner, 0) is not None

    def _page_end(self, owner: int, position: int) -> int | None:
        """Return the end of the page of a position; None if its row group is read whole."""
        plan = self.plan
        try:
            reader = FragmentReader(plan.store, plan.reading, plan.fragments[owner])
            return reader.page_end(position)
        except TxlogError:  # Reading the rows will raise it again.
            return None

    def following(self, block: int, offset: int) -> Iterator[Columns]:
        """Yield the rows of the epoch in their order, from a row of a block on.

        Files are decoded from the start to the end, few rows at a time.

        Raises
        ------
        DataFileError, InvalidInputError
            As for `load`.
        """
        plan = self.plan
        while block < len(plan.owners):
            owner = int(plan.owners[block])
            fragment = plan.fragments[owner]
            end = int(np.searchsorted(plan.owners, owner, "right"))
            start = int(plan.positions(Piece(block, block, offset, offset + 1))[0])
            wanted = int(plan.counts[block:end].sum()) - offset
            seen = 0
            for positions, rows in epoch_rows(
                plan.store, plan.reading, fragment, plan.kept.get(owner), start
            ):
                seen += rows.num_rows
                yield self._prepared(fragment, positions, rows)
            if seen != wanted:
                raise self._miscounted(fragment, seen, wanted, start)
            block, offset = end, 0

    def _prepared(self, fragment: Fragment, positions: Numbers, rows: pa.RecordBatch) -> Columns:
        """Return rows in the form that their views need."""
        addresses = (fragment.id << 32) + positions
        found: Columns = {ADDRESS: addresses} if self.addressed else {}
        for name, view in self.views.items():
            fill, column = self.fill.get(name), rows.column(name)
            try:
                whole = column if isinstance(view, Blobs) else filled(column, fill, view)
                found[name] = view.prepare(whole, fill)
            except UnfitError as error:
                raise unfit(name, error, int(addresses[error.offset])) from error
        return found

    @property
    def addressed(self) -> bool:
        """Whether `finished` needs the addresses of rows, because it may raise for a row."""
        return any(isinstance(view, Image) for view in self.views.values())

    def empty(self) -> Columns:
        """Return columns without rows."""
        none = empty_table(self.plan.reading.schema).combine_chunks()
        found: Columns = {}
        for name, view in self.views.items():
            found[name] = view.prepare(none[name].combine_chunks(), None)
        return found

    def _read(self, fragment: Fragment, positions: Numbers) -> pa.RecordBatch:
        plan = self.plan
        reader = FragmentReader(plan.store, plan.reading, fragment)
        rows = reader.rows_at(plan.reading.needed, positions)
        if rows.num_rows < len(positions):
            raise self._miscounted(fragment, rows.num_rows, len(positions), int(positions[0]))
        return chosen_columns(plan.reading, rows)

    def _miscounted(self, fragment: Fragment, seen: int, wanted: int, start: int) -> DataFileError:
        return DataFileError(
            path=fragment.path,
            version=self.plan.reading.version,
            reason=f"the log says that it has {wanted} rows from position {start} on, but it has "
            f"{seen}",
            remedy="The log's numRecords is wrong. Correct the table's statistics, and load its "
            "new version",
        )


def epoch_rows(
    store: Store, reading: ReadPlan, fragment: Fragment, kept: Kept | None, start: int = 0
) -> Iterator[tuple[Numbers, pa.RecordBatch]]:
    """Yield a fragment's rows of the epoch, from a position on, and their positions."""
    reader = FragmentReader(store, reading, fragment)
    only = BitMap64(range(start, fragment.physical_rows or 0)) if start else None
    for at, batch in reader.batches(
        reading.needed, prune=False, batch_rows=_STREAMED_ROWS, threads=False, only=only
    ):
        stop = at + batch.num_rows
        if stop <= start:
            continue
        begin = max(at, start)
        positions = np.arange(begin, stop) if kept is None else kept.within(begin, stop)
        if len(positions):
            yield positions, chosen_columns(reading, rows_among(batch, positions - at))


def unfit(column: str, error: UnfitError, address: int) -> InvalidInputError:
    """Return the error of a row that does not fit the view of its column."""
    null = "null" in error.reason
    return InvalidInputError(
        argument="fill" if null else "views",
        field=column,
        reason=f"{error.reason}, at position {address & 0xFFFF_FFFF} of fragment {address >> 32}",
        remedy=f"Pass fill={{{column!r}: value}}, or leave such rows out by where"
        if null
        else "Give the column another view, or leave such rows out by where",
    )


def as_records(parts: Sequence[Columns], memory: Columns) -> Columns:
    """Return joined rows. Columns of a fixed size become the fields of one array.

    Parameters
    ----------
    memory
        The memory for that array. A new call overwrites the rows of the last one.
    """
    names = [name for name, column in parts[0].items() if isinstance(column, np.ndarray)]
    made: Columns = {
        name: pa.concat_arrays([part[name] for part in parts])
        for name in parts[0]
        if name not in names
    }
    if not names:
        return made
    counts = [len(part[names[0]]) for part in parts]
    records = memory.get(RECORDS)
    if records is None or len(records) < sum(counts):
        columns = [parts[0][name] for name in names]
        fields = [(name, of.dtype, of.shape[1:]) for name, of in zip(names, columns, strict=True)]
        records = memory[RECORDS] = np.empty(sum(counts), np.dtype(fields))
    first = 0
    for part, count in zip(parts, counts, strict=True):  # Each part fits the CPU's cache.
        some = records[first : first + count]
        for name in names:
            some[name] = part[name]
        first += count
    made[RECORDS] = records[:first]
    return made


def joined(parts: Sequence[Columns]) -> Columns:
    """Return the rows of all parts, one after another."""
    if len(parts) == 1:
        return parts[0]
    made: Columns = {}
    for name, first in parts[0].items():
        several = [part[name] for part in parts]
        is_array = isinstance(first, np.ndarray)
        made[name] = np.concatenate(several) if is_array else pa.concat_arrays(several)
    return made


def chosen(rows: Columns, places: Selected) -> Columns:
    """Return the rows at some places, in the order of the places."""
    made: Columns = {}
    taken = None
    for name, column in rows.items():
        if isinstance(column, np.ndarray):
            made[name] = (
                column[places] if isinstance(places, slice) else column.take(places, axis=0)
            )
        elif isinstance(places, slice) and places.step in (None, 1):
            made[name] = column.slice(places.start, places.stop - places.start)
        else:
            if taken is None:
                at = (
                    np.arange(places.start, places.stop, places.step)
                    if isinstance(places, slice)
                    else places
                )
                taken = arrow_array(at)
            made[name] = column.take(taken)
    return made


def unpacked(rows: Columns) -> Columns:
    """Return rows with one array for each column."""
    records = rows.get(RECORDS)
    if records is None:
        return rows
    found = {name: column for name, column in rows.items() if name != RECORDS}
    return found | {name: np.ascontiguousarray(records[name]) for name in records.dtype.names or ()}


def finished(views: Mapping[str, View], rows: Columns) -> dict[str, Any]:
    """Return rows as the columns of a batch.

    Raises
    ------
    InvalidInputError
        An image cannot be decoded; the error names column, fragment and position.
    """
    rows = unpacked(rows)
    made = {}
    for name, view in views.items():
        try:
            made[name] = view.finish(rows[name])
        except UnfitError as error:
            raise unfit(name, error, int(rows[ADDRESS][error.offset])) from error
    return made
