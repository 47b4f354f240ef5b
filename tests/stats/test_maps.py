"""Values out of many maps, and dictionaries without what is in no row."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from txlog.stats.maps import are_there, encoded, entries

PLAIN = pa.map_(pa.string(), pa.string())
CODED = pa.map_(*2 * [pa.dictionary(pa.int32(), pa.string())])

names = st.sampled_from(["p", "q", "", "é"])
values = st.sampled_from(["1", "2", "", None])
any_maps = st.lists(st.none() | st.lists(st.tuples(names, values), max_size=3), max_size=6)


@st.composite
def same_names(draw: Any) -> list[Any]:
    """Maps as most tables have them."""
    held = draw(st.lists(names, min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(*(values for _ in held)), max_size=6))
    return [list(zip(held, row, strict=True)) for row in rows]


def as_dictionaries(maps: pa.MapArray) -> pa.MapArray:
    return pa.MapArray.from_arrays(
        maps.offsets,
        maps.keys.dictionary_encode(),
        maps.items.dictionary_encode(),
        CODED,
        mask=maps.is_null() if maps.null_count else None,
    )


@given(any_maps | same_names(), names, st.integers(0, 3), st.booleans())
def test_a_value_is_the_last_of_its_name(
    rows: list[Any], name: str, cut: int, dictionaries: bool
) -> None:
    maps = pa.array(rows, PLAIN)
    held = (as_dictionaries(maps) if dictionaries else maps)[cut:]
    found, there = entries(held, name), are_there(held, name)
    found = found.dictionary_decode() if pa.types.is_dictionary(found.type) else found
    wanted = maps[cut:]
    assert found.to_pylist() == pc.map_lookup(wanted, pa.scalar(name), "last").to_pylist()
    assert there.to_pylist() == [any(n == name for n, _ in row or ()) for row in rows[cut:]]


@given(st.lists(values, max_size=8), st.integers(0, 3), st.integers(0, 8))
def test_a_dictionary_has_no_other_texts(texts: list[Any], start: int, count: int) -> None:
    whole = pa.array(texts, pa.string())
    for array in (whole[start : start + count], whole.dictionary_encode()[start : start + count]):
        found = encoded(array)
        assert found.dictionary_decode().to_pylist() == texts[start : start + count]
        held = found.dictionary.to_pylist()
        assert len(set(held)) == len(held)
        assert set(held) == {text for text in texts[start : start + count] if text is not None}
