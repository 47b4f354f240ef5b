"""Stores that fail as planned, or end the process at a chosen step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from txlog.base.errors import OutcomeUnknownError, StoreError, TxlogError
from txlog.extend import ObjectInfo, Put, Store
from txlog.store.base import WrappingStore
from txlog.store.local.put import temporary
from txlog.store.memory import Sink

FaultKind = Literal["lost_answer", "lost_request", "not_done", "exists_though_created"]

_READS = ("read", "open_input", "list_after", "list_tree", "info")


@dataclass(frozen=True)
class Fault:
    """The planned fault of one call of an operation.

    `lost_answer`: the call is done, then raises `OutcomeUnknownError`. `lost_request`: it is not
    done, and raises the same error. `not_done`: it raises `StoreError`. `exists_though_created`: a
    put that succeeds returns `exists`, as from a client with automatic retries. For a read, the
    first three are a `StoreError`.
    """

    operation: str  # A method of `Store`, such as `put_if_absent`.
    call: int  # The number of the call of that operation, from 1.
    kind: FaultKind

    def __post_init__(self) -> None:
        if self.kind == "exists_though_created" and self.operation != "put_if_absent":
            raise ValueError(f"only a put can be answered so, not {self.operation}")


class FaultyStore(WrappingStore):
    """A store around another one, which fails by a plan; the same calls fail the same way.

    Parameters
    ----------
    plan
        Faults; at most one for each call of an operation.
    before
        Functions to run before a call, by operation and number from 1: for example, another
        writer's commit.

    Attributes
    ----------
    calls
        All calls so far, in order: operation and path.
    """

    reads_at_once = 1  # Calls come in one order.

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
        """Return the name, size and time of a file."""
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
        """Return a new file to write in a `with`; its end is the step, and creates the file."""
        sink = Sink()
        yield sink
        with self._call("open_output", path), self.inner.open_output(path) as file:
            file.write(sink.content())

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole new file."""
        with self._call("write_new", path):
            self.inner.write_new(path, data)

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file; return whether it was created or existed before."""
        with self._call("put_if_absent", path) as kind:
            outcome = self.inner.put_if_absent(path, data)
        return "exists" if kind == "exists_though_created" else outcome

    def replace(self, path: str, data: bytes) -> None:
        """Write a file over an existing one."""
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


class Crash(BaseException):
    """The process ends here; its later steps are not done."""


CrashKind = Literal[
    "before", "half", "after", "lost_answer", "error", "no_memory", "interrupt", "late_interrupt"
]
_OF_READS: tuple[CrashKind, ...] = ("before", "error", "no_memory", "interrupt")
_OF_WRITES: tuple[CrashKind, ...] = (*_OF_READS, "half", "after", "lost_answer", "late_interrupt")
CRASHES: tuple[CrashKind, ...] = ("before", "half", "after")  # The events that end the process.


class CrashPoint(NamedTuple):
    """The events at one step of a `CrashingStore`.

    The process ends `before` the step, `after` it, or when `half` of its writes or deletes are
    done. Or it continues: after an `error` (the step is not done), a `lost_answer` (it is done), a
    `MemoryError`, or a `KeyboardInterrupt` before the step or after it.
    """

    step: int  # The number of a call of the store, from 1.
    kind: CrashKind


def crash_points(calls: Sequence[tuple[str, str]]) -> list[CrashPoint]:
    """Return all crash points of the calls that a `CrashingStore` without a point has counted."""
    return [
        CrashPoint(step, kind)
        for step, (operation, _) in enumerate(calls, 1)
        for kind in (_OF_READS if operation in _READS else _OF_WRITES)
    ]


class CrashingStore(FaultyStore):
    """A store around another one that counts its steps, and fails at one of them.

    Run a verb without a `point` to see its steps in `calls`, then once for each of `crash_points`.
    After a crash every call only raises `Crash`, because the process has ended.
    """

    def __init__(self, inner: Store, point: CrashPoint | None = None) -> None:
        super().__init__(inner)
        self.point = point
        self.crashed = False

    @contextmanager
    def _call(self, operation: str, path: str) -> Iterator[Any]:
        if self.crashed:
            raise Crash
        self.calls.append((operation, path))
        kind = self.point.kind if self.point and len(self.calls) == self.point.step else None
        if kind == "before":
            self._die()
        if kind == "error":
            raise _error("not_done", operation, path)
        if kind == "no_memory":
            raise MemoryError
        if kind == "interrupt":
            raise KeyboardInterrupt
        yield kind
        if kind in ("half", "after"):
            self._die()
        if kind == "late_interrupt":
            raise KeyboardInterrupt
        if kind == "lost_answer":
            raise _error(
                "lost_answer" if operation == "put_if_absent" else "not_done", operation, path
            )

    def _die(self) -> None:
        self.crashed = True
        raise Crash

    def _tear(self, path: str, data: bytes) -> None:
        """Leave the first half of a file."""
        self.inner.write_new(path, data[: len(data) // 2])
        self._die()

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Return a new file to write in a `with`; it is created at its end."""
        if self.crashed:
            raise Crash
        sink = Sink()
        yield sink
        with self._call("open_output", path) as kind:
            if kind == "half":
                self._tear(path, sink.content())
            with self.inner.open_output(path) as file:
                file.write(sink.content())

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole new file."""
        with self._call("write_new", path) as kind:
            if kind == "half":
                self._tear(path, data)
            self.inner.write_new(path, data)

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file; half-way there is a temporary file, as on a local disk."""
        with self._call("put_if_absent", path) as kind:
            if kind == "half":
                self._tear(temporary(path), data)
            return self.inner.put_if_absent(path, data)

    def replace(self, path: str, data: bytes) -> None:
        """Write a file over an existing one; half-way, a temporary file exists."""
        with self._call("replace", path) as kind:
            if kind == "half":
                self._tear(temporary(path), data)
            self.inner.replace(path, data)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files below the root; half-way the first half of them is deleted."""
        with self._call("delete", ", ".join(paths)) as kind:
            self.inner.delete(paths[: len(paths) // 2] if kind == "half" else paths)
