"""Partition values as text in the names of folders, and as values again in Spark. Pure.

Rule: spec/spark.md, SPK-5.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from txlog.schema.timestamps import format_moment
from txlog.schema.types import DataType, DecimalType, PrimitiveType, StructField
from txlog.stats.partition import format_partition_values

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"  # What Spark takes for null in the name of a folder.

_SQL_NAMES = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}


@dataclass(frozen=True)
class Constant:
    """What virtual folders tell of a file: text for each file, and SQL that reads it."""

    name: str  # Of the folders, and of Spark's column.
    texts: pa.Array
    sql: str
    kind: str = "string"  # Which type Spark takes the text for.


def partition_text(name: str, values: pa.Array, column: StructField) -> Constant:
    """Return a partition column's values as texts that SQL reads back, in any time zone."""
    return Constant(name, _texts(values, column.type), _sql(f"`{name}`", column.type))


def _texts(values: pa.Array, kind: DataType) -> pa.Array:
    encoded = values.dictionary_encode()
    distinct = encoded.dictionary
    match kind:
        case PrimitiveType("date"):
            found = distinct.cast(pa.int32()).cast(pa.string())
        case PrimitiveType("timestamp"):
            found = distinct.cast(pa.int64()).cast(pa.string())
        case PrimitiveType("timestamp_ntz"):
            micros = distinct.cast(pa.int64()).to_pylist()
            texts = [format_moment(value, digits=6, separator=" ") for value in micros]
            found = pa.array(texts, pa.string())
        case PrimitiveType("binary"):
            found = pa.array([value.hex() for value in distinct.to_pylist()], pa.string())
        case _:
            found = format_partition_values(distinct, kind)
    return pc.take(found, encoded.indices)


def _sql(text: str, kind: DataType) -> str:
    match kind:
        case PrimitiveType("string"):
            return text
        case PrimitiveType("date"):
            return f"date_from_unix_date(CAST({text} AS INT))"
        case PrimitiveType("timestamp"):
            return f"timestamp_micros(CAST({text} AS BIGINT))"
        case PrimitiveType("binary"):
            return f"unhex({text})"
        case DecimalType(precision, scale):
            return f"CAST({text} AS DECIMAL({precision},{scale}))"
        case PrimitiveType(name):
            return f"CAST({text} AS {_SQL_NAMES.get(name, name.upper())})"
    raise TypeError(f"{kind} is no type of a partition column")
