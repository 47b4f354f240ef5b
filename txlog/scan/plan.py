"""Plan scans: exclude the fragments that a predicate cannot match. Pure.

A `ScanPlan` describes how fragments are read, and finds them at their first use. They stay Arrow
columns (`PlannedFiles`): a fragment becomes a value when it is taken from `fragments`. The plan of
a large table, `lazy_plan.LoggedPlan`, reads only the needed parts of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

import pyarrow as pa

from txlog.actions.columns import files_at
from txlog.actions.stats_text import Path
from txlog.base.arrow import arrow_array, arrow_scalar, pc
from txlog.base.columns import flat
from txlog.base.errors import LogCorruptError, TxlogError
from txlog.base.threads import cached_property
from txlog.expressions.bind import columns_of
from txlog.expressions.evaluate import mask
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import And, Column, Expression, Not, Or
from txlog.fragments.fragment import Fragment, FragmentSequence
from txlog.fragments.rows import FEATURE, FragmentRows, deleted_counts, fragment_rows
from txlog.protocol.form import RowTracking
from txlog.scan.columns import metadata_bounds, visible_metadata
from txlog.scan.read_plan import ReadPlan, read_plan
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.files import (
    fragment_bounds,
    partition_values,
    physical_rows,
    require_same_counts,
    require_same_partitions,
)
from txlog.stats.skip import ALL, Bounds, ColumnBounds, Known, always, is_exact, keep, merged


@dataclass(frozen=True)
class Explanation:
    """What a plan reads and what it skips, and why."""

    version: int
    predicate: str | None
    columns: tuple[str, ...]
    files: int  # All files of the snapshot.
    pruned_by_partition: int
    pruned_by_statistics: int  # Or by the ids and addresses of rows.
    files_to_read: int
    files_with_deletions: int  # The number among the files to read.
    bytes_to_read: int  # An upper limit, because row groups and columns are skipped, too.
    pruned_by_index: int = 0
    # What an index over columns of the predicate did; None: there is none.
    index: str | None = None

    def __str__(self) -> str:
        lines = [
            f"Scan of version {self.version}",
            f"  columns: {', '.join(self.columns)}",
            f"  where: {self.predicate or 'all rows'}",
            f"  files: {self.files_to_read} of {self.files}",
            f"    bytes at most: {self.bytes_to_read:,}",
            f"    left out by partition values: {self.pruned_by_partition}",
            f"    left out by statistics: {self.pruned_by_statistics}",
            f"    with deleted rows: {self.files_with_deletions}",
        ]
        if self.index is not None:
            lines[-1:-1] = [f"    left out by the index: {self.pruned_by_index}"]
            lines.append(f"  index {self.index}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from txlog.base.html import facts_html, titled

        facts = {
            "columns": ", ".join(self.columns),
            "where": self.predicate or "all rows",
            "files": f"{self.files_to_read:,} of {self.files:,}",
            "bytes at most": self.bytes_to_read,
            "left out by partition values": self.pruned_by_partition,
            "left out by statistics": self.pruned_by_statistics,
            **({} if self.index is None else {"left out by the index": self.pruned_by_index}),
            "with deleted rows": self.files_with_deletions,
            **({} if self.index is None else {"index": self.index}),
        }
        return titled(f"Scan of version {self.version}", facts_html(facts))


@dataclass(frozen=True)
class PlannedFiles:
    """The fragments that a scan reads, as unordered columns."""

    rows: FragmentRows = field(repr=False)
    physical_rows: pa.Array = field(repr=False)  # int64; null if the log has no count.
    certain: pa.Array = field(repr=False)  # bool: the predicate is true for all rows.
    explanation: Explanation

    @property
    def paths(self) -> pa.ChunkedArray:
        """The paths of the files, as logged."""
        chunks = self.rows.primaries["path"].chunks + self.rows.columns.rows["path"].chunks
        return pa.chunked_array(chunks, pa.string())

    @property
    def live_rows(self) -> pa.Array:
        """The number of live rows of each; null if the log has no count."""
        return live_counts(self.physical_rows, self.rows.primaries)

    def filter(self, chosen: pa.Array) -> PlannedFiles:
        """Return some of the fragments."""
        return replace(
            self,
            rows=self.rows.filter(chosen),
            physical_rows=pc.filter(self.physical_rows, chosen),
            certain=pc.filter(self.certain, chosen),
        )

    def fragments(self) -> FragmentSequence:
        """Return the fragments, ordered by id."""
        return FragmentSequence(self.rows, self.physical_rows)


@dataclass(frozen=True, kw_only=True)
class ScanPlan:
    """A scan: how fragments are read, and which ones. Values are computed at their first use.

    Parameters
    ----------
    reading
        How each fragment is read: the value that workers get.
    live
        The live `FILE_ROWS` from which the plan was made, if the caller has them.
    """

    reading: ReadPlan
    live: pa.Table | None = field(default=None, repr=False, compare=False)

    def _find(self) -> PlannedFiles:
        raise NotImplementedError

    def for_arrow(self) -> Self:
        """Return the plan with fixed-size lists in the result; the same plan if there are none."""
        reading = self.reading.for_arrow()
        return self if reading is self.reading else replace(self, reading=reading)

    def with_dictionaries(self, wanted: bool | Sequence[str]) -> Self:
        """Do the same as `ReadPlan.with_dictionaries`."""
        return replace(self, reading=self.reading.with_dictionaries(wanted))

    @cached_property
    def files(self) -> PlannedFiles:
        """The fragments that the predicate does not exclude, as columns."""
        return self._find()

    @property
    def read_files(self) -> PlannedFiles:
        """The fragments that the predicate does not exclude, with the facts that reading needs.

        If the scan has no column of ids, provisional ids may differ from those in `files`, but the
        order is the same. Without deletions, row counts may be missing. The explanation counts only
        these files.
        """
        return self.files

    @property
    def explanation(self) -> Explanation:
        """The files that are read and the files that are skipped."""
        return self.files.explanation

    @property
    def paths(self) -> pa.ChunkedArray:
        """The logged paths of the files to read, unordered."""
        return self.files.paths

    def rows_at(self, paths: Iterable[str]) -> pa.Table:
        """Return the live `FILE_ROWS`, with all columns, of some of the plan's files.

        An operation needs these of the files that it changes; few of those that it looks at.
        """
        assert self.live is not None
        return files_at(self.live, paths)

    @cached_property
    def fragments(self) -> Sequence[Fragment]:
        """The fragments that the predicate does not exclude, ordered by id."""
        return self.files.fragments()

    @cached_property
    def values(self) -> tuple[Fragment, ...]:
        """The fragments as cached values."""
        return tuple(self.fragments)

    @cached_property
    def to_read(self) -> Sequence[Fragment]:
        """The fragments of `read_files`, ordered by id."""
        return self.read_files.fragments()

    @cached_property
    def certain(self) -> tuple[bool, ...]:
        """For each fragment, whether the predicate is true for all of its rows."""
        order = pc.sort_indices(self.files.rows.ids)
        return tuple(pc.take(self.files.certain, order).to_pylist())

    @cached_property
    def counts(self) -> tuple[int | None, ...]:
        """For each fragment, the number of matching rows; None if it must be read to count."""
        files = self.files
        known = pc.if_else(files.certain, files.live_rows, None)
        return tuple(pc.take(known, pc.sort_indices(files.rows.ids)).to_pylist())

    def count(self) -> tuple[int, Sequence[Fragment]]:
        """Return the number of rows that the log counts, and the fragments that must be read."""
        known = pc.if_else(self.files.certain, self.files.live_rows, None)
        unknown = self.files.filter(pc.is_null(known))
        return pc.sum(known).as_py() or 0, tuple(unknown.fragments())


@dataclass(frozen=True, kw_only=True)
class FoundPlan(ScanPlan):
    """A scan of files that the caller has or can get without reading the log."""

    find: Callable[[], PlannedFiles] = field(repr=False, compare=False)
    # Whether each file is a fragment of its own, so that no other file tells whether it is read.
    single: bool = field(default=False, compare=False)

    def _find(self) -> PlannedFiles:
        return self.find()

    @property
    def paths(self) -> pa.ChunkedArray:
        """The logged paths of the files to read, unordered."""
        if self.single and self.live is not None and self.reading.where is None:
            return self.live["path"]  # Neither ids nor counts are needed.
        return self.files.paths


@dataclass(frozen=True, kw_only=True)
class GivenPlan(ScanPlan):
    """A scan of fragments that the caller has, in the caller's order. All of them are read."""

    given: tuple[Fragment, ...] = field(repr=False)

    @property
    def fragments(self) -> Sequence[Fragment]:
        """The fragments."""
        return self.given

    to_read = fragments

    @property
    def certain(self) -> tuple[bool, ...]:
        """For each fragment, whether the predicate is true for all of its rows."""
        return (self.reading.where is None,) * len(self.given)

    @property
    def counts(self) -> tuple[int | None, ...]:
        """For each fragment, the number of matching rows; None if it must be read to count."""
        if self.reading.where is not None:
            return (None,) * len(self.given)
        return tuple(fragment.num_rows for fragment in self.given)

    @property
    def explanation(self) -> Explanation:
        """The files that are read: all of them."""
        return Explanation(
            version=self.reading.version,
            predicate=None if self.reading.where is None else to_sql(self.reading.where),
            columns=tuple(column.name for column in self.reading.columns),
            files=len(self.given),
            pruned_by_partition=0,
            pruned_by_statistics=0,
            files_to_read=len(self.given),
            files_with_deletions=sum(one.deletion is not None for one in self.given),
            bytes_to_read=sum(file.size for one in self.given for file in one.files),
        )

    @property
    def paths(self) -> pa.ChunkedArray:
        """The paths of the files, as logged."""
        paths = [file.path for fragment in self.given for file in fragment.files]
        return pa.chunked_array([arrow_array(paths, pa.string())])

    def count(self) -> tuple[int, Sequence[Fragment]]:
        """Return the number of rows that the log counts, and the fragments that must be read."""
        pairs = list(zip(self.given, self.counts, strict=True))
        known = sum(count for _, count in pairs if count is not None)
        return known, tuple(fragment for fragment, count in pairs if count is None)


def live_counts(physical_rows: pa.Array, files: pa.Table) -> pa.Array:
    """Return the number of rows that are not deleted in each file; null if the log has no count."""
    left = pc.subtract(physical_rows, deleted_counts(files))
    return pc.if_else(pc.greater_equal(left, 0), left, None)  # A wrong log may give less than 0.


def plan_scan(
    snapshot: Snapshot,
    files: pa.Table,
    *,
    columns: list[str] | None = None,
    where: Expression | None = None,
) -> ScanPlan:
    """Plan a scan of a snapshot's known files. Pure.

    Parameters
    ----------
    files
        The snapshot's live files, as `FILE_ROWS`.
    columns
        The columns to return, in this order: the table's, or metadata columns. None for all of
        the table's.
    where
        Return only rows for which this is true.

    Raises
    ------
    InvalidInputError
        A column is not in the table, or the predicate does not fit its schema.
    """
    reading = read_plan(snapshot, columns=columns, where=where)
    find = partial(plan_live, snapshot, reading, files)
    return FoundPlan(reading=reading, live=files, find=find, single=not snapshot.supports(FEATURE))


def plan_fragments(
    snapshot: Snapshot,
    fragments: Sequence[Fragment],
    *,
    columns: list[str] | None = None,
    where: Expression | None = None,
) -> ScanPlan:
    """Plan a scan of some fragments of a snapshot, in their order; errors as for `plan_scan`."""
    reading = read_plan(snapshot, columns=columns, where=where)
    return GivenPlan(reading=reading, given=tuple(fragments))


def plan_live(snapshot: Snapshot, reading: ReadPlan, files: pa.Table) -> PlannedFiles:
    """Choose the live `FILE_ROWS` that may contain matching rows. Pure."""
    rows = fragment_rows(files, listed=snapshot.supports(FEATURE))
    require_same_partitions(rows, snapshot.partition_fields, snapshot.mapping_mode)
    return plan_rows(snapshot, reading, rows)


def plan_rows(
    snapshot: Snapshot, reading: ReadPlan, rows: FragmentRows, counted: pa.Array | None = None
) -> PlannedFiles:
    """Choose the fragments that may contain matching rows. Pure.

    Parameters
    ----------
    counted
        The number of rows of each fragment, if the caller has it.
    """
    where, files = reading.where, len(rows.ids)
    if files and snapshot.metadata.schema_string is None:
        raise LogCorruptError(
            path=rows.primaries["path"][0].as_py(),
            version=snapshot.version,
            field="metaData.schemaString",
            reason="the table has files, but its schema has no columns",
            remedy="The writer of this log made an error. Open a later version if there is one",
        )
    if where is None:
        certain, in_partition = pa.repeat(arrow_scalar(True), files), files
        counts = physical_rows(rows) if counted is None else counted
    else:
        require_same_counts(rows)
        rows, known, in_partition = narrowed(snapshot, where, rows, reading.form.row_tracking)
        counts, certain = known.rows, always(where, known)
    left = len(rows.ids)
    explanation = Explanation(
        version=reading.version,
        predicate=None if where is None else to_sql(where),
        columns=tuple(column.name for column in reading.columns),
        files=files,
        pruned_by_partition=files - in_partition,
        pruned_by_statistics=in_partition - left,
        files_to_read=left,
        files_with_deletions=left - rows.primaries["dv_id"].null_count,
        bytes_to_read=sum(
            pc.sum(rows_of["size"]).as_py() or 0 for rows_of in (rows.primaries, rows.columns.rows)
        ),
    )
    return PlannedFiles(rows, counts, certain, explanation)


def narrowed(
    snapshot: Snapshot, where: Expression, rows: FragmentRows, tracking: RowTracking | None
) -> tuple[FragmentRows, Bounds, int]:
    """Return the fragments that a bound predicate does not exclude, and their bounds.

    The number is the count of fragments that remain after the check of partition values.

    The checks are in the order of their costs: a file that its partition excludes needs no
    statistics, and a file that a range excludes needs no counts. The order only affects the cost,
    because a further check never brings an excluded file back.

    Raises
    ------
    InvalidInputError
        A part of the predicate cannot be computed for the partition of a fragment that no other
        check excludes. (Reading its rows would raise the error, but some callers read no rows.)
    """
    bounds_of = partial(
        fragment_bounds,
        schema=snapshot.schema,
        partition_columns=snapshot.partition_columns,
        where=where,
        mapping_mode=snapshot.mapping_mode,
    )
    computed: dict[Path, Expression] = {}
    asked = _with_names(where, {*snapshot.partition_columns}, computed)
    failed: dict[Path, Expression] = {}
    found = Bounds(pa.nulls(len(rows.ids), pa.int64()))
    for path, part in computed.items():
        try:
            found = merged(found, _computed(snapshot, path, part, rows))
        except TxlogError:
            failed[path] = part
    left = []
    of_files = any(path[0] not in snapshot.partition_columns for path in columns_of(where))
    for known in Known:
        if known is Known.RANGES and not of_files:
            continue  # A partition value is both bounds of its range.
        bounds = bounds_of(rows, known=(known,))
        if known is Known.COUNTS:
            bounds = _with_metadata(snapshot, rows, bounds, tracking)
        found = merged(found, bounds)
        kept = keep(asked, found)
        if not pc.all(kept).as_py():
            rows, found = rows.filter(kept), found.filter(kept)
        left.append(len(rows.ids))
    for path, part in failed.items():
        # Perhaps it failed only for fragments that other parts have excluded.
        found = merged(found, _computed(snapshot, path, part, rows))
        kept = keep(asked, found)
        rows, found = rows.filter(kept), found.filter(kept)
    return rows, found, left[0]


def _with_names(
    where: Expression, partitions: set[str], computed: dict[Path, Expression]
) -> Expression:
    """Return a predicate in which a column stands for each part that is computed for a partition.

    These parts depend on partition values alone, or on constants. They are added to `computed`.
    Simple comparisons are no such parts: a partition value is both bounds of its range.
    """
    is_computed = {path[0] for path in columns_of(where)} <= partitions and not is_exact(where)
    match where:
        case And(parts):
            return And(tuple(_with_names(part, partitions, computed) for part in parts))
        # One that depends on partitions alone is computed as a whole: beside a part that is true,
        # a part that cannot be computed is not needed.
        case Or(parts) if not is_computed:
            return Or(tuple(_with_names(part, partitions, computed) for part in parts))
        case Not(operand) if not is_computed:
            return Not(_with_names(operand, partitions, computed))
    if not is_computed:
        return where
    path = ("", str(len(computed)))  # No column has an empty name.
    computed[path] = where
    return Column(path)


def _computed(snapshot: Snapshot, path: Path, part: Expression, rows: FragmentRows) -> Bounds:
    """Return what a part of a predicate is for the partition of each fragment, as bounds."""
    names = {path[0] for path in columns_of(part)}
    columns = [column for column in snapshot.schema.fields if column.name in names]
    values = [partition_values(rows.primaries, one, snapshot.mapping_mode) for one in columns]
    values.append(rows.ids)  # A batch without columns would have no rows.
    batch = pa.RecordBatch.from_arrays(values, names=[*(one.name for one in columns), ""])
    found = flat(mask(part, batch))
    nulls = pc.if_else(
        pc.is_null(found), arrow_scalar(ALL, pa.int64()), arrow_scalar(0, pa.int64())
    )
    return Bounds(pa.nulls(len(found), pa.int64()), {path: ColumnBounds(found, found, nulls)})


def _with_metadata(
    snapshot: Snapshot, rows: FragmentRows, of_files: Bounds, tracking: RowTracking | None
) -> Bounds:
    """Return bounds together with those of the metadata columns."""
    visible = visible_metadata(snapshot)
    bounds = metadata_bounds(rows.ids, of_files.rows, tracking)
    of_metadata: dict[tuple[str, ...], ColumnBounds] = {
        (name,): bound for name, bound in bounds.items() if name in visible
    }
    return merged(of_files, Bounds(of_files.rows, of_metadata))
