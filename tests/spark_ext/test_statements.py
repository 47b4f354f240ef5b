"""SQL statements that Spark itself refuses: `spark_ext.sql`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import InvalidInputError, NotFoundError, SchemaMismatchError
from txlog.spark_ext import sql
from txlog.spark_ext.statements.statement_text import Reader, Relation, references, tokens_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def reader(text: str) -> Reader:
    return Reader(text, tokens_of(text))


def test_expressions_are_cut_out_as_they_are() -> None:
    text = (
        "case when a = 'WHEN MATCHED' /* WHEN MATCHED */ then f(x, [1, 2]) end >= {`WHEN`} "
        "WHEN MATCHED"
    )
    found = reader(text)
    assert found.until(("WHEN", "MATCHED")) == text.removesuffix(" WHEN MATCHED")
    assert found.accepts("WHEN", "MATCHED")
    found.end()
    assert reader("(a, f(b, c), 'x, y') -- z;").items() == ["a", "f(b, c)", "'x, y'"]
    kinds = reader("(a STRUCT<b: INT, c: ARRAY<MAP<INT, INT>>>, d INT)").items(types=True)
    assert kinds == ["a STRUCT<b: INT, c: ARRAY<MAP<INT, INT>>>", "d INT"]
    assert reader("(SELECT 1) AS s ON").relation("ON") == Relation("(SELECT 1)", "s")
    assert reader("a.b VERSION AS OF 3 s").relation() == Relation("a.b VERSION AS OF 3", "s")
    assert reader("range(3) ON").relation("ON") == Relation("range(3)", None)
    assert reader("('a.b' = 'it''s', c.d = true)").properties(valued=True) == {
        "a.b": "it's",
        "c.d": "true",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1", []),
        ("SELECT * FROM a JOIN b.`c d` AS x ON a.y = x.y", [("a", False), ("b.`c d`", True)]),
        ("WITH a AS (SELECT * FROM b) SELECT * FROM a", [("b", False)]),
        ("SELECT * FROM delta.`/p` t, range(3)", [("delta.`/p`", True)]),
        ("SELECT (SELECT max(x) FROM a VERSION AS OF 2) FROM b", [("a", False), ("b", False)]),
        ("FROM txlog.`/p@v7` TIMESTAMP WHERE |> oddities <|", [("txlog.`/p`", True)]),
        ("SELECT 'FROM a' FROM /* FROM b */ c", [("c", False)]),
    ],
)  # fmt: skip
def test_tables_of_a_query_are_found(text: str, expected: list[tuple[str, bool]]) -> None:
    assert [(one.name, one.has_alias) for one in references(text)] == expected


def test_moments_are_found() -> None:
    text = (
        "SELECT * FROM delta.`/a@v7` JOIN t VERSION AS OF 2 JOIN u FOR TIMESTAMP AS OF "
        "current_timestamp() - INTERVAL 1 DAY AS z JOIN v TIMESTAMP AS OF '2026-11-01'"
    )
    moments = [one.moment for one in references(text) if one.moment is not None]
    assert [(one.version, one.timestamp) for one in moments] == [
        (7, None),
        (2, None),
        (None, "current_timestamp() - INTERVAL 1 DAY"),
        (None, "'2026-11-01'"),
    ]


class Ours:
    """A table that the catalog has, and one of Spark's own."""

    def __init__(self, spark: "SparkSession", home: Path) -> None:
        self.spark = spark
        rows = [{"id": n, "x": n * 0.5, "s": f"s{n}"} for n in range(10)]
        self.table = txlog.write(
            home / "t", pa.Table.from_pylist(rows), options=txlog.WriteOptions(max_rows_per_file=4)
        )
        self.table.delete("id = 0")
        spark.sql(f"CREATE TABLE statements_t USING txlog LOCATION '{home / 't'}'")
        spark.sql("CREATE TABLE statements_u USING parquet AS SELECT 5 AS id, 'u' AS s")

    def __call__(self, text: str) -> list[Any]:
        text = text.replace("@PATH", f"delta.`{self.table.uri}`")
        return [tuple(row) for row in sql(self.spark, text).collect()]

    def column(self, name: str = "id") -> list[Any]:
        return self.table.refresh().to_arrow().sort_by("id")[name].to_pylist()


@pytest.fixture
def ours(spark: "SparkSession", tmp_path: Path) -> Any:
    yield Ours(spark, tmp_path)
    for name in ("statements_t", "statements_u"):
        spark.sql(f"DROP TABLE {name}")


@pytest.mark.slow
@pytest.mark.spark
def test_queries(ours: Ours) -> None:
    assert ours("SELECT count(*) FROM @PATH") == [(9,)]
    assert ours("SELECT v.id, '{x}' FROM @PATH VERSION AS OF 0 v WHERE v.id < 1") == [(0, "{x}")]
    joined = "FROM statements_t JOIN statements_u AS u ON statements_t.id = u.id"
    assert ours(f"SELECT statements_t.x, u.s {joined}") == [(2.5, "u")]
    assert ours("WITH statements_t AS (SELECT 5 AS q) SELECT * FROM statements_t") == [(5,)]
    when = "timestamp_millis(" + str(txlog.Table(ours.table.uri, 0).timestamp_ms) + ")"
    assert ours(f"SELECT min(id) FROM statements_t TIMESTAMP AS OF {when}") == [(0,)]
    assert ours("SELECT id FROM statements_u;") == [(5,)]
    with pytest.raises(NotFoundError):
        ours("SELECT * FROM statements_t VERSION AS OF 9")


@pytest.mark.slow
@pytest.mark.spark
def test_changes_of_rows(ours: Ours) -> None:
    assert ours(
        "MERGE INTO statements_t AS t USING (SELECT * FROM @PATH VERSION AS OF 0 WHERE id < 4 "
        "UNION ALL SELECT 77, 1.5, 'new') s ON t.id = s.id "
        "WHEN MATCHED AND t.id = CASE WHEN true THEN 1 END THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET t.x = s.x + 100, s = concat(s.s, ', WHEN MATCHED THEN') "
        "WHEN NOT MATCHED THEN INSERT (id, x, s) VALUES (s.id, s.x, upper(s.s)) "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 9 THEN UPDATE SET x = -1;"
    ) == [(6, 3, 1, 2)]
    assert ours.column() == [0, 2, 3, 4, 5, 6, 7, 8, 9, 77]
    assert ours.column("x")[:3] == [0.0, 101.0, 101.5]
    assert ours.column("s")[1] == "s2, WHEN MATCHED THEN"
    chosen = "statements_t.id IN (SELECT id FROM statements_u)"
    assert ours(f"UPDATE statements_t SET x = 9, s = 'it''s' WHERE {chosen}") == [(1,)]
    assert (ours.column("x")[4], ours.column("s")[4]) == (9.0, "it's")
    assert ours("DELETE FROM @PATH AS t WHERE t.id % 2 = 1 -- odd ones") == [(5,)]
    ours("INSERT INTO statements_t SELECT 100, 2.0, 'new'")
    ours("INSERT INTO statements_t (s, id) VALUES ('z', 101), ('z', 102)")
    assert ours.column() == [0, 2, 4, 6, 8, 100, 101, 102]
    ours("INSERT INTO @PATH REPLACE WHERE id > 50 SELECT 60, 0, NULL")
    assert ours.column() == [0, 2, 4, 6, 8, 60]
    ours(
        "MERGE WITH SCHEMA EVOLUTION INTO statements_t USING (SELECT 60 AS id, true AS more) s "
        "ON statements_t.id = s.id WHEN MATCHED THEN UPDATE SET *"
    )
    assert ours.column("more") == [None] * 5 + [True]


MERGE = "MERGE INTO @PATH AS s USING (SELECT 1 AS id, 7 AS v) AS t ON s.id = t.id"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE @PATH AS s SET s.v = 7, s.x = 8, s.s.x = 9 WHERE s.id = 1",
        f"{MERGE} WHEN MATCHED THEN UPDATE SET s.v = t.v, s.x = 8, s.s.x = 9",
        f"{MERGE} AND hash(t.v) <> 0 WHEN MATCHED THEN UPDATE SET s.v = t.v, s.x = 8, s.s.x = 9",
    ],
)
def test_an_alias_named_like_a_struct(ours: Ours, change: str) -> None:
    """Spark takes `s.v` as a column v of the alias s, and else as a field of the column s."""
    ours(
        "CREATE OR REPLACE TABLE @PATH AS SELECT 1 AS id, 1 AS x, "
        "named_struct('id', 10, 'v', 1, 'x', 1) AS s"
    )
    ours(change)
    assert ours("SELECT s.id, s.x, s.v, s.s.id, s.s.x FROM @PATH AS s") == [(1, 8, 7, 10, 9)]


@pytest.mark.spark
def test_upkeep(ours: Ours) -> None:
    assert ours("OPTIMIZE statements_t")[0][1].numFilesAdded == 1
    ordered = ours("OPTIMIZE @PATH ZORDER BY (id, x)")[0][1]
    assert (ordered.numFilesAdded, ordered.zOrderStats.strategyName) == (1, "all")
    ours("GENERATE symlink_format_manifest FOR TABLE statements_t")
    assert Path(ours.table.uri, "_symlink_format_manifest", "manifest").exists()
    assert ours("VACUUM @PATH RETAIN 168 HOURS DRY RUN") == []
    assert ours("VACUUM statements_t") == [(ours.table.uri,)]
    history = ours("DESCRIBE HISTORY statements_t LIMIT 2")
    assert [row[4] for row in history] == ["OPTIMIZE", "OPTIMIZE"]
    assert ours("DESC DETAIL @PATH")[0][0] == "delta"
    assert ours("RESTORE TABLE statements_t TO VERSION AS OF 0")[0][4] > 0
    assert ours.column() == list(range(10))


@pytest.mark.spark
def test_other_columns_and_properties(ours: Ours) -> None:
    ours("ALTER TABLE statements_t SET TBLPROPERTIES ('owner' = 'me', delta.appendOnly = true)")
    ours("ALTER TABLE statements_t UNSET TBLPROPERTIES IF EXISTS ('delta.appendOnly', 'none')")
    assert ours.table.refresh().properties["owner"] == "me"
    assert ours.table.properties.get("delta.appendOnly") != "true"
    columns = "y INT COMMENT 'a, b', st STRUCT<q: INT, r: DECIMAL(10, 2)>"
    ours(f"ALTER TABLE @PATH ADD COLUMNS ({columns})")
    ours("ALTER TABLE statements_t ADD COLUMN st.z DATE")
    ours("ALTER TABLE statements_t ALTER COLUMN y TYPE BIGINT")
    ours("ALTER TABLE statements_t ALTER COLUMN y FIRST")
    ours("ALTER TABLE statements_t ALTER COLUMN id SET NOT NULL")
    schema = ours.table.refresh().schema
    assert schema.names == ["y", "id", "x", "s", "st"]
    assert (schema.field("y").type, schema.field("id").nullable) == (pa.int64(), False)
    assert schema.field("st").type.field("z").type == pa.date32()
    ours("ALTER TABLE statements_t ADD CONSTRAINT positive CHECK (id >= 0 AND id < 1000)")
    with pytest.raises(SchemaMismatchError, match="positive"):
        ours("INSERT INTO statements_t (id) VALUES (2000)")
    ours("ALTER TABLE statements_t DROP CONSTRAINT positive")
    ours("ALTER TABLE statements_t SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    ours("ALTER TABLE statements_t RENAME COLUMN s TO `text of it`")
    ours("ALTER TABLE statements_t DROP COLUMN x")
    assert ours.table.refresh().schema.names == ["y", "id", "text of it", "st"]


@pytest.mark.spark
def test_tables_are_made(ours: Ours, tmp_path: Path) -> None:
    columns = (
        "id INT NOT NULL COMMENT 'the id', st STRUCT<a: INT, b: STRING>, "
        "twice INT GENERATED ALWAYS AS (id * 2) COMMENT 'computed'"
    )
    more = f"LOCATION '{tmp_path / 'v'}' COMMENT 'made' TBLPROPERTIES ('owner' = 'me')"
    made_by = f"({columns}) USING delta PARTITIONED BY (id) {more}"
    ours(f"CREATE TABLE IF NOT EXISTS statements_v {made_by}")
    ours("INSERT INTO statements_v (id) VALUES (4)")
    made = txlog.Table(tmp_path / "v")
    assert made.to_arrow().to_pylist() == [{"id": 4, "st": None, "twice": 8}]
    assert (made.partition_columns, made.metadata.description) == (["id"], "made")
    described = made.snapshot.schema.get("id")
    assert described is not None
    assert described.metadata["comment"] == "the id"
    assert ours("SHOW TBLPROPERTIES statements_v ('owner')") == [("owner", "me")]
    ours("CREATE OR REPLACE TABLE statements_v (x BIGINT) USING txlog")
    assert made.refresh().schema.names == ["x"]
    ours("DROP TABLE statements_v")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("how", ["", "OR REPLACE "])
def test_a_path_names_the_format(ours: Ours, tmp_path: Path, how: str) -> None:
    """Without USING, and though the session's own format is another one."""
    path = f"delta.`{tmp_path / 'made'}`"
    ours(f"CREATE {how}TABLE {path} (id INT, s STRING)")
    ours(f"INSERT INTO {path} VALUES (1, 'a')")
    ours(f"CREATE OR REPLACE TABLE {path} AS SELECT id FROM {path}")
    assert txlog.Table(tmp_path / "made").to_arrow().to_pylist() == [{"id": 1}]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("rest", ["(id INT) {}", "{} AS SELECT 1 AS id", "LIKE statements_t {}"])
def test_a_path_and_another_location_are_refused(ours: Ours, tmp_path: Path, rest: str) -> None:
    named, other = tmp_path / "named", tmp_path / "other"
    elsewhere, same = (rest.format(f"LOCATION '{one}'") for one in (other, f"file:{named}/"))
    with pytest.raises(InvalidInputError, match="its location is"):
        ours(f"CREATE TABLE delta.`{named}` {elsewhere}")
    assert not named.exists()
    assert not other.exists()
    ours(f"CREATE TABLE delta.`{named}` {same}")
    assert txlog.Table(named).version == 0


@pytest.mark.slow
@pytest.mark.spark
def test_tables_are_made_of_queries(ours: Ours, tmp_path: Path) -> None:
    place = tmp_path / "q"
    source = txlog.write(tmp_path / "source", pa.table({"id": [1, 2, 3], "p": ["x", "y", "x"]}))
    given = f"SELECT id, p FROM delta.`{source.uri}` WHERE id > 1"
    more = f"LOCATION '{place}' COMMENT 'made' TBLPROPERTIES ('owner' = 'me')"
    ours(f"CREATE TABLE statements_q USING delta PARTITIONED BY (p) {more} AS {given}")
    made = txlog.Table(place)
    assert (made.version, made.partition_columns, made.properties["owner"]) == (0, ["p"], "me")
    assert made.metadata.description == "made"
    assert made.history()[0]["operation"] == "CREATE TABLE AS SELECT"
    assert sorted(made.to_arrow()["id"].to_pylist()) == [2, 3]
    assert ours("SELECT count(*) AS n FROM statements_q") == [(2,)]
    ours(f"CREATE TABLE IF NOT EXISTS statements_q USING delta LOCATION '{place}' AS {given}")
    assert made.refresh().version == 0
    with pytest.raises(txlog.AlreadyExistsError):
        ours(f"CREATE TABLE statements_q USING delta LOCATION '{place}' AS {given}")
    ours("CREATE OR REPLACE TABLE statements_q USING delta AS SELECT 7 AS x, 'z' AS p")
    assert made.refresh().to_arrow().to_pylist() == [{"x": 7, "p": "z"}]
    assert (made.version, made.partition_columns) == (1, [])
    clustered = tmp_path / "c"
    ours(f"CREATE TABLE delta.`{clustered}` USING delta CLUSTER BY (id) AS {given}")
    assert "clustering" in (txlog.Table(clustered).protocol.writer_features or ())
    ours("DROP TABLE statements_q")


@pytest.mark.slow
@pytest.mark.spark
def test_conditions_with_queries_of_tables(ours: Ours, tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "changed", pa.table({"id": [1, 2, 3, 4]}))
    other = txlog.write(tmp_path / "asked", pa.table({"k": [2, 4]}))
    chosen = f"(SELECT k FROM delta.`{other.uri}`)"
    ours(f"UPDATE delta.`{table.uri}` SET id = id + 10 WHERE id IN {chosen}")
    assert sorted(table.refresh().to_arrow()["id"].to_pylist()) == [1, 3, 12, 14]
    ours(f"DELETE FROM delta.`{table.uri}` WHERE id - 10 IN {chosen}")
    assert sorted(table.refresh().to_arrow()["id"].to_pylist()) == [1, 3]


@pytest.mark.slow
@pytest.mark.spark
def test_paths_without_a_slash(ours: Ours, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ours("SELECT count(*) FROM txlog.`t` VERSION AS OF 0") == [(10,)]
    assert ours("SELECT t.id FROM Delta.t WHERE t.id = 3") == [(3,)]
    assert ours("DELETE FROM delta.t WHERE id = 3") == [(1,)]
    for text in ("SELECT * FROM txlog.`nope`", "DELETE FROM txlog.nope"):
        with pytest.raises(NotFoundError, match=r"Check the path: txlog.`./nope`"):
            ours(text)
    ours.spark.sql("CREATE SCHEMA IF NOT EXISTS txlog")
    try:
        ours.spark.sql("CREATE TABLE txlog.t USING parquet AS SELECT 7 AS id")
        assert ours("SELECT id FROM txlog.t") == [(7,)]  # The catalog comes first.
    finally:
        ours.spark.sql("DROP SCHEMA txlog CASCADE")


@pytest.mark.spark
def test_what_is_spark_s_own_stays_so(ours: Ours) -> None:
    from pyspark.errors import AnalysisException

    ours("ALTER TABLE statements_u SET TBLPROPERTIES ('a' = 'b')")
    assert ("a", "b") in ours("SHOW TBLPROPERTIES statements_u")
    with pytest.raises(AnalysisException, match="does not support DELETE"):
        ours("DELETE FROM statements_u")
    for text in (
        "MERGE INTO statements_t USING statements_u ON true WHEN MATCHED THEN FOO",
        "ALTER TABLE statements_t FOO",
        "UPDATE statements_t SET",
        "VACUUM statements_t RETAIN many HOURS",
        "INSERT INTO statements_t VALUES (1)",
    ):
        with pytest.raises(InvalidInputError) as caught:
            ours(text)
        assert caught.value.argument == "text"
    assert ours.table.refresh().version == 1


@pytest.mark.slow
@pytest.mark.spark
def test_over_spark_connect(remote: Callable[..., Any], tmp_path: Path) -> None:
    def work(spark: "SparkSession", path: str) -> Any:
        from txlog.base.errors import TxlogError
        from txlog.spark_ext import sql

        update = f"UPDATE delta.`{path}` SET n = n + 1 WHERE id > 7"
        count = sql(spark, update).collect()[0].num_affected_rows
        query = f"SELECT sum(b.n) AS n FROM delta.`{path}` VERSION AS OF 0 a, delta.`{path}` b"
        nothing = sql(spark, f"VACUUM delta.`{path}` DRY RUN").collect()
        total = sql(spark, query).collect()[0].n
        given = "SELECT default, DEFAULT FROM (SELECT 100 AS default)"
        sql(spark, f"INSERT INTO delta.`{path}` {given}")
        sql(spark, f"INSERT INTO delta.`{path}` SELECT 200, DEFAULT")
        try:
            sql(spark, f"INSERT INTO delta.`{path}` SELECT DISTINCT 300, DEFAULT")
        except TxlogError as error:
            return count, total, nothing, error.code

    made = txlog.write(tmp_path / "t", pa.table({"id": range(10), "n": [0] * 10}))
    assert remote(work, made.uri) == (2, 20, [], "invalid-input")
    rows = {(row["id"], row["n"]) for row in made.refresh().to_arrow().to_pylist()}
    assert {row for row in rows if row[0] > 9} == {(100, 100), (200, None)}


@pytest.mark.slow
@pytest.mark.spark
def test_tables_are_named_by_quoted_paths(ours: Ours) -> None:
    path = ours.table.uri
    assert len(ours(f"DESCRIBE HISTORY '{path}'")) == 2
    assert len(ours(f"DESCRIBE DETAIL '{path}'")) == 1
    assert ours(f"VACUUM '{path}' DRY RUN") == []
    assert ours(f"OPTIMIZE '{path}'")[0][1]["numFilesRemoved"] == 3
    ours(f"ALTER TABLE '{path}' SET TBLPROPERTIES ('a.b' = 'c')")
    assert ours.table.refresh().properties["a.b"] == "c"
    ours(f"RESTORE TABLE '{path}' TO VERSION AS OF 0")
    assert ours.column() == [*range(10)]
    with pytest.raises(NotFoundError):
        ours(f"VACUUM '{path}/none'")


@pytest.mark.spark
def test_a_reorganisation_removes_deleted_rows_from_files(ours: Ours) -> None:
    before = ours.table.files(["path", "num_deleted"])
    (row,) = ours("REORG TABLE @PATH APPLY (PURGE)")
    assert (row[1]["numFilesRemoved"], row[1]["numFilesAdded"]) == (1, 1)
    after = ours.table.refresh().files(["path", "num_deleted"])
    assert len({*before["path"].to_pylist()} & {*after["path"].to_pylist()}) == 2
    assert set(after["num_deleted"].to_pylist()) == {0}
    assert ours.column() == [*range(1, 10)]
    assert ours("REORG TABLE @PATH APPLY (PURGE)")[0][1]["numFilesRemoved"] == 0
    with pytest.raises(InvalidInputError, match="APPLY"):
        ours("REORG TABLE @PATH")


@pytest.mark.spark
def test_a_truncation_removes_all_rows(ours: Ours) -> None:
    assert ours("TRUNCATE TABLE statements_t") == []
    assert ours.column() == []
    with pytest.raises(InvalidInputError, match="end of the statement"):
        ours("TRUNCATE TABLE statements_t PARTITION (a = 1)")


@pytest.mark.slow
@pytest.mark.spark
def test_tables_are_cloned(ours: Ours, spark: "SparkSession", tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    ours(f"CREATE TABLE delta.`{copy}` SHALLOW CLONE statements_t VERSION AS OF 0")
    assert txlog.Table(copy).count() == 10
    ours(f"CREATE TABLE IF NOT EXISTS delta.`{copy}` CLONE statements_t")
    assert txlog.Table(copy).count() == 10
    with pytest.raises(Exception, match="already"):
        ours(f"CREATE TABLE delta.`{copy}` CLONE statements_t")
    ours(
        f"CREATE OR REPLACE TABLE delta.`{copy}` DEEP CLONE @PATH "
        "TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 9 days')"
    )
    cloned = txlog.Table(copy)
    assert cloned.count() == 9
    assert cloned.properties["delta.logRetentionDuration"] == "interval 9 days"
    try:
        ours(f"CREATE TABLE statements_c CLONE @PATH LOCATION '{tmp_path / 'named'}'")
        assert ours("SELECT count(*) FROM statements_c") == [(9,)]
    finally:
        spark.sql("DROP TABLE IF EXISTS statements_c")


@pytest.mark.slow
@pytest.mark.spark
def test_files_are_converted(ours: Ours, spark: "SparkSession", tmp_path: Path) -> None:
    spark.range(4).selectExpr("id", "id % 2 AS p").write.partitionBy("p").parquet(
        str(tmp_path / "plain")
    )
    ours(f"CONVERT TO DELTA parquet.`{tmp_path / 'plain'}` NO STATISTICS PARTITIONED BY (p BIGINT)")
    table = txlog.Table(tmp_path / "plain")
    assert (table.count("p = 1"), table.partition_columns) == (2, ["p"])
    with pytest.raises(InvalidInputError, match="parquet"):
        ours("CONVERT TO DELTA statements_t")


@pytest.mark.slow
@pytest.mark.spark
def test_rows_are_inserted_into_partitions(
    ours: Ours, spark: "SparkSession", tmp_path: Path
) -> None:
    place = tmp_path / "days"
    schema = pa.schema([("d", pa.string()), ("n", pa.int64()), ("h", pa.int32())])
    txlog.Table.create(place, schema, ["d", "h"])

    def rows() -> list[tuple[Any, ...]]:
        found = txlog.Table(place).to_arrow().to_pylist()
        return sorted((row["d"], row["h"], row["n"]) for row in found)

    ours(f"INSERT INTO delta.`{place}` PARTITION (d = 'a', h = 1) SELECT 5")
    ours(f"INSERT INTO delta.`{place}` PARTITION (D = 'a', h) VALUES (6, 2), (7, 1)")
    ours(f"INSERT INTO delta.`{place}` PARTITION (d = 'b', h) (h, n) SELECT 1, 8")
    assert rows() == [("a", 1, 5), ("a", 1, 7), ("a", 2, 6), ("b", 1, 8)]
    ours(f"INSERT OVERWRITE delta.`{place}` PARTITION (d = 'a', h = 1) SELECT 9")
    assert rows() == [("a", 1, 9), ("a", 2, 6), ("b", 1, 8)]
    ours(f"INSERT OVERWRITE delta.`{place}` PARTITION (d = 'a', h) SELECT 10, 3")
    assert rows() == [("a", 3, 10), ("b", 1, 8)]
    before = spark.conf.get("spark.sql.sources.partitionOverwriteMode")
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        ours(f"INSERT OVERWRITE delta.`{place}` PARTITION (d = 'a', h) SELECT 11, 4")
    finally:
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", before)
    assert rows() == [("a", 3, 10), ("a", 4, 11), ("b", 1, 8)]
    for part, said in (("n = 1", "no partition column"), ("d = 'a', D = 'b'", "named twice")):
        with pytest.raises(InvalidInputError, match=said):
            ours(f"INSERT INTO delta.`{place}` PARTITION ({part}) SELECT 1")
    with pytest.raises(InvalidInputError, match="Omit PARTITION"):
        ours("INSERT INTO statements_t PARTITION (d = 'a') SELECT 1")


@pytest.mark.slow
@pytest.mark.spark
def test_the_value_of_a_partition_is_one_constant_of_its_type(ours: Ours, tmp_path: Path) -> None:
    place = tmp_path / "texts"
    rows = pa.table({"id": [0, 1, 2, 3], "p": ["1", "01", "x", None], "q": [1, 1, 2, 1]})
    table = txlog.write(place, rows, partition_by=["p", "q"])

    def stored() -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in table.refresh().to_arrow().to_pylist())

    ours(f"INSERT OVERWRITE delta.`{place}` PARTITION (p = 1, q = 1) SELECT 9")
    assert stored() == [(1, "01", 1), (2, "x", 2), (3, None, 1), (9, "1", 1)]
    ours(f"INSERT OVERWRITE delta.`{place}` PARTITION (p = NULL, q = '01') SELECT 8")
    assert stored() == [(1, "01", 1), (2, "x", 2), (8, None, 1), (9, "1", 1)]
    ours(f"INSERT OVERWRITE delta.`{place}` PARTITION (p = DATE'2024-01-01', q = 2) SELECT 7")
    before = stored()
    assert (7, "2024-01-01", 2) in before
    dated = tmp_path / "dated"
    schema = pa.schema([("id", pa.int64()), ("d", pa.date32()), ("f", pa.float64())])
    txlog.Table.create(dated, schema, ["d", "f"])
    ours(f"INSERT INTO delta.`{dated}` PARTITION (d = TIMESTAMP'2024-01-01', f = 0.1) SELECT 1")
    assert txlog.Table(dated).count("d = '2024-01-01' AND f = 0.1D") == 1
    with pytest.raises(InvalidInputError, match="no constant"):
        ours(f"INSERT INTO delta.`{dated}` PARTITION (d = TIMESTAMP'2024-01-01 10:00', f) SELECT 1")
    for part in ("q = id", "q = 1.4", "q = rand()", "q = 'x'", "p = ''", "q = abc", "q = DEFAULT"):
        for words in ("INTO", "OVERWRITE"):
            with pytest.raises(InvalidInputError, match="no constant for the partition column"):
                ours(f"INSERT {words} delta.`{place}` PARTITION ({part}) SELECT 1, 1")
    for refused in (
        "PARTITION (q = 1) REPLACE WHERE id > 1 SELECT 1, 'a'",
        "PARTITION (q = 1) IF NOT EXISTS SELECT 1, 'a'",
        "PARTITION (q = 1) (id, p, q) SELECT 1, 'a', 2",
        "PARTITION (q = 1) BY NAME SELECT 1L AS id, 'a' AS p, 2L AS q",
    ):
        with pytest.raises(InvalidInputError):
            ours(f"INSERT OVERWRITE delta.`{place}` {refused}")
    assert stored() == before


@pytest.mark.spark
def test_defaults_identity_and_features(ours: Ours, tmp_path: Path) -> None:
    place = tmp_path / "made"
    ours(
        f"CREATE TABLE delta.`{place}` (k BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 10 "
        "INCREMENT BY -2), j BIGINT GENERATED BY DEFAULT AS IDENTITY COMMENT 'j', n INT) USING "
        "delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    ours(f"ALTER TABLE delta.`{place}` ALTER COLUMN n SET DEFAULT 6 + 1")
    ours(f"INSERT INTO delta.`{place}` (j) VALUES (3)")
    ours(f"ALTER TABLE delta.`{place}` ALTER COLUMN j SYNC IDENTITY")
    ours(f"ALTER TABLE delta.`{place}` ALTER COLUMN n DROP DEFAULT")
    ours(f"INSERT INTO delta.`{place}` (n) VALUES (1)")
    found = txlog.Table(place).to_arrow().sort_by("j").to_pylist()
    assert found == [{"k": 10, "j": 3, "n": 7}, {"k": 8, "j": 4, "n": 1}]
    table = txlog.Table(place)
    assert "deletionVectors" in (table.protocol.writer_features or ())
    ours(f"ALTER TABLE delta.`{place}` DROP FEATURE deletionVectors TRUNCATE HISTORY")
    assert "deletionVectors" not in (table.refresh().protocol.writer_features or ())


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "change",
    [
        "DROP COLUMN x, s", "DROP COLUMN IF EXISTS x", "DROP COLUMNS IF EXISTS (x)",
        "RENAME COLUMN x TO y, s TO t", "ALTER COLUMN x COMMENT 'x' FIRST",
        "ADD COLUMN IF NOT EXISTS b INT", "DROP FEATURE deletionVectors TRUNCATE HISTORIES",
        "ALTER COLUMN id SET NOT NULL NOW", "DROP CONSTRAINT a, b", "CLUSTER BY (id) NOW",
    ],
)  # fmt: skip
def test_a_change_that_is_not_wholly_understood_is_not_begun(ours: Ours, change: str) -> None:
    version = ours.table.refresh().version
    with pytest.raises(InvalidInputError):
        ours(f"ALTER TABLE @PATH {change}")
    assert ours.table.refresh().version == version
