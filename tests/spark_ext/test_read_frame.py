"""`spark_ext.read`: Spark's own reader, compared with `Table.scan` and `format("txlog")`."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from corpus import Case, cases, require_corpus, rows_sha256
from pyspark.sql.types import StructField, StructType

import txlog
from txlog.expressions.tree import quote_name
from txlog.spark_ext import DeltaTable, create_view, read
from txlog.spark_ext.reads import parquet_columns, read_frame, vectors
from txlog.spark_ext.reads.read_frame import can_open

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# What the names of tables say that reading by Spark must get right.
TELLING = (
    "dv",
    "column_mapping",
    "column-mapping",
    "type-widening",
    "partition",
    "escaping",
    "special",
    "timestamp",
    "variant",
    "deletion",
)


def test_a_list_of_files_that_the_driver_cannot_hold_is_refused_before_it_is_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"p": [0, 1, 2, 3], "x": [10, 11, 12, 13]})
    dv = {"delta.enableDeletionVectors": "true"}
    table = txlog.write(tmp_path / "t", rows, partition_by=["p"], properties=dv)
    have = spark._jvm.java.lang.Runtime.getRuntime().maxMemory()  # type: ignore[attr-defined]
    # Each file needs a third of what can be used: two files fit, and four do not.
    monkeypatch.setattr("txlog.spark_ext.reads.frame._HELD_BY_FILE", int(have * 0.8 / 3))
    monkeypatch.setattr("txlog.spark_ext.reads.frame._UNASKED_FILES", 1)
    lists = tmp_path / "lists"
    with pytest.raises(txlog.OutOfMemoryError, match=r"a list of 4 files, and it has") as caught:
        read(spark, str(table.uri), manifests=str(lists))
    assert not lists.exists()
    table.delete("x = 12 AND p = 2")
    table.append(pa.table({"p": [4, 4], "x": [14, 15]}))
    table.delete("x = 15")  # Files with and without deleted rows are two lists, which count both.
    with pytest.raises(txlog.OutOfMemoryError, match=r"a list of 4 files"):
        read(spark, str(table.uri), manifests=str(lists))
    assert not lists.exists()
    found = read(spark, str(table.uri), where="p < 2", manifests=str(lists))
    assert sorted(row.x for row in found.collect()) == [10, 11]
    assert 'spark.read.format("txlog")' in caught.value.remedy
    by_format = spark.read.format("txlog").load(str(table.uri))
    assert sorted(row.x for row in by_format.collect()) == [10, 11, 13, 14]


def readable() -> list[Case]:
    return [case for case in cases() if not case.index["expectation"].startswith("FAIL")]


def telling() -> list[Case]:
    """Three tables for each word, so that the plain tests stay quick."""
    found: dict[str, Case] = {}
    for word in TELLING:
        named = [case for case in readable() if word in case.name.lower()]
        found.update({case.name: case for case in named[:3]})
    return list(found.values())


def in_words(frame: DataFrame) -> pa.Table:
    """A frame's rows; variants as JSON, as Spark's way to Arrow takes no nulls inside of them."""
    from pyspark.sql import functions as F  # noqa: N812

    columns = [
        F.to_json(F.struct(F.col(quote_name(field.name)))).alias(field.name)
        if "variant" in field.dataType.simpleString()
        else F.col(quote_name(field.name))
        for field in frame.schema.fields
    ]
    return frame.select(columns).toArrow()


def judge(spark: SparkSession, case: Case) -> None:
    require_corpus(case.path)
    try:
        expected = txlog.Table(case.path).to_arrow()
    except txlog.TxlogError as error:
        pytest.skip(f"the files of this table are not all there: {error.code}")
    frame = spark.read.format("txlog").load(str(case.path))
    assert as_nullable(read(spark, str(case.path)).schema) == frame.schema
    native, by_python = in_words(read(spark, str(case.path))), in_words(frame)
    assert native.column_names == expected.column_names
    assert rows_sha256(native) == rows_sha256(by_python)
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    plain = [name for name, kind in kinds.items() if "variant" not in kind]
    assert rows_sha256(native.select(plain)) == rows_sha256(expected.select(plain))
    for name in (name for name, kind in kinds.items() if kind == "variant"):
        values = [json.loads(text).get(name) for text in native[name].to_pylist()]
        texts = txlog.variant_to_json(expected[name]).to_pylist()
        assert in_order(values) == in_order(json.loads(text or "null") for text in texts)


def as_nullable(schema: StructType) -> StructType:
    """Return columns that are all nullable, as those of the format are."""
    return StructType([StructField(f.name, f.dataType, True, f.metadata) for f in schema.fields])


def in_order(values: Iterable[Any]) -> list[str]:
    return sorted(json.dumps(value, sort_keys=True) for value in values)


@pytest.mark.slow(cases=9)
@pytest.mark.spec("SPK-1")
@pytest.mark.parametrize("case", telling(), ids=lambda case: case.name)
def test_three_ways_to_read_give_the_same_rows(spark: SparkSession, case: Case) -> None:
    judge(spark, case)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", readable(), ids=lambda case: case.name)
def test_three_ways_to_read_the_corpus(spark: SparkSession, case: Case) -> None:
    judge(spark, case)


def test_stores_that_spark_has_no_jar_for_are_read_through_the_source(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert can_open(spark, "/tables/t")
    assert can_open(spark, "hdfs://name/tables/t")
    assert not can_open(spark, "s3://bucket/t")
    settings = spark._jsc.hadoopConfiguration()  # As `spark.hadoop.…` fills it at the start.
    settings.set("fs.s3a.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
    try:
        assert can_open(spark, "s3://bucket/t")
    finally:
        settings.unset("fs.s3a.impl")
    txlog.write(tmp_path, pa.table({"id": [1, 2, 3]}))
    assert "FileScan parquet" in plan_of(read(spark, str(tmp_path)))
    monkeypatch.setattr(read_frame, "can_open", lambda *_: False)
    frame = read(spark, str(tmp_path), where="id > 1")
    assert sorted(row.id for row in frame.collect()) == [2, 3]
    assert "FileScan" not in plan_of(frame)


KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (
        pa.string(),
        [
            *["a/b", "x=y", "_txlog_fragment=7", "100%", "%41", "ü ", "__", ".", "..", "\\"],
            *["\t", "é", "__HIVE_DEFAULT_PARTITION__", "a\u2028b", "a\x85b"],
        ],
    ),
    "whole": (pa.int32(), [0, -1, 2**31 - 1]),
    "tiny": (pa.int8(), [-128, 127]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1]),
    "flag": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(9999, 12, 31)]),
    "at": (
        pa.timestamp("us", "UTC"),
        [
            dt.datetime(1899, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
            dt.datetime(2024, 3, 10, 7, 30, tzinfo=dt.UTC),
        ],
    ),
    "local": (pa.timestamp("us"), [dt.datetime(2024, 3, 10, 2, 30), dt.datetime(1, 1, 1)]),
    "price": (pa.decimal128(10, 3), [Decimal("-0.001"), Decimal("9999999.999")]),
    "ratio": (pa.float64(), [0.1, -0.0, math.inf, -math.inf, math.nan, 5e-324]),
    "short": (pa.float32(), [0.10000000149011612, math.nan]),
    "raw": (pa.binary(), [b"plain", b"\xc3\xa4=/%"]),
}


@pytest.mark.slow
@pytest.mark.spec("SPK-3", "SPK-4", "SPK-5")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("deleted", [False, True], ids=["whole", "deleted"])
def test_partition_values_are_those_of_the_log(
    spark: SparkSession, tmp_path: Path, kind: str, deleted: bool
) -> None:
    of, values = KINDS[kind]
    values = [*values, None]
    data = pa.table({"id": range(len(values) * 3), "p": pa.array(values * 3, of)})
    table = txlog.write(tmp_path / "a=b %c" / "täble", data, partition_by=["p"])
    if deleted:
        table.delete("id % 5 = 1")
    for zone in ("UTC", "America/New_York") if kind in ("at", "local", "day") else ("UTC",):
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            found = read(spark, table.uri).toArrow()
            some = read(spark, table.uri, columns=["p"], where="p IS NULL").toArrow()
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
        assert rows_sha256(found) == rows_sha256(table.to_arrow())
        assert some.num_rows == table.count("p IS NULL") > 0


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> txlog.Table:
    """Six files, two of them with deleted rows."""
    table = txlog.Table.create(
        tmp_path_factory.mktemp("native") / "flights",
        pa.schema([("id", pa.int64()), ("part", pa.string()), ("x", pa.float64())]),
        partition_by=["part"],
    )
    for part in range(6):
        ids = range(part * 1000, part * 1000 + 1000)
        table.append(
            pa.table({"id": ids, "part": [f"p{part % 3}"] * 1000, "x": [float(n % 7) for n in ids]})
        )
    table.delete("id % 10 = 3 AND (id < 1000 OR id >= 5000)")
    for second, commit in enumerate(sorted((Path(table.uri) / "_delta_log").glob("*.json"))):
        os.utime(commit, (1_700_000_000 + second,) * 2)
    return table


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())  # type: ignore[operator]


@pytest.mark.spec("SPK-6")
def test_only_files_with_deletions_are_looked_up(spark: SparkSession, flights: txlog.Table) -> None:
    frame = read(spark, flights.uri)
    plan = plan_of(frame)
    assert plan.count("FileScan parquet") == 2
    assert "scalar-subquery" in plan or "Subquery" in plan
    assert plan.count("Batched: true") == 2
    assert plan.count(f"{parquet_columns.POSITION}:bigint") == 1  # Read of no other file.
    assert sorted(frame.toArrow().to_pylist(), key=str) == sorted(
        flights.to_arrow().to_pylist(), key=str
    )
    untouched = read(spark, flights.uri, where="id BETWEEN 1000 AND 4999")
    assert "ubquery" not in plan_of(untouched)
    assert untouched.count() == 4000


@pytest.mark.slow
@pytest.mark.parametrize("partition_by", [[], ["part"]])
@pytest.mark.parametrize("columns", [None, ["id", "_rowaddr"], ["_fragid", "part"]], ids=str)
def test_some_files_with_deletions_and_some_without(
    spark: SparkSession, tmp_path: Path, partition_by: list[str], columns: list[str] | None
) -> None:
    """Their columns are the same, but what only a look-up needs is read where there is one."""
    parts = [pa.table({"id": range(at, at + 9), "part": [f"p{at}"] * 9}) for at in (0, 10, 20)]
    table = txlog.write(tmp_path / "t", parts[0], partition_by=partition_by)
    for rows in parts[1:]:
        table.append(rows)
    table.delete("id IN (11, 12)")
    frame = read(spark, table.uri, columns=columns)
    scans = [line for line in plan_of(frame).splitlines() if "FileScan parquet" in line]
    assert len(scans) == 2
    assert rows_sha256(frame.toArrow()) == rows_sha256(table.to_arrow(columns=columns))
    for word in (f"{parquet_columns.POSITION}:bigint", "_txlog_rows#"):
        wanted = 2 if word.startswith("_tmp") and columns and "_rowaddr" in columns else 1
        assert sum(word in scan for scan in scans) == wanted


def test_filters_reach_the_partitions_and_the_files(
    spark: SparkSession, flights: txlog.Table
) -> None:
    frame = read(spark, flights.uri).where("part = 'p1' AND id > 4500")
    plan = plan_of(frame)
    assert "GreaterThan(id,4500)" in plan
    assert "= p1)" in plan[plan.index("PartitionFilters") :]
    assert frame.count() == flights.count("part = 'p1' AND id > 4500") > 0


@pytest.mark.slow
@pytest.mark.parametrize("large", [False, True])
def test_where_and_columns(
    spark: SparkSession, flights: txlog.Table, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    if large:  # Then the log is read as far as the predicate is about it.
        txlog.Table(flights.uri).maintenance.checkpoint()
        monkeypatch.setattr("txlog.snapshot.live_files._LARGE_BYTES", 0)
    for where in ("x > 3 AND part <> 'p0'", "id < 1500 OR part IS NULL", "part IN ('p2', 'x')"):
        found = read(spark, flights.uri, columns=["x", "id"], where=where).toArrow()
        assert found.column_names == ["x", "id"]
        expected = flights.to_arrow(columns=["x", "id"], where=where)
        assert rows_sha256(found) == rows_sha256(expected)
    assert read(spark, flights.uri, where="id < 0").toArrow().num_rows == 0
    assert read(spark, flights.uri, columns=[]).count() == flights.count()


@pytest.mark.spec("SPK-2")
def test_manifests_never_change(spark: SparkSession, flights: txlog.Table, tmp_path: Path) -> None:
    home = tmp_path / "lists"
    for _ in range(2):
        assert read(spark, flights.uri, version=6, manifests=str(home)).count() == 6000
    (folder,) = home.iterdir()
    lines = (folder / "_spark_metadata" / "0").read_text().splitlines()
    assert lines[0] == "v1"
    listed = [json.loads(line) for line in lines[1:]]
    sizes = sorted(txlog.Table(flights.uri, version=6).files()["size_bytes"].to_pylist())
    assert sorted(entry["size"] for entry in listed) == sizes


def test_a_session_says_where_manifests_are(
    spark: SparkSession, flights: txlog.Table, tmp_path: Path
) -> None:
    homes = [tmp_path / name for name in ("session", "call")]
    spark.conf.set("spark.txlog.manifests", str(homes[0]))
    try:
        create_view(spark, "of_session", flights.uri)
        assert DeltaTable.forPath(spark, flights.uri).toDF().count() == flights.count()
        assert spark.table("of_session").count() == flights.count()
        assert not homes[1].exists()
        read(spark, flights.uri, manifests=str(homes[1]))
    finally:
        spark.conf.unset("spark.txlog.manifests")
        spark.catalog.dropTempView("of_session")
    by_session, by_call = ({path.name for path in home.iterdir()} for home in homes)
    assert by_session == by_call


def test_versions(spark: SparkSession, flights: txlog.Table) -> None:
    assert read(spark, flights.uri, version=6).count() == 6000
    assert read(spark, flights.uri, 7).count() == 5800
    stamp = 1_700_000_006_000
    assert read(spark, flights.uri, timestamp=stamp).count() == 6000
    with pytest.raises(txlog.NotFoundError):
        read(spark, flights.uri, version=99)
    with pytest.raises(txlog.InvalidInputError, match="only one of them"):
        read(spark, flights.uri, version=1, timestamp=stamp)


def test_a_frame_stays_the_version_that_it_was(spark: SparkSession, tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": range(10)}))
    frame = read(spark, table.uri)
    table.delete("id < 5")
    table.append(pa.table({"id": range(100)}))
    assert frame.count() == 10
    assert read(spark, table.uri).count() == 105


@pytest.mark.spec("SPK-7")
def test_metadata_columns(spark: SparkSession, flights: txlog.Table) -> None:
    columns = ["id", "_rowaddr", "_fragid", "_rowid"]
    found = read(spark, flights.uri, columns=columns, where="_fragid IN (0, 4)").toArrow()
    expected = flights.to_arrow(columns=columns, where="_fragid IN (0, 4)")
    assert found.schema.types == expected.schema.types
    assert rows_sha256(found) == rows_sha256(expected)
    assert found.num_rows > 0


def test_a_self_join_has_two_of_everything(spark: SparkSession, flights: txlog.Table) -> None:
    one = read(spark, flights.uri, columns=["id", "_rowaddr"])
    other = read(spark, flights.uri, columns=["id", "_rowaddr"])
    assert one.join(other, "_rowaddr").count() == flights.count()


def test_what_spark_cannot_read_goes_through_txlog(spark: SparkSession, tmp_path: Path) -> None:
    table = txlog.Table.create(
        tmp_path / "t",
        pa.schema([("id", pa.int64())]),
        properties={"delta.feature.txlog.fragments": "supported"},
    )
    table.append(pa.table({"id": range(10)}))
    table.alter.add_columns({"double": "2 * id"})
    table.append(pa.table({"id": range(5), "double": range(5)}))
    table.delete("id = 3")
    found = read(spark, table.uri)
    assert "FileScan parquet" not in plan_of(found)
    assert rows_sha256(found.toArrow()) == rows_sha256(table.to_arrow())
    # The files of the first column need nothing of the second's.
    ids = read(spark, table.uri, columns=["id"])
    assert "FileScan parquet" in plan_of(ids)
    assert rows_sha256(ids.toArrow()) == rows_sha256(table.to_arrow(columns=["id"]))


@pytest.mark.spec("SPK-6")
def test_many_deletions_are_broadcast(
    spark: SparkSession, flights: txlog.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txlog.spark_ext.reads.vectors.INLINE_BYTES", 0)
    frame = read(spark, flights.uri)
    assert plan_of(frame).count("BroadcastHashJoin") == 1
    assert rows_sha256(frame.toArrow()) == rows_sha256(flights.to_arrow())


@pytest.mark.parametrize("inline", [1 << 20, 0], ids=["inline", "broadcast"])
def test_a_log_that_counts_too_few_rows_is_an_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: int
) -> None:
    """Else the words of another file would be looked up."""
    monkeypatch.setattr("txlog.spark_ext.reads.vectors.INLINE_BYTES", inline)
    table = txlog.write(tmp_path / "t", pa.table({"id": range(200)}))
    table.delete("id = 5")
    changed(table, lambda add: add.update(stats=add["stats"].replace(":200", ":100")))
    with pytest.raises(Exception, match=r"\[data-file\].*wrong numRecords"):
        read(spark, table.uri).toArrow()


@pytest.mark.parametrize("inline", [1 << 20, 0], ids=["inline", "broadcast"])
def test_a_reader_that_tells_no_positions_is_an_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: int
) -> None:
    """Else all rows of files with deletions would be left out."""
    unknown = "_tmp_nobody_fills_this"
    for name in ("POSITION", "_WORD", "_BIT"):
        place = f"txlog.spark_ext.reads.vectors.{name}"
        monkeypatch.setattr(
            place, getattr(vectors, name).replace(parquet_columns.POSITION, unknown)
        )
    monkeypatch.setattr("txlog.spark_ext.reads.parquet_columns.POSITION", unknown)
    monkeypatch.setattr("txlog.spark_ext.reads.vectors.INLINE_BYTES", inline)
    table = txlog.write(tmp_path / "t", pa.table({"id": range(200)}))
    table.delete("id = 5")
    with pytest.raises(Exception, match=r"\[data-file\]"):
        read(spark, table.uri).toArrow()


@pytest.mark.spec("SPK-6")
def test_too_many_deletions_go_through_txlog(
    spark: SparkSession, flights: txlog.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_frame, "MAX_VECTOR_BYTES", 10)
    frame = read(spark, flights.uri)
    assert plan_of(frame).count("FileScan parquet") == 1
    assert rows_sha256(frame.toArrow()) == rows_sha256(flights.to_arrow())


@pytest.mark.slow
def test_widened_and_missing_columns(spark: SparkSession, tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": pa.array([1, 2], pa.int32())}))
    more = pa.table({"id": pa.array([3], pa.int32()), "tags": pa.array([["a"]])})
    table.append(more, schema_mode="merge")
    table.delete("id = 1")
    found = read(spark, table.uri).orderBy("id").toArrow()
    assert found.to_pylist() == [{"id": 2, "tags": None}, {"id": 3, "tags": ["a"]}]


def test_files_of_another_table(spark: SparkSession, tmp_path: Path) -> None:
    """A shallow clone's log has absolute paths."""
    source = txlog.write(
        tmp_path / "the source", pa.table({"id": range(9), "p": ["a", "b", "c"] * 3}),
        partition_by=["p"],
    )  # fmt: skip
    source.delete("id IN (0, 4)")
    clone = tmp_path / "clone"
    (clone / "_delta_log").mkdir(parents=True)
    for entry in (Path(source.uri) / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in entry.read_text().splitlines()]
        for line in lines:
            line.get("commitInfo", {}).pop("txlogCrc32", None)
            for action in (line.get("add"), line.get("remove")):
                if action and "://" not in action["path"]:
                    action["path"] = (Path(source.uri) / "x").as_uri()[:-1] + action["path"]
                    vector = action.get("deletionVector")
                    assert vector is None or vector["storageType"] == "u" or vector
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (clone / "_delta_log" / entry.name).write_text(text)
    for file in Path(source.uri).glob("deletion_vector*"):
        (clone / file.name).write_bytes(file.read_bytes())
    table = txlog.Table(clone)
    assert table.count() == 7
    assert rows_sha256(read(spark, str(clone)).toArrow()) == rows_sha256(source.to_arrow())


def test_bad_input(spark: SparkSession, flights: txlog.Table, tmp_path: Path) -> None:
    with pytest.raises(txlog.InvalidInputError, match=r"Write columns=\['x'\]"):
        read(spark, flights.uri, columns="x")
    with pytest.raises(txlog.InvalidInputError, match="no such column"):
        read(spark, flights.uri, columns=["nothing"])
    with pytest.raises(txlog.InvalidInputError):
        read(spark, flights.uri, where="nothing > 1")
    with pytest.raises(txlog.NotFoundError):
        read(spark, str(tmp_path / "nothing"))
    txlog.write("memory://native", pa.table({"id": [1]}))
    with pytest.raises(
        txlog.InvalidInputError, match=r"in the memory of this process.*txlog\.Table"
    ):
        read(spark, "memory://native")
    (tmp_path / "file").write_text("")
    with pytest.raises(txlog.StoreError, match="list of files"):
        read(spark, flights.uri, manifests=str(tmp_path / "file"))


def test_a_file_that_vanished_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": range(10)}))
    table.delete("id = 1")
    frame = read(spark, table.uri)
    next((tmp_path / "t").glob("*.parquet")).unlink()
    with pytest.raises(Exception, match=r"(?i)not exist|not found|FileNotFound"):
        frame.toArrow()


def test_frames_aggregate_as_spark_does(spark: SparkSession, flights: txlog.Table) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    found = read(spark, flights.uri).groupBy("part").agg(F.sum("x").alias("x")).toArrow()
    expected = flights.to_arrow().group_by("part").aggregate([("x", "sum")])
    assert dict(zip(found["part"].to_pylist(), found["x"].to_pylist(), strict=True)) == dict(
        zip(expected["part"].to_pylist(), expected["x_sum"].to_pylist(), strict=True)
    )
    assert pc.sum(found["x"]).as_py() > 0


def changed(table: txlog.Table, change: Any) -> None:
    """Change the adds of a table's log by hand."""
    for entry in (Path(table.uri) / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in entry.read_text().splitlines()]
        for line in lines:
            line.get("commitInfo", {}).pop("txlogCrc32", None)
            if "add" in line:
                change(line["add"])
        entry.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["_x.parquet", ".x.parquet", "a%3Ab.parquet", "%5Fx.parquet"])
def test_files_whose_names_spark_passes_over(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": range(3)}))

    def rename(add: dict[str, Any]) -> None:
        (Path(table.uri) / add["path"]).rename(Path(table.uri) / unquote(name))
        add["path"] = name

    changed(table, rename)
    assert read(spark, table.uri).count() == 3
    txlog.Table(table.uri).delete("id = 1")
    assert sorted(read(spark, table.uri).toArrow()["id"].to_pylist()) == [0, 2]


def test_a_log_that_knows_no_size(spark: SparkSession, tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": range(3)}))
    changed(table, lambda add: add.update(size=0))
    assert read(spark, table.uri).count() == 3


def test_folders_that_mean_something_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = txlog.write(
        tmp_path / "_temporary" / ".t", pa.table({"id": range(4), "p": ["a", "b"] * 2}),
        partition_by=["p"],
    )  # fmt: skip
    assert read(spark, table.uri).count() == 4
    table.delete("id = 2")
    assert rows_sha256(read(spark, table.uri).toArrow()) == rows_sha256(table.to_arrow())


MOMENTS = pa.table(
    {
        "i": pa.array([2**31 - 1, 0, -1, None], pa.int32()),
        "s": ["a\\b", "it's", "%_", None],
        "x": [-0.0, math.nan, 1.5, None],
        "d": [dt.date(2024, 1, 1), dt.date(2023, 12, 31), None, dt.date(2024, 1, 2)],
        "ts": pa.array([1704067200000000, 1704081600000000, 0, None], pa.timestamp("us", "UTC")),
        "nt": pa.array([1704067200000000, 1704081600000000, 0, None], pa.timestamp("us")),
        "m": pa.array([Decimal("1.50"), Decimal("-2"), None, Decimal("0")], pa.decimal128(9, 2)),
    }
)
PREDICATES = [
    "ts = nt", "CAST(ts AS DATE) = '2024-01-01'", "d = ts", "d < ts", "i - 1 > 0", "i % 2 > 0",
    "try_divide(i, 0) IS NULL", "ts >= '2024-01-01'", "nt >= '2024-01-01'",
    "ts = TIMESTAMP '2024-01-01 00:00:00'", "d >= '2024-01-01'", "d IN ('2024-01-01', NULL)",
    "s = 'a\\\\b'", "s = 'it\\'s'", "s LIKE '%\\_'", "x = 0", "x > 1", "x = 'NaN'", "NOT (x < 1)",
    "m = 1.5", "m > i", "i IN (0, -1)", "i <=> NULL", "s IS NULL OR m < 0", "i BETWEEN -1 AND 0",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.spec("SPK-1")
def test_predicates_mean_what_they_mean_to_a_scan(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever the session's modes are, and in its time zone."""
    table = txlog.write(tmp_path / "t", MOMENTS.slice(0, 2))
    table.append(MOMENTS.slice(2))
    settings = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.parser.escapedStringLiterals": "true",
    }
    old = {name: spark.conf.get(name) for name in settings}
    zoned = txlog.Table(table.uri, time_zone="America/New_York")
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        for where in PREDICATES:
            found = read(spark, table.uri, where=where).toArrow()
            assert rows_sha256(found) == rows_sha256(zoned.to_arrow(where=where)), where
    finally:
        for name, value in old.items():
            spark.conf.set(name, value)


def test_nan_is_the_greatest_number_to_filters_too(spark: SparkSession, tmp_path: Path) -> None:
    """Footers leave it out of their bounds, and Spark would skip the row group."""
    inner = pa.array([{"y": 0.5}, {"y": math.nan}])
    table = txlog.write(tmp_path / "t", pa.table({"x": [0.5, math.nan], "s": inner}))
    for condition in ("x > 1", "s.y > 1", "NOT (x < 1)"):
        assert read(spark, table.uri).where(condition).count() == 1, condition


def test_manifests_are_local_whatever_the_default_is(
    spark: SparkSession, flights: txlog.Table, tmp_path: Path
) -> None:
    spark.conf.set("fs.defaultFS", "hdfs://127.0.0.1:1")
    try:
        assert read(spark, flights.uri, manifests=(tmp_path / "a b").as_uri()).count() == 5800
        assert read(spark, flights.uri).count() == 5800
    finally:
        spark.conf.unset("fs.defaultFS")
    assert (tmp_path / "a b").is_dir()
    with pytest.raises(txlog.InvalidInputError, match="not a local folder"):
        read(spark, flights.uri, manifests="s3://user:secret@bucket/x")


def test_a_log_leads_nowhere_that_it_may_not(spark: SparkSession, tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": range(3)}))
    changed(table, lambda add: add.update(path="https://host.example/f.parquet?sig=SECRET"))
    with pytest.raises(txlog.UnsupportedFeatureError, match="allowed_schemes") as caught:
        read(spark, table.uri)
    assert "SECRET" not in str(caught.value)


STRICT = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("x", pa.float64(), nullable=False),
        pa.field("day", pa.string(), nullable=False),
        pa.field("t", pa.string(), metadata={"comment": "free text"}),
    ]
)


def nullable(frame: DataFrame) -> list[str]:
    return [field.name for field in frame.schema.fields if field.nullable]


@pytest.mark.slow
@pytest.mark.spec("SPK-7")
@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_columns_that_the_log_shows_without_nulls_are_not_nullable(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    table = txlog.Table.create(
        tmp_path,
        STRICT,
        partition_by=["day"],
        properties={"delta.columnMapping.mode": mode, "delta.enableDeletionVectors": "true"},
    )
    assert nullable(read(spark, table.uri)) == ["t"]
    rows = {
        "id": [1, 2, 3],
        "x": [0.5, math.nan, 1.5],
        "day": ["a", "a", "b"],
        "t": [None, "u", "v"],
    }
    table.append(pa.table(rows, schema=STRICT))
    table.delete("id = 3")
    table.append(pa.table({"id": [4], "x": [4.0], "day": ["b"], "t": ["w"]}, schema=STRICT))
    frame = DeltaTable.forPath(spark, table.uri).toDF()
    assert nullable(frame) == ["t"]
    assert [row.id for row in frame.where("day = 'a'").orderBy("id").collect()] == [1, 2]
    assert frame.schema["t"].metadata == {"comment": "free text"}
    assert sorted(row.id for row in frame.where("id > 1").collect()) == [2, 4]
    assert frame.where("id IS NULL").count() == 0
    assert frame.where("x > 1.0").count() == 2  # NaN is the greatest number.
    plan = frame.where("id > 1")._jdf.queryExecution().executedPlan().toString()
    assert "PushedFilters: [GreaterThan(" in plan.replace("IsNotNull(id), ", "")
    joined = frame.alias("a").join(frame.alias("b").where("id = 1"), "id", "left")
    assert joined.where("b.x IS NULL").count() == 2
    assert nullable(read(spark, table.uri, columns=["x", "id"], where="id > 0")) == []


PARTITIONS = {
    "a": ("byte", 1), "b": ("short", 2), "c": ("int", 3), "d": ("long", 4), "e": ("string", "x y"),
    "f": ("boolean", True), "g": ("date", dt.date(2026, 1, 2)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.spec("SPK-7")
def test_partition_columns_without_nulls_are_not_nullable(
    spark: SparkSession, tmp_path: Path
) -> None:
    builder = DeltaTable.create(spark).location(str(tmp_path / "t"))
    for name, (kind, _) in PARTITIONS.items():
        builder = builder.addColumn(name, kind, nullable=False, comment=f"of {kind}")
    table = builder.addColumn("v", "int").partitionedBy(*PARTITIONS).execute()
    assert nullable(table.toDF()) == ["v"]
    row = {name: value for name, (_, value) in PARTITIONS.items()} | {"v": 7}
    names = ", ".join(f"{name} {kind}" for name, (kind, _) in PARTITIONS.items())
    made = spark.createDataFrame([tuple(row.values())], f"{names}, v int")
    made.write.format("txlog").mode("append").save(str(tmp_path / "t"))
    frame = table.toDF()
    assert nullable(frame) == ["v"]
    assert [one.asDict() for one in frame.collect()] == [row]
    assert frame.where("c = 3 AND g = DATE'2026-01-02' AND e = 'x y'").count() == 1
    assert frame.where("c = 0 OR e = '' OR NOT f").count() == 0
    assert frame.schema["g"].metadata == {"comment": "of date"}


@pytest.mark.spec("SPK-7")
def test_a_null_in_a_not_null_column_stays_a_null(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever another writer did, Spark does not read the null as 0."""
    table = txlog.Table.create(tmp_path, STRICT.remove(2))
    rows = pa.table({"id": [1], "x": [1.0], "t": ["u"]}, schema=STRICT.remove(2))
    table.append(rows)
    assert nullable(read(spark, table.uri)) == ["t"]
    data = {"id": pa.array([2, 3]), "x": pa.array([None, 2.0]), "t": pa.array(["v", "w"])}
    pq.write_table(pa.table(data), tmp_path / "odd.parquet")
    add = {
        "path": "odd.parquet",
        "partitionValues": {},
        "size": (tmp_path / "odd.parquet").stat().st_size,
        "modificationTime": 0,
        "dataChange": True,
        "stats": json.dumps({"numRecords": 2, "nullCount": {"id": 0}}),
    }
    commit = tmp_path / "_delta_log" / f"{table.version + 1:020}.json"
    commit.write_text(json.dumps({"add": add}) + "\n", encoding="utf-8")
    frame = read(spark, table.uri)
    assert nullable(frame) == ["x", "t"]
    assert frame.where("x IS NULL").select("id").collect() == [(2,)]
    assert sorted(row.x or -1.0 for row in frame.collect()) == [-1.0, 1.0, 2.0]
    assert nullable(read(spark, table.uri, version=table.version)) == ["t"]
