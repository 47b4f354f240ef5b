"""Dictionaries are in data files only if values repeat."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from txlog.base.errors import UnsupportedFeatureError
from txlog.commit.context import Context
from txlog.data_files.options import dictionary_columns, leaf_columns
from txlog.schema.types import LONG, PrimitiveType, StructField, StructType
from txlog.store.open import open_store
from txlog.verbs.create import create

COUNT = 20_000


def test_values_that_differ_get_no_dictionary(tmp_path: Path) -> None:
    numbers = range(COUNT)
    data = pa.table(
        {
            "unique": pa.array(numbers, pa.int64()),
            "name": [f"name {number}" for number in numbers],
            "few": [number % 100 for number in numbers],
            "word": [f"word {number % 7}" for number in numbers],
            "flag": [number % 2 == 0 for number in numbers],
            "none": pa.nulls(COUNT, pa.string()),
            "point": [{"x": number, "y": number % 3} for number in numbers],
            "list": [[number, number + 1] for number in numbers],
        }
    )
    table = txlog.write(tmp_path / "t", data)
    (file,) = (tmp_path / "t").glob("*.parquet")
    group = pq.read_metadata(file).row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    with_dictionary = {one.path_in_schema for one in columns if one.has_dictionary_page}
    assert with_dictionary >= {"few", "word", "point.y"}
    assert with_dictionary.isdisjoint({"unique", "name", "flag"})
    assert table.to_arrow().equals(data.cast(table.schema))


def test_the_first_rows_decide() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.struct([("c", pa.int64())]))])
    leaves = leaf_columns(schema)
    assert leaves == ("a", "b.c")

    def rows(values: list[int | None]) -> pa.Table:
        return pa.table({"a": values, "b": [{"c": value} for value in values]}, schema)

    assert dictionary_columns(leaves, rows([1, 1, 2, 2])) == ["a", "b.c"]
    assert dictionary_columns(leaves, rows([1, 2, 3, 3])) == ["b.c"]
    assert dictionary_columns(leaves, rows([1, None, None, 2])) == ["a", "b.c"]
    assert dictionary_columns(leaves, rows([])) == ["a", "b.c"]


def test_what_parquet_lacks_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="types that Parquet lacks"):
        leaf_columns(pa.schema([("a", pa.struct([]))]))


def test_columns_whose_values_cannot_be_counted_are_not_judged() -> None:
    rows = pa.table({"void": pa.nulls(3), "a": [1, 2, 3]})
    assert dictionary_columns(["void", "a"], rows) == ["void"]


def test_a_void_column_is_written(tmp_path: Path) -> None:
    schema = StructType((StructField("a", LONG), StructField("void", PrimitiveType("void"))))
    path = tmp_path / "t"
    create(Context(open_store(path)), schema)
    txlog.Table(path).append(pa.table({"a": [1, 2]}))
    assert txlog.Table(path).to_arrow()["void"].to_pylist() == [None, None]
