"""Tasks of about one size: small files are read by one of them, a large one by several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from txlog.fragments.fragment import Fragment, Fragments
from txlog.scan.data_file import RowRange
from txlog.scan.shares import fragment_bytes, packed, row_ranges

_OPEN_BYTES = 4 * 1024 * 1024  # What opening a file costs, in bytes read. As Spark has it.
_LEAST_BYTES = 32 * 1024 * 1024  # A task with less takes longer to start than to read.
_TASKS = 32  # Where there is enough for so many, none is larger than its part.

Item = TypeVar("Item")


@dataclass(frozen=True)
class TaskShare(Generic[Item]):
    """What one task reads: several items, or a part of one."""

    items: Sequence[Item]
    rows: RowRange | None = None


def task_shares(
    items: Sequence[Item], fragments: Sequence[Fragment], max_bytes: int, *, read: float = 1.0
) -> list[TaskShare[Item]]:
    """Return who reads what: everything once, in the order of the items. Pure.

    Parameters
    ----------
    fragments
        That of each item.
    max_bytes
        A larger fragment is cut into several parts, by row groups.
    read
        Which part of their bytes is read, as only some columns are.
    """
    weights = (fragment_bytes(fragments) * read).astype(np.int64) + _OPEN_BYTES
    room = min(max_bytes, max(_LEAST_BYTES, int(weights.sum()) // _TASKS))
    shares: list[TaskShare[Item]] = []
    for places in packed(weights, room):
        parts: Sequence[RowRange | None] = [None]
        if len(places) == 1:
            parts = row_ranges(fragments[places[0]], max_bytes)
        some = items[places.start : places.stop]
        # Columns stay columns.
        held = some if isinstance(items, Fragments) else tuple(some)
        shares += [TaskShare(held, rows) for rows in parts]
    return shares
