"""Names and paths that `DeltaTable` and Spark's writers take."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

import txlog
from txlog import spark_ext
from txlog.base.errors import AlreadyExistsError, NotFoundError, UnsupportedFeatureError
from txlog.spark_ext import DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark: "SparkSession", tmp_path: Path) -> DeltaTable:
    made = txlog.write(tmp_path / "t", pa.table({"id": [1, 2, 3]}))
    return DeltaTable.forPath(spark, made.uri)


@pytest.mark.slow
def test_a_clone_gets_a_name_or_a_path(
    spark: "SparkSession", table: DeltaTable, tmp_path: Path
) -> None:
    names = ["clone_a", "default.clone_b", "`spark_catalog`.`default`.`clone_c`"]
    try:
        for name in names:
            made = table.clone(name, isShallow=True)
            assert made.toDF().count() == table.toDF().count()
            assert DeltaTable.forName(spark, name).table.uri == made.table.uri
            with pytest.raises(AlreadyExistsError):
                table.clone(name)
        table.delete()
        table.clone("clone_a", replace=True)
        assert DeltaTable.forName(spark, "clone_a").toDF().count() == 0
        for path in (str(tmp_path / "e"), f"delta.`{tmp_path}/f`", f"{tmp_path}/a.b"):
            assert Path(table.clone(path).table.uri).parent == tmp_path
    finally:
        for name in names:
            folder = spark_ext.table_location(spark, name)
            spark.sql(f"DROP TABLE {name}")
            shutil.rmtree(folder)


def test_stores_and_catalogs_that_nobody_knows_are_named(
    spark: "SparkSession", table: DeltaTable
) -> None:
    uri = table.table.uri
    for known in (f"delta.`{uri}`", f"spark_catalog.delta.`{uri}`", f"SPARK_CATALOG.txlog.`{uri}`"):
        assert DeltaTable.forName(spark, known).table.uri == uri
        assert DeltaTable.isDeltaTable(spark, known)
    with pytest.raises(UnsupportedFeatureError, match="no file system for foo://"):
        DeltaTable.isDeltaTable(spark, "foo://bar/t")
    with pytest.raises(NotFoundError, match="Spark has no catalog other"):
        DeltaTable.forName(spark, "other.default.t")
    with pytest.raises(NotFoundError, match="no such schema"):
        DeltaTable.forName(spark, "nowhere.t")


@pytest.mark.slow
def test_writers_that_know_no_path_name_the_function(
    spark: "SparkSession", table: DeltaTable
) -> None:
    uri = table.table.uri
    spark.sql(f"CREATE TABLE named_writes USING txlog LOCATION '{uri}'")
    try:
        rows = table.toDF()
        for write in (
            lambda: rows.writeTo("named_writes").append(),
            lambda: rows.write.insertInto("named_writes"),
            lambda: rows.write.format("txlog").mode("append").saveAsTable("named_writes"),
        ):
            with pytest.raises(AnalysisException, match=r"insertInto, use txlog\.spark_ext\.write"):
                write()
        before = table.toDF().count()
        spark_ext.write(rows, spark_ext.table_location(spark, "named_writes"))
        assert table.toDF().count() == 2 * before
    finally:
        spark.sql("DROP TABLE named_writes")
