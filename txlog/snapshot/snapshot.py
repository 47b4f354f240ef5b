"""A version of a table as a value, and the file actions after its checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from txlog.actions.action import texts_of
from txlog.actions.columns import empty_rows
from txlog.actions.file import Sidecar
from txlog.actions.table import Metadata, Protocol
from txlog.base.errors import InvalidInputError, LogCorruptError
from txlog.base.texts import without_secrets
from txlog.base.threads import cached_property
from txlog.base.thresholds import Threshold
from txlog.checkpoint.parquet import Footers
from txlog.fragments.ids import ID_TAG, highest_id, valid_id
from txlog.fragments.rows import FEATURE
from txlog.log.catalog import CatalogCommits
from txlog.log.names import LogFile
from txlog.log.paths import canonical_key, canonical_keys
from txlog.log.segment import Segment
from txlog.protocol.access import (
    brings_vectors,
    features_of,
    is_active,
    mapping_mode,
    require_readable,
    supports,
)
from txlog.protocol.features import CATALOG_MANAGED
from txlog.protocol.form import ReadForm, form_of
from txlog.protocol.properties import Properties
from txlog.reconcile.files import Controls, controls_of
from txlog.schema.json import parse_schema
from txlog.schema.types import StructField, StructType, require_known_changes
from txlog.snapshot.commits import Commit, are_readable_as_models, file_rows

_UNFOLDED: Threshold = 512  # The most parts before they are combined, so that each use stays cheap.


@dataclass(frozen=True)
class _Paths:
    """The first version of each path of a tail. Immutable, so tails that part can share it.

    Several tails may grow from one, with other parts: a refresh adds many commits as one part, and
    an attempt to commit adds a commit that may lose. None of them can change what another one sees.
    """

    # Paths with their versions; the versions of a layer are before those of the next one. A layer
    # is at least twice as large as the next one, so few layers are copied and looked up.
    layers: tuple[Mapping[str, int], ...]
    waiting: tuple[Commit | pa.Table, ...] = ()  # The parts that are not in the layers yet.

    def settled(self) -> _Paths:
        """Return the same paths without waiting parts."""
        if not self.waiting:
            return self
        new: dict[str, int] = {}
        for part in self.waiting:
            for key, version in _keys(part):
                new[key] = min(version, new.get(key, version))
        layers = self.layers
        if not new:
            return _Paths(layers)
        while layers and len(layers[-1]) < 2 * len(new):
            new, layers = {**new, **layers[-1]}, layers[:-1]
        return _Paths((*layers, new))


class Tail:
    """File actions of the commits after a checkpoint, converted to `FILE_ROWS` at their first use.

    A writer that only appends never uses them, so the cost of its commits does not grow with
    earlier commits. An immutable value that pickles. Versions ascend.

    Parameters
    ----------
    rows
        The actions that are already columns.
    """

    def __init__(self, rows: pa.Table) -> None:
        self._folded = rows
        self._newer: tuple[Commit | pa.Table, ...] = ()
        self._highest_id: int | None = None
        self._paths: _Paths | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Tail, (self.rows,)

    @cached_property
    def rows(self) -> pa.Table:
        """All file actions as columns."""
        if not self._newer:
            return self._folded
        tables = tuple(_tables(self._newer))
        self._newer = tables  # Keep the combined parts for later versions.
        return pa.concat_tables([self._folded, *tables])

    @property
    def num_actions(self) -> int:
        """The number of actions; of commits that are not converted yet, all lines count."""
        newer = (p.num_rows if isinstance(p, pa.Table) else len(p.rows) for p in self._newer)
        return int(self._folded.num_rows) + sum(newer)

    @property
    def highest_id(self) -> int:
        """The highest fragment id in the tags of the files; -1 for none."""
        if self._highest_id is None:
            self._highest_id = highest_id(self.rows, None)
        return self._highest_id

    def first_version(self, path: str) -> int | None:
        """Return the first version that names a file, in any spelling of its path, or None."""
        known = self._paths
        if known is None:
            known = _Paths((), (self._folded, *self._newer))
        # One assignment of an immutable value: all threads would write the same one.
        self._paths = known = known.settled()
        key = canonical_key(path)
        return next((layer[key] for layer in known.layers if key in layer), None)

    def plus(self, part: Commit | pa.Table) -> Tail:
        """Return the tail with the next version: its commit, or `FILE_ROWS`."""
        after = Tail(self._folded)
        after._newer = (*self._newer, part)
        if self._paths is not None:
            after._paths = _Paths(self._paths.layers, (*self._paths.waiting, part))
            if len(after._paths.waiting) >= _UNFOLDED:
                after._paths = after._paths.settled()
        if self._highest_id is not None:
            after._highest_id = max(self._highest_id, _highest_of(part))
        if len(after._newer) >= _UNFOLDED:
            newer = pa.concat_tables(_tables(after._newer)).combine_chunks()
            after._folded, after._newer = pa.concat_tables([self._folded, newer]), ()
        return after


def _tables(parts: Iterable[Commit | pa.Table]) -> list[pa.Table]:
    """Return parts as tables. Commits that follow each other become one table."""
    tables: list[pa.Table] = []
    commits: list[Commit] = []
    for part in parts:
        if isinstance(part, Commit):
            commits.append(part)
            continue
        if commits:
            tables.append(file_rows(commits))
            commits = []
        tables.append(part)
    return [*tables, file_rows(commits)] if commits else tables


def _actions(commit: Commit) -> Iterable[Mapping[str, Any]]:
    for row in commit.rows:
        for kind in ("add", "remove"):
            if (body := row.get(kind)) is not None:
                yield body


def _highest_of(part: Commit | pa.Table) -> int:
    if not isinstance(part, Commit):
        return highest_id(part, None)
    texts = (_id_text(body.get("tags")) for body in _actions(part))
    return max((int(text) for text in texts if text and valid_id(text)), default=-1)


def _id_text(tags: Any) -> str | None:
    tag = tags.get(ID_TAG) if isinstance(tags, dict) else None
    return tag if tag is None or isinstance(tag, str) else texts_of({ID_TAG: tag})[ID_TAG]


def _keys(part: Commit | pa.Table) -> Iterable[tuple[str, int]]:
    if isinstance(part, Commit):
        return [(canonical_key(body["path"]), part.version) for body in _actions(part)]
    keys = canonical_keys(part["path"]).to_pylist()
    return zip(keys, part["version"].to_pylist(), strict=True)


_Found = TypeVar("_Found")


@dataclass(eq=False)
class _Facts:
    """The values that `Snapshot.memo` caches for one protocol and metadata."""

    protocol: Protocol
    metadata: Metadata
    found: dict[Callable[..., Any], Any] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Facts, (self.protocol, self.metadata)

    def are_of(self, protocol: Protocol, metadata: Metadata) -> bool:
        return self.protocol is protocol and self.metadata is metadata


@dataclass(frozen=True)
class Snapshot:
    """One version: its table state, and the log files with its file actions. It pickles."""

    root: str
    version: int
    # In-commit timestamp, else the time of its file; None if unknown. For users: `VersionTimes`.
    timestamp_ms: int | None
    head_ms: int | None  # The store's time of its commit's file; None if unknown, or no such file.
    protocol: Protocol
    metadata: Metadata
    schema: StructType
    controls: Controls
    checkpoint: tuple[LogFile, ...]
    sidecars: tuple[Sidecar, ...]
    tail: Tail = field(repr=False, compare=False)  # File actions newer than the checkpoint.
    catalog: CatalogCommits | None = None  # For a catalog-managed table, the catalog's answer.
    is_managed: bool = False  # Whether it was read through the catalog of the table.
    footers: Footers = field(default_factory=Footers, repr=False, compare=False)
    _facts: _Facts | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        facts = self._facts
        if facts is None or not facts.are_of(self.protocol, self.metadata):
            object.__setattr__(self, "_facts", _Facts(self.protocol, self.metadata))

    def __repr__(self) -> str:
        return f"txlog.Snapshot({without_secrets(self.root)!r}, version={self.version})"

    def memo(self, find: Callable[[Snapshot], _Found]) -> _Found:
        """Return `find(self)`, cached for all snapshots with this protocol and metadata.

        Errors are not cached.
        """
        assert self._facts is not None
        facts = self._facts.found
        if find not in facts:
            facts[find] = find(self)
        return facts[find]  # type: ignore[no-any-return]

    def without_files(self) -> Snapshot:
        """Return the snapshot without its files, which is small enough to send to workers."""
        return replace(self, tail=Tail(empty_rows()), sidecars=())

    @cached_property
    def properties(self) -> Properties:
        """The table's properties, typed."""
        return Properties(self.metadata.configuration)

    @cached_property
    def form(self) -> ReadForm:
        """What determines how its data files are read."""
        return form_of(self.protocol, self.metadata, self.schema)

    @property
    def partition_columns(self) -> list[str]:
        """The logical names of the partition columns, in order, as the schema spells them."""
        return list(self.form.partition_columns)

    @property
    def partition_fields(self) -> list[StructField]:
        """The partition columns, in their order."""
        return self.form.partition_fields

    @property
    def physical_partition_columns(self) -> list[str]:
        """The names of the partition columns in `partitionValues`."""
        return self.form.physical_partition_columns

    @property
    def mapping_mode(self) -> str:
        """The column mapping in force: `none`, `name` or `id`."""
        return self.form.mapping_mode

    def is_active(self, feature: str) -> bool:
        """Return whether a feature is enabled by a property and supported by the protocol."""
        return is_active(feature, self.protocol, self.properties)

    def supports(self, feature: str) -> bool:
        """Return whether the protocol lists or implies a feature."""
        return supports(self.protocol, feature)

    @property
    def marks_deletions(self) -> bool:
        """Whether deletes write deletion vectors; the first one may add the feature (CON-22)."""
        return self.is_active("deletionVectors") or brings_vectors(self.properties)

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether rows keep their ids: row tracking is enabled."""
        return self.is_active("rowTracking")

    @property
    def deletion_format(self) -> str:
        """How new deletions are written: `delta` or `lance`."""
        if not self.supports(FEATURE):
            return "delta"
        return str(self.properties.get("txlog.deletionFormat"))

    def transaction_version(self, app_id: str) -> int | None:
        """Return the last recorded version of an application, or None."""
        txn = self.controls.txns.get(app_id)
        return None if txn is None else txn.version


class Place(NamedTuple):
    """What shows that the table of a version is still in its place."""

    version: int
    table_id: str
    made_ms: int  # The store's time of the version's commit.

    @classmethod
    def of(cls, snapshot: Snapshot) -> Place | None:
        """Return the place of a version; None if the store does not show it."""
        if snapshot.head_ms is None or snapshot.catalog is not None or snapshot.is_managed:
            return None
        return cls(snapshot.version, snapshot.metadata.id, snapshot.head_ms)


def make_snapshot(
    root: str,
    segment: Segment,
    controls: Controls,
    *,
    sidecars: Sequence[Sidecar],
    tail: pa.Table | Tail,
    timestamp_ms: int | None,
    head_ms: int | None,
    catalog: CatalogCommits | None = None,
    is_managed: bool = False,
    footers: Footers | None = None,
) -> Snapshot:
    """Build a snapshot from the table state; raise if txlog cannot read the table.

    Raises
    ------
    LogCorruptError
        There is no protocol or no metadata, or the schema breaks the protocol.
    InvalidInputError
        A catalog's answer was passed, but the table is not catalog-managed.
    UnsupportedFeatureError
        The table needs features that txlog lacks.
    """
    for name, found in (("protocol", controls.protocol), ("metaData", controls.metadata)):
        if found is None:
            raise LogCorruptError(
                path=root,
                version=segment.version,
                field=name,
                reason=f"no commit up to this version contains a {name} action",
                remedy="The log is incomplete; restore it from a copy",
            )
    assert controls.protocol is not None
    assert controls.metadata is not None
    has_answer = is_managed or catalog is not None
    require_readable(controls.protocol, controls.metadata, path=root, catalog=has_answer)
    if catalog is not None and segment.version == catalog.latest_version:
        _require_managed(controls.protocol, root)
    text = controls.metadata.schema_string
    schema = StructType() if text is None else parse_schema(text)
    _check_columns(schema, controls.metadata.partition_columns, root)
    require_known_changes(schema, path=root)
    mode = mapping_mode(controls.protocol, Properties(controls.metadata.configuration))
    if mode != "none":
        from txlog.protocol.mapping import require_mapped  # Few tables have column mapping.

        require_mapped(schema, mode, path=root)
    return Snapshot(
        root=root,
        version=segment.version,
        timestamp_ms=timestamp_ms,
        head_ms=head_ms,
        protocol=controls.protocol,
        metadata=controls.metadata,
        schema=schema,
        controls=controls,
        checkpoint=segment.checkpoint,
        sidecars=tuple(sidecars),
        tail=tail if isinstance(tail, Tail) else Tail(tail),
        catalog=catalog,
        is_managed=is_managed,
        footers=Footers() if footers is None else footers,
    )


def _require_managed(protocol: Protocol, root: str) -> None:
    if not CATALOG_MANAGED & features_of(protocol):
        raise InvalidInputError(
            argument="catalog_commits",
            reason=f"the table at {root} is not catalog-managed",
            remedy="Open it without catalog_commits",
        )


def _check_columns(schema: StructType, partition_columns: list[str], root: str) -> None:
    if (name := _named_twice(schema.names())) is not None:
        reason = "two columns have this name, or differ only by case"
        raise LogCorruptError(path=root, field=name, reason=reason)
    for name in partition_columns:
        if schema.get(name) is None:
            reason = "a partition column is not in the schema"
            raise LogCorruptError(path=root, field=name, reason=reason)
    if (name := _named_twice(partition_columns)) is not None:
        raise LogCorruptError(path=root, field=name, reason="a partition column is named twice")


def _named_twice(names: Sequence[str]) -> str | None:
    """Return the first name that stands before an equal one, or one that differs only by case."""
    folded = [name.lower() for name in names]
    counts = Counter(folded)
    return next((n for n, fold in zip(names, folded, strict=True) if counts[fold] > 1), None)


def moved(snapshot: Snapshot, **changes: Any) -> Snapshot:
    """Return a snapshot with other values of fields that do not change its protocol and metadata.

    Cached values stay; `dataclasses.replace` would compute them again and is ten times slower.
    """
    after = object.__new__(Snapshot)
    after.__dict__.update(snapshot.__dict__, **changes)
    return after


def advance(
    snapshot: Snapshot, commits: Sequence[Commit], *, files: pa.Table | None = None
) -> Snapshot:
    """Return the snapshot after the next commits, which are in order and without gaps.

    Nothing is replayed: the cost is that of the new commits. Errors as for opening the table.
    `files` are the file actions of the commits as `FILE_ROWS`, if the caller has them.
    """
    if not commits:
        return snapshot
    if files is None and are_readable_as_models(commits):
        return _advanced(snapshot, commits, commits)
    return _advanced(snapshot, commits, [file_rows(commits) if files is None else files])


def advance_lazily(snapshot: Snapshot, commit: Commit) -> Snapshot:
    """Advance by one commit whose file actions are models already, as `advance` does."""
    return _advanced(snapshot, [commit], [commit])


def _advanced(
    snapshot: Snapshot, commits: Sequence[Commit], parts: Sequence[Commit | pa.Table]
) -> Snapshot:
    controls = controls_of(
        (pair for commit in commits for pair in commit.controls), snapshot.controls
    )
    last = commits[-1]
    tail = reduce(Tail.plus, parts, snapshot.tail)
    if (controls.protocol, controls.metadata) == (snapshot.protocol, snapshot.metadata):
        return moved(
            snapshot,
            version=last.version,
            timestamp_ms=last.made_ms(controls.protocol, controls.metadata),
            head_ms=last.modified_ms,
            controls=controls,
            tail=tail,
        )
    return make_snapshot(
        snapshot.root,
        Segment(last.version, snapshot.checkpoint),
        controls,
        sidecars=snapshot.sidecars,
        tail=tail,
        timestamp_ms=last.made_ms(controls.protocol, controls.metadata),
        head_ms=last.modified_ms,
        is_managed=snapshot.is_managed,
        footers=snapshot.footers,
    )
