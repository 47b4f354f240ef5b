"""Columns of `toDF()` in conditions and values of the same `DeltaTable`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it

import txlog
from txlog.spark_ext import DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> DeltaTable:
    rows = [{"id": n, "x": 10 * n, "st": {"a": n}} for n in range(1, 5)]
    return DeltaTable.forPath(spark, txlog.write(tmp_path / "t", pa.Table.from_pylist(rows)).uri)


def values(table: DeltaTable) -> dict[int, tuple[int, int]]:
    rows = txlog.Table(table.table.uri).to_arrow().to_pylist()
    return {row["id"]: (row["x"], row["st"]["a"]) for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("alias", [None, "t"])
def test_a_merge_uses_columns_of_earlier_frames(
    spark: SparkSession, table: DeltaTable, alias: str | None
) -> None:
    first = table.toDF()
    table = table if alias is None else table.alias(alias)
    table.update(set={"x": "x + 1"})  # The frames are older than the rows.
    second = table.toDF()
    source = spark.sql("SELECT id, 100 * id AS x FROM VALUES (2L), (3L), (9L) AS v(id)")
    (
        table.merge(source, first.id == source.id)
        .whenMatchedUpdate(first.st.a > 2, {"x": second.x + source.x, "st.a": first["st.a"] * 2})
        .whenMatchedDelete()
        .whenNotMatchedInsert(values={"id": source.id, "x": source.x, "st": "struct(0L AS a)"})
        .whenNotMatchedBySourceUpdate(second["id"] == 4, {"x": -first.x})
        .execute()
    )
    assert values(table) == {1: (11, 1), 3: (331, 6), 4: (-41, 4), 9: (900, 0)}


def test_updates_and_deletes_do_too(table: DeltaTable) -> None:
    frame = table.toDF()
    table.update(frame.id == 2, {"x": frame.x + frame.st.a})
    table.delete((frame.id > 2) & (table.toDF().x < 40))
    assert values(table) == {1: (10, 1), 2: (22, 2), 4: (40, 4)}


@pytest.mark.slow
def test_a_source_made_of_the_frame_keeps_its_own_values(table: DeltaTable) -> None:
    own = table.toDF().where("id < 3")
    merger = table.alias("t").merge(own.alias("s"), "t.id = s.id")
    merger.whenMatchedUpdate(set={"x": "s.x + 2 * t.x + 1"}).execute()
    assert {n: x for n, (x, _) in values(table).items()} == {1: 31, 2: 61, 3: 30, 4: 40}
    own, later = table.toDF().where("id < 3"), table.toDF()
    merger = table.merge(own, later.id == own.id)
    merger.whenMatchedUpdate(set={"x": own.x - later.x}).execute()
    assert {n: x for n, (x, _) in values(table).items()} == {1: 0, 2: 0, 3: 30, 4: 40}
    table.merge(own, later.id == own.id).whenMatchedUpdateAll().execute()  # It has these rows now.
    assert {n: x for n, (x, _) in values(table).items()} == {1: 0, 2: 0, 3: 30, 4: 40}
    own = table.toDF().where("id > 2").withColumn("x", F.lit(7))
    table.merge(own, later.id == own.id).whenMatchedUpdateAll().execute()
    assert {n: x for n, (x, _) in values(table).items()} == {1: 0, 2: 0, 3: 7, 4: 7}


@pytest.mark.slow
@pytest.mark.parametrize("alias", [None, "t"])
def test_names_mean_the_columns_of_now(
    spark: SparkSession, table: DeltaTable, alias: str | None
) -> None:
    """A Column by name is of no frame, also after the table gave some away."""
    frame = table.toDF()
    table = table if alias is None else table.alias(alias)
    table.delete(F.col("id") == F.lit(1))
    table.update(F.expr("id = 2 OR st.a = 3"), {"x": F.col("x") + frame.id, "st.a": F.lit(0)})
    source = spark.sql("SELECT 4L AS k, 7L AS v UNION ALL SELECT 9L, 8L")
    (
        table.merge(source, (F.col("id") == F.col("k")) & F.expr("id > 3"))
        .whenMatchedUpdate(F.col("v") == 7, {"x": F.col("v") + F.col("x")})
        .whenNotMatchedInsert(values={"id": F.col("k"), "x": "v"})
        .whenNotMatchedBySourceUpdate(frame.id == 2, {"x": -F.col("x")})
        .execute()
    )
    rows = txlog.Table(table.table.uri).to_arrow(["id", "x"]).to_pylist()
    assert {row["id"]: row["x"] for row in rows} == {2: -22, 3: 33, 4: 47, 9: 8}
