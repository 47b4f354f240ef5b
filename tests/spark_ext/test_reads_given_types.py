"""Tables whose fields keep types of Arrow are plain tables for Spark, and stay what they are."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import txlog
from txlog import spark_ext

pytestmark = pytest.mark.spark
METADATA = {b"team": b"x"}


def test_spark_reads_and_appends_floats(spark: SparkSession, tmp_path: Path) -> None:
    halves = pa.array([0.5, None], pa.float16())
    rows = pa.table({"id": [1, 2], "h": halves, "c": pa.array(["a", "b"]).dictionary_encode()})
    table = txlog.write(tmp_path / "t", rows.replace_schema_metadata(METADATA))
    frame = spark_ext.read(spark, table.uri)
    assert dict(frame.dtypes) == {"id": "bigint", "h": "float", "c": "string"}
    assert {tuple(row) for row in frame.collect()} == {(1, 0.5, "a"), (2, None, "b")}
    spark_ext.write(frame, table.uri, mode="append")
    table.refresh()
    assert table.to_arrow().schema.metadata == METADATA
    assert table.to_arrow()["h"].type == pa.float16()
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 1, 2, 2]
    assert pa.types.is_dictionary(table.scan(dictionaries=True).schema.field("c").type)
    wrong = frame.selectExpr("id", "CAST(0.1 AS FLOAT) AS h", "c")
    with pytest.raises(txlog.SchemaMismatchError, match="a number is no half float"):
        spark_ext.write(wrong, table.uri, mode="append")
    assert txlog.Table(table.uri).version == table.version
