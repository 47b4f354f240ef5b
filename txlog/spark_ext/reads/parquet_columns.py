"""Convert the columns that Spark reads from Parquet files to the table's columns. Pure.

Rule: spec/spark.md, SPK-7.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType as SparkType
from pyspark.sql.types import StructType as SparkStruct

from txlog.base.errors import UnsupportedFeatureError
from txlog.expressions.bind import bind
from txlog.expressions.tree import Column, IsNull, quote_name
from txlog.protocol.form import ReadForm
from txlog.scan.columns import FRAGMENT_ID, ROW_ADDRESS, ROW_ID
from txlog.scan.read_plan import ReadPlan
from txlog.scan.resolve import promised
from txlog.schema.types import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from txlog.spark_ext.reads.places import FRAGMENT_COLUMN, Constant
from txlog.spark_ext.spark_types import spark_schema
from txlog.stats.files import file_bounds
from txlog.stats.skip import keep

# Spark's Parquet reader fills a column of this name with the position of each row in its file.
# `_metadata.row_index` is the same column, but in a struct that Spark makes for each row.
POSITION = "_tmp_metadata_row_index"

_LONG = PrimitiveType("long")
_FLOATS = (PrimitiveType("float"), PrimitiveType("double"))


@dataclass(frozen=True)
class ReadColumn:
    """A column of the table, as an expression over the columns that Spark reads."""

    name: str
    sql: str
    # The type to cast to, if nested fields have other names in files. It is not SQL, because
    # Spark's texts of types do not quote names.
    cast: SparkType | None = None


@dataclass(frozen=True)
class Projection:
    """A schema for Spark's Parquet reader, and SQL for each column over this schema."""

    read: SparkStruct
    columns: tuple[ReadColumn, ...]  # All columns that a plan needs, in its order.


def project(
    plan: ReadPlan,
    constants: Iterable[Constant],
    *,
    positions: bool,
    virtual: bool,
    not_null: Collection[str] = (),
) -> Projection:
    """Return the schema and the expressions for the columns that a plan needs.

    Parameters
    ----------
    constants
        The constants in the virtual folders: at least the partition columns of the plan.
    positions
        Whether rows need their positions in the file.
    virtual
        Whether the paths are virtual, so that fragment ids are known.
    not_null
        The columns without nulls.
    """
    by_name = {constant.name: constant for constant in constants}
    stored: list[StructField] = []
    columns = []
    for at, (column, how, own) in enumerate(promised(plan.form, plan.needed)):
        if how == "metadata":
            columns.append(ReadColumn(column.name, _metadata_sql(column.name)))
        elif how == "partition":
            sql = by_name[partition_name(at)].sql
            if column.name in not_null:  # Spark derives from `coalesce` that no value is null.
                sql = f"coalesce({sql}, {_DEFAULTS[column.type]})"
            columns.append(ReadColumn(column.name, sql))
        else:
            # Spark keeps the flag for files that a manifest lists, also over Spark Connect.
            field = replace(_nullable(own, plan.form), nullable=column.name not in not_null)
            stored.append(field)
            cast = None if own.type == column.type else _spark(column)
            columns.append(ReadColumn(column.name, _unpushed(field), cast))
    if positions:
        stored.append(StructField(POSITION, _LONG))
    stored += [StructField(name, PrimitiveType(one.kind)) for name, one in by_name.items()]
    if virtual:
        stored.append(StructField(FRAGMENT_COLUMN, _LONG))
    return Projection(spark_schema(StructType(tuple(stored))), tuple(columns))


def _unpushed(column: StructField) -> str:
    """Return SQL for a column, which keeps Spark from comparing floats with bounds in footers.

    For Spark NaN is the greatest number, but many writers leave it out of these bounds. Spark would
    then skip row groups with NaN in them.
    """
    name = quote_name(column.name)
    if column.type in _FLOATS:
        return f"nanvl({name}, {name})"
    return name


def has_inner_floats(columns: Iterable[StructField]) -> bool:
    """Return whether there are nested floats, for which Spark uses bounds in footers, too."""
    return any(
        isinstance(column.type, StructType)
        and any(field.type in _FLOATS or has_inner_floats([field]) for field in column.type.fields)
        for column in columns
    )


# Second arguments of `coalesce` for partition columns without nulls. No row has these values.
_DEFAULTS: dict[DataType, str] = {
    PrimitiveType(name): text
    for name, text in (
        ("byte", "0Y"),
        ("short", "0S"),
        ("integer", "0"),
        ("long", "0L"),
        ("string", "''"),
        ("boolean", "false"),
        ("date", "DATE'1970-01-01'"),
    )
}


def never_null(plan: ReadPlan, files: pa.Table) -> frozenset[str]:
    """Return the NOT NULL columns that are shown to have no null in any file.

    The declaration alone is not enough: if Spark relies on it and a file has a null, Spark reads it
    as 0. A column in files needs a null count of 0 in the statistics of each file, and a partition
    column a value for each file. Partition columns of types that are not in `_DEFAULTS` are not
    returned.

    Parameters
    ----------
    files
        The `FILE_ROWS` that are read. If they have no column `stats`, no column is returned; if
        there are no files, all NOT NULL columns are.
    """
    declared = [
        column
        for column in plan.columns
        if not column.nullable
        and column.name not in plan.metadata_columns
        and (column.name not in plan.form.partition_columns or column.type in _DEFAULTS)
    ]
    if not files.num_rows:
        return frozenset(column.name for column in declared)
    if "stats" not in files.column_names:
        return frozenset()
    schema, mode = StructType(tuple(declared)), plan.form.mapping_mode
    partitions = tuple(plan.form.partition_columns)
    found = []
    for column in declared:
        is_null = bind(IsNull(Column((column.name,))), schema)
        bounds = file_bounds(files, schema, partitions, is_null, mapping_mode=mode)
        if not pc.any(keep(is_null, bounds)).as_py():
            found.append(column.name)
    return frozenset(found)


def partition_name(at: int) -> str:
    """Return the name of a partition column in virtual folders, from its position in the plan."""
    return f"_txlog_partition_{at}"


def own_names(plan: ReadPlan) -> set[str]:
    """Return the names in files that are equal to names which this package uses for itself."""
    names = {column.name_in_files(plan.form.mapping_mode).lower() for column in plan.needed}
    return {name for name in names if name == POSITION or name.startswith("_txlog_")}


def _metadata_sql(name: str) -> str:
    if name == FRAGMENT_ID:
        return f"CAST({FRAGMENT_COLUMN} AS INT)"
    if name in (ROW_ADDRESS, ROW_ID):
        return f"shiftleft({FRAGMENT_COLUMN}, 32) | {POSITION}"
    raise UnsupportedFeatureError(
        features=(name,),
        field=name,
        reason=f"Spark's own reader does not compute the column {name}",
        remedy='Use spark.read.format("txlog")',
    )


def _nullable(column: StructField, form: ReadForm) -> StructField:
    """Return a column of files as Spark reads it: all nullable, with ids if files have them."""
    metadata = {}
    if form.mapping_mode == "id" and column.field_id is not None:
        metadata["parquet.field.id"] = column.field_id
    return StructField(column.name, _nullable_type(column.type, form), True, metadata)


def _nullable_type(kind: DataType, form: ReadForm) -> DataType:
    match kind:
        case StructType(fields):
            return StructType(tuple(_nullable(field, form) for field in fields))
        case ArrayType(element):
            return ArrayType(_nullable_type(element, form), True)
        case MapType(key, value):
            return MapType(_nullable_type(key, form), _nullable_type(value, form), True)
    return kind


def _spark(column: StructField) -> SparkType:
    plain = _nullable(column, ReadForm(StructType(), ()))
    return spark_schema(StructType((plain,))).fields[0].dataType
