"""Restore an older version: create a new version with its content.

Rules: spec/fragments.md, FRG-35 to FRG-37.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from functools import partial

import pyarrow as pa
from pyroaring import BitMap64

from txlog.actions.file import Add, Cdc
from txlog.actions.stats_text import StatsText
from txlog.actions.table import DomainMetadata, Metadata
from txlog.base.arrow import pc
from txlog.base.columns import flat
from txlog.base.errors import (
    CommitConflictError,
    DataFileError,
    InvalidInputError,
    NotFoundError,
    UnsupportedFeatureError,
)
from txlog.changes.diff import changed_between
from txlog.commit.context import Context
from txlog.commit.intent import Intent, Reads
from txlog.commit.operation import Operation
from txlog.data_files.change_files import (
    ChangeType,
    RowsOf,
    discard_changes,
    records_changes,
    write_rows_of,
)
from txlog.data_files.deletions import adds_of, removes_of
from txlog.data_files.identity import continued
from txlog.fragments.ids import tag_texts
from txlog.fragments.packs import packs_in
from txlog.fragments.rows import FEATURE, FIELDS_TAG
from txlog.log.paths import decode_path
from txlog.protocol.access import (
    DELETION_VECTORS,
    brings_vectors,
    merged_protocol,
    require_writable,
)
from txlog.protocol.features import CLUSTERING
from txlog.protocol.mapping import MAPPING_MODE, highest_id, mapped, with_schema
from txlog.protocol.properties import INDEX_PREFIX, carried
from txlog.reconcile.files import file_keys, touched
from txlog.scan.deletions import deletion_place, load_deletions
from txlog.snapshot.commits import Commit, parse_commit
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import list_commits, load_snapshot
from txlog.snapshot.references import pinned_version
from txlog.snapshot.salvage import live_left
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.time_travel import (
    OutOfRange,
    parse_timestamp,
    version_at,
)
from txlog.stats.files import num_records
from txlog.store.base import Store, is_older, is_there
from txlog.store.branches import BranchStore, chain_of
from txlog.store.file_times import clock_ms
from txlog.store.open import locate
from txlog.verbs.features import with_counts

VACUUM_HOLDS_MS = 3_600_000  # How long after its first commit a vacuum may still delete files.
_SHOWN = 5  # The number of missing files in an error.


class Restore(Operation):
    """Create a version with the rows, schema, partitioning and properties of an older one."""

    name = "RESTORE"
    removes_rows = True

    def __init__(
        self,
        version: int | str | None = None,
        timestamp: str | datetime | int | None = None,
        *,
        out_of_range: OutOfRange = "error",
        ignore_missing_files: bool = False,
        salvages: bool = False,
    ) -> None:
        """Take the version, or a time at which it was the latest, but not both.

        Parameters
        ----------
        out_of_range
            For a time outside the history, take the `nearest` version.
        ignore_missing_files
            Leave out files that do not exist.
        salvages
            The version before is damaged, so the commit states all that is known to differ.

        Raises
        ------
        InvalidInputError
            Neither or both are given, or one is malformed.
        """
        if (version is None) == (timestamp is None):
            raise InvalidInputError(
                argument="version", reason="either a version or a timestamp is expected"
            )
        named = isinstance(version, str)  # The name of a pin.
        if version is not None and not named and (type(version) is not int or version < 0):
            raise InvalidInputError(
                argument="version", reason=f"{version!r} is not a whole number from 0"
            )
        self._version = version
        self._timestamp = timestamp
        self._out_of_range = out_of_range
        self._ignores_missing = ignore_missing_files
        self._salvages = salvages
        self._target: tuple[Snapshot, pa.Table] | None = None
        self._cdc: list[Cdc] = []  # Of the last attempt.

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the changes that restore the older version; None if nothing differs.

        Raises
        ------
        NotFoundError
            There is no such version, or it was cleaned up.
        DataFileError
            Files that the version needs are missing; the error names them.
        UnsupportedFeatureError
            txlog cannot write the table as it was then.
        """
        store = self.context.store
        if self._target is None:
            self._target = self._load_target(base)
        target, then = self._target
        protocol = merged_protocol(base.protocol, target.protocol)
        metadata = _metadata(base, target)
        require_writable(protocol, metadata, path=base.root, managed=base.is_managed)
        now, doubted, is_readable = live_left(store, base)
        back, gone = _to_add(then, now), files_without(now, then)
        if doubted.num_rows:
            parts = [gone, files_without(doubted, then)]
            gone = pa.concat_tables(parts, promote_options="default")
        domains = _domains(base, target)
        changed = back.num_rows or gone.num_rows or domains or protocol != base.protocol
        if not changed and metadata == base.metadata and not self._salvages:
            return None
        files = touched(back, now)
        adds = [*_restored(files.new, data_change=True), *_restored(files.again, data_change=False)]
        if files.new.num_rows:
            require_no_vacuum(self.context, base)
        if self._ignores_missing:
            gaps = missing_files(self.context, adds)
            adds = [add for add, paths in zip(adds, gaps, strict=True) if not paths]
        else:
            require_there(self.context, adds, target.version)
        if base.supports(FEATURE):  # With this feature, every file has a row count (FRG-19).
            adds = with_counts(self.context, target, adds)
        removes = removes_of(gone, self.context.effects.now_ms())
        tags = [*(add.tags for add in adds), *(remove.tags for remove in removes)]
        gives = any(FIELDS_TAG in (one or {}) for one in tags)
        if gives and records_changes(base) and is_readable and not self._salvages:
            self._cdc = _changes(self.context, base, target)
        return Intent(
            operation=self.name,
            kind="restore",
            read_version=base.version,
            revives=True,
            keeps_packs=True,
            removes=tuple(removes),
            cdc=tuple(self._cdc),
            adds=tuple(adds),
            protocol=protocol if self._salvages or protocol != base.protocol else None,
            metadata=metadata,  # Always, so that it is checked against winners (CON-4).
            domains=domains,
            reads=Reads(everything=True),
            parameters={
                "version": self._version,
                "timestamp": None if self._timestamp is None else str(self._timestamp),
            },
            metrics={
                "tableSizeAfterRestore": _size(then),
                "numOfFilesAfterRestore": then.num_rows,
                "numRemovedFiles": gone.num_rows,
                "numRestoredFiles": sum(add.data_change for add in adds),
                "removedFilesSize": _size(gone),
                "restoredFilesSize": sum(add.size for add in adds if add.data_change),
            },
        )

    def discard(self) -> None:
        """Delete the change files of the last attempt."""
        cdc, self._cdc = self._cdc, []
        discard_changes(self.context.store, cdc)

    def _load_target(self, base: Snapshot) -> tuple[Snapshot, pa.Table]:
        store, version = self.context.store, self._version
        if self._timestamp is not None:
            moment_ms = parse_timestamp(self._timestamp)
            version = version_at(store, base, moment_ms, out_of_range=self._out_of_range)
        if isinstance(version, str):
            version = pinned_version(base, version)
        chain = chain_of(store)
        if chain is not None and version is not None and version < chain.base:
            raise UnsupportedFeatureError(
                path=base.root,
                features=("branches",),
                reason=f"the branch begins at version {chain.base}, and nothing keeps the files of "
                f"version {version} for it",
                remedy="Make another branch, which begins at that version",
            )
        target = load_snapshot(store, version=version)
        return target, load_files(store, target).live


def _changes(context: Context, base: Snapshot, target: Snapshot) -> list[Cdc]:
    """Write the rows that change: adds and removes of column files do not show them."""
    parts: dict[str, list[RowsOf]] = {"delete": [], "insert": []}
    for file in changed_between(context.store, base, target):
        rows = None
        if file.among is not None:
            among = load_deletions(context.store, replace(file.fragment, deletion=file.among))
            rows = (among or BitMap64()) - (
                load_deletions(context.store, file.fragment) or BitMap64()
            )
        kind: ChangeType = "delete" if file.change_type == "delete" else "insert"
        if rows is None or rows:
            parts[kind].append(RowsOf(kind, file.fragment, rows))
    old = write_rows_of(context, base, parts["delete"], schema=target.schema)
    try:
        return [*old, *write_rows_of(context, target, parts["insert"])]
    except BaseException:
        discard_changes(context.store, old)
        raise


def _size(files: pa.Table) -> int:
    return int(pc.sum(files["size"]).as_py() or 0)


def files_without(files: pa.Table, others: pa.Table) -> pa.Table:
    """Return the logical files that others do not contain; a file and its vector count together."""
    return files.filter(pc.invert(_are_among(files, others)))


def _to_add(then: pa.Table, now: pa.Table) -> pa.Table:
    """Return the files of the older version to add: removed and changed files.

    Dropping row tracking commits files again without their ids, and turning it on again gives them
    other ones. A column file may give fewer columns now, or may have given fewer then.
    """
    places = pc.index_in(flat(file_keys(then)), value_set=flat(file_keys(now)))
    fields, theirs = tag_texts(then, FIELDS_TAG), tag_texts(now, FIELDS_TAG).take(places)
    changed = pc.or_(pc.is_null(places), pc.fill_null(pc.not_equal(fields, theirs), False))
    for name in ("base_row_id", "default_row_commit_version"):
        ids, given = flat(then[name]), flat(now[name]).take(places)
        changed = pc.or_(changed, pc.fill_null(pc.not_equal(ids, given), pc.is_valid(ids)))
    return then.filter(changed)


def _are_among(files: pa.Table, others: pa.Table) -> pa.ChunkedArray:
    return pc.is_in(file_keys(files), value_set=flat(file_keys(others)))


def _metadata(now: Snapshot, then: Snapshot) -> Metadata:
    """Return the older metadata, except for properties that describe the log itself.

    A table with mapped columns keeps the mapping: the physical names of the old columns are then
    their own names. Identity columns do not count the same values again.
    """
    current = now.metadata.configuration
    configuration = carried(then.metadata.configuration, current)
    # Indexes stay, too: their segments cover data files, not versions.
    configuration = {k: v for k, v in configuration.items() if not k.startswith(INDEX_PREFIX)}
    configuration |= {k: v for k, v in current.items() if k.startswith(INDEX_PREFIX)}
    configuration |= highest_id(now.metadata, then.metadata)
    if now.is_active("deletionVectors") and brings_vectors(then.properties):
        configuration[DELETION_VECTORS] = "true"  # These values were used after the older version.
    metadata = then.metadata.model_copy(update={"configuration": configuration})
    schema = continued(then.schema, now.schema)
    if now.mapping_mode != "none" and then.mapping_mode == "none":
        metadata.configuration[MAPPING_MODE] = "name"
        schema = mapped(schema, now.metadata, legacy=True)
    return metadata if schema is then.schema else with_schema(metadata, schema)


def _domains(now: Snapshot, then: Snapshot) -> tuple[DomainMetadata, ...]:
    """Return the domains that change. Domains of other features stay, as in Delta."""
    current, wanted = now.controls.domains.get(CLUSTERING), then.controls.domains.get(CLUSTERING)
    if wanted is not None and not wanted.removed:
        same = current is not None and current.configuration == wanted.configuration
        return () if same and current is not None and not current.removed else (wanted,)
    if current is None or current.removed:
        return ()
    return (current.model_copy(update={"removed": True}),)


def _restored(files: pa.Table, *, data_change: bool) -> list[Add]:
    """Return live `FILE_ROWS` of an older version in the form for the new commit."""
    adds = []
    for add, rows in zip(adds_of(files), num_records(files).to_pylist(), strict=True):
        change: dict[str, object] = {"data_change": data_change}
        if add.stats is None and rows is not None:  # A checkpoint may have them only as structs.
            change["stats"] = StatsText().with_num_records(rows).text
        adds.append(add.model_copy(update=change))
    return adds


def require_no_vacuum(context: Context, base: Snapshot) -> None:
    """Raise if a vacuum may be deleting files that only older versions have.

    A vacuum first makes a commit (VAC-8). This searches the commits that are recent enough.

    Raises
    ------
    CommitConflictError
        A vacuum has begun and has not recorded its end.
    """
    if isinstance(context.store, BranchStore):  # A vacuum is recorded in main's log.
        context = replace(context, store=context.store.inner)
        base = load_snapshot(context.store)
    begun = 0
    store_ms = clock_ms(context.store, context.effects)
    for commit in _commits_of_vacuums(context, base, store_ms):
        operation = None if commit.info is None else commit.info.operation
        begun += (operation == "VACUUM START") - (operation == "VACUUM END" and begun > 0)
    if begun:
        raise CommitConflictError(
            version=base.version,
            rule="CON-25",
            reason="a vacuum is deleting files, and may delete files that this operation needs",
            remedy="Nothing was committed. Try again when the vacuum has ended; a vacuum that died "
            + (
                "blocks this for ever, because the store has no times of files: read the rows of "
                "the older version, and write them again"
                if store_ms is None
                else f"blocks this for {VACUUM_HOLDS_MS // 60_000} minutes"
            ),
        )


def _commits_of_vacuums(context: Context, base: Snapshot, store_ms: int | None) -> list[Commit]:
    """Return the commits of the last `VACUUM_HOLDS_MS` that may be of a vacuum.

    `store_ms` is the time of the store, which has given the commits their times.
    """
    while True:
        listed = list_commits(context.store, base)
        young = [
            file
            for file in listed
            if store_ms is None or not is_older(file.modified_ms, store_ms - VACUUM_HOLDS_MS)
        ]
        contents = context.store.read_many([(file.path, file.size) for file in young])
        try:
            read = zip(young, contents, strict=True)
            return [parse_commit(data, file) for file, data in read if b"VACUUM " in data]
        except NotFoundError:  # Another writer cleans up the log now.
            if list_commits(context.store, base) == listed:
                raise


def require_there(
    context: Context,
    adds: Iterable[Add],
    version: int,
    remedy: str = "Nothing was committed; restore a version whose files all exist",
) -> None:
    """Raise if files of a version do not exist.

    Raises
    ------
    DataFileError
        The error names them.
    """
    missing = [path for paths in missing_files(context, adds) for path in paths]
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if missing[_SHOWN:] else ""
        raise DataFileError(
            path=missing[0],
            version=version,
            reason=f"files that version {version} needs are missing: "
            f"{', '.join(missing[:_SHOWN])}{more}",
            remedy=remedy,
        )


def missing_files(context: Context, adds: Iterable[Add]) -> Iterable[list[str]]:
    """Return for each file the paths (its own, its vector's, its packs') that do not exist."""
    return context.engine.map(partial(_missing, context.store), adds)


def _missing(store: Store, add: Add) -> list[str]:
    places = [locate(store, decode_path(add.path))]
    if add.deletion_vector is not None:
        vector = deletion_place(store, add.deletion_vector, path=add.path)
        places.extend([] if vector is None else [vector])
    places += [locate(store, decode_path(pack)) for pack in packs_in(add.tags)]
    return [name for home, name in places if not is_there(home, name)]
