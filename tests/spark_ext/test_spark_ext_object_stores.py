"""Spark on an object store: executors write, delete, stream and read without a jar for it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from counted_engine import Counted
from servers import SECRET, Server, localbucket, missing

import txlog
from tests.moved import moved
from txlog import spark_ext
from txlog.store.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def s3() -> Iterator[Server]:
    if why := missing("localbucket"):
        pytest.skip(why)
    with localbucket() as server:
        yield server


@pytest.mark.slow
def test_executors_write_stream_delete_and_read(
    spark: "SparkSession", s3: Server, tmp_path: Path
) -> None:
    root = s3.root().replace(" ", "_")
    options = json.dumps(s3.options)
    frame = spark.range(0, 100, 1, 2)
    writer = frame.write.format("txlog").mode("append")
    writer.option("secretStorageOptions", options).save(root)
    frame.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in")).writeStream
    query = (
        stream.format("txlog")
        .option("secretStorageOptions", options)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(root)
    )
    query.awaitTermination()
    found = txlog.Table(root, storage_options=s3.options)
    assert found.count() == 200
    spark_ext.table(spark, root, storage_options=s3.options).delete("id < 10")
    read = spark_ext.read(spark, root, storage_options=s3.options)
    assert read.count() == 180
    plan = read._jdf.queryExecution().toString()  # type: ignore[operator]
    kept = [path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    log = [found._context.store.read(f"_delta_log/{n:020d}.json") for n in range(3)]
    assert SECRET not in plan
    assert not [data for data in kept + log if SECRET.encode() in data]


@pytest.mark.slow
def test_executors_list_the_files_of_a_vacuum(spark: "SparkSession", s3: Server) -> None:
    rows = pa.table({"x": [*range(40)], "y": [0] * 40})
    uri = f"{s3.root()}/listed"
    txlog.write(uri, rows, partition_by="x", storage_options=s3.options).delete("x < 10")
    open_store(uri, s3.options).write_new("x=3/part-of-nobody.parquet", b"")
    ranges = {"txlog.verbs.listing:_RANGE": 10, "txlog.verbs.listing:_SAMPLED": 2}
    options: dict[str, Any] = {"retention_hours": 0, "enforce_retention_duration": False}
    here = txlog.Table(uri, storage_options=s3.options)
    engine = Counted(spark, local_items=0)
    there = txlog.Table(uri, storage_options=s3.options, engine=engine)
    with moved(ranges):
        assert there.vacuum(**options) == here.vacuum(**options)
        assert engine.jobs == 1
        assert there.doctor(0) == here.doctor(0)
        assert engine.jobs == 2
        gone = there.vacuum(dry_run=False, **options).column("decision").to_pylist()
    assert gone.count("delete") == 11
    assert here.refresh().to_arrow()["x"].to_pylist() == [*range(10, 40)]
