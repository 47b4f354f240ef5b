"""Half floats and the metadata of an Arrow schema come back: metadata of fields keeps them."""

import json
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.schema.arrow import HALF, SCHEMA_METADATA, fixed_schema
from txlog.schema.types import LONG, StructField, StructType

HALVES = pa.list_(pa.float16(), 2)
METADATA = {b"huggingface": b'{"info": {}}', b"team": "é".encode()}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("h", pa.float16()),
        ("v", HALVES),
        ("st", pa.struct([("h", pa.float16())])),
        ("l", pa.list_(pa.list_(pa.float16()))),
        ("mp", pa.map_(pa.string(), HALVES)),
    ],
    metadata=METADATA,
)


def half(value: float) -> Any:
    return np.float16(value)


ROWS = pa.Table.from_pylist(
    [
        {"id": 1, "h": half(0.1), "v": [half(1), half(-0.0)], "st": {"h": half(65504)},
         "l": [[half(1)], None, []], "mp": [("a", [half(1), None])]},
        {"id": 2},
        {"id": 3, "h": half(float("inf")), "v": None, "st": {"h": None}, "l": [], "mp": []},
    ],
    SCHEMA,
)  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    return txlog.write(tmp_path / "t", ROWS, properties={"delta.enableChangeDataFeed": "true"})


@pytest.mark.spec("FRG-46")
def test_every_way_to_read_returns_them(table: txlog.Table) -> None:
    def same(found: pa.Table, rows: pa.Table) -> None:
        assert found.equals(rows)
        assert found.schema.metadata == METADATA

    assert table.schema == table.scan().schema == SCHEMA
    assert table.schema.metadata == table.scan(["v"]).schema.metadata == METADATA
    same(table.to_arrow(), ROWS)
    same(table.to_arrow(["v", "h"]), ROWS.select(["v", "h"]))
    for batch in table.to_batches(batch_size=2):
        assert batch.schema.equals(SCHEMA)
        assert batch.schema.metadata == METADATA
    same(table.take([2, 0]), ROWS.take([2, 0]))
    same(table.head(1), ROWS[:1])
    same(table.scan().slice(1, 1), ROWS[1:2])
    same(table.lookup([3, 1], on="id"), ROWS.take([2, 0]))
    same(pa.table(table.scan()), ROWS)
    same(table.to_pyarrow_dataset().to_table(), ROWS)
    same(table.to_pyarrow_dataset().to_table(filter=ds.field("id") == 1), ROWS[:1])
    (fragment,) = table.fragments()
    same(fragment.to_table(), ROWS)
    same(fragment.take([0, 1, 2]), ROWS)
    assert table.to_polars().schema["v"] == pl.Array(pl.Float16, 2)
    assert table.to_pandas()["h"].dtype == np.float16
    assert table.count("h > 0.09 AND h < 0.11") == 1


def test_other_engines_read_and_write_floats(table: txlog.Table) -> None:
    """What they add comes back in the same types, and the metadata stays."""
    there = deltalake.DeltaTable(table.uri).to_pyarrow_table()
    assert there["h"].type == pa.float32()
    deltalake.write_deltalake(table.uri, there, mode="append")
    table.refresh()
    both = table.to_arrow()
    assert both.schema.equals(SCHEMA)
    assert both.schema.metadata == METADATA
    assert both.equals(pa.concat_tables([ROWS, ROWS]))


@pytest.mark.spec("FRG-46")
def test_a_float_that_is_no_half_float_is_never_rounded(table: txlog.Table) -> None:
    wrong = pa.table({"id": [9], "h": pa.array([0.1], pa.float32())})
    with pytest.raises(txlog.SchemaMismatchError, match="a number is no half float"):
        table.append(wrong)
    deltalake.write_deltalake(table.uri, wrong, mode="append", schema_mode="merge")
    table.refresh()
    dataset = table.to_pyarrow_dataset()
    for read in (table.to_arrow, table.to_polars, lambda: table.take([3]), dataset.to_table):
        with pytest.raises(txlog.DataFileError, match="a number is no half float") as caught:
            read()
    remedy = caught.value.remedy
    call, _, of_older = remedy.removeprefix("Read all values: ").partition(". ")
    version = table.version
    exec(f"table.{call}", {"table": table})
    assert "clone it" in of_older
    older = txlog.Table(table.uri, version=version).clone(f"{table.uri}_older")
    exec(f"table.{call}", {"table": older})
    for one in (table, older):
        found = one.to_arrow(["id", "h"])
        assert found["h"].type == pa.float32()
        assert found["h"].to_pylist()[3] == np.float32(0.1)


def test_the_metadata_survives_changes_of_the_schema(tmp_path: Path) -> None:
    mapping = {"delta.columnMapping.mode": "name"}
    table = txlog.write(tmp_path / "t", ROWS, properties=mapping)
    table.alter.drop_columns("id")
    table.alter.rename_column("h", "half")
    table.alter.drop_columns("st")
    assert table.schema.metadata == METADATA
    assert table.to_arrow(["half"])["half"].type == pa.float16()
    other = pa.table({"x": [1]}).replace_schema_metadata({"k": "v"})
    with pytest.warns(UserWarning, match="does not keep the metadata k of the Arrow schema"):
        table.append(pa.table({"v": ROWS["v"]}).replace_schema_metadata({"k": "v"}))
    assert table.schema.metadata == METADATA  # An append changes no schema.
    table.overwrite(other, schema_mode="overwrite")
    assert table.schema.metadata == {b"k": b"v"}
    clone = table.clone(tmp_path / "c")
    assert clone.to_arrow().schema.metadata == {b"k": b"v"}
    made = txlog.Table.create(tmp_path / "n", SCHEMA)
    assert made.to_arrow().schema.metadata == METADATA
    again = txlog.Table.create(tmp_path / "n", pa.schema([("x", pa.int8())]), mode="overwrite")
    assert again.schema.metadata is None


@pytest.mark.spec("FRG-47")
def test_what_is_not_kept_is_named_once(tmp_path: Path) -> None:
    rows = pa.table({"x": [1]})
    given = {"big": "x" * 70_000, "bytes": b"\xff", "small": "x"}
    with pytest.warns(UserWarning, match="the metadata big, bytes of the Arrow schema") as caught:
        table = txlog.write(tmp_path / "t", rows.replace_schema_metadata(given))
    assert len(caught) == 1
    assert table.schema.metadata == {b"small": b"x"}
    own = {"ARROW:schema": "x", "PARQUET:y": "x", "org.apache.spark.version": "4"}
    assert txlog.write(tmp_path / "o", rows.replace_schema_metadata(own)).schema.metadata is None


def test_the_named_index_of_a_frame_comes_back(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1, 2], "y": ["a", "b"]}, index=pd.Index([5, 7], name="i"))
    table = txlog.write(tmp_path / "t", frame)
    pd.testing.assert_frame_equal(table.to_pandas(), frame)
    table.append(frame)
    pd.testing.assert_frame_equal(table.to_pandas(), pd.concat([frame, frame]))
    assert table.to_pandas(["x"])["x"].to_list() == [1, 2, 1, 2]
    plain = txlog.write(tmp_path / "p", pd.DataFrame({"x": [1, 2]}))
    assert plain.schema.metadata is None  # It says nothing that the columns do not say.


def test_what_a_frame_said_of_its_columns_stops_no_other_columns(tmp_path: Path) -> None:
    """Their names may be numbers, and a column may come again with another type."""
    frame = pd.DataFrame({0: pd.array([1, None], "Int64")}, index=pd.Index([5, 7], name="i"))
    mapping = {"delta.columnMapping.mode": "name"}
    table = txlog.write(tmp_path / "t", frame, properties=mapping)
    assert table.to_pandas()["0"].dtype == "Int64"
    table.append(pa.table({"i": [9], "0": [2], "more": [1]}), schema_mode="merge")
    assert table.to_pandas()["more"].to_list()[-1] == 1
    assert table.to_pandas().index.to_list() == [5, 7, 9]
    table.alter.drop_columns("0")
    table.append(pa.table({"i": [9], "0": ["text"]}), schema_mode="merge")
    assert table.to_pandas()["0"].to_list()[-1] == "text"
    table.alter.rename_column("i", "j")
    assert table.to_pandas().index.to_list() == [5, 7, 9, 9]
    assert table.to_pandas().index.name == "j"
    table.alter.drop_columns("j")
    assert table.to_pandas()["0"].to_list()[-1] == "text"


def test_the_log_keeps_them_small_and_other_values_are_ignored(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", ROWS)
    first = next((tmp_path / "t" / "_delta_log").glob("*.json")).read_text()
    (action,) = [json.loads(line) for line in first.splitlines() if "metaData" in line]
    fields = {one["name"]: one for one in json.loads(action["metaData"]["schemaString"])["fields"]}
    assert fields["h"]["type"] == "float"
    assert fields["h"]["metadata"] == {HALF: True}
    assert fields["mp"]["metadata"][f"{HALF}.value.element"] is True
    kept = {name.decode(): text.decode() for name, text in METADATA.items()}
    assert fields["id"]["metadata"] == {SCHEMA_METADATA: kept}
    for wrong in ("no object", 7, {"k": 1}, None):
        field = StructField("a", LONG, True, {SCHEMA_METADATA: wrong})
        assert fixed_schema(StructType((field,))).metadata is None
    assert table.version == 0


def test_dictionaries_are_returned_if_asked_for(tmp_path: Path) -> None:
    texts = pa.array(["b", None, "a", "b"])
    rows = pa.table({"c": texts.dictionary_encode(), "s": texts, "n": [1, 2, 3, 1], "l": [[1]] * 4})
    table = txlog.write(tmp_path / "t", rows)
    table.append(rows.slice(2))
    plain = pa.concat_tables([rows, rows.slice(2)]).to_pylist()
    assert table.to_arrow().schema.field("c").type == pa.string()
    kind = pa.dictionary(pa.int32(), pa.string())
    for wanted, names in ((True, ["c"]), (["s", "n"], ["s", "n"]), ([], []), (False, [])):
        scan = table.scan(dictionaries=wanted)
        order = [table.count() - 1, 0, 0]
        taken = table.take(order, dictionaries=wanted)
        assert taken.to_pylist() == [plain[at] for at in order]
        assert taken.schema == scan.schema
        ids = table.to_arrow(["_rowaddr"])["_rowaddr"].take(order).combine_chunks()
        assert table.take(addresses=ids, dictionaries=wanted).equals(taken)
        assert [one.name for one in scan.schema if pa.types.is_dictionary(one.type)] == names
        for found in (scan.to_arrow(), pa.Table.from_batches(scan.to_batches(), scan.schema)):
            assert found.schema == scan.schema
            assert found.to_pylist() == plain
        assert scan.to_polars().to_dicts() == plain
        assert scan.head(2).to_pylist() == plain[:2]
    assert table.scan(["s", "c"], "n = 1", dictionaries=True).to_arrow().schema.types == [
        pa.string(), kind
    ]  # fmt: skip
    assert table.scan(dictionaries=True).to_pandas()["c"].dtype == "category"
    for wrong, words in (
        (["x"], "'x' is no column"),
        (["l"], "cannot be in a dictionary"),
        ("c", "a list of"),
    ):
        with pytest.raises(txlog.TxlogError, match=words):
            table.scan(dictionaries=wrong)
        with pytest.raises(txlog.TxlogError, match=words):
            table.take([0], dictionaries=wrong)


# Random schemas -------------------------------------------------------------------------------

LEAVES = {
    pa.float16(): st.floats(width=16, allow_nan=False).map(np.float16),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.int16(): st.integers(-(1 << 15), (1 << 15) - 1),
    pa.string(): st.text(max_size=3),
}


def types(depth: int) -> st.SearchStrategy[pa.DataType]:
    leaf = st.sampled_from([*LEAVES])
    if not depth:
        return leaf
    inner = types(depth - 1)
    return (
        leaf
        | inner.map(lambda kind: pa.list_(pa.field("element", kind)))
        | st.tuples(inner, st.integers(1, 3)).map(
            lambda pair: pa.list_(pa.field("element", pair[0]), pair[1])
        )
        | st.lists(inner, min_size=1, max_size=2).map(
            lambda kinds: pa.struct([(f"f{at}", kind) for at, kind in enumerate(kinds)])
        )
        | inner.map(lambda kind: pa.map_(pa.string(), kind))
    )


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if kind in LEAVES:
        return st.none() | LEAVES[kind]
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({one.name: values(one.type) for one in kind})
    if pa.types.is_map(kind):
        keys = st.dictionaries(st.text(max_size=2), values(kind.item_type), max_size=2)
        return st.none() | keys.map(lambda found: list(found.items()))
    fixed = kind.list_size if pa.types.is_fixed_size_list(kind) else None
    least, most = (0, 2) if fixed is None else (fixed, fixed)
    return st.none() | st.lists(values(kind.value_type), min_size=least, max_size=most)


@given(
    kinds=st.lists(types(2), min_size=1, max_size=3),
    metadata=st.dictionaries(st.sampled_from(["a", "é", "huggingface"]), st.text(max_size=5)),
    data=st.data(),
)
@settings(max_examples=examples(40))
def test_random_rows_come_back_as_they_were_given(
    kinds: list[pa.DataType],
    metadata: dict[str, str],
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    schema = pa.schema(
        [(f"c{at}", kind) for at, kind in enumerate(kinds)], metadata=metadata or None
    )
    row = st.fixed_dictionaries({field.name: values(field.type) for field in schema})
    parts = [
        pa.Table.from_pylist(data.draw(st.lists(row, min_size=1, max_size=3)), schema)
        for _ in range(2)
    ]
    table = txlog.write(tmp_path_factory.mktemp("given") / "t", parts[0])
    table.append(parts[1])
    wanted = pa.concat_tables(parts)
    count = wanted.num_rows
    for found in (
        table.to_arrow(),
        table.take(list(range(count))),
        pa.table(table.scan()),
        table.to_pyarrow_dataset().to_table(),
    ):
        assert found.schema.equals(schema)
        assert (found.schema.metadata or None) == schema.metadata
        assert found.equals(wanted)
    assert table.to_arrow(["c0"]).equals(wanted.select(["c0"]))


@pytest.mark.spec("FRG-47")
def test_metadata_that_an_existing_table_does_not_keep_is_named(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    rows = pa.table({"id": [1]}).replace_schema_metadata({"k": "v", "same": "1"})
    table = txlog.write(tmp_path / "t", rows)
    frame = pa.Table.from_pandas(pd.DataFrame({"id": [2]}))
    for silent in (rows, rows.replace_schema_metadata({"same": "1"}), frame, pa.table({"id": [2]})):
        txlog.write(table.uri, silent, mode="append")
        txlog.write(table.uri, silent, mode="overwrite")
    assert not [one for one in recwarn if "metadata" in str(one.message)]
    for mode in ("append", "overwrite"):
        with pytest.warns(UserWarning, match="does not keep the metadata k, z of") as caught:
            txlog.write(table.uri, rows.replace_schema_metadata({"k": "w", "z": "1"}), mode=mode)
        assert len(caught) == 1
    assert txlog.Table(table.uri).schema.metadata == {b"k": b"v", b"same": b"1"}


@pytest.mark.parametrize(
    "text",
    [
        "no json", "[]", "7", "{}", '{"index_columns": ["id"]}',
        '{"index_columns": ["id"], "columns": [{}]}', '{"index_columns": 1, "columns": 2}',
        '{"index_columns": ["id"], "columns": [7], "column_indexes": 3}',
    ],
)  # fmt: skip
def test_damaged_metadata_of_pandas_is_no_obstacle(text: str, tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "x": ["a"]}).replace_schema_metadata({"pandas": text})
    table = txlog.write(tmp_path / "t", rows)
    assert table.to_pandas().reset_index()["x"].to_list() == ["a"]
    other = txlog.write(tmp_path / "other", rows.replace_schema_metadata(None))
    other.alter.set_column_metadata("id", {SCHEMA_METADATA: {"pandas": text}})
    assert other.to_pandas().reset_index()["x"].to_list() == ["a"]


def test_the_index_of_a_frame_follows_the_name_of_its_column(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": ["p", "q"]}, index=pd.Index([5, 6], name="i"))
    mapping = {"delta.columnMapping.mode": "name"}
    table = txlog.write(tmp_path / "t", pa.Table.from_pandas(frame), properties=mapping)
    table.alter.rename_column("i", "k")
    expected = frame.rename_axis("k")
    pd.testing.assert_frame_equal(table.to_pandas(), expected)
    table.alter.rename_column("y", "i")
    pd.testing.assert_frame_equal(table.to_pandas(), expected.rename(columns={"y": "i"}))
    pd.testing.assert_frame_equal(table.to_arrow().to_pandas(), table.to_pandas())
    table.alter.drop_columns("k")
    table.alter.rename_column("i", "k")
    found = table.to_pandas()
    assert found.index.to_list() == [0, 1]
    assert found["k"].to_list() == ["p", "q"]


def test_an_ipc_file_takes_the_dictionaries_of_several_batches(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"c": pa.array(["a", "b"]).dictionary_encode()}))
    table.append(pa.table({"c": ["b", "z"]}))
    whole = table.scan(dictionaries=True).to_arrow()
    options = pa.ipc.IpcWriteOptions(unify_dictionaries=True)
    with pa.ipc.new_file(tmp_path / "f", whole.schema, options=options) as file:
        file.write_table(whole)
    found = pa.ipc.open_file(tmp_path / "f").read_all()
    reader = table.scan(dictionaries=True).to_reader()
    with pa.ipc.new_stream(tmp_path / "s", reader.schema) as stream:
        for batch in reader:
            stream.write_batch(batch)
    streamed = pa.ipc.open_stream(tmp_path / "s").read_all()
    assert sorted(found["c"].to_pylist()) == sorted(streamed["c"].to_pylist()) == [*"abbz"]
