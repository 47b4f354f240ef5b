"""PySpark's warning that it does not fully support pandas 3: no call of txlog brings it."""

import ast
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog import spark_ext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOM = Path(txlog.__file__).parent / "spark_ext"
OF_PANDAS = "PySpark does not yet fully support pandas"


def lookup(spark: "SparkSession", path: str) -> Any:
    txlog.Table(path).indexes.create("id")
    return spark_ext.lookup(spark, path, [1, 2]).count()


def restored(spark: "SparkSession", path: str) -> Any:
    engine = spark_ext.SparkEngine(spark, local_items=0)
    return txlog.Table(path, engine=engine).restore(0)


DOORS: dict[str, Callable[["SparkSession", str], Any]] = {
    "write": lambda spark, path: spark_ext.write(spark.range(5), path, mode="append"),
    "format": lambda spark, path: spark.range(5).write.format("txlog").mode("append").save(path),
    "read": lambda spark, path: spark_ext.read(spark, path).count(),
    "read deleted": lambda spark, path: (
        txlog.Table(path).delete("id = 1"),
        spark_ext.read(spark, path).count(),
    ),
    "delete": lambda spark, path: spark_ext.DeltaTable.forPath(spark, path).delete("id = 1"),
    "update": lambda spark, path: spark_ext.DeltaTable.forPath(spark, path).update(
        "id = 1", {"id": "id + hash(id)"}
    ),
    "merge": lambda spark, path: (
        spark_ext.DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(spark.range(3, 9).alias("s"), "t.id = s.id")
        .whenMatchedDelete()
        .whenNotMatchedInsertAll()
        .execute()
    ),
    "sql": lambda spark, path: spark_ext.sql(spark, f"DELETE FROM delta.`{path}` WHERE id = 2"),
    "history": lambda spark, path: spark_ext.DeltaTable.forPath(spark, path).history().collect(),
    "lookup": lookup,
    "restore by an engine": restored,
}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("door", DOORS)
def test_no_door_warns(spark: "SparkSession", tmp_path: Path, door: str) -> None:
    path = str(tmp_path / "t")
    table = txlog.write(path, pa.table({"id": range(5)}))
    table.overwrite(pa.table({"id": range(7)}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", OF_PANDAS)
        DOORS[door](spark, path)


def test_functions_of_batches_go_through_one_that_does_not_warn() -> None:
    callers = []
    for file in sorted(ROOM.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        callers += [
            file.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("mapInArrow", "applyInArrow", "mapInPandas", "toPandas")
        ]
    assert callers == ["engine.py"]
