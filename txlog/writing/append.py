"""Adding rows."""

from __future__ import annotations

from functools import partial
from typing import Any

from txlog.actions.file import Add
from txlog.actions.table import Metadata
from txlog.commit.intent import Intent
from txlog.commit.loop import run
from txlog.errors import InvalidInputError, UnsupportedFeatureError
from txlog.protocol.access import new_protocol, supports
from txlog.protocol.row_tracking import ROW_ID_COLUMN, ROW_VERSION_COLUMN
from txlog.schema.json import schema_json
from txlog.schema.types import StructType
from txlog.snapshot.snapshot import Snapshot
from txlog.writing.data import SchemaMode, incoming, merged_schema
from txlog.writing.dropped import require_not_dropped
from txlog.writing.files import discard_files, discarding
from txlog.writing.operation import (
    AppTransaction,
    Done,
    Place,
    Transaction,
    done,
    is_recorded,
    query_actions,
    require_table_writable,
    require_transaction,
    skip_recorded,
    txn_action,
)
from txlog.writing.options import WriteOptions
from txlog.writing.plan import RequireFit, plan_append, require_still_fits

_ROW_COLUMNS = (ROW_ID_COLUMN, ROW_VERSION_COLUMN)


def append(
    place: Place,
    snapshot: Snapshot,
    data: Any,
    *,
    schema_mode: SchemaMode = None,
    txn: AppTransaction | None = None,
    options: WriteOptions | None = None,
) -> Done:
    """Add rows to a table in one commit.

    Raises
    ------
    SchemaMismatchError
        The data does not fit the table; nothing was committed.
    InvalidInputError
        The schema would be replaced, but rows are only added.
    UnsupportedFeatureError
        The table may not be written by txlog.
    """
    options = options or WriteOptions()
    require_additive(schema_mode)
    require_transaction(txn)
    require_table_writable(snapshot, removes_rows=False)
    if recorded := skip_recorded(snapshot, txn):
        return recorded
    taken = incoming(data, snapshot.schema, schema_mode)
    plan = plan_append(snapshot, taken.schema, options)
    adds = plan.write(place, taken.reader)
    return commit_append(
        place, snapshot, adds, taken.schema, schema_mode=schema_mode, txn=txn, options=options
    )


def commit_append(
    place: Place,
    snapshot: Snapshot,
    adds: list[Add],
    schema: StructType,
    *,
    schema_mode: SchemaMode,
    txn: Transaction | None,
    options: WriteOptions,
    require_fit: RequireFit | None = None,
    owned: bool = True,
) -> Done:
    """Commit data files that are written already, for the table as `snapshot` has it.

    Parameters
    ----------
    require_fit
        Refuses versions of the table that the files do not fit. Default: those that differ from
        `snapshot` in what `require_still_fits` compares.
    owned
        Delete the files if the commit is refused or turns out to be recorded already.

    Raises
    ------
    CommitConflictError
        Another writer changed the table so that the files no longer fit it.
    """
    skipped = False
    require_fit = require_fit or partial(require_still_fits, written_for=snapshot)

    def discard() -> None:
        if owned:
            discard_files(place.store, adds)

    def build(base: Snapshot) -> Intent | None:
        nonlocal skipped
        require_table_writable(base, removes_rows=False)
        skipped = is_recorded(base, txn)
        if skipped:
            return None
        require_fit(base)
        metadata = evolved(base, schema) if schema_mode == "merge" else None
        intent = Intent(
            operation="WRITE",
            kind="append",
            read_version=base.version,
            adds=tuple(adds),
            metadata=metadata,
            txn=txn_action(txn, place.effects),
            query_txns=query_actions(txn, place.effects),
            parameters={"mode": "Append", "partitionBy": base.partition_columns},
            metrics=write_metrics(adds),
            user_metadata=options.user_metadata,
        )
        return options.stated(intent)

    with discarding(discard):
        after, committed = run(place.store, snapshot, build, effects=place.effects)
    if committed is None:
        discard()
    return done("WRITE", after, committed, skipped=skipped)


def require_additive(schema_mode: SchemaMode) -> None:
    """Refuse to replace the schema where no row is replaced.

    Raises
    ------
    InvalidInputError
        The mode is `overwrite`.
    """
    if schema_mode == "overwrite":
        raise InvalidInputError(
            argument="schema_mode",
            reason="the schema can be replaced only together with all rows",
            remedy='Use schema_mode="merge" to add columns, or overwrite the table',
        )


def evolved(base: Snapshot, schema: StructType) -> Metadata | None:
    """Return the metadata that makes room for new columns, or None if none are needed.

    Raises
    ------
    SchemaMismatchError
        Another writer has meanwhile added a column of the same name and another type.
    UnsupportedFeatureError
        The new columns need a table feature that the table does not have.
    """
    merged = merged_schema(base.schema, schema)
    if merged == base.schema:
        return None
    require_supported_types(base, merged)
    require_not_dropped(base.metadata, set(merged.names()) - set(base.schema.names()))
    return base.metadata.model_copy(update={"schema_string": schema_json(merged)})


def require_supported_types(base: Snapshot, schema: StructType) -> None:
    """Refuse a schema whose types need a feature that the table does not list.

    Raises
    ------
    UnsupportedFeatureError
        Names the features.
    """
    taken = {(base.metadata.configuration.get(name) or "").lower() for name in _ROW_COLUMNS}
    for name in schema.names():
        if name.lower() in taken:
            raise InvalidInputError(
                argument="schema",
                field=name,
                reason="files keep the ids or versions of rows under this name",
                remedy="Choose another name",
            )
    needed = new_protocol(schema, base.properties).reader_features or []
    lacking = tuple(name for name in needed if not supports(base.protocol, name))
    if lacking:
        raise UnsupportedFeatureError(
            path=base.root,
            features=lacking,
            reason=f"the new columns need features that the table lacks: {', '.join(lacking)}",
            remedy="Cast timestamps without zone to UTC, or make a new table",
        )


def write_metrics(adds: list[Add]) -> dict[str, int]:
    """Return Delta's usual metrics of written files."""
    return {
        "numFiles": len(adds),
        "numOutputRows": sum(add.num_records or 0 for add in adds),
        "numOutputBytes": sum(add.size for add in adds),
    }
