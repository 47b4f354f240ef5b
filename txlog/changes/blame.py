"""Find the version that wrote each row, from row tracking or else from the row's files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.actions.told import told_text
from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.columns import flat
from txlog.base.errors import InvalidInputError, LogCorruptError
from txlog.base.threads import Engine
from txlog.base.thresholds import Threshold
from txlog.changes.change_plan import COMMIT_TIMESTAMP, COMMIT_VERSION
from txlog.expressions.tree import Expression
from txlog.fragments.deletion_vector import as_array
from txlog.fragments.fragment import DataFile, Fragment
from txlog.log.names import LogFile
from txlog.log.paths import canonical_keys
from txlog.scan.columns import FRAGMENT_ID, ROW_ADDRESS, ROW_VERSION
from txlog.scan.lazy_plan import plan_snapshot
from txlog.scan.read import FragmentReader
from txlog.scan.read_plan import ReadPlan, column_names
from txlog.scan.scan import ArrowStream, Scan, repr_of
from txlog.schema.timestamps import micros_of
from txlog.snapshot.commits import DamagedError, read_commit
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import list_commits, warn_of_damage
from txlog.snapshot.salvage import read_sound_deltas
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.time_travel import VersionTimes, version_times
from txlog.store.base import Store

Numbers = NDArray[np.int64]

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
_UNKNOWN = -1
_POSITION_BITS = 32  # Of an address; the others are the fragment's id.


@dataclass(frozen=True)
class Layers:
    """The files of a fragment that give values to some rows, and the versions that added them."""

    fragment: Fragment
    files: tuple[tuple[DataFile, int], ...]


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
    # The version of each fragment's rows. None: each row has its own version.
    versions: dict[int, int] | None
    # The layers of fragments that give some rows a version of their own, if there are some.
    layers: Mapping[int, Layers] = field(default_factory=dict)

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
        for batch, found in self._found():
            marks = found.dictionary_encode()
            rows = []
            for version in marks.dictionary.to_pylist():
                if version not in by_version:
                    by_version[version] = self._values_of(times, version, commits.get(version))
                rows.append(by_version[version])
            columns = [
                arrow_array([row[at] for row in rows], kind.type).take(marks.indices)
                for at, kind in enumerate(_BLAMED)
            ]
            kept = batch.drop_columns([self.marker])
            yield pa.RecordBatch.from_arrays([*kept.columns, *columns], schema=self.schema)

    def _found(self) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """Yield the rows and their versions, null if it is unknown."""
        known = self.versions
        given: dict[int, list[tuple[Numbers, int]]] = {}
        for batch in self.scan.to_batches():
            marks = batch.column(self.marker)
            if known is None:
                yield batch, marks
                continue
            places = numpy_array(marks)
            owners = places >> _POSITION_BITS if self.layers else places
            numbers, which = np.unique(owners, return_inverse=True)
            of_all = [known.get(one, _UNKNOWN) for one in numbers.tolist()]
            found = np.array(of_all, np.int64)[which]
            of_layers = {one: self.layers[one] for one in numbers.tolist() if one in self.layers}
            # Fragments come one after another: the rows of layers are kept for the current ones.
            given = {one: given.get(one) or self._given(of) for one, of in of_layers.items()}
            for one, layers in given.items():
                rows = np.flatnonzero(owners == one)
                positions = places[rows] - (one << _POSITION_BITS)
                for those, version in layers:
                    some = rows[np.isin(positions, those)]
                    found[some] = np.maximum(found[some], version)
            yield batch, arrow_array(found, pa.int64(), mask=found == _UNKNOWN)

    def _given(self, layers: Layers) -> list[tuple[Numbers, int]]:
        """Return the positions to which each layer gives values, and its version."""
        reader = FragmentReader(self.store, self.scan.plan.reading, layers.fragment)
        return [
            (numpy_array(as_array(reader.given_by(file)).cast(pa.int64())), version)
            for file, version in layers.files
        ]

    def to_arrow(self) -> pa.Table:
        """Return the rows as one table."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def _values_of(
        self, times: VersionTimes, version: int | None, file: LogFile | None
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

    With row tracking this is the version that last changed the row. Otherwise it is the newest of
    the versions that added the files with the row's values of `columns`, which are searched in all
    existing commits.

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
    live: Callable[[], pa.Table] = lambda: load_files(store, snapshot).live  # noqa: E731 (Late.)

    def scan_with(marker: str) -> Scan:
        if snapshot.schema.get(marker) is not None:
            raise InvalidInputError(
                argument="columns",
                field=marker,
                reason="blame needs this name for itself, but a column of the table has it",
                remedy="Rename the column",
            )
        plan = plan_snapshot(store, snapshot, live, columns=[*names, marker], where=where)
        return Scan(store, plan.for_arrow(), engine)

    if tracked:
        return Blame(store, snapshot, scan_with(ROW_VERSION), ROW_VERSION, None)
    scan = scan_with(FRAGMENT_ID)
    fragments = scan.fragments()
    giving = [_files_giving(snapshot, scan.plan.reading, fragment) for fragment in fragments]
    brought = versions_of(store, snapshot, [file.path for files in giving for file in files])
    versions: dict[int, int] = {}
    layers: dict[int, Layers] = {}
    for fragment, files in zip(fragments, giving, strict=True):
        known = [(file, brought[file.path]) for file in files if file.path in brought]
        of_all = [version for file, version in known if not file.layer]
        if of_all:
            versions[fragment.id] = max(of_all)
        upper = [(file, version) for file, version in known if file.layer]
        if upper:
            layers[fragment.id] = Layers(fragment, tuple(upper))
    if layers:
        return Blame(store, snapshot, scan_with(ROW_ADDRESS), ROW_ADDRESS, versions, layers)
    return Blame(store, snapshot, scan, FRAGMENT_ID, versions)


def _files_giving(
    snapshot: Snapshot, reading: ReadPlan, fragment: Fragment
) -> tuple[DataFile, ...]:
    """Return the file with a fragment's rows, and those that give them columns of a plan."""
    if len(fragment.files) == 1:
        return fragment.files
    found = {fragment.files[0]: None}
    for column in reading.columns:
        top = snapshot.schema.get(reading.nested.get(column.name, (column.name,))[0])
        if top is not None:
            physical = top.name_in_files(snapshot.mapping_mode)
            found |= dict.fromkeys(fragment.files_giving(physical))
    return (*found,)


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
