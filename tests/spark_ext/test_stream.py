"""The streaming sink: each batch is one version, exactly once, whatever dies."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DRIVER = Path(__file__).with_name("streaming_driver.py")


def run_driver(table: Path, checkpoint: Path, batches: int, kill_after: int) -> int:
    """Run the driver to its end, or to its death; return its exit code."""
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(table), str(checkpoint), str(batches), str(kill_after)],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(DRIVER.parent), *sys.path]),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode


def last_number(folder: Path) -> int:
    return max(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def test_a_driver_killed_between_the_two_commits_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    table, checkpoint = tmp_path / "t", tmp_path / "c"
    run_driver(table, checkpoint, batches=10, kill_after=2)
    # The table has batch 2, Spark's own log does not: that is the point in question.
    before = txlog.Table(table)
    assert before.version == 2
    assert last_number(checkpoint / "offsets") == 2
    assert last_number(checkpoint / "commits") == 1
    assert run_driver(table, checkpoint, batches=5, kill_after=-1) == 0
    after = txlog.Table(table)
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    assert after.transaction_version(query) == after.version >= 4
    values = sorted(after.to_arrow(["value"])["value"].to_pylist())
    assert values == list(range((after.version + 1) * 100))
    # Batch 2 was run again, and recognised: no version repeats it.
    assert [entry["operationMetrics"]["numOutputRows"] for entry in after.history()] == ["100"] * (
        after.version + 1
    )


def drain(spark: "SparkSession", source: Path, table: Path, checkpoint: Path, **options: str):
    query = (
        spark.readStream.schema("id LONG")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(source))
        .writeStream.format("txlog")
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .trigger(availableNow=True)
        .start(str(table))
    )
    query.awaitTermination()
    return query


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


def test_the_application_can_be_named(spark: "SparkSession", tmp_path: Path) -> None:
    source, table = tmp_path / "in", tmp_path / "t"
    source.mkdir()
    pq.write_table(pa.table({"id": [1]}), source / "1.parquet")
    drain(spark, source, table, tmp_path / "c", txnAppId="ingest")
    assert txlog.Table(table).transaction_version("ingest") == 0


def test_two_queries_into_one_table_do_not_shadow_each_other(
    spark: "SparkSession", tmp_path: Path
) -> None:
    source, table = tmp_path / "in", tmp_path / "t"
    source.mkdir()
    pq.write_table(pa.table({"id": [1]}), source / "1.parquet")
    drain(spark, source, table, tmp_path / "c1")
    drain(spark, source, table, tmp_path / "c2")
    assert txlog.Table(table).to_arrow()["id"].to_pylist() == [1, 1]
