"""Row groups that Bloom filters exclude are not decoded, and no row is lost."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved
from txlog import col
from txlog.parquet.bloom import header

pytestmark = pytest.mark.skipif(
    "bloom_filter_options" not in (pq.ParquetWriter.__doc__ or ""),
    reason="this pyarrow does not know Bloom filters",
)

ALWAYS_READ = {"txlog.scan.bloom_filters:_LEAST_TIMES": 0}
CAST = ["cast(m AS decimal(9, 2)) m", "cast(w AS decimal(30, 3)) w", "cast(f AS float) f", "x"]
FIRST = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("m", pa.decimal128(9, 2)),
        ("w", pa.decimal128(30, 3)),
        ("f", pa.float32()),
        ("x", pa.float64()),
        ("n", pa.int64()),
    ]
)
FILTERED = "i,l,s,b,d,t,m,w,f,x"


def row(number: int) -> dict[str, Any]:
    spread = number * 7919 % 10_007
    return {
        "i": spread - 5_000,
        "l": spread * 2**40 - 2**50,
        "s": f"{spread}-" + "\N{GREEK SMALL LETTER ALPHA}" * (spread % 40),
        "b": spread.to_bytes(4) * (spread % 5),
        "d": date(2020, 1, 1) + timedelta(days=spread),
        "t": FIRST + timedelta(microseconds=spread),
        "m": Decimal(spread - 5_000).scaleb(-2),
        "w": Decimal((spread - 5_000) * 10**22 + spread).scaleb(-3),
        "f": (spread - 5_000) / 8,
        "x": (spread - 5_000) / 10,
        "n": number,
    }


def rows(numbers: range) -> pa.Table:
    return pa.Table.from_pylist([row(number) for number in numbers], SCHEMA)


def decoded_groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each row group that is decoded is added."""
    found: list[int] = []
    real = pq.ParquetFile.iter_batches

    def iter_batches(self: Any, *arguments: Any, **named: Any) -> Any:
        found.extend(named["row_groups"])
        return real(self, *arguments, **named)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", iter_batches)
    return found


def table_with_filters(root: Path, *, mapped: bool = False) -> txlog.Table:
    properties = {
        "txlog.bloomFilterColumns": FILTERED,
        "txlog.rowGroupRows": "100",
        "delta.columnMapping.mode": "name" if mapped else "none",
    }
    table = txlog.Table.create(root, SCHEMA, properties=properties)
    table.append(rows(range(1_000)))
    return table


def values_of(number: int, name: str) -> Any:
    return row(number)[name]


@pytest.mark.spec("FRG-45")
@pytest.mark.parametrize("mapped", [False, True])
def test_row_groups_without_the_value_are_not_decoded(
    tmp_path: Path, mapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_with_filters(tmp_path / "t", mapped=mapped)
    found = decoded_groups(monkeypatch)
    with moved(ALWAYS_READ):
        for name in FILTERED.split(","):
            value = values_of(345, name)
            expected = [n for n in range(1_000) if values_of(n, name) == value]
            found.clear()
            assert table.to_arrow(["n"], col(name) == value)["n"].to_pylist() == expected
            assert {n // 100 for n in expected} <= set(found)
            if len(expected) == 1:
                assert len(found) <= 3
            found.clear()
            assert table.count(col(name).isin([values_of(5_003, name), None])) == 0 or name == "b"
            assert len(found) <= 2 or name == "b"
        found.clear()
        both = (col("i") == values_of(7, "i")) | (col("i") == values_of(907, "i"))
        assert table.count(both & (col("n") > 3)) == 2
        assert {0, 9} <= set(found)
        assert len(found) <= 5
        found.clear()
        assert table.count((col("i") == values_of(7, "i")) | (col("n") == 1)) == 2


def test_large_filters_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_with_filters(tmp_path / "t")
    found = decoded_groups(monkeypatch)
    counts = []
    for times in (0, 1 << 20):
        with moved({"txlog.scan.bloom_filters:_LEAST_TIMES": times}):
            found.clear()
            assert table.count(col("i") == values_of(5_003, "i")) == 0
            counts.append(len(found))
    assert counts[0] < 3
    assert counts[1] > 5


@settings(max_examples=examples(60), deadline=None)
@given(
    numbers=st.lists(st.integers(0, 1_200), min_size=1, max_size=4),
    names=st.lists(st.sampled_from(SCHEMA.names), min_size=1, max_size=2, unique=True),
)
def test_no_row_is_lost(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], names: list[str]
) -> None:
    root = tmp_path_factory.getbasetemp() / "bloom-filters"
    table = txlog.Table(root) if txlog.Table.exists(root) else table_with_filters(root)
    where = col(names[0]).isin([values_of(number, names[0]) for number in numbers])
    if len(names) == 2:
        where = where & (col(names[1]) == values_of(numbers[0], names[1]))
    kept = [
        one["n"]
        for one in map(row, range(1_000))
        if one[names[0]] in [values_of(number, names[0]) for number in numbers]
        and (len(names) == 1 or one[names[1]] == values_of(numbers[0], names[1]))
    ]
    with moved(ALWAYS_READ):
        assert table.to_arrow(["n"], where)["n"].to_pylist() == kept


def test_a_damaged_filter_is_ignored_with_a_warning(tmp_path: Path) -> None:
    table = table_with_filters(tmp_path / "t")
    (path,) = Path(table.uri).glob("*.parquet")
    column = pq.ParquetFile(path).metadata.row_group(3).column(0)
    whole = path.read_bytes()
    start, size = column.bloom_filter_offset, column.bloom_filter_length
    begin = start + header(whole[start : start + size])[0]
    for place in (start, begin):  # Its header, too, and its bits alone.
        for byte in (b"\0", b"\xff") if place == start else (b"\0",):
            damage = byte * (start + size - place)
            path.write_bytes(whole[:place] + damage + whole[start + size :])
            with (
                moved(ALWAYS_READ),
                pytest.warns(txlog.TxlogWarning, match="Bloom filter of part-.* cannot be used"),
            ):
                found = txlog.Table(table.uri).to_arrow(["n"], col("i") == values_of(345, "i"))
            assert found["n"].to_pylist() == [345]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.spec("FRG-45")
def test_filters_of_spark(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = (
        spark.createDataFrame(rows(range(2_000)).to_pandas())
        .repartition(1)
        .selectExpr("cast(i AS int) i", "l", "s", "b", "d", "t", *CAST, "n")
    )
    options = {f"parquet.bloom.filter.enabled#{name}": "true" for name in SCHEMA.names[:-1]}
    folder = tmp_path / "spark"
    frame.coalesce(1).write.options(**options, **{"parquet.block.size": "20000"}).parquet(
        str(folder)
    )
    table = txlog.convert_to_delta(str(folder))
    (file,) = folder.glob("*.parquet")
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).bloom_filter_offset
    found = decoded_groups(monkeypatch)
    absent = 0
    with moved(ALWAYS_READ):
        for name in SCHEMA.names[:-1]:
            for number in (0, 345, 1_999, 5_003, 6_006):
                value = values_of(number, name)
                expected = [n for n in range(2_000) if values_of(n, name) == value]
                found.clear()
                answer = table.to_arrow(["n"], col(name) == value)["n"].to_pylist()
                assert sorted(answer) == expected, name
                absent += not expected and not found
    assert absent >= 6


def test_zeros_and_nan_are_found(tmp_path: Path) -> None:
    values = [0.0, -0.0, float("nan"), 1.5, -1.5, 0.1]
    schema = pa.schema([("f", pa.float32()), ("x", pa.float64()), ("n", pa.int64())])
    properties = {"txlog.bloomFilterColumns": "f,x", "txlog.rowGroupRows": "1"}
    table = txlog.Table.create(tmp_path / "t", schema, properties=properties)
    table.append(pa.table({"f": values, "x": values, "n": range(6)}).cast(schema))
    with moved(ALWAYS_READ):
        for name in ("f", "x"):
            for value, found in [(0.0, [0, 1]), (-0.0, [0, 1]), (0, [0, 1]), (1.5, [3]), (7, [])]:
                assert table.to_arrow(["n"], col(name) == value)["n"].to_pylist() == found
            assert table.count(col(name) == float("nan")) == 1
            assert table.count(col(name).isin([float("nan"), 1.5])) == 2
        assert table.count(col("f") == 0.1) == 0  # As a double it is another number.
        assert table.count(col("x") == 0.1) == 1


def test_filters_of_values_of_a_fixed_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As other engines write UUID columns."""
    folder = tmp_path / "t"
    folder.mkdir()
    keys = [number.to_bytes(16) for number in range(0, 2_000, 2)]
    data = pa.table({"k": pa.array(keys, pa.binary(16)), "n": range(1_000)})
    options = {"k": {"ndv": 1_000, "fpp": 0.01}}
    pq.write_table(data, folder / "a.parquet", row_group_size=100, bloom_filter_options=options)
    table = txlog.convert_to_delta(str(folder))
    found = decoded_groups(monkeypatch)
    with moved(ALWAYS_READ):
        assert table.to_arrow(["n"], col("k") == keys[345])["n"].to_pylist() == [345]
        assert 3 in found
        assert len(found) < 3
        found.clear()
        assert table.count(col("k") == (691).to_bytes(16)) == 0
        assert len(found) < 3
        assert table.count(col("k") == b"short") == 0


@pytest.mark.spec("FRG-45")
def test_datasets_leave_out_row_groups_that_filters_exclude(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_with_filters(tmp_path / "t")
    (path,) = Path(table.uri).glob("*.parquet")
    found = decoded_groups(monkeypatch)
    with moved(ALWAYS_READ):
        for name in FILTERED.split(","):
            for number in (345, 5_003):
                value = values_of(number, name)
                filter = ds.field(name) == pa.scalar(value, SCHEMA.field(name).type)
                expected = [n for n in range(1_000) if values_of(n, name) == value]
                read = table.to_pyarrow_dataset().to_table(["n"], filter=filter)
                assert read["n"].to_pylist() == expected, name
                assert table.to_pyarrow_dataset().count_rows(filter=filter) == len(expected)
        found.clear()
        table.to_arrow(["n"], col("l") == values_of(345, "l"))
        other = min({*range(10)} - {*found})
        chunk = pq.ParquetFile(path).metadata.row_group(other).column(SCHEMA.names.index("l"))
        data = bytearray(path.read_bytes())
        data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 0xFF
        path.write_bytes(data)
        dataset = txlog.Table(table.uri).to_pyarrow_dataset()
        with pytest.raises(OSError, match="CRC"):
            dataset.to_table(["l"])
        filter = ds.field("l").isin([values_of(345, "l")])
        assert dataset.to_table(["n"], filter=filter)["n"].to_pylist() == [345]
