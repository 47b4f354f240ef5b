"""Every way to write makes its transaction by the same rules."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from txlog import spark_ext
from txlog.base.errors import InvalidInputError
from txlog.commit.app_versions import QueryBatch
from txlog.spark_ext import DeltaTable
from txlog.spark_ext.transactions import in_settings, of_batch, of_stream, transaction
from txlog.spark_ext.writes.write_tasks import (
    QUERY_ID,
    SESSION_APP_ID,
    SESSION_AUTO_RESET,
    SESSION_TXN,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Door = Callable[["SparkSession", str], Any]


def frame(spark: "SparkSession", *ids: int) -> Any:
    return spark.createDataFrame([(one, 1) for one in ids], "id long, n long")


def by_merge(spark: "SparkSession", uri: str) -> Any:
    merge = (
        DeltaTable.forPath(spark, uri).alias("t").merge(frame(spark, 1).alias("s"), "t.id = s.id")
    )
    return merge.whenMatchedUpdate(set={"n": "t.n + 1"}).execute()


def by_own_merge(spark: "SparkSession", uri: str) -> Any:
    merge = spark_ext.table(spark, uri).merge(frame(spark, 1), "target.id = source.id")
    return merge.when_matched_update({"n": "target.n + 1"}).execute()


def by_sql(statement: str) -> Door:
    return lambda spark, uri: spark_ext.sql(spark, statement.format(t=f"delta.`{uri}`"))


DOORS: dict[str, Door] = {
    "write": lambda spark, uri: spark_ext.write(frame(spark, 7), uri),
    "format": lambda spark, uri: (
        frame(spark, 7).write.format("txlog").mode("append").save(uri)
    ),
    "delete": lambda spark, uri: DeltaTable.forPath(spark, uri).delete("id = 1"),
    "delete by Spark": lambda spark, uri: DeltaTable.forPath(spark, uri).delete("abs(id) = 1"),
    "update": lambda spark, uri: DeltaTable.forPath(spark, uri).update("id = 1", {"n": "n + 1"}),
    "merge": by_merge,
    "own merge": by_own_merge,
    "UPDATE": by_sql("UPDATE {t} SET n = n + 1 WHERE id = 1"),
    "DELETE": by_sql("DELETE FROM {t} WHERE id = 1"),
    "INSERT": by_sql("INSERT INTO {t} SELECT 7L AS id, 1L AS n"),
    "MERGE": by_sql(
        "MERGE INTO {t} AS t USING (SELECT 1L AS id) AS s ON t.id = s.id WHEN MATCHED THEN DELETE"
    ),
}  # fmt: skip


@pytest.fixture
def in_batch(spark: "SparkSession") -> Iterator[Callable[[str | None], None]]:
    """Return a function after which this thread runs a batch of a query."""
    context = spark.sparkContext
    yield lambda query: context.setLocalProperty(QUERY_ID, query)
    context.setLocalProperty(QUERY_ID, None)
    for name in (SESSION_APP_ID, SESSION_TXN, SESSION_AUTO_RESET):
        spark.conf.unset(name)


@pytest.mark.slow(cases=4)
@pytest.mark.spec("STR-45", "STR-49")
@pytest.mark.parametrize("door", DOORS)
def test_settings_of_the_session_count_once_and_a_new_checkpoint_is_refused(
    spark: "SparkSession", tmp_path: Path, in_batch: Callable[[str | None], None], door: str
) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": [0, 1], "n": [0, 0]}))
    spark.conf.set(SESSION_APP_ID, "loader")
    spark.conf.set(SESSION_TXN, "0")
    in_batch("first")
    for _ in range(2):  # As if Spark ran the batch again.
        DOORS[door](spark, table.uri)
        found = table.refresh()
        assert (found.version, found.transaction_version("loader@first")) == (1, 0)
    in_batch("second")  # A new checkpoint folder, whose batches begin at 0.
    with pytest.raises(Exception, match=r"new\s+checkpoint"):
        DOORS[door](spark, table.uri)
    assert table.refresh().version == 1


@pytest.mark.slow
@pytest.mark.spec("STR-49")
def test_changes_in_foreach_batch_with_a_new_checkpoint_are_refused(
    spark: "SparkSession", tmp_path: Path
) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": [0, 1], "n": [0, 0]}))
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "in" / "1.parquet")

    def change(rows: Any, batch_id: int) -> None:
        session = rows.sparkSession
        session.conf.set(SESSION_APP_ID, "loader")
        session.conf.set(SESSION_TXN, str(batch_id))
        DeltaTable.forPath(session, table.uri).update("id = 1", {"n": "n + 1"})

    def run(checkpoint: str) -> None:
        stream = spark.readStream.schema("id LONG").parquet(str(tmp_path / "in"))
        writer = stream.writeStream.foreachBatch(change).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / checkpoint)).start().awaitTermination()

    run("one")
    assert table.refresh().version == 1
    with pytest.raises(Exception, match="new checkpoint"):
        run("two")
    assert table.refresh().version == 1


@pytest.mark.slow
@pytest.mark.spec("STR-45")
def test_a_version_is_reset_only_after_its_verb(
    spark: "SparkSession", tmp_path: Path, in_batch: Callable[[str | None], None]
) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": [0, 1], "n": [0, 0]}))
    delta = DeltaTable.forPath(spark, table.uri)
    spark.conf.set(SESSION_APP_ID, "loader")
    spark.conf.set(SESSION_TXN, "0")
    spark.conf.set(SESSION_AUTO_RESET, " True")
    with pytest.raises(InvalidInputError, match="not today"):
        delta.update("id = 1", {"n": "raise_error('not today')"})
    assert spark.conf.get(SESSION_TXN) == "0"
    delta.update("id = 1", {"n": "5"})
    assert spark.conf.get(SESSION_TXN, None) is None
    assert table.refresh().transaction_version("loader") == 0
    with pytest.raises(InvalidInputError, match="must both be set"):
        delta.update("id = 1", {"n": "6"})
    spark.conf.set(SESSION_TXN, "0")  # It is recorded, so this changes nothing, and is done.
    delta.update("id = 1", {"n": "7"})
    assert spark.conf.get(SESSION_TXN, None) is None
    assert {row["n"] for row in table.refresh().to_arrow().to_pylist()} == {0, 5}
    spark.conf.set(SESSION_TXN, "1")
    with pytest.raises(Exception, match="cannot reset a setting"):
        DOORS["format"](spark, table.uri)
    assert table.refresh().version == 1


def test_what_a_caller_passes_counts_before_the_settings(
    spark: "SparkSession", in_batch: Callable[[str | None], None]
) -> None:
    spark.conf.set(SESSION_APP_ID, "settings")
    spark.conf.set(SESSION_TXN, "3")
    spark.conf.set(SESSION_AUTO_RESET, "true")
    with transaction(("passed", 1), spark) as found:
        assert found == ("passed", 1)
    assert spark.conf.get(SESSION_TXN) == "3"
    other = spark.newSession()
    with transaction(None, other, spark) as found:
        assert found == ("settings", 3)
        spark.conf.set(SESSION_TXN, "4")  # By another thread, for its own verb.
    assert spark.conf.get(SESSION_TXN) == "4"


@pytest.mark.usefixtures("in_batch")
def test_a_setting_that_is_missing_is_named_at_each_door(
    spark: "SparkSession", tmp_path: Path
) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": [0, 1], "n": [0, 0]}))
    spark.conf.set(SESSION_APP_ID, "loader")
    for name in DOORS.keys() - {"format"}:  # It runs in another process.
        door = DOORS[name]
        with pytest.raises(InvalidInputError, match="must both be set") as caught:
            door(spark, table.uri)
        assert caught.value.argument == SESSION_TXN, name
    assert table.refresh().version == 0


@pytest.mark.spec("STR-41", "STR-49")
def test_rules_of_batches_and_streams() -> None:
    assert of_batch(None, "query") is None
    assert of_batch(("app", 1), None) == ("app", 1)
    assert of_batch(("query", 1), "query") == ("query", 1)
    assert of_batch(("app", 1), "query") == QueryBatch("app", 1, "query", whole_batch=False)
    assert of_stream(None, "query", 2) == of_stream("query", "query", 2) == ("query", 2)
    assert of_stream("app", "query", 2) == QueryBatch("app", 2, "query")
    with pytest.raises(InvalidInputError, match="id of the streaming query"):
        of_stream("app", None, 2)
    settings: dict[str, str | None] = {SESSION_APP_ID: "a", SESSION_TXN: "12"}
    assert in_settings(settings.get) == ("a", 12)
    assert in_settings({}.get) is None
    for name, value in ((SESSION_APP_ID, None), (SESSION_TXN, None), (SESSION_TXN, "-1")):
        with pytest.raises(InvalidInputError) as caught:
            in_settings((settings | {name: value}).get)
        assert caught.value.argument == name
