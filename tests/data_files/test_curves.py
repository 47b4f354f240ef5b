"""Positions on curves: similar values are near, and values keep their order."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.data_files.curves import bits_for, cuts_of, keys, ranks


def grid(columns: int, bits: int) -> list[np.ndarray]:
    axes = np.meshgrid(*[np.arange(1 << bits)] * columns, indexing="ij")
    return [axis.reshape(-1).astype(np.uint64) for axis in axes]


@pytest.mark.spec("MNT-30")
@pytest.mark.parametrize(("columns", "bits"), [(2, 5), (3, 3), (4, 2), (5, 1)])
def test_hilberts_curve_goes_to_neighbours(columns: int, bits: int) -> None:
    points = grid(columns, bits)
    found = keys(points, bits, "hilbert")
    assert sorted(found.tolist()) == list(range(1 << columns * bits))
    steps = np.diff(np.stack(points, 1)[np.argsort(found)].astype(int), axis=0)
    assert set(np.abs(steps).sum(1).tolist()) == {1}


@pytest.mark.spec("MNT-30")
@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 63)] * 3), min_size=1, max_size=20))
def test_the_z_curve_takes_bits_in_turn(points: list[tuple[int, int, int]]) -> None:
    columns = [np.array(column, np.uint64) for column in zip(*points, strict=True)]
    texts = [
        "".join("".join(t) for t in zip(*(f"{n:06b}" for n in p), strict=True)) for p in points
    ]
    assert keys(columns, 6, "z-order").tolist() == [int(text, 2) for text in texts]
    assert keys(columns[:1], 6, "z-order").tolist() == [point[0] for point in points]


VALUES = st.one_of(
    st.lists(st.one_of(st.none(), st.integers(-5, 5))),
    st.lists(st.one_of(st.none(), st.floats(allow_nan=False))),
    st.lists(st.one_of(st.none(), st.text(max_size=4))),
    st.lists(st.one_of(st.none(), st.dates())),
    st.lists(st.one_of(st.none(), st.booleans())),
)


@settings(max_examples=examples(150), deadline=None)
@given(VALUES, st.integers(2, 16), st.booleans())
def test_numbers_are_in_the_order_of_values(values: list, bits: int, sampled: bool) -> None:
    column = pa.array(values) if any(v is not None for v in values) else pa.array(values, pa.int8())
    cuts = cuts_of(column, bits) if sampled else None
    found = ranks(column, cuts, bits).tolist()
    assert all(
        (number == 0) == (value is None) for number, value in zip(found, values, strict=True)
    )
    assert all(number < 1 << bits for number in found)
    pairs = [(v, n) for v, n in zip(values, found, strict=True) if v is not None]
    for value, number in pairs:
        for other, theirs in pairs:
            assert (number <= theirs) if value <= other else (number >= theirs)
            assert number == theirs or value != other


def test_all_columns_share_the_bits_of_a_key() -> None:
    assert [bits_for(count) for count in (1, 3, 4, 31, 62, 100)] == [16, 16, 15, 2, 1, 1]
