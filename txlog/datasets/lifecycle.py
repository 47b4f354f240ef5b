"""Adding commits to data sets, and purging them.

A purge first appends an event to the ledger, so that no training set picks the rows any more. Then
it removes objects, training sets, rows and files. An interrupted purge can be repeated: it searches
for the remaining ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from txlog.arrow import pc
from txlog.commit.app_versions import is_recorded
from txlog.data_files.incoming import SchemaMode
from txlog.data_files.options import as_schema
from txlog.datasets.commands import SWEEP_MS, Mark, Sweep
from txlog.datasets.commits import (
    COMMIT_ID,
    PROPERTIES,
    TYPE_PROPERTY,
    AddCommit,
    Note,
    add_commit,
    commit_with_txn,
)
from txlog.datasets.events import DatasetState, LedgerState, printable
from txlog.datasets.home import Home
from txlog.datasets.ingest import (
    FILES,
    OBJECT_PATH,
    Ingested,
    delete_tree,
    ingest,
    remove_leftovers,
)
from txlog.datasets.lineage import as_input
from txlog.datasets.types import OBJECTS, stores_objects
from txlog.datasets.types.base import DatasetType, type_key
from txlog.datasets.values import Code, Commit, Input
from txlog.errors import (
    DataFileError,
    InvalidInputError,
    InvalidTypeError,
    LogCorruptError,
    NotFoundError,
    OutcomeUnknownError,
    UnsupportedFeatureError,
    require_whole,
)
from txlog.expressions.tree import Expression, col, lit
from txlog.lazy import dataclass
from txlog.log.paths import decode_path
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.partition import partition_folder
from txlog.store.base import Store
from txlog.table.table import Table
from txlog.verbs.create import create

_APPEND_ONLY = "delta.appendOnly"


@dataclass(frozen=True)
class CommitRequest:
    """The checked arguments of an update."""

    message: str
    tags: Mapping[str, str]
    inputs: tuple[Input, ...]
    code: Code | None
    txn: tuple[str, int] | None = None

    def note(self, uuid: str, kind: DatasetType, read: Ingested) -> Note:
        """Return the note of the commit. Its inputs include the source, after it was read."""

        def inputs() -> Sequence[Input]:
            return [replace(one, uri=printable(one.uri)) for one in (*read.inputs(), *self.inputs)]

        return Note(uuid, type_key(kind), self.message, self.tags, inputs, self.code, self.txn)


def commit_request(
    home: Home,
    message: str,
    tags: Mapping[str, str] | None,
    inputs: Sequence[Any],
    code: Code | str | None,
    txn: tuple[str, int] | None = None,
) -> CommitRequest:
    """Return the checked arguments of an update; errors name the argument."""
    home.limits.require_text("message", message)
    checked = home.limits.require_tags(tags or {})
    named = tuple(as_input(one) for one in inputs)
    for one in named:
        for text in (one.uri, one.role, one.digest or ""):
            home.limits.require_text("inputs", text)
        if one.version is not None:
            require_whole("inputs", one.version)
            if one.version >= 1 << 63:
                raise InvalidInputError(
                    argument="inputs", reason=f"the version {one.version} is beyond 64 bits"
                )
    known = Code(code) if isinstance(code, str) else code
    if not isinstance(known, Code | None):
        raise InvalidTypeError(
            argument="code",
            reason=f"a name or a Code was expected, not {type(code).__name__}",
            remedy='Pass Code("clean.py", "4f1c2e")',
        )
    if known is not None:
        home.limits.require_text("code", known.name)
        home.limits.require_text("code", known.version or "")
    if txn is not None:
        home.limits.require_text("txn", txn[0])
    return CommitRequest(message, checked, named, known, txn)


def make_table(
    home: Home,
    uuid: str,
    kind: DatasetType,
    request: CommitRequest,
    source: Any,
    *,
    name: str,
    description: str | None,
) -> Snapshot:
    """Create the table of a data set, with the first commit if there is a source.

    On an error the caller deletes the folder.
    """
    context = home.context(uuid)
    read = None if source is None else _ingest(home, kind, source)
    columns = kind.ingestion if read is None else read.schema
    if columns is None:
        raise InvalidInputError(
            argument="source",
            reason=f"a data set of the type {kind.name} takes its columns from its first rows",
            remedy="Give the source of the first commit",
        )
    schema = pa.schema([pa.field(COMMIT_ID, pa.int32()), *columns])
    snapshot = create(
        context,
        as_schema(schema, nanos=False),
        partition_by=[COMMIT_ID],
        properties={**PROPERTIES, TYPE_PROPERTY: type_key(kind)},
        name=name,
        description=description,
    ).snapshot
    if read is None:
        return snapshot
    operation = AddCommit(context, read.reader, request.note(uuid, kind, read), kind.statistics())
    return add_commit(operation, snapshot, None).snapshot


def update(
    home: Home,
    state: DatasetState,
    kind: DatasetType,
    request: CommitRequest,
    source: Any,
    schema_mode: SchemaMode,
) -> Commit:
    """Add a commit, or return the one that was made with the same `txn`."""
    uuid, txn = state.uuid, request.txn
    purged = purges_of(home.ledger.state())
    snapshot = home.snapshot(uuid)
    if txn is not None and is_recorded(snapshot, txn):
        return _made_before(home, state.dataset_id, snapshot, txn)
    context = home.context(uuid)
    read = _ingest(home, kind, source)
    note = request.note(uuid, kind, read)
    operation = AddCommit(context, read.reader, note, kind.statistics(), schema_mode)
    try:
        done = add_commit(operation, snapshot, txn)
    except OutcomeUnknownError:
        _require_not_purged(home, state.dataset_id)
        raise
    home.keep(uuid, done.snapshot)
    if done.outcome.skipped:
        assert txn is not None
        return _made_before(home, state.dataset_id, done.snapshot, txn)
    assert operation.commit is not None
    if purges_of(home.ledger.state()) != purged:
        require_whole_commit(home, state.dataset_id, operation.commit.commit_id)
    return operation.commit


def _ingest(home: Home, kind: DatasetType, source: Any) -> Ingested:
    return ingest(
        kind,
        source,
        sources=home.sources,
        limits=home.limits,
        store=home.store,
    )


def _made_before(home: Home, dataset_id: int, snapshot: Snapshot, txn: tuple[str, int]) -> Commit:
    """Return the commit that was made with a `txn`, unless a purge removed bytes of it."""
    state = home.ledger.state()
    dataset = state.datasets[dataset_id]
    found = commit_with_txn(snapshot, dataset.uuid, txn)
    if found is None:
        raise InvalidInputError(
            argument="txn",
            reason=f"the data set records a later version of {txn[0]!r} than {txn[1]}, but no "
            f"commit of version {txn[1]}",
            remedy="Use ascending versions for an application",
        )
    if purges_of(state) and found.commit_id not in dataset.purged_commits:
        require_whole_commit(home, dataset_id, found.commit_id)
    return found


def require_made(home: Home, dataset: DatasetState) -> None:
    """Raise if a sweep or a purge has deleted the table, or objects, of a new data set.

    If the clock jumped by a day, a sweep mistakes a new table for an old one. Then this function
    purges the data set. Errors as for `require_whole_commit`.
    """
    _require_not_purged(home, dataset.dataset_id)
    try:
        load_snapshot(home.context(dataset.uuid).store)
    except (NotFoundError, LogCorruptError) as error:
        purge_dataset(home, dataset)
        raise DataFileError(
            path=home.uri(f"data/{dataset.uuid}"),
            reason="the sweep of another process deleted the table while the data set was made",
            remedy="Check the clocks, and make the data set again",
        ) from error
    require_whole_commit(home, dataset.dataset_id, 1)


def require_whole_commit(home: Home, dataset_id: int, commit_id: int) -> None:
    """Raise if a purge has meanwhile removed bytes of a new commit.

    A purge first appends its event, and then searches for rows that refer to an object. So if the
    ledger has no new purge after a commit, each later purge sees the commit's rows.

    Raises
    ------
    NotFoundError
        The data set was purged.
    DataFileError
        An object of the commit is missing.
    """
    dataset = _require_not_purged(home, dataset_id)
    for path in sorted(_objects(home, dataset, col(COMMIT_ID) == lit(commit_id))):
        try:
            home.store.info(path)
        except NotFoundError as error:
            raise DataFileError(
                path=home.uri(path),
                reason=f"commit {commit_id} refers to an object that another process purged while "
                "the commit was made",
                remedy="Hide or purge this commit, and add it again",
            ) from error


def _require_not_purged(home: Home, dataset_id: int) -> DatasetState:
    """Return a data set. If it was purged, delete the files that an update left, and raise."""
    state = home.ledger.state()
    dataset = state.datasets[dataset_id]
    if dataset.purged:
        delete_tree(home.store_of(f"data/{dataset.uuid}"))
        raise state.unknown(dataset_id)
    return dataset


# Purging -------------------------------------------------------------------------------------


def purge_dataset(home: Home, dataset: DatasetState) -> None:
    """Remove a data set: its table, its training sets, and objects that only it refers to."""
    home.ledger.record(Mark("purged", dataset.dataset_id))
    objects: set[str] = set()
    with suppress(NotFoundError, LogCorruptError, DataFileError):
        # An interrupted purge may have left half of the table. Its objects were deleted before.
        objects = _objects(home, dataset)
    _delete_unused(home, objects)
    delete_tree(home.store_of(f"sets/{dataset.uuid}"))
    # The table is deleted last: a repeated purge finds the objects in it.
    delete_tree(home.store_of(f"data/{dataset.uuid}"))


def purge_commit(home: Home, dataset: DatasetState, commit_id: int) -> None:
    """Remove the rows of a commit, and the training sets that contain them."""
    home.ledger.record(Mark("purged", dataset.dataset_id, commit_id))
    is_it = col(COMMIT_ID) == lit(commit_id)
    _delete_unused(home, _objects(home, dataset, is_it))
    sets = home.store_of(f"sets/{dataset.uuid}")
    made = [file.name for file in sets.list_tree("")]
    # The list is older than this state, so the state knows each training set of the list.
    kept = home.ledger.state().dataset(dataset.dataset_id).sets
    sets.delete([name for name in made if name.partition("/")[0] not in kept])
    table = home.table(dataset.uuid)
    _delete_rows(table, is_it, f"purge commit {commit_id}")
    home.keep(dataset.uuid, table.snapshot)
    table.store.delete(_files_of(table, str(commit_id)))


def _delete_rows(table: Table, where: Expression, why: str) -> None:
    """Delete rows of an append-only table: unset the property, delete, set it again."""
    while table.count(where):
        table.alter.set_properties({_APPEND_ONLY: "false"})
        try:
            table.delete(where, user_metadata=why)
        except UnsupportedFeatureError as error:
            if error.features != ("appendOnly",):  # Another purge may have set the property again.
                raise
        table.refresh()
    if table.properties[_APPEND_ONLY] != "true":
        table.alter.set_properties({_APPEND_ONLY: "true"})


def finish_purges(home: Home, dataset: DatasetState) -> None:
    """Finish the purges of a data set that were interrupted."""
    if dataset.purged:
        stores = (home.store_of(f"{part}/{dataset.uuid}") for part in ("sets", "data"))
        if any(next(iter(store.list_tree("")), None) is not None for store in stores):
            purge_dataset(home, dataset)
    elif dataset.purged_commits:
        store = home.store_of(f"data/{dataset.uuid}")
        for commit_id in sorted(dataset.purged_commits):
            folder = partition_folder({COMMIT_ID: str(commit_id)})
            if next(iter(store.list_tree(folder)), None) is not None:
                purge_commit(home, dataset, commit_id)


def _files_of(table: Table, commit_id: str) -> list[str]:
    """Return the files with rows of a purged commit: those in the log, and those in its folder."""
    name = table.snapshot.physical_partition_columns[0]
    gone = load_files(table.store, table.snapshot).tombstones
    found = {
        decode_path(path)
        for path, values in zip(
            gone["path"].to_pylist(), gone["partition_values"].to_pylist(), strict=True
        )
        if dict(values or ()).get(name) == commit_id
    }
    folder = partition_folder({COMMIT_ID: commit_id})
    found |= {f"{folder}/{file.name}" for file in table.store.list_tree(folder)}
    return sorted(found)


def _objects(home: Home, dataset: DatasetState, where: Expression | None = None) -> set[str]:
    """Return the objects to which the rows of a data set refer, as paths below the root."""
    table = home.table(dataset.uuid)
    if not stores_objects(dataset.type, table.schema.names):
        return set()
    found: set[str] = set()
    for batch in table.scan(columns=[OBJECTS], where=where).to_batches():
        uris = batch.column(0).unique()
        is_object = pc.match_substring_regex(uris, OBJECT_PATH)
        found.update(uris.filter(is_object).to_pylist())
    return found


def _delete_unused(home: Home, objects: set[str]) -> None:
    """Delete objects that no row and no training set refers to."""
    left = set(objects)
    for other in home.ledger.state().datasets.values():
        if left and not other.purged:
            left -= _used(home, other)
    home.store.delete(sorted(left))


def _used(home: Home, dataset: DatasetState) -> set[str]:
    """Return the objects that the rows and the training sets of a data set refer to."""
    gone = sorted(dataset.purged_commits)
    objects = _objects(home, dataset, ~col(COMMIT_ID).isin(gone) if gone else None)
    return objects | {part.uri for one in dataset.sets.values() for part in one.parts}


def purges_of(state: LedgerState) -> int:
    """Return the number of purges and sweeps of a catalog."""
    datasets = state.datasets.values()
    return state.sweeps + sum(one.purged + len(one.purged_commits) for one in datasets)


# Sweeping ------------------------------------------------------------------------------------


def sweep_leftovers(home: Home) -> int:
    """Delete files older than a day to which nothing refers; return their number.

    That is: staged files and tables of processes that died, objects of updates that were refused,
    and folders of attempts that others took over. It is done once a day. The ledger says so first,
    as of a purge, so that whoever found an old object in place, and commits now, looks once more.
    """
    now_ms = home.effects.now_ms()
    if not home.ledger.try_record(Sweep())[1]:
        return 0
    # The clock of this process may be ahead of that of the store, which gives files their times.
    now_ms = min(now_ms, home.ledger.last_write_ms())
    before_ms = now_ms - SWEEP_MS
    staged = remove_leftovers(home.store, now_ms)
    old = (f"{FILES}/{f.name}" for f in home.store.list_tree(FILES) if f.modified_ms < before_ms)
    objects = {path for path in old if re.match(OBJECT_PATH, path)}
    tables = _old_folders(home.store, "data", 1, before_ms)
    attempts = _old_folders(home.store, "sets", 3, before_ms)
    known = {one.uuid: one for one in home.ledger.state().datasets.values()}
    names = [name for uuid, files in tables.items() if uuid not in known for name in files]
    for folder, files in attempts.items():
        uuid, version_hash, attempt = folder.split("/")
        made = known[uuid].sets.get(version_hash) if uuid in known else None
        if made is None or (attempt.isdigit() and int(attempt) < made.attempt):
            names += files
    for one in known.values():
        if objects and not one.purged:
            used = home.if_whole(one, partial(_used, home))
            objects = set() if used is None else objects - used  # A damaged one may need all.
    names += sorted(objects)
    home.store.delete(names)
    return staged + len(names)


def _old_folders(store: Store, root: str, depth: int, before_ms: int) -> dict[str, list[str]]:
    """Return the folders at a depth in which all files are old, each with its paths."""
    found: dict[str, list[str]] = {}
    young: set[str] = set()
    for file in store.list_tree(root):
        steps = file.name.split("/")
        folder = "/".join(steps[:depth])
        if file.modified_ms >= before_ms:
            young.add(folder)
        elif len(steps) > depth:
            found.setdefault(folder, []).append(f"{root}/{file.name}")
    return {folder: files for folder, files in found.items() if folder not in young}
