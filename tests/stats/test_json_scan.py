"""Searching bytes in many texts at once."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.base import text_bytes
from txlog.base.text_bytes import places_of
from txlog.stats import json_scan
from txlog.stats.json_scan import JoinedTexts

LONG = [f'"the_value_{at}_of_a_sensor":' for at in range(2)]
NEEDLES = [b"a", b'"n":', b"abababab", b'"values":{', LONG[0].encode()]
pieces = st.sampled_from(
    ["a", "b", "ab", '"n":', '"values":{', "abababab", "é", "{", "x" * 9, *LONG]
)
texts = st.lists(pieces, max_size=8).map("".join)


@given(st.lists(texts, max_size=12), st.integers(0, 2), st.sampled_from(NEEDLES), st.data())
def test_bytes_are_found(held: list[str], cut: int, needle: bytes, data: st.DataObject) -> None:
    joined = JoinedTexts(pa.array(held, pa.string())[cut:])
    plain = [text.encode() for text in held[cut:]]
    skipped = [data.draw(st.integers(0, len(text))) for text in plain]
    begin = joined.starts + np.array(skipped, np.int64)
    wanted = [text.find(needle, at) for text, at in zip(plain, skipped, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_scan, "_FEW", data.draw(st.sampled_from([0, 2, 32])))
        patch.setattr(json_scan, "_GUESSES", data.draw(st.sampled_from([0, 1, 24])))
        patch.setattr(text_bytes, "_BLOCK_WORDS", data.draw(st.sampled_from([1, 2, 1 << 15])))
        patch.setattr(json_scan, "_BLOCK", data.draw(st.sampled_from([8, 16, 1 << 18])))
        found = joined.where(begin, joined.ends, needle)
        places = places_of(joined.bytes, needle[0])
    assert [byte == needle[0] for byte in b"".join(plain)] == [
        at in places.tolist() for at in range(len(b"".join(plain)))
    ]
    assert joined.has(needle[0]) == bool(len(places))
    for at, start, text, least in zip(found, joined.starts, plain, wanted, strict=True):
        if least < 0:
            assert at == -1
        else:  # Perhaps a later one, as far from the beginning as in another text.
            assert at >= start + least
            assert text[at - start :].startswith(needle)


def test_what_is_anywhere_in_many_texts_is_found() -> None:
    dice = np.random.default_rng(5)
    plain = ["b" * int(n) + '"n":1}' for n in dice.integers(0, 400, 5_000)]
    joined = JoinedTexts(pa.array(plain))
    found = joined.where(joined.starts, joined.ends, b'"n":') - joined.starts
    assert found.tolist() == [text.index('"n":') for text in plain]
