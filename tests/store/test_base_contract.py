"""The stores satisfy the contract."""

import os
import uuid
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

from txlog.base.errors import NotFoundError, StoreError, UnsupportedFeatureError
from txlog.store.base import Store
from txlog.store.local.local import LocalStore
from txlog.store.memory import MemoryStore
from txlog.store.open import open_store
from txlog.store.ranged import RangedFile
from txlog.store.remote import Backend, FsspecStore
from txlog.testing import ReadingContract, StoreContract


class TestLocalStore(StoreContract):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.root = tmp_path / "a table %41#?é"

    def make_store(self) -> Store:
        store = open_store(self.root, {"secret": "hunter2"})
        assert isinstance(store, LocalStore)
        return store


class TestMemoryStore(StoreContract):
    shared_between_processes = False

    def make_store(self) -> Store:
        store = open_store(f"memory://{uuid.uuid4()}/t", {"secret": "hunter2"})
        assert isinstance(store, MemoryStore)
        return store

    def test_other_readers_of_memory_see_it(self) -> None:
        store = self.make_store()
        store.put_if_absent("log/0", b"x")
        assert fsspec.filesystem("memory").cat_file(store.resolve("log/0")) == b"x"


class TestFsspecStore(ReadingContract):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.root = tmp_path / "t"
        self.root.mkdir()

    def make_store(self) -> Store:
        store = open_store(f"local://{self.root}", {"secret": "hunter2", "txlog.x": "abcdefgh"})
        assert isinstance(store, FsspecStore)
        return store

    def fill(self, store: Store, path: str, data: bytes) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def test_writing_is_refused(self) -> None:
        store = self.make_store()
        for call in (
            store.require_writable,
            lambda: store.put_if_absent("f", b""),
            lambda: store.write_new("f", b""),
            lambda: store.replace("f", b""),
            lambda: store.delete(["f"]),
            lambda: store.open_output("f").__enter__(),
        ):
            with pytest.raises(UnsupportedFeatureError, match="atomic create"):
                call()
        assert list(self.root.iterdir()) == []
        store.delete([])

    def test_a_folder_is_not_read_as_a_file(self) -> None:
        store = self.make_store()
        (self.root / "folder").mkdir()
        with pytest.raises(StoreError):
            store.read("folder")
        with pytest.raises(StoreError):
            store.info("folder")


class TestFsspecRanges(TestFsspecStore):
    """A file system of the asynchronous kind, as those of object stores are: read by ranges."""

    def make_store(self) -> Store:
        store = open_store(f"local://{self.root}")
        assert isinstance(store, FsspecStore)
        files = AsyncFileSystemWrapper(fsspec.filesystem("local", skip_instance_cache=True))
        store._backends[os.getpid()] = Backend(files, str(self.root))
        return store

    def test_a_size_that_is_known_is_not_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        store = self.make_store()
        self.fill(store, "f", b"0123456789")
        monkeypatch.setattr(AsyncFileSystemWrapper, "info", None)
        with store.open_input("f", size=10) as file:
            assert isinstance(file, RangedFile)
            file.seek(-3, 2)
            assert (file.read(2), file.read(), file.read()) == (b"78", b"9", b"")
            file.seek(0)
            held = bytearray(4)
            assert (file.readinto(held), held, file.tell()) == (4, b"0123", 4)
        with store.open_input("missing", size=10) as file, pytest.raises(NotFoundError):
            file.read()

    def test_a_server_without_ranges_is_read_all_the_same(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = self.make_store()
        self.fill(store, "f", b"0123456789")
        whole = AsyncFileSystemWrapper.cat_file
        monkeypatch.setattr(
            AsyncFileSystemWrapper,
            "cat_file",
            lambda self, path, **_: whole(self, path),
            raising=False,
        )
        with store.open_input("f", size=10) as file:
            file.seek(4)
            assert file.read(3) == b"456"


class TestFsspecChain(TestFsspecStore):
    """Two file systems of fsspec in a chain."""

    def make_store(self) -> Store:
        store = open_store(f"simplecache::local://{self.root}")
        assert isinstance(store, FsspecStore)
        return store
