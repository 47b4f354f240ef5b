"""An epoch as a stream of batches: rounds are read in advance, and divided into batches."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain

from txlog.base.threads import map_ahead, prefetch
from txlog.base.thresholds import Threshold
from txlog.extend import is_far, map_many
from txlog.training.loader.blocks import (
    BlockReader,
    Chunk,
    Columns,
    Portion,
    as_records,
    chosen,
    joined,
)
from txlog.training.loader.order import Order, Piece, Selected
from txlog.training.loader.windows import WindowReader

# A piece is read in two parts if the second part has more bytes than this.
_WORTH_BYTES: Threshold = 1 << 16


Numbered = Generator[tuple[int, Columns], None, None]
"""Rows of batches, each with its number among the batches of the rank."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """The share of one process in the positions of an epoch.

    Parameters
    ----------
    first, stop
        The positions that all ranks return; positions after the last row begin the epoch again.
    batch_rows
        The number of rows of one batch of one rank.
    skip, stride
        The batches of the rank that this process makes: every `stride`-th one, after the first
        `skip`.
    """

    first: int
    stop: int
    rank: int
    ranks: int
    batch_rows: int
    skip: int = 0
    stride: int = 1


@dataclass(frozen=True, eq=False)
class _RoundPlan:
    """The parts of a round that are read, and the parts that are returned.

    Parameters
    ----------
    uses
        The rows of the lanes, one lane after another: the piece that is read, and the part of it
        that is used in this round. The rest of it belongs to the next rounds of the same lane.
    reads
        The number of reads that this round waits for, without the reads of earlier rounds.
    """

    uses: tuple[Portion, ...]
    selected: Selected
    reads: int


Reader = BlockReader | WindowReader
"""What reads the rows of pieces."""

_Item = tuple[_RoundPlan, tuple[Portion, ...]]  # A round begins with an item without portions.


def stream(reader: Reader, order: Order, share: Share, *, threads: int, ahead: int) -> Numbered:
    """Yield the batches of a share, each with its number among the batches of the rank.

    Parameters
    ----------
    threads
        The number of threads that read; 0 for none. For a remote store there is at least one
        thread for each concurrent read that the store recommends.
    ahead
        The number of rounds that are read in advance.
    """
    plan = reader.plan
    if order.is_shuffled or not plan.is_sequential or is_far(plan.store):
        rounds = _rounds(reader, order, share, threads, ahead)
    else:
        rounds = _in_order(reader, order, share)
        rounds = prefetch(rounds) if threads else rounds
    with closing(rounds):
        yield from _batches(rounds, share)


def _in_order(
    reader: Reader, order: Order, share: Share
) -> Generator[tuple[Columns, Selected], None, None]:
    """Yield the rows from the share's first position on, and the places of the rows to return."""
    for first, stop, rank in _spans(order.rows, share):
        (piece,) = order.pieces((first, first + 1))
        at = first
        for rows in reader.following(piece.block, piece.start):
            count = min(len(next(iter(rows.values()))), stop - at)
            yield rows, slice((rank - at) % share.ranks, count, share.ranks)
            at += count
            if at == stop:
                break


def _rounds(
    reader: Reader, order: Order, share: Share, threads: int, ahead: int
) -> Generator[tuple[Columns, Selected], None, None]:
    """Yield the rows that each round reads, and the places of the rows to return."""
    chunks_of: dict[
        Piece, list[tuple[int, Columns]]
    ] = {}  # Rows, with the offset of their first row.
    memory: Columns = {}
    missing = 0
    with closing(_loaded(reader, order, share, threads, ahead)) as loaded:
        for (plan, portions), chunks in loaded:
            for piece, start, rows in chunks:
                chunks_of.setdefault(piece, []).append((start, rows))
            missing = missing - 1 if portions else plan.reads
            if missing:
                continue
            parts = [rows for piece, part in plan.uses for rows in _within(chunks_of[piece], part)]
            chunks_of = {
                piece: [chunk for chunk in chunks_of[piece] if _end(*chunk) > part.stop]
                for piece, part in plan.uses
                if part.stop < piece.stop
            }
            # Shuffled batches are copies: the memory of the round can be used for the next one.
            yield as_records(parts, memory) if order.is_shuffled else joined(parts), plan.selected


def _within(chunks: Iterable[tuple[int, Columns]], part: Piece) -> Iterator[Columns]:
    """Yield the rows of a part of a piece."""
    for start, rows in chunks:
        first, stop = max(part.start, start), min(part.stop, _end(start, rows))
        if first < stop:
            yield chosen(rows, slice(first - start, stop - start))


def _end(start: int, rows: Columns) -> int:
    return start + len(next(iter(rows.values())))


def _loaded(
    reader: Reader, order: Order, share: Share, threads: int, ahead: int
) -> Generator[tuple[_Item, list[Chunk]], None, None]:
    """Yield the items of `_items` in their order, each with the rows that it reads."""

    def load(item: _Item) -> tuple[_Item, list[Chunk]]:
        return item, reader.load(item[1]) if item[1] else []

    far = reader.plan.store.reads_at_once if is_far(reader.plan.store) else 0
    workers = max(threads, far)
    items = _items(reader, order, share, max(1, workers))
    if threads == 0:
        yield from map(load, items)
        return
    # The limit counts portions and not reads: one read may return the portions of a whole round.
    most = max(workers, ahead * (order.pieces_per_round(share.ranks) + 1))
    yield from map_ahead(
        load,
        items,
        workers=workers,
        ahead=most,
        size=lambda item: max(1, len(item[1])),
        ahead_size=most,
    )


def _items(reader: Reader, order: Order, share: Share, workers: int) -> Iterator[_Item]:
    """Yield each round, and after it the portions that are read for it.

    The first round reads only the pages that it needs, so that the first batch comes early. The
    second one reads the rest of these pieces.
    """
    loaded: set[Piece] = set()
    rest: list[Portion] = []
    paged: dict[int, bool] = {}
    is_first = True
    for first, stop, rank in _spans(order.rows, share):
        for of in order.rounds(first):
            if of.first >= stop:
                break
            lanes, selected = order.selected(of, first, stop, rank, share.ranks)
            uses = tuple(
                (order.whole(lane, part), part)
                for lane in lanes
                for part in order.pieces(of.windows[lane])
            )
            if not uses:
                continue
            wanted = rest + [
                (piece, replace(part, stop=piece.stop))
                for piece, part in uses
                if piece not in loaded
            ]
            rest = []
            if is_first:
                wanted, rest = _divided(reader, uses)
            reads = _together(reader, wanted, workers, paged)
            plan = _RoundPlan(uses, selected, len(reads))
            yield plan, ()
            yield from ((plan, read) for read in reads)
            loaded = {piece for piece, part in uses if part.stop < piece.stop}
            is_first = False


def _divided(reader: Reader, uses: Sequence[Portion]) -> tuple[list[Portion], list[Portion]]:
    """Return the pages that hold the used parts of pieces, and the rest of large pieces."""
    plan = reader.plan
    longer = [
        (piece, part)
        for piece, part in uses
        if plan.bytes_of(replace(part, start=part.stop, stop=piece.stop)) > _WORTH_BYTES
    ]
    ends = dict(zip(longer, map_many(plan.store, reader.end_of_pages, longer), strict=True))
    first = [(use[0], replace(use[1], stop=ends.get(use, use[0].stop))) for use in uses]
    rest = [
        (piece, replace(part, start=part.stop, stop=piece.stop))
        for piece, part in first
        if part.stop < piece.stop
    ]
    return first, rest


def _together(
    reader: Reader, portions: Sequence[Portion], workers: int, paged: dict[int, bool]
) -> list[tuple[Portion, ...]]:
    """Divide portions into those that are read together.

    Portions of one block are read together, because they may share pages. If the row groups of a
    file must be read whole, each of the workers gets one read with a part of the file's portions.

    Parameters
    ----------
    paged
        Whether single pages of a fragment are read, by the place of the fragment. This function
        adds missing fragments.
    """
    by_file: dict[int, dict[int, list[Portion]]] = {}
    for one in portions:
        piece = one[0]
        by_file.setdefault(reader.owner(piece), {}).setdefault(piece.block, []).append(one)
    new = [owner for owner, blocks in by_file.items() if len(blocks) > 1 and owner not in paged]
    paged |= zip(new, map_many(reader.plan.store, reader.has_pages, new), strict=True)
    found: list[tuple[Portion, ...]] = []
    for owner, blocks in by_file.items():
        each = 1 if paged.get(owner, True) else -(-len(blocks) // workers)
        ordered = [blocks[block] for block in sorted(blocks)]
        found += (
            tuple(chain.from_iterable(ordered[at : at + each]))
            for at in range(0, len(ordered), each)
        )
    return found


def _spans(rows: int, share: Share) -> Iterator[tuple[int, int, int]]:
    """Yield the share's ranges of positions within an epoch, and the share's rank in each range."""
    first, stop, before = share.first, share.stop, 0
    while first < stop and rows:
        end = min(stop, before + rows)
        yield first - before, end - before, (share.rank - before) % share.ranks
        first = before = end


def _batches(
    rounds: Iterable[tuple[Columns, Selected]], share: Share
) -> Iterator[tuple[int, Columns]]:
    """Divide rows into batches, and yield those of this process."""
    number = count = 0
    parts: list[Columns] = []
    for rows, selected in rounds:
        at, total = 0, _length(selected)
        while at < total:
            taken = min(share.batch_rows - count, total - at)
            wanted = number >= share.skip and (number - share.skip) % share.stride == 0
            if wanted:
                parts.append(chosen(rows, _part(selected, at, at + taken)))
            count, at = count + taken, at + taken
            if count == share.batch_rows:
                if wanted:
                    yield number, joined(parts)
                number, count, parts = number + 1, 0, []
    if parts:
        yield number, joined(parts)


def _length(selected: Selected) -> int:
    if isinstance(selected, slice):
        return len(range(selected.start, selected.stop, selected.step or 1))
    return len(selected)


def _part(selected: Selected, first: int, stop: int) -> Selected:
    """Return the places in a range of numbers."""
    if not isinstance(selected, slice):
        return selected[first:stop]
    step = selected.step
    start = selected.start + first * step
    return slice(start, start + (stop - first - 1) * step + 1, step)
