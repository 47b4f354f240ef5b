"""`DeltaTable` over Spark Connect, in a separate process because its classes differ."""

from pathlib import Path

import pytest
from own_driver import run_driver

SCRIPT = """
import sys
import pyarrow as pa
from pyspark.sql import SparkSession, functions as fn

import txlog
from txlog.spark_ext import DeltaTable, create_view, table_location

spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.driver.memory", "1g")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.warehouse.dir", sys.argv[1] + "/warehouse")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
assert "connect" in type(spark).__module__
path = sys.argv[1] + "/t"
table = (
    DeltaTable.create(spark).tableName("named").location(path)
    .addColumn("id", "bigint").addColumn("s", "string").execute()
)
table.table.append(pa.table({"id": range(100), "s": [f"t{n % 10}" for n in range(100)]}))


def ids():
    return sorted(txlog.Table(path).to_arrow()["id"].to_pylist())


table.delete(fn.col("id") < 10)
assert ids() == list(range(10, 100))
table.delete(fn.udf(lambda n: n % 2 == 1, "boolean")("id"))
table.alias("t").delete("upper(t.s) = 'T2'")
table.delete("id > 90")
left = [n for n in range(10, 91, 2) if n % 10 != 2]
assert ids() == left, ids()
assert sorted(row.id for row in table.toDF().select("id").collect()) == left
assert [row.version for row in table.history(2).collect()] == [5, 4]
assert table.detail().collect()[0].numFiles == 1
assert table.optimize().executeCompaction().collect()[0].metrics.numFilesAdded == 1
assert table.restoreToVersion(1).collect()[0].num_restored_files == 1
assert ids() == list(range(100))
assert table_location(spark, "named") == path
assert DeltaTable.forName(spark, "named").table.uri == path
create_view(spark, "v", path, version=2)
assert spark.sql("SELECT count(*) AS n FROM v").collect()[0].n == 90
try:
    table.restoreToTimestamp("soon")
except txlog.InvalidInputError:
    print("all of it works")
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.exhaustive
def test_the_same_script_over_connect(tmp_path: Path) -> None:
    pytest.importorskip("grpc_status")
    pytest.importorskip("zstandard")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = run_driver(script, tmp_path)
    assert "all of it works" in done.stdout, done.stderr[-3000:]
