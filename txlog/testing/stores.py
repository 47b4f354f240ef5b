"""Stores around other stores: one counts requests, one is slow. Tables on any store."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import RawIOBase
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from txlog.base.effects import REAL, Effects
from txlog.extend import ObjectInfo, Put, Store
from txlog.store.base import WrappingStore

if TYPE_CHECKING:
    pass

RequestKind = Literal[
    "read", "info", "read_range", "list_after", "list_tree", "open_output", "write_new",
    "put_if_absent", "replace", "delete",
]  # fmt: skip

Result = TypeVar("Result")

_NAMES_AT_ONCE = 1000  # The names or deletions of one request to an object store.


class Request(NamedTuple):
    """A request to a remote store."""

    kind: RequestKind
    path: str  # For a listing: the folder, `/` and the name at which it starts.
    size: int = 0  # The sent or received bytes of files.


class WatchedStore(WrappingStore):
    """A store that wraps another one; a subclass defines the action at each request.

    The requests are those that an object store would receive. Opening a file asks for its size if
    the caller does not know it; then each read is one request. A listing needs one request for each
    1,000 names.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "inner" or name.startswith("__"):  # It has no `inner` while it is unpickled.
            raise AttributeError(name)
        return getattr(self.inner, name)

    def _requested(self, request: Request) -> None:
        """Record a request, after its answer."""
        raise NotImplementedError

    def _send(
        self, kind: RequestKind, path: str, call: Callable[[], Result], size: int = 0
    ) -> Result:
        try:
            found = call()
            if isinstance(found, bytes):
                size = len(found)
            return found
        finally:
            self._requested(Request(kind, path, size))

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        return self._send("read", path, lambda: self.inner.read(path))

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        """Return a file for random reading."""
        if size is None:
            file = self._send("info", path, lambda: self.inner.open_input(path))
        else:
            file = self.inner.open_input(path, size=size)
        return _WatchedFile(file, lambda call: self._send("read_range", path, call))

    def info(self, path: str) -> ObjectInfo:
        """Return the name, size and time of a file."""
        return self._send("info", path, lambda: self.inner.info(path))

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder whose names are not below `name`, by name, ascending."""
        return self._listed("list_after", f"{folder}/{name}", self.inner.list_after(folder, name))

    def list_tree(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield all files below a folder."""
        return self._listed("list_tree", f"{folder}/", self.inner.list_tree(folder))

    def _listed(
        self, kind: RequestKind, path: str, found: Iterator[ObjectInfo]
    ) -> Iterator[ObjectInfo]:
        self._requested(Request(kind, path))
        for n, info in enumerate(found):
            if n and n % _NAMES_AT_ONCE == 0:
                self._requested(Request(kind, path))
            yield info

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Return a new file to write in a `with`; it is sent at the end of the `with`."""
        with self.inner.open_output(path) as sink:
            yield sink
        self._requested(Request("open_output", path, self.inner.info(path).size))

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole new file."""
        self._send("write_new", path, lambda: self.inner.write_new(path, data), len(data))

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file; return whether it was created or existed before."""
        return self._send(
            "put_if_absent", path, lambda: self.inner.put_if_absent(path, data), len(data)
        )

    def replace(self, path: str, data: bytes) -> None:
        """Write a file over an existing one."""
        self._send("replace", path, lambda: self.inner.replace(path, data), len(data))

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files below the root."""
        self.inner.delete(paths)
        for start in range(0, len(paths), _NAMES_AT_ONCE):
            self._requested(Request("delete", paths[start]))


class _WatchedFile(RawIOBase):
    """A file open for reading; each read is a request."""

    def __init__(self, inner: Any, send: Callable[[Callable[[], bytes]], bytes]) -> None:
        super().__init__()
        self._inner = inner
        self._send = send

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._inner.seek(offset, whence))

    def tell(self) -> int:
        return int(self._inner.tell())

    def read(self, size: int | None = -1) -> bytes:
        wanted = () if size is None or size < 0 else (size,)
        return self._send(lambda: bytes(self._inner.read(*wanted)))

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._inner.close()
        super().close()


class CountingStore(WatchedStore):
    """A store around another one, which counts requests and their bytes.

    The number of requests does not depend on the machine, so a test can compare it with a constant.
    `open_table` opens a table in it.

    Attributes
    ----------
    calls
        All requests so far, in the order of their answers. `reset` removes them.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls: list[Request] = []

    def _requested(self, request: Request) -> None:
        self.calls.append(request)  # Appending is atomic, also with several threads.

    @property
    def requests(self) -> Counter[str]:
        """The number of requests of each kind."""
        return Counter(call.kind for call in self.calls)

    @property
    def bytes(self) -> Counter[str]:
        """The bytes of files that requests of each kind sent or received."""
        found: Counter[str] = Counter()
        for call in self.calls:
            found[call.kind] += call.size
        return found

    def reset(self) -> None:
        """Set all counts to zero."""
        self.calls = []


DELAY_S = 0.05


class LatencyStore(WatchedStore):
    """A store that wraps another one and delays each request, as over a network.

    Parameters
    ----------
    delay_s
        The additional time of a request, in seconds. With 0 txlog still treats it as a remote
        store: it reads larger parts, and several at a time.

    Attributes
    ----------
    reads_at_once
        That of the wrapped store; 16 if the wrapped store is local.
    """

    def __init__(self, inner: Store, delay_s: float = DELAY_S, *, effects: Effects = REAL) -> None:
        super().__init__(inner)
        self._delay_s = delay_s
        self._effects = effects

    @property
    def reads_at_once(self) -> int:  # type: ignore[override]
        """The best number of concurrent reads."""
        return self.inner.reads_at_once if self.inner.reads_at_once > 1 else 16

    def _requested(self, request: Request) -> None:
        if self._delay_s > 0:
            self._effects.sleep_s(self._delay_s)


_SEAL = re.compile(rb'"txlogCrc32":"[0-9a-f]*",|,"txlogCrc32":"[0-9a-f]*"')


def unsealed(commit: bytes) -> bytes:
    """Return the bytes of a commit without the checksum that txlog put into it.

    Remove it from a commit that you change by hand; otherwise the commit is refused as damaged.
    """
    return _SEAL.sub(b"", commit, count=1)
