"""Frames that read the table that they overwrite, while another writer adds rows."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog import spark_ext
from txlog.base.errors import CommitConflictError, InvalidInputError, TxlogError
from txlog.spark_ext import DeltaTable, create_view, read, sql, write
from txlog.spark_ext.writes.own_reads import Relation, version_of, version_read
from txlog.store.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
Frame = Callable[["SparkSession", Path], "DataFrame"]
Write = Callable[["DataFrame", Path], None]

WINNER = 99


def wins(path: Path | str) -> None:
    """Commit the winner's row, once."""
    rows = pa.table({"id": pa.array([WINNER], pa.int64()), "p": ["x"]})
    txlog.Table(path).append(rows, txn=("winner", 1))


@pytest.fixture
def place(tmp_path: Path, spark: "SparkSession") -> Iterator[Path]:
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "p": ["x", "x", "y"]})
    path = Path(txlog.write(tmp_path / "t", rows, partition_by="p").uri)

    def winning(value: int) -> int:
        wins(str(path))
        return value

    spark.udf.register("winning", winning, "bigint")
    yield path
    for name in ("v_created", "v_saved", "v_source"):
        spark.catalog.dropTempView(name)
    spark.sql("DROP TABLE IF EXISTS own_reads")


def by_function(frame: "DataFrame", path: Path) -> None:
    write(frame, str(path), mode="overwrite")


def by_partitions(frame: "DataFrame", path: Path) -> None:
    write(frame, str(path), mode="overwrite", partition_mode="dynamic")


def by_predicate(frame: "DataFrame", path: Path) -> None:
    write(frame, str(path), mode="overwrite", where="p = 'x'")


def by_format(frame: "DataFrame", path: Path) -> None:
    frame.write.format("txlog").mode("overwrite").save(str(path))


def by_format_and_partitions(frame: "DataFrame", path: Path) -> None:
    writer = frame.write.format("txlog").mode("overwrite")
    writer.option("partitionOverwriteMode", "dynamic").save(str(path))


def by_format_and_predicate(frame: "DataFrame", path: Path) -> None:
    frame.write.format("txlog").mode("overwrite").option("replaceWhere", "p = 'x'").save(str(path))


def by_new_schema(frame: "DataFrame", path: Path) -> None:
    write(frame, str(path), mode="overwrite", schema_mode="overwrite")


OTHERS: tuple[Write, ...] = (by_partitions, by_predicate, by_new_schema)
FORMATS: tuple[Write, ...] = (by_format, by_format_and_partitions, by_format_and_predicate)


def read_frame(spark: "SparkSession", path: Path) -> "DataFrame":
    return read(spark, str(path))


def read_by_python(spark: "SparkSession", path: Path) -> "DataFrame":
    return read(spark, str(path), where="id % 1 = 0")


def read_format(spark: "SparkSession", path: Path) -> "DataFrame":
    return spark.read.format("txlog").load(f"{path.parent}/../{path.parent.name}/t")


def read_handle(spark: "SparkSession", path: Path) -> "DataFrame":
    return DeltaTable.forPath(spark, str(path)).toDF()


def read_view(spark: "SparkSession", path: Path) -> "DataFrame":
    create_view(spark, "v_created", str(path))
    return spark.table("v_created")


def read_saved_view(spark: "SparkSession", path: Path) -> "DataFrame":
    read(spark, str(path)).where("id > 0").createOrReplaceTempView("v_saved")
    return spark.sql("WITH w AS (SELECT * FROM v_saved) SELECT * FROM w")


def read_below(spark: "SparkSession", path: Path) -> "DataFrame":
    read(spark, str(path)).createOrReplaceTempView("v_saved")
    return spark.sql(
        "SELECT id, 'x' AS p FROM range(1, 100) WHERE id IN (SELECT id FROM v_saved WHERE p = 'x')"
    )


READS: tuple[Frame, ...] = (
    read_frame, read_by_python, read_format, read_handle, read_view, read_saved_view, read_below,
)  # fmt: skip


def of_x(frame: "DataFrame") -> "DataFrame":
    return frame.where("p = 'x'").selectExpr("id", "p")


def kept(path: Path) -> bool:
    return WINNER in txlog.Table(path).to_arrow()["id"].to_pylist()


def outcome(run: Callable[[], Any]) -> str:
    """Return whether a write was carried out or ended in a conflict, at any door."""
    try:
        run()
    except Exception as error:  # Spark wraps the error of a data source.
        if isinstance(error, CommitConflictError) or "CommitConflictError" in str(error):
            return "conflict"
        raise
    return "done"


@pytest.mark.slow(cases=8)
@pytest.mark.spec("CON-30")
@pytest.mark.parametrize(
    ("reading", "when", "writing"),
    [
        *((reading, when, by_function) for reading in READS for when in ("between", "meanwhile")),
        *((read_frame, when, writing) for when in ("between", "meanwhile") for writing in OTHERS),
        *((reading, when, by_function) for reading in READS[:3] for when in ("before", "after")),
    ],
)
def test_no_row_of_another_writer_is_lost(
    spark: "SparkSession", place: Path, reading: Frame, when: str, writing: Write
) -> None:
    if when == "before":
        wins(place)
    frame = of_x(reading(spark, place))
    if when == "between":
        wins(place)
    if when == "meanwhile":
        frame = frame.selectExpr("winning(id) AS id", "p")
    found = outcome(lambda: writing(frame, place))
    if when == "after":
        wins(place)
    assert kept(place)
    if when in ("before", "after"):
        assert found == "done"
    elif when == "meanwhile" or reading is not read_format:
        assert found == "conflict"  # The data source reads the latest version.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reading", "writing"),
    [(read_frame, by_format), *((read_format, writing) for writing in FORMATS[1:])],
)
def test_the_format_keeps_rows_of_another_writer_as_well(
    spark: "SparkSession", place: Path, reading: Frame, writing: Write
) -> None:
    frame = of_x(reading(spark, place)).selectExpr("winning(id) AS id", "p")
    assert outcome(lambda: writing(frame, place)) == "conflict"
    assert kept(place)


@pytest.mark.slow
@pytest.mark.spec("CON-30")
@pytest.mark.parametrize("stated", [None, "nothing", "0", "1"])
@pytest.mark.parametrize("reading", [read_frame, read_format, None])
@pytest.mark.parametrize("how", [{}, {"replaceWhere": "p = 'x'"},
                                 {"partitionOverwriteMode": "dynamic"}])  # fmt: skip
def test_the_caller_says_what_rows_are_computed_from(
    spark: "SparkSession", place: Path, how: dict[str, str], reading: Frame | None,
    stated: str | None,
) -> None:  # fmt: skip
    """Version 0 has not the winner's row, which comes while the frame is computed."""
    if stated == "1":
        txlog.Table(place).append(pa.table({"id": [4], "p": ["y"]}))
    base = spark.range(1, 3).selectExpr("id", "'x' AS p")
    frame = of_x(base if reading is None else reading(spark, place))
    frame = frame.selectExpr("winning(id) AS id", "p")
    writer = frame.write.format("txlog").mode("overwrite").options(**how)
    if stated is not None:
        writer = writer.option("computedFrom", stated)
    found = outcome(lambda: writer.save(str(place)))
    assert found == ("done" if stated == "nothing" else "conflict")
    assert kept(place) == (found == "conflict")


@pytest.mark.slow
def test_frames_keep_rows_of_another_writer_in_the_verbs_of_python(
    spark: "SparkSession", tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    table = txlog.write(path, pa.table({"id": [1, 2]}))
    old = spark_ext.read(spark, path).where("id > 1")
    table.append(pa.table({"id": [3]}))
    ways: list[Callable[..., Any]] = [
        lambda **more: txlog.Table(path).overwrite(old, **more),
        lambda **more: spark_ext.table(spark, path).overwrite(old, **more),
        lambda **more: txlog.write(path, old, mode="overwrite", **more),
    ]
    for way in ways:
        with pytest.raises(CommitConflictError):
            way()
        assert sorted(txlog.Table(path).to_arrow()["id"].to_pylist()) == [1, 2, 3]
    ways[0](computed_from=table.refresh().version)
    assert txlog.Table(path).to_arrow()["id"].to_pylist() == [2]
    txlog.write(path, spark_ext.read(spark, path).selectExpr("id + 1 AS id"), mode="overwrite")
    assert txlog.Table(path).to_arrow()["id"].to_pylist() == [3]


@pytest.mark.slow
def test_what_is_stated_counts_for_the_function_too(spark: "SparkSession", place: Path) -> None:
    uri = str(place)
    frame = of_x(read(spark, uri)).cache()
    wins(place)
    with pytest.raises(CommitConflictError, match="CON-30"):
        write(frame, uri, mode="overwrite", computed_from=0)
    write(frame, uri, mode="overwrite", where="p = 'x'", computed_from="nothing")
    assert not kept(place)
    odd: Any = "something"
    for how, reason in (
        ({"mode": "overwrite", "computed_from": 9}, "the latest one of .* is 2"),
        ({"mode": "overwrite", "computed_from": odd}, "neither a version"),
        ({"mode": "append", "computed_from": 0}, "has no effect"),
    ):
        with pytest.raises(InvalidInputError, match=reason) as caught:
            write(frame, uri, **how)
        assert caught.value.argument == "computed_from"
    for text, mode, reason in (
        ("9", "overwrite", "the latest one of .* is 2"),
        ("-1", "overwrite", "a version, or the word nothing"),
        ("0", "append", "has no effect"),
    ):
        with pytest.raises(Exception, match=reason) as failed:
            frame.write.format("txlog").mode(mode).option("computedFrom", text).save(uri)
        assert "computedFrom" in str(failed.value)
    assert txlog.Table(uri).version == 2


@pytest.mark.slow
def test_the_error_says_how_to_write_a_frame_part_by_part(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """One file has the rows of all parts, so the first write writes the others' rows again."""
    uri = txlog.write(tmp_path / "t", pa.table({"id": [1, 2, 3]})).uri
    frame = read(spark, uri)
    write(frame.where("id = 1"), uri, mode="overwrite", where="id = 1")
    with pytest.raises(CommitConflictError, match="an earlier write of the same rows") as caught:
        write(frame.where("id = 2"), uri, mode="overwrite", where="id = 2")
    assert "Read the table again before each write" in str(caught.value)
    assert "computed_from" in str(caught.value)
    for number in (2, 3):
        part = frame.where(f"id = {number}")
        write(part, uri, mode="overwrite", where=f"id = {number}", computed_from="nothing")
    assert sorted(txlog.Table(uri).to_arrow()["id"].to_pylist()) == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "INSERT OVERWRITE {t} SELECT winning(id), p FROM own_reads WHERE p = 'x'",
        "INSERT OVERWRITE own_reads SELECT winning(id), p FROM v_created WHERE p = 'x'",
        "WITH w AS (TABLE {t}) INSERT OVERWRITE own_reads SELECT winning(id), p FROM w",
        "INSERT OVERWRITE {t} SELECT winning(id), 'x' FROM range(9) JOIN (TABLE {t}) USING (id)",
        "INSERT INTO {t} REPLACE WHERE p = 'x' SELECT winning(id), p FROM {t} WHERE p = 'x'",
        "CREATE OR REPLACE TABLE {t} USING delta AS SELECT winning(id) AS id, p FROM own_reads",
    ],
)
def test_statements_keep_rows_of_another_writer(
    spark: "SparkSession", place: Path, text: str
) -> None:
    sql(spark, f"CREATE TABLE own_reads USING txlog LOCATION '{place}'")
    create_view(spark, "v_created", str(place))
    assert outcome(lambda: sql(spark, text.format(t=f"delta.`{place}`"))) == "conflict"
    assert kept(place)


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        "SELECT winning(id), p FROM {t} VERSION AS OF 0",
        "SELECT winning(id), 'x' FROM v_source",
    ],
)
def test_rows_that_are_not_those_of_the_table_replace_all(
    spark: "SparkSession", place: Path, query: str
) -> None:
    spark.range(1, 3).createOrReplaceTempView("v_source")
    sql(spark, f"INSERT OVERWRITE delta.`{place}` {query}".format(t=f"delta.`{place}`"))
    assert not kept(place)


@pytest.mark.slow
def test_rows_elsewhere_in_the_table_may_change(spark: "SparkSession", place: Path) -> None:
    frame = read(spark, str(place)).where("p = 'y'").selectExpr("winning(id) AS id", "p")
    write(frame, str(place), mode="overwrite", where="p = 'y'")
    write(read(spark, str(place)).where("p = 'y'"), str(place), mode="overwrite",
          partition_mode="dynamic")  # fmt: skip
    assert sorted(txlog.Table(place).to_arrow()["id"].to_pylist()) == [1, 2, 3, WINNER]


def test_a_table_that_was_made_anew_has_other_rows(spark: "SparkSession", place: Path) -> None:
    txlog.Table(place).append(pa.table({"id": [4], "p": ["x"]}))
    frame = read(spark, str(place))
    for path in sorted(place.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    txlog.write(place, pa.table({"id": [5], "p": ["x"]}), partition_by="p")
    with pytest.raises(TxlogError):
        write(frame, str(place), mode="overwrite")
    assert txlog.Table(place).to_arrow()["id"].to_pylist() == [5]


def test_versions_are_those_that_frames_read(spark: "SparkSession", place: Path) -> None:
    store = open_store(str(place))
    other = txlog.write(place.parent / "other", pa.table({"id": [1], "p": ["x"]}))
    old = read(spark, str(place))
    wins(place)
    new = read(spark, str(place))
    assert version_read(old, store, 9) == 0
    assert version_read(new, store, 9) == 1
    assert version_read(new.unionAll(old), store, 9) == 0
    assert version_read(read_format(spark, place), store, 9) == 9
    assert version_read(read(spark, str(place), version=1), store, 9) is None
    assert version_read(read(spark, other.uri), store, 9) is None
    pinned = spark.read.format("txlog").option("versionAsOf", 0).load(str(place))
    assert version_read(pinned, store, 9) is None
    assert version_read(spark.range(3), store, 9) is None


@pytest.mark.slow
def test_versions_that_frames_of_connect_read(remote: Callable[..., Any], tmp_path: Path) -> None:
    def work(spark: "SparkSession", path: str) -> dict[str, int | None]:
        import txlog
        from txlog.spark_ext import read, sql
        from txlog.spark_ext.writes.own_reads import version_read
        from txlog.store.open import open_store

        store = open_store(path)
        frame, table = read(spark, path), f"delta.`{path}`"
        txlog.Table(path).append(pa.table({"id": [2]}))
        frame.createOrReplaceTempView("v_connect")
        frames = {
            "joined": spark.range(3).join(frame.where("id > 0"), "id"),
            "by_python": read(spark, path, where="id % 1 = 0"),
            "format": spark.read.format("txlog").load(path),
            "statement": sql(spark, f"WITH w AS (TABLE {table}) SELECT * FROM w"),
            "name": spark.table("v_connect"),
            "chosen": read(spark, path, version=0),
            "none": spark.range(3),
        }
        found = {name: version_read(one, store, 9) for name, one in frames.items()}
        spark.catalog.dropTempView("v_connect")
        return found

    found = remote(work, txlog.write(tmp_path / "t", pa.table({"id": [1]})).uri)
    assert found == {
        "joined": 0, "by_python": 1, "format": 9, "statement": 1, "name": 9, "chosen": None,
        "none": None,
    }  # fmt: skip


@pytest.mark.slow
def test_rows_of_a_database_replace_those_of_a_table(spark: "SparkSession", place: Path) -> None:
    """Spark has Derby, a database in the memory of its driver."""
    system: Any = spark._jvm
    log = str(place.parent / "derby.log")  # Otherwise it is in the working directory.
    system.java.lang.System.setProperty("derby.stream.error.file", log)
    options = {
        "url": "jdbc:derby:memory:own_reads;create=true",
        "driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
        "query": 'SELECT CAST(7 AS BIGINT) AS "id", \'z\' AS "p" FROM SYSIBM.SYSDUMMY1',
    }
    frame = spark.read.format("jdbc").options(**options).load()
    write(frame.selectExpr("id", "CAST(p AS STRING) AS p"), str(place), mode="overwrite")
    assert txlog.Table(place).to_arrow().to_pylist() == [{"id": 7, "p": "z"}]


def test_nested_subqueries_are_visited_once(
    spark: "SparkSession", place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from txlog.spark_ext.writes import own_reads

    read(spark, str(place)).createOrReplaceTempView("v_created")
    query = "SELECT max(id) FROM v_created"
    for _ in range(4):
        query = f"SELECT max(id) FROM range(9) WHERE id >= ({query})"
    visited: list[str] = []
    class_of = own_reads.class_of

    def noted(found: Any) -> str:
        visited.append(class_of(found))
        return visited[-1]

    monkeypatch.setattr(own_reads, "class_of", noted)
    assert version_read(spark.sql(query), open_store(str(place)), 5) == 0
    assert visited == ["Range"] * 4 + ["LogicalRelation", "HadoopFsRelation"]


def test_marks_have_no_secrets() -> None:
    from txlog.spark_ext.reads.marks import marks_of

    store: Any = SimpleNamespace(root="s3://user:pa55word@bucket/t")
    assert "pa55word" not in str(marks_of(store, 3))
    marked = {name.lower(): value for name, value in marks_of(store, 3).items()}
    assert version_of(Relation(marked, is_source=False), store, 5) == 3
    other: Any = SimpleNamespace(root="s3://user:pa55word@bucket/u")
    assert version_of(Relation(marked, is_source=False), other, 5) is None
