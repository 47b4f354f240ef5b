"""Paths in actions are decoded once, and compared by their meaning."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.base.errors import LogCorruptError
from txlog.log.paths import canonical_key, canonical_keys, decode_path, encode_path


@pytest.mark.parametrize(
    ("logged", "meant"),
    [
        ("a/b.parquet", "a/b.parquet"),
        ("p=%252F/b%20c.parquet", "p=%2F/b c.parquet"),  # Decoded once.
        ("a+b.parquet", "a+b.parquet"),  # A plus is a plus.
        ("p=a%3Ab/c.parquet", "p=a:b/c.parquet"),
        ("%F0%9F%99%82.parquet", "🙂.parquet"),
        ("/x/y%20z", "/x/y z"),
        ("file:/x/y%20z", "/x/y z"),
        ("file:///x/y", "/x/y"),
        ("s3://bucket/x%20y", "s3://bucket/x y"),
        ("https://host/x%20y?sig=a%2Bb", "https://host/x%20y?sig=a%2Bb"),
        ("a/../b", "b"),
        ("./a//b", "a/b"),
        ("FILE:/x/y", "/x/y"),
        ("file://localhost/x/y", "/x/y"),
    ],
)
def test_a_logged_path_is_a_uri(logged: str, meant: str) -> None:
    assert decode_path(logged) == meant


@pytest.mark.parametrize("path", ["../x", "a/../../x", "%2e%2e/x", "./../x"])
def test_a_relative_path_stays_inside(path: str) -> None:
    with pytest.raises(LogCorruptError, match="out of the table"):
        decode_path(path)


names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1, max_size=12
).filter(lambda name: name not in (".", ".."))


@given(st.lists(names, min_size=1, max_size=3))
def test_an_encoded_path_comes_back(steps: list[str]) -> None:
    path = "/".join(steps)
    if ":" not in steps[0]:  # A colon in the first step would make it a scheme.
        assert decode_path(encode_path(path)) == path
        assert encode_path(path).isascii()


def test_spellings_of_one_file_have_one_key() -> None:
    spellings = ["file:/x/a%20b", "file:///x/a b", "/x/a%20b", "/x/a b"]
    assert set(canonical_keys(pa.array(spellings)).to_pylist()) == {"/x/a b"}
    same = ["/x/f", "FILE:/x/f", "file://localhost/x/f", "/x/y/../f", "/x//f"]
    assert set(canonical_keys(pa.array(same)).to_pylist()) == {"/x/f"}
    assert canonical_keys(pa.array(["./f", "y/../f", "f"])).to_pylist() == ["f", "f", "f"]
    relative = ["p=1/a%20b", "p=1/a b", "p=1/a%2520b"]
    assert canonical_keys(pa.array(relative)).to_pylist() == ["p=1/a b", "p=1/a b", "p=1/a%20b"]


@given(
    st.lists(
        st.lists(
            st.sampled_from(["a", "p=1", "%20b", "x%3A1", "é", ".", "..", "", ".h", "c:d", "n\nl"]),
            min_size=1, max_size=4,
        ).map("/".join).flatmap(
            lambda path: st.sampled_from(["", "/", "file:/", "file:///", "s3://b/", "https://h/"]).map(
                lambda start: start + path
            )
        ),
        max_size=8,
    )
)  # fmt: skip
def test_the_keys_of_a_column_are_those_of_each_path(paths: list[str]) -> None:
    keys = canonical_keys(pa.array(paths, pa.string())).to_pylist()
    assert keys == [canonical_key(path) for path in paths]
