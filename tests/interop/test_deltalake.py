"""Other engines read txlog's tables like txlog itself, and txlog reads theirs."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog

deltalake = pytest.importorskip("deltalake")
pl = pytest.importorskip("polars")

SCHEMA = pa.schema(
    [
        ("i1", pa.int8()),
        ("i2", pa.int16()),
        ("i4", pa.int32()),
        ("i8", pa.int64()),
        ("f4", pa.float32()),
        ("f8", pa.float64()),
        ("b", pa.bool_()),
        ("t", pa.string()),
        ("y", pa.binary()),
        ("m", pa.decimal128(38, 10)),
        ("d", pa.date32()),
        ("z", pa.timestamp("us", "UTC")),
        ("n", pa.timestamp("us")),
        ("l", pa.list_(pa.list_(pa.int64()))),
        ("k", pa.map_(pa.string(), pa.int64())),
        ("s", pa.struct([("a", pa.int64()), ("q", pa.struct([("r", pa.string())]))])),
        ("p", pa.string()),
    ]
)


def row(x: int) -> dict[str, Any]:
    if x % 5 == 4:
        return {"i8": x, "p": "b"}
    return {
        "i1": x % 100,
        "i2": -x,
        "i4": x * 1000,
        "i8": x,
        "f4": x / 2,
        "f8": x / 3,
        "b": x % 2 == 0,
        "t": f"tëxt {x} 😀",
        "y": bytes([x % 256, 0, 255]),
        "m": Decimal(x).scaleb(-3) + Decimal("1e20"),
        "d": date(1999, 12, 31),
        "z": datetime(2024, 2, 29, 1, 2, 3, x, UTC),
        "n": datetime(1969, 12, 31, 23, 59, 59, x),
        "l": [[x, None], None, []],
        "k": [("a", x), ("b", None)],
        "s": {"a": None, "q": {"r": str(x)}} if x % 2 else {"a": x, "q": None},
        "p": "ac"[x % 2],
    }


def part(start: int, stop: int) -> pa.Table:
    """Return rows in arrays of their own: deltalake 1.6 aborts the process at some slices."""
    return pa.Table.from_pylist([row(x) for x in range(start, stop)], schema=SCHEMA)


DATA = part(0, 30)
MANY = part(0, 12_000)


def by_deltalake(root: Path) -> pa.Table:
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(root)))
    return pa.table(builder.execute("select * from t"))


def by_polars(root: Path) -> pa.Table:
    return pl.scan_delta(str(root)).collect().to_arrow()


READERS: dict[str, Callable[[Path], pa.Table]] = {"deltalake": by_deltalake, "polars": by_polars}


def same(ours: pa.Table, theirs: pa.Table, key: str = "i8") -> None:
    """Compare the rows, whatever order the others return them in, and whatever text type."""
    assert sorted(theirs.column_names) == sorted(ours.column_names)
    theirs = theirs.select(ours.column_names)
    found, expected = (sorted(t.to_pylist(), key=lambda r: r[key]) for t in (theirs, ours))
    assert found == expected


def all_agree(root: Path, expected: pa.Table, key: str = "i8") -> None:
    same(expected, txlog.Table(root).to_arrow(), key)
    for read in READERS.values():
        same(expected, read(root), key)


@pytest.mark.parametrize("partition_by", [[], ["p"], ["p", "b"]], ids=str)
def test_all_types(tmp_path: Path, partition_by: list[str]) -> None:
    txlog.write(
        tmp_path, DATA, partition_by=partition_by, options=txlog.WriteOptions(max_rows_per_file=7)
    )
    all_agree(tmp_path, DATA)


@pytest.mark.slow
@pytest.mark.parametrize("interval", ["1", "2", "100"])
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_life_of_a_table(tmp_path: Path, interval: str, vectors: str) -> None:
    properties = {
        "delta.checkpointInterval": interval,
        "delta.enableDeletionVectors": vectors,
    }
    table = txlog.write(tmp_path, DATA.slice(0, 10), partition_by="p", properties=properties)
    table.append(DATA.slice(10), txn=("job", 1))
    table.delete("i8 = 3 or i8 between 20 and 22")
    table.overwrite(DATA.slice(5, 3), "i8 between 5 and 7")
    expected = table.to_arrow()
    assert expected.num_rows == 26
    all_agree(tmp_path, expected)
    table.maintenance.checkpoint()
    all_agree(tmp_path, expected)
    table.delete("p = 'a'")
    all_agree(tmp_path, table.to_arrow())
    assert deltalake.DeltaTable(str(tmp_path)).transaction_version("job") == 1


def test_stored_vectors(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, MANY, options=txlog.WriteOptions(max_rows_per_file=4000))
    table.delete("i8 % 3 = 0 or i8 % 7 = 1")
    table.delete("i8 = 5")
    kinds = {vector[0] for vector in table.files()["deletion_vector"].to_pylist()}
    assert "u" in kinds
    expected = [x for x in range(12_000) if x % 3 and x % 7 != 1 and x != 5]
    for read in READERS.values():
        assert sorted(read(tmp_path)["i8"].to_pylist()) == expected
    assert table.to_arrow(["i8"])["i8"].to_pylist() == expected


def test_new_columns_and_versions(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"x": [1]}))
    table.append(pa.table({"x": [2], "y": ["b"]}), schema_mode="merge")
    all_agree(tmp_path, pa.table({"x": [1, 2], "y": [None, "b"]}), "x")
    old = deltalake.DeltaTable(str(tmp_path), version=0)
    builder = deltalake.QueryBuilder().register("t", old)
    assert pa.table(builder.execute("select * from t")).to_pylist() == [{"x": 1}]
    assert [entry["operation"] for entry in deltalake.DeltaTable(str(tmp_path)).history()] == [
        "WRITE", "CREATE TABLE AS SELECT",
    ]  # fmt: skip


ODD = ["a b", "50%", "a%20b", "#1", "ü", "x=y", "a/b", "+", "?"]


def test_odd_partitions_are_found_by_deltalake(tmp_path: Path) -> None:
    data = pa.table({"x": list(range(len(ODD) + 1)), "p": [*ODD, None]})
    txlog.write(tmp_path, data, partition_by="p")
    same(data, by_deltalake(tmp_path), "x")


def test_the_files_of_a_scan_are_those_of_deltalake(tmp_path: Path) -> None:
    data = pa.table({"x": list(range(len(ODD) + 1)), "p": [*ODD, None]})
    table = txlog.write(tmp_path, data, partition_by="p")
    theirs = deltalake.DeltaTable(str(tmp_path))
    assert sorted(table.scan().file_uris()) == sorted(theirs.file_uris())
    for value in ODD:
        (file,) = theirs.file_uris(file_pruning_predicate=[("p", "=", value)])
        assert table.scan(where=txlog.col("p") == value).file_uris() == [file]
        assert pq.read_table(file, partitioning=None)["x"].to_pylist() == [ODD.index(value)]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([date(2024, 1, 1), None]),
        pa.array([datetime(2024, 1, 1, 1, 2, 3, 4, UTC), None], pa.timestamp("us", "UTC")),
        pa.array([datetime(2024, 1, 1, 1, 2, 3, 4), None], pa.timestamp("us")),
        pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
        pa.array([True, None]),
        pa.array([-1, None], pa.int16()),
        pa.array([0.5, None], pa.float64()),
    ],
    ids=lambda values: str(values.type),
)
def test_partitions_of_every_type_go_both_ways(tmp_path: Path, values: pa.Array) -> None:
    data = pa.table({"x": [1, 2], "p": values})
    txlog.write(tmp_path / "ours", data, partition_by="p")
    same(data, by_deltalake(tmp_path / "ours"), "x")
    deltalake.write_deltalake(str(tmp_path / "theirs"), data, partition_by=["p"])
    table = txlog.Table(tmp_path / "theirs")
    same(data, table.to_arrow(), "x")
    assert table.count(txlog.col("p") == values[0].as_py()) == 1
    # The same value in another writer's spelling is the same partition.
    new = pa.table({"x": [3], "p": values.slice(0, 1)})
    table.overwrite(new, partition_mode="dynamic")
    assert sorted(table.to_arrow()["x"].to_pylist()) == [2, 3]


@pytest.mark.parametrize("partition_by", [None, ["p"]], ids=str)
def test_tables_of_deltalake(tmp_path: Path, partition_by: list[str] | None) -> None:
    root = str(tmp_path)

    def write(data: pa.Table, mode: str) -> None:
        deltalake.write_deltalake(root, data, mode=mode, partition_by=partition_by)

    write(part(0, 10), "error")
    all_agree(tmp_path, part(0, 10))
    write(part(10, 30), "append")
    all_agree(tmp_path, DATA)
    assert deltalake.DeltaTable(root).delete("i8 < 4")["num_deleted_rows"] == 4
    all_agree(tmp_path, part(4, 30))
    deltalake.DeltaTable(root).create_checkpoint()
    all_agree(tmp_path, part(4, 30))
    same(DATA, txlog.Table(tmp_path, 1).to_arrow())
    write(part(20, 30), "overwrite")
    all_agree(tmp_path, part(20, 30))
    assert txlog.Table(tmp_path).history(1)[0]["operation"] == "WRITE"


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", [False, True])
def test_writers_take_turns(tmp_path: Path, checkpoint: bool) -> None:
    root = str(tmp_path)
    deltalake.write_deltalake(root, part(0, 10), partition_by=["p"])
    if checkpoint:
        deltalake.DeltaTable(root).create_checkpoint()
    table = txlog.Table(tmp_path)
    table.append(part(10, 20))
    all_agree(tmp_path, part(0, 20))
    table.delete("i8 = 1 or i8 = 11")  # No deletion vectors here, so files are rewritten.
    assert table.files()["num_deleted"].to_pylist() == [0] * table.files().num_rows
    all_agree(tmp_path, table.to_arrow())
    deltalake.write_deltalake(root, part(20, 30), mode="append")
    table.refresh()
    assert table.count() == 28
    all_agree(tmp_path, table.to_arrow())
    deltalake.DeltaTable(root).delete("i8 > 25")
    table.overwrite(part(0, 2), "i8 in (0, 1)")
    if checkpoint:
        table.maintenance.checkpoint()
    assert table.refresh().count() == 25
    all_agree(tmp_path, table.to_arrow())


def test_ids_survive_what_others_rewrite(tmp_path: Path) -> None:
    properties = {"delta.enableDeletionVectors": "false"}
    table = txlog.write(tmp_path, pa.table({"x": [1, 2, 3]}), properties=properties)
    table.append(pa.table({"x": [4]}))
    deltalake.DeltaTable(str(tmp_path)).delete("x = 2")
    table.append(pa.table({"x": [5]}))
    ids = table.files()["fragment_id"].to_pylist()
    assert len(set(ids)) == 3
    assert {1, 2} <= set(ids)
    all_agree(tmp_path, pa.table({"x": [1, 3, 4, 5]}), "x")


def test_properties_of_deltalake_are_kept(tmp_path: Path) -> None:
    deltalake.DeltaTable.create(
        str(tmp_path),
        schema=pa.schema([("x", pa.int64())]),
        configuration={"delta.appendOnly": "true"},
    )
    table = txlog.Table(tmp_path)
    table.append(pa.table({"x": [1]}))
    with pytest.raises(txlog.UnsupportedFeatureError, match="append-only"):
        table.delete(None)
    all_agree(tmp_path, pa.table({"x": [1]}), "x")
