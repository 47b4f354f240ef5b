"""Masks of remaining rows: few and many deletions take different ways to the same result."""

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from txlog.fragments.deletion_vector import alive_mask


@given(
    st.sets(st.integers(0, 120)) | st.sets(st.integers(0, 120), max_size=4),
    st.integers(0, 100),
    st.integers(0, 60),
)
def test_the_mask_says_of_each_position_whether_it_is_deleted(
    deleted: set[int], start: int, count: int
) -> None:
    found = alive_mask(BitMap64(deleted), start, count)
    expected = [at not in deleted for at in range(start, start + count)]
    assert (expected if found is None else found.to_pylist()) == expected
    assert (found is None) == all(expected)
