"""Which fragments a scan reads, and which columns of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txlog.errors import InvalidInputError
from txlog.expressions.bind import bind, columns_of
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import Expression
from txlog.fragments.rows import FEATURE, FragmentRows, fragment_rows
from txlog.scan.metadata_columns import (
    ROW_VERSION,
    RowTracking,
    metadata_bounds,
    require_row_tracking,
    row_tracking,
    visible_metadata,
)
from txlog.schema.arrow import arrow_schema
from txlog.schema.types import StructField, StructType
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.bounds import Bounds, ColumnBounds, Known, merged
from txlog.stats.fragments import (
    fragment_bounds,
    physical_rows,
    require_same_counts,
    require_same_partitions,
)
from txlog.stats.skip import always, keep


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


class Memo(dict[Any, Any]):
    """What follows from a plan and the layout of a file, found once for many files.

    It is left behind when a plan is pickled.
    """

    def __reduce__(self) -> tuple[type[Memo], tuple[()]]:
        return Memo, ()


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """How to read a fragment: it pickles, so any worker can do it without the log."""

    root: str
    version: int
    columns: tuple[StructField, ...]  # In the order of the result.
    needed: tuple[StructField, ...]  # Those and the predicate's: the table's, then metadata's.
    metadata_columns: frozenset[str] = frozenset()  # Of those, the ones that are no table's.
    partition_columns: frozenset[str]  # Logical names.
    mapping_mode: str
    where: Expression | None  # Bound to the table's schema.
    row_tracking: RowTracking | None = None

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return arrow_schema(StructType(self.columns))

    @cached_property
    def memo(self) -> Memo:
        """What was found out while fragments were read."""
        return Memo()


@dataclass(frozen=True)
class PlannedFiles:
    """The fragments that a scan reads, as columns: none of them is an object yet."""

    rows: FragmentRows
    physical_rows: pa.Array  # int64, of each; null where the log does not say.
    certain: pa.Array  # bool, of each: whether the predicate is true of all its rows.
    explanation: Explanation

    @property
    def files(self) -> PlannedFiles:
        """These: as the source of a plan, they are found already."""
        return self

    @property
    def read_files(self) -> PlannedFiles:
        """These."""
        return self

    @property
    def paths(self) -> pa.ChunkedArray:
        """The paths of their files, as logged, the primaries first."""
        parts = (self.rows.primaries, self.rows.columns.rows)
        chunks = [chunk for part in parts for chunk in part["path"].chunks]
        return pa.chunked_array(chunks, pa.string())

    def count(self) -> int | None:
        """Return None: each fragment tells how many rows it has."""
        return None


def plan_live(snapshot: Snapshot, reading: ReadPlan, files: pa.Table) -> PlannedFiles:
    """Decide which of a snapshot's live `FILE_ROWS` can hold rows that a scan wants. Pure."""
    rows = fragment_rows(files, listed=snapshot.supports(FEATURE))
    require_same_partitions(rows, snapshot.physical_partition_columns)
    return plan_rows(snapshot, reading, rows)


def plan_rows(
    snapshot: Snapshot, reading: ReadPlan, rows: FragmentRows, counts: pa.Array | None = None
) -> PlannedFiles:
    """Decide which fragments of a snapshot can hold rows that a scan wants. Pure.

    Without a predicate, `counts` are their numbers of rows, if the caller has them.
    """
    bound, files = reading.where, len(rows.ids)
    if bound is None:
        everything = pa.repeat(pa.scalar(True), files)
        left = Narrowed(rows, physical_rows(rows) if counts is None else counts, everything, files)
    else:
        require_same_counts(rows)
        left = narrowed(snapshot, bound, rows, reading.row_tracking)
    survivors = left.rows
    return PlannedFiles(
        survivors,
        left.physical_rows,
        left.certain,
        Explanation(
            version=reading.version,
            predicate=None if bound is None else to_sql(bound),
            columns=tuple(column.name for column in reading.columns),
            files=files,
            pruned_by_partition=files - left.in_partition,
            pruned_by_statistics=left.in_partition - len(survivors.ids),
            files_to_read=len(survivors.ids),
            files_with_deletions=len(survivors.ids) - survivors.primaries["dv_id"].null_count,
            bytes_to_read=sum(
                pc.sum(part["size"]).as_py() or 0
                for part in (survivors.primaries, survivors.columns.rows)
            ),
        ),
    )


def scan_schema(snapshot: Snapshot) -> StructType:
    """Return what a scan can return: the table's columns, then the metadata columns."""
    return StructType((*snapshot.schema.fields, *visible_metadata(snapshot).values()))


def read_plan(
    snapshot: Snapshot, *, columns: list[str] | None = None, where: Expression | None = None
) -> ReadPlan:
    """Decide how the fragments of a snapshot are read; arguments and errors as `plan_scan`."""
    metadata = visible_metadata(snapshot)
    schema = scan_schema(snapshot)
    chosen = choose_columns(schema, snapshot.schema.names() if columns is None else columns)
    bound = None if where is None else bind(where, schema)
    needed = _needed(schema, chosen, bound)
    if ROW_VERSION in metadata and any(column.name == ROW_VERSION for column in needed):
        require_row_tracking(snapshot)
    return ReadPlan(
        root=snapshot.root,
        version=snapshot.version,
        columns=chosen,
        needed=needed,
        metadata_columns=frozenset(column.name for column in needed if column.name in metadata),
        partition_columns=frozenset(snapshot.partition_columns),
        mapping_mode=snapshot.mapping_mode,
        where=bound,
        row_tracking=row_tracking(snapshot),
    )


def require_table_columns(where: Expression | None, snapshot: Snapshot) -> None:
    """Refuse a predicate of a write that asks for metadata columns.

    Addresses and provisional ids belong to one version, and a write is made on the latest one.

    Raises
    ------
    InvalidInputError
        It does.
    """
    metadata = visible_metadata(snapshot)
    for path in () if where is None else columns_of(where):
        if path[0] in metadata:
            raise InvalidInputError(
                argument="where",
                field=path[0],
                reason="a write cannot go by metadata columns, which may mean other rows by then",
                remedy="Use columns of the table",
            )


def column_names(columns: Sequence[str]) -> list[str]:
    """Return the names of columns that a caller chose.

    Raises
    ------
    InvalidInputError
        It is one text, of whose letters nobody thinks.
    """
    if isinstance(columns, str):
        raise InvalidInputError(
            argument="columns",
            reason="a list of names was expected, not text",
            remedy=f"Write columns=[{columns!r}]",
        )
    return list(columns)


def choose_columns(schema: StructType, columns: Sequence[str]) -> tuple[StructField, ...]:
    """Return the columns of a schema that a caller names, in the caller's order.

    Raises
    ------
    InvalidInputError
        There is none of a name.
    """
    found = []
    for name in column_names(columns):
        column = schema.get(name) if isinstance(name, str) else None
        if column is None:
            raise InvalidInputError(
                argument="columns",
                field=str(name),
                reason="the table has no such column",
                remedy=f"Choose from {', '.join(schema.names())}",
            )
        found.append(column)
    return tuple(found)


def _needed(
    schema: StructType, chosen: tuple[StructField, ...], where: Expression | None
) -> tuple[StructField, ...]:
    names = {column.name for column in chosen}
    if where is not None:
        names.update(path[0] for path in columns_of(where))
    return tuple(column for column in schema.fields if column.name in names)


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
