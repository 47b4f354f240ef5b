"""Compaction: rewrite small files, and files with many deleted rows, into fewer files.

Rules: spec/fragments.md, FRG-33 and FRG-34.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

import numpy as np
import pyarrow as pa

from txlog.base.arrow import pc
from txlog.base.errors import InvalidInputError, tidied
from txlog.commit.intent import Intent
from txlog.data_files.deletions import plan_changes
from txlog.data_files.options import WriteOptions, as_options
from txlog.data_files.rewrite import (
    RewritePlan,
    bytes_left,
    bytes_of,
    order_of,
    plan_rewrite,
    require_movable,
    require_partition_columns,
    rewrite_all,
    rows_in,
)
from txlog.data_files.sort_order import files_in_order, has_order, sort_columns
from txlog.data_files.write import discard_files
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import Expression
from txlog.fragments.fragment import Fragment
from txlog.scan.read_plan import choose_columns
from txlog.schema.types import type_name
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.cluster import ClusterOptions, write_clustered
from txlog.verbs.rewrite import Rewrite, optimize_metrics

MAX_DELETED_FRACTION = 0.05
MAX_COLUMN_FILES = 8
AUTO_FILES = 50
"""The least number of files that `delta.autoOptimize.autoCompact` makes one, as in Databricks."""


_SMALL = 0.75  # A fraction of the target size.
_FULL = 0.9  # The size of files in order, as a fraction of the target size.


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

    def possible(self, files: pa.Table) -> pa.Table:
        """Return the `FILE_ROWS` that may be small or fragmented, by their sizes and vectors."""
        small = pc.less(files["size"], self.min_bytes)
        return files.filter(pc.or_(small, files["dv_id"].is_valid()))

    def is_small(self, fragment: Fragment) -> bool:
        """Whether a fragment's files are too small."""
        return bytes_of(fragment) < self.min_bytes


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


def _out_of_order(files: Sequence[tuple[Fragment, bool]], wanted: Limits) -> list[list[Fragment]]:
    """Return the runs of adjacent files to write again, from those of a partition by their values.

    Parameters
    ----------
    files
        Each with whether its values overlap with those of another file.
    """
    found = []
    odd = groupby(
        files, lambda one: one[1] or wanted.is_small(one[0]) or wanted.is_fragmented(one[0])
    )
    for is_odd, group in odd:
        run = list(group)
        fragments = [fragment for fragment, _ in run]
        size = sum(map(bytes_left, fragments))
        count = -(-size // max(1, int(_FULL * wanted.target_bytes)))
        if wanted.max_rows is not None:
            count = max(count, -(-sum(one.num_rows or 0 for one in fragments) // wanted.max_rows))
        overlap = any(is_over for _, is_over in run)
        if is_odd and (overlap or len(run) > count or any(map(wanted.is_fragmented, fragments))):
            found.append(fragments)
    return found


class Compact(Rewrite):
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
        auto_from: int | None = None,
    ) -> None:
        """Take limits.

        Parameters
        ----------
        where
            Only files of partitions for which this is true.
        sort_by
            Columns by which the rows of each new file are sorted. A small unsorted file is
            rewritten even if it is the only one. Without them, files are put in the order that the
            table's `txlog.sortBy` declares, also across files.
        auto_from
            A property of the table requests it: only groups of so many files are rewritten.

        Raises
        ------
        InvalidInputError
            A limit is not a number of its kind.
        """
        self._auto_from = auto_from
        self._options = as_options(options)
        self._where = where
        self._sort_by = tuple(sort_by)
        self._asked = (min_file_bytes, max_deleted_fraction, max_column_files)
        limits(self._options, *self._asked)

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
        options = self._options.of_optimize(base.properties)
        wanted = limits(options, *self._asked)
        declared = () if sort_by else self._declared(base)
        possible = None if declared else wanted.possible
        plan = plan_changes(self.context, base, self._where, possible)
        require_partition_columns(plan.reading.where, base)
        replaced: list[Fragment] = []
        rewriting = plan_rewrite(base, options)
        fragments: Sequence[Fragment] = plan.fragments
        if declared:
            ordered = files_in_order(base, plan.files.rows, fragments, declared[0])
            runs = [run for files in ordered for run in _out_of_order(files, wanted)]
            known = {one.id for files in ordered for one, _ in files}
            fragments = [one for one in fragments if one.id not in known]
            size = max(1, int(_FULL * wanted.target_bytes))
            by = ClusterOptions(((declared[0],),), "z-order", size, declared)
            # A range is one file: its size was chosen so.
            large = replace(rewriting.layout, target_file_bytes=2 * wanted.target_bytes)
            whole = replace(rewriting, layout=large)
            self._written.extend(write_clustered(self.context, whole, runs, by))
            replaced.extend(one for run in runs for one in run)
            sort_by = declared
        groups = [
            group
            for group in choose_groups(fragments, wanted, alone=bool(self._sort_by))
            if len(group) >= (self._auto_from or 1)
        ]
        for group, adds in rewrite_all(self.context, rewriting, groups, sort_by=sort_by):
            as_many = len(adds) >= len(group) and not any(map(wanted.is_fragmented, group))
            if as_many and (not self._sort_by or self._is_sorted(rewriting, group, sort_by)):
                # The files are already packed better than a rewrite would.
                tidied(partial(discard_files, self.context.store, adds))
                continue
            replaced.extend(group)
            self._written.extend(adds)
        if not replaced:
            return None
        rows = plan.rows_at(file.path for fragment in replaced for file in fragment.files)
        return replace(
            self._moved(base, rows, "compact"),
            isolation="SnapshotIsolation",
            parameters={
                "predicate": [] if plan.reading.where is None else [to_sql(plan.reading.where)],
                "zOrderBy": [],
                "auto": self._auto_from is not None,
            },
            metrics=optimize_metrics(rows, self._written),
        )

    def _declared(self, base: Snapshot) -> tuple[str, ...]:
        """Return the columns by which the files of a table are to be ordered."""
        if self._auto_from is not None:  # It must stay cheap.
            return ()
        return sort_columns(base.properties, base.schema, base.partition_columns)

    def _is_sorted(
        self, plan: RewritePlan, group: Sequence[Fragment], sort_by: Sequence[str]
    ) -> bool:
        """Return whether the rows of each file are already in the requested order."""
        return all(
            bool((np.diff(order_of(rows_in(self.context, plan, (one,)), sort_by)) == 1).all())
            for one in group
        )


def _sort_columns(base: Snapshot, sort_by: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns as the table spells them; refuse types without an order."""
    columns = choose_columns(base.schema, sort_by, has_order)
    for column in columns:
        if not has_order(column):
            raise InvalidInputError(
                argument="sort_by",
                field=column.name,
                reason=f"values of type {type_name(column.type)} have no order",
                remedy="Choose another column",
            )
    return tuple(column.name for column in columns)
