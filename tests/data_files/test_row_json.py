"""Rows as JSON: any JSON reader reads them, and finds the values."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
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
