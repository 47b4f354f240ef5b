"""Names that mean one field are refused at every door, at every depth; others are found."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import InvalidInputError

INNER = [("x", pa.int64()), ("y", pa.string())]


def within(kind: pa.DataType, path: list[str]) -> pa.DataType:
    """Return a type that contains another one below lists, values and keys of maps, and structs."""
    for step in reversed(path):
        match step:
            case "list":
                kind = pa.list_(kind)
            case "value":
                kind = pa.map_(pa.string(), kind)
            case "key":
                kind = pa.map_(kind, pa.int64())
            case "struct":
                kind = pa.struct([("f", kind), ("g", pa.int64())])
    return kind


def doors(
    sound: pa.Table, twice: pa.Table, home: Path
) -> list[tuple[str, Callable[[], Any], txlog.Table | None]]:
    """Return calls that get data, or a schema, with two fields of one name."""
    files = home / "files"
    files.mkdir()
    pq.write_table(twice, files / "a.parquet")
    table = txlog.write(home / "t", sound)
    return [
        ("create", lambda: txlog.Table.create(home / "c", twice.schema), None),
        ("write", lambda: txlog.write(home / "w", twice), None),
        ("convert", lambda: txlog.convert_to_delta(files), None),
        ("append", lambda: table.append(twice), table),
        ("merge the schema", lambda: table.append(twice, schema_mode="merge"), table),
        ("overwrite", lambda: table.overwrite(twice), table),
        ("replace", lambda: table.overwrite(twice, schema_mode="overwrite"), table),
        ("upsert", lambda: table.upsert(twice, on="id"), table),
        ("mode", lambda: txlog.write(table.uri, twice, mode="overwrite"), table),
    ]


@given(
    path=st.lists(st.sampled_from(["list", "value", "key", "struct"]), max_size=3),
    again=st.sampled_from(["X", "Y", "x"]),
    is_empty=st.booleans(),
)
@settings(max_examples=examples(40), deadline=None)
def test_no_door_takes_two_fields_of_one_name(path: list[str], again: str, is_empty: bool) -> None:
    sound = pa.schema([("id", pa.int64()), ("c", within(pa.struct(INNER), path))])
    both = pa.struct([*INNER, (again, pa.int64())])
    twice = pa.schema([("id", pa.int64()), ("c", within(both, path))])
    count = 0 if is_empty else 1
    held = pa.Table.from_arrays([pa.nulls(1, field.type) for field in sound], schema=sound)
    given = pa.Table.from_arrays([pa.nulls(count, field.type) for field in twice], schema=twice)
    with tempfile.TemporaryDirectory() as folder:
        for name, call, table in doors(held, given, Path(folder)):
            before = None if table is None else txlog.Table(table.uri).version
            with pytest.raises(InvalidInputError) as caught:
                call()
            shown = str(caught.value)
            assert f".{again}" in shown, name
            assert again == "x" or f".{again.lower()}" in shown, name
            if table is not None:
                assert txlog.Table(table.uri).version == before
                assert table.to_arrow() == held
        assert not Path(folder, "c").exists()
        assert not Path(folder, "w").exists()
        assert [one.name for one in Path(folder, "files").iterdir()] == ["a.parquet"]


@given(st.lists(st.sampled_from(["k", "Part", "Grün", "v"]), min_size=1, max_size=3, unique=True))
@settings(max_examples=examples(30), deadline=None)
def test_columns_are_named_in_any_case(names: list[str]) -> None:
    rows = pa.table({"k": [1], "Part": ["a"], "Grün": [2], "v": [3], "rest": [0]})
    other = [name.swapcase() for name in names]
    with tempfile.TemporaryDirectory() as folder:
        made = txlog.Table.create(f"{folder}/c", rows.schema, other)
        written = txlog.write(f"{folder}/w", rows, partition_by=other)
        replaced = txlog.write(f"{folder}/r", rows)
        replaced.overwrite(rows, schema_mode="overwrite", partition_by=other)
        again = txlog.write(f"{folder}/w", rows, mode="append", partition_by=other)
        for table in (made, written, replaced, again):
            assert table.partition_columns == names
        for call in (txlog.Table.create, txlog.write):
            with pytest.raises(InvalidInputError, match="named twice"):
                call(
                    f"{folder}/n",
                    rows if call is txlog.write else rows.schema,
                    partition_by=[*names, other[0]],
                )
        numbered = txlog.Table.create(f"{folder}/i", rows.schema, identity="K")
        assert numbered.snapshot.schema.fields[0].is_identity
        pq.write_to_dataset(rows, f"{folder}/f", partition_cols=names)
        kinds = pa.schema([(name.swapcase(), rows.schema.field(name).type) for name in names])
        converted = txlog.convert_to_delta(f"{folder}/f", kinds)
        assert converted.partition_columns == other
        assert converted.to_arrow().select([*other, "rest"]).to_pylist() == (
            rows.select([*names, "rest"]).rename_columns([*other, "rest"]).to_pylist()
        )
        computed = txlog.Table.create(f"{folder}/g", rows.schema, generated={"V": "k + 1"})
        computed.append(rows.drop_columns(["v"]))
        assert computed.to_arrow()["v"].to_pylist() == [2]


def test_a_column_of_files_and_of_their_folders(tmp_path: Path) -> None:
    (tmp_path / "A=1").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "A=1" / "a.parquet")
    with pytest.raises(InvalidInputError, match=r"column a is long.*the partition column A"):
        txlog.convert_to_delta(tmp_path)
    assert not (tmp_path / "_delta_log").exists()


@pytest.mark.parametrize("door", ["append", "overwrite", "upsert", "merge", "add_columns"])
def test_a_new_name_that_needs_column_mapping(door: str, tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": [1]}))
    data = pa.table({"id": [2], "a b": [1]})
    merger = table.merge(data, "target.id = source.id", schema_mode="merge")
    calls: dict[str, tuple[Callable[[], Any], str]] = {
        "append": (lambda: table.append(data, schema_mode="merge"), "data"),
        "overwrite": (lambda: table.overwrite(data, schema_mode="overwrite"), "data"),
        "upsert": (lambda: table.upsert(data, on="id", schema_mode="merge"), "source"),
        "merge": (merger.when_not_matched_insert_all().execute, "source"),
        "add_columns": (lambda: table.alter.add_columns(data.schema.remove(0)), "columns"),
    }
    call, argument = calls[door]
    with pytest.raises(InvalidInputError, match="column mapping") as caught:
        call()
    assert (caught.value.argument, caught.value.field) == (argument, "a b")


def test_a_frame_of_pandas_with_a_name_twice_is_refused(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([[1, 2]], columns=["a", "a"])
    table = txlog.write(tmp_path / "t", pa.table({"a": [0]}))
    for call in (lambda: txlog.write(tmp_path / "n", frame), lambda: table.append(frame)):
        with pytest.raises(InvalidInputError, match=r"(?s)Duplicate.*\['a', 'a'\]"):
            call()
