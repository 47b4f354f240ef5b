"""Replacing a table: a new version that is as if the table had just been made, without rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txlog.actions.table import DomainMetadata, Metadata
from txlog.commit.intent import Intent, Reads
from txlog.commit.loop import run
from txlog.errors import InvalidInputError
from txlog.maintain.restore import CLUSTERING, OF_THE_LOG, STAMPS
from txlog.protocol.access import merged_protocol, require_writable
from txlog.protocol.properties import Properties
from txlog.schema.types import StructType
from txlog.snapshot.live_files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.writing.create import create_intent, new_metadata
from txlog.writing.operation import Done, Place, done, require_table_writable
from txlog.writing.vectors import removes_of


def replace_table(
    place: Place,
    snapshot: Snapshot,
    schema: StructType,
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    name: str | None = None,
    description: str | None = None,
) -> Done:
    """Give a table another schema, partitioning and properties, and take out all rows.

    Older versions stay: they can be read, and restored. The table keeps its id, and its protocol
    stays at least what it is. Arguments are those of `create`.

    Raises
    ------
    InvalidInputError
        The schema, the partitioning or a property is wrong, or a property would turn on in-commit
        timestamps, which older versions of the table do not have.
    UnsupportedFeatureError
        The table may not be written by txlog, or is append-only.
    """
    require_table_writable(snapshot, removes_rows=True)
    fresh = new_metadata(
        schema,
        partition_by=partition_by,
        properties=properties or {},
        name=name,
        description=description,
        effects=place.effects,
    )
    made = create_intent(fresh, schema, effects=place.effects)
    assert made.metadata is not None
    assert made.protocol is not None
    wanted, needed = made.metadata, made.protocol

    def build(base: Snapshot) -> Intent:
        require_table_writable(base, removes_rows=True)
        _require_same_stamps(base, wanted)
        held = base.metadata.configuration
        of_the_log = {key: held[key] for key in OF_THE_LOG if key in held}
        metadata = wanted.model_copy(
            update={
                "id": base.metadata.id,
                "configuration": {**wanted.configuration, **of_the_log},
            }
        )
        protocol = merged_protocol(base.protocol, needed)
        require_writable(protocol, metadata, schema, path=base.root)
        rows = load_files(place.store, base).live
        return Intent(
            operation="REPLACE TABLE",
            kind="overwrite",
            read_version=base.version,
            removes=tuple(removes_of(rows, place.effects.now_ms())),
            protocol=protocol if protocol != base.protocol else None,
            metadata=metadata,
            domains=_unclustered(base),
            reads=Reads(everything=True),
            parameters=made.parameters,
            metrics={"numRemovedFiles": rows.num_rows},
        )

    after, committed = run(place.store, snapshot, build, effects=place.effects)
    return done("REPLACE TABLE", after, committed, skipped=False)


def _require_same_stamps(base: Snapshot, wanted: Metadata) -> None:
    """Refuse to begin with in-commit timestamps.

    The metadata would have to name the version and the moment that they begin with, and a commit
    gets both only when it is written.
    """
    if Properties(wanted.configuration).get(STAMPS) and not base.is_active("inCommitTimestamp"):
        raise InvalidInputError(
            argument="properties",
            field=STAMPS,
            reason="the table has versions without in-commit timestamps",
            remedy="Leave out the property; only a table that is made can have them",
        )


def _unclustered(base: Snapshot) -> tuple[DomainMetadata, ...]:
    """Return what ends a table's clustering: the new columns need not be those of the old."""
    held = base.controls.domains.get(CLUSTERING)
    if held is None or held.removed:
        return ()
    return (held.model_copy(update={"removed": True}),)
