"""Who reads what: parts of a scan for several readers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from txlog.fragments.fragment import Fragment, Fragments
from txlog.scan.data_file import RowRange
from txlog.scan.lazy_plan import ScanPlan

_NO_END = 2**63 - 1
_AT_ONCE = 64  # Fragments that become values together.


@dataclass(frozen=True)
class Share:
    """Fragments that one reader reads in turn, until it has a number of rows."""

    fragments: Sequence[Fragment]
    rows: int
    counted: bool  # Whether the log says that there are as many.


def limited(plan: ScanPlan, rows: int) -> list[Share]:
    """Return who reads the first rows of a scan, by fragment and position. Pure.

    A fragment of which the log counts the rows is a share of its own. From the first one on that
    must be read to be counted, the others are one share. Fragments behind those that suffice, or
    without rows, are in none. Rule: FRG-43.
    """
    shares: list[Share] = []
    if rows <= 0:
        return shares
    wanted = _with_rows(plan)
    left = rows
    for fragment, count in wanted:
        if left <= 0:
            break
        if count is None:
            rest = chain([(fragment, count)], wanted)
            shares.append(Share(_sufficient(rest, left), left, counted=False))
            break
        shares.append(Share((fragment,), min(count, left), counted=True))
        left -= count
    return shares


def _with_rows(plan: ScanPlan) -> Iterator[tuple[Fragment, int | None]]:
    """Yield the fragments that may have rows, with the counts of the log; values are made late."""
    counts = plan.counts
    for start in range(0, len(counts), _AT_ONCE):
        some = counts[start : start + _AT_ONCE].to_pylist()
        pairs = zip(plan.fragments[start : start + _AT_ONCE], some, strict=True)
        yield from (pair for pair in pairs if pair[1] != 0)


def _sufficient(wanted: Iterable[tuple[Fragment, int | None]], rows: int) -> tuple[Fragment, ...]:
    """Return the fragments up to the one by which the log has counted as many rows."""
    fragments = []
    for fragment, count in wanted:
        if rows <= 0:
            break
        fragments.append(fragment)
        rows -= count or 0
    return tuple(fragments)


def row_ranges(fragment: Fragment, max_bytes: int) -> list[RowRange | None]:
    """Cut a fragment that is larger than `max_bytes` into even ranges of positions. Pure.

    The ranges meet, and the last one has no end. One that is not cut, as it is small or the log
    does not say how many rows it has, is `[None]`. Rule: FRG-41.
    """
    rows = fragment.physical_rows or 0
    parts = min(-(-sum(file.size for file in fragment.files) // max_bytes), rows)
    if parts < 2:
        return [None]
    return list(pairwise([*(rows * part // parts for part in range(parts)), _NO_END]))


def packed(weights: Sequence[int] | NDArray[np.int64], room: int) -> list[range]:
    """Return neighbours that fit one reader together: none is left out or there twice. Pure.

    A weight that is larger than the room is alone.
    """
    sums = np.cumsum(np.asarray(weights, np.int64))
    places = []
    start = before = 0
    while start < len(sums):
        # The first one always fits.
        stop = max(start + 1, int(np.searchsorted(sums, before + room, "right")))
        places.append(range(start, stop))
        start, before = stop, int(sums[stop - 1])
    return places


def fragment_bytes(fragments: Sequence[Fragment]) -> NDArray[np.int64]:
    """Return how many bytes the files of each fragment have together."""
    if isinstance(fragments, Fragments):
        return np.asarray(fragments.sizes, np.int64)
    return np.array([sum(file.size for file in one.files) for one in fragments], np.int64)
