"""Delta types and Arrow types."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.base.errors import InvalidInputError
from txlog.schema.arrow import arrow_schema, cast_array, from_arrow
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

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5)
# `void` and `variant` are read, but no Arrow type is written as them.
leaves = st.builds(PrimitiveType, st.sampled_from(sorted(PRIMITIVES - {"void", "variant"})))
decimals = st.integers(1, 38).flatmap(
    lambda precision: st.builds(DecimalType, st.just(precision), st.integers(0, precision))
)


def structs(types: st.SearchStrategy) -> st.SearchStrategy[StructType]:
    fields = st.builds(StructField, names, types, st.booleans())
    return st.lists(fields, min_size=1, max_size=4).map(lambda found: StructType(tuple(found)))


types = st.recursive(
    leaves | decimals,
    lambda inner: (
        st.builds(ArrayType, inner, st.booleans())
        | st.builds(MapType, inner, inner, st.booleans())
        | structs(inner)
    ),
    max_leaves=6,
)


@given(structs(types))
def test_a_schema_comes_back_from_arrow(schema: StructType) -> None:
    assert from_arrow(arrow_schema(schema), nanos=True) == schema


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary_view(), "binary"),
        (pa.binary(16), "binary"),
        (pa.uint8(), "short"),
        (pa.uint16(), "integer"),
        (pa.uint32(), "long"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.float16(), "float"),
        (pa.date64(), "date"),
        (pa.timestamp("ns"), "timestamp_ntz"),
        (pa.timestamp("s", "Europe/Berlin"), "timestamp"),
        (pa.decimal256(30, 4), "decimal(30,4)"),
        (pa.decimal32(5, 5), "decimal(5,5)"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.run_end_encoded(pa.int32(), pa.int16()), "short"),
        (pa.large_list(pa.int64()), "array<long>"),
        (pa.list_(pa.int64(), 3), "array<long>"),
        (pa.list_view(pa.int64()), "array<long>"),
        (pa.large_list_view(pa.int64()), "array<long>"),
        (pa.uuid(), "binary"),
    ],
    ids=str,
)
def test_a_type_that_holds_the_values(kind: pa.DataType, name: str) -> None:
    (field,) = from_arrow(pa.schema([pa.field("a", kind)])).fields
    assert type_name(field.type) == name


@pytest.mark.parametrize(
    "kind",
    [
        pa.null(),
        pa.time32("s"),
        pa.time64("us"),
        pa.duration("s"),
        pa.month_day_nano_interval(),
        pa.decimal256(39, 0),
        pa.decimal128(5, -1),
        pa.sparse_union([pa.field("a", pa.int64())]),
    ],
    ids=str,
)
def test_a_type_without_counterpart_is_named_with_its_column(kind: pa.DataType) -> None:
    inner = pa.struct([pa.field("b", pa.map_(pa.string(), pa.list_(kind)))])
    with pytest.raises(InvalidInputError) as caught:
        from_arrow(pa.schema([pa.field("good", pa.int64()), pa.field("a", inner)]))
    assert caught.value.field == "a.b.value.element"
    assert str(kind) in str(caught.value)


def test_what_only_reading_has() -> None:
    schema = StructType(
        (StructField("v", PrimitiveType("void")), StructField("x", PrimitiveType("variant")))
    )
    arrow = arrow_schema(schema)
    assert arrow.field("v").type == pa.null()
    assert [f.name for f in arrow.field("x").type] == ["value", "metadata"]


LISTS = [[1], [2, 3], None, [], [None], [4]]
TEXT_LISTS = [["a"], ["b", "c"], None, [], [None]]
MAPS = [[("k", 1)], None, [("z", 2), ("y", None)], []]
DICTIONARY = pa.array(["x", "yy"])
INDICES = pa.array([0, 1, None, 1], pa.uint32())
ARRAYS = {
    "list view": pa.array(LISTS, pa.list_view(pa.int8())),
    "large list view": pa.array(LISTS, pa.large_list_view(pa.int64())),
    "large list": pa.array(TEXT_LISTS, pa.large_list(pa.large_string())),
    "fixed list": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int16(), 2)),
    "list of views": pa.array(TEXT_LISTS).cast(pa.list_(pa.string_view())),
    "list of lists": pa.array([LISTS, None, [None]], pa.large_list(pa.list_view(pa.int8()))),
    "map": pa.array(MAPS, pa.map_(pa.large_string(), pa.int8())),
    "map of lists": pa.array(
        [[("k", [1])], None, [("z", None)]], pa.map_(pa.string(), pa.list_view(pa.int8()))
    ),
    "struct": pa.array(
        [{"a": [1]}, None, {"a": None}], pa.struct([("a", pa.large_list(pa.uint8()))])
    ),
    "dictionary": pa.DictionaryArray.from_arrays(INDICES, DICTIONARY),
    "dictionary of views": pa.DictionaryArray.from_arrays(
        INDICES, DICTIONARY.cast(pa.string_view())
    ),
    "list of dictionaries": pa.ListArray.from_arrays(
        pa.array([0, 1, 4], pa.int32()),
        pa.DictionaryArray.from_arrays(INDICES, DICTIONARY.cast(pa.string_view())),
    ),
    "run ends": pa.RunEndEncodedArray.from_arrays([2, 3], DICTIONARY.cast(pa.string_view())),
    "string view": pa.array(["a", None, "b" * 40]).cast(pa.string_view()),
    "binary view": pa.array([b"a", None, b"b" * 40]).cast(pa.binary_view()),
    "no rows": pa.array([], pa.list_view(pa.int8())),
}


def cast(array: pa.Array) -> pa.Array:
    schema = from_arrow(pa.schema([("c", array.type)]))
    target = arrow_schema(schema).field(0).type
    found = cast_array(array, schema.fields[0].type, target)
    found.validate(full=True)
    assert found.type == target
    return found


@pytest.mark.parametrize("layout", ARRAYS)
def test_every_slice_keeps_its_values(layout: str) -> None:
    array = ARRAYS[layout]
    for start in range(len(array) + 1):
        for count in range(len(array) - start + 1):
            part = array.slice(start, count)
            assert cast(part).to_pylist() == part.to_pylist()


lists: Any = st.lists(st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=4), max_size=12)


@given(lists, st.sampled_from([pa.list_view, pa.large_list_view, pa.large_list]), st.data())
def test_lists_of_any_kind_come_out_alike(values: Any, kind: Any, data: st.DataObject) -> None:
    array = pa.array(values, kind(pa.int8()))
    order = data.draw(st.lists(st.integers(0, len(values) - 1))) if values else []
    taken = array.take(pa.array(order, pa.int64()))  # Views may overlap, in any order.
    assert cast(taken).to_pylist() == [values[index] for index in order]
