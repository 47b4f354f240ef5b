"""Seals: any change to sealed bytes is noticed."""

import pytest
from hypothesis import given
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
    if len(before) <= at < len(before) + len(mark):
        return  # Without its mark it is a file that never had a seal.
    changed = bytes([whole[at] ^ data.draw(st.integers(1, 255))])
    assert is_broken(whole[:at] + changed + whole[at + 1 :], mark)


def test_without_a_mark_there_is_nothing_to_break() -> None:
    assert sealed(b"abc", COMMIT_MARK) == b"abc"
    assert not is_broken(b"abc", COMMIT_MARK)


def test_a_seal_is_looked_for_where_it_may_be() -> None:
    whole = sealed(COMMIT_MARK + BLANK.encode() + b"\nrest", COMMIT_MARK)
    assert is_broken(whole + b"x", COMMIT_MARK)
    assert not is_broken(b"\n" + whole + b"x", COMMIT_MARK, within=1)
