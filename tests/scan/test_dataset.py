"""`Table.to_pyarrow_dataset`: pyarrow, duckdb and polars see the rows of a scan, and skip files."""

import copy
import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.scan.dataset import TableDataset

DAY = datetime(2020, 1, 1, tzinfo=UTC)


def rows(start: int, count: int = 20) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "p": pa.array([f"p {start // 20}" if start else None] * count, pa.string()),
            "t": [None if n % 7 == 0 else f"t{n:03}" for n in numbers],
            "at": pa.array([DAY + timedelta(hours=n) for n in numbers], pa.timestamp("us", "UTC")),
            "f": [n / 3 for n in numbers],
            "nan": [float("nan") if n % 11 == 0 else n / 3 for n in numbers],
            "d": pa.array([Decimal(n) / 4 for n in numbers], pa.decimal128(10, 2)),
            "st": [{"a": n, "b": [n]} for n in numbers],
            "none": pa.nulls(count, pa.int32()),
        }
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, txlog.Table]:
    """Return a table without deleted rows, and the same with some in two of its five files."""
    found = {}
    for name in ("whole", "deleted"):
        table = txlog.write(tmp_path_factory.mktemp(name), rows(0), partition_by=["p"])
        for start in range(20, 100, 20):
            table.append(rows(start))
        if name == "deleted":
            table.delete("n % 10 = 3 AND n < 40")
        found[name] = table
    return found


def test_files_that_pyarrow_reads_are_left_to_it(tables: dict[str, txlog.Table]) -> None:
    whole = tables["whole"].to_pyarrow_dataset()
    assert isinstance(whole, ds.FileSystemDataset)
    assert [type(part) for part in whole.get_fragments()] == [ds.ParquetFileFragment] * 5
    assert len(whole.files) == 5
    deleted = tables["deleted"].to_pyarrow_dataset()
    assert isinstance(deleted, TableDataset)
    assert all(Path(path).exists() for path in deleted.files)
    kinds = [type(part).__name__ for part in deleted.get_fragments()]
    assert sorted(kinds) == ["Fragment"] * 2 + ["ParquetFileFragment"] * 3
    got = pa.concat_tables(
        [part.to_table(schema=deleted.schema) for part in deleted.get_fragments()]
    )
    assert got.num_rows == 96
    with pytest.raises(FileNotFoundError, match="only the scanner"):
        ds.Scanner.from_dataset(deleted).to_table()  # Never the deleted rows.


# Not of `nan`: pyarrow's own row groups count NaN as within their bounds.
CONSTANTS: dict[str, list[Any]] = {
    "n": [-1, 0, 19, 20, 33, 59, 99, 100],
    "p": ["p 1", "p 4", "q", ""],
    "t": ["t", "t020", "t059", "u"],
    "at": [DAY, DAY + timedelta(hours=39), DAY + timedelta(days=40)],
    "f": [0.0, 6.5, 100.0],
    "d": [Decimal("5.00"), Decimal("9.75")],
    "none": [1],
}


@st.composite
def filters(draw: st.DrawFn) -> pc.Expression:
    kind = draw(st.sampled_from(["compare", "null", "in", "nested", "not", "and", "or"]))
    name = draw(st.sampled_from(list(CONSTANTS)))
    value = st.sampled_from(CONSTANTS[name])
    if kind == "compare":
        constant = pa.scalar(draw(value), rows(0).schema.field(name).type)
        compare = draw(
            st.sampled_from(["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"])
        )
        return getattr(pc.field(name), compare)(constant)
    if kind == "null":
        return pc.field(name).is_null()
    if kind == "in":
        values = pa.array(draw(st.lists(value, max_size=3)), rows(0).schema.field(name).type)
        return pc.field(name).isin(values)
    if kind == "nested":
        return pc.field("st", "a") > draw(st.integers(-1, 100))
    if kind == "not":
        return ~draw(filters())
    left, right = draw(filters()), draw(filters())
    return left & right if kind == "and" else left | right


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(condition=filters(), name=st.sampled_from(["whole", "deleted"]), data=st.data())
def test_filters_keep_what_they_keep_of_all_rows(
    tables: dict[str, txlog.Table], condition: pc.Expression, name: str, data: st.DataObject
) -> None:
    table = tables[name]
    dataset = table.to_pyarrow_dataset()
    expected = table.to_arrow().filter(condition).sort_by("n").to_pydict()
    got = dataset.to_table(filter=condition).sort_by("n").to_pydict()
    assert repr(got) == repr(expected)  # NaN equals itself there.
    assert dataset.count_rows(filter=condition) == len(expected["n"])
    columns = data.draw(st.lists(st.sampled_from(dataset.schema.names), min_size=1, unique=True))
    some = dataset.to_table(columns=columns, filter=condition)
    assert some.schema.names == columns
    assert some.num_rows == len(expected["n"])


def test_files_are_left_out_by_the_log(tables: dict[str, txlog.Table]) -> None:
    for table in tables.values():
        dataset = table.to_pyarrow_dataset()
        for condition, files in (
            (pc.field("p") == "p 4", 1),
            (pc.field("p").is_null(), 1),
            (pc.field("n") > 70, 2),
            ((pc.field("n") > 35) & (pc.field("n") < 45), 2),
            (pc.field("t") > "t080", 1),
            (pc.field("at") < pa.scalar(DAY, pa.timestamp("us", "UTC")), 0),
            (pc.field("none") == 1, 0),
            (pc.field("nan") > 30.0, 5),  # NaN is within no bounds.
        ):
            assert len(list(dataset.get_fragments(filter=condition))) == files, str(condition)
        pruned = table.to_pyarrow_dataset("n > 70 AND p = 'p 4'")
        assert (len(pruned.files), pruned.count_rows()) == (1, 20)


def test_duckdb_and_polars_push_filters_down(tables: dict[str, txlog.Table]) -> None:
    table = tables["deleted"]
    flights = table.to_pyarrow_dataset()  # By this name duckdb finds it.
    assert flights.count_rows() == 96
    found = duckdb.sql("SELECT count(*), sum(n) FROM flights WHERE n >= 20 AND p = 'p 1'")
    assert found.fetchall() == [(18, sum(n for n in range(20, 40) if n % 10 != 3))]
    frame = pl.scan_pyarrow_dataset(flights)
    got = frame.filter(pl.col("n").is_between(10, 30)).select("n").collect()
    assert got["n"].to_list() == [n for n in range(10, 31) if n % 10 != 3]
    plain = table.to_pyarrow_dataset("n > 70")
    parts = {part.path for part in plain.get_fragments(filter=pc.field("n") > 90)}
    Path(next(path for path in plain.files if path not in parts)).rename(table.uri + "/away")
    try:  # The file that both leave out is not even opened.
        assert duckdb.sql("SELECT count(*) FROM plain WHERE n > 90").fetchall() == [(9,)]
        assert pl.scan_pyarrow_dataset(plain).filter(pl.col("n") > 90).collect().height == 9
    finally:
        Path(table.uri, "away").rename(next(p for p in plain.files if p not in parts))


def test_views_of_a_dataset(tables: dict[str, txlog.Table], tmp_path: Path) -> None:
    table = tables["deleted"]
    dataset = table.to_pyarrow_dataset()
    some = dataset.filter(pc.field("n") < 30).filter(pc.field("n") >= 10)
    assert some.count_rows() == some.to_table().num_rows == 18
    assert dataset.head(3).num_rows == 3
    assert dataset.take([0, 95]).num_rows == 2
    assert dataset.sort_by([("n", "descending")]).head(1)["n"].to_pylist() == [99]
    other = ds.dataset(pa.table({"n": [3, 4]}))
    plain = dataset.replace_schema(pa.schema([("n", pa.int64()), ("t", pa.string())]))
    assert plain.join(other, "n", join_type="inner").to_table()["n"].to_pylist() == [4]
    doubled = dataset.to_table(columns={"m": pc.field("n") * 2}, filter=pc.field("n") < 5)
    assert sorted(doubled["m"].to_pylist()) == [0, 2, 4, 8]
    assert dataset.to_table(columns={"m": pc.field(0)}).num_rows == 96
    for same in (pickle.loads(pickle.dumps(some)), copy.copy(some)):
        assert same.count_rows() == same.head(100).num_rows == 18
    again = pickle.loads(pickle.dumps(dataset))
    assert sorted(again.to_table()["n"].to_pylist()) == sorted(table.to_arrow()["n"].to_pylist())
    narrow = dataset.replace_schema(pa.schema([("n", pa.float64())]))
    assert narrow.to_table().schema == pa.schema([("n", pa.float64())])
    ds.write_dataset(dataset, tmp_path / "copy", format="parquet")
    assert ds.dataset(tmp_path / "copy").count_rows() == 96


def test_large_types_and_dictionaries(tables: dict[str, txlog.Table]) -> None:
    for table in tables.values():
        large = table.to_pyarrow_dataset(as_large_types=True)
        assert large.schema.field("t").type == pa.large_string()
        assert large.schema.field("st").type.field("b").type == pa.large_list(
            pa.field("element", pa.int64())
        )
        assert large.to_table().cast(table.schema).num_rows == table.count()
        options = ds.ParquetReadOptions(dictionary_columns=["t"])
        coded = table.to_pyarrow_dataset(parquet_read_options=options)
        assert pa.types.is_dictionary(coded.to_table().schema.field("t").type)


def test_what_pyarrow_alone_would_read_otherwise(tmp_path: Path) -> None:
    old = pa.table({"day": [date(1500, 1, 1), date(2020, 1, 1)], "n": [1, 2]})
    table = txlog.write(tmp_path / "old", old)
    assert isinstance(table.to_pyarrow_dataset(), TableDataset)  # Maybe in the old calendar.
    assert table.to_pyarrow_dataset().to_table() == table.to_arrow()
    wide = txlog.write(
        tmp_path / "wide", old, properties={"delta.feature.txlog.fragments": "supported"}
    )
    wide.alter.add_columns({"m": "n * 2"})
    assert wide.to_pyarrow_dataset().to_table()["m"].to_pylist() == [2, 4]
    narrow = txlog.write(tmp_path / "narrow", pa.table({"n": pa.array([1], pa.int16())}))
    narrow.alter.widen_type("n", pa.int64())
    narrow.append(pa.table({"n": [1 << 40]}))
    assert narrow.to_pyarrow_dataset().to_table(filter=pc.field("n") > 1)["n"].to_pylist() == [
        1 << 40
    ]
    nan = pa.table({"p": [float("nan"), 1.0], "n": [1, 2]})
    parts = txlog.write(tmp_path / "nan", nan, partition_by=["p"])
    assert parts.to_pyarrow_dataset().to_table(filter=pc.field("p") != 1.0)["n"].to_pylist() == [1]


def test_tables_in_other_stores() -> None:
    table = txlog.write("memory://dataset", rows(0))
    dataset = table.to_pyarrow_dataset()
    assert isinstance(dataset, ds.FileSystemDataset)
    assert dataset.to_table(filter=pc.field("n") < 5).num_rows == 5
    table.delete("n = 3")
    assert table.to_pyarrow_dataset().to_table(filter=pc.field("n") < 5).num_rows == 4


def test_what_pyarrow_states_of_files(tables: dict[str, txlog.Table]) -> None:
    """It knows the names of files that it reads itself."""
    whole = tables["whole"].to_pyarrow_dataset()
    assert len(set(whole.to_table(columns=["n", "__filename"])["__filename"].to_pylist())) == 5
    deleted = tables["deleted"].to_pyarrow_dataset()
    with pytest.raises(txlog.InvalidInputError, match="has deleted rows") as caught:
        deleted.to_table(columns=["n", "__filename"])
    assert (caught.value.argument, caught.value.field) == ("columns", "__filename")
    kept = deleted.to_table(columns=["n", "__filename"], filter=pc.field("n") >= 40)
    assert kept.num_rows == 60


def test_a_column_that_a_file_has_twice_hinders_no_other_one(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"a": [1], "b": [2]}))
    (file,) = tmp_path.glob("*.parquet")
    twice = pa.Table.from_arrays([pa.array([n]) for n in (1, 2, 3)], names=["a", "a", "b"])
    pq.write_table(twice, file)
    dataset = table.to_pyarrow_dataset()
    (part,) = dataset.get_fragments()
    for reader in (dataset, part):
        assert reader.to_table(columns=["b"])["b"].to_pylist() == [3]
    with pytest.raises(txlog.DataFileError, match="a"):
        dataset.to_table(columns=["a"])


@pytest.mark.parametrize("name", ["whole", "deleted"])
def test_batches_have_the_size_that_is_asked_for(tables: dict[str, txlog.Table], name: str) -> None:
    dataset = tables[name].to_pyarrow_dataset()
    for columns in (["n"], []):
        batches = list(dataset.to_batches(columns=columns, batch_size=7))
        assert sum(batch.num_rows for batch in batches) == tables[name].count()
        assert max(batch.num_rows for batch in batches) == 7
