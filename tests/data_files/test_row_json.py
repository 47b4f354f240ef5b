"""Rows as JSON: any JSON reader reads them, and finds the values."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.data_files import row_json
from txlog.data_files.row_json import row_texts

VALUES = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "b": st.none() | st.booleans(),
        'odd "name"\n': st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "l": st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3),
        "st": st.none() | st.fixed_dictionaries({"a": st.none() | st.text("ab", max_size=2)}),
        "m": st.none() | st.dictionaries(st.text("xy", max_size=2), st.integers(0, 9), max_size=2),
        "deep": st.none() | st.lists(st.none() | st.lists(st.text("q\\", max_size=2), max_size=2)),
    }
)
SCHEMA = pa.schema(
    {
        "n": pa.int64(), "x": pa.float64(), "b": pa.bool_(), 'odd "name"\n': pa.string(),
        "l": pa.list_(pa.int32()), "st": pa.struct({"a": pa.string()}),
        "m": pa.map_(pa.string(), pa.int32()), "deep": pa.list_(pa.list_(pa.string())),
    }
)  # fmt: skip


@settings(max_examples=examples(100))
@given(rows=st.lists(VALUES, min_size=1, max_size=6), cut=st.integers(0, 3))
def test_every_value_is_read_again(rows: list[dict[str, object]], cut: int) -> None:
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA).slice(min(cut, len(rows) - 1))
    texts = row_texts(batch).to_pylist()
    assert [json.loads(text) for text in texts] == batch.to_pylist(maps_as_pydicts="strict")


def test_values_that_json_has_not() -> None:
    columns = {
        "nan": pa.array([float("nan"), 1.0]),
        "inf": pa.array([float("-inf"), None], pa.float32()),
        "half": pa.array([1.5, None], pa.float16()),
        "d": pa.array([Decimal("1.50"), None]),
        "day": pa.array([date(2024, 2, 29), None]),
        "at": pa.array([datetime(2024, 1, 1, 12, tzinfo=UTC), None]),
        "raw": pa.array([b"\x00\xff", None]),
        "bad": pa.array([b"\xff", b"ok"]).view(pa.string()),
        "code": pa.array(["a", "b"]).dictionary_encode(),
        "none": pa.nulls(2),
        "by number": pa.array([[(1, True)], None], pa.map_(pa.int8(), pa.bool_())),
        "fixed": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
        "took": pa.array([5, None], pa.duration("s")),
        "view": pa.array(["v", None], pa.string_view()),
    }
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    first, second = map(json.loads, row_texts(batch).to_pylist())
    assert first == {
        "nan": "nan", "inf": "-inf", "half": 1.5, "d": 1.5, "day": "2024-02-29",
        "at": "2024-01-01 12:00:00.000000Z", "raw": "AP8=", "bad": "/w==", "code": "a",
        "none": None, "by number": {"1": True}, "fixed": [1, 2], "took": 5, "view": "v",
    }  # fmt: skip
    assert second["code"] == "b"
    assert second["bad"] == "b2s="
    assert {name for name, value in second.items() if value is None} == {
        "inf", "half", "d", "day", "at", "raw", "none", "by number", "fixed", "took", "view",
    }  # fmt: skip
    assert row_texts(batch.select([])).to_pylist() == ["{}", "{}"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_instants_are_texts_in_utc_or_numbers_beyond_what_can_be_printed(unit: str) -> None:
    scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    numbers = [-62135596800, -62135596801, 253402300799, 253402300800, 0]
    numbers = [one * scale for one in numbers if abs(one * scale) < 2**63]
    numbers += [2**63 - 1, -(2**63) + 1]
    array = pa.array(numbers, pa.timestamp(unit, "Europe/Berlin"))
    found = [
        json.loads(text)["at"] for text in row_texts(pa.record_batch({"at": array})).to_pylist()
    ]
    for number, value in zip(numbers, found, strict=True):
        if -62135596800 * scale <= number < 253402300800 * scale:
            at = datetime.fromisoformat(value)
            assert value.endswith("Z")
            whole = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
            assert whole == number // scale
        else:
            assert value == number
    days = pa.array([2**31 - 1, 0, 2932896, 2932897, -719162, -719163, None], pa.date32())
    texts = row_texts(pa.record_batch({"d": days})).to_pylist()
    assert [json.loads(text)["d"] for text in texts] == [
        2**31 - 1, "1970-01-01", "9999-12-31", 2932897, "0001-01-01", -719163, None,
    ]  # fmt: skip


@settings(max_examples=examples(60))
@given(rows=st.lists(VALUES, min_size=1, max_size=9), most=st.integers(1, 5000))
def test_parts_are_all_rows_and_their_texts_are_not_longer(
    rows: list[dict[str, object]], most: int
) -> None:
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_json, "_PART_BYTES", most)
        parts = list(row_json.slices(batch))
    texts = [row_texts(part) for part in parts]
    assert [one for part in texts for one in part.to_pylist()] == row_texts(batch).to_pylist()
    for part in texts:
        assert len(part) == 1 or sum(len(one.encode()) for one in part.to_pylist()) <= most


def test_a_row_that_is_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_json, "_PART_BYTES", 600)
    monkeypatch.setattr(row_json, "_TEXT_BYTES", 1000)
    texts = pa.array(["\x01" * 300, "a"])
    for array in (texts, texts.dictionary_encode(), texts.cast(pa.string_view())):
        with pytest.raises(txlog.InvalidInputError, match="too long"):
            list(row_json.slices(pa.record_batch({"s": array})))
        short = pa.record_batch({"s": array.slice(1)})
        if not pa.types.is_dictionary(array.type):  # Its values are those of all rows.
            assert [one.num_rows for one in row_json.slices(short)] == [1]
