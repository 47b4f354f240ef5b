"""Find the version that wrote each row, from row tracking or else from the row's file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.actions.told import told_text
from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.columns import flat
from txlog.base.errors import InvalidInputError, LogCorruptError
from txlog.base.threads import Engine
from txlog.base.thresholds import Threshold
from txlog.changes.change_plan import COMMIT_TIMESTAMP, COMMIT_VERSION
from txlog.expressions.tree import Expression
from txlog.log.names import LogFile
from txlog.log.paths import canonical_keys
from txlog.scan.columns import FRAGMENT_ID, ROW_VERSION
from txlog.scan.lazy_plan import plan_snapshot
from txlog.scan.read_plan import column_names
from txlog.scan.scan import ArrowStream, Scan, repr_of
from txlog.schema.timestamps import micros_of
from txlog.snapshot.commits import DamagedError, read_commit
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import list_commits, warn_of_damage
from txlog.snapshot.salvage import read_sound_deltas
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.time_travel import VersionTimes, version_times
from txlog.store.base import Store

OPERATION, USER = "_operation", "_user"
_BLAMED = pa.schema(
    [
        (COMMIT_VERSION, pa.int64()),
        (COMMIT_TIMESTAMP, pa.timestamp("us", "UTC")),
        (OPERATION, pa.string()),
        (USER, pa.string()),
    ]
)
_COMMITS_AT_ONCE: Threshold = 256


@dataclass(frozen=True, repr=False)
class Blame(ArrowStream):
    """Rows of a version with the version that wrote each, planned but not yet read.

    Besides the columns, each row has `_commit_version`, `_commit_timestamp`, `_operation` and
    `_user`. They are null if the commit was cleaned up or is damaged, but a version from row
    tracking is kept.
    """

    store: Store
    snapshot: Snapshot
    scan: Scan
    marker: str  # The metadata column from which versions are found; it is not returned.
    # The version of each fragment. None: each row has its own version.
    versions: dict[int, int] | None

    def __repr__(self) -> str:
        reading = self.scan.plan.reading
        return repr_of("Blame", reading, f"version={reading.version}", self.schema.names)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        kept = [one for one in self.scan.schema if one.name != self.marker]
        return pa.schema([*kept, *_BLAMED])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; one batch is held at a time."""
        times = version_times(self.store, self.snapshot)
        commits = {file.version: file for file in times.commits}
        by_version: dict[int, tuple[Any, ...]] = {}
        for batch in self.scan.to_batches():
            marks = batch.column(self.marker).dictionary_encode()
            rows = []
            for mark in marks.dictionary.to_pylist():
                version = mark if self.versions is None else self.versions.get(mark)
                if version is None:
                    rows.append((None,) * len(_BLAMED))
                    continue
                if version not in by_version:
                    by_version[version] = self._values_of(times, version, commits.get(version))
                rows.append(by_version[version])
            columns = [
                arrow_array(list(values), kind.type).take(marks.indices)
                for values, kind in zip(zip(*rows, strict=True), _BLAMED, strict=True)
            ]
            kept = batch.drop_columns([self.marker])
            yield pa.RecordBatch.from_arrays([*kept.columns, *columns], schema=self.schema)

    def to_arrow(self) -> pa.Table:
        """Return the rows as one table."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def _values_of(
        self, times: VersionTimes, version: int, file: LogFile | None
    ) -> tuple[Any, ...]:
        if file is None:
            return (version, None, None, None)
        try:
            commit = read_commit(self.store, file)
        except LogCorruptError as error:
            warn_of_damage(DamagedError((file,), error))
            return (version, None, None, None)
        made_ms = times.of_commit(commit)
        info = commit.info.to_json() if commit.info else {}
        user = told_text(info, "userName", "userId")
        return (version, micros_of(made_ms), told_text(info, "operation"), user)


def plan_blame(
    store: Store,
    snapshot: Snapshot,
    *,
    columns: list[str] | None = None,
    where: Expression | None = None,
    engine: Engine,
) -> Blame:
    """Plan the rows of a version with the commits that wrote them; arguments as for `Table.blame`.

    With row tracking this is the version that last changed the row. Otherwise it is the version
    that added the row's file, which is searched in all existing commits.

    Raises
    ------
    InvalidInputError
        A column is unknown or has one of the four names, or the predicate does not fit.
    """
    names = snapshot.schema.names() if columns is None else column_names(columns)
    for name in names:
        if name in _BLAMED.names:
            raise InvalidInputError(
                argument="columns", field=name, reason="blame needs this name for itself"
            )
    tracked = snapshot.has_stable_row_ids
    marker = ROW_VERSION if tracked else FRAGMENT_ID
    plan = plan_snapshot(
        store,
        snapshot,
        lambda: load_files(store, snapshot).live,
        columns=[*names, marker],
        where=where,
    )
    scan = Scan(store, plan.for_arrow(), engine)
    if tracked:
        return Blame(store, snapshot, scan, marker, None)
    paths = {fragment.id: fragment.path for fragment in scan.fragments()}
    brought = versions_of(store, snapshot, list(paths.values()))
    versions = {one: brought[path] for one, path in paths.items() if path in brought}
    return Blame(store, snapshot, scan, marker, versions)


def versions_of(store: Store, snapshot: Snapshot, paths: list[str]) -> dict[str, int]:
    """Return the versions that added files, by path; files with an unknown version are omitted.

    A commit that removes a file and adds it again (for example with another deletion vector) does
    not count, nor do later commits. Nor does an `add` with `dataChange` false in a commit whose
    removes do not move rows: by the protocol the file was live before, so the commit that brought
    it was cleaned up.
    """
    keys = canonical_keys(arrow_array(paths, pa.string()))
    commits = list_commits(store, snapshot)
    earliest = np.full(len(paths), -1, np.int64)
    seen = np.zeros(len(paths), np.bool_)
    for start in range(0, len(commits), _COMMITS_AT_ONCE):
        actions = read_sound_deltas(store, commits[start : start + _COMMITS_AT_ONCE]).files
        places = pc.index_in(canonical_keys(actions["path"]), value_set=flat(keys))
        kept = numpy_array(flat(pc.is_valid(places)))
        place = numpy_array(flat(pc.fill_null(places, -1)))[kept]
        version = numpy_array(flat(actions["version"]))[kept]
        added = numpy_array(flat(actions["is_add"]))
        moves = ~numpy_array(flat(actions["data_change"]))
        moving = np.unique(numpy_array(flat(actions["version"]))[moves & ~added])
        again = moves[kept] & ~np.isin(version, moving)
        is_add = added[kept]
        removed = set(zip(version[~is_add].tolist(), place[~is_add].tolist(), strict=True))
        for at, file, adds, same in sorted(
            zip(version.tolist(), place.tolist(), is_add.tolist(), again.tolist(), strict=True)
        ):
            if adds and not seen[file] and not same and (at, file) not in removed:
                earliest[file] = at
            seen[file] = True
    return {path: int(at) for path, at in zip(paths, earliest, strict=True) if at >= 0}
