"""Statements that create tables and drop them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    InvalidInputError,
    NotFoundError,
    UnsupportedFeatureError,
)
from txlog.spark_ext import sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Run = Callable[[str], list[Any]]


@pytest.fixture
def run(spark: "SparkSession") -> Iterator[Run]:
    yield lambda text: [tuple(row) for row in sql(spark, text).collect()]
    for row in spark.sql("SHOW TABLES LIKE 'defined_*'").collect():
        spark.sql(f"DROP TABLE {row.tableName}")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return Path(txlog.write(tmp_path / "t", pa.table({"id": [1, 2], "p": ["x", "y"]})).uri)


@pytest.mark.slow
def test_a_table_at_a_path_gets_a_name(run: Run, spark: "SparkSession", place: Path) -> None:
    made = f"USING delta LOCATION '{place}'"
    assert sql(spark, f"CREATE TABLE defined_a {made}").columns == []
    assert run("SELECT count(*) FROM defined_a") == [(2,)]
    run(f"CREATE TABLE IF NOT EXISTS defined_a {made}")
    with pytest.raises(AlreadyExistsError, match="defined_a already exists"):
        run(f"CREATE TABLE defined_a {made}")
    run(f"CREATE EXTERNAL TABLE defined_b USING delta OPTIONS (path '{place}')")
    assert run("SELECT count(*) FROM defined_b") == [(2,)]
    for more in ("TBLPROPERTIES ('a' = 'b')", "PARTITIONED BY (p)", "CLUSTER BY (id)"):
        with pytest.raises(InvalidInputError, match="differs in"):
            run(f"CREATE TABLE defined_c {made} {more}")
    with pytest.raises(InvalidInputError, match="neither columns nor a query"):
        run(f"CREATE TABLE defined_c USING delta LOCATION '{place}/none'")
    with pytest.raises(UnsupportedFeatureError, match="storage_options") as caught:
        run(f"CREATE TABLE defined_c USING delta OPTIONS (path '{place}', secret 'abc')")
    assert "abc" not in str(caught.value)
    assert txlog.Table(place).version == 0
    assert not spark.catalog.tableExists("defined_c")


@pytest.mark.slow
def test_tables_are_replaced(run: Run, place: Path) -> None:
    run(f"CREATE TABLE defined_a USING delta LOCATION '{place}'")
    run("REPLACE TABLE defined_a USING delta AS SELECT 3 AS x")
    assert run("SELECT * FROM defined_a") == [(3,)]
    run("REPLACE TABLE defined_a (id INT) USING delta PARTITIONED BY (d DATE, p STRING)")
    table = txlog.Table(place)
    assert (table.version, table.count()) == (2, 0)
    assert (table.schema.names, table.partition_columns) == (["id", "d", "p"], ["d", "p"])
    for text in ("(id INT) USING delta", "USING delta AS SELECT 1 AS id"):
        with pytest.raises(NotFoundError, match="defined_none"):
            run(f"REPLACE TABLE defined_none {text}")
    with pytest.raises(UnsupportedFeatureError, match="GENERATED ALWAYS"):
        run("CREATE TABLE defined_b (t TIMESTAMP) USING delta PARTITIONED BY (years(t))")


OLD = {
    "plain": {"owner": "old", "delta.constraints.small": "id < 100"},
    "mapped": {"delta.columnMapping.mode": "name", "delta.constraints.small": "id < 100"},
    "tracked": {"delta.enableRowTracking": "true", "delta.enableChangeDataFeed": "true"},
    "stamped": {"delta.enableInCommitTimestamps": "true", "delta.checkpointInterval": "2"},
}
NEW = {
    "nothing": "",
    "properties": "COMMENT 'new' TBLPROPERTIES ('owner' = 'new', 'delta.appendOnly' = 'false')",
    "mapping": "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "partitioned": "PARTITIONED BY (q)",
    "clustered": "CLUSTER BY (x)",
}


def defined(table: txlog.Table) -> Any:
    """What a table is, without the names and numbers that are chosen anew each time."""
    chosen = ("RowIdColumnName", "RowCommitVersionColumnName", "inCommitTimestampEnablement")
    properties = {k: v for k, v in table.properties.items() if not any(c in k for c in chosen)}
    found = table.metadata
    clustering = [key for key in table.snapshot.controls.domains if "clustering" in key]
    removed = [table.snapshot.controls.domains[key].removed for key in clustering]
    ids = [(f.field_id, f.type) for f in table.snapshot.schema.fields]
    return (
        properties, found.description, found.name, table.partition_columns, table.schema,
        table.protocol, dict(zip(clustering, removed, strict=True)), ids,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("new", NEW)
@pytest.mark.parametrize("old", OLD)
def test_a_query_replaces_a_table_as_columns_do(
    run: Run, tmp_path: Path, old: str, new: str
) -> None:
    """Only the rows differ, and the history stays."""
    tables = []
    for way in ("columns", "query"):
        table = txlog.Table.create(
            tmp_path / way,
            pa.schema([("id", pa.int64()), ("p", pa.string())]),
            partition_by=["p"],
            properties=OLD[old],
            description="old",
        )
        table.append(pa.table({"id": [1, 2], "p": ["a", "b"]}))
        before = table.metadata.id
        begin = f"CREATE OR REPLACE TABLE delta.`{table.uri}`"
        if way == "columns":
            run(f"{begin} (x BIGINT, q STRING) USING delta {NEW[new]}")
            table.refresh().append(pa.table({"x": [500], "q": ["r"]}))
        else:
            run(f"{begin} USING delta {NEW[new]} AS SELECT 500L x, 'r' q")
            table.refresh()
            assert table.version == 2
            assert table.history()[0]["operation"] == "CREATE OR REPLACE TABLE AS SELECT"
        assert table.metadata.id == before
        assert table.to_arrow().to_pylist() == [{"x": 500, "q": "r"}]
        assert txlog.Table(table.uri, version=1).count("id < 3") == 2
        assert table.doctor().ok
        tables.append(defined(table))
    assert tables[0] == tables[1]
    assert tables[1][0].get("owner") == ("new" if new == "properties" else None)


@pytest.mark.slow
def test_a_query_may_read_the_table_that_it_replaces(run: Run, place: Path) -> None:
    own = f"delta.`{place}`"
    run(f"CREATE OR REPLACE TABLE {own} USING delta AS SELECT id + 1 AS id FROM {own}")
    assert sorted(txlog.Table(place).to_arrow()["id"].to_pylist()) == [2, 3]


def of_properties(table: txlog.Table) -> None:
    table.alter.set_properties({"a": "b"})


def of_appends(table: txlog.Table) -> None:
    table.append(table.to_arrow().slice(0, 1))


def of_deletes(table: txlog.Table) -> None:
    table.delete("id = 1")


def of_all(table: txlog.Table) -> None:
    table.delete("true")


@pytest.mark.slow
def test_a_version_with_the_same_rows_is_replaced(
    spark: "SparkSession", run: Run, place: Path
) -> None:
    from pyspark.sql import functions as fn

    @fn.udf("bigint")
    def slow(value: int) -> int:
        table = txlog.Table(place)
        if table.version == 0:
            table.append(table.to_arrow().slice(0, 0), txn=("job", 1))
        return value

    spark.udf.register("slow_udf", slow)
    run(f"CREATE OR REPLACE TABLE delta.`{place}` USING delta AS SELECT slow_udf(1L) x")
    table = txlog.Table(place)
    assert (table.version, table.to_arrow().to_pylist()) == (2, [{"x": 1}])


@pytest.mark.slow
@pytest.mark.parametrize("change", [of_properties, of_appends, of_deletes, of_all])
@pytest.mark.parametrize("source", ["", " FROM delta.`{}`"])
def test_a_table_that_changes_meanwhile_is_not_replaced(
    spark: "SparkSession", run: Run, place: Path, change: Callable[[Any], None], source: str
) -> None:
    from pyspark.sql import functions as fn

    @fn.udf("bigint")
    def slow(value: int) -> int:
        if txlog.Table(place).version == 0:
            change(txlog.Table(place))
        return value

    spark.udf.register("slow_udf", slow)
    query = f"SELECT slow_udf(1L) x{source.format(place)}"
    if not source and change in (of_appends, of_all):
        # It reads no row of the table, so it replaces those of the other writer, too.
        run(f"CREATE OR REPLACE TABLE delta.`{place}` USING delta AS {query}")
        assert txlog.Table(place).to_arrow().to_pylist() == [{"x": 1}]
        return
    with pytest.raises(txlog.CommitConflictError, match="changed the table while"):
        run(f"CREATE OR REPLACE TABLE delta.`{place}` USING delta AS {query}")
    table = txlog.Table(place)
    assert (table.version, table.schema.names) == (1, ["id", "p"])
    live = {Path(one).name for version in (0, 1) for one in table.at(version).scan().file_uris()}
    assert {path.name for path in place.rglob("*.parquet")} == live


@pytest.mark.slow
def test_a_new_schema_of_a_frame_keeps_what_the_table_says_of_itself(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """As in Delta: `overwriteSchema` replaces columns and, if it names them, the partitions."""
    uri = str(tmp_path / "t")
    txlog.write(
        uri, pa.table({"id": [1], "p": ["x"]}), partition_by=["p"], description="kept",
        properties={"owner": "kept"},
    )  # fmt: skip
    frame = spark.sql("SELECT 5L x, 'q' p")
    writer = frame.write.format("txlog").mode("overwrite").option("overwriteSchema", "true")
    writer.save(uri)
    table = txlog.Table(uri)
    assert (table.partition_columns, table.schema.names) == (["p"], ["x", "p"])
    fewer = spark.sql("SELECT 6L x").write.format("txlog").mode("overwrite")
    fewer = fewer.option("overwriteSchema", "true")
    with pytest.raises(Exception, match=r"(?s)lack p, by which.*overwriteSchema.*partitionBy=\[\]"):
        fewer.save(uri)
    fewer.option("partitionBy", "[]").save(uri)
    assert (txlog.Table(uri).partition_columns, txlog.Table(uri).schema.names) == ([], ["x"])
    writer.option("partitionBy", "x").save(uri)
    table.refresh()
    assert (table.partition_columns, table.metadata.description) == (["x"], "kept")
    assert table.properties["owner"] == "kept"


@pytest.mark.slow
def test_the_format_of_the_session_counts(run: Run, spark: "SparkSession") -> None:
    before = spark.conf.get("spark.sql.sources.default")
    spark.conf.set("spark.sql.sources.default", "delta")
    try:
        run("CREATE TABLE defined_a (id INT)")
        run("CREATE TABLE defined_b AS SELECT 1 AS id")
    finally:
        spark.conf.set("spark.sql.sources.default", before)
    for name, count in (("defined_a", 0), ("defined_b", 1)):
        assert run(f"SELECT count(*) FROM {name}") == [(count,)]
        assert run(f"DESCRIBE DETAIL {name}")[0][0] == "delta"
    run("CREATE TABLE defined_c (id INT)")
    assert ("Provider", before, "") in run("DESCRIBE EXTENDED defined_c")


@pytest.mark.slow
def test_a_table_like_another_one(run: Run, place: Path, tmp_path: Path) -> None:
    run(
        f"CREATE OR REPLACE TABLE delta.`{place}` (id BIGINT NOT NULL COMMENT 'i', d STRING "
        "DEFAULT 'x', n BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 5 INCREMENT BY 2)) USING "
        "delta PARTITIONED BY (d) COMMENT 'c' TBLPROPERTIES ('a' = 'b')"
    )
    run(f"INSERT INTO delta.`{place}` (id) VALUES (1)")
    like = tmp_path / "like"
    run(f"CREATE TABLE delta.`{like}` LIKE delta.`{place}` TBLPROPERTIES ('a' = 'z', 'e' = 'f')")
    made = txlog.Table(like)
    assert (made.count(), made.partition_columns, made.metadata.description) == (0, ["d"], "c")
    assert (made.properties["a"], made.properties["e"]) == ("z", "f")
    run(f"INSERT INTO delta.`{like}` (id) VALUES (1)")
    assert made.refresh().to_arrow().to_pylist() == [{"id": 1, "d": "x", "n": 5}]
    run(f"CREATE TABLE IF NOT EXISTS delta.`{like}` LIKE delta.`{place}`")
    run(f"CREATE TABLE defined_a LIKE delta.`{place}` USING delta LOCATION '{tmp_path / 'a'}'")
    assert run("SHOW COLUMNS IN defined_a") == [("id",), ("d",), ("n",)]
    with pytest.raises(AlreadyExistsError):
        run(f"CREATE TABLE delta.`{like}` LIKE delta.`{place}`")


def test_a_path_is_not_dropped(run: Run, spark: "SparkSession", place: Path) -> None:
    for name in (f"delta.`{place}`", f"'{place}'"):
        with pytest.raises(UnsupportedFeatureError, match="TRUNCATE TABLE"):
            run(f"DROP TABLE {name}")
        with pytest.raises(UnsupportedFeatureError, match="TRUNCATE TABLE"):
            run(f"DROP TABLE IF EXISTS {name}")
    assert txlog.Table(place).count() == 2
    run(f"DROP TABLE IF EXISTS delta.`{place}/none`")
    with pytest.raises(NotFoundError):
        run(f"DROP TABLE delta.`{place}/none`")
    run(f"CREATE TABLE defined_a USING delta LOCATION '{place}'")
    run("DROP TABLE defined_a")
    run("DROP TABLE IF EXISTS defined_a")
    assert not spark.catalog.tableExists("defined_a")
    assert txlog.Table(place).count() == 2


def test_options_of_a_store_reach_new_tables(spark: "SparkSession", tmp_path: Path) -> None:
    """`confined` is an option of all stores, and forbids paths out of the folder."""
    from txlog.spark_ext.delta import builder

    asked: list[Any] = []
    create = txlog.Table.create
    with pytest.MonkeyPatch.context() as patch:

        def noted(*arguments: Any, **more: Any) -> Any:
            asked.append(more.pop("storage_options"))
            return create(*arguments, **more)

        patch.setattr(builder.Table, "create", noted)
        options = {"anything": "x"}
        text = f"CREATE TABLE delta.`{tmp_path / 'o'}` (id INT) USING delta"
        sql(spark, text, storage_options=options)
    assert asked == [options]


@pytest.mark.slow
def test_a_dropped_name_may_be_used_again(
    run: Run, spark: "SparkSession", place: Path, tmp_path: Path
) -> None:
    run("CREATE TABLE defined_anew (id INT) USING delta")
    run("INSERT INTO defined_anew VALUES (1)")
    folder = txlog.spark_ext.table_location(spark, "defined_anew")
    with pytest.raises(AlreadyExistsError):
        run("CREATE TABLE defined_anew (s STRING) USING delta")
    run("DROP TABLE defined_anew")
    run("CREATE TABLE defined_anew (s STRING) USING delta")
    assert run("SELECT * FROM defined_anew") == []
    table = txlog.Table(folder)
    assert (table.schema.names, table.at(1).count()) == (["s"], 1)
    run("DROP TABLE defined_anew")
    run("CREATE TABLE defined_anew USING delta AS SELECT 2 AS n")
    assert run("SELECT * FROM defined_anew") == [(2,)]
    spark.sql("DROP TABLE defined_anew")  # Of another session, as far as the statements know.
    with pytest.raises(AlreadyExistsError):
        run("CREATE TABLE defined_anew (s STRING) USING delta")
    run(f"CREATE TABLE defined_beside USING delta LOCATION '{place}'")
    run("DROP TABLE defined_beside")
    with pytest.raises(AlreadyExistsError):
        run(f"CREATE TABLE defined_beside (s STRING) USING delta LOCATION '{place}'")
    assert txlog.Table(place).count() == 2


def test_an_equal_table_at_a_location_is_kept(run: Run, place: Path) -> None:
    run(
        f"CREATE TABLE IF NOT EXISTS defined_a (id BIGINT, p STRING) USING txlog LOCATION '{place}'"
    )
    assert run("SELECT count(*) FROM defined_a") == [(2,)]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["name", "path"])
@pytest.mark.parametrize("query", ["", " AS SELECT 9 AS id"])
def test_a_dropped_table_that_is_used_again_is_kept(
    run: Run, spark: "SparkSession", how: str, query: str
) -> None:
    name = f"defined_again_{how}_{len(query)}"
    columns = "" if query else " (id INT)"
    run(f"CREATE TABLE {name} (id INT) USING delta")
    folder = txlog.spark_ext.table_location(spark, name)
    run(f"DROP TABLE {name}")
    if how == "name":
        spark.sql(f"CREATE TABLE {name} USING txlog LOCATION '{folder}'")
    else:
        run(f"INSERT INTO delta.`{folder}` VALUES (1)")
    with pytest.raises(AlreadyExistsError):
        run(f"CREATE TABLE {name}{columns} USING delta{query}")
    version = txlog.Table(folder).version
    run(f"CREATE TABLE IF NOT EXISTS {name}{columns} USING delta{query}")
    assert txlog.Table(folder).version == version


@pytest.mark.slow
@pytest.mark.parametrize("query", ["", " AS SELECT 9 AS id"])
def test_only_the_dropped_version_is_replaced(
    run: Run, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """Another writer commits after the version was looked up."""
    from txlog.spark_ext.delta import builder

    name = f"defined_raced_{len(query)}"
    run(f"CREATE TABLE {name} (id INT) USING delta")
    folder = txlog.spark_ext.table_location(spark, name)
    run(f"DROP TABLE {name}")
    look_up = builder.version_at

    def then_another_writes(*given: Any) -> int | None:
        found = look_up(*given)
        txlog.write(folder, pa.table({"id": pa.array([1], pa.int32())}), mode="append")
        return found

    monkeypatch.setattr(builder, "version_at", then_another_writes)
    columns = "" if query else " (id INT)"
    with pytest.raises(CommitConflictError):
        run(f"CREATE TABLE {name}{columns} USING delta{query}")
    assert txlog.Table(folder).to_arrow().to_pylist() == [{"id": 1}]


@pytest.mark.parametrize(
    ("definition", "key"),
    [
        ("id INT, day STRING, UNIQUE (DAY, ID) ENFORCED", ["day", "id"]),
        ("id INT, day STRING, CONSTRAINT k PRIMARY KEY (day) ENFORCED", ["day"]),
        ("`a.b` INT, day STRING, UNIQUE (`A.B`) ENFORCED", ["a.b"]),
    ],
)
def test_keys_of_a_new_table_name_its_columns(
    spark: "SparkSession", tmp_path: Path, definition: str, key: list[str]
) -> None:
    uri = str(tmp_path / "t")
    sql(spark, f"CREATE TABLE delta.`{uri}` ({definition}) USING delta PARTITIONED BY (day)")
    properties = txlog.Table(uri).properties
    (found,) = (text for name, text in properties.items() if name.startswith("txlog.unique."))
    assert json.loads(found)["columns"] == key
    indexed = [json.loads(text)["columns"] for name, text in properties.items() if "index" in name]
    assert [name for columns in indexed for name in columns] == [one for one in key if one != "day"]


@pytest.mark.parametrize(
    "key", ["UNIQUE ()", "UNIQUE (id, id)", "UNIQUE (id + 1)", "UNIQUE (id DESC)", "UNIQUE (a.b)",
            "UNIQUE (no_such)", "PRIMARY KEY (id) NOT ENFORCED"],
)  # fmt: skip
def test_keys_that_are_none_make_no_table(spark: "SparkSession", tmp_path: Path, key: str) -> None:
    uri = str(tmp_path / "t")
    with pytest.raises(txlog.TxlogError) as caught:
        sql(spark, f"CREATE TABLE delta.`{uri}` (id INT, a STRUCT<b: INT>, {key}) USING delta")
    assert "txlog.index" not in str(caught.value)
    assert not Path(uri, "_delta_log").exists()
    with pytest.raises(txlog.UnsupportedFeatureError, match="ADD CONSTRAINT k UNIQUE"):
        sql(
            spark,
            f"CREATE TABLE delta.`{uri}` (id INT, CONSTRAINT k UNIQUE (id) ENFORCED) USING delta "
            "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        )
