"""Write or change fragments on workers; a driver commits them later.

Rules: spec/fragments.md, FRG-24 to FRG-27.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from hashlib import sha256
from typing import Any

import orjson
import pyarrow as pa
from pyroaring import BitMap64

from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.commit.context import Context
from txlog.commit.operation import require_table_writable
from txlog.data_files.column_files import ColumnWriter
from txlog.data_files.column_values import column_values
from txlog.data_files.definition import Definition
from txlog.data_files.deletions import adds_of, with_vector, write_deletions
from txlog.data_files.identity import identities
from txlog.data_files.incoming import incoming, merged_schema
from txlog.data_files.modes import ADDING
from txlog.data_files.options import WriteOptions
from txlog.data_files.row_changes import FileDeletes
from txlog.data_files.write_plan import plan_write, schema_after
from txlog.expressions.bind import columns_of
from txlog.expressions.tree import Expression
from txlog.fragments.fragment import Fragment
from txlog.fragments.metadata import FragmentMetadata
from txlog.scan.columns import visible_metadata
from txlog.scan.deletions import load_deletions
from txlog.scan.plan import plan_fragments
from txlog.scan.read import FragmentReader
from txlog.scan.read_plan import require_table_columns
from txlog.scan.take import positions_of
from txlog.schema.arrow import fixed_schema, is_kept
from txlog.schema.json import schema_json
from txlog.schema.types import StructField, StructType
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.columns import named_in_files, require_addable
from txlog.verbs.create import NO_TABLE, table_of_rows


def write_new_fragments(
    context: Context, snapshot: Snapshot, data: Any, options: WriteOptions
) -> list[FragmentMetadata]:
    """Write rows as data files of a table, without committing them.

    Raises
    ------
    SchemaMismatchError
        The data does not fit the table; no file is left.
    UnsupportedFeatureError
        The table cannot be written by txlog.
    """
    require_table_writable(snapshot, removes_rows=False)
    taken = incoming(data, snapshot.schema, nanos=snapshot.supports("timestampNanos"))
    schema = schema_after(snapshot, taken.schema, ADDING)
    given = {name.lower() for name in taken.reader.schema.names}
    for name in identities(schema):
        if name.lower() not in given:
            raise UnsupportedFeatureError(
                path=snapshot.root,
                features=("identityColumns",),
                field=name,
                reason=f"the data lacks the identity column {name}, and workers do not know the "
                "values of other writers",
                remedy="Use append, or provide values if the column is BY DEFAULT",
            )
    plan = plan_write(
        snapshot.metadata,
        schema,
        options,
        mapping_mode=snapshot.mapping_mode,
        protocol=snapshot.protocol,
    )
    digest = plan.written_for(snapshot.metadata.id)
    return [
        FragmentMetadata(None, (add,), snapshot.version, digest)
        for add in plan.write(context, taken.reader)
    ]


def write_first_fragments(
    context: Context,
    data: Any,
    options: WriteOptions,
    definition: Definition,
) -> list[FragmentMetadata]:
    """Write rows as data files of a table that does not exist yet, without committing them.

    Raises
    ------
    InvalidInputError
        The table cannot be created: its columns, partitioning or properties are wrong.
    """
    context.store.require_writable()
    new, rows = table_of_rows(data, definition, effects=context.effects, options=options)
    plan = new.plan(options)
    digest = plan.written_for(NO_TABLE)
    return [FragmentMetadata(None, (add,), -1, digest) for add in plan.write(context, rows)]


def fragment_metadata(snapshot: Snapshot, fragment: Fragment, rows: Any) -> FragmentMetadata:
    """Return a committed fragment as metadata; `rows` are the `FILE_ROWS` of its files."""
    adds = {add.path: add for add in adds_of(rows)}
    return FragmentMetadata(
        fragment.id, tuple(adds[file.path] for file in fragment.files), snapshot.version
    )


def delete_from_fragment(
    context: Context, snapshot: Snapshot, metadata: FragmentMetadata, fragment: Fragment,
    going: Expression | Sequence[int],
) -> FragmentMetadata | None:  # fmt: skip
    """Write a fragment's deletions with additional rows, without committing them.

    Parameters
    ----------
    going
        The rows to delete: a predicate, or their positions in the fragment.

    Returns
    -------
    The fragment with the new deletion file; the same fragment if no row is deleted; None if no row
    remains.

    Raises
    ------
    InvalidInputError
        A position is not a whole number or appears twice, or the predicate does not fit.
    NotFoundError
        A position is beyond the fragment.
    UnsupportedFeatureError
        The table does not use deletion vectors, or cannot be written by txlog.
    """
    require_table_writable(snapshot, removes_rows=True)
    if not snapshot.marks_deletions:
        raise UnsupportedFeatureError(
            path=snapshot.root,
            features=("deletionVectors",),
            reason="the table does not use deletion vectors, so its files would be rewritten",
            remedy="Use Table.delete, or set delta.enableDeletionVectors",
        )
    where = going if isinstance(going, Expression) else None
    plan = plan_fragments(snapshot, [fragment], columns=[], where=where).reading
    require_table_columns(plan.where, snapshot)
    reader = FragmentReader(context.store, plan, fragment)
    gone = reader.deletions() or BitMap64()
    if isinstance(going, Expression):
        found, rows = reader.matching()
    else:
        rows = reader.count_rows()
        found = positions_of(going, fragment, rows) - gone
    deletes = FileDeletes(fragment, found, gone, rows)
    if not found:
        return metadata
    if deletes.is_whole:
        return None
    (vector,) = write_deletions(context, snapshot, [deletes])
    adds = (with_vector(metadata.adds[0], vector, rows), *metadata.adds[1:])
    read = () if plan.where is None else columns_of(plan.where)
    return replace(metadata, adds=adds, reads=tuple(dict.fromkeys(path[0] for path in read)))


def merge_into_fragment(
    context: Context, snapshot: Snapshot, metadata: FragmentMetadata, fragment: Fragment,
    columns: Any, read_columns: Sequence[str] | None,
) -> tuple[FragmentMetadata, pa.Schema]:  # fmt: skip
    """Write new columns of a fragment, without committing them; errors as for `add_columns`.

    Returns the fragment and the table's schema, both with the new columns.
    """

    def sample(names: tuple[str, ...]) -> Any:
        plan = plan_fragments(snapshot, [fragment], columns=list(names)).reading
        reader = FragmentReader(context.store, plan, fragment)
        for _, batch in reader.batches(plan.needed, prune=False, batch_rows=100, threads=False):
            return batch.select([column.name for column in plan.columns])
        return pa.RecordBatch.from_arrays(
            [pa.nulls(0, field.type) for field in plan.schema], schema=plan.schema
        )

    nanos = snapshot.supports("timestampNanos")
    # Metadata columns identify rows of this fragment, which has the same rows at the commit.
    readable = StructType((*snapshot.schema.fields, *visible_metadata(snapshot).values()))
    if read_columns is None:
        read_columns = snapshot.schema.names()
    values = column_values(
        columns,
        readable,
        read_columns=read_columns,
        sample=sample,
        nanos=nanos,
        keeps_required=True,
    )
    values = named_in_files(values, snapshot)
    require_addable(values, snapshot)
    plan = plan_fragments(snapshot, [fragment], columns=list(values.reads))
    add = ColumnWriter(context, plan.reading, values, snapshot.properties).write(fragment)
    values.check_end()
    merged = merged_schema(snapshot.schema, StructType(values.fields))
    schema = fixed_schema(with_required(merged, required_of(values.fields)))
    if add is None:
        return metadata, schema
    digest = columns_digest(snapshot, values.fields)
    return replace(
        metadata, adds=(*metadata.adds, add), written_for=digest, reads=values.reads
    ), schema


def required_of(fields: Iterable[StructField]) -> set[str]:
    """Return the names of the fields that are not nullable."""
    return {field.name for field in fields if not field.nullable}


def with_required(schema: StructType, names: Set[str]) -> StructType:
    """Return a schema in which fields with these names are not nullable."""
    return StructType(
        tuple(replace(f, nullable=False) if f.name in names else f for f in schema.fields)
    )


def columns_digest(snapshot: Snapshot, fields: Sequence[StructField]) -> str:
    """Return a digest of the table, and of the names and types of a fragment's new columns.

    Fixed-size lists and half floats are part of their types, and so is whether they are nullable.
    """
    sizes = [{k: v for k, v in f.metadata.items() if is_kept(k)} for f in fields]
    plain = StructType(
        tuple(
            StructField(field.name, field.type, field.nullable, metadata=size)
            for field, size in zip(fields, sizes, strict=True)
        )
    )
    return sha256(orjson.dumps([snapshot.metadata.id, schema_json(plain)])).hexdigest()


def deletions_of(context: Context, metadata: FragmentMetadata, fragment: Fragment) -> BitMap64:
    """Return the deleted rows that a fragment's metadata says it has; errors as in a scan."""
    changed = replace(
        fragment, deletion=metadata.deletion_file, physical_rows=metadata.physical_rows
    )
    return load_deletions(context.store, changed) or BitMap64()


def require_distinct(fragments: Sequence[FragmentMetadata]) -> None:
    """Raise if a value is not a fragment, or a fragment appears twice.

    Raises
    ------
    InvalidInputError
        The error names the file.
    """
    seen: set[str] = set()
    for one in fragments:
        if not isinstance(one, FragmentMetadata):
            raise InvalidInputError(
                argument="fragments",
                reason=f"FragmentMetadata was expected, not {type(one).__name__}",
                remedy="Make it from JSON with FragmentMetadata.from_json",
            )
        for add in one.adds:
            if add.path in seen:
                raise InvalidInputError(
                    argument="fragments", field=add.path, reason="the file is given twice"
                )
            seen.add(add.path)
