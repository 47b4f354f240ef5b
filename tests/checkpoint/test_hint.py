"""`_last_checkpoint` is read if possible, and is never an error."""

from pathlib import Path
from uuid import uuid4

import orjson
import pytest
from corpus import NEEDS_CORPUS, ROOT
from hypothesis import given
from hypothesis import strategies as st

from txlog.checkpoint.hint import HINT_PATH, Hint, checksum, decode_hint, encode_hint, read_hint
from txlog.store.open import open_store


def test_the_example_of_the_protocol() -> None:
    node = {
        "k0": "'v 0'",
        "checksum": "adc0c30c9b3d1f6ab3c4b4b1ed9d4b5d",
        "k1": {"k2": 2, "k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]},
    }
    assert checksum(node) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


@NEEDS_CORPUS
def test_the_checksums_that_other_writers_made() -> None:
    checked = 0
    for path in sorted(ROOT.glob("tables/**/_delta_log/_last_checkpoint")):
        try:
            node = orjson.loads(path.read_bytes())
        except orjson.JSONDecodeError:
            continue  # Two tables have a damaged one.
        if "checksum" in node:
            checked += 1
            assert checksum(node) == node["checksum"], path
            assert decode_hint(path.read_bytes()) is not None, path
    assert checked > 40


counts = st.none() | st.integers(0, 2**53)


@given(st.builds(Hint, st.integers(0, 2**53), st.integers(0, 2**53), counts, counts, counts))
def test_a_hint_comes_back(hint: Hint) -> None:
    assert decode_hint(encode_hint(hint)) == hint


@given(st.binary(max_size=50))
def test_any_bytes_are_no_error(data: bytes) -> None:
    decode_hint(data)


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(json, json, json, json)
def test_any_object_is_no_error(version: object, size: object, stated: object, other: object):
    node = {"version": version, "size": size, "checksum": stated, "v2Checkpoint": other}
    try:
        data = orjson.dumps(node)
    except TypeError:  # No JSON of orjson's: an integer beyond 64 bits, say.
        return
    decode_hint(data)
    decode_hint(orjson.dumps({"version": 3, "size": 1, "tags": orjson.loads(data)}))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"null", b"[]", b"7", b"{}", b'{"version":"3"}', b'{"version":3.0}',
        b'{"version":true}', b'{"version":-1}', b'{"version":null}', b"\xff",
        b'{"version":3,"size":2,"checksum":"0"}', b'{"version":3,"size":2,"checksum":7}',
    ],
)  # fmt: skip
def test_what_is_no_hint_is_none(data: bytes) -> None:
    assert decode_hint(data) is None


def test_a_hint_without_checksum_or_size_is_one() -> None:
    assert decode_hint(b'{"version":3,"size":2,"parts":2}') == Hint(3, 2, 2)
    assert decode_hint(b'{"version":3,"size":"2","sizeInBytes":1.5}') == Hint(3, 0)


def test_no_file_and_no_folder_are_none(tmp_path: Path) -> None:
    assert read_hint(open_store(tmp_path / "none")) is None
    store = open_store(f"memory://{uuid4()}")
    assert read_hint(store) is None
    store.replace(HINT_PATH, encode_hint(Hint(4, 9)))
    assert read_hint(store) == Hint(4, 9)
