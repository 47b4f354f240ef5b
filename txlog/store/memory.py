"""Tables in this process's memory: fsspec's `memory://` file system."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pyarrow as pa

from txlog.effects import REAL
from txlog.errors import InvalidInputError, NotFoundError
from txlog.store.base import ObjectInfo, Put

# fsspec's own create-if-absent looks first and writes then; this makes it one step.
_LOCK = threading.Lock()


def _files() -> Any:
    from fsspec.implementations.memory import MemoryFileSystem

    return MemoryFileSystem()


@dataclass(frozen=True)
class MemoryStore:
    """A folder of fsspec's memory file system, which all threads of a process share."""

    root: str  # With the scheme.
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    def require_writable(self) -> None:
        """Pass: a lock makes creating atomic."""

    def resolve(self, path: str) -> str:
        """Return the URI of a file."""
        return path if path.startswith("memory://") else f"{self.root}/{path}"

    def _key(self, path: str) -> str:
        return "/" + self.resolve(path).removeprefix("memory://").strip("/")

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        with _LOCK:
            held = _files().store.get(self._key(path))
            if held is None:
                raise NotFoundError(path=path, reason="there is no such file")
            return bytes(held.getvalue())

    def open_input(self, path: str) -> Any:
        """Return a file for random reading."""
        return pa.BufferReader(self.read(path))

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Return a new file to be written in a `with`."""
        sink = BytesIO()
        yield sink
        self._put(path, sink.getvalue())

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole new file."""
        self._put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file, atomically; tell whether it was there before."""
        with _LOCK:
            if self._key(path) in _files().store:
                return "exists"
            self._store(path, data)
            return "created"

    def replace(self, path: str, data: bytes) -> None:
        """Write a file, replacing what was there."""
        self._put(path, data)

    def _put(self, path: str, data: bytes) -> None:
        with _LOCK:
            self._store(path, data)

    def _store(self, path: str, data: bytes) -> None:
        _files().pipe_file(self._key(path), data)

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder whose names are not below `name`, by name, ascending."""
        prefix = self._key(folder) + "/"
        with _LOCK:
            found = [
                _info(key.removeprefix(prefix), held)
                for key, held in _files().store.items()
                if key.startswith(prefix)
            ]
        chosen = [info for info in found if "/" not in info.name and info.name >= name]
        yield from sorted(chosen, key=lambda info: info.name)

    def info(self, path: str) -> ObjectInfo:
        """Return what the store knows of a file."""
        with _LOCK:
            held = _files().store.get(self._key(path))
            if held is None:
                raise NotFoundError(path=path, reason="there is no such file")
            return _info(path.rsplit("/", 1)[-1], held)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files below the root; those that are not there are passed over."""
        for path in paths:
            if path.startswith("memory:") or ".." in path.split("/"):
                raise InvalidInputError(
                    argument="paths", reason=f"{path!r} is not below the table's root"
                )
            with _LOCK:
                _files().store.pop(self._key(path), None)


def _info(name: str, held: Any) -> ObjectInfo:
    modified = getattr(held, "modified", None)
    stamp = int(modified.timestamp() * 1000) if modified else REAL.now_ms()
    return ObjectInfo(name, held.getbuffer().nbytes, stamp)
