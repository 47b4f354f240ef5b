"""`DeltaTable` on Spark: rows compared with plain Python, results with the log's JSON."""

import datetime as dt
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from commit_text import actions

import txlog
from txlog.base.errors import (
    EngineError,
    InvalidInputError,
    NotFoundError,
    UnsupportedFeatureError,
)
from txlog.spark_ext import DeltaTable, SparkEngine
from txlog.spark_ext.writes.conditions import RowsFound, as_predicate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = [
    {
        "id": n,
        "text": None if n % 7 == 0 else f"t{n % 5}",
        "at": dt.datetime(2020, 1, 1, n % 24, tzinfo=dt.UTC),
        "part": "ab"[n % 2],
    }
    for n in range(40_000)
]


JOB = ("jobId", "jobName", "jobRunId", "runId", "jobOwnerId", "triggerType")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> txlog.Table:
    table = txlog.write(
        tmp_path_factory.mktemp("t") / "ä #1",
        pa.Table.from_pylist(ROWS[:36_000]),
        partition_by=["part"],
        options=txlog.WriteOptions(max_rows_per_file=16_000),
    )
    table.append(pa.Table.from_pylist(ROWS[36_000:]))
    table.delete("id < 10")
    return table


@pytest.fixture
def table(spark: "SparkSession", original: txlog.Table) -> Iterator[DeltaTable]:
    found = DeltaTable.forPath(spark, original.uri)
    yield found
    found.table.restore(original.version)


def ids(table: DeltaTable) -> set[int]:
    found = txlog.Table(table.table.uri).to_arrow(["id"])["id"].to_pylist()
    assert len(found) == len(set(found))
    return set(found)


def log(table: DeltaTable, version: int) -> list[dict[str, Any]]:
    return actions(Path(table.table.uri), version)


Row = dict[str, Any]
TEXTS: list[tuple[str, Callable[[Row], bool]]] = [
    ("id = 17", lambda row: row["id"] == 17),
    ("ID >= 100 AND part = 'a'", lambda row: row["id"] >= 100 and row["part"] == "a"),
    ("text IS NULL", lambda row: row["text"] is None),
    ("id % 3 = 0", lambda row: row["id"] % 3 == 0),
    ("hour(at) = 5 OR upper(text) = 'T2'", lambda r: r["at"].hour == 5 or r["text"] == "t2"),
    ("id IN (SELECT id * 100 FROM range(20000))", lambda row: row["id"] % 100 == 0),
    ("at < '2020-01-01 02:00:00'", lambda row: row["at"].hour < 2),
    ("part = 'b'", lambda row: row["part"] == "b"),
    ("id < 0", lambda row: row["id"] < 0),
]


@pytest.mark.slow(cases=3)
@pytest.mark.parametrize(("text", "goes"), TEXTS, ids=[text for text, _ in TEXTS])
def test_text_deletes_what_it_says(
    table: DeltaTable, text: str, goes: Callable[[Row], bool]
) -> None:
    table.delete(text)
    assert ids(table) == {row["id"] for row in ROWS[10:] if not goes(row)}


@pytest.mark.slow
def test_columns_udfs_and_aliases(spark: "SparkSession", table: DeltaTable) -> None:
    from pyspark.sql import functions as fn

    table.delete((fn.col("id") > 39_000) & fn.col("text").isNotNull())
    expected = {r["id"] for r in ROWS[10:] if not (r["id"] > 39_000 and r["text"] is not None)}
    assert ids(table) == expected
    table.delete(fn.udf(lambda n: str(n).endswith("11"), "boolean")("id"))
    expected = {n for n in expected if n % 100 != 11}
    assert ids(table) == expected
    table.alias("t").delete("t.id = 20 OR EXISTS (SELECT 1 FROM range(30) AS r WHERE r.id = t.id)")
    assert ids(table) == {n for n in expected if n >= 30}
    assert table.alias("t").toDF().select("t.id").count() == len(ids(table))
    (last,) = [line["commitInfo"] for line in log(table, table.table.refresh().version)
               if "commitInfo" in line]  # fmt: skip
    assert last["operation"] == "DELETE"
    assert "EXISTS" in last["operationParameters"]["predicate"]


@pytest.mark.slow
def test_conditions_that_fail_delete_nothing(spark: "SparkSession", table: DeltaTable) -> None:
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as fn

    def fails(number: int) -> bool:
        if number == 17:
            raise RuntimeError("no such number")
        return True

    def dies(number: int) -> bool:
        os.kill(os.getpid(), signal.SIGKILL)
        return True

    before = table.table.refresh().version, ids(table)
    reason = r"RuntimeError: no such number\. Nothing was committed"
    with pytest.raises(EngineError, match=reason) as caught:
        table.delete(fn.udf(fails, "boolean")("id"))
    assert len(str(caught.value)) < 300
    with pytest.raises(EngineError, match=r"lost a worker.*Nothing was committed"):
        table.delete(fn.udf(dies, "boolean")("id"))
    with pytest.raises(AnalysisException, match="nowhere"):
        table.delete(fn.col("nowhere") == fn.rand())
    assert (table.table.refresh().version, ids(table)) == before


@pytest.mark.slow
def test_no_condition_deletes_all(table: DeltaTable) -> None:
    table.delete()
    assert ids(table) == set()
    assert table.toDF().count() == 0


@pytest.mark.slow
def test_times_are_in_the_sessions_zone(spark: "SparkSession", table: DeltaTable) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")  # 5 hours behind.
    try:
        table.delete("at < '2019-12-31 21:00:00'")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert ids(table) == {row["id"] for row in ROWS[10:] if row["at"].hour >= 2}


def test_a_table_that_rewrites_files(spark: "SparkSession", tmp_path: Path) -> None:
    made = txlog.write(
        tmp_path / "t",
        pa.table({"a": range(100)}),
        properties={"delta.enableDeletionVectors": "false"},
    )
    DeltaTable.forPath(spark, made.uri).delete("a % 2 = 1")
    now = txlog.Table(made.uri)
    assert sorted(now.to_arrow()["a"].to_pylist()) == list(range(0, 100, 2))
    assert now.files()["deletion_vector"].null_count == 1


def test_conditions_that_spark_refuses_change_nothing(table: DeltaTable) -> None:
    before = table.table.refresh().version
    for text, told in (("nope = 1", "UNRESOLVED_COLUMN"), ("id +", "PARSE_SYNTAX_ERROR")):
        with pytest.raises(Exception, match=told):
            table.delete(text)
    with pytest.raises(Exception, match="id"):
        table.delete("id + 1")
    assert table.table.refresh().version == before


@pytest.mark.slow
def test_another_writer_meanwhile(
    spark: "SparkSession", table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that come while Spark looks for those that match are looked at too."""
    real = RowsFound.of
    finds = []

    def slow(self: RowsFound, base: Any) -> Any:
        finds.append(base.version)
        rows = real(self, base)
        late = [{**ROWS[0], "id": 50_000 + n} for n in range(4)]
        txlog.Table(table.table.uri).append(pa.Table.from_pylist(late))
        return rows

    monkeypatch.setattr(RowsFound, "of", slow)
    table.delete("id % 2 = 0")
    assert len(finds) == 1, "of the winner, only its own file is looked at"
    assert ids(table) == {n for n in range(10, 40_000) if n % 2} | {50_001, 50_003}


def test_only_plain_text_is_decided_without_spark(original: txlog.Table) -> None:
    schema = original.snapshot.schema
    for text in ("id = 1", "text LIKE 't%' AND part IN ('a', 'b')", "NOT (id < 5)"):
        assert as_predicate(text, schema, None) is not None
    for text in ("at > '2020-01-01'", "id / 0 = 1", "upper(text) = 'T'", "nope = 1", "id ="):
        assert as_predicate(text, schema, None) is None
    assert as_predicate("id = 1", schema, "ID") is None
    assert as_predicate(object(), schema, None) is None


def test_history_is_what_the_log_says(table: DeltaTable) -> None:
    table.delete("id = 20")
    frame = table.history()
    assert [f"{field.name}:{field.dataType.simpleString()}" for field in frame.schema] == [
        "version:bigint", "timestamp:timestamp", "userId:string", "userName:string",
        "operation:string", "operationParameters:map<string,string>",
        f"job:struct<{':string,'.join(JOB)}:string>",
        "notebook:struct<notebookId:string>", "clusterId:string", "readVersion:bigint",
        "isolationLevel:string", "isBlindAppend:boolean",
        "operationMetrics:map<string,string>", "userMetadata:string", "engineInfo:string",
    ]  # fmt: skip
    rows = frame.collect()
    last = table.table.refresh().version
    assert [row.version for row in rows] == list(range(last, -1, -1))
    for row in rows:
        (info,) = [line["commitInfo"] for line in log(table, row.version) if "commitInfo" in line]
        assert row.operation == info["operation"]
        assert row.operationParameters == info["operationParameters"]
        assert row.operationMetrics == info.get("operationMetrics")
        moment = row.timestamp.replace(tzinfo=dt.UTC)
        assert txlog.Table(table.table.uri, timestamp=moment).version == row.version
    assert [row.version for row in table.history(2).collect()] == [last, last - 1]


@pytest.mark.slow
def test_detail_is_what_the_table_is(spark: "SparkSession", table: DeltaTable) -> None:
    frame = table.detail()
    assert frame.columns == [
        "format", "id", "name", "description", "location", "createdAt", "lastModified",
        "partitionColumns", "clusteringColumns", "numFiles", "sizeInBytes", "properties",
        "minReaderVersion", "minWriterVersion", "tableFeatures",
    ]  # fmt: skip
    (row,) = frame.collect()
    files = [action["add"] for version in range(2) for action in log(table, version)
             if "add" in action]  # fmt: skip
    assert (row.numFiles, row.sizeInBytes) == (len(files), sum(file["size"] for file in files))
    metadata = next(line["metaData"] for line in log(table, 0) if "metaData" in line)
    assert (row.format, row.id, row.partitionColumns) == ("delta", metadata["id"], ["part"])
    assert row.createdAt.replace(tzinfo=dt.UTC).timestamp() * 1000 == metadata["createdTime"]
    assert (row.minReaderVersion, row.minWriterVersion) == (3, 7)
    listed = next(line["protocol"] for line in reversed(log(table, 0) + log(table, 2))
                  if "protocol" in line)  # fmt: skip
    assert row.tableFeatures == sorted(listed["writerFeatures"])
    assert "deletionVectors" in row.tableFeatures
    assert spark.read.format("txlog").load(row.location).count() == 40_000 - 10


def test_optimize(table: DeltaTable) -> None:
    before = ids(table)
    (row,) = table.optimize().where("part = 'a'").where("part <> 'z'").executeCompaction().collect()
    actions = log(table, table.table.version)
    sizes = {kind: [line[kind]["size"] for line in actions if kind in line]
             for kind in ("add", "remove")}  # fmt: skip
    for kind, told in (("add", row.metrics.filesAdded), ("remove", row.metrics.filesRemoved)):
        found = sizes[kind]
        assert (told.min, told.max, told.totalFiles) == (min(found), max(found), len(found))
        assert (told.totalSize, told.avg) == (sum(found), sum(found) / len(found))
    assert row.metrics.numFilesRemoved == len(sizes["remove"]) > row.metrics.numFilesAdded
    assert (row.path, row.metrics.partitionsOptimized) == (table.table.uri, 1)
    assert ids(table) == before
    (row,) = table.optimize().where("part = 'a'").executeCompaction().collect()
    assert (row.metrics.numFilesRemoved, row.metrics.filesAdded.min) == (0, None)
    with pytest.raises(InvalidInputError, match="non-partition column 'id'"):
        table.optimize().where("id = 1").executeCompaction()


@pytest.mark.slow
def test_z_order_on_executors(spark: "SparkSession", table: DeltaTable) -> None:
    before = ids(table)
    (row,) = table.optimize().where("part = 'a'").executeZOrderBy(["id", "text"]).collect()
    assert row.metrics.numFilesRemoved > 0
    assert ids(table) == before
    for column, told in (
        ("nothing", "has no column nothing"),
        ("part", "part is a partition column"),
    ):
        with pytest.raises(InvalidInputError, match=told):
            table.optimize().executeZOrderBy(column)
    # A partition that no task can hold goes through files of ranges, by executors alone.
    engine = SparkEngine(spark, local_items=0)
    far = txlog.Table(table.table.uri, engine=engine)
    far.optimize.z_order(["at", "id"], task_bytes=20_000)
    assert ids(table) == before
    assert txlog.Table(far.uri).files().num_rows >= 4
    assert not list(Path(far.uri, "_txlog_spill").iterdir())


def test_generate(table: DeltaTable) -> None:
    with pytest.raises(UnsupportedFeatureError, match="deletion vectors"):
        table.generate("symlink_format_manifest")
    table.table.optimize.compact(max_deleted_fraction=0)
    table.generate("symlink_format_manifest")
    lists = Path(table.table.uri, "_symlink_format_manifest")
    assert {path.parent.name for path in lists.rglob("manifest")} == {"part=a", "part=b"}


def test_restore(spark: "SparkSession", table: DeltaTable) -> None:
    before, version = ids(table), table.table.refresh().version
    time.sleep(1.1)
    table.delete("part = 'a'")
    (row,) = table.restoreToVersion(version).collect()
    assert ids(table) == before
    (info,) = [line["commitInfo"] for line in log(table, version + 2) if "commitInfo" in line]
    told = {name: int(text) for name, text in info["operationMetrics"].items()}
    assert row.asDict() == {
        "table_size_after_restore": told["tableSizeAfterRestore"],
        "num_of_files_after_restore": told["numOfFilesAfterRestore"],
        "num_removed_files": told["numRemovedFiles"],
        "num_restored_files": told["numRestoredFiles"],
        "removed_files_size": told["removedFilesSize"],
        "restored_files_size": told["restoredFilesSize"],
    }
    assert row.num_restored_files > 0
    (again,) = table.restoreToVersion(version).collect()  # It is so already.
    assert again.num_of_files_after_restore == row.num_of_files_after_restore
    assert (again.num_restored_files, again.num_removed_files) == (0, 0)
    table.delete()
    made_ms = txlog.Table(table.table.uri, version=version).timestamp_ms
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        there = dt.timezone(dt.timedelta(hours=5, minutes=30))
        text = str(dt.datetime.fromtimestamp((made_ms + 500) / 1000, there).replace(tzinfo=None))
        table.restoreToTimestamp(text)
        with pytest.raises(InvalidInputError, match=r"\('soon'\) cannot be converted"):
            table.restoreToTimestamp("soon")
        with pytest.raises(NotFoundError, match="before the first"):
            table.restoreToTimestamp("2001-01-01")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert ids(table) == before


def test_is_delta_table(spark: "SparkSession", table: DeltaTable, tmp_path: Path) -> None:
    assert DeltaTable.isDeltaTable(spark, table.table.uri)
    assert DeltaTable.isDeltaTable(spark, f"delta.`{table.table.uri}`")
    assert not DeltaTable.isDeltaTable(spark, str(tmp_path))
    with pytest.raises(NotFoundError):
        DeltaTable.forPath(spark, str(tmp_path / "nothing"))


def test_append_only_tables_keep_their_rows(spark: "SparkSession", tmp_path: Path) -> None:
    made = txlog.write(
        tmp_path / "t", pa.table({"a": [1]}), properties={"delta.appendOnly": "true"}
    )
    for condition in (None, "a = 1", "abs(a) = 1"):
        with pytest.raises(UnsupportedFeatureError, match="append-only"):
            DeltaTable.forPath(spark, made.uri).delete(condition)


def test_a_column_that_hides_addresses(spark: "SparkSession", tmp_path: Path) -> None:
    made = txlog.write(tmp_path / "t", pa.table({"_rowaddr": [1, 2, 3]}))
    table = DeltaTable.forPath(spark, made.uri)
    with pytest.raises(UnsupportedFeatureError, match="hides the addresses"):
        table.delete("abs(_rowaddr) = 1")
    table.delete("_rowaddr = 1")
    assert txlog.Table(made.uri).to_arrow()["_rowaddr"].to_pylist() == [2, 3]


def test_vacuum(spark: "SparkSession", tmp_path: Path) -> None:
    held = txlog.write(tmp_path / "t", pa.table({"x": [1, 2]}))
    held.overwrite(pa.table({"x": [3]}))
    for path in (tmp_path / "t").glob("*.parquet"):
        os.utime(path, (1, 1))
    table = DeltaTable.forPath(spark, str(tmp_path / "t"))
    with pytest.raises(InvalidInputError, match="168 hours"):
        table.vacuum(0)
    check = "spark.databricks.delta.retentionDurationCheck.enabled"
    spark.conf.set(check, "false")
    try:
        assert table.vacuum(0).count() == 0
    finally:
        spark.conf.unset(check)
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 1
    assert txlog.Table(tmp_path / "t").to_arrow()["x"].to_pylist() == [3]


@pytest.mark.slow
@pytest.mark.parametrize("given", [None, "p STRING, q BIGINT"])
def test_parquet_files_are_converted(
    spark: "SparkSession", tmp_path: Path, given: str | None
) -> None:
    frame = spark.range(20).selectExpr("id", "id % 3 AS q", "concat('v ', id % 2) AS p")
    frame.write.partitionBy("p", "q").parquet(str(tmp_path / "t"))
    table = DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path / 't'}`", given)
    rows = sorted(tuple(row) for row in table.toDF().select("id", "p", "q").collect())
    assert rows == [(n, f"v {n % 2}", n % 3) for n in range(20)]
    with pytest.raises(txlog.AlreadyExistsError):
        DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path / 't'}`")
    with pytest.raises(InvalidInputError, match="was expected"):
        DeltaTable.convertToDelta(spark, str(tmp_path / "t"))


@pytest.mark.slow
def test_generated_columns(spark: "SparkSession", tmp_path: Path) -> None:
    builder = DeltaTable.create(spark).location(str(tmp_path / "t")).addColumn("x", "BIGINT")
    builder.addColumn("double_x", "BIGINT", generatedAlwaysAs="x * 2").execute()
    frame = spark.range(4).withColumnRenamed("id", "x")
    frame.write.format("txlog").mode("append").save(str(tmp_path / "t"))
    rows = txlog.Table(tmp_path / "t").to_arrow().sort_by("x").to_pylist()
    assert rows == [{"x": n, "double_x": 2 * n} for n in range(4)]
    wrong = frame.selectExpr("x", "x AS double_x").where("x = 1")
    with pytest.raises(Exception, match="double_x"):
        wrong.write.format("txlog").mode("append").save(str(tmp_path / "t"))
    assert txlog.Table(tmp_path / "t").count() == 4


WRONG: list[tuple[str, Callable[[Any, Any], object]]] = [
    ("set", lambda t, _: t.update(set={"zz": "1"})),
    ("set", lambda t, _: t.update(set={"id": "'x'"})),
    ("set", lambda t, s: t.merge(s, "id = k").whenMatchedUpdate(set={"zz": "1"}).execute()),
    ("values", lambda t, s: t.merge(s, "id = k").whenNotMatchedInsert(
        values={"zz": "1"}).execute()),
    ("retentionHours", lambda t, _: t.vacuum(-1)),
    ("version", lambda t, _: t.restoreToVersion(99)),
    ("cols", lambda t, _: t.optimize().executeZOrderBy("zz")),
    ("partitionFilter", lambda t, _: t.optimize().where("id = 1").executeCompaction()),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("argument", "call"), WRONG, ids=map(str, range(len(WRONG))))
def test_errors_name_the_argument_that_the_caller_wrote(
    spark: "SparkSession", table: DeltaTable, argument: str, call: Callable[..., object]
) -> None:
    source = spark.createDataFrame([(1,)], "k BIGINT")
    with pytest.raises((InvalidInputError, NotFoundError)) as caught:
        call(table, source)
    assert getattr(caught.value, "argument", argument) == argument
