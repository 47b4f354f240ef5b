"""Numbers that only choose a way, with other values in Spark's driver and its workers."""

import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved, small_values, thresholds
from txlog import spark_ext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@contextmanager
def moved_on_spark(spark: "SparkSession", values: Mapping[str, int]) -> Iterator[None]:
    """Give thresholds other values in the driver and in Python workers that start from now on."""
    environment = spark.sparkContext.environment
    path = os.pathsep.join([str(HERE / "moved_workers"), str(ROOT)])
    changed = {"TXLOG_MOVED": json.dumps(dict(values)), "PYTHONPATH": path}
    before = {name: environment.get(name) for name in changed}
    environment.update(changed)
    try:
        with moved(values):
            yield
    finally:
        for name, value in before.items():
            environment.pop(name)
            if value is not None:
                environment[name] = value


def rows(start: int, stop: int) -> pa.Table:
    numbers = range(start, stop)
    return pa.table(
        {
            "k": pa.array(numbers, pa.int64()),
            "g": pa.array(["ab"[k % 2] for k in numbers], pa.string()),
            "t": pa.array(
                [None if k % 11 == 0 else "t" * (k % 17) + str(k) for k in numbers], pa.string()
            ),
            "s": pa.array(
                [None if k % 7 == 0 else {"a": [k] * (k % 4)} for k in numbers],
                pa.struct([("a", pa.list_(pa.int32()))]),
            ),
        }
    )


def frame_of(spark: "SparkSession", data: pa.Table) -> "DataFrame":
    return spark.createDataFrame(data)


def make(spark: "SparkSession", path: Path) -> None:
    """Make a table by the verbs of Spark."""
    properties = {"delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "3"}
    table = txlog.Table.create(path, rows(0, 0).schema, ["g"], properties)
    table.indexes.create("k")
    place = str(path)
    for start in (0, 40, 80):
        frame_of(spark, rows(start, start + 40)).write.format("txlog").mode("append").save(place)
    spark_ext.write(frame_of(spark, rows(120, 150)), place, mode="append")
    delta = spark_ext.DeltaTable.forPath(spark, place)
    delta.delete("k % 5 = 1")
    delta.update("k % 9 = 2", {"t": "concat('u', t)"})
    source = frame_of(spark, rows(140, 170).drop_columns(["s"]))
    (
        delta.alias("target")
        .merge(source.alias("source"), "target.k = source.k")
        .whenMatchedUpdate(set={"t": "concat(source.t, '!')"})
        .whenNotMatchedInsert(values={"k": "source.k", "g": "source.g", "t": "source.t"})
        .execute()
    )
    delta.delete(f"k IN ({', '.join(map(str, range(60, 90, 3)))})")
    delta.optimize().executeZOrderBy("k")
    delta.delete("k = 3")


def reads(spark: "SparkSession", path: Path) -> dict[str, Any]:
    place = str(path)

    def sort(frame: "DataFrame") -> list[str]:
        return sorted(str(row.asDict(recursive=True)) for row in frame.collect())

    own = spark_ext.read(spark, place)
    source = spark.read.format("txlog").load(place)
    keys = frame_of(spark, pa.table({"k": [2, 5, 7, 7, 100, 999], "n": [*"abcdef"]}))
    asked: dict[str, Callable[[], Any]] = {
        "read": lambda: sort(own),
        "where": lambda: sort(own.where("k % 3 = 0 AND t > 'tt'").select("k", "s")),
        "count": lambda: (own.count(), own.where("g = 'a'").count()),
        "source": lambda: sort(source),
        "source where": lambda: sort(source.where("k >= 60 AND k < 90")),
        "source count": lambda: source.count(),
        "source rows": lambda: sorted(
            row[0]
            for row in spark.read.format("txlog").option("where", "k > 7").load(place)
            .select("k").collect()
        ),
        "lookup": lambda: sort(spark_ext.lookup(spark, place, [*range(0, 160, 7)], on="k")),
        "join": lambda: sort(spark_ext.lookup_join(keys, place, on="k", how="left")),
        "changes": lambda: sort(
            spark.read.format("txlog")
            .options(readChangeFeed="true", startingVersion="2")
            .load(place)
            .drop("_commit_timestamp")
        ),
    }  # fmt: skip
    return {name: ask() for name, ask in asked.items()}


class Usual:
    """A table that was made with the usual values, and what reading it gives."""

    def __init__(self, spark: "SparkSession", path: Path) -> None:
        make(spark, path)
        self.path, self.answers = path, reads(spark, path)


@pytest.fixture(scope="module")
def usual(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Usual:
    spark_ext.register(spark)  # A found source starts with the environment of the JVM.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Spark's own, of pandas.
        return Usual(spark, tmp_path_factory.mktemp("usual") / "t")


def of_spark() -> list[str]:
    return [name for name in thresholds() if name.startswith("txlog.spark_ext.")]


@pytest.mark.slow
def test_workers_get_the_values(spark: "SparkSession") -> None:
    def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from txlog.spark_ext.reads import lookups

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"n": [lookups._ROWS_AT_ONCE]})

    name = "txlog.spark_ext.reads.lookups:_ROWS_AT_ONCE"
    with moved_on_spark(spark, {name: 3}):
        found = spark.range(1, numPartitions=1).mapInArrow(held, "n long").collect()
    assert [row["n"] for row in found] == [3]


@pytest.mark.exhaustive
def test_a_table_is_made_and_read_alike_with_small_values_for_all(
    spark: "SparkSession", usual: Usual, tmp_path: Path
) -> None:
    with moved_on_spark(spark, dict.fromkeys(thresholds(), 1)):
        assert reads(spark, usual.path) == usual.answers
        make(spark, tmp_path / "t")
    assert reads(spark, tmp_path / "t") == usual.answers


@pytest.mark.exhaustive
@given(values=small_values() | st.dictionaries(st.sampled_from(of_spark()), st.integers(1, 99)))
@settings(max_examples=examples(15), deadline=None)
def test_a_table_is_made_and_read_alike(
    spark: "SparkSession",
    usual: Usual,
    tmp_path_factory: pytest.TempPathFactory,
    values: dict[str, int],
) -> None:
    path = tmp_path_factory.mktemp("moved") / "t"
    with moved_on_spark(spark, values):
        assert reads(spark, usual.path) == usual.answers
        make(spark, path)
    assert reads(spark, path) == usual.answers
    shutil.rmtree(path)
