"""Partition values to the log's text and back."""

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import txlog
from txlog.base.errors import InvalidInputError, LogCorruptError, UnsupportedFeatureError
from txlog.data_files import write as files
from txlog.protocol.form import are_there, entries
from txlog.schema.arrow import arrow_type, from_arrow
from txlog.schema.types import DataType, DecimalType, PrimitiveType
from txlog.stats.partition import (
    by_partition,
    encoded,
    format_partition_values,
    parse_partition_values,
)

VALUES: dict[DataType, st.SearchStrategy[object]] = {
    PrimitiveType("string"): st.text(),
    PrimitiveType("long"): st.integers(-(2**63), 2**63 - 1),
    PrimitiveType("byte"): st.integers(-128, 127),
    PrimitiveType("double"): st.floats(),
    PrimitiveType("float"): st.floats(width=32),
    PrimitiveType("boolean"): st.booleans(),
    PrimitiveType("date"): st.dates(),
    PrimitiveType("timestamp"): st.datetimes(timezones=st.just(dt.UTC)),
    PrimitiveType("timestamp_ntz"): st.datetimes(),
    PrimitiveType("binary"): st.text().map(str.encode),
    DecimalType(38, 10): st.decimals(-(10**20), 10**20, places=10),
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(data=st.data())
def test_values_come_back(kind: DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[kind], max_size=8))
    array = pa.array(values, arrow_type(kind))
    back = parse_partition_values(format_partition_values(array, kind), kind)
    assert back.type == arrow_type(kind)
    # An empty text cannot be told from null, by the protocol.
    expected = [None if value in ("", b"") else value for value in array.to_pylist()]
    found = back.to_pylist()
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("timestamp", "2020-01-31 12:34:56", dt.datetime(2020, 1, 31, 12, 34, 56, tzinfo=dt.UTC)),
        ("timestamp", "1970-01-01T00:00:00.123456Z",
         dt.datetime(1970, 1, 1, 0, 0, 0, 123456, dt.UTC)),
        ("timestamp_ntz", "2020-01-31 12:34:56.7", dt.datetime(2020, 1, 31, 12, 34, 56, 700_000)),
        ("date", "0001-01-01", dt.date(1, 1, 1)),
        ("double", "-Infinity", -math.inf),
        ("boolean", "TRUE", True),
        ("integer", "-7", -7),
        ("binary", "\u0001\u0002", b"\x01\x02"),
    ],
)  # fmt: skip
def test_what_other_writers_log_is_read(kind: str, text: str, value: object) -> None:
    found = parse_partition_values(pa.array([text, "", None]), PrimitiveType(kind))
    assert found.to_pylist() == [value, None, None]


def test_years_beyond_python_are_read() -> None:
    found = parse_partition_values(
        pa.array(["10000-01-01 00:00:00"]), PrimitiveType("timestamp_ntz")
    )
    assert found.cast(pa.int64()).to_pylist() == [253402300800000000]


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamp_ntz"])
def test_years_of_any_sign_come_back(kind: str) -> None:
    days = pa.array([-720_000, -719_528, 3_000_000], pa.int32())  # Years -2, 0 and 10183.
    target = arrow_type(PrimitiveType(kind))
    values = days.cast(target) if kind == "date" else days.cast(pa.date32()).cast(target)
    texts = format_partition_values(values, PrimitiveType(kind))
    assert parse_partition_values(texts, PrimitiveType(kind)).equals(values)


def test_a_date_too_far_off_is_refused() -> None:
    far = pa.array([2**31 - 1], pa.int32()).cast(pa.date32())
    with pytest.raises(InvalidInputError, match="digits"):
        format_partition_values(far, PrimitiveType("date"))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (PrimitiveType("long"), 7),
        (PrimitiveType("double"), 7.0),
        (DecimalType(12, 2), Decimal("7.00")),
    ],
    ids=str,
)
def test_values_of_before_a_type_was_widened(kind: DataType, value: object) -> None:
    assert parse_partition_values(pa.array(["7"]), kind).to_pylist() == [value]


def test_dates_of_before_they_became_timestamps() -> None:
    found = parse_partition_values(pa.array(["1582-10-04"]), PrimitiveType("timestamp_ntz"))
    assert found.to_pylist() == [dt.datetime(1582, 10, 4)]


def test_a_decimal_of_another_scale_is_read() -> None:
    found = parse_partition_values(pa.array(["1", "2.5", "1E+2"]), DecimalType(12, 2))
    assert found.to_pylist() == [Decimal("1.00"), Decimal("2.50"), Decimal("100.00")]


@pytest.mark.parametrize(
    ("kind", "text"),
    [("integer", "x"), ("byte", "999"), ("date", "2020-02-30"), ("boolean", "1"),
     ("timestamp", "noon"), ("double", "1,5")],
)  # fmt: skip
def test_what_cannot_be_read_is_named(kind: str, text: str) -> None:
    with pytest.raises(LogCorruptError, match=kind):
        parse_partition_values(pa.array([text]), PrimitiveType(kind))


def test_binary_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="UTF-8"):
        format_partition_values(pa.array([b"\xff"]), PrimitiveType("binary"))


PLAIN = pa.map_(pa.string(), pa.string())
CODED = pa.map_(*2 * [pa.dictionary(pa.int32(), pa.string())])

names = st.sampled_from(["p", "q", "", "é"])
values = st.sampled_from(["1", "2", "", None])
any_maps = st.lists(st.none() | st.lists(st.tuples(names, values), max_size=3), max_size=6)


@st.composite
def same_names(draw: Any) -> list[Any]:
    """Maps as most tables have them."""
    held = draw(st.lists(names, min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(*(values for _ in held)), max_size=6))
    return [list(zip(held, row, strict=True)) for row in rows]


def as_dictionaries(maps: pa.MapArray) -> pa.MapArray:
    return pa.MapArray.from_arrays(
        maps.offsets,
        maps.keys.dictionary_encode(),
        maps.items.dictionary_encode(),
        CODED,
        mask=maps.is_null() if maps.null_count else None,
    )


@given(any_maps | same_names(), names, st.integers(0, 3), st.booleans())
def test_a_value_is_the_last_of_its_name(
    rows: list[Any], name: str, cut: int, dictionaries: bool
) -> None:
    maps = pa.array(rows, PLAIN)
    held = (as_dictionaries(maps) if dictionaries else maps)[cut:]
    found, there = entries(held, name), are_there(held, name)
    found = found.dictionary_decode() if pa.types.is_dictionary(found.type) else found
    wanted = maps[cut:]
    assert found.to_pylist() == pc.map_lookup(wanted, pa.scalar(name), "last").to_pylist()
    assert there.to_pylist() == [any(n == name for n, _ in row or ()) for row in rows[cut:]]


@given(st.lists(values, max_size=8), st.integers(0, 3), st.integers(0, 8))
def test_a_dictionary_has_no_other_texts(texts: list[Any], start: int, count: int) -> None:
    whole = pa.array(texts, pa.string())
    for array in (whole[start : start + count], whole.dictionary_encode()[start : start + count]):
        found = encoded(array)
        assert found.dictionary_decode().to_pylist() == texts[start : start + count]
        held = found.dictionary.to_pylist()
        assert len(set(held)) == len(held)
        assert set(held) == {text for text in texts[start : start + count] if text is not None}


SCHEMA = pa.schema([("n", pa.int64()), ("p", pa.string()), ("q", pa.int32()), ("r", pa.bool_())])
cells = st.tuples(
    st.sampled_from(["", "a", "b", "é", "aa", None]),
    st.integers(-3, 300) | st.none(),
    st.booleans() | st.none(),
)


@given(
    st.lists(cells, max_size=12),
    st.permutations(["p", "q", "r"]),
    st.integers(1, 3),
    st.integers(0, 2),
)
def test_each_row_goes_to_its_partition_in_its_order(
    rows: list[tuple[Any, ...]], names: list[str], count: int, cut: int
) -> None:
    held = [dict(zip(SCHEMA.names, (at, *row), strict=True)) for at, row in enumerate(rows)]
    batch = pa.RecordBatch.from_pylist(held, SCHEMA)[cut:]
    types = {field.name: field.type for field in from_arrow(SCHEMA).fields}
    kinds = {name: types[name] for name in names[:count]}
    texts = {
        name: format_partition_values(batch.column(name), kind).to_pylist()
        for name, kind in kinds.items()
    }
    wanted: dict[tuple[Any, ...], list[Any]] = {}
    for at, row in enumerate(batch.to_pylist()):
        key = tuple(texts[name][at] for name in names[:count])
        wanted.setdefault(key, []).append(
            {name: value for name, value in row.items() if name not in names[:count]}
        )
    found = [(key, part.to_pylist()) for key, part in by_partition(batch, kinds)]
    assert dict(found) == wanted
    assert len(found) == len(wanted)


@pytest.mark.slow
@pytest.mark.parametrize("count", [200, 300, 70_000])
def test_many_partitions(count: int) -> None:
    schema = pa.schema([("n", pa.int64()), ("p", pa.int64())])
    batch = pa.RecordBatch.from_pydict({"n": range(count), "p": range(count, 0, -1)}, schema)
    kinds = {"p": from_arrow(schema).fields[1].type}
    found = {key: part["n"].to_pylist() for key, part in by_partition(batch, kinds)}
    assert found == {(str(count - at),): [at] for at in range(count)}


def test_rows_of_a_rare_partition_keep_no_others_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROW_GROUP_ROWS", 20_000)
    monkeypatch.setattr(files, "_PINNED_BYTES", 1 << 20)
    rows, count, seen = 70_000, 30, []
    before = pa.total_allocated_bytes()

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(count):
            seen.append(pa.total_allocated_bytes() - before)
            names = {f"d{at}": np.full(rows, 1.0) for at in range(8)}
            yield pa.RecordBatch.from_pydict({"p": ["rare", *["usual"] * (rows - 1)], **names})

    first = next(batches())
    seen.clear()
    txlog.write(
        tmp_path, pa.RecordBatchReader.from_batches(first.schema, batches()), partition_by="p"
    )
    assert txlog.Table(tmp_path).count(where="p = 'rare'") == count
    assert max(seen) < 8 * first.nbytes


@pytest.mark.parametrize("value", ["", None])
def test_an_empty_text_is_null_where_null_must_not_be(tmp_path: Path, value: str | None) -> None:
    schema = pa.schema([("x", pa.int64()), pa.field("p", pa.string(), False)])
    table = txlog.Table.create(tmp_path, schema, partition_by="p")
    data = pa.table({"x": [1, 2], "p": ["a", value]})
    for act in (table.append, table.overwrite):
        with pytest.raises(txlog.SchemaMismatchError, match="p must not be null") as caught:
            act(data)
        assert caught.value.field == "p"
    assert not list(tmp_path.rglob("*.parquet"))
    table.append(data.slice(0, 1))
    assert table.to_arrow()["p"].to_pylist() == ["a"]


def test_partition_columns_of_intervals_are_no_damage() -> None:
    texts = pa.array(["INTERVAL '1' DAY"])
    for name in ("interval day", "interval year to month"):
        with pytest.raises(UnsupportedFeatureError, match=f"partition values of the type {name}"):
            parse_partition_values(texts, PrimitiveType(name))


def test_empty_texts_of_a_slice_become_null(tmp_path: Path) -> None:
    """A slice begins within the texts of another array, which pyarrow 22 forgot."""
    rows = pa.table({"p": ["long one", "", "b", "", None, "cc"], "v": range(6)}).slice(1)
    table = txlog.write(tmp_path / "t", rows, partition_by=["p"])
    found = table.to_arrow(["p", "v"]).sort_by("v")
    assert found.to_pylist() == [
        {"p": value or None, "v": number}
        for number, value in enumerate(["", "b", "", None, "cc"], 1)
    ]
