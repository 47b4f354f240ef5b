"""A column of type void gets a type at every door of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog.spark_ext import DeltaTable, sql, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TYPED = "SELECT 7L id, 'a' n, named_struct('b', 2L, 'v', 1.5D) s"


def by_frame(spark: SparkSession, uri: str, rows: DataFrame) -> None:
    rows.write.format("txlog").mode("append").option("mergeSchema", "true").save(uri)


def by_write(spark: SparkSession, uri: str, rows: DataFrame) -> None:
    write(rows, uri, schema_mode="merge")


def by_merge(spark: SparkSession, uri: str, rows: DataFrame) -> None:
    table = DeltaTable.forPath(spark, uri).alias("t").merge(rows.alias("s"), "t.id = s.id")
    table = table.whenMatchedUpdateAll().whenNotMatchedInsertAll()
    table.withSchemaEvolution().execute()


def by_sql_merge(spark: SparkSession, uri: str, rows: DataFrame) -> None:
    rows.createOrReplaceTempView("typed")
    sql(spark, f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{uri}` t USING typed s ON t.id = s.id "
               "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")  # fmt: skip


def by_alter(spark: SparkSession, uri: str, rows: DataFrame) -> None:
    sql(spark, f"ALTER TABLE delta.`{uri}` ALTER COLUMN n TYPE STRING")
    sql(spark, f"ALTER TABLE delta.`{uri}` ALTER COLUMN s.v TYPE DOUBLE")
    write(rows, uri)


def by_stream(spark: SparkSession, uri: str, rows: DataFrame) -> None:
    source = f"{uri}-source"
    rows.write.format("parquet").save(source)
    frames = spark.readStream.schema(rows.schema).parquet(source)
    query = frames.writeStream.format("txlog").option("mergeSchema", "true")
    query = query.option("checkpointLocation", f"{uri}-checkpoint").trigger(availableNow=True)
    query.start(uri).awaitTermination()


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("give", [by_frame, by_write, by_merge, by_sql_merge, by_alter, by_stream])
def test_it_gets_the_type_of_the_first_values(
    spark: SparkSession, tmp_path: Path, give: Any
) -> None:
    uri = str(tmp_path / "t")
    rows = spark.sql("SELECT 1L id, NULL n, named_struct('b', 1L, 'v', NULL) s")
    write(rows, uri)
    assert txlog.Table(uri).schema.field("n").type == pa.null()
    before = txlog.Table(uri).version
    if give is not by_alter:
        with pytest.raises(txlog.TxlogError, match="void"):
            write(spark.sql(TYPED), uri)
        with pytest.raises(txlog.SchemaMismatchError, match="has no type yet"):
            sql(spark, f"UPDATE delta.`{uri}` SET n = 'x'")
        with pytest.raises(txlog.SchemaMismatchError, match="has no type yet"):
            DeltaTable.forPath(spark, uri).update(set={"s.v": "1"})
    assert txlog.Table(uri).version == before
    give(spark, uri, spark.sql(TYPED))
    write(spark.sql("SELECT 8L id, NULL n, NULL s"), uri)
    assert sorted(txlog.Table(uri).to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "n": None, "s": {"b": 1, "v": None}},
        {"id": 7, "n": "a", "s": {"b": 2, "v": 1.5}},
        {"id": 8, "n": None, "s": None},
    ]
