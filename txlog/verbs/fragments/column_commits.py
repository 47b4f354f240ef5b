"""Commit columns that workers wrote for fragments (rule FRG-26)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from txlog.actions.columns import decode_rows
from txlog.actions.file import Add
from txlog.actions.table import Metadata
from txlog.base.arrow import arrow_array, pc
from txlog.base.errors import InvalidInputError, LogCorruptError
from txlog.commit.intent import Intent
from txlog.data_files.column_files import outdated_files
from txlog.data_files.incoming import merged_schema
from txlog.data_files.write_plan import settled
from txlog.fragments.metadata import FragmentMetadata, column_fields
from txlog.fragments.rows import fragment_rows
from txlog.protocol.mapping import with_schema
from txlog.protocol.properties import require_not_dropped, still_dropped, with_dropped
from txlog.schema.arrow import from_arrow
from txlog.schema.types import StructField, StructType
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.files import physical_rows, require_same_partitions
from txlog.verbs.append import require_free_names
from txlog.verbs.columns import require_columns_apart
from txlog.verbs.fragments.base_version import Base, FragmentsOperation, read_by
from txlog.verbs.fragments.operations import FragmentOperation
from txlog.verbs.fragments.workers import columns_digest, required_of, with_required


class CommitColumns(FragmentsOperation):
    """Commit columns that workers wrote."""

    name = "ADD COLUMNS"

    def __init__(self, opened: Snapshot, request: FragmentOperation.Merge) -> None:
        super().__init__(opened, request.fragments)
        self._request = request

    def changes(self, base: Base) -> Intent:
        """Return the new column files, and the schema with their columns."""
        fragments, schema = self._request.fragments, self._request.schema
        require_columns_apart(base.snapshot)
        adds: list[Add] = []
        given: dict[int, list[str]] = {}  # The new column files, by fragment.
        for metadata in fragments:
            fragment = base.changed(metadata)
            known = {file.path for file in fragment.files}
            new = [add for add in metadata.adds if add.path not in known]
            columns = [name for add in new for name in column_fields(add) or ()]
            _require_new(base.snapshot, columns)  # Their physical names, like all names below.
            given[fragment.id] = columns
            adds.extend(new)
        names = set().union(*given.values())
        # Files may still have values of a dropped column, but no longer provide it.
        removes, shortened = outdated_files(base.live, names, self.context.effects.now_ms())
        outdated = {remove.path for remove in removes} | {add.path for add in shortened}
        _require_fitting(base, fragments, adds, outdated)
        nanos = base.snapshot.supports("timestampNanos")
        added = from_arrow(schema, nanos=nanos)
        merged = settled(base.snapshot, merged_schema(base.snapshot.schema, added))
        new_names = required_of(added.fields) - {*base.snapshot.schema.names()}
        fields = {
            field.name_in_files(base.snapshot.mapping_mode): field
            for field in with_required(merged, new_names).fields
        }
        for metadata in fragments:
            if columns := given[base.changed(metadata).id]:
                _require_typed(metadata, base.snapshot, fields, columns)
        everywhere = names.intersection(
            *(given.get(f.id, ()) for f in base.fragments.values() if f.physical_rows != 0)
        )
        return Intent(
            operation=self.name,
            kind="add columns",
            read_version=base.snapshot.version,
            metadata=_merged_metadata(base.snapshot, fields, names, everywhere),
            removes=tuple(removes),
            adds=(*shortened, *adds),
            columns=frozenset(names),
            read_columns=read_by(fragments),
            parameters={"columns": sorted(names)},
            metrics={
                "numAddedFiles": len(adds),
                "numRemovedFiles": len(removes),
                "numOutputBytes": sum(add.size for add in adds),
            },
        )


def _require_new(base: Snapshot, names: Sequence[str]) -> None:
    """Raise if the table has one of the columns."""
    existing = {field.name_in_files(base.mapping_mode).lower() for field in base.schema.fields}
    for name in names:
        if name.lower() in existing:
            raise InvalidInputError(
                argument="fragments",
                field=name,
                reason="the table already has this column",
                remedy="Replace its values with Table.alter.replace_columns",
            )


def _require_fitting(
    base: Base, fragments: Sequence[FragmentMetadata], adds: Sequence[Add], without: set[str]
) -> None:
    """Raise if new files do not form fragments together with the existing files."""
    there = base.rows([base.changed(one) for one in fragments])
    left_out = pc.is_in(there["path"], value_set=arrow_array(sorted(without), pa.string()))
    there = there.filter(pc.invert(left_out))
    lines = [{"add": add.to_json()} for add in adds]
    new = decode_rows([(base.snapshot.version, lines, "fragments")])
    try:
        rows = fragment_rows(pa.concat_tables([there, new], promote_options="default"), listed=True)
        physical_rows(rows)
        require_same_partitions(rows, base.snapshot.partition_fields, base.snapshot.mapping_mode)
    except LogCorruptError as error:
        raise InvalidInputError(
            argument="fragments",
            field=error.path,
            reason=error.reason,
            remedy="Pass the result of merge_columns, unchanged",
        ) from error


def _require_typed(
    metadata: FragmentMetadata, base: Snapshot, known: Mapping[str, StructField], names: list[str]
) -> None:
    """Raise if columns were written in other types than the schema's, or for another table."""
    fields = [known[name] for name in names if name in known]
    # Values without a null also fit a nullable column.
    required = [replace(field, nullable=False) for field in fields]
    fitting = {columns_digest(base, fields), columns_digest(base, required)}
    if len(fields) == len(names) and metadata.written_for not in fitting:
        raise InvalidInputError(
            argument="fragments",
            field=metadata.adds[0].path,
            reason=f"its {', '.join(names)} were written for another table, or in other types than "
            "those of the schema, or allow nulls that the schema does not",
            remedy="Write the columns with the same fields in all fragments: cast what functions "
            "return",
        )


def _merged_metadata(
    base: Snapshot, fields: Mapping[str, StructField], names: set[str], everywhere: set[str]
) -> Metadata:
    """Return the metadata with the new columns; some of them have values in all fragments.

    Only these can be not nullable.
    """
    merged = StructType(
        tuple(
            replace(field, nullable=True) if name in names - everywhere else field
            for name, field in fields.items()
        )
    )
    lacking = sorted(names - fields.keys())
    if lacking:
        raise InvalidInputError(
            argument="schema",
            field=lacking[0],
            reason="a fragment has this column, but the schema does not",
            remedy="Pass the schema that merge_columns returned",
        )
    require_free_names(base, merged)
    existing = {field.name_in_files(base.mapping_mode) for field in base.schema.fields}
    require_not_dropped(base.metadata, fields.keys() - existing - everywhere)
    metadata = with_schema(base.metadata, merged)
    return with_dropped(metadata, still_dropped(base.metadata, everywhere))
