"""Work on many items: calls in a bounded number of threads, and the door to other engines.

Also properties that survive threads and forks. Rules of engines: spec/engine.md.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from itertools import repeat
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, overload

from txlog.lazy import dataclass

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Value = TypeVar("Value")


class cached_property(Generic[Value]):  # noqa: N801  # The name that everybody knows.
    """A property that is found when it is first asked for, and kept in the object's `__dict__`.

    Before Python 3.12, `functools.cached_property` holds a lock, one for all objects of a class,
    while a value is found. A process that is forked meanwhile inherits the lock as it is, and
    nobody there ever releases it. This one has no lock: two threads may both find the value, with
    the same result.
    """

    def __init__(self, find: Callable[[Any], Value]) -> None:
        self._find = find
        self._name = find.__name__
        self.__doc__ = find.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> cached_property[Value]: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Value: ...

    def __get__(
        self, instance: object | None, owner: type | None = None
    ) -> cached_property[Value] | Value:
        """Return the value; an error is not kept."""
        if instance is None:
            return self
        # Not a data descriptor: from now on Python finds the value without coming here.
        value = instance.__dict__[self._name] = self._find(instance)
        return value


Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers:
    """A bounded number of threads, to be used in a `with`.

    Threads start as they are needed. At the end of the `with` calls that have not begun are
    dropped, those that run are awaited, and the threads are gone.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: ThreadPoolExecutor | None = None  # Made for the first call.
        self._process = os.getpid()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=self.is_here)

    @property
    def is_here(self) -> bool:
        """Whether the threads are of this process, and not of the one that it was forked from."""
        return os.getpid() == self._process

    def start(self, function: Callable[[Item], Result], item: Item) -> Call[Result]:
        """Have a thread call a function; if no thread can be started, whoever asks calls it."""
        call = Call(self, partial(function, item))
        if self.is_here:
            from concurrent.futures import ThreadPoolExecutor

            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._count, thread_name_prefix="txlog")
            try:
                self._pool.submit(call.run)
            except RuntimeError:  # The interpreter is about to end, or no thread can be had.
                return call
            call.is_started = True
        return call


class Call(Generic[Result]):
    """A call that a thread makes, or whoever asks for its result."""

    def __init__(self, workers: Workers, function: Callable[[], Result]) -> None:
        from concurrent.futures import Future

        self.is_started = False
        self._workers = workers
        self._function = function
        self._future: Future[Result] = Future()
        self._claim = Lock()  # A thread may have taken a call of which the pool says it has not.

    def run(self) -> None:
        """Make the call, unless somebody else does."""
        if not self._claim.acquire(blocking=False):
            return
        try:
            self._future.set_result(self._function())
        except BaseException as error:
            self._future.set_exception(error)

    def result(self) -> Result:
        """Return what the function returns, or raise what it raises."""
        if not self._workers.is_here:  # In a forked process no thread would ever do it.
            return self._function()
        if not self.is_started:
            self.run()
        return self._future.result()


def map_ahead(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    workers: int,
    ahead: int,
    size: Callable[[Item], int] | None = None,
    ahead_size: int = 0,
) -> Generator[Result, None, None]:
    """Yield `function(item)` for each item, in order; an error is raised when its turn comes.

    It must be closed, or read to its end: until then its threads live.

    Parameters
    ----------
    workers
        How many calls run at a time.
    ahead
        How many calls may have begun, or be done, beside the one whose result is wanted.
    size, ahead_size
        How large a result is, and how large together those may be that wait for their turn.
    """
    with Workers(workers) as threads:
        waiting: deque[tuple[Call[Result], int]] = deque()
        held = 0
        for item in items:
            weight = 0 if size is None else size(item)
            while waiting and held + weight > ahead_size > 0:
                call, freed = waiting.popleft()
                held -= freed
                yield call.result()
            waiting.append((threads.start(function, item), weight))
            held += weight
            while len(waiting) > ahead:
                call, freed = waiting.popleft()
                held -= freed
                yield call.result()
        while waiting:
            yield waiting.popleft()[0].result()


def prefetch(
    batches: Generator[Item, Any, Any],
) -> Generator[Item, None, None]:
    """Yield what a generator yields: a thread gets the next item while the caller uses this one.

    It is for items whose making leaves the interpreter free, as decoding Parquet does. The
    generator runs in that thread; its errors are raised when the item's turn comes. It is closed
    when this is, once the item that it is at is done: whoever may stop early must close this.
    """
    end = object()
    following = map_ahead(lambda _: next(batches, end), repeat(None), workers=1, ahead=1)
    try:
        for batch in following:
            if batch is end:
                return
            yield batch  # type: ignore[misc]
    finally:
        following.close()
        batches.close()


class Engine(Protocol):
    """Runs one function over many items.

    Functions and items are values that pickle: they may go to other processes. An engine whose
    workers are such processes has an attribute `in_process` that is False. It may run an item more
    than once, if a worker is lost; of each item one result is handed out.
    """

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield `function(item)` for each item, in order; an error ends the iteration."""
        ...


@dataclass(frozen=True)
class Threads:
    """An engine of threads on this machine, a bounded number of items ahead of the consumer."""

    workers: int = 0  # 0: one for each CPU.

    in_process: ClassVar[bool] = True

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield `function(item)` for each item, in order; an error ends the iteration."""
        workers = self.workers or os.cpu_count() or 1
        if workers == 1:
            yield from map(function, items)
            return
        yield from map_ahead(function, items, workers=workers, ahead=workers)


def is_in_process(engine: Engine) -> bool:
    """Return whether an engine's work is done in this process, and sees its memory."""
    return bool(getattr(engine, "in_process", True))


def map_all(
    engine: Engine,
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    undo: Callable[[list[Result]], object],
) -> list[Result]:
    """Return `function(item)` for each item, in order, or nothing of any.

    If one fails, those that run already are awaited, `undo` gets all results that there are, and
    the first error is raised.
    """
    results: list[Result] = []
    failure: Exception | None = None
    try:
        for found in engine.map(partial(_caught, function), items):
            if isinstance(found, Exception):
                failure = failure or found
                continue
            results.append(found)
        if failure is not None:
            raise failure
    except BaseException:
        undo(results)
        raise
    return results


def _caught(function: Callable[[Item], Result], item: Item) -> Result | Exception:
    """Return an error as a value: others still run, and what they leave must be known."""
    try:
        return function(item)
    except Exception as error:
        return error
