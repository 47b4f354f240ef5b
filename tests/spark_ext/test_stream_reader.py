"""`spark.readStream.format("txlog")`: exactly once, also after restarts."""

import json
import pickle
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles

import txlog
from txlog.base.errors import (
    InvalidInputError,
    SchemaMismatchError,
    TxlogError,
    UnsupportedFeatureError,
)
from txlog.fragments.fragment import DataFile, Fragment
from txlog.scan.read_plan import ReadPlan
from txlog.spark_ext.source.partitions import task_shares
from txlog.spark_ext.source.source import TxlogDataSource
from txlog.spark_ext.source.stream_reader import StreamReader
from txlog.spark_ext.source.tasks import FragmentPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MB = 1024 * 1024


def xs(*values: int) -> pa.Table:
    return pa.table({"x": list(values), "p": ["ab"[x % 2] for x in values]})


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    """Five files in two partitions; two rows of one of them are deleted."""
    made = txlog.write(
        tmp_path / "t",
        xs(*range(10)),
        partition_by=["p"],
        options=txlog.WriteOptions(max_rows_per_file=2),
    )
    made.delete("x IN (4, 6)")
    return made


FIRST = [0, 1, 2, 3, 5, 7, 8, 9]


# Without a JVM -------------------------------------------------------------------------------


def reader_of(table: txlog.Table, **options: Any) -> StreamReader:
    given = {name.lower(): str(value) for name, value in options.items()}
    source = TxlogDataSource({"path": table.uri, **given})
    made = source.streamReader(source.schema())
    assert isinstance(made, StreamReader)
    return made


@pytest.mark.spec("STR-14")
def test_tasks_never_see_the_log(table: txlog.Table) -> None:
    reader = reader_of(table, columns="x", where="x < 8")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    shipped, partitions = pickle.loads(pickle.dumps((reader, reader.partitions(start, end))))
    shutil.rmtree(Path(table.uri) / "_delta_log")
    rows = [row for one in partitions for batch in shipped.read(one) for row in batch.to_pylist()]
    assert sorted(row["x"] for row in rows) == [0, 1, 2, 3, 5, 7]
    assert len(partitions) == 1  # Small files are one task's work.
    assert reader.partitions(end, end) == []


@pytest.mark.spec("STR-8")
@pytest.mark.parametrize("options", [{}, {"columns": "x"}], ids=["all", "chosen"])
def test_columns_that_change_between_loading_and_starting(
    table: txlog.Table, options: dict[str, str]
) -> None:
    """Spark keeps the columns of the loading: values of others would be lost without a word."""
    source = TxlogDataSource({"path": table.uri, **options})
    loaded = source.schema()
    table.append(pa.table({"x": [20], "p": ["a"], "b": [1]}), schema_mode="merge")
    reader = source.streamReader(loaded)
    assert isinstance(reader, StreamReader)
    if options:  # Nothing became of those that were chosen.
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        assert len(reader.partitions(reader.initialOffset(), end)) == 1
    else:
        with pytest.raises(SchemaMismatchError, match=r"column b was added.*Load the stream again"):
            reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    table.overwrite(pa.table({"x": ["text"], "p": ["a"]}), schema_mode="overwrite")
    changed = source.streamReader(loaded)
    assert isinstance(changed, StreamReader)
    with pytest.raises(SchemaMismatchError, match="column x was long and became string"):
        changed.latestOffset(changed.initialOffset(), ReadAllAvailable())
    again = reader_of(table, **options)
    assert again.latestOffset(again.initialOffset(), ReadAllAvailable())["version"] == 4


@pytest.mark.spec("STR-14")
def test_plans_of_tasks_hold_no_explanation(table: txlog.Table) -> None:
    reader = reader_of(table)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    for partition in reader.partitions(reader.initialOffset(), end):
        assert isinstance(partition, FragmentPartition)
        assert type(partition.plan) is ReadPlan


@pytest.mark.spec("STR-14")
def test_large_fragments_are_cut(table: txlog.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txlog.data_files.write.ROW_GROUP_ROWS", 2)
    table.append(xs(*range(100, 120)))
    reader = reader_of(table, maxPartitionBytes=400)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    partitions = reader.partitions(reader.initialOffset(), end)
    assert sum(one.rows is not None for one in partitions if isinstance(one, FragmentPartition)) > 2
    found = [x for one in partitions for batch in reader.read(one) for x in batch["x"].to_pylist()]
    assert sorted(found) == [*FIRST, *range(100, 120)]


@pytest.mark.spec("STR-14")
@pytest.mark.parametrize(
    ("sizes", "tasks"),
    [
        ([], []),
        ([1] * 7, [7]),
        ([MB] * 1000, [25] * 40),
        ([300 * MB, MB, MB, 200 * MB], [1, 1, 1, 2, 1, 1]),
    ],
)
def test_tasks_are_of_about_one_size(sizes: list[int], tasks: list[int]) -> None:
    fragments = [
        Fragment(at, (DataFile(f"{at}.parquet", size),), physical_rows=1000)
        for at, size in enumerate(sizes)
    ]
    shares = task_shares(sizes, fragments, 128 * MB)
    assert [len(share.items) for share in shares] == tasks
    whole = [size for share in shares for size in share.items if share.rows is None]
    cut = {size for share in shares for size in share.items if share.rows is not None}
    assert [size for size in sizes if size in cut or size in whole] == sizes
    assert sorted([*whole, *cut]) == sorted(sizes)
    for large in cut:
        ranges = [share.rows for share in shares if [*share.items] == [large]]
        assert ranges[0][0] == 0
        assert all(one[1] == other[0] for one, other in pairwise(ranges))


@pytest.mark.spec("STR-4")
@pytest.mark.parametrize(
    ("options", "expected", "files"),
    [
        ({}, ReadMaxFiles(1000), 6),
        ({"maxFilesPerTrigger": 2}, ReadMaxFiles(2), 2),
        ({"maxBytesPerTrigger": 1}, ReadMaxBytes(1), 1),
        ({"maxFilesPerTrigger": 3, "maxBytesPerTrigger": 1}, ReadMaxFiles(3), 1),
    ],
)
def test_limits_by_options(
    table: txlog.Table, options: dict[str, int], expected: Any, files: int
) -> None:
    reader = reader_of(table, **options)
    assert reader.getDefaultReadLimit() == expected
    live = len(table.fragments())
    start = reader.initialOffset()
    limited = reader.latestOffset(start, expected)
    assert limited["index"] == (files if files < live else 0)
    assert reader.latestOffset(start, ReadAllAvailable())["version"] == table.version + 1
    assert reader.reportLatestOffset()["version"] == table.version + 1


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"versionAsOf": 1}, "versionAsOf"),
        ({"endingVersion": 1}, "endingVersion"),
        ({"schemaTrackingLocation": "/x"}, "schemaTrackingLocation"),
        ({"allowSourceColumnDrop": "always"}, "load the stream and start the query again"),
        ({"withEventTimeOrder": "true"}, "lost as late.*withEventTimeOrder"),
        ({"excludeRegex": "x"}, "excludeRegex"),
        ({"maxFilesPerTrigger": 0}, "maxFilesPerTrigger"),
        ({"maxBytesPerTrigger": "1x"}, "maxBytesPerTrigger"),
        ({"startingVersion": "newest"}, "startingVersion"),
        ({"startingVersion": -1}, "startingVersion"),
        ({"startingVersion": 1, "startingTimestamp": "2026-01-01"}, "startingTimestamp"),
        ({"startingTimestamp": "soon"}, "startingTimestamp"),
        ({"ignoreDeletes": "yes"}, "ignoreDeletes"),
        ({"readChangeFeed": "true", "ignoreChanges": "true"}, "ignoreChanges"),
    ],
)
def test_options_that_make_no_sense_are_named(
    table: txlog.Table, options: dict[str, Any], named: str
) -> None:
    reader = reader_of(table, **options)  # Of what this raises Spark would not tell.
    with pytest.raises(InvalidInputError, match=named):
        reader.getDefaultReadLimit()


def test_metadata_columns_are_none_of_a_stream(table: txlog.Table) -> None:
    reader = reader_of(table, columns="x,_rowid")
    with pytest.raises(InvalidInputError, match="_rowid"):
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


def test_older_sparks_are_told_what_is_missing(
    table: txlog.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "txlog.spark_ext.source.stream_reader", None)
    with pytest.raises(UnsupportedFeatureError, match=r"Use Spark 4\.2"):
        reader_of(table)


def test_secrets_do_not_show(table: txlog.Table) -> None:
    reader = reader_of(table, storageOptions='{"secret": "hunter2"}')
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    work = reader.partitions(reader.initialOffset(), end)
    shown = f"{reader!r} {vars(reader)!r} {work!r} {end!r}"
    assert "hunter2" not in shown
    with pytest.raises(TxlogError) as caught:
        reader.latestOffset({**end, "version": 90}, ReadAllAvailable())
    assert "hunter2" not in str(caught.value)


# With Spark ----------------------------------------------------------------------------------


class Flow:
    """A query from the table to Parquet files; Spark's own reader and writer keep its accounts."""

    def __init__(self, spark: "SparkSession", table: txlog.Table, folder: Path) -> None:
        self.spark, self.table, self.out = spark, table, folder / "out"
        self.checkpoint = folder / "checkpoint"

    def run(self, trigger: dict[str, Any] | None = None, **options: str) -> int:
        """Run a query to its end, and return how many micro-batches had rows."""
        query = (
            self.spark.readStream.format("txlog")
            .options(**options)
            .load(self.table.uri)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**(trigger or {"availableNow": True}))
            .start(str(self.out))
        )
        query.awaitTermination()
        return sum(progress["numInputRows"] > 0 for progress in map(_plain, query.recentProgress))

    def rows(self) -> list[int]:
        return sorted(row.x for row in self.spark.read.parquet(str(self.out)).collect())

    def crash(self) -> None:
        """Forget that the last micro-batch was committed, in Spark's log and in the sink's."""
        for log in (self.checkpoint / "commits", self.out / "_spark_metadata"):
            last = max(int(path.name) for path in log.iterdir() if path.name.isdigit())
            for path in (log / str(last), log / f".{last}.crc"):
                path.unlink()


def _plain(progress: Any) -> dict[str, Any]:
    return progress if isinstance(progress, dict) else json.loads(progress.json)


@pytest.fixture
def flow(spark: "SparkSession", table: txlog.Table, tmp_path: Path) -> Flow:
    return Flow(spark, table, tmp_path)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.spec("STR-3", "STR-4")
def test_available_now_in_several_runs(flow: Flow) -> None:
    assert flow.run(maxFilesPerTrigger="2") == 3
    assert flow.rows() == FIRST
    flow.table.append(xs(100, 101))
    flow.table.optimize.compact()
    flow.table.append(xs(102))
    assert flow.run(maxFilesPerTrigger="2") == 2
    assert flow.rows() == [*FIRST, 100, 101, 102]
    assert flow.run() == 0
    assert flow.rows() == [*FIRST, 100, 101, 102]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.spec("STR-2", "STR-5")
def test_a_batch_that_was_not_committed_is_read_again(flow: Flow) -> None:
    flow.run()
    flow.crash()
    # Of the first rows one is deleted meanwhile, and others come: the batch is the same.
    flow.table.delete("x = 8")
    flow.table.append(xs(100))
    flow.table.maintenance.checkpoint()
    flow.run(skipChangeCommits="true")
    assert flow.rows() == [*FIRST, 100]
    flow.crash()
    flow.table.append(xs(101))
    flow.run(skipChangeCommits="true")
    assert flow.rows() == [*FIRST, 100, 101]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "trigger",
    [
        {"availableNow": True},
        pytest.param({"processingTime": "0 seconds"}, marks=pytest.mark.exhaustive),
    ],
)
def test_what_options_lack_is_what_the_query_says(flow: Flow, trigger: dict[str, Any]) -> None:
    refused = r"invalid-input.*'0': a whole number from 1 was expected"
    with pytest.raises(Exception, match=refused) as caught:
        flow.run(trigger, maxFilesPerTrigger="0")
    assert "UnboundLocalError" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.spark
def test_once_reads_everything_in_one_batch(flow: Flow) -> None:
    assert flow.run({"once": True}, maxFilesPerTrigger="1") == 1
    assert flow.rows() == FIRST


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.spec("STR-7", "STR-11")
def test_a_running_query_follows_and_fails_with_the_remedy(
    spark: "SparkSession", table: txlog.Table
) -> None:
    query = (
        spark.readStream.format("txlog")
        .option("startingVersion", "latest")
        .option("columns", "x")
        .load(table.uri)
        .writeStream.format("memory")
        .queryName("followed")
        .start()
    )
    try:
        query.processAllAvailable()
        assert spark.table("followed").columns == ["x"]
        assert spark.table("followed").count() == 0
        table.append(xs(100))
        query.processAllAvailable()
        table.append(xs(101))
        table.delete("x = 1")
        with pytest.raises(Exception, match=r"version 4 .* rows.*skipChangeCommits=true"):
            query.processAllAvailable()
        assert sorted(row.x for row in spark.table("followed").collect()) == [100, 101]
    finally:
        query.stop()


@pytest.mark.spark
@pytest.mark.exhaustive  # `test_read_errors` and `test_stream` show other tables that vanish.
def test_a_table_that_vanishes_ends_the_query(spark: "SparkSession", table: txlog.Table) -> None:
    query = (
        spark.readStream.format("txlog")
        .load(table.uri)
        .writeStream.format("memory")
        .queryName("vanishing")
        .start()
    )
    try:
        query.processAllAvailable()
        count = spark.table("vanishing").count()
        assert count == table.count() > 0
        shutil.rmtree(table.uri)
        with pytest.raises(Exception, match=r"\[(not-found|log-corrupt)\]"):
            query.awaitTermination(60)
        assert spark.table("vanishing").count() == count
    finally:
        query.stop()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.spec("STR-5")
def test_from_one_table_into_another_exactly_once(
    spark: "SparkSession", table: txlog.Table, tmp_path: Path
) -> None:
    target, checkpoint = tmp_path / "copy", tmp_path / "c"

    def copy() -> None:
        query = (
            spark.readStream.format("txlog")
            .option("maxFilesPerTrigger", "2")
            .load(table.uri)
            .writeStream.format("txlog")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(str(target))
        )
        query.awaitTermination()

    copy()
    # The sink has the last batch, Spark's log does not: it is run again, and changes nothing.
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.suffix == "")
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink()
    table.append(xs(100, 101))
    copy()
    found = txlog.Table(target).to_arrow().sort_by("x").to_pylist()
    assert found == table.to_arrow().sort_by("x").to_pylist()


@pytest.mark.slow
@pytest.mark.spark
def test_column_mapping_and_vectors(spark: "SparkSession", tmp_path: Path) -> None:
    made = txlog.write(
        tmp_path / "t",
        xs(*range(6)),
        partition_by=["p"],
        options=txlog.WriteOptions(max_rows_per_file=2),
    )
    made.delete("x = 2")
    # Columns are mapped by names from now on, and files that come have other names in them.
    log = tmp_path / "t" / "_delta_log"
    metadata, protocol = made.metadata.to_json(), made.protocol.to_json()
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], start=1):
        field["metadata"] = {
            "delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"],
        }  # fmt: skip
        field["name"] = field["name"].upper() + "2"
    metadata |= {
        "schemaString": json.dumps(schema),
        "partitionColumns": ["P2"],
        "configuration": {
            **metadata["configuration"], "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": "2",
        },
    }  # fmt: skip
    for name in ("readerFeatures", "writerFeatures"):
        protocol[name] = [*protocol[name], "columnMapping"]
    pq.write_table(pa.table({"x": [50, 52]}), tmp_path / "t" / "late.parquet")
    add = {
        "path": "late.parquet", "partitionValues": {"p": "a"}, "dataChange": True,
        "size": (tmp_path / "t" / "late.parquet").stat().st_size, "modificationTime": 1,
    }  # fmt: skip
    lines = [{"protocol": protocol}, {"metaData": metadata}, {"add": add}]
    (log / f"{made.version + 1:020d}.json").write_text("\n".join(map(json.dumps, lines)))
    query = (
        spark.readStream.format("txlog").load(made.uri)
        .writeStream.format("memory").queryName("mapped").trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    found = sorted((row.X2, row.P2) for row in spark.table("mapped").collect())
    assert found == [(0, "a"), (1, "b"), (3, "b"), (4, "a"), (5, "b"), (50, "a"), (52, "a")]
