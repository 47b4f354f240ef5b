"""Types of Delta and of Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import pyarrow as pa

from txlog.errors import InvalidInputError
from txlog.schema.cast import is_list
from txlog.schema.types import (
    CURRENT_DEFAULT,
    MONTH_INTERVALS,
    TIME_INTERVALS,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

_ROWS = 64 * 1024
_BYTES = 64 * 1024 * 1024


def gathered(batches: Iterable[pa.RecordBatch], *, rows: int = _ROWS) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of at least `rows` rows.

    A batch of many bytes is not copied: it is yielded as it is, after the rows before it.
    """
    waiting: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        if waiting and batch.nbytes >= _BYTES:  # Too large to copy.
            yield from _together(waiting)
            waiting, count, size = [], 0, 0
        waiting.append(batch)
        count += batch.num_rows
        size += batch.nbytes
        if count >= rows or size >= _BYTES:
            yield from _together(waiting)
            waiting, count, size = [], 0, 0
    if waiting:
        yield from _together(waiting)


def _together(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Combine batches into one, or into more if their texts exceed what an array can hold."""
    if len(batches) == 1:
        return batches
    combined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return combined


_ARROW: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    **dict.fromkeys(MONTH_INTERVALS, pa.month_day_nano_interval()),
    **dict.fromkeys(TIME_INTERVALS, pa.duration("us")),
    "variant": pa.struct(
        [pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)]
    ),
}

# Further Arrow types that a Delta type holds without loss. They are read, never returned.
_DELTA: dict[pa.DataType, str] = {
    **{
        kind: name
        for name, kind in _ARROW.items()
        if name not in ("void", "variant") and not name.startswith("interval")
    },
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.float16(): "float",
    pa.date64(): "date",
}


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type in which txlog returns values of a Delta type."""
    match kind:
        case PrimitiveType(name):
            return _ARROW[name]
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case ArrayType(element, contains_null):
            return pa.list_(pa.field("element", arrow_type(element), contains_null))
        case MapType(key, value, value_contains_null):
            return pa.map_(
                pa.field("key", arrow_type(key), False),
                pa.field("value", arrow_type(value), value_contains_null),
            )
        case StructType(fields):
            return pa.struct([arrow_field(f) for f in fields])


def arrow_field(field: StructField) -> pa.Field:
    """Return the Arrow field of a column, under its logical name."""
    return pa.field(field.name, arrow_type(field.type), field.nullable)


@lru_cache(maxsize=64)  # Small writes convert the same schema many times.
def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a table, under logical names, in the schema's order."""
    return pa.schema([arrow_field(f) for f in schema.fields])


def from_arrow(schema: pa.Schema, *, nulls_as_void: bool = False) -> StructType:
    """Return the Delta schema that can hold all values of an Arrow schema.

    Unsigned integers become the next wider signed type (uint64 becomes decimal(20,0), as in
    Spark), dictionaries their value type. Metadata of fields is kept as text, such as `comment`,
    but for what is reserved: `delta.…`, defaults, and what Arrow libraries note for themselves.

    Parameters
    ----------
    nulls_as_void
        Let columns of Arrow's null type, at any depth, become `void`. Otherwise they are refused.

    Raises
    ------
    InvalidInputError
        A type has no counterpart (time, duration, null, union, …); `field` names the column.
    """
    # Schemas that differ by metadata alone are equal, so their bytes are part of the key.
    return _from_arrow(schema, schema.serialize().to_pybytes(), nulls_as_void)


@lru_cache(maxsize=64)
def _from_arrow(schema: pa.Schema, _: bytes, nulls_as_void: bool) -> StructType:
    return StructType(tuple(_field(f, f.name, nulls_as_void) for f in schema))


# Metadata of Arrow fields that would mean something to Delta, or means something only to a library.
_RESERVED = ("delta.", "PARQUET:", "ARROW:", "_PL_")
_RESERVED_NAMES = frozenset({CURRENT_DEFAULT, "EXISTS_DEFAULT", "__CHAR_VARCHAR_TYPE_STRING"})


def _metadata(field: pa.Field) -> dict[str, str]:
    texts = {
        name.decode(errors="replace"): value.decode(errors="replace")
        for name, value in (field.metadata or {}).items()
    }
    return {
        name: value
        for name, value in texts.items()
        if name not in _RESERVED_NAMES and not name.startswith(_RESERVED)
    }


def _field(field: pa.Field, path: str, voids: bool) -> StructField:
    kind = _type(field.type, path, voids)
    return StructField(field.name, kind, field.nullable, _metadata(field))


def _type(kind: pa.DataType, path: str, voids: bool) -> DataType:
    if (name := _DELTA.get(kind)) is not None:
        return PrimitiveType(name)
    if voids and pa.types.is_null(kind):
        return PrimitiveType("void")
    if pa.types.is_timestamp(kind):
        return PrimitiveType("timestamp_ntz" if kind.tz is None else "timestamp")
    if pa.types.is_fixed_size_binary(kind):
        return PrimitiveType("binary")
    if pa.types.is_uint64(kind):
        return DecimalType(20, 0)
    if pa.types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _type(kind.value_type, path, voids)
    if pa.types.is_map(kind):
        return MapType(
            _type(kind.key_type, f"{path}.key", voids),
            _type(kind.item_type, f"{path}.value", voids),
            kind.item_field.nullable,
        )
    if pa.types.is_struct(kind):
        return StructType(tuple(_field(f, f"{path}.{f.name}", voids) for f in kind))
    if is_list(kind):
        element = _type(kind.value_type, f"{path}.element", voids)
        return ArrayType(element, kind.value_field.nullable)
    if isinstance(kind, pa.BaseExtensionType):
        return _type(kind.storage_type, path, voids)
    if pa.types.is_null(kind):
        raise InvalidInputError(
            reason=f"{path} holds only nulls, so its type is not known",
            field=path,
            remedy="Cast it to the type that it is to have, or leave it out",
        )
    raise InvalidInputError(
        reason=f"the Arrow type {kind} has no counterpart in a Delta table",
        field=path,
        remedy="Cast the column to a type that Delta has, or drop it",
    )
