"""The names of a catalog of tables at Spark's doors."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from txlog import Catalog, spark_ext
from txlog.base.errors import InvalidInputError, NotFoundError, UnsupportedFeatureError

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
pytestmark = pytest.mark.spark


@pytest.fixture
def catalog(tmp_path: Path, spark: Any) -> Any:
    found = Catalog(tmp_path / "lake.db", tmp_path / "lake")
    for name, managed in (("sales.orders", "all"), ("sales.totals", "writes")):
        table = found.create_table(name, SCHEMA, managed=managed)  # type: ignore[arg-type]
        table.append(pa.table({"id": [1, 2], "v": [10, 20]}))
    spark_ext.use(spark, found)
    yield found
    spark_ext.use(spark, None)


def ids(frame: Any) -> list[int]:
    return sorted(row["id"] for row in frame.collect())


@pytest.mark.slow
@pytest.mark.spec("CAT-3")
def test_every_door_knows_the_names(catalog: Catalog, spark: Any) -> None:
    assert ids(spark_ext.read(spark, "Sales.Orders", where="id = 1")) == [1]
    frame = spark.createDataFrame([(3, 30)], "id bigint, v bigint")
    spark_ext.write(frame, "sales.orders", mode="append")
    table = spark_ext.table(spark, "sales.orders")
    table.delete("id = 1")
    table.merge(frame, "target.id = source.id", source_alias="source", target_alias="target") \
        .when_matched_update({"v": "source.v + 1"}).execute()  # fmt: skip
    spark_ext.DeltaTable.forName(spark, "sales.totals").update("id = 2", {"v": "21"})
    spark_ext.sql(spark, "INSERT INTO sales.totals SELECT id, v FROM sales.orders WHERE id = 3")
    spark_ext.sql(spark, "UPDATE sales.totals SET v = v + 1 WHERE id = 3")
    spark_ext.sql(spark, "DELETE FROM sales.totals WHERE id = 1")
    found = spark_ext.sql(
        spark,
        "SELECT o.id, o.v, t.v AS w FROM sales.orders o JOIN sales.totals t ON o.id = t.id",
    ).collect()
    assert sorted(map(tuple, found)) == [(2, 20, 21), (3, 31, 32)]
    assert catalog.table("sales.totals").to_arrow()["v"].to_pylist().count(32) == 1
    described = spark_ext.sql(spark, "DESCRIBE HISTORY sales.totals").collect()
    assert described[0]["operation"] == "DELETE"


@pytest.mark.slow
def test_options_open_tables_of_the_data_source(catalog: Catalog, spark: Any) -> None:
    from txlog.spark_ext.reads.read_frame import as_option

    place = catalog.location_of("sales.orders")
    options = as_option(catalog.storage_options())
    reader = spark.read.format("txlog").option("secretStorageOptions", options)
    assert ids(reader.load(place)) == [1, 2]
    frame = spark.createDataFrame([(4, 40)], "id bigint, v bigint")
    frame.write.format("txlog").option("secretStorageOptions", options).mode("append").save(place)
    assert catalog.table("sales.orders").count() == 3


def test_names_end_with_the_catalog(catalog: Catalog, spark: Any) -> None:
    spark_ext.use(spark, None)
    with pytest.raises(NotFoundError):
        spark_ext.read(spark, "sales.orders")
    with pytest.raises(UnsupportedFeatureError, match="catalog"):
        spark_ext.read(spark, catalog.location_of("sales.orders"))
    spark.conf.set("spark.txlog.catalog", "no such id")
    with pytest.raises(InvalidInputError, match="catalog"):
        spark_ext.read(spark, "sales.orders")


@pytest.mark.spec("CAT-8")
def test_a_batch_of_a_stream_changes_several_tables_once(
    catalog: Catalog, spark: Any, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    spark.range(5, 8).selectExpr("id", "id AS v").write.parquet(str(source / "a.parquet"))

    def both(batch: Any, number: int) -> None:
        rows = batch.toArrow()
        for _ in range(2):  # As if the first answer was lost.
            with catalog.transaction(txn=("stream", number)) as changes:
                changes["sales.orders"].append(rows)
                changes["sales.totals"].append(rows)

    stream = spark.readStream.schema("id bigint, v bigint").parquet(str(source / "*.parquet"))
    query = (
        stream.writeStream.foreachBatch(both)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for name in ("sales.orders", "sales.totals"):
        found = catalog.table(name).to_arrow()["id"].to_pylist()
        assert sorted(found) == [1, 2, 5, 6, 7]
