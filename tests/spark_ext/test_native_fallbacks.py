"""Reads that Spark's own reader would get wrong, or cannot do: txlog's reader does them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from corpus import rows_sha256

import txlog
from txlog.spark_ext import DeltaTable, read
from txlog.spark_ext.native.read_frame import IGNORES_MANIFESTS
from txlog.spark_ext.small_sources import LOCAL_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


@pytest.mark.spec("SPK-2")
def test_a_session_that_ignores_manifests_reads_and_changes_the_same_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": [1, 2, 3], "x": [1, 1, 1]}))
    table.delete("id = 1")
    source = spark.createDataFrame([(2, 5), (9, 9)], "id long, x long")
    with setting(spark, IGNORES_MANIFESTS, "TRUE"), setting(spark, LOCAL_ROWS, "0"):
        assert spark.read.parquet(table.uri).count()  # The setting has no effect on other reads.
        assert rows_sha256(read(spark, table.uri).toArrow()) == rows_sha256(table.to_arrow())
        merge = DeltaTable.forPath(spark, table.uri).alias("t")
        merge.merge(source.alias("s"), "t.id = s.id").whenMatchedUpdateAll() \
            .whenNotMatchedInsertAll().execute()  # fmt: skip
    rows = sorted(txlog.Table(table.uri).to_arrow().to_pylist(), key=lambda row: row["id"])
    assert rows == [{"id": 2, "x": 5}, {"id": 3, "x": 1}, {"id": 9, "x": 9}]


DECIMALS = pa.table(
    {
        "id": pa.array([0, 1, 1, None], pa.int64()),
        "d": pa.array([Decimal(2), Decimal(1), Decimal(10) ** 37, None], pa.decimal128(38, 0)),
        "e": pa.array([Decimal("0.5"), Decimal("1.00"), None, None], pa.decimal128(38, 10)),
        "g": pa.array(
            [Decimal("0." + "0" * 29 + "1"), Decimal("1." + "0" * 29 + "1"), Decimal(1), None],
            pa.decimal128(38, 30),
        ),
        "p": pa.array([Decimal("1.5"), Decimal("0.1"), None, None], pa.decimal128(9, 2)),
    }
)
COMPARED = [
    "d > e", "d = e", "id = g", "id < g", "id <=> g", "g < id", "p < id", "id < p", "p = e",
    "g > 12345678901", "g = 1", "g < 12345678901.5", "g IN (1, 12345678901)", "e < 1e27",
    "e IN (0.5, 0.500000000000000000000000000001)", "d = 10000000000000000000000000000000000000",
    "id < 99999999999999999999999", "id IN (1, 99999999999999999999999)", "id > 0.5", "p >= 0.100",
]  # fmt: skip


@pytest.mark.spec("SPK-1")
@pytest.mark.parametrize("where", COMPARED)
def test_wide_decimals_are_compared_exactly(
    spark: SparkSession, tmp_path: Path, where: str
) -> None:
    """Spark rounds two values whose common type has more than 38 digits."""
    table = txlog.write(tmp_path / "t", DECIMALS)
    found = read(spark, table.uri, where=where).toArrow()
    assert rows_sha256(found) == rows_sha256(table.to_arrow(where=where))


def test_decimals_that_fit_are_compared_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", DECIMALS)
    for where, native in (("p < id", True), ("p = e", True), ("id < g", False), ("d > e", False)):
        plan = read(spark, table.uri, where=where)._jdf.queryExecution().toString()
        assert ("FileScan parquet" in plan) == native, where


@pytest.mark.spec("SPK-1")
def test_files_in_a_store_that_hadoop_does_not_know(spark: SparkSession, tmp_path: Path) -> None:
    """A log may name files elsewhere, and Spark's tasks ask txlog's store for them."""
    table = txlog.write(tmp_path / "t", pa.table({"id": [1, 2]}))
    (file,) = table.file_uris()
    shutil.copytree(tmp_path / "t", tmp_path / "elsewhere")
    commit = tmp_path / "elsewhere" / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["path"] = f"az://container/{Path(file).name}"
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(txlog.UnsupportedFeatureError, match="allowed_schemes"):
        read(spark, str(tmp_path / "elsewhere"))
    options = {"txlog.allowed_schemes": "az"}
    frame = read(spark, str(tmp_path / "elsewhere"), storage_options=options)
    assert frame.columns == ["id"]
    assert "FileScan parquet" not in frame._jdf.queryExecution().toString()


def test_a_wrong_number_of_local_rows_is_named(spark: SparkSession, tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": [1]}))
    merge = DeltaTable.forPath(spark, table.uri).alias("t")
    with (
        setting(spark, LOCAL_ROWS, "many"),
        pytest.raises(txlog.InvalidInputError, match=f"'many'.*{LOCAL_ROWS}"),
    ):
        merge.merge(spark.range(2).alias("s"), "t.id = s.id").whenMatchedDelete().execute()
    assert table.count() == 1
