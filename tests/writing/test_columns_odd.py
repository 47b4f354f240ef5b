"""Column files in odd places: what an adversary would try on them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import txlog
from txlog import Operation

FEATURE = {"delta.feature.txlog.fragments": "supported"}
DROPPED = "txlog.droppedColumns"


def made(root: Path, data: pa.Table, each: int = 4, **arguments: Any) -> txlog.Table:
    properties = {**FEATURE, **arguments.pop("properties", {})}
    schema = arguments.pop("schema", data.schema)
    table = txlog.Table.create(root, schema, properties=properties, **arguments)
    if data.num_rows:
        table.append(data, max_rows_per_file=each)
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
    table.drop_columns("t")
    table.add_columns(pa.field("T", kind))
    assert column(table, "T") == [None] * 12
    assert DROPPED not in table.properties


@pytest.mark.spec("FRG-23")
def test_a_dropped_name_has_values_again_in_another_case(table: txlog.Table) -> None:
    table.add_columns({"Yy": "X * 2"})
    table.replace_columns({"yY": "YY + 1"})
    table.drop_columns("YY")
    assert table.properties[DROPPED] == '["Yy"]'
    table.add_columns({"yy": "x"})
    assert DROPPED not in table.properties
    assert table.schema.names == ["x", "t", "yy"]
    assert column(table, "yy") == list(range(12))
    assert table.count("YY = 3") == 1
    table.compact()
    assert column(table, "yy") == list(range(12))


@pytest.mark.spec("FRG-20", "FRG-22")
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_columns_that_must_not_be_null_beside_deleted_rows(tmp_path: Path, vectors: str) -> None:
    """A deleted row has a null in the new file even then, and nobody ever sees it."""
    schema = pa.schema([("x", pa.int64()), pa.field("k", pa.int64(), nullable=False)])
    data = pa.table({"x": range(6), "k": range(6)}, schema=schema)
    table = made(tmp_path, data, properties={"delta.enableDeletionVectors": vectors})
    table.delete("x IN (1, 4, 5)")
    table.replace_columns({"k": "k * 10"})
    with pytest.raises(txlog.SchemaMismatchError, match="k must not be null"):
        table.replace_columns({"k": pa.array([1, None, 2])})
    assert table.schema == schema
    for _ in range(2):
        assert table.to_arrow() == pa.table({"x": [0, 2, 3], "k": [0, 20, 30]}, schema=schema)
        assert table.count("k >= 0") == 3
        assert table.count("k IS NULL") == 0
        table.compact(max_deleted_fraction=0.0)


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
    table.refresh().add_features("txlog.fragments")
    table.add_columns({"y": lambda batch: pc.add(batch["x"], 1)})
    found = [f.merge_columns({"z": lambda batch: batch["x"]}) for f in table.fragments()]
    assert found[0][1] == found[1][1]
    table.commit(Operation.Merge([held for held, _ in found], found[0][1]))
    assert sorted(len(fragment.files) for fragment in table.fragments()) == [1, 3]
    expected = [{"x": x, "y": x + 1, "z": x} for x in (1, 2, 3)]
    assert table.to_arrow().to_pylist() == expected
    table.compact()
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
            table.commit(Operation.Merge(wire, schema))
    assert txlog.Table(table.uri).version == 1
    table.commit(Operation.Merge(wire[1:], halves[1][1]))
    assert column(table, "y") == [None] * 4 + [x / 2 for x in range(4, 12)]


@pytest.mark.spec("FRG-23", "FRG-26")
def test_a_dropped_name_comes_back_by_fragments_only_if_all_give_it(table: txlog.Table) -> None:
    table.drop_columns("t")
    found = [fragment.merge_columns({"T": "x + 1"}) for fragment in table.fragments()]
    held, schema = [metadata for metadata, _ in found], found[0][1]
    with pytest.raises(txlog.SchemaMismatchError, match="was dropped"):
        table.commit(Operation.Merge(held[:2], schema))
    with pytest.raises(txlog.SchemaMismatchError, match="was dropped"):
        table.commit(Operation.Merge([], schema))
    table.commit(Operation.Merge(held, schema))
    assert column(table, "T") == list(range(1, 13))
    assert DROPPED not in table.properties
