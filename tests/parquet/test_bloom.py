"""Bloom filters of Parquet files, beside those that other engines write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.parquet.bloom import BloomFilterError, header, parse, xxh64

# The published values of xxHash64 with the seed 0.
KNOWN = {
    b"": 0xEF46DB3751D8E999,
    b"a": 0xD24EC4F1A98C6E5B,
    b"as": 0x1C330FB2D66BE179,
    b"asd": 0x631C37CE72A97393,
    b"asdf": 0x415872F599CEA71E,
    b"Call me Ishmael. Some years ago--never mind how long precisely-": 0x02A2E85470D6FD96,
}
HEADER = bytes.fromhex("15401c1c00001c1c00001c1c000000")


@pytest.mark.parametrize("text", KNOWN)
def test_hashes_are_those_of_xxhash(text: bytes) -> None:
    assert xxh64(text) == KNOWN[text]


def test_headers() -> None:
    assert header(HEADER + b"more") == (len(HEADER), 32)
    for wrong in (
        b"",
        HEADER[:5],
        b"\x15\x42" + HEADER[2:],
        HEADER.replace(b"\x1c\x1c", b"\x1c\x2c"),
    ):
        with pytest.raises(BloomFilterError):
            header(wrong)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_header_or_an_error(data: bytes) -> None:
    try:
        begin, size = header(data)
    except BloomFilterError:
        return
    assert 0 < begin <= len(data)
    assert size % 32 == 0


def test_bits_that_are_cut_or_empty_are_refused() -> None:
    with pytest.raises(BloomFilterError, match="in place of 64"):
        parse(bytes(32), 64, [])
    with pytest.raises(BloomFilterError, match="damaged"):
        parse(bytes(32), 32, [])
    one = parse(b"\xff" * 32, 32, [b"x"])
    assert one.may_have(b"anything")
    with pytest.raises(BloomFilterError, match="damaged"):
        parse(b"\x01" + bytes(31), 32, [b"x"])
