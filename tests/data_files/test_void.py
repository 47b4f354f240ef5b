"""Columns of type void: in the schema, never in data files, always null."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from txlog.schema.types import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType

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
