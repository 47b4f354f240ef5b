"""The streaming sink: each batch is one version."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commit_text import actions, transactions
from pyspark.sql.types import StructType

import txlog
from txlog.base.errors import InvalidInputError
from txlog.spark_ext import TxlogDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def drain(
    spark: "SparkSession",
    source: Path,
    table: Path,
    checkpoint: Path,
    *columns: Any,
    **options: str,
):
    query = (
        spark.readStream.schema("id LONG")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(source))
        .select(*columns or ["id"])
        .writeStream.format("txlog")
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .trigger(availableNow=True)
        .start(str(table))
    )
    query.awaitTermination()
    return query


@pytest.mark.slow
def test_batches_go_on_after_a_restart(spark: "SparkSession", tmp_path: Path) -> None:
    source, table, checkpoint = tmp_path / "in", tmp_path / "t", tmp_path / "c"
    source.mkdir()
    for number in range(3):
        pq.write_table(pa.table({"id": [number]}), source / f"{number}.parquet")
    first = drain(spark, source, table, checkpoint)
    for number in range(3, 5):
        pq.write_table(pa.table({"id": [number]}), source / f"{number}.parquet")
    second = drain(spark, source, table, checkpoint)
    assert first.id == second.id
    found = txlog.Table(table)
    assert sorted(found.to_arrow()["id"].to_pylist()) == list(range(5))
    assert (found.version, found.transaction_version(first.id)) == (4, 4)
    for entry in found.history():  # As Delta names what a stream commits; the first made the table.
        assert entry["operation"] == "STREAMING UPDATE"
        assert entry["operationParameters"] == {
            "outputMode": "Append",
            "queryId": first.id,
            "epochId": str(entry["version"]),
        }
        metrics = entry["operationMetrics"]
        assert (metrics["numAddedFiles"], metrics["numOutputRows"]) == ("1", "1")


@pytest.fixture
def _plain_udfs(spark: "SparkSession") -> Iterator[None]:
    """Spark 4.2 hangs if an Arrow UDF precedes another Python step, as docs/spark.md says."""
    spark.conf.set("spark.sql.execution.pythonUDF.arrow.enabled", "false")
    yield
    spark.conf.unset("spark.sql.execution.pythonUDF.arrow.enabled")


@pytest.mark.slow
@pytest.mark.usefixtures("_plain_udfs")
def test_a_function_that_fails_ends_the_query_before_its_batch(
    spark: "SparkSession", tmp_path: Path
) -> None:
    from pyspark.sql import functions as fn

    source, table, checkpoint = tmp_path / "in", tmp_path / "t", tmp_path / "c"
    for number in range(3):
        put_file(source, number, number)

    def run(bad: int) -> None:
        def checked(number: int) -> int:
            if number == bad:
                raise RuntimeError(f"cannot take {number}")
            return number

        drain(spark, source, table, checkpoint, fn.udf(checked, "long")("id").alias("id"))

    with pytest.raises(Exception, match="cannot take 1"):
        run(bad=1)
    assert txlog.Table(table).version == 0
    run(bad=-1)  # As if it were mended: the batch is taken again.
    assert txlog.Table(table).version == 2
    assert sorted(txlog.Table(table).to_arrow()["id"].to_pylist()) == [0, 1, 2]


def put_file(source: Path, number: int, *ids: int) -> None:
    source.mkdir(exist_ok=True)
    file = source / f"{number}.parquet"
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), file)
    os.utime(file, (1_700_000_000 + number,) * 2)  # Spark reads them in the order of their times.


@pytest.mark.slow
@pytest.mark.spec("STR-47")
def test_a_table_that_vanished_between_batches_is_not_made_anew(
    spark: "SparkSession", tmp_path: Path
) -> None:
    source, table, checkpoint = tmp_path / "in", tmp_path / "t", tmp_path / "c"
    put_file(source, 1, 1)
    drain(spark, source, table, checkpoint)
    schema = txlog.Table(table).schema
    table.rename(tmp_path / "elsewhere")
    put_file(source, 2, 2)
    with pytest.raises(Exception, match=r"not-found.*the query wrote earlier batches"):
        drain(spark, source, table, checkpoint)
    assert not [path for path in table.rglob("*") if path.is_file()]
    table.exists() and shutil.rmtree(table)
    (tmp_path / "elsewhere").rename(table)
    drain(spark, source, table, checkpoint)
    assert sorted(txlog.Table(table).to_arrow()["id"].to_pylist()) == [1, 2]
    shutil.rmtree(table)  # As the error says, an empty one will do.
    txlog.Table.create(table, schema)
    put_file(source, 3, 3)
    drain(spark, source, table, checkpoint)
    assert txlog.Table(table).to_arrow()["id"].to_pylist() == [3]


@pytest.mark.slow
@pytest.mark.spec("STR-41", "STR-42")
def test_an_application_goes_with_its_checkpoint(spark: "SparkSession", tmp_path: Path) -> None:
    source, table, named = tmp_path / "in", tmp_path / "t", {"txnAppId": "ingest"}
    put_file(source, 1, 1)
    first = drain(spark, source, table, tmp_path / "c", **named)
    assert transactions(table, 0) == {"ingest": 0, f"ingest@{first.id}": 0, first.id: 0}
    put_file(source, 2, 2)
    drain(spark, source, table, tmp_path / "c", **named)
    assert transactions(table, 1) == {"ingest": 1, f"ingest@{first.id}": 1, first.id: 1}

    files = set(table.glob("*.parquet"))
    with pytest.raises(Exception, match=r"invalid-input.*'ingest'.*the query has a new checkpoint"):
        drain(spark, source, table, tmp_path / "new", **named)
    found = txlog.Table(table)
    assert (found.version, sorted(found.to_arrow()["id"].to_pylist())) == (1, [1, 2])
    assert set(table.glob("*.parquet")) == files
    # The right checkpoint goes on; the new one may take another name.
    put_file(source, 3, 3)
    drain(spark, source, table, tmp_path / "c", **named)
    other = drain(spark, source, table, tmp_path / "newer", txnAppId="again")
    assert transactions(table, 5) == {"again": 2, f"again@{other.id}": 2, other.id: 2}
    assert found.refresh().count() == 6


@pytest.mark.slow
@pytest.mark.spec("STR-42")
def test_a_batch_job_is_another_application(spark: "SparkSession", tmp_path: Path) -> None:
    source, table = tmp_path / "in", tmp_path / "t"
    txlog.write(table, pa.table({"id": [0]}), txn=("ingest", 7))
    put_file(source, 1, 1)
    with pytest.raises(Exception, match="records version 7 of the application 'ingest'"):
        drain(spark, source, table, tmp_path / "c", txnAppId="ingest")
    assert txlog.Table(table).version == 0


@pytest.mark.slow
@pytest.mark.spec("STR-41")
def test_without_a_name_the_query_is_the_application(spark: "SparkSession", tmp_path: Path) -> None:
    put_file(tmp_path / "in", 1, 1)
    query = drain(spark, tmp_path / "in", tmp_path / "t", tmp_path / "c")
    assert transactions(tmp_path / "t", 0) == {query.id: 0}


@pytest.mark.slow
@pytest.mark.spec("STR-43")
def test_a_batch_without_rows_is_a_version(spark: "SparkSession", tmp_path: Path) -> None:
    source, table = tmp_path / "in", tmp_path / "t"
    for number, ids in enumerate(([1], [], [2])):
        put_file(source, number, *ids)
    query = drain(spark, source, table, tmp_path / "c")
    kinds = [{name for action in actions(table, at) for name in action} for at in range(3)]
    assert [kind for kind in kinds if "add" not in kind] == [{"commitInfo", "txn"}]
    assert [transactions(table, version) for version in range(3)] == [
        {query.id: version} for version in range(3)
    ]
    assert sorted(txlog.Table(table).to_arrow()["id"].to_pylist()) == [1, 2]


@pytest.mark.slow
@pytest.mark.spec("STR-43")
def test_complete_mode_replaces_all_rows(spark: "SparkSession", tmp_path: Path) -> None:
    source, table = tmp_path / "in", tmp_path / "t"
    for number, ids in enumerate(([1, 1, 2], [2, 3])):
        put_file(source, number, *ids)
    stream = spark.readStream.schema("id LONG").option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = stream.groupBy("id").count().writeStream.format("txlog").outputMode("complete")
    writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    writer.start(str(table)).awaitTermination()
    found = [txlog.Table(table, version=version).to_arrow().to_pylist() for version in (0, 1)]
    assert [sorted((row["id"], row["count"]) for row in rows) for rows in found] == [
        [(1, 2), (2, 1)],
        [(1, 2), (2, 2), (3, 1)],
    ]
    for version in (0, 1):
        info = actions(table, version)[0]["commitInfo"]
        assert info["operation"] == "STREAMING UPDATE"
        assert info["operationParameters"]["outputMode"] == "Complete"
        assert (int(info["operationMetrics"]["numRemovedFiles"]) > 0) is (version > 0)


def test_wrong_options_of_a_stream(spark: "SparkSession", tmp_path: Path) -> None:
    source, table = tmp_path / "in", tmp_path / "t"
    put_file(source, 1, 1)
    for options, match in (
        ({"replaceWhere": "id > 1"}, "replaces no rows"),
        ({"txnAppId": ""}, "txnAppId"),
    ):
        with pytest.raises(InvalidInputError, match=match):
            TxlogDataSource({"path": str(table), **options}).streamWriter(StructType(), False)
    with pytest.raises(Exception, match=r"invalid-input.*a stream uses the ids of its batches"):
        drain(spark, source, table, tmp_path / "c", txnVersion="1")
    assert not table.exists()


@pytest.mark.slow
def test_two_queries_into_one_table_do_not_shadow_each_other(
    spark: "SparkSession", tmp_path: Path
) -> None:
    source, table = tmp_path / "in", tmp_path / "t"
    source.mkdir()
    pq.write_table(pa.table({"id": [1]}), source / "1.parquet")
    drain(spark, source, table, tmp_path / "c1")
    drain(spark, source, table, tmp_path / "c2")
    assert txlog.Table(table).to_arrow()["id"].to_pylist() == [1, 1]
