"""Ranges of row positions: ascending, without overlaps. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import itemgetter

import pyarrow as pa

RowRange = tuple[int, int]
"""Positions of a fragment: from the first number, up to the second without it."""


def overlaps(ranges: Sequence[RowRange], bounds: RowRange) -> list[RowRange]:
    """Return the parts of ranges that are within bounds."""
    first, last = bounds
    found = []
    for at in range(bisect_right(ranges, first, key=itemgetter(1)), len(ranges)):
        start, stop = ranges[at]
        if start >= last:
            break
        found.append((max(start, first), min(stop, last)))
    return [(start, stop) for start, stop in found if start < stop]


def common(several: Sequence[Sequence[RowRange]]) -> list[RowRange]:
    """Return the positions that all of several lists of ranges have; one list comes back as is."""
    return reduce(
        lambda held, others: [part for bounds in others for part in overlaps(held, bounds)],
        map(list, several[1:]),
        list(several[0]),
    )


def zipped(
    streams: Sequence[Iterator[tuple[int, pa.RecordBatch]]],
) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    """Yield batches of several files side by side, each with the position of its first row.

    All streams give the same positions in the same order, but cut them as they like.
    """
    if len(streams) == 1:
        yield from ((start, [batch]) for start, batch in streams[0])
        return
    heads = [next(stream, None) for stream in streams]
    while all(head is not None for head in heads):
        held = [head for head in heads if head is not None]
        start = held[0][0]
        count = min(batch.num_rows for _, batch in held)
        yield start, [batch.slice(0, count) for _, batch in held]
        heads = [
            (start + count, batch.slice(count)) if batch.num_rows > count else next(stream, None)
            for (_, batch), stream in zip(held, streams, strict=True)
        ]
