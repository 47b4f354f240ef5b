"""Making data sets, adding commits to them, and purging both.

A purge first appends an event to the ledger, so that no training set picks the rows any more. Then
it removes objects, training sets, rows and files. An interrupted purge can be repeated: it searches
for the remaining ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa

from txlog import Expression, Table, col, lit
from txlog.base.errors import (
    CommitConflictError,
    DataFileError,
    InvalidInputError,
    InvalidTypeError,
    LogCorruptError,
    NotFoundError,
    OutcomeUnknownError,
    TxlogError,
    UnsupportedFeatureError,
    clean_after,
    require_whole,
    tidied,
)
from txlog.extend import (
    SchemaMode,
    Snapshot,
    context_of,
    create_table,
    decode_path,
    execute,
    removed_files,
)
from txlog.training.datasets.aside import missing_of
from txlog.training.datasets.commands import (
    CLEARED_RULE,
    SWEPT_RULE,
    Create,
    Mark,
    by_txn,
    require_free_name,
    swept_table,
)
from txlog.training.datasets.commits import (
    COMMIT_ID,
    PROPERTIES,
    TYPE_PROPERTY,
    AddCommit,
    Note,
    commit_with_txn,
    folder_of,
)
from txlog.training.datasets.events import DatasetState, LedgerState, printable
from txlog.training.datasets.home import Home
from txlog.training.datasets.ingest import Ingested, delete_tree, ingest
from txlog.training.datasets.ledger import require_no_rehearsal
from txlog.training.datasets.lineage import as_input
from txlog.training.datasets.objects import Held, objects_of, remove_unused, set_property
from txlog.training.datasets.types.base import DatasetType, type_key
from txlog.training.datasets.values import NOBODY, Code, Commit, Input, Who, require_same_request

T = TypeVar("T")
_APPEND_ONLY = "delta.appendOnly"
_LASTING = (str, os.PathLike, pa.Table, pa.RecordBatch, Table)  # Sources that can be read again.
_TRIES = 4  # The number of tries for a commit whose objects are removed meanwhile.


@dataclass(frozen=True)
class CommitRequest:
    """The checked arguments of an update."""

    message: str
    tags: Mapping[str, str]
    inputs: tuple[Input, ...]
    code: Code | None
    txn: tuple[str, int] | None = None
    who: Who = NOBODY
    replaces: int = 0
    spares: tuple[int, ...] = ()
    branch: tuple[int, str | None] = (0, None)

    def note(self, uuid: str, kind: DatasetType, read: Ingested) -> Note:
        """Return the note of the commit. Its inputs include the source, after it was read."""

        def inputs() -> Sequence[Input]:
            return [replace(one, uri=printable(one.uri)) for one in (*read.inputs(), *self.inputs)]

        return Note(
            uuid,
            type_key(kind),
            self.message,
            self.tags,
            inputs,
            self.code,
            self.txn,
            self.who,
            self.replaces,
            self.spares,
            self.branch,
        )


def commit_request(
    home: Home,
    message: str,
    tags: Mapping[str, str] | None,
    inputs: Sequence[Any],
    code: Code | str | None,
    txn: tuple[str, int] | None = None,
    *,
    replaces: int = 0,
) -> CommitRequest:
    """Return the checked arguments of an update; errors name the argument."""
    home.limits.require_text("message", message)
    checked = home.limits.require_tags({} if tags is None else tags)
    if isinstance(inputs, str | bytes) or not isinstance(inputs, Sequence):
        raise InvalidTypeError(
            argument="inputs", reason=f"a list was expected, not {type(inputs).__name__}"
        )
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
    return CommitRequest(message, checked, named, known, txn, home.who, replaces)


# Adding --------------------------------------------------------------------------------------


def create_dataset(
    home: Home,
    kind: DatasetType,
    request: CommitRequest,
    source: Any,
    *,
    name: str,
    description: str | None,
    txn: tuple[str, int] | None,
    owner: str | None = None,
    result_of: int | None = None,
) -> DatasetState:
    """Create a data set, or return the one that was made with the same `txn`."""
    command = Create("", name, kind.name, description, txn, owner=owner, result_of=result_of)

    def made() -> DatasetState:
        return _create(home, kind, request, source, command)

    return _again_if_removed(source, made)


def _create(
    home: Home, kind: DatasetType, request: CommitRequest, source: Any, command: Create
) -> DatasetState:
    state = home.ledger.state()
    made = by_txn(state, command.txn)
    if made is not None:
        if has_removals(state) and not made.purged:
            require_whole_commit(home, made.dataset_id, 1)
        return made
    require_free_name(state, command.name)
    uuid = home.effects.uuid()
    folder = home.store_of(f"data/{uuid}")
    command = replace(command, uuid=uuid)
    try:
        snapshot, objects = _make_table(home, kind, request, source, command, state.cleared)
    except BaseException as error:  # Nothing refers to the table yet.
        clean_after(error, lambda: delete_tree(folder))
        if isinstance(error, TxlogError):
            state = home.ledger.state()
            if uuid in state.swept_tables:
                raise swept_table(state, uuid) from error
        raise
    try:
        state = _register(home, command, objects)
    except OutcomeUnknownError:
        raise  # The data set may exist already.
    except TxlogError as error:
        clean_after(error, lambda: delete_tree(folder))
        raise
    made = by_txn(state, command.txn) or state.find(uuid)
    if made.uuid != uuid:  # Another process has meanwhile created it with the same `txn`.
        tidied(lambda: delete_tree(folder))
        return made
    home.keep(uuid, snapshot)
    return _require_not_purged(home, made.dataset_id)


def _register(home: Home, command: Create, objects: Held | None) -> LedgerState:
    """Append the event `created`, after which every process knows that the objects are in use."""
    while True:
        cleared = None if objects is None else objects.cleared
        try:
            return home.record(replace(command, cleared=cleared))
        except CommitConflictError as error:
            if error.rule != CLEARED_RULE or objects is None:
                raise
            objects.require(error.version)


def _make_table(
    home: Home,
    kind: DatasetType,
    request: CommitRequest,
    source: Any,
    command: Create,
    cleared: int,
) -> tuple[Snapshot, Held | None]:
    """Create the table of a data set, with the first commit if there is a source.

    On an error the caller deletes the folder.
    """
    context = home.context(command.uuid)
    read = None if source is None else _ingest(home, kind, source)
    columns = kind.ingestion if read is None else read.schema
    if columns is None:
        raise InvalidInputError(
            argument="source",
            reason=f"a data set of the type {kind.name} takes its columns from its first rows",
            remedy="Give the source of the first commit",
        )
    schema = pa.schema([pa.field(COMMIT_ID, pa.int32()), *columns], columns.metadata)
    table = create_table(
        context,
        schema,
        partition_by=[COMMIT_ID],
        properties={**PROPERTIES, TYPE_PROPERTY: type_key(kind)},
        name=command.name,
        description=command.description,
    )
    if read is None:
        return table.snapshot, None
    note = request.note(command.uuid, kind, read)
    operation = AddCommit(read.reader, note, kind.statistics())
    objects = Held(home, read.objects, cleared)
    execute(table, operation, user_metadata=request.who.commit_info(request.message), refresh=False)
    return table.snapshot, objects


def update(
    home: Home,
    state: DatasetState,
    kind: DatasetType,
    request: CommitRequest,
    source: Any,
    schema_mode: SchemaMode,
) -> Commit:
    """Add a commit, or return the one that was made with the same `txn`."""
    require_no_rehearsal()
    return _again_if_removed(
        source, lambda: _update(home, state, kind, request, source, schema_mode)
    )


def _update(
    home: Home,
    state: DatasetState,
    kind: DatasetType,
    request: CommitRequest,
    source: Any,
    schema_mode: SchemaMode,
) -> Commit:
    uuid, txn = state.uuid, request.txn
    cleared = home.ledger.state().cleared
    table = home.table(uuid)
    known = _known_with(home, state, table.snapshot, txn)
    if known is not None:
        return known
    read = _ingest(home, kind, source, table.schema)
    operation = AddCommit(
        read.reader,
        request.note(uuid, kind, read),
        kind.statistics(),
        schema_mode,
        require=Held(home, read.objects, cleared).require_at,
    )
    try:
        outcome = execute(
            table,
            operation,
            txn=txn,
            user_metadata=request.who.commit_info(request.message),
            refresh=False,
        )
    except (OutcomeUnknownError, NotFoundError):  # A purge may have deleted the table.
        _require_not_purged(home, state.dataset_id)
        raise
    home.keep(uuid, table.snapshot)
    if outcome.skipped:
        assert txn is not None
        return _made_before(home, state.dataset_id, table.snapshot, txn)
    assert operation.commit is not None
    _require_not_purged(home, state.dataset_id)
    return operation.commit


def made_with(home: Home, state: DatasetState, txn: tuple[str, int] | None) -> Commit | None:
    """Return the commit that was made with a `txn`, or None.

    Raises
    ------
    InvalidInputError
        A later version of the application is recorded, but not this one; or its `Idempotency-Key`
        belongs to another request.
    """
    return None if txn is None else _known_with(home, state, home.snapshot(state.uuid), txn)


def _known_with(
    home: Home, state: DatasetState, snapshot: Snapshot, txn: tuple[str, int] | None
) -> Commit | None:
    recorded = None if txn is None else snapshot.transaction_version(txn[0])
    if txn is None or recorded is None or txn[1] > recorded:
        return None
    return _made_before(home, state.dataset_id, snapshot, txn)


def _again_if_removed(source: Any, act: Callable[[], T]) -> T:
    """Call `act` again if a purge or a sweep removed its files and the source can be read again."""
    for _ in range(_TRIES - 1):
        try:
            return act()
        except CommitConflictError as error:
            is_lasting = source is None or isinstance(source, _LASTING)
            if not is_lasting or error.rule not in (SWEPT_RULE, CLEARED_RULE):
                raise
    return act()


def _ingest(
    home: Home, kind: DatasetType, source: Any, columns: pa.Schema | None = None
) -> Ingested:
    return ingest(
        kind,
        source,
        sources=home.sources,
        limits=home.limits,
        store=home.store,
        columns=columns,
    )


def _made_before(home: Home, dataset_id: int, snapshot: Snapshot, txn: tuple[str, int]) -> Commit:
    """Return the commit that was made with a `txn`, unless a purge removed bytes of it."""
    require_same_request(txn, snapshot.transaction_version(txn[0]))
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
    if has_removals(state) and found.commit_id not in dataset.purged_commits:
        require_whole_commit(home, dataset_id, found.commit_id)
    return found


def has_removals(state: LedgerState) -> bool:
    """Return whether a purge or a sweep has ever removed something."""
    purged = (one.purged or one.purged_commits for one in state.datasets.values())
    return bool(state.cleared or any(purged))


def require_whole_commit(home: Home, dataset_id: int, commit_id: int) -> None:
    """Raise if objects of a commit are gone.

    Raises
    ------
    NotFoundError
        The data set was purged.
    DataFileError
        An object of the commit is missing.
    """
    dataset = _require_not_purged(home, dataset_id)
    objects = objects_of(home, dataset, col(COMMIT_ID) == lit(commit_id))
    if missing := missing_of(home.store, objects):
        raise DataFileError(
            path=home.uri(missing[0]),
            reason=f"commit {commit_id} refers to {len(missing)} contents that are gone",
            remedy="Restore the files from a backup; or hide or purge this commit, and add it "
            "again",
        )


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
    home.record(Mark("purged", dataset.dataset_id))
    objects: set[str] = set()
    with suppress(NotFoundError, LogCorruptError, DataFileError):
        # An interrupted purge may have left half of the table. Its objects were deleted before.
        objects = objects_of(home, dataset)
    remove_unused(home, objects)
    delete_tree(home.store_of(f"sets/{dataset.uuid}"))
    # The table is deleted last: a repeated purge finds the objects in it.
    delete_tree(home.store_of(f"data/{dataset.uuid}"))


def purge_commit(home: Home, dataset: DatasetState, commit_id: int) -> None:
    """Remove the rows of a commit, and the training sets that contain them."""
    home.record(Mark("purged", dataset.dataset_id, commit_id))
    is_it = col(COMMIT_ID) == lit(commit_id)
    remove_unused(home, objects_of(home, dataset, is_it))
    sets = home.store_of(f"sets/{dataset.uuid}")
    made = [file.name for file in sets.list_tree("")]
    # The list is older than this state, so the state knows each training set of the list.
    kept = home.ledger.state().dataset(dataset.dataset_id).sets
    sets.delete([name for name in made if name.partition("/")[0] not in kept])
    table = home.table(dataset.uuid)
    _delete_rows(table, is_it, home.who.commit_info(f"purge commit {commit_id}"))
    home.keep(dataset.uuid, table.snapshot)
    context_of(table).store.delete(_files_of(table, commit_id))


def _delete_rows(table: Table, where: Expression, why: dict[str, str]) -> None:
    """Delete rows of an append-only table: unset the property, delete, set it again."""
    while table.count(where):
        set_property(table, _APPEND_ONLY, "false")
        try:
            table.delete(where, user_metadata=why)
        except UnsupportedFeatureError as error:
            if error.features != ("appendOnly",):  # Another purge may have set the property again.
                raise
        table.refresh()
    while table.properties[_APPEND_ONLY] != "true":
        set_property(table, _APPEND_ONLY, "true")


def finish_purges(home: Home, dataset: DatasetState) -> None:
    """Finish the purges of a data set that were interrupted."""
    if dataset.purged:
        stores = (home.store_of(f"{part}/{dataset.uuid}") for part in ("sets", "data"))
        if any(next(iter(store.list_tree("")), None) is not None for store in stores):
            purge_dataset(home, dataset)
    elif dataset.purged_commits:
        store = home.store_of(f"data/{dataset.uuid}")
        for commit_id in sorted(dataset.purged_commits):
            folder = folder_of(commit_id)
            if next(iter(store.list_tree(folder)), None) is not None:
                purge_commit(home, dataset, commit_id)


def _files_of(table: Table, commit_id: int) -> list[str]:
    """Return the files with rows of a purged commit: those in the log, and those in its folder."""
    name = table.snapshot.physical_partition_columns[0]
    gone = removed_files(table)
    found = {
        decode_path(path)
        for path, values in zip(
            gone["path"].to_pylist(), gone["partition_values"].to_pylist(), strict=True
        )
        if dict(values or ()).get(name) == str(commit_id)
    }
    folder = folder_of(commit_id)
    found |= {f"{folder}/{file.name}" for file in context_of(table).store.list_tree(folder)}
    return sorted(found)
