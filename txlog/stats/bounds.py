"""Bounds of columns in many files, as Arrow columns with one row per file.

A null means unknown. A bound need not be a value that occurs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

import pyarrow as pa

from txlog.actions.stats_text import Path
from txlog.arrow import pc

ALL = -1
"""As a null count: all rows are null, however many those are."""


class Known(Enum):
    """The kinds of statistics in the log, from the cheapest to read to the dearest."""

    PARTITIONS = auto()
    RANGES = auto()  # The least and the greatest value of columns.
    COUNTS = auto()  # Of rows, and of nulls.


EVERYTHING = frozenset(Known)


@dataclass(frozen=True)
class ColumnBounds:
    """The bounds of one column in each file, and its number of nulls.

    No value is below `low` or above `high`.
    """

    low: pa.Array
    high: pa.Array
    nulls: pa.Array  # int64.


@dataclass(frozen=True)
class Bounds:
    """The number of rows of each file, and the bounds of its columns by their logical paths."""

    rows: pa.Array  # int64; null where unknown.
    columns: Mapping[Path, ColumnBounds] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def filter(self, chosen: pa.Array) -> Bounds:
        """Return the bounds of the files that a mask chooses."""
        columns = {
            path: ColumnBounds(
                known.low.filter(chosen), known.high.filter(chosen), known.nulls.filter(chosen)
            )
            for path, known in self.columns.items()
        }
        return Bounds(self.rows.filter(chosen), columns)


def merged(first: Bounds, second: Bounds) -> Bounds:
    """Return bounds of the same files: those of `first`, or of `second` where `first` has none."""
    columns = dict(second.columns)
    for path, ours in first.columns.items():
        theirs = columns.get(path)
        columns[path] = (
            ours
            if theirs is None
            else ColumnBounds(
                pc.coalesce(ours.low, theirs.low),
                pc.coalesce(ours.high, theirs.high),
                pc.coalesce(ours.nulls, theirs.nulls),
            )
        )
    return Bounds(pc.coalesce(first.rows, second.rows), columns)
