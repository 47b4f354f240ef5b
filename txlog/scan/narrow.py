"""Which fragments a predicate leaves, and what a plan says of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from txlog.arrow import pc
from txlog.expressions.bind import columns_of
from txlog.expressions.tree import Expression
from txlog.fragments.rows import FragmentRows
from txlog.scan.columns import RowTracking, metadata_bounds, visible_metadata
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.files import fragment_bounds
from txlog.stats.skip import Bounds, ColumnBounds, Known, always, keep, merged


@dataclass(frozen=True)
class Explanation:
    """What a plan reads and what it leaves out, and why."""

    version: int
    predicate: str | None
    columns: tuple[str, ...]
    files: int  # In the snapshot.
    pruned_by_partition: int
    pruned_by_statistics: int  # Or by the ids and addresses that their rows have.
    files_to_read: int
    files_with_deletions: int  # Of those to read.
    bytes_to_read: int  # At most: row groups and columns are left out as well.

    def __str__(self) -> str:
        return "\n".join(
            [
                f"Scan of version {self.version}",
                f"  columns: {', '.join(self.columns)}",
                f"  where: {self.predicate or 'all rows'}",
                f"  files: {self.files_to_read} of {self.files}",
                f"    bytes at most: {self.bytes_to_read:,}",
                f"    left out by partition values: {self.pruned_by_partition}",
                f"    left out by statistics: {self.pruned_by_statistics}",
                f"    with deleted rows: {self.files_with_deletions}",
            ]
        )


@dataclass(frozen=True)
class Narrowed:
    """The fragments that a predicate leaves."""

    rows: FragmentRows
    physical_rows: pa.Array  # int64, of each; null where the log does not say.
    certain: pa.Array  # bool, of each: the predicate is true of all its rows.
    in_partition: int  # How many are left by partition values alone.


def narrowed(
    snapshot: Snapshot, where: Expression, rows: FragmentRows, tracking: RowTracking | None
) -> Narrowed:
    """Return the fragments that a bound predicate leaves.

    It goes from what costs least to know to what costs most: whatever is ruled out by its
    partition needs no statistics, and what is ruled out by a range no counts. As knowing more
    never makes a file possible again, the order decides nothing but the cost.
    """
    bounds_of = partial(
        fragment_bounds,
        schema=snapshot.schema,
        partition_columns=snapshot.partition_columns,
        where=where,
        mapping_mode=snapshot.mapping_mode,
    )
    found = Bounds(pa.nulls(len(rows.ids), pa.int64()))
    left = []
    of_files = any(path[0] not in snapshot.partition_columns for path in columns_of(where))
    for known in Known:
        if known is Known.RANGES and not of_files:
            continue  # Partition values are both ends of their range.
        told = bounds_of(rows, known=(known,))
        if known is Known.COUNTS:
            told = _with_metadata(snapshot, rows, told, tracking)
        found = merged(found, told)
        kept = keep(where, found)
        if not pc.all(kept).as_py():
            rows, found = rows.filter(kept), found.filter(kept)
        left.append(len(rows.ids))
    return Narrowed(rows, found.rows, always(where, found), left[0])


def _with_metadata(
    snapshot: Snapshot, rows: FragmentRows, told: Bounds, tracking: RowTracking | None
) -> Bounds:
    """Return bounds together with those of the metadata columns."""
    visible = visible_metadata(snapshot)
    bounds = metadata_bounds(rows.ids, told.rows, tracking)
    of_metadata: dict[tuple[str, ...], ColumnBounds] = {
        (name,): held for name, held in bounds.items() if name in visible
    }
    return merged(told, Bounds(told.rows, of_metadata))
