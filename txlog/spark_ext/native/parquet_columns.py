"""Convert the columns that Spark reads from Parquet files to the table's columns. Pure.

Rule: spec/spark.md, SPK-7.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql.types import DataType as SparkType
from pyspark.sql.types import StructType as SparkStruct

from txlog.expressions.sql import quote_name
from txlog.scan.columns import FRAGMENT_ID, ROW_ADDRESS, ROW_ID
from txlog.scan.read_plan import ReadPlan
from txlog.schema.types import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    type_name,
)
from txlog.spark_ext.native.places import FRAGMENT_COLUMN, Constant
from txlog.spark_ext.spark_types import spark_schema

# Spark's Parquet reader fills a column of this name with the position of each row in its file.
# `_metadata.row_index` is the same column, but comes in a struct that is made for each row.
POSITION = "_tmp_metadata_row_index"

_LONG = PrimitiveType("long")
_FLOATS = (PrimitiveType("float"), PrimitiveType("double"))


@dataclass(frozen=True)
class ReadColumn:
    """A column of the table, over what Spark reads."""

    name: str
    sql: str
    # What to cast it to, where fields inside of it have other names in files. Spark's text for
    # types does not quote names, so this is not SQL.
    cast: SparkType | None = None


@dataclass(frozen=True)
class Projection:
    """A schema for Spark's Parquet reader, and SQL for each column over what it reads."""

    read: SparkStruct
    columns: tuple[ReadColumn, ...]  # All that a plan needs, in its order.


def project(
    plan: ReadPlan, constants: Iterable[Constant], *, positions: bool, virtual: bool
) -> Projection:
    """Return how Spark reads the columns that a plan needs.

    Parameters
    ----------
    constants
        What the virtual folders tell: the partition columns of the plan at least.
    positions
        Whether rows need their position in the file.
    virtual
        Whether the paths are virtual ones, so that fragment ids are known.
    """
    told = {constant.name: constant for constant in constants}
    stored: list[StructField] = []
    columns = []
    for at, column in enumerate(plan.needed):
        if column.name in plan.metadata_columns:
            columns.append(ReadColumn(column.name, _metadata_sql(column.name)))
        elif column.name in plan.partition_columns:
            columns.append(ReadColumn(column.name, told[partition_name(at)].sql))
        else:
            held = _in_files(column, plan.mapping_mode)
            stored.append(held)
            cast = _spark(column) if _renames(held.type, column.type) else None
            columns.append(ReadColumn(column.name, _unpushed(held), cast))
    if positions:
        stored.append(StructField(POSITION, _LONG))
    stored += [StructField(name, PrimitiveType(one.kind)) for name, one in told.items()]
    if virtual:
        stored.append(StructField(FRAGMENT_COLUMN, _LONG))
    return Projection(spark_schema(StructType(tuple(stored))), tuple(columns))


def _unpushed(column: StructField) -> str:
    """Return SQL for a column, such that Spark holds no filter on floats against a footer.

    Many writers leave NaN out of the bounds there. To Spark it is the greatest number.
    """
    name = quote_name(column.name)
    if column.type in _FLOATS:
        return f"nanvl({name}, CAST('NaN' AS {type_name(column.type)}))"
    return name


def has_inner_floats(columns: Iterable[StructField]) -> bool:
    """Return whether there are floats inside of other columns, where Spark filters by them too."""
    return any(
        isinstance(column.type, StructType)
        and any(field.type in _FLOATS or has_inner_floats([field]) for field in column.type.fields)
        for column in columns
    )


def partition_name(at: int) -> str:
    """Return the name that the partition column at a place of a plan has in virtual folders."""
    return f"_txlog_partition_{at}"


def own_names(plan: ReadPlan) -> set[str]:
    """Return the names in files that Spark would confuse with those of this reading."""
    names = {column.name_in_files(plan.mapping_mode).lower() for column in plan.needed}
    return {name for name in names if name == POSITION or name.startswith("_txlog_")}


def _metadata_sql(name: str) -> str:
    if name == FRAGMENT_ID:
        return f"CAST({FRAGMENT_COLUMN} AS INT)"
    assert name in (ROW_ADDRESS, ROW_ID)
    return f"shiftleft({FRAGMENT_COLUMN}, 32) | {POSITION}"


def _in_files(column: StructField, mode: str) -> StructField:
    """Return a column as data files have it: named and numbered physically, all of it nullable."""
    metadata = {}
    if mode == "id" and column.field_id is not None:
        metadata["parquet.field.id"] = column.field_id
    return StructField(
        column.name_in_files(mode), _type_in_files(column.type, mode), True, metadata
    )


def _type_in_files(kind: DataType, mode: str) -> DataType:
    match kind:
        case StructType(fields):
            return StructType(tuple(_in_files(field, mode) for field in fields))
        case ArrayType(element):
            return ArrayType(_type_in_files(element, mode), True)
        case MapType(key, value):
            return MapType(_type_in_files(key, mode), _type_in_files(value, mode), True)
    return kind


def _renames(held: DataType, wanted: DataType) -> bool:
    match held, wanted:
        case StructType(have), StructType(want):
            return any(
                one.name != other.name or _renames(one.type, other.type)
                for one, other in zip(have, want, strict=True)
            )
        case ArrayType(one), ArrayType(other):
            return _renames(one, other)
        case MapType(key, value), MapType(other_key, other_value):
            return _renames(key, other_key) or _renames(value, other_value)
    return False


def _spark(column: StructField) -> SparkType:
    plain = StructField(column.name, _type_in_files(column.type, "none"))
    return spark_schema(StructType((plain,))).fields[0].dataType
