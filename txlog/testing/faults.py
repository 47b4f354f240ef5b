"""A store that fails where a plan says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from txlog.errors import OutcomeUnknownError, StoreError, TxlogError
from txlog.store.base import BasicStore, ObjectInfo, Put, Store

FaultKind = Literal["lost_answer", "lost_request", "not_done", "exists_though_created"]

_READS = ("read", "open_input", "list_after", "list_tree", "info")


@dataclass(frozen=True)
class Fault:
    """What happens to one call of one operation.

    `lost_answer`: done, then `OutcomeUnknownError`. `lost_request`: not done, and the same error.
    `not_done`: `StoreError`. `exists_though_created`: a put that lands is answered `exists`, as
    by a client that tries again by itself. Of a read, the first three are a `StoreError`.
    """

    operation: str  # A method of `Store`, such as `put_if_absent`.
    call: int  # Of that operation, from 1.
    kind: FaultKind

    def __post_init__(self) -> None:
        if self.kind == "exists_though_created" and self.operation != "put_if_absent":
            raise ValueError(f"only a put can be answered so, not {self.operation}")


class FaultyStore(BasicStore):
    """A store around another one, which fails by a plan; the same calls fail the same way.

    Parameters
    ----------
    plan
        Faults; at most one for each call of an operation.
    before
        What to run before a call, by operation and number from 1: say, another writer's commit.

    Attributes
    ----------
    calls
        All calls so far, in order: operation and path.
    """

    def __init__(
        self,
        inner: Store,
        plan: Iterable[Fault] = (),
        *,
        before: Mapping[tuple[str, int], Callable[[], object]] | None = None,
    ) -> None:
        self.inner = inner
        self.calls: list[tuple[str, str]] = []
        self._plan = {(fault.operation, fault.call): fault.kind for fault in plan}
        self._before = dict(before or {})
        self._counts: Counter[str] = Counter()

    @property
    def root(self) -> str:
        """Where the table is."""
        return self.inner.root

    @property
    def options(self) -> Mapping[str, Any]:
        """What the table was opened with."""
        return self.inner.options

    def require_writable(self) -> None:
        """Ask the store within."""
        self.inner.require_writable()

    def resolve(self, path: str) -> str:
        """Return the absolute path or URI of a file."""
        return self.inner.resolve(path)

    @contextmanager
    def _call(self, operation: str, path: str) -> Iterator[FaultKind | None]:
        self._counts[operation] += 1
        self.calls.append((operation, path))
        number = self._counts[operation]
        self._before.get((operation, number), lambda: None)()
        kind = self._plan.get((operation, number))
        if kind in ("not_done", "lost_request"):
            raise _error(kind, operation, path)
        yield kind
        if kind == "lost_answer":
            raise _error(kind, operation, path)

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        with self._call("read", path):
            return self.inner.read(path)

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        """Return a file for random reading."""
        with self._call("open_input", path):
            return self.inner.open_input(path, size=size)

    def info(self, path: str) -> ObjectInfo:
        """Return what the store knows of a file."""
        with self._call("info", path):
            return self.inner.info(path)

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder whose names are not below `name`, by name, ascending."""
        with self._call("list_after", folder):
            yield from self.inner.list_after(folder, name)

    def list_tree(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield all files below a folder."""
        with self._call("list_tree", folder):
            yield from self.inner.list_tree(folder)

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Return a new file to be written in a `with`; an answer is lost when it ends."""
        with self._call("open_output", path), self.inner.open_output(path) as sink:
            yield sink

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole new file."""
        with self._call("write_new", path):
            self.inner.write_new(path, data)

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file; tell whether it was there before."""
        with self._call("put_if_absent", path) as kind:
            outcome = self.inner.put_if_absent(path, data)
        return "exists" if kind == "exists_though_created" else outcome

    def replace(self, path: str, data: bytes) -> None:
        """Write a file, replacing what was there."""
        with self._call("replace", path):
            self.inner.replace(path, data)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files below the root."""
        with self._call("delete", ", ".join(paths)):
            self.inner.delete(paths)


def _error(kind: FaultKind, operation: str, path: str) -> TxlogError:
    if kind == "not_done" or operation in _READS:
        return StoreError(operation=operation, path=path, reason="a planned fault")
    return OutcomeUnknownError(path=path, reason=f"a planned fault: {kind}")
