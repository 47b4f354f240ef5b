"""Catalogs in one store; a test can see and break each of their steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from fsspec.implementations.memory import MemoryFileSystem

from tests import ticking
from txlog.base.effects import Effects
from txlog.base.threads import Threads
from txlog.store.base import BasicStore, ObjectInfo, Put, Store
from txlog.store.memory import MemoryStore
from txlog.training.datasets.folder import Datasets
from txlog.training.datasets.home import Home
from txlog.training.datasets.limits import DEFAULT_LIMITS, Limits
from txlog.training.datasets.prepare import InlineRunner, Runner
from txlog.training.datasets.sources import Sources

Files = Mapping[str, bytes]


class Ticking(ticking.Ticking):
    """The same, and nothing waits."""

    def sleep_s(self, seconds: float) -> None:
        return None


class Ids:
    """Ids of code that takes no effects: in each schedule the same ones, after `begin`."""

    count = 0

    @staticmethod
    def begin() -> None:
        Ids.count = 0

    @staticmethod
    def next(_: Effects) -> str:
        Ids.count += 1
        return f"{Ids.count:08x}-0000-4000-9000-000000000000"


class Below(BasicStore):
    """A folder of a store, as a store: its steps are steps of that one."""

    def __init__(self, whole: Store, folder: str) -> None:
        self._whole = whole
        self._folder = folder

    @property
    def root(self) -> str:
        return f"{self._whole.root}/{self._folder}"

    @property
    def options(self) -> Mapping[str, Any]:
        return self._whole.options

    def _at(self, path: str) -> str:
        return f"{self._folder}/{path}" if path else self._folder

    def require_writable(self) -> None:
        self._whole.require_writable()

    def resolve(self, path: str) -> str:
        return self._whole.resolve(self._at(path))

    def read(self, path: str) -> bytes:
        return self._whole.read(self._at(path))

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        return self._whole.open_input(self._at(path), size=size)

    def info(self, path: str) -> ObjectInfo:
        return self._whole.info(self._at(path))

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        return self._whole.list_after(self._at(folder), name)

    def list_tree(self, folder: str) -> Iterator[ObjectInfo]:
        return self._whole.list_tree(self._at(folder))

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        with self._whole.open_output(self._at(path)) as sink:
            yield sink

    def write_new(self, path: str, data: bytes) -> None:
        self._whole.write_new(self._at(path), data)

    def put_if_absent(self, path: str, data: bytes) -> Put:
        return self._whole.put_if_absent(self._at(path), data)

    def replace(self, path: str, data: bytes) -> None:
        self._whole.replace(self._at(path), data)

    def delete(self, paths: Sequence[str]) -> None:
        self._whole.delete([self._at(path) for path in paths])


class HomeWithin(Home):
    """A home all of whose stores are folders of one."""

    def store_of(self, path: str) -> Store:
        return Below(self.store, path)


def catalog_in(
    store: Store,
    actor: int = 0,
    runner: Runner | None = None,
    effects: Effects | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Datasets:
    home = HomeWithin(
        store,
        sources=Sources(None),
        limits=limits,
        runner=runner or InlineRunner(),
        engine=Threads(1),
        effects=effects or Ticking(actor),
        by=f"actor {actor}",
    )
    return Datasets._of(home)


def rows_of(text: str) -> pa.Table:
    return pa.table({"id": range(len(text)), "label": list(text)})


def texts(rows: pa.Table) -> str:
    return "".join(rows["label"].to_pylist())


def clear(store: MemoryStore) -> None:
    files = MemoryFileSystem()
    if files.exists(store.root):
        files.rm(store.root, recursive=True)


def files_in(store: Store) -> dict[str, bytes]:
    return {file.name: store.read(file.name) for file in store.list_tree("")}


def fill(store: MemoryStore, files: Files) -> None:
    Ids.begin()
    clear(store)
    for name, data in files.items():
        store.write_new(name, data)
