"""Compaction: rewrite small files, and files with many deleted rows, into fewer files.

Rules: spec/fragments.md, FRG-33 and FRG-34.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.actions.columns import files_at
from txlog.actions.file import Add
from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.errors import InvalidInputError
from txlog.base.threads import map_all
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.commit.operation import Operation
from txlog.data_files.deletions import removes_of
from txlog.data_files.options import WriteOptions, as_options
from txlog.data_files.rewrite import (
    RewritePlan,
    RewrittenPart,
    moved_rows,
    plan_rewrite,
    require_movable,
    rewrite,
)
from txlog.data_files.write import discard_files, write_data_files
from txlog.expressions.bind import columns_of
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import Expression
from txlog.fragments.fragment import Fragment
from txlog.scan.data_file import BATCH_ROWS
from txlog.scan.plan import plan_scan
from txlog.scan.read import FragmentReader
from txlog.scan.read_plan import choose_columns
from txlog.schema.arrow import arrow_schema, arrow_type
from txlog.schema.types import type_name
from txlog.snapshot.live_files import load_files
from txlog.snapshot.snapshot import Snapshot

MAX_DELETED_FRACTION = 0.05
MAX_COLUMN_FILES = 8


def require_partition_columns(where: Expression | None, snapshot: Snapshot) -> None:
    """Raise if a predicate reads other columns than partition columns.

    Raises
    ------
    InvalidInputError
        The error names the column.
    """
    for path in () if where is None else columns_of(where):
        if path[0] not in snapshot.partition_columns:
            raise InvalidInputError(
                argument="where",
                field=".".join(path),
                reason="files are chosen by partition, and this is not a partition column",
                remedy=f"Use {', '.join(snapshot.partition_columns) or 'no predicate'}",
            )


_SMALL = 0.75  # A fraction of the target size.


@dataclass(frozen=True)
class Limits:
    """Which files are rewritten, and the maximum size of new files."""

    target_bytes: int
    min_bytes: int  # Smaller files are rewritten together.
    # A file with a greater fraction of deleted rows is rewritten even if it is the only one.
    max_deleted: float
    max_rows: int | None = None
    max_columns: int = MAX_COLUMN_FILES  # The largest number of column files of a fragment.

    def is_fragmented(self, fragment: Fragment) -> bool:
        """Whether a fragment has too many deleted rows or too many column files."""
        if len(fragment.files) - 1 > self.max_columns:
            return True
        rows = fragment.physical_rows
        return bool(rows) and fragment.num_deletions / (rows or 1) > self.max_deleted

    def is_small(self, fragment: Fragment) -> bool:
        """Whether a fragment's files are too small."""
        return _bytes(fragment) < self.min_bytes


def limits(
    options: WriteOptions,
    min_file_bytes: int | None,
    max_deleted_fraction: float,
    max_column_files: int,
) -> Limits:
    """Return the limits that arguments ask for.

    Raises
    ------
    InvalidInputError
        A limit is not a number of its kind.
    """
    smallest = int(_SMALL * options.file_bytes) if min_file_bytes is None else min_file_bytes
    for name, value in (("min_file_bytes", smallest), ("max_column_files", max_column_files)):
        if type(value) is not int or value < 0:
            raise InvalidInputError(argument=name, reason=f"{value!r} is not a whole number from 0")
    number = type(max_deleted_fraction) in (int, float)
    if not number or not 0 <= max_deleted_fraction <= 1:
        raise InvalidInputError(
            argument="max_deleted_fraction",
            reason=f"{max_deleted_fraction!r} is not a number from 0 to 1",
        )
    return Limits(
        options.file_bytes,
        smallest,
        max_deleted_fraction,
        options.max_rows_per_file,
        max_column_files,
    )


def choose_groups(
    fragments: Iterable[Fragment], wanted: Limits, *, alone: bool = False
) -> list[tuple[Fragment, ...]]:
    """Group fragments, adjacent by id, that become one file together. Pure.

    Fragments of a group have the same logged partition values. A group has several fragments, or
    one fragmented one; with `alone`, any single one.
    """
    partitions: dict[tuple[tuple[str, str | None], ...], list[Fragment]] = {}
    for fragment in sorted(fragments, key=lambda fragment: fragment.id):
        if wanted.is_small(fragment) or wanted.is_fragmented(fragment):
            key = tuple(sorted(fragment.partition_values.items()))
            partitions.setdefault(key, []).append(fragment)
    groups = [group for found in partitions.values() for group in _filled(found, wanted)]
    return [group for group in groups if alone or len(group) > 1 or wanted.is_fragmented(group[0])]


def _filled(fragments: Sequence[Fragment], wanted: Limits) -> list[tuple[Fragment, ...]]:
    """Group the fragments of a partition so that each group fits one file."""
    groups: list[list[Fragment]] = [[]]
    size = rows = 0
    for fragment in fragments:
        more, count = bytes_left(fragment), fragment.num_rows or 0
        too_many = wanted.max_rows is not None and rows + count > wanted.max_rows
        if groups[-1] and (size + more > wanted.target_bytes or too_many):
            groups.append([])
            size = rows = 0
        groups[-1].append(fragment)
        size, rows = size + more, rows + count
    return [tuple(group) for group in groups]


def _bytes(fragment: Fragment) -> int:
    return sum(file.size for file in fragment.files)


def bytes_left(fragment: Fragment) -> int:
    """Return the approximate size of a fragment without its deleted rows."""
    left = fragment.num_rows
    if left is None or not fragment.physical_rows:
        return _bytes(fragment)
    return _bytes(fragment) * left // fragment.physical_rows


class Compact(Operation):
    """Rewrite small and fragmented files into fewer files, in one commit that changes no row."""

    name = "OPTIMIZE"
    deadline_s = 3600.0  # Try again after conflicts, even though rewriting takes long.

    def __init__(
        self,
        where: Expression | None,
        *,
        min_file_bytes: int | None = None,
        max_deleted_fraction: float = MAX_DELETED_FRACTION,
        max_column_files: int = MAX_COLUMN_FILES,
        sort_by: Sequence[str] = (),
        options: WriteOptions | None = None,
    ) -> None:
        """Take limits.

        Parameters
        ----------
        where
            Only files of partitions for which this is true.
        sort_by
            Columns by which the rows of each new file are sorted. A small unsorted file is
            rewritten even if it is the only one.

        Raises
        ------
        InvalidInputError
            A limit is not a number of its kind.
        """
        self._options = as_options(options)
        self._where = where
        self._sort_by = tuple(sort_by)
        self._asked = (min_file_bytes, max_deleted_fraction, max_column_files)
        limits(self._options, *self._asked)
        self._written: list[Add] = []

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the files that leave, and those that their rows were written to.

        Raises
        ------
        InvalidInputError
            The predicate is not over partition columns alone, or rows cannot be sorted by a
            column.
        UnsupportedFeatureError
            The table's rows would lose their ids.
        """
        require_movable(base)
        sort_by = _sort_columns(base, self._sort_by)
        files = load_files(self.context.store, base).live
        plan = plan_scan(base, files, columns=[], where=self._where)
        require_partition_columns(plan.reading.where, base)
        options = self._options.of_optimize(base.properties)
        wanted = limits(options, *self._asked)
        groups = choose_groups(plan.fragments, wanted, alone=bool(sort_by))
        replaced: list[Fragment] = []
        rewriting = plan_rewrite(base, options)
        for group, adds in rewrite_all(self.context, rewriting, groups, sort_by=sort_by):
            as_many = len(adds) >= len(group) and not any(map(wanted.is_fragmented, group))
            if as_many and (not sort_by or self._is_sorted(rewriting, group, sort_by)):
                # The files are already packed better than a rewrite would.
                discard_files(self.context.store, adds)
                continue
            replaced.extend(group)
            self._written.extend(adds)
        if not replaced:
            return None
        rows = files_at(files, (file.path for fragment in replaced for file in fragment.files))
        now_ms = self.context.effects.now_ms()
        return Intent(
            operation=self.name,
            kind="compact",
            read_version=base.version,
            removes=tuple(removes_of(rows, now_ms, data_change=False)),
            adds=tuple(add.model_copy(update={"data_change": False}) for add in self._written),
            own_files=frozenset(add.path for add in self._written),
            isolation="SnapshotIsolation",
            parameters={
                "predicate": [] if plan.reading.where is None else [to_sql(plan.reading.where)],
                "zOrderBy": [],
                "auto": False,
            },
            metrics=optimize_metrics(rows, self._written),
        )

    def _is_sorted(
        self, plan: RewritePlan, group: Sequence[Fragment], sort_by: Sequence[str]
    ) -> bool:
        """Return whether the rows of each file are already in the requested order."""
        return all(
            bool((np.diff(_order(_rows(self.context, plan, (one,)), sort_by)) == 1).all())
            for one in group
        )

    def discard(self) -> None:
        """Delete the files of the last attempt."""
        discard_files(self.context.store, self._written)
        self._written.clear()


def rewrite_all(
    context: Context,
    plan: RewritePlan,
    groups: Sequence[tuple[Fragment, ...]],
    *,
    sort_by: Sequence[str] = (),
) -> list[tuple[tuple[Fragment, ...], list[Add]]]:
    """Rewrite each group; if one fails, all new files are deleted."""

    def undo(written: list[list[Add]]) -> None:
        discard_files(context.store, [add for adds in written for add in adds])

    rewriting = partial(_rewritten, context, plan, tuple(sort_by))
    made = map_all(context.engine, rewriting, groups, undo=undo)
    return list(zip(groups, made, strict=True))


def _rewritten(
    context: Context, plan: RewritePlan, sort_by: Sequence[str], group: tuple[Fragment, ...]
) -> list[Add]:
    """Write the rows of a group into new files."""
    if not sort_by:
        return rewrite(context, plan, _parts(context, plan, group))
    rows = _rows(context, plan, group)
    order = _order(rows, sort_by)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(order), BATCH_ROWS):
            some = arrow_array(order[start : start + BATCH_ROWS])
            yield from rows.take(some).combine_chunks().to_batches()

    return write_data_files(context.store, batches(), plan.layout, effects=context.effects)


def _parts(
    context: Context, plan: RewritePlan, group: Sequence[Fragment]
) -> Iterator[RewrittenPart]:
    return (
        (fragment, FragmentReader(context.store, plan.read, fragment).deletions())
        for fragment in group
    )


def _rows(context: Context, plan: RewritePlan, group: Sequence[Fragment]) -> pa.Table:
    """Return all rows of a group as one table in memory."""
    batches = [
        batch for part in _parts(context, plan, group) for batch in moved_rows(context, plan, *part)
    ]
    return pa.Table.from_batches(batches, arrow_schema(plan.layout.row_schema))


def _order(rows: pa.Table, sort_by: Sequence[str]) -> NDArray[np.int64]:
    """Return the stable sort order of rows."""
    keys = [(name, "ascending") for name in sort_by]
    order: NDArray[np.int64] = numpy_array(pc.sort_indices(rows, sort_keys=keys)).astype(np.int64)
    return order


def _sort_columns(base: Snapshot, sort_by: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns as the table spells them; refuse types without an order."""
    columns = choose_columns(base.schema, sort_by)
    for column in columns:
        try:
            pc.sort_indices(pa.nulls(0, arrow_type(column.type)))
        except pa.ArrowException as error:
            raise InvalidInputError(
                argument="sort_by",
                field=column.name,
                reason=f"values of type {type_name(column.type)} have no order",
                remedy="Choose another column",
            ) from error
    return tuple(column.name for column in columns)


def optimize_metrics(removed: pa.Table, added: Sequence[Add]) -> dict[str, int]:
    """Return Delta's metrics of OPTIMIZE."""
    sizes = sorted(add.size for add in added)

    def quantile(share: float) -> int:
        return sizes[int(share * (len(sizes) - 1))] if sizes else 0

    return {
        "numRemovedFiles": removed.num_rows,
        "numRemovedBytes": pc.sum(removed["size"]).as_py() or 0,
        "numAddedFiles": len(added),
        "numAddedBytes": sum(sizes),
        "partitionsOptimized": len({tuple(sorted(a.partition_values.items())) for a in added}),
        "numDeletionVectorsRemoved": removed.num_rows - removed["dv_id"].null_count,
        "minFileSize": quantile(0),
        "p25FileSize": quantile(0.25),
        "p50FileSize": quantile(0.5),
        "p75FileSize": quantile(0.75),
        "maxFileSize": quantile(1),
    }
