"""Clone a version of a table as a new table.

A shallow clone refers to the files of its source; a deep clone has copies of them.
Rules: spec/maintenance.md, MNT-15 and MNT-20 to MNT-23.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import orjson
import pyarrow as pa

from txlog.actions.columns import empty_rows
from txlog.actions.file import Add, DeletionVectorDescriptor, Remove
from txlog.actions.table import DomainMetadata, Metadata, Protocol, Txn
from txlog.base.arrow import pc
from txlog.base.errors import (
    CommitConflictError,
    InvalidInputError,
    OutcomeUnknownError,
    RetriesExhaustedError,
    TxlogError,
    UnsupportedFeatureError,
    tidied,
    warn_committed,
)
from txlog.base.texts import without_secrets
from txlog.base.threads import map_all
from txlog.commit.app_versions import AppVersion, is_recorded, require_app_version
from txlog.commit.context import Context
from txlog.commit.intent import Intent, Reads, UserMetadata, duties_of
from txlog.commit.loop import highest_fragment_id
from txlog.commit.operation import (
    Done,
    Operation,
    Outcome,
    execute,
    require_table_writable,
    require_user_metadata,
)
from txlog.data_files.change_files import records_changes
from txlog.data_files.deletions import adds_of, removes_of
from txlog.fragments.deletion_file import DELETIONS_FOLDER
from txlog.fragments.deletion_vector import file_name, stored_descriptor
from txlog.fragments.ids import ID_APP, ID_TAG, valid_id
from txlog.fragments.packs import PACKS_FOLDER, PACKS_TAG, name_of, packs_in, packs_of, packs_text
from txlog.fragments.rows import FEATURE, FIELDS_TAG
from txlog.log.paths import canonical_key, decode_path, encode_path, is_elsewhere, is_unique
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
from txlog.reconcile.files import FileState
from txlog.scan.deletions import vector_path
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import refresh
from txlog.snapshot.references import (
    ATTEMPT_HOLDS_MS,
    CloneAttempt,
    RegisteredClone,
    clones_of,
)
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store, are_equal, copy_file
from txlog.store.branches import without_branch
from txlog.store.open import locate, open_store, require_allowed, uri_of
from txlog.store.places import is_within, names_below, same_place, without_links
from txlog.verbs.create import already_exists, existing
from txlog.verbs.properties import Asked, require_kept_form
from txlog.verbs.references import FinishClone, RegisterClone, require_whole_version
from txlog.verbs.settle import settle
from txlog.verbs.vacuum import referenced


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

    To register it takes three commits: the source records that the clone is being made, the clone
    is committed, and the source records that it is made (MNT-15).

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
        A file cannot be copied, or files of an older version no longer exist. Nothing was
        committed, and no copy remains.
    CommitConflictError
        The clone is to be registered, and a vacuum of the source may be deleting files that it
        needs. Nothing was committed.
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
    if options.shallow and without_secrets(source.store.root) != source.store.root:
        raise InvalidInputError(
            argument="shallow",
            reason="the URI of the source has a user or password, and the log of a shallow clone "
            "would contain it",
            remedy="Open the source with storage options instead, or make a deep clone",
        )
    latest = refresh(source.store, snapshot) if options.shallow else snapshot
    if options.register:
        require_table_writable(latest, removes_rows=False)
    place = without_links(target.store.root)
    before = existing(target.store)
    made = (
        before if before is not None and (is_recorded(before, txn) or not options.replace) else None
    )
    registration = _Registrations(
        _Registration(source, latest, snapshot.version, place, txn),
        _others(source, snapshot, target, made, txn) if options.register else (),
    )
    if before is not None and is_recorded(before, txn):
        if options.register:
            registration.complete(before.metadata.id)
        return Done(Outcome(_Clone.name, None, skipped=True), before)
    if before is not None and not options.replace:
        if options.register:
            registration.settle(before.metadata.id)
        raise already_exists(target.store)
    if options.shallow and not options.register:
        remedy = "Nothing was committed; clone a later version"
        require_whole_version(source, latest, snapshot.version, remedy, beside_vacuum=True)
    operation = _Clone(source, snapshot, options, registration if options.register else None)
    try:
        done = execute(operation, target, before, txn=txn, user_metadata=user_metadata)
    except OutcomeUnknownError:  # The clone may exist, so it stays registered.
        raise
    except TxlogError as error:
        registration.give_up(error)
        raise
    registration.finish(done)
    return done


_RENEWED_MS = ATTEMPT_HOLDS_MS // 24  # Far below it, because clocks differ.
_TRIES = 5  # So often other writers may change the same registration meanwhile.


@dataclass(frozen=True)
class _Registrations:
    """The records of a clone in its source, and in the other tables whose files it names.

    So the clone does not depend on its source: that may be deleted, and another table may be made
    in its place (MNT-16).
    """

    source: _Registration
    others: Sequence[_Registration] = ()

    def table_id(self) -> str:
        return self.source.table_id()

    def begin(self, table_id: str, *, is_new: bool) -> None:
        # First the source, which then keeps the version for the others.
        self.source.begin(table_id, is_new=is_new)
        for one in self.others:
            try:
                one.begin(table_id, is_new=is_new)
            except TxlogError as error:
                error.add_note(
                    f"The clone names files of the table {one.source.store.root}, too, so it is "
                    "to be registered there. If that is not possible, make a deep clone"
                )
                raise

    def complete(self, table_id: str) -> None:
        for one in (self.source, *self.others):
            one.complete(table_id)

    def settle(self, table_id: str | None) -> None:
        for one in (self.source, *self.others):
            one.settle(table_id)

    def finish(self, done: Done) -> None:
        for one in (self.source, *self.others):
            one.finish(done)

    def give_up(self, error: TxlogError) -> None:
        for one in (self.source, *self.others):
            one.give_up(error)


@dataclass
class _Registration:
    """The record in the source that a clone is being made, and then that it is made.

    The record comes first, so at no time does the clone need files that the source's vacuum may
    delete. A process that dies in between leaves a record that keeps the version for a day
    (MNT-15).
    """

    source: Context
    latest: Snapshot
    version: int  # The version that is cloned.
    uri: str
    txn: AppVersion | None
    named_by: tuple[Store, Snapshot] | None = None  # The version, if it is of another table.
    _attempts: set[str] = field(default_factory=set)
    _ids: set[str] = field(default_factory=set)  # The table ids under which it is registered.
    _until_ms: int = 0

    def table_id(self) -> str:
        """Return the table id for a new clone: that of an attempt that did not end, or a new one.

        So a second attempt completes the registration of the first one.
        """
        left = (one.id for one in clones_of(self.latest) if one.uri == self.uri and one.is_new)
        return next(left, None) or self.source.effects.uuid()

    def begin(self, table_id: str, *, is_new: bool) -> None:
        """Record that a clone is being made, unless that was recorded shortly before."""
        effects = self.source.effects
        now_ms = effects.now_ms()
        if table_id in self._ids and now_ms < self._until_ms:
            return
        txn = None if self.txn is None else (self.txn[0], self.txn[1])
        of = None if self.named_by is None else without_links(self.named_by[0].root)
        attempt = CloneAttempt(effects.uuid(), self.version, now_ms, txn, is_new, of)
        registered = RegisteredClone(table_id, self.uri, is_made=False)
        self._attempts.add(attempt.id)  # First, because the outcome may be unknown.
        self._ids.add(table_id)
        self._execute(lambda: RegisterClone(registered, attempt, self.named_by))
        self._until_ms = now_ms + _RENEWED_MS

    def complete(self, table_id: str) -> None:
        """Register a clone that exists, unless it is registered already."""
        known = next((one for one in clones_of(self.latest) if one.id == table_id), None)
        if known is None:
            self._execute(lambda: RegisterClone(RegisteredClone(table_id, self.uri)))
        else:
            self._finish(table_id, is_made=True)

    def settle(self, table_id: str | None) -> None:
        """Record that a table is made if only an earlier attempt can have made it."""
        made = (one for one in clones_of(self.latest) if one.id == table_id and one.is_new)
        with suppress(TxlogError):  # The source keeps the clone in any case.
            for one in made:
                self._finish(one.id, is_made=True)

    def finish(self, done: Done) -> None:
        """Record that the clone is made; a failure is a warning, because the clone is kept."""
        made = done.snapshot.metadata.id
        try:
            for table_id in self._ids:
                self._finish(table_id, is_made=table_id == made)
            if done.outcome.skipped and self._ids and made not in self._ids:
                self._execute(lambda: RegisterClone(RegisteredClone(made, self.uri)))
        except TxlogError as error:
            warn_committed(
                f"the clone {self.uri} is committed and registered, but the table "
                f"{self.source.store.root} could not record that it is made: {error}. Until a "
                "later clone records it, its version is kept for a day"
            )

    def give_up(self, error: TxlogError) -> None:
        """Record that the clone was not made."""
        try:
            for table_id in self._ids:
                self._finish(table_id, is_made=False)
        except TxlogError as failure:  # What failed first is what the caller has to know.
            error.add_note(f"Its registration in the source could not be removed: {failure}")

    def _finish(self, table_id: str, *, is_made: bool) -> None:
        txn = self.txn if is_made else None
        self._execute(lambda: FinishClone(table_id, self._attempts, is_made=is_made, txn=txn))

    def _execute(self, make: Callable[[], Operation]) -> None:
        """Commit a new operation to the source; again if others changed the same record.

        Also again if it is unknown whether it was committed: if it was, this changes nothing.
        """
        for left in reversed(range(_TRIES)):
            try:
                self.latest = refresh(self.source.store, self.latest)
                done = execute(make(), self.source, self.latest)
                self.latest = done.snapshot
                break
            except OutcomeUnknownError:
                if not left:
                    raise
            except CommitConflictError as error:
                if not left or isinstance(error, RetriesExhaustedError) or error.rule == "CON-25":
                    raise
        settle(self.source, done)


def _others(
    source: Context,
    snapshot: Snapshot,
    target: Context,
    made: Snapshot | None,
    txn: AppVersion | None,
) -> list[_Registration]:
    """Return the registrations of a clone in other tables than its source and itself.

    `made` is the clone if it exists, and is only to be registered.
    """
    store, version = (source.store, snapshot) if made is None else (target.store, made)
    found = other_tables(store, load_files(store, version).live)
    registrations = []
    for there, latest in found:
        if any(same_place(there.root, known.store.root) for known in (source, target)):
            continue
        _require_apart(there, target.store)
        one = _Registration(
            replace(source, store=there),
            latest,
            snapshot.version,
            without_links(target.store.root),
            txn,
            (source.store, snapshot),
        )
        registrations.append(one)
    return registrations


def other_tables(store: Store, live: pa.Table) -> list[tuple[Store, Snapshot]]:
    """Return the other tables whose files a version names, at their latest versions.

    Each is found by its log, in a folder around the file. A file around which no table is belongs
    to none, so no vacuum deletes it.

    Parameters
    ----------
    live
        The live files of the version.

    Raises
    ------
    UnsupportedFeatureError
        A file is in another kind of store, which is not allowed.
    """
    keys = names_below(store.root, pc.unique(referenced(FileState(live, empty_rows()), 0)))
    far = keys.filter(pc.match_substring_regex(keys, r"^(/|\w+:)"))
    folders = pc.unique(pc.replace_substring_regex(far, "/[^/]*$", "")).to_pylist()
    found: list[tuple[Store, Snapshot]] = []
    free: set[str] = set()  # Folders without a table.
    for folder in sorted(folders):
        options = without_branch(locate(store, f"{folder}/file")[0].options)
        place = folder
        while place not in free and not place.endswith((":", ":/")) and place:
            if any(is_within(one.root, place) for one, _ in found):
                break
            there = open_store(place, options)
            latest = existing(there)
            if latest is not None:
                found.append((there, latest))
                break
            free.add(place)
            place = place.rpartition("/")[0]
    return found


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
        self,
        source: Context,
        snapshot: Snapshot,
        options: CloneOptions,
        registration: _Registrations | None = None,
    ) -> None:
        self._source = source
        self._snapshot = snapshot
        self._options = options
        self._registration = registration
        self._copied: list[str] = []
        self._is_new = False
        self._asked = Asked.of(options.properties, has_rows=True)
        self._new_id: str | None = None  # The table id of a new clone.

    def creation(self) -> Intent:
        """Return the files of a new table; a clone to register is registered before."""
        self._is_new = True
        return self._changes(None)

    def intent(self, base: Snapshot) -> Intent:
        """Return the changes that make a table the clone; a clone to register is registered before.

        Raises
        ------
        AlreadyExistsError
            Another writer created the table first.
        """
        if self._is_new:
            raise already_exists(self.context.store)
        return self._changes(base)

    def _changes(self, base: Snapshot | None) -> Intent:
        metadata, protocol = self._table(base)
        if self._registration is not None:
            self._registration.begin(str(metadata.id), is_new=base is None)
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
            assert base is not None
            removes = removes_of(now, self.context.effects.now_ms())
            numbered = duties_of(protocol, metadata).numbered
            there = adds_of(now)
            if any(FIELDS_TAG in (add.tags or {}) for add in adds):
                feeds = Properties(metadata.configuration).get(ACTIVATION["changeDataFeed"])
                _require_no_feed(self._snapshot, feeds=bool(feeds) or records_changes(base))
                highest = highest_fragment_id(self.context.store, base)
                adds, highest = _with_new_ids(adds, there, highest)
                now_ms = self.context.effects.now_ms()
                recorded = (Txn(app_id=ID_APP, version=highest, last_updated=now_ms),)
            else:
                adds = [_without_id(add) for add in adds]
            adds, gone = _changes(adds, there, removes, numbered=numbered)
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
            keeps_packs=True,
            rows_of=self._snapshot,
            parameters={
                "source": f"delta.`{without_secrets(self._snapshot.root)}`",
                "sourceVersion": self._snapshot.version,
                "isShallow": self._options.shallow,
            },
            metrics={"removedFilesSize": 0, "numRemovedFiles": len(gone), **metrics},
        )

    def discard(self) -> None:
        """Delete the copies of the last attempt; a failure is a warning."""
        tidied(lambda: self.context.store.delete(self._copied))
        self._copied.clear()

    def _files(self, rows: pa.Table, now: pa.Table | None) -> tuple[list[Add], dict[str, int]]:
        """Return the source's files as files of the clone; missing ones are copied."""
        moves = _Moves(
            self._source.store, self._snapshot.metadata.id, self.context, self._options.shallow
        )
        if now is not None and not self._options.shallow:
            # Files of a shallow clone are still the source's: a deep clone has copies of them.
            moves.existing = _copies_in(now["path"].to_pylist())
            moves.vectors = _vector_copies_in(adds_of(now.filter(pc.is_valid(now["dv_id"]))))
            places = packs_of(now).to_pylist()
            moves.packs = {name_of(one): one for one in places if not is_elsewhere(one)}
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
                "id": self._id() if base is None else base.metadata.id,
                "created_time": effects.now_ms(),
                "configuration": configuration,
            }
        )
        needed = needed_features(source.schema, Properties(configuration)) | asked.features
        protocol = upgraded(_without_log(source.protocol), needed)
        protocol = at_least(protocol, asked.versions)
        if base is not None:
            protocol = merged_protocol(base.protocol, protocol)
        is_managed = base is not None and base.is_managed
        require_writable(protocol, metadata, path=source.root, managed=is_managed)
        return metadata, protocol

    def _id(self) -> str:
        """Return the table id of a new clone, the same at each try."""
        if self._new_id is None:
            registration, effects = self._registration, self.context.effects
            self._new_id = effects.uuid() if registration is None else registration.table_id()
        return self._new_id


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


def _require_no_feed(source: Snapshot, *, feeds: bool) -> None:
    """Raise if the changes of rows by column files of a source would have to be recorded."""
    if feeds:
        raise UnsupportedFeatureError(
            path=source.root,
            features=("txlog.fragments",),
            reason="the source has column files, and the existing table has a change data feed, "
            "which would not contain the changes that they make",
            remedy="Clone to a new location, or first compact the source with "
            "optimize.compact(max_column_files=0)",
        )


def _with_new_ids(adds: Iterable[Add], there: Iterable[Add], highest: int) -> tuple[list[Add], int]:
    """Return the files of a source with ids of fragments of a table, and the highest id. Pure.

    All files of a fragment get the same one. If the table has the primary file, the fragment keeps
    the id that it has there.
    """
    theirs = {canonical_key(add.path): add for add in there}
    kept = list(adds)
    numbers: dict[str | None, str] = {}
    for add in kept:
        tags = add.tags or {}
        if FIELDS_TAG in tags:
            continue
        known = theirs.get(canonical_key(add.path))
        number = None
        if known is not None and _is_same_file(add, known):
            number = (known.tags or {}).get(ID_TAG)
        if number is None or not valid_id(number):
            highest += 1
            number = str(highest)
        numbers[tags.get(ID_TAG)] = number
    found = []
    for add in kept:
        tags = add.tags or {}
        tagged = {**tags, ID_TAG: numbers[tags.get(ID_TAG)]}
        found.append(add.model_copy(update={"tags": tagged, "data_change": True}))
    return found, highest


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


def _changes(
    adds: Sequence[Add], now: Sequence[Add], removes: Sequence[Remove], *, numbered: bool
) -> tuple[list[Add], list[Remove]]:
    """Return the files to add and to remove, without those that do not change. Pure.

    A file that the table has already is logged again if the facts about it differ: row ids,
    partition values, statistics, tags. This changes no rows. If another file has its path now (of
    a source that was made again), its rows are new.

    Parameters
    ----------
    now, removes
        The live files of the table, and their removes.
    numbered
        Whether each file of the table must have row ids.
    """

    def key(action: Add | Remove) -> tuple[str, str | None]:
        vector = action.deletion_vector
        return canonical_key(action.path), None if vector is None else vector.unique_id

    theirs = {key(add): add for add in now}
    ours = {key(add) for add in adds}
    changed = []
    for add in adds:
        there = theirs.get(key(add))
        if there is None or not _is_same_file(add, there):
            changed.append(add)
        elif _differ(add, there, numbered=numbered):
            tags = dict(add.tags or {})
            if (number := (there.tags or {}).get(ID_TAG)) is not None:
                tags.setdefault(ID_TAG, number)  # It stays the same fragment.
            changed.append(add.model_copy(update={"tags": tags, "data_change": False}))
    return changed, [remove for remove in removes if key(remove) not in ours]


def _is_same_file(add: Add, there: Add) -> bool:
    """Return whether a file with the path of another one is that file."""
    return (add.size, add.modification_time) == (there.size, there.modification_time)


def _differ(add: Add, there: Add, *, numbered: bool) -> bool:
    """Return whether the facts about a file differ from those that a table has."""
    if add.base_row_id is None:
        other_ids = numbered and there.base_row_id is None
    else:
        ids = (add.base_row_id, add.default_row_commit_version)
        other_ids = ids != (there.base_row_id, there.default_row_commit_version)
    return (
        other_ids
        or add.partition_values != there.partition_values
        or (None not in (add.stats, there.stats) and add.stats != there.stats)
        or (add.tags or {}).get(ID_TAG) not in (None, (there.tags or {}).get(ID_TAG))
        or _without_id(add).tags != _without_id(there).tags
    )


@dataclass
class _Moves:
    """The paths of a source's files in its clone, and the files that must be copied.

    Each copy has a new name in the folder of the original: a writer that fails deletes its copies,
    and must not delete those of another one. The name also says of which file it is a copy.
    """

    store: Store
    table_id: str | None  # Of the source.
    target: Context
    shallow: bool
    copies: dict[str, str] = field(default_factory=dict)  # Decoded paths of source and clone.
    # The copies that the clone already has: decoded paths by what their names say.
    existing: dict[str, str] = field(default_factory=dict)
    # The UUIDs of the files of deletion vectors that it has, by what their folders say.
    vectors: dict[str, str] = field(default_factory=dict)
    packs: dict[str, str] = field(default_factory=dict)  # Its packs: logged paths by their names.

    def moved(self, add: Add) -> Add:
        """Return a file of the source as a file of the clone."""
        place = decode_path(add.path)
        change: dict[str, Any] = {}
        if self.shallow:
            change["path"] = encoded_uri(uri_of(self.store, place))
        else:
            change["path"] = encode_path(self._copy_of(add, place))
        if add.deletion_vector is not None:
            change["deletion_vector"] = self._vector(add.deletion_vector, add.path)
        if packs := packs_in(add.tags):
            places = packs_text(map(self._pack, packs))
            change["tags"] = {**(add.tags or {}), PACKS_TAG: places}
        return add.model_copy(update=change)

    def _copy_of(self, add: Add, place: str) -> str:
        """Return the path of a data file's copy, which may be there already."""
        mark = _mark_of(self.table_id, place, add.size, add.modification_time)
        there = self.existing.get(mark)
        if there is not None and (is_unique(place) or self._are_equal(place, there)):
            return there
        folder = "" if is_elsewhere(place) else place.rpartition("/")[0]
        name = f"part-{mark}-{self.target.effects.uuid()}.parquet"
        return self._copy(place, f"{folder}/{name}" if folder else name)

    def _pack(self, pack: str) -> str:
        """Return the logged path of a pack in the clone: its name stays, its folder may not."""
        place = decode_path(pack)
        if self.shallow:
            return encoded_uri(uri_of(self.store, place))
        there = self.packs.get(name_of(pack))
        if there is not None:
            return there
        uuid = self.target.effects.uuid()
        return encode_path(self._copy(place, f"{PACKS_FOLDER}/{uuid}/{name_of(place)}"))

    def _are_equal(self, place: str, there: str) -> bool:
        home, name = locate(self.store, place)
        return are_equal(home, name, self.target.store, there)

    def _vector(
        self, vector: DeletionVectorDescriptor, path: str
    ) -> DeletionVectorDescriptor | None:
        place = vector_path(vector, path=path)
        if place is None:
            return vector
        if not vector.cardinality and not vector.size_in_bytes:
            return None  # No row is deleted, and there need not be a file.
        is_lance = vector.storage_type == "lance"
        if self.shallow:
            uri = encoded_uri(uri_of(self.store, place))
            kind = "lance" if is_lance else "p"
            return vector.model_copy(update={"storage_type": kind, "path_or_inline_dv": uri})
        uuid = self.target.effects.uuid()
        if is_lance:
            ending = place.rpartition(".")[2]
            copy = self._copy(place, f"{DELETIONS_FOLDER}/{uuid}.{ending}")
            text = encode_path(copy.removeprefix(f"{DELETIONS_FOLDER}/"))
            return vector.model_copy(update={"path_or_inline_dv": text})
        # The text of a vector may begin with a folder. It says of which file this is a copy.
        mark = _mark_of(self.table_id, place)
        if mark in self.vectors and is_unique(place):
            uuid = self.vectors[mark]
        else:
            copy = self._copy(place, f"{mark}/{file_name(uuid)}")
            uuid = copy[len(f"{mark}/deletion_vector_") : -len(".bin")]
        stored = stored_descriptor(
            uuid,
            offset=vector.offset or 0,
            size=vector.size_in_bytes,
            cardinality=vector.cardinality,
        )
        return stored.model_copy(update={"path_or_inline_dv": mark + stored.path_or_inline_dv})

    def _copy(self, place: str, name: str) -> str:
        """Return the path of a file's copy: the given one, unless it is copied already."""
        return self.copies.setdefault(place, name)


_VECTOR_COPY = re.compile(
    r"([0-9a-f]{32})/deletion_vector_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.bin"
)
_COPY = re.compile(
    r"(?:.*/)?part-([0-9a-f]{32})-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.parquet"
)


def _mark_of(table_id: str | None, place: str, *facts: int) -> str:
    """Return the part of a copy's path that says of which file it is a copy."""
    found = orjson.dumps([table_id, place, *facts])
    return hashlib.sha256(found).hexdigest()[:32]


def _copies_in(paths: Iterable[str]) -> dict[str, str]:
    """Return the decoded paths of the files that a deep clone copied, by their marks."""
    found = ((_COPY.fullmatch(path), path) for path in paths if not is_elsewhere(path))
    return {match[1]: decode_path(path) for match, path in found if match is not None}


def _vector_copies_in(adds: Iterable[Add]) -> dict[str, str]:
    """Return the UUIDs of the files of vectors that a deep clone copied, by their marks."""
    vectors = (add.deletion_vector for add in adds)
    paths = (vector_path(one) for one in vectors if one is not None and one.storage_type == "u")
    found = (_VECTOR_COPY.fullmatch(path) for path in paths if path is not None)
    return {match[1]: match[2] for match in found if match is not None}


def encoded_uri(place: str) -> str:
    """Return the percent-encoded URI of a decoded absolute path or URI."""
    return encode_path(f"file://{place}" if place.startswith("/") else place)


def _copied(source: Store, target: Store, pair: tuple[str, str]) -> None:
    place, path = pair
    home, name = locate(source, place)
    copy_file(home, name, target, path)
