"""Which texts mean the same place, without and with a disk."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.base.errors import UnsupportedFeatureError
from txlog.store.base import same_store
from txlog.store.open import open_store, require_allowed
from txlog.store.places import (
    NamesNeeded,
    absolute_keys,
    is_within,
    name_in,
    names_below,
    same_place,
)

AZURE = "abfss://c@acct.dfs.core.windows.net"
# For each root, the file `p/f` below it in other words.
SAME = [
    ("s3://b/t", "s3a://b/t/p/f"),
    ("s3a://b/t", "S3N://B/t/p/f"),
    ("s3://b", "s3a://key:secret@b/p/f"),
    ("s3://b/a%41b", "s3a://b/a%41b/p/f"),
    ("gs://b/t", "gcs://b/t/p/f"),
    (f"{AZURE}/t", "abfs://c@acct.dfs.core.windows.net/t/p/f"),
    (f"{AZURE}/t", "wasbs://c@ACCT.blob.core.windows.net/t/p/f"),
    (f"{AZURE}/t", "abfss://c@acct-secondary.dfs.core.windows.net/t/p/f"),
    ("az://c/t", "abfs://c/t/p/f"),
    ("memory://m/t", "MEMORY://m/t/p/f"),
    ("memory://", "memory://p/f"),
    ("hdfs://nn:8020/t", "HDFS://NN:8020/t/p/f"),
]
# It may be `p/f`, so a vacuum keeps it, but nothing else may depend on it.
UNSURE = [
    ("s3://b/t", "gs://b/t/p/f"),  # Google's store understands the protocol of S3.
    ("s3://b/t", "https://b.s3.amazonaws.com/t/p/f"),
    ("s3://b/t", "oss://b/t/p/f"),
    ("s3://b/t", "s3://arn:aws:s3:eu-west-1:1:accesspoint/one/t/p/f"),
    ("s3://b/t", "s3://one-abc-s3alias/t/p/f"),
    ("s3://b/t", "s3://b/t/./p/f"),
    ("s3://b/t", "s3://b/u/../t//p/f"),
    ("az://c/t", f"{AZURE}/t/p/f"),
    (f"{AZURE}/t", "az://c/t/p/f"),
    (f"{AZURE}/t", "abfss://c@custom.example/t/p/f"),
    ("abfss://w@onelake.dfs.fabric.microsoft.com/i/t",
     "abfss://9d8f@onelake.dfs.fabric.microsoft.com/77aa/t/p/f"),
    ("hdfs://nn/t", "hdfs://other/t/p/f"),
    ("hdfs://nn/t", "viewfs://c/mounted/p/f"),
    ("/mnt/bucket/t", "s3://bucket/t/p/f"),
    ("/dbfs/mnt/t", "dbfs:/mnt/t/p/f"),
    ("/t", "/not/on/this/machine/t/p/f"),
    ("s3://b/t", "/warehouse/t/p/f"),
]  # fmt: skip
OTHER = [
    ("s3://b/t", "s3a://b/t2/p/f"),
    ("s3://b/t", "s3a://c/t/p/f"),
    ("s3://b/t", "s3://b/p/f"),
    ("s3://b/a%41b", "s3://b/aAb/p/f"),
    ("s3://b/t", "s3://b/T/p/f"),
    ("gs://b/t", "gcs://c/t/p/f"),
    (f"{AZURE}/t", "wasb://d@acct.blob.core.windows.net/t/p/f"),
    ("memory://m/t", "memory://m/t2/p/f"),
]


def needed(root: str, key: str) -> bool:
    names = NamesNeeded(root, pa.array(["p/f", "q/f"]))
    names.add(pa.array([key]))
    return "p/f" in names.needed().to_pylist()


@pytest.mark.spec("VAC-10")
@pytest.mark.parametrize(("root", "key"), SAME)
def test_one_place_has_many_names(root: str, key: str) -> None:
    assert name_in(root, key) == "p/f"
    assert names_below(root, pa.array([key, "p/f"])).to_pylist() == ["p/f", "p/f"]
    assert needed(root, key)
    folder = key.removesuffix("/p/f") if root != "memory://" else root
    assert same_place(root, folder)
    assert same_place(folder, root)
    assert is_within(root, key.removesuffix("/f"))
    assert not is_within(key.removesuffix("/f"), root)


@pytest.mark.spec("VAC-10")
@pytest.mark.parametrize(("root", "key"), UNSURE)
def test_a_file_that_may_be_the_same_is_kept(root: str, key: str) -> None:
    assert needed(root, key)
    assert name_in(root, key) is None
    assert names_below(root, pa.array([key])).to_pylist() == [key]


@pytest.mark.spec("VAC-10")
@pytest.mark.parametrize(("root", "key"), OTHER)
def test_a_place_beside_it_is_another_one(root: str, key: str) -> None:
    assert not needed(root, key)
    assert name_in(root, key) is None
    assert not is_within(root, key.removesuffix("/f"))
    assert not same_place(root, key.removesuffix("/p/f"))


def test_accounts_that_are_not_named_are_likely_the_same() -> None:
    assert is_within("az://c/t", f"{AZURE}/t/clone")
    assert same_place(f"{AZURE}/t", "az://c/t")
    assert not is_within("az://c/t", f"{AZURE}/t2")


@pytest.mark.parametrize(
    ("one", "other"),
    [("s3", "s3a"), ("s3n", "s3a"), ("gs", "gcs"), ("az", "abfss"), ("wasbs", "azure")],
)
def test_schemes_of_one_store(one: str, other: str) -> None:
    assert same_store(one, other)
    assert not same_store(one, "hdfs")


def test_a_confined_table_accepts_what_is_known_to_be_inside() -> None:
    options = {"txlog.paths": "inside"}
    assert require_allowed(open_store("s3://b/t", options), "s3a://b/t/p/f") is None
    for root, path in (
        ("s3://b/t", "s3a://b/t2/f"),
        ("s3://b/t", "s3://b/t/../t2/f"),
        ("s3://b/t", "s3://b/t/../t/f"),
        ("az://c/t", "abfss://c@elsewhere.dfs.core.windows.net/t/f"),
    ):
        with pytest.raises(UnsupportedFeatureError, match="outside"):
            require_allowed(open_store(root, options), path)


STEPS = st.sampled_from(["t", "T", "a%41b", "aAb", "a b", "a%20b", "p=1", "é"])


@pytest.mark.spec("VAC-10")
@settings(max_examples=examples(300), deadline=None)
@given(
    bucket=st.sampled_from(["b", "c"]),
    other=st.sampled_from(["b", "c"]),
    root=st.lists(STEPS, max_size=2),
    path=st.lists(STEPS, min_size=1, max_size=4),
    schemes=st.sampled_from([("s3", "s3a"), ("gs", "gcs"), ("s3n", "s3n")]),
)
def test_buckets_and_keys_are_compared_step_by_step(
    bucket: str, other: str, root: list[str], path: list[str], schemes: tuple[str, str]
) -> None:
    is_below = bucket == other and path[: len(root)] == root and len(path) > len(root)
    home = "/".join([f"{schemes[0]}://{bucket}", *root])
    key = "/".join([f"{schemes[1]}://{other}", *path])
    name = "/".join(path[len(root) :]) if is_below else None
    assert name_in(home, key) == name
    others = {"/".join(path[start:]) for start in range(len(path))}
    names = NamesNeeded(home, pa.array(sorted({"x", *others} - {""})))
    names.add(pa.array([key]))
    assert names.needed().to_pylist() == ([] if name is None else [name])


def test_keys_of_another_table_are_made_absolute(tmp_path: Path) -> None:
    keys = pa.array(["f", "/x/f", "s3://b/f", "p:/f"])
    assert absolute_keys("/t", keys).to_pylist() == ["/x/f", "s3://b/f", "p:/f", "/t/f", "/t/p:/f"]
    assert absolute_keys("memory://", keys[:1]).to_pylist() == ["memory://f"]


@pytest.mark.spec("VAC-10")
def test_links_and_folders_on_a_disk(tmp_path: Path) -> None:
    root, link = tmp_path / "a%41b", tmp_path / "link"
    (root / "p").mkdir(parents=True)
    (root / "p" / "f").touch()
    (tmp_path / "aAb").mkdir()
    link.symlink_to(root)
    (tmp_path / "to p").symlink_to(root / "p")
    (root / "alias").symlink_to("p")
    for key in (root / "p/f", link / "p/f", tmp_path / "to p/f", root / "alias/f"):
        assert name_in(str(root), str(key)) == name_in(str(link), str(key)) == "p/f"
    assert same_place(str(root), f"{link}/")
    assert is_within(str(root), str(link / "not there" / "yet"))
    assert is_within(str(tmp_path), str(link))
    assert not is_within(str(root), str(tmp_path / "aAb"))
    assert not is_within(str(root), f"{root}2")
    assert not same_place(str(root), str(tmp_path))
    os.link(root / "p" / "f", tmp_path / "hard")
    for key in ("alias/f", str(tmp_path / "hard"), f"{tmp_path}/to p/f"):
        assert needed(str(root), key)
    (tmp_path / "aAb" / "f").touch()
    assert not needed(str(root), str(tmp_path / "aAb" / "f"))


def test_a_folder_with_two_names_is_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a second mount of a folder: only the inode shows it."""
    (tmp_path / "one" / "p").mkdir(parents=True)
    (tmp_path / "two" / "p").mkdir(parents=True)
    look = os.stat

    def stat(path: str, **options: bool) -> os.stat_result:
        return look(str(path).replace(f"{tmp_path}/two", f"{tmp_path}/one"), **options)

    monkeypatch.setattr("txlog.store.places.os.stat", stat)
    assert name_in(str(tmp_path / "one"), str(tmp_path / "two" / "p" / "f")) == "p/f"
    assert is_within(str(tmp_path / "two"), str(tmp_path / "one" / "p"))


@pytest.mark.slow
@pytest.mark.spec("VAC-10")
@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_keys_in_parts_need_the_names_that_all_keys_need(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("t")
    for folder in "ab":
        (root / folder).mkdir()
        for name in "xyz":
            (root / folder / name).touch()
    (root / "link").symlink_to(root / "b")
    found = [f"{folder}/{name}" for folder in "ab" for name in "xyz"]
    spelled = [*found, "link/x", f"{root}/a/x", f"{root}/link/y", "/elsewhere/a/z", "s3://c/b/z"]
    asked = data.draw(st.lists(st.sampled_from(spelled), max_size=8))
    listed = data.draw(st.lists(st.sampled_from(found), max_size=8))
    besides = data.draw(st.lists(st.sampled_from(found), max_size=2))
    is_listing = data.draw(st.booleans())

    def all_needed(parts: list[list[str]]) -> set[str]:
        names = NamesNeeded(
            str(root),
            pa.array(listed, pa.string()),
            is_listing=is_listing,
            besides=pa.array(besides, pa.string()),
        )
        for part in parts:
            names.add(pa.array(part, pa.string()))
        return set(names.needed().to_pylist())

    at = data.draw(st.integers(0, len(asked)))
    assert (
        all_needed([asked[:at], asked[at:]])
        == all_needed([asked])
        == all_needed([[one] for one in asked])
    )
    text = {one for one in asked if one in found}
    means = {"link/x": "b/x", f"{root}/a/x": "a/x", f"{root}/link/y": "b/y"}
    means |= {"/elsewhere/a/z": "a/z", "s3://c/b/z": "b/z"}  # Nothing is known about these.
    text |= {means[one] for one in asked if one in means}
    assert set(listed) & text <= all_needed([asked])
    assert not (set(listed) - text) & all_needed([asked])
