"""Columns of Arrow against plain Python."""

import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.moved import moved
from txlog.base.columns import in_places, is_readable, nearest_floats, nulled


@st.composite
def decimals(draw: st.DrawFn) -> tuple[pa.DataType, list[Decimal | None]]:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    limit = 10**precision - 1
    whole = st.none() | st.integers(-limit, limit)
    values = [
        None if one is None else Decimal(f"{one}e-{scale}")  # `scaleb` would round it.
        for one in draw(st.lists(whole, max_size=20))
    ]
    return pa.decimal128(precision, scale), values


@given(made=decimals(), start=st.integers(0, 3), chunked=st.booleans())
def test_decimals_become_the_nearest_floats(
    made: tuple[pa.DataType, list[Decimal | None]], start: int, chunked: bool
) -> None:
    kind, values = made
    array: Any = pa.array(values, kind).slice(start)
    if chunked:
        array = pa.chunked_array([array, array], kind)
        values = values[start:] + values[start:]
    else:
        values = values[start:]
    assert nearest_floats(array).to_pylist() == [None if v is None else float(v) for v in values]
    single = nearest_floats(array, pa.float32()).to_pylist()
    for value, found in zip(values, single, strict=True):
        if value is None:
            assert found is None
        else:
            bits = struct.unpack("<i", struct.pack("<f", found))[0]
            near = [struct.unpack("<f", struct.pack("<i", bits + by))[0] for by in (-1, 0, 1)]
            off = [abs(Decimal(one) - value) for one in near if one == one]
            assert abs(Decimal(found) - value) == min(off)


@pytest.mark.parametrize("value", [Decimal("0.1"), None])
def test_a_scalar_becomes_the_nearest_float(value: Decimal | None) -> None:
    found = nearest_floats(pa.scalar(value, pa.decimal128(9, 4)))
    assert found.as_py() == (None if value is None else 0.1)


@pytest.mark.parametrize("is_large", [True, False])
def test_bytes_behind_a_null_are_no_text(is_large: bool) -> None:
    offsets = pa.array([0, 1, 2, 3], pa.int64() if is_large else pa.int32())
    texts = pa.array([b"a", b"\xff", b"c"], pa.large_binary() if is_large else pa.binary())
    texts = texts.view(pa.large_string() if is_large else pa.string())
    lists = pa.LargeListArray if is_large else pa.ListArray
    middle = pa.array([False, True, False])
    assert is_readable(lists.from_arrays(offsets, texts, mask=middle))
    assert not is_readable(lists.from_arrays(offsets, texts))
    assert not is_readable(texts)
    assert is_readable(texts.slice(2))


@given(
    st.lists(st.none() | st.text(max_size=9)),
    st.integers(0, 5),
    st.data(),
    st.sampled_from([pa.string(), pa.binary(), pa.large_string(), pa.int64()]),
)
def test_values_become_null_in_slices_too(
    texts: list[str | None], start: int, data: st.DataObject, kind: pa.DataType
) -> None:
    values: list[Any] = [None if t is None else len(t) for t in texts] if kind == "int64" else texts
    sliced = pa.array(values, kind).slice(start)
    size = len(sliced)
    where = data.draw(st.lists(st.none() | st.booleans(), min_size=size, max_size=size))
    found = nulled(sliced, pa.array(where, pa.bool_()))
    found.validate(full=True)
    plain = sliced.to_pylist()
    assert found.to_pylist() == [
        value if is_null is False else None for value, is_null in zip(plain, where, strict=True)
    ]


@settings(max_examples=examples(100))
@given(st.lists(st.lists(st.none() | st.text("ab", max_size=2), max_size=6), min_size=1),
       st.randoms(use_true_random=False), st.integers(1, 5))  # fmt: skip
def test_rows_come_to_their_places(texts: list[list[str | None]], dice: Any, at_once: int) -> None:
    parts = [pa.table({"t": pa.array(part, pa.string())}) for part in texts]
    flat = [text for part in texts for text in part]
    places = list(range(len(flat)))
    dice.shuffle(places)
    expected = [text for _, text in sorted(zip(places, flat, strict=True), key=lambda one: one[0])]
    with moved({"txlog.base.columns:_AT_ONCE": at_once}):
        found = in_places(parts, np.array(places, np.int64))
    assert found["t"].to_pylist() == expected
    assert not parts
