"""Folders of Parquet files become tables, compared with another engine's conversion."""

import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import (
    AlreadyExistsError,
    DataFileError,
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
)


def put(folder: Path, name: str, **columns: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def rows(table: Any) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())


def test_a_plain_folder(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", x=[1, 2], t=["a", None])
    put(tmp_path, "deep/er/b c%.parquet", x=[3], new=[1.5])
    put(tmp_path, "_hidden/c.parquet", x=["other"])
    put(tmp_path, ".d.parquet", x=["other"])
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "note.txt").write_text("x")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    table = txlog.convert_to_delta(tmp_path, name="n", properties={"owner": "me"})
    assert rows(table.to_arrow()) == rows(
        pa.table({"x": [1, 2, 3], "t": ["a", None, None], "new": [None, None, 1.5]})
    )
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == before
    assert (table.metadata.name, table.properties["owner"]) == ("n", "me")
    assert table.scan(where="x > 2").explain().files_to_read == 1
    assert [entry["operation"] for entry in table.history()] == ["CONVERT"]
    with pytest.raises(AlreadyExistsError):
        txlog.convert_to_delta(tmp_path)
    assert txlog.convert_to_delta(tmp_path, mode="ignore").version == table.version


def test_folders_that_are_values_alone(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    put(folder, "2024/a b%20c/1.parquet", x=[1, 2])
    put(folder, f"2025/{'__HIVE_DEFAULT_PARTITION__'}/2.parquet", x=[3])
    shutil.copytree(folder, tmp_path / "theirs")
    columns = {"year": pa.int32(), "p": pa.string()}
    table = txlog.convert_to_delta(folder, columns, partition_strategy="directory")
    assert table.partition_columns == ["year", "p"]
    expected = [(1, 2024, "a b c"), (2, 2024, "a b c"), (3, 2025, None)]
    assert sorted(tuple(row.values()) for row in table.to_arrow().to_pylist()) == expected
    schema = deltalake.Schema.from_arrow(pa.schema(columns))
    deltalake.convert_to_deltalake(
        tmp_path / "theirs", partition_by=schema, partition_strategy="directory"
    )
    theirs = deltalake.DeltaTable(tmp_path / "theirs")
    assert theirs.metadata().partition_columns == table.partition_columns
    put(tmp_path / "deep", "2024/1.parquet", x=[1])
    with pytest.raises(InvalidInputError, match="in 1 folders, but there are 2 partition columns"):
        txlog.convert_to_delta(tmp_path / "deep", columns, partition_strategy="directory")
    for wrong in ({"partition_strategy": "directory"}, {"partition_strategy": "other"}):
        with pytest.raises(InvalidInputError, match="is not hive"):
            txlog.convert_to_delta(tmp_path / "deep", **wrong)  # type: ignore[arg-type]


KINDS = pa.schema([("day", pa.date32()), ("p", pa.string()), ("k", pa.int64())])


def hive(folder: Path, texts: list[str | None]) -> pa.Table:
    """Write a hive-partitioned folder with pyarrow, and return its rows."""
    data = pa.table(
        {
            "x": range(8),
            "day": [date(2024, 1, 1 + n % 2) for n in range(8)],
            "p": [texts[n % 4] for n in range(8)],
            "k": [n % 3 for n in range(8)],
        }
    )
    partitioning = ds.partitioning(KINDS, flavor="hive")
    ds.write_dataset(data, folder, format="parquet", partitioning=partitioning)
    return data


@pytest.mark.parametrize("given", [None, KINDS])
def test_hive_partitions_with_odd_values(tmp_path: Path, given: pa.Schema | None) -> None:
    data = hive(tmp_path, ["a b", "ü/%", None, "="])
    table = txlog.convert_to_delta(tmp_path, given)
    assert table.partition_columns == ["day", "p", "k"]
    assert rows(table.to_arrow()) == rows(data)
    assert table.to_arrow(where="p = 'ü/%' AND k = 1").num_rows == 1


def test_deltalake_converts_the_same(tmp_path: Path) -> None:
    hive(tmp_path / "ours", ["a", "b", "c", "d"])
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")
    table = txlog.convert_to_delta(
        tmp_path / "ours", KINDS, properties={"delta.enableDeletionVectors": "false"}
    )
    deltalake.convert_to_deltalake(
        str(tmp_path / "theirs"),
        partition_by=deltalake.Schema.from_arrow(KINDS),
        partition_strategy="hive",
    )
    theirs = deltalake.DeltaTable(tmp_path / "theirs").to_pyarrow_table()
    assert rows(theirs) == rows(table.to_arrow())
    assert rows(deltalake.DeltaTable(table.uri).to_pyarrow_table()) == rows(theirs)


def test_what_does_not_fit_is_refused_and_nothing_lost(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", x=[1])
    put(tmp_path, "b.parquet", x=["text"])
    with pytest.raises(SchemaMismatchError, match=r"string in b\.parquet, and long in a\.parquet"):
        txlog.convert_to_delta(tmp_path)
    (tmp_path / "b.parquet").write_bytes(b"no Parquet")
    with pytest.raises(DataFileError, match=r"b\.parquet"):
        txlog.convert_to_delta(tmp_path)
    (tmp_path / "b.parquet").unlink()
    put(tmp_path, "p=1/c.parquet", x=[2])
    with pytest.raises(InvalidInputError, match="partition columns"):
        txlog.convert_to_delta(tmp_path)
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(InvalidInputError, match="the folders have the columns"):
        txlog.convert_to_delta(tmp_path, {"q": pa.int64()})
    put(tmp_path, "p=z/d.parquet", x=[2])
    with pytest.raises(InvalidInputError, match="is not of type long"):
        txlog.convert_to_delta(tmp_path, {"p": pa.int64()})
    with pytest.raises(InvalidInputError, match="error or ignore"):
        txlog.convert_to_delta(tmp_path, mode="overwrite")  # type: ignore[arg-type]
    put(tmp_path, "p=z/e.parquet", x=[2], p=["z"])
    with pytest.raises(SchemaMismatchError, match="partition column"):
        txlog.convert_to_delta(tmp_path)
    with pytest.raises(NotFoundError, match="no Parquet file"):
        txlog.convert_to_delta(tmp_path / "nothing")
    assert not (tmp_path / "_delta_log").exists()
    assert len(list(tmp_path.rglob("*.parquet"))) == 3


def test_a_table_that_another_writer_makes_meanwhile_keeps_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a.parquet", x=[1])
    monkeypatch.setattr("txlog.verbs.convert.existing", lambda _: None)
    deltalake.convert_to_deltalake(str(tmp_path))
    with pytest.raises(AlreadyExistsError):
        txlog.convert_to_delta(tmp_path)
    assert (tmp_path / "a.parquet").exists()
    assert txlog.Table(tmp_path).count() == 1


def _types(depth: int) -> st.SearchStrategy[pa.DataType]:
    if depth == 0:
        return st.just(pa.int64())
    inner = _types(depth - 1)
    return st.one_of(
        st.just(pa.int64()),
        inner.map(lambda kind: pa.list_(pa.field("element", kind))),
        st.tuples(inner, inner).map(
            lambda two: pa.struct([pa.field("x", two[0]), pa.field("y", two[1])])
        ),
        inner.map(lambda kind: pa.map_(pa.string(), pa.field("value", kind))),
    )


def _forbidding(kind: pa.DataType, answers: Iterator[bool]) -> pa.DataType:
    """Return a type that forbids nulls where the answers say so."""

    def changed(field: pa.Field) -> pa.Field:
        inner = _forbidding(field.type, answers)
        return pa.field(field.name, inner, not next(answers))

    if pa.types.is_list(kind):
        return pa.list_(changed(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([changed(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, changed(kind.item_field))
    return kind


def _value(kind: pa.DataType, field: pa.Field | None, nulls: bool) -> Any:
    """Return a value of a type, with nulls where the type permits them."""
    if nulls and field is not None and field.nullable:
        return None
    if pa.types.is_list(kind):
        return [_value(kind.value_type, kind.value_field, nulls)]
    if pa.types.is_struct(kind):
        return {field.name: _value(field.type, field, nulls) for field in kind}
    if pa.types.is_map(kind):
        return [("k", _value(kind.item_type, kind.item_field, nulls))]
    return 1


@settings(max_examples=examples(60))
@given(
    _types(3), st.lists(st.lists(st.booleans(), min_size=20, max_size=20), min_size=2, max_size=3)
)
def test_what_may_be_null_in_one_file_may_be_null_in_the_table(
    tmp_path_factory: pytest.TempPathFactory, kind: pa.DataType, forbids: list[list[bool]]
) -> None:
    root = tmp_path_factory.mktemp("t")
    values = []
    for number, answers in enumerate(forbids):
        own = _forbidding(kind, iter(answers))
        values += [_value(own, None, nulls) for nulls in (False, True)]
        rows = pa.array(values[-2:], own)
        pq.write_table(pa.table({"c": rows}), root / f"{number}.parquet")
    table = txlog.convert_to_delta(root)
    found = table.to_arrow()["c"].to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, values))
    table.append(pa.table({"c": pa.array(values, kind)}))
    assert table.count() == 2 * len(values)


def test_lists_with_and_without_nulls(tmp_path: Path) -> None:
    for name, nullable in (("a", True), ("b", False)):
        kind = pa.list_(pa.field("element", pa.int64(), nullable))
        pq.write_table(pa.table({"l": pa.array([[1]], kind)}), tmp_path / f"{name}.parquet")
    assert txlog.convert_to_delta(tmp_path).to_arrow()["l"].to_pylist() == [[1], [1]]
