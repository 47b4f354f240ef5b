"""Schemas to `schemaString` and back."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.base.errors import LogCorruptError, UnsupportedFeatureError
from txlog.schema.json import parse_schema, schema_json
from txlog.schema.types import (
    PRIMITIVES,
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    type_name,
)

texts = st.text(st.characters(codec="utf-8"), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(-1e9, 1e9) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
decimals = st.integers(1, 38).flatmap(
    lambda precision: st.builds(DecimalType, st.just(precision), st.integers(0, precision))
)


def structs(types: st.SearchStrategy) -> st.SearchStrategy[StructType]:
    fields = st.builds(
        StructField, texts, types, st.booleans(), st.dictionaries(texts, json_values, max_size=2)
    )
    return st.lists(fields, max_size=4).map(lambda found: StructType(tuple(found)))


types = st.recursive(
    st.builds(PrimitiveType, st.sampled_from(sorted(PRIMITIVES))) | decimals,
    lambda inner: (
        st.builds(ArrayType, inner, st.booleans())
        | st.builds(MapType, inner, inner, st.booleans())
        | structs(inner)
    ),
    max_leaves=6,
)


@given(structs(types))
def test_a_schema_comes_back_whole(schema: StructType) -> None:
    assert parse_schema(schema_json(schema)) == schema


def table_of(kind: str, name: str = "a") -> str:
    return '{"type":"struct","fields":[{"name":"' + name + '","type":' + kind + "}]}"


def test_metadata_are_kept_verbatim() -> None:
    metadata = {
        "delta.columnMapping.id": 4,
        "delta.identity.allowExplicitInsert": False,
        "nested": {"ids": {"a.element": 100}, "none": None},
        "list": [1, "1", 1.5, []],
        "": "ß",
    }
    node = {
        "type": "struct",
        "fields": [{"name": "a", "type": "long", "nullable": False, "metadata": metadata}],
    }
    schema = parse_schema(orjson.dumps(node).decode())
    assert dict(schema.fields[0].metadata) == metadata
    assert orjson.loads(schema_json(schema)) == node
    assert schema.fields[0].field_id == 4
    assert schema.fields[0].physical_name == "a"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('"decimal"', "decimal(10,0)"),
        ('"decimal( 7 , 2 )"', "decimal(7,2)"),
        ('{"type":"variant"}', "variant"),
        ('{"type":"array","elementType":"byte"}', "array<byte>"),
        ('{"type":"map","keyType":"date","valueType":"void"}', "map<date,void>"),
        ('{"type":"struct","fields":[]}', "struct<>"),
    ],
)
def test_what_other_writers_leave_out_or_wrap(text: str, name: str) -> None:
    schema = parse_schema(table_of(text))
    (field,) = schema.fields
    assert type_name(field.type) == name
    assert field.nullable
    assert field.metadata == {}


def nested(text: str) -> str:
    inner = table_of('{"type":"array","elementType":' + text + "}", "b")
    return table_of(inner)


@pytest.mark.parametrize(
    "text",
    [
        '"decimal(39,0)"',
        '"decimal(3,4)"',
        '"decimal(0,0)"',
        '"decimal(5,-1)"',
        "7",
        "null",
        '{"type":"array"}',
        '{"type":"map","keyType":"long"}',
        '{"type":"struct"}',
        "{}",
    ],
)
def test_a_wrong_type_is_named_with_its_column(text: str) -> None:
    with pytest.raises(LogCorruptError) as caught:
        parse_schema(nested(text))
    assert caught.value.field == "a.b.element"


@pytest.mark.parametrize(
    "name", ["int", "interval fortnight", "geometry", "geometry(OGC:CRS84)", "time", "time(6)"]
)
def test_a_type_that_is_not_known_is_no_damage(name: str) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        parse_schema(nested(f'"{name}"'))
    assert caught.value.features == (f"type {name}",)
    assert caught.value.field == "a.b.element"
    assert f"column a.b.element has the type {name}," in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '"long"',
        "[]",
        '{"type":"struct","fields":[{"type":"long"}]}',
        '{"type":"struct","fields":[{"name":"a"}]}',
        '{"type":"struct","fields":["a"]}',
        '{"type":"struct","fields":[{"name":"a","type":"long","metadata":[1]}]}',
    ],
)
def test_what_is_no_schema_is_an_error(text: str) -> None:
    with pytest.raises(LogCorruptError, match="schemaString"):
        parse_schema(text)


def test_depth_is_an_error_and_no_crash() -> None:
    text = '"long"'
    for _ in range(230):
        text = '{"type":"array","elementType":' + text + "}"
    with pytest.raises(LogCorruptError):
        parse_schema(table_of(text))


def test_columns_are_found_by_name_then_by_case() -> None:
    schema = StructType(tuple(StructField(n, PrimitiveType("long")) for n in ("A", "a", "Straße")))
    assert schema.get("a") is schema.fields[1]
    assert schema.get("STRAßE") is schema.fields[2]
    assert schema.get("STRASSE") is None  # Another name, as in Java.
    assert schema.get("b") is None
