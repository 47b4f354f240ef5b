"""An audit whose block writes with Spark: each door of Spark names the branch."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog import spark_ext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.spec("BRA-60")]

NAME = "nightly"


def merged(frame: "DataFrame", uri: str) -> None:
    table = spark_ext.DeltaTable.forPath(frame.sparkSession, uri, branch=NAME)
    merge = table.alias("t").merge(frame.alias("s"), "t.id = s.id")
    merge.whenNotMatchedInsertAll().execute()


def streamed(frame: "DataFrame", uri: str) -> None:
    spark = frame.sparkSession
    frame.write.mode("append").parquet(f"{uri}-source")
    stream = spark.readStream.schema("id long").parquet(f"{uri}-source")
    writer = stream.writeStream.format("txlog").option("branch", NAME).trigger(availableNow=True)
    writer.option("checkpointLocation", f"{uri}-checkpoint").start(uri).awaitTermination()


def inserted(frame: "DataFrame", uri: str) -> None:
    spark = frame.sparkSession
    frame.createOrReplaceTempView("new_rows")
    spark_ext.create_view(spark, "audited", uri, branch=NAME)
    spark_ext.sql(spark, "INSERT INTO audited SELECT * FROM new_rows")


DOORS: dict[str, Callable[["DataFrame", str], Any]] = {
    "write": lambda frame, uri: spark_ext.write(frame, uri, branch=NAME),
    "options": lambda frame, uri: spark_ext.write(
        frame, uri, storage_options={"txlog.branch": NAME}
    ),
    "format": lambda frame, uri: (
        frame.write.format("txlog").mode("append").option("branch", NAME).save(uri)
    ),
    "merge": merged,
    "stream": streamed,
    "sql": inserted,
}


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
def test_spark_writes_to_the_branch(spark: "SparkSession", tmp_path: Path, door: str) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": pa.array([1], pa.int64())}))
    with table.audit(NAME, {"all": "count(*) = 11 AND count_if(id IS NULL) = 0"}):
        DOORS[door](spark.range(10, 20), table.uri)
        assert table.at().count() == 1
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, *range(10, 20)]
    if door == "stream":  # The source keeps its rows, and the checkpoint its batches.
        door = "write"

    def failing() -> None:
        with table.audit(NAME, new_rows={"small": "max(id) < 25"}):
            DOORS[door](spark.range(20, 30), table.uri)

    with pytest.raises(txlog.AuditFailedError) as caught:
        failing()
    assert caught.value.figures == {"small": {"max(id)": 29}}
    assert table.refresh().count() == 11
    assert txlog.Table(table.uri, branch=NAME).count() == 21


@pytest.mark.slow
def test_rows_that_do_not_fit_are_no_matter_of_the_audit(
    spark: "SparkSession", tmp_path: Path
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = txlog.Table.create(tmp_path / "t", schema)
    rows = spark.range(0, 20, 1, 2).selectExpr("IF(id % 4 = 0, NULL, id) AS id")
    with table.audit(NAME, {"enough": "count(*) >= 15"}):
        spark_ext.write(
            rows, table.uri, branch=NAME, on_error="quarantine", quarantine=tmp_path / "q"
        )
    assert (table.count(), txlog.Table(tmp_path / "q").count()) == (15, 5)
