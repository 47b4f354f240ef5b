"""Blob columns: how they are declared, and the structs of their values."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.schema import blobs
from txlog.schema.arrow import from_arrow
from txlog.schema.blobs import ABOVE, ARROW_BLOB, BLOB, as_blobs, in_parts, is_blob


def declared(kind: pa.DataType, text: str) -> pa.Field:
    return pa.field("b", kind, metadata={ABOVE: text})


@pytest.mark.spec("BLB-1")
@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(4), ARROW_BLOB]
)
def test_bytes_are_declared_as_blobs(kind: pa.DataType) -> None:
    (field,) = from_arrow(pa.schema([declared(kind, "9")])).fields
    assert (field.type, dict(field.metadata)) == (BLOB, {ABOVE: "9"})
    assert is_blob(field)


@pytest.mark.spec("BLB-1")
@pytest.mark.parametrize("above", [-1, 2**31, 1.5, "9", True, None])
def test_a_size_is_a_whole_number(above: Any) -> None:
    with pytest.raises(txlog.InvalidInputError):
        txlog.blob("b", above=above)


@pytest.mark.spec("BLB-1")
@pytest.mark.parametrize(
    "field",
    [
        declared(pa.binary(), "many"),
        declared(pa.binary(), "-1"),
        declared(pa.binary(), "²"),
        declared(pa.binary(), str(2**31)),
        declared(pa.string(), "9"),
        declared(pa.list_(pa.binary()), "9"),
        pa.field("s", pa.struct([declared(pa.binary(), "9")])),
        pa.field("s", pa.list_(pa.struct([declared(pa.binary(), "9")]))),
        pa.field("b", pa.struct([declared(pa.binary(), "9")]), metadata={ABOVE: "9"}),
    ],
)
def test_what_cannot_be_a_blob_is_refused(field: pa.Field, tmp_path: Path) -> None:
    schema, table = pa.schema([pa.field("id", pa.int64()), field]), tmp_path / "t"
    with pytest.raises(txlog.InvalidInputError, match=r"txlog\.blob"):
        txlog.Table.create(table, schema)
    plain = txlog.Table.create(table, pa.schema([("id", pa.int64())]))
    with pytest.raises(txlog.InvalidInputError, match=r"txlog\.blob"):
        plain.alter.add_columns(pa.schema([field]))


@pytest.mark.spec("BLB-2")
def test_a_blob_column_brings_the_feature(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    table.alter.add_columns(pa.schema([txlog.blob("b", above=3)]))
    assert "txlog.blobs-dev" in (table.protocol.writer_features or ())
    assert table.protocol.min_reader_version == 1
    table.append(pa.table({"id": [2], "b": [b"1234"]}))
    assert [b and b.read() for b in table.blobs(table.to_arrow().sort_by("id")["b"])] == [
        None,
        b"1234",
    ]
    with pytest.raises(txlog.UnsupportedFeatureError, match="b"):
        table.alter.drop_feature("txlog.blobs-dev")


@pytest.mark.parametrize(
    "more",
    [
        {"partition_by": ["b"]},
        {"cluster_by": ["b"]},
        {"properties": {"txlog.uniqueKey.k": "b"}},
    ],
)
def test_a_blob_is_no_key(more: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(txlog.TxlogError):
        txlog.Table.create(tmp_path / "t", pa.schema([("id", pa.int64()), txlog.blob("b")]), **more)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.none() | st.binary(max_size=6)), st.data())
def test_bytes_of_any_form_become_the_same_structs(
    given_: list[bytes | None], data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]))
    array = pa.array([b"before", *given_], kind)[1:]
    if kind == pa.binary() and data.draw(st.booleans()):
        array = array.dictionary_encode()
    made = as_blobs(array, "b")
    assert made.type == ARROW_BLOB
    expected = [
        v if v is None else {"path": None, "offset": None, "size": len(v), "data": v}
        for v in given_
    ]
    assert made.to_pylist() == expected
    assert as_blobs(made, "b").to_pylist() == expected


@pytest.mark.spec("BLB-3")
@pytest.mark.parametrize(
    "struct",
    [
        {"path": None, "offset": None, "size": 3, "data": None},
        {"path": "_blobs/x.blobs", "offset": 16, "size": 3, "data": b"abc"},
        {"path": "_blobs/x.blobs", "offset": None, "size": 3, "data": None},
        {"path": "_blobs/x.blobs", "offset": 16, "size": None, "data": None},
        {"path": "_blobs/x.blobs", "offset": -1, "size": 3, "data": None},
        {"path": "_blobs/x.blobs", "offset": 16, "size": -3, "data": None},
    ],
)
def test_half_a_struct_is_refused(struct: dict[str, Any], tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", pa.schema([("id", pa.int64()), txlog.blob("b")]))
    rows = pa.table({"id": pa.array([1]), "b": pa.array([struct], ARROW_BLOB)})
    with pytest.raises(txlog.SchemaMismatchError, match="struct of column b"):
        table.append(rows)
    assert table.version == 0


@pytest.mark.spec("BLB-3")
def test_a_struct_gets_the_size_of_its_data(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", pa.schema([txlog.blob("b")]))
    given_ = {"path": None, "offset": 7, "size": 99, "data": b"abc"}
    table.append(pa.table({"b": pa.array([given_], ARROW_BLOB)}))
    assert table.to_arrow()["b"].to_pylist() == [
        {"path": None, "offset": None, "size": 3, "data": b"abc"}
    ]


def test_values_above_the_limit_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody has 2 GiB for a test, so the limit is lower here."""
    table = txlog.Table.create(tmp_path / "t", pa.schema([txlog.blob("b", above=3)]))
    monkeypatch.setattr(blobs, "MOST_BYTES", 10)
    with pytest.raises(txlog.SchemaMismatchError, match="11 bytes, and a value may have 10"):
        table.append(pa.table({"b": pa.array([b"x" * 11], pa.large_binary())}))
    values = [b"a" * 9, b"b" * 8, None, b"c" * 10]
    table.append(pa.table({"b": pa.array(values, pa.large_binary())}))
    assert [b and b.read() for b in table.blobs(table.to_arrow()["b"])] == values


def test_a_batch_is_cut_where_an_array_would_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "MOST_BYTES", 10)
    values = [b"a" * 6, None, b"b" * 6, b"c" * 2, b"", b"d" * 9]
    batch = pa.record_batch({"B": pa.array(values, pa.large_binary()), "n": list(range(6))})
    parts = list(in_parts(batch, ["b"]))
    assert pa.Table.from_batches(parts)["B"].to_pylist() == values
    assert all(sum(len(v or b"") for v in part["B"].to_pylist()) <= 10 for part in parts)


@pytest.mark.spec("BLB-1")
@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("b", {"txlog.blob": None}),
        ("plain", {"txlog.blob": "5"}),
        ("b.path", {"comment": "where"}),
    ],
)
def test_a_column_stays_a_blob_or_none(
    column: str, change: dict[str, str | None], tmp_path: Path
) -> None:
    schema = pa.schema([txlog.blob("b", above=3), pa.field("plain", ARROW_BLOB)])
    table = txlog.Table.create(tmp_path / "t", schema)
    with pytest.raises(txlog.InvalidInputError, match=column.partition(".")[0]):
        table.alter.set_column_metadata(column, change)
    with pytest.raises(txlog.InvalidInputError, match="stays a blob"):
        table.alter.set_nullable("b.path", False)
    table.alter.set_column_metadata("b", {"txlog.blob": "4", "comment": "bytes"})
    assert table.schema.field("b").metadata == {b"txlog.blob": b"4", b"comment": b"bytes"}


@pytest.mark.spec("BLB-5", "BLB-8")
def test_structs_in_other_columns_keep_their_packs(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", pa.schema([txlog.blob("b", above=3)]))
    table.append(pa.table({"b": [b"value"]}))
    rows = table.to_arrow()
    bare = rows.cast(pa.schema([field.remove_metadata() for field in rows.schema]))
    with pytest.raises(txlog.InvalidInputError, match="names the pack"):
        txlog.write(tmp_path / "other", bare)
    assert not (tmp_path / "other" / "_delta_log").exists()
    table.overwrite(bare, schema_mode="overwrite")
    table.alter.add_columns(pa.schema([pa.field("plain", ARROW_BLOB)]))
    table.update({"plain": "b"})
    table.update({"b": txlog.lit(None)})
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    (blob,) = table.blobs(table.to_arrow()["plain"])
    assert blob is not None
    assert blob.read() == b"value"
    table.append(pa.table({"plain": [{"path": "a b.mp4", "size": 9}, {"data": b"bytes"}]}))


@pytest.mark.spec("BLB-3")
@pytest.mark.parametrize(
    ("path", "offset", "size"),
    [
        ("", 16, 1),
        ("_blobs/", 16, 1),
        ("_blobs/.blobs", 16, 1),
        ("_blobs/a.mp4", 16, 1),
        ("_blobs/a.blobs", 15, 1),
        ("_blobs/a.blobs", 16, 2**63 - 16),
        ("_blobs/a.blobs", 16, -1),
    ],
)
def test_a_struct_names_a_range_of_a_pack(path: str, offset: int, size: int) -> None:
    struct = {"path": path, "offset": offset, "size": size}
    with pytest.raises(txlog.SchemaMismatchError, match="none of a pack"):
        as_blobs(pa.array([struct], ARROW_BLOB), "b")
    right = {"path": "x/a.blobs", "offset": 16, "size": 2**63 - 17}
    assert as_blobs(pa.array([right], ARROW_BLOB), "b").to_pylist() == [{**right, "data": None}]


@pytest.mark.spec("BLB-1")
def test_rows_that_are_read_say_which_columns_are_blobs(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", pa.schema([("id", pa.int64()), txlog.blob("b")]))
    table.append(pa.table({"id": [1], "b": [bytes(100_000)]}))
    scan = table.scan(columns=["b"])
    for rows in (table.to_arrow(), table.take([0]), scan.to_arrow(), scan.to_reader()):
        assert rows.schema.field("b").metadata == {b"txlog.blob": b"65536"}
    rows = table.to_arrow().append_column("label", pa.array(["x"]))
    table.overwrite(rows, schema_mode="overwrite")
    assert table.schema.field("b").metadata == {b"txlog.blob": b"65536"}
    (blob,) = table.blobs(table.to_arrow()["b"])
    assert blob is not None
    assert blob.read() == bytes(100_000)
