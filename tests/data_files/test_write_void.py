"""Columns of type void: in the schema, never in data files, always null."""

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
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


KINDS = {
    "string": (pa.string(), "a"),
    "double": (pa.float64(), 1.5),
    "decimal": (pa.decimal128(5, 2), Decimal("1.25")),
    "moment": (pa.timestamp("us"), datetime(2024, 1, 2)),
    "list": (pa.list_(pa.int64()), [1, None]),
    "map": (pa.map_(pa.string(), pa.int64()), [("k", 1)]),
    "struct": (pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]), {"a": 1, "b": ["x"]}),
}


def by_append(table: txlog.Table, rows: pa.Table) -> None:
    table.append(rows, schema_mode="merge")


def by_transaction(table: txlog.Table, rows: pa.Table) -> None:
    with table.transaction() as change:
        change.append(rows, schema_mode="merge")


def by_overwrite(table: txlog.Table, rows: pa.Table) -> None:
    table.overwrite(rows, where="x > 1", schema_mode="merge")


def by_upsert(table: txlog.Table, rows: pa.Table) -> None:
    table.upsert(rows, "x", schema_mode="merge")


def by_merge(table: txlog.Table, rows: pa.Table) -> None:
    merger = table.merge(rows, "target.x = source.x", schema_mode="merge")
    merger = merger.when_matched_update({"n": "source.n", "s.n": "source.s.n"})
    merger.when_not_matched_insert_all().execute()


def by_alter(table: txlog.Table, rows: pa.Table) -> None:
    table.alter.widen_type("n", rows.schema.field("n").type)
    table.alter.widen_type("s.n", rows.schema.field("n").type)
    table.append(rows)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "give", [by_append, by_transaction, by_overwrite, by_upsert, by_merge, by_alter]
)
@pytest.mark.parametrize("mapping", ["none", "name"])
def test_a_void_column_and_a_void_field_get_a_type(
    tmp_path: Path, kind: str, give: Callable[[txlog.Table, pa.Table], None], mapping: str
) -> None:
    arrow, value = KINDS[kind]
    schema = schema_of(x=LONG, n=VOID, s=schema_of(b=LONG, n=VOID))
    table = txlog.Table.create(tmp_path, schema, properties={"delta.columnMapping.mode": mapping})
    table.append(pa.table({"x": [1], "n": pa.nulls(1), "s": [{"b": 1, "n": None}]}))
    inner = pa.struct([("b", pa.int64()), ("n", arrow)])
    typed = pa.schema([("x", pa.int64()), ("n", arrow), ("s", inner)])
    rows = [{"x": 7, "n": value, "s": {"b": 2, "n": value}}, {"x": 8, "n": None, "s": None}]
    give(table, pa.Table.from_pylist(rows, typed))
    old = {"x": 1, "n": None, "s": {"b": 1, "n": None}}
    assert table.schema.types == typed.types
    assert table.to_arrow().sort_by("x").to_pylist() == [old, *rows]
    assert "delta.enableTypeWidening" not in table.properties
    assert not any("typeChanges" in str(path.read_text()) for path in tmp_path.rglob("*.json"))
    table.append(pa.table({"x": [9], "n": pa.nulls(1), "s": pa.nulls(1)}))
    assert table.count("n IS NOT NULL") == 1
    table.optimize.compact()
    assert table.to_arrow().sort_by("x").to_pylist()[:3] == [old, *rows]
    assert list(txlog.Table(tmp_path, version=1).schema.types)[1] == pa.null()


def test_a_void_column_has_no_values_before_it_has_a_type(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, schema_of(x=LONG, n=VOID))
    table.append(pa.table({"x": [1]}))
    text = pa.table({"x": [1], "n": ["a"]})
    with pytest.raises(txlog.SchemaMismatchError, match="to add the new fields or types"):
        table.append(text)
    with pytest.raises(txlog.SchemaMismatchError, match=r"n has no type yet.*alter\.widen_type"):
        table.update({"n": "'a'"})
    with pytest.raises(txlog.SchemaMismatchError, match=r"n has no type yet.*alter\.widen_type"):
        table.upsert(text, "x")
    table.update({"n": "NULL"})
    with pytest.warns(UserWarning, match="uint64"):
        table.append(pa.table({"n": pa.array([1], pa.uint64())}), schema_mode="merge")


def test_two_writers_give_a_void_column_types(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, schema_of(x=LONG, n=VOID))
    other = txlog.Table(tmp_path)
    table.append(pa.table({"n": ["a"]}), schema_mode="merge")
    with pytest.raises(txlog.TxlogError):
        other.append(pa.table({"n": [1.5]}), schema_mode="merge")
    late = txlog.Table(tmp_path, version=0)
    assert late.schema.field("n").type == pa.null()
    assert table.to_arrow().to_pylist() == [{"x": None, "n": "a"}]


def test_a_change_feed_goes_on_when_a_void_column_gets_a_type(tmp_path: Path) -> None:
    properties = {"delta.enableChangeDataFeed": "true"}
    table = txlog.Table.create(tmp_path, schema_of(x=LONG, n=VOID), properties=properties)
    table.append(pa.table({"x": [1]}))
    table.append(pa.table({"x": [2], "n": ["a"]}), schema_mode="merge")
    found = table.changes(1).to_arrow().sort_by("x").select(["x", "n"]).to_pylist()
    assert found == [{"x": 1, "n": None}, {"x": 2, "n": "a"}]
