"""Calls for many items in a bounded number of threads, and the interface of other engines.

Also a cached property and a bounded cache that threads may share. Rules of engines: spec/engine.md.
"""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from math import ceil
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, overload

from txlog.base.effects import REAL
from txlog.base.errors import (
    InvalidTypeError,
    UnsupportedFeatureError,
    asked_from,
    calling_place,
)
from txlog.base.thresholds import Threshold

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Value = TypeVar("Value")


class cached_property(Generic[Value]):  # noqa: N801 # As in `functools`.
    """A property that is computed at its first use and kept in the object's `__dict__`.

    Before Python 3.12, `functools.cached_property` holds one lock for all objects of a class while
    it computes a value. A process that is forked at that time inherits the locked lock, and nothing
    releases it there. This class has no lock: two threads may both compute the value, with the same
    result.
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
        """Return the value. An error is not cached."""
        if instance is None:
            return self
        # This is not a data descriptor, so Python now finds the value without this method.
        value = instance.__dict__[self._name] = self._find(instance)
        return value


Key = TypeVar("Key")


class BoundedCache(Generic[Key, Value]):
    """A cache whose values have a bounded total size. The value that was used last always stays.

    If the total size exceeds the limit, the least recently used values are removed until a quarter
    is free, so that the sizes need not be added up at each call. Threads may share it.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._bytes = 0  # Approximate: threads may miss each other's changes.

    def get(self, key: Key) -> Value | None:
        """Return a value, or None if there is none."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self._entries[key] = entry
        return entry[0]

    def put(self, key: Key, value: Value, size: int) -> None:
        """Store a value with its size in bytes. It replaces an older value of the key."""
        older = self._entries.pop(key, None)
        self._entries[key] = value, size
        self._bytes += size - (0 if older is None else older[1])
        if self._bytes > self.max_bytes:
            self._shrink()

    def grow(self, key: Key, size: int) -> None:
        """Add `size` bytes to the size of a value, if it is still in the cache."""
        entry = self._entries.get(key)
        if entry is not None:
            self.put(key, entry[0], entry[1] + size)

    def _shrink(self) -> None:
        kept = sum(size for _, size in list(self._entries.values()))
        enough = kept if kept <= self.max_bytes else self.max_bytes * 3 // 4
        while kept > enough and len(self._entries) > 1:
            kept -= self._entries.popitem(last=False)[1][1]
        self._bytes = kept


Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers:
    """A bounded number of threads, for a `with` or for as long as the process runs.

    Threads start when they are needed. The end of a `with` block drops the calls that have not
    begun, waits for those that run, and ends the threads.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None  # Created for the first call.
        self._process = os.getpid()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is None:
            return
        try:
            self._pool.shutdown(cancel_futures=self.is_here)
        except BaseException:
            # An interrupt. What follows the block removes what the calls have made, so none of them
            # may run any more. The end of the process waits for them in any case.
            self._pool.shutdown(cancel_futures=self.is_here)
            raise

    @property
    def is_here(self) -> bool:
        """Whether the threads belong to this process, not to the one that it was forked from."""
        return os.getpid() == self._process

    def start(self, function: Callable[[Item], Result], item: Item) -> Call[Result]:
        """Call a function in a thread. If no thread can be started, `Call.result` calls it."""
        call = Call(self, partial(function, item))
        if self.is_here:
            try:
                from concurrent.futures import ThreadPoolExecutor

                if self._pool is None:
                    self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="txlog")
                self._pool.submit(call.run)
            except RuntimeError:  # The interpreter is shutting down, or no thread can be started.
                return call
            call.is_started = True
        return call


class Call(Generic[Result]):
    """A function call that a pool's thread runs, or the caller of `result` if it comes first."""

    def __init__(self, workers: Workers, function: Callable[[], Result]) -> None:
        from concurrent.futures import Future

        self.is_started = False
        self._workers = workers
        self._function = function
        self._place = calling_place()  # Of the call that asked for this one.
        self._future: Future[Result] = Future()
        # A thread may run the call although `submit` raised.
        self._claim = Lock()

    @property
    def is_done(self) -> bool:
        """Whether the function has returned, or raised an error."""
        return self._future.done()

    def run(self) -> None:
        """Run the call, unless another thread does."""
        if not self._claim.acquire(blocking=False):
            return
        try:
            with asked_from(self._place):
                result = self._function()
            self._future.set_result(result)
        except BaseException as error:
            self._future.set_exception(error)

    def result(self) -> Result:
        """Return what the function returns, or raise what it raises."""
        if not self._workers.is_here:  # A forked process has no threads that could run the call.
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
    """Yield `function(item)` for each item, in order. An error is raised in its item's place.

    Close the generator or read it to its end: until then its threads stay alive.

    Parameters
    ----------
    workers
        How many calls run at the same time.
    ahead
        How many calls may be running or finished ahead of the one that is yielded next.
    size, ahead_size
        The size of one result, and the greatest total size of the results that wait.
    """
    with Workers(workers) as threads:
        waiting: deque[tuple[Call[Result], int]] = deque()
        waiting_size = 0
        for item in items:
            weight = 0 if size is None else size(item)
            while waiting and waiting_size + weight > ahead_size > 0:
                call, freed = waiting.popleft()
                waiting_size -= freed
                yield call.result()
            waiting.append((threads.start(function, item), weight))
            waiting_size += weight
            while len(waiting) > ahead:
                call, freed = waiting.popleft()
                waiting_size -= freed
                yield call.result()
        while waiting:
            yield waiting.popleft()[0].result()


def prefetch(
    batches: Generator[Item, Any, Any],
) -> Generator[Item, None, None]:
    """Yield a generator's items, and get the next item in a thread while the caller uses this one.

    This helps where making an item releases the interpreter lock, as decoding Parquet does. The
    source generator runs in the thread; its error is raised in its item's place. Closing this
    generator closes the source after its current item. A caller that may stop early must close it.
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


@dataclass(frozen=True)
class _Progress:
    """How progress is shown, and after how many seconds."""

    bar: Callable[..., Any]
    after_s: float


PROGRESS: ContextVar[_Progress | None] = ContextVar("txlog.progress", default=None)
doing: ContextVar[str] = ContextVar("txlog.doing", default="txlog")  # The label of a bar.


def progress(
    bar: Callable[..., Any] | None = None, *, after_s: float = 1.0
) -> AbstractContextManager[None]:
    """Show progress bars for long work in the `with` block: reading, rewriting, merging, ….

    Parameters
    ----------
    bar
        A function like tqdm: `bar(total=…, desc=…, unit=…)` returns an object with `update(n)` and
        `close()`. `total` is None if it is unknown. Default: `tqdm.auto.tqdm`, which is a widget in
        a notebook.
    after_s
        Show a bar only for work that takes longer than this number of seconds. The bar counts
        parts of the work (files, groups of rows), and appears when one of them is done.

    Raises
    ------
    UnsupportedFeatureError
        No bar is given, and tqdm is not installed.
    InvalidTypeError
        `bar` cannot be called, or `after_s` is not a number.

    Examples
    --------
    >>> with txlog.progress():  # doctest: +SKIP
    ...     table.optimize.compact()
    """
    if not callable(bar) and bar is not None:
        raise InvalidTypeError(argument="bar", reason=f"expected a function, not {bar!r}")
    if not isinstance(after_s, int | float):
        raise InvalidTypeError(argument="after_s", reason=f"expected seconds, not {after_s!r}")
    if bar is None:
        from importlib import import_module

        try:
            bar = import_module("tqdm.auto").tqdm
        except ImportError as error:
            raise UnsupportedFeatureError(
                features=("tqdm",),
                reason="progress bars need tqdm, or another bar",
                remedy="Install it: pip install tqdm",
            ) from error
    assert bar is not None
    return _shown(_Progress(bar, after_s))


@contextmanager
def _shown(wanted: _Progress) -> Iterator[None]:
    token = PROGRESS.set(wanted)
    try:
        yield
    finally:
        PROGRESS.reset(token)


def tracked(
    results: Iterator[Item] | Generator[Item, None, None],
    items: object,
    label: str | None = None,
    *,
    about: str | None = None,
    step: int = 1,
) -> Iterator[Item]:
    """Yield results. Within `progress`, show how many of the items are done.

    Parameters
    ----------
    items
        What the results are made of. Without a length, the total is unknown.
    label
        What a bar says. Default: the name of the operation.
    about
        What the items are, which a bar says after it.
    step
        A bar moves after so many results, and at the end. Results that cost little, such as the
        names of a listing, must not wait for it.
    """
    shown = PROGRESS.get()
    if shown is None:
        yield from results
        return
    began, done, told, bar = REAL.monotonic_s(), 0, 0, None
    try:
        for result in results:
            done += 1
            if done % step == 0:
                if bar is None and REAL.monotonic_s() - began >= shown.after_s:
                    total = len(items) if isinstance(items, Sized) else None
                    text = label or doing.get()
                    text = text if about is None else f"{text}: {about}"
                    bar = shown.bar(total=total, desc=text, unit="parts")
                if bar is not None:
                    bar.update(done - told)
                    told = done
            yield result
        if bar is not None and done > told:
            bar.update(done - told)
    finally:
        if isinstance(results, Generator):
            results.close()  # This ends the generator's threads.
        if bar is not None:
            bar.close()


class Engine(Protocol):
    """Runs one function over many items.

    Functions and items must pickle, because they may go to other processes. An engine whose workers
    are other processes has an attribute `in_process` that is False. It may run an item again if a
    worker is lost, but it yields one result for each item.
    """

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield `function(item)` for each item, in order; an error ends the iteration."""
        ...


@dataclass(frozen=True)
class Threads:
    """An engine of threads in this process. It works a bounded number of items ahead."""

    workers: int = 0  # 0: one for each CPU.
    most: int = 0  # The number of threads for small items, if it is greater than `workers`.

    in_process: ClassVar[bool] = True

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield `function(item)` for each item, in order; an error ends the iteration."""
        workers = self.workers or os.cpu_count() or 1
        if workers == 1 or (isinstance(items, Sized) and len(items) == 1):
            yield from tracked(map(function, items), items)  # A thread costs milliseconds.
            return
        yield from tracked(map_ahead(function, items, workers=workers, ahead=workers), items)


_AT_ONCE_BYTES: Threshold = 256 << 20  # The bytes of files that more threads than usual read.


def for_sizes(engine: Engine, sizes: Iterable[int]) -> Engine:
    """Return an engine for items of which each reads at most so many bytes.

    Threads that read small files of a remote store mostly wait, so there are more of them, as far
    as the bytes that they read at the same time stay few. Any other engine is returned as it is.
    """
    if not isinstance(engine, Threads) or engine.most <= engine.workers:
        return engine
    room = _AT_ONCE_BYTES // max(1, max(sizes, default=0))
    return Threads(max(engine.workers, min(engine.most, room)))


def is_in_process(engine: Engine) -> bool:
    """Return whether an engine works in this process and so shares its memory."""
    return bool(getattr(engine, "in_process", True))


def in_shares(items: Sequence[Item], sizes: Sequence[float], most: float) -> list[list[Item]]:
    """Return items in groups of about equal size, in order, for one worker each.

    There are as few groups as possible, so that the size of a group is usually at most `most`.
    """
    total = sum(sizes)
    count = max(1, ceil(total / most))
    groups: list[list[Item]] = [[] for _ in range(count)]
    done = 0.0
    for item, size in zip(items, sizes, strict=True):
        share = (done + size / 2) / total if total else 0.0
        groups[min(count - 1, int(share * count))].append(item)
        done += size
    return [group for group in groups if group]


def map_all(
    engine: Engine,
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    undo: Callable[[list[Result]], object],
) -> list[Result]:
    """Return `function(item)` for each item, in order; undo all results if one call fails.

    If one fails, wait for the calls that run already, pass all results to `undo`, and raise the
    first error.
    """
    results: list[Result] = []
    # In the order of their ends. An interrupt keeps some of them from being yielded.
    made: list[Result] | None = [] if is_in_process(engine) else None
    failure: Exception | None = None
    try:
        for found in engine.map(partial(_caught, function, made), items):
            if isinstance(found, Exception):
                failure = failure or found
                continue
            results.append(found)
        if failure is not None:
            raise failure
    except BaseException:
        undo(results if made is None else made)
        raise
    return results


def together(
    calls: Sequence[Callable[[], Result]],
    *,
    at_once: bool,
    undo: Callable[[list[Result]], object],
) -> list[Result]:
    """Return the results of calls, in order; undo all results if one call fails.

    With `at_once`, threads run all but the first one, which runs here. After an error or an
    interrupt, those that run already are waited for. An interrupt is raised in place of an error.
    """
    results: list[Result] = []
    failures: list[BaseException] = []
    others: list[Call[Result]] = []
    with _noted(failures), Workers(len(calls)) as threads:
        with _noted(failures):
            for call in calls[1:] if at_once else ():
                others.append(threads.start(_run, call))  # noqa: PERF401 # As below.
            for call in calls[:1] if at_once else calls:
                results.append(call())  # noqa: PERF401 # An error keeps what was made before it.
        for one in others:
            with _noted(failures):
                if one.is_started or not failures:
                    one.result()
    for one in others:  # Also those whose result an interrupt has hidden: no thread runs any more.
        if one.is_done:
            with _noted(failures):
                results.append(one.result())
    if failures:
        undo(results)
        raise next((one for one in failures if not isinstance(one, Exception)), failures[0])
    return results


@contextmanager
def _noted(failures: list[BaseException]) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        failures.append(error)


def _run(call: Callable[[], Result]) -> Result:
    return call()


def _caught(
    function: Callable[[Item], Result], made: list[Result] | None, item: Item
) -> Result | Exception:
    """Return the error of a call as a value, because the results of the others are still needed."""
    try:
        result = function(item)
    except Exception as error:
        return error
    if made is not None:
        made.append(result)
    return result
