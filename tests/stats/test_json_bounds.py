"""Bounds read from the bytes of JSON texts, compared with those of a parser."""

import json
import random
from importlib import import_module
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spelling import STYLES, spelled

from txlog.actions.stats_text import quick_document
from txlog.schema.types import DecimalType, PrimitiveType, StructField, StructType
from txlog.stats.file_bounds import bound_type
from txlog.stats.json_bounds import json_bounds, parsed_bounds, plain_values
from txlog.stats.json_scan import JsonScan
from txlog.stats.skip import Bounds

MODULE = import_module("txlog.stats.json_bounds")
KINDS = {
    "n": PrimitiveType("long"),
    "n0": PrimitiveType("integer"),
    "d": PrimitiveType("double"),
    "s": PrimitiveType("string"),
    "day": PrimitiveType("date"),
    "at": PrimitiveType("timestamp"),
    "local": PrimitiveType("timestamp_ntz"),
    "nanos": PrimitiveType("timestamp_nanos"),
    "m": DecimalType(10, 2),
    'odd"ü': PrimitiveType("long"),
    'odd"n': PrimitiveType("long"),
    "back\\": PrimitiveType("long"),
}
SCHEMA = StructType(
    (
        *(StructField(name, kind) for name, kind in KINDS.items()),
        StructField("nest", StructType((StructField("n", PrimitiveType("long")),))),
    )
)
PATHS = [*((name,) for name in KINDS), ("nest", "n")]

numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.integers(0, 3))
words = st.one_of(
    st.text(alphabet='ab{}",\\:ü�', max_size=6),
    st.sampled_from(["2026-01-02", "2026-01-02T03:04:05.678Z", "x" * 60, '"n":', "tightBounds"]),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, words)
values = st.one_of(scalars, st.lists(scalars, max_size=2))
sections = st.dictionaries(st.sampled_from([*KINDS, "x"]), values, max_size=6).flatmap(
    lambda held: (
        st.just(held) | st.just({"nest": {"n": 1}, **held}) | st.just(held | {"nest": {"n": 7}})
    )
)
documents = st.fixed_dictionaries(
    {},
    optional={
        "numRecords": scalars,
        "minValues": sections,
        "maxValues": sections,
        "nullCount": sections,
        "tightBounds": st.sampled_from([True, False, None, 1]),
        "more": sections,
    },
)


@st.composite
def texts(draw: st.DrawFn) -> str | None:
    document = draw(documents)
    for name in draw(st.permutations(sorted(document))):
        document[name] = document.pop(name)
    text = _dumped(document)
    match draw(st.integers(0, 9)):
        case 0:
            return None
        case 1:
            return json.dumps(orjson.loads(text))  # With spaces, and non-ASCII escaped.
        case 2:
            return spelled(json.loads(text), draw(st.randoms(use_true_random=False)))
        case 3:
            return draw(st.sampled_from(["", "null", "[]", " " + text, text + "\n"]))
    return text


def _dumped(document: Any) -> str:
    return json.dumps(
        json.loads(json.dumps(document), parse_constant=lambda _: None),
        separators=(",", ":"),
        ensure_ascii=False,
    )


def _restyled(text: str | None, style: Any) -> str | None:
    try:
        return text and style(orjson.loads(text))  # type: ignore[no-any-return]
    except orjson.JSONDecodeError:
        return text


def same(ours: Bounds, plain: Bounds) -> None:
    assert ours.rows.equals(plain.rows)
    for path, known in plain.columns.items():
        found = ours.columns.get(path)
        if found is None:  # There are no texts.
            assert known.low.null_count == known.high.null_count == len(known.low)
            assert known.nulls.null_count == len(known.nulls)
            continue
        for side in ("low", "high", "nulls"):
            assert getattr(found, side).equals(getattr(known, side)), (path, side)


@given(
    st.lists(st.lists(texts(), max_size=5), max_size=3),
    st.integers(0, 2),
    st.integers(1, 6),
    st.sampled_from([None, *STYLES]),
)
def test_bytes_say_what_the_parser_says(
    found: list[list[str | None]], cut: int, together: int, style: Any
) -> None:
    if style is not None:  # One writer spells all of its texts alike.
        found = [[_restyled(text, style) for text in some] for some in found]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "_FEW", -1)
        patch.setattr(MODULE, "_MANY", together)
        arrays = [pa.array(some, pa.string()).slice(min(cut, len(some))) for some in found]
        column = pa.chunked_array(arrays, pa.string())
        physical = {path: path for path in PATHS}
        ours = json_bounds(column, SCHEMA, PATHS, physical)
        same(ours, parsed_bounds(column, SCHEMA, PATHS, physical))


def test_objects_of_alike_texts_are_found_by_their_braces() -> None:
    text = '{"numRecords":3,"minValues":{"n":%d},"maxValues":{"n":%d},"nullCount":{"n":0}}'
    alike = [text % (at, at * 1000) for at in range(9)]
    assert JsonScan(pa.array(alike))._in_line is not None
    assert JsonScan(pa.array([*alike, '{"numRecords":3}']))._in_line is None


DOCUMENT = {
    "numRecords": 3,
    "minValues": {"n": 1, "s": "a"},
    "maxValues": {"n": 2, "s": "b c"},
    "nullCount": {"n": 0, "s": 1},
    "tightBounds": True,
}
ORDERS = [tuple(DOCUMENT), tuple(reversed(DOCUMENT)), ("maxValues", "numRecords", "nullCount")]


@pytest.mark.parametrize("style", STYLES, ids=["compact", "json.dumps", "commas", "colons"])
@pytest.mark.parametrize("order", ORDERS, ids=["usual", "reversed", "others"])
def test_no_usual_spelling_is_parsed(
    monkeypatch: pytest.MonkeyPatch, style: Any, order: tuple[str, ...]
) -> None:
    documents = [
        {name: DOCUMENT[name] for name in order} | {"maxValues": {"n": at * 1000, "s": "b c"}}
        for at in range(200)
    ]
    column = pa.chunked_array([list(map(style, documents))])
    paths = [("n",), ("s",)]
    physical = {path: path for path in paths}
    plain = parsed_bounds(column, SCHEMA, paths, physical)

    def refuse(_: Any) -> Any:
        raise AssertionError("a text was parsed")

    monkeypatch.setattr(MODULE, "quick_document", refuse)
    same(json_bounds(column, SCHEMA, paths, physical), plain)


def test_odd_spellings_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(5)
    column = pa.chunked_array([[spelled(DOCUMENT, chance) for _ in range(500)]])
    paths = [("n",), ("s",)]
    physical = {path: path for path in paths}
    plain = parsed_bounds(column, SCHEMA, paths, physical)
    count = 0
    parse = quick_document

    def counted(text: str | None) -> Any:
        nonlocal count
        count += 1
        return parse(text)

    monkeypatch.setattr(MODULE, "quick_document", counted)
    same(json_bounds(column, SCHEMA, paths, physical), plain)
    assert count < 2.2 * 500, "once for the number of rows, and once for all columns"


@pytest.mark.parametrize("name", ["minValues", "nullCount", "numRecords"])
def test_columns_with_the_names_of_statistics(name: str) -> None:
    schema = StructType((StructField(name, PrimitiveType("long")),))
    text = '{"numRecords":3,"minValues":{"%s":1},"maxValues":{"%s":2},"nullCount":{"%s":0}}'
    column = pa.chunked_array([[text.replace("%s", name)] * 100])
    paths = {(name,): (name,)}
    same(
        json_bounds(column, schema, list(paths), paths),
        parsed_bounds(column, schema, list(paths), paths),
    )


def test_names_that_differ_in_the_middle() -> None:
    names = ["sensor_1_reading", "sensor_2_reading"]
    schema = StructType(tuple(StructField(name, PrimitiveType("long")) for name in names))
    text = '{"numRecords":3,"minValues":{"%s":%d},"maxValues":{"%s":9},"nullCount":{"%s":0}}'
    column = pa.chunked_array(
        [[text % (name, at, name, name) for at in range(99) for name in names]]
    )
    paths: dict[tuple[str, ...], tuple[str, ...]] = {(name,): (name,) for name in names}
    same(
        json_bounds(column, schema, list(paths), paths),
        parsed_bounds(column, schema, list(paths), paths),
    )


TOKENS = [
    *("0", "-0", "7", "-7", "007", "-01", "00", "-", "--1", "1-", "+1", "1.5", "1e3", "."),
    *("12345678901234567", "123456789012345678", "1234567890123456789", "-12345678901234567"),
    *("-123456789012345678", "99999999999999999999", "", "x", "null", "true", '"5"', "[5]"),
    *("0.1", "-0.1", "16777217", "3.5e38", "-3.5e38", "1e308", "1e309", "-1e999", "5e-324", "1."),
    *("1e", "0.30000000000000004", "-0.0", "NaN", "Infinity", '"-Infinity"', '"NaN"', "1E+2"),
]


@pytest.mark.slow
@pytest.mark.parametrize("others", [["5"], ["-5", "0"], ["1.5"], []])
@pytest.mark.parametrize("token", TOKENS)
def test_numbers_of_all_forms(token: str, others: list[str]) -> None:
    kinds = {"n": PrimitiveType("long"), "d": PrimitiveType("double"), "m": DecimalType(20, 1)}
    kinds |= {"f": PrimitiveType("float"), "s": PrimitiveType("string")}
    schema = StructType(tuple(StructField(name, kind) for name, kind in kinds.items()))
    held = ",".join(f'"{name}":%s' for name in kinds)
    text = f'{{"numRecords":%s,"minValues":{{{held}}},"maxValues":{{}},"nullCount":{{{held}}}}}'
    paths: dict[tuple[str, ...], tuple[str, ...]] = {(name,): (name,) for name in kinds}
    texts = [text % ((one,) * (1 + 2 * len(kinds))) for one in [token, *others]]
    for column in (pa.chunked_array([texts * 70]), pa.chunked_array([[*texts, *["{}"] * 70]])):
        same(
            json_bounds(column, schema, list(paths), paths),
            parsed_bounds(column, schema, list(paths), paths),
        )


MOMENTS = [
    *("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05.678901Z", "2026-01-02 03:04:05Z"),
    *("2026-01-02T03:04:05.6+05:30", "2026-01-02T23:59:59-08:00", "2026-01-02T03:04:05+24:10"),
    *("2026-01-02T03:04:05.678", "2026-01-02 03:04:05", "2026-01-02", "2026-01-02T03:04"),
    *("1970-01-01T00:00:00.000Z", "1960-05-06T07:08:09.123Z", "1972-04-30T23:59:59.999-00:44"),
    *("1972-05-01T00:00:00.000-00:44", "1582-10-10", "0001-01-01T00:00:00Z", "9999-12-31"),
    *("9999-12-31T23:59:59.999999Z", "10000-01-01T00:00:00Z", "-0044-03-15", "1900-02-29"),
    *("2024-02-29T00:00:00Z", "2023-02-29T00:00:00Z", "2026-01-02T24:00:00Z", "2026-1-2", ""),
    *("2026-01-02T03:04:60Z", "2026-01-02T03:04:05.1234567Z", "2026-01-02T03:04:05 UTC", " "),
    *("2026-01-02T03:04:05z", "2026-13-01", "2026-01-00", "T03:04:05Z", "2026-01-02T03:04:05+0530"),
]


TEXTS = ["a", "é", "a\ufffd", "\ufffda", "a\nb", "a\x1fb", "\x7f", 'q"q', "back\\slash", "{"]


@pytest.mark.slow
@pytest.mark.parametrize("others", [[], MOMENTS[:1], MOMENTS[6:7], MOMENTS[8:9]])
@pytest.mark.parametrize("moment", MOMENTS + TEXTS)
def test_moments_and_texts_of_all_forms(moment: str, others: list[str]) -> None:
    kinds = {name: PrimitiveType(name) for name in ("timestamp", "timestamp_ntz", "date", "string")}
    schema = StructType(tuple(StructField(name, kind) for name, kind in kinds.items()))
    texts = [
        _dumped({"minValues": held, "maxValues": held})
        for one in [moment, *others]
        for held in (dict.fromkeys(kinds, one), {})
    ]
    column = pa.chunked_array([texts * 40])
    paths: dict[tuple[str, ...], tuple[str, ...]] = {(name,): (name,) for name in kinds}
    same(
        json_bounds(column, schema, list(paths), paths),
        parsed_bounds(column, schema, list(paths), paths),
    )


@pytest.mark.parametrize(
    ("kind", "tokens"),
    [
        ("long", [1, None]),
        ("double", ["1.5", None, "-2e3"]),
        ("double", [1, None]),
        ("string", ['"a"', None, '""']),
        ("date", ['"2026-01-02"', None]),
        ("timestamp", ['"2026-01-02T03:04:05.678Z"', None, '"2026-01-02T03:04:05+01:00"']),
        ("timestamp_ntz", ['"2026-01-02T03:04:05.678"', None]),
    ],
)
def test_values_in_the_usual_forms_are_read_at_once(kind: str, tokens: list[Any]) -> None:
    for up in (False, True):
        found = plain_values(pa.array(tokens), PrimitiveType(kind), up=up)
        assert found is not None
        assert found.type == bound_type(PrimitiveType(kind))


@pytest.mark.parametrize(
    "text",
    [
        '{"numRecords":1,"minValues":{"n":2},"nullCount":{},"n":7}',
        '{"numRecords":1,"minValues":{"n":2},"n":7,"nullCount":{}}',
        '{"minValues":{"n":1,"maxValues":{"n":5}},"nullCount":{"n":0}}',
        '{"minValues":{"n":1,"maxValues":{"n":5}}}',
        '{"minValues":{"n":1},"numRecords":4,"maxValues":{"n":5}}',
        '{"minValues":{"s":":5,x"},"maxValues":{"s":",","n":5}}',
        '{"numRecords":1,"minValues":{"n":2},"tightBounds":true}',
        '{"numRecords":1,"nullCount":{"n":1},"tightBounds":false}',
        '{"numRecords":1,"tightBounds":false,"nullCount":{"n":1},"minValues":{"s":"}}"}}',
    ],
)
@pytest.mark.parametrize("others", [0, 1])
def test_keys_in_odd_places(text: str, others: int) -> None:
    kinds = {name: PrimitiveType("long") for name in ("n", ":", ",", ":5,")}
    schema = StructType(tuple(StructField(name, kind) for name, kind in kinds.items()))
    plain = '{"numRecords":1,"minValues":{"n":2},"maxValues":{"n":7},"nullCount":{"n":0}}'
    column = pa.chunked_array([[text, *[plain] * others] * 99])
    paths: dict[tuple[str, ...], tuple[str, ...]] = {(name,): (name,) for name in kinds}
    same(
        json_bounds(column, schema, list(paths), paths),
        parsed_bounds(column, schema, list(paths), paths),
    )


def test_a_null_with_bytes_says_nothing() -> None:
    texts = pa.array(['{"numRecords":1,"minValues":{"n":2}}'] * 100)
    mask = pa.array([False, True] * 50)
    buffers = [pc.invert(mask).buffers()[1], *texts.buffers()[1:]]
    column = pa.chunked_array([pa.Array.from_buffers(pa.string(), 100, buffers)])
    assert column.null_count == 50
    schema, paths = StructType((StructField("n", PrimitiveType("long")),)), {("n",): ("n",)}
    found = json_bounds(column, schema, list(paths), paths)
    assert found.columns["n",].low.to_pylist() == [2, None] * 50
    same(found, parsed_bounds(column, schema, list(paths), paths))
