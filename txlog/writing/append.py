"""Adding rows."""

from __future__ import annotations

from typing import Any

import orjson

from txlog.actions import Add, Metadata
from txlog.commit import Intent, run
from txlog.errors import UnsupportedFeatureError
from txlog.protocol import new_protocol, supports
from txlog.schema import StructType, schema_json
from txlog.snapshot import Snapshot
from txlog.writing.data import SchemaMode, incoming, merged_schema
from txlog.writing.files import discard_files, discarding
from txlog.writing.operation import (
    AppTransaction,
    Done,
    Place,
    done,
    is_recorded,
    require_table_writable,
    require_transaction,
    skip_recorded,
    txn_action,
)
from txlog.writing.options import WriteOptions
from txlog.writing.plan import plan_write, require_still_fits


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
    UnsupportedFeatureError
        The table may not be written by txlog.
    """
    options = options or WriteOptions()
    require_transaction(txn)
    require_table_writable(snapshot, removes_rows=False)
    if recorded := skip_recorded(snapshot, txn):
        return recorded
    taken = incoming(data, snapshot.schema, schema_mode)
    plan = plan_write(snapshot.metadata, taken.schema, options)
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
    txn: AppTransaction | None,
    options: WriteOptions,
) -> Done:
    """Commit data files that are written already, for the table as `snapshot` has it.

    They are deleted if the commit is refused or turns out to be recorded already.

    Raises
    ------
    CommitConflictError
        Another writer changed the table so that the files no longer fit it.
    """
    skipped = False

    def build(base: Snapshot) -> Intent | None:
        nonlocal skipped
        require_table_writable(base, removes_rows=False)
        skipped = is_recorded(base, txn)
        if skipped:
            return None
        require_still_fits(base, snapshot)
        metadata = evolved(base, schema) if schema_mode == "merge" else None
        return Intent(
            operation="WRITE",
            read_version=base.version,
            kind="append",
            adds=tuple(adds),
            metadata=metadata,
            txn=txn_action(txn, place.effects),
            parameters={"mode": "Append", "partitionBy": base.partition_columns},
            metrics=write_metrics(adds),
            user_metadata=options.user_metadata,
        )

    with discarding(lambda: discard_files(place.store, adds)):
        after, committed = run(place.store, snapshot, build, effects=place.effects)
    if committed is None:
        discard_files(place.store, adds)
    return done("WRITE", after, committed, skipped=skipped)


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
    return base.metadata.model_copy(update={"schema_string": schema_json(merged)})


def require_supported_types(base: Snapshot, schema: StructType) -> None:
    """Refuse a schema whose types need a feature that the table does not list.

    Raises
    ------
    UnsupportedFeatureError
        Names the features.
    """
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
        "numOutputRows": sum(rows_in(add) for add in adds),
        "numOutputBytes": sum(add.size for add in adds),
    }


def rows_in(add: Add) -> int:
    """Return the number of rows that a file's statistics state."""
    return int(orjson.loads(add.stats or "{}").get("numRecords", 0))
