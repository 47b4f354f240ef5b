"""Reading many files together equals reading each of them."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.base.errors import InvalidInputError, NotFoundError, StoreError, TxlogError
from txlog.store.base import ObjectInfo, pages_in_folders, require_below, within
from txlog.store.open import open_store

steps = st.text("-01", min_size=1, max_size=2)
in_trees = st.lists(steps, min_size=1, max_size=3).map("/".join)


@pytest.mark.spec("VAC-12")
@given(st.sets(in_trees), st.text("-/01", max_size=5), st.none() | st.text("-/01", max_size=5))
def test_a_range_is_listed_by_folders(held: set[str], after: str, until: str | None) -> None:
    # No name is a file and a folder, as on a disk.
    found = {one for one in held if not any(other.startswith(f"{one}/") for other in held)}
    files = [ObjectInfo(name, 1, None) for name in sorted(found)]

    def level(folder: str) -> tuple[list[ObjectInfo], list[str]]:
        asked.append(folder)
        inside = [one for one in files if one.name.startswith(folder)]
        rests = {one: one.name.removeprefix(folder) for one in inside}
        folders = {f"{folder}{rest.partition('/')[0]}/" for rest in rests.values() if "/" in rest}
        return [one for one, rest in rests.items() if "/" not in rest], sorted(folders)

    def below(folder: str) -> list[list[ObjectInfo]]:
        whole.append(folder)
        return [[one for one in files if one.name.startswith(folder)]]

    asked: list[str] = []
    whole: list[str] = []
    pages = pages_in_folders(level, below, after, until)
    assert sorted(info for page in pages for info in page) == within(files, after, until)
    # A level is asked for only on the way to a bound, and nothing outside of the range as a whole.
    assert all(after.startswith(one) or (until or "").startswith(one) for one in asked)
    inside = [one for one in files if one.name.startswith(tuple(whole))]
    assert within(inside, after, until) == inside


held = st.lists(st.tuples(st.binary(max_size=6), st.integers(0, 8)), max_size=5)


@given(held)
def test_whatever_size_was_told_the_bytes_are_those_of_the_file(
    files: list[tuple[bytes, int]],
) -> None:
    with tempfile.TemporaryDirectory() as root:
        for n, (data, _) in enumerate(files):
            Path(root, str(n)).write_bytes(data)
        asked = [(str(n), size) for n, (_, size) in enumerate(files)]
        for uri in (root, f"local://{root}"):
            assert list(open_store(uri).read_many(asked)) == [data for data, _ in files]


def test_the_size_of_a_listing_is_of_the_right_kind(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.write_new("f/a", b"0123")
    store.write_new("f/b", b"")
    told = [(f"f/{name}", size) for name, size, _ in store.list_after("f", "")]
    assert told == [("f/a", 4), ("f/b", 0)]
    assert list(store.read_many(told)) == [b"0123", b""]


@pytest.mark.parametrize("length", [511, 512, 513, 65535, 65536, 65537, 200_000])
@pytest.mark.parametrize("told", [True, False])
def test_a_file_of_any_length_is_read_whole(tmp_path: Path, length: int, told: bool) -> None:
    data = bytes(range(256)) * (length // 256 + 1)
    (tmp_path / "a").write_bytes(data[:length])
    asked = [("a", length if told else 0)]
    assert list(open_store(tmp_path).read_many(asked)) == [data[:length]]


@pytest.mark.parametrize("told", [True, False])
def test_a_file_that_comes_a_block_at_a_time_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    read = os.read
    (tmp_path / "a").write_bytes(bytes(5000))
    monkeypatch.setattr(os, "read", lambda descriptor, most: read(descriptor, min(most, 4096)))
    assert list(open_store(tmp_path).read_many([("a", 5000 if told else 0)])) == [bytes(5000)]


names = st.text("01ab.", min_size=1, max_size=3).filter(lambda name: name.strip("."))


@given(st.sets(names), st.sets(names), names | st.just(""))
def test_a_brief_listing_has_the_same_names(files: set[str], folders: set[str], since: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        for name in files:
            Path(root, "f", name).parent.mkdir(exist_ok=True)
            Path(root, "f", name).write_bytes(b"x")
        for name in folders - files:
            Path(root, "f", name).mkdir(parents=True)
        for uri in (root, f"local://{root}"):
            store = open_store(uri)
            listed = [info.name for info in store.list_after("f", since)]
            assert [name for name, _, _ in store.list_briefly("f", since)] == listed


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_a_brief_listing_has_links_to_files_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    for target in ("file", "folder", "nothing", "to-loop"):
        (tmp_path / f"to-{target.removeprefix('to-')}").symlink_to(target)
    store = open_store(tmp_path)
    listed = [info.name for info in store.list_after("", "")]
    assert [name for name, _, _ in store.list_briefly("", "")] == listed


@pytest.mark.parametrize("size", [0, 1, 4096, 1 << 70])
@pytest.mark.parametrize("path", ["none", "folder", "a\0b", "\ud800", "a/below"])
def test_errors_are_those_of_reading_one(tmp_path: Path, path: str, size: int) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a").write_bytes(b"x")
    store = open_store(tmp_path)
    with pytest.raises((InvalidInputError, NotFoundError, StoreError)) as by_itself:
        store.read(path)
    found = store.read_many([("a", 1), (path, size)])
    assert next(found) == b"x"
    with pytest.raises(TxlogError) as among_others:
        next(found)
    assert type(among_others.value) is type(by_itself.value)
    assert str(among_others.value) == str(by_itself.value)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes")
@pytest.mark.parametrize("size", [0, 1])
def test_a_pipe_is_no_file(tmp_path: Path, size: int) -> None:
    os.mkfifo(tmp_path / "p")
    with pytest.raises(StoreError, match="pipe"):
        list(open_store(tmp_path).read_many([("p", size)]))


def test_a_file_that_cannot_be_opened_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"x")

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreError, match="ulimit"):
        list(open_store(tmp_path).read_many([("a", 1)]))


@pytest.mark.parametrize("root", ["", "/", "bucket/t", "/bucket/t/"])
def test_only_files_below_the_root_are_deleted(root: str) -> None:
    below = f"{root.strip('/')}/" if root.strip("/") else ""
    require_below("a", f"{below}a", root)
    require_below("a/b", f"/{below}a/b", root)
    outside = [("", f"{below}a"), ("a", ""), ("a", root), ("a", f"{below}../a")]
    if below:
        outside += [("a", "a"), ("a", f"{root.strip('/')}2/a")]
    for path, key in outside:
        with pytest.raises(InvalidInputError, match="not a file below"):
            require_below(path, key, root)
