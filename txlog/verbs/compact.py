"""Compaction: the rows of small files, and of files with many deleted rows, in fewer files.

Rules: spec/fragments.md, FRG-33 and FRG-34.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import pyarrow as pa

from txlog.actions.columns import files_at
from txlog.actions.file import Add
from txlog.arrow import pc
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.commit.operation import Operation
from txlog.data_files.deletions import removes_of
from txlog.data_files.options import WriteOptions
from txlog.data_files.rewrite import RewritePlan, plan_rewrite, require_movable, rewrite
from txlog.data_files.write import discard_files
from txlog.errors import InvalidInputError
from txlog.expressions.bind import columns_of
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import Expression
from txlog.fragments.fragment import Fragment
from txlog.lazy import dataclass
from txlog.scan.plan import plan_scan
from txlog.scan.read import FragmentReader
from txlog.snapshot.live_files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.threads import map_all

MAX_DELETED_FRACTION = 0.05
MAX_COLUMN_FILES = 8


def require_partition_columns(where: Expression | None, snapshot: Snapshot) -> None:
    """Refuse a predicate that reads other columns than those of the partitioning.

    Raises
    ------
    InvalidInputError
        Names the column.
    """
    for path in () if where is None else columns_of(where):
        if path[0] not in snapshot.partition_columns:
            raise InvalidInputError(
                argument="where",
                field=".".join(path),
                reason="files are chosen by partition, and this is no partition column",
                remedy=f"Use {', '.join(snapshot.partition_columns) or 'no predicate'}",
            )


_SMALL = 0.75  # Of the size that files should have.


@dataclass(frozen=True)
class Limits:
    """Which files are rewritten, and how large the new ones may be."""

    target_bytes: int
    min_bytes: int  # A smaller file is rewritten together with others.
    max_deleted: float  # A file of which a greater share is deleted is rewritten even alone.
    max_rows: int | None = None
    max_columns: int = MAX_COLUMN_FILES  # Files that may give columns to one fragment.

    def is_worn(self, fragment: Fragment) -> bool:
        """Whether too many of a fragment's rows are deleted, or its columns in too many files."""
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
        One is no number of its kind.
    """
    smallest = int(_SMALL * options.file_bytes) if min_file_bytes is None else min_file_bytes
    for name, value in (("min_file_bytes", smallest), ("max_column_files", max_column_files)):
        if type(value) is not int or value < 0:
            raise InvalidInputError(argument=name, reason=f"{value!r} is no whole number from 0")
    number = type(max_deleted_fraction) in (int, float)
    if not number or not 0 <= max_deleted_fraction <= 1:
        raise InvalidInputError(
            argument="max_deleted_fraction",
            reason=f"{max_deleted_fraction!r} is no number from 0 to 1",
        )
    return Limits(
        options.file_bytes,
        smallest,
        max_deleted_fraction,
        options.max_rows_per_file,
        max_column_files,
    )


def choose_groups(fragments: Iterable[Fragment], wanted: Limits) -> list[tuple[Fragment, ...]]:
    """Return which fragments become one file together, neighbours by id. Pure.

    Fragments of a group have the same partition values, as logged. A group is of several, or of
    one that is worn.
    """
    partitions: dict[tuple[tuple[str, str | None], ...], list[Fragment]] = {}
    for fragment in sorted(fragments, key=lambda fragment: fragment.id):
        if wanted.is_small(fragment) or wanted.is_worn(fragment):
            key = tuple(sorted(fragment.partition_values.items()))
            partitions.setdefault(key, []).append(fragment)
    groups = [group for found in partitions.values() for group in _filled(found, wanted)]
    return [group for group in groups if len(group) > 1 or wanted.is_worn(group[0])]


def _filled(fragments: Sequence[Fragment], wanted: Limits) -> list[tuple[Fragment, ...]]:
    """Return the fragments of a partition in groups that each fit one file."""
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
    """Return about how large a fragment is without its deleted rows."""
    rows = fragment.physical_rows
    if not rows:
        return _bytes(fragment)
    return _bytes(fragment) * (rows - fragment.num_deletions) // rows


class Compact(Operation):
    """Rewrite small and worn files into fewer, in one commit that changes no row."""

    name = "OPTIMIZE"
    deadline_s = 3600.0  # Conflicts are worth another try even if rewriting takes long.

    def __init__(
        self,
        context: Context,
        where: Expression | None,
        *,
        min_file_bytes: int | None = None,
        max_deleted_fraction: float = MAX_DELETED_FRACTION,
        max_column_files: int = MAX_COLUMN_FILES,
        options: WriteOptions | None = None,
    ) -> None:
        """Take limits.

        Parameters
        ----------
        where
            Only files of the partitions that this is true of.

        Raises
        ------
        InvalidInputError
            A limit is not a number of its kind.
        """
        super().__init__(context)
        self._options = options or WriteOptions()
        self._where = where
        self._asked = (min_file_bytes, max_deleted_fraction, max_column_files)
        limits(self._options, *self._asked)
        self._written: list[Add] = []

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the files that leave, and those that their rows were written to.

        Raises
        ------
        InvalidInputError
            The predicate is not over partition columns alone.
        UnsupportedFeatureError
            The table's rows would lose their ids.
        """
        require_movable(base)
        files = load_files(self.context.store, base).live
        plan = plan_scan(base, files, columns=[], where=self._where)
        require_partition_columns(plan.where, base)
        options = self._options.of_optimize(base.properties)
        wanted = limits(options, *self._asked)
        groups = choose_groups(plan.fragments, wanted)
        replaced: list[Fragment] = []
        for group, adds in rewrite_all(self.context, plan_rewrite(base, options), groups):
            if len(adds) >= len(group) and not any(map(wanted.is_worn, group)):
                discard_files(self.context.store, adds)  # They are packed better than we can.
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
            isolation="SnapshotIsolation",
            parameters={
                "predicate": [] if plan.where is None else [to_sql(plan.where)],
                "zOrderBy": [],
                "auto": False,
            },
            metrics=optimize_metrics(rows, self._written),
        )

    def discard(self) -> None:
        """Delete the files of the last attempt."""
        discard_files(self.context.store, self._written)
        self._written.clear()


def rewrite_all(
    context: Context, plan: RewritePlan, groups: Sequence[tuple[Fragment, ...]]
) -> list[tuple[tuple[Fragment, ...], list[Add]]]:
    """Rewrite each group; if one fails, nothing of the others is left either."""

    def undo(written: list[list[Add]]) -> None:
        discard_files(context.store, [add for adds in written for add in adds])

    made = map_all(context.engine, partial(_rewritten, context, plan), groups, undo=undo)
    return list(zip(groups, made, strict=True))


def _rewritten(context: Context, plan: RewritePlan, group: tuple[Fragment, ...]) -> list[Add]:
    """Write the rows of a group into new files."""
    parts = (
        (fragment, FragmentReader(context.store, plan.read, fragment).deletions())
        for fragment in group
    )
    return rewrite(context, plan, parts)


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
        "numDeletionVectorsRemoved": removed.num_rows - removed["dv_id"].null_count,
        "minFileSize": quantile(0),
        "p25FileSize": quantile(0.25),
        "p50FileSize": quantile(0.5),
        "p75FileSize": quantile(0.75),
        "maxFileSize": quantile(1),
    }
