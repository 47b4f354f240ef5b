"""Arrays of any Arrow layout keep their values in the one type that txlog writes."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.schema.arrow import arrow_schema, from_arrow
from txlog.schema.cast import cast_array

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
