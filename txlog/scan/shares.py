"""The shares of a scan that several readers get. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from txlog.fragments.fragment import Fragment
from txlog.lazy import dataclass
from txlog.scan.data_file import RowRange
from txlog.scan.deferred import DeferredPlan
from txlog.scan.plan import ScanPlan

_NO_END = 2**63 - 1


@dataclass(frozen=True)
class Share:
    """Fragments that one reader reads in turn, until it has a number of rows."""

    fragments: tuple[Fragment, ...]
    rows: int
    counted: bool  # Whether the log says that there are as many.


def limited(plan: ScanPlan | DeferredPlan, rows: int) -> list[Share]:
    """Return who reads the first rows of a scan, by fragment and position. Pure.

    A fragment of which the log counts the rows is a share of its own. From the first one on that
    must be read to be counted, the others are one share. Fragments behind those that suffice, or
    without rows, are in none. Rule: FRG-43.
    """
    found = []
    wanted = [pair for pair in zip(plan.fragments, plan.counts, strict=True) if pair[1] != 0]
    left = rows
    for at, (fragment, count) in enumerate(wanted):
        if left <= 0:
            break
        if count is None:
            found.append(Share(_sufficient(wanted[at:], left), left, counted=False))
            break
        found.append(Share((fragment,), min(count, left), counted=True))
        left -= count
    return found


def _sufficient(wanted: list[tuple[Fragment, int | None]], rows: int) -> tuple[Fragment, ...]:
    """Return the fragments up to the one by which the log has counted as many rows."""
    found = []
    for fragment, count in wanted:
        if rows <= 0:
            break
        found.append(fragment)
        rows -= count or 0
    return tuple(found)


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


def packed(weights: Sequence[int], room: int) -> list[range]:
    """Return neighbours that fit one reader together: none is left out or there twice. Pure.

    A weight that is larger than the room is alone.
    """
    found = []
    start = held = 0
    for at, weight in enumerate(weights):
        if at > start and held + weight > room:
            found.append(range(start, at))
            start, held = at, 0
        held += weight
    if start < len(weights):
        found.append(range(start, len(weights)))
    return found
