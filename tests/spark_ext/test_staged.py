"""Frames in a transaction: executors write them, and they are committed with all other changes."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog import Catalog, spark_ext
from txlog.base.errors import (
    CommitConflictError,
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from txlog.spark_ext.reads.read_frame import as_option
from txlog.verbs.quarantine import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
pytestmark = pytest.mark.spark


@pytest.fixture(params=["all", "writes"])
def catalog(tmp_path: Path, request: pytest.FixtureRequest) -> Catalog:
    found = Catalog(tmp_path / "lake.db", tmp_path / "lake")
    for name in ("sales.orders", "sales.totals"):
        table = found.create_table(name, SCHEMA, managed=request.param)
        table.append(rows_of({1: 10, 2: 20}))
    return found


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no rows come to this process as Arrow: only executors may write them."""
    from pyspark.sql.classic.dataframe import DataFrame

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("rows came to the driver")

    monkeypatch.setattr(DataFrame, "__arrow_c_stream__", refused)


def rows_of(rows: dict[int, int]) -> pa.Table:
    return pa.table({"id": list(rows), "v": list(rows.values())}, schema=SCHEMA)


def frame(spark: "SparkSession", first: int, last: int) -> "DataFrame":
    return spark.range(first, last, 1, 3).selectExpr("id", "id * 10 AS v")


def state(catalog: Catalog, name: str) -> dict[int, int]:
    return {one["id"]: one["v"] for one in catalog.table(name).to_arrow().to_pylist()}


def state_of(table: txlog.Table) -> dict[int, int]:
    return {one["id"]: one["v"] for one in table.refresh().to_arrow().to_pylist()}


def data_files(catalog: Catalog) -> set[str]:
    folder = Path(catalog.location_of("sales.orders")).parent
    return {str(one) for one in folder.rglob("*.parquet") if "_delta_log" not in str(one)}


@pytest.mark.slow(cases=1)
@pytest.mark.spec("SPK-40")
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("local_rows", ["0", "10000"])
def test_frames_change_several_tables_at_one_moment(
    catalog: Catalog, spark: Any, monkeypatch: pytest.MonkeyPatch, local_rows: str
) -> None:
    spark.conf.set("spark.txlog.merge.localRows", local_rows)
    try:
        with catalog.transaction() as changes:
            orders, totals = changes["sales.orders"], changes["sales.totals"]
            orders.append(frame(spark, 3, 6))
            merge = orders.merge(frame(spark, 2, 8), "target.id = source.id")  # Sees the append.
            merge.when_matched_update({"v": "target.v + source.v"}).when_not_matched_insert_all() \
                .execute()  # fmt: skip
            totals.overwrite(frame(spark, 1, 3), "id < 2 OR id = 2")
            totals.upsert(frame(spark, 2, 4), on="id")
            assert orders.count() == 7
            assert state(catalog, "sales.orders") == {1: 10, 2: 20}
    finally:
        spark.conf.unset("spark.txlog.merge.localRows")
    assert state(catalog, "sales.orders") == {1: 10, 2: 40, 3: 60, 4: 80, 5: 100, 6: 60, 7: 70}
    assert state(catalog, "sales.totals") == {1: 10, 2: 20, 3: 30}
    ids = {
        catalog.table(name).history(1)[0]["tags"]["delta.multiTableTransaction.transactionId"]
        for name in ("sales.orders", "sales.totals")
    }
    assert len(ids) == 1


@pytest.mark.slow
@pytest.mark.spec("SPK-40")
@pytest.mark.usefixtures("alone")
def test_a_wrong_row_of_a_frame_leaves_nothing(catalog: Catalog, spark: Any) -> None:
    before = data_files(catalog)
    wrong = spark.range(5).selectExpr("IF(id = 3, NULL, id) AS id", "id AS v")
    for one in (wrong, spark.range(3).selectExpr("id", "'a' AS v")):

        def change(one: Any = one) -> None:
            with catalog.transaction() as changes:
                changes["sales.totals"].append(frame(spark, 3, 6))
                changes["sales.orders"].append(one)

        with pytest.raises(SchemaMismatchError):
            change()
    assert state(catalog, "sales.totals") == {1: 10, 2: 20}
    assert data_files(catalog) == before


@pytest.mark.slow
@pytest.mark.spec("CAT-9")
@pytest.mark.usefixtures("alone")
def test_files_of_frames_are_judged_again_after_a_lost_race(catalog: Catalog, spark: Any) -> None:
    with catalog.transaction() as changes:
        changes["sales.orders"].append(frame(spark, 3, 6))
        changes["sales.totals"].delete("id = 1")
        written = data_files(catalog)
        catalog.table("sales.orders").append(rows_of({9: 90}))
        others = data_files(catalog) - written
    assert state(catalog, "sales.orders") == {1: 10, 2: 20, 3: 30, 4: 40, 5: 50, 9: 90}
    assert data_files(catalog) == written | others  # The frame was not written again.
    before = data_files(catalog)

    def late() -> None:
        with catalog.transaction() as changes:
            changes["sales.totals"].append(frame(spark, 3, 6))
            catalog.table("sales.totals").alter.add_constraint({"few": "v < 25"})

    with pytest.raises(CommitConflictError):
        late()
    assert data_files(catalog) == before
    spark.conf.set("spark.txlog.merge.localRows", "0")
    try:
        with catalog.transaction() as changes:
            merge = changes["sales.orders"].merge(frame(spark, 9, 11), "target.id = source.id")
            merge.when_matched_update({"v": "target.v + source.v"}).execute()
            catalog.table("sales.orders").update({"v": "1"}, "id = 9")
    finally:
        spark.conf.unset("spark.txlog.merge.localRows")
    assert state(catalog, "sales.orders")[9] == 91  # The merge was computed again.


@pytest.mark.slow
@pytest.mark.spec("CAT-8")
@pytest.mark.usefixtures("alone")
def test_a_batch_of_a_stream_is_committed_once(
    catalog: Catalog, spark: Any, tmp_path: Path
) -> None:
    frame(spark, 5, 8).write.parquet(str(tmp_path / "source"))

    def both(batch: Any, number: int) -> None:
        for attempt in range(2):  # As if the first answer was lost.
            with catalog.transaction(txn=("stream", number)) as changes:
                before = data_files(catalog)
                changes["sales.orders"].append(batch)
                merge = changes["sales.totals"].merge(batch, "target.id = source.id")
                merge.when_not_matched_insert_all().execute()
                # A recorded batch is not computed.
                assert (data_files(catalog) == before) == bool(attempt)

    stream = spark.readStream.schema("id bigint, v bigint").parquet(str(tmp_path / "source"))
    query = stream.writeStream.foreachBatch(both).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()
    for name in ("sales.orders", "sales.totals"):
        assert state(catalog, name) == {1: 10, 2: 20, 5: 50, 6: 60, 7: 70}


@pytest.mark.slow(cases=1)
@pytest.mark.spec("STR-40")
@pytest.mark.parametrize("quarantined", [False, True])
def test_a_stream_writes_into_a_managed_table(
    catalog: Catalog, spark: Any, tmp_path: Path, quarantined: bool
) -> None:
    place = catalog.location_of("sales.orders")
    options = as_option(catalog.storage_options())
    quarantine = catalog.create_table("sales.refused", COLUMNS, managed="writes")
    frame(spark, 5, 8).write.parquet(str(tmp_path / "source"))

    def run() -> None:
        stream = spark.readStream.schema("id bigint, v bigint").parquet(str(tmp_path / "source"))
        writer = stream.writeStream.format("txlog").option("secretStorageOptions", options)
        if quarantined:
            writer = writer.option("onError", "quarantine").option("quarantine", quarantine.uri)
        writer = writer.option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start(place).awaitTermination()

    run()
    expected = {1: 10, 2: 20, 5: 50, 6: 60, 7: 70}
    assert state(catalog, "sales.orders") == expected
    more = frame(spark, 8, 10)
    if quarantined:
        more = more.selectExpr("IF(id = 8, NULL, id) AS id", "v")
    more.write.mode("append").parquet(str(tmp_path / "source"))
    run()
    commits = tmp_path / "c" / "commits"
    for path in sorted(commits.iterdir()):  # As if the query ended before Spark noted the batch.
        if path.name.strip(".").startswith("1"):
            path.unlink()
    run()
    assert state(catalog, "sales.orders") == expected | {9: 90} | ({} if quarantined else {8: 80})
    assert catalog.table("sales.refused").count() == int(quarantined)
    source = spark.readStream.format("txlog").option("secretStorageOptions", options).load(place)
    copy = source.writeStream.format("txlog").option("checkpointLocation", str(tmp_path / "d"))
    copy.trigger(availableNow=True).start(str(tmp_path / "copy")).awaitTermination()
    assert txlog.Table(tmp_path / "copy").count() == len(state(catalog, "sales.orders"))


@pytest.mark.usefixtures("alone")
def test_a_transaction_of_one_table_takes_frames(spark: Any, tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", rows_of({1: 10, 2: 20}), partition_by="id")
    with table.transaction(txn=("job", 1)) as changes:
        changes.delete("id = 1")
        changes.append(frame(spark, 3, 5))
        changes.overwrite(frame(spark, 4, 6), partition_mode="dynamic")
    found = sorted(map(tuple, (one.values() for one in table.to_arrow().to_pylist())))
    assert found == [(2, 20), (3, 30), (4, 40), (5, 50)]
    with table.transaction(txn=("job", 1)) as changes:
        changes.append(frame(spark, 3, 5))
    assert table.refresh().count() == 4
    with pytest.raises(InvalidInputError, match="stream"), table.transaction() as changes:
        changes.append(spark.readStream.format("rate").load())


@pytest.mark.slow
@pytest.mark.spec("SPK-41")
def test_what_only_the_source_reads_is_no_second_change(spark: Any, tmp_path: Path) -> None:
    """The data source opens versions of the log, and the version of the block is none."""
    table = txlog.write(tmp_path / "t", rows_of({1: 10, 2: 20, 5: 50}))
    table.alter.add_features("txlog.fragments")
    table.alter.add_columns({"w": "id + 1"})
    spark.conf.set("spark.txlog.merge.localRows", "0")

    def change(first: Callable[[Any], object]) -> None:
        with table.transaction() as changes:
            first(changes)
            merge = changes.merge(frame(spark, 2, 4), "target.id = source.id")
            merge.when_matched_update({"w": "source.v"}).execute()

    try:
        change(lambda _: None)
        assert sorted(table.to_arrow()["w"].to_pylist()) == [2, 6, 20]
        with pytest.raises(UnsupportedFeatureError, match="not committed"):
            change(lambda changes: changes.delete("id = 1"))
    finally:
        spark.conf.unset("spark.txlog.merge.localRows")
    assert table.refresh().count() == 3


@pytest.mark.slow
@pytest.mark.spec("CAT-16")
@pytest.mark.spec("CON-33")
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("managed", [False, True])
def test_rows_of_frames_that_do_not_fit_go_to_a_quarantine(
    catalog: Catalog, spark: Any, tmp_path: Path, managed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    quarantine: Any = tmp_path / "q"
    if managed:
        quarantine = catalog.create_table("sales.refused", COLUMNS, managed="writes")
    given: dict[str, Any] = {"on_error": "quarantine", "quarantine": quarantine}
    rows = spark.range(3, 9, 1, 3).selectExpr("IF(id % 2 = 0, NULL, id) AS id", "id AS v")

    def change() -> None:
        with catalog.transaction(txn=("job", 1)) as changes:
            changes["sales.orders"].append(rows, **given)
            changes["sales.orders"].overwrite(rows.where("v > 6"), "id = 1 OR id > 6", **given)
            changes["sales.totals"].append(rows, **given)

    def failed(*_: Any, **__: Any) -> Any:
        raise txlog.StoreError(path="x", operation="write", reason="the catalog is away")

    with monkeypatch.context() as patch:
        patch.setattr("txlog.commit.group._ratified", failed)
        with pytest.raises(txlog.StoreError):
            change()
    assert state(catalog, "sales.orders") == {1: 10, 2: 20}
    for _ in range(2):
        change()
    opened = catalog.table("sales.refused") if managed else txlog.Table(quarantine)
    assert sorted(opened.to_arrow()["row"].to_pylist()) == sorted(
        [f'{{"id": null, "v": {v}}}' for v in (4, 6, 8)] * 2 + ['{"id": null, "v": 8}']
    )
    assert state(catalog, "sales.orders") == {2: 20, 3: 3, 5: 5, 7: 7}
    assert state(catalog, "sales.totals") == {1: 10, 2: 20, 3: 3, 5: 5, 7: 7}
    metrics = catalog.table("sales.totals").history(1)[0]["operationMetrics"]
    assert metrics["numQuarantinedRows"] == "3"


def test_a_table_in_memory_takes_frames_through_this_process(spark: Any) -> None:
    assert spark_ext.__name__ == "txlog.spark_ext"  # It is imported, so frames are known.
    table = txlog.write("memory://staged", rows_of({1: 10}), mode="overwrite")
    with table.transaction() as changes:
        changes.append(frame(spark, 2, 4))
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.spec("CON-30")
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("when", ["before", "meanwhile", "in the block"])
def test_an_overwrite_with_rows_of_the_table_undoes_no_change(
    catalog: Catalog, spark: Any, tmp_path: Path, when: str
) -> None:
    alone = txlog.write(tmp_path / "t", rows_of({1: 10, 2: 20}))
    managed = catalog.table("sales.orders")

    def change(begin: Callable[[], Any], table: txlog.Table, of: Callable[[Any], Any]) -> None:
        options = catalog.storage_options() if table is managed else None
        read = spark_ext.read(spark, table.uri, storage_options=options).where("id > 1")
        more = rows_of({3: 30})
        if when == "before":
            table.append(more)
        with begin() as changes:
            if when == "in the block":
                of(changes).append(more)
            of(changes).overwrite(read)
            if when == "meanwhile":
                table.append(more)

    expected = [1, 2] if when == "in the block" else [1, 2, 3]
    with pytest.raises(CommitConflictError) as caught:
        change(alone.transaction, alone, lambda changes: changes)
    assert ("earlier change of this transaction" in caught.value.remedy) == (when == "in the block")
    assert sorted(alone.refresh().to_arrow()["id"].to_pylist()) == expected
    with pytest.raises(CommitConflictError):
        change(catalog.transaction, managed, lambda changes: changes["sales.orders"])
    assert sorted(state(catalog, "sales.orders")) == expected


@pytest.mark.spec("CON-30")
def test_an_overwrite_with_rows_of_the_table_needs_no_more_than_its_version(
    spark: Any, tmp_path: Path
) -> None:
    table = txlog.write(tmp_path / "t", rows_of({1: 10, 2: 20}))
    with table.transaction() as changes:
        changes.overwrite(spark_ext.read(spark, str(tmp_path / "t")).where("id > 1"))
    assert state_of(table) == {2: 20}
    # A version that was chosen is meant to replace later ones.
    old = spark_ext.read(spark, str(tmp_path / "t"), version=0)
    with table.transaction() as changes:
        changes.append(rows_of({3: 30}))
        changes.overwrite(old)
    assert state_of(table) == {1: 10, 2: 20}


@pytest.mark.slow
@pytest.mark.spec("SPK-27")
@pytest.mark.parametrize("local_rows", ["0", "10000"])
def test_a_merge_with_rows_of_the_table_undoes_no_change(
    spark: Any, tmp_path: Path, local_rows: str
) -> None:
    table = txlog.write(tmp_path / "t", rows_of({1: 10, 2: 20}))
    read = spark_ext.read(spark, str(tmp_path / "t")).selectExpr("id", "v + 1 AS v")

    def change() -> None:
        with table.transaction() as changes:
            merge = changes.merge(read, "target.id = source.id")
            merge.when_matched_update({"v": "source.v"}).execute()
            table.update({"v": "v + 100"}, "id = 1")

    spark.conf.set("spark.txlog.merge.localRows", local_rows)
    try:
        change()
    finally:
        spark.conf.unset("spark.txlog.merge.localRows")
    assert state_of(table) == {1: 111, 2: 21}  # The source follows the table to the update.
