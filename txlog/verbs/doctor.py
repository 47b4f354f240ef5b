"""Examine a table: what is wrong or slow, what it costs, and how to repair it.

Nothing is written. Each check is a function over values that are loaded once. Together they read
the log, list the table's folder, and open a sample of its data files. Of a large table only a part
of the log is in memory at a time: the log is read for each question about its files, and what stays
are a few numbers for each file. Rules: spec/vacuum.md.

With an engine of other processes, its workers list the folder, as those of a vacuum do, and open
the sample. From the size on at which they plan scans (`planner_of`), they also read the parts of
the checkpoint for each question, apply the newer commits to them, and count rows in statistics
(`_share`), and return the tombstones that keep files from deletion, as for a vacuum. This process
gets the columns of the question, and compares their names with the listing. It reads the commits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
import pyarrow as pa

from txlog.actions.columns import FILE_ROWS, empty_rows
from txlog.base.arrow import arrow_array, numpy_array, pc, table_of_rows
from txlog.base.columns import flat
from txlog.base.errors import LogCorruptError, NotFoundError, TxlogError, require_whole
from txlog.base.texts import runs_text
from txlog.base.threads import Engine
from txlog.base.thresholds import Threshold
from txlog.checkpoint.file_rows import Wanted, united
from txlog.checkpoint.hint import HINT_PATH, decode_hint
from txlog.checkpoint.read import Source
from txlog.commit.context import Context
from txlog.data_files.sort_order import SORT_BY, files_in_order, sort_columns
from txlog.fragments.fragment import Fragment, fragments_of
from txlog.fragments.ids import tag_texts
from txlog.fragments.packs import packs_of
from txlog.fragments.rows import FEATURE, FIELDS_TAG, FragmentRows, deleted_counts, fragment_rows
from txlog.log.names import LogFile, log_path
from txlog.log.paths import canonical_keys, decode_path
from txlog.log.segment import complete_checkpoints, incomplete_checkpoints, rebuildable
from txlog.lookup.indexed import logical_columns
from txlog.lookup.keys import can_be_key
from txlog.protocol.access import needed_features
from txlog.protocol.properties import index_definitions
from txlog.reconcile.files import FileState
from txlog.reconcile.text_index import TextIndex
from txlog.scan.deletions import deletion_place
from txlog.scan.files import as_fragments, partition_sums
from txlog.scan.lazy_plan import planner_of
from txlog.scan.read_plan import choose_columns
from txlog.schema.types import TYPE_CHANGES
from txlog.snapshot.checksum import LiveNumbers, verify_checksum
from txlog.snapshot.commits import read_whole
from txlog.snapshot.live_files import (
    fold_files,
    fold_in_turn,
    has_large_checkpoint,
    load_columns,
    load_files,
    rows_at,
)
from txlog.snapshot.load import list_log, newest_sound
from txlog.snapshot.references import held_versions
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.time_travel import stamped_from
from txlog.stats.files import count_texts, num_records, physical_rows
from txlog.store.base import Store, is_there, map_many
from txlog.store.open import locate
from txlog.store.places import names_below
from txlog.verbs.expire import made_of
from txlog.verbs.indexes import IndexFiles
from txlog.verbs.statistics import file_fault
from txlog.verbs.vacuum import VacuumRequest, vacuum

if TYPE_CHECKING:
    from numpy.typing import NDArray

Severity = Literal["error", "warning", "advice"]

SMALL_BYTES = 16 << 20
MANY_FILES = 16
SAMPLE = 32  # The default number of data files to open.
_SHOWN = 3
_NOT_LISTED = r"(^|/)[_.]|^/|^[A-Za-z][A-Za-z0-9+.\-]*:"
_PATHS = Wanted(("path",))
_TAGS = Wanted(("tags",))
_SIZES = Wanted(("size", "stats"), bounds_of=())
_BUT_STATISTICS = Wanted([name for name in FILE_ROWS.names if name != "stats"], bounds_of=())

_IDENTIFYING = ("is_add", "path", "deletion_vector", "dv_id", "tags")

Batches = Iterator[pa.Table]
Result = TypeVar("Result")

_LOOKED_UP: Threshold = 10_000  # The number of files without a place in the listing to look for.


@dataclass(frozen=True)
class Finding:
    """A problem of a table, or a cause of slow reads or writes.

    `severity` is `error` if rows cannot be read or are read incorrectly, `warning` if something is
    or may get lost, and `advice` if work is slower than necessary. `cost` describes the effect, and
    `remedy` the repair.
    """

    code: str
    severity: Severity
    path: str | None  # The path of the first affected file.
    count: int  # The number of affected files, versions or other items.
    reason: str
    cost: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.severity} {self.code}: {self.reason}. {self.cost}. {self.remedy}."


@dataclass(frozen=True)
class Diagnosis:
    """The findings of `Table.doctor`, the worst first. `str` formats them for people."""

    version: int
    findings: tuple[Finding, ...]
    files: int  # Live data files.
    files_opened: int

    @property
    def ok(self) -> bool:
        """Whether there are no errors and no warnings."""
        return all(finding.severity == "advice" for finding in self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def to_arrow(self) -> pa.Table:
        """Return the findings, one row each."""
        kinds = {"count": pa.int64()}
        names = [one.name for one in fields(Finding)]
        schema = pa.schema([(name, kinds.get(name, pa.string())) for name in names])
        return table_of_rows([dict(vars(one)) for one in self.findings], schema)

    def __str__(self) -> str:
        lines = [str(one) for one in self.findings] or ["Nothing was found."]
        return "\n".join([self._title, *lines])

    def _repr_html_(self) -> str:
        from txlog.base.html import rows_html, titled

        names = ("severity", "code", "count", "reason", "cost", "remedy", "path")
        rows = [[getattr(one, name) for name in names] for one in self.findings]
        return titled(self._title, rows_html(names, rows) if rows else "Nothing was found.")

    @property
    def _title(self) -> str:
        looked = f"{self.files_opened} of {self.files} data files were opened"
        return f"Version {self.version}; {looked}."


@dataclass(frozen=True)
class _Case:
    """The loaded values of a table for the checks."""

    context: Context
    snapshot: Snapshot
    log: list[LogFile]
    files: _Files
    listed: pa.Table | None  # The files below the root as `DECISIONS`.
    facts: _Facts
    sampled: pa.Table  # Live files that are looked into.
    # If the latest version cannot be loaded: the newest that can, and why.
    lost: tuple[int, LogCorruptError] | None

    @property
    def store(self) -> Store:
        return self.context.store


Check = Callable[[_Case], Iterator[Finding]]


def examine(
    context: Context, snapshot: Snapshot, *, sample: int | None = SAMPLE,
    files: FileState | None = None,  # Those of the version, if they are loaded already.
) -> Diagnosis:  # fmt: skip
    """Return the findings for a version of a table; arguments as for `Table.doctor`."""
    if sample is not None:
        sample = require_whole("sample", sample)
    log = sorted(list_log(context.store, catalog=snapshot.catalog))
    try:
        if files is None and not has_large_checkpoint(snapshot):
            files = load_files(context.store, snapshot)
        apart = planner_of(context.store, snapshot, context.engine)
        live = _Files(context.store, snapshot, files, apart)
        listed = _listing(context, snapshot, files)
        facts = live.fold(_facts_wanted(snapshot), partial(_facts_of, live, listed), distinct=True)
    except LogCorruptError as error:
        damaged = Finding(
            "log-damaged", "error", error.path, 1, error.reason,
            f"Version {snapshot.version} cannot be read", error.remedy or "Restore it from a copy",
        )  # fmt: skip
        return Diagnosis(snapshot.version, (damaged,), 0, 0)
    lost = _lost(context.store, snapshot, log)
    sampled = _sampled(live, facts, sample)
    case = _Case(context, snapshot, log, live, listed, facts, sampled, lost)
    every = (finding for check in CHECKS for finding in check(case))
    found = sorted(every, key=lambda one: ("error", "warning", "advice").index(one.severity))
    return Diagnosis(snapshot.version, tuple(found), len(facts.sizes), sampled.num_rows)


def _listing(context: Context, snapshot: Snapshot, files: FileState | None) -> pa.Table | None:
    """Return the files below the table's root as `DECISIONS`; None if they cannot be listed."""
    try:
        return vacuum(context, snapshot, VacuumRequest(), files=files).decided
    except TxlogError:
        return None


@dataclass(frozen=True)
class _Files:
    """The live files of a version, to read in parts."""

    store: Store
    snapshot: Snapshot
    loaded: FileState | None  # Those of a large table are read again for each question.
    engine: Engine | None  # Its workers read them, if there are very many.

    def fold(
        self, wanted: Wanted, fold: Callable[[Batches], Result], *, distinct: bool = False
    ) -> Result:
        """Fold the live files. Their order is the same each time: commits come last."""
        if self.loaded is not None:
            return fold(iter([self.loaded.live]))
        if self.engine is not None:
            part = partial(_share, tuple(wanted.columns))
            return fold_in_turn(
                self.store, self.snapshot, wanted, part, fold, engine=self.engine, distinct=distinct
            )

        def folded(batches: Iterator[tuple[Source | None, pa.Table]]) -> Result:
            return fold(_commits_last(batches))

        return fold_files(self.store, self.snapshot, wanted, folded, distinct=distinct)


def _share(columns: Collection[str], batches: Iterator[tuple[Source | None, pa.Table]]) -> pa.Table:
    """Return a share of the live files with some columns, and those that identify files.

    Of their statistics only the numbers of rows are left, which are what a question is about.
    """
    names = [name for name in FILE_ROWS.names if name in {*columns, *_IDENTIFYING}]
    parts = [empty_rows().select(names)]
    for _, batch in batches:
        rows = batch.select([name for name in names if name != "stats"])
        if "stats" in names:
            rows = rows.append_column("stats", count_texts(num_records(batch)))
        parts.append(rows.select(names))
    return united(parts)


def _commits_last(batches: Iterator[tuple[Source | None, pa.Table]]) -> Batches:
    late = []
    for source, batch in batches:
        if source is None:
            late.append(batch)
        else:
            yield batch
    yield from late


def _placed(batches: Iterable[pa.Table], columns: Sequence[str], start: int = 0) -> Batches:
    """Yield columns of live files with their places, the column `place`."""
    for batch in batches:
        places = arrow_array(np.arange(start, start + batch.num_rows), pa.int64())
        start += batch.num_rows
        yield batch.select(list(columns)).append_column("place", places)


@dataclass
class _Named:
    """The places of some files, and the paths of the first ones."""

    places: list[NDArray[np.int64]]
    paths: list[str]

    def add(self, rows: pa.Table) -> None:
        """Add files with the columns `path` and `place`."""
        if rows.num_rows:
            self.places.append(numpy_array(flat(rows["place"])))
            wanted = max(0, _SHOWN - len(self.paths))
            self.paths += rows["path"].slice(0, wanted).to_pylist()

    def __len__(self) -> int:
        return sum(map(len, self.places))

    def __str__(self) -> str:
        more = f" and {len(self) - _SHOWN} more" if len(self) > _SHOWN else ""
        return ", ".join(self.paths) + more

    def beside(self, others: _Named) -> _Named:
        """Return these files, then others."""
        paths = [*self.paths, *others.paths][:_SHOWN]
        return _Named([*self.places, *others.places], paths)

    def total(self, counts: pa.Array) -> str:
        """Return the number of rows of these files as text; `counts` are those of all files."""
        some = counts.take(arrow_array(np.concatenate(self.places), pa.int64()))
        return "unknown number of" if some.null_count else f"{pc.sum(some).as_py() or 0:,}"


@dataclass(frozen=True)
class _Facts:
    """What is kept of all live files, in their order."""

    sizes: pa.Array  # Bytes.
    counts: pa.Array  # Rows with deleted ones; null: not stated.
    deleted: pa.Array  # Deleted rows.
    is_column: NDArray[np.bool_]  # Whether a file has columns of other files' rows.
    vectors: int  # Files with a deletion vector.
    silent: _Named  # Files that do not state their number of rows.
    resized: _Named  # Files with other sizes than the log says.
    partitions: pa.Table | None  # The bytes of each partition, if there are partitions.


def _facts_wanted(snapshot: Snapshot) -> Wanted:
    parts = ("partition_values",) if snapshot.partition_columns else ()
    return Wanted(("size", "stats", *parts), bounds_of=())


def _facts_of(files: _Files, listed: pa.Table | None, batches: Batches) -> _Facts:
    sizes, counts, deleted, is_column = [], [], [], []
    silent, resized, vectors, parts = _Named([], []), _Named([], []), 0, None
    index = None if listed is None else TextIndex(flat(listed["file"]))
    start = 0
    for batch in batches:
        size, count = flat(batch["size"]), num_records(batch)
        (paths,) = _placed([batch], ["path"], start)
        start += batch.num_rows
        sizes.append(size)
        counts.append(count)
        deleted.append(flat(deleted_counts(batch)))
        is_column.append(numpy_array(pc.is_valid(tag_texts(batch, FIELDS_TAG))))
        vectors += batch.num_rows - batch["dv_id"].null_count
        silent.add(paths.filter(pc.is_null(count)))
        if index is not None and listed is not None and len(index):
            at = index.places(_names(files.store, batch))
            real = flat(listed["bytes"]).take(arrow_array(at, pa.int64(), mask=at < 0))
            resized.add(paths.filter(pc.fill_null(pc.not_equal(real, size), False)))
        if files.snapshot.partition_columns and batch.num_rows:
            sums = partition_sums(files.snapshot, batch).select(["partition", "bytes"])
            parts = sums if parts is None else _summed(pa.concat_tables([parts, sums]))
    return _Facts(
        _numbers(sizes), _numbers(counts), _numbers(deleted),
        np.concatenate([np.zeros(0, np.bool_), *is_column]), vectors, silent, resized,
        None if parts is None else parts.sort_by([("bytes", "descending")]),
    )  # fmt: skip


def _numbers(parts: list[pa.Array]) -> pa.Array:
    return pa.concat_arrays([pa.nulls(0, pa.int64()), *parts])


def _summed(sums: pa.Table) -> pa.Table:
    grouped = sums.group_by("partition", use_threads=False).aggregate([("bytes", "sum")])
    return pa.table([grouped["partition"], grouped["bytes_sum"]], ["partition", "bytes"])


def _lost(
    store: Store, snapshot: Snapshot, log: list[LogFile]
) -> tuple[int, LogCorruptError] | None:
    if snapshot.catalog is None and any(file.last_version > snapshot.version for file in log):
        with suppress(TxlogError):
            sound, cause = newest_sound(store)
            return None if cause is None else (sound.version, cause)
    return None


# The log -----------------------------------------------------------------------------------------


def _gaps(case: _Case) -> Iterator[Finding]:
    commits = [file.version for file in case.log if file.kind == "commit"]
    first, end = min(commits, default=0), case.snapshot.version + 1
    known = [version for version in rebuildable(case.log) if first <= version < end]
    lost = [range(a + 1, b) for a, b in pairwise([first - 1, *known, end]) if b > a + 1]
    lost = [run for run in lost if not _is_cleaned_up(case, run)]
    if lost:
        count = sum(run.stop - run.start for run in lost)  # `len` is below 2^63.
        yield Finding(
            "log-gap", "warning", log_path(f"{lost[0].start:020d}.json"), count,
            f"versions {runs_text(lost)} cannot be reconstructed from the files in the log",
            "They cannot be opened, and streams and change feeds that need them stop",
            "Restore the commits from a copy; later versions do not need them",
        )  # fmt: skip


def _is_cleaned_up(case: _Case, gap: range) -> bool:
    """Return whether a clean-up of the log explains a gap.

    It ends the gap with a checkpoint, and below keeps only what pins need, and clones that are
    being made.
    """
    if gap.stop not in complete_checkpoints(case.log):
        return False
    try:
        held = held_versions(case.snapshot, case.context.effects.now_ms())
        kept = {file.name for one in held for file in made_of(case.log, one)}
    except TxlogError:  # Such a version cannot be rebuilt, so more is lost.
        return False
    return all(file.name in kept for file in case.log if file.last_version < gap.start)


def _damaged(case: _Case) -> Iterator[Finding]:
    """Read all commits: damage to a commit before the checkpoint is otherwise not noticed."""
    if case.lost is not None and case.lost[1].path not in {file.path for file in case.log}:
        opens, cause = case.lost  # The log has a gap.
        yield _lost_latest(opens, cause.path, cause.reason)
    commits = [file for file in case.log if file.kind == "commit"]
    errors = map_many(case.store, partial(_error_of, case.store), commits)
    for file, error in zip(commits, errors, strict=True):
        if error is not None and case.lost is not None and file.version > case.lost[0]:
            yield _lost_latest(case.lost[0], file.path, error)
        elif error is not None:
            yield Finding(
                "commit-damaged", "warning", file.path, 1, error,
                f"Version {file.version} is skipped or cannot be opened",
                "Restore the file from a copy, or remove it with all older versions: "
                "maintenance.checkpoint(), then maintenance.expire(0, dry_run=False)",
            )  # fmt: skip


def _lost_latest(opens: int, path: str | None, reason: str) -> Finding:
    return Finding(
        "version-damaged", "error", path, 1, reason,
        f"The latest version cannot be opened; version {opens} can",
        f"Restore the file from a copy, or call restore({opens}) on version {opens}: it makes a "
        "new version",
    )  # fmt: skip


def _error_of(store: Store, file: LogFile) -> str | None:
    try:
        read_whole(store, file)
    except LogCorruptError as error:
        return f"{file.name}: {error.reason}"
    return None


def checkpoint_faults(store: Store, log: list[LogFile]) -> Iterator[Finding]:
    """Yield problems of checkpoints and `_last_checkpoint`, which a new checkpoint repairs."""
    for file in incomplete_checkpoints(log):
        yield Finding(
            "checkpoint-incomplete", "warning", file.path, 1,
            f"parts of the checkpoint of version {file.version} are missing",
            "It is ignored, so opening the table reads more of the log",
            "maintenance.repair(dry_run=False) writes a new checkpoint",
        )  # fmt: skip
    try:
        data = store.read(HINT_PATH)
    except NotFoundError:
        data = None
    whole = complete_checkpoints(log)
    hint = None if data is None else decode_hint(data)
    wrong = hint is None or hint.version not in whole
    if wrong and (data is not None or whole):
        yield Finding(
            "checkpoint-hint", "warning", HINT_PATH, 1,
            "it is not there" if data is None else "it names a checkpoint that does not exist",
            "Opening the table lists and reads more of the log than necessary",
            "maintenance.repair(dry_run=False) writes a new checkpoint and points to it",
        )  # fmt: skip


def _length(case: _Case) -> Iterator[Finding]:
    yield from checkpoint_faults(case.store, case.log)
    whole = complete_checkpoints(case.log)
    interval = int(case.snapshot.properties.get("delta.checkpointInterval"))
    version = case.snapshot.version
    since = version - max((v for v in whole if v <= version), default=-1)
    if since > max(2 * interval, 100):
        yield Finding(
            "log-long", "advice", None, since,
            f"there are {since} commits since the last checkpoint",
            "Each opening reads all of them", "maintenance.checkpoint() writes a checkpoint",
        )  # fmt: skip


def _checksum(case: _Case) -> Iterator[Finding]:
    facts = case.facts

    def rows() -> pa.Table:
        return (case.files.loaded or load_columns(case.store, case.snapshot, ("size",))).live

    numbers = LiveNumbers(facts.sizes, facts.deleted, facts.vectors, rows)
    report = verify_checksum(case.store, case.snapshot, numbers)
    if not report.ok:
        yield Finding(
            "checksum", "warning", report.path, len(report.problems),
            "; ".join(map(str, report.problems[:_SHOWN])),
            "Engines that trust version checksums may read wrong values",
            "Find the faulty writer; then maintenance.repair(dry_run=False) deletes the checksum",
        )  # fmt: skip


def _times(case: _Case) -> Iterator[Finding]:
    stamped = stamped_from(case.snapshot)
    commits = [
        file
        for file in case.log
        if file.kind == "commit" and (stamped is None or file.version < stamped)
    ]
    wrong = [
        after.version
        for before, after in pairwise(commits)
        if after.modified_ms is not None
        and before.modified_ms is not None
        and after.modified_ms < before.modified_ms
    ]
    if wrong:
        yield Finding(
            "times", "warning", log_path(f"{wrong[0]:020d}.json"), len(wrong),
            f"the commits of versions {_listed(wrong)} are older than those before them",
            "Time travel by timestamp uses adjusted times, and copying files changes the times",
            'alter.set_properties({"delta.enableInCommitTimestamps": "true"}) keeps the times of '
            "new versions in their commits",
        )  # fmt: skip


# Files -------------------------------------------------------------------------------------------


def missing_files(store: Store, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the live `FILE_ROWS` with missing data files, and those with missing vectors."""
    return missing_data(store, rows), _missing_vectors(store, rows, None)


def missing_data(store: Store, rows: pa.Table) -> pa.Table:
    """Return the `FILE_ROWS` whose data files are missing; each is looked up."""
    places = [locate(store, decode_path(path)) for path in rows["path"].to_pylist()]
    return rows.filter(_gone(store, places))


def _missing_vectors(store: Store, rows: pa.Table, known: TextIndex | None) -> pa.Table:
    """Return the rows whose deletion vectors are missing; the `known` names are in the store."""
    rows = rows.filter(pc.is_valid(flat(rows["dv_id"])))
    paths = rows["path"].to_pylist()
    vectors = [fragment.deletion for fragment in as_fragments(rows)]
    places = [
        None if one is None else deletion_place(store, one.descriptor, path=path)
        for path, one in zip(paths, vectors, strict=True)
    ]
    return rows.filter(_gone(store, places, known))


def _gone(
    store: Store, places: Sequence[tuple[Store, str] | None], known: TextIndex | None = None
) -> pa.Array:
    """Return whether a place has no file; `known` names are in the store. Null: False."""
    asked = {(home.root, name): (home, name) for home, name in filter(None, places)}
    if known is not None:
        own = [key for key, (home, _) in asked.items() if home is store]
        at = known.places(arrow_array([name for _, name in own], pa.string()))
        for key, place in zip(own, at.tolist(), strict=True):
            if place >= 0:
                del asked[key]
    there = map_many(store, lambda place: is_there(*place), list(asked.values()))
    gone = {key for key, found in zip(asked, there, strict=True) if not found}
    return arrow_array(
        [place is not None and (place[0].root, place[1]) in gone for place in places], pa.bool_()
    )


def _names(store: Store, rows: pa.Table) -> pa.Array:
    """Return the names of data files below the table; those of other files remain absolute."""
    return names_below(store.root, flat(canonical_keys(rows["path"])).cast(pa.string()))


def _behind_links(store: Store, folders: Iterable[str]) -> TextIndex:
    """Return the files in some folders of a local disk, with the links in them.

    A listing of the table follows no links.
    """
    found = [
        f"{folder}{name}"
        for folder in sorted(folders)
        for name, _, _ in store.list_briefly(folder.removesuffix("/"), "")
    ]
    return TextIndex(pc.unique(arrow_array(found, pa.string())))


def _not_listed(
    store: Store, known: TextIndex | None, batches: Batches
) -> Iterator[tuple[pa.Table, pa.Array]]:
    """Yield the files that a listing lacks, and which of them it cannot show.

    It does not show hidden files, and files outside of the table's folder.
    """
    for rows in _placed(batches, ["path"]):
        names = _names(store, rows)
        if known is not None:
            absent = arrow_array(known.places(names) < 0, pa.bool_())
            rows, names = rows.filter(absent), names.filter(absent)
        if rows.num_rows:
            yield rows, pc.match_substring_regex(names, _NOT_LISTED)


def _places_to_look(store: Store, known: TextIndex, batches: Batches) -> tuple[int, int, set[str]]:
    """Return the numbers of files that a listing lacks, and the folders of the second ones.

    First those that it cannot show, then the others.
    """
    hidden, inside, folders = 0, 0, set[str]()
    for rows, elsewhere in _not_listed(store, known, batches):
        names = _names(store, rows.filter(pc.invert(elsewhere)))
        inside += len(names)
        hidden += rows.num_rows - len(names)
        folders.update(pc.unique(pc.replace_substring_regex(names, r"[^/]*$", "")).to_pylist())
    return hidden, inside, folders


def _looked_up(store: Store, known: TextIndex | None, batches: Batches) -> _Named:
    """Return the missing files; each that is not in the listing is looked up."""
    gone = _Named([], [])
    for rows, _ in _not_listed(store, known, batches):
        gone.add(missing_data(store, rows))
    return gone


def _not_linked(
    store: Store, known: TextIndex, linked: TextIndex, batches: Batches
) -> tuple[_Named, _Named]:
    """Return the missing files: those that a listing would show, and the others."""
    gone, others = _Named([], []), _Named([], [])
    for rows, elsewhere in _not_listed(store, known, batches):
        others.add(missing_data(store, rows.filter(elsewhere)))
        inside = rows.filter(pc.invert(elsewhere))
        absent = linked.places(_names(store, inside)) < 0
        gone.add(inside.filter(arrow_array(absent, pa.bool_())))
    return gone, others


def _some_inside(
    store: Store, known: TextIndex, step: int, batches: Batches
) -> tuple[_Named, pa.Table]:
    """Return the files that a listing would show, but lacks, and every so many of them as rows."""
    every, some, before = _Named([], []), list[pa.Table](), 0
    for rows, elsewhere in _not_listed(store, known, batches):
        inside = rows.filter(pc.invert(elsewhere))
        every.add(inside)
        chosen = np.arange(-before % step, inside.num_rows, step)
        some.append(inside.take(arrow_array(chosen, pa.int64())))
        before += inside.num_rows
    return every, pa.concat_tables(some)


def _elsewhere(store: Store, known: TextIndex, batches: Batches) -> _Named:
    """Return the missing files that a listing cannot show."""
    gone = _Named([], [])
    for rows, elsewhere in _not_listed(store, known, batches):
        gone.add(missing_data(store, rows.filter(elsewhere)))
    return gone


def _missing_data(case: _Case) -> tuple[_Named, str]:
    """Return the missing data files. The text says so if only some were looked up.

    If a whole table was moved or deleted, a look at each file would take hours in a store, and
    would find nothing that is not in the listing. Only a local disk has links.
    """
    store, fold = case.store, case.files.fold
    if case.listed is None:
        return fold(_PATHS, partial(_looked_up, store, None)), ""
    known = TextIndex(flat(case.listed["file"]))
    hidden, inside, folders = fold(_PATHS, partial(_places_to_look, store, known))
    step = -(-inside // max(1, _LOOKED_UP))
    if not hidden and not inside:
        return _Named([], []), ""
    if step > 1 and store.local_path("") is not None:
        linked = _behind_links(store, folders)
        gone, others = fold(_PATHS, partial(_not_linked, store, known, linked))
        return gone.beside(others), ""
    if step > 1:
        every, some = fold(_PATHS, partial(_some_inside, store, known, step))
        if missing_data(store, some).num_rows == some.num_rows:
            looked = (
                f" ({some.num_rows:,} were looked up; the others are not in the listing, which "
                "follows no links)"
            )
            return every.beside(fold(_PATHS, partial(_elsewhere, store, known))), looked
    return fold(_PATHS, partial(_looked_up, store, known)), ""


def _vectors_gone(store: Store, known: TextIndex | None, batches: Batches) -> _Named:
    """Return the files whose deletion vectors are missing."""
    gone = _Named([], [])
    for rows in _placed(batches, [name for name in FILE_ROWS.names if name != "stats"]):
        gone.add(_missing_vectors(store, rows, known))
    return gone


def _missing_vectors_of(case: _Case) -> _Named:
    if not case.facts.vectors:
        return _Named([], [])
    known = None if case.listed is None else TextIndex(flat(case.listed["file"]))
    return case.files.fold(_BUT_STATISTICS, partial(_vectors_gone, case.store, known))


def _packs_named(batches: Batches) -> pa.Array:
    """Return the logged paths of all packs."""
    parts = [packs_of(rows) for rows in batches]
    return pc.unique(pa.concat_arrays([pa.nulls(0, pa.string()), *parts]))


def _lost_packs(case: _Case, packs: pa.Array) -> list[str]:
    """Return the logged paths of the packs that do not exist."""
    known = None if case.listed is None else TextIndex(flat(case.listed["file"]))
    places = [locate(case.store, decode_path(path)) for path in packs.to_pylist()]
    lost: list[str] = packs.filter(_gone(case.store, places, known)).to_pylist()
    return lost


def _missing(case: _Case) -> Iterator[Finding]:
    data, by_listing = _missing_data(case)
    for code, what, gone, said in (
        ("file-missing", "data", data, by_listing),
        ("vector-missing", "deletion", _missing_vectors_of(case), ""),
    ):
        if len(gone):
            yield Finding(
                code, "error", gone.paths[0], len(gone),
                f"{what} files are missing: {gone}{said}",
                f"Their {gone.total(case.facts.counts)} rows cannot be read, and scans that need "
                "them fail",
                "Get the files from a copy, or remove them from the table with "
                "maintenance.repair(False, missing_files=True)",
            )  # fmt: skip
    packs = case.files.fold(_TAGS, _packs_named)
    if lost := _lost_packs(case, packs):
        more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
        yield Finding(
            "pack-missing", "error", lost[0], len(lost),
            f"packs of large values are missing: {', '.join(lost[:_SHOWN])}{more}",
            "The values of blob columns in them cannot be read. All other columns can",
            "Get the packs from a copy",
        )  # fmt: skip
    for sidecar in case.snapshot.sidecars:
        home, name = locate(case.store, decode_path(sidecar.path))
        bare = "/" not in sidecar.path
        if not is_there(home, log_path(f"_sidecars/{name}") if bare else name):
            yield Finding(
                "sidecar-missing", "error", sidecar.path, 1, "a checkpoint's sidecar is missing",
                "Versions that are loaded from this checkpoint cannot be read",
                "Restore it from a copy, or delete the checkpoint if the commits before it exist",
            )  # fmt: skip


def _sizes(case: _Case) -> Iterator[Finding]:
    wrong = case.facts.resized
    if len(wrong):
        yield Finding(
            "file-size", "error", wrong.paths[0], len(wrong),
            f"the sizes of files differ from the log: {wrong}",
            "They were truncated or replaced; readers fail or read wrong rows",
            "Get them from a copy, or delete them, and then remove them from the table with "
            "maintenance.repair(False, missing_files=True)",
        )  # fmt: skip


def _orphans(case: _Case) -> Iterator[Finding]:
    if case.listed is None:
        return
    gone = case.listed.filter(pc.equal(case.listed["decision"], "delete"))
    if gone.num_rows:
        size = int(pc.sum(gone["bytes"]).as_py() or 0)
        yield Finding(
            "orphans", "advice", gone["file"][0].as_py(), gone.num_rows,
            f"no version within the retention needs {gone.num_rows} files",
            f"They take {size:,} bytes", "vacuum(dry_run=False) deletes them",
        )  # fmt: skip


def _layout(case: _Case) -> Iterator[Finding]:
    facts = case.facts
    sizes = numpy_array(pc.fill_null(facts.sizes, 0))
    small = int(np.count_nonzero(sizes < SMALL_BYTES))
    if small >= MANY_FILES and 2 * small > len(sizes):
        yield Finding(
            "small-files", "advice", None, small,
            f"{small} of {len(sizes)} files are smaller than {SMALL_BYTES >> 20} MiB",
            "Each costs requests, and a row in the log and in each scan plan",
            "optimize.compact() merges them",
        )  # fmt: skip
    over = _out_of_order(case)
    if over:
        yield Finding(
            "out-of-order", "advice", None, over,
            f"{over} of {len(sizes)} files overlap in {case.snapshot.properties.raw[SORT_BY]}, by "
            f"which {SORT_BY} orders the rows",
            "Scans and look-ups of few keys read several files",
            "optimize.compact() puts them in order",
        )  # fmt: skip
    deleted = numpy_array(pc.fill_null(facts.deleted, 0))
    counts = numpy_array(pc.fill_null(facts.counts, 0))
    heavy = int(np.count_nonzero((counts > 0) & (deleted * 4 > counts)))
    if heavy:
        yield Finding(
            "deleted-rows", "advice", None, heavy,
            f"in {heavy} of {len(sizes)} files more than a quarter of the rows are deleted",
            "Scans read them although they are deleted", "optimize.compact() removes them",
        )  # fmt: skip
    sums = facts.partitions
    if sums is not None:
        by_part = numpy_array(flat(sums["bytes"]))
        if len(by_part) >= 4 and by_part[0] > max(8 * np.median(by_part), 16 * SMALL_BYTES):
            yield Finding(
                "skew", "advice", sums["partition"][0].as_py(), 1,
                "one partition is more than eight times as large as most",
                "Work that is distributed by partition waits for it",
                "Partition by other columns, or cluster instead",
            )  # fmt: skip


def _indexes(case: _Case) -> Iterator[Finding]:
    snapshot = case.snapshot
    for name, definition in index_definitions(snapshot.metadata.configuration).items():
        names = logical_columns(snapshot, definition)
        if names is None or not all(map(can_be_key, choose_columns(snapshot.schema, names))):
            continue
        segments = case.context.lookups.cache().segments
        found = _Behind.of(case, IndexFiles(case.context, snapshot, definition, segments))
        if found.files and not segments.is_failing(name):  # Else it is unknown what is covered.
            yield Finding(
                "index-behind", "advice", found.path, found.files,
                f"the index {name} does not cover {found.files} of "
                f"{int(np.count_nonzero(~case.facts.is_column))} files",
                f"Look-ups, reads and changes by its keys read {found.bytes:,} bytes without it",
                f"indexes.build({name!r}) covers them",
            )  # fmt: skip


@dataclass
class _Behind:
    """Files that an index does not cover."""

    path: str | None = None  # Of the first one.
    files: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, case: _Case, index: IndexFiles) -> _Behind:
        """Return the files of a table; only with column files all of them are in memory."""
        if not case.facts.is_column.any():
            return case.files.fold(_SIZES, partial(cls._among, index.uncovered_files()))
        left = index.uncovered(_fragments(case)[1])
        size = sum(file.size for fragment in left for file in fragment.files)
        return cls(left[0].path if left else None, len(left), size)

    @classmethod
    def _among(cls, uncovered: Callable[[pa.Table], pa.Array], batches: Batches) -> _Behind:
        found = cls()
        for batch in batches:
            rows = batch.filter(uncovered(batch))
            if rows.num_rows:
                found.path = found.path or rows["path"][0].as_py()
                found.files += rows.num_rows
                found.bytes += pc.sum(rows["size"]).as_py() or 0
        return found


def _fragments(case: _Case) -> tuple[FragmentRows, list[Fragment]]:
    """Return all fragments, as rows and as objects."""
    files = case.files.loaded or load_files(case.store, case.snapshot)
    found = fragment_rows(files.live, listed=case.snapshot.supports(FEATURE))
    return found, fragments_of(found, physical_rows(found))


def _out_of_order(case: _Case) -> int:
    """Return the number of files that overlap in the first column by which rows are sorted."""
    snapshot = case.snapshot
    names = sort_columns(snapshot.properties, snapshot.schema, snapshot.partition_columns)
    if not names:
        return 0
    # Whether files overlap depends on the bounds of all of them.
    ordered = files_in_order(snapshot, *_fragments(case), names[0])
    return sum(is_over for files in ordered for _, is_over in files)


# Statistics --------------------------------------------------------------------------------------


def _sampled(files: _Files, facts: _Facts, sample: int | None) -> pa.Table:
    """Return the files to open, spread over the table; the choice is the same each time."""
    places = np.flatnonzero(~facts.is_column)
    if sample is not None and len(places) > sample:
        places = places[np.unique(np.linspace(0, len(places) - 1, sample).astype(np.int64))]
    if not len(places):
        return empty_rows()
    if files.engine is None:
        return files.fold(Wanted(), partial(_at, places))
    paths = files.fold(_PATHS, partial(_at, places))["path"]
    rows = rows_at(files.store, files.snapshot, paths.to_pylist(), engine=files.engine)
    return rows.take(pc.index_in(paths, value_set=flat(rows["path"])))


def _at(places: NDArray[np.int64], batches: Batches) -> pa.Table:
    """Return the files at ascending places."""
    found, start = [empty_rows()], 0
    for batch in batches:
        first, end = np.searchsorted(places, [start, start + batch.num_rows])
        # Slices would keep whole batches in memory.
        found.append(batch.take(arrow_array(places[first:end] - start, pa.int64())))
        start += batch.num_rows
    return united(found)


def _statistics(case: _Case) -> Iterator[Finding]:
    silent = case.facts.silent
    if len(silent):
        yield Finding(
            "statistics-missing", "advice", silent.paths[0], len(silent),
            f"{len(silent)} files have no statistics",
            "Scans cannot skip them, and counts must open them",
            "optimize.compute_statistics() computes them",
        )  # fmt: skip
    rows = case.sampled
    looked = list(
        case.context.engine.map(
            partial(file_fault, case.store, case.snapshot),
            [rows.slice(place, 1) for place in range(rows.num_rows)],
        )
    )
    by_path = zip(rows["path"].to_pylist(), looked, strict=True)
    faults = [(path, fault) for path, fault in by_path if fault.text]
    wrong = [(path, fault.text) for path, fault in faults if not fault.is_damage]
    damaged = [
        (path, fault.text)
        for path, fault in faults
        if fault.is_damage and path not in case.facts.resized.paths  # Those are told above.
    ]
    if damaged:
        yield Finding(
            "file-damaged", "error", damaged[0][0], len(damaged),
            "files, or their deletion vectors, are damaged: " + _told(damaged),
            "Reads of their rows fail",
            "Get them from a copy, or delete them, and then remove them from the table with "
            "maintenance.repair(False, missing_files=True)",
        )  # fmt: skip
    if wrong:
        yield Finding(
            "statistics-wrong", "error", wrong[0][0], len(wrong),
            "statistics contradict the files: " + _told(wrong),
            "Scans with a predicate may miss rows, and counts are wrong",
            "optimize.compute_statistics(recompute=True) computes them from the files",
        )  # fmt: skip


def _told(faults: Sequence[tuple[str, str]]) -> str:
    return "; ".join(f"{path}: {text}" for path, text in faults[:_SHOWN])


# Features ----------------------------------------------------------------------------------------

_ADVISED = ("deletionVectors", "columnMapping", "timestampNtz", "typeWidening", "v2Checkpoint",
            "changeDataFeed", "inCommitTimestamp", "rowTracking")  # fmt: skip


def _features(case: _Case) -> Iterator[Finding]:
    snapshot = case.snapshot
    if case.facts.vectors and not snapshot.supports("deletionVectors"):
        yield Finding(
            "feature-missing", "error", None, case.facts.vectors,
            "files have deletion vectors, but the protocol does not list deletionVectors",
            "Engines that do not know them read the deleted rows, too",
            'alter.add_features("deletionVectors") lists the feature',
        )  # fmt: skip
    named = {*(snapshot.protocol.reader_features or ()), *(snapshot.protocol.writer_features or ())}
    used = set(needed_features(snapshot.schema, snapshot.properties))
    if case.facts.vectors:
        used.add("deletionVectors")
    if TYPE_CHANGES in (snapshot.metadata.schema_string or ""):
        used.add("typeWidening")
    if snapshot.sidecars or any(
        file.part == 0 and file.uuid for file in case.log if hasattr(file, "uuid")
    ):
        used.add("v2Checkpoint")
    idle = sorted((named & {*_ADVISED}) - used)
    if idle:
        yield Finding(
            "features-unused", "advice", None, len(idle),
            f"the table lists {', '.join(idle)}, but does not use it",
            "Engines without these features cannot read or write the table, although they could",
            f"alter.drop_feature({idle[0]!r}) drops one",
        )  # fmt: skip


def _listed(items: Iterable[object]) -> str:
    texts = [str(item) for item in items]
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more


CHECKS: tuple[Check, ...] = (
    _gaps, _damaged, _length, _checksum, _times, _missing, _sizes, _orphans, _layout,
    _indexes, _statistics, _features,
)  # fmt: skip
