"""The Delta schema of a Parquet file: from its Arrow schema, and what else its footer states. Pure.

Arrow's schema does not have all of it. A timestamp of the physical type INT96 is an instant, as
Spark, Hive and Impala write and read it, but Arrow returns it without a zone. Spark also writes its
own schema into the footer, which tells variants from structs. The types of the columns themselves
win over this text: a program that changed a file's columns may have copied it from older data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from txlog.base.errors import TxlogError
from txlog.parquet.file_footer import FileFooter
from txlog.schema.arrow import from_arrow, is_list
from txlog.schema.json import parse_schema
from txlog.schema.types import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_INT96 = "INT96"
_BINARY = PrimitiveType("binary")
_COMMENT = "comment"


def stated_schema(footer: FileFooter, *, nanos: bool = False) -> StructType:
    """Return the Delta schema that can hold the columns of a file.

    Of Spark's schema, only what the columns leave open is used: which structs of two binaries are
    variants, and comments. A timestamp of INT64 says itself whether it is an instant, and one of
    INT96 always is.

    Parameters
    ----------
    nanos
        As for `from_arrow`.

    Raises
    ------
    InvalidInputError
        As for `from_arrow`.
    """
    schema = from_arrow(with_instants(footer), nanos=nanos)
    text = footer.pairs.get(SPARK_SCHEMA)
    if text is None:
        return schema
    try:
        stated = parse_schema(text.decode())
    except (TxlogError, UnicodeDecodeError):  # Another version's types, or damaged: it is optional.
        return schema
    return _struct(schema, stated)


def with_instants(footer: FileFooter) -> pa.Schema:
    """Return a file's Arrow schema in which timestamps of the type INT96 are instants, in UTC."""
    if _INT96 not in footer.physical_types:
        return footer.schema
    leaves = iter(footer.physical_types)
    return pa.schema(
        [_instants(field, leaves) for field in footer.schema], metadata=footer.schema.metadata
    )


def _instants(field: pa.Field, leaves: Iterator[str]) -> pa.Field:
    return field.with_type(_instants_type(field.type, leaves))


def _instants_type(kind: pa.DataType, leaves: Iterator[str]) -> pa.DataType:
    """Return a type with instants; `leaves` has the physical types, in order, from its own on."""
    if isinstance(kind, pa.BaseExtensionType):
        storage = _instants_type(kind.storage_type, leaves)
        return kind if storage == kind.storage_type else storage
    if pa.types.is_struct(kind):
        return pa.struct([_instants(field, leaves) for field in kind])
    if pa.types.is_map(kind):
        key = _instants(kind.key_field, leaves)
        return pa.map_(key, _instants(kind.item_field, leaves))
    if is_list(kind):
        element = _instants(kind.value_field, leaves)
        size = kind.list_size if pa.types.is_fixed_size_list(kind) else -1
        return kind if element == kind.value_field else pa.list_(element, size)
    if next(leaves) == _INT96 and pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, "UTC")
    return kind


def _struct(own: StructType, stated: StructType) -> StructType:
    return StructType(tuple(_field(field, stated.get(field.name)) for field in own.fields))


def _field(own: StructField, stated: StructField | None) -> StructField:
    if stated is None or stated.name != own.name:
        return own
    comment = stated.metadata.get(_COMMENT)
    told = {_COMMENT: comment} if isinstance(comment, str) else {}
    return replace(own, type=_type(own.type, stated.type), metadata={**own.metadata, **told})


def _type(own: DataType, stated: DataType) -> DataType:
    match own, stated:
        case StructType(), StructType():
            return _struct(own, stated)
        case ArrayType(element), ArrayType(theirs):
            return replace(own, element=_type(element, theirs))
        case MapType(key, value), MapType(their_key, their_value):
            return replace(own, key=_type(key, their_key), value=_type(value, their_value))
        case StructType(), PrimitiveType("variant") if _may_be_variant(own):
            return stated
    return own


def _may_be_variant(kind: StructType) -> bool:
    types = {field.name: field.type for field in kind.fields}
    return types.get("metadata") == _BINARY == types.get("value")
