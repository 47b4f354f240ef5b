"""Skipping, compared with the rows themselves.

A file that is left out has no row of which the predicate is true; a file that counts as certain has
only such rows. Statistics come from what we write, as JSON and as a checkpoint's struct, and from
Parquet footers.
"""

import datetime as dt
import io
import math
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.actions.stats_text import stats_json
from txlog.expressions.bind import bind, columns_of
from txlog.expressions.evaluate import mask
from txlog.expressions.sql import parse_sql
from txlog.expressions.tree import Expression, Or, col
from txlog.parquet.file_footer import FileFooter
from txlog.schema.arrow import arrow_schema, from_arrow
from txlog.stats.collect import StatsCollector
from txlog.stats.file_bounds import row_group_bounds, struct_bounds
from txlog.stats.files import num_records
from txlog.stats.json_bounds import json_bounds
from txlog.stats.skip import Bounds, ColumnBounds, always, keep

ARROW = pa.schema(
    [
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("m", pa.decimal128(38, 4)),
        ("e", pa.decimal128(38, 20)),
        ("b", pa.bool_()),
        ("n", pa.struct([("x", pa.int64())])),
    ]
)
SCHEMA = from_arrow(ARROW)


class Raw:
    """A number's own digits."""

    def __init__(self, digits: str) -> None:
        self.digits = digits


TIMES = [dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=n)
         for n in (0, 1, 999, 1000, 1500)]  # fmt: skip
LONG = "x" * 40
CONSTANTS: dict[str, list[Any]] = {
    "i": [-1, 0, 1, 2, 2.5],
    "f": [-0.0, 0.0, 1.5, math.nan, math.inf, -math.inf],
    "s": ["", "a", "ab", "b", LONG, LONG + "a", LONG + "\U0010ffff", "x" * 32 + "\x7f"],
    "d": [dt.date(2020, 1, 1), dt.date(1500, 2, 3)],
    "t": TIMES,
    "m": [Decimal("12345678901234567890.1234"), Decimal("12345678901234567890.1235"), Decimal(0)],
    "e": [Decimal("0.1"), Decimal("0.10000000000000000001")],
    "b": [True, False],
    "n.x": [0, 5],
}
rows = st.fixed_dictionaries(
    {
        name: st.none() | st.sampled_from([v for v in values if name != "i" or type(v) is int])
        for name, values in CONSTANTS.items()
    }
)


@st.composite
def leaves(draw: st.DrawFn) -> Expression:
    name = draw(st.sampled_from(sorted(CONSTANTS)))
    column = col(name)
    kinds = ["=", "<>", "<", "<=", ">", ">=", "in", "null", "like", "long in", "long or"]
    how = draw(st.sampled_from(kinds))
    values = st.sampled_from(CONSTANTS[name])
    if how == "null":
        return column.is_null()
    if how == "in":
        return column.isin(draw(st.lists(st.none() | values, min_size=1, max_size=3)))
    if how == "long in":
        times = draw(st.sampled_from([9, 101]))
        return column.isin(draw(st.lists(values, min_size=1, max_size=3)) * times)
    if how == "long or":
        other = st.sampled_from(sorted(CONSTANTS))
        some = [column == draw(values), column == draw(st.none() | values)]
        some += [col(name) == draw(st.sampled_from(CONSTANTS[name])) for name in [draw(other)]]
        return Or((*some * 10, draw(st.sampled_from([column.is_null(), some[0]]))))
    if how == "like":
        patterns = ["a%", "x%", "%b", "", LONG + "%", "a_", "a", "%", "x" * 33 + "%", "%%"]
        return col("s").like(draw(st.sampled_from(patterns)))
    value = draw(values)
    return {
        "=": column == value, "<>": column != value, "<": column < value,
        "<=": column <= value, ">": column > value, ">=": column >= value,
    }[how]  # fmt: skip


predicates = st.recursive(
    leaves(),
    lambda inner: (
        st.builds(lambda a, b: a & b, inner, inner)
        | st.builds(lambda a, b: a | b, inner, inner)
        | st.builds(lambda a: ~a, inner)
    ),
    max_leaves=5,
)


def as_table(values: list[dict[str, Any]]) -> pa.Table:
    out = [
        {**{k: v for k, v in row.items() if "." not in k},
         "n": None if row["n.x"] is None and row["b"] else {"x": row["n.x"]}}
        for row in values
    ]  # fmt: skip
    return pa.Table.from_pylist(out, arrow_schema(SCHEMA))


def collected(table: pa.Table) -> dict[str, Any]:
    collector = StatsCollector(SCHEMA, indexed=-1)
    for batch in table.to_batches(max_chunksize=2):
        collector.update(batch)
    return collector.finish()


def check(predicate: Expression, bounds: Bounds, table: pa.Table) -> None:
    truths = mask(predicate, table).to_pylist()
    (kept,) = keep(predicate, bounds).to_pylist()
    (certain,) = always(predicate, bounds).to_pylist()
    assert kept or True not in truths
    assert not certain or truths == [True] * len(truths)


@settings(max_examples=examples(400))
@given(st.lists(rows, min_size=1, max_size=4), predicates)
def test_our_statistics_never_lie(values: list[dict[str, Any]], predicate: Expression) -> None:
    table = as_table(values)
    bound = bind(predicate, SCHEMA)
    paths = columns_of(bound)
    text = stats_json(collected(table))
    physical = {path: path for path in paths}
    check(bound, json_bounds(pa.chunked_array([[text]]), SCHEMA, paths, physical), table)
    # Without statistics nothing is left out, and nothing is certain but constants.
    nothing = json_bounds(pa.chunked_array([pa.nulls(1, pa.string())]), SCHEMA, paths, physical)
    check(bound, nothing, table)


@settings(max_examples=examples(200))
@given(st.lists(rows, min_size=1, max_size=4), predicates)
def test_parquet_footers_never_lie(values: list[dict[str, Any]], predicate: Expression) -> None:
    table = as_table(values)
    sink = io.BytesIO()
    pq.write_table(table, sink)
    bound = bind(predicate, SCHEMA)
    leaves = {path: path for path in columns_of(bound)}
    bounds = row_group_bounds(FileFooter.of(pq.ParquetFile(sink)), leaves, SCHEMA)
    check(bound, bounds, table)


@given(st.lists(rows, min_size=1, max_size=4), predicates)
def test_a_checkpoints_structs_never_lie(
    values: list[dict[str, Any]], predicate: Expression
) -> None:
    table = as_table(values)
    stats = collected(table)
    low, high = {}, {}
    for name in ("i", "d", "t", "m"):
        column = table[name].combine_chunks()
        present = [value for value in column.to_pylist() if value is not None]
        low[name], high[name] = min(present, default=None), max(present, default=None)
    bounded = pa.struct([ARROW.field(name) for name in ("i", "d", "t", "m")])
    kind = pa.struct(
        [("numRecords", pa.int64()), ("minValues", bounded), ("maxValues", bounded),
         ("nullCount", pa.struct([(name, pa.int64()) for name in ("i", "d", "t", "m")]))]
    )  # fmt: skip
    parsed = pa.array(
        [{"numRecords": len(values), "minValues": low, "maxValues": high,
          "nullCount": stats["nullCount"]}], kind
    )  # fmt: skip
    bound = bind(predicate, SCHEMA)
    paths = columns_of(bound)
    physical = {path: path for path in paths}
    check(bound, struct_bounds(pa.chunked_array([parsed]), SCHEMA, paths, physical), table)


@pytest.mark.parametrize(
    ("stats", "where"),
    [
        # NaN is above the greatest value that other writers state.
        ({"numRecords": 2, "maxValues": {"f": 1.0}, "minValues": {"f": 0.0}}, "f > 5"),
        # Timestamps are cut to milliseconds.
        ({"numRecords": 1, "maxValues": {"t": "2020-01-01T00:00:00.001Z"}},
         "t > '2020-01-01 00:00:00.0012'"),
        # After a delete, a null count between none and all says nothing.
        ({"numRecords": 5, "nullCount": {"i": 3}, "tightBounds": False}, "i IS NULL"),
        # An old mark of truncation is not above every text.
        ({"numRecords": 1, "minValues": {"s": "a"}, "maxValues": {"s": "a\ufffd"}},
         "s = 'a\U0001f600'"),
        # Numbers of more digits than a float holds.
        ({"numRecords": 1, "minValues": {"m": 12345678901234567890.1234},
          "maxValues": {"m": 12345678901234567890.1234}}, "m = 12345678901234567890.1234"),
        # What cannot be read is unknown.
        ({"numRecords": "many", "minValues": {"i": "7"}, "maxValues": 3, "nullCount": []}, "i = 1"),
        ({"minValues": {"d": "soon"}, "maxValues": {"d": "2020-99-99"}}, "d = '2020-01-01'"),
        ({"minValues": {"t": "1900-01-01T01:24:00.000+01:24"}}, "t < '1900-01-01 01:00:00'"),
        # A digit that a float cannot hold is lost in reading, however short the float's text is.
        ({"maxValues": {"e": Raw("0.10000000000000000001")}}, "e = 0.10000000000000000001"),
        ({"maxValues": {"m": Raw("100000000000000000000001")}}, "m = 100000000000000000000001"),
        # A writer's own arithmetic in floats may be off by more than the last bit.
        ({"minValues": {"m": 12345678901234567890.5}}, "m = 12345678901234566000.1234"),
        ({"maxValues": {"m": "1.2345678901234567e+19"}}, "m = 12345678901234567890.1234"),
        ({"maxValues": {"m": 12345678901234567000}}, "m = 12345678901234567890.1234"),
        # A 32-bit float in a column that is of doubles by now: less than its text.
        ({"minValues": {"f": 0.7}}, "f < 0.69999999"),
        # Spark leaves out the seconds of historic offsets: this was at 00:00:00 UTC.
        ({"minValues": {"t": "1890-01-01T00:53:28.000+00:53"}}, "t = '1890-01-01 00:00:00'"),
        ({"maxValues": {"t": "1879-12-31T16:07:02.000-07:52"}}, "t = '1880-01-01 00:00:00'"),
        # Cut towards zero, which is upwards before the epoch.
        ({"minValues": {"t": "1969-12-31T23:59:59.999Z"}}, "t = '1969-12-31 23:59:59.9985'"),
        # Bounds that contradict each other say nothing.
        ({"minValues": {"i": 9}, "maxValues": {"i": 1}}, "i = 100"),
        # Whatever is not plainly tight is wide.
        ({"numRecords": 5, "nullCount": {"i": 3}, "tightBounds": "false"}, "i IS NULL"),
        ({"numRecords": 5, "nullCount": {"i": -1}}, "i = 1"),
        ({"numRecords": None, "nullCount": {"i": 5}}, "i = 1"),
        ({"numRecords": "5", "nullCount": {"i": "5"}}, "i = 1"),
        ({"minValues": {"b": True}, "maxValues": {"b": True}}, "b = FALSE"),
    ],
)  # fmt: skip
def test_statistics_of_others_leave_nothing_out(stats: dict[str, Any], where: str) -> None:
    bound = bind(parse_sql(where), SCHEMA)
    paths = columns_of(bound)
    text = orjson.dumps(stats, default=lambda raw: orjson.Fragment(raw.digits)).decode()
    bounds = json_bounds(pa.chunked_array([[text]]), SCHEMA, paths, {p: p for p in paths})
    assert keep(bound, bounds).to_pylist() == [True]


def parsed_bounds(where: Expression, stats: dict[str, Any], **kinds: pa.DataType) -> Bounds:
    """Return the bounds of a struct that gives columns the types `kinds`."""
    held = pa.struct(list(kinds.items()))
    counts = pa.struct([(name, pa.int64()) for name in kinds])
    kind = pa.struct(
        [("numRecords", pa.int64()), ("tightBounds", pa.bool_()), ("minValues", held),
         ("maxValues", held), ("nullCount", counts)]
    )  # fmt: skip
    structs = pa.chunked_array([pa.array([stats], kind)])
    paths = columns_of(where)
    return struct_bounds(structs, SCHEMA, paths, {path: path for path in paths})


US = pa.timestamp("us", "UTC")
LAST_US = 2**63 - 1


@pytest.mark.parametrize(
    ("stats", "kind", "where"),
    [
        # A count below zero is none, least of all our own mark of "all".
        ({"numRecords": 3, "nullCount": {"i": -1}}, pa.int32(), "i = 1"),
        ({"numRecords": -3, "nullCount": {"i": -3}}, pa.int32(), "i = 1"),
        ({"numRecords": 3, "tightBounds": False, "nullCount": {"i": 1}}, pa.int32(), "i IS NULL"),
        ({"minValues": {"i": 9}, "maxValues": {"i": 1}}, pa.int32(), "i = 100"),
        ({"minValues": {"i": "9"}, "maxValues": {"i": "9"}}, pa.string(), "i = 100"),
        ({"minValues": {"i": True}, "maxValues": {"i": True}}, pa.bool_(), "i = 100"),
        ({"minValues": {"t": TIMES[-1]}, "maxValues": {"t": TIMES[-1]}}, pa.timestamp("ns", "UTC"),
         "t = '9999-12-31 00:00:00'"),
        ({"minValues": {"t": 0}, "maxValues": {"t": 0}}, pa.int64(), "t = '2020-01-01'"),
        ({"maxValues": {"t": LAST_US}}, US, "t = '2020-01-01'"),
        ({"minValues": {"t": -(2**63)}}, US, "t = '2020-01-01'"),
        ({"minValues": {"t": -2524521599_999_000}}, US, "t = '1890-01-01 00:00:00'"),
        ({"minValues": {"f": 0.7}}, pa.float64(), "f < 0.69999999"),
        ({"maxValues": {"f": 1.0}}, pa.float64(), "f = CAST('NaN' AS DOUBLE)"),
        ({"minValues": {"e": Decimal("0.1")}, "maxValues": {"e": Decimal("0.1")}},
         pa.decimal128(38, 20), "e = 0.10000000000000000001"),
        ({"minValues": {"s": "a"}, "maxValues": {"s": "a\ufffd"}}, pa.string(),
         "s = 'a\U0001f600'"),
    ],
)  # fmt: skip
def test_structs_of_others_leave_nothing_out(
    stats: dict[str, Any], kind: pa.DataType, where: str
) -> None:
    bound = bind(parse_sql(where), SCHEMA)
    ((name,),) = columns_of(bound)
    bounds = parsed_bounds(bound, stats, **{name: kind})
    assert keep(bound, bounds).to_pylist() == [True]
    assert always(bound, bounds).to_pylist() == [False]


@pytest.mark.parametrize(
    "parsed",
    [pa.array([7]), pa.array([{}], pa.struct([])), pa.array([{"numRecords": "many"}]),
     pa.array([{"numRecords": {"x": 1}, "minValues": 3, "nullCount": [1]}]),
     pa.nulls(1, pa.struct([("minValues", pa.struct([("i", pa.int32())]))])), pa.nulls(1)],
    ids=["number", "empty", "text", "odd", "null", "void"],
)  # fmt: skip
def test_odd_structs_leave_nothing_out(parsed: pa.Array) -> None:
    bound = bind(col("i") == 1, SCHEMA)
    structs = pa.chunked_array([parsed])
    bounds = struct_bounds(structs, SCHEMA, [("i",)], {("i",): ("i",)})
    assert keep(bound, bounds).to_pylist() == [True]
    files = pa.table({"stats": pa.nulls(1, pa.string()), "stats_parsed": structs})
    assert num_records(files).to_pylist() == [None]


@pytest.mark.parametrize(
    ("where", "kept", "certain"),
    [
        ("s LIKE 'ab%'", True, True), ("s LIKE 'abc%'", True, False), ("s LIKE 'b%'", False, False),
        ("s NOT LIKE 'ab%'", False, False), ("s NOT LIKE 'abc%'", True, False),
        ("s LIKE '%'", True, True), ("s NOT LIKE '%'", False, False), ("s LIKE '_%'", True, False),
        ("s LIKE 'ab'", False, False), ("s LIKE 'abd'", True, False), ("s LIKE 'ac'", False, False),
        ("s LIKE 'ab%%'", True, True), ("s LIKE 'ab%x'", True, False), ("s LIKE ''", False, False),
        ("s LIKE 'ab_'", True, False), ("s LIKE 'ac_'", False, False), ("s LIKE 'a\\\\_%'", False,
        False), ("startswith(s, 'ab')", True, True), ("endswith(s, 'b')", True, False),
    ],
)  # fmt: skip
def test_a_pattern_is_held_against_the_bounds(where: str, kept: bool, certain: bool) -> None:
    text = '{"numRecords":3,"minValues":{"s":"abc"},"maxValues":{"s":"abx"},"nullCount":{"s":0}}'
    bound = bind(parse_sql(where), SCHEMA)
    bounds = json_bounds(pa.chunked_array([[text]]), SCHEMA, [("s",)], {("s",): ("s",)})
    assert keep(bound, bounds).to_pylist() == [kept]
    assert always(bound, bounds).to_pylist() == [certain]


@pytest.mark.parametrize(
    ("low", "high", "values", "kept"),
    [
        (10, 19, range(0, 2000, 5), True),
        (11, 14, range(0, 2000, 5), False),
        (15, 15, range(0, 2000, 5), True),
        (-9, -1, range(0, 2000, 5), False),
        (1996, 9999, range(0, 2000, 5), False),
        (None, 14, range(0, 2000, 5), True),
        (11, None, range(0, 2000, 5), True),
        (dt.date(2020, 1, 2), dt.date(2020, 1, 3), [dt.date(2020, 1, 1)] * 120, False),
        (dt.date(2020, 1, 1), dt.date(2020, 1, 3), [dt.date(2020, 1, 1)] * 120, True),
        (TIMES[1], TIMES[3], [TIMES[0], TIMES[4]] * 60, False),
        (TIMES[1], TIMES[4], [TIMES[0], TIMES[4]] * 60, True),
        ("b", "c", ["a", "d"] * 60, True),
        ("b", "c", ["a"] * 120, False),
    ],
)
@pytest.mark.parametrize("text", [False, True], ids=["in", "or"])
def test_a_long_list_is_held_against_the_bounds(
    low: Any, high: Any, values: Any, kept: bool, text: bool
) -> None:
    kind = {int: pa.int32(), dt.date: pa.date32(), str: pa.string()}.get(
        type(values[0]), pa.timestamp("us", "UTC")
    )
    one = col("x").isin(values) if not text else Or(tuple(col("x") == value for value in values))
    where = bind(one, from_arrow(pa.schema([("x", kind)])))
    known = ColumnBounds(*(pa.array([v], kind) for v in (low, high)), pa.array([0], pa.int64()))
    assert keep(where, Bounds(pa.array([5]), {("x",): known})).to_pylist() == [kept]


def test_one_text_alone_is_known() -> None:
    text = '{"numRecords":3,"minValues":{"s":"ab"},"maxValues":{"s":"ab"},"nullCount":{"s":0}}'
    for where, kept, certain in (("s LIKE 'ab'", True, True), ("s NOT LIKE 'ab'", False, False)):
        bound = bind(parse_sql(where), SCHEMA)
        bounds = json_bounds(pa.chunked_array([[text]]), SCHEMA, [("s",)], {("s",): ("s",)})
        assert keep(bound, bounds).to_pylist() == [kept]
        assert always(bound, bounds).to_pylist() == [certain]


@pytest.mark.parametrize("text", ["null", "", "{", "[]", "7", '"x"'])
def test_broken_texts_leave_nothing_out(text: str) -> None:
    bound = bind(col("i") == 1, SCHEMA)
    bounds = json_bounds(pa.chunked_array([[text]]), SCHEMA, [("i",)], {("i",): ("i",)})
    assert keep(bound, bounds).to_pylist() == [True]
    assert always(bound, bounds).to_pylist() == [False]


@pytest.mark.parametrize(
    ("where", "kept"),
    [("i > 9", False), ("i > 8", True), ("i = 1", False), ("i IN (1, 10)", False),
     ("i IS NULL", False), ("s LIKE 'c%'", False), ("s LIKE 'b%'", True), ("NOT i <= 9", False),
     ("n.x > 5", False), ("i = 5 AND s > 'z'", False), ("i = 1 OR s > 'z'", False)],
)  # fmt: skip
def test_files_are_left_out(where: str, kept: bool) -> None:
    stats = (
        '{"numRecords":3,"minValues":{"i":3,"s":"a","n":{"x":1}},'
        '"maxValues":{"i":9,"s":"bz","n":{"x":5}},"nullCount":{"i":0,"s":0,"n":{"x":0}}}'
    )
    bound = bind(parse_sql(where), SCHEMA)
    paths = columns_of(bound)
    bounds = json_bounds(pa.chunked_array([[stats]]), SCHEMA, paths, {p: p for p in paths})
    assert keep(bound, bounds).to_pylist() == [kept]
