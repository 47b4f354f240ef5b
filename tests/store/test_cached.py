"""A store with a cache, compared with the store alone."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import shutil
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.moved import moved
from txlog.base.errors import InvalidInputError, TxlogWarning
from txlog.store.cached import Cache, CachedStore
from txlog.testing import CountingStore, LatencyStore, open_store

NAMES = count()


def far(uri: str) -> CountingStore:
    return CountingStore(LatencyStore(open_store(uri), 0))


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@given(st.data())
@settings(max_examples=examples(80))
def test_reads_are_those_of_the_store(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Also with parts that were damaged, deleted or of files that were replaced."""
    folder = tmp_path_factory.mktemp("cache")
    limit = data.draw(st.sampled_from([1, 30, 1 << 20]))
    content = {name: os.urandom(data.draw(st.integers(0, 40))) for name in ("a", "b")}
    inner = far(f"memory://cached-{next(NAMES)}")
    for name, text in content.items():
        inner.replace(name, text)
    with moved({"txlog.store.cached:_PART_BYTES": data.draw(st.integers(1, 9))}):
        stores = [CachedStore(inner, Cache(folder, limit)) for _ in range(2)]
        for _ in range(data.draw(st.integers(1, 12))):
            name = data.draw(st.sampled_from(["a", "b"]))
            start, length = data.draw(st.integers(0, 45)), data.draw(st.integers(0, 45))
            with data.draw(st.sampled_from(stores)).open_input(name) as source:
                source.seek(start)
                assert source.read(length) == content[name][start : start + length]
            # What is there depends on hashes of paths, so draws do not.
            damage = data.draw(st.sampled_from([None, "delete", "cut", "flip", "empty"]))
            which, where = data.draw(st.integers(0, 99)), data.draw(st.integers(0, 99))
            if damage is not None and (kept := files_in(folder)):
                one = kept[which % len(kept)]
                text = one.read_bytes()
                at = where % max(1, len(text))
                flipped = bytes(byte ^ (place == at) for place, byte in enumerate(text))
                made = {"cut": text[:at], "flip": flipped, "empty": b"", "delete": None}[damage]
                one.unlink() if made is None else one.write_bytes(made)
                for name, text in content.items():
                    assert read_all(stores[which % 2], name) == text
            if data.draw(st.booleans()):  # With another size: the time may be the same.
                content[name] = os.urandom(len(content[name]) + 1)
                inner.replace(name, content[name])
                stores = [pickle.loads(pickle.dumps(store)) for store in stores]
    if limit < 1 << 20:
        # A twentieth of it and the last part may be more.
        assert sum(path.stat().st_size for path in files_in(folder)) <= limit + 2 + 9 + 4


def test_a_part_is_asked_for_once_by_all_threads(tmp_path: Path) -> None:
    text = random.Random(1).randbytes(3 << 20)
    inner = CountingStore(LatencyStore(open_store(str(tmp_path / "far")), 0.05))
    inner.inner.write_new("a", text)
    store = CachedStore(inner, Cache(tmp_path / "cache"))
    with store.open_input("a") as source:
        assert source.read(0) == b""
    inner.reset()
    together = Barrier(8)

    def read(at: int) -> bytes:
        with store.open_input("a") as source:
            together.wait()
            source.seek(at)
            return bytes(source.read(1 << 20))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(read, [100_000 * at for at in range(8)]))
    assert found == [text[100_000 * at :][: 1 << 20] for at in range(8)]
    asked = [call.size for call in inner.calls if call.kind != "info"]
    assert sum(asked) == 2 << 20  # Parts 0 and 1.
    inner.reset()
    assert read_all(pickle.loads(pickle.dumps(store)), "a") == text
    assert inner.calls == []  # The copy has its own counter; the parts come from the disk.


def read_all(store: CachedStore, name: str) -> bytes:
    with store.open_input(name) as source:
        return bytes(source.read())


def test_what_was_used_last_stays(tmp_path: Path) -> None:
    inner = far(str(tmp_path / "far"))
    for name in "abcdefghij":
        inner.write_new(name, name.encode() * 1000)
    folder = tmp_path / "cache"
    store = CachedStore(inner, Cache(folder, 5_000))
    read_all(store, "a")
    old = time.time() - 7200
    for name in "bcd":
        read_all(store, name)
    for path in files_in(folder):
        os.utime(path, (old, old))
    left = folder / files_in(folder)[0].parent.name / "new-left"
    left.write_bytes(b"of a killed process")
    os.utime(left, (old, old))
    read_all(store, "a")  # A use.
    for name in "efg":
        read_all(store, name)
    inner.reset()
    assert not left.exists()
    assert sum(path.stat().st_size for path in files_in(folder)) <= 5_000
    assert read_all(CachedStore(inner, Cache(folder, 5_000)), "a") == b"a" * 1000
    assert read_all(CachedStore(inner, Cache(folder, 5_000)), "g") == b"g" * 1000
    assert set(inner.requests) == {"info"}


def test_a_failed_request_is_tried_by_who_waited(tmp_path: Path) -> None:
    """A thread that waits for another one's part gets its own answer when the other fails."""
    inner = far(str(tmp_path / "far"))
    inner.write_new("a", b"text")
    store = CachedStore(inner, Cache(tmp_path / "cache"))
    asked = iter([OSError("away"), None])
    whole = inner.open_input

    def sometimes(path: str, *, size: int | None = None) -> object:
        time.sleep(0.2)
        error = next(asked, None)
        if error is not None:
            raise error
        return whole(path, size=size)

    inner.open_input = sometimes  # type: ignore[method-assign]
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(read_all, store, "a") for _ in range(2)]
        errors = [one.exception() for one in found]
    assert sorted(str(error) for error in errors) == ["None", "away"]
    assert read_all(store, "a") == b"text"


def test_a_file_that_is_shorter_than_its_size_is_an_error(tmp_path: Path) -> None:
    inner = far(str(tmp_path / "far"))
    inner.write_new("a", b"some text")
    store = CachedStore(inner, Cache(tmp_path / "cache"))
    with store.open_input("a") as source:
        inner.replace("a", b"some")
        with pytest.raises(OSError, match="4 of 9 bytes"):
            source.read()


def test_a_cache_that_is_gone_is_said_once(tmp_path: Path) -> None:
    inner = far(str(tmp_path / "far"))
    inner.write_new("a", b"text")
    folder = tmp_path / "cache"
    store = CachedStore(inner, Cache(folder))
    shutil.rmtree(folder)
    with pytest.warns(TxlogWarning, match="cannot be written"):
        assert read_all(store, "a") == b"text"
    assert read_all(store, "a") == b"text"


def test_only_parts_are_deleted_and_trouble_is_said_once(tmp_path: Path) -> None:
    inner = far(str(tmp_path / "far"))
    for name in "abc":
        inner.write_new(name, name.encode() * 1000)
    folder = tmp_path / "cache"
    store = CachedStore(inner, Cache(folder, 1_500))
    for place in ("zz", "d9", "notes"):
        (folder / place).mkdir()
        (folder / place / "precious.txt").write_text("mine")
        os.utime(folder / place / "precious.txt", (1, 1))
    (folder / "d9" / "folder").mkdir()
    for name in "abc":
        assert read_all(store, name) == name.encode() * 1000
    assert len(list(folder.rglob("precious.txt"))) == 3
    shutil.rmtree(folder)
    folder.write_text("no folder")
    other = CachedStore.__new__(CachedStore)
    other.__setstate__({"inner": inner, "cache": store.cache})
    with pytest.warns(TxlogWarning, match="cannot be written"):
        assert read_all(other, "a") == b"a" * 1000
    assert read_all(other, "b") == b"b" * 1000


def test_a_fork_does_not_wait_for_threads_of_its_parent(tmp_path: Path) -> None:
    inner = LatencyStore(open_store(str(tmp_path / "far")), 1.0)
    inner.inner.write_new("a", b"text")
    store = CachedStore(inner, Cache(tmp_path / "cache"))
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_all, store, "a")
        time.sleep(1.3)  # It knows the size, and waits for the part.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # A fork beside threads; lance warns, too.
            child = multiprocessing.get_context("fork").Process(target=read_all, args=(store, "a"))
            child.start()
        child.join(30)
        assert child.exitcode == 0
        assert reading.result() == b"text"


def test_wrong_arguments(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="cannot be created") as raised:
        Cache(tmp_path / "file" / "folder")
    assert raised.value.argument == "folder"
    with pytest.raises(InvalidInputError, match="a whole number from 1") as raised:
        Cache(tmp_path, 0)
    assert raised.value.argument == "max_bytes"
    Cache(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


READER = """
import sys
from tests.store.test_cached import *
from txlog.store.cached import *
store = CachedStore(far(sys.argv[1]), Cache(sys.argv[2], 3_000_000))
for turn in range(30):
    for name in range(6):
        text = read_all(store, f"f{(name + turn) % 6}")
        assert text == bytes([(name + turn) % 6]) * 1_500_000, (turn, name, len(text))
"""


@pytest.mark.slow
def test_processes_share_a_folder(tmp_path: Path) -> None:
    """Processes that read, write and delete the same parts see only whole ones."""
    inner = far(str(tmp_path / "far"))
    for name in range(6):
        inner.write_new(f"f{name}", bytes([name]) * 1_500_000)
    arguments = [sys.executable, "-c", READER, str(tmp_path / "far"), str(tmp_path / "cache")]
    running = [subprocess.Popen(arguments, cwd=Path(__file__).parents[2]) for _ in range(3)]
    assert [process.wait(120) for process in running] == [0, 0, 0]
    assert sum(path.stat().st_size for path in files_in(tmp_path / "cache")) < 7_000_000
