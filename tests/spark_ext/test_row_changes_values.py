"""Values and rows of updates, merges and inserts that Spark alone would get wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog.spark_ext import DeltaTable, sql, write
from txlog.spark_ext import table as spark_table
from txlog.spark_ext.writes.change_tasks import PLACE
from txlog.spark_ext.writes.small_sources import LOCAL_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    named = {name.replace("__", "."): value for name, value in values.items()}
    old = {name: spark.conf.get(name, None) for name in named}
    for name, value in named.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in old.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def rows_of(uri: str | Path) -> list[dict[str, Any]]:
    return sorted(txlog.Table(uri).to_arrow().to_pylist(), key=lambda row: str(row))


@pytest.mark.slow
@pytest.mark.spec("SPK-24")
def test_fields_of_structs_in_maps_are_matched_by_name(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    frame = spark.sql("SELECT 1L id, map(1L, named_struct('a', 1, 'b', 2)) m, "
                      "array(map(1L, named_struct('a', 1, 'b', 2))) l")  # fmt: skip
    write(frame, uri)
    given = "map(1, named_struct('b', 20, 'a', 10))"
    source = spark.sql(f"SELECT 1L id, {given} m, array({given}) l")
    table = DeltaTable.forPath(spark, uri).alias("t")
    table.merge(source.alias("s"), "t.id = s.id").whenMatchedUpdateAll().execute()
    wanted = [(1, {"a": 10, "b": 20})]
    assert rows_of(uri) == [{"id": 1, "m": wanted, "l": [wanted]}]
    sql(spark, f"INSERT INTO delta.`{uri}` BY NAME SELECT 2L id, {given} m, array({given}) l")
    assert rows_of(uri)[1] == {"id": 2, "m": wanted, "l": [wanted]}
    table.update("id = 2", {"m": f"{given}"})
    assert rows_of(uri)[1]["m"] == wanted


@pytest.mark.slow
@pytest.mark.spec("SPK-24")
def test_a_struct_with_fewer_fields_is_refused_or_keeps_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "t")
    value = {"a": 1, "b": 2}
    txlog.write(uri, pa.Table.from_pylist([{"id": 1, "st": value, "l": [value]}]))
    table = DeltaTable.forPath(spark, uri).alias("t")
    source = spark.sql("SELECT 1L id, struct(9L AS a) st, array(struct(9L AS a)) l")
    source.createOrReplaceTempView("fewer")
    merger = table.merge(source.alias("s"), "t.id = s.id")
    merges = f"INTO delta.`{uri}` t USING fewer s ON t.id = s.id WHEN MATCHED THEN UPDATE SET"
    for refused in (
        lambda: table.update(set={"st": "struct(9L AS a)"}),
        lambda: table.update(set={"l": "array(struct(9L AS a))"}),
        lambda: sql(spark, f"UPDATE delta.`{uri}` SET st = struct(9L AS a)"),
        lambda: merger.whenMatchedUpdateAll().execute(),
        lambda: merger.whenMatchedUpdate(set={"st": "s.st"}).execute(),
        lambda: sql(spark, f"MERGE {merges} *"),
        lambda: sql(spark, f"MERGE {merges} st = s.st"),
    ):
        with pytest.raises(txlog.SchemaMismatchError, match=r"has no field \w+(.element)?.b"):
            refused()
    assert txlog.Table(uri).version == 0
    evolving = merger.withSchemaEvolution()
    for kept in (
        lambda: evolving.whenMatchedUpdateAll().execute(),
        lambda: evolving.whenMatchedUpdate(set={"st": "s.st", "l": "s.l"}).execute(),
        lambda: sql(spark, f"MERGE WITH SCHEMA EVOLUTION {merges} *"),
        lambda: sql(spark, f"MERGE WITH SCHEMA EVOLUTION {merges} st = s.st, l = s.l"),
    ):
        kept()
        wanted = [{"id": 1, "st": {"a": 9, "b": 2}, "l": [{"a": 9, "b": None}]}]
        assert rows_of(uri) == wanted
        txlog.Table(uri).restore(0)


@pytest.mark.slow
@pytest.mark.spec("SPK-24")
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_values_in_arrays_and_maps_must_fit(spark: SparkSession, tmp_path: Path, ansi: str) -> None:
    uri = str(tmp_path / "t")
    numbers = pa.array([[5]], pa.list_(pa.int32()))
    kept = pa.table({"id": [1], "a": numbers, "s": pa.StructArray.from_arrays([numbers], ["a"])})
    txlog.write(uri, kept)
    sql(spark, f"ALTER TABLE delta.`{uri}` ADD COLUMNS (m MAP<STRING, INT>)")
    with settings(spark, spark__sql__ansi__enabled=ansi):
        for text in (
            f"UPDATE delta.`{uri}` SET a = array('abc', '7')",
            f"UPDATE delta.`{uri}` SET m = map('k', 'zz')",
            f"UPDATE delta.`{uri}` SET s.a = array('abc')",
            f"INSERT INTO delta.`{uri}` (a) VALUES (array(99999999999L))",
        ):
            with pytest.raises(txlog.SchemaMismatchError):
                sql(spark, text)
        sql(spark, f"UPDATE delta.`{uri}` SET a = array('7', null), m = map(1, '8')")
        sql(spark, f"INSERT INTO delta.`{uri}` (id, a, m) VALUES (2, array(), map())")
    first, second = rows_of(uri)
    assert (first["a"], first["m"], first["s"]) == ([7, None], [("1", 8)], {"a": [5]})
    assert (second["a"], second["m"]) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [1, 4])
def test_a_row_that_is_deleted_twice_is_one_change(
    spark: SparkSession, tmp_path: Path, tasks: int
) -> None:
    """Also if its matches are in several tasks: here each task gets some rows of the source."""
    uri = str(tmp_path / "t")
    txlog.write(
        uri, pa.table({"id": range(6), "v": list("abcdef")}),
        properties={"delta.enableChangeDataFeed": "true"},
    )  # fmt: skip
    source = spark.range(0, 100_000, 1, tasks).selectExpr("id % 2 AS k")  # Spark sends the table.
    with settings(spark, **{LOCAL_ROWS.replace(".", "__"): "0"}):
        table = DeltaTable.forPath(spark, uri).alias("t")
        merge = table.merge(source.alias("s"), "t.id = s.k AND upper(t.v) != 'C'")
        merge.whenMatchedDelete().execute()
    table = txlog.Table(uri)
    assert [row["id"] for row in rows_of(uri)] == [2, 3, 4, 5]
    changes = table.changes(1).to_arrow()
    found = sorted((row["_change_type"], row["id"]) for row in changes.to_pylist())
    assert found == [("delete", 0), ("delete", 1)]


def test_changes_of_rows_with_null_structs_whose_fields_must_not_be_null(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark gives a null struct nulls in all of its fields, also in those."""
    inner = pa.struct([pa.field("a", pa.int8(), nullable=False)])
    schema = pa.schema(
        [pa.field("id", pa.int64()), pa.field("st", inner), pa.field("l", pa.list_(inner))]
    )
    made = txlog.Table.create(
        tmp_path / "t", schema, properties={"delta.enableChangeDataFeed": "true"}
    )
    rows = [{"id": 1, "st": None, "l": [None]}, {"id": 2, "st": {"a": 2}, "l": [{"a": 3}]}]
    made.append(pa.Table.from_pylist(rows, schema))
    DeltaTable.forPath(spark, made.uri).update(set={"id": "abs(id) + 10"})
    assert rows_of(made.uri) == [{**row, "id": row["id"] + 10} for row in rows]
    found = made.refresh().changes(start_version=2).to_arrow()
    before = found.filter(pa.compute.equal(found["_change_type"], "update_preimage"))
    assert before.select(["id", "st", "l"]).sort_by("id").to_pylist() == rows


@pytest.mark.exhaustive
def test_a_merge_of_more_clauses_than_a_byte_has_numbers(
    spark: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "t")
    txlog.write(uri, pa.table({"id": [1, 128], "v": [0, 0]}))
    source = spark.createDataFrame([(128,)], "k long").alias("s")
    merge = DeltaTable.forPath(spark, uri).alias("t").merge(source, "t.id = abs(s.k)")
    merge = merge.whenMatchedDelete("s.k = 0")
    for at in range(1, 129):
        merge = merge.whenMatchedUpdate(f"s.k = {at}", {"v": str(100 + at)})
    with settings(spark, spark__sql__ansi__enabled="false"):
        merge.execute()
    assert rows_of(uri) == [{"id": 1, "v": 0}, {"id": 128, "v": 228}]


def test_names_that_a_merge_needs_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    txlog.write(uri, pa.table({"id": [1], PLACE: [1]}))
    with pytest.raises(txlog.UnsupportedFeatureError, match=PLACE):
        DeltaTable.forPath(spark, uri).update("upper(id) = '1'", {"id": "id + 1"})


@pytest.mark.slow
def test_a_column_with_a_dot_is_written(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    frame = spark.createDataFrame([(1, 2)], "x int, id int").toDF("a.b", "id")
    write(frame, uri, properties={"delta.columnMapping.mode": "name"})
    sql(spark, f"INSERT INTO delta.`{uri}` VALUES (7, 8)")
    assert rows_of(uri) == [{"a.b": 1, "id": 2}, {"a.b": 7, "id": 8}]


def test_arguments_of_wrong_types_are_named(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(1)
    wrong: list[dict[str, Any]] = [
        {"properties": "x"}, {"description": 5}, {"cluster_by": [5]}, {"storage_options": 5},
    ]  # fmt: skip
    for more in wrong:
        with pytest.raises(txlog.InvalidTypeError, match=next(iter(more))):
            write(frame, tmp_path / "t", **more)
    with pytest.raises(txlog.InvalidTypeError, match="storage_options"):
        sql(spark, "SELECT 1", **wrong[-1])


@pytest.fixture
def spans(spark: SparkSession, tmp_path: Path) -> str:
    """A table with a column whose name is a word of SQL."""
    uri = str(tmp_path / "spans")
    rows = [(at, at, at + 10) for at in range(5)]
    write(spark.createDataFrame(rows, "id int, `start` int, `end` int"), uri)
    return f"delta.`{uri}`"


def numbers_of(spark: SparkSession, name: str) -> list[tuple[int, ...]]:
    return sorted(map(tuple, sql(spark, f"SELECT * FROM {name}").collect()))


@pytest.mark.slow
def test_a_column_named_end(spark: SparkSession, spans: str) -> None:
    sql(spark, f"UPDATE {spans} SET start = end, id = id WHERE end = 10")
    sql(spark, f"MERGE INTO {spans} t USING {spans} s ON t.end = s.end AND s.id + 0 = 1 WHEN "
               "MATCHED THEN UPDATE SET start = CASE WHEN s.end > 0 THEN 7 END")  # fmt: skip
    sql(spark, f"INSERT INTO {spans} REPLACE WHERE end > 13 SELECT 9, 9, 99")
    wanted = [(0, 10, 10), (1, 7, 11), (2, 2, 12), (3, 3, 13), (9, 9, 99)]
    assert numbers_of(spark, spans) == wanted


@pytest.mark.slow
def test_statements_in_all_forms_of_delta(spark: SparkSession, spans: str) -> None:
    sql(spark, f"OPTIMIZE {spans} ZORDER BY id, start")
    sql(spark, f"MERGE INTO {spans} t USING (VALUES (1), (70)) AS s(k) ON t.id = s.k "
               "WHEN MATCHED THEN DELETE "
               "WHEN NOT MATCHED THEN INSERT (id, start) VALUES (s.k, 0)")  # fmt: skip
    sql(spark, f"WITH x AS (SELECT 71 AS k) INSERT INTO {spans} (id, start) SELECT k, k FROM x")
    sql(spark, f"INSERT INTO {spans} TABLE {spans}")
    found = [row[0] for row in sql(spark, f"TABLE {spans}").collect()]
    assert sorted(found) == sorted([0, 2, 3, 4, 70, 71] * 2)


@pytest.mark.slow
def test_a_query_of_with_that_has_the_name_of_its_table(
    spark: SparkSession, spans: str, tmp_path: Path
) -> None:
    location = spans.removeprefix("delta.").strip("`")
    spark.sql(f"CREATE TABLE named_spans USING txlog LOCATION '{location}'")
    try:
        rows = sql(spark, "WITH named_spans AS (SELECT * FROM named_spans WHERE id < 2), "
                          "b AS (SELECT * FROM named_spans) SELECT id FROM b")  # fmt: skip
        assert sorted(row[0] for row in rows.collect()) == [0, 1]
        sql(spark, f"DELETE FROM {spans} AS t WHERE EXISTS (SELECT 1 FROM named_spans "
                   "WHERE named_spans.id + 1 = t.id AND named_spans.id < 2)")  # fmt: skip
        assert [row[0] for row in numbers_of(spark, spans)] == [0, 3, 4]
    finally:
        spark.sql("DROP TABLE named_spans")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("OPTIMIZE {t} ZORDER BY (id) WHERE nonsense here", "end of the statement"),
        (("MERGE INTO {t} t USING {t} s ON t.id = s.id + 9 WHEN NOT MATCHED THEN "
         "INSERT (id, start, id) VALUES (s.id, 0, 77)"), "id gets two values"),
        ("UPDATE {t} SET id = 1, id = 2", "id gets two values"),
        ("INSERT INTO {t} (id, ID, start) VALUES (1, 2, 3)", "named twice"),
        ("UPDATE {t} SET start = (SELECT max(id) FROM {t})", "queries of tables"),
        (("MERGE INTO {t} t USING {t} s ON t.id = s.id WHEN MATCHED AND "
         "s.id IN (SELECT id FROM {t}) THEN DELETE"), "queries of tables"),
    ],
)  # fmt: skip
def test_malformed_statements_change_nothing(
    spark: SparkSession, spans: str, text: str, problem: str
) -> None:
    before = numbers_of(spark, spans)
    with pytest.raises(txlog.InvalidInputError, match=problem):
        sql(spark, text.replace("{t}", spans))
    assert numbers_of(spark, spans) == before


def test_a_merge_without_a_condition_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would match each row with each row, and the merge would delete all of them."""
    uri = str(tmp_path / "t")
    table = txlog.write(uri, pa.table({"id": [1, 2]}))
    wrong: list[Any] = [None, ["id"], 5]
    for predicate in wrong:
        with pytest.raises(txlog.InvalidTypeError, match="predicate"):
            spark_table(spark, uri).merge(spark.range(3), predicate)
    with pytest.raises(txlog.InvalidTypeError, match="predicate"):
        table.merge(pa.table({"id": [1]}), wrong[0])


def test_variables_in_text_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    txlog.write(uri, pa.table({"s": ["${spark.txlog.word}", "it's", "its"]}))
    values = {
        "spark.txlog.word": "its",
        "spark.sql.legacy.consecutiveStringLiterals.enabled": "true",
    }
    with settings(spark, **values):
        DeltaTable.forPath(spark, uri).delete("s = '${spark.txlog.word}'")
        assert {row["s"] for row in rows_of(uri)} == {"${spark.txlog.word}", "it's"}
        DeltaTable.forPath(spark, uri).delete("s = 'it''s'")
    assert {row["s"] for row in rows_of(uri)} == {"${spark.txlog.word}", "it's"}


def test_alter_takes_one_type(spark: SparkSession, spans: str) -> None:
    for text in (
        "ADD COLUMN w INT v INT",
        "ADD COLUMN g FOO",
        "ALTER COLUMN id TYPE BIGINT, z INT",
    ):
        with pytest.raises(txlog.InvalidInputError, match="is not a type"):
            sql(spark, f"ALTER TABLE {spans} {text}")
    assert sql(spark, f"SELECT * FROM {spans}").columns == ["id", "start", "end"]


def test_a_query_with_a_column_named_insert(spark: SparkSession, spans: str) -> None:
    query = f"WITH x AS (SELECT id AS insert FROM {spans}) SELECT insert FROM x WHERE insert > 3"
    assert [row[0] for row in sql(spark, query).collect()] == [4]
