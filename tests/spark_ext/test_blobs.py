"""Blob columns on Spark: frames of bytes, structs that are written back, and bytes on executors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from txlog import spark_ext
from txlog.spark_ext.reads import blobs

pytestmark = pytest.mark.spark
Rows = dict[int, bytes | None]


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    schema = pa.schema([pa.field("id", pa.int64()), txlog.blob("b", above=10)])
    made = txlog.Table.create(tmp_path / "t", schema)
    made.append(pa.table({"id": [1, 2], "b": [b"x" * 30, b"small"]}))
    return made


def values_of(table: txlog.Table) -> Rows:
    table.refresh()
    rows = table.to_arrow()
    read = [blob and blob.read() for blob in table.blobs(rows["b"])]
    return dict(zip(rows["id"].to_pylist(), read, strict=True))


FIRST: Rows = {1: b"x" * 30, 2: b"small"}
MORE: Rows = {2: b"y" * 40, 3: None, 4: b"z"}


def more(spark: Any) -> Any:
    rows = [(key, value if value is None else bytearray(value)) for key, value in MORE.items()]
    frame = spark.createDataFrame(rows, "id long, b binary")
    frame.createOrReplaceTempView("more_blobs")
    return frame


def _merged(spark: Any, uri: str) -> None:
    merge = spark_ext.table(spark, uri).merge(more(spark), "target.id = source.id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _merged_in_sql(spark: Any, uri: str) -> None:
    more(spark)
    spark_ext.sql(
        spark,
        f"MERGE INTO delta.`{uri}` t USING more_blobs s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    )


def _written_back(spark: Any, uri: str) -> None:
    frame = spark_ext.read(spark, uri)
    spark_ext.write(frame.withColumn("id", frame.id + 10), uri)


DOORS: dict[str, tuple[Callable[[Any, str], object], Rows]] = {
    "write": (
        lambda spark, uri: spark_ext.write(more(spark).where("id > 2"), uri),
        {**FIRST, 3: None, 4: b"z"},
    ),
    "save": (
        lambda spark, uri: (
            more(spark).where("id > 2").write.format("txlog").mode("append").save(uri)
        ),
        {**FIRST, 3: None, 4: b"z"},
    ),
    "insert": (
        lambda spark, uri: spark_ext.sql(
            spark, f"INSERT INTO delta.`{uri}` VALUES (5, X'0102'), (6, NULL)"
        ),
        {**FIRST, 5: b"\1\2", 6: None},
    ),
    "update": (
        lambda spark, uri: spark_ext.sql(
            spark, f"UPDATE delta.`{uri}` SET b = X'{'07' * 12}' WHERE id = 2"
        ),
        {**FIRST, 2: b"\7" * 12},
    ),
    "update others": (
        lambda spark, uri: spark_ext.sql(spark, f"UPDATE delta.`{uri}` SET id = id + 7"),
        {8: b"x" * 30, 9: b"small"},
    ),
    "merge": (_merged, {**FIRST, **MORE}),
    "merge in SQL": (_merged_in_sql, {**FIRST, **MORE}),
    "write back": (_written_back, {**FIRST, 11: b"x" * 30, 12: b"small"}),
}


@pytest.mark.slow(cases=3)
@pytest.mark.parametrize("door", DOORS)
def test_each_door_keeps_the_bytes(door: str, spark: Any, table: txlog.Table) -> None:
    run, expected = DOORS[door]
    run(spark, table.uri)
    assert values_of(table) == expected
    table.vacuum(0, False, False)
    assert values_of(table) == expected
    rows = spark_ext.read_blobs(spark_ext.read(spark, table.uri), "b", table.uri).collect()
    assert {row.id: row.b and bytes(row.b) for row in rows} == expected


@pytest.mark.slow
def test_executors_read_only_what_is_left(spark: Any, table: txlog.Table, tmp_path: Path) -> None:
    table.append(pa.table({"id": [9], "b": [b"lost" * 9]}))
    (pack,) = {*(tmp_path / "t" / "_blobs").iterdir()} - {
        tmp_path / "t" / table.to_arrow(where="id = 1")["b"][0].as_py()["path"]
    }
    pack.unlink()
    frame = spark_ext.read(spark, table.uri)
    rows = spark_ext.read_blobs(frame.where("id < 9"), "b", table.uri, into="read").collect()
    assert {row.id: bytes(row.read) for row in rows} == FIRST
    assert {row.b.size for row in rows} == {30, 5}
    with pytest.raises(Exception, match="_blobs"):
        spark_ext.read_blobs(frame, "b", table.uri).collect()


@pytest.mark.slow
def test_a_clone_and_odd_names(spark: Any, table: txlog.Table, tmp_path: Path) -> None:
    clone = table.clone(tmp_path / "c", shallow=True)
    frame = spark_ext.read(spark, clone.uri).withColumnRenamed("b", "a.b")
    rows = spark_ext.read_blobs(frame, "a.b", clone.uri).collect()
    assert {row["id"]: bytes(row["a.b"]) for row in rows} == FIRST


@pytest.mark.parametrize(("column", "more_"), [("id", {}), ("nothing", {}), ("b", {"into": "ID"})])
def test_wrong_columns_are_refused(
    column: str, more_: dict[str, Any], spark: Any, table: txlog.Table
) -> None:
    with pytest.raises(txlog.InvalidInputError):
        spark_ext.read_blobs(spark_ext.read(spark, table.uri), column, table.uri, **more_)


def test_batches_are_cut_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "_BYTES_AT_ONCE", 10)
    sizes = [3, 7, 1, None, 30, 0, 10]
    structs = [None if size is None else {"size": size} for size in sizes]
    batch = pa.record_batch({"b": pa.array(structs, pa.struct([("size", pa.int64())]))})
    parts = [part.column(0).to_pylist() for part in blobs._in_parts(batch, 0)]
    assert [one for part in parts for one in part] == structs
    assert [len(part) for part in parts] == [2, 2, 1, 2]
