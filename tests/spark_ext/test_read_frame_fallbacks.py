"""Reads that Spark's own reader would get wrong, or cannot do: txlog's reader does them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus import rows_sha256

import txlog
from txlog.spark_ext import DeltaTable, read
from txlog.spark_ext.reads import read_frame
from txlog.spark_ext.reads.parquet_columns import POSITION
from txlog.spark_ext.reads.read_frame import IGNORES_MANIFESTS
from txlog.spark_ext.writes.small_sources import LOCAL_ROWS

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


@pytest.mark.slow
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


@pytest.mark.slow
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
    (file,) = table.scan().file_uris()
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


STRUCTS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "st": pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}, None, {"a": 1, "b": "y"}]),
        "p": ["l", "m", "l", "m"],
    }
)


def with_column_files(path: Path) -> txlog.Table:
    supported = {"delta.feature.txlog.fragments": "supported"}
    table = txlog.write(path, STRUCTS, properties=supported)
    table.alter.add_columns({"double": "2 * id"})
    return table


def with_decimals(path: Path) -> txlog.Table:
    table = txlog.write(path, STRUCTS, properties={"delta.enableTypeWidening": "true"})
    table.alter.widen_type("id", pa.decimal128(20, 0))
    table.append(STRUCTS.set_column(0, "id", STRUCTS["id"].cast(pa.decimal128(20, 0))))
    return table


def with_hidden_files(path: Path) -> txlog.Table:
    table = txlog.write(path, STRUCTS)
    commit = path / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        line.get("commitInfo", {}).pop("txlogCrc32", None)
        if "add" in line:
            (path / line["add"]["path"]).rename(path / "_hidden.parquet")
            line["add"]["path"] = "_hidden.parquet"
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return txlog.Table(table.uri)


def mapped(mode: str) -> Callable[[Path], txlog.Table]:
    properties = {"delta.columnMapping.mode": mode, "delta.enableRowTracking": "true"}
    return lambda path: txlog.write(path, STRUCTS, partition_by=["p"], properties=properties)


def in_partitions(path: Path) -> txlog.Table:
    return txlog.write(path, STRUCTS, partition_by=["p"])


# For each reason: the table, the columns and the predicate that need txlog's reader.
REASONS: dict[
    str, tuple[Callable[[Path], txlog.Table], list[str] | None, str | None, tuple[str, ...]]
] = {
    "no reason": (in_partitions, None, None, ()),
    "fields of structs": (in_partitions, ["st.a", "id", "_rowaddr"], None, ()),
    "column files": (with_column_files, None, None, ()),
    "row ids": (mapped("none"), ["_rowid", "st"], None, ()),
    "row versions": (mapped("name"), ["_row_last_updated_at_version", "id"], None, ()),
    "decimals": (with_decimals, None, None, ()),
    "own names": (
        lambda path: txlog.write(path, STRUCTS.rename_columns(["id", "st", "_txlog_fragment"])),
        None,
        None,
        (),
    ),
    "positions": (
        lambda path: txlog.write(path, STRUCTS.rename_columns(["id", "st", POSITION])),
        None,
        None,
        (),
    ),
    "names of files": (with_hidden_files, None, None, ()),
    "predicates": (in_partitions, ["p", "id"], "id + 1 > 2 AND p = 'l'", ()),
    "predicates on fields": (mapped("name"), ["st.b"], "st.a + id > 2", ()),
    "settings": (in_partitions, None, None, (IGNORES_MANIFESTS,)),
    "file systems": (in_partitions, None, None, ("can_open",)),
    "field ids": (mapped("id"), None, None, ("reads_of",)),
}


@pytest.mark.slow(cases=5)
@pytest.mark.spec("SPK-1")
@pytest.mark.parametrize("reason", REASONS)
def test_for_each_reason_the_rows_are_those_of_a_scan(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    make, columns, where, without = REASONS[reason]
    table = make(tmp_path / "t")
    monkeypatch.setattr(read_frame, "can_open", lambda *_: "can_open" not in without)
    if "reads_of" in without:
        monkeypatch.setattr(read_frame, "reads_of", lambda *_: None)
    ignores = "true" if IGNORES_MANIFESTS in without else "false"
    for deleted in (False, True):
        if deleted:
            table.delete("st.a = 2")
        with setting(spark, IGNORES_MANIFESTS, ignores):
            frame = read(spark, table.uri, columns=columns, where=where)
            native = "FileScan parquet" in frame._jdf.queryExecution().toString()
            assert native == (reason == "no reason")
            expected = table.to_arrow(columns=columns, where=where)
            assert rows_sha256(frame.toArrow()) == rows_sha256(expected)
            assert frame.columns == expected.column_names


@pytest.mark.slow
@pytest.mark.spec("SPK-7")
def test_reads_by_field_id_leave_the_session_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """Names in the files of a table that maps by id may differ from the physical names."""
    table = mapped("id")(tmp_path / "t")
    for path in map(Path, table.scan().file_uris()):
        rows = pq.ParquetFile(path).read()
        names = [f"{name}_{at}" for at, name in enumerate(rows.column_names)]
        fields = [field.with_name(name) for field, name in zip(rows.schema, names, strict=True)]
        pq.write_table(pa.table(rows.columns, schema=pa.schema(fields)), path)
        changed_size(tmp_path / "t", path)
    table = txlog.Table(table.uri)
    names = [f"spark.sql.parquet.fieldId.read.{name}" for name in ("enabled", "ignoreMissing")]
    before = [spark.conf.get(name) for name in names]
    frame = read(spark, table.uri)
    other = read(spark, table.uri, columns=["id", "p"], where="id > 1").withColumnRenamed("p", "q")
    assert [spark.conf.get(name) for name in names] == before == ["false", "false"]
    assert "FileScan parquet" in frame._jdf.queryExecution().toString()
    assert rows_sha256(frame.toArrow()) == rows_sha256(table.to_arrow())
    assert frame.where("id = 2").count() == 1
    assert sorted(row.id for row in frame.join(other, "id").collect()) == [2, 3, 4]
    table.delete("id = 4")
    assert read(spark, table.uri).count() == 3
    with setting(spark, names[0], "true"), setting(spark, names[1], "true"):
        assert rows_sha256(read(spark, table.uri).toArrow()) == rows_sha256(table.to_arrow())


def changed_size(table: Path, file: Path) -> None:
    """Log the size that a file of the first version has now."""
    commit = table / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        line.get("commitInfo", {}).pop("txlogCrc32", None)
        if line.get("add", {}).get("path") == str(file.relative_to(table)):
            line["add"]["size"] = file.stat().st_size
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
