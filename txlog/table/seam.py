"""What `txlog.extend` has about tables: open them in a store, and execute operations on them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txlog.base.effects import REAL, Effects
from txlog.base.errors import (
    InvalidInputError,
    LogCorruptError,
    TxlogError,
    require_whole,
    resource_errors,
)
from txlog.base.threads import Engine
from txlog.commit.context import Context
from txlog.log.names import LOG_FOLDER
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.time_travel import snapshot_at
from txlog.store.base import Store, map_many, threads_for
from txlog.store.open import open_store
from txlog.table.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from txlog.commit.app_versions import AnyAppVersion
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Done, Operation, Outcome
    from txlog.data_files.options import WriteOptions
    from txlog.fragments.metadata import FragmentMetadata
    from txlog.log.names import LogFile
    from txlog.snapshot.commits import Commit
    from txlog.verbs.facts import TableFacts


def open_table(
    store: Store,
    version: int | str | None = None,
    timestamp: str | datetime | int | None = None,
    *,
    snapshot: Snapshot | None = None,
    effects: Effects = REAL,
    engine: Engine | None = None,
) -> Table:
    """Return the table in a store; `Table(uri)` opens the store of a URI.

    Parameters
    ----------
    version, timestamp
        As for `Table`.
    snapshot
        A version of the table that the caller has, instead of `version` and `timestamp`. The log is
        not read.
    effects
        The clock, ids and randomness of the table's operations.
    engine
        As for `Table`.

    Raises
    ------
    NotFoundError, UnsupportedFeatureError, LogCorruptError
        As for `Table`.
    """
    if snapshot is not None and (version, timestamp) != (None, None):
        raise InvalidInputError(
            argument="snapshot",
            reason="it is a version of the table, and a version or a timestamp is given, too",
            remedy="Pass one of them",
        )
    context = Context(store, effects, engine or threads_for(store))
    return Table._of(context, snapshot or snapshot_at(store, version, timestamp))


def open_snapshot(store: Store) -> Snapshot | None:
    """Return the latest version of the table in a store as a value; None if there is no table.

    Raises
    ------
    UnsupportedFeatureError, LogCorruptError
        As for `Table`.
    """
    from txlog.verbs.create import existing

    return existing(store)


def create_table(
    context: Context,
    schema: pa.Schema,
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    name: str | None = None,
    description: str | None = None,
) -> Table:
    """Create an empty table in a store; arguments and errors as for `Table.create`."""
    from txlog.data_files.definition import Definition
    from txlog.data_files.options import as_schema
    from txlog.verbs.create import create

    definition = Definition(
        partition_by=partition_by, properties=properties, name=name, description=description
    )
    done = create(
        context,
        as_schema(schema, nanos=definition.keeps_nanos),
        definition,
    )
    return Table._made(context, done)


def table_at(context: Context, snapshot: Snapshot) -> Table:
    """Return the table at a version that need not be committed."""
    return Table._of(context, snapshot)


def settle(table: Table, done: Done) -> Outcome:
    """Move a table to the version after an operation, and do what follows a commit."""
    return table._finish(done)


def context_of(table: Table) -> Context:
    """Return the store, the effects and the engine of a table."""
    return table._context


def execute(
    table: Table,
    operation: Operation,
    *,
    txn: AnyAppVersion | None = None,
    user_metadata: UserMetadata | None = None,
    refresh: bool = True,
) -> Outcome:
    """Commit an operation on top of the latest version, and move the table to the new version.

    Afterwards a checkpoint is written, and indexes are merged, if they are due.

    Parameters
    ----------
    txn
        `(application, version)`. If the table records it already, nothing is done. Otherwise it is
        recorded, even if the operation has nothing to change.
    user_metadata
        Text for the commit, or a mapping of names to values, which become fields of `commitInfo`.
    refresh
        Whether to look for newer versions first. Pass False if the table was refreshed just now:
        newer versions are found at the commit.

    Raises
    ------
    InvalidInputError
        The operation has no name, or its intent contradicts itself; the error names the field.
    UnsupportedFeatureError
        txlog cannot write the table, or the table is append-only and rows would be removed.
    CommitConflictError
        Another writer's commit forbids the operation. Nothing was committed.
    RetriesExhaustedError
        Conflicts continued until the operation's deadline. Nothing was committed.
    OutcomeUnknownError
        The store's answer was lost. Written files are kept.

    Errors of the operation itself are raised too; then its `discard` is called first.
    """
    from txlog.commit.operation import execute

    base = table._latest() if refresh else table.snapshot
    done = execute(operation, table._context, base, txn=txn, user_metadata=user_metadata)
    return table._finish(done)


def open_sound(
    uri: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> tuple[Table, LogCorruptError | None]:
    """Return the newest version of a table that can be opened, and why the latest cannot.

    The error is None if this is the latest version. Use it to show what a damaged table still has,
    and to restore a version of it.

    Raises
    ------
    NotFoundError, UnsupportedFeatureError
        As for `Table`.
    LogCorruptError
        No version can be opened.
    """
    from txlog.snapshot.load import newest_sound

    store = open_store(uri, storage_options)
    with resource_errors():
        snapshot, cause = newest_sound(store)
    return open_table(store, snapshot=snapshot), cause


def read_commits(
    table: Table,
    start: int = 0,
    end: int | None = None,
    *,
    files: bool = True,
    skip_damaged: bool = False,
) -> Iterator[Commit]:
    """Yield the commits from one version to another, ascending; cleaned up ones are missing.

    Parameters
    ----------
    end
        The last version. Default: the table's version.
    files
        Whether to give the actions on files too. Without them, large commits are read faster.
    skip_damaged
        Whether damaged commits are missing too, with a `TxlogWarning`.

    Raises
    ------
    LogCorruptError
        A commit is damaged.
    """
    from txlog.snapshot.load import list_commits

    store, snapshot = table._context.store, table.snapshot
    start = require_whole("start", start)
    end = snapshot.version if end is None else require_whole("end", end)
    listed = [one for one in list_commits(store, snapshot, since=start) if one.version <= end]
    found = map_many(store, partial(_commit, store, files, skip_damaged), listed)
    return (commit for commit in found if commit is not None)


def _commit(store: Store, files: bool, skip_damaged: bool, file: LogFile) -> Commit | None:
    """Return a commit; None if it was cleaned up after it was listed."""
    from txlog.snapshot.commits import DamagedError, glance_at_commit, is_gone, read_commit
    from txlog.snapshot.load import warn_of_damage

    try:
        return (read_commit if files else glance_at_commit)(store, file)
    except LogCorruptError as error:
        if is_gone(error):
            return None
        if skip_damaged:
            warn_of_damage(DamagedError((file,), error))
            return None
        raise


def write_files(
    context: Context,
    data: Any,
    *,
    like: Snapshot | None = None,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    options: WriteOptions | None = None,
) -> list[FragmentMetadata]:
    """Write data as data files of the table in a store, without committing them.

    `Table.commit`, `Table.create(fragments=…)` or the `adds` of an `Intent` commit them. If nothing
    does, delete them.

    Parameters
    ----------
    data
        Anything that supports Arrow.
    like
        The version whose schema, partitioning and properties the files get. Default: those of a
        future table, which are given by the data, `partition_by` and `properties`.

    Raises
    ------
    SchemaMismatchError
        The data does not fit the version. No file remains.
    InvalidInputError
        The table cannot be created; or a partitioning or properties are given beside `like`.
    """
    from txlog.data_files.definition import Definition
    from txlog.data_files.options import WriteOptions
    from txlog.verbs.fragments.workers import write_first_fragments, write_new_fragments

    options = options or WriteOptions()
    if like is not None:
        if partition_by or properties:
            raise InvalidInputError(
                argument="partition_by" if partition_by else "properties",
                reason="the files get the partitioning and the properties of the version in like",
                remedy="Leave it out, or leave out like for the files of a future table",
            )
        return write_new_fragments(context, like, data, options)
    definition = Definition(partition_by=partition_by, properties=properties)
    return write_first_fragments(context, data, options, definition)


def table_facts(table: Table, sample: int | None = 8) -> TableFacts:
    """Return facts about a table's version: its files, history, log, skipping and findings.

    The log is read, and the table's folder is listed.

    Parameters
    ----------
    sample
        How many data files are opened to check their statistics; None means all.

    Raises
    ------
    LogCorruptError
        The files of the version cannot be read from the log.
    """
    from txlog.verbs.facts import gather

    return gather(table._context, table.snapshot, table.timestamp_ms, sample)


def removed_files(table: Table) -> pa.Table:
    """Return the files that have left the table and that the log of its version still names.

    Columns: `path` (as logged), `partition_values` (a map of names in files to texts) and
    `deletion_timestamp` (milliseconds since the epoch). A vacuum may have deleted their bytes.

    Raises
    ------
    LogCorruptError
        The files of the version cannot be read from the log.
    """
    names = ["path", "partition_values", "deletion_timestamp"]
    return table._open.files().tombstones.select(names)


def table_above(place: str | os.PathLike[str]) -> Path | None:
    """Return the folder of the table to which a path on the local disk belongs, or None.

    It is a file or folder below the table's folder, by its name or after its links are followed.
    Such files may have rows that the table no longer has.
    """
    plain = Path(place).absolute()
    try:
        real = plain.resolve()
    except (OSError, RuntimeError):  # A link to itself.
        real = plain
    for above in (*real.parents, *plain.parents):
        if (above / LOG_FOLDER).is_dir():
            return above
    return None


def far_table_above(uri: str, storage_options: Mapping[str, Any] | None = None) -> str | None:
    """Return the folder of the table to which a URI belongs in a store of objects, or None.

    One listing is requested for each folder above. A folder that may not be listed counts as none.
    """
    start = uri.find("://") + len("://")
    has_user = "@" in uri
    above = uri.rstrip("/").rpartition("/")[0]
    while len(above) > start and ("@" in above or not has_user):
        with suppress(TxlogError):
            store = open_store(above, storage_options)
            if next(iter(store.list_after(LOG_FOLDER, "")), None) is not None:
                return above
        above = above.rpartition("/")[0]
    return None
