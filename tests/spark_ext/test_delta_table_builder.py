"""`DeltaTable.create` and similar; tables by their names in Spark's catalog."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql.types import ArrayType, CharType, VarcharType

import txlog
from txlog.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from txlog.spark_ext import (
    DeltaOptimizeBuilder,
    DeltaTable,
    DeltaTableBuilder,
    IdentityGenerator,
    table_location,
    write,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def warehouse_of(spark: "SparkSession") -> Path:
    return Path((spark.conf.get("spark.sql.warehouse.dir") or "").removeprefix("file:"))


@pytest.fixture
def name(spark: "SparkSession") -> Iterator[str]:
    yield "default.named"
    spark.sql("DROP TABLE IF EXISTS default.named")
    shutil.rmtree(warehouse_of(spark) / "named", ignore_errors=True)


@pytest.mark.slow
def test_a_table_column_by_column(spark: "SparkSession", tmp_path: Path, name: str) -> None:
    from pyspark.sql import types as kinds

    location = str(tmp_path / "ä 'b' #1%20")
    nested = kinds.StructType().add("x", "integer").add("y", kinds.ArrayType(kinds.StringType()))
    made = (
        DeltaTable.create(spark)
        .tableName(name)
        .location(location)
        .comment("flights")
        .addColumn("a`b", "decimal(10, 2)", comment="the first")
        .addColumn("day", kinds.DateType(), nullable=False)
        .addColumns(kinds.StructType().add("s", nested))
        .addColumns([kinds.StructField("p", kinds.StringType())])
        .partitionedBy("p")
        .property("delta.appendOnly", "true")
        .execute()
    )
    # Spark reads it in the same types that were asked for.
    assert made.toDF().schema.simpleString() == (
        "struct<a`b:decimal(10,2),day:date,s:struct<x:int,y:array<string>>,p:string>"
    )
    table = txlog.Table(location)
    assert table.version == 0
    assert table.partition_columns == ["p"]
    assert table.properties["delta.appendOnly"] == "true"
    assert table.metadata.description == "flights"
    assert table.snapshot.schema.fields[0].metadata["comment"] == "the first"
    assert [field.nullable for field in table.snapshot.schema.fields] == [True, False, True, True]
    assert table_location(spark, name) == location
    assert DeltaTable.forName(spark, "named").table.uri == location
    with pytest.raises(AlreadyExistsError):
        DeltaTable.create(spark).location(location).addColumn("a", "int").execute()
    kept = DeltaTable.createIfNotExists(spark).location(location).addColumn("z", "int").execute()
    assert kept.toDF().columns == ["a`b", "day", "s", "p"]


def test_what_a_type_of_sql_says_of_its_column(spark: "SparkSession", tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    (
        DeltaTable.create(spark)
        .location(uri)
        .addColumn("a", "INT NOT NULL")
        .addColumn("b", "INT COMMENT 'of SQL'", nullable=False)
        .addColumn("c", "INT NOT NULL COMMENT 'of SQL'", comment="of the argument")
        .addColumn("d", "struct<char:int>")
        .execute()
    )
    fields = txlog.Table(uri).snapshot.schema.fields
    assert [field.nullable for field in fields] == [False, False, False, True]
    told = [field.metadata.get("comment") for field in fields]
    assert told == [None, "of SQL", "of the argument", None]


def test_clustering_columns(spark: "SparkSession", tmp_path: Path) -> None:
    def builder(how: str) -> Any:
        begun = getattr(DeltaTable, how)(spark).location(str(tmp_path / "t"))
        return begun.addColumn("a", "INT").addColumn("b", "STRING")

    made = builder("create").clusterBy("a", "b").execute()
    assert made.detail().head().clusteringColumns == ["a", "b"]
    assert builder("createIfNotExists").clusterBy("b").execute().table.version == 0
    replaced = builder("createOrReplace").clusterBy(["b"]).execute()
    assert replaced.detail().head().clusteringColumns == ["b"]
    with pytest.raises(InvalidInputError, match="the table is partitioned"):
        builder("replace").clusterBy("a").partitionedBy("b").execute()
    with pytest.raises(InvalidInputError, match="no column of this name"):
        builder("replace").clusterBy("z").execute()
    assert replaced.table.refresh().version == 1


def test_replacing(spark: "SparkSession", tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    builder = DeltaTable.replace(spark).location(uri).addColumn("b", "string")
    with pytest.raises(NotFoundError):
        builder.execute()
    with pytest.raises(AnalysisException, match="noSuchTable"):  # As it was written.
        DeltaTable.replace(spark).tableName("noSuchTable").addColumn("b", "string").execute()
    made = DeltaTable.createOrReplace(spark).location(uri).addColumn("a", "bigint").execute()
    made.table.append(pa.table({"a": [1, 2]}))
    replaced = builder.addColumn("p", "int").partitionedBy(["p"]).execute()
    assert (replaced.toDF().count(), replaced.toDF().columns) == (0, ["b", "p"])
    now = txlog.Table(uri)
    assert (now.version, now.partition_columns) == (2, ["p"])
    assert now.history(1)[0]["operation"] == "REPLACE TABLE"
    assert txlog.Table(uri, version=1).to_arrow()["a"].to_pylist() == [1, 2]
    DeltaTable.createOrReplace(spark).location(uri).addColumn("c", "int").execute()
    assert txlog.Table(uri).schema.names == ["c"]
    DeltaTable.forPath(spark, uri).restoreToVersion(1)
    assert txlog.Table(uri).to_arrow()["a"].to_pylist() == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("begin", ["create", "createIfNotExists", "replace", "createOrReplace"])
@pytest.mark.parametrize("by", ["name", "location", "both"])
def test_the_schema_of_a_new_table_has_its_not_null_columns(
    spark: "SparkSession", tmp_path: Path, name: str, by: str, begin: str
) -> None:
    from pyspark.sql.types import IntegerType, StructField, StructType

    def defined(builder: DeltaTableBuilder) -> DeltaTableBuilder:
        builder = builder if by == "location" else builder.tableName(name)
        return builder if by == "name" else builder.location(str(tmp_path / "t"))

    if begin == "replace":
        defined(DeltaTable.create(spark)).addColumn("old", "string").execute()
    made = (
        defined(getattr(DeltaTable, begin)(spark))
        .addColumn("n", "int", nullable=False, comment="a number")
        .addColumn("more", IntegerType(), generatedAlwaysAs="n + 10")
        .partitionedBy("n")
        .execute()
    )
    wanted = StructType(
        [
            StructField("n", IntegerType(), False, {"comment": "a number"}),
            StructField("more", IntegerType(), True),
        ]
    )
    assert made.toDF().schema == wanted
    write(spark.createDataFrame([(1,)], "n int"), made.table.uri)
    assert made.toDF().schema == wanted
    assert made.toDF().collect() == [(1, 11)]


def test_paths_as_names(spark: "SparkSession", tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    DeltaTable.create(spark).tableName(f"delta.`{uri}`").addColumn("a", "int").execute()
    assert DeltaTable.forName(spark, f"txlog.`{uri}`").table.uri == uri


def test_definitions_that_cannot_be(spark: "SparkSession", tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    for builder in (
        DeltaTable.create(spark).addColumn("a", "int"),  # Neither a name nor a location.
        DeltaTable.create(spark).location(uri),  # No column.
        DeltaTable.create(spark).location(uri).addColumn("a", "int").partitionedBy("b"),
        DeltaTable.create(spark)
        .location(uri)
        .addColumn("a", "int")
        .property("delta.appendOnly", "perhaps"),
        DeltaTable.create(spark).location(uri).addColumn("a", "int").addColumn("A", "int"),
    ):
        with pytest.raises((InvalidInputError, UnsupportedFeatureError)):
            builder.execute()
    for kind, told in (
        ("no_such_type", "(?i)no_such_type"),
        ("int, c string", "it defines 2 columns"),
        ("", "is not a type"),
        ("struct<", "is not a type"),
        ("varchar(3)", "Use STRING"),
        ("array<CHAR (3)>", "Use STRING"),
    ):
        with pytest.raises(InvalidInputError, match=told) as caught:
            DeltaTable.create(spark).addColumn("a", kind)
        assert isinstance(caught.value, ParseException) == ("Use STRING" not in told)
        assert caught.value.argument == "dataType"
        assert caught.value.field == "a"
    counter: Any = "1"
    with pytest.raises(TypeError, match="generatedByDefaultAs"):
        DeltaTable.create(spark).addColumn("a", "bigint", generatedByDefaultAs=counter)
    with pytest.raises(InvalidInputError, match="is not the name of a table"):
        DeltaTable.create(spark).tableName("a..b")
    assert not txlog.Table.exists(uri)


def test_a_name_of_another_table_is_not_taken(
    spark: "SparkSession", tmp_path: Path, name: str
) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    DeltaTable.create(spark).tableName(name).location(one).addColumn("a", "int").execute()
    second = DeltaTable.create(spark).tableName(name).location(other).addColumn("a", "int")
    with pytest.raises(AlreadyExistsError, match="another table has the name"):
        second.execute()
    assert not txlog.Table.exists(other)


@pytest.fixture
def schema(spark: "SparkSession", tmp_path: Path) -> Iterator[Path]:
    """The folder of a schema `Homes` of Spark's."""
    folder = tmp_path / "ä 'h' #1%20"
    quoted = str(folder).replace("'", "\\'")
    spark.sql(f"CREATE SCHEMA Homes LOCATION '{quoted}'")
    yield folder
    spark.sql(f"ALTER SCHEMA homes SET LOCATION '{quoted}'")  # Spark deletes the folder.
    spark.sql("DROP SCHEMA homes CASCADE")


def test_a_name_alone_makes_a_table_where_spark_would(spark: "SparkSession", schema: Path) -> None:
    spark.sql("CREATE TABLE homes.Of_Parquet (a INT) USING parquet")
    assert (schema / "of_parquet").is_dir()  # Spark's own choice.
    builder = DeltaTable.createIfNotExists(spark).tableName("Homes.Of_Txlog").addColumn("a", "int")
    made = builder.execute()
    assert made.table.uri == str(schema / "of_txlog") == table_location(spark, "homes.of_txlog")
    made.table.append(pa.table({"a": pa.array([1], pa.int32())}))
    assert builder.execute().toDF().count() == 1
    with pytest.raises(AlreadyExistsError):
        DeltaTable.create(spark).tableName("homes.of_txlog").addColumn("a", "int").execute()
    # A catalog in memory forgets its tables with the session.
    spark.sql("DROP TABLE homes.of_txlog")
    assert builder.execute().toDF().count() == 1
    assert DeltaTable.forName(spark, "homes.of_txlog").table.version == 1


@pytest.mark.parametrize("qualified", ["named", "default.named", "`spark_catalog`.`default`.NAMED"])
def test_names_of_the_default_schema(spark: "SparkSession", name: str, qualified: str) -> None:
    made = DeltaTable.createOrReplace(spark).tableName(qualified).addColumn("a", "int").execute()
    assert made.table.uri == str(warehouse_of(spark) / "named") == table_location(spark, name)


def test_an_unqualified_name_is_of_the_current_schema(spark: "SparkSession", schema: Path) -> None:
    spark.sql("USE homes")
    try:
        made = DeltaTable.create(spark).tableName("t").addColumn("a", "int").execute()
    finally:
        spark.sql("USE default")
    assert made.table.uri == str(schema / "t") == table_location(spark, "homes.t")


def test_names_keep_their_case_where_spark_keeps_it(spark: "SparkSession", schema: Path) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        made = DeltaTable.create(spark).tableName("homes.Big").addColumn("a", "int").execute()
        with pytest.raises(NotFoundError):
            table_location(spark, "homes.big")
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert made.table.uri == str(schema / "Big")


def test_a_known_name_leads_to_its_location(
    spark: "SparkSession", tmp_path: Path, name: str
) -> None:
    location = str(tmp_path / "elsewhere")
    DeltaTable.create(spark).tableName(name).location(location).addColumn("a", "int").execute()
    kept = DeltaTable.createIfNotExists(spark).tableName(name).addColumn("b", "int").execute()
    assert (kept.table.uri, kept.table.version, kept.toDF().columns) == (location, 0, ["a"])
    builders = DeltaTable.replace(spark), DeltaTable.createOrReplace(spark)
    for version, (column, builder) in enumerate(zip("xy", builders, strict=True), 1):
        made = builder.tableName(name).addColumn(column, "int").execute().table
        assert (made.uri, made.version, made.schema.names) == (location, version, [column])
    with pytest.raises(AlreadyExistsError):
        DeltaTable.create(spark).tableName(name).addColumn("a", "int").execute()


def test_names_that_lead_to_no_place_for_a_table(spark: "SparkSession", schema: Path) -> None:
    def making(name: str) -> DeltaTableBuilder:
        return DeltaTable.createOrReplace(spark).tableName(name).addColumn("a", "int")

    with pytest.raises(NotFoundError, match="not have this schema"):
        making("no_such_schema.t").execute()
    with pytest.raises(NotFoundError, match="the table cannot be found"):
        DeltaTable.replace(spark).tableName("homes.t").addColumn("a", "int").execute()
    for name in ("homes.`../t`", "homes.`..`", "homes.größe", "homes.a-b"):
        with pytest.raises(InvalidInputError, match="Spark allows only ASCII letters") as caught:
            making(name).execute()
        assert caught.value.argument == "identifier"
    (schema / "full").mkdir()
    (schema / "full" / "part-0.parquet").write_bytes(b"")
    with pytest.raises(AlreadyExistsError, match="files that belong to no Delta table"):
        making("homes.full").execute()
    (schema / "empty").mkdir()
    assert making("homes.empty").execute().table.version == 0
    spark.sql("ALTER SCHEMA homes SET LOCATION 's3://user:hidden@bucket/x'")
    with pytest.raises(UnsupportedFeatureError, match=r"s3://…@bucket/x.*local disk") as refused:
        making("homes.far").execute()
    assert "hidden" not in str(refused.value)
    assert sorted(found.name for found in schema.iterdir()) == ["empty", "full"]


def test_the_active_session_is_taken(spark: "SparkSession", tmp_path: Path, name: str) -> None:
    location = str(tmp_path / "t")
    made = DeltaTable.create().tableName(name).location(location).addColumn("a", "int").execute()
    assert made.toDF().sparkSession is spark
    for begin in (DeltaTable.createIfNotExists, DeltaTable.replace, DeltaTable.createOrReplace):
        assert begin().tableName(name).addColumn("a", "int").execute().table.uri == location


@pytest.mark.slow
def test_identity_columns_count_on_executors(spark: "SparkSession", tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    from pyspark.sql.types import LongType

    builder = DeltaTable.create(spark).location(path)
    builder = builder.addColumn("id", LongType(), generatedAlwaysAs=IdentityGenerator(10, 5))
    builder = builder.addColumn("n", "bigint", generatedByDefaultAs=IdentityGenerator(-1, -1))
    table = builder.addColumn("x", "int").execute().table
    kept = [table.snapshot.schema.fields[at].metadata for at in (0, 1)]
    assert [one["delta.identity.allowExplicitInsert"] for one in kept] == [False, True]
    frame = spark.range(0, 40, 1, 4).selectExpr("CAST(id AS INT) AS x")
    for _ in range(2):
        write(frame, path)
    frame.selectExpr("x", "CAST(x AS BIGINT) AS n").write.format("txlog").mode("append").save(path)
    table.append(pa.table({"x": pa.array([1], pa.int32())}))
    found = table.refresh().to_arrow()
    ids, others = found["id"].to_pylist(), found["n"].to_pylist()
    assert len(set(ids)) == len(ids) == 121
    assert {number % 5 for number in ids} == {0}
    assert min(ids) == 10
    assert ids[others.index(min(others))] == max(ids)  # The last row came after all others.
    with pytest.raises(SchemaMismatchError, match="GENERATED ALWAYS AS IDENTITY"):
        write(frame.selectExpr("x", "CAST(1 AS BIGINT) AS id"), path)
    both = IdentityGenerator()
    with pytest.raises(InvalidInputError, match="both define the values"):
        builder.addColumn("z", "bigint", generatedAlwaysAs=both, generatedByDefaultAs=both)


def test_classes_are_there_by_delta_sparks_names_too() -> None:
    from txlog.spark_ext import delta

    assert DeltaTableBuilder is delta.DeltaTableBuilder
    assert DeltaOptimizeBuilder is delta.DeltaOptimizeBuilder
    assert IdentityGenerator is delta.IdentityGenerator


def test_names_that_lead_nowhere(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such table"):
        DeltaTable.forName(spark, "default.nothing")
    for unknown, reason in (
        ("no_such_schema.t", "no such schema"),
        ("no_such_catalog.default.t", "Spark has no catalog no_such_catalog"),
    ):
        with pytest.raises(NotFoundError, match=reason):
            DeltaTable.forName(spark, unknown)
    spark.range(1).createOrReplaceTempView("a_view")
    with pytest.raises(UnsupportedFeatureError, match="temporary view"):
        DeltaTable.forName(spark, "a_view")
    spark.sql(f"CREATE TABLE of_parquet (a INT) USING parquet LOCATION '{tmp_path}/p'")
    try:
        with pytest.raises(UnsupportedFeatureError, match="a table of parquet"):
            DeltaTable.forName(spark, "of_parquet")
    finally:
        spark.sql("DROP TABLE of_parquet")
        spark.sql("DROP VIEW a_view")
    with pytest.raises(InvalidInputError, match="is not the name of a table"):
        DeltaTable.forName(spark, "a.`b")


def test_a_temporary_view_hides_no_qualified_name(
    spark: "SparkSession", tmp_path: Path, name: str
) -> None:
    location = str(tmp_path / "t")
    made = DeltaTable.create(spark).tableName(name).location(location).addColumn("a", "int")
    made.execute()
    spark.range(1).createOrReplaceTempView("named")
    spark.range(1).createOrReplaceGlobalTempView("shared")
    try:
        assert table_location(spark, name) == location
        for view in ("named", "global_temp.shared"):
            with pytest.raises(UnsupportedFeatureError, match="temporary view"):
                table_location(spark, view)
        with pytest.raises(NotFoundError, match="no such table"):
            table_location(spark, "default.shared")
    finally:
        spark.sql("DROP VIEW named")
        spark.sql("DROP VIEW global_temp.shared")


def test_a_comment_cannot_pose_as_a_location(spark: "SparkSession", tmp_path: Path) -> None:
    real = txlog.write(tmp_path / "real", pa.table({"a": [1]}))
    other = txlog.write(tmp_path / "other", pa.table({"a": [2]}))
    spark.sql(
        f"CREATE TABLE posing USING txlog LOCATION '{real.uri}' "
        f"COMMENT 'x\\nLocation: file:{other.uri}'"
    )
    try:
        with pytest.raises(UnsupportedFeatureError, match="without a location"):
            table_location(spark, "posing")
    finally:
        spark.sql("DROP TABLE posing")


def test_merges_give_values_that_count(spark: "SparkSession", tmp_path: Path) -> None:
    table = txlog.Table.create(
        tmp_path / "t", pa.schema([("id", pa.int64()), ("x", pa.int64())]), identity="id"
    )
    table.append(pa.table({"x": [1, 2]}))
    source = spark.range(0, 40, 1, 4).selectExpr("id AS x")
    handle = DeltaTable.forPath(spark, str(tmp_path / "t"))
    for _ in range(2):
        merge = handle.alias("t").merge(source.alias("s"), "s.x = t.x AND t.x < 2")
        merge.whenNotMatchedInsert(values={"x": "s.x"}).execute()
    found = table.refresh().to_arrow()["id"].to_pylist()
    assert len(set(found)) == len(found) == 2 + 39 + 38
    table.append(pa.table({"x": [0]}))
    assert len(set(table.to_arrow()["id"].to_pylist())) == 80
    with pytest.raises(InvalidInputError, match="GENERATED ALWAYS AS IDENTITY"):
        handle.alias("t").update(set={"id": "1"})


def test_a_location_with_other_files_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    """A vacuum of the new table would delete them."""
    (tmp_path / "precious.parquet").write_text("mine")
    for begin in (DeltaTable.create, DeltaTable.createIfNotExists, DeltaTable.createOrReplace):
        with pytest.raises(AlreadyExistsError, match="belong to no Delta table"):
            begin(spark).location(str(tmp_path)).addColumn("id", "INT").execute()
    assert [file.name for file in tmp_path.iterdir()] == ["precious.parquet"]


def test_types_that_tables_lack_are_refused(spark: "SparkSession", tmp_path: Path) -> None:
    for kind, problem in (
        (VarcharType(2), "length of text"),
        (ArrayType(CharType(3)), "length of text"),
        ("INTERVAL DAY", "interval day"),
    ):
        builder = DeltaTable.create(spark).location(str(tmp_path / "t")).addColumn("a", kind)
        with pytest.raises(InvalidInputError, match=problem):
            builder.execute()
    assert not (tmp_path / "t").exists()
