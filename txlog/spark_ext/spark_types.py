"""Convert columns of a table to Spark columns and back, and times of a session to UTC."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType as SparkStruct

from txlog.base.errors import (
    InvalidInputError,
    InvalidTypeError,
    LogCorruptError,
    UnsupportedFeatureError,
)
from txlog.base.moments import format_moment
from txlog.schema.json import parse_schema, schema_json
from txlog.schema.types import (
    MONTH_INTERVALS,
    NANOS,
    TIME_INTERVALS,
    TYPE_CHANGES,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    types_in,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_NANOS = frozenset(map(PrimitiveType, NANOS))
_CAST = "Cast the column to a type that Delta has, or drop it"
# Metadata of columns about the files and rules of the table from which they were read.
_OF_A_TABLE = (
    "delta.columnMapping.",
    "delta.generationExpression",
    "delta.identity.",
    TYPE_CHANGES,
)


def spark_schema(schema: StructType) -> SparkStruct:
    """Return columns as Spark columns: both have the same JSON.

    Raises
    ------
    UnsupportedFeatureError
        A column has nanoseconds, for which Spark has no type.
    """
    for field in schema.fields:
        if not _NANOS.isdisjoint(types_in(StructType((field,)))):
            raise UnsupportedFeatureError(
                features=("timestampNanos",),
                field=field.name,
                reason=f"the column {field.name} has nanoseconds, and Spark has no type for them",
                remedy="Read the table without Spark: with Table.to_arrow or Table.to_polars",
            )
    return SparkStruct.fromJson(json.loads(schema_json(schema)))


def read_schema(schema: StructType) -> SparkStruct:
    """Return the columns of a frame that reads a table, for every reader.

    Comments and collations are kept; metadata about files is omitted. Nulls are allowed at every
    depth, because a file may contain them although a column is declared NOT NULL.
    """
    return spark_schema(_columns(schema.fields))


def frame_schema(schema: SparkStruct) -> StructType:
    """Return a frame's columns, with nulls allowed at every depth.

    Spark's flags describe only these rows, as for `array(lit(1))`. They are not rules for later
    rows. Metadata that belongs to another table is omitted.

    Raises
    ------
    InvalidInputError
        A column has a type that tables do not have.
    """
    try:
        return _columns(parse_schema(schema.json()).fields)
    # The error of a log does not fit a frame.
    except (LogCorruptError, UnsupportedFeatureError) as error:
        raise InvalidInputError(
            argument="df",
            field=error.field,
            reason=error.reason.removeprefix("in schemaString, "),
            remedy=_CAST,
        ) from error


def require_storable(schema: StructType, *, argument: str = "df") -> None:
    """Raise if tasks could not write a column, or other readers could not read it.

    Parameters
    ----------
    argument
        The caller's argument with the columns, for the error.

    Raises
    ------
    InvalidInputError
        The error names the first such column.
    """
    for name, reason in _unstorable(schema, ""):
        raise InvalidInputError(argument=argument, field=name, reason=reason, remedy=_CAST)


def _unstorable(kind: DataType, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path of each type that cannot be stored, and the reason."""
    match kind:
        case PrimitiveType(name) if name in MONTH_INTERVALS or name in TIME_INTERVALS:
            yield path, f"tables have no columns of the type {name}"
        case StructType(()):
            yield path, "a file cannot contain a struct without fields"
        case StructType(fields):
            for field in fields:
                yield from _unstorable(field.type, f"{path}.{field.name}".lstrip("."))
        case ArrayType(element):
            yield from _inner(element, f"{path}.element")
        case MapType(key, value):
            yield from _inner(key, f"{path}.key")
            yield from _inner(value, f"{path}.value")


def _inner(kind: DataType, path: str) -> Iterator[tuple[str, str]]:
    if kind == PrimitiveType("void"):
        yield path, "the values of an array or map have no type: there are only nulls, or no values"
    yield from _unstorable(kind, path)


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


def moment_text(spark: SparkSession, moment: str) -> str:
    """Return a timestamp as text in UTC. The given text is in the session's time zone.

    Spark does the conversion, with a query.

    Raises
    ------
    InvalidTypeError
        It is not text.
    InvalidInputError
        Spark cannot convert it to a timestamp.
    """
    if not isinstance(moment, str):
        raise InvalidTypeError(
            argument="timestamp",
            reason=f"timestamp needs to be a string but got '{type(moment)}'",
        )
    query = "SELECT unix_millis(try_cast(:moment AS TIMESTAMP)) AS ms"
    (row,) = spark.sql(query, args={"moment": moment}).collect()
    if row["ms"] is None:
        raise InvalidInputError(
            argument="timestamp",
            reason=f"The provided timestamp ({moment!r}) cannot be converted to a valid timestamp",
            remedy="Write it as 2026-08-22, 2026-08-22 10:00:00 or 2026-08-22T10:00:00.000Z",
        )
    return format_moment(row["ms"] * 1000, digits=3, zone="Z")


def neutral(df: DataFrame) -> DataFrame:
    """Return a frame with other names, if Spark would take a name for a path of fields."""
    if not any("." in name or "`" in name for name in df.columns):
        return df
    return df.toDF(*(f"_txlog_{at}" for at in range(len(df.columns))))
