"""Create a table, empty or with data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from txlog.actions.file import Add
from txlog.actions.table import Metadata, Protocol
from txlog.commit.intent import Intent
from txlog.commit.loop import Committed, commit
from txlog.effects import Effects
from txlog.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    UnsupportedFeatureError,
)
from txlog.expressions.tree import Expression
from txlog.protocol.access import new_protocol, with_features
from txlog.protocol.properties import RECORDED, Properties, split_features, validate_properties
from txlog.protocol.row_tracking import ROW_ID_COLUMN, ROW_VERSION_COLUMN
from txlog.schema.json import schema_json
from txlog.schema.types import StructType
from txlog.schema.widening import require_known_changes
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store
from txlog.writing.append import write_metrics
from txlog.writing.constraints import constraints_of
from txlog.writing.data import incoming, require_columns
from txlog.writing.files import check_partitioning, discard_files, discarding, require_storable
from txlog.writing.operation import (
    AppTransaction,
    Done,
    Place,
    Transaction,
    done,
    query_actions,
    require_transaction,
    txn_action,
)
from txlog.writing.options import WriteOptions
from txlog.writing.plan import plan_write
from txlog.writing.stats_columns import require_stats_columns

_DELETION_VECTORS = "delta.enableDeletionVectors"


def new_metadata(
    schema: StructType,
    *,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    name: str | None,
    description: str | None,
    effects: Effects,
) -> Metadata:
    """Check the arguments for a new table, and return its metadata.

    Deletion vectors are enabled unless the properties say otherwise. With row tracking, the
    columns of moved rows' ids and versions get names that no other column has.

    Raises
    ------
    InvalidInputError
        The schema, the partitioning or a property is wrong.
    """
    require_columns(schema)
    check_partitioning(schema, partition_by)
    require_storable(schema, partition_by)
    validate_properties(properties)
    _require_not_recorded(properties)
    require_stats_columns(schema, partition_by, Properties(properties))
    configuration: dict[str, str | None] = {_DELETION_VECTORS: "true", **properties}
    if Properties(configuration).get("delta.enableRowTracking"):
        configuration[ROW_ID_COLUMN] = f"_row-id-col-{effects.uuid()}"
        configuration[ROW_VERSION_COLUMN] = f"_row-commit-version-col-{effects.uuid()}"
    metadata = Metadata(
        id=effects.uuid(),
        name=name,
        description=description,
        schema_string=schema_json(schema),
        partition_columns=list(partition_by),
        created_time=effects.now_ms(),
        configuration=configuration,
    )
    require_known_changes(schema, path="schema")
    _protocol(
        schema, configuration
    )  # Raises, before files are written, if txlog cannot write such a table.
    try:
        constraints_of(metadata, schema)
    except UnsupportedFeatureError as error:
        raise InvalidInputError(
            argument="properties", reason=error.reason, remedy="Correct the constraint"
        ) from error
    return metadata


def _require_not_recorded(properties: Mapping[str, str]) -> None:
    recorded = sorted(properties.keys() & RECORDED)
    if recorded:
        raise InvalidInputError(
            argument="properties",
            field=recorded[0],
            reason=f"{', '.join(recorded)}: writers of a table record this themselves",
            remedy="Leave it out",
        )


def create_intent(
    metadata: Metadata,
    schema: StructType,
    *,
    effects: Effects,
    adds: tuple[Add, ...] = (),
    txn: Transaction | None = None,
    metrics: Mapping[str, int] | None = None,
    user_metadata: str | None = None,
) -> Intent:
    """Return the intent of a table's version 0."""
    protocol, kept = _protocol(schema, metadata.configuration)
    metadata = metadata.model_copy(update={"configuration": kept})
    return Intent(
        operation="CREATE TABLE AS SELECT" if adds else "CREATE TABLE",
        read_version=-1,
        kind="append",  # Never judged: if a table is there already, creating fails (CON-1).
        protocol=protocol,
        metadata=metadata,
        adds=adds,
        txn=txn_action(txn, effects),
        query_txns=query_actions(txn, effects),
        parameters=_parameters(metadata),
        metrics=metrics or {},
        user_metadata=user_metadata,
    )


def _protocol(
    schema: StructType, configuration: Mapping[str, str | None]
) -> tuple[Protocol, dict[str, str | None]]:
    """Return the protocol of a new table, and the properties that it keeps.

    Raises
    ------
    InvalidInputError
        txlog cannot write such a table.
    """
    features, kept = split_features(configuration)
    protocol = new_protocol(schema, Properties(kept))
    return (with_features(protocol, features) if features else protocol), kept


def _parameters(metadata: Metadata) -> dict[str, Any]:
    return {
        "partitionBy": metadata.partition_columns,
        "properties": metadata.configuration,
        "description": metadata.description,
        "isManaged": "false",
    }


def create(
    place: Place,
    schema: StructType,
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    name: str | None = None,
    description: str | None = None,
) -> Snapshot:
    """Create an empty table and return its version 0.

    Raises
    ------
    AlreadyExistsError
        There is a table already, or another writer was quicker.
    InvalidInputError
        The schema, the partitioning or a property is wrong.
    """
    place.store.require_writable()
    metadata = new_metadata(
        schema,
        partition_by=partition_by,
        properties=properties or {},
        name=name,
        description=description,
        effects=place.effects,
    )
    if existing(place.store) is not None:
        raise already_exists(place.store)
    outcome = commit(
        place.store,
        None,
        create_intent(metadata, schema, effects=place.effects),
        effects=place.effects,
    )
    if isinstance(outcome, Committed):
        return outcome.snapshot
    raise already_exists(place.store)


def write_new_table(
    place: Place,
    data: Any,
    *,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    name: str | None,
    description: str | None,
    txn: AppTransaction | None,
    options: WriteOptions,
    allow_existing: bool,
    where: Expression | None = None,
) -> Done | None:
    """Create a table that holds data in its version 0.

    Every row must satisfy `where`, if there is one.

    Returns None if another writer made the table meanwhile and `allow_existing` is set; the data
    is then still to be written, unless it was a stream and is used up.

    Raises
    ------
    AlreadyExistsError
        Another writer made the table meanwhile.
    """
    require_transaction(txn)
    place.store.require_writable()
    taken = incoming(data, None, None)
    metadata = new_metadata(
        taken.schema,
        partition_by=partition_by,
        properties=properties,
        name=name,
        description=description,
        effects=place.effects,
    )
    plan = plan_write(metadata, taken.schema, options, replaced=where)
    adds = plan.write(place, taken.reader)
    return commit_new_table(
        place,
        metadata,
        taken.schema,
        adds,
        txn=txn,
        options=options,
        allow_existing=allow_existing,
    )


def commit_new_table(
    place: Place,
    metadata: Metadata,
    schema: StructType,
    adds: list[Add],
    *,
    txn: Transaction | None,
    options: WriteOptions,
    allow_existing: bool,
) -> Done | None:
    """Create a table from data files that are already written.

    They are deleted if another writer made the table meanwhile: then the answer is None, or an
    `AlreadyExistsError` unless `allow_existing` is set.
    """
    intent = create_intent(
        metadata,
        schema,
        effects=place.effects,
        adds=tuple(adds),
        txn=txn,
        metrics=write_metrics(adds),
        user_metadata=options.user_metadata,
    )
    with discarding(lambda: discard_files(place.store, adds)):
        outcome = commit(place.store, None, intent, effects=place.effects)
    if isinstance(outcome, Committed):
        return done(intent.operation, outcome.snapshot, outcome, skipped=False)
    discard_files(place.store, adds)
    if allow_existing:
        return None
    raise already_exists(place.store)


def existing(store: Store) -> Snapshot | None:
    """Return the latest snapshot of the table in a store, or None if there is none."""
    try:
        return load_snapshot(store)
    except NotFoundError:
        return None


def already_exists(store: Store) -> AlreadyExistsError:
    """Return the error for a table that is there already."""
    return AlreadyExistsError(
        path=store.root,
        reason="there is a Delta table already",
        remedy='Open it with txlog.Table, or write with mode "append" or "overwrite"',
    )
