"""Iceberg compatibility: tables of other engines, and what violates it."""

import shutil
from pathlib import Path
from typing import Any

import deltalake
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from tests.acceptance.corpus import ROOT, require_corpus
from txlog import UnsupportedFeatureError

ROWS = pa.table({"n": [1, 2, 3], "p": ["x", "y", "x"]})
DEEP = pa.table(
    {
        "l": [[[1]], None],
        "m": pa.array([[("a", [{"x": 1}])], []], pa.map_(
            pa.string(), pa.list_(pa.struct([("x", pa.int64())]))
        )),
    }
)  # fmt: skip


def on(version: int, **more: str) -> dict[str, str]:
    return {f"delta.enableIcebergCompatV{version}": "true", **more}


def leaves(path: Path | str) -> list[tuple[str, str, str]]:
    """Return the lines of a Parquet schema without the sizes of integers and decimals."""
    text = str(pq.ParquetFile(path).schema).splitlines()[2:]
    return [line.strip() for line in text if "schema {" not in line]


def files(table: txlog.Table) -> set[Path]:
    return {Path(table.uri, path) for path in table.files()["path"].to_pylist()}


def read_by_deltalake(folder: Path | str) -> pa.Table:
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(folder))
    return pa.table(query.execute("SELECT * FROM t").read_all())


def test_files_have_the_form_of_delta_sparks(tmp_path: Path) -> None:
    """All ids of a table that delta-spark wrote, those of elements, keys and values too."""
    for home in (
        "delta_golden/table-with-icebegCompatV2Enabled",
        "trino/databricks133/uniform_iceberg_v1",
    ):
        require_corpus(ROOT / "tables" / home)
        shutil.copytree(ROOT / "tables" / home, tmp_path / home)
        table = txlog.Table(tmp_path / home)
        theirs, rows = files(table), table.to_arrow()
        table.append(rows)
        (ours,) = files(table) - theirs
        assert leaves(ours) == leaves(min(theirs))
        assert table.refresh().to_arrow().equals(pa.concat_tables([rows, rows]))


@pytest.mark.spec("CON-27")
@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_a_new_table_gets(tmp_path: Path, version: int) -> None:
    table = txlog.write(tmp_path / "t", ROWS, partition_by="p", properties=on(version))
    assert table.properties["delta.columnMapping.mode"] == "name"
    features = set(table.protocol.writer_features or ())
    assert {f"icebergCompatV{version}", "columnMapping"} <= features
    assert ("rowTracking" in features) == (version == 3)
    table.append(ROWS)
    table.delete("n = 1 AND p = 'x'")
    table.update({"n": "n + 10"}, "n = 2")
    table.optimize.compact()
    assert sorted(table.to_arrow()["n"].to_pylist()) == [3, 3, 12, 12]
    assert table.scan().deletion_vectors().read_all().num_rows == 0
    for file in files(table):
        stored = pq.ParquetFile(file).schema_arrow
        ids = [int(field.metadata[b"PARQUET:field_id"]) for field in stored]
        moved = [2147483540, 2147483539] if version == 3 else []
        assert ids == [1, 2, *moved]  # The partition column is the last of the table's.
    assert read_by_deltalake(table.uri).num_rows == 4


@pytest.mark.parametrize("version", [2, 3])
def test_what_is_nested_has_ids(tmp_path: Path, version: int) -> None:
    table = txlog.write(tmp_path / "t", DEEP, properties=on(version))
    schema = orjson.loads(table.metadata.schema_string or "")
    given = [
        {name.partition(".")[2]: number for name, number in nested.items()}
        for nested in (f["metadata"]["delta.columnMapping.nested.ids"] for f in schema["fields"])
    ]
    assert given == [
        {"element": 2, "element.element": 3},
        {"key": 5, "value": 6, "value.element": 7},
    ]
    before, more = files(table), pa.table({"new": [[1]]})
    table.append(more, schema_mode="merge")
    added = table.snapshot.schema.fields[-1]
    assert added.metadata["delta.columnMapping.nested.ids"] == {
        f"{added.physical_name}.element": 10
    }
    assert table.properties["delta.columnMapping.maxColumnId"] == "10"
    table.alter.rename_column("l", "list")
    assert table.refresh().to_arrow()["list"].to_pylist() == [[[1]], None, None]
    (file,) = files(table) - before
    assert {line for line in leaves(file) if "=-1" in line} == {
        "repeated group field_id=-1 list {",
        "repeated group field_id=-1 key_value {",
    }


@pytest.mark.parametrize(
    ("properties", "rows", "reason"),
    [
        (on(1) | on(2), ROWS, "exclude each other"),
        (on(1, **{"delta.columnMapping.mode": "none"}), ROWS, "needs column mapping"),
        (on(2, **{"delta.enableDeletionVectors": "true"}), ROWS, "excludes deletion vectors"),
        (on(3, **{"delta.enableRowTracking": "false"}), ROWS, "needs row tracking"),
        (on(1), DEEP, "excludes the type array"),
        (on(2), pa.table({"v": pa.array([], pa.struct([("x", pa.int64())]))}), None),
        (on(3, **{"delta.feature.txlog.fragments": "supported"}), ROWS, "txlog.fragments"),
    ],
)
def test_what_cannot_be_made(
    tmp_path: Path, properties: dict[str, str], rows: pa.Table, reason: str | None
) -> None:
    if reason is None:
        assert txlog.write(tmp_path / "t", rows, properties=properties)
        return
    with pytest.raises(txlog.TxlogError, match=reason):
        txlog.write(tmp_path / "t", rows, properties=properties)
    assert not txlog.Table.exists(tmp_path / "t")


@pytest.mark.spec("CON-27")
def test_what_would_break_it_is_refused(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", ROWS, partition_by="p", properties=on(1))
    attempts: list[tuple[str, Any]] = [
        ("excludes the type array", lambda: table.append(
            pa.table({"l": [[1]]}), schema_mode="merge")),
        ("keeps the partition columns p", lambda: txlog.write(
            tmp_path / "t", ROWS, "overwrite", schema_mode="overwrite", partition_by=())),
        ("keeps the partition columns p", lambda: table.alter.rename_column("p", "q")),
        ("excludes deletion vectors", lambda: table.alter.set_properties(
            {"delta.enableDeletionVectors": "true"})),
        ("cannot be turned on", lambda: table.alter.set_properties(
            on(2) | {"delta.enableIcebergCompatV1": "false"})),
    ]  # fmt: skip
    for reason, attempt in attempts:
        before = set((tmp_path / "t").rglob("*.parquet"))
        with pytest.raises(txlog.TxlogError, match=reason):
            attempt()
        assert set((tmp_path / "t").rglob("*.parquet")) == before
    assert table.refresh().version == 0
    wide = txlog.write(
        tmp_path / "w", ROWS, properties=on(2, **{"delta.enableTypeWidening": "true"})
    )
    with pytest.raises(UnsupportedFeatureError, match="Iceberg does not allow"):
        wide.alter.widen_type("n", pa.decimal128(20, 0))


def test_tables_that_are_replaced_cloned_and_restored(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", ROWS, properties={"delta.columnMapping.mode": "name"})
    with pytest.raises(txlog.InvalidInputError, match="ids of columns"):
        table.clone(tmp_path / "c", properties=on(2))
    table = txlog.Table.create(table.uri, DEEP.schema, mode="overwrite", properties=on(2))
    nested = table.snapshot.schema.fields[0].metadata["delta.columnMapping.nested.ids"]
    assert list(nested.values()) == [4, 5]  # 1 and 2 were given before.
    table.append(DEEP)
    again = txlog.Table.create(
        table.uri, ROWS.schema, mode="overwrite", properties={"delta.enableDeletionVectors": "true"}
    )
    again.append(ROWS)
    again.delete("n = 1")
    again.restore(2)
    assert again.to_arrow().equals(DEEP)
    assert again.clone(tmp_path / "d").to_arrow().equals(DEEP)


@pytest.mark.spec("CON-27")
def test_turning_it_on(tmp_path: Path) -> None:
    plain = txlog.write(tmp_path / "a", ROWS)
    with pytest.raises(UnsupportedFeatureError, match="no column ids"):
        plain.alter.set_properties(on(1))
    plain.alter.set_properties({"delta.columnMapping.mode": "name"})
    plain.alter.set_properties(on(1))
    plain.delete("n = 1")
    assert (plain.scan().deletion_vectors().read_all().num_rows, plain.count()) == (0, 2)
    parted = txlog.write(
        tmp_path / "b", ROWS, partition_by="p", properties={"delta.columnMapping.mode": "name"}
    )
    with pytest.raises(UnsupportedFeatureError, match="lack the partition columns"):
        parted.alter.set_properties(on(1))
    marked = txlog.write(tmp_path / "d", ROWS, properties={"delta.columnMapping.mode": "id"})
    marked.delete("n = 1")
    with pytest.raises(UnsupportedFeatureError, match="have deletion vectors"):
        marked.alter.set_properties(on(1))
    empty = txlog.Table.create(
        tmp_path / "c", DEEP.schema, properties={"delta.columnMapping.mode": "name"}
    )
    empty.alter.set_properties(on(2))
    assert empty.properties["delta.columnMapping.maxColumnId"] == "8"
    empty.append(DEEP)
    assert empty.to_arrow().equals(DEEP)
    assert empty.alter.set_properties({"delta.enableIcebergCompatV2": "false"})
    with pytest.raises(UnsupportedFeatureError, match="cannot be turned on"):
        empty.alter.set_properties(on(2))
    assert empty.alter.drop_feature("icebergCompatV2")


def test_files_that_are_there_already(tmp_path: Path) -> None:
    """Their columns have their own names, and no ids."""
    pq.write_table(pa.table({"a b": [1], "l": [[1]]}), tmp_path / "a.parquet")
    for properties in (on(2), {"delta.columnMapping.mode": "id"}):
        with pytest.raises(txlog.InvalidInputError, match="which these files do not have"):
            txlog.convert_to_delta(tmp_path, properties=properties)
    with pytest.warns(txlog.TxlogWarning, match="because the column name 'a b'"):
        table = txlog.convert_to_delta(tmp_path)
    assert table.properties["delta.columnMapping.mode"] == "name"
    assert table.to_arrow().to_pylist() == [{"a b": 1, "l": [1]}]
    table.append(pa.table({"a b": [2], "l": [[2]]}))
    assert table.to_arrow()["a b"].to_pylist() == [1, 2]
    assert sorted(read_by_deltalake(tmp_path)["a b"].to_pylist()) == [1, 2]
