"""A predicate at a Spark door has the time zone of the session, whatever the door."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import txlog
from txlog import InvalidInputError, col, spark_ext
from txlog.spark_ext.zones import SESSION_ZONE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ZONES = ["America/New_York", "Australia/Melbourne", "UTC"]
WHERES = {
    "constants": "at >= TIMESTAMP'2024-01-02 00:00:00' AND at < TIMESTAMP'2024-01-03 00:00:00'",
    "texts": "at >= '2024-01-02' AND at < '2024-01-03'",
    "cast": "CAST(at AS DATE) = DATE'2024-01-02'",
    "function": "date_trunc('DAY', at) = TIMESTAMP'2024-01-02 00:00:00'",
    "column": "to_date(at) = day",
}
FIRST = datetime(2024, 1, 1, tzinfo=UTC)


@contextmanager
def in_zone(spark: "SparkSession", zone: str) -> Iterator[None]:
    before = spark.conf.get(SESSION_ZONE)
    spark.conf.set(SESSION_ZONE, zone)
    try:
        yield
    finally:
        spark.conf.set(SESSION_ZONE, before or "UTC")


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Return a table of 96 hours, in files of eight, with UTC as its partitions' day."""
    moments = [FIRST + timedelta(hours=n) for n in range(96)]
    rows = pa.table(
        {
            "n": range(96),
            "at": pa.array(moments, pa.timestamp("us", "UTC")),
            "day": [date(2024, 1, 2)] * 96,
        }
    )
    txlog.write(
        tmp_path / "t",
        rows,
        properties={"delta.enableChangeDataFeed": "true"},
        options=txlog.WriteOptions(max_rows_per_file=8),
    )
    return str(tmp_path / "t")


def of_the_day(zone: str) -> list[int]:
    wanted = date(2024, 1, 2)
    zoned = ZoneInfo(zone)
    return [n for n in range(96) if (FIRST + timedelta(hours=n)).astimezone(zoned).date() == wanted]


def numbers(frame: "DataFrame") -> list[int]:
    return sorted(row["n"] for row in frame.select("n").collect())


Read = Callable[["SparkSession", str, str], "DataFrame"]

READS: dict[str, Read] = {
    "read": lambda spark, place, where: spark_ext.read(spark, place, where=where),
    "read and filter": lambda spark, place, where: spark_ext.read(spark, place).where(where),
    "source": lambda spark, place, where: (
        spark.read.format("txlog")
        .options(where=where, timeZone=spark.conf.get(SESSION_ZONE))
        .load(place)
    ),
    "source and filter": lambda spark, place, where: (
        spark.read.format("txlog").load(place).where(where)
    ),
    "changes": lambda spark, place, where: (
        spark.read.format("txlog")
        .options(
            readChangeFeed="true",
            startingVersion="0",
            where=where,
            timeZone=spark.conf.get(SESSION_ZONE),
        )
        .load(place)
    ),
    "sql": lambda spark, place, where: spark_ext.sql(
        spark, f"SELECT n FROM delta.`{place}` WHERE {where}"
    ),
    "view": lambda spark, place, where: _view(spark, place, where),
    "table": lambda spark, place, where: spark.createDataFrame(
        spark_ext.table(spark, place).to_arrow(["n"], where)
    ),
}


def _view(spark: "SparkSession", place: str, where: str) -> "DataFrame":
    spark_ext.create_view(spark, "zoned", place, where=where)
    return spark.table("zoned")


@pytest.mark.slow(cases=3)
@pytest.mark.spec("SPK-10")
@pytest.mark.parametrize(
    ("name", "zone"),
    [*((name, ZONES[0]) for name in WHERES), *(("constants", zone) for zone in ZONES[1:])],
)
def test_each_door_reads_what_spark_reads(
    spark: "SparkSession", place: str, name: str, zone: str, tmp_path: Path
) -> None:
    plain = str(tmp_path / "plain")
    spark_ext.read(spark, place).write.parquet(plain)
    with in_zone(spark, zone):
        expected = numbers(spark.read.parquet(plain).where(WHERES[name]))
        assert expected == of_the_day(zone)
        for door, read in READS.items():
            assert numbers(read(spark, place, WHERES[name])) == expected, door


def _replace_by_source(spark: "SparkSession", place: str, where: str, rows: "DataFrame") -> None:
    writer = rows.write.format("txlog").mode("overwrite").option("replaceWhere", where)
    writer.option("timeZone", spark.conf.get(SESSION_ZONE)).save(place)


Change = Callable[["SparkSession", str, str, "DataFrame"], Any]


def _merge_away(spark: "SparkSession", place: str, where: str, _rows: Any) -> None:
    """Match the rows of the day; the column of the source has the name that the predicate uses."""
    source = pa.table({"k": [1]})
    merger = spark_ext.table(spark, place).merge(source, f"source.k = 1 AND ({where})")
    merger.when_matched_delete().execute()


def _update(spark: "SparkSession", place: str, where: str, _rows: Any) -> None:
    spark_ext.table(spark, place).update({"n": "-1"}, where)
    txlog.Table(place).delete("n = -1")


CHANGES: dict[str, Change] = {
    "write": lambda _, place, where, rows: spark_ext.write(
        rows, place, mode="overwrite", where=where
    ),
    "source": _replace_by_source,
    "sql": lambda spark, place, where, _: spark_ext.sql(
        spark, f"DELETE FROM delta.`{place}` WHERE {where}"
    ),
    "DeltaTable": lambda spark, place, where, _: spark_ext.DeltaTable.forPath(spark, place).delete(
        where
    ),
    "table": lambda spark, place, where, _: spark_ext.table(spark, place).delete(where),
    "update": _update,
    "engine": lambda spark, place, where, _: txlog.Table(
        place, engine=spark_ext.SparkEngine(spark)
    ).overwrite(pa.table({"n": [0]}).slice(1), where),
    "merge": _merge_away,
}


@pytest.mark.slow
@pytest.mark.spec("SPK-10")
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("door", CHANGES)
def test_each_door_changes_what_spark_reads(
    spark: "SparkSession", place: str, zone: str, door: str, tmp_path: Path
) -> None:
    where = WHERES["constants"]
    nothing = spark_ext.read(spark, place).limit(0)
    with in_zone(spark, zone):
        CHANGES[door](spark, place, where, nothing)
    left = [n for n in range(96) if n not in of_the_day(zone)]
    assert sorted(txlog.Table(place).to_arrow()["n"].to_pylist()) == left


@pytest.mark.slow
@pytest.mark.spec("SPK-10")
@pytest.mark.parametrize("name", WHERES)
def test_a_source_that_does_not_know_the_zone_refuses_to_guess_it(
    spark: "SparkSession", place: str, name: str
) -> None:
    reads = {
        "read": spark.read.format("txlog").option("where", WHERES[name]),
        "nothing": spark.read.format("txlog").option("where", "at > '2030-01-01 00:00:00'"),
        "changes": spark.read.format("txlog").options(
            readChangeFeed="true", startingVersion="0", where=WHERES[name]
        ),
    }
    with in_zone(spark, "America/New_York"):
        for door, reader in reads.items():
            with pytest.raises(Exception, match="the predicate depends on the time zone") as caught:
                reader.load(place).collect()
            assert "timeZone=America/New_York" in str(caught.value), door
        rows = spark_ext.read(spark, place).limit(0)
        writer = rows.write.format("txlog").mode("overwrite").option("replaceWhere", WHERES[name])
        with pytest.raises(Exception, match="the predicate depends on the time zone"):
            writer.save(place)
        assert txlog.Table(place).version == 0
        fine = spark.read.format("txlog").option("where", "n < 3 AND at > '2024-01-01T00:00:00Z'")
        assert numbers(fine.load(place)) == [1, 2]
    for door, reader in reads.items():
        frame = reader.load(place)
        assert numbers(frame) == ([] if door == "nothing" else of_the_day("UTC"))
        with pytest.raises(Exception, match="no task knows that of the session"):
            frame.rdd.collect()  # Spark sends its tasks no settings.


@pytest.mark.slow
def test_names_of_zones_in_the_forms_of_java_are_known(spark: "SparkSession", place: str) -> None:
    for zone in ("GMT+8", "UTC+1", "PST", "CST", "JST", "+8", "+05:30:15", "-0130", "EST"):
        with in_zone(spark, zone):
            expected = numbers(spark_ext.read(spark, place).where(WHERES["cast"]))
            assert numbers(spark_ext.read(spark, place, where=WHERES["cast"])) == expected, zone


@pytest.mark.slow
def test_a_stream_has_the_zone_of_its_option(
    spark: "SparkSession", place: str, tmp_path: Path
) -> None:
    def streamed(name: str, **options: str) -> list[int]:
        stream = spark.readStream.format("txlog").options(where=WHERES["texts"], **options)
        target = str(tmp_path / name)
        query = (
            stream.load(place)
            .writeStream.format("parquet")
            .option("checkpointLocation", f"{target}.checkpoint")
            .trigger(availableNow=True)
            .start(target)
        )
        query.awaitTermination()
        return numbers(spark.read.parquet(target))

    zone = "Australia/Melbourne"
    with in_zone(spark, zone):
        assert streamed("given", timeZone=zone) == of_the_day(zone)
        with pytest.raises(Exception, match="the predicate depends on the time zone"):
            streamed("unknown")


def test_expressions_and_datetimes_have_the_zone(spark: "SparkSession", place: str) -> None:
    zone = "America/New_York"
    where = (col("at") >= datetime(2024, 1, 2)) & (col("at") < datetime(2024, 1, 3))
    with in_zone(spark, zone):
        assert numbers(spark_ext.read(spark, place, where=where)) == of_the_day(zone)
        table = txlog.Table(place, engine=spark_ext.SparkEngine(spark))
        assert table.count(where) == len(of_the_day(zone))
        other = txlog.Table(place, engine=spark_ext.SparkEngine(spark), time_zone="UTC")
        assert sorted(other.to_arrow(where=where)["n"].to_pylist()) == of_the_day("UTC")


@pytest.mark.slow
@pytest.mark.parametrize("year", [1, 999, 1582, 9999])
def test_days_of_far_years_are_found(spark: "SparkSession", tmp_path: Path, year: int) -> None:
    days = [date(year, 1, 1) + timedelta(days=n) for n in range(3)]
    place = str(tmp_path / "t")
    moments = [datetime(year, 1, 1, 12, tzinfo=UTC) + timedelta(days=n) for n in range(3)]
    at = pa.array(moments, pa.timestamp("us", "UTC"))
    txlog.write(place, pa.table({"dt": days, "at": at, "n": range(3)}))
    day = days[1].isoformat()
    where = f"dt < DATE'{day}' AND at < TIMESTAMP'{day} 00:00:00' AND CAST(at AS DATE) < '{day}'"
    with in_zone(spark, "America/New_York"):
        assert numbers(spark_ext.read(spark, place, where=where)) == [0]
        rows = spark_ext.read(spark, place).where("n = 0")
        spark_ext.write(rows, place, mode="overwrite", where=where)
        writer = rows.write.format("txlog").mode("overwrite").option("replaceWhere", where)
        writer.option("timeZone", "America/New_York").save(place)
        assert numbers(spark_ext.read(spark, place)) == [0, 1, 2]


def test_an_unknown_zone_is_named(spark: "SparkSession", place: str) -> None:
    with pytest.raises(Exception, match="'Mars' is no time zone"):
        spark.read.format("txlog").options(where="at > '2024-01-01'", timeZone="Mars").load(
            place
        ).collect()
    with pytest.raises(InvalidInputError):
        txlog.Table(place, time_zone="Mars")


@pytest.mark.spec("SPK-10")
def test_rules_of_a_table_are_in_utc(spark: "SparkSession", tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("day", pa.date32())])
    table = txlog.Table.create(place, schema, generated={"day": "CAST(at AS DATE)"})
    table.alter.add_constraint({"of_2024": "year(at) = 2024"})
    with in_zone(spark, "America/New_York"):
        late = spark.sql("SELECT TIMESTAMP'2024-01-01 20:00:00' AS at")
        spark_ext.write(late, place, mode="append")  # 2 January in UTC, and computed so.
        assert txlog.Table(place).to_arrow()["day"].to_pylist() == [date(2024, 1, 2)]
        given = late.selectExpr("at", "CAST(at AS DATE) AS day")
        with pytest.raises(Exception, match="in UTC, which is the time zone of all rules"):
            spark_ext.write(given, place, mode="append")
        with pytest.raises(Exception, match=r"break the constraint of_2024.*in UTC, which"):
            spark_ext.write(
                spark.sql("SELECT TIMESTAMP'2024-12-31 20:00:00' AS at"), place, mode="append"
            )
    assert txlog.Table(place).count() == 1
