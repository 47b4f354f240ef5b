"""Spark reads, writes and merges a branch, and streams from and to it, by each way to name it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog import spark_ext
from txlog.base.errors import CommitConflictError, InvalidInputError, NotFoundError
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


@pytest.mark.slow
def test_writes(spark: "SparkSession", uri: str) -> None:
    spark_ext.write(frame(spark, 5), uri, mode="append", storage_options=OPTIONS)
    writer = frame(spark, 6).write.format("txlog").mode("append")
    writer.option("storageOptions", TEXT).save(uri)
    assert rows(uri) == {1: 0, 2: 0, 3: 0, 4: 0, 5: 1, 6: 1}
    assert rows(uri, None) == MAIN
    table = txlog.Table(uri)
    table.branches.publish("b")
    assert rows(uri, None) == {**MAIN, 4: 0, 5: 1, 6: 1}


@pytest.mark.slow
def test_merges(spark: "SparkSession", uri: str) -> None:
    table = spark_ext.table(spark, uri, storage_options=OPTIONS)
    merge = table.merge(frame(spark, 1, 7), "target.id = source.id")
    merge.when_matched_update({"n": "source.n"}).when_not_matched_insert_all().execute()
    table.delete("id = 2")
    assert rows(uri) == {1: 1, 3: 0, 4: 0, 7: 1}
    assert rows(uri, None) == MAIN


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.spec("STR-12")
def test_a_query_does_not_go_on_with_another_branch_of_the_name(
    spark: "SparkSession", uri: str, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    def run() -> None:
        source = spark.readStream.format("txlog").option("branch", "b").load(uri)
        writer = source.writeStream.format("txlog").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "c"))
        query.start(str(tmp_path / "copy")).awaitTermination()

    run()
    txlog.Table(uri, branch="b").append(pa.table({"id": [5], "n": [0]}))
    run()
    assert sorted(rows(str(tmp_path / "copy"), None)) == [1, 2, 3, 4, 5]
    table = txlog.Table(uri)
    table.branches.discard("b")
    table.branches.create("b")
    for number in range(6, 9):
        txlog.Table(uri, branch="b").append(pa.table({"id": [number], "n": [0]}))
    with pytest.raises(StreamingQueryException, match="the checkpoint is of the branch with id"):
        run()
    assert sorted(rows(str(tmp_path / "copy"), None)) == [1, 2, 3, 4, 5]


def test_the_delta_table(spark: "SparkSession", uri: str) -> None:
    table = DeltaTable.forPath(spark, uri, OPTIONS)
    assert sorted(row.id for row in table.toDF().collect()) == [1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("option", ["branch", "txlog.branch"])
def test_the_branch_is_an_option_of_the_source(
    spark: "SparkSession", uri: str, tmp_path: Path, option: str
) -> None:
    read = spark.read.format("txlog").option(option, "b").load(uri)
    assert sorted(row.id for row in read.collect()) == [1, 2, 3, 4]
    writer = frame(spark, 6).write.format("txlog").mode("append")
    writer.option(option, "b").save(uri)
    assert sorted(rows(uri)) == [1, 2, 3, 4, 6]
    assert rows(uri, None) == MAIN
    txlog.Table.create(tmp_path / "copy", txlog.Table(uri).to_arrow().schema).branches.create("b")
    stream = spark.readStream.format("txlog").option(option, "b").load(uri)
    back = stream.writeStream.format("txlog").option(option, "b")
    back = back.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    back.start(str(tmp_path / "copy")).awaitTermination()
    assert sorted(rows(str(tmp_path / "copy"))) == [1, 2, 3, 4, 6]
    assert rows(str(tmp_path / "copy"), None) == {}


@pytest.mark.slow
def test_the_branch_is_an_argument(spark: "SparkSession", uri: str) -> None:
    read = spark_ext.read(spark, uri, branch="b", where="id > 1")
    assert sorted(row.id for row in read.collect()) == [2, 3, 4]
    spark_ext.write(frame(spark, 5), uri, branch="b")
    txlog.write(uri, pa.table({"id": [6], "n": [1]}), mode="append", branch="b")
    table = spark_ext.table(spark, uri, branch="b")
    table.merge(frame(spark, 1), "target.id = source.id").when_matched_delete().execute()
    delta = DeltaTable.forPath(spark, uri, branch="b")
    delta.update("id = 2", {"n": "7"})
    delta.alias("t").merge(frame(spark, 3).alias("s"), "t.id = s.id").whenMatchedDelete().execute()
    named = DeltaTable.forName(spark, f"delta.`{uri}`", branch="b")
    named.delete("id = 4")
    assert {row.id: row.n for row in named.toDF().collect()} == {2: 7, 5: 1, 6: 1}
    assert rows(uri) == {2: 7, 5: 1, 6: 1}
    keyed = spark_ext.lookup(spark, uri, [2, 100], on="id", branch="b").collect()
    assert [(row.id, row.n) for row in keyed] == [(2, 7)]
    found = spark_ext.lookup_join(frame(spark, 6).select("id"), uri, on="id", branch="b")
    assert [(row.id, row.n) for row in found.collect()] == [(6, 1)]
    assert rows(uri, None) == MAIN


def test_tasks_of_a_look_up_mean_the_branch_that_was_opened(
    spark: "SparkSession", uri: str
) -> None:
    found = spark_ext.lookup(spark, uri, [4, 9], on="id", branch="b")
    table = txlog.Table(uri)
    table.branches.discard("b")
    table.branches.create("b", version=0)
    txlog.Table(uri, branch="b").append(pa.table({"id": [9], "n": [0]}))
    assert [row.id for row in found.collect()] == [4]


@pytest.mark.slow
def test_sql_changes_a_branch_by_views_and_options(spark: "SparkSession", uri: str) -> None:
    spark_ext.create_view(spark, "audited", uri, branch="b")
    spark_ext.sql(spark, "INSERT INTO audited VALUES (5, 1)")
    spark_ext.sql(spark, "UPDATE audited SET n = 3 WHERE id = 1")
    spark_ext.sql(spark, "DELETE FROM audited WHERE id = 2")
    assert rows(uri) == {1: 3, 3: 0, 4: 0, 5: 1}
    assert sorted(row.id for row in spark.sql("SELECT id FROM audited").collect()) == [1, 3, 4, 5]
    options = {"txlog.branch": "b"}
    spark_ext.sql(spark, f"DELETE FROM delta.`{uri}` WHERE id = 3", storage_options=options)
    assert rows(uri) == {1: 3, 4: 0, 5: 1}
    view = f"CREATE OR REPLACE TEMPORARY VIEW plain USING txlog OPTIONS (path '{uri}', branch 'b')"
    spark.sql(view)
    spark.sql("INSERT INTO plain VALUES (6, 1)")
    assert rows(uri) == {1: 3, 4: 0, 5: 1, 6: 1}
    assert rows(uri, None) == MAIN


@pytest.mark.slow
@pytest.mark.spec("STR-47")
def test_a_stream_does_not_take_a_new_branch_for_the_one_it_wrote_to(
    spark: "SparkSession", uri: str, tmp_path: Path
) -> None:
    def run(number: int, checkpoint: str = "c") -> None:
        frame(spark, number).write.mode("append").parquet(str(tmp_path / "source"))
        source = spark.readStream.schema("id long, n long").parquet(str(tmp_path / "source"))
        source = source.where("id <> 11")  # A batch without rows counts, too.
        writer = source.writeStream.format("txlog").option("branch", "b")
        writer = writer.option("checkpointLocation", str(tmp_path / checkpoint))
        writer.trigger(availableNow=True).start(uri).awaitTermination()

    table = txlog.Table(uri)
    run(10)
    run(11)
    run(12)
    assert {10, 12} <= rows(uri).keys()
    table.branches.discard("b")
    table.branches.create("b")
    with pytest.raises(Exception, match="lacks the record of batch 2"):
        run(13)
    assert rows(uri) == MAIN
    run(14, "another checkpoint")
    assert {10, 12, 13, 14} <= rows(uri).keys()
    # A branch that begins with the batches of the table continues them.
    table.branches.publish("b")
    table.branches.create("b")
    run(15, "another checkpoint")
    assert {10, 12, 13, 14, 15} <= rows(uri).keys()


@pytest.mark.slow
@pytest.mark.spec("CON-30")
def test_versions_of_a_branch_are_none_of_its_table(spark: "SparkSession", uri: str) -> None:
    for number in range(200, 203):
        txlog.write(uri, pa.table({"id": [number], "n": [0]}), mode="append")
    source = spark.read.format("txlog").option("branch", "b").load(uri)
    for read in (spark_ext.read(spark, uri, branch="b"), source):  # An older version than main's.
        spark_ext.write(read, uri, mode="overwrite")
        assert sorted(rows(uri, None)) == [1, 2, 3, 4]
    read = spark_ext.read(spark, uri, branch="b")
    spark_ext.write(frame(spark, 5), uri, branch="b")
    with pytest.raises(CommitConflictError):  # But those of one branch count.
        spark_ext.write(read, uri, mode="overwrite", branch="b")
    sources = (
        spark_ext.read(spark, uri),
        spark.read.format("txlog").load(uri).where("id < 3"),
        spark.read.format("txlog").option("branch", "b").load(uri).where("id < 2"),
    )
    for found, read in zip(([1, 2, 3, 4], [1, 2], [1]), sources, strict=True):
        spark_ext.write(read, uri, mode="overwrite", branch="b")
        assert sorted(rows(uri)) == found


DOORS: dict[str, Callable[["SparkSession", str, str], Any]] = {
    "read": lambda spark, uri, name: spark_ext.read(spark, uri, branch=name),
    "write": lambda spark, uri, name: spark_ext.write(frame(spark, 5), uri, branch=name),
    "table": lambda spark, uri, name: spark_ext.table(spark, uri, branch=name),
    "view": lambda spark, uri, name: spark_ext.create_view(spark, "v", uri, branch=name),
    "lookup": lambda spark, uri, name: spark_ext.lookup(spark, uri, [1], on="id", branch=name),
    "forName": lambda spark, uri, name: DeltaTable.forName(spark, f"delta.`{uri}`", branch=name),
    "core": lambda _, uri, name: txlog.Table(uri, branch=name),
    "write of the core": lambda _, uri, name: txlog.write(
        uri, pa.table({"id": [6], "n": [1]}), mode="append", branch=name
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_each_door_refuses_what_the_core_refuses(
    spark: "SparkSession", uri: str, tmp_path: Path, door: str
) -> None:
    with pytest.raises(NotFoundError, match="branch"):
        DOORS[door](spark, uri, "c")
    with pytest.raises(InvalidInputError, match="not the name of a branch") as caught:
        DOORS[door](spark, uri, "main")
    assert caught.value.argument == "branch"
    with pytest.raises(NotFoundError):
        DOORS[door](spark, str(tmp_path / "none"), "b")
    assert not (tmp_path / "none").exists()
    assert rows(uri, None) == MAIN


def test_the_source_and_delta_table_refuse_a_missing_branch(
    spark: "SparkSession", uri: str, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="NotFoundError"):
        spark.read.format("txlog").option("branch", "c").load(uri).collect()
    with pytest.raises(PySparkException, match="NotFoundError"):
        frame(spark, 5).write.format("txlog").mode("append").option("branch", "c").save(uri)
    with pytest.raises(PySparkException, match="branch"):
        DeltaTable.forPath(spark, uri, branch="c")
    with pytest.raises(InvalidInputError, match="another branch"):
        DeltaTable.forPath(spark, uri, OPTIONS, branch="c")
    assert rows(uri, None) == MAIN
