"""Rows that statements insert, by position and with DEFAULT, compared with a table of Spark."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import InvalidInputError, SchemaMismatchError, TxlogError
from txlog.spark_ext import sql
from txlog.spark_ext.statements.defaults import Rows, read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "id INT DEFAULT 7, s STRUCT<a: INT, b: STRING>, l ARRAY<STRUCT<a: INT, b: STRING>>, "
    "m MAP<STRING, STRUCT<a: INT, b: STRUCT<c: INT, d: INT>>>, n INT DEFAULT -1, "
    "d DECIMAL(10, 2) DEFAULT 1.5, t STRING DEFAULT 'it\\'s'"
)


def test_the_word_default_is_found() -> None:
    assert read_rows("VALUES (1, default), (2, DEFAULT)") == Rows(
        "VALUES (1, NULL), (2, NULL)", frozenset({1})
    )
    mixed = "VALUES (DEFAULT, 'DEFAULT', f(1, 2)), (3, DEFAULT, x), (DEFAULT, 1, DEFAULT)"
    assert read_rows(mixed) == Rows(
        "VALUES (NULL, 'DEFAULT', f(1, 2), true, false, false), (3, NULL, x, false, true, false), "
        "(NULL, 1, NULL, true, false, true)",
        frozenset(),
        (0, 1, 2),
    )  # fmt: skip
    assert read_rows("VALUES 1, DEFAULT").some == (0,)
    with pytest.raises(InvalidInputError, match="have 1 and 2 values"):
        read_rows("VALUES (1), (DEFAULT, 2)")
    assert read_rows("SELECT a, DEFAULT, (SELECT 1, 2) FROM t WHERE b = 1") == Rows(
        "SELECT a, NULL, (SELECT 1, 2) FROM t WHERE b = 1", frozenset({1})
    )
    for same in (
        "VALUES (1, 'DEFAULT')", "VALUES (1, DEFAULT + 1)", "SELECT 1 AS default", "TABLE t",
        "SELECT `DEFAULT` FROM t", "WITH a AS (SELECT 1) SELECT * FROM a",
        "VALUES (1), (3, 2)", "SELECT DISTINCT a, DEFAULT FROM t", "(SELECT a, DEFAULT)",
    ):  # fmt: skip
        assert read_rows(same) == Rows(same)


@pytest.mark.parametrize(
    "other",
    ["SELECT 2, 3", "(SELECT 2, 3)", "ALL SELECT 2, 3", "DISTINCT (SELECT 2, 3)", "VALUES (2, 3)",
     "((SELECT 2, 3))", "TABLE u", "FROM u SELECT 2, 3"],
)  # fmt: skip
@pytest.mark.parametrize("word", ["UNION", "EXCEPT", "MINUS", "INTERSECT", "union"])
def test_a_combined_query_keeps_the_word_default(word: str, other: str) -> None:
    for one in ("SELECT DEFAULT, 1", "SELECT 1, DEFAULT", "SELECT DEFAULT, a FROM t WHERE a = 1"):
        text = f"{one} {word} {other}"
        assert read_rows(text) == Rows(text)
    assert read_rows("SELECT * EXCEPT (a), DEFAULT FROM t").every == {1}
    assert read_rows(f"SELECT DEFAULT FROM (SELECT 1 {word} {other})").every == {0}


@pytest.fixture
def pair(spark: "SparkSession", tmp_path: Path) -> Iterator[Callable[[str], tuple[Any, Any]]]:
    """Runs a statement on a table of Spark and one of txlog, and returns what is in both."""
    spark.sql(f"CREATE TABLE inserted_p ({COLUMNS}) USING parquet")
    sql(spark, f"CREATE TABLE inserted_t ({COLUMNS}) USING delta LOCATION '{tmp_path / 't'}'")

    def run(text: str) -> tuple[Any, Any]:
        found: list[Any] = []
        for name in ("inserted_p", "inserted_t"):
            try:
                sql(spark, text.replace("@", name))
            except Exception as error:
                found.append(isinstance(error, TxlogError) or "INCOMPATIBLE_DATA" in str(error)
                             or "ARITY" in str(error) or "DEFAULT" in str(error))  # fmt: skip
            else:
                found.append(sorted(map(repr, sql(spark, f"SELECT * FROM {name}").collect())))
        return found[0], found[1]

    yield run
    for name in ("inserted_p", "inserted_t"):
        spark.sql(f"DROP TABLE {name}")


FULL = "map('k', struct(1, struct(2, 3)))"


@pytest.mark.slow(cases=10)
@pytest.mark.spark
@pytest.mark.parametrize(
    "text",
    [
        f"INTO @ VALUES (1, struct(2, 'x'), array(struct(3, 'y')), {FULL}, 4, 5, 'z')",
        "INTO @ VALUES (1, named_struct('b', 2, 'a', 'x'), NULL, NULL, 4, 5, 'z')",
        f"INTO @ (m, s, id) SELECT {FULL}, named_struct('B', 2, 'z', 'x'), 1",
        "INTO @ BY NAME SELECT named_struct('b', 'x', 'a', 2) AS s, 1 AS id",
        "INTO @ (id, s) SELECT 1, struct(1)",
        "INTO @ (id, s) SELECT 1, struct(1, 'x', 2)",
        "INTO @ (id, l) SELECT 1, array(struct(1))",
        "INTO @ (id, s) SELECT 1, struct(NULL, NULL)",
        "INTO @ (id, l) SELECT 1, array(NULL, struct(5, 'q'))",
        "OVERWRITE @ (s) SELECT struct(1, 'x')",
        "INTO @ VALUES (DEFAULT, NULL, NULL, NULL, DEFAULT, DEFAULT, DEFAULT)",
        "INTO @ (n, d, t) VALUES (DEFAULT, 2, 'a'), (3, default, 'b'), (NULL, NULL, DEFAULT)",
        "INTO @ (id, t) SELECT id + 100, DEFAULT FROM range(3)",
        "INTO @ (id) VALUES 1, 2, DEFAULT",
        "INTO @ (id, n) VALUES (1, DEFAULT + 1)",
        "INTO @ VALUES (1, struct(1, 'x'))",
        "INTO @ (id, s) VALUES (1, 5)",
        "INTO @ (id, n) SELECT id, DEFAULT FROM (SELECT 1 AS id) UNION ALL SELECT 2, 5",
        "INTO @ (n, id) SELECT DEFAULT, 1 EXCEPT SELECT 2, 3",
        "INTO @ (n, id) SELECT DISTINCT DEFAULT, 1",
        "INTO @ (n, t) VALUES (DEFAULT, 'a') UNION ALL VALUES (1, 'b')",
        "INTO @ BY NAME SELECT 1 AS id, DEFAULT AS n",
        "INTO @ (id, n) SELECT default, DEFAULT FROM (SELECT 9 AS default)",
        "INTO @ (id, n) SELECT 9 AS default, default",
        "INTO @ (id, n) SELECT id, DEFAULT FROM range(2) ORDER BY id LIMIT 1",
    ],
)  # fmt: skip
def test_rows_are_those_of_spark(pair: Callable[[str], tuple[Any, Any]], text: str) -> None:
    expected, found = pair(f"INSERT {text}")
    assert found == expected
    assert found is not False


@pytest.mark.slow
@pytest.mark.spark
def test_defaults_of_generated_columns(spark: "SparkSession", tmp_path: Path) -> None:
    place = tmp_path / "g"
    sql(
        spark,
        f"CREATE TABLE delta.`{place}` (k BIGINT GENERATED ALWAYS AS IDENTITY, n INT DEFAULT 2, "
        "twice INT GENERATED ALWAYS AS (n * 2), a ARRAY<INT>) USING delta",
    )
    sql(spark, f"INSERT INTO delta.`{place}` VALUES (DEFAULT, DEFAULT, DEFAULT, DEFAULT)")
    sql(spark, f"INSERT INTO delta.`{place}` (k, n) VALUES (DEFAULT, 5), (DEFAULT, DEFAULT)")
    rows = txlog.Table(place).to_arrow().to_pylist()
    assert sorted(row["n"] for row in rows) == [2, 2, 5]
    assert {row["twice"] for row in rows if row["n"] == 5} == {10}
    assert sorted(row["k"] for row in rows) == [1, 2, 3]
    with pytest.raises(InvalidInputError, match="are generated"):
        sql(spark, f"INSERT INTO delta.`{place}` (k, n) VALUES (DEFAULT, 5), (9, 6)")
    with pytest.raises(InvalidInputError, match="k numbers rows when they are inserted"):
        sql(spark, f"UPDATE delta.`{place}` SET k = DEFAULT")
    sql(spark, f"UPDATE delta.`{place}` SET n = DEFAULT, twice = DEFAULT WHERE n = 5")
    assert {(row["n"], row["twice"]) for row in txlog.Table(place).to_arrow().to_pylist()} == {
        (2, 4)
    }


@pytest.mark.slow
@pytest.mark.spark
def test_defaults_in_updates_and_merges(spark: "SparkSession", tmp_path: Path) -> None:
    place = tmp_path / "u"
    sql(
        spark,
        f"CREATE TABLE delta.`{place}` (id INT, n INT DEFAULT 2, d DATE DEFAULT DATE'0999-12-31', "
        "t TIMESTAMP DEFAULT TIMESTAMP'2024-01-01 00:00:00', s STRUCT<a: INT>) USING delta",
    )
    rows_of = "(1, 10, NULL, NULL, struct(1)), (2, 20, NULL, NULL, NULL)"
    sql(spark, f"INSERT INTO delta.`{place}` VALUES {rows_of}")
    sql(
        spark,
        f"UPDATE delta.`{place}` AS x SET x.n = DEFAULT, d = default, s = DEFAULT WHERE id = 1",
    )
    sql(
        spark,
        f"MERGE INTO delta.`{place}` AS t USING (SELECT id FROM range(2, 4)) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET t.t = DEFAULT, n = 5 "
        "WHEN NOT MATCHED THEN INSERT (id, n, d) VALUES (s.id, DEFAULT, DEFAULT)",
    )
    rows = txlog.Table(place).to_arrow().sort_by("id").to_pylist()
    found = [(row["n"], str(row["d"]), row["t"] and row["t"].isoformat(), row["s"]) for row in rows]
    start = "2024-01-01T00:00:00+00:00"
    assert found == [
        (2, "0999-12-31", None, None), (5, "None", start, None), (2, "0999-12-31", start, None)
    ]  # fmt: skip
    version = txlog.Table(place).version
    for wrong in ("s.a = DEFAULT", "q = DEFAULT", "s = 5", "id = struct(5)"):
        with pytest.raises(InvalidInputError):
            sql(spark, f"UPDATE delta.`{place}` SET {wrong}")
    assert txlog.Table(place).version == version


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(id, x) SELECT id, DEFAULT FROM (SELECT 1 AS id) UNION ALL SELECT 2, 5", "whole value"),
        ("(id, x) SELECT 2, 5 UNION ALL SELECT 1, DEFAULT", "whole value"),
        ("(id, x) SELECT 1, DEFAULT INTERSECT SELECT 1, 7", "whole value"),
        ("(id, x) SELECT DISTINCT 1, DEFAULT", "whole value"),
        ("(id, x) (SELECT 1, DEFAULT)", "whole value"),
        ("(id, x) (VALUES (1, DEFAULT))", "whole value"),
        ("(id, x) VALUES (1, DEFAULT) LIMIT 1", "whole value"),
        ("(id, x) SELECT 1, DEFAULT + 1", "whole value"),
        ("BY NAME SELECT 1 AS id, DEFAULT AS x", "whole value"),
        ("(id, nope) VALUES (5, 1)", "nope.*Choose from id, x"),
        ("(id, nope) VALUES (5, DEFAULT)", "nope.*Choose from id, x"),
        ("(id, nope) VALUES (5, DEFAULT), (6, 1)", "nope.*Choose from id, x"),
        ("(id, ID) VALUES (5, DEFAULT)", "named twice"),
        ("(id, x) VALUES (5, DEFAULT, 'a'), (6, 1, DEFAULT)", "the query has 3 columns"),
        ("(id) SELECT DEFAULT, 1, 2", "the query has 3 columns"),
    ],
)  # fmt: skip
def test_rows_that_are_refused(spark: "SparkSession", tmp_path: Path, text: str, said: str) -> None:
    name = f"delta.`{tmp_path / 'r'}`"
    sql(spark, f"CREATE TABLE {name} (id INT, x INT DEFAULT 7) USING delta")
    with pytest.raises(InvalidInputError, match=said):
        sql(spark, f"INSERT INTO {name} {text}")
    assert txlog.Table(tmp_path / "r").version == 0


@pytest.mark.spark
def test_a_value_in_the_wrong_place_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": [1], "s": [{"a": 1, "b": "x"}]}))
    with pytest.raises(SchemaMismatchError, match=r"s\.a"):
        sql(spark, f"INSERT INTO delta.`{table.uri}` SELECT 2, named_struct('b', 'y', 'a', 5)")
    with pytest.raises(InvalidInputError, match="2 fields, and the value has 1"):
        sql(spark, f"INSERT INTO delta.`{table.uri}` SELECT 2, named_struct('b', 'y')")
    assert table.refresh().version == 0


@pytest.fixture
def two(spark: "SparkSession", tmp_path: Path) -> Iterator[tuple[txlog.Table, txlog.Table]]:
    one = txlog.write(tmp_path / "one", pa.table({"k": [1, 2]}))
    other = txlog.write(tmp_path / "other", pa.table({"k": pa.array([], pa.int64())}))
    sql(spark, f"CREATE TABLE several_one USING delta LOCATION '{one.uri}'")
    yield one, other
    spark.sql("DROP VIEW IF EXISTS several_view")
    spark.sql("DROP TABLE IF EXISTS several_one")


@pytest.mark.slow
def test_inserts_that_depend_on_each_other_are_refused(
    spark: "SparkSession", two: tuple[txlog.Table, txlog.Table]
) -> None:
    one, other = two
    sql(spark, "CREATE VIEW several_view AS SELECT k FROM several_one")
    into = f"INSERT INTO delta.`{other.uri}` SELECT k"
    added = "INSERT INTO several_one SELECT k + 10"
    for text in (
        f"FROM several_view {added} {into}",
        f"FROM several_one {added} INSERT OVERWRITE several_one SELECT k + 100",
    ):
        with pytest.raises(InvalidInputError, match="INSERT 2 reads the table"):
            sql(spark, text)
    assert (one.refresh().version, other.refresh().version) == (0, 0)
    # Each INSERT has the rows of the version before the statement.
    sql(spark, f"FROM several_one {added} {into}")
    assert sorted(other.refresh().to_arrow()["k"].to_pylist()) == [1, 2]
    sql(spark, f"FROM several_view {into} INSERT OVERWRITE several_one SELECT k + 100")
    assert sorted(one.refresh().to_arrow()["k"].to_pylist()) == [101, 102, 111, 112]


@pytest.mark.slow
def test_a_failed_insert_tells_which_were_committed(
    spark: "SparkSession", two: tuple[txlog.Table, txlog.Table]
) -> None:
    one, other = two
    other.alter.add_constraint({"small": "k < 100"})
    into = f"INSERT INTO delta.`{other.uri}` SELECT k"
    committed = f"committed: delta.`{one.uri}` (version 1)"
    with pytest.raises(TxlogError, match=re.escape(committed)):
        sql(spark, f"FROM several_one INSERT INTO several_one SELECT k + 10 {into} + 100")
    with pytest.raises(TxlogError) as first:
        sql(spark, f"FROM several_one {into} + 100 INSERT INTO several_one SELECT k + 10")
    assert "those before it" not in str(first.value)
    assert one.refresh().version == 1


def test_only_from_has_several_inserts(
    spark: "SparkSession", two: tuple[txlog.Table, txlog.Table]
) -> None:
    with pytest.raises(Exception, match=r"(?i)syntax"):
        sql(spark, "INSERT INTO several_one VALUES (5) INSERT INTO several_one VALUES (6)")
    assert two[0].refresh().version == 0
