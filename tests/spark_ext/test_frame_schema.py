"""What a table takes over from a frame's columns. No JVM is started."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

import txlog
from txlog.spark_ext import writer
from txlog.spark_ext.options import Options

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
