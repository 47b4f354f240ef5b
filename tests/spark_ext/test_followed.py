"""Frames that read the table that they change: they follow it to the version that is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import StorageLevel

import txlog
from tests.examples import examples
from tests.losing import losing
from txlog import spark_ext
from txlog.base.errors import CommitConflictError
from txlog.spark_ext import DeltaTable, create_view, read, sql
from txlog.spark_ext.writes.followed import followed
from txlog.store.open import open_store
from txlog.table.seam import context_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Frame = Callable[["SparkSession", Path], "DataFrame"]
Write = Callable[["DataFrame", Path], None]
Rows = list[tuple[Any, ...]]

WINNER = 99


def content(path: Path) -> Rows:
    return sorted(tuple(row.values()) for row in txlog.Table(path).to_arrow().to_pylist())


def collected(frame: DataFrame) -> Rows:
    return sorted(tuple(row.values()) for row in frame.toArrow().to_pylist())


def at_latest(frame: DataFrame, path: Path) -> DataFrame:
    store = open_store(str(path))
    return followed(frame, store, txlog.Table(path).snapshot)


def made_table(path: Path, **more: Any) -> txlog.Table:
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "p": ["x", "x", "y"]})
    return txlog.write(path, rows, **more)


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Iterator[Path]:
    path = Path(made_table(tmp_path / "t", partition_by="p").uri)
    yield path
    for name in ("v_created", "v_saved"):
        spark.catalog.dropTempView(name)


def read_frame(spark: SparkSession, path: Path) -> DataFrame:
    return read(spark, str(path))


def read_columns(spark: SparkSession, path: Path) -> DataFrame:
    return read(spark, str(path), columns=["p", "id"], where="id > 0").select("id", "p")


def read_by_python(spark: SparkSession, path: Path) -> DataFrame:
    return read(spark, str(path), where="id % 1 = 0")


def read_format(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.format("txlog").load(str(path))


def read_handle(spark: SparkSession, path: Path) -> DataFrame:
    return DeltaTable.forPath(spark, str(path)).toDF()


def read_view(spark: SparkSession, path: Path) -> DataFrame:
    create_view(spark, "v_created", str(path))
    return spark.table("v_created")


def read_saved_view(spark: SparkSession, path: Path) -> DataFrame:
    read(spark, str(path)).where("id > 0").createOrReplaceTempView("v_saved")
    return spark.sql("WITH w AS (SELECT * FROM v_saved) SELECT * FROM w")


def read_statement(spark: SparkSession, path: Path) -> DataFrame:
    return sql(spark, f"SELECT * FROM delta.`{path}`")


def read_below(spark: SparkSession, path: Path) -> DataFrame:
    read(spark, str(path)).createOrReplaceTempView("v_saved")
    return spark.sql(
        "SELECT id, (SELECT max(p) FROM v_saved) AS p FROM range(1, 100) "
        "WHERE id IN (SELECT id FROM v_saved)"
    )


READS: tuple[Frame, ...] = (
    read_frame, read_columns, read_by_python, read_format, read_handle, read_view, read_saved_view,
    read_statement, read_below,
)  # fmt: skip

SHAPES: tuple[Callable[[DataFrame], DataFrame], ...] = (
    lambda df: df,
    lambda df: df.alias("a").join(df.alias("b"), "id").selectExpr("id", "a.p AS p"),
    lambda df: df.union(df),
    lambda df: df.where(df["id"] > 1).select(df["id"], df["p"]),
    lambda df: df.groupBy("p").count().selectExpr("count AS id", "p"),
    lambda df: df.distinct().selectExpr("id + 1 AS id", "p"),
)


def change(path: Path, what: str) -> None:
    table = txlog.Table(path)
    more = {"id": pa.array([table.version + 10], pa.int64()), "p": ["z"]}
    match what:
        case "append":
            table.append(pa.table(more))
        case "delete":
            table.delete("id = 2")
        case "update":
            table.update({"id": "id + 1"}, "p = 'x'")
        case "compact":
            table.optimize.compact()
        case "add column":
            table.alter.add_columns({f"c{table.version}": pa.string()})
        case _:
            raise AssertionError(what)


@pytest.mark.slow
@pytest.mark.spec("SPK-27")
@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_a_frame_that_follows_has_the_rows_of_a_frame_that_is_made_anew(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("followed") / "t"
    vectors = data.draw(st.booleans())
    properties = {"delta.enableDeletionVectors": str(vectors).lower()}
    made_table(path, partition_by=data.draw(st.sampled_from([None, "p"])), properties=properties)
    kinds = st.sampled_from(["append", "delete", "update", "compact", "add column"])
    reading, shape = data.draw(st.sampled_from(READS)), data.draw(st.sampled_from(SHAPES))
    for what in data.draw(st.lists(kinds, max_size=2)):
        change(path, what)
    before = reading(spark, path).select("id", "p")
    old, first = shape(before), txlog.Table(path).version
    for what in data.draw(st.lists(kinds, min_size=1, max_size=3)):
        change(path, what)
    expected = collected(shape(reading(spark, path).select("id", "p")))
    assert collected(at_latest(old, path)) == expected
    back = followed(old, open_store(str(path)), txlog.Table(path, first).snapshot)
    again = shape(read(spark, str(path), version=first).select("id", "p"))
    if reading is not read_below:
        assert collected(back) == collected(again)
    spark.catalog.clearCache()


# The rows that Delta's documentation expects of a job for slowly changing dimensions of type 2.


def dimensions(rows: Rows, updates: dict[int, str]) -> Rows:
    """Apply new addresses, one by one: the current row ends, and another one begins."""
    found = list(rows)
    for key, address in updates.items():
        current = [row for row in found if row[0] == key and row[2]]
        if current and current[0][1] == address:
            continue
        found = [(*row[:2], False) if row in current else row for row in found]
        found.append((key, address, True))
    return sorted(found)


def keep_dimensions(customers: DataFrame, path: Path, updates: dict[int, str]) -> None:
    """Run the job of the documentation."""
    spark = customers.sparkSession
    new = spark.createDataFrame(list(updates.items()), "customerId bigint, address string")
    changed = (
        new.alias("updates")
        .join(customers.alias("customers"), "customerId")
        .where("customers.current = true AND updates.address <> customers.address")
    )
    staged = changed.selectExpr("CAST(NULL AS BIGINT) AS mergeKey", "updates.*").union(
        new.selectExpr("customerId AS mergeKey", "*")
    )
    (
        DeltaTable.forPath(spark, str(path))
        .alias("customers")
        .merge(staged.alias("staged"), "customers.customerId = mergeKey")
        .whenMatchedUpdate(
            condition="customers.current = true AND customers.address <> staged.address",
            set={"current": "false"},
        )
        .whenNotMatchedInsert(
            values={"customerId": "staged.customerId", "address": "staged.address",
                    "current": "true"}
        )
        .execute()
    )  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.spec("CON-30", "SPK-27")
@pytest.mark.parametrize("winner", [False, True])
@pytest.mark.parametrize("reading", [read_handle, read_format, read_view])
def test_slowly_changing_dimensions_with_a_frame_that_was_made_before_an_update(
    spark: SparkSession, tmp_path: Path, reading: Frame, winner: bool
) -> None:
    path = tmp_path / "t"
    names = ("customerId", "address", "current")
    rows = [(1, "a", True), (2, "b", True), (3, "c", False), (3, "d", True)]
    txlog.write(path, pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))))
    customers = reading(spark, path)
    DeltaTable.forPath(spark, str(path)).update("customerId = 2", {"address": "'new'"})
    rows = [(2, "new", True) if row[0] == 2 else row for row in rows]

    def wins(table: txlog.Table) -> None:
        table.update({"address": "'win'"}, "customerId = 1 AND current")

    updates = {1: "win", 2: "new", 3: "e", 4: "f"}
    if winner:
        rows = [(1, "win", True) if row[0] == 1 else row for row in rows]
    with losing(path, [wins] if winner else []):
        keep_dimensions(customers, path, updates)
    assert content(path) == dimensions(rows, updates)
    keep_dimensions(customers, path, {4: "g"})
    assert content(path) == dimensions(dimensions(rows, updates), {4: "g"})


def merged(frame: DataFrame, path: Path) -> None:
    merger = spark_ext.table(frame.sparkSession, str(path)).merge(frame, "target.id = source.id")
    merger.when_matched_update({"p": "concat(source.p, '+')"}).execute()


def upserted(frame: DataFrame, path: Path) -> None:
    rows = frame.selectExpr("id * 10 AS id", "p")
    spark_ext.table(frame.sparkSession, str(path)).upsert(rows, on="id")


def merged_by_handle(frame: DataFrame, path: Path) -> None:
    table = DeltaTable.forPath(frame.sparkSession, str(path)).alias("t")
    table.merge(frame.alias("s"), "t.id = s.id").whenMatchedDelete("s.id = 1").execute()


def merged_by_columns(frame: DataFrame, path: Path) -> None:
    table = DeltaTable.forPath(frame.sparkSession, str(path)).alias("t")
    merge = table.merge(frame, frame["id"] == table.toDF()["id"])
    merge.whenMatchedUpdate(set={"p": frame["p"]}).whenNotMatchedBySourceDelete().execute()


def merged_in_a_block(frame: DataFrame, path: Path) -> None:
    """What the block itself has changed does not count."""
    table = txlog.Table(path)
    with table.transaction() as changes:
        changes.append(pa.table({"id": pa.array([50], pa.int64()), "p": ["x"]}))
        merger = changes.merge(frame, "target.id = source.id")
        merger.when_matched_update({"p": "concat(source.p, '+')"}).execute()


def merged_with_quarantine(frame: DataFrame, path: Path) -> None:
    merger = spark_ext.table(frame.sparkSession, str(path)).merge(
        frame, "target.id = source.id", on_error="quarantine", quarantine=path.parent / "q"
    )
    merger.when_matched_update({"p": "concat(source.p, '+')"}).execute()


def numbered(frame: DataFrame, path: Path) -> None:
    """Insert the next number into a partition. The other partition has a part in it."""
    frame = frame.selectExpr("max(id) + 1 AS id", "'x' AS p")
    condition = "target.p = 'x' AND target.id = source.id"
    merger = spark_ext.table(frame.sparkSession, str(path)).merge(frame, condition)
    merger.when_not_matched_insert_all().execute()


def updated_by_subquery(frame: DataFrame, path: Path) -> None:
    frame.createOrReplaceTempView("v_saved")
    table = DeltaTable.forPath(frame.sparkSession, str(path))
    table.update("id = (SELECT max(id) FROM v_saved)", {"p": "(SELECT max(p) FROM v_saved)"})


def updated_in_a_partition(frame: DataFrame, path: Path) -> None:
    frame.createOrReplaceTempView("v_saved")
    table = DeltaTable.forPath(frame.sparkSession, str(path))
    table.update("p = 'x'", {"id": "id + 1000 * (SELECT max(id) FROM v_saved)"})


def deleted_by_subquery(frame: DataFrame, path: Path) -> None:
    frame.createOrReplaceTempView("v_saved")
    table = DeltaTable.forPath(frame.sparkSession, str(path))
    table.delete("id = (SELECT max(id) FROM v_saved)")


def deleted_in_a_partition(frame: DataFrame, path: Path) -> None:
    frame.createOrReplaceTempView("v_saved")
    table = DeltaTable.forPath(frame.sparkSession, str(path))
    table.delete("p = 'x' AND id + 1 < (SELECT max(id) FROM v_saved)")


def merged_by_statement(frame: DataFrame, path: Path) -> None:
    frame.createOrReplaceTempView("v_saved")
    text = f"MERGE INTO delta.`{path}` AS t USING v_saved AS s ON t.id = s.id"
    sql(frame.sparkSession, f"{text} WHEN MATCHED THEN UPDATE SET p = concat(s.p, '+')")


CHANGES: tuple[Write, ...] = (
    merged, upserted, merged_by_handle, merged_by_columns, merged_in_a_block,
    merged_with_quarantine, numbered, updated_by_subquery, updated_in_a_partition,
    deleted_by_subquery, deleted_in_a_partition, merged_by_statement,
)  # fmt: skip


def wins(table: txlog.Table) -> None:
    """Add a row where most of the changes look for none, and change another one."""
    rows = pa.table({"id": pa.array([WINNER], pa.int64()), "p": ["y"]})
    with table.transaction() as changes:
        changes.append(rows)
        changes.update({"p": "'won'"}, "id = 2")


@pytest.mark.slow(cases=4)
@pytest.mark.spec("CON-30", "SPK-27")
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_reads_the_rows_on_which_it_decides(
    spark: SparkSession, place: Path, change: Write
) -> None:
    """An old frame gives the rows that a new frame gives after the winner."""
    other = place.parent / "other"
    made_table(other, partition_by="p")
    old = read(spark, str(place))
    wins(txlog.Table(place))
    wins(txlog.Table(other))
    change(old, place)
    change(read(spark, str(other)), other)
    assert content(place) == content(other)


@pytest.mark.exhaustive
@pytest.mark.spec("CON-30", "SPK-27")
@pytest.mark.parametrize(
    "reading", [read_frame, pytest.param(read_format, marks=pytest.mark.exhaustive)]
)
@pytest.mark.parametrize("change", [one for one in CHANGES if one is not merged_with_quarantine])
def test_after_a_lost_race_a_change_is_decided_again(
    spark: SparkSession, place: Path, change: Write, reading: Frame
) -> None:
    other = place.parent / "other"
    made_table(other, partition_by="p")
    wins(txlog.Table(other))
    change(read(spark, str(other)), other)
    with losing(place, [wins]):
        change(reading(spark, place), place)
    assert content(place) == content(other)


@pytest.mark.slow
def test_rows_that_are_computed_once_are_a_conflict_after_a_lost_race(
    spark: SparkSession, place: Path
) -> None:
    """With a quarantine, the rows of the source are computed before the first attempt."""
    before = txlog.Table(place).version
    with losing(place, [wins]), pytest.raises(CommitConflictError, match="before the first"):
        merged_with_quarantine(read(spark, str(place)), place)
    assert txlog.Table(place).version == before + 1
    merged_with_quarantine(read(spark, str(place)), place)


def cached_view(frame: DataFrame) -> DataFrame:
    frame.createOrReplaceTempView("v_saved")
    frame.sparkSession.catalog.cacheTable("v_saved")
    return frame.sparkSession.table("v_saved")


def cached(frame: DataFrame) -> DataFrame:
    return frame.cache()


def part_persisted(frame: DataFrame) -> DataFrame:
    return frame.persist(StorageLevel.DISK_ONLY).where("id > 0")


KEEPS = (cached, part_persisted, cached_view)


@pytest.fixture
def keeping(spark: SparkSession) -> Iterator[SparkSession]:
    yield spark
    spark.catalog.clearCache()


@pytest.mark.slow
@pytest.mark.spec("CON-30", "SPK-27")
@pytest.mark.parametrize("keep", KEEPS)
def test_rows_that_spark_keeps_are_merged_as_they_are_or_not_at_all(
    keeping: SparkSession, place: Path, keep: Callable[[DataFrame], DataFrame]
) -> None:
    """Another plan would get other random numbers."""
    frame = keep(read(keeping, str(place)).selectExpr("id", "CAST(rand() AS STRING) AS p"))
    seen = collected(frame)
    txlog.Table(place).optimize.compact()
    merged(frame, place)
    assert content(place) == [(number, f"{value}+") for number, value in seen]
    before = content(place)
    for change in (merged, deleted_by_subquery, merged_with_quarantine):
        with pytest.raises(CommitConflictError, match="Spark keeps its rows"):
            change(frame, place)
    assert content(place) == before


@pytest.mark.slow
@pytest.mark.spec("CON-30", "SPK-27")
def test_kept_rows_that_depend_on_the_order_of_tasks_delete_no_other_row(
    keeping: SparkSession, place: Path
) -> None:
    """The frame is also joined with rows of the table that Spark does not keep."""
    whole = read(keeping, str(place))
    frame = whole.where("id >= 2").limit(1).cache()
    assert len(collected(frame)) == 1
    txlog.Table(place).update({"p": "'z'"}, "id = 1")
    before = content(place)
    for source in (frame, whole.join(frame.select("id"), "id")):
        with pytest.raises(CommitConflictError, match="Spark keeps its rows"):
            merged_by_handle(source, place)
    assert content(place) == before
    frame.unpersist()
    merged(frame, place)
    assert len(set(content(place)) - set(before)) == 1


@pytest.mark.slow
@pytest.mark.spec("CON-30", "SPK-27")
def test_kept_rows_of_an_unknown_version_are_a_conflict(keeping: SparkSession, place: Path) -> None:
    frame = read_format(keeping, place).cache()
    assert len(collected(frame)) == 3
    for change in (merged, deleted_by_subquery):
        with pytest.raises(CommitConflictError, match="of which version"):
            change(frame, place)
    frame.unpersist()
    merged(frame, place)


@pytest.mark.slow
@pytest.mark.parametrize("version", [0, 1])
def test_a_version_that_the_caller_chose_stays(
    spark: SparkSession, place: Path, version: int
) -> None:
    frame = read(spark, str(place), version=0)
    pinned = spark.read.format("txlog").option("versionAsOf", 0).load(str(place))
    before = collected(frame)
    if version:
        wins(txlog.Table(place))
    assert collected(at_latest(frame, place)) == collected(at_latest(pinned, place)) == before
    merged(frame, place)


def test_other_tables_and_branches_stay(spark: SparkSession, place: Path) -> None:
    other = place.parent / "other"
    made_table(other)
    txlog.Table(place).branches.create("b")
    frame = read(spark, str(other))
    of_branch = read(spark, str(place), branch="b")
    before = collected(frame), collected(of_branch)
    wins(txlog.Table(other))
    wins(txlog.Table(place))
    assert (collected(at_latest(frame, place)), collected(at_latest(of_branch, place))) == before
    wins(txlog.Table(place, branch="b"))
    latest = txlog.Table(place, branch="b")
    found = followed(of_branch, context_of(latest).store, latest.snapshot)
    assert (WINNER, "y") in collected(found)


@pytest.mark.slow
def test_columns_that_are_gone_end_in_an_error_that_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    table = made_table(path, properties={"delta.columnMapping.mode": "name"})
    old = read(spark, str(path))
    table.alter.rename_column("p", "q")
    table.append(pa.table({"id": pa.array([4], pa.int64()), "q": ["x"]}))
    merger = spark_ext.table(spark, str(path)).merge(old, "target.id = source.id")
    with pytest.raises(CommitConflictError, match="its columns have changed") as caught:
        merger.when_matched_delete().execute()
    assert "Make the frame" in caught.value.remedy
    again = read(spark, str(path))
    spark_ext.table(spark, str(path)).merge(
        again, "target.id = source.id"
    ).when_matched_delete().execute()
    assert content(path) == []


@pytest.mark.slow
def test_a_column_that_may_have_nulls_by_now_gives_no_wrong_values(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
    table = txlog.write(path, pa.table({"id": [1], "n": [7]}, schema=schema))
    old = read(spark, str(path))
    assert not old.schema["n"].nullable
    table.alter.set_nullable("n")
    table.append(pa.table({"id": pa.array([2], pa.int64()), "n": pa.array([None], pa.int64())}))
    merger = spark_ext.table(spark, str(path)).merge(
        old.selectExpr("id", "n IS NULL AS lacks"), "target.id = source.id"
    )
    with pytest.raises(CommitConflictError, match="its columns have changed"):
        merger.when_matched_update({"n": "if(source.lacks, 0, 1)"}).execute()


@pytest.mark.exhaustive
def test_frames_of_connect_stay_and_the_error_says_what_to_do(
    remote: Callable[..., Any], tmp_path: Path
) -> None:
    def work(spark: SparkSession, path: str) -> tuple[str, int]:
        import pyarrow as pa

        import txlog
        from txlog.base.errors import CommitConflictError
        from txlog.spark_ext import DeltaTable

        table = DeltaTable.forPath(spark, path)
        old = table.toDF()
        txlog.Table(path).append(pa.table({"id": [2]}))
        said = ""
        try:
            table.alias("t").merge(old.alias("s"), "t.id = s.id").whenMatchedDelete().execute()
        except CommitConflictError as error:
            said = str(error)
        new = table.toDF()
        table.alias("t").merge(new.alias("s"), "t.id = s.id").whenMatchedDelete().execute()
        return said, txlog.Table(path).count()

    said, left = remote(work, txlog.write(tmp_path / "t", pa.table({"id": [1]})).uri)
    assert left == 0
    assert "Spark Connect" in said
    assert "CON-30" in said
