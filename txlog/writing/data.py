"""Whatever a caller hands in, as Arrow batches that fit the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from txlog.errors import InvalidInputError, SchemaMismatchError
from txlog.schema.arrow import arrow_field, arrow_schema, from_arrow
from txlog.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    type_name,
)
from txlog.schema.widening import is_widening

SchemaMode = Literal["merge", "overwrite"] | None

_NUMBERS = ("byte", "short", "integer", "long", "float", "double")


def as_reader(data: Any) -> pa.RecordBatchReader:
    """Return data of any Arrow-speaking library as a stream of batches.

    Taken are objects with `__arrow_c_stream__` (pyarrow, polars, duckdb, pandas, a txlog scan),
    those with `__arrow_c_array__`, and datasets. A stream is read once.

    Raises
    ------
    InvalidInputError
        The object speaks no Arrow.
    """
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table | pa.RecordBatch):
        table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
        return table.to_reader()
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data)
        if hasattr(data, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(data)]).to_reader()
        if hasattr(data, "scanner"):
            return data.scanner().to_reader()
        if hasattr(data, "to_reader"):
            return data.to_reader()
    except (pa.ArrowException, TypeError) as error:
        raise InvalidInputError(
            argument="data", reason=f"it cannot be read as Arrow: {error}"
        ) from error
    raise InvalidInputError(
        argument="data",
        reason=f"{type(data).__name__} does not speak Arrow",
        remedy="Pass a pyarrow Table or RecordBatchReader, a polars or pandas frame, "
        "or a duckdb relation",
    )


def merged_schema(table: StructType, data: StructType) -> StructType:
    """Return the table's schema with the columns (and nested fields) that only the data has.

    New fields come last and are nullable.

    Raises
    ------
    SchemaMismatchError
        A column is in both with types that do not go together.
    """
    return StructType(_merged(table.fields, data.fields, ""))


def _merged(
    ours: tuple[StructField, ...], theirs: tuple[StructField, ...], prefix: str
) -> tuple[StructField, ...]:
    ours_by_name = {field.name.lower(): field for field in ours}
    added = []
    changed: dict[str, StructField] = {}
    for field in theirs:
        held = ours_by_name.get(field.name.lower())
        if held is None:
            added.append(StructField(field.name, field.type, True))
        elif isinstance(held.type, StructType) and isinstance(field.type, StructType):
            inner = _merged(held.type.fields, field.type.fields, f"{prefix}{held.name}.")
            changed[held.name] = StructField(
                held.name, StructType(inner), held.nullable, held.metadata
            )
        else:
            _require_storable(field.type, held.type, f"{prefix}{held.name}")
    return (*(changed.get(field.name, field) for field in ours), *added)


def require_fit(table: StructType, data: StructType) -> None:
    """Refuse data whose columns do not fit the table, naming all faults at once.

    Raises
    ------
    SchemaMismatchError
        A column is not in the table, has a type that does not go into the table's, or a column
        that must not be null is missing.
    """
    if data == table:
        return
    faults = []
    names = {field.name.lower(): field for field in table.fields}
    given: set[str] = set()
    for field in data.fields:
        held = names.get(field.name.lower())
        if field.name.lower() in given:
            faults.append(f"column {field.name} is there twice")
        given.add(field.name.lower())
        if held is None:
            faults.append(f"column {field.name} is not in the table")
        elif not _storable(field.type, held.type):
            faults.append(
                f"column {field.name} is {type_name(field.type)}, "
                f"the table has {type_name(held.type)}"
            )
    faults.extend(
        f"column {field.name} is missing, and must not be null"
        for field in table.fields
        if not field.nullable and field.name.lower() not in given
    )
    if faults:
        raise SchemaMismatchError(
            argument="data",
            reason="; ".join(faults),
            remedy='Change the data, or pass schema_mode="merge" to add new columns',
        )


def _require_storable(have: DataType, want: DataType, name: str) -> None:
    if not _storable(have, want):
        raise SchemaMismatchError(
            argument="data",
            field=name,
            reason=f"column {name} is {type_name(have)}, the table has {type_name(want)}",
            remedy="Cast the column before writing",
        )


def _storable(have: DataType, want: DataType) -> bool:
    """Whether values of one type may go into a column of another; each value is still checked."""
    if have == want:
        return True
    match have, want:
        case StructType(inner), StructType(fields):
            names = {field.name.lower(): field.type for field in fields}
            return all(
                field.name.lower() in names and _storable(field.type, names[field.name.lower()])
                for field in inner
            )
        case ArrayType(element), ArrayType(target):
            return _storable(element, target)
        case MapType(key, value), MapType(to_key, to_value):
            return _storable(key, to_key) and _storable(value, to_value)
        case PrimitiveType(old), PrimitiveType(new):
            integers = _NUMBERS[:4]
            return is_widening(old, new) or (old in integers and new in integers) or old == "void"
        case ((PrimitiveType() | DecimalType()), DecimalType()):
            return isinstance(have, DecimalType) or is_widening(have.name, type_name(want))
    return False


def fitted(reader: pa.RecordBatchReader, table: StructType) -> Iterator[pa.RecordBatch]:
    """Yield batches in the table's columns and types; columns that the data lacks are null.

    Raises
    ------
    SchemaMismatchError
        A value does not fit its column: too large, too precise, or null where none may be.
    """
    target = arrow_schema(table)
    places = {name.lower(): at for at, name in enumerate(reader.schema.names)}
    for batch in reader:
        arrays = []
        for field, want in zip(table.fields, target, strict=True):
            at = places.get(field.name.lower())
            if at is None:
                arrays.append(pa.nulls(batch.num_rows, want.type))
                continue
            arrays.append(fit_column(batch.column(at), field))
        if batch.num_rows:
            yield pa.RecordBatch.from_arrays(arrays, schema=target)


def fit_column(array: pa.Array, field: StructField) -> pa.Array:
    """Return values in a column's type; errors as for `fitted`."""
    target = arrow_field(field).type
    try:
        fit = array if array.type == target else _cast(array, field.type, target)
    except (pa.ArrowException, ValueError) as error:
        raise SchemaMismatchError(
            argument="data",
            field=field.name,
            reason=f"a value of column {field.name} does not fit {type_name(field.type)}: {error}",
            remedy="Cast or round the column before writing",
        ) from error
    _require_no_null(fit, field, field.name)
    return fit


def _cast(array: pa.Array, want: DataType, target: pa.DataType) -> pa.Array:
    """Cast with every value checked; structs go by field name, and may lack nullable fields."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(want, StructType) and pa.types.is_struct(array.type):
        have = {field.name.lower(): at for at, field in enumerate(array.type)}
        children = []
        for field, inner in zip(want.fields, target, strict=True):
            at = have.get(field.name.lower())
            if at is None:
                children.append(pa.nulls(len(array), inner.type))
            else:
                children.append(_cast(array.field(at), field.type, inner.type))
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
    if array.type == target:
        return array
    return array.cast(target)


def _require_no_null(array: pa.Array, field: StructField, name: str) -> None:
    """Check NOT NULL, of nested fields too: a null parent has no children to check."""
    if not field.nullable and array.null_count:
        raise SchemaMismatchError(
            argument="data",
            field=name,
            reason=f"column {name} must not be null, but {array.null_count} values are",
            remedy="Fill or drop these rows before writing",
        )
    if isinstance(field.type, ArrayType) and pa.types.is_list(array.type):
        element = StructField("element", field.type.element, field.type.contains_null)
        _require_no_null(array.flatten(), element, f"{name}.element")
    if isinstance(field.type, StructType) and _has_required(field.type):
        present = array.filter(array.is_valid()) if array.null_count else array
        for at, inner in enumerate(field.type.fields):
            _require_no_null(present.field(at), inner, f"{name}.{inner.name}")


def _has_required(kind: StructType) -> bool:
    return any(
        not field.nullable
        or isinstance(field.type, ArrayType)
        or (isinstance(field.type, StructType) and _has_required(field.type))
        for field in kind.fields
    )


@dataclass(frozen=True)
class Incoming:
    """Data to be written, and the schema that it makes or fits."""

    reader: pa.RecordBatchReader
    schema: StructType  # The table's after the write.


def incoming(data: Any, table: StructType | None, schema_mode: SchemaMode) -> Incoming:
    """Check data against a table's schema (None: there is no table yet) before a row is read.

    Raises
    ------
    SchemaMismatchError
        The data does not fit, and `schema_mode` does not let the schema change.
    InvalidInputError
        The data speaks no Arrow, or has a type that no Delta table holds.
    """
    if schema_mode not in (None, "merge", "overwrite"):
        raise InvalidInputError(
            argument="schema_mode", reason=f"{schema_mode!r} is none of None, 'merge', 'overwrite'"
        )
    reader = as_reader(data)
    found = from_arrow(_without_untyped(reader.schema, table))
    return Incoming(reader, target_schema(table, found, schema_mode))


def target_schema(
    table: StructType | None, data: StructType, schema_mode: SchemaMode
) -> StructType:
    """Return the schema of a table after data of another schema is written to it.

    Raises
    ------
    SchemaMismatchError
        The data does not fit, and `schema_mode` does not let the schema change.
    """
    if table is None or schema_mode == "overwrite":
        require_columns(data)
        return data
    if schema_mode == "merge":
        merged = merged_schema(table, data)
        require_fit(merged, data)
        return merged
    require_fit(table, data)
    return table


def _without_untyped(schema: pa.Schema, table: StructType | None) -> pa.Schema:
    """Take columns of nulls only, which have no type of their own, as the table's type."""
    if not any(pa.types.is_null(kind) for kind in schema.types):
        return schema
    fields = []
    for field in schema:
        held = table.get(field.name) if table else None
        if pa.types.is_null(field.type) and held is not None:
            field = field.with_type(arrow_field(held).type)
        fields.append(field)
    return pa.schema(fields)


def require_columns(schema: StructType) -> None:
    """Refuse a schema for a new table that has no columns, or two of one name.

    Raises
    ------
    InvalidInputError
        There are no columns, a name is empty or holds a character that Parquet columns of a
        Delta table cannot have, or two names differ by no more than case.
    """
    if not schema.fields:
        raise InvalidInputError(argument="schema", reason="a table needs at least one column")
    folded: set[str] = set()
    for field in schema.fields:
        if field.name.lower() in folded:
            raise InvalidInputError(
                argument="schema",
                field=field.name,
                reason="two columns have this name, or differ only by case",
                remedy="Rename one of them",
            )
        folded.add(field.name.lower())
        odd = sorted({character for character in field.name if character in " ,;{}()\n\t="})
        if odd or not field.name:
            raise InvalidInputError(
                argument="schema",
                field=field.name,
                reason=f"a column name must not be empty or contain {odd or 'nothing'}",
                remedy="Rename the column; such names need column mapping",
            )
