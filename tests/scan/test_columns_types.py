"""Types that need more than a cast: variants, intervals, void; and where a clone's files are."""

import shutil
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from txlog import variant_to_json, variant_to_python
from txlog.variant.builder import encode_variant

FEATURES = ("deletionVectors", "variantType", "variantShredding")


def made(
    root: Path, columns: dict[str, Any], *files: pa.Table, features: tuple[str, ...] = FEATURES
) -> txlog.Table:
    """Return a table as another writer makes it; `columns` are Delta's types."""
    (root / "_delta_log").mkdir(parents=True)
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    metadata = {
        "id": "1",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": orjson.dumps({"type": "struct", "fields": fields}).decode(),
        "partitionColumns": [],
        "configuration": {},
    }
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": features,
    }
    actions: list[dict[str, Any]] = [{"protocol": protocol}, {"metaData": metadata}]
    for number, data in enumerate(files):
        path = root / f"{number}.parquet"
        pq.write_table(data, path)
        actions.append({"add": add(path.name, path.stat().st_size)})
    log = root / "_delta_log" / f"{0:020d}.json"
    log.write_bytes(b"\n".join(map(orjson.dumps, actions)))
    return txlog.Table(root)


def add(path: str, size: int, **fields: Any) -> dict[str, Any]:
    return {
        "path": path, "partitionValues": {}, "size": size, "modificationTime": 0,
        "dataChange": True, **fields,
    }  # fmt: skip


VALUES = [{"a": 1, "b": [True, None]}, None, "text", 12]
KIND = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])


def plain(values: list[Any]) -> pa.Array:
    pairs = [None if value is ... else encode_variant(value) for value in values]
    return pa.array(
        [None if pair is None else {"metadata": pair[0], "value": pair[1]} for pair in pairs], KIND
    )


def test_variants_are_their_binary_struct(tmp_path: Path) -> None:
    file = pa.table({"v": plain([*VALUES, ...]), "n": [1, 2, 3, 4, 5]})
    table = made(tmp_path / "t", {"v": "variant", "n": "long"}, file)
    found = table.to_arrow()
    assert found.schema == table.schema
    assert [field.name for field in found.schema.field("v").type] == ["value", "metadata"]
    assert variant_to_python(found["v"]) == [*VALUES, None]
    assert variant_to_json(found["v"]).to_pylist() == [
        '{"a":1,"b":[true,null]}', "null", '"text"', "12", None,
    ]  # fmt: skip
    assert table.to_arrow(["n"], "v IS NULL")["n"].to_pylist() == [5]
    assert table.count("n > 3") == 2


def test_shredded_variants_are_put_together_wherever_they_are(tmp_path: Path) -> None:
    shredded = pa.struct([*KIND, pa.field("typed_value", pa.int64())])
    metadata, text = encode_variant("text")
    values = pa.array(
        [
            {"metadata": metadata, "value": None, "typed_value": 7},
            {"metadata": metadata, "value": text, "typed_value": None},
        ],
        shredded,
    )
    nested = pa.StructArray.from_arrays([values], ["inner"])
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), values)
    keys = pa.array(["x", "y"])
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), keys, values)
    file = pa.table({"v": values, "s": nested, "l": lists, "m": maps})
    struct = {
        "type": "struct",
        "fields": [{"name": "inner", "type": "variant", "nullable": True, "metadata": {}}],
    }
    array = {"type": "array", "elementType": "variant", "containsNull": True}
    mapped = {
        "type": "map", "keyType": "string", "valueType": "variant", "valueContainsNull": True,
    }  # fmt: skip
    columns = {"v": "variant", "s": struct, "l": array, "m": mapped}
    table = made(tmp_path / "t", columns, file, pa.table({"v": plain(["text"])}))
    found = table.to_arrow()
    assert found.schema == table.schema
    assert variant_to_python(found["v"]) == [7, "text", "text"]
    first = found.slice(0, 2)
    inner = pa.chunked_array([chunk.field("inner") for chunk in first["s"].chunks])
    assert variant_to_python(inner) == [7, "text"]
    items = pa.chunked_array([chunk.flatten() for chunk in first["l"].chunks])
    assert variant_to_python(items) == [7, "text"]
    values = pa.chunked_array([chunk.items for chunk in first["m"].chunks])
    assert variant_to_python(values)[:2] == [7, "text"]


def test_a_broken_variant_names_file_and_column(tmp_path: Path) -> None:
    shredded = pa.struct([*KIND, pa.field("typed_value", pa.int64())])
    both = [{"metadata": b"\x01\x00\x00", "value": b"\x00", "typed_value": 7}]
    table = made(tmp_path / "t", {"v": "variant"}, pa.table({"v": pa.array(both, shredded)}))
    with pytest.raises(txlog.DataFileError, match=r"column v.*0\.parquet"):
        table.to_arrow()
    other = made(tmp_path / "o", {"v": "variant"}, pa.table({"v": ["text"]}))
    with pytest.raises(txlog.DataFileError, match=r"column v.*0\.parquet"):
        other.to_arrow()


def test_intervals(tmp_path: Path) -> None:
    months = pa.array([14, None, -5], pa.int32())
    micros = pa.array([93_784_500_000, -1, None], pa.int64())
    columns = {"ym": "interval year to month", "dt": "interval day to second", "y": "interval year"}
    table = made(tmp_path / "t", columns, pa.table({"ym": months, "dt": micros}))
    found = table.to_arrow()
    assert found.schema == table.schema
    assert [tuple(v) if v else None for v in found["ym"].to_pylist()] == [
        (14, 0, 0), None, (-5, 0, 0),
    ]  # fmt: skip
    assert found["dt"].cast(pa.int64()).to_pylist() == micros.to_pylist()
    assert found["y"].null_count == 3
    assert table.to_arrow(["dt"], "ym IS NULL").num_rows == 1
    with pytest.raises(txlog.InvalidInputError, match="interval"):
        table.to_arrow(where="dt > 5")


def test_void_is_null_everywhere(tmp_path: Path) -> None:
    struct = {
        "type": "struct",
        "fields": [
            {"name": "x", "type": "void", "nullable": True, "metadata": {}},
            {"name": "y", "type": "long", "nullable": True, "metadata": {}},
        ],
    }
    file = pa.table({"s": pa.array([{"y": 1}, None], pa.struct([("y", pa.int64())]))})
    table = made(tmp_path / "t", {"v": "void", "s": struct}, file)
    found = table.to_arrow()
    assert found.schema == table.schema
    assert found.to_pylist() == [{"v": None, "s": {"x": None, "y": 1}}, {"v": None, "s": None}]
    assert table.count("v IS NULL") == 2


def test_a_shallow_clone_reads_the_files_and_vectors_of_its_source(tmp_path: Path) -> None:
    source = txlog.write(tmp_path / "source table", pa.table({"a": list(range(5000))}))
    source.delete("a % 3 = 0")
    (row,) = source.files().to_pylist()
    vector = source.fragments()[0].deletion
    assert vector is not None
    descriptor = vector.descriptor.to_json()
    assert descriptor["storageType"] == "u"
    (binary,) = (tmp_path / "source table").glob("*.bin")
    root = Path(source.uri)
    clone = made(tmp_path / "clone", {"a": "long"}, features=("deletionVectors",))
    held = add(
        (root / row["path"]).as_uri(),
        row["size_bytes"],
        stats=row["stats"],
        deletionVector={**descriptor, "storageType": "p", "pathOrInlineDv": binary.as_uri()},
    )
    log = Path(clone.uri) / "_delta_log" / f"{1:020d}.json"
    log.write_bytes(orjson.dumps({"add": held}))
    clone.refresh()
    assert clone.to_arrow() == source.to_arrow()
    assert clone.count("a < 10") == 6
    # What the clone deletes is its own; the source keeps its rows.
    clone.delete("a < 100")
    assert clone.count() == source.count("a >= 100")
    assert source.refresh().count() == 5000 - 1667
    shutil.rmtree(root)
    with pytest.raises(txlog.TxlogError, match="source"):
        txlog.Table(clone.uri, version=1).to_arrow()


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_inside_of_structs_may_have_exchanged_names(tmp_path: Path, mode: str) -> None:
    def column(name: str, physical: str, number: int, kind: Any = "long") -> dict[str, Any]:
        metadata = {
            "delta.columnMapping.physicalName": physical,
            "delta.columnMapping.id": number,
        }
        return {"name": name, "type": kind, "nullable": True, "metadata": metadata}

    inner = {"type": "struct", "fields": [column("a", "b", 2), column("b", "a", 3)]}
    schema = {"type": "struct", "fields": [column("s", "s", 1, inner)]}
    root = tmp_path / "t"
    (root / "_delta_log").mkdir(parents=True)
    fields = [
        pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "3"}),
        pa.field("b", pa.int64(), metadata={"PARQUET:field_id": "2"}),
    ]
    kind = pa.struct(fields)
    rows = pa.array([{"a": 2, "b": 1}], kind)
    outer = pa.field("s", kind, metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.Table.from_arrays([rows], schema=pa.schema([outer])), root / "x.parquet")
    metadata = {
        "id": "1",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": orjson.dumps(schema).decode(),
        "partitionColumns": [],
        "configuration": {"delta.columnMapping.mode": mode},
    }
    actions = [
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {"metaData": metadata},
        {"add": add("x.parquet", (root / "x.parquet").stat().st_size)},
    ]
    log = root / "_delta_log" / f"{0:020d}.json"
    log.write_bytes(b"\n".join(map(orjson.dumps, actions)))
    table = txlog.Table(root)
    assert table.to_arrow().to_pylist() == [{"s": {"a": 1, "b": 2}}]
    assert table.count("s.a = 1") == 1
    assert table.count("s.a = 2") == 0
