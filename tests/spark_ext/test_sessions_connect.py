"""Spark Connect: format, streams and executors through a remote session."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import txlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SECRET = "hunter2-of-the-remote-store"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table of six files of ten rows each."""
    data = pa.table({"x": list(range(60)), "text": [f"t{n}" for n in range(60)]})
    return txlog.write(tmp_path / "t", data, options=txlog.WriteOptions(max_rows_per_file=10)).uri


@pytest.mark.slow
def test_the_format_is_found_by_itself_and_reads(remote: "Callable[..., Any]", path: str) -> None:
    """Nobody registered it: the server finds the module `pyspark_txlog`."""

    def work(spark: "SparkSession", path: str) -> Any:
        assert "connect" in type(spark).__module__
        frame = spark.read.format("txlog").load(path)
        old = spark.read.format("txlog").option("versionAsOf", "0").load(path)
        chosen = spark.read.format("txlog").option("columns", "text").load(path)
        return frame.where("x > 55").orderBy("x").toArrow(), old.count(), chosen.columns

    txlog.Table(path).delete("x = 58")
    found, old, columns = remote(work, path)
    assert found.to_pylist() == [{"x": n, "text": f"t{n}"} for n in (56, 57, 59)]
    assert (old, columns) == (60, ["text"])


@pytest.mark.slow
def test_writing_by_format(remote: "Callable[..., Any]", tmp_path: Path) -> None:
    def work(spark: "SparkSession", path: str) -> None:
        frame = spark.range(0, 100, 1, 4).selectExpr("id", "id % 3 AS g")
        frame.write.format("txlog").mode("append").option("partitionBy", "g").save(path)
        frame.where("id < 10").write.format("txlog").mode("append").save(path)
        spark.range(3).selectExpr("id", "2L AS g").write.format("txlog").mode("overwrite").option(
            "replaceWhere", "g = 2"
        ).save(path)

    remote(work, str(tmp_path / "w"))
    made = txlog.Table(tmp_path / "w")
    kept = [n for n in [*range(100), *range(10)] if n % 3 != 2]
    assert (made.version, made.partition_columns) == (2, ["g"])
    assert sorted(made.to_arrow()["id"].to_pylist()) == sorted([*kept, 0, 1, 2])


@pytest.mark.slow
def test_streaming_into_a_table(remote: "Callable[..., Any]", tmp_path: Path) -> None:
    def work(spark: "SparkSession", source: str, path: str, checkpoint: str) -> str:
        query = (
            spark.readStream.schema("id LONG")
            .option("maxFilesPerTrigger", 1)
            .parquet(source)
            .writeStream.format("txlog")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start(path)
        )
        query.awaitTermination()
        return str(query.id)

    source = tmp_path / "in"
    source.mkdir()
    for number in range(2):
        pq.write_table(pa.table({"id": [number]}), source / f"{number}.parquet")
    folders = [str(tmp_path / name) for name in ("in", "t", "c")]
    first = remote(work, *folders)
    pq.write_table(pa.table({"id": [2]}), source / "2.parquet")
    assert remote(work, *folders) == first
    made = txlog.Table(tmp_path / "t")
    assert sorted(made.to_arrow()["id"].to_pylist()) == [0, 1, 2]
    assert (made.version, made.transaction_version(first)) == (2, 2)


@pytest.mark.slow
@pytest.mark.spec("SPK-1")
def test_native_reads(remote: "Callable[..., Any]", tmp_path: Path) -> None:
    """Partition values, deletions, predicates and addresses, over a remote session."""

    def work(spark: "SparkSession", path: str, lists: str) -> Any:
        import txlog.spark_ext
        from txlog.spark_ext.reads import frame as native_frame

        own = native_frame._temporary
        del native_frame._temporary  # The server need see no folder but that of the lists.
        spark.conf.set("spark.txlog.manifests", lists)
        frame = txlog.spark_ext.read(spark, path)
        chosen = txlog.spark_ext.read(
            spark, path, columns=["x", "_rowaddr"], where="part = 'b/c' AND x > 20"
        )
        table = txlog.spark_ext.DeltaTable.forPath(spark, path)
        table.delete("pmod(x, 7) = 3")
        left = table.toDF().count()
        spark.conf.unset("spark.txlog.manifests")
        native_frame._temporary = own
        return frame.toArrow(), frame.count(), chosen.toArrow(), left

    data = pa.table({"x": range(60), "part": ["a", "b/c", None] * 20})
    table = txlog.write(tmp_path / "t", data, partition_by=["part"])
    table.delete("x % 10 = 4")
    before = table.to_arrow().sort_by("x")
    addresses = table.to_arrow(["x", "_rowaddr"], where="part = 'b/c' AND x > 20").sort_by("x")
    lists = tmp_path / "lists"
    found, count, chosen, left = remote(work, table.uri, str(lists))
    assert found.sort_by("x").to_pylist() == before.to_pylist()
    assert count == before.num_rows == 54
    assert list(lists.glob("*/_spark_metadata/0"))
    assert chosen.sort_by("x").to_pylist() == addresses.to_pylist()
    expected = [n for n in before["x"].to_pylist() if n % 7 != 3]
    assert left == len(expected)
    assert sorted(txlog.Table(table.uri).to_arrow()["x"].to_pylist()) == expected


@pytest.mark.slow
def test_not_null_columns_are_not_nullable(remote: "Callable[..., Any]", tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("t", pa.string())])
    table = txlog.Table.create(tmp_path / "t", schema)

    def work(spark: "SparkSession", path: str) -> Any:
        from txlog.spark_ext import DeltaTable

        frame = DeltaTable.forPath(spark, path).toDF()
        return [field.nullable for field in frame.schema.fields], frame.where("id > 0").toArrow()

    flags, rows = remote(work, table.uri)
    assert (flags, rows.num_rows) == ([False, True], 0)
    table.append(pa.table({"id": [1], "t": ["u"]}, schema=schema))
    flags, rows = remote(work, table.uri)
    assert (flags, rows.to_pylist()) == ([False, True], [{"id": 1, "t": "u"}])


@pytest.mark.slow
def test_streaming_from_a_table(remote: "Callable[..., Any]", path: str, tmp_path: Path) -> None:
    def work(spark: "SparkSession", path: str, out: str, checkpoint: str) -> None:
        (
            spark.readStream.format("txlog")
            .option("maxFilesPerTrigger", 4)
            .load(path)
            .writeStream.format("parquet")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start(out)
            .awaitTermination()
        )

    folders = [str(tmp_path / name) for name in ("out", "c")]
    remote(work, path, *folders)
    txlog.Table(path).append(pa.table({"x": [60], "text": ["t60"]}))
    remote(work, path, *folders)
    files = [pq.read_table(file) for file in (tmp_path / "out").glob("*.parquet")]
    assert sorted(pa.concat_tables(files)["x"].to_pylist()) == list(range(61))


@pytest.mark.slow
def test_frames_are_written(remote: "Callable[..., Any]", tmp_path: Path) -> None:
    def work(spark: "SparkSession", path: str) -> Any:
        import txlog.spark_ext

        frame = spark.range(0, 100, 1, 4)
        first = txlog.spark_ext.write(frame, path, mode="error", txn=("loader", 1))
        again = txlog.spark_ext.write(frame, path, txn=("loader", 1))
        return [first.skipped, again.skipped]

    assert remote(work, str(tmp_path / "t")) == [False, True]
    assert sorted(txlog.Table(tmp_path / "t").to_arrow()["id"].to_pylist()) == list(range(100))


@pytest.mark.slow
@pytest.mark.spec("ENG-4")
def test_verbs_run_on_executors(remote: "Callable[..., Any]", path: str) -> None:
    def work(spark: "SparkSession", path: str, secret: str) -> Any:
        import txlog.spark_ext

        held = txlog.spark_ext.table(spark, path, storage_options={"token": secret})
        held.delete("x % 4 = 0")
        held.alter.add_features("txlog.fragments")
        held.alter.add_columns(
            {"pid": lambda batch: pa.array([os.getpid()] * batch.num_rows), "y": "x * 2"}
        )
        held.optimize.compact(
            options=txlog.WriteOptions(max_rows_per_file=20), max_deleted_fraction=0
        )
        return os.getpid(), held.version, held.count("x % 2 = 1")

    client, version, odd = remote(work, path, SECRET)
    found = txlog.Table(path)
    assert (found.version, odd) == (version, 30)
    rows = found.to_arrow().sort_by("x")
    assert rows["x"].to_pylist() == [n for n in range(60) if n % 4]
    assert rows["y"] == pc.multiply(rows["x"], 2)
    assert not {client, os.getpid()} & set(rows["pid"].to_pylist())
    assert [entry["operation"] for entry in found.history(4)] == [
        "OPTIMIZE", "ADD COLUMNS", "ADD FEATURE", "DELETE"
    ]  # fmt: skip
    # The server logs at level INFO.
    log = remote.log.read_text(errors="replace")
    assert "Starting task" in log
    assert SECRET not in log


@pytest.mark.slow
@pytest.mark.spec("ENG-1", "ENG-3")
def test_errors_of_executors_arrive_as_they_are(remote: "Callable[..., Any]", path: str) -> None:
    def fails(spark: "SparkSession", path: str) -> None:
        import txlog.spark_ext

        txlog.spark_ext.table(spark, path).delete("x = 33")

    def dies(spark: "SparkSession") -> None:
        import txlog.spark_ext

        list(txlog.spark_ext.SparkEngine(spark).map(lambda n: os._exit(n), [9] * 4))

    table = txlog.Table(path)
    gone = table.fragments()[3].files[0].path
    log = Path(path) / "_delta_log" / "00000000000000000000.json"
    kept = log.read_text()
    # Without statistics all files are read, the one that is not there among them.
    lines = [line.partition(',"stats":"')[0] + ("}}" if '"stats"' in line else "")
             for line in kept.replace('"txlogCrc32"', '"was"').splitlines()]  # fmt: skip
    log.write_text("\n".join(lines))
    (Path(path) / gone).unlink()
    with pytest.raises(txlog.DataFileError, match="the file is missing") as caught:
        remote(fails, path)
    assert caught.value.path == gone
    with pytest.raises(txlog.EngineError, match="Spark lost a worker") as lost:
        remote(dies)
    assert len(str(lost.value)) < 500
    assert txlog.Table(path).version == 0


@pytest.mark.slow
def test_a_remote_frame_becomes_a_commit_of_a_data_set(
    remote: "Callable[..., Any]", tmp_path: Path
) -> None:
    def work(spark: "SparkSession", root: str) -> tuple[Any, list[int], list[int]]:
        from txlog.training import Datasets, InlineRunner

        catalog = Datasets(root, runner=InlineRunner())
        numbers = catalog.create("numbers", "TABLE", spark.range(0, 100, 1, 2))
        made = numbers.prepare()
        rows = made.table().to_arrow()["id"].to_pylist()
        return made.error, [commit.rows for commit in numbers.commits()], rows

    assert remote(work, str(tmp_path)) == (None, [100], [*range(100)])
