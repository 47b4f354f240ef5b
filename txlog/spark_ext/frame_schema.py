"""The columns of a frame, as columns that a table may have."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import StructType as SparkStruct

from txlog.schema import ArrayType, DataType, MapType, StructField, StructType, parse_schema


def frame_schema(schema: SparkStruct) -> StructType:
    """Return a frame's columns, with nulls allowed at every depth.

    Spark's flags only say what it knows of these rows (`array(lit(1))`), which is no rule for
    those that are appended later.
    """
    return _columns(parse_schema(schema.json()).fields)


def _columns(fields: Iterable[StructField]) -> StructType:
    return StructType(tuple(StructField(f.name, _type(f.type), True, f.metadata) for f in fields))


def _type(kind: DataType) -> DataType:
    match kind:
        case StructType(fields):
            return _columns(fields)
        case ArrayType(element):
            return ArrayType(_type(element))
        case MapType(key, value):
            return MapType(_type(key), _type(value))
    return kind
