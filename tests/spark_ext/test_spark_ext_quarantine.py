"""Spark's writes with a quarantine: tasks put rows that do not fit into it, exactly once."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog import spark_ext
from txlog.spark_ext.writes import target as module

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
    with pytest.raises(txlog.SchemaMismatchError):
        spark_ext.write(first, tmp_path / "new", **given)
    assert not txlog.Table.exists(tmp_path / "new")
    given["quarantine"] = tmp_path / "q2"
    outcome = spark_ext.write(first, tmp_path / "new", **given)
    assert outcome.metrics["numQuarantinedRows"] == 0
    assert txlog.Table(tmp_path / "new").count() == 90
    with pytest.raises(txlog.InvalidInputError, match="its own quarantine"):
        spark_ext.write(first, tmp_path / "new", on_error="quarantine", quarantine=tmp_path / "new")
    with pytest.raises(txlog.InvalidInputError):
        spark_ext.write(first, tmp_path / "new", on_error="quarantine")
