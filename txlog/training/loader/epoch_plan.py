"""Plan the rows of an epoch: blocks of adjacent rows of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from pyroaring import BitMap64

from txlog import Fragment, Scan, Table
from txlog.base.arrow import pc
from txlog.base.errors import DataFileError
from txlog.extend import FragmentReader, ReadPlan, Store, Where, missing_files
from txlog.training.loader.order import Numbers, Piece, Shuffle, block_rows_for, window_rows_for
from txlog.training.loader.state import Identity
from txlog.training.loader.weights import Weights

_SHOWN = 3


@dataclass(frozen=True)
class Kept:
    """The rows of a fragment that are in the epoch."""

    positions: BitMap64
    inverted: bool  # If true, `positions` are the rows that are not in the epoch.

    def count(self, start: int, stop: int) -> int:
        """Return the number of positions of a range that are in the epoch."""
        found = int(self.positions.range_cardinality(start, stop))
        return stop - start - found if self.inverted else found

    def within(self, start: int, stop: int) -> Numbers:
        """Return the positions of a range that are in the epoch, ascending."""
        here = self.positions & BitMap64(range(start, stop))
        named = np.frombuffer(here.to_array(), np.uint64).astype(np.int64)
        if not self.inverted:
            return named
        counts = np.ones(stop - start, bool)
        counts[named - start] = False
        return np.flatnonzero(counts) + start


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockPlan:
    """The rows of an epoch as blocks, in the order of the table. A value: it pickles.

    A block without any row of the epoch does not exist (LDR-1).
    """

    store: Store
    reading: ReadPlan  # It reads columns without a predicate: `kept` has the predicate's result.
    fragments: tuple[Fragment, ...]
    kept: Mapping[int, Kept]  # By the place of the fragment. All rows of other fragments count.
    owners: Numbers  # For each block, the place of its fragment,
    starts: Numbers  # the position of its first row in it,
    stops: Numbers  # the position after its last row,
    counts: Numbers  # and the number of these rows that are in the epoch.
    window_rows: int
    identity: Identity
    weights: Weights | None = None
    epoch: int | None = None  # Of which the counts are, if rows have weights.
    numbers: Numbers | None = None  # Of the blocks before those without rows were left out.

    @property
    def is_sequential(self) -> bool:
        """Whether an epoch without shuffling has the rows of files in their order."""
        return self.weights is None

    def at(self, epoch: int) -> BlockPlan:
        """Return the plan of one epoch: weights give each epoch other rows."""
        if self.weights is None:
            return self
        counts = self.weights.counts(epoch)
        some = counts > 0
        return replace(
            self,
            owners=self.owners[some],
            starts=self.starts[some],
            stops=self.stops[some],
            counts=counts[some],
            epoch=epoch,
            numbers=np.flatnonzero(some),
        )

    def bytes_of(self, piece: Piece) -> float:
        """Return about how many bytes of files the rows of a piece take."""
        fragment = self.fragments[int(self.owners[piece.block])]
        share = (piece.stop - piece.start) / max(1, fragment.physical_rows or 0)
        return share * sum(file.size for file in fragment.files)

    def positions(self, piece: Piece) -> Numbers:
        """Return the positions in their fragment of the rows of a piece, ascending.

        A row that an epoch has several times is several times there.
        """
        start, stop = int(self.starts[piece.block]), int(self.stops[piece.block])
        kept = self.kept.get(int(self.owners[piece.block]))
        if self.weights is not None and self.numbers is not None and self.epoch is not None:
            found = np.arange(start, stop) if kept is None else kept.within(start, stop)
            times = self.weights.times(int(self.numbers[piece.block]), self.epoch)
            return np.repeat(found, times)[piece.start : piece.stop]
        if kept is None:
            return np.arange(start + piece.start, start + piece.stop)
        return kept.within(start, stop)[piece.start : piece.stop]


def plan_blocks(
    table: Table, *, columns: list[str] | None, where: Where, shuffle: Shuffle | None
) -> BlockPlan:
    """Plan the rows of an epoch of a version as blocks.

    This reads deletion vectors, and the footers of files without a row count in the log. If the
    log does not decide the predicate for a file, this also reads the predicate's columns in it.

    Raises
    ------
    DataFileError
        A file of the version is missing.
    """
    whole = table.scan(columns)
    scan = whole if where is None else table.scan(whole.schema.names, where)
    fragments: Sequence[Fragment] = tuple(scan.plan.fragments)
    _require_files(scan.store, fragments, scan.plan.reading.version)
    block_rows, window_rows = rows_of_blocks(table, shuffle)
    fragments, kept = _kept_rows(scan, fragments)
    owners, starts, stops = _cut(fragments, block_rows)
    counts = stops - starts
    for at in np.flatnonzero(np.isin(owners, list(kept))).tolist():
        counts[at] = kept[int(owners[at])].count(int(starts[at]), int(stops[at]))
    some = counts > 0
    return BlockPlan(
        store=scan.store,
        reading=replace(whole.plan.reading, where=None, fixes=False),  # Views accept lists.
        fragments=fragments,
        kept=kept,
        owners=owners[some],
        starts=starts[some],
        stops=stops[some],
        counts=counts[some],
        window_rows=window_rows,
        identity=Identity(
            table.metadata.id,
            table.version,
            scan.plan.reading.where,
            None if shuffle is None else (shuffle.lanes, window_rows, block_rows),
        ),
    )


def rows_of_blocks(table: Table, shuffle: Shuffle | None) -> tuple[int, int]:
    """Return `block_rows` and `window_rows`; their defaults follow LDR-3."""
    block_rows = None if shuffle is None else shuffle.block_rows
    if block_rows is None:
        files = table.files(["size_bytes", "num_records"])
        files = files.filter(pc.is_valid(files["num_records"]))
        rows = pc.sum(files["num_records"]).as_py() or 0
        size = pc.sum(files["size_bytes"]).as_py() or 0
        block_rows = block_rows_for(size, rows, files.num_rows, shuffled=shuffle is not None)
    if shuffle is None:
        return block_rows, block_rows
    return block_rows, shuffle.window_rows or window_rows_for(block_rows)


def _kept_rows(
    scan: Scan, fragments: Sequence[Fragment]
) -> tuple[tuple[Fragment, ...], dict[int, Kept]]:
    """Return the fragments with their numbers of rows, and the rows of the epoch if not all."""
    plan, store = scan.plan, scan.store
    where = plan.reading.where
    found = list(fragments)
    sure = [where is None or certain for certain in plan.certain]
    undecided = [at for at, certain in enumerate(sure) if not certain]
    kept: dict[int, Kept] = {}
    matches = scan.engine.map(
        partial(_matching, store, plan.reading), [found[at] for at in undecided]
    )
    for at, (positions, rows) in zip(undecided, matches, strict=True):
        kept[at] = Kept(positions, inverted=False)
        found[at] = replace(found[at], physical_rows=rows)
    uncounted = [at for at, one in enumerate(found) if one.physical_rows is None]
    counts = scan.engine.map(
        partial(_count_rows, store, plan.reading), [found[at] for at in uncounted]
    )
    for at, rows in zip(uncounted, counts, strict=True):
        found[at] = replace(found[at], physical_rows=rows)
    deleted = [at for at, one in enumerate(found) if sure[at] and one.deletion is not None]
    vectors = scan.engine.map(
        partial(_deletions, store, plan.reading), [found[at] for at in deleted]
    )
    for at, vector in zip(deleted, vectors, strict=True):
        if vector is not None:
            kept[at] = Kept(vector, inverted=True)
    return tuple(found), kept


def _matching(store: Store, reading: ReadPlan, fragment: Fragment) -> tuple[BitMap64, int]:
    return FragmentReader(store, reading, fragment).matching()


def _count_rows(store: Store, reading: ReadPlan, fragment: Fragment) -> int:
    return FragmentReader(store, reading, fragment).count_rows()


def _deletions(store: Store, reading: ReadPlan, fragment: Fragment) -> BitMap64 | None:
    return FragmentReader(store, reading, fragment).deletions()


def _cut(fragments: Sequence[Fragment], block_rows: int) -> tuple[Numbers, Numbers, Numbers]:
    """Return owner, first position and end of each block of `block_rows` physical rows."""
    rows = np.array([fragment.physical_rows or 0 for fragment in fragments], np.int64)
    blocks = -(-rows // block_rows)
    owners = np.repeat(np.arange(len(rows)), blocks)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
    starts = within * block_rows
    return owners, starts, np.minimum(starts + block_rows, rows[owners])


def _require_files(store: Store, fragments: Sequence[Fragment], version: int) -> None:
    """Raise if data files of a version are missing.

    Raises
    ------
    DataFileError
        A file is missing; the error names the first one.
    """
    missing = missing_files(store, fragments)
    if not missing:
        return
    count = sum(len(fragment.files) for fragment in fragments)
    more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    raise DataFileError(
        path=missing[0],
        version=version,
        table=store.root,
        reason=f"{len(missing)} of {count} data files of this version are gone: "
        f"{', '.join(missing[:_SHOWN])}{more}",
        remedy="Load a newer version, or restore the files; pin the versions that you train on",
    )
