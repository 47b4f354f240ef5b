"""Scan plans. The plan of a large version reads only the needed parts of the log.

For example, `table.scan(where="day = '2026-01-03'")` of a million files reads nothing yet.
`.file_uris()` reads `path`, `size` and `partitionValues`, and returns the paths of the surviving
files. `.to_arrow()` reads the same files, ordered by fragment id, which sorts their paths.
`.fragments()` also needs ids, which depend on the paths of all files, so only this call reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import add

import pyarrow as pa

from txlog.actions.columns import FILE_ROWS, files_at
from txlog.base.arrow import pc
from txlog.base.columns import flat
from txlog.base.threads import cached_property
from txlog.checkpoint.file_rows import STRUCTS, Wanted, united
from txlog.checkpoint.read import Source
from txlog.expressions.bind import columns_of
from txlog.expressions.tree import Expression
from txlog.fragments.fragment import FRAGMENT_COLUMNS, Fragment
from txlog.fragments.ids import fragment_ids, provisional_ids
from txlog.fragments.rows import FEATURE, single_files
from txlog.protocol.form import physical_path
from txlog.reconcile.files import are_different, file_keys
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
    TwiceError,
    fold_files,
    has_large_checkpoint,
    load_files,
    rows_at,
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
    """

    store: Store = field(repr=False)
    snapshot: Snapshot = field(repr=False)

    @property
    def explanation(self) -> Explanation:
        """What the scan reads and what it skips."""
        return (self.files if self.reading.where is None else self._survivors).explanation

    @cached_property
    def read_files(self) -> PlannedFiles:
        """As for `ScanPlan`."""
        if self.reading.where is None or self.reading.metadata_columns or "files" in vars(self):
            return self.files
        # Without statistics, deletions may require all of the log, and then also `_survivors`.
        counted = "stats" in self._narrowing[0].columns
        found = self._readable(self._possible if counted else self._survivors.files)
        return self.files if found is None else found

    @cached_property
    def paths(self) -> pa.ChunkedArray:
        """The logged paths of the files to read, unordered.

        This does not check whether a checkpoint has one of these files twice.
        """
        if "files" in vars(self):
            return self.files.paths
        if self.reading.where is None:
            return fold_files(self.store, self.snapshot, _PATHS, _paths)
        return self._possible["path"]

    def count(self) -> tuple[int, Sequence[Fragment]]:
        """Return the number of rows that the log counts, and the fragments that must be read."""
        if self.reading.where is None:
            counted = fold_files(self.store, self.snapshot, _COUNTS, _counted)
            if counted is not None:
                return counted, ()
        return super().count()

    def rows_at(self, paths: Iterable[str]) -> pa.Table:
        """As for `ScanPlan`. Of the log, only the row groups with files of the plan are read."""
        wanted = list(dict.fromkeys(paths))
        sources = None if self.reading.where is None else self._survivors.sources
        found = rows_at(self.store, self.snapshot, wanted, sources)
        if found.num_rows < len(wanted):  # A file that is left out would keep its rows.
            return files_at(load_files(self.store, self.snapshot).live, wanted)
        return found

    def _find(self) -> PlannedFiles:
        if self.reading.where is None:
            return self._all_files()
        found = self._survivors
        files = self._whole(found)
        ids = None if files is None else self._ids(files)
        if files is not None and ids is not None:
            planned = plan_rows(self.snapshot, self.reading, single_files(files, ids))
            return replace(planned, explanation=found.explanation)
        return plan_live(self.snapshot, self.reading, load_files(self.store, self.snapshot).live)

    def _all_files(self) -> PlannedFiles:
        """Return all files. Statistics are long texts: only the counts of a batch are kept."""

        def kept(batches: Batches) -> tuple[pa.Table, pa.Array]:
            tables, counts = [], []
            for _, rows in batches:
                counts.append(num_records(rows))
                tables.append(rows.select(_OF_FRAGMENTS))
            return united(tables), pa.chunked_array(counts, pa.int64())

        files, counts = fold_files(self.store, self.snapshot, _FRAGMENTS, kept)
        rows = single_files(files, fragment_ids(files))
        require_same_partitions(rows, self.snapshot.partition_fields, self.snapshot.mapping_mode)
        return plan_rows(self.snapshot, self.reading, rows, flat(counts))

    @cached_property
    def _survivors(self) -> _Survivors:
        wanted, narrow = self._narrowing
        fold = partial(_survivors, narrow)
        return fold_files(self.store, self.snapshot, wanted, fold, distinct=False)

    @property
    def _narrowing(self) -> tuple[Wanted, Callable[[pa.Table], tuple[pa.Table, Explanation]]]:
        wanted = wanted_by(self.snapshot, self.reading)
        return wanted, partial(_narrow, self.snapshot, self.reading, _kept(wanted))

    @cached_property
    def _possible(self) -> pa.Table:
        """The files of `_survivors`, without counting the other files."""
        if "_survivors" in vars(self):
            return self._survivors.files
        wanted, narrow = self._narrowing

        def all_of(batches: Batches) -> pa.Table:
            return _once([rows for _, rows in batches])

        return fold_files(
            self.store,
            self.snapshot,
            wanted,
            all_of,
            distinct=False,
            select=lambda rows: narrow(rows)[0],
        )

    def _readable(self, files: pa.Table) -> PlannedFiles | None:
        """Return the surviving files for reading, or None if this requires all of the log.

        This is the case if a checkpoint has one of them twice, or no longer has it, or if one has
        deletions and no row count.
        """
        keys = flat(file_keys(files))
        counted = any(name in files.column_names for name in _STATISTICS)
        if not counted and files["dv_id"].null_count < files.num_rows:
            return None
        partitions = self.reading.form.partition_columns
        given = any(column.name in partitions for column in self.reading.needed)
        names = ["path", "dv_id"]
        if given and "partition_values" not in files.column_names:
            names.append("partition_values")

        def same(batches: Batches) -> pa.Table:
            return united(
                [
                    rows.select(names).filter(pc.is_in(file_keys(rows), value_set=keys))
                    for _, rows in batches
                ]
            )

        rows = fold_files(self.store, self.snapshot, Wanted(names), same, distinct=False)
        at = pc.index_in(keys, value_set=flat(file_keys(rows)))
        if rows.num_rows != files.num_rows or at.null_count:
            return None
        if "partition_values" in names:
            files = files.append_column("partition_values", rows["partition_values"].take(at))
        for name in set(FILE_ROWS.names) - set(files.column_names):
            kind = FILE_ROWS.field(name).type
            files = files.append_column(name, pa.nulls(files.num_rows, kind))
        return plan_rows(self.snapshot, self.reading, single_files(files, fragment_ids(files)))

    def _whole(self, found: _Survivors) -> pa.Table | None:
        """Return the surviving files as `FILE_ROWS`. Of other statistics, only counts are read.

        None if the checkpoint no longer has one of the files.
        """
        paths = flat(found.files["path"])
        stored = [name for name in _STATISTICS if name in found.files.column_names]
        names = [name for name in FILE_ROWS.names if name not in stored]

        def chosen(batches: Batches) -> pa.Table:
            return united(
                [
                    rows.filter(pc.is_in(rows["path"], value_set=paths)).select(
                        [name for name in rows.column_names if name not in stored]
                    )
                    for _, rows in batches
                ]
            )

        wanted = Wanted(names, bounds_of=())
        rows = fold_files(self.store, self.snapshot, wanted, chosen, found.sources, distinct=False)
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
        elsewhere: list[Source] = []

        def noted(batches: Batches) -> Iterator[pa.Table]:
            for source, rows in batches:
                if source == ANYWHERE:
                    elsewhere.append(source)
                yield rows

        def some_ids(batches: Batches) -> pa.Array | None:
            return provisional_ids(paths, noted(batches))

        def all_ids(batches: Batches) -> pa.Array:
            live = pa.concat_tables([rows.select(list(wanted.columns)) for rows in noted(batches)])
            at = pc.index_in(flat(file_keys(files)), value_set=flat(file_keys(live)))
            return fragment_ids(live).take(at)

        wanted = Wanted(("path", "dv_id", "tags"))
        found = fold_files(self.store, self.snapshot, wanted, some_ids)
        if found is None:
            found = fold_files(self.store, self.snapshot, wanted, all_ids)
        return None if elsewhere else found


def plan_snapshot(
    store: Store,
    snapshot: Snapshot,
    files: Callable[[], pa.Table],
    *,
    columns: list[str] | None = None,
    where: Expression | None = None,
) -> ScanPlan:
    """Plan a scan; `files`, if given, returns the snapshot's live `FILE_ROWS`.

    The other arguments, and errors, are those of `plan_scan`.
    """
    reading = read_plan(snapshot, columns=columns, where=where)
    if is_large(snapshot, reading):
        return LoggedPlan(reading=reading, store=store, snapshot=snapshot)
    live = files()
    return FoundPlan(reading=reading, live=live, find=partial(plan_live, snapshot, reading, live))


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
    snapshot: Snapshot, reading: ReadPlan, kept: Sequence[str], rows: pa.Table
) -> tuple[pa.Table, Explanation]:
    """Return the surviving files of a batch, with the columns to keep that exist. Pure."""
    # No predicate uses ids here, so the ids have no meaning.
    plan = plan_rows(snapshot, reading, single_files(rows, pa.arange(0, rows.num_rows)))
    found = plan.rows.primaries
    found = _plain(found.select([name for name in kept if name in found.column_names]))
    return found, plan.explanation


def _survivors(
    narrow: Callable[[pa.Table], tuple[pa.Table, Explanation]], batches: Batches
) -> _Survivors:
    """Return the surviving files of batches with the columns of `wanted_by`. Pure.

    If a checkpoint has an excluded file twice, it counts twice in the explanation.

    Raises
    ------
    TwiceError
        A surviving file may occur twice.
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
    assert total is not None  # The tail is a batch, even if it is empty.
    return _Survivors(_once(tables), tuple(sources), total)


def _once(tables: list[pa.Table]) -> pa.Table:
    """Return distinct files as one table.

    Raises
    ------
    TwiceError
        A file may occur twice.
    """
    files = united(tables)
    if not are_different(file_keys(files)):
        raise TwiceError
    return files


def _plain(rows: pa.Table) -> pa.Table:
    """Return `FILE_ROWS` whose partition values are plain and not dictionary-encoded."""
    if "partition_values" not in rows.column_names:
        return rows
    place = rows.column_names.index("partition_values")
    field = FILE_ROWS.field("partition_values")
    return rows.set_column(place, field, rows["partition_values"].cast(field.type))


def _paths(batches: Batches) -> pa.ChunkedArray:
    """Return the paths of batches as one column. Pure."""
    chunks = [chunk for _, rows in batches for chunk in rows["path"].chunks]
    return pa.chunked_array(chunks, pa.string())


def _counted(batches: Batches) -> int | None:
    """Return the total number of rows of files, or None if a file has no count."""
    total = 0
    for _, rows in batches:
        counts = live_counts(num_records(rows), rows)
        if counts.null_count:
            return None
        total += pc.sum(counts).as_py() or 0
    return total


def _sum(one: Explanation, other: Explanation) -> Explanation:
    return replace(
        one, **{name: add(getattr(one, name), getattr(other, name)) for name in _COUNTED}
    )
