"""An epoch as a stream of batches: rounds are read in advance, and divided into batches."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from txlog.loader.blocks import BlockReader, Columns, as_records, chosen, joined
from txlog.loader.order import Order, Piece, Selected
from txlog.store.base import is_far
from txlog.threads import map_ahead, prefetch


@dataclass(frozen=True, kw_only=True)
class Share:
    """The share of one process in the positions of an epoch.

    Parameters
    ----------
    first, stop
        The positions that all ranks return; positions after the last row begin the epoch again.
    batch_rows
        Of one batch of one rank.
    skip, stride
        The batches of the rank that this process makes: one of `stride`, after the first `skip`.
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
    """

    uses: tuple[tuple[Piece, Piece], ...]
    selected: Selected


_Item = tuple[_RoundPlan, Piece | None]


def stream(
    reader: BlockReader, order: Order, share: Share, *, threads: int, ahead: int
) -> Iterator[tuple[int, Columns]]:
    """Yield the batches of a share, each with its number among the batches of the rank.

    Parameters
    ----------
    threads
        The number of threads that read; 0 for none. A remote store uses as many as it accepts
        reads.
    ahead
        The number of rounds that are read in advance.
    """
    if order.is_shuffled or is_far(reader.plan.store):
        rounds = _rounds(reader, order, share, threads, ahead)
    else:
        rounds = _in_order(reader, order, share)
        rounds = prefetch(rounds) if threads else rounds
    with closing(rounds):
        yield from _batches(rounds, share)


def _in_order(
    reader: BlockReader, order: Order, share: Share
) -> Generator[tuple[Columns, Selected], None, None]:
    """Yield the rows from the share's first position on, and the places of returned rows."""
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
    reader: BlockReader, order: Order, share: Share, threads: int, ahead: int
) -> Generator[tuple[Columns, Selected], None, None]:
    """Yield the rows of each round that are read, and the places of returned rows."""
    held: dict[Piece, Columns] = {}
    memory: Columns = {}
    missing = 0
    with closing(_loaded(reader, order, share, threads, ahead)) as loaded:
        for (plan, piece), rows in loaded:
            if piece is None:  # The round begins.
                missing = sum(whole not in held for whole, _ in plan.uses)
            else:
                held[piece] = rows
                missing -= 1
            if missing:
                continue
            parts = [
                chosen(held[whole], slice(part.start - whole.start, part.stop - whole.start))
                for whole, part in plan.uses
            ]
            held = {whole: held[whole] for whole, part in plan.uses if part.stop < whole.stop}
            # Shuffled batches are copies: the memory of the round can be used for the next one.
            yield as_records(parts, memory) if order.is_shuffled else joined(parts), plan.selected


def _loaded(
    reader: BlockReader, order: Order, share: Share, threads: int, ahead: int
) -> Generator[tuple[_Item, Columns], None, None]:
    """Yield the pieces of rounds to read, and the rows of each piece."""

    def load(item: _Item) -> tuple[_Item, Columns]:
        return item, {} if item[1] is None else reader.load(item[1])

    items = _items(order, share)
    if threads == 0:
        yield from map(load, items)
        return
    far = reader.plan.store.reads_at_once if is_far(reader.plan.store) else 0
    workers = max(threads, far)
    pieces = order.pieces_per_round(share.ranks)
    yield from map_ahead(load, items, workers=workers, ahead=max(workers, ahead * (pieces + 1)))


def _items(order: Order, share: Share) -> Iterator[_Item]:
    """Yield each round, and after it the pieces to read for it."""
    held: set[Piece] = set()
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
            plan = _RoundPlan(uses, selected)
            yield plan, None
            for whole, _ in uses:
                if whole not in held:
                    yield plan, whole
            held = {whole for whole, part in uses if part.stop < whole.stop}


def _spans(rows: int, share: Share) -> Iterator[tuple[int, int, int]]:
    """Yield ranges of positions within an epoch, and the rank there that has the share."""
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
