"""The units of versions, read from the log once and cached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txlog.actions.table import Metadata, Protocol
from txlog.base.arrow import arrow_array, arrow_scalar
from txlog.base.columns import flat
from txlog.base.errors import (
    CommitConflictError,
    LogCorruptError,
    NotFoundError,
    UnsupportedFeatureError,
)
from txlog.base.thresholds import Threshold
from txlog.changes.change_plan import ChangeFile, changed_files
from txlog.changes.changes import RemovedValues, faults_before, require_enabled
from txlog.changes.forms import (
    brings_older_rows,
    differences,
    faults_between,
    in_names_of_files,
    rows_in_names_of_files,
    tightened,
)
from txlog.checkpoint.file_rows import Wanted
from txlog.fragments.fragment import FRAGMENT_COLUMNS
from txlog.fragments.rows import FEATURE, FragmentRows, require_fragments_feature, single_files
from txlog.log.names import LogFile
from txlog.protocol.access import is_stamped, require_readable, supports
from txlog.protocol.form import ReadForm, form_of
from txlog.reconcile.files import Controls, controls_of
from txlog.scan.lazy_plan import is_large, wanted_by
from txlog.scan.read_plan import ReadPlan
from txlog.snapshot.commits import Commit, file_rows, read_commit
from txlog.snapshot.live_files import fold_files, load_files
from txlog.snapshot.load import list_commits, list_log, load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.time_travel import file_times, made_ms, stamped_from
from txlog.stats.files import count_texts, fragment_bounds, num_records
from txlog.stats.skip import keep
from txlog.store.base import Store
from txlog.stream.offsets import StreamOffset
from txlog.stream.version_files import ChangePolicy, FileUnits, commit_units, snapshot_units

POSSIBLE = "possible"
"""A column of the files of a large version: the result of `StreamVersions.possible`."""

_OF_UNITS = [*FRAGMENT_COLUMNS, "modification_time", "tags", "dv_id"]
_KEPT_UNITS: Threshold = 200_000
_KEPT_VERSIONS: Threshold = 4_000
_AFTER_IT = (
    "The writer of this commit made an error. Start the query with a new checkpoint, and set "
    "startingVersion to a later version"
)


@dataclass(frozen=True)
class VersionUnits:
    """The units of one version."""

    version: int
    controls: Controls
    made_ms: int | None  # The time of the version; None if unknown, or if no row shows it.
    units: FileUnits | tuple[ChangeFile, ...]
    sizes: pa.Array  # int64: the bytes of each unit.


class StreamVersions:
    """Reads versions for a stream whose rows have the columns of `table`.

    Raises, in addition to the errors of reading the log:

    UnsupportedFeatureError
        A version has other columns (STR-8, STR-9), changes rows, or does not record its changes.
    """

    def __init__(
        self,
        store: Store,
        table: Snapshot,
        policy: ChangePolicy,
        *,
        changes: bool,
        reading: ReadPlan,
    ) -> None:
        """Take the table's current version, and the plan of what the stream reads of it."""
        self._reading = reading
        self._store = store
        self._table = table
        self._form = table.form
        self._policy = policy
        self._changes = changes
        self._removed = RemovedValues(store, table)
        self._snapshot: VersionUnits | None = None
        self._commits: dict[int, VersionUnits] = {}
        self._kept = 0  # The number of their units.
        self._file_times: dict[int, int | None] = {}

    def forget_before(self, at: StreamOffset) -> None:
        """Forget the versions before an offset."""
        if not at.in_snapshot:
            self._snapshot = None
        # The next version needs the controls of the version before it.
        for version in [version for version in self._commits if version < at.version - 1]:
            self._forget(version)

    def snapshot(self, version: int) -> VersionUnits:
        """Return the live fragments of a version."""
        if self._snapshot is None or self._snapshot.version != version:
            table = self._loaded(version)
            self._require_form(table.controls, version)
            if is_large(table):
                parts = self._narrow_files(table)
            else:
                live = load_files(self._store, table).live
                parts = [rows_in_names_of_files(live, table.form)]
            units = snapshot_units(parts, listed=table.supports(FEATURE))
            self._snapshot = VersionUnits(
                version,
                table.controls,
                made_ms(self._store, table) if self._changes else None,
                units,
                units.sizes,
            )
        return self._snapshot

    def _narrow_files(self, snapshot: Snapshot) -> list[pa.Table]:
        """Return the live `FILE_ROWS` of a large version, with counts in place of statistics.

        They stay in memory until all of them are read, and statistics are long texts. So the
        predicate is asked now.
        """
        asked = wanted_by(self._table, self._reading)
        columns = dict.fromkeys((*_OF_UNITS, *asked.columns, "stats"))
        wanted = Wanted(tuple(columns), bounds_of=asked.bounds_of or ())

        def narrow(rows: pa.Table) -> pa.Table:
            rows = rows_in_names_of_files(rows, snapshot.form)
            counts = count_texts(num_records(rows))
            kept = rows.select(_OF_UNITS).append_column("stats", counts)
            if self._reading.where is None:
                return kept
            found = self.possible(single_files(rows, pa.arange(0, rows.num_rows)))
            return kept.append_column(POSSIBLE, found)

        def all_of(batches: Iterator[tuple[Any, pa.Table]]) -> list[pa.Table]:
            return [narrow(rows) for _, rows in batches]

        return fold_files(self._store, snapshot, wanted, all_of)

    def possible(self, rows: FragmentRows) -> pa.Array:
        """Return whether each fragment may have rows for which the predicate is true."""
        if POSSIBLE in rows.primaries.column_names:
            return flat(rows.primaries[POSSIBLE])
        table, where = self._table, self._reading.where
        if where is None:
            return pa.repeat(arrow_scalar(True), len(rows.ids))
        bounds = fragment_bounds(
            rows, table.schema, table.partition_columns, where, mapping_mode=table.mapping_mode
        )
        return keep(where, bounds)

    def _loaded(self, version: int) -> Snapshot:
        if version == self._table.version:
            return self._table
        try:
            return load_snapshot(self._store, version=version)
        except NotFoundError as error:
            error.path = error.path or self._store.root
            error.remedy = (
                "The stream needs this version to continue. Start the query with a new checkpoint"
            )
            raise

    def commit(self, file: LogFile) -> VersionUnits:
        """Return the units of a commit."""
        found = self._commits.get(file.version)
        if found is None:
            found = self._read(file)
            self._make_room(len(found.sizes))
            self._commits[file.version] = found
            self._kept += len(found.sizes)
        return found

    def _make_room(self, units: int) -> None:
        while self._commits and (
            self._kept + units > _KEPT_UNITS or len(self._commits) >= _KEPT_VERSIONS
        ):
            self._forget(next(iter(self._commits)))

    def _forget(self, version: int) -> None:
        self._kept -= len(self._commits.pop(version).sizes)

    def _read(self, file: LogFile) -> VersionUnits:
        commit = read_commit(self._store, file)
        controls = self._controls(commit)
        protocol, metadata = controls.protocol, controls.metadata
        assert protocol is not None
        assert metadata is not None
        self._require_form(controls, commit.version)
        form = form_of(protocol, metadata)
        if self._changes:
            require_enabled(protocol, metadata, commit.version, self._table)
            at_ms = self._made_ms(file, commit, controls)
            changed = changed_files(commit, at_ms, self._removed)
            files = tuple(in_names_of_files(file, form) for file in changed)
            if brings_older_rows(commit, files):
                self._require_fit_before(commit.version)
            sizes = [sum(part.size for part in file.fragment.files) for file in files]
            return VersionUnits(
                commit.version, controls, at_ms, files, arrow_array(sizes, pa.int64())
            )
        listed = supports(protocol, FEATURE)
        actions = file_rows([commit])
        require_fragments_feature(actions, listed, path=commit.path, remedy=_AFTER_IT)

        def live() -> pa.Table:
            rows = load_files(self._store, self._loaded(commit.version)).live
            return rows_in_names_of_files(rows, form)

        units = commit_units(
            rows_in_names_of_files(actions, form),
            self._policy,
            listed=listed,
            version=commit.version,
            root=self._store.root,
            live=live,
        )
        return VersionUnits(commit.version, controls, None, units, units.sizes)

    def _made_ms(self, file: LogFile, commit: Commit, controls: Controls) -> int | None:
        """Return the time of a version, as `VersionTimes` has it."""
        version = commit.version
        stamped = stamped_from(self._table)
        is_known = version <= self._table.version
        if is_known and stamped is not None and version >= stamped:
            return commit.made_ms(self._table.protocol, self._table.metadata)
        if not is_known and is_stamped(controls.protocol, controls.metadata):
            return commit.made_ms(controls.protocol, controls.metadata)
        before_ms = self._file_times.get(version - 1)
        if version not in self._file_times and before_ms is not None and not is_known:
            made = None if file.modified_ms is None else max(file.modified_ms, before_ms + 1)
            self._file_times[version] = made
        elif version not in self._file_times:
            listed = list_log(self._store, catalog=self._table.catalog)
            commits = [one for one in sorted(listed) if one.kind == "commit"]
            self._file_times = file_times(self._table, commits)
        return self._file_times.get(version)

    def _controls(self, commit: Commit) -> Controls:
        """Return the controls that are valid in a version."""
        if commit.version == self._table.version:
            return self._table.controls
        before = self._commits.get(commit.version - 1)
        base = before.controls if before is not None else None
        if commit.version == self._table.version + 1:
            base = self._table.controls
        if base is None:
            try:
                return self._loaded(commit.version).controls
            except (NotFoundError, LogCorruptError):
                if not self._lasted_since(commit.version):
                    raise
                return self._table.controls
        if not _changes_controls(commit):
            return base
        found = controls_of(commit.controls, base)
        assert found.protocol is not None
        assert found.metadata is not None
        require_readable(found.protocol, found.metadata, path=self._store.root)
        return found

    def _lasted_since(self, version: int) -> bool:
        """Return whether the table's controls have been valid since a version.

        If a version can no longer be rebuilt, the commits after it may still show it.
        """
        files = list_commits(self._store, self._table, since=version + 1)
        if len(files) != self._table.version - version:
            return False
        commits = (read_commit(self._store, file) for file in files)
        return not any(_changes_controls(commit) for commit in commits)

    def _require_form(self, controls: Controls, version: int) -> None:
        protocol, metadata = controls.protocol, controls.metadata
        assert protocol is not None
        assert metadata is not None
        if metadata.id != self._table.metadata.id:
            raise CommitConflictError(
                version=version,
                rule="CON-2",
                path=self._store.root,
                reason="another table replaced this one after the query was started",
                remedy="Start the query with a new checkpoint",
            )
        if metadata == self._table.metadata and protocol == self._table.protocol:
            return
        form = form_of(protocol, metadata)
        if version > self._table.version:
            found = differences(self._form, form)
            remedy = (
                "Load the stream again and start it with the same checkpoint: it then reads the "
                "new columns"
            )
        else:
            found = self._untellable(form)
            remedy = (
                "Start the query with a new checkpoint; with startingVersion it can begin where "
                "the columns changed"
            )
        if found:
            raise UnsupportedFeatureError(
                path=self._store.root,
                features=("streaming",),
                reason=f"version {version} has other columns than version {self._table.version}, "
                f"which the query was started on: {'; '.join(found)}",
                remedy=remedy,
            )

    def _require_fit_before(self, version: int) -> None:
        """Raise if rows that a version removes do not fit the stream's columns (FED-6)."""
        found = faults_before(self._store, version, self._table)
        if found:
            raise UnsupportedFeatureError(
                path=self._store.root,
                features=("streaming",),
                reason=f"version {version} removes rows that do not fit the columns of version "
                f"{self._table.version}, which the query was started on: {'; '.join(found)}",
                remedy="Start the query with a new checkpoint: it begins with all rows of the "
                "latest version",
            )

    def _untellable(self, form: ReadForm) -> list[str]:
        nullable = tightened(form.schema, self._form.schema, self._form.mapping_mode)
        return [
            *faults_between(form, self._form),
            *(f"column {name} could be null" for name in nullable),
        ]


def _changes_controls(commit: Commit) -> bool:
    return any(isinstance(action, Protocol | Metadata) for _, action in commit.controls)
