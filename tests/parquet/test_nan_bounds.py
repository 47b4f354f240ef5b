"""Footers state no bounds that leave NaN out, and all other bounds stay."""

import math
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.parquet.nan_bounds import without_bounds
from txlog.parquet.thrift import ThriftError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        ("f", pa.float64()),
        ("i", pa.int64()),
        ("g", pa.float32()),
        ("s", pa.struct([("a", pa.int64()), ("x", pa.float64())])),
        ("l", pa.list_(pa.struct([("y", pa.float64()), ("t", pa.string())]))),
        ("m", pa.map_(pa.string(), pa.list_(pa.float64()))),
        ("t", pa.string()),
    ]
)
floats = st.none() | st.sampled_from([math.nan, -1.5, 0.0, -0.0, 2.5, math.inf])
texts = st.none() | st.sampled_from(["a", "b"])
VALUES = {
    "f": floats,
    "i": st.none() | st.integers(-3, 3),
    "g": floats,
    "s": st.none() | st.fixed_dictionaries({"a": st.none() | st.integers(0, 3), "x": floats}),
    "l": st.none() | st.lists(st.fixed_dictionaries({"y": floats, "t": texts}), max_size=2),
    "m": st.none()
    | st.dictionaries(st.sampled_from("kq"), st.lists(floats, max_size=2), max_size=2).map(
        lambda found: list(found.items())
    ),
    "t": texts,
}


def values_at(value: Any, path: tuple[str, ...]) -> list[Any]:
    """Return the values of a leaf column in a value, by the steps of its path in Parquet."""
    if value is None:
        return []
    if not path:
        return [value]
    match path[0]:
        case "list":
            return [found for one in value for found in values_at(one, path[2:])]
        case "key_value":
            at = 0 if path[1] == "key" else 1
            return [found for pair in value for found in values_at(pair[at], path[2:])]
    return values_at(value[path[0]], path[1:])


def has_nan(values: list[Any]) -> bool:
    return any(isinstance(value, float) and math.isnan(value) for value in values)


@settings(max_examples=examples(80))
@given(
    st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=12),
    st.integers(1, 5),
    st.lists(st.integers(1, 11), max_size=2),
    st.sampled_from(["none", "name"]),
)
def test_bounds_are_those_without_nan_or_none(
    tmp_path_factory: pytest.TempPathFactory,
    data: list[dict[str, Any]],
    group_rows: int,
    cuts: list[int],
    mode: str,
) -> None:
    rows = pa.Table.from_pylist(data, SCHEMA)
    edges = sorted({0, *(cut for cut in cuts if cut < len(data)), len(data)})
    batches = [
        rows.slice(begin, end - begin).combine_chunks().to_batches()[0]
        for begin, end in pairwise(edges)
    ]
    folder = tmp_path_factory.mktemp("t")
    table = txlog.write(
        folder,
        pa.RecordBatchReader.from_batches(SCHEMA, batches),
        properties={"delta.columnMapping.mode": mode, "txlog.pageRows": "2"},
        options=txlog.WriteOptions(
            writer_properties=txlog.WriterProperties(max_row_group_size=group_rows)
        ),
    )
    assert repr(table.to_arrow().to_pylist()) == repr(rows.to_pylist())
    (path,) = folder.glob("*.parquet")
    file = pq.ParquetFile(path)
    assert file.metadata.num_rows == len(data)
    for group in range(file.metadata.num_row_groups):
        held = file.read_row_group(group).to_pylist()
        plain = folder / "plain"
        pq.write_table(file.read_row_group(group), plain, write_page_index=True)
        expected = pq.read_metadata(plain).row_group(0)
        for leaf in range(file.metadata.num_columns):
            found = file.metadata.row_group(group).column(leaf)
            other = expected.column(leaf)
            values = [one for row in held for one in values_at(row, _steps(found.path_in_schema))]
            assert found.statistics.null_count == other.statistics.null_count
            assert found.has_offset_index
            if has_nan(values):
                assert not found.statistics.has_min_max
                assert not found.has_column_index
            elif "key_value" not in found.path_in_schema:  # Maps of neighbours count as theirs.
                assert found.statistics.has_min_max == bool(values)
                assert found.statistics == other.statistics


def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


ROWS = pa.table({"n": [1, 2, 3, 4], "f": [1.0, math.nan, 3.0, None]})


def test_other_engines_find_nan_in_files(tmp_path: Path) -> None:
    txlog.write(tmp_path / "t", ROWS)
    (path,) = (tmp_path / "t").glob("*.parquet")
    for where in ("f > 5", "f >= 'nan'::double"):
        assert duckdb.sql(f"SELECT n FROM '{path}' WHERE {where}").fetchall() == [(2,)]
    assert pl.scan_parquet(path).filter(pl.col("f") > 5).collect()["n"].to_list() == [2]
    table = txlog.Table(tmp_path / "t")
    table.optimize.compact()
    table.update({"f": "f"}, "n = 1")
    for one in (tmp_path / "t").glob("*.parquet"):
        statistics = pq.read_metadata(one).row_group(0).column(1).statistics
        nan = has_nan(pq.read_table(one)["f"].to_pylist())
        assert statistics.has_min_max != nan


def test_single_pages_are_found_by_the_new_footer(tmp_path: Path) -> None:
    rows = pa.table({"n": range(2000), "f": [math.nan if n % 7 else n / 2 for n in range(2000)]})
    table = txlog.write(tmp_path / "t", rows, properties={"txlog.pageRows": "100"})
    table.indexes.create("n")
    found = table.lookup([14, 700, 1999], on="n")
    assert repr(found.to_pylist()) == repr(rows.take([14, 700, 1999]).to_pylist())
    assert repr(table.take([0, 1998]).to_pylist()) == repr(rows.take([0, 1998]).to_pylist())
    assert table.doctor(sample=None).findings == ()


@pytest.mark.slow
@pytest.mark.spark
def test_spark_finds_nan_in_files(spark: "SparkSession", tmp_path: Path) -> None:
    txlog.write(tmp_path / "t", ROWS)
    found = spark.read.parquet(*map(str, (tmp_path / "t").glob("*.parquet")))
    assert [row.n for row in found.where("f > 5").collect()] == [2]
    assert [row.n for row in found.where("f = double('NaN')").collect()] == [2]


def test_bytes_that_are_no_footer_are_refused() -> None:
    with pytest.raises(ThriftError):
        without_bounds(b"\x29\x1c", [(0, 0, 1)])
