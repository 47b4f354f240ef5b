"""What is known of many files' columns, as Arrow columns with one row for each file.

A null is "unknown"; nothing here promises that a bound is a value that occurs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import pyarrow as pa

from txlog.arrow import pc

Path = tuple[str, ...]

ALL = -1
"""As a null count: all rows are null, however many those are."""


class Known(Enum):
    """What the log tells of files, from what costs least to read to what costs most."""

    PARTITIONS = auto()
    RANGES = auto()  # The least and the greatest value of columns.
    COUNTS = auto()  # Of rows, and of nulls.


EVERYTHING = frozenset(Known)


def value_at(node: Any, path: Path) -> Any:
    """Return what a JSON object says under a path of names; None where it ends before."""
    for name in path:
        if not isinstance(node, dict):
            return None
        node = node.get(name)
    return node


@dataclass(frozen=True)
class ColumnBounds:
    """Of one column, in each file: no value is below `low` or above `high`, and how many nulls."""

    low: pa.Array
    high: pa.Array
    nulls: pa.Array  # int64.


@dataclass(frozen=True)
class Bounds:
    """Of each file the number of rows, and the bounds of its columns by their logical paths."""

    rows: pa.Array  # int64; null where unknown.
    columns: Mapping[Path, ColumnBounds] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def filter(self, chosen: pa.Array) -> Bounds:
        """Return those of some of the files."""
        columns = {
            path: ColumnBounds(
                known.low.filter(chosen), known.high.filter(chosen), known.nulls.filter(chosen)
            )
            for path, known in self.columns.items()
        }
        return Bounds(self.rows.filter(chosen), columns)


def merged(first: Bounds, second: Bounds) -> Bounds:
    """Return bounds of the same files: those of `first` where it knows, else those of `second`."""
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
