"""Spark's writes with a quarantine: tasks put rows that do not fit into it, exactly once."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog import spark_ext
from txlog.spark_ext.writes import target as module
from txlog.verbs.quarantine import Quarantine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int8())])
    made = txlog.Table.create(tmp_path / "t", schema)
    made.alter.add_constraint({"odd": "id IS NULL OR id % 7 <> 3"})
    return made


def frame(spark: "SparkSession") -> "DataFrame":
    """Return 100 rows in four tasks: nulls, values that are too large, and broken constraints."""
    return spark.range(0, 100, 1, 4).selectExpr(
        "IF(id % 10 = 0, CAST(NULL AS BIGINT), id) AS id",
        "IF(id % 10 = 1, id + 1000, id) AS n",
    )


def is_good(row: dict[str, Any]) -> bool:
    return row["id"] is not None and row["n"] < 128 and row["id"] % 7 != 3


def rows_of(spark: "SparkSession") -> list[dict[str, Any]]:
    return [row.asDict() for row in frame(spark).collect()]


@pytest.mark.spec("CON-32")
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_good_and_quarantined_rows_are_all_rows(
    spark: "SparkSession", table: txlog.Table, tmp_path: Path, mode: Any
) -> None:
    outcome = spark_ext.write(
        frame(spark), table.uri, mode=mode, on_error="quarantine", quarantine=tmp_path / "q"
    )
    rows = rows_of(spark)
    good, bad = [row for row in rows if is_good(row)], [row for row in rows if not is_good(row)]
    assert outcome.metrics["numQuarantinedRows"] == len(bad)
    assert table.refresh().to_arrow().sort_by("id").to_pylist() == good
    kept = txlog.Table(tmp_path / "q").to_arrow()
    found = [json.loads(row) for row in kept["row"].to_pylist()]
    assert sorted(found, key=repr) == sorted(bad, key=repr)
    assert set(kept["rule"].to_pylist()) == {"NOT NULL", "TYPE", "CHECK"}
    assert len(set(kept["batch"].to_pylist())) == 1
    assert set(kept["table"].to_pylist()) == {table.uri}
    assert table.history(1)[0]["operationMetrics"]["numQuarantinedRows"] == str(len(bad))


@pytest.mark.spec("CON-33")
def test_a_run_that_stopped_between_the_commits_is_repeated_exactly_once(
    spark: "SparkSession", table: txlog.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {
        "on_error": "quarantine", "quarantine": tmp_path / "q", "txn": ("job", 1),
    }  # fmt: skip
    bad = sum(not is_good(row) for row in rows_of(spark))

    class Stopped(BaseException):
        pass

    def stopped(operation: Any, *arguments: Any, **more: Any) -> Any:
        context = arguments[0]
        operation.context = context
        list(map(_execute, operation.companions(given["txn"])))
        raise Stopped

    def _execute(one: Any) -> Any:
        return real(one.operation, one.context, one.snapshot, txn=one.txn)

    real = module.execute
    with monkeypatch.context() as patch:
        patch.setattr(module, "execute", stopped)
        with pytest.raises(Stopped):
            spark_ext.write(frame(spark), table.uri, **given)
    assert txlog.Table(tmp_path / "q").count() == bad
    assert table.refresh().count() == 0
    for _ in range(2):
        spark_ext.write(frame(spark), table.uri, **given)
    assert table.refresh().count() == 100 - bad
    assert txlog.Table(tmp_path / "q").count() == bad


def test_a_new_table_and_a_table_as_quarantine(spark: "SparkSession", tmp_path: Path) -> None:
    first = frame(spark).where("id IS NOT NULL")
    kept = txlog.write(tmp_path / "q", pa.table({"z": [1]}))
    given: dict[str, Any] = {"on_error": "quarantine", "quarantine": kept}
    with pytest.raises(txlog.SchemaMismatchError) as caught:
        spark_ext.write(first, tmp_path / "new", **given)
    assert caught.value.argument == "quarantine"
    assert not txlog.Table.exists(tmp_path / "new")
    given["quarantine"] = tmp_path / "q2"
    outcome = spark_ext.write(first, tmp_path / "new", **given)
    assert outcome.metrics["numQuarantinedRows"] == 0
    assert txlog.Table(tmp_path / "new").count() == 90
    with pytest.raises(txlog.InvalidInputError, match="its own quarantine"):
        spark_ext.write(first, tmp_path / "new", on_error="quarantine", quarantine=tmp_path / "new")
    with pytest.raises(txlog.InvalidInputError):
        spark_ext.write(first, tmp_path / "new", on_error="quarantine")


def kept_rows(uri: Any) -> list[dict[str, Any]]:
    return [json.loads(row) for row in txlog.Table(uri).to_arrow()["row"].to_pylist()]


@pytest.mark.slow
@pytest.mark.spec("CON-32")
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_the_format_has_the_same_answer_as_the_function_and_the_core(
    spark: "SparkSession", table: txlog.Table, tmp_path: Path, mode: str
) -> None:
    rows = rows_of(spark)
    writer = frame(spark).write.format("txlog").mode(mode)
    writer.option("onError", "quarantine").option("quarantine", str(tmp_path / "q")).save(table.uri)
    good = [row for row in rows if is_good(row)]
    assert table.refresh().to_arrow().sort_by("id").to_pylist() == good
    kept = txlog.Table(tmp_path / "q").to_arrow()
    core = txlog.Table.create(tmp_path / "core", table.schema)
    core.alter.add_constraint({"odd": "id IS NULL OR id % 7 <> 3"})
    core.append(
        pa.Table.from_pylist(rows), on_error="quarantine", quarantine=tmp_path / "q of core"
    )
    names = ["rule", "name", "row"]
    same = txlog.Table(tmp_path / "q of core").to_arrow()
    assert sorted(map(str, kept.select(names).to_pylist())) == sorted(
        map(str, same.select(names).to_pylist())
    )
    assert len(set(kept["batch"].to_pylist())) == 1
    metrics = table.history(1)[0]["operationMetrics"]
    assert metrics["numQuarantinedRows"] == str(len(kept))


@pytest.mark.slow
@pytest.mark.spec("CON-33")
@pytest.mark.parametrize("by", ["options", "settings"])
def test_a_repeated_write_by_the_format_keeps_each_row_once(
    spark: "SparkSession", table: txlog.Table, tmp_path: Path, by: str
) -> None:
    bad = sum(not is_good(row) for row in rows_of(spark))
    table.alter.set_properties({"delta.setTransactionRetentionDuration": "interval 7 days"})
    writer = frame(spark).write.format("txlog").mode("append")
    writer = writer.option("onError", "quarantine").option("quarantine", str(tmp_path / "q"))
    settings = {"txnAppId": "job", "txnVersion": "1"}
    if by == "options":
        writer = writer.options(**settings)
    else:
        for name, value in settings.items():
            spark.conf.set(f"spark.databricks.delta.write.{name}", value)
    try:
        writer.save(table.uri)
        # As if the process had ended between the two commits.
        stop_before(table)
        for _ in range(2):
            writer.save(table.uri)
    finally:
        for name in settings:
            spark.conf.unset(f"spark.databricks.delta.write.{name}")
    assert table.refresh().count() == 100 - bad
    assert txlog.Table(tmp_path / "q").count() == bad


def stop_before(table: txlog.Table) -> None:
    """Take the last commit of a table away, as if a process had ended before it."""
    log = Path(table.uri) / "_delta_log"
    last = table.refresh().version
    for path in log.glob(f"{last:020}*"):
        path.unlink()
    (log / "_last_checkpoint").unlink(missing_ok=True)


@pytest.mark.slow(cases=1)
@pytest.mark.spec("CON-33")
@pytest.mark.parametrize("app_id", [None, "job"])
def test_a_stream_keeps_each_row_once(
    spark: "SparkSession", table: txlog.Table, tmp_path: Path, app_id: str | None
) -> None:
    def run(app_id: str | None = app_id) -> None:
        source = spark.readStream.schema("id long, n long").parquet(str(tmp_path / "source"))
        writer = source.writeStream.format("txlog").trigger(availableNow=True)
        writer = writer.option("onError", "quarantine").option("quarantine", str(tmp_path / "q"))
        writer = writer if app_id is None else writer.option("txnAppId", app_id)
        query = writer.option("checkpointLocation", str(tmp_path / "c")).start(table.uri)
        query.awaitTermination()

    rows = rows_of(spark)
    bad = [row for row in rows if not is_good(row)]
    frame(spark).write.parquet(str(tmp_path / "source"))
    run()
    assert table.refresh().count() == 100 - len(bad)
    assert sorted(map(str, kept_rows(tmp_path / "q"))) == sorted(map(str, bad))
    frame(spark).write.mode("append").parquet(str(tmp_path / "source"))
    run()
    assert len(kept_rows(tmp_path / "q")) == 2 * len(bad)
    # The process ended after the commit of the quarantine: Spark runs the last batch again. The
    # name of the application may change between two runs of a query.
    stop_before(table)
    commits = tmp_path / "c" / "commits"
    for path in sorted(commits.iterdir()):
        if path.name.strip(".").startswith("1"):
            path.unlink()
    run(None if app_id else "other")
    assert table.refresh().count() == 2 * (100 - len(bad))
    assert len(kept_rows(tmp_path / "q")) == 2 * len(bad)
    batches = txlog.Table(tmp_path / "q").to_arrow()["batch"].to_pylist()
    assert {batches.count(one) for one in batches} == {len(bad)}


def test_the_format_refuses_what_the_function_refuses(
    spark: "SparkSession", table: txlog.Table, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    writer = frame(spark).write.format("txlog").mode("append")
    for options, text in (
        ({"onError": "quarantine"}, "quarantine"),
        ({"quarantine": str(tmp_path / "q")}, "onError=quarantine"),
        ({"onError": "skip", "quarantine": str(tmp_path / "q")}, "onError"),
        ({"onError": "quarantine", "quarantine": table.uri}, "its own quarantine"),
    ):
        with pytest.raises(PySparkException, match=text):
            writer.options(**options).save(table.uri)
        writer = frame(spark).write.format("txlog").mode("append")
    assert table.refresh().count() == 0
    assert not (tmp_path / "q").exists()


def test_a_merge_of_rows_of_arrow_has_a_quarantine(
    spark: "SparkSession", table: txlog.Table, tmp_path: Path
) -> None:
    """They are merged by this process; test_merge_quarantine.py merges frames."""
    given: Any = {"on_error": "quarantine", "quarantine": tmp_path / "q"}
    opened = spark_ext.table(spark, table.uri)
    rows = frame(spark).toArrow()
    merge = opened.merge(rows, "target.id = source.id", **given)
    outcome = merge.when_not_matched_insert_all().execute()
    bad = sum(not is_good(row) for row in rows_of(spark))
    assert outcome.metrics["numQuarantinedRows"] == bad == txlog.Table(tmp_path / "q").count()


@pytest.mark.slow
@pytest.mark.spec("CON-32")
@pytest.mark.parametrize("txn", [None, ("job", 1)])
def test_a_write_that_finds_the_table_made_leaves_no_row_in_the_quarantine(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, txn: Any
) -> None:
    made = module._made

    def too_late(*given: Any) -> Any:
        txlog.Table.create(tmp_path / "new", pa.schema([("id", pa.int64()), ("n", pa.int64())]))
        return made(*given)

    monkeypatch.setattr(module, "_made", too_late)
    outcome = spark_ext.write(
        frame(spark).selectExpr("id", "id AS n"), tmp_path / "new", mode="ignore", txn=txn,
        properties={"delta.constraints.few": "n < 50"}, on_error="quarantine",
        quarantine=tmp_path / "q",
    )  # fmt: skip
    assert outcome.version is None
    assert txlog.Table(tmp_path / "new").count() == 0
    quarantine = txlog.Table(tmp_path / "q")
    assert quarantine.version > 1  # They were there.
    assert quarantine.count() == 0


@pytest.mark.spec("CON-33")
def test_a_table_made_by_hand_after_a_broken_run_has_no_row_twice(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(BaseException):
        pass

    def broken(self: Quarantine) -> None:
        kept(self)
        raise Broken

    def write(**more: Any) -> None:
        spark_ext.write(
            frame(spark).selectExpr("id", "id AS n"), tmp_path / "new", mode="append",
            txn=("job", 1), on_error="quarantine", quarantine=tmp_path / "q", **more,
        )  # fmt: skip

    kept = Quarantine.kept
    with monkeypatch.context() as patch:
        patch.setattr(Quarantine, "kept", broken)
        with pytest.raises(Broken):
            write(properties={"delta.constraints.few": "n < 50"})
    count = txlog.Table(tmp_path / "q").count()
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
    txlog.Table.create(tmp_path / "new", schema)
    write()
    assert count > 10
    assert txlog.Table(tmp_path / "new").count() == 90
    assert txlog.Table(tmp_path / "q").count() == 10
