"""Spark reads, writes and merges a branch, and streams from and to it, by storage options."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog import spark_ext
from txlog.spark_ext import DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.spec("BRA-2")]

OPTIONS = {"txlog.branch": "b"}
TEXT = '{"txlog.branch": "b"}'


@pytest.fixture
def uri(tmp_path: Path) -> str:
    table = txlog.write(tmp_path / "t", pa.table({"id": [1, 2, 3], "n": [0, 0, 0]}))
    table.branches.create("b")
    txlog.Table(table.uri, branch="b").append(pa.table({"id": [4], "n": [0]}))
    table.append(pa.table({"id": [100], "n": [0]}))  # Only main has it.
    return table.uri


def rows(uri: str, branch: str | None = "b") -> dict[int, int]:
    return {one["id"]: one["n"] for one in txlog.Table(uri, branch=branch).to_arrow().to_pylist()}


MAIN = {1: 0, 2: 0, 3: 0, 100: 0}


def frame(spark: "SparkSession", *ids: int) -> Any:
    return spark.createDataFrame([(one, 1) for one in ids], "id long, n long")


def test_reads(spark: "SparkSession", uri: str) -> None:
    found = spark_ext.read(spark, uri, storage_options=OPTIONS)
    assert sorted(row.id for row in found.collect()) == [1, 2, 3, 4]
    source = spark.read.format("txlog").option("storageOptions", TEXT)
    assert sorted(row.id for row in source.load(uri).collect()) == [1, 2, 3, 4]
    assert sorted(row.id for row in source.option("versionAsOf", 0).load(uri).collect()) == [
        1,
        2,
        3,
    ]
    assert sorted(row.id for row in spark_ext.read(spark, uri).collect()) == [1, 2, 3, 100]


def test_writes(spark: "SparkSession", uri: str) -> None:
    spark_ext.write(frame(spark, 5), uri, mode="append", storage_options=OPTIONS)
    writer = frame(spark, 6).write.format("txlog").mode("append")
    writer.option("storageOptions", TEXT).save(uri)
    assert rows(uri) == {1: 0, 2: 0, 3: 0, 4: 0, 5: 1, 6: 1}
    assert rows(uri, None) == MAIN
    table = txlog.Table(uri)
    table.branches.publish("b")
    assert rows(uri, None) == {**MAIN, 4: 0, 5: 1, 6: 1}


def test_merges(spark: "SparkSession", uri: str) -> None:
    table = spark_ext.table(spark, uri, storage_options=OPTIONS)
    merge = table.merge(frame(spark, 1, 7), "target.id = source.id")
    merge.when_matched_update({"n": "source.n"}).when_not_matched_insert_all().execute()
    table.delete("id = 2")
    assert rows(uri) == {1: 1, 3: 0, 4: 0, 7: 1}
    assert rows(uri, None) == MAIN


def test_streams(spark: "SparkSession", uri: str, tmp_path: Path) -> None:
    source = spark.readStream.format("txlog").option("storageOptions", TEXT).load(uri)
    writer = source.writeStream.format("txlog").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "copy"))
    query.awaitTermination()
    assert sorted(rows(str(tmp_path / "copy"), None)) == [1, 2, 3, 4]
    copy = txlog.Table(tmp_path / "copy")
    copy.branches.create("b")
    back = spark.readStream.format("txlog").load(uri).writeStream.format("txlog")
    back = back.option("checkpointLocation", str(tmp_path / "d")).option("storageOptions", TEXT)
    back.trigger(availableNow=True).start(str(tmp_path / "copy")).awaitTermination()
    assert sorted(rows(str(tmp_path / "copy"))) == [1, 2, 3, 4, 100]
    assert sorted(rows(str(tmp_path / "copy"), None)) == [1, 2, 3, 4]


def test_the_delta_table(spark: "SparkSession", uri: str) -> None:
    table = DeltaTable.forPath(spark, uri, OPTIONS)
    assert sorted(row.id for row in table.toDF().collect()) == [1, 2, 3, 4]


def test_the_branch_is_an_option_of_the_source(
    spark: "SparkSession", uri: str, tmp_path: Path
) -> None:
    read = spark.read.format("txlog").option("txlog.branch", "b").load(uri)
    assert sorted(row.id for row in read.collect()) == [1, 2, 3, 4]
    writer = frame(spark, 6).write.format("txlog").mode("append")
    writer.option("txlog.branch", "b").save(uri)
    assert sorted(rows(uri)) == [1, 2, 3, 4, 6]
    assert rows(uri, None) == MAIN
    txlog.Table.create(tmp_path / "copy", txlog.Table(uri).to_arrow().schema).branches.create("b")
    stream = spark.readStream.format("txlog").option("txlog.branch", "b").load(uri)
    back = stream.writeStream.format("txlog").option("txlog.branch", "b")
    back = back.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    back.start(str(tmp_path / "copy")).awaitTermination()
    assert sorted(rows(str(tmp_path / "copy"))) == [1, 2, 3, 4, 6]
    assert rows(str(tmp_path / "copy"), None) == {}
