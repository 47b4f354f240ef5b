"""How many rows Spark passes at once to the tasks of a write."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Observation, Window
from pyspark.sql import functions as fn
from pyspark.sql.functions import pandas_udf, udf
from pyspark.sql.types import StructType

import txlog
from txlog.base.errors import InvalidInputError
from txlog.spark_ext import write
from txlog.spark_ext.writes import write_frame as by_frame
from txlog.spark_ext.writes.write_frame import by_rows, rows_in_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txlog.spark_ext.writes.write_tasks import Target

MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MAX_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


pytestmark = pytest.mark.spark


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("schema", "rows"),
    [
        ("a long, b double, c date, d timestamp, e decimal(38, 2), f boolean", 10_000),
        ("a struct<b: int, c: struct<d: float>>", 10_000),
        ("a long, b string", 1_000),
        ("a struct<b: varchar(5)>", 1_000),
        ("a long, b binary", None),
        ("a long, b array<int>", None),
        ("a struct<b: map<int, int>>", None),
        ("a variant", None),
        (", ".join(f"c{at} long" for at in range(1_000)), 4_194),
        ("a struct<>", 10_000),
    ],
)
def test_a_batch_has_no_more_rows_than_bound_its_bytes(schema: str, rows: int | None) -> None:
    assert rows_in_batch(StructType.fromDDL(schema)) == rows


@contextmanager
def limits(spark: "SparkSession", given: Mapping[str, str]) -> Iterator[None]:
    """Set limits of batches; at the end they must still be so."""
    for name, value in given.items():
        spark.conf.set(name, value)
    try:
        yield
        assert_limits(spark, given)
    finally:
        for name in given:
            spark.conf.unset(name)


def assert_limits(spark: "SparkSession", given: Mapping[str, str]) -> None:
    for name in (MAX_BYTES, MAX_ROWS):
        assert spark.conf.get(name, None) == given.get(name)


def sizes(df: "DataFrame") -> list[int]:
    """Return how many rows are in each batch that a task gets of a frame in one part."""

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    return [row[0] for row in by_rows(df).mapInArrow(count, "rows long").collect()]


TEXT = ["id", "struct(repeat('a', 1000) AS text) AS inner"]
COUNTED = [10_000, 2_000]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "given", "expected"),
    [
        (TEXT, {}, [1_000] * 12),
        (TEXT, {MAX_ROWS: "5000"}, [1_000] * 12),
        (TEXT, {MAX_ROWS: "900"}, [900] * 13 + [300]),
        (TEXT, {MAX_ROWS: "0"}, [1_000] * 12),
        (["id"], {}, [10_000, 2_000]),
        (["id"], {MAX_ROWS: "7000"}, [7_000, 5_000]),
        (["cast(id AS string) AS text", "array(id) AS ids"], {}, COUNTED),
        # What a session was told is kept.
        (TEXT, {MAX_BYTES: "2147483647"}, COUNTED),
        (TEXT, {MAX_BYTES: "2147483647", MAX_ROWS: "6000"}, [6_000, 6_000]),
    ],
)
def test_tasks_get_batches_of_that_size(
    spark: "SparkSession",
    columns: list[str],
    given: Mapping[str, str],
    expected: list[int],
) -> None:
    frame = spark.range(0, 12_000, 1, 1).selectExpr(*columns)
    with limits(spark, given):
        assert sizes(frame) == expected


def test_a_limit_of_bytes_that_the_session_has_stays(spark: "SparkSession") -> None:
    with limits(spark, {MAX_BYTES: "100k"}):
        batches = sizes(spark.range(0, 12_000, 1, 1).selectExpr(*TEXT))
    assert max(batches) < 500
    assert sum(batches) == 12_000


def by_function(df: "DataFrame") -> "DataFrame":
    return df.select(udf(str, "string")("id").alias("id"))


def by_pandas(df: "DataFrame") -> "DataFrame":
    return df.select(pandas_udf(lambda ids: ids.astype("str"), "string")("id").alias("id"))


def by_batches(df: "DataFrame") -> "DataFrame":
    return df.mapInArrow(lambda batches: batches, df.schema)


def by_groups(df: "DataFrame") -> "DataFrame":
    return df.groupBy("id").applyInPandas(lambda rows: rows, df.schema)


def by_windows(df: "DataFrame") -> "DataFrame":
    def mean(ids: pd.Series) -> float:
        return float(ids.mean())

    all_rows = Window.partitionBy("id")
    return df.select(pandas_udf(mean, "double")("id").over(all_rows).alias("mean"))


def by_rdd(df: "DataFrame") -> "DataFrame":
    return by_batches(df).rdd.toDF(df.schema)


def kept(df: "DataFrame") -> "DataFrame":
    return by_batches(df).cache()


@pytest.mark.parametrize(
    "work", [by_function, by_pandas, by_batches, by_groups, by_windows, by_rdd, kept]
)
def test_other_python_functions_of_a_frame_keep_their_limits(
    spark: "SparkSession", work: "Callable[[DataFrame], DataFrame]"
) -> None:
    frame = work(spark.range(0, 12_000, 1, 1))
    with limits(spark, {MAX_ROWS: "11000"}):
        assert by_rows(frame) is frame


def test_a_frame_whose_metrics_are_awaited_stays_in_its_session(
    spark: "SparkSession", tmp_path: Path
) -> None:
    seen = Observation("rows")
    frame = spark.range(5).observe(seen, fn.count(fn.lit(1)).alias("n"))
    assert by_rows(frame) is frame
    write(frame, tmp_path / "table")
    assert seen.get == {"n": 5}


def test_each_of_several_writes_at_once_has_its_own_limits(spark: "SparkSession") -> None:
    ids = spark.range(0, 2_500, 1, 1)
    outer, inner = by_rows(ids), by_rows(ids.selectExpr(*TEXT))
    assert [sizes(inner), sizes(outer), sizes(inner)] == [
        [1_000, 1_000, 500],
        [2_500],
        [1_000, 1_000, 500],
    ]


def test_other_jobs_and_queries_keep_the_limits_of_the_session(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a write runs, other jobs see no limits of it, and a query does not take them along."""
    texts = spark.range(0, 12_000, 1, 1).selectExpr(*TEXT)
    rows = spark.range(0, 12_000, 1, 1)
    seen: list[Any] = []

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    def batch(frame: "DataFrame", _: int) -> None:
        seen.append(frame.sparkSession.conf.get(MAX_ROWS, None))

    moving = by_frame.with_settings

    def beside(df: "DataFrame", settings: Mapping[str, str]) -> "DataFrame | None":
        moved = moving(df, settings)
        assert moved is not None
        seen.append([row[0] for row in rows.mapInArrow(count, "rows long").collect()])
        query = (
            spark.readStream.format("rate").load().writeStream.foreachBatch(batch)
            .option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return moved

    monkeypatch.setattr(by_frame, "with_settings", beside)
    with limits(spark, {MAX_ROWS: "11000"}):
        write(texts, tmp_path / "table")
    assert [11_000, 1_000] in seen
    assert set(map(str, seen)) <= {"[11000, 1000]", "11000"}


def test_write_has_its_batches_so(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    writing = by_frame._writing

    def telling(target: "Target", *rest: Any) -> Any:
        write_files = writing(target, *rest)

        def tell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                with seen.open("a") as file:
                    file.write(f"{batch.num_rows} ")
                yield batch

        return lambda batches: write_files(tell(batches))

    monkeypatch.setattr(by_frame, "_writing", telling)
    with limits(spark, {}):
        write(spark.range(0, 2_500, 1, 1).selectExpr(*TEXT), tmp_path / "table")
    assert seen.read_text().split() == ["1000", "1000", "500"]
    assert txlog.Table(tmp_path / "table").count() == 2_500


def test_limits_are_put_back_after_an_error(spark: "SparkSession", tmp_path: Path) -> None:
    broken = spark.range(5).selectExpr("id", "raise_error('not this one') AS text")
    with limits(spark, {}), pytest.raises(InvalidInputError, match="not this one"):
        write(broken, tmp_path / "table")


@pytest.mark.slow
def test_executors_sort_the_rows_of_a_table_that_declares_an_order(
    spark: "SparkSession", tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    for name in ("ours", "source"):
        table = txlog.Table.create(tmp_path / name, schema, properties={"txlog.sortBy": "n"})
        rows = spark.range(1_000, numPartitions=2).selectExpr("id", "id * 7919 % 1009 AS n")
        if name == "ours":
            write(rows, table.uri, mode="append")
        else:
            rows.write.format("txlog").mode("append").save(table.uri)
        opened = txlog.Table(table.uri)
        assert opened.count() == 1_000
        for fragment in opened.fragments():
            found = pa.Table.from_batches(fragment.to_batches())["n"].to_pylist()
            assert len(found) > 1
            assert found == sorted(found)
