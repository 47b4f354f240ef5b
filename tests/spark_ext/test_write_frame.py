"""`txlog.spark_ext.write`: a frame to a table, in all modes."""

import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commit_text import transactions
from pyspark.errors import PySparkException

import txlog
from txlog.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    EngineError,
    InvalidInputError,
    SchemaMismatchError,
)
from txlog.spark_ext import TxlogDataSource, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def frame(spark: "SparkSession", start: int, stop: int) -> "DataFrame":
    return spark.range(start, stop, 1, 2).selectExpr("id", "cast(id % 3 AS string) AS part")


def rows(path: Path) -> list[tuple[int, str]]:
    """Return the rows as another reader of the log finds them."""
    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
    table = pa.table(found.execute("SELECT id, part FROM t ORDER BY id").read_all())
    return list(zip(table["id"].to_pylist(), table["part"].to_pylist(), strict=True))


def expected(*ids: int) -> list[tuple[int, str]]:
    return [(number, str(number % 3)) for number in ids]


def data_files(path: Path) -> set[str]:
    return {file.name for file in path.rglob("*.parquet") if "_delta_log" not in file.parts}


def through(df: "DataFrame", work: Any) -> "DataFrame":
    """Return a frame whose tasks call a function on their way, with each batch."""

    def batches(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in given:
            work(batch)
            yield batch

    return df.mapInArrow(batches, df.schema)


PROPERTIES = {"delta.enableDeletionVectors": "false"}  # For the other reader's sake.


@pytest.mark.slow
def test_every_mode(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "t"
    made = write(frame(spark, 0, 6), path, partition_by="part", properties=PROPERTIES)
    assert (made.version, made.metrics["numOutputRows"], made.skipped) == (0, 6, False)
    added = write(
        frame(spark, 6, 9),
        path,
        user_metadata="second",
        options=txlog.WriteOptions(max_rows_per_file=1),
    )
    assert (added.version, added.metrics["numFiles"]) == (1, 3)
    assert rows(path) == expected(*range(9))
    assert txlog.Table(path).history()[0]["userMetadata"] == "second"

    with pytest.raises(AlreadyExistsError):
        write(frame(spark, 0, 1), path, mode="error")
    assert not write(frame(spark, 0, 1), path, mode="ignore")
    assert txlog.Table(path).version == 1

    ones = frame(spark, 100, 104).where("part = '1'")
    write(ones, path, mode="overwrite", where="part = '1'")
    assert rows(path) == expected(0, 2, 3, 5, 6, 8, 100, 103)
    write(frame(spark, 200, 201), path, mode="overwrite", partition_mode="dynamic")
    assert rows(path) == expected(0, 3, 6, 100, 103, 200)
    write(frame(spark, 7, 9), path, mode="overwrite")
    assert rows(path) == expected(7, 8)

    wider = frame(spark, 9, 10).selectExpr("*", "1.5D AS x")
    write(wider, path, schema_mode="merge")
    assert txlog.Table(path).to_arrow(["x"])["x"].to_pylist().count(None) == 2
    write(frame(spark, 1, 2), path, mode="overwrite", schema_mode="overwrite")
    assert txlog.Table(path).schema.names == ["id", "part"]
    assert rows(path) == expected(1)


@pytest.mark.slow
def test_statistics_are_those_of_the_files(spark: "SparkSession", tmp_path: Path) -> None:
    data = frame(spark, 0, 100).selectExpr(
        "*", "CASE WHEN id % 7 > 0 THEN id * 0.5D END AS x", "concat('n', id) AS name"
    )
    write(data, tmp_path / "function", options=txlog.WriteOptions(max_rows_per_file=30))
    data.write.format("txlog").mode("append").save(str(tmp_path / "format"))
    for path in (tmp_path / "function", tmp_path / "format"):
        log = (path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
        adds = [line["add"] for line in map(json.loads, log) if "add" in line]
        assert {add["path"] for add in adds} == data_files(path)
        for add in adds:
            file = pq.read_table(path / add["path"])
            stats = json.loads(add["stats"])
            assert stats["numRecords"] == file.num_rows
            for name in file.column_names:
                values = [value for value in file[name].to_pylist() if value is not None]
                assert stats["minValues"][name] == min(values)
                assert stats["maxValues"][name] == max(values)
                assert stats["nullCount"][name] == file.num_rows - len(values)


@pytest.mark.slow
def test_a_recorded_transaction_is_not_even_computed(spark: "SparkSession", tmp_path: Path) -> None:
    def fail(batch: pa.RecordBatch) -> None:
        raise RuntimeError("computed")

    path = tmp_path / "t"
    assert write(frame(spark, 0, 3), path, mode="error", txn=("job", 1)).version == 0
    for mode in ("append", "overwrite", "error", "ignore"):
        again = write(through(frame(spark, 0, 3), fail), path, mode=mode, txn=("job", 1))
        assert (again.version, again.skipped) == (None, True)
    assert write(frame(spark, 3, 4), path, txn=("job", 2)).version == 1
    assert txlog.Table(path).count() == 4


def put_file(source: Path, number: int) -> None:
    """Put a file with one row into a folder, for a stream to read as its next batch."""
    source.mkdir(exist_ok=True)
    file = source / f"{number}.parquet"
    pq.write_table(pa.table({"id": [number], "part": [str(number % 3)]}), file)
    os.utime(file, (1_700_000_000 + number,) * 2)  # Spark reads them in the order of their times.


def drain(
    spark: "SparkSession",
    source: Path,
    checkpoint: Path,
    to_table: Callable[["DataFrame", int], None],
) -> str:
    """Run a function for each batch of files, and return the query's id."""
    stream = spark.readStream.schema("id LONG, part STRING").option("maxFilesPerTrigger", 1)
    writer = stream.parquet(str(source)).writeStream.foreachBatch(to_table)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    return str(query.id)


@pytest.mark.slow
@pytest.mark.spec("STR-45", "STR-49")
def test_a_replayed_batch_of_foreach_batch_counts_once(
    spark: "SparkSession", tmp_path: Path
) -> None:
    path, source, checkpoint = tmp_path / "t", tmp_path / "in", tmp_path / "c"
    for number in range(3):
        put_file(source, number)
    seen: list[tuple[int, int | None]] = []

    def to_table(df: "DataFrame", batch_id: int) -> None:
        done = write(df, path, txn=("ingest", batch_id), properties=PROPERTIES)
        seen.append((batch_id, done.version))
        if len(seen) == 2:
            raise RuntimeError("after the commit, before Spark's")

    with pytest.raises(Exception, match="after the commit"):
        drain(spark, source, checkpoint, to_table)
    query = drain(spark, source, checkpoint, to_table)
    assert seen == [(0, 0), (1, 1), (1, None), (2, 2)]
    assert rows(path) == expected(0, 1, 2)
    for version in range(3):
        assert transactions(path, version) == {"ingest": version, f"ingest@{query}": version}


@pytest.mark.slow
@pytest.mark.spec("STR-49")
@pytest.mark.parametrize("mode", ["append", "overwrite", "ignore"])
def test_foreach_batch_with_a_new_checkpoint_is_refused(
    spark: "SparkSession", tmp_path: Path, mode: Any
) -> None:
    path, source = tmp_path / "t", tmp_path / "in"

    def to_table(df: "DataFrame", batch_id: int) -> None:
        write(df, path, mode=mode, txn=("ingest", batch_id), properties=PROPERTIES)

    def under_another_name(df: "DataFrame", batch_id: int) -> None:
        write(df, path, txn=("again", batch_id))

    put_file(source, 0)
    drain(spark, source, tmp_path / "c", to_table)
    put_file(source, 1)
    files = data_files(path)
    refused = r"invalid-input.*'ingest'.*the query has a new checkpoint.*Nothing was committed"
    with pytest.raises(Exception, match=refused):
        drain(spark, source, tmp_path / "new", to_table)
    assert (txlog.Table(path).version, data_files(path)) == (0, files)
    if mode == "append":  # The right checkpoint goes on; a new one may take another name.
        drain(spark, source, tmp_path / "c", to_table)
        assert rows(path) == expected(0, 1)
        drain(spark, source, tmp_path / "new", under_another_name)
        assert rows(path) == expected(0, 0, 1, 1)


@pytest.mark.slow
@pytest.mark.spec("STR-45", "STR-49")
def test_the_format_in_foreach_batch_counts_once_and_refuses_a_new_checkpoint(
    spark: "SparkSession", tmp_path: Path
) -> None:
    path, source = tmp_path / "t", tmp_path / "in"
    runs: list[int] = []

    def to_table(df: "DataFrame", batch_id: int) -> None:
        options = {"txnAppId": "ingest", "txnVersion": batch_id}
        df.write.format("txlog").mode("append").options(**options).save(str(path))
        runs.append(batch_id)
        if len(runs) == 1:
            raise RuntimeError("after the commit, before Spark's")

    put_file(source, 0)
    with pytest.raises(Exception, match="after the commit"):
        drain(spark, source, tmp_path / "c", to_table)
    query = drain(spark, source, tmp_path / "c", to_table)
    assert runs == [0, 0]
    assert rows(path) == expected(0)
    assert transactions(path, 0) == {"ingest": 0, f"ingest@{query}": 0}
    put_file(source, 1)
    refused = r"invalid-input.*'ingest'.*the query has a new checkpoint.*Nothing was committed"
    with pytest.raises(Exception, match=refused):
        drain(spark, source, tmp_path / "new", to_table)
    assert txlog.Table(path).version == 0
    drain(spark, source, tmp_path / "c", to_table)
    assert rows(path) == expected(0, 1)


@pytest.mark.slow
@pytest.mark.spec("STR-49")
def test_foreach_batch_may_write_under_several_names(spark: "SparkSession", tmp_path: Path) -> None:
    path, source = tmp_path / "t", tmp_path / "in"

    def to_table(df: "DataFrame", batch_id: int) -> None:
        for name in ("one", "two"):
            write(df, path, txn=(name, batch_id), properties=PROPERTIES)

    put_file(source, 1)
    query = drain(spark, source, tmp_path / "c", to_table)
    assert rows(path) == expected(1, 1)
    assert transactions(path, 1) == {"two": 0, f"two@{query}": 0}
    # Out of streams a name has no query, and a query does not take such a name for its own.
    write(frame(spark, 2, 3), path, txn=("job", 1))
    assert transactions(path, 2) == {"job": 1}

    def as_the_job(df: "DataFrame", batch_id: int) -> None:
        write(df, path, txn=("job", batch_id + 2))

    put_file(source, 3)
    with pytest.raises(Exception, match="records version 1 of the application 'job'"):
        drain(spark, source, tmp_path / "c", as_the_job)
    assert txlog.Table(path).version == 2


@pytest.mark.spec("STR-49")
def test_a_query_that_spark_does_not_tell_is_not_recorded(
    spark: "SparkSession", tmp_path: Path
) -> None:
    path = tmp_path / "t"

    def in_a_thread(df: "DataFrame", batch_id: int) -> None:
        work = threading.Thread(target=write, args=(df, path), kwargs={"txn": ("job", batch_id)})
        work.start()
        work.join()

    put_file(tmp_path / "in", 1)
    drain(spark, tmp_path / "in", tmp_path / "c", in_a_thread)
    assert transactions(path, 0) == {"job": 0}


@pytest.mark.slow
@pytest.mark.spec("STR-46")
def test_a_frame_that_fails_leaves_nothing(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(frame(spark, 0, 3), path)
    before = data_files(path)

    def fail(batch: pa.RecordBatch) -> None:
        if 9 in batch["id"].to_pylist():
            raise RuntimeError("a function of the frame failed")

    broken = through(frame(spark, 0, 10).coalesce(1), fail)
    reason = r"\[engine\].*RuntimeError: a function of the frame failed\. Nothing was committed"
    with pytest.raises(EngineError, match=reason) as caught:
        write(broken, path)
    assert len(str(caught.value)) < 300
    assert isinstance(caught.value.__cause__, PySparkException)
    with pytest.raises(Exception, match="a function of the frame failed"):
        broken.write.format("txlog").mode("append").save(str(path))
    with pytest.raises(txlog.InvalidInputError, match="overflow"):
        write(frame(spark, 0, 3).selectExpr("cast(id + 3000000000 AS int) AS id"), path)
    assert data_files(path) == before
    assert txlog.Table(path).version == 0


@pytest.mark.exhaustive
def test_a_worker_that_is_killed_commits_nothing(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(frame(spark, 0, 3), path)

    def die(batch: pa.RecordBatch) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(EngineError, match=r"lost a worker.*Nothing was committed.*more") as caught:
        write(through(frame(spark, 0, 10), die), path)
    assert len(str(caught.value)) < 400
    assert re.search(r"exited unexpectedly|crashed|EOF", str(caught.value.__cause__))
    with pytest.raises(Exception, match=r"exited unexpectedly|crashed|EOF"):
        through(frame(spark, 0, 10), die).write.format("txlog").mode("append").save(str(path))
    assert txlog.Table(path).version == 0
    assert rows(path) == expected(0, 1, 2)


@pytest.mark.slow
@pytest.mark.spec("STR-47")
@pytest.mark.parametrize("by", ["function", "format"])
def test_a_table_that_changes_meanwhile_is_not_written(
    spark: "SparkSession", tmp_path: Path, by: str
) -> None:
    def save(df: "DataFrame", path: Path, mode: str = "append") -> None:
        if by == "function":
            write(df, path, mode=mode)
        else:
            df.write.format("txlog").mode(mode).save(str(path))

    gone, new, other = tmp_path / "gone", tmp_path / "new", tmp_path / "other"
    for path in (gone, other):
        txlog.write(path, pa.table({"id": [1], "part": ["1"]}))
    rival = pa.table({"id": pa.array([5], pa.int64()), "part": ["2"]})

    def vanish(batch: pa.RecordBatch) -> None:
        shutil.rmtree(gone / "_delta_log", ignore_errors=True)

    def make(batch: pa.RecordBatch) -> None:
        txlog.write(new, rival, mode="ignore")

    def replace(batch: pa.RecordBatch) -> None:
        if (other / "_delta_log").exists():
            shutil.rmtree(other / "_delta_log")
            txlog.write(other, rival)

    one = spark.range(1).selectExpr("id", "'x' AS part").coalesce(1)
    for path, work, reason in (
        (gone, vanish, "the table was deleted"),
        (new, make, "another writer created the table"),
        (other, replace, "the table was replaced"),
    ):
        with pytest.raises(Exception, match=rf"commit-conflict.*{reason}.*Nothing was committed"):
            save(through(one, work), path)
    assert not (gone / "_delta_log").exists()
    for path in (new, other):
        assert txlog.Table(path).version == 0
        assert txlog.Table(path).to_arrow().equals(rival)
    if by == "function":
        shutil.rmtree(new)
        with pytest.raises(AlreadyExistsError):
            write(through(one, make), new, mode="error")
        shutil.rmtree(new)
        assert not write(through(one, make), new, mode="ignore")
        assert data_files(new) == {path.name for path in new.glob("*.parquet")}
        assert txlog.Table(new).to_arrow().equals(rival)


def test_what_is_wrong_is_said_before_a_task_runs(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "t"
    txlog.write(path, pa.table({"id": [1], "part": ["1"]}), partition_by="part")
    good = frame(spark, 0, 3)
    for wrong, match in (
        ({"df": good.selectExpr("cast(id AS string) AS id", "part")}, "column id is string"),
        ({"df": good.selectExpr("id", "part", "1 AS x")}, "column x is not in the table"),
        ({"partition_by": "id"}, "the table is partitioned by"),
        ({"partition_by": ["part", "id"]}, "the table is partitioned by"),
        ({"properties": {"delta.appendOnly": "true"}}, "other values of delta.appendOnly"),
        ({"mode": "upsert"}, "'upsert' is not one of"),
        ({"where": "id > 1"}, "replaces no rows"),
        ({"partition_mode": "dynamic"}, "replaces no rows"),
        ({"schema_mode": "overwrite"}, "together with all rows"),
        ({"mode": "overwrite", "where": "nope > 1"}, "nope"),
        ({"txn": ("job", -1)}, "from 0"),
        ({"options": {"max_rows_per_file": 1}}, "WriteOptions were expected, not dict"),
        ({"df": "rows"}, "must be DataFrame of Spark, not str"),
        ({"df": spark.readStream.format("rate").load()}, "it is a stream"),
    ):
        arguments: dict[str, Any] = {"df": good, "uri": path, **wrong}
        with pytest.raises(InvalidInputError, match=match):
            write(**arguments)
    with pytest.raises(InvalidInputError, match="no such column"):
        write(good, tmp_path / "new", partition_by="nope")
    with pytest.raises(SchemaMismatchError):
        write(good.selectExpr("id", "id AS ID"), path)
    assert txlog.Table(path).version == 0
    assert not (tmp_path / "new").exists()


def test_wrong_options_of_the_format(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "t"
    txlog.write(path, pa.table({"id": [1], "part": ["1"]}), partition_by="part")
    data = frame(spark, 0, 3)
    # Spark asks for a writer just so, in a process of its own.
    for mode, options, match in (
        ("append", {"partitionBy": "id"}, "the table is partitioned by"),
        ("append", {"replaceWhere": "id > 1"}, "replaces no rows"),
        ("append", {"partitionOverwriteMode": "dynamic"}, "replaces no rows"),
        ("append", {"overwriteSchema": "true"}, "together with all rows"),
        ("overwrite", {"partitionOverwriteMode": "some"}, "one of static, dynamic"),
        ("append", {"mergeSchema": "maybe"}, "true or false"),
        ("append", {"maxRecordsPerFile": "many"}, "a whole number"),
        ("append", {"maxRecordsPerFile": "0"}, "a whole number from 1"),
        ("append", {"txnAppId": "job"}, "given together.*'txnVersion'"),
        ("append", {"txnVersion": "1"}, "given together.*'txnAppId'"),
        ("append", {"txnAppId": "job", "txnVersion": "-1"}, "from 0"),
        ("append", {"tableProperties": "[]"}, "a JSON object"),
        ("append", {"tableProperties": '{"delta.appendOnly": "true"}'}, "other values"),
        ("append", {"storageOptions": "{}", "secretStorageOptions": "{}"}, "given too"),
    ):
        source = TxlogDataSource({"path": str(path), **options})
        with pytest.raises(InvalidInputError, match=match):
            source.writer(data.schema, mode == "overwrite")
    with pytest.raises(Exception, match=r"invalid-input.*the table is partitioned by"):
        data.write.format("txlog").mode("append").option("partitionBy", "id").save(str(path))
    assert txlog.Table(path).version == 0


@pytest.mark.slow
def test_writers_at_the_same_time(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(frame(spark, 0, 1), path)
    failed: list[Exception] = []

    def add(at: int) -> None:
        try:
            write(frame(spark, at, at + 3), path, txn=(f"job {at}", 0))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=add, args=(at,)) for at in (1, 4, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert rows(path) == expected(*range(10))
    assert txlog.Table(path).version == 3


def test_frames_without_rows_or_partitions(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "t"
    assert write(frame(spark, 0, 3).where("id < 0"), path).version == 0
    assert write(spark.createDataFrame([], "id LONG, part STRING"), path).version == 1
    assert txlog.Table(path).count() == 0
    assert data_files(path) == set()


def test_conflicts_are_of_their_own_class(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "t"
    txlog.write(path, pa.table({"id": [1]}))

    def vanish(batch: pa.RecordBatch) -> None:
        shutil.rmtree(path / "_delta_log", ignore_errors=True)

    with pytest.raises(CommitConflictError) as caught:
        write(through(spark.range(1).coalesce(1), vanish), path)
    assert (caught.value.rule, caught.value.retry) == ("CON-2", "after_refresh")
    assert data_files(path) == {file.name for file in path.glob("*.parquet")}


TYPES = """
    CAST(id AS tinyint) AS tiny, CAST(id AS smallint) AS small, CAST(id AS int) AS whole, id,
    CAST(id AS float) / 3 AS single, IF(id = 3, double('NaN'), id / 3D) AS double,
    CAST(id / 7 AS decimal(20, 6)) AS money, id % 2 = 0 AS flag, concat('é', id) AS text,
    CAST(concat('b', id) AS binary) AS bytes, date_add(date '1890-01-01', CAST(id AS int)) AS day,
    timestamp '1950-06-01 02:03:04.567891' + make_interval(0, 0, 0, 0, CAST(id AS int)) AS at,
    timestamp_ntz '2024-03-31 02:30:00' AS local, IF(id = 2, NULL, id) AS gap,
    named_struct('a', id, 'b', named_struct('c', CAST(id AS string))) AS nested,
    array(id, NULL, id + 1) AS list, map('k', id, 'l', NULL) AS pairs
"""


@pytest.mark.slow
def test_all_types_are_as_spark_writes_them(spark: "SparkSession", tmp_path: Path) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        data = spark.sql(f"SELECT {TYPES} FROM range(0, 5, 1, 1)")
        data.write.parquet(str(tmp_path / "parquet"))
        write(data, tmp_path / "function")
        data.write.format("txlog").mode("append").save(str(tmp_path / "format"))
        expected = spark.read.parquet(str(tmp_path / "parquet"))
        for name in ("function", "format"):
            found = spark.read.format("txlog").load(str(tmp_path / name))
            assert found.dtypes == expected.dtypes
            assert sorted(map(repr, found.collect())) == sorted(map(repr, expected.collect()))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_a_table_is_defined_as_without_spark(spark: "SparkSession", tmp_path: Path) -> None:
    definition: dict[str, Any] = {
        "cluster_by": "n",
        "generated": {"m": "n * 2"},
        "identity": {"id": txlog.Identity(explicit=True)},
        "properties": {"delta.appendOnly": "false"},
        "name": "numbers",
        "description": "and their doubles",
    }
    rows = pa.table({"id": [5, 6], "n": [1, 2], "m": [2, 4]})
    theirs = txlog.write(tmp_path / "theirs", rows, **definition)
    data = spark.createDataFrame(rows)
    write(data, tmp_path / "ours", **definition)
    ours = txlog.Table(tmp_path / "ours")
    assert ours.metadata.schema_string == theirs.metadata.schema_string
    assert (ours.metadata.name, ours.metadata.description) == ("numbers", "and their doubles")
    assert (ours.properties, ours.protocol) == (theirs.properties, theirs.protocol)
    assert write(data, tmp_path / "ours", **definition).version == 1
    for name, other in (
        ("generated", {"m": "n + n"}),
        ("identity", {"n": definition["identity"]["id"]}),
    ):
        with pytest.raises(InvalidInputError, match="defined in another way") as caught:
            write(data, tmp_path / "ours", **{**definition, name: other})
        assert caught.value.argument == name
    with pytest.raises(SchemaMismatchError, match="id"):
        write(data, tmp_path / "wrong", identity="id")  # Without `explicit`.
    assert not txlog.Table.exists(tmp_path / "wrong")
    write(spark.createDataFrame(rows.select(["n"])), tmp_path / "theirs")
    assert sorted(theirs.refresh().to_arrow(["m"])["m"].to_pylist()) == [2, 2, 4, 4]
