"""Updates, deletes and merges on Spark beside another engine that appends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

import txlog
from tests.losing import losing
from txlog.spark_ext import DeltaTable, sql
from txlog.spark_ext.reads.read_frame import read_version
from txlog.spark_ext.writes import conditions, row_changes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Verb = Callable[[DeltaTable, "SparkSession"], Any]


def rows(*xs: int, y: int = 0) -> pa.Table:
    return pa.table({"x": pa.array(xs, pa.int64()), "y": pa.array([y] * len(xs), pa.int64())})


def source(spark: SparkSession, *xs: int) -> Any:
    return spark.createDataFrame([(x, 9) for x in xs], "x bigint, y bigint").alias("s")


def merging(table: DeltaTable, spark: SparkSession, *xs: int) -> Any:
    # Arithmetic, so that it is Spark that joins, however small the source is.
    return table.alias("t").merge(source(spark, *xs), "t.x + 0 = s.x")


VERBS: dict[str, Verb] = {
    "update": lambda table, _: table.update("x < 50", {"y": "y + 1"}),
    "update by a function": lambda table, _: table.update("pow(x, 2) < 50", {"y": "y + x"}),
    "update by a subquery": lambda table, _: table.update(
        None, {"y": "y + (SELECT max(id) FROM range(5))"}
    ),
    "delete by a function": lambda table, _: table.delete("x % 2 = 0"),
    "update of matches": lambda table, spark: (
        merging(table, spark, 2, 7, 60).whenMatchedUpdateAll().execute()
    ),
    "delete of matches": lambda table, spark: (
        merging(table, spark, 2, 7, 60).whenMatchedDelete().execute()
    ),
    "insert": lambda table, spark: (
        merging(table, spark, 2, 60, 70).whenNotMatchedInsertAll().execute()
    ),
    "upsert": lambda table, spark: (
        merging(table, spark, 2, 60).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    ),
    "all kinds": lambda table, spark: (
        merging(table, spark, 2, 60)
        .whenMatchedUpdate(set={"y": "s.y"})
        .whenNotMatchedInsertAll()
        .whenNotMatchedBySourceUpdate(set={"y": "t.y + 100"})
        .execute()
    ),
}
# What winners add, and the verbs that must decide about the whole table again after them.
ADDED = {"of no concern": rows(8, 91, y=1), "matching": rows(2, 7, 60, y=3)}
AGAIN = {("insert", "matching"), ("upsert", "matching"), ("all kinds", "matching")}
PROPERTIES: dict[str, dict[str, str]] = {
    "plain": {"delta.enableDeletionVectors": "false"},
    "tracked": {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true"},
    "recorded": {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"},
}


def content(path: Path) -> list[tuple[int, int]]:
    found = txlog.Table(path).to_arrow(["x", "y"]).to_pydict()
    return sorted(zip(found["x"], found["y"], strict=True))


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[set[str] | None]:
    """The files that each attempt reads of the table. None: all."""
    found: list[set[str] | None] = []

    def noted(*arguments: Any, **named: Any) -> Any:
        only = named["only"]
        found.append(None if only is None else set(only.to_pylist()))
        return read_version(*arguments, **named)

    for module in (row_changes, conditions):
        monkeypatch.setattr(module, "read_version", noted)
    return found


@pytest.mark.slow(cases=2)
@pytest.mark.spec("CON-29", "SPK-27")
@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("properties", PROPERTIES)
def test_rows_are_those_of_the_sequential_order(
    spark: SparkSession,
    tmp_path: Path,
    looked: list[set[str] | None],
    verb: str,
    added: str,
    properties: str,
) -> None:
    path = tmp_path / "t"
    txlog.write(path, rows(1, 2, 3), properties=PROPERTIES[properties]).append(rows(4, 5))
    before = txlog.Table(path).scan().file_uris()

    def wins(table: txlog.Table) -> None:
        if properties == "plain":  # deltalake does not write the others.
            deltalake.write_deltalake(path, ADDED[added], mode="append")
        else:
            table.append(ADDED[added])

    with losing(path, [wins] * 3):
        VERBS[verb](DeltaTable.forPath(spark, str(path)), spark)
    committed = txlog.Table(path)
    whole = [at for at, only in enumerate(looked) if only is None]
    if (verb, added) in AGAIN:
        assert len(whole) > 1
    else:
        assert whole == [0]
        names = [name for only in looked[1:] for name in only or ()]
        assert names
        assert not any(uri.endswith(name) for name in names for uri in before)
    previous = txlog.Table(path, version=committed.version - 1)
    alone = tmp_path / "alone"
    txlog.write(alone, previous.to_arrow(["x", "y"]))
    VERBS[verb](DeltaTable.forPath(spark, str(alone)), spark)
    assert content(path) == content(alone)
    if properties == "tracked":
        ids = committed.to_arrow(["_rowid"])["_rowid"]
        assert len(ids.unique()) == len(ids)
    said = committed.history(1)[0]["operationMetrics"]
    single = txlog.Table(alone).history(1)[0]["operationMetrics"]
    for name in ("numUpdatedRows", "numTargetRowsUpdated", "numTargetRowsInserted"):
        assert said.get(name) == single.get(name)


UNSETTLED: dict[str, Verb] = {
    "random numbers": lambda table, _: table.update("x < 50", {"y": "y + cast(rand() AS bigint)"}),
    "the clock": lambda table, _: table.update("x < 50", {"y": "year(current_date()) - 2000"}),
    "a source that is asked again": lambda table, _: table.update(
        "x IN (SELECT x FROM asked_again)", {"y": "y + 1"}
    ),
    "a delete by it": lambda table, _: table.delete("x IN (SELECT x FROM asked_again)"),
}


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("verb", UNSETTLED)
def test_what_changes_between_attempts_is_decided_again(
    spark: SparkSession, tmp_path: Path, looked: list[set[str] | None], verb: str
) -> None:
    path, other = tmp_path / "t", tmp_path / "other"
    txlog.write(path, rows(1, 2, 3))
    txlog.write(other, rows(1))
    spark.read.format("txlog").load(str(other)).createOrReplaceTempView("asked_again")

    def wins(table: txlog.Table) -> None:
        table.append(rows(2, 8))
        txlog.Table(other).append(rows(2))

    with losing(path, [wins]):
        UNSETTLED[verb](DeltaTable.forPath(spark, str(path)), spark)
    assert looked == [None, None]


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("verb", ["update", "delete", "merge"])
def test_beside_real_writers_each_row_is_changed_once(
    spark: SparkSession, tmp_path: Path, verb: str
) -> None:
    """Writers of another engine append while Spark computes, until they have no more rows."""
    path = tmp_path / "t"
    txlog.write(path, rows(0, 1, 2), properties=PROPERTIES["plain"])
    table = DeltaTable.forPath(spark, str(path))
    keys = source(spark, 1, *range(1000, 1003), 5000)

    def write(number: int) -> None:
        for _ in range(12):
            deltalake.write_deltalake(path, rows(1000 + number), mode="append")

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for one in writers:
        one.start()
    if verb == "update":
        table.update("pow(x, 1) < 2000", {"y": "y + 1"})
    elif verb == "delete":
        table.delete("pow(x, 1) < 2000")
    else:
        merger = table.alias("t").merge(keys, "t.x + 0 = s.x")
        merger.whenMatchedUpdate(set={"y": "t.y + 1"}).whenNotMatchedInsertAll().execute()
    for one in writers:
        one.join()
    name = verb.upper()
    (version,) = (one["version"] for one in txlog.Table(path).history() if one["operation"] == name)
    then, before = (txlog.Table(path, version=at).to_arrow() for at in (version, version - 1))
    found = sorted(zip(then["x"].to_pylist(), then["y"].to_pylist(), strict=True))
    old = before["x"].to_pylist()
    if verb == "update":
        assert found == sorted((x, 1) for x in old)
    elif verb == "delete":
        assert found == []
    else:
        known = {1, *range(1000, 1003), 5000}
        new = [(x, 9) for x in known - set(old)]
        assert found == sorted([*((x, int(x in known)) for x in old), *new])


def merged_with_itself(table: DeltaTable, spark: SparkSession) -> None:
    path = table.detail().first()["location"]  # type: ignore[index]
    sums = spark.read.format("txlog").load(path).selectExpr("1L AS x", "y").groupBy("x")
    merger = table.alias("t").merge(sums.sum("y").toDF("x", "y").alias("s"), "t.x + 0 = s.x")
    merger.whenMatchedUpdateAll().execute()


def by_sql(statement: str) -> Callable[[DeltaTable, SparkSession], None]:
    def run(table: DeltaTable, spark: SparkSession) -> None:
        path = table.detail().first()["location"]  # type: ignore[index]
        sql(spark, statement.replace("TABLE", f"delta.`{path}`"))

    return run


ON_ITSELF = {
    "merge": merged_with_itself,
    "merge by SQL": by_sql(
        "MERGE INTO TABLE t USING (SELECT 1L AS x, sum(y) AS y FROM TABLE) s ON t.x + 0 = s.x "
        "WHEN MATCHED THEN UPDATE SET *"
    ),
    "update by SQL": by_sql("UPDATE TABLE SET y = 7 WHERE x = (SELECT max(x) FROM TABLE)"),
    "delete by SQL": by_sql("DELETE FROM TABLE WHERE x = (SELECT max(x) FROM TABLE)"),
}


@pytest.mark.slow(cases=2)
@pytest.mark.spec("SPK-27")
@pytest.mark.parametrize("winner", ["append", "update"])
@pytest.mark.parametrize("verb", ON_ITSELF)
def test_a_change_that_is_computed_from_rows_of_its_table_is_computed_again_if_these_change(
    spark: SparkSession, tmp_path: Path, verb: str, winner: str
) -> None:
    path, other = tmp_path / "t", tmp_path / "other"
    for one in (path, other):
        txlog.write(one, rows(1, 2, 3))

    def wins(table: txlog.Table) -> None:
        if winner == "append":
            table.append(rows(50))
        else:
            table.update({"y": "1000"}, where="x = 3")

    with losing(path, [wins]):
        ON_ITSELF[verb](DeltaTable.forPath(spark, str(path)), spark)
    wins(txlog.Table(other))
    ON_ITSELF[verb](DeltaTable.forPath(spark, str(other)), spark)
    assert content(path) == content(other)
    assert txlog.Table(path).version == 2
