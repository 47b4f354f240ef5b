"""Scan plans. The plan of a large version reads only the needed parts of the log.

For example, `table.scan(where="day = '2026-01-03'")` of a million files reads nothing yet.
`.file_uris()` reads `path`, `size` and `partitionValues`, and returns the paths of the surviving
files. `.to_arrow()` reads the same files, ordered by fragment id, which sorts their paths.
`.fragments()` also needs ids, which depend on the paths of all files, so only this call reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from typing import TypeVar

import numpy as np
import pyarrow as pa

from txlog.actions.columns import FILE_ROWS, files_at
from txlog.base.arrow import pc
from txlog.base.columns import flat
from txlog.base.threads import Engine, cached_property, is_in_process
from txlog.base.thresholds import Threshold
from txlog.checkpoint.file_rows import STRUCTS, Wanted, united
from txlog.checkpoint.read import Source
from txlog.expressions.bind import columns_of
from txlog.expressions.tree import Expression
from txlog.fragments.fragment import FRAGMENT_COLUMNS, Fragment
from txlog.fragments.ids import Places, count_places, fragment_ids, ids_at
from txlog.fragments.rows import FEATURE, single_files
from txlog.protocol.form import physical_path
from txlog.reconcile.files import Hashes, file_keys, key_hashes
from txlog.scan.plan import (
    Explanation,
    FoundPlan,
    PlannedFiles,
    ScanPlan,
    live_counts,
    plan_live,
    plan_rows,
)
from txlog.scan.read_plan import ReadPlan, read_plan
from txlog.snapshot.live_files import (
    ANYWHERE,
    Select,
    about_files,
    fold_parts,
    has_large_checkpoint,
    joined,
    joined_once,
    load_files,
    rows_at,
    rows_of,
)
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.files import num_records, require_same_partitions
from txlog.store.base import Store

NARROW = ("path", "size", "dv_id")
_BESIDES = ("deletion_vector", "tags")  # Also kept if a batch has them.
_STATISTICS = ("stats", STRUCTS)
_COUNTED = ("files", "pruned_by_partition", "pruned_by_statistics", "files_to_read",
            "files_with_deletions", "bytes_to_read")  # fmt: skip

_COUNTS = Wanted(("stats",), bounds_of=())

_PATHS = Wanted(("path",))

_FRAGMENTS = Wanted((*FRAGMENT_COLUMNS, "stats"), bounds_of=())
_OF_FRAGMENTS = list(dict.fromkeys([*FRAGMENT_COLUMNS, "dv_id", "tags"]))

Batches = Iterator[tuple[Source | None, pa.Table]]
Narrow = Callable[[pa.Table], tuple[pa.Table, Explanation]]
Part = TypeVar("Part")
Result = TypeVar("Result")

APART_FROM: Threshold = 2_000_000
"""From so many file actions on, workers of an engine read the log to plan."""


@dataclass(frozen=True)
class _Survivors:
    """The files that a predicate does not exclude, and their row groups in the log."""

    files: pa.Table  # The `NARROW` columns, `_BESIDES`, and other columns that were read.
    sources: tuple[Source, ...]
    explanation: Explanation


@dataclass(frozen=True, kw_only=True)
class LoggedPlan(ScanPlan):
    """A scan of a snapshot with a large checkpoint: each call reads only the columns that it needs.

    Without a predicate, `paths` reads the paths, `count` the statistics, and `files` only the
    counts of statistics. With a predicate, a few columns of the log determine the surviving files;
    other columns are read only for these.

    Parameters
    ----------
    chosen
        Leaves out files of a batch by their `NARROW` columns, before the predicate does.
    """

    store: Store = field(repr=False)
    snapshot: Snapshot = field(repr=False)
    engine: Engine | None = field(default=None, repr=False)
    chosen: Select | None = field(default=None, repr=False, compare=False)

    @property
    def _is_all(self) -> bool:
        """Whether no file is left out."""
        return self.reading.where is None and self.chosen is None

    @property
    def explanation(self) -> Explanation:
        """What the scan reads and what it skips."""
        return (self.files if self._is_all else self._survivors).explanation

    @cached_property
    def read_files(self) -> PlannedFiles:
        """As for `ScanPlan`."""
        if self._is_all or self.reading.metadata_columns or "files" in vars(self):
            return self.files
        # Without statistics, deletions may require all of the log, and then also `_survivors`.
        counted = "stats" in self._wanted.columns
        found = self._readable(self._possible if counted else self._survivors.files)
        return self.files if found is None else found

    @cached_property
    def paths(self) -> pa.ChunkedArray:
        """The logged paths of the files to read, unordered.

        This does not check whether a checkpoint has one of these files twice.
        """
        if "files" in vars(self):
            return self.files.paths
        if self._is_all:
            return self._fold(_PATHS, _paths, _chained)
        return self._possible["path"]

    def count(self) -> tuple[int, Sequence[Fragment]]:
        """Return the number of rows that the log counts, and the fragments that must be read."""
        if self._is_all:
            counted = self._fold(_COUNTS, _counted, _total)
            if counted is not None:
                return counted, ()
        return super().count()

    def rows_at(self, paths: Iterable[str]) -> pa.Table:
        """As for `ScanPlan`. Of the log, only the row groups with files of the plan are read."""
        wanted = list(dict.fromkeys(paths))
        sources = None if self._is_all else self._survivors.sources
        found = rows_at(self.store, self.snapshot, wanted, sources, engine=self.engine)
        if found.num_rows < len(wanted):  # A file that is left out would keep its rows.
            return files_at(load_files(self.store, self.snapshot).live, wanted)
        return found

    def _fold(
        self,
        wanted: Wanted,
        fold: Callable[[Batches], Part],
        join: Callable[[list[Part]], Result],
        sources: Sequence[Source] | None = None,
        *,
        distinct: bool = True,
        select: Select | None = None,
    ) -> Result:
        """Fold the live files, here or in the workers of the engine; see `fold_parts`."""
        return fold_parts(
            self.store,
            self.snapshot,
            wanted,
            fold,
            join,
            sources,
            engine=self.engine,
            distinct=distinct,
            select=select,
        )

    def _find(self) -> PlannedFiles:
        if self._is_all:
            return self._all_files()
        found = self._survivors
        files = self._whole(found)
        ids = None if files is None else self._ids(files)
        if files is not None and ids is not None:
            planned = plan_rows(self.snapshot, self.reading, single_files(files, ids))
            return replace(planned, explanation=found.explanation)
        return plan_live(self.snapshot, self.reading, load_files(self.store, self.snapshot).live)

    def _all_files(self) -> PlannedFiles:
        """Return all files."""
        files, counts = self._fold(_FRAGMENTS, _with_counts, _all_with_counts)
        rows = single_files(files, fragment_ids(files))
        require_same_partitions(rows, self.snapshot.partition_fields, self.snapshot.mapping_mode)
        return plan_rows(self.snapshot, self.reading, rows, flat(counts))

    @cached_property
    def _survivors(self) -> _Survivors:
        fold = partial(_survivors, self._narrow)
        return self._fold(self._wanted, fold, _all_survivors, distinct=False)

    @property
    def _wanted(self) -> Wanted:
        """The columns of the log that narrow the files."""
        wanted = wanted_by(self.snapshot, self.reading)
        if self.engine is None or not self._needs_partitions:
            return wanted
        # Workers return all that reading needs.
        columns = dict.fromkeys([*wanted.columns, "partition_values"])
        return replace(wanted, columns=tuple(columns))

    @property
    def _narrow(self) -> Narrow:
        """Chooses the surviving files of a batch. Workers get it, so it has no files itself."""
        snapshot = self.snapshot.without_files()
        return partial(_narrow, snapshot, self.reading, _kept(self._wanted), self.chosen)

    @property
    def _needs_partitions(self) -> bool:
        """Whether reading needs partition values."""
        partitions = self.reading.form.partition_columns
        return any(column.name in partitions for column in self.reading.needed)

    @cached_property
    def _possible(self) -> pa.Table:
        """The files of `_survivors`, without counting the other files."""
        if "_survivors" in vars(self):
            return self._survivors.files
        select = partial(_first, self._narrow)
        return self._fold(self._wanted, rows_of, joined_once, distinct=False, select=select)

    def _readable(self, files: pa.Table) -> PlannedFiles | None:
        """Return the surviving files for reading, or None if this requires all of the log.

        This is the case if a checkpoint has one of them twice, or no longer has it, or if one has
        deletions and no row count.
        """
        counted = any(name in files.column_names for name in _STATISTICS)
        if not counted and files["dv_id"].null_count < files.num_rows:
            return None
        if self._needs_partitions and "partition_values" not in files.column_names:
            names = ["path", "dv_id", "partition_values"]
        else:
            names = ["path", "dv_id"]
        if self.engine is None:
            keys = flat(file_keys(files))
            rows = self._fold(Wanted(names), partial(_same, names, keys), joined, distinct=False)
            at = pc.index_in(keys, value_set=flat(file_keys(rows)))
            if rows.num_rows != files.num_rows or at.null_count:
                return None
            if "partition_values" in names:
                values = rows["partition_values"].take(at)
                files = files.append_column("partition_values", values)
        else:
            # All workers get the hashes, which are shorter than the keys.
            alike = partial(_count_alike, np.sort(key_hashes(files)))
            if self._fold(Wanted(names), alike, _added, distinct=False) != files.num_rows:
                return None
        for name in set(FILE_ROWS.names) - set(files.column_names):
            kind = FILE_ROWS.field(name).type
            files = files.append_column(name, pa.nulls(files.num_rows, kind))
        return plan_rows(self.snapshot, self.reading, single_files(files, fragment_ids(files)))

    def _whole(self, found: _Survivors) -> pa.Table | None:
        """Return the surviving files as `FILE_ROWS`. Of other statistics, only counts are read.

        None if the checkpoint no longer has one of the files.
        """
        stored = [name for name in _STATISTICS if name in found.files.column_names]
        names = [name for name in FILE_ROWS.names if name not in stored]
        fold = partial(_others, flat(found.files["path"]), stored)
        wanted = Wanted(names, bounds_of=())
        rows = self._fold(wanted, fold, joined, found.sources, distinct=False)
        at = pc.index_in(flat(file_keys(found.files)), value_set=flat(file_keys(rows)))
        if at.null_count:
            return None
        whole = rows.take(at)
        for name in stored:
            whole = whole.append_column(name, found.files[name])
        return whole

    def _ids(self, files: pa.Table) -> pa.Array | None:
        """Return the ids of some live files. Provisional ids depend on the paths of all files.

        None if the checkpoint of the files proves to be damaged, or has a file twice.
        """
        paths = flat(files["path"])
        wanted = Wanted(("path", "dv_id", "tags"))
        elsewhere, counts = self._fold(wanted, partial(_places, paths), _all_places)
        if elsewhere:
            return None
        if (found := ids_at(paths, counts)) is not None:
            return found
        elsewhere, live = self._fold(wanted, partial(_chosen, tuple(wanted.columns)), _all_chosen)
        at = pc.index_in(flat(file_keys(files)), value_set=flat(file_keys(live)))
        return None if elsewhere else fragment_ids(live).take(at)


def plan_snapshot(
    store: Store,
    snapshot: Snapshot,
    files: Callable[[], pa.Table],
    *,
    columns: list[str] | None = None,
    where: Expression | None = None,
    engine: Engine | None = None,
    chosen: Select | None = None,
    only: pa.ChunkedArray | None = None,
) -> ScanPlan:
    """Plan a scan; `files`, if given, returns the snapshot's live `FILE_ROWS`.

    The other arguments, and errors, are those of `plan_scan`.

    Parameters
    ----------
    engine
        Its workers read the log if it has very many files (`planner_of`), and only the files that
        the predicate does not exclude come to this process.
    chosen
        Returns the rows of `FILE_ROWS` with the columns `NARROW` that the caller has a use for. Of
        a large table only these are planned, and counted; otherwise all.
    only
        The logged paths of the files to plan, in place of `chosen`. They have the ids that the plan
        of all files gives them.
    """
    reading = read_plan(snapshot, columns=columns, where=where)
    if only is not None:
        chosen = partial(_at, flat(only))
    if is_large(snapshot, reading):
        apart = planner_of(store, snapshot, engine)
        return LoggedPlan(
            reading=reading, store=store, snapshot=snapshot, engine=apart, chosen=chosen
        )
    live = files()
    if only is not None:
        return FoundPlan(
            reading=reading, live=live, find=partial(_found_at, snapshot, reading, live, flat(only))
        )
    find = partial(plan_live, snapshot, reading, live)
    return FoundPlan(reading=reading, live=live, find=find, single=not snapshot.supports(FEATURE))


def _at(paths: pa.Array, rows: pa.Table) -> pa.Table:
    """Return the files with some paths. Pure."""
    return rows.filter(pc.is_in(rows["path"], value_set=paths))


def _found_at(
    snapshot: Snapshot, reading: ReadPlan, live: pa.Table, paths: pa.Array
) -> PlannedFiles:
    """Return those of the planned files that have some paths. Pure."""
    found = plan_live(snapshot, reading, live)
    return found.filter(flat(pc.is_in(found.rows.primaries["path"], value_set=paths)))


def planner_of(store: Store, snapshot: Snapshot, engine: Engine | None) -> Engine | None:
    """Return an engine if its workers read the log of a snapshot to plan; else None.

    An engine of other processes may have its own number of files, `apart_from`, from which on they
    do. Without a number above 0 they never do.
    """
    if engine is None or is_in_process(engine) or not has_large_checkpoint(snapshot):
        return None
    least = getattr(engine, "apart_from", None)
    least = APART_FROM if least is None else least
    return engine if least > 0 and about_files(store, snapshot) >= least else None


def is_large(snapshot: Snapshot, reading: ReadPlan | None = None) -> bool:
    """Return whether to plan a scan without reading all columns of the log."""
    if snapshot.supports(FEATURE):  # All files are needed to find the column files of a fragment.
        return False
    if reading is not None and reading.where is not None:
        about = columns_of(reading.where)
        # Provisional ids depend on the paths of all files.
        if any(path[0] in reading.metadata_columns for path in about):
            return False
    return has_large_checkpoint(snapshot)


def wanted_by(snapshot: Snapshot, reading: ReadPlan) -> Wanted:
    """Return the columns of the log that show which files a scan can skip."""
    paths = [] if reading.where is None else columns_of(reading.where)
    partitions = [path for path in paths if path[0] in reading.form.partition_columns]
    others = [path for path in paths if path not in partitions and snapshot.schema.get(path[0])]
    columns = [*NARROW, *(["partition_values"] if partitions else [])]
    if not others:
        return Wanted(columns, encoded=True)
    mode = reading.form.mapping_mode
    physical = tuple(physical_path(snapshot.schema, path, mode) for path in others)
    return Wanted((*columns, "stats"), bounds_of=physical, encoded=True)


def _kept(wanted: Wanted) -> list[str]:
    """Return the columns of surviving files to keep. (Commits after a checkpoint have all.)"""
    structs = [STRUCTS] if "stats" in wanted.columns else []
    return ["is_add", *wanted.columns, *_BESIDES, *structs]


def _narrow(
    snapshot: Snapshot,
    reading: ReadPlan,
    kept: Sequence[str],
    chosen: Select | None,
    rows: pa.Table,
) -> tuple[pa.Table, Explanation]:
    """Return the surviving files of a batch, with the columns to keep that exist. Pure."""
    if chosen is not None:
        rows = chosen(rows)
    # No predicate uses ids here, so the ids have no meaning. Without one no counts are needed.
    single = single_files(rows, pa.arange(0, rows.num_rows))
    counts = pa.nulls(rows.num_rows, pa.int64()) if reading.where is None else None
    plan = plan_rows(snapshot, reading, single, counts)
    found = plan.rows.primaries
    found = _plain(found.select([name for name in kept if name in found.column_names]))
    return found, plan.explanation


def possible_rows(snapshot: Snapshot, where: Expression, rows: pa.Table) -> pa.Table:
    """Return those of some live files that may have rows for which a predicate is true. Pure.

    `rows` have at least the columns of `possible_columns`; the result has those that identify
    files.
    """
    reading = read_plan(snapshot, columns=[], where=where)
    return _narrow(snapshot, reading, ["is_add", "path", "dv_id"], None, rows)[0]


def possible_columns(snapshot: Snapshot, where: Expression) -> Wanted:
    """Return the columns of the log that `possible_rows` needs."""
    return wanted_by(snapshot, read_plan(snapshot, columns=[], where=where))


def _first(narrow: Narrow, rows: pa.Table) -> pa.Table:
    return narrow(rows)[0]


def _survivors(narrow: Narrow, batches: Batches) -> _Survivors | None:
    """Return the surviving files of batches with the columns of `wanted_by`. Pure.

    If a checkpoint has an excluded file twice, it counts twice in the explanation. None without
    batches.
    """
    tables: list[pa.Table] = []
    sources: dict[Source, None] = {}
    total: Explanation | None = None
    for source, rows in batches:
        found, explanation = narrow(rows)
        total = explanation if total is None else _sum(total, explanation)
        tables.append(found)
        if source is not None and found.num_rows:
            sources[source] = None
    return None if total is None else _Survivors(united(tables), tuple(sources), total)


def _all_survivors(parts: list[_Survivors | None]) -> _Survivors:
    """Return the survivors of all parts.

    Raises
    ------
    TwiceError
        A surviving file may occur twice.
    """
    known = [part for part in parts if part is not None]  # The tail is a batch, even if empty.
    return _Survivors(
        joined_once([*(part.files for part in known)]),
        tuple(dict.fromkeys(source for part in known for source in part.sources)),
        reduce(_sum, [part.explanation for part in known]),
    )


def _same(names: list[str], keys: pa.Array, batches: Batches) -> pa.Table | None:
    """Return the files with some keys. Pure."""
    found = [
        rows.select(names).filter(pc.is_in(file_keys(rows), value_set=keys)) for _, rows in batches
    ]
    return united(found) if found else None


def _count_alike(hashes: Hashes, batches: Batches) -> int:
    """Return how many files have one of some hashes, which are ascending. Pure."""
    if not len(hashes):
        return 0
    last = len(hashes) - 1
    count = 0
    for _, rows in batches:
        found = key_hashes(rows)
        at = np.minimum(np.searchsorted(hashes, found), last)
        count += int(np.count_nonzero(hashes[at] == found))
    return count


def _added(parts: list[int]) -> int:
    return sum(parts)


def _others(paths: pa.Array, stored: Sequence[str], batches: Batches) -> pa.Table | None:
    """Return the files with some paths, without the columns that are known. Pure."""
    tables = [
        rows.filter(pc.is_in(rows["path"], value_set=paths)).select(
            [name for name in rows.column_names if name not in stored]
        )
        for _, rows in batches
    ]
    return united(tables) if tables else None


def _places(paths: pa.Array, batches: Batches) -> tuple[bool, Places | None]:
    """Return the counts of `count_places`, and whether another checkpoint was read. Pure."""
    elsewhere: list[Source] = []

    def noted() -> Iterator[pa.Table]:
        for source, rows in batches:
            if source == ANYWHERE:
                elsewhere.append(source)
            yield rows

    counts = count_places(paths, noted())
    return bool(elsewhere), counts


def _all_places(
    parts: list[tuple[bool, Places | None]],
) -> tuple[bool, list[Places | None]]:
    return any(part[0] for part in parts), [part[1] for part in parts]


def _chosen(names: Sequence[str], batches: Batches) -> tuple[bool, pa.Table | None]:
    """Return columns of files, and whether the files are of another checkpoint. Pure."""
    found = [(source == ANYWHERE, rows.select(list(names))) for source, rows in batches]
    rows = pa.concat_tables([rows for _, rows in found]) if found else None
    return any(elsewhere for elsewhere, _ in found), rows


def _all_chosen(parts: list[tuple[bool, pa.Table | None]]) -> tuple[bool, pa.Table]:
    tables = [rows for _, rows in parts if rows is not None]
    return any(elsewhere for elsewhere, _ in parts), pa.concat_tables(tables)


def _with_counts(batches: Batches) -> tuple[pa.Table, list[pa.Array]] | None:
    """Return all files with their counts. Statistics are long texts: only counts are kept. Pure."""
    tables, counts = [], []
    for _, rows in batches:
        counts.append(num_records(rows))
        tables.append(rows.select(_OF_FRAGMENTS))
    return (united(tables), counts) if tables else None


def _all_with_counts(
    parts: list[tuple[pa.Table, list[pa.Array]] | None],
) -> tuple[pa.Table, pa.ChunkedArray]:
    known = [part for part in parts if part is not None]
    counts = [one for _, of_part in known for one in of_part]
    return united([files for files, _ in known]), pa.chunked_array(counts, pa.int64())


def _plain(rows: pa.Table) -> pa.Table:
    """Return `FILE_ROWS` whose partition values are plain and not dictionary-encoded."""
    if "partition_values" not in rows.column_names:
        return rows
    place = rows.column_names.index("partition_values")
    field = FILE_ROWS.field("partition_values")
    return rows.set_column(place, field, rows["partition_values"].cast(field.type))


def _paths(batches: Batches) -> list[pa.Array]:
    """Return the paths of batches. Pure."""
    return [chunk for _, rows in batches for chunk in rows["path"].chunks]


def _chained(parts: list[list[pa.Array]]) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for part in parts for chunk in part], pa.string())


def _counted(batches: Batches) -> int | None:
    """Return the total number of rows of files, or None if a file has no count."""
    total = 0
    for _, rows in batches:
        counts = live_counts(num_records(rows), rows)
        if counts.null_count:
            return None
        total += pc.sum(counts).as_py() or 0
    return total


def _total(parts: list[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _sum(one: Explanation, other: Explanation) -> Explanation:
    return replace(
        one, **{name: add(getattr(one, name), getattr(other, name)) for name in _COUNTED}
    )
