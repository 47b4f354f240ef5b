"""The change data feed of a range of versions: planned first, then read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Literal

import pyarrow as pa

from txlog.actions.table import Metadata, Protocol
from txlog.base.arrow import arrow_array
from txlog.base.errors import (
    InvalidInputError,
    LogCorruptError,
    NotFoundError,
    UnsupportedFeatureError,
    require_whole,
)
from txlog.base.observe import reading
from txlog.base.threads import Engine, Threads
from txlog.changes.change_plan import (
    CHANGE_COLUMNS,
    ChangeFile,
    change_rows,
    changed_files,
)
from txlog.changes.file_changes import read_changes
from txlog.changes.forms import brings_older_rows, faults_between, in_names_of_files
from txlog.expressions.bind import bind, columns_of
from txlog.expressions.tree import Expression
from txlog.log.paths import canonical_keys
from txlog.protocol.access import is_active
from txlog.protocol.form import ReadForm, form_of
from txlog.protocol.properties import Properties
from txlog.scan.data_file import BATCH_ROWS
from txlog.scan.read_plan import ReadPlan, choose_fields, form_for, needed_columns
from txlog.scan.scan import ArrowStream, repr_of
from txlog.schema.types import StructType, as_nullable
from txlog.snapshot.commits import Commit, read_commit
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.references import pinned_version
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.time_travel import (
    VersionTimes,
    made_ms,
    parse_timestamp,
    version_from,
    version_times,
    version_until,
)
from txlog.stats.files import file_bounds
from txlog.stats.skip import keep
from txlog.store.base import Store, threads_for

Bound = tuple[int | str | None, str | datetime | int | None]
"""A version or the name of a pin, or a time, or neither."""
Clipping = Literal["error", "clip"]
"""What to do about a range that is not in the history: raise, or read its part that is."""


def feed_range(
    store: Store,
    snapshot: Snapshot,
    *,
    start: Bound,
    end: Bound,
    out_of_range: Clipping = "error",
) -> tuple[int, Snapshot]:
    """Return the first version of a range, and its last one, loaded.

    Parameters
    ----------
    snapshot
        The last version of the range by default; the range cannot end later.
    start
        Default: the first version of the table.
    out_of_range
        With `clip`, an end after the last version counts as the last version, and a start after it
        gives no changes.

    Raises
    ------
    InvalidInputError
        A bound has both a version and a time, the range ends before it begins, or `out_of_range`
        is neither `error` nor `clip`.
    NotFoundError
        A bound is outside the table's history, or there is no such pin.
    """
    if out_of_range not in ("error", "clip"):
        raise InvalidInputError(
            argument="out_of_range", reason=f"{out_of_range!r} is not error or clip"
        )
    begin = _one_of(store, snapshot, "start", *start)
    until = _one_of(store, snapshot, "end", *end)
    if out_of_range == "clip" and _is_beyond(store, snapshot, *begin):
        return snapshot.version + 1, snapshot
    first = _first(store, snapshot, *begin)
    last = _last(store, snapshot, *until)
    if out_of_range == "clip":
        last = min(last, snapshot.version)
    for name, version in (("start_version", first), ("end_version", last)):
        if version > snapshot.version:
            raise NotFoundError(
                path=store.root,
                version=version,
                reason=f"{name} is later than the version that is open, {snapshot.version}",
                remedy="Refresh the table, or choose an earlier version",
            )
    if last < first:
        raise InvalidInputError(
            argument="end_version",
            reason=f"the range ends with version {last}, before it begins with version {first}",
        )
    if last == snapshot.version:
        return first, snapshot
    return first, load_snapshot(store, version=last, catalog=snapshot.catalog)


def _is_beyond(
    store: Store, snapshot: Snapshot, version: int | None, moment_ms: int | None
) -> bool:
    """Whether a range would begin after the last version."""
    if moment_ms is not None:
        last_ms = made_ms(store, snapshot)
        return last_ms is not None and moment_ms > last_ms
    return version is not None and version > snapshot.version


def _one_of(
    store: Store,
    snapshot: Snapshot,
    name: str,
    version: int | str | None,
    moment: str | datetime | int | None,
) -> tuple[int | None, int | None]:
    if version is not None and moment is not None:
        raise InvalidInputError(
            argument=f"{name}_timestamp",
            reason=f"{name}_version and {name}_timestamp both bound the range",
            remedy="Pass only one of them",
        )
    if isinstance(version, str):
        version = pinned_version(load_snapshot(store, catalog=snapshot.catalog), version)
    if version is not None and (type(version) is not int or version < 0):
        raise InvalidInputError(
            argument=f"{name}_version", reason=f"{version!r} is not a whole number from 0"
        )
    return version, None if moment is None else parse_timestamp(moment)


def _first(store: Store, snapshot: Snapshot, version: int | None, moment_ms: int | None) -> int:
    if moment_ms is not None:
        return version_from(store, snapshot, moment_ms)
    return version or 0


def _last(store: Store, snapshot: Snapshot, version: int | None, moment_ms: int | None) -> int:
    if moment_ms is not None:
        return version_until(store, snapshot, moment_ms)
    return snapshot.version if version is None else version


@dataclass(frozen=True, repr=False)
class Changes(ArrowStream):
    """Inserted, deleted and changed rows, planned but not yet read; each read gives the same rows.

    Besides the table's columns, as they are in the last version, each row has `_change_type`
    (`insert`, `delete`, `update_preimage`, `update_postimage`), `_commit_version`, and
    `_commit_timestamp`. Rows come in the order of versions; within one, in no special order.
    Every library that reads the Arrow C stream (pyarrow, polars, duckdb, pandas) can read changes.
    """

    store: Store
    plan: ReadPlan
    files: tuple[ChangeFile, ...]
    start_version: int
    end_version: int
    engine: Engine = field(default_factory=Threads)

    def __repr__(self) -> str:
        versions = f"start_version={self.start_version}, end_version={self.end_version}"
        return repr_of("Changes", self.plan, versions, self.schema.names)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return self.plan.schema

    def to_batches(self, *, batch_size: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows, version by version, in batches of 1 to `batch_size` rows."""
        require_whole("batch_size", batch_size, 1)
        for file in self.files:
            yield from read_changes(self.store, self.plan, file, batch_rows=batch_size)

    @reading("CHANGES")
    def to_arrow(self) -> pa.Table:
        """Return the rows as one table."""
        parts = self.engine.map(partial(_read_all, self.store, self.plan), self.files)
        return pa.Table.from_batches(
            [batch for batches in parts for batch in batches], schema=self.schema
        )

    def count(self) -> int:
        """Return the number of rows; only the predicate's columns are read."""
        where = self.plan.where
        used = {path[0] for path in (() if where is None else columns_of(where))}
        needed = tuple(column for column in self.plan.needed if column.name in used)
        plan = replace(self.plan, columns=(), needed=needed)
        return sum(self.engine.map(partial(_count, self.store, plan), self.files))


def _read_all(store: Store, plan: ReadPlan, file: ChangeFile) -> list[pa.RecordBatch]:
    return list(read_changes(store, plan, file))


def _count(store: Store, plan: ReadPlan, file: ChangeFile) -> int:
    return sum(batch.num_rows for batch in read_changes(store, plan, file))


def plan_feed(
    store: Store,
    last: Snapshot,
    start_version: int,
    *,
    columns: list[str] | None = None,
    where: Expression | None = None,
    engine: Engine | None = None,
    latest: Snapshot | None = None,
) -> Changes:
    """Return the changes of the versions from one up to a snapshot's, both included.

    Only commits are read, and the files that they name are chosen by partition values and
    statistics as in a scan. `latest` is the latest version, if it is known.

    Raises
    ------
    NotFoundError
        A commit in between was cleaned up.
    UnsupportedFeatureError
        A version does not record changes (`delta.enableChangeDataFeed`), or its rows do not fit the
        columns of the last version. The error names it.
    InvalidInputError
        A column is unknown, or the predicate does not fit.
    """
    require_feed(last)
    plan = feed_read_plan(last, columns, where)
    if start_version > last.version:  # `out_of_range="clip"` permits this.
        return Changes(store, plan, (), start_version, last.version, engine or Threads())
    times = version_times(store, last, latest=latest)
    commits = _commits(times, start_version)
    first = last
    if start_version < last.version:
        first = load_snapshot(store, version=start_version, catalog=last.catalog)
    forms = _forms(first, last, commits)
    known = RemovedValues(store, last)
    changed = [changed_files(commit, times.of_commit(commit), known) for commit in commits]
    if brings_older_rows(commits[0], changed[0]):
        _require_fit_before(store, commits[0].version, last)
    files = [
        in_names_of_files(file, form)
        for found, form in zip(changed, forms, strict=True)
        for file in found
    ]
    files = possible_changes(files, plan, last)
    engine = engine or threads_for(store)
    return Changes(store, plan, tuple(files), start_version, last.version, engine)


def possible_changes(files: list[ChangeFile], plan: ReadPlan, last: Snapshot) -> list[ChangeFile]:
    """Return the files that the plan's predicate does not exclude. Pure."""
    if plan.where is None or not files:
        return files
    bounds = file_bounds(
        change_rows(files),
        last.schema,
        last.partition_columns,
        plan.where,
        mapping_mode=plan.form.mapping_mode,
    )
    kept = keep(plan.where, bounds).to_pylist()
    return [file for file, wanted in zip(files, kept, strict=True) if wanted]


def require_feed(snapshot: Snapshot) -> None:
    """Raise if a version records no changes.

    Raises
    ------
    UnsupportedFeatureError
        `delta.enableChangeDataFeed` is not true, or a column has a name that the feed uses.
    """
    require_enabled(snapshot.protocol, snapshot.metadata, snapshot.version, snapshot)
    for column in CHANGE_COLUMNS.fields:
        if snapshot.schema.get(column.name) is not None:
            raise UnsupportedFeatureError(
                path=snapshot.root,
                features=("changeDataFeed",),
                reason=f"the table has a column {column.name}, which the feed needs for itself",
                remedy="Read the table instead of its changes",
            )


def feed_read_plan(last: Snapshot, columns: list[str] | None, where: Expression | None) -> ReadPlan:
    """Return the plan for reading changes of versions in the columns of the last version. Pure.

    All columns are nullable, because rows may be older than a column or its NOT NULL.
    """
    own = StructType(as_nullable(last.schema.fields))
    schema = StructType((*own.fields, *CHANGE_COLUMNS.fields))
    bound = None if where is None else bind(where, schema)
    chosen, nested = choose_fields(schema, schema.names() if columns is None else columns)
    needed = needed_columns(own, chosen, bound, nested)
    return ReadPlan(
        root=last.root,
        version=last.version,
        columns=chosen,
        needed=needed,
        nested=nested,
        form=form_for(last.form, needed),
        where=bound,
    )


def _commits(times: VersionTimes, start_version: int) -> list[Commit]:
    store, last = times.store, times.snapshot
    listed = {file.version: file for file in times.commits if file.version >= start_version}
    missing = [v for v in range(start_version, last.version + 1) if v not in listed]
    if missing:
        raise NotFoundError(
            path=store.root,
            version=missing[-1],
            reason="the commit of this version was cleaned up, so its changes cannot be read",
            remedy=f"Ask for changes from version {missing[-1] + 1} on"
            if missing[-1] < last.version
            else "Read the table instead of its changes",
        )
    return [read_commit(store, listed[version]) for version in sorted(listed)]


def _forms(first: Snapshot, last: Snapshot, commits: Sequence[Commit]) -> list[ReadForm]:
    """Return the form of each version; raise unless all record changes that fit the last."""
    protocol, metadata = first.protocol, first.metadata
    forms: list[ReadForm] = []
    for commit in commits:
        changed = commit.version == first.version
        for _, action in commit.controls:
            if isinstance(action, Protocol):
                protocol, changed = action, True
            elif isinstance(action, Metadata):
                metadata, changed = action, True
        if changed:
            require_enabled(protocol, metadata, commit.version, last)
            _require_compatible(protocol, metadata, commit.version, last)
        forms.append(form_of(protocol, metadata) if changed else forms[-1])
    return forms


def require_enabled(protocol: Protocol, metadata: Metadata, version: int, last: Snapshot) -> None:
    """Raise if the properties of a version turn the feed off; errors as `require_feed`."""
    if not is_active("changeDataFeed", protocol, Properties(metadata.configuration)):
        raise UnsupportedFeatureError(
            path=last.root,
            features=("changeDataFeed",),
            reason=f"version {version} does not record changes: "
            "delta.enableChangeDataFeed is not true in it",
            remedy="Ask for changes from a later version on"
            if version < last.version
            else "Enable the feed; changes are recorded from the next version on",
        )


def _require_compatible(
    protocol: Protocol, metadata: Metadata, version: int, last: Snapshot
) -> None:
    faults = faults_between(form_of(protocol, metadata), last.form)
    if faults:
        raise UnsupportedFeatureError(
            path=last.root,
            features=("changeDataFeed",),
            reason=f"changes of version {version} do not fit the columns of version "
            f"{last.version}: {'; '.join(faults)}",
            remedy="Ask for the changes before and after the change of columns separately",
        )


def _require_fit_before(store: Store, version: int, last: Snapshot) -> None:
    """Raise if rows that the first version removes, in the form before it, do not fit the last."""
    faults = faults_before(store, version, last)
    if faults:
        raise UnsupportedFeatureError(
            path=last.root,
            features=("changeDataFeed",),
            reason=f"version {version} removes rows that do not fit the columns of version "
            f"{last.version}: {'; '.join(faults)}",
            remedy=f"Read the rows of version {version - 1}, which are removed, from that version"
            + (
                f", and ask for the changes from version {version + 1} on"
                if version < last.version
                else ""
            ),
        )


def faults_before(store: Store, version: int, last: Snapshot) -> list[str]:
    """Return why rows of the version before another one do not fit the last one.

    Empty if they fit, or if the version before can no longer be rebuilt.
    """
    if not version:
        return []
    try:
        before = load_snapshot(store, version=version - 1, catalog=last.catalog)
    except (NotFoundError, LogCorruptError):
        return []  # The commit was cleaned up.
    return faults_between(before.form, last.form, drops=True)


class RemovedValues:
    """Partition values of removed files whose remove does not repeat them."""

    def __init__(self, store: Store, last: Snapshot) -> None:
        self._store = store
        self._last = last
        self._version = -1
        self._known: dict[str, Mapping[str, str | None]] = {}

    def __call__(self, version: int, path: str) -> Mapping[str, str | None]:
        """Return the partition values of a file that is live in a version."""
        if not self._last.partition_columns:
            return {}
        if version != self._version:
            snapshot = load_snapshot(self._store, version=version, catalog=self._last.catalog)
            live = load_files(self._store, snapshot).live
            keys = canonical_keys(live["path"]).to_pylist()
            values = live["partition_values"].to_pylist(maps_as_pydicts="lossy")
            self._known = dict(zip(keys, values, strict=True))
            self._version = version
        key = canonical_keys(arrow_array([path])).to_pylist()[0]
        if key not in self._known:
            raise LogCorruptError(
                path=path,
                version=version + 1,
                reason="a file is removed that the version before did not have",
            )
        return self._known[key]
