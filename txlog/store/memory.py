"""Tables in this process's memory: fsspec's `memory://` file system."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pyarrow as pa

from txlog.base.errors import NotFoundError, os_errors
from txlog.store.base import BasicStore, ObjectInfo, Put, known_ms, require_below

# fsspec's own create-if-absent checks first and writes then. The lock makes this one step.
_lock = threading.RLock()
_SCHEME = "memory://"


def _after_fork() -> None:
    """Replace the lock: a thread that does not exist in the forked process may hold it."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _files() -> Any:
    from fsspec.implementations.memory import MemoryFileSystem

    return MemoryFileSystem()


@dataclass(frozen=True)
class MemoryStore(BasicStore):
    """A folder in fsspec's memory file system, which all threads of a process share.

    All readers of `memory://` in the process see its files. A pickled store that is loaded in
    another process refers to that process's memory.
    """

    root: str  # With the scheme.
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    def require_writable(self) -> None:
        """Accept the store: a lock makes create atomic."""

    def resolve(self, path: str) -> str:
        """Return the URI of a file."""
        if path[: len(_SCHEME)].lower() == _SCHEME:
            return _SCHEME + path[len(_SCHEME) :].strip("/")
        return "/".join(part for part in (self.root.rstrip("/"), path) if part)

    def _key(self, path: str) -> str:
        key = self.resolve(path).removeprefix("memory:").strip("/")
        return f"/{key}" if key else ""

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        with _lock:
            return bytes(self._content(path).getvalue())

    def _content(self, path: str) -> Any:
        content = _files().store.get(self._key(path))
        if content is None:
            raise NotFoundError(path=path, reason="there is no such file", table=self.root)
        return content

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        """Return a file for random reading, with the current bytes."""
        return pa.BufferReader(self.read(path))

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Return a new file to be written in a `with`; it appears when the block ends."""
        self._require_free(path)
        sink = Sink()
        yield sink
        self.write_new(path, sink.content())

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole new file."""
        with _lock:
            self._require_free(path)
            self._put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file atomically; return whether it was created or existed before."""
        with _lock:
            if self._key(path) in _files().store:  # fsspec's `exists` reads the names of all files.
                return "exists"
            self._put(path, data)
            return "created"

    def replace(self, path: str, data: bytes) -> None:
        """Write a file over an existing one."""
        with _lock:
            self._put(path, data)

    def _require_free(self, path: str) -> None:
        with os_errors("create", path, self.root):
            if self._key(path) in _files().store:
                raise FileExistsError("File exists")

    def _put(self, path: str, data: bytes) -> None:
        with os_errors("write", path, self.root):
            _files().pipe_file(self._key(path), data)

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder whose names are not below `name`, by name, ascending."""
        for info in self.list_tree(folder):
            if "/" not in info.name and info.name >= name:
                yield info

    def list_tree(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield all files below a folder, by name, ascending."""
        prefix = self._key(folder) + "/"
        with _lock:
            found = [
                _info(key.removeprefix(prefix), content)
                for key, content in _files().store.items()
                if key.startswith(prefix)
            ]
        yield from sorted(found, key=lambda info: info.name)

    def info(self, path: str) -> ObjectInfo:
        """Return the name, size and time of a file."""
        with _lock:
            return _info(path.rsplit("/", 1)[-1], self._content(path))

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files below the root; those that are not there are skipped."""
        keys = [self._key(path) for path in paths]
        for path, key in zip(paths, keys, strict=True):
            require_below(path, key, self._key(""))
        with _lock:
            for key in keys:
                _files().store.pop(key, None)


class Sink(BytesIO):
    """A file being written, whose bytes remain available after a writer closes it."""

    def __init__(self) -> None:
        super().__init__()
        self._content: bytes | None = None

    def close(self) -> None:
        """Store the bytes, then close."""
        if not self.closed:
            self._content = self.getvalue()
        super().close()

    def content(self) -> bytes:
        """Return the bytes that were written."""
        return self.getvalue() if self._content is None else self._content


def _info(name: str, content: Any) -> ObjectInfo:
    modified_ms = known_ms(int(content.modified.timestamp() * 1000))
    return ObjectInfo(name, content.getbuffer().nbytes, modified_ms)
