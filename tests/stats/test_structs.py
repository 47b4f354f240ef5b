"""Statistics as structs: the fast and the simple way agree, and unusual ones are no error."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.schema.arrow import from_arrow
from txlog.schema.types import StructField, StructType
from txlog.stats import structs
from txlog.stats.structs import (
    _read_plainly,
    _read_quickly,
    stats_type,
    typed_partition_values,
    typed_stats,
)

SCHEMA = from_arrow(
    pa.schema(
        [
            ("byte", pa.int8()),
            ("long", pa.int64()),
            ("short", pa.float32()),
            ("double", pa.float64()),
            ("text", pa.string()),
            ("flag", pa.bool_()),
            ("bytes", pa.binary()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("price", pa.decimal128(10, 2)),
            ("list", pa.list_(pa.int64())),
            ("inner", pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])),
        ]
    )
)
KIND = stats_type(SCHEMA, indexed=-1)
DOCUMENT = {
    "numRecords": 3,
    "minValues": {
        "byte": -1, "long": 2, "short": 0.1, "double": 0.1, "text": "a", "flag": True,
        "day": "2020-01-02", "at": "2020-01-02T03:04:05.678Z", "local": "2020-01-02T03:04:05.678",
        "price": 1.25, "inner": {"a": 7, "b": {"c": "z"}},
    },
    "nullCount": {"byte": 0, "list": 1, "bytes": 2, "inner": {"a": 1}},
    "tightBounds": False,
}  # fmt: skip


def read(*texts: str | None) -> list[Any]:
    return typed_stats(pa.table({"stats": pa.array(texts, pa.string())}), KIND).to_pylist()


def test_values_are_those_of_the_text() -> None:
    (found,) = read(orjson.dumps(DOCUMENT).decode())
    assert found["numRecords"] == 3
    assert found["tightBounds"] is False
    low = found["minValues"]
    assert "flag" not in low
    assert "list" not in low
    assert low["short"] == pytest.approx(0.1)
    assert {name: low[name] for name in ("byte", "long", "double", "text", "inner")} == {
        "byte": -1, "long": 2, "double": 0.1, "text": "a", "inner": {"a": 7, "b": {"c": "z"}}
    }  # fmt: skip
    assert low["day"] == date(2020, 1, 2)
    assert low["at"] == datetime(2020, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    assert low["local"] == datetime(2020, 1, 2, 3, 4, 5, 678000)
    assert low["price"] == Decimal("1.25")
    assert found["nullCount"]["inner"] == {"a": 1, "b": {"c": None}}
    assert found["nullCount"]["list"] == 1
    assert found["maxValues"]["at"] is None


def test_only_so_many_columns_have_statistics() -> None:
    kind = stats_type(SCHEMA, indexed=2)
    assert [field.name for field in kind.field("nullCount").type] == ["byte", "long"]
    assert [field.name for field in kind.field("minValues").type] == ["byte", "long"]
    none = stats_type(SCHEMA, indexed=0)
    assert [field.name for field in none] == ["numRecords", "tightBounds"]


ODD = [
    None, "", " ", "null", "[]", "{", "{}{}", "{}\n{}", '{"numRecords":"3"}', '{"numRecords":3.0}',
    '{"numRecords":1e3}', '{"numRecords":99999999999999999999}', '{"numRecords":true}', "\\ud800",
    '{"minValues":[]}', '{"minValues":null}', '{"minValues":{"inner":3}}', '{"nullCount":7}',
    '{"minValues":{"text":"\\ud800"}}', '{"tightBounds":"true"}', '{"minValues":{"double":NaN}}',
    '{"a":1,"a":2}', '{"numRecords":1}}', '{"s":{}},{"s":{}', '\ufeff{"numRecords":1}',
]  # fmt: skip
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 127, 128, -129, 2**31, 2**63 - 1, 2**63, -(2**63) - 1]),
    st.sampled_from([0.0, -0.0, 0.1, 1.25, 1.255, 1e300, 5e-324, 3.4e38, 12345678.9]),
    st.sampled_from(["", "a", "é", "\u0000", "Infinity", "-Infinity", "NaN", "1", "1.5", "�"]),
    st.sampled_from(["2020-01-02", "2020-13-02", "0001-01-01", "9999-12-31", "10000-01-01"]),
    st.sampled_from(
        [
            "2020-01-02T03:04:05.678Z", "2020-01-02T03:04:05Z", "2020-01-02T03:04:05.678",
            "2020-01-02 03:04:05", "2020-01-02T03:04:05.678+02:00", "2020-01-02T03:04:60Z",
            "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999999Z",
            "2020-01-02T03:04:05.1234567Z",
        ]
    ),
    st.just({"x": 1}),
    st.just([1]),
)  # fmt: skip
inner = st.fixed_dictionaries(
    {}, optional={"a": scalars, "b": st.one_of(scalars, st.just({"c": "x"}))}
)
names = [field.name for field in SCHEMA.fields]
columns = st.dictionaries(st.sampled_from([*names, "unknown"]), scalars, max_size=4)
documents = st.fixed_dictionaries(
    {},
    optional={
        "numRecords": scalars,
        "tightBounds": st.sampled_from([True, False, None, "true", 1]),
        **{
            name: st.one_of(columns, scalars, st.builds(lambda held: {"inner": held}, inner))
            for name in ("minValues", "maxValues", "nullCount")
        },
    },
)


@st.composite
def texts(draw: Any) -> str | None:
    if draw(st.booleans()) and draw(st.booleans()):
        return draw(st.sampled_from(ODD))  # type: ignore[no-any-return]
    import json

    text = json.dumps(draw(documents))
    return draw(st.sampled_from([text, f" {text}\t", text.replace(",", ", ")]))  # type: ignore[no-any-return]


@pytest.mark.slow
@settings(max_examples=examples(1000))
@given(st.lists(texts(), min_size=1, max_size=3))
def test_the_quick_way_is_the_plain_one(held: list[str | None]) -> None:
    array = pa.array(held, pa.string())
    plainly = _read_plainly(array, KIND)
    plainly.validate(full=True)
    quickly = _read_quickly(array, KIND)
    if quickly is not None:
        assert quickly.to_pylist() == plainly.to_pylist()


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_one_odd_text_is_null_and_its_neighbours_are_read(odd: str | None) -> None:
    good = '{"numRecords":1}'
    found = read(good, odd, good)
    assert found[0]["numRecords"] == found[2]["numRecords"] == 1
    assert found[1] is None or set(found[1]) == {field.name for field in KIND}


def test_chunks_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [None if at % 3 else f'{{"numRecords":{at}}}' for at in range(10)]
    whole = read(*held)
    monkeypatch.setattr(structs, "_CHUNK_ROWS", 3)
    assert read(*held) == whole
    assert read() == []


def test_structs_of_an_older_checkpoint_are_taken_over() -> None:
    older = pa.array(
        [{"numRecords": 5, "minValues": {"byte": 3, "day": "x"}}, None, {"numRecords": 9}]
    )
    files = pa.table({"stats": pa.array([None, None, '{"numRecords":1}']), "stats_parsed": older})
    found = typed_stats(files, KIND).to_pylist()
    assert found[0]["numRecords"] == 5
    assert found[0]["minValues"]["byte"] == 3
    assert found[0]["minValues"]["day"] is None
    assert found[1] is None
    assert found[2]["numRecords"] == 1


def test_partition_values_that_are_none_are_null() -> None:
    fields = from_arrow(pa.schema([("n", pa.int32()), ("day", pa.date32()), ("s", pa.string())]))
    kind = pa.map_(pa.string(), pa.string())
    maps = pa.array(
        [
            [("n", "1"), ("day", "2020-01-02"), ("s", "x")],
            [("n", "one"), ("day", ""), ("s", None)],
            [("n", "99999999999"), ("day", "never")],
            None,
        ],
        kind,
    )
    found = typed_partition_values(maps, fields.fields, mapping_mode="none").to_pylist()
    nothing = {"n": None, "day": None, "s": None}
    assert found == [{"n": 1, "day": date(2020, 1, 2), "s": "x"}, nothing, nothing, None]


def test_names_are_those_in_files() -> None:
    mapped = StructField(
        "a", SCHEMA.fields[1].type, True, {"delta.columnMapping.physicalName": "col-1"}
    )
    kind = stats_type(StructType((mapped,)), indexed=-1, mapping_mode="name")
    assert [field.name for field in kind.field("minValues").type] == ["col-1"]
