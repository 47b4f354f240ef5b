"""`spark.read.format("txlog")`, compared with Arrow scans of the same table."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import txlog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = [
    {
        "id": n,
        "part": ["a b", "c%d", None][n % 3],
        "text": None if n % 7 == 0 else f"t{n}",
        "price": Decimal(n) / 4,
        "day": dt.date(2020, 1, 1) + dt.timedelta(n),
        "at": dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=n),
        "local": dt.datetime(2020, 1, 1) + dt.timedelta(minutes=n),
        "tags": [n, None],
        "map": {"k": n},
        "nested": {"x": n, "y": {"z": str(n)}},
        "flag": n % 2 == 0,
        "raw": bytes([n % 256]),
        "ratio": n / 3,
    }
    for n in range(60)
]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("text", pa.string()),
        ("price", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("tags", pa.list_(pa.int32())),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("nested", pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))])),
        ("flag", pa.bool_()),
        ("raw", pa.binary()),
        ("ratio", pa.float64()),
    ]
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> txlog.Table:
    path = tmp_path_factory.mktemp("tables") / "ä table#1"
    data = [{**row, "map": list(row["map"].items())} for row in ROWS]
    made = txlog.write(path, pa.Table.from_pylist(data[:40], schema=SCHEMA), partition_by=["part"])
    made.append(pa.Table.from_pylist(data[40:], schema=SCHEMA))
    made.delete("id % 10 = 3")
    return made


def load(spark: "SparkSession", table: txlog.Table, **options: str):
    return spark.read.format("txlog").options(**options).load(table.uri)


def test_every_type_arrives(spark: "SparkSession", table: txlog.Table) -> None:
    found = {row["id"]: row.asDict(recursive=True) for row in load(spark, table).collect()}
    expected = {row["id"]: row for row in ROWS if row["id"] % 10 != 3}
    assert found.keys() == expected.keys()
    for key, row in found.items():
        row["at"] = row["at"].replace(tzinfo=dt.UTC)
        assert row == expected[key]


def test_count_and_versions(spark: "SparkSession", table: txlog.Table) -> None:
    assert load(spark, table).count() == table.count() == 54
    assert load(spark, table, versionAsOf="0").count() == 40
    first = txlog.Table(table.uri, version=1).timestamp_ms
    moment = dt.datetime.fromtimestamp(first / 1000, dt.UTC).isoformat()
    assert load(spark, table, timestampAsOf=moment).count() == 60


@pytest.mark.slow
@pytest.mark.parametrize(
    "where",
    [
        "id > 30",
        "id BETWEEN 10 AND 12 OR id = 50",
        "part = 'a b' AND text IS NOT NULL",
        "part IS NULL",
        "NOT (id < 55)",
        "text LIKE 't1%'",
        "text LIKE '%1'",
        "price >= 10.25",
        "day = DATE '2020-01-05'",
        "at < TIMESTAMP '2020-01-01 05:00:00'",
        "nested.x IN (1, 2, 999)",
        "part <=> NULL",
        "flag",
    ],
)
def test_filters_agree_with_arrow(spark: "SparkSession", table: txlog.Table, where: str) -> None:
    by_spark = sorted(row["id"] for row in load(spark, table).where(where).select("id").collect())
    by_arrow = sorted(table.to_arrow(["id"], where=where)["id"].to_pylist())
    by_option = sorted(row["id"] for row in load(spark, table, where=where, columns="id").collect())
    assert by_spark == by_arrow == by_option


def test_small_fragments_that_survive_share_a_partition(
    spark: "SparkSession", table: txlog.Table
) -> None:
    assert load(spark, table).rdd.getNumPartitions() == 1 < len(table.fragments())
    assert load(spark, table).where("id > 5000").collect() == []


def test_chosen_columns(spark: "SparkSession", table: txlog.Table) -> None:
    frame = load(spark, table, columns="day, id")
    assert frame.columns == ["day", "id"]
    assert frame.count() == 54
    with pytest.raises(Exception, match=r"invalid-input.*no such column"):
        load(spark, table, columns="nope")


@pytest.mark.slow
@pytest.mark.parametrize("pushed", ["true", "false"])
def test_a_filter_is_not_remembered(spark: "SparkSession", table: txlog.Table, pushed: str) -> None:
    """Spark keeps the reader that it pushed filters to, for queries that have none."""
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, pushed)
    try:
        frame = load(spark, table)
        assert frame.where("id > 50").count() == table.count("id > 50")
        assert frame.count() == table.count()
        assert frame.where("id < 3").count() == table.count("id < 3")
        assert frame.count() == table.count()
    finally:
        spark.conf.unset(name)


@pytest.mark.slow
def test_errors_carry_our_code(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"\[not-found\]"):
        spark.read.format("txlog").load(str(tmp_path / "nothing"))
    made = txlog.write(tmp_path / "t", pa.table({"a": [1]}))
    with pytest.raises(Exception, match="no such version"):
        spark.read.format("txlog").option("versionAsOf", "9").load(made.uri)
    with pytest.raises(Exception, match="path"):
        spark.read.format("txlog").load()


@pytest.mark.slow
def test_sql_over_a_view(spark: "SparkSession", table: txlog.Table) -> None:
    load(spark, table).createOrReplaceTempView("flights")
    (row,) = spark.sql("SELECT count(*) AS n, max(id) AS m FROM flights").collect()
    assert (row["n"], row["m"]) == (54, 59)


@pytest.mark.slow
def test_variants_are_sparks_own(spark: "SparkSession", tmp_path: Path) -> None:
    # Written by Spark, shredded or not as it likes; the log is by hand, as for a foreign table.
    from pyspark.sql.functions import expr

    text = '{"a": [1, {"b": null}], "c": "x"}'
    frame = spark.createDataFrame([(1, text), (2, "7"), (3, None)], "id int, text string")
    frame = frame.select("id", expr("parse_json(text)").alias("v"))
    frame.coalesce(1).write.parquet(str(tmp_path / "t"))
    (file,) = (tmp_path / "t").glob("*.parquet")
    schema = frame.schema.json()
    features = ["variantType", "variantShredding"]
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
                      "readerFeatures": features, "writerFeatures": features}},
        {"metaData": {"id": "1", "format": {"provider": "parquet", "options": {}},
                      "schemaString": schema, "partitionColumns": [], "configuration": {}}},
        {"add": {"path": file.name, "partitionValues": {}, "size": file.stat().st_size,
                 "modificationTime": 0, "dataChange": True}},
    ]  # fmt: skip
    log = tmp_path / "t" / "_delta_log"
    log.mkdir()
    (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
    table = txlog.Table(tmp_path / "t")
    found = spark.read.format("txlog").load(table.uri)
    assert found.schema == frame.schema
    shown = {row.id: row.v for row in found.select("id", expr("to_json(v)").alias("v")).collect()}
    data = table.to_arrow()
    ours = dict(
        zip(data["id"].to_pylist(), txlog.variant_to_json(data["v"]).to_pylist(), strict=True)
    )
    assert shown == ours == {1: '{"a":[1,{"b":null}],"c":"x"}', 2: "7", 3: None}
