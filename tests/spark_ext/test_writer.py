"""`df.write.format("txlog")`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

import txlog
from txlog.spark_ext import read, sql, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def frame(spark: "SparkSession", start: int, stop: int) -> "DataFrame":
    return spark.range(start, stop, 1, 3).selectExpr(
        "id", "cast(id % 3 AS string) AS part", "CASE WHEN id % 5 > 0 THEN id * 0.5 END AS x"
    )


def ids(table: txlog.Table) -> list[int]:
    return sorted(table.refresh().to_arrow(["id"])["id"].to_pylist())


def save(data: "DataFrame", path: Path, mode: str = "append", **options: str) -> None:
    data.write.format("txlog").mode(mode).options(**options).save(str(path))


@pytest.mark.slow
def test_append_makes_a_partitioned_table(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "t"
    save(frame(spark, 0, 100), path, partitionBy="part", userMetadata="first")
    table = txlog.Table(path)
    assert (table.version, table.partition_columns) == (0, ["part"])
    save(frame(spark, 100, 150), path)
    assert ids(table) == list(range(150))
    assert table.version == 1
    assert table.history()[-1]["userMetadata"] == "first"
    # Statistics are exact, so other engines and the log agree on the rows.
    assert sum(table.files()["num_records"].to_pylist()) == 150
    other = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
    found = pa.table(other.execute("SELECT id, part, x FROM t ORDER BY id").read_all())
    assert found["id"].to_pylist() == list(range(150))
    expected = table.to_arrow().sort_by("id")
    assert found["x"].to_pylist() == expected["x"].to_pylist()


@pytest.mark.slow
def test_overwrite_whole_predicate_and_dynamic(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "t"
    save(frame(spark, 0, 30), path, partitionBy="part")
    table = txlog.Table(path)
    save(
        frame(spark, 0, 30).where("part = '1'").limit(2),
        path,
        "overwrite",
        replaceWhere="part = '1'",
    )
    assert table.refresh().count("part = '1'") == 2
    assert table.count() == 22
    save(
        frame(spark, 300, 303).where("part = '2'"),
        path,
        "overwrite",
        partitionOverwriteMode="dynamic",
    )
    assert table.refresh().count("part = '2'") == 1
    assert table.count() == 13
    save(frame(spark, 7, 9), path, "overwrite")
    assert ids(table) == [7, 8]
    with pytest.raises(Exception, match="would not replace"):
        save(frame(spark, 0, 3), path, "overwrite", replaceWhere="part = '1'")
    assert ids(table) == [7, 8]


@pytest.mark.slow
@pytest.mark.parametrize("door", ["format", "write", "sql"])
def test_an_empty_text_of_a_partition_column_is_null_before_it_is_checked(
    spark: "SparkSession", tmp_path: Path, door: str
) -> None:
    path = tmp_path / "t"
    data = spark.sql("SELECT '' AS x, 1L AS n UNION ALL SELECT 'a', 2L")
    write(data, path, partition_by=["x"])
    table = txlog.Table(path)

    def replace(where: str) -> None:
        rows = data.where("x = ''")
        if door == "format":
            save(rows, path, "overwrite", replaceWhere=where)
        elif door == "write":
            write(rows, path, mode="overwrite", where=where)
        else:
            sql(
                spark,
                f"INSERT INTO txlog.`{path}` REPLACE WHERE {where} SELECT '' AS x, 1L AS n",
            )

    with pytest.raises(Exception, match="do not satisfy"):
        replace("x = ''")
    for _ in range(2):
        replace("x IS NULL")
    assert table.refresh().to_arrow().sort_by("n").to_pylist() == [
        {"x": None, "n": 1},
        {"x": "a", "n": 2},
    ]
    table.alter.add_constraint({"given": "x IS NOT NULL OR n = 1"})
    with pytest.raises(Exception, match="break the constraint given"):
        write(spark.sql("SELECT '' AS x, 3L AS n"), path)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["format", "write"])
def test_a_session_may_say_that_only_the_frames_partitions_are_replaced(
    spark: "SparkSession", tmp_path: Path, way: str
) -> None:
    path, plain = tmp_path / "t", tmp_path / "plain"

    def overwrite(data: "DataFrame", to: Path = path, **how: Any) -> None:
        if way == "format":
            named = {"partition_mode": "partitionOverwriteMode", "where": "replaceWhere"}
            save(data, to, "overwrite", **{named[name]: value for name, value in how.items()})
        else:
            write(data, to, mode="overwrite", **how)

    save(frame(spark, 0, 30), path, partitionBy="part")
    save(frame(spark, 0, 30), plain)
    table = txlog.Table(path)
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "Dynamic")
    try:
        overwrite(frame(spark, 300, 303).where("part = '2'"))
        assert ids(table) == sorted([*(n for n in range(30) if n % 3 != 2), 302])
        overwrite(frame(spark, 0, 3).where("id > 5"))
        assert len(ids(table)) == 21
        # What is said here counts more than what the session says.
        overwrite(frame(spark, 0, 9).where("part = '2'"), where="part = '2'")
        assert sorted(n for n in ids(table) if n % 3 == 2) == [2, 5, 8]
        overwrite(frame(spark, 7, 9), plain)
        assert ids(txlog.Table(plain)) == [7, 8]
        overwrite(frame(spark, 7, 9), partition_mode="static")
        assert ids(table) == [7, 8]
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    overwrite(frame(spark, 1, 2))
    assert ids(table) == [1]


@pytest.mark.slow
def test_variants_are_written(spark: "SparkSession", tmp_path: Path) -> None:
    save(spark.sql("""SELECT parse_json('{"a": [1, null]}') AS v"""), tmp_path / "t")
    found = txlog.Table(tmp_path / "t").to_arrow()["v"]
    assert txlog.variant_to_python(found) == [{"a": [1, None]}]


@pytest.mark.slow
def test_a_recorded_transaction_changes_nothing(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "t"
    for version in ("1", "2", "2", "1"):
        save(frame(spark, 0, 10), path, txnAppId="job", txnVersion=version)
    table = txlog.Table(path)
    assert (table.count(), table.version, table.transaction_version("job")) == (20, 1, 2)


@pytest.mark.slow
def test_schema_must_fit_unless_merged(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "t"
    save(frame(spark, 0, 5), path)
    wider = frame(spark, 5, 8).selectExpr("*", "'n' AS new")
    with pytest.raises(Exception, match=r"schema-mismatch.*new"):
        save(wider, path)
    table = txlog.Table(path)
    assert table.version == 0
    save(wider, path, mergeSchema="true")
    assert table.refresh().schema.names == ["id", "part", "x", "new"]
    assert table.count("new IS NULL") == 5
    other = spark.range(3).selectExpr("cast(id AS string) AS id")
    with pytest.raises(Exception, match="schema-mismatch"):
        save(other, path)
    save(other, path, "overwrite", overwriteSchema="true")
    found = txlog.Table(path).to_arrow()
    assert found.schema == pa.schema([("id", pa.string())])
    assert sorted(found["id"].to_pylist()) == ["0", "1", "2"]


def test_a_failing_task_commits_nothing(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "t"
    save(frame(spark, 0, 5), path)
    broken = spark.range(0, 10, 1, 2).selectExpr(
        "CASE WHEN id = 9 THEN raise_error('boom') ELSE id END AS id", "'p' AS part"
    )
    with pytest.raises(Exception, match="boom"):
        save(broken.selectExpr("cast(id AS bigint) AS id", "part"), path)
    table = txlog.Table(path)
    assert (table.version, table.count()) == (0, 5)


@pytest.mark.slow
def test_limits_of_rows_and_checkpoints(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "t"
    properties = '{"delta.checkpointInterval": "2", "delta.enableDeletionVectors": "false"}'
    save(frame(spark, 0, 30), path, maxRecordsPerFile="4", tableProperties=properties)
    table = txlog.Table(path)
    assert max(table.files()["num_records"].to_pylist()) == 4
    assert table.protocol.reader_features is None
    for start in (30, 40):
        save(frame(spark, start, start + 10), path)
    assert (path / "_delta_log" / "00000000000000000002.checkpoint.parquet").exists()
    assert ids(table) == list(range(50))


@pytest.mark.slow
def test_mapped_tables_are_made_and_appended_to(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "t"
    odd = frame(spark, 0, 30).withColumnRenamed("x", "x (m)")
    save(odd, path, partitionBy="part")
    table = txlog.Table(path)
    assert table.snapshot.mapping_mode == "name"
    save(odd.selectExpr("*", "id + 1 AS more"), path, mergeSchema="true")
    write(odd.where("id < 6"), path, mode="overwrite", where="id < 6")
    assert ids(table) == sorted([*range(6, 30), *range(6, 30), *range(6)])
    found = spark.read.format("txlog").load(str(path)).where("`x (m)` = 3.5").collect()
    assert {(row["id"], row["more"]) for row in found} == {(7, None), (7, 8)}
    native = read(spark, path, where="`x (m)` = 3.5").collect()
    assert {(row["id"], row["more"]) for row in native} == {(7, None), (7, 8)}
    assert table.count("more IS NULL") == 30
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
    others = pa.table(query.execute("SELECT * FROM t"))
    assert sorted(map(str, others.to_pylist())) == sorted(map(str, table.to_arrow().to_pylist()))


def test_new_fields_in_lists_and_wider_types_are_merged(
    spark: "SparkSession", tmp_path: Path
) -> None:
    path = tmp_path / "t"
    old = spark.sql("SELECT 1L AS id, array(named_struct('a', 1)) AS l, 7 AS n")
    write(old, path, properties={"delta.enableTypeWidening": "true"})
    new = spark.sql("SELECT 2L AS id, array(named_struct('a', 2, 'b', 'x')) AS l, 3000000000L AS n")
    with pytest.raises(Exception, match="schema_mode"):
        write(new, path)
    write(new, path, schema_mode="merge")
    more = spark.sql("SELECT 3L AS id, array(named_struct('a', 3, 'c', 1.5D)) AS l, 1L AS n")
    table = txlog.Table(path)
    merge = table.merge(more, "source.id = target.id", schema_mode="merge")
    merge.when_not_matched_insert_all().execute()
    assert table.refresh().to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "l": [{"a": 1, "b": None, "c": None}], "n": 7},
        {"id": 2, "l": [{"a": 2, "b": "x", "c": None}], "n": 3_000_000_000},
        {"id": 3, "l": [{"a": 3, "b": None, "c": 1.5}], "n": 1},
    ]
