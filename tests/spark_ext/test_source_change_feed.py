"""The change data feed in Spark, in batch and as a stream, compared with `Table.changes`."""

import json
import pickle
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import txlog
from txlog.base.errors import (
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from txlog.spark_ext.source.options import Options
from txlog.spark_ext.source.reader import ChangesReader
from txlog.spark_ext.source.source import TxlogDataSource
from txlog.spark_ext.source.tasks import ChangesPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    """A partitioned table of another writer, which leaves files of changes for its updates."""
    path = tmp_path / "t"
    data = pa.table({"x": list(range(6)), "p": ["a", "b"] * 3})
    write_deltalake(
        path, data, partition_by=["p"], configuration={"delta.enableChangeDataFeed": "true"}
    )
    other = DeltaTable(path)
    other.update({"x": "x + 10"}, predicate="p = 'a' AND x > 0")
    other.delete("p = 'b'")
    write_deltalake(path, pa.table({"x": [20], "p": ["c"]}), mode="append")
    return txlog.Table(path)


def reader_of(table: txlog.Table, **options: Any) -> ChangesReader:
    given = {name.lower(): str(value) for name, value in options.items()}
    source = TxlogDataSource({"path": table.uri, "readchangefeed": "true", **given})
    made = source.reader(source.schema())
    assert isinstance(made, ChangesReader)
    return made


def read(reader: ChangesReader, partitions: Any) -> list[tuple[Any, ...]]:
    return sorted(
        tuple(row.values())
        for one in partitions
        for batch in reader.read(one)
        for row in batch.to_pylist()
    )


def told(changes: txlog.Changes) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in changes.to_arrow().to_pylist())


def test_columns_that_change_between_schema_and_reading(table: txlog.Table) -> None:
    reader = reader_of(table)
    changed = pa.table({"x": ["text"], "p": ["a"]})
    write_deltalake(table.uri, changed, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SchemaMismatchError, match=r"x was long and became string.*Load the frame"):
        reader.partitions()


def test_tasks_never_see_the_log(table: txlog.Table) -> None:
    expected = told(table.changes())
    assert {row[2] for row in expected} == {
        "insert", "delete", "update_preimage", "update_postimage",
    }  # fmt: skip
    reader = reader_of(table)
    shipped, partitions = pickle.loads(pickle.dumps((reader, reader.partitions())))
    shutil.rmtree(Path(table.uri) / "_delta_log")
    assert read(shipped, partitions) == expected
    assert len(partitions) == 1


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({"startingVersion": 1}, {"start_version": 1}),
        ({"startingVersion": 1, "endingVersion": 2}, {"start_version": 1, "end_version": 2}),
        ({"startingVersion": 0, "endingVersion": 0}, {"end_version": 0}),
        ({"columns": "x,_commit_version"}, {"columns": ["x", "_commit_version"]}),
        (
            {"where": "_change_type = 'insert' AND x > 2"},
            {"where": "_change_type = 'insert' AND x > 2"},
        ),
        ({"maxPartitionBytes": 100}, {}),
        ({"startingTimestamp": "2020-01-01", "endingTimestamp": "2190-01-01"}, {}),
    ],
)
def test_ranges_are_those_of_the_table(
    table: txlog.Table, options: dict[str, Any], arguments: dict[str, Any]
) -> None:
    reader = reader_of(table, **options)
    assert read(reader, reader.partitions()) == told(table.changes(**arguments))


def test_ranges_by_time(table: txlog.Table) -> None:
    since = txlog.Table(table.uri, version=2).timestamp_ms
    text = pa.scalar(since, pa.timestamp("ms", "UTC")).as_py().isoformat()
    reader = reader_of(table, startingTimestamp=text)
    expected = told(table.changes(start_timestamp=since))
    assert read(reader, reader.partitions()) == expected
    assert min(row[3] for row in expected) == 2


def test_nothing_is_one_task_without_rows(table: txlog.Table) -> None:
    reader = reader_of(table, where="p = 'z'")
    (partition,) = reader.partitions()
    assert isinstance(partition, ChangesPartition)
    assert partition.files == ()
    assert read(reader, [partition]) == []


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"startingVersion": 9}, NotFoundError),
        ({"startingVersion": 2, "endingVersion": 1}, InvalidInputError),
        ({"startingVersion": "latest"}, InvalidInputError),
        ({"startingVersion": 1, "startingTimestamp": "2020-01-01"}, InvalidInputError),
        ({"versionAsOf": 1}, InvalidInputError),
        ({"limit": 1}, InvalidInputError),
        ({"skipChangeCommits": "true"}, InvalidInputError),
        ({"columns": "y"}, InvalidInputError),
    ],
)
def test_ranges_that_are_none(
    table: txlog.Table, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        reader_of(table, **options).partitions()


@pytest.mark.parametrize("option", ["readChangeFeed", "readChangeData", "startingVersion"])
def test_through_a_view_of_changes_nothing_is_written(option: str) -> None:
    with pytest.raises(InvalidInputError, match="this option is for reading"):
        Options({option: "true"}).require_writing()


def test_changes_that_nobody_recorded(tmp_path: Path) -> None:
    made = txlog.write(tmp_path / "t", pa.table({"x": [1]}))
    with pytest.raises(UnsupportedFeatureError, match="enableChangeDataFeed"):
        reader_of(made).partitions()


# With Spark ----------------------------------------------------------------------------------


def collected(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((row.x, row.p, row._change_type, row._commit_version) for row in frame.collect())


def as_collected(table: txlog.Table, *versions: int) -> list[tuple[Any, ...]]:
    return [row[:4] for row in told(table.changes(*versions))]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("option", ["readChangeFeed", "readChangeData"])
def test_spark_reads_a_range(spark: "SparkSession", table: txlog.Table, option: str) -> None:
    frame = (
        spark.read.format("txlog")
        .option(option, "true")
        .option("startingVersion", 1)
        .load(table.uri)
    )
    assert [(field.name, field.dataType.typeName()) for field in frame.schema][-3:] == [
        ("_change_type", "string"), ("_commit_version", "long"), ("_commit_timestamp", "timestamp"),
    ]  # fmt: skip
    assert collected(frame) == as_collected(table, 1)
    assert frame.where("_change_type = 'delete'").count() == 3
    stamps = {
        row._commit_timestamp.timestamp() for row in frame.where("_commit_version = 3").collect()
    }
    assert stamps == {table.timestamp_ms / 1000}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.spec("STR-13")
def test_spark_follows_changes(spark: "SparkSession", table: txlog.Table, tmp_path: Path) -> None:
    def run(**options: str) -> list[tuple[Any, ...]]:
        query = (
            spark.readStream.format("txlog")
            .option("readChangeFeed", "true")
            .option("maxFilesPerTrigger", "1")
            .options(**options)
            .load(table.uri)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / f"c{len(options)}"))
            .trigger(availableNow=True)
            .start(str(tmp_path / f"out{len(options)}"))
        )
        query.awaitTermination()
        assert all(_plain(progress)["numInputRows"] for progress in query.recentProgress)
        return collected(spark.read.parquet(str(tmp_path / f"out{len(options)}")))

    assert run(startingVersion="1") == as_collected(table, 1)
    inserts = [(x, p, "insert", 3) for x, p in sorted(_rows(table))]
    assert run() == inserts
    # What comes after the first rows comes as changes.
    DeltaTable(table.uri).update({"x": "x + 100"}, predicate="p = 'c'")
    table.refresh()
    assert run() == sorted(
        [*inserts, (20, "c", "update_preimage", 4), (120, "c", "update_postimage", 4)]
    )


def _rows(table: txlog.Table) -> list[tuple[int, str]]:
    return [(row["x"], row["p"]) for row in table.to_arrow().to_pylist()]


def _plain(progress: Any) -> dict[str, Any]:
    return progress if isinstance(progress, dict) else json.loads(progress.json)
