"""Statistics of written files."""

import math
from decimal import Decimal

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.actions.stats_text import stats_json
from txlog.schema.arrow import from_arrow
from txlog.stats.collect import StatsCollector, upper_prefix


def written(column: pa.Array) -> tuple[object, object, object]:
    table = pa.table({"c": column})
    collector = StatsCollector(from_arrow(table.schema))
    collector.update(table)
    found = orjson.loads(stats_json(collector.finish()))
    assert found["numRecords"] == len(column)
    return tuple(found[kind].get("c") for kind in ("minValues", "maxValues", "nullCount"))


@given(st.text(alphabet="a\x7e\x7f\ud7ff\ue000\uff01\uffff\U00010000\U0010ffff", max_size=80)
       | st.text(st.sampled_from("x"), min_size=31, max_size=33))  # fmt: skip
def test_a_cut_text_stays_an_upper_bound(text: str) -> None:
    bound = upper_prefix(text)
    if bound is None:
        return
    assert bound.encode() >= text.encode()
    assert bound.encode("utf-16-be") >= text.encode("utf-16-be")
    assert len(bound) <= 65


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([0.0, 1.0, None]), (-0.0, 1.0, 1)),
        (pa.array([-1.0, -0.0]), (-1.0, 0.0, 0)),
        (pa.array([1.0, math.nan]), (1.0, None, 0)),
        (pa.array([math.nan]), (None, None, 0)),
        (pa.array([-math.inf, 2.0]), (None, 2.0, 0)),
        (pa.array([None, None], pa.int32()), (None, None, 2)),
        (pa.array([True, False]), (None, None, 0)),
        (pa.array([b"a", None]), (None, None, 1)),
        (pa.array([[1], None], pa.list_(pa.int8())), (None, None, 1)),
        (pa.array([-1, 3_000_000], pa.int32()).cast(pa.date32()), ("1969-12-31", None, 0)),
        (pa.array([-1, 1], pa.timestamp("us", "UTC")),
         ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z", 0)),
        (pa.array([1500], pa.timestamp("us")),
         ("1970-01-01T00:00:00.001", "1970-01-01T00:00:00.001", 0)),
    ],
)  # fmt: skip
def test_bounds_of_each_type(column: pa.Array, expected: tuple[object, ...]) -> None:
    found = written(column)
    assert repr(found) == repr(expected)  # Which tells zeros apart.


LARGE = st.integers(-(2**62), 2**62)
VALUES = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), LARGE),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.string(), st.text(max_size=40)),
    (pa.large_string(), st.text(max_size=3)),
    (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.timestamp("us"), LARGE),
    (pa.timestamp("us", "UTC"), LARGE),
    (pa.decimal128(12, 3), st.decimals(-(10**8), 10**8, places=3)),
]


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    kind, values = draw(st.sampled_from(VALUES))
    plain = {pa.date32(): pa.int32()}.get(kind, pa.int64() if pa.types.is_timestamp(kind) else kind)
    held = draw(st.lists(st.none() | values, min_size=1, max_size=12))
    return pa.array(held, plain).cast(kind).slice(draw(st.integers(0, 2)))


@given(columns().filter(len))
def test_few_rows_have_the_bounds_that_many_have(column: pa.Array) -> None:
    low, high, nulls = written(column)
    many = written(pa.concat_arrays([column] * 80))
    assert repr((low, high, nulls * 80)) == repr(many)


def test_decimals_keep_every_digit() -> None:
    table = pa.table({"c": pa.array([Decimal("12345678901234567890123456.78")])})
    collector = StatsCollector(from_arrow(table.schema))
    collector.update(table)
    assert '"c":12345678901234567890123456.78' in stats_json(collector.finish())


def test_a_null_struct_makes_its_fields_null() -> None:
    kind = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.int64()))])
    table = pa.table({"s": pa.array([{"x": 1, "y": []}, None, {"x": None, "y": None}], kind)})
    collector = StatsCollector(from_arrow(table.schema))
    for batch in table.to_batches(max_chunksize=1):
        collector.update(batch)
    assert collector.finish()["nullCount"] == {"s": {"x": 2, "y": 2}}


@pytest.mark.parametrize(("indexed", "names"), [(0, []), (2, ["a", "b"]), (-1, ["a", "b", "c"])])
def test_only_the_first_leaves_are_indexed(indexed: int, names: list[str]) -> None:
    table = pa.table({"a": [1], "b": [2], "c": [3]})
    collector = StatsCollector(from_arrow(table.schema), indexed=indexed)
    collector.update(table)
    assert list(collector.finish()["nullCount"]) == names
