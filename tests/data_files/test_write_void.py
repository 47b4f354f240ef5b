"""Columns of type void: in the schema, never in data files, always null."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from txlog.schema.types import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType
from txlog.testing import unsealed

LONG, VOID = PrimitiveType("long"), PrimitiveType("void")


def schema_of(**kinds: DataType) -> StructType:
    return StructType(tuple(StructField(name, kind) for name, kind in kinds.items()))


def physical_columns(table: txlog.Table) -> list[list[str]]:
    paths = sorted(Path(table.uri).rglob("*.parquet"))
    return [[column.path for column in pq.read_metadata(path).schema] for path in paths]


@pytest.mark.parametrize("partition_by", [[], ["p"]])
def test_data_files_leave_voids_out(tmp_path: Path, partition_by: list[str]) -> None:
    inner = StructType((StructField("n", VOID), StructField("b", LONG), StructField("m", VOID)))
    schema = schema_of(n=VOID, x=LONG, s=inner, p=LONG)
    table = txlog.Table.create(tmp_path, schema, partition_by=partition_by)
    rows = [
        {"n": None, "x": 1, "s": {"n": None, "b": 2, "m": None}, "p": 1},
        {"n": None, "x": None, "s": None, "p": 1},
    ]
    table.append(pa.Table.from_pylist(rows, schema=table.schema))
    table.append(pa.table({"x": [3], "p": [1]}))
    stored = ["x", "s.b"] if partition_by else ["x", "s.b", "p"]
    assert physical_columns(table) == [stored, stored]
    rows.append({"n": None, "x": 3, "s": None, "p": 1})
    assert sorted(table.to_arrow().to_pylist(), key=repr) == sorted(rows, key=repr)
    table.optimize.compact()
    assert all(columns == stored for columns in physical_columns(table))
    assert sorted(table.to_arrow().to_pylist(), key=repr) == sorted(rows, key=repr)
    assert table.delete("x = 3").metrics
    assert table.count() == 2


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        (schema_of(n=VOID), "n"),
        (schema_of(n=VOID, m=VOID), "n"),
        (schema_of(x=LONG, s=schema_of(a=VOID, b=VOID)), "s"),
        (schema_of(x=LONG, s=schema_of(c=LONG, t=schema_of(a=VOID))), "s.t"),
        (schema_of(x=LONG, a=ArrayType(VOID)), "a"),
        (schema_of(x=LONG, a=ArrayType(schema_of(b=LONG, n=VOID))), "a"),
        (schema_of(x=LONG, m=MapType(LONG, VOID)), "m"),
    ],
)
def test_nothing_but_void_is_refused(tmp_path: Path, schema: StructType, field: str) -> None:
    with pytest.raises(txlog.InvalidInputError, match="void") as caught:
        txlog.Table.create(tmp_path / "t", schema)
    assert caught.value.field == field
    assert not (tmp_path / "t").exists()


def test_a_partitioned_table_of_voids_is_refused(tmp_path: Path) -> None:
    with pytest.raises(txlog.InvalidInputError, match="void"):
        txlog.Table.create(tmp_path / "t", schema_of(n=VOID, p=LONG), partition_by=["p"])


def test_voids_that_are_in_files_are_null_and_are_left_out_of_new_ones(tmp_path: Path) -> None:
    """Older writers put them into data files, as columns or fields of nulls."""
    schema = pa.schema([("x", pa.int64()), ("s", pa.struct([("a", pa.int64())]))])
    written = txlog.Table.create(tmp_path / "t", schema)
    rows = [{"x": 1, "s": {"a": 1, "w": None}, "v": None}, {"x": 2, "s": None, "v": None}]
    inner = pa.struct([("a", pa.int64()), ("w", pa.null())])
    theirs = pa.schema([("x", pa.int64()), ("s", inner), ("v", pa.null())])
    written.append(pa.Table.from_pylist(rows).select(["x"]))
    (file,) = (tmp_path / "t").glob("*.parquet")
    pq.write_table(pa.Table.from_pylist(rows, schema=theirs), file)
    logged = tmp_path / "t" / "_delta_log"
    void = '{"name":"NAME","type":"void","nullable":true,"metadata":{}},'
    for version, at, added in (
        (0, '{"name":"a","type":"long"', void.replace("NAME", "w")),
        (0, '{"name":"s"', void.replace("NAME", "v")),
        (1, '"size":', f'"size":{file.stat().st_size},"was":'),
    ):
        path = logged / f"{version:020d}.json"
        text = unsealed(path.read_bytes()).decode()
        if version == 0:  # The schema is text within text.
            at, added = (part.replace('"', r"\"") for part in (at, added + at))
        assert at in text
        path.write_text(text.replace(at, added, 1))
    table = txlog.Table(tmp_path / "t")
    assert table.schema.field("v").type == table.schema.field("s").type.field("w").type == pa.null()
    assert table.to_arrow().sort_by("x").select(theirs.names).to_pylist() == rows
    assert table.take([1]).to_pylist() == table.lookup([2], on="x").to_pylist()
    assert table.to_pyarrow_dataset().to_table().num_rows == table.count("v IS NULL") == 2
    assert table.count("v IS NOT NULL OR s.w IS NOT NULL") == 0
    table.update({"x": "x + 10"}, "x = 1")
    table.append(pa.table({"x": [4], "v": pa.nulls(1)}))
    table.optimize.compact()
    assert sorted(table.to_arrow()["x"].to_pylist()) == [2, 4, 11]
    for uri in table.scan().file_uris():
        assert [column.path for column in pq.read_metadata(uri).schema] == ["x", "s.a"]
    with pytest.raises(txlog.SchemaMismatchError, match="v is long, but the table has void"):
        table.append(pa.table({"x": [4], "v": [1]}))
