"""A table has the same schema in Spark with each of txlog's readers."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

import txlog
from txlog.spark_ext import DeltaTable, read
from txlog.spark_ext import write as write_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FOLDED = StringType("UTF8_LCASE")
COLUMNS = StructType(
    [
        StructField("id", LongType(), False, {"comment": "counts"}),
        StructField("name", FOLDED, False, {"comment": "as written"}),
        StructField("part", FOLDED),
        StructField(
            "nested",
            StructType(
                [
                    StructField("text", FOLDED, False, {"comment": "inner"}),
                    StructField("texts", ArrayType(FOLDED, False)),
                    StructField("map", MapType(StringType(), FOLDED, False)),
                ]
            ),
        ),
    ]
)


def _nullable(kind: Any) -> Any:
    """Return a type with nulls allowed at every depth: the plain oracle."""
    if isinstance(kind, StructType):
        fields = [StructField(f.name, _nullable(f.dataType), True, f.metadata) for f in kind]
        return StructType(fields)
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType))
    return kind


@pytest.fixture
def table(spark: "SparkSession", tmp_path: Path) -> DeltaTable:
    path = str(tmp_path / "t")
    builder = DeltaTable.create(spark).location(path).addColumns(COLUMNS).partitionedBy("part")
    table = builder.execute()
    rows = [
        (n, text, part, (text, [text], {"k": text}))
        for n, (text, part) in enumerate(zip("aAbB", "pPqq", strict=True))
    ]
    write_frame(spark.createDataFrame(rows, COLUMNS), path)
    return table


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("deleted", [False, True])
def test_one_schema_and_one_answer(spark: "SparkSession", table: DeltaTable, deleted: bool) -> None:
    uri = table.table.uri
    if deleted:  # Files with deletion vectors are read apart, and united with the others.
        txlog.Table(uri).delete("id = 3")
    flagged = _nullable(COLUMNS)
    for name in ("id", "name"):  # The log shows that they have no nulls.
        flagged[name].nullable = False
    frames = [spark.read.format("txlog").load(uri), read(spark, uri), table.toDF()]
    for frame, schema in zip(frames, [_nullable(COLUMNS), flagged, flagged], strict=True):
        assert frame.schema == schema
        for condition, expected in [
            ("name = 'A'", [0, 1]),
            ("part = 'p'", [0, 1]),
            ("nested.text = 'B'", [2] if deleted else [2, 3]),
            ("array_contains(nested.texts, 'b')", [2] if deleted else [2, 3]),
            ("nested.map['k'] = 'A'", [0, 1]),
            ("name = 'A' AND id > 0", [1]),
        ]:
            assert sorted(row.id for row in frame.where(condition).collect()) == expected


@pytest.mark.slow
def test_where_compares_texts_byte_by_byte(spark: "SparkSession", table: DeltaTable) -> None:
    uri = table.table.uri
    by_format = spark.read.format("txlog").option("where", "name = 'A'").load(uri)
    for frame in (by_format, read(spark, uri, where="name = 'A'")):
        assert [row.id for row in frame.collect()] == [1]


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["name = 'A'", "part = 'P'", "nested.text = 'A'"])
def test_a_delete_goes_by_collation(table: DeltaTable, condition: str) -> None:
    table.delete(condition)
    assert sorted(txlog.Table(table.table.uri).to_arrow()["id"].to_pylist()) == [2, 3]
