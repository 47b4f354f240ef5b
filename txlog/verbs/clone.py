"""Clone a version of a table as a new table.

A shallow clone refers to the files of its source; a deep clone has copies of them.
Rules: spec/maintenance.md, MNT-20 to MNT-23.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from txlog.actions.file import Add, DeletionVectorDescriptor, Remove
from txlog.actions.table import DomainMetadata, Metadata, Protocol, Txn
from txlog.commit.app_versions import AppVersion, is_recorded, require_app_version, with_txn
from txlog.commit.context import Context
from txlog.commit.intent import Intent, Reads, UserMetadata
from txlog.commit.loop import Committed, commit
from txlog.commit.operation import (
    Done,
    Operation,
    Outcome,
    discarding,
    execute,
    require_table_writable,
    require_user_metadata,
)
from txlog.data_files.deletions import adds_of, removes_of
from txlog.errors import InvalidInputError, UnsupportedFeatureError
from txlog.fragments.deletion_file import DELETIONS_FOLDER
from txlog.fragments.deletion_vector import file_name, stored_descriptor
from txlog.fragments.ids import ID_APP, ID_TAG, valid_id
from txlog.fragments.rows import FEATURE, FIELDS_TAG
from txlog.log.paths import canonical_key, decode_path, encode_path
from txlog.protocol.access import (
    at_least,
    merged_protocol,
    needed_features,
    require_writable,
    upgraded,
)
from txlog.protocol.features import ACTIVATION, CLUSTERING, OF_THE_LOG
from txlog.protocol.mapping import MAPPING_MODE, highest_id
from txlog.protocol.properties import (
    COMPATIBILITY,
    FEATURE_PREFIX,
    Properties,
    carried,
    compatibilities,
)
from txlog.scan.deletions import vector_path
from txlog.snapshot.live_files import load_files
from txlog.snapshot.references import RegisteredClone
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store, copy_file, scheme_of
from txlog.store.open import locate, require_allowed, uri_of
from txlog.store.places import is_within
from txlog.threads import map_all
from txlog.verbs.create import already_exists, existing
from txlog.verbs.properties import Asked, require_kept_form
from txlog.verbs.references import RegisterClone


@dataclass(frozen=True)
class CloneOptions:
    """The options of a clone."""

    shallow: bool
    replace: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    register: bool = False


def clone(
    source: Context,
    snapshot: Snapshot,
    target: Context,
    options: CloneOptions,
    *,
    txn: AppVersion | None = None,
    user_metadata: UserMetadata | None = None,
) -> Done:
    """Create a table that is a clone of a version of another one.

    Parameters
    ----------
    source, snapshot
        The version that is cloned.
    target
        The location of the clone.

    Raises
    ------
    AlreadyExistsError
        The target has a table, and `replace` is not set.
    InvalidInputError
        One of the two tables would be inside the other's folder, or a property is wrong.
    DataFileError, NotFoundError, StoreError
        A file cannot be copied. Nothing was committed, and no copy remains.
    UnsupportedFeatureError
        The source has features that txlog cannot write.
    """
    target.store.require_writable()
    require_app_version(txn)
    require_user_metadata(user_metadata)
    _require_apart(source.store, target.store)
    if options.register and not options.shallow:
        raise InvalidInputError(
            argument="register", reason="a deep clone needs no file of its source"
        )
    if options.register:
        require_table_writable(snapshot, removes_rows=False)
    before = existing(target.store)
    if before is not None and is_recorded(before, txn):
        return Done(Outcome(_Clone.name, None, skipped=True), before)
    if before is not None and not options.replace:
        raise already_exists(target.store)
    operation = _Clone(source, snapshot, target, options)
    if before is not None:
        done = execute(operation, before, txn=txn, user_metadata=user_metadata)
    else:
        done = _created(operation, txn, user_metadata)
    if options.register:
        registered = RegisteredClone(done.snapshot.metadata.id, target.store.root)
        execute(RegisterClone(source, registered), snapshot)
    return done


def _created(operation: _Clone, txn: AppVersion | None, user_metadata: UserMetadata | None) -> Done:
    context = operation.context
    with discarding(operation.discard):
        intent = operation.intent(None)
        queried = with_txn(replace(intent, user_metadata=user_metadata), txn, context.effects)
        intent = replace(queried, query_txns=(*queried.query_txns, *intent.query_txns))
        result = commit(context.store, None, intent, effects=context.effects)
        if not isinstance(result, Committed):
            raise already_exists(context.store)  # Another writer created the table first.
    return Done(Outcome(intent.operation, 0, intent.metrics), result.snapshot)


def _require_apart(source: Store, target: Store) -> None:
    """Raise if a table would be inside the other's folder, whose vacuum would delete files."""
    if is_within(source.root, target.root) or is_within(target.root, source.root):
        raise InvalidInputError(
            argument="target",
            reason=f"one of the tables {target.root} and {source.root} is inside the folder of "
            "the other",
            remedy="Choose a folder outside of the cloned table",
        )


class _Clone(Operation):
    """Make a table equal to a version of another one."""

    name = "CLONE"
    removes_rows = True

    def __init__(
        self, source: Context, snapshot: Snapshot, target: Context, options: CloneOptions
    ) -> None:
        super().__init__(target)
        self._source = source
        self._snapshot = snapshot
        self._options = options
        self._copied: list[str] = []
        self._asked = Asked.of(options.properties, has_rows=True)

    def intent(self, base: Snapshot | None) -> Intent:
        """Return the changes that make a table the clone; `base` is the table that it replaces."""
        rows = load_files(self._source.store, self._snapshot).live
        now = None if base is None else load_files(self.context.store, base).live
        adds, metrics = self._files(rows, now)
        gone: list[Remove] = []
        recorded: tuple[Txn, ...] = ()
        if now is None:
            adds, highest = _with_ids(adds)
            now_ms = self.context.effects.now_ms()
            recorded = (Txn(app_id=ID_APP, version=highest, last_updated=now_ms),)
        else:
            _require_whole_files(adds, self._snapshot)
            removes = removes_of(now, self.context.effects.now_ms())
            adds, gone = _changes([_without_id(add) for add in adds], removes)
        metadata, protocol = self._table(base)
        return Intent(
            operation=self.name,
            kind="overwrite",
            read_version=-1 if base is None else base.version,
            adds=tuple(adds),
            removes=tuple(gone),
            protocol=protocol if base is None or protocol != base.protocol else None,
            metadata=metadata,
            query_txns=recorded if adds else (),
            domains=_domains(self._snapshot, base),
            reads=Reads(everything=True),
            parameters={
                "source": f"delta.`{self._snapshot.root}`",
                "sourceVersion": self._snapshot.version,
                "isShallow": self._options.shallow,
            },
            metrics={"removedFilesSize": 0, "numRemovedFiles": len(gone), **metrics},
        )

    def discard(self) -> None:
        """Delete the copies of the last attempt."""
        self.context.store.delete(self._copied)
        self._copied.clear()

    def _files(self, rows: pa.Table, now: pa.Table | None) -> tuple[list[Add], dict[str, int]]:
        """Return the source's files as files of the clone; missing ones are copied."""
        moves = _Moves(self._source.store, self.context, self._options.shallow)
        if not self._options.shallow:
            moves.taken = {info.name for info in self.context.store.list_tree("")}
        if now is not None:
            pairs = zip(now["path"].to_pylist(), now["size"].to_pylist(), strict=True)
            moves.existing = {(decode_path(path), size) for path, size in pairs}
        adds = [moves.moved(add) for add in adds_of(rows)]
        size = sum(add.size for add in adds)
        metrics = {"sourceNumOfFiles": len(adds), "sourceTableSize": size}
        if self._options.shallow:
            if adds:
                require_allowed(self.context.store, decode_path(adds[0].path))
            return adds, {**metrics, "numCopiedFiles": 0, "copiedFilesSize": 0}
        copies = list(moves.copies.items())
        self._copied.extend(moves.copies.values())
        copy = partial(_copied, self._source.store, self.context.store)
        map_all(self.context.engine, copy, copies, undo=lambda _: None)
        ours = set(self._copied)
        copied = sum(add.size for add in adds if decode_path(add.path) in ours)
        return adds, {**metrics, "numCopiedFiles": len(copies), "copiedFilesSize": copied}

    def _table(self, base: Snapshot | None) -> tuple[Metadata, Protocol]:
        """Return the metadata and the protocol of the clone."""
        source, effects = self._snapshot, self.context.effects
        asked, before = self._asked, source.metadata.configuration
        current = None if base is None else base.metadata.configuration
        configuration = carried(before, current, asked.stored)
        configuration |= highest_id(source.metadata, None if base is None else base.metadata)
        _require_same_files(source, configuration, asked.features)
        require_kept_form(before, configuration, path=source.root)
        asked.require_columns(
            configuration, source.schema, source.partition_columns, source.mapping_mode
        )
        metadata = source.metadata.model_copy(
            update={
                "id": effects.uuid() if base is None else base.metadata.id,
                "created_time": effects.now_ms(),
                "configuration": configuration,
            }
        )
        needed = needed_features(source.schema, Properties(configuration)) | asked.features
        protocol = upgraded(_without_log(source.protocol), needed)
        protocol = at_least(protocol, asked.versions)
        if base is not None:
            protocol = merged_protocol(base.protocol, protocol)
        require_writable(protocol, metadata, path=source.root)
        return metadata, protocol


def _require_same_files(
    source: Snapshot, configuration: Mapping[str, str | None], features: Collection[str]
) -> None:
    """Raise if files of the source would have to change for the properties of its clone.

    Raises
    ------
    InvalidInputError
        The error names the property.
    """
    before = source.metadata.configuration
    own = compatibilities(before)
    other = [COMPATIBILITY[one] for one in compatibilities(configuration) if one not in own]
    reason = "with its names and ids of columns"
    if Properties(configuration).get(MAPPING_MODE) != source.mapping_mode:
        other.append(MAPPING_MODE)
    tracks = ACTIVATION["rowTracking"]
    if not other and Properties(configuration).get(tracks) and not Properties(before).get(tracks):
        other, reason = [tracks], "and its rows have no ids"
    if not other and FEATURE in features and not source.supports(FEATURE):
        other, reason = [f"{FEATURE_PREFIX}{FEATURE}"], "and its fragments may have no ids"
    if other:
        raise InvalidInputError(
            argument="properties",
            field=other[0],
            reason=f"the files of the clone are the source's, {reason}",
            remedy="Omit the property, and set it with alter.set_properties afterwards",
        )


def _without_log(protocol: Protocol) -> Protocol:
    """Return a protocol without the features of a log, or of its catalog."""
    lists = {
        name: [one for one in listed if one not in OF_THE_LOG]
        for name in ("reader_features", "writer_features")
        if (listed := getattr(protocol, name)) is not None
    }
    return protocol.model_copy(update=lists)


def _domains(source: Snapshot, base: Snapshot | None) -> tuple[DomainMetadata, ...]:
    """Return the domain that belongs to the data files; the others belong to the source."""
    wanted = source.controls.domains.get(CLUSTERING)
    if wanted is not None and not wanted.removed:
        return (wanted,)
    domain = None if base is None else base.controls.domains.get(CLUSTERING)
    if domain is None or domain.removed:
        return ()
    return (domain.model_copy(update={"removed": True}),)


def _require_whole_files(adds: Iterable[Add], source: Snapshot) -> None:
    """Raise if there are column files, whose fragments would need other ids."""
    if any(FIELDS_TAG in (add.tags or {}) for add in adds):
        raise UnsupportedFeatureError(
            path=source.root,
            features=("txlog.fragments",),
            reason="the source has column files, which an existing table cannot take over",
            remedy="Clone to a new location",
        )


def _without_id(add: Add) -> Add:
    tags = {name: text for name, text in (add.tags or {}).items() if name != ID_TAG}
    return add.model_copy(update={"tags": tags, "data_change": True})


def _with_ids(adds: Iterable[Add]) -> tuple[list[Add], int]:
    """Return files with fragment ids and the highest id; files without an id get the next ones."""
    kept = list(adds)
    tags = [(add.tags or {}).get(ID_TAG) for add in kept]
    highest = max((int(tag) for tag in tags if tag and valid_id(tag)), default=-1)
    found = []
    for add, tag in zip(kept, tags, strict=True):
        if not valid_id(tag):
            highest += 1
            tag = str(highest)
        tagged = {**(add.tags or {}), ID_TAG: tag}
        found.append(add.model_copy(update={"tags": tagged, "data_change": True}))
    return found, highest


def _changes(adds: Sequence[Add], removes: Sequence[Remove]) -> tuple[list[Add], list[Remove]]:
    """Return the files to add and to remove, without those that do not change."""

    def key(action: Add | Remove) -> tuple[str, str | None]:
        vector = action.deletion_vector
        return canonical_key(action.path), None if vector is None else vector.unique_id

    ours, theirs = {key(add) for add in adds}, {key(remove) for remove in removes}
    return (
        [add for add in adds if key(add) not in theirs],
        [remove for remove in removes if key(remove) not in ours],
    )


@dataclass
class _Moves:
    """The paths of a source's files in its clone, and the files that must be copied."""

    store: Store
    target: Context
    shallow: bool
    copies: dict[str, str] = field(default_factory=dict)  # Decoded paths of source and clone.

    taken: set[str] = field(default_factory=set)  # Paths below the clone that are taken.
    # The clone's live files with their sizes.
    existing: set[tuple[str, int]] = field(default_factory=set)

    def moved(self, add: Add) -> Add:
        """Return a file of the source as a file of the clone."""
        place = decode_path(add.path)
        change: dict[str, Any] = {}
        if self.shallow:
            change["path"] = encoded_uri(uri_of(self.store, place))
        elif (place, add.size) not in self.existing:
            # Names are unique, so an equal path is the same file.
            uuid = self.target.effects.uuid
            change["path"] = encode_path(self._copy(place, lambda: f"part-{uuid()}.parquet"))
        if add.deletion_vector is not None:
            change["deletion_vector"] = self._vector(add.deletion_vector, add.path)
        return add.model_copy(update=change)

    def _vector(self, vector: DeletionVectorDescriptor, path: str) -> DeletionVectorDescriptor:
        place = vector_path(vector, path=path)
        if place is None:
            return vector
        is_lance = vector.storage_type == "lance"
        if self.shallow:
            uri = encoded_uri(uri_of(self.store, place))
            kind = "lance" if is_lance else "p"
            return vector.model_copy(update={"storage_type": kind, "path_or_inline_dv": uri})
        uuid = self.target.effects.uuid()
        if is_lance:
            ending = place.rpartition(".")[2]
            copy = self._copy(place, lambda: f"{DELETIONS_FOLDER}/{uuid}.{ending}")
            text = encode_path(copy.removeprefix(f"{DELETIONS_FOLDER}/"))
            return vector.model_copy(update={"path_or_inline_dv": text})
        copy = self._copy(place, lambda: file_name(uuid))
        if copy == place:
            return vector
        return stored_descriptor(
            copy[len("deletion_vector_") : -len(".bin")],
            offset=vector.offset or 0,
            size=vector.size_in_bytes,
            cardinality=vector.cardinality,
        )

    def _copy(self, place: str, name: Callable[[], str]) -> str:
        """Return the path of a file's copy: its own path if that is below the table and free."""
        if place not in self.copies:
            free = not _is_elsewhere(place) and place not in self.taken
            self.copies[place] = place if free else name()
        return self.copies[place]


def _is_elsewhere(place: str) -> bool:
    return place.startswith("/") or scheme_of(place) is not None


def encoded_uri(place: str) -> str:
    """Return the percent-encoded URI of a decoded absolute path or URI."""
    return encode_path(f"file://{place}" if place.startswith("/") else place)


def _copied(source: Store, target: Store, pair: tuple[str, str]) -> None:
    place, path = pair
    home, name = locate(source, place)
    copy_file(home, name, target, path)
