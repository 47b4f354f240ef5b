"""Spark's SQL on txlog's tables, statement by statement: what works, and what is refused.

What does not work is shown too: a clear error, and a table that stays as it was.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import InvalidInputError, NotFoundError, UnsupportedFeatureError
from txlog.spark_ext import DeltaTable, create_view, read, table_location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Sql = Callable[[str], list[Any]]
NO_PATH = r"\[invalid-input\].*Spark passed no path.*WITH \('path'"


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    made = txlog.write(tmp_path / "t", pa.table({"id": [1, 2, 3], "s": ["a", "b", "c"]}))
    made.append(pa.table({"id": [4], "s": ["d"]}))
    return made


@pytest.fixture
def sql(spark: "SparkSession", table: txlog.Table) -> Iterator[Sql]:
    """Run a statement, with the table's path for `{path}`."""
    yield lambda text: spark.sql(text.replace("{path}", table.uri)).collect()
    for name in ("t", "u"):
        spark.catalog.dropTempView(name)
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def ids(table: txlog.Table) -> list[int]:
    return sorted(txlog.Table(table.uri).to_arrow(["id"])["id"].to_pylist())


@pytest.mark.slow
def test_a_temporary_view_is_read_and_written(table: txlog.Table, sql: Sql) -> None:
    sql("CREATE TEMPORARY VIEW t USING txlog OPTIONS (path '{path}')")
    assert [tuple(row) for row in sql("SELECT s, id FROM t WHERE id > 2 ORDER BY id")] == [
        ("c", 3), ("d", 4)
    ]  # fmt: skip
    sql("INSERT INTO t VALUES (5, 'e')")
    sql("INSERT INTO t SELECT id + 10, s FROM t WHERE id < 3")
    assert ids(table) == [1, 2, 3, 4, 5, 11, 12]
    sql("INSERT OVERWRITE t VALUES (9, 'z')")
    assert ids(table) == [9]


@pytest.mark.slow
def test_a_query_without_a_filter_after_one_with_it(sql: Sql) -> None:
    sql("CREATE TEMPORARY VIEW t USING txlog OPTIONS (path '{path}')")
    assert sql("SELECT count(*) AS n FROM t WHERE id < 3")[0].n == 2
    assert sql("SELECT count(*) AS n FROM t")[0].n == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "option",
    ["versionAsOf '0'", "columns 'id'", "where 'id < 3'", "limit '2'", "onlyWithDeletions 'true'"],
)
def test_a_view_of_a_part_is_for_reading(table: txlog.Table, sql: Sql, option: str) -> None:
    sql(f"CREATE TEMPORARY VIEW t USING txlog OPTIONS (path '{{path}}', {option})")
    expected = {
        "versionAsOf '0'": [1, 2, 3],
        "columns 'id'": [1, 2, 3, 4],
        "onlyWithDeletions 'true'": [],
    }
    found = sorted(row.id for row in sql("SELECT id FROM t"))
    assert found == expected.get(option, [1, 2])
    source = "SELECT id FROM range(1)" if option.startswith("columns") else "VALUES (5, 'e')"
    # One kind of each: what is chosen is looked at before the mode.
    statement = "INSERT OVERWRITE t" if option.startswith("where") else "INSERT INTO t"
    with pytest.raises(Exception, match=r"\[invalid-input\].*this option is for reading"):
        sql(f"{statement} {source}")
    assert ids(table) == [1, 2, 3, 4]


@pytest.mark.slow
def test_which_frames_and_views_show_later_commits(
    spark: "SparkSession", table: txlog.Table, sql: Sql
) -> None:
    """What docs/spark.md says of them."""
    kept = f"SELECT * FROM t WITH ('path'='{table.uri}')"
    frame = spark.read.format("txlog").load(table.uri)
    sql("CREATE TABLE t USING txlog LOCATION '{path}'")
    sql("CREATE TEMPORARY VIEW v USING txlog OPTIONS (path '{path}')")
    sql(f"CREATE TEMPORARY VIEW latest AS {kept}")
    sql(f"CREATE VIEW latest_kept AS {kept}")
    create_view(spark, "native", table.uri)

    def counts() -> dict[str, int]:
        views = {name: spark.table(name) for name in ("v", "latest", "latest_kept", "native")}
        return {name: one.count() for name, one in {"frame": frame, **views}.items()}

    try:
        assert set(counts().values()) == {4}
        sql("INSERT INTO v VALUES (5, 'e')")
        assert ids(table) == [1, 2, 3, 4, 5]
        for refresh in ("REFRESH TABLE v", "REFRESH '{path}'"):
            sql(refresh)
        assert counts() == {"frame": 4, "v": 4, "native": 4, "latest": 5, "latest_kept": 5}

        frame = spark.read.format("txlog").load(table.uri)
        sql("CREATE OR REPLACE TEMPORARY VIEW v USING txlog OPTIONS (path '{path}')")
        create_view(spark, "native", table.uri)
        assert set(counts().values()) == {5}
    finally:
        for view in ("TEMPORARY VIEW latest", "VIEW latest_kept", "TEMPORARY VIEW native"):
            sql(f"DROP {view}".replace("TEMPORARY ", ""))


@pytest.mark.slow
def test_time_travel_in_a_view(table: txlog.Table, sql: Sql) -> None:
    moment_ms = txlog.Table(table.uri, version=0).timestamp_ms
    sql(
        "CREATE TEMPORARY VIEW t USING txlog OPTIONS (path '{path}', "
        f"timestampAsOf '{pa.scalar(moment_ms, pa.timestamp('ms'))}')"
    )
    assert sql("SELECT count(*) AS n FROM t")[0].n == 3


@pytest.mark.slow
def test_a_catalog_table_needs_its_path_again(table: txlog.Table, sql: Sql) -> None:
    sql("CREATE TABLE t USING txlog LOCATION '{path}'")
    for statement in ("SELECT * FROM t", "INSERT INTO t VALUES (5, 'e')",
                      "INSERT OVERWRITE t VALUES (5, 'e')"):  # fmt: skip
        with pytest.raises(Exception, match=NO_PATH):
            sql(statement)
    assert ids(table) == [1, 2, 3, 4]
    assert len(sql("SELECT * FROM t WITH ('path'='{path}')")) == 4
    assert len(sql("SELECT * FROM t WITH ('path'='{path}', 'where'='id = 1')")) == 1
    sql("INSERT INTO t WITH ('path'='{path}') VALUES (5, 'e')")
    sql("INSERT OVERWRITE t WITH ('path'='{path}', 'replaceWhere'='id < 3') VALUES (0, 'y')")
    assert ids(table) == [0, 3, 4, 5]
    sql("INSERT OVERWRITE t WITH ('path'='{path}') VALUES (6, 'z')")
    assert ids(table) == [6]
    with pytest.raises(Exception, match="TIME_TRAVEL"):
        sql("SELECT * FROM t WITH ('path'='{path}', 'versionAsOf'='0')")


def test_a_catalog_table_by_its_options(table: txlog.Table, sql: Sql) -> None:
    sql("CREATE TABLE t USING txlog OPTIONS (path '{path}')")
    with pytest.raises(Exception, match=NO_PATH):
        sql("SELECT * FROM t")
    assert len(sql("SELECT * FROM t WITH ('path'='{path}')")) == 4


@pytest.mark.slow
def test_a_table_made_by_its_first_insert(sql: Sql, tmp_path: Path) -> None:
    new = tmp_path / "new"
    sql(f"CREATE TABLE t (id BIGINT, p STRING) USING txlog LOCATION '{new}' PARTITIONED BY (p)")
    assert not txlog.Table.exists(new)
    sql(f"INSERT INTO t WITH ('path'='{new}', 'partitionBy'='p') VALUES (1, 'a')")
    assert txlog.Table(new).partition_columns == ["p"]
    assert [tuple(row) for row in sql(f"SELECT * FROM t WITH ('path'='{new}')")] == [(1, "a")]


def test_create_table_as_select_makes_nothing(sql: Sql, tmp_path: Path) -> None:
    new = tmp_path / "new"
    for place in (f"LOCATION '{new}'", f"OPTIONS (path '{new}')"):
        with pytest.raises(Exception, match=NO_PATH):
            sql(f"CREATE TABLE u USING txlog {place} AS SELECT 1L AS id")
        with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
            sql("SELECT * FROM u")
    assert not txlog.Table.exists(new)


@pytest.mark.slow
def test_create_table_as_select_by_the_frame(
    spark: "SparkSession", sql: Sql, tmp_path: Path
) -> None:
    new = str(tmp_path / "new")
    spark.range(3).writeTo("u").using("txlog").option("path", new).create()
    assert ids(txlog.Table(new)) == [0, 1, 2]
    assert table_location(spark, "u") == new
    assert spark.read.option("path", new).table("u").count() == 3


def test_a_schema_that_the_catalog_has_wrong(sql: Sql) -> None:
    sql("CREATE TABLE t USING txlog LOCATION '{path}'")
    sql("ALTER TABLE t ADD COLUMN x INT")  # Of the catalog alone.
    with pytest.raises(
        Exception, match=r"\[schema-mismatch\].*column x was dropped.*catalog again"
    ):
        sql("SELECT * FROM t WITH ('path'='{path}')")


def test_properties_of_the_catalog_alone_are_refused(
    spark: "SparkSession", tmp_path: Path, sql: Sql
) -> None:
    kept = {"delta.checkpointInterval": "7", "a": "b"}
    made = txlog.write(tmp_path / "p", pa.table({"id": [1]}), properties=kept)
    sql(
        f"CREATE TABLE t USING txlog LOCATION '{made.uri}' TBLPROPERTIES "
        "('delta.checkpointInterval'='7', 'owner.note'='x, y=z')"
    )
    assert DeltaTable.forName(spark, "t").table.uri == made.uri
    sql(
        "ALTER TABLE t SET TBLPROPERTIES "
        "('delta.appendOnly'='true', 'delta.feature.rowTracking'='supported', 'c'='d')"
    )
    with pytest.raises(UnsupportedFeatureError) as caught:
        DeltaTable.forName(spark, "t")
    assert "no effect: delta.appendOnly, delta.feature.rowTracking" in caught.value.reason
    sql(caught.value.remedy.split(";")[0])
    assert DeltaTable.forName(spark, "t").table.uri == made.uri


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t SET TBLPROPERTIES ('delta.appendOnly'='true')",
        "ALTER TABLE t UNSET TBLPROPERTIES ('delta.appendOnly')",
        "ALTER TABLE t SET LOCATION '/elsewhere'",
        "ALTER TABLE t DROP COLUMN s",
        "ALTER TABLE t RENAME COLUMN s TO x",
        "ALTER TABLE t ALTER COLUMN s COMMENT 'x'",
        "COMMENT ON TABLE t IS 'x'",
    ],
)
def test_what_changes_the_catalog_alone(table: txlog.Table, sql: Sql, statement: str) -> None:
    """What docs/spark.md says: Spark does this by itself, and no source in Python hears of it."""
    sql("CREATE TABLE t USING txlog LOCATION '{path}'")
    sql(statement)
    now = txlog.Table(table.uri)
    assert (now.version, now.properties) == (table.version, table.properties)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("SELECT * FROM t VERSION AS OF 0", "TIME_TRAVEL"),
        ("SELECT * FROM t TIMESTAMP AS OF '2020-01-01'", "TIME_TRAVEL"),
        ("SELECT * FROM txlog.`{path}`", "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"),
        ("DELETE FROM t WHERE id = 1", "does not support deletes"),
        ("UPDATE t SET id = 1", "does not support UPDATE TABLE"),
        ("MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN DELETE", "MERGE INTO TABLE"),
        ("TRUNCATE TABLE t", "EXPECT_TABLE_NOT_VIEW"),
        ("INSERT INTO t VALUES (1)", "NOT_ENOUGH_DATA_COLUMNS"),
        ("INSERT INTO t VALUES ('x', 1)", "CAST_INVALID_INPUT|INCOMPATIBLE_DATA"),
        ("ANALYZE TABLE t COMPUTE STATISTICS", "EXPECT_PERMANENT_VIEW"),
        ("OPTIMIZE t", "PARSE_SYNTAX_ERROR"),
        ("VACUUM t", "PARSE_SYNTAX_ERROR"),
        ("DESCRIBE HISTORY t", "TABLE_OR_VIEW_NOT_FOUND|PARSE_SYNTAX_ERROR"),
    ],
)
def test_what_spark_refuses(table: txlog.Table, sql: Sql, statement: str, told: str) -> None:
    for name in ("t", "u"):
        sql(f"CREATE TEMPORARY VIEW {name} USING txlog OPTIONS (path '{{path}}')")
    with pytest.raises(Exception, match=told):
        sql(statement)
    assert txlog.Table(table.uri).version == 1


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("DELETE FROM c WHERE id = 1", "does not support deletes"),
        ("ALTER TABLE c ADD CONSTRAINT o CHECK (id > 0)", "does not support table constraint"),
        ("TRUNCATE TABLE c", "does not support truncates"),
        ("ANALYZE TABLE c COMPUTE STATISTICS", "not supported for v2 tables"),
        ("SELECT * FROM c WITH ('path'='{path}', 'versionAsOf'='0')", "TIME_TRAVEL"),
    ],
)
def test_what_spark_refuses_of_catalog_tables(
    table: txlog.Table, sql: Sql, statement: str, told: str
) -> None:
    sql("CREATE TABLE c USING txlog LOCATION '{path}'")
    try:
        with pytest.raises(Exception, match=told):
            sql(statement)
    finally:
        sql("DROP TABLE c")
    assert txlog.Table(table.uri).version == 1


def test_replacing_a_catalog_table_changes_the_catalog_alone(table: txlog.Table, sql: Sql) -> None:
    sql("CREATE TABLE c USING txlog LOCATION '{path}'")
    try:
        sql("CREATE OR REPLACE TABLE c (n INT) USING txlog LOCATION '{path}'")
    finally:
        sql("DROP TABLE c")
    assert txlog.Table(table.uri).version == 1
    assert ids(table) == [1, 2, 3, 4]


def test_writers_that_spark_refuses(spark: "SparkSession", table: txlog.Table) -> None:
    frame = spark.createDataFrame([(5, "e")], "id bigint, s string")
    with pytest.raises(Exception, match="provided partitioning"):
        frame.write.format("txlog").partitionBy("s").mode("append").save(table.uri)
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        frame.write.format("txlog").save(table.uri)
    assert ids(table) == [1, 2, 3, 4]


def test_views_over_the_functions(spark: "SparkSession", table: txlog.Table, sql: Sql) -> None:
    create_view(spark, "t", table.uri)
    assert sql("SELECT count(*) AS n FROM t")[0].n == 4
    create_view(spark, "t", table.uri, version=0)
    create_view(spark, "u", f"delta.`{table.uri}`", columns=["id"], where="id > 1")
    assert [row.id for row in sql("SELECT u.id FROM t JOIN u ON t.id = u.id ORDER BY 1")] == [2, 3]
    with pytest.raises(InvalidInputError, match="exclude each other"):
        create_view(spark, "t", table.uri, 0, "2020-01-01")
    with pytest.raises(InvalidInputError, match="cannot be converted to a valid timestamp"):
        create_view(spark, "t", table.uri, timestamp="soon")


def test_a_view_at_a_moment_is_in_the_sessions_zone(
    spark: "SparkSession", table: txlog.Table, sql: Sql
) -> None:
    # At the last millisecond before the second version, told as people there say it.
    before = txlog.Table(table.uri).timestamp_ms - 1
    text = str(pa.scalar(before + 19_800_000, pa.timestamp("ms")))
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        create_view(spark, "t", table.uri, timestamp=text)
        assert sql("SELECT count(*) AS n FROM t")[0].n == 3
        assert read(spark, table.uri, timestamp=text).count() == 3
        with pytest.raises((NotFoundError, Exception), match="before the first"):
            create_view(spark, "t", table.uri, timestamp="2001-01-01")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_view_over_a_catalog_table(spark: "SparkSession", sql: Sql) -> None:
    sql("CREATE TABLE u USING txlog LOCATION '{path}'")
    create_view(spark, "t", table_location(spark, "u"))
    assert sql("SELECT max(id) AS n FROM t")[0].n == 4
