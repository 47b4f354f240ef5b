"""Columns of type `void`: all their values are null, and data files leave them out. Pure.

Rules: the Delta protocol, "Primitive Types".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from txlog.schema.types import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

VOID = PrimitiveType("void")


def has_void(kind: DataType) -> bool:
    """Return whether a type is void, or has a void in it at any depth."""
    match kind:
        case StructType(fields):
            return any(has_void(field.type) for field in fields)
        case ArrayType(element):
            return has_void(element)
        case MapType(key, value):
            return has_void(key) or has_void(value)
    return kind == VOID


def unstorable(fields: Sequence[StructField], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of columns that no data file can hold, such as arrays of void.

    The fields of a whole table are given; that all of them are void is for the caller to refuse.
    """
    for field in fields:
        name = f"{prefix}{field.name}"
        match field.type:
            case StructType(inner) if inner and all(f.type == VOID for f in inner):
                yield name
            case StructType(inner):
                yield from unstorable(inner, f"{name}.")
            case ArrayType() | MapType() if has_void(field.type):
                yield name


def stored_fields(fields: Sequence[StructField]) -> tuple[StructField, ...]:
    """Return fields as data files hold them: without those of type void."""
    return tuple(
        replace(field, type=StructType(stored_fields(field.type.fields)))
        if isinstance(field.type, StructType) and has_void(field.type)
        else field
        for field in fields
        if field.type != VOID
    )


def stored_batch(batch: pa.RecordBatch, schema: StructType) -> pa.RecordBatch:
    """Return rows of a schema in the columns that data files hold; the same batch without voids."""
    if not has_void(schema):
        return batch
    kept = [
        (field.name, _stored(batch.column(position), field.type))
        for position, field in enumerate(schema.fields)
        if field.type != VOID
    ]
    fields = [pa.field(name, array.type, batch.schema.field(name).nullable) for name, array in kept]
    return pa.RecordBatch.from_arrays([array for _, array in kept], schema=pa.schema(fields))


def _stored(array: pa.Array, kind: DataType) -> pa.Array:
    if not isinstance(kind, StructType) or not has_void(kind):
        return array
    kept = [
        (array.type.field(position), _stored(array.field(position), field.type))
        for position, field in enumerate(kind.fields)
        if field.type != VOID
    ]
    return pa.StructArray.from_arrays(
        [child for _, child in kept],
        fields=[field.with_type(child.type) for field, child in kept],
        mask=array.is_null() if array.null_count else None,
    )
