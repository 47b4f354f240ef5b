"""Statements that change columns, compared with Spark where it has them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import InvalidInputError, NotFoundError, TxlogError, UnsupportedFeatureError
from txlog.spark_ext import sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Run = Callable[[str], list[Any]]


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    rows = [{"id": 1, "s": {"a": 1, "b": "x"}, "x": 0.5}]
    return txlog.write(tmp_path / "t", pa.Table.from_pylist(rows))


@pytest.fixture
def run(spark: "SparkSession", table: txlog.Table) -> Iterator[Run]:
    spark.sql(f"CREATE TABLE altered_t USING txlog LOCATION '{table.uri}'")
    yield lambda text: [tuple(row) for row in sql(spark, text).collect()]
    for row in spark.sql("SHOW TABLES LIKE 'altered_*'").collect():
        spark.sql(f"DROP TABLE {row.tableName}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("ADD COLUMNS (n INT COMMENT 'x, y', m STRING)", "id s x n:x, y m"),
        ("ADD COLUMN n INT, m STRING COMMENT 'x'", "id s x n m:x"),
        ("ADD COLUMN n INT FIRST", "n id s x"),
        ("ADD COLUMNS (n INT AFTER ID, m DECIMAL(10, 2) AFTER n, `o_p` INT FIRST)",
         "o_p id n m s x"),
        ("ADD COLUMN s.c MAP<STRING, INT> COMMENT 'x' FIRST", "id s(c:x a b) x"),
        ("ADD COLUMNS (s.c INT AFTER a, n STRUCT<q: INT COMMENT 'y'>)", "id s(a c b) x n(q:y)"),
        ("CHANGE COLUMN x x DOUBLE COMMENT 'x' FIRST", "x:x id s"),
        ("CHANGE x X DOUBLE AFTER id", "id x s"),
        ("CHANGE COLUMN s.b b STRING COMMENT 'y' FIRST", "id s(b:y a) x"),
        ("CHANGE x COMMENT 'z'", "id s x:z"),
        ("ALTER x COMMENT 'z'", "id s x:z"),
        ("ALTER COLUMN s.a AFTER b", "id s(b a) x"),
    ],
)  # fmt: skip
def test_columns_are_changed_in_one_commit(
    run: Run, table: txlog.Table, change: str, expected: str
) -> None:
    run(f"ALTER TABLE altered_t {change}")
    assert table.refresh().version == 1

    def shown(field: Any) -> str:
        comment = field.metadata.get("comment")
        inner = getattr(field.type, "fields", ())
        return (
            field.name
            + (f"({' '.join(map(shown, inner))})" if inner else "")
            + (f":{comment}" if comment else "")
        )

    found = " ".join(map(shown, table.snapshot.schema.fields))
    if "s(" not in expected:
        found = found.replace("s(a b)", "s")
    assert found == expected
    assert table.to_arrow()["id"].to_pylist() == [1]


@pytest.mark.slow
def test_the_place_of_a_new_column_is_in_the_history(run: Run, table: txlog.Table) -> None:
    run("ALTER TABLE altered_t ADD COLUMNS (n INT FIRST, m INT AFTER id, o INT)")
    (entry,) = table.refresh().history(1)
    assert entry["operation"] == "ADD COLUMNS"
    assert [one in entry["operationParameters"]["columns"] for one in (
        '"position":"FIRST"', '"position":"AFTER id"'
    )] == [True, True]  # fmt: skip


@pytest.mark.slow
def test_a_wider_type_in_a_definition(run: Run, table: txlog.Table) -> None:
    run("ALTER TABLE altered_t ADD COLUMN n INT")
    run("ALTER TABLE altered_t CHANGE COLUMN n n INT COMMENT 'same type'")
    assert "typeWidening" not in (table.refresh().protocol.writer_features or ())
    run("ALTER TABLE altered_t CHANGE COLUMN n n BIGINT COMMENT 'wider'")
    assert table.refresh().schema.field("n").type == pa.int64()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["none", "name"])
def test_a_definition_repeats_a_type_without_its_metadata(
    run: Run, spark: "SparkSession", tmp_path: Path, mode: str
) -> None:
    kind = "STRUCT<a: INT COMMENT 'q', l: ARRAY<STRUCT<b: INT COMMENT 'r'>>, m: MAP<INT, INT>>"
    name = f"delta.`{tmp_path / 'm'}`"
    sql(
        spark,
        f"CREATE TABLE {name} (id INT, st {kind}) USING delta "
        f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}')",
    )
    table = txlog.Table(tmp_path / "m")
    before = table.snapshot.schema.fields[1]
    plain = "STRUCT<a: INT, l: ARRAY<STRUCT<b: INT>>, m: MAP<INT, INT>>"
    run(f"ALTER TABLE {name} CHANGE COLUMN st st {plain} COMMENT 'hi'")
    run(f"ALTER TABLE {name} CHANGE COLUMN st st {kind} FIRST")
    field = table.refresh().snapshot.schema.fields[0]
    assert (field.type, field.metadata["comment"]) == (before.type, "hi")
    version = table.version
    for wrong in (
        plain.replace("a: INT", "a: INT COMMENT 'new'"), plain.replace("b:", "c:"),
        plain.replace("b: INT", "b: STRING"), plain.replace("a: INT", "a: INT NOT NULL"),
        plain.replace("MAP<INT, INT>", "MAP<INT, STRING>"), plain.replace("a: INT, ", ""),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError):
            run(f"ALTER TABLE {name} CHANGE COLUMN st st {wrong} COMMENT 'no'")
    assert table.refresh().version == version


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("ADD COLUMN e INT DEFAULT 5", "SET DEFAULT"),
        ("ADD COLUMN e INT NOT NULL", "must be nullable"),
        ("ADD COLUMN e BIGINT GENERATED ALWAYS AS IDENTITY", "existing rows"),
        ("ADD COLUMN e INT AFTER none", "no column none"),
        ("ADD COLUMNS (e INT, id INT)", "already has"),
        ("ADD COLUMN id.e INT", "not a struct"),
        ("ADD COLUMN e INT FIRST AFTER id", "one NOT NULL"),
        ("ADD COLUMN e INT COMMENT x", "a text in quotes"),
        ("ADD COLUMNS (e INT) FIRST", "end of the statement"),
        ("ADD COLUMN e INT f INT", "not a type"),
        ("CHANGE COLUMN x y DOUBLE", "RENAME COLUMN"),
        ("CHANGE COLUMN x x STRING", "x"),
        ("CHANGE COLUMN x x DOUBLE DEFAULT 5", "SET DEFAULT"),
        ("CHANGE COLUMN x x DOUBLE SOMETHING", "not a type"),
        ("CHANGE COLUMN x", "supports"),
        ("REPLACE COLUMNS (id BIGINT)", "lacks the columns"),
        ("ADD PARTITION (p = 1)", "supports"),
    ],
)  # fmt: skip
def test_what_is_refused_is_not_begun(run: Run, table: txlog.Table, change: str, said: str) -> None:
    with pytest.raises(TxlogError, match=said):
        run(f"ALTER TABLE altered_t {change}")
    assert table.refresh().version == 0


@pytest.mark.slow
def test_comments(run: Run, table: txlog.Table) -> None:
    run("COMMENT ON TABLE altered_t IS 'it''s'")
    run("COMMENT ON COLUMN altered_t.id IS 'the id'")
    run("COMMENT ON COLUMN default.altered_t.s.a IS 'inner'")
    run(f"COMMENT ON COLUMN delta.`{table.uri}`.x IS 'x'")
    assert table.refresh().metadata.description == "it's"
    one, two, three = table.snapshot.schema.fields
    comments = [one.metadata, two.type.fields[0].metadata, three.metadata]  # type: ignore[union-attr]
    assert [found["comment"] for found in comments] == ["the id", "inner", "x"]
    run("COMMENT ON COLUMN altered_t.id IS NULL")
    run("COMMENT ON TABLE altered_t IS NULL")
    assert table.refresh().metadata.description is None
    assert dict(table.snapshot.schema.fields[0].metadata) == {}
    version = table.version
    for text in ("COMMENT ON TABLE altered_t IS it", "COMMENT ON COLUMN altered_t.none IS 'x'"):
        with pytest.raises(InvalidInputError):
            run(text)
    assert table.refresh().version == version


@pytest.mark.slow
def test_names_of_the_catalog_change(run: Run, table: txlog.Table, tmp_path: Path) -> None:
    run("ALTER TABLE altered_t RENAME TO altered_u")
    assert run("SELECT count(*) FROM altered_u") == [(1,)]
    other = txlog.write(tmp_path / "other", pa.table({"id": [1, 2, 3]}))
    with pytest.raises(NotFoundError):
        run(f"ALTER TABLE altered_u SET LOCATION '{tmp_path / 'none'}'")
    assert run("SELECT count(*) FROM altered_u") == [(1,)]
    run(f"ALTER TABLE altered_u SET LOCATION '{other.uri}'")
    assert run("SELECT count(*) FROM altered_u") == [(3,)]
    with pytest.raises(InvalidInputError, match="set_name"):
        run(f"ALTER TABLE delta.`{table.uri}` RENAME TO altered_v")


def test_tables_of_column_files_get_columns_at_the_end(run: Run, table: txlog.Table) -> None:
    table.alter.add_features("txlog.fragments")
    version = table.version
    with pytest.raises(UnsupportedFeatureError, match="move_column"):
        run("ALTER TABLE altered_t ADD COLUMN e INT FIRST")
    assert table.refresh().version == version
    run("ALTER TABLE altered_t ADD COLUMN e INT")
    run("ALTER TABLE altered_t ALTER COLUMN e FIRST")
    assert table.refresh().schema.names == ["e", "id", "s", "x"]


def test_columns_are_listed_anew(spark: "SparkSession", tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "s": ["x"]})
    table = txlog.write(tmp_path / "t", rows)
    name = f"delta.`{table.uri}`"
    sql(spark, f"ALTER TABLE {name} REPLACE COLUMNS (n INT, S STRING COMMENT 'c', id BIGINT)")
    assert table.refresh().to_arrow().to_pylist() == [{"n": None, "s": "x", "id": 1}]
    assert table.version == 1
    assert table.snapshot.schema.fields[1].metadata == {"comment": "c"}
    for columns, reason in (
        ("(n INT, id BIGINT)", "lacks the columns s"),
        ("(n INT, s STRING, id INT)", "id is long, not integer"),
        ("(n INT, s STRING, id BIGINT, k INT NOT NULL)", "must be nullable"),
        ("(n INT, s STRING, id BIGINT, ID BIGINT)", "ID|id"),
        ("(n INT, s STRING, id BIGINT, a.b INT)", "nested"),
        ("(n INT, s STRING NOT NULL, id BIGINT)", "s may be null"),
    ):
        with pytest.raises(InvalidInputError, match=reason):
            sql(spark, f"ALTER TABLE {name} REPLACE COLUMNS {columns}")
    assert table.refresh().version == 1


def test_the_list_says_what_is_within_structs(spark: "SparkSession", tmp_path: Path) -> None:
    name = f"delta.`{tmp_path / 't'}`"

    def run(text: str) -> None:
        sql(spark, text)

    run(f"CREATE TABLE {name} (id INT, st STRUCT<a: INT COMMENT 'old', b: INT NOT NULL>, "
        "l ARRAY<STRUCT<c: INT>>) USING delta")  # fmt: skip
    table = txlog.Table(tmp_path / "t")
    run(f"ALTER TABLE {name} REPLACE COLUMNS (st STRUCT<a: INT, b: INT NOT NULL COMMENT 'new'>, "
        "l ARRAY<STRUCT<c: INT COMMENT 'inner'>> COMMENT 'list', id INT)")  # fmt: skip
    st, items, _ = table.refresh().snapshot.schema.fields
    assert [one.metadata for one in st.type.fields] == [{}, {"comment": "new"}]
    assert [one.nullable for one in st.type.fields] == [True, False]
    assert items.metadata == {"comment": "list"}
    assert items.type.element.fields[0].metadata == {"comment": "inner"}
    for columns, field in (
        ("st STRUCT<a: INT NOT NULL, b: INT NOT NULL>, l ARRAY<STRUCT<c: INT>>, id INT", "st.a"),
        ("st STRUCT<a: INT, b: INT>, l ARRAY<STRUCT<c: INT NOT NULL>>, id INT", "l.element.c"),
    ):
        with pytest.raises(InvalidInputError, match="may be null") as caught:
            run(f"ALTER TABLE {name} REPLACE COLUMNS ({columns})")
        assert caught.value.field == field
    assert table.refresh().version == 1


def test_statistics_are_computed(spark: "SparkSession", tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "p": ["x", "y"], "s": ["a", "b"]})
    none = {"delta.dataSkippingNumIndexedCols": "0"}
    table = txlog.write(tmp_path / "t", rows, partition_by="p", properties=none)
    name = f"delta.`{table.uri}`"
    for text in ("NOSCAN", "FOR COLUMNS id", "FOR COLUMNS (s)"):
        sql(spark, f"ANALYZE TABLE {name} PARTITION (p = 'x') COMPUTE STATISTICS {text}")
    assert table.refresh().version == 2
    table.alter.unset_properties(["delta.dataSkippingNumIndexedCols"])
    sql(spark, f"ANALYZE TABLE {name} COMPUTE DELTA STATISTICS")
    assert table.scan(where="id = 2").file_uris() != table.scan().file_uris()
    assert len(table.refresh().scan(where="id > 2").file_uris()) == 0


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE @ ADD CONSTRAINT c CHECK (nothing > 1)",
        "ALTER TABLE @ RENAME COLUMN nothing TO n",
        "ALTER TABLE @ SET TBLPROPERTIES ('delta.appendOnly' = 'x')",
        "UPDATE @ SET nothing = 1",
        "INSERT OVERWRITE @ PARTITION (nothing = 1) SELECT 1",
        "OPTIMIZE @ ZORDER BY (nothing)",
        "VACUUM @ RETAIN -1 HOURS",
        "RESTORE TABLE @ TO VERSION AS OF 9",
        "SELECT * FROM table_changes('nothing', 0)",
    ],
)
def test_errors_name_the_statement_and_no_argument_of_a_call(
    spark: "SparkSession", tmp_path: Path, text: str
) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": [1]}))
    with pytest.raises(TxlogError) as caught:
        sql(spark, text.replace("@", f"delta.`{table.uri}`"))
    assert getattr(caught.value, "argument", "text") == "text"
