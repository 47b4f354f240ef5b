"""Statements that name tables of other catalogs of the session: of JDBC, over Derby in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import UnsupportedFeatureError
from txlog.spark_ext import DeltaTable, sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Run = Callable[[str], list[tuple[Any, ...]]]

_CLASS = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"


@pytest.fixture
def run(tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[Run]:
    """Run a statement in which `{t}` is a table of txlog and `{o}` one of another catalog."""
    jvm: Any = spark._jvm
    log = str(tmp_path / "derby.log")  # Otherwise it is in the working directory.
    jvm.java.lang.System.setProperty("derby.stream.error.file", log)
    name = f"of_{request.node.name}"  # A session keeps a catalog once it has used it.
    url = f"jdbc:derby:memory:{name};create=true"
    options = {"": _CLASS, ".url": url, ".driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"}
    for key, value in options.items():
        spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
    connection = jvm.java.sql.DriverManager.getConnection(url)
    statement = connection.createStatement()
    for text in (
        'CREATE TABLE APP."t" ("id" BIGINT, "p" VARCHAR(9))',
        "INSERT INTO APP.\"t\" VALUES (2, 'new'), (9, 'nine')",
    ):
        statement.execute(text)
    connection.close()
    uri = txlog.write(tmp_path / "t", pa.table({"id": [1, 2], "p": ["a", "b"]})).uri

    def run(text: str) -> list[tuple[Any, ...]]:
        found = sql(spark, text.format(t=f"delta.`{uri}`", o=f"{name}.APP.t", c=f"{name}.APP"))
        return sorted(tuple(row) for row in found.collect())

    yield run
    spark.sql("USE spark_catalog.default")
    for key in options:
        spark.conf.unset(f"spark.sql.catalog.{name}{key}")


@pytest.mark.slow
def test_statements_read_tables_of_other_catalogs(run: Run) -> None:
    assert run("SELECT * FROM {o}") == [(2, "new"), (9, "nine")]
    assert run("SELECT a.id, b.p FROM {t} a JOIN {o} b ON a.id = b.id") == [(2, "new")]
    run(
        "MERGE INTO {t} t USING {o} s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET p = s.p WHEN NOT MATCHED THEN INSERT *"
    )
    assert run("SELECT * FROM {t}") == [(1, "a"), (2, "new"), (9, "nine")]
    run("INSERT INTO {t} SELECT id + 10, p FROM {o} WHERE id = 2")
    run("UPDATE {t} SET p = 'u' WHERE id IN (SELECT id FROM {o})")
    run("DELETE FROM {t} WHERE id = (SELECT max(id) FROM {o})")
    assert run("SELECT * FROM {t}") == [(1, "a"), (2, "u"), (12, "new")]
    run("INSERT INTO {o} SELECT id, p FROM {t} WHERE id = 1")
    run("USE {c}")
    assert run("SELECT * FROM t") == [(1, "a"), (2, "new"), (9, "nine")]
    run("INSERT INTO {t} SELECT 100 + id, p FROM t WHERE id = 9")
    assert (109, "nine") in run("SELECT * FROM {t}")


@pytest.mark.slow
def test_tables_of_other_catalogs_are_refused_in_one_sentence(
    run: Run, spark: SparkSession
) -> None:
    says = "it is a table of the catalog of_test_tables.*, and no Delta table"
    for text in (
        "DESCRIBE HISTORY {o}", "DESCRIBE DETAIL {o}", "OPTIMIZE {o}", "VACUUM {o}",
        "RESTORE TABLE {o} TO VERSION AS OF 0", "REORG TABLE {o} APPLY (PURGE)",
        "SELECT * FROM table_changes('{o}', 0)",
    ):  # fmt: skip
        with pytest.raises(UnsupportedFeatureError, match=says):
            run(text)
    run("USE {c}")
    with pytest.raises(UnsupportedFeatureError, match=says):
        run("DESCRIBE HISTORY t")
    with pytest.raises(UnsupportedFeatureError, match=says):
        DeltaTable.forName(spark, "t")


@pytest.mark.slow
def test_changes_of_other_catalogs_are_those_of_spark(run: Run) -> None:
    """Their sources may name tables of txlog; whether they can be changed, the catalog decides."""
    for text, says in (
        ("MERGE INTO {o} o USING {t} s ON o.id = s.id WHEN MATCHED THEN DELETE", "MERGE"),
        ("UPDATE {o} SET p = 'x' WHERE id IN (SELECT id FROM {t})", "UPDATE"),
        ("DELETE FROM {o} WHERE id IN (SELECT id FROM {t})", "[Dd]elete"),
    ):
        with pytest.raises(Exception, match=says) as caught:
            run(text)
        assert "NOT_FOUND" not in str(caught.value)
    assert run("SELECT * FROM {o}") == [(2, "new"), (9, "nine")]
