"""Column files in unusual places: possible attacks."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import txlog
from txlog import FragmentOperation

FEATURE = {"delta.feature.txlog.fragments": "supported"}
DROPPED = "txlog.droppedColumns"


def made(root: Path, data: pa.Table, each: int = 4, **arguments: Any) -> txlog.Table:
    properties = {**FEATURE, **arguments.pop("properties", {})}
    schema = arguments.pop("schema", data.schema)
    table = txlog.Table.create(root, schema, properties=properties, **arguments)
    if data.num_rows:
        table.append(data, options=txlog.WriteOptions(max_rows_per_file=each))
    return table


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    """Three fragments of four rows."""
    return made(tmp_path / "t", pa.table({"x": range(12), "t": [str(x) for x in range(12)]}))


def column(table: txlog.Table, name: str) -> list[Any]:
    found: list[Any] = table.to_arrow([name])[name].to_pylist()
    return found


@pytest.mark.spec("FRG-23")
@pytest.mark.parametrize("kind", [pa.string(), pa.int64()], ids=str)
def test_dropped_values_do_not_come_back_in_another_case(
    table: txlog.Table, kind: pa.DataType
) -> None:
    """Files are read by names in any case, so `T` would find what is left of `t`."""
    table.alter.drop_columns("t")
    table.alter.add_columns(pa.field("T", kind))
    assert column(table, "T") == [None] * 12
    assert DROPPED not in table.properties


@pytest.mark.spec("FRG-23")
def test_a_dropped_name_has_values_again_in_another_case(table: txlog.Table) -> None:
    table.alter.add_columns({"Yy": "X * 2"})
    table.alter.replace_columns({"yY": "YY + 1"})
    table.alter.drop_columns("YY")
    assert table.properties[DROPPED] == '["Yy"]'
    table.alter.add_columns({"yy": "x"})
    assert DROPPED not in table.properties
    assert table.schema.names == ["x", "t", "yy"]
    assert column(table, "yy") == list(range(12))
    assert table.count("YY = 3") == 1
    table.optimize.compact()
    assert column(table, "yy") == list(range(12))


@pytest.mark.spec("FRG-20", "FRG-22")
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_columns_that_must_not_be_null_beside_deleted_rows(tmp_path: Path, vectors: str) -> None:
    """A deleted row has a null in the new file even then, and nobody ever sees it."""
    schema = pa.schema([("x", pa.int64()), pa.field("k", pa.int64(), nullable=False)])
    data = pa.table({"x": range(6), "k": range(6)}, schema=schema)
    table = made(tmp_path, data, properties={"delta.enableDeletionVectors": vectors})
    table.delete("x IN (1, 4, 5)")
    table.alter.replace_columns({"k": "k * 10"})
    with pytest.raises(txlog.SchemaMismatchError, match="k must not be null"):
        table.alter.replace_columns({"k": pa.array([1, None, 2])})
    assert table.schema == schema
    for _ in range(2):
        assert table.to_arrow() == pa.table({"x": [0, 2, 3], "k": [0, 20, 30]}, schema=schema)
        assert table.count("k >= 0") == 3
        assert table.count("k IS NULL") == 0
        table.optimize.compact(max_deleted_fraction=0.0)


@pytest.mark.spec("FRG-16", "FRG-20")
def test_files_without_rows(tmp_path: Path) -> None:
    """Other writers leave such files; they get no column file, and are no fault."""
    table = txlog.write(tmp_path, pa.table({"x": [1, 2, 3]}))
    pq.write_table(pa.table({"x": pa.array([], pa.int64())}), tmp_path / "none.parquet")
    add = {
        "path": "none.parquet",
        "partitionValues": {},
        "size": (tmp_path / "none.parquet").stat().st_size,
        "modificationTime": 0,
        "dataChange": True,
        "stats": '{"numRecords":0}',
    }
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text(json.dumps({"add": add}))
    table.refresh().alter.add_features("txlog.fragments")
    table.alter.add_columns({"y": lambda batch: pc.add(batch["x"], 1)})
    found = [f.merge_columns({"z": lambda batch: batch["x"]}) for f in table.fragments()]
    assert found[0][1] == found[1][1]
    table.commit(FragmentOperation.Merge([held for held, _ in found], found[0][1]))
    assert sorted(len(fragment.files) for fragment in table.fragments()) == [1, 3]
    expected = [{"x": x, "y": x + 1, "z": x} for x in (1, 2, 3)]
    assert table.to_arrow().to_pylist() == expected
    table.optimize.compact()
    assert table.to_arrow().to_pylist() == expected


@pytest.mark.spec("FRG-24", "FRG-26")
def test_workers_that_disagree_about_a_type(table: txlog.Table) -> None:
    """Plain values make one type of one fragment, and another one of the next."""
    halves = [
        fragment.merge_columns(
            {"y": lambda batch: [x // 2 if x < 4 else x / 2 for x in batch["x"].to_pylist()]}
        )
        for fragment in table.fragments()
    ]
    wire = [txlog.FragmentMetadata.from_json(json.dumps(held.to_json())) for held, _ in halves]
    for _, schema in halves:
        with pytest.raises(txlog.InvalidInputError, match="in other types than"):
            table.commit(FragmentOperation.Merge(wire, schema))
    assert txlog.Table(table.uri).version == 1
    table.commit(FragmentOperation.Merge(wire[1:], halves[1][1]))
    assert column(table, "y") == [None] * 4 + [x / 2 for x in range(4, 12)]


@pytest.mark.spec("FRG-23", "FRG-26")
def test_a_dropped_name_comes_back_by_fragments_only_if_all_give_it(table: txlog.Table) -> None:
    table.alter.drop_columns("t")
    found = [fragment.merge_columns({"T": "x + 1"}) for fragment in table.fragments()]
    held, schema = [metadata for metadata, _ in found], found[0][1]
    with pytest.raises(txlog.SchemaMismatchError, match="was dropped"):
        table.commit(FragmentOperation.Merge(held[:2], schema))
    with pytest.raises(txlog.SchemaMismatchError, match="was dropped"):
        table.commit(FragmentOperation.Merge([], schema))
    table.commit(FragmentOperation.Merge(held, schema))
    assert column(table, "T") == list(range(1, 13))
    assert DROPPED not in table.properties


KINDS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
        lambda x: {"a": x, "b": [None, str(x)]} if x % 3 else None,
    ),
    "list": (pa.list_(pa.int32()), lambda x: [x, None][: x % 3] if x % 4 else None),
    "fixed list": (pa.list_(pa.float32(), 2), lambda x: [x / 2, None]),
    "map": (pa.map_(pa.string(), pa.int64()), lambda x: [("k", x), ("l", None)]),
    "decimal": (pa.decimal128(38, 10), lambda x: Decimal(x).scaleb(-10) + Decimal("1e20")),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        lambda x: datetime(1969, 12, 31, 23, 59, x, x, tzinfo=UTC),
    ),
    "binary": (pa.binary(), lambda x: bytes([x, 0, 255]) if x % 2 else None),
    "byte": (pa.int8(), lambda x: -x),
    "text view": (pa.string_view(), str),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), lambda x: "ab"[x % 2]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_columns_of_every_type(table: txlog.Table, name: str) -> None:
    kind, value = KINDS[name]
    table.delete("x IN (0, 5)")
    live = [x for x in range(12) if x not in (0, 5)]
    expected = [value(x) for x in live]
    table.alter.add_columns({"y": lambda batch: pa.array(map(value, batch["x"].to_pylist()), kind)})
    assert column(table, "y") == expected
    assert table.take(addresses=[(2 << 32) + 1, 3], columns=["y"])["y"].to_pylist() == [
        value(9),
        value(3),
    ]
    table.alter.replace_columns({"y": pa.array(expected[::-1], kind)})
    assert column(table, "y") == expected[::-1]
    table.optimize.compact(max_deleted_fraction=0.0)
    assert [len(fragment.files) for fragment in table.fragments()] == [1]
    assert column(table, "y") == expected[::-1]
    assert column(txlog.Table(table.uri, 3), "y") == expected


def test_what_functions_may_return(table: txlog.Table) -> None:
    table.alter.add_columns(
        {
            "a": lambda batch: batch["x"].to_numpy() * 1.5,
            "b": lambda batch: pa.chunked_array([batch["x"].slice(0, 1), batch["x"].slice(1)]),
            "c": lambda batch: np.asarray(batch["x"]).astype("uint32"),
            "d": lambda batch: [batch.num_rows] * batch.num_rows,
            "e": lambda batch: pa.table({"any": batch["t"]}),
        }
    )
    assert table.to_arrow().slice(11).to_pylist() == [
        {"x": 11, "t": "11", "a": 16.5, "b": 11, "c": 11, "d": 4, "e": "11"}
    ]
    faults: dict[str, Callable[[pa.RecordBatch], Any]] = {
        "null": lambda batch: [None] * batch.num_rows,
        "scalar": lambda batch: batch["x"][0],
        "number": lambda batch: batch.num_rows,
        "too few": lambda batch: batch["x"].slice(1),
        "later another type": lambda b: [x if x < 4 else x / 4 for x in b["x"].to_pylist()],
    }
    before = set(Path(table.uri).iterdir())
    for function in faults.values():
        with pytest.raises(txlog.InvalidInputError, match=r"null|failed|values|truncated"):
            table.alter.add_columns({"y": function})
    assert set(Path(table.uri).iterdir()) == before


def test_a_table_without_rows(tmp_path: Path) -> None:
    table = made(tmp_path, pa.table({"x": pa.array([], pa.int64())}))
    table.alter.add_columns({"y": "x * 2", "z": lambda batch: batch["x"].to_numpy() * 1.5})
    table.alter.replace_columns({"y": "x"})
    table.alter.add_columns({"w": pa.array([], pa.string())})
    assert table.files().num_rows == 0
    table.append(pa.table({"x": [1], "y": [2], "z": [0.5], "w": ["w"]}))
    table.alter.drop_columns("y")
    table.delete("x = 1")
    table.alter.add_columns({"y": "w"})
    assert table.schema.names == ["x", "z", "w", "y"]
    assert table.count() == 0


def test_one_row_is_left(tmp_path: Path) -> None:
    table = made(tmp_path, pa.table({"x": range(12)}), each=12)
    table.delete("x <> 7")
    table.alter.add_columns({"y": "x + 1", "z": lambda batch: batch["x"].to_pylist()})
    table.alter.replace_columns({"y": pa.array([3])})
    expected = [{"x": 7, "y": 3, "z": 7}]
    assert table.to_arrow().to_pylist() == expected
    assert table.take(addresses=[7]).to_pylist() == expected
    assert table.fragments()[0].take([0]).to_pylist() == expected
    assert table.fragments()[0].take_offsets([7]).to_pylist() == expected
    with pytest.raises(txlog.NotFoundError):
        table.take(addresses=[6])
    assert table.head(5).to_pylist() == expected
    assert (table.count("y = 3"), table.count("y IS NULL"), table.count("z > 7")) == (1, 0, 0)


@pytest.mark.spec("FRG-22", "FRG-35")
def test_versions_of_a_column(table: txlog.Table) -> None:
    table.alter.add_columns({"y": "x + 1"})
    table.alter.replace_columns({"y": "y * 10", "t": "CAST(y AS STRING)"})
    table.optimize.compact()
    once, ten = list(range(1, 13)), [10 * x for x in range(1, 13)]
    for _ in range(2):
        versions = [column(txlog.Table(table.uri, version), "y") for version in (2, 3, 4)]
        assert versions == [once, ten, ten]
        table.maintenance.checkpoint()
    for version, expected, files in ((2, once, 2), (4, ten, 1), (3, ten, 2), (2, once, 2)):
        table.restore(version)
        assert column(table, "y") == expected
        assert {len(fragment.files) for fragment in table.fragments()} == {files}
    table.restore(1)  # Before the column was there: the next one of its name is another one.
    table.alter.add_columns({"Y": "t"})
    assert column(table, "Y") == [str(x) for x in range(12)]
    assert [fragment.id for fragment in table.fragments()] == [0, 1, 2]


@pytest.mark.spec("FRG-23", "FRG-35")
def test_restoring_around_a_drop(table: txlog.Table) -> None:
    table.alter.add_columns({"y": "x + 1"})
    table.alter.drop_columns("y")
    table.restore(2)
    assert column(table, "y") == list(range(1, 13))
    assert DROPPED not in table.properties
    table.restore(3)
    assert table.properties[DROPPED] == '["y"]'
    with pytest.raises(txlog.SchemaMismatchError, match="was dropped"):
        table.append(pa.table({"x": [1], "y": [1]}), schema_mode="merge")
    table.restore(1)  # No file of this version has the column, so its name is free.
    table.append(pa.table({"x": [1], "y": ["text"]}), schema_mode="merge")
    assert column(table, "y") == [None] * 12 + ["text"]


def test_partitions_and_nulls(tmp_path: Path) -> None:
    data = pa.table({"x": range(6), "p": ["a", None] * 3})
    table = made(tmp_path, data, partition_by=["p"])
    table.alter.add_columns({"y": "x * 2"})
    table.delete("p IS NULL AND y = 6")
    table.optimize.compact(max_deleted_fraction=0.0)
    table.alter.add_columns({"q": lambda batch: batch["p"]}, read_columns=["p"])
    table.optimize.compact("p IS NULL")
    found = sorted(table.to_arrow().to_pylist(), key=lambda row: row["x"])
    assert found == [
        {"x": x, "p": ["a", None][x % 2], "y": 2 * x, "q": ["a", None][x % 2]}
        for x in range(6)
        if x != 3
    ]


def test_after_the_log_was_cleaned(table: txlog.Table) -> None:
    table.alter.add_columns({"y": "x * 2", "z": "x"})
    table.alter.replace_columns({"y": "y + 1"})
    table.delete("x = 3")
    table.alter.drop_columns("t")
    table.maintenance.checkpoint()
    live = set(table.files()["path"].to_pylist())
    log = Path(table.uri) / "_delta_log"
    for file in [*log.glob("*.json"), *Path(table.uri).glob("*.parquet")]:
        if file.name not in live:
            file.unlink()
    table = txlog.Table(table.uri)
    assert column(table, "y") == [2 * x + 1 for x in range(12) if x != 3]
    table.delete("y = 9")
    table.alter.add_columns({"t": "y - z"})
    table.append(pa.table({"x": [99], "t": [0]}))
    table.append(pa.table({"x": [98], "w": [1.5]}), schema_mode="merge")
    table.alter.replace_columns({"w": "CAST(x AS DOUBLE)"})
    table.optimize.compact(max_deleted_fraction=0.0)
    assert column(table, "t") == [x + 1 for x in range(12) if x not in (3, 4)] + [0, None]
    assert column(table, "w")[-2:] == [99.0, 98.0]
    assert [fragment.id for fragment in table.fragments()] == [5]


@pytest.mark.spec("FRG-21")
def test_a_fragment_of_four_files_loses_all_rows(table: txlog.Table) -> None:
    for name in "abc":
        table.alter.add_columns({name: "x + 1"})
    seen = txlog.Table(table.uri)
    table.delete("a BETWEEN 5 AND 7")
    table.delete("c <= 4 OR b = 8")
    assert [(f.id, len(f.files), f.num_rows) for f in table.fragments()] == [(2, 4, 4)]
    asked = [(2 << 32) + 3, 2 << 32]
    assert table.take(addresses=asked, columns=["c"])["c"].to_pylist() == [12, 9]
    with pytest.raises(txlog.NotFoundError):
        table.take(addresses=[1 << 32])
    table.delete(None)
    assert table.files().num_rows == 0
    assert seen.take(addresses=[1 << 32], columns=["x", "b"]).to_pylist() == [{"x": 4, "b": 5}]


@pytest.mark.spec("FRG-26")
def test_columns_for_fragments_that_were_compacted_meanwhile(table: txlog.Table) -> None:
    found = [fragment.merge_columns({"y": "x"}) for fragment in table.fragments()]
    merge = FragmentOperation.Merge([held for held, _ in found], found[0][1])
    txlog.Table(table.uri).optimize.compact()
    with pytest.raises(
        txlog.CommitConflictError, match="changed the rows or columns from which the fragments"
    ):
        table.commit(merge)
    table.refresh().restore(1)  # The fragments are back, but what is there was not seen.
    with pytest.raises(txlog.CommitConflictError):
        table.commit(merge)
    assert "y" not in table.refresh().schema.names


def test_rows_keep_their_ids(tmp_path: Path) -> None:
    data = pa.table({"x": range(12)})
    table = made(tmp_path, data, properties={"delta.enableRowTracking": "true"})
    table.alter.add_columns({"y": "x * 2"})
    table.delete("x = 1")
    table.optimize.compact(max_deleted_fraction=0.0)
    table.append(pa.table({"x": [100]}))
    table.alter.add_columns({"z": "x + 1"})
    rows = table.to_arrow(["x", "y", "z", "_rowid"]).to_pylist()
    assert [row["_rowid"] for row in rows[:-1]] == [x for x in range(12) if x != 1]
    asked = [rows[-1]["_rowid"], 11, 2]
    taken = table.take(row_ids=asked, columns=["x", "y", "z"]).to_pylist()
    assert taken == [
        {"x": 100, "y": None, "z": 101}, {"x": 11, "y": 22, "z": 12}, {"x": 2, "y": 4, "z": 3},
    ]  # fmt: skip


@pytest.mark.spec("FRG-22")
@pytest.mark.parametrize("again", [False, True], ids=["dropped", "of another type"])
@pytest.mark.parametrize("values", ["x", "y + 1"])
def test_replacing_a_column_that_was_dropped_meanwhile(
    table: txlog.Table, values: str, again: bool
) -> None:
    table.alter.add_columns({"y": "x"})
    late = txlog.Table(table.uri)
    seen = late.snapshot
    table.alter.drop_columns("y")
    if again:
        table.alter.add_columns({"y": "t"})
    files = {path.name for path in Path(table.uri).iterdir()}
    late._latest = lambda: seen  # type: ignore[method-assign]
    with pytest.raises(txlog.CommitConflictError, match="dropped or changed the column y"):
        late.alter.replace_columns({"y": values})
    with pytest.raises(txlog.CommitConflictError):
        late.alter.add_columns({"z": "y"})
    assert {path.name for path in Path(table.uri).iterdir()} == files
    assert txlog.Table(table.uri).to_arrow() == table.to_arrow()


@pytest.mark.spec("FRG-22", "FRG-35")
@pytest.mark.parametrize("verb", ["add_columns", "replace_columns"])
def test_rows_that_come_back_meanwhile(table: txlog.Table, verb: str) -> None:
    """The values were written while the rows were deleted, so none are there for them."""
    table.delete("x IN (1, 5)")
    late = txlog.Table(table.uri)
    seen = late.snapshot
    table.delete("x = 6")
    table.restore(1)
    late._latest = lambda: seen  # type: ignore[method-assign]
    name = "t" if verb == "replace_columns" else "y"
    getattr(late.alter, verb)({name: "CAST(x + 1 AS STRING)"})
    assert column(late, name) == [str(x + 1) for x in range(12)]
    live = set(late.files()["path"].to_pylist())
    assert {path.name for path in Path(table.uri).glob("*.parquet")} == live
    with pytest.raises(txlog.CommitConflictError, match="the data cannot be read again"):
        late.alter.replace_columns({"t": pa.array(["v"] * 10)})
