"""The columns of a frame, as columns that a table may have."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import StructType as SparkStruct

from txlog.schema import ArrayType, DataType, MapType, StructField, StructType, parse_schema
from txlog.schema.types import TYPE_CHANGES

# What the metadata of a column says of the files and rules of the table that it was read from.
_OF_A_TABLE = (
    "delta.columnMapping.",
    "delta.generationExpression",
    "delta.identity.",
    TYPE_CHANGES,
)


def frame_schema(schema: SparkStruct) -> StructType:
    """Return a frame's columns, with nulls allowed at every depth.

    Spark's flags only say what it knows of these rows (`array(lit(1))`), which is no rule for
    those that are appended later. Metadata that belongs to another table is left out.
    """
    return _columns(parse_schema(schema.json()).fields)


def _columns(fields: Iterable[StructField]) -> StructType:
    return StructType(
        tuple(
            StructField(
                field.name,
                _type(field.type),
                True,
                {k: v for k, v in field.metadata.items() if not k.startswith(_OF_A_TABLE)},
            )
            for field in fields
        )
    )


def _type(kind: DataType) -> DataType:
    match kind:
        case StructType(fields):
            return _columns(fields)
        case ArrayType(element):
            return ArrayType(_type(element))
        case MapType(key, value):
            return MapType(_type(key), _type(value))
    return kind
