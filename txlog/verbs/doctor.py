"""Examine a table: what is wrong or slow, what it costs, and how to repair it.

Nothing is written. Each check is a function over values that are loaded once. Together they read
the log, list the table's folder, and open a sample of its data files. Rules: spec/vacuum.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain, pairwise
from typing import Literal

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, numpy_array, pc, table_of_rows
from txlog.base.columns import flat, rows_among
from txlog.base.errors import LogCorruptError, NotFoundError, TxlogError, require_whole
from txlog.base.texts import runs_text
from txlog.base.thresholds import Threshold
from txlog.checkpoint.hint import HINT_PATH, decode_hint
from txlog.commit.context import Context
from txlog.data_files.sort_order import SORT_BY, files_in_order, sort_columns
from txlog.fragments.fragment import fragments_of
from txlog.fragments.ids import tag_texts
from txlog.fragments.rows import FEATURE, FIELDS_TAG, deleted_counts, fragment_rows
from txlog.log.names import LogFile, log_path
from txlog.log.paths import canonical_keys, decode_path
from txlog.log.segment import complete_checkpoints, incomplete_checkpoints, rebuildable
from txlog.protocol.access import needed_features
from txlog.reconcile.files import FileState
from txlog.scan.deletions import deletion_place
from txlog.scan.files import as_fragments, partition_sums
from txlog.schema.types import TYPE_CHANGES
from txlog.snapshot.checksum import verify_checksum
from txlog.snapshot.commits import read_whole
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import list_log, newest_sound
from txlog.snapshot.references import held_versions
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.time_travel import stamped_from
from txlog.stats.files import num_records, physical_rows
from txlog.store.base import Store, is_there, map_many
from txlog.store.open import locate
from txlog.store.places import names_below
from txlog.verbs.expire import made_of
from txlog.verbs.statistics import contradiction
from txlog.verbs.vacuum import VacuumRequest, vacuum

Severity = Literal["error", "warning", "advice"]

SMALL_BYTES = 16 << 20
MANY_FILES = 16
SAMPLE = 32  # The default number of data files to open.
_SHOWN = 3
_NOT_LISTED = r"(^|/)[_.]|^/|^[A-Za-z][A-Za-z0-9+.\-]*:"
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
    files: FileState
    listed: pa.Table | None  # The files below the root as `DECISIONS`.
    sampled: pa.Table  # Live files that are looked into.
    # If the latest version cannot be loaded: the newest that can, and why.
    lost: tuple[int, LogCorruptError] | None

    @property
    def store(self) -> Store:
        return self.context.store

    @property
    def live(self) -> pa.Table:
        return self.files.live


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
        files = files or load_files(context.store, snapshot)
    except LogCorruptError as error:
        damaged = Finding(
            "log-damaged", "error", error.path, 1, error.reason,
            f"Version {snapshot.version} cannot be read", error.remedy or "Restore it from a copy",
        )  # fmt: skip
        return Diagnosis(snapshot.version, (damaged,), 0, 0)
    try:
        listed = vacuum(context, snapshot, VacuumRequest(), files=files).decided
    except TxlogError:
        listed = None
    lost = _lost(context.store, snapshot, log)
    case = _Case(context, snapshot, log, files, listed, _sampled(files.live, sample), lost)
    every = (finding for check in CHECKS for finding in check(case))
    found = sorted(every, key=lambda one: ("error", "warning", "advice").index(one.severity))
    return Diagnosis(snapshot.version, tuple(found), files.live.num_rows, case.sampled.num_rows)


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
        gone = runs_text(chain.from_iterable(lost))
        yield Finding(
            "log-gap", "warning", log_path(f"{lost[0][0]:020d}.json"), sum(map(len, lost)),
            f"versions {gone} cannot be reconstructed from the files in the log",
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
    report = verify_checksum(case.store, case.snapshot, case.files)
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


def missing_files(
    store: Store, rows: pa.Table, listed: pa.Table | None
) -> tuple[pa.Table, pa.Table]:
    """Return the live `FILE_ROWS` with missing data files, and those with missing vectors."""
    return missing_data(store, _unlisted(store, rows, listed)), _missing_vectors(
        store, rows, listed
    )


def _unlisted(store: Store, rows: pa.Table, listed: pa.Table | None) -> pa.Table:
    """Return the rows of files that are not in the listing: only they are looked up."""
    if listed is None:
        return rows
    return rows.filter(pc.invert(pc.is_in(_names(store, rows), value_set=flat(listed["file"]))))


def missing_data(store: Store, rows: pa.Table) -> pa.Table:
    """Return the `FILE_ROWS` whose data files are missing; each is looked up."""
    places = [locate(store, decode_path(path)) for path in rows["path"].to_pylist()]
    return rows.filter(_gone(store, places))


def _missing_vectors(store: Store, rows: pa.Table, listed: pa.Table | None) -> pa.Table:
    rows = rows.filter(pc.is_valid(flat(rows["dv_id"])))
    paths = rows["path"].to_pylist()
    vectors = [fragment.deletion for fragment in as_fragments(rows)]
    places = [
        None if one is None else deletion_place(store, one.descriptor, path=path)
        for path, one in zip(paths, vectors, strict=True)
    ]
    names = frozenset(() if listed is None or not places else listed["file"].to_pylist())
    return rows.filter(_gone(store, places, names))


def _gone(
    store: Store, places: Sequence[tuple[Store, str] | None], names: Set[str] = frozenset()
) -> pa.Array:
    """Return whether a place has no file; `names` are known to be in the store. Null: False."""
    asked = {
        (home.root, name): (home, name)
        for home, name in filter(None, places)
        if home is not store or name not in names
    }
    there = map_many(store, lambda place: is_there(*place), list(asked.values()))
    gone = {key for key, found in zip(asked, there, strict=True) if not found}
    return arrow_array(
        [place is not None and (place[0].root, place[1]) in gone for place in places], pa.bool_()
    )


def _names(store: Store, rows: pa.Table) -> pa.Array:
    """Return the names of data files below the table; those of other files remain absolute."""
    return names_below(store.root, flat(canonical_keys(rows["path"])).cast(pa.string()))


def _behind_links(store: Store, names: pa.Array) -> pa.Array:
    """Return whether files of a local disk are there, although a listing without links lacks them.

    Each folder that they need is listed, with the links in it.
    """
    folders = pc.unique(pc.replace_substring_regex(names, r"[^/]*$", "")).to_pylist()
    found = [
        f"{folder}{name}"
        for folder in folders
        for name, _, _ in store.list_briefly(folder.removesuffix("/"), "")
    ]
    return pc.is_in(names, value_set=arrow_array(found, pa.string()))


def _missing_data(case: _Case) -> tuple[pa.Table, str]:
    """Return the paths of missing data files and their places among the live files.

    The text says so if only some were looked up.

    If a whole table was moved or deleted, a look at each file would take hours in a store, and
    would find nothing that is not in the listing. Only a local disk has links.
    """
    # All columns of millions of files need gigabytes, and each filter copies them.
    places = arrow_array(np.arange(case.live.num_rows), pa.int64())
    paths = case.live.select(["path"]).append_column("place", places)
    unlisted = _unlisted(case.store, paths, case.listed)
    # The listing does not show hidden files, and files outside of the table's folder.
    elsewhere = pc.match_substring_regex(_names(case.store, unlisted), _NOT_LISTED)
    inside = unlisted.filter(pc.invert(elsewhere))
    step = 1 if case.listed is None else -(-inside.num_rows // max(1, _LOOKED_UP))
    if step > 1 and case.store.local_path("") is not None:
        others = missing_data(case.store, unlisted.filter(elsewhere))
        there = _behind_links(case.store, _names(case.store, inside))
        return pa.concat_tables([inside.filter(pc.invert(there)), others]), ""
    if step > 1:
        some = inside.take(arrow_array(range(0, inside.num_rows, step), pa.int64()))
        if missing_data(case.store, some).num_rows == some.num_rows:
            others = missing_data(case.store, unlisted.filter(elsewhere))
            looked = (
                f" ({some.num_rows:,} were looked up; the others are not in the listing, which "
                "follows no links)"
            )
            return pa.concat_tables([inside, others]), looked
    return missing_data(case.store, unlisted), ""


def _missing(case: _Case) -> Iterator[Finding]:
    data, by_listing = _missing_data(case)
    vectors = _missing_vectors(case.store, case.live, case.listed)
    for code, what, rows in (
        ("file-missing", "data", data),
        ("vector-missing", "deletion", vectors),
    ):
        if rows.num_rows:
            counts = (
                num_records(case.live).take(data["place"]) if rows is data else num_records(rows)
            )
            yield Finding(
                code, "error", rows["path"][0].as_py(), rows.num_rows,
                f"{what} files are missing: {_named(rows)}{by_listing if rows is data else ''}",
                f"Their {_total(counts)} rows cannot be read, and scans that need them fail",
                "Get the files from a copy, or remove them from the table with "
                "maintenance.repair(False, missing_files=True)",
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
    if case.listed is None:
        return
    names = _names(case.store, case.live)
    places = pc.index_in(names, value_set=flat(case.listed["file"]))
    real = flat(case.listed["bytes"]).take(places)
    wrong = case.live.filter(pc.fill_null(pc.not_equal(real, flat(case.live["size"])), False))
    if wrong.num_rows:
        yield Finding(
            "file-size", "error", wrong["path"][0].as_py(), wrong.num_rows,
            f"the sizes of files differ from the log: {_named(wrong)}",
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
    rows = case.live
    sizes = numpy_array(pc.fill_null(flat(rows["size"]), 0))
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
    deleted = numpy_array(pc.fill_null(flat(deleted_counts(rows)), 0))
    counts = numpy_array(pc.fill_null(flat(num_records(rows)), 0))
    heavy = int(np.count_nonzero((counts > 0) & (deleted * 4 > counts)))
    if heavy:
        yield Finding(
            "deleted-rows", "advice", None, heavy,
            f"in {heavy} of {len(sizes)} files more than a quarter of the rows are deleted",
            "Scans read them although they are deleted", "optimize.compact() removes them",
        )  # fmt: skip
    if case.snapshot.partition_columns and len(sizes):
        sums = partition_sums(case.snapshot, rows)  # The largest first.
        by_part = numpy_array(flat(sums["bytes"]))
        if len(by_part) >= 4 and by_part[0] > max(8 * np.median(by_part), 16 * SMALL_BYTES):
            yield Finding(
                "skew", "advice", sums["partition"][0].as_py(), 1,
                "one partition is more than eight times as large as most",
                "Work that is distributed by partition waits for it",
                "Partition by other columns, or cluster instead",
            )  # fmt: skip


def _out_of_order(case: _Case) -> int:
    """Return the number of files that overlap in the first column by which rows are sorted."""
    snapshot = case.snapshot
    names = sort_columns(snapshot.properties, snapshot.schema, snapshot.partition_columns)
    if not names:
        return 0
    found = fragment_rows(case.live, listed=snapshot.supports(FEATURE))
    fragments = fragments_of(found, physical_rows(found))
    ordered = files_in_order(snapshot, found, fragments, names[0])
    return sum(is_over for files in ordered for _, is_over in files)


# Statistics --------------------------------------------------------------------------------------


def _sampled(live: pa.Table, sample: int | None) -> pa.Table:
    """Return the files to open, spread over the table; the choice is the same each time."""
    places = np.flatnonzero(numpy_array(pc.is_null(tag_texts(live, FIELDS_TAG))))
    if sample is not None and len(places) > sample:
        places = places[np.unique(np.linspace(0, len(places) - 1, sample).astype(np.int64))]
        return pa.concat_tables([live.slice(0, 0), *(live.slice(at, 1) for at in places.tolist())])
    return rows_among(live, places)


def _statistics(case: _Case) -> Iterator[Finding]:
    silent = case.live.filter(pc.is_null(num_records(case.live)))
    if silent.num_rows:
        yield Finding(
            "statistics-missing", "advice", silent["path"][0].as_py(), silent.num_rows,
            f"{silent.num_rows} files have no statistics",
            "Scans cannot skip them, and counts must open them",
            "optimize.compute_statistics() computes them",
        )  # fmt: skip
    rows = case.sampled
    looked = list(
        case.context.engine.map(
            partial(contradiction, case.store, case.snapshot),
            [rows.slice(place, 1) for place in range(rows.num_rows)],
        )
    )
    wrong = [
        (path, text) for path, text in zip(rows["path"].to_pylist(), looked, strict=True) if text
    ]
    if wrong:
        yield Finding(
            "statistics-wrong", "error", wrong[0][0], len(wrong),
            "statistics contradict the files: "
            + "; ".join(f"{path}: {text}" for path, text in wrong[:_SHOWN]),
            "Scans with a predicate may miss rows, and counts are wrong",
            "optimize.compute_statistics(recompute=True) computes them from the files",
        )  # fmt: skip


# Features ----------------------------------------------------------------------------------------

_ADVISED = ("deletionVectors", "columnMapping", "timestampNtz", "typeWidening", "v2Checkpoint",
            "changeDataFeed", "inCommitTimestamp", "rowTracking")  # fmt: skip


def _features(case: _Case) -> Iterator[Finding]:
    snapshot = case.snapshot
    named = {*(snapshot.protocol.reader_features or ()), *(snapshot.protocol.writer_features or ())}
    used = set(needed_features(snapshot.schema, snapshot.properties))
    if case.live["dv_id"].null_count < case.live.num_rows:
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


def _named(files: pa.Table) -> str:
    """Return the paths of the first files, and the number of the others."""
    more = f" and {files.num_rows - _SHOWN} more" if files.num_rows > _SHOWN else ""
    return ", ".join(files["path"].slice(0, _SHOWN).to_pylist()) + more


def _total(counts: pa.Array) -> str:
    return "unknown number of" if counts.null_count else f"{pc.sum(counts).as_py() or 0:,}"


CHECKS: tuple[Check, ...] = (
    _gaps, _damaged, _length, _checksum, _times, _missing, _sizes, _orphans, _layout,
    _statistics, _features,
)  # fmt: skip
