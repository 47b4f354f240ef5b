"""Partition values: the log's text and back."""

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.errors import InvalidInputError, LogCorruptError
from txlog.schema.arrow import arrow_type
from txlog.schema.types import DataType, DecimalType, PrimitiveType
from txlog.stats.partition import format_partition_values, parse_partition_values

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
