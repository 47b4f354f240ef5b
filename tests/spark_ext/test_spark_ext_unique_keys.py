"""Unique keys hold at every door of Spark, and their errors are those of the core."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import txlog
from txlog import spark_ext
from txlog.spark_ext import DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.spec("UNQ-2", "UNQ-4")]
Write = Callable[["SparkSession", str, "DataFrame"], object]


def merged(spark: SparkSession, uri: str, rows: DataFrame) -> None:
    (
        spark_ext.table(spark, uri)
        .merge(rows.withColumnRenamed("id", "key"), "false AND target.id = source.key")
        .when_not_matched_insert({"id": "source.key", "v": "source.v"})
        .execute()
    )


def merged_by_delta(spark: SparkSession, uri: str, rows: DataFrame) -> None:
    (
        DeltaTable.forPath(spark, uri)
        .alias("t")
        .merge(rows.alias("s"), "t.id = s.id AND t.v = s.v")
        .whenNotMatchedInsertAll()
        .execute()
    )


def inserted(spark: SparkSession, uri: str, rows: DataFrame) -> None:
    rows.createOrReplaceTempView("new_rows")
    spark_ext.sql(spark, f"INSERT INTO delta.`{uri}` SELECT * FROM new_rows")


def updated(spark: SparkSession, uri: str, rows: DataFrame) -> None:
    key = rows.orderBy("id").first()
    assert key is not None
    spark_ext.sql(spark, f"UPDATE delta.`{uri}` SET id = {key[0]} WHERE id = 1")


DOORS: dict[str, Write] = {
    "function": lambda _, uri, rows: spark_ext.write(rows, uri, mode="append"),
    "format": lambda _, uri, rows: rows.write.format("txlog").mode("append").save(uri),
    "insert": inserted,
    "merge": merged,
    "DeltaTable": merged_by_delta,
    "update": updated,
}


@pytest.fixture
def uri(tmp_path: Path) -> str:
    table = txlog.write(tmp_path / "t", pa.table({"id": [1, 2], "v": ["a", "b"]}))
    table.alter.add_constraint({"pk": txlog.unique("id")})
    return table.uri


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
def test_a_key_that_is_there_is_refused_and_another_is_not(
    spark: SparkSession, uri: str, door: str
) -> None:
    with pytest.raises(Exception, match=r"duplicate-key.*id = 2") as caught:
        DOORS[door](spark, uri, spark.createDataFrame([(2, "x")], "id BIGINT, v STRING"))
    assert door == "format" or isinstance(caught.value, txlog.DuplicateKeyError)
    before = txlog.Table(uri)
    assert before.version == 1
    DOORS[door](spark, uri, spark.createDataFrame([(7, "x")], "id BIGINT, v STRING"))
    assert 7 in txlog.Table(uri).to_arrow()["id"].to_pylist()


def test_rows_of_several_tasks_are_compared(spark: SparkSession, uri: str) -> None:
    rows = spark.createDataFrame([(8, "x"), (8, "y")], "id BIGINT, v STRING").repartition(2, "v")
    with pytest.raises(txlog.DuplicateKeyError, match=r"id = 8 \(2 rows\)"):
        spark_ext.write(rows, uri, mode="append")
    assert len(list(Path(uri).glob("*.parquet"))) == 1


@pytest.mark.slow
def test_a_stream_ends_at_a_key_that_is_there(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    source = txlog.write(tmp_path / "source", pa.table({"id": [5, 6], "v": ["e", "f"]}))

    def follow() -> None:
        stream = spark.readStream.format("txlog").load(source.uri)
        writer = stream.writeStream.format("txlog").option("checkpointLocation", f"{tmp_path}/c")
        writer.trigger(availableNow=True).start(uri).awaitTermination()

    follow()
    source.append(pa.table({"id": [2], "v": ["x"]}))
    with pytest.raises(Exception, match=r"duplicate-key.*id = 2"):
        follow()
    txlog.Table(uri).delete("id = 2")  # Then the batch is tried again.
    follow()
    rows = txlog.Table(uri).to_arrow().sort_by("id").to_pydict()
    assert rows == {"id": [1, 2, 5, 6], "v": ["a", "x", "e", "f"]}
