"""Queries of tables by paths and names, at each place of a statement."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import InvalidInputError, NotFoundError, UnsupportedFeatureError
from txlog.spark_ext import create_view, sql
from txlog.spark_ext.statements.queries import _without_short_queries
from txlog.spark_ext.statements.statement_text import Reader, references, tokens_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[[str], list[Any]]


def test_the_names_of_a_with_are_skipped() -> None:
    def skipped(text: str) -> tuple[frozenset[str], str | None]:
        reader = Reader(text, tokens_of(text))
        return reader.skips_with(), reader.token and reader.token.raw

    assert skipped("WITH a AS (SELECT 1, 2), `b c`(x, y) AS (SELECT (3)) MERGE INTO t") == (
        {"a", "b c"}, "MERGE"
    )  # fmt: skip
    assert skipped("WITH RECURSIVE R(n) AS (VALUES (1)) SELECT insert FROM r") == ({"r"}, "SELECT")
    for text in ("SELECT 1", "WITH SCHEMA EVOLUTION INTO t", "WITH a AS (SELECT 1", "WITH"):
        assert skipped(text) == (frozenset(), text.split()[0])


def test_changes_of_tables_are_found() -> None:
    text = (
        "SELECT * FROM table_changes('a.b', 1) x, TABLE_CHANGES_BY_PATH('/p', '2024-01-01', now()) "
        "JOIN table_changes"
    )
    found = [(one.name, one.changes, one.has_alias) for one in references(text)]
    assert found == [
        ("a.b", ("1",), True),
        ("delta.`/p`", ("'2024-01-01'", "now()"), False),
        ("table_changes", None, False),
    ]


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    rows = pa.table({"id": [1, 2, 3], "s": ["a", "b", "c"]})
    return txlog.write(tmp_path / "t", rows, properties={"delta.enableChangeDataFeed": "true"})


@pytest.fixture
def run(spark: "SparkSession", table: txlog.Table) -> Iterator[Run]:
    spark.sql(f"CREATE TABLE queried_t USING txlog LOCATION '{table.uri}'")
    spark.sql("CREATE TABLE queried_p (id BIGINT, s STRING) USING parquet")
    yield lambda text: [tuple(row) for row in sql(spark, text.replace("@", table.uri)).collect()]
    for row in spark.sql("SHOW TABLES LIKE 'queried_*'").collect():
        spark.sql(f"DROP TABLE {row.tableName}")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("TABLE delta.`@`", 3),
        ("WITH w AS (TABLE delta.`@`) TABLE w", 3),
        ("SELECT 1 FROM queried_t WHERE id IN ((TABLE queried_n))", 1),
        ("TABLE queried_t UNION ALL TABLE delta.`@`", 6),
        ("(TABLE queried_t) EXCEPT (TABLE delta.`@`)", 0),
        ("SELECT * FROM (TABLE delta.`@`) AS x, explode(array(1, 2))", 6),
    ],
)
def test_short_queries_at_each_place(
    run: Run, spark: "SparkSession", query: str, count: int
) -> None:
    spark.range(1, 2).createOrReplaceTempView("queried_n")
    assert len(run(query)) == count
    spark.catalog.dropTempView("queried_n")


@pytest.mark.slow
@pytest.mark.spark
def test_changes_after_with_and_from(run: Run, table: txlog.Table) -> None:
    def rows() -> list[Any]:
        return sorted(tuple(row.values()) for row in table.refresh().to_arrow().to_pylist())

    given = "WITH x AS (SELECT id, 'z' AS s FROM delta.`@` VERSION AS OF 0 WHERE id = 2)"
    merged = "MERGE INTO queried_t USING x ON queried_t.id = x.id WHEN MATCHED THEN UPDATE SET *"
    assert run(f"{given} {merged}") == [(1, 1, 0, 0)]
    of_with = "id IN (SELECT q FROM Y)"
    named = "WITH x AS (SELECT 2 AS id), y(q) AS (SELECT id + 1 FROM x)"
    assert run(f"{named} UPDATE queried_t SET s = 'u' WHERE {of_with}") == [(1,)]
    assert rows() == [(1, "a"), (2, "z"), (3, "u")]
    assert run(f"{named} DELETE FROM delta.`@` WHERE {of_with}") == [(1,)]
    same = "WITH queried_t AS (SELECT id + 9 AS id FROM queried_t)"  # The name of the table itself.
    assert run(f"{same} DELETE FROM delta.`@` WHERE id IN (SELECT id FROM queried_t)") == [(0,)]
    run("WITH x AS (SELECT 9L AS id, 'w' AS s) INSERT INTO queried_t SELECT * FROM x")
    run("FROM queried_t INSERT INTO delta.`@` (s, id) SELECT s, id + 100 WHERE id = 9")
    run("WITH x AS (SELECT 5L AS id) FROM x INSERT INTO queried_t SELECT id, DEFAULT")
    assert rows() == [(1, "a"), (2, "z"), (5, None), (9, "w"), (109, "w")]
    version = table.refresh().version
    with pytest.raises(InvalidInputError):
        run(f"{named} UPDATE queried_t SET id = (SELECT max(q) FROM y)")
    assert table.refresh().version == version


@pytest.mark.slow
@pytest.mark.spark
def test_changes_of_versions_in_a_query(run: Run, table: txlog.Table) -> None:
    table.update({"s": "'q'"}, where="id = 2")
    table.delete("id = 3")
    columns = "id, s, _change_type, _commit_version"
    expected = [(2, "b", "update_preimage", 1), (2, "q", "update_postimage", 1),
                (3, "c", "delete", 2)]  # fmt: skip
    for call in ("table_changes('queried_t', 1)", "table_changes_by_path('@', 1, 2) AS c",
                 "table_changes('default.queried_t', 1, current_timestamp())"):  # fmt: skip
        assert run(f"SELECT {columns} FROM {call} ORDER BY _commit_version, 2") == expected
    joined = "table_changes('delta.`@`', 0, 1) c JOIN queried_t ON c.id = queried_t.id + 1"
    assert run(f"SELECT c.s, queried_t.s FROM {joined} WHERE _change_type = 'insert'") == [
        ("b", "a"), ("c", "q")
    ]  # fmt: skip
    with pytest.raises(InvalidInputError, match="table_changes has 4 arguments"):
        run("SELECT * FROM table_changes('queried_t', 1, 2, 3)")
    with pytest.raises(NotFoundError, match="later than the version"):
        run("SELECT * FROM table_changes('queried_t', 9)")


@pytest.mark.slow
@pytest.mark.spark
def test_statements_of_spark_read_tables(run: Run, spark: "SparkSession") -> None:
    run("INSERT INTO queried_p SELECT * FROM queried_t WHERE s <> '{'")
    run("WITH x AS (SELECT * FROM delta.`@`) INSERT INTO queried_p SELECT * FROM x")
    run("INSERT INTO queried_p VALUES (7, 'select')")
    assert run("SELECT count(*) FROM queried_p") == [(7,)]
    run("CREATE TABLE queried_q USING parquet AS SELECT id FROM delta.`@` VERSION AS OF 0")
    assert run("SELECT count(*) FROM queried_q") == [(3,)]
    assert "Scan" in run("EXPLAIN FORMATTED SELECT * FROM queried_t WHERE id = 1")[0][0]
    for kind, name in (("TEMPORARY", "queried_v"), ("GLOBAL TEMP", "global_temp.queried_g")):
        view = name.split(".")[-1]
        made = f"VIEW {view} AS WITH q AS (SELECT id FROM queried_t) SELECT * FROM q WHERE id > 1"
        run(f"CREATE {kind} {made}")
        with pytest.raises(Exception, match="already exists"):
            run(f"CREATE {kind} {made}")
        run(f"CREATE OR REPLACE {kind} {made}")
        assert spark.table(name).count() == 2
        spark.sql(f"DROP VIEW {name}")
    run("CREATE VIEW queried_w AS SELECT * FROM queried_t")
    assert spark.table("queried_w").count() == 3
    spark.sql("DROP VIEW queried_w")
    run("CREATE VIEW queried_w AS SELECT * FROM queried_p")
    assert run("SELECT count(*) FROM queried_w") == [(7,)]
    spark.sql("DROP VIEW queried_w")


@pytest.mark.slow
@pytest.mark.spark
def test_rows_change_through_a_view(
    run: Run, spark: "SparkSession", table: txlog.Table, tmp_path: Path
) -> None:
    create_view(spark, "queried_view", table.uri)
    on = "USING (SELECT 1 AS id) AS x ON queried_view.id = x.id"
    assert run(f"MERGE INTO queried_view {on} WHEN MATCHED THEN DELETE") == [(1, 0, 1, 0)]
    assert run("UPDATE Queried_View SET s = 'u' WHERE id = 2") == [(1,)]
    assert run("DELETE FROM queried_view WHERE id = 3") == [(1,)]
    run("INSERT INTO queried_view SELECT id + 5, s FROM queried_view")
    assert sorted(map(tuple, spark.table("queried_view").collect())) == [(2, "u"), (7, "u")]
    assert table.refresh().version == 4
    for more in ({"version": 0}, {"columns": ["id"]}, {"where": "id > 1"}):
        create_view(spark, "queried_view", table.uri, **more)  # type: ignore[arg-type]
        with pytest.raises(UnsupportedFeatureError, match="by its path"):
            run("DELETE FROM queried_view")
    create_view(spark, "queried_view", table.uri)
    spark.sql("CREATE OR REPLACE TEMP VIEW queried_view AS SELECT 2L AS id")
    with pytest.raises(Exception, match=r"(?i)delete|relation"):
        run("DELETE FROM queried_view")
    spark.catalog.dropTempView("queried_view")
    with pytest.raises(Exception, match="NOT_FOUND"):
        run("DELETE FROM queried_view")
    assert table.refresh().version == 4


@pytest.mark.slow
@pytest.mark.spark
def test_over_spark_connect(remote: Callable[..., Any], tmp_path: Path) -> None:
    def work(spark: "SparkSession", path: str) -> Any:
        from txlog.spark_ext import create_view, sql

        def rows(text: str) -> list[Any]:
            return [
                tuple(row) for row in sql(spark, text.replace("@", f"delta.`{path}`")).collect()
            ]

        feed = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
        made = sql(
            spark, f"CREATE TABLE delta.`{path}` (id INT, s STRUCT<a: INT>, n INT DEFAULT 7) USING "
            f"delta {feed}",
        )  # fmt: skip
        found = [made.columns, made.collect()]
        rows("INSERT INTO @ VALUES (1, struct(5), DEFAULT), (2, struct(6), 8)")
        found.append(
            rows("WITH x AS (SELECT 2 AS id) DELETE FROM @ WHERE id IN (SELECT id FROM x)")
        )
        found.append(rows(f"SELECT id, s.a, n FROM table_changes_by_path('{path}', 2)"))
        found.append(rows("DESCRIBE @")[:2])
        create_view(spark, "connected", path)
        on = "ON connected.id = x.id WHEN MATCHED THEN UPDATE SET n = DEFAULT"
        more = "WHEN NOT MATCHED BY SOURCE AND n = 7 THEN UPDATE SET n = n + id"
        rows(f"MERGE INTO connected USING (SELECT 3 AS id, 4 AS n) AS x {on} {more}")
        found.append(rows("SELECT id, n FROM connected"))
        return found

    assert remote(work, str(tmp_path / "t")) == [
        [], [], [(1,)], [(2, 6, 8)],
        [("id", "int", None), ("s", "struct<a:int>", None)],
        [(1, 8)],
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.spark
def test_views_of_the_catalog_show_the_latest_rows(
    run: Run, spark: "SparkSession", table: txlog.Table
) -> None:
    text = "SELECT a.id, b.s FROM queried_t a JOIN queried_t AS b ON a.id = b.id, queried_p"
    run("INSERT INTO queried_p VALUES (1, 'x')")
    run(f"CREATE VIEW IF NOT EXISTS queried_v (k COMMENT 'key', s) COMMENT 'AS' AS {text}")
    run("CREATE OR REPLACE VIEW queried_w AS WITH w AS (TABLE queried_t) SELECT * FROM w")
    try:
        table.append(pa.table({"id": [4], "s": ["d"]}))
        for name in ("queried_v", "queried_w"):
            assert spark.table(name).count() == 4
            assert len(run(f"SELECT * FROM {name}")) == 4
        assert spark.table("queried_v").columns == ["k", "s"]
        for query in ("TABLE delta.`@`", "SELECT * FROM queried_t VERSION AS OF 0"):
            with pytest.raises(UnsupportedFeatureError, match="cannot keep the view"):
                run(f"CREATE VIEW queried_x AS {query}")
        with pytest.raises(UnsupportedFeatureError, match="options of the store"):
            sql(spark, "CREATE VIEW queried_x AS TABLE queried_t", storage_options={"a": "b"})
    finally:
        spark.sql("DROP VIEW queried_v")
        spark.sql("DROP VIEW queried_w")


@pytest.mark.slow
@pytest.mark.spark
def test_a_view_gets_another_query(run: Run, spark: "SparkSession", table: txlog.Table) -> None:
    run("CREATE VIEW queried_v AS SELECT id FROM queried_t")
    run("CREATE TEMPORARY VIEW queried_w AS SELECT id FROM queried_t")
    run("CREATE GLOBAL TEMPORARY VIEW queried_g AS SELECT id FROM queried_t")
    names = ("queried_v", "queried_w", "global_temp.queried_g")
    try:
        for name in names:
            run(f"ALTER VIEW {name} AS SELECT s FROM queried_t WHERE id < 3")
            assert spark.table(name).columns == ["s"]
            assert spark.table(name).count() == 2
        for name in names[1:]:
            run(f"ALTER VIEW {name} AS SELECT id FROM delta.`{table.uri}` VERSION AS OF 0")
            assert spark.table(name).columns == ["id"]
        with pytest.raises(UnsupportedFeatureError, match="cannot keep the view"):
            run(f"ALTER VIEW queried_v AS TABLE delta.`{table.uri}`")
        run("ALTER VIEW queried_v RENAME TO queried_x")
        run("ALTER VIEW queried_x AS SELECT 1 AS one")
        assert spark.table("queried_x").columns == ["one"]
        with pytest.raises(Exception, match="queried_none"):
            run("ALTER VIEW queried_none AS SELECT id FROM queried_t")
    finally:
        spark.sql("DROP VIEW IF EXISTS queried_v")
        spark.sql("DROP VIEW IF EXISTS queried_x")
        spark.catalog.dropTempView("queried_w")
        spark.catalog.dropGlobalTempView("queried_g")


@pytest.mark.slow
@pytest.mark.spark
def test_changes_of_no_table_name_the_table(run: Run) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        run("SELECT * FROM table_changes('nowhere', 0)")


def test_a_column_may_have_the_name_table() -> None:
    for same in ("SELECT DISTINCT table FROM t", "SELECT ALL table x FROM t",
                 "SELECT k FROM t UNION SELECT DISTINCT table k FROM t"):  # fmt: skip
        assert _without_short_queries(same) == same
    for operator in ("UNION ALL", "EXCEPT DISTINCT", "MINUS", "INTERSECT ALL"):
        text = f"TABLE t {operator} TABLE u"
        assert _without_short_queries(text) == f"SELECT * FROM t {operator} SELECT * FROM u"
