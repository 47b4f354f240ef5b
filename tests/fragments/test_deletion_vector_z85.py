"""Z85, as in ZeroMQ's RFC 32."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.fragments import deletion_vector as z85


def test_the_example_of_its_source() -> None:
    data = bytes.fromhex("864fd26fb559f75b")
    assert z85.encode(data) == "HelloWorld"
    assert z85.decode("HelloWorld") == data


@given(st.binary(max_size=40))
def test_bytes_come_back_padded(data: bytes) -> None:
    assert z85.decode(z85.encode(data)) == data + bytes(-len(data) % 4)


@pytest.mark.parametrize("text", ["a", "abcdef", "abcd~", "abc d", "abcdé", "%nSc1", "#####"])
def test_what_is_no_z85_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"multiple of five|not a character|32 bits"):
        z85.decode(text)


def test_the_largest_group() -> None:
    assert z85.decode("%nSc0") == b"\xff" * 4
