"""Keys of a merge's source exclude files before Spark's join; the rows are those of the core."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it

import txlog
from tests.examples import examples
from txlog import spark_ext
from txlog.lookup import keys
from txlog.spark_ext import DeltaTable
from txlog.spark_ext.writes import row_changes, source_keys
from txlog.spark_ext.writes.small_sources import LOCAL_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DAY = date(2024, 1, 1)
MOMENT = datetime(2024, 10, 26, tzinfo=UTC)  # Soon many zones have an hour twice.
COLUMNS = {
    "long": (pa.int64(), lambda n: n * 2**40),
    "short": (pa.int16(), lambda n: n - 500),
    "text": (pa.string(), lambda n: f"k{n:03}"),
    "day": (pa.date32(), lambda n: DAY + timedelta(days=n)),
    "at": (pa.timestamp("us", "UTC"), lambda n: MOMENT + timedelta(minutes=10, microseconds=1) * n),
    "local": (pa.timestamp("us"), lambda n: datetime(1900, 1, 1) + timedelta(days=99) * n),
    "cost": (pa.decimal128(12, 4), lambda n: Decimal(n - 500) / 16),
    "odd": (pa.bool_(), lambda n: n % 2 == 1),
}
EACH = txlog.WriteOptions(max_rows_per_file=4)


@pytest.fixture(autouse=True)
def joined_by_spark(spark: "SparkSession") -> "Iterator[None]":
    spark.conf.set(LOCAL_ROWS, "0")
    yield
    spark.conf.unset(LOCAL_ROWS)


def rows_of(numbers: "list[int | None]", x: int) -> pa.Table:
    columns: dict[str, Any] = {
        name: pa.array([None if n is None else value(n) for n in numbers], kind)
        for name, (kind, value) in COLUMNS.items()
    }
    return pa.table({**columns, "x": pa.array([x] * len(numbers), pa.int64())})


NUMBERS = st.lists(st.one_of(st.none(), st.integers(0, 30), st.integers(0, 900)), max_size=20)


def contents(uri: Path) -> list[str]:
    return sorted(map(str, txlog.Table(uri).to_arrow().to_pylist()))


@pytest.mark.slow
@pytest.mark.spec("SPK-21")
@given(data=st.data())
@settings(max_examples=examples(30), phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_random_keys_and_clauses(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    home = tmp_path_factory.mktemp("k")
    held = rows_of(sorted(data.draw(NUMBERS), key=lambda n: (n is None, n)), 1)
    distinct = data.draw(st.lists(st.integers(0, 900), unique=True, max_size=20))
    source = rows_of([*distinct, *data.draw(st.lists(st.none(), max_size=2))], 2)
    names = data.draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, unique=True))
    unique = data.draw(st.sampled_from(["long", "short", "text", "day", "at", "local", "cost"]))
    on = " AND ".join(f"target.{one} = source.{one}" for one in {unique, *names})
    by = data.draw(st.sampled_from([[], ["odd"], ["text"], ["day"]]))
    kinds = data.draw(st.sets(st.sampled_from(["update", "delete", "insert", "gone"]), min_size=1))
    with pytest.MonkeyPatch.context() as patch:
        few = data.draw(st.sampled_from([2, 1_024]))
        patch.setattr(source_keys, "_SPANS", few)
        patch.setattr(source_keys, "_TEXTS", few)
        patch.setattr(keys, "_FEW", few // 4)
        patch.setattr(keys, "_RANGES", 3)
        for name in ("core", "spark"):
            made = txlog.write(home / name, held, partition_by=by, options=EACH)
            if name == "core":
                merger = made.merge(source, on)
            else:
                frame = spark.createDataFrame(source)
                merger = spark_ext.table(spark, made.uri).merge(frame, on)
            if "update" in kinds:
                merger = merger.when_matched_update({"x": "source.x"}, "source.short < 0")
            if "delete" in kinds:
                merger = merger.when_matched_delete()
            if "insert" in kinds:
                merger = merger.when_not_matched_insert_all()
            if "gone" in kinds:
                merger = merger.when_not_matched_by_source_update({"x": "target.x + 10"})
            merger.execute()
    assert contents(home / "spark") == contents(home / "core")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> "list[tuple[int, str]]":
    """The number of files in the input of each change, and its plan."""
    found: list[tuple[int, str]] = []
    whole = row_changes._computed

    def noted(task: Any, frame: Any) -> Any:
        plan = frame._jdf.queryExecution().executedPlan().toString()
        found.append((len(frame.inputFiles()), plan))
        return whole(task, frame)

    monkeypatch.setattr(row_changes, "_computed", noted)
    return found


@pytest.mark.slow(cases=2)
@pytest.mark.spec("SPK-21")
@pytest.mark.parametrize("key", ["long", "short", "text", "day", "at", "local", "cost"])
def test_files_without_a_key_are_not_read(
    spark: "SparkSession", tmp_path: Path, read: "list[tuple[int, str]]", key: str
) -> None:
    made = txlog.write(tmp_path / "t", rows_of(list(range(400)), 1), options=EACH)
    source = spark.createDataFrame(rows_of([17, 18, 333, 5_000, None], 2))
    source = source.withColumn("long", source.long + 0)
    source = source.withColumn("local", source.local.cast("timestamp_ntz"))
    table = spark_ext.table(spark, made.uri)
    on = f"target.{key} = source.{key} AND abs(target.x) > 0"
    merger = table.merge(source, on).when_matched_update({"x": "source.x"})
    outcome = merger.when_not_matched_insert_all().execute()
    assert outcome.metrics["numTargetRowsUpdated"] == 3
    assert [files for files, _ in read] == [2]
    everything = "target.x = -1"
    by_source = table.merge(source, on).when_not_matched_by_source_delete(everything)
    by_source.execute()
    assert read.pop()[0] > 100  # Rows with any key are without a match.


@pytest.mark.slow
@pytest.mark.spec("SPK-20")
def test_the_source_is_computed_once(
    spark: "SparkSession", tmp_path: Path, read: "list[tuple[int, str]]"
) -> None:
    made = txlog.write(tmp_path / "t", rows_of(list(range(100)), 1), options=EACH)
    count = spark.sparkContext.accumulator(0)

    def counted(batches: Any) -> Any:
        for batch in batches:
            count.add(batch.num_rows)
            yield batch

    given = spark.createDataFrame(rows_of([3, 50], 2))
    source = given.mapInArrow(counted, given.schema)
    table = spark_ext.table(spark, made.uri)
    for times in (1, 2):
        merger = table.merge(source, "target.long = source.long")
        merger.when_matched_update({"x": "source.x"}).execute()
        assert count.value == 2 * times
        assert not source.storageLevel.useMemory
    source.cache()
    merger = table.merge(source, "target.long = source.long")
    merger.when_matched_update({"x": "source.x + 1"}).execute()
    assert source.storageLevel.useMemory  # The caller's own.
    source.unpersist()


@pytest.mark.slow
@pytest.mark.spec("SPK-21")
def test_a_source_by_chance_excludes_nothing(
    spark: "SparkSession", tmp_path: Path, read: "list[tuple[int, str]]"
) -> None:
    made = txlog.write(tmp_path / "t", rows_of(list(range(100)), 1), options=EACH)
    source = spark.range(4).selectExpr("CAST(rand() * 100 AS BIGINT) * 1099511627776 AS long")
    table = spark_ext.table(spark, made.uri)
    merger = table.merge(source.distinct(), "target.long = source.long")
    outcome = merger.when_matched_delete().when_not_matched_insert({"long": "source.long"})
    metrics = outcome.execute().metrics
    assert metrics["numTargetRowsInserted"] == 0
    assert metrics["numTargetRowsDeleted"] > 0
    assert [files for files, _ in read] == [25]


@pytest.mark.slow
def test_keys_of_other_bytes_match(spark: "SparkSession", tmp_path: Path) -> None:
    made = txlog.write(tmp_path / "t", rows_of(list(range(8)), 1), options=EACH)
    source = spark.sql("SELECT CAST(X'6bff' AS STRING) AS text UNION ALL SELECT 'k003'")
    merger = spark_ext.table(spark, made.uri).merge(source, "target.text = source.text")
    outcome = merger.when_matched_delete().execute()
    assert outcome.metrics["numTargetRowsDeleted"] == 1


@pytest.mark.slow
def test_keys_that_spark_compares_otherwise_exclude_nothing(
    spark: "SparkSession", tmp_path: Path
) -> None:
    made = txlog.write(tmp_path / "t", rows_of(list(range(20)), 1), options=EACH)
    source = spark.sql("SELECT 'K003' AS text, '-497' AS short")
    table = spark_ext.table(spark, made.uri)
    for on in ("target.text = source.text COLLATE UTF8_LCASE", "target.short = source.short"):
        merger = table.merge(source, on).when_matched_update({"x": "target.x + 1"})
        assert merger.execute().metrics["numTargetRowsUpdated"] == 1


BY_COLUMNS: dict[str, Any] = {
    "frames": lambda source, frame: frame.long == source.long,
    "names": lambda *_: F.col("t.long") == F.col("s.long"),
    "mixed": lambda _, frame: (F.col("s.text") == frame.text) & (F.abs(frame.x) > 0),
    "narrow": lambda source, frame: source.small == frame["long"],
    "text": lambda *_: F.expr("t.day = s.day"),
    "table": lambda source, frame: (frame.long == source.long) & (frame.short >= -483),
}


@pytest.mark.slow(cases=2)
@pytest.mark.spec("SPK-21")
@pytest.mark.parametrize("alias", [None, "t"])
@pytest.mark.parametrize("how", BY_COLUMNS)
def test_conditions_of_columns_exclude_files(
    spark: "SparkSession",
    tmp_path: Path,
    read: "list[tuple[int, str]]",
    how: str,
    alias: str | None,
) -> None:
    if alias is None and how in ("names", "text"):
        pytest.skip("this condition calls the table t, which it is only with an alias")
    rows = rows_of(list(range(400)), 1)
    if how == "narrow":
        rows = rows.set_column(0, "long", pa.array(range(400), pa.int64()))
    table = DeltaTable.forPath(spark, txlog.write(tmp_path / "t", rows, options=EACH).uri)
    frame = table.toDF()
    table = table if alias is None else table.alias(alias)
    table.update(F.col("x") == 7, {"x": F.lit(7)})  # The frame is of an earlier version.
    source = spark.createDataFrame(rows_of([17, 18, 333, 5_000, None], 2))
    source = source.withColumn("small", (source.short + 500).cast("int")).alias("s")
    merger = table.merge(source, BY_COLUMNS[how](source, frame))
    read.clear()
    merger.whenMatchedUpdate(set={"x": source.x}).execute()
    assert [files for files, _ in read] == [2]
    changed = txlog.Table(tmp_path / "t").to_arrow(["short"], where="x = 2")["short"].to_pylist()
    assert sorted(changed) == [-483, -482, -167]


@pytest.mark.slow
@pytest.mark.spec("SPK-21")
def test_columns_that_may_mean_something_else_exclude_nothing(
    spark: "SparkSession", tmp_path: Path, read: "list[tuple[int, str]]"
) -> None:
    place = txlog.write(tmp_path / "t", rows_of(list(range(40)), 1), options=EACH).uri
    table = DeltaTable.forPath(spark, place)
    frame = table.toDF()
    source = spark.sql("SELECT 'K003' AS text, '-497' AS short, 2 * 1099511627776 AS long")
    chance = source.withColumn("text", F.concat(F.lit("k00"), F.floor(F.rand() * 2) + 3))
    for other, condition in (
        (source, F.lower(source.text) == frame.text),
        (source, source.short == frame.short),
        (source, (source.short == frame.short) | (source.long == frame.long)),
        (source, ~(source.long != frame.long)),
        (chance, F.lower(chance.text) == frame.text),
    ):
        read.clear()
        table.merge(other, condition).whenMatchedUpdate(set={"x": frame.x + 1}).execute()
        assert read[0][0] >= 10
