"""The names of a catalog of Unity Catalog at Spark's doors."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tests.catalog.unity_server import TOKEN, Stub, serving
from txlog import Catalog, spark_ext
from txlog.store.unity.address import VARIABLES

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
pytestmark = pytest.mark.spark


@pytest.fixture
def catalog(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with serving(Stub(tmp_path, schemas=["sales"])) as stub:
        found = Catalog(stub.address, storage_options={"token": TOKEN})
        found.create_table("sales.orders", SCHEMA, managed="all")
        feed = {"delta.enableChangeDataFeed": "true"}
        found.create_table("sales.totals", SCHEMA, None, feed, location=tmp_path / "totals")
        for name in ("sales.orders", "sales.totals"):
            found.table(name).append(pa.table({"id": [1, 2], "v": [10, 20]}))
        spark_ext.use(spark, found)
        yield found
        spark_ext.use(spark, None)


def ids(frame: Any) -> list[int]:
    return sorted(row["id"] for row in frame.collect())


@pytest.mark.slow
@pytest.mark.spec("CAT-18")
def test_every_door_knows_the_names(catalog: Catalog, spark: Any) -> None:
    assert ids(spark_ext.read(spark, "Sales.Orders", where="id = 1")) == [1]
    frame = spark.createDataFrame([(3, 30)], "id bigint, v bigint")
    spark_ext.write(frame, "sales.orders", mode="append")
    table = spark_ext.table(spark, "sales.orders")
    table.delete("id = 1")
    spark_ext.DeltaTable.forName(spark, "sales.totals").update("id = 2", {"v": "21"})
    spark_ext.sql(spark, "INSERT INTO sales.totals SELECT id, v FROM sales.orders WHERE id = 3")
    spark_ext.sql(spark, "DELETE FROM sales.totals WHERE id = 1")
    found = spark_ext.sql(
        spark,
        "SELECT o.id, o.v, t.v AS w FROM sales.orders o JOIN sales.totals t ON o.id = t.id",
    ).collect()
    assert sorted(map(tuple, found)) == [(2, 20, 21), (3, 30, 30)]
    assert catalog.table("sales.orders").count() == 2


@pytest.mark.slow
@pytest.mark.spec("CAT-18")
def test_the_data_source_gets_addresses_and_the_token(catalog: Catalog, spark: Any) -> None:
    place = catalog.location_of("sales.orders")
    for options in ({"token": TOKEN}, catalog.storage_options()):
        reader = spark.read.format("txlog")
        reader = reader.option("secretStorageOptions", json.dumps(options))
        assert ids(reader.load(place)) == [1, 2]
    changes = spark_ext.sql(spark, "SELECT id FROM table_changes('sales.totals', 0)")
    assert ids(changes) == [1, 2]


@pytest.mark.spec("CAT-22")
def test_spark_does_not_read_where_only_txlog_has_credentials(
    catalog: Catalog, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from txlog.spark_ext.reads import read_frame
    from txlog.store.cloud import CloudStore

    monkeypatch.setattr(read_frame, "can_open", lambda *_: True)
    rows: Any = SimpleNamespace(primaries=pa.table({"path": ["part-1.parquet"]}))
    options = catalog.table("sales.totals")._context.store.options
    for given, expected in (({}, True), (options, False)):
        assert read_frame._can_list(spark, CloudStore("s3://bucket/t", given), rows) is expected
