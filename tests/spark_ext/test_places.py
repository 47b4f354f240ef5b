"""Virtual paths and words of bits, and how Spark and Hadoop read them, in plain Python."""

import re
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyroaring import BitMap64

from txlog.log.paths import decode_path, encode_path
from txlog.spark_ext.reads.places import (
    FRAGMENT_COLUMN,
    NULL_FOLDER,
    Constant,
    locations,
    parse_volume,
    real_uris,
    virtual_uris,
    volume_of,
)
from txlog.spark_ext.reads.vectors import Vectors, deletion_words
from txlog.store.open import open_store

STEPS = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1)
FOLDERS = (
    st.sampled_from(
        ["p=1", "p=a%2Fb", "_txlog_fragment=3", "x y", "ä=ö", "..x", "_temporary", "a\u2028b"]
    )
    | STEPS
)
PATHS = st.lists(FOLDERS.filter(lambda step: step not in (".", "..")), min_size=1, max_size=4).map(
    "/".join
)


def spelled(path: str) -> st.SearchStrategy[str]:
    """A path as logs spell it: encoded well, or less than it should be."""
    return st.sampled_from([encode_path(path), path.replace("%", "%25")])


def resolved(uri: str, settings: dict[str, str]) -> str:
    """What Hadoop's mount table makes of a virtual path: a real one."""
    setting = next(iter(settings.items()))
    pattern = setting[0].partition(".linkRegex.")[2].replace("(?<", "(?P<")
    path = unquote(urlsplit(uri).path)
    found = re.match(pattern, path)
    assert found is not None
    target = setting[1].replace("${txlogFolders}", found["txlogFolders"])
    return unquote(urlsplit(target).path) + path[found.end() :].lstrip("/")


def told(uri: str) -> dict[str, str | None]:
    """What Spark takes from the folders of a path, from the file up to the first other folder."""
    found: dict[str, str | None] = {}
    for folder in reversed(PurePosixPath(unquote(urlsplit(uri).path)).parent.parts[1:]):
        name, equals, text = folder.partition("=")
        if not equals:
            if found:
                break
            continue
        assert name not in found
        found[name] = None if text == NULL_FOLDER else unquote(text)
    return found


@given(st.data(), st.lists(PATHS, min_size=1, max_size=5), st.sampled_from(["/data/t", "/a=b/ü %"]))
@example(None, ["p=1/a"], "/data/t")
@pytest.mark.spec("SPK-3", "SPK-4")
def test_virtual_paths_lead_to_the_files(
    data: st.DataObject | None, paths: list[str], root: str
) -> None:
    logged = [encode_path(path) if data is None else data.draw(spelled(path)) for path in paths]
    values = [(f"{path}=%/ü\x85", NULL_FOLDER, None)[n % 3] for n, path in enumerate(paths)]
    where = locations(pa.array(logged), open_store(root))
    volume = parse_volume(where["volume"].combine_chunks().dictionary[0].as_py())
    expected = [f"{root}/{decode_path(path)}" for path in logged]
    assert [unquote(urlsplit(uri).path) for uri in real_uris(where, volume).to_pylist()] == expected
    ids = pa.array(range(len(paths)), pa.int64())
    constant = Constant("p", pa.array(values, pa.string()), "p")
    uris = virtual_uris(where, volume, ids, [constant]).to_pylist()
    assert [resolved(uri, volume.settings) for uri in uris] == expected
    assert [told(uri) for uri in uris] == [
        {FRAGMENT_COLUMN: str(at), "p": value} for at, value in enumerate(values)
    ]
    shared = virtual_uris(where, volume, None, [constant]).to_pylist()
    assert [resolved(uri, volume.settings) for uri in shared] == expected
    assert [told(uri) for uri in shared] == [{FRAGMENT_COLUMN: "0", "p": one} for one in values]


@pytest.mark.parametrize(
    ("root", "volume", "folder"),
    [
        ("/data/a b", "file://", "/data/a%20b"),
        ("s3://bucket/x", "s3a://bucket", "/x"),
        ("gcs://bucket", "gs://bucket", ""),
        ("abfss://c@acc.dfs.core.windows.net/x", "abfss://c@acc.dfs.core.windows.net", "/x"),
    ],
)
def test_stores_have_the_names_that_hadoop_gives_them(root: str, volume: str, folder: str) -> None:
    found, base = volume_of(root)
    assert (found.uri, base) == (volume, folder)
    assert re.fullmatch(r"viewfs://txlog-[a-z0-9-]+/", found.root)


def test_stores_that_differ_have_mounts_that_differ() -> None:
    roots = ["/", "s3://a.b/x", "s3://a-b/x", "gs://a-b/x"]
    assert len({volume_of(root)[0].root for root in roots}) == 4


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
@pytest.mark.spec("SPK-6")
def test_words_have_the_bits_of_deleted_rows(case: tuple[int, set[int]]) -> None:
    rows, deleted = case
    words = deletion_words(BitMap64(deleted), rows).to_pylist()
    assert len(words) == -(-rows // 64)
    found = {at for at in range(64 * len(words)) if words[at >> 6] >> (at & 63) & 1}
    assert found == deleted


@given(st.lists(st.integers(0, 40), max_size=8))
def test_words_of_fragments_are_in_one_line(lengths: list[int]) -> None:
    words = [
        pa.array([100 * at + w + 1 for w in range(n)], pa.int64()) for at, n in enumerate(lengths)
    ]
    vectors = Vectors(tuple(64 * n for n in lengths), tuple(words))
    line = vectors.line().to_pylist()
    found = [
        [line[start | word] for word in range(n)]
        for start, n in zip(vectors.starts, lengths, strict=True)
    ]
    assert found == [one.to_pylist() for one in words]
    assert sum(word != 0 for word in line) == sum(lengths)
    assert len(line) <= 2 * sum(lengths) + lengths.count(0)
