"""Which fragments a predicate leaves, and what a plan says of it. Pure."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from txlog.actions.columns import flat
from txlog.arrow import pc
from txlog.errors import TxlogError
from txlog.expressions.bind import columns_of
from txlog.expressions.evaluate import is_true
from txlog.expressions.tree import And, Arithmetic, Call, Case, Cast, Expression, children
from txlog.fragments.rows import FragmentRows
from txlog.lazy import dataclass
from txlog.scan.columns import RowTracking, metadata_bounds, visible_metadata
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.files import fragment_bounds, partition_values
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
    rows = _computed_away(snapshot, where, rows)
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


def _computed_away(snapshot: Snapshot, where: Expression, rows: FragmentRows) -> FragmentRows:
    """Return the fragments that parts of a predicate leave which compute with partition values.

    A part that only compares them is left to their bounds.
    """
    for part in where.parts if isinstance(where, And) else (where,):
        names = {path[0] for path in columns_of(part)}
        if not names or not names <= {*snapshot.partition_columns} or not _computes(part):
            continue
        columns = [column for column in snapshot.schema.fields if column.name in names]
        values = pa.RecordBatch.from_arrays(
            [partition_values(rows.primaries, one, snapshot.mapping_mode) for one in columns],
            names=[column.name for column in columns],
        )
        try:
            rows = rows.filter(flat(is_true(part, values)))
        except TxlogError:  # Reading the rows says so.
            continue
    return rows


def _computes(node: Expression) -> bool:
    return isinstance(node, Arithmetic | Call | Case | Cast) or any(map(_computes, children(node)))


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
