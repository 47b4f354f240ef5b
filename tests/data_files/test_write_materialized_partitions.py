"""Partition columns in data files: the feature materializePartitionColumns, and its property."""

from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog

FEATURE = {"delta.feature.materializePartitionColumns": "supported"}
PROPERTY = {"delta.writePartitionColumnsToParquet": "true"}
ROWS = pa.table({"p": ["x", "x", "y", None], "n": [1, 2, 3, 4], "q": [7, 8, 7, 7]})


def held(table: txlog.Table) -> list[tuple[str | None, int, int]]:
    rows = table.refresh().to_arrow(columns=["p", "n", "q"]).to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=str)


def require_materialized(table: txlog.Table, *, mapped: bool = False) -> None:
    """Every file has the partition columns last, with the values of the log and no statistics."""
    fields = {field.name: field for field in table.snapshot.schema.fields}
    names = [fields[name].physical_name for name in ("n", "p", "q")]
    rows = table.refresh().files().to_pylist(maps_as_pydicts="strict")
    assert rows
    for row in rows:
        path = next(Path(table.uri).rglob(row["path"].rpartition("/")[2]))
        stored = pq.ParquetFile(path).read()
        assert stored.column_names == names
        assert {str(v) for v in stored[names[2]].to_pylist()} == {row["partition_values"][names[2]]}
        assert set(stored[names[1]].to_pylist()) == {row["partition_values"][names[1]]}
        assert f'"{names[1]}"' not in row["stats"]
        if mapped:
            ids = [int(f.metadata[b"PARQUET:field_id"]) for f in stored.schema]
            assert ids == [fields[name].field_id for name in ("n", "p", "q")]


@pytest.mark.parametrize("properties", [FEATURE, PROPERTY], ids=["feature", "property"])
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_every_verb_writes_them(tmp_path: Path, properties: dict[str, str], vectors: str) -> None:
    properties = {**properties, "delta.enableDeletionVectors": vectors}
    table = txlog.write(tmp_path / "t", ROWS, partition_by=["p", "q"], properties=properties)
    table.append(ROWS)
    table.update({"n": "n * 10"}, "n = 1")
    table.delete("n = 2")
    source = pa.table({"p": ["x", "z"], "n": [10, 5], "q": [7, 9]})
    merge = table.merge(source, "target.n = source.n and target.p = source.p")
    merge.when_matched_update({"q": "source.q + 1"}).when_not_matched_insert_all().execute()
    table.overwrite(pa.table({"p": ["y"], "n": [33], "q": [7]}), where="p = 'y'")
    require_materialized(table)
    expected = [(None, 4, 7), (None, 4, 7), ("x", 10, 8), ("x", 10, 8), ("y", 33, 7), ("z", 5, 9)]
    assert held(table) == sorted(expected, key=str)
    table.optimize.compact()
    require_materialized(table)
    assert held(table) == sorted(expected, key=str)
    assert table.count("p = 'x' and q = 8") == 2
    judged = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(table.uri))
    found = pa.table(judged.execute("SELECT p, n, q FROM t").read_all()).to_pylist()
    assert sorted((tuple(row.values()) for row in found), key=str) == held(table)


def test_by_their_physical_names(tmp_path: Path) -> None:
    properties = {**FEATURE, "delta.columnMapping.mode": "name"}
    table = txlog.write(tmp_path / "t", ROWS, partition_by=["p", "q"], properties=properties)
    table.alter.rename_column("p", "r")
    table.alter.rename_column("r", "p")
    table.append(ROWS)
    require_materialized(table, mapped=True)
    assert len(held(table)) == 8


def test_turned_on_later_and_dropped(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", ROWS, partition_by=["p", "q"])
    before = {row["path"] for row in table.files().to_pylist()}
    table.alter.add_features("materializePartitionColumns")
    table.append(ROWS)
    for row in table.files().to_pylist():
        path = next(Path(table.uri).rglob(row["path"].rpartition("/")[2]))
        has = "p" in pq.read_schema(path).names
        assert has == (row["path"] not in before)
    assert len(held(table)) == 8
    table.alter.drop_feature("materializePartitionColumns")
    assert "materializePartitionColumns" not in (table.protocol.writer_features or ())
    table.append(ROWS)
    assert len(held(table)) == 12
