"""`write`: write data to a table, which is created if it does not exist."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from txlog.base.errors import (
    CommitConflictError,
    InvalidInputError,
    in_callers_words,
    require_flags,
    resource_errors,
)
from txlog.base.threads import Engine
from txlog.commit.app_versions import AppVersion, require_app_version
from txlog.commit.context import Context
from txlog.commit.intent import UserMetadata
from txlog.commit.operation import skip_recorded
from txlog.data_files.definition import Definition
from txlog.data_files.identity import Identity
from txlog.data_files.incoming import can_be_read_again
from txlog.data_files.modes import (
    PartitionMode,
    SchemaMode,
    WriteMode,
    WriteModes,
    computed_from_in,
    require_version_known,
)
from txlog.data_files.options import WriteOptions, as_names, as_options, as_schema
from txlog.expressions.sql import Where, as_expression
from txlog.expressions.zones import known_zone
from txlog.fragments.metadata import FragmentMetadata
from txlog.protocol.access import features_of
from txlog.protocol.properties import VERSIONS
from txlog.schema.types import StructType
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import threads_for
from txlog.store.branches import with_branch
from txlog.store.open import open_store
from txlog.table.handle import Handle
from txlog.table.row_verbs import OnError, keeper_of
from txlog.table.table import Table
from txlog.verbs.create import already_exists, existing, write_new_table
from txlog.verbs.fragments.workers import write_first_fragments, write_new_fragments
from txlog.verbs.properties import Asked

if TYPE_CHECKING:
    from txlog.verbs.constraints import OnConflict


@in_callers_words
def write(
    uri: str | os.PathLike[str],
    data: Any,
    mode: WriteMode = "error",
    *,
    partition_by: Sequence[str] | str | None = None,
    cluster_by: Sequence[str] | str | None = None,
    generated: Mapping[str, str] | None = None,
    identity: Mapping[str, Identity] | Sequence[str] | str | None = None,
    properties: Mapping[str, str] | None = None,
    name: str | None = None,
    description: str | None = None,
    where: Where = None,
    partition_mode: PartitionMode = "static",
    schema_mode: SchemaMode = None,
    computed_from: int | None = None,
    on_conflict: OnConflict = "error",
    on_error: OnError = "error",
    quarantine: Handle | str | os.PathLike[str] | None = None,
    options: WriteOptions | None = None,
    txn: AppVersion | None = None,
    user_metadata: UserMetadata | None = None,
    storage_options: Mapping[str, Any] | None = None,
    branch: str | None = None,
    engine: Engine | None = None,
    time_zone: str | None = None,
) -> Table:
    """Write data to a table, create the table if it does not exist, and return it.

    The table's `outcome` describes the write; it is None if `ignore` left the table unchanged.

    Parameters
    ----------
    mode
        What to do if the table exists: `append` to it, `overwrite` its rows, raise an `error`, or
        `ignore` the call. If the table already records `txn`, no mode changes anything.
    partition_by, cluster_by, generated, identity, properties, name, description
        The definition of a new table, as for `Table.create`. An existing table must already have
        it, but for name and description. The data has values for `identity` columns, so these are
        `Identity(explicit=True)`; otherwise create the table first. With `mode="overwrite"` and
        `schema_mode="overwrite"` it gets these partition columns.
    on_conflict
        With `mode="append"`, as for `Table.append`: `ignore` and `update` are for an existing table
        with one unique key.
    on_error, quarantine
        As for `Table.append`, also for a new table.
    branch, engine
        As for `Table`. The data itself is written by this process.
    time_zone
        As for `Table`: the zone of dates and times in `where`, and of the table that is returned.

    The other arguments and the errors are those of `Table.append` and `Table.overwrite`.
    """
    store = open_store(uri, with_branch(storage_options, branch))
    if time_zone is not None:
        known_zone(time_zone)  # It raises.
    context = Context(store, engine=engine or threads_for(store), time_zone=time_zone)
    predicate = as_expression(where, context.zone)
    modes = WriteModes(
        mode=mode, where=predicate, partition_mode=partition_mode, schema_mode=schema_mode
    )
    require_app_version(txn)
    stated = computed_from_in(mode, computed_from)
    if on_conflict != "error":
        from txlog.verbs.constraints import require_on_conflict

        require_on_conflict(on_conflict)
    if on_conflict != "error" and mode != "append":
        raise InvalidInputError(
            argument="on_conflict",
            reason=f"{on_conflict!r} is for rows that are appended, and the mode is {mode!r}",
            remedy="Leave it out, or append the rows",
        )
    definition = Definition(
        partition_by=partition_by,
        cluster_by=cluster_by,
        generated=generated,
        identity=identity,
        properties=properties,
        name=name,
        description=description,
    )
    keeper = keeper_of(context, on_error, quarantine)
    snapshot = existing(context.store)
    if stated is not None:
        latest = None if snapshot is None else snapshot.version
        require_version_known(stated, latest, context.store.root)
    if snapshot is None and on_conflict != "error":
        raise InvalidInputError(
            argument="on_conflict",
            reason=f"{on_conflict!r} needs a unique key, and there is no table yet",
            remedy="Create the table, and add a unique key to it first",
        )
    if snapshot is None:
        made = write_new_table(
            context,
            data,
            definition,
            options=options,
            txn=txn,
            user_metadata=user_metadata,
            allow_existing=mode != "error",
            where=predicate,
            quarantine=keeper,
        )
        if made is not None:
            return Table._made(context, made)
        if mode != "ignore" and not can_be_read_again(data):
            raise CommitConflictError(
                version=0,
                rule="CON-1",
                reason="another writer created the table first, and the data may be a stream, "
                "which can be read only once",
                remedy="Write again, with a new stream",
            )
        snapshot = load_snapshot(context.store)
    recorded = skip_recorded(snapshot, txn)
    if recorded is not None:
        return Table._made(context, recorded)
    table = Table._of(context, snapshot)
    if mode == "ignore":
        return table
    if mode == "error":
        raise already_exists(context.store)
    require_defined(snapshot, definition, modes)
    shared: dict[str, Any] = {
        "schema_mode": schema_mode,
        "txn": txn,
        "options": options,
        "user_metadata": user_metadata,
        "on_error": on_error,
        "quarantine": quarantine,
    }
    if mode == "append":
        table.append(data, on_conflict=on_conflict, **shared)
    else:
        columns = partition_by if modes.replaces_schema else None
        table.overwrite(
            data,
            predicate,
            partition_mode=partition_mode,
            partition_by=columns,
            computed_from=computed_from,
            **shared,
        )
    return table


def require_defined(snapshot: Snapshot, definition: Definition, modes: WriteModes) -> None:
    """Raise if an existing table differs from the table that the caller would create.

    Raises
    ------
    InvalidInputError
        The error names the argument.
    """
    columns = None if modes.replaces_schema else definition.partition_by
    require_same(snapshot, columns, definition.properties or {}, definition.cluster_by)
    if modes.replaces_schema:
        _require_undefined(definition)
    else:
        _require_same_columns(snapshot, definition)


def require_same(
    snapshot: Snapshot,
    partition_by: Sequence[str] | str | None,
    properties: Mapping[str, str],
    cluster_by: Sequence[str] | str | None = None,
) -> None:
    """Raise if an existing table differs from the table that the caller would create.

    Raises
    ------
    InvalidInputError
        The error names the argument.
    """
    wanted = list(as_names(partition_by))
    folded = [name.lower() for name in wanted]
    if partition_by is not None and folded != [one.lower() for one in snapshot.partition_columns]:
        raise InvalidInputError(
            argument="partition_by",
            reason=f"the table is partitioned by {snapshot.partition_columns or 'nothing'}, "
            f"not by {wanted}",
            remedy="Omit the argument; only a new table can be partitioned",
        )
    if cluster_by is not None:
        from txlog.expressions.bind import column_path
        from txlog.verbs.mapped_columns import clustering_columns, logical_path

        columns = as_names(cluster_by, argument="cluster_by")
        held_columns = [logical_path(snapshot, path) for path in clustering_columns(snapshot)]
        given_columns = [column_path(snapshot.schema, name) for name in columns]
        if _folded(held_columns) != _folded(given_columns):
            raise InvalidInputError(
                argument="cluster_by",
                reason=f"the table is not clustered by {', '.join(columns) or 'nothing'}",
                remedy="Omit the argument, or call alter.cluster_by",
            )
    current = snapshot.metadata.configuration
    held = {name for name, value in properties.items() if current.get(name) == value}
    given = {name: value for name, value in properties.items() if name not in held}
    asked = Asked.of(given, has_rows=False, warns=False)
    other = [*asked.stored, *sorted(asked.features - features_of(snapshot.protocol))]
    protocol = snapshot.protocol
    have = (protocol.min_reader_version, protocol.min_writer_version)
    versions = zip(VERSIONS, asked.versions, have, strict=True)
    other += [name for name, least, now in versions if least > now]
    if other:
        raise InvalidInputError(
            argument="properties",
            reason=f"the table has other values of {', '.join(other)}",
            remedy="Omit them, or change the properties of the table first",
        )


def _require_same_columns(snapshot: Snapshot, definition: Definition) -> None:
    """Raise if an existing table lacks generated or identity columns that the caller names."""
    wanted = definition.schema_of(snapshot.schema)
    for asked, field in zip(wanted.fields, snapshot.schema.fields, strict=True):
        if asked.metadata != field.metadata:
            raise InvalidInputError(
                argument="identity" if asked.is_identity else "generated",
                field=field.name,
                reason=f"the column {field.name} of the table is defined in another way",
                remedy="Omit the argument; only a new table can be defined",
            )


def _require_undefined(definition: Definition) -> None:
    """Raise if columns are defined for an overwrite that takes the schema from the data."""
    for argument in ("generated", "identity"):
        if getattr(definition, argument):
            raise InvalidInputError(
                argument=argument,
                reason="the table exists, and an overwrite of its schema takes the columns as the "
                "data has them",
                remedy="To define columns, make the table anew with Table.create(…, "
                'mode="overwrite"), and append the data',
            )


def _folded(paths: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [tuple(name.lower() for name in path) for path in paths]


@in_callers_words
def convert_to_delta(
    uri: str | os.PathLike[str],
    partition_by: pa.Schema | StructType | Mapping[str, pa.DataType] | None = None,
    mode: Literal["error", "ignore"] = "error",
    *,
    partition_strategy: Literal["hive", "directory"] = "hive",
    name: str | None = None,
    description: str | None = None,
    properties: Mapping[str, str] | None = None,
    collect_stats: bool = True,
    allow_truncated_timestamps: bool = False,
    txn: AppVersion | None = None,
    user_metadata: UserMetadata | None = None,
    storage_options: Mapping[str, Any] | None = None,
    engine: Engine | None = None,
) -> Table:
    """Convert the Parquet files below a folder to a table, and return it; data is not rewritten.

    Files may lack columns of other files, but a column must have the same type in all files.
    Timestamps of the physical type INT96 are instants, as in Spark. Of files that Spark wrote,
    Spark's schema in the footer says which columns are variants.
    Folders such as `day=2024-01-01` are partitions. Files and folders that begin with `_` or `.`
    are ignored.

    Parameters
    ----------
    partition_by
        The partition columns with their types. Default: those of the folder names, as integers,
        dates or strings.
    partition_strategy
        `directory` means that folders are only the values of `partition_by` in order, as in
        `2024/01`.
    mode
        `ignore` returns an existing table.
    collect_stats
        Give the files statistics. Their footers tell most of them; columns of floating point
        numbers are read.
    allow_truncated_timestamps
        Read nanoseconds as microseconds. Otherwise they need the feature `timestampNanos` in
        `properties`.

    The other arguments are those of `write`.

    Raises
    ------
    AlreadyExistsError
        There is a table already.
    NotFoundError
        The folder has no Parquet file.
    SchemaMismatchError
        A column has two types; both files are named. Or it has nanoseconds. Nothing was
        committed.
    InvalidInputError
        The folders have other partition columns, or a value does not have the column's type.
    """
    require_flags(
        collect_stats=collect_stats, allow_truncated_timestamps=allow_truncated_timestamps
    )
    from txlog.verbs.convert import convert

    if mode not in ("error", "ignore"):
        raise InvalidInputError(
            argument="mode", reason=f"{mode!r} is not error or ignore", remedy="Choose one of them"
        )
    if partition_strategy not in ("hive", "directory") or (
        partition_strategy == "directory" and partition_by is None
    ):
        raise InvalidInputError(
            argument="partition_strategy",
            reason=f"{partition_strategy!r} is not hive, or directory with partition_by",
            remedy="Pass the columns whose values are the folder names",
        )
    store = open_store(uri, storage_options)
    context = Context(store, engine=engine or threads_for(store))
    if mode == "ignore" and Table.exists(uri, storage_options):
        return Table(uri, storage_options=storage_options, engine=engine)
    schema = None
    if partition_by is not None:
        is_schema = isinstance(partition_by, pa.Schema | StructType)
        schema = as_schema(partition_by if is_schema else pa.schema(partition_by))
    done = convert(
        context,
        partition_by=schema,
        strategy=partition_strategy,
        properties=properties,
        name=name,
        description=description,
        txn=txn,
        user_metadata=user_metadata,
        collect_stats=collect_stats,
        truncates=allow_truncated_timestamps,
    )
    return Table._made(context, done)


@in_callers_words
def write_fragments(
    data: Any,
    table: Table | str | os.PathLike[str],
    *,
    partition_by: Sequence[str] | str | None = None,
    properties: Mapping[str, str] | None = None,
    options: WriteOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> list[FragmentMetadata]:
    """Write data as new fragments of a table, without committing them.

    Any process can do this. Send the result to one driver as JSON (`to_json`, `from_json`), which
    commits it: `table.commit(FragmentOperation.Append(fragments))`, or `Overwrite`, or `Rewrite`.
    No version refers to the files of fragments that are never committed.

    If there is no table yet, commit the fragments with `Table.create(uri, schema, …,
    fragments=fragments)`.

    Parameters
    ----------
    table
        The table, or the location of an existing or future table.
    partition_by, properties
        Settings of a future table. An existing table has its own.

    Raises
    ------
    SchemaMismatchError
        The data does not fit the table. No file remains.
    InvalidInputError
        The table cannot be created, or an existing one has other partition columns.
    """
    with resource_errors():
        if isinstance(table, Table):
            context, snapshot = Context(table._context.store), table.snapshot
        else:
            context = Context(open_store(table, storage_options))
            found = existing(context.store)
            if found is None:
                return write_first_fragments(
                    context,
                    data,
                    as_options(options),
                    Definition(partition_by=partition_by, properties=properties),
                )
            snapshot = found
        require_same(
            snapshot, None if partition_by is None else as_names(partition_by), properties or {}
        )
        return write_new_fragments(context, snapshot, data, as_options(options))
