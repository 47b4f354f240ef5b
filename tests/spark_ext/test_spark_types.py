"""What a table takes from a frame's columns. No JVM is started."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

import txlog
from txlog.base.errors import InvalidInputError
from txlog.spark_ext.source import writer
from txlog.spark_ext.source.options import Options

LONG = spark.LongType()


def write(path: Path, kind: spark.DataType, values: pa.Array, **options: str) -> txlog.Table:
    """Write a column `v` of a type as Spark does, and return the table."""
    schema = spark.StructType([spark.StructField("v", kind, False)])
    planned = writer.batch_writer(Options({"path": str(path), **options}), schema, False)
    planned.commit([planned.write(iter(pa.table({"v": values}).to_batches()))])
    return txlog.Table(path)


REQUIRED = pa.field("element", pa.int64(), False)
INNER = pa.field("a", pa.int64(), False)


@pytest.mark.parametrize(
    ("kind", "strict", "values", "later"),
    [
        (spark.ArrayType(LONG, False), pa.list_(REQUIRED), [[1]], [[1, None]]),
        (
            spark.StructType([spark.StructField("a", LONG, False)]),
            pa.struct([INNER]),
            [{"a": 1}],
            [{"a": None}],
        ),
        (
            spark.MapType(LONG, LONG, False),
            pa.map_(pa.int64(), pa.field("value", pa.int64(), False)),
            [[(1, 1)]],
            [[(1, None)]],
        ),
        (
            spark.ArrayType(spark.StructType([spark.StructField("a", LONG, False)]), False),
            pa.list_(pa.field("element", pa.struct([INNER]), False)),
            [[{"a": 1}]],
            [[{"a": None}, None]],
        ),
    ],
    ids=["array", "struct", "map", "array of structs"],
)
def test_flags_of_nested_values_are_no_rules_of_the_table(
    tmp_path: Path, kind: spark.DataType, strict: pa.DataType, values: list, later: list
) -> None:
    table = write(tmp_path / "t", kind, pa.array(values, strict))
    table.append(pa.table({"v": pa.array(later, table.schema.field("v").type)}))
    assert txlog.Table(tmp_path / "t").to_arrow()["v"].to_pylist() == [*values, *later]


OF_ANOTHER = {
    "delta.columnMapping.id": 7,
    "delta.columnMapping.physicalName": "col-1",
    "delta.generationExpression": "1",
    "delta.identity.start": 1,
    "delta.identity.step": 1,
    "delta.typeChanges": [{"fromType": "integer", "toType": "long"}],
    "comment": "kept",
}


@pytest.mark.parametrize("option", ["", "mergeSchema", "overwriteSchema"])
def test_what_another_table_says_of_its_columns_is_left_behind(tmp_path: Path, option: str) -> None:
    path = tmp_path / "t"
    if option:
        txlog.write(path, pa.table({"old": [0]}))
    inner = spark.StructField("a", LONG, True, OF_ANOTHER)
    kind = spark.StructType([inner])
    fields = [spark.StructField("v", kind, True, OF_ANOTHER), inner]
    options = {"path": str(path), **({option: "true"} if option else {})}
    planned = writer.batch_writer(
        Options(options), spark.StructType(fields), option == "overwriteSchema"
    )
    rows = pa.table({"v": [{"a": 1}], "a": [1]})
    planned.commit([planned.write(iter(rows.to_batches()))])
    (log,) = (path / "_delta_log").glob("*1.json" if option else "*0.json")
    assert not any(name in log.read_text() for name in OF_ANOTHER if name != "comment")
    assert txlog.Table(path).count("v.a = 1 AND a = 1") == 1


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (spark.TimeType(), "v"),
        (spark.CalendarIntervalType(), "v"),
        (spark.DayTimeIntervalType(), "v"),
        (spark.YearMonthIntervalType(), "v"),
        (spark.ArrayType(spark.NullType(), False), "v.element"),
        (spark.MapType(spark.NullType(), LONG), "v.key"),
        (spark.MapType(LONG, spark.NullType()), "v.value"),
        (spark.StructType([]), "v"),
        (spark.ArrayType(spark.StructType([spark.StructField("a", spark.TimeType())])), "a"),
        (spark.StructType([spark.StructField("a", spark.DayTimeIntervalType())]), "v.a"),
    ],
    ids=lambda given: given if isinstance(given, str) else given.simpleString(),
)
def test_types_that_tables_lack_are_refused_before_a_task_runs(
    tmp_path: Path, kind: spark.DataType, field: str
) -> None:
    path = tmp_path / "t"
    schema = spark.StructType([spark.StructField("id", LONG), spark.StructField("v", kind)])
    for options in ({}, {"mergeSchema": "true"}):
        with pytest.raises(InvalidInputError) as found:
            writer.batch_writer(Options({"path": str(path), **options}), schema, False)
        assert found.value.argument == "df"
        assert (found.value.field or "").endswith(field)
        txlog.write(path, pa.table({"id": [1]}), mode="overwrite")


def test_an_empty_array_goes_into_a_column_that_has_a_type(tmp_path: Path) -> None:
    path = tmp_path / "t"
    txlog.write(path, pa.table({"v": pa.array([[1]])}))
    table = write(path, spark.ArrayType(spark.NullType(), False), pa.array([[]]))
    assert table.to_arrow()["v"].to_pylist() == [[1], []]
