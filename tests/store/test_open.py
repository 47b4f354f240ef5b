"""From URIs to stores, and from a log's paths to their stores."""

import importlib.util
import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import txlog
from txlog.base.errors import (
    DataFileError,
    InvalidInputError,
    LogCorruptError,
    NotFoundError,
    StoreError,
    UnsupportedFeatureError,
)
from txlog.store.cloud import CloudStore
from txlog.store.local.local import LocalStore
from txlog.store.open import ALLOWED_SCHEMES, locate, open_store, uri_of

ODD = "a b%20c#d?é😀"


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        (f"/x/{ODD}", f"/x/{ODD}"),
        ("/x//y/./z/", "/x/y/z"),
        ("//x", "/x"),
        ("file:/x%20y", "/x y"),
        ("file:///x%2520y", "/x%20y"),
        ("file:////x", "/x"),
        ("file://localhost/x", "/x"),
        ("FILE:///x#y?z", "/x#y?z"),
        ("file:///x%23y", "/x#y"),
        ("/x/a::b", "/x/a::b"),
    ],
)
def test_local_uris(uri: str, root: str) -> None:
    store = open_store(uri)
    assert isinstance(store, LocalStore)
    assert store.root == root


def test_relative_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("t") == open_store(tmp_path / "t")
    assert open_store("./~").root == str(tmp_path / "~")
    assert open_store("a~").root == str(tmp_path / "a~")


def test_a_tilde_is_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.chdir(work)
    assert open_store("~").root == str(home)
    assert open_store("~/a/../t").root == open_store(Path("~/t")).root == str(home / "t")
    assert open_store(f"{tmp_path}/~").root == str(tmp_path / "~")
    assert open_store("~no such user/t").root == str(work / "~no such user" / "t")
    assert open_store("file:///~").root == "/~"
    txlog.write("~/t", pa.table({"x": [1, 2]}))
    assert txlog.Table(home / "t").count() == DeltaTable(home / "t").count() == 2
    assert list(work.iterdir()) == []


@pytest.mark.parametrize("uri", ["", " ", "a\0b", "file:///a%00b", "file://host/x", "file:x"])
def test_bad_uris(uri: str) -> None:
    with pytest.raises(InvalidInputError):
        open_store(uri)


def test_secrets_are_not_shown() -> None:
    store = open_store("s3://user:hunter2@b/t?sig=hunter2", {"key": "hunter2"})
    assert "hunter2" not in repr(store)
    assert "hunter2" not in repr(open_store("/t", {"key": "hunter2"}))
    assert open_store("/t", {"key": "a"}) != open_store("/t", {"key": "b"})


@pytest.mark.parametrize(
    ("uri", "package", "words"),
    [
        ("gs://b/t", "gcsfs", r"pyspark-txlog\[gcs\]"),
        ("s3://b/t", "s3fs", r"pyspark-txlog\[s3\]"),
        ("abfss://b/t", "adlfs", r"pyspark-txlog\[azure\]"),
        ("nonsense://b/t", "nonsense", "spelling"),
    ],
)
def test_a_missing_backend_is_named(uri: str, package: str, words: str) -> None:
    if importlib.util.find_spec(package):
        pytest.skip(f"{package} is installed")
    with pytest.raises(UnsupportedFeatureError, match=words):
        list(open_store(uri, {"txlog.backend": "fsspec"}).list_after("_delta_log", ""))


def test_a_log_may_point_outside_its_table(tmp_path: Path) -> None:
    other = tmp_path / ODD
    other.write_bytes(b"x")
    store = open_store(tmp_path / "t")
    for path in (str(other), f"file://{other}", f"file:{other}"):
        home, name = locate(store, path)
        assert home == store
        assert home.read(name) == b"x"
    assert locate(store, "p=a:b/c") == (store, "p=a:b/c")
    remote = open_store("s3://b/t")
    assert locate(remote, "s3a://c/f")[0] == remote


def test_other_schemes_must_be_allowed(tmp_path: Path) -> None:
    (tmp_path / ODD).write_bytes(b"x")
    with pytest.raises(UnsupportedFeatureError, match=ALLOWED_SCHEMES):
        locate(open_store(tmp_path), "s3://b/f")
    for path in (str(tmp_path / ODD), f"file://{tmp_path / ODD}"):
        with pytest.raises(UnsupportedFeatureError, match=ALLOWED_SCHEMES):
            locate(open_store("memory://t"), path)
        home, name = locate(open_store("memory://t", {ALLOWED_SCHEMES: "s3, file"}), path)
        assert home.read(name) == b"x"
    home, _ = locate(open_store("gs://b", {ALLOWED_SCHEMES: "s3", "token": "hunter2"}), "s3://b/f")
    assert isinstance(home, CloudStore)
    assert "token" not in home.options
    memory = open_store("memory://foreign/t")
    memory.replace("f", b"y")
    home, name = locate(open_store(tmp_path, {ALLOWED_SCHEMES: "memory"}), "memory://foreign/t/f")
    assert home.read(name) == b"y"


@pytest.mark.parametrize(
    ("root", "path", "uri"),
    [
        ("/t", f"p=1/{ODD}", f"/t/p=1/{ODD}"),
        ("/t", f"/x/{ODD}", f"/x/{ODD}"),
        ("/t", "file:///x/f", "/x/f"),
        ("/t", "s3://b/f", "s3://b/f"),
        ("memory://t", "f", "memory://t/f"),
        ("memory://t", "memory://u/f", "memory://u/f"),
        ("memory://t", "/x/f", "/x/f"),
        ("s3://b/t", "f", "s3://b/t/f"),
        ("s3://b/t", "s3a://c/f", "s3a://c/f"),
        ("s3://b/t", "gs://c/f", "gs://c/f"),
    ],
)
def test_where_a_path_of_a_log_leads(root: str, path: str, uri: str) -> None:
    assert uri_of(open_store(root), path) == uri


def test_odd_things_on_a_disk(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "broken.json").symlink_to(tmp_path / "missing")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    assert list(store.list_after("", "")) == []
    for name in ("folder.json", "pipe.json", "circle", "n" * 300):
        for call in (store.read, store.open_input, store.info):
            with pytest.raises(StoreError) as caught:
                call(name)
            assert caught.value.remedy
    with pytest.raises(NotFoundError):
        store.read("broken.json")
    for name in ("a\0b", "\ud800"):
        with pytest.raises(InvalidInputError):
            store.read(name)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="folder was expected"):
        store.put_if_absent("file/0.json", b"")
    assert list(store.list_after("file", "")) == []  # As of a folder that is not there.


def test_links_are_not_followed_when_deleting(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"x")
    store = open_store(tmp_path / "t")
    store.write_new("a", b"")
    (tmp_path / "t" / "folder").symlink_to(outside)
    (tmp_path / "t" / "link").symlink_to(outside / "f")
    assert [info.name for info in store.list_tree("")] == ["a"]
    with pytest.raises(InvalidInputError):
        store.delete(["a", "folder/f"])
    store.delete(["link", str(tmp_path / "t" / "a")])
    assert (outside / "f").read_bytes() == b"x"
    assert [path.name for path in (tmp_path / "t").iterdir()] == ["folder"]


def test_errors_name_the_table_and_the_path_in_it(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"x": [1, 2]}))
    log = tmp_path / "t" / "_delta_log"
    (file,) = (tmp_path / "t").glob("*.parquet")
    file.rename(tmp_path / "away")
    with pytest.raises(DataFileError) as missing:
        table.to_arrow()
    (tmp_path / "away").rename(file)
    (log / f"{0:020d}.json").write_text("{}\n{")
    with pytest.raises(LogCorruptError) as damaged:
        txlog.Table(tmp_path / "t")
    with pytest.raises(NotFoundError) as absent:
        open_store(tmp_path / "t").read("_delta_log/none")
    for caught in (missing, damaged, absent):
        assert caught.value.table == str(tmp_path / "t")
        assert f"table={str(tmp_path / 't')!r}" in str(caught.value)
    with pytest.raises(NotFoundError) as no_table:
        txlog.Table(tmp_path / "none")
    assert str(no_table.value).count(str(tmp_path / "none")) == 1
    with pytest.raises(NotFoundError) as far:
        open_store("memory://user:secret@host/t").read("x")
    assert "secret" not in str(far.value)
