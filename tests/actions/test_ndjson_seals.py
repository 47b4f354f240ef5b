"""Seals: any change to sealed bytes is noticed."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from txlog.actions.ndjson import BLANK, COMMIT_MARK, FOOTER_MARK, is_broken, sealed

marks = st.sampled_from([COMMIT_MARK, FOOTER_MARK])


@pytest.mark.spec("REC-9")
@given(marks, st.binary(max_size=200), st.binary(max_size=200), st.data())
def test_any_changed_byte_breaks_the_seal(
    mark: bytes, before: bytes, after: bytes, data: st.DataObject
) -> None:
    whole = sealed(before + mark + BLANK.encode() + after, mark)
    assert not is_broken(whole, mark)
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = bytes([whole[at] ^ data.draw(st.integers(1, 255))])
    other = whole[:at] + changed + whole[at + 1 :]
    assume(mark in other)  # Without its mark it is a file that never had a seal.
    assert is_broken(other, mark)


def test_a_mark_in_a_name_before_the_seal_is_no_seal() -> None:
    whole = sealed(FOOTER_MARK + b"a column" + FOOTER_MARK + BLANK.encode() + b"rest", FOOTER_MARK)
    assert not is_broken(whole, FOOTER_MARK)
    assert is_broken(whole + b"x", FOOTER_MARK)


def test_without_a_mark_there_is_nothing_to_break() -> None:
    assert sealed(b"abc", COMMIT_MARK) == b"abc"
    assert not is_broken(b"abc", COMMIT_MARK)


def test_a_seal_is_looked_for_where_it_may_be() -> None:
    whole = sealed(COMMIT_MARK + BLANK.encode() + b"\nrest", COMMIT_MARK)
    assert is_broken(whole + b"x", COMMIT_MARK)
    assert not is_broken(b"\n" + whole + b"x", COMMIT_MARK, within=1)
