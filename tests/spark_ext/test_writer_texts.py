"""A stream's simple values in a text column are those of SQL's assignment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import txlog
from txlog.spark_ext import sql, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

VALUES = {
    "i": "CAST(-5 AS INT)", "b": "true", "d": "DATE'2024-02-03'", "x": "1.5D", "e": "1e20D",
    "dec": "CAST(2.50 AS DECIMAL(5, 2))", "t": "TIMESTAMP'2024-07-01 12:00:00'", "s": "'as is'",
    "n": "CAST(NULL AS INT)",
}  # fmt: skip


def streamed(spark: SparkSession, rows: DataFrame, uri: str, **options: str) -> None:
    rows.write.format("parquet").save(f"{uri}-source")
    frames = spark.readStream.schema(rows.schema).parquet(f"{uri}-source")
    query = frames.writeStream.format("txlog").options(**options).trigger(availableNow=True)
    query.option("checkpointLocation", f"{uri}-checkpoint").start(uri).awaitTermination()


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_stream_stores_what_an_insert_stores(
    spark: SparkSession, tmp_path: Path, zone: str
) -> None:
    names = ", ".join(f"{value} AS {name}" for name, value in VALUES.items())
    schema = pa.schema([("i64", pa.int64()), *((name, pa.string()) for name in VALUES)])
    old = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    found: list[list[dict[str, Any]]] = []
    try:
        rows = spark.sql(f"SELECT 7L i64, {names}")
        for by in ("insert", "stream"):
            uri = str(tmp_path / by)
            txlog.write(uri, schema.empty_table())
            if by == "stream":
                streamed(spark, rows, uri)
            else:
                rows.createOrReplaceTempView("simple")
                sql(spark, f"INSERT INTO delta.`{uri}` BY NAME SELECT * FROM simple")
            found.append(txlog.Table(uri).to_arrow().to_pylist())
    finally:
        spark.conf.set("spark.sql.session.timeZone", old or "UTC")
    assert found[0] == found[1]
    assert found[1][0] == {
        "i64": 7, "i": "-5", "b": "true", "d": "2024-02-03", "x": "1.5", "e": "1.0E20",
        "dec": "2.50", "t": "2024-07-01 12:00:00", "s": "as is", "n": None,
    }  # fmt: skip


def test_other_types_are_refused_and_so_are_frames(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    txlog.write(uri, pa.table({"i": pa.array([], pa.int64()), "s": pa.array([], pa.string())}))
    with pytest.raises(StreamingQueryException, match="column i is string, but the table has long"):
        streamed(spark, spark.sql("SELECT '5' i, 5 s"), uri)
    with pytest.raises(txlog.SchemaMismatchError, match="column s is integer"):
        write(spark.sql("SELECT 5L i, 5 s"), uri)
    assert txlog.Table(uri).version == 0
