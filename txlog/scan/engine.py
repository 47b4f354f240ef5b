"""The one door for work over many fragments: threads here, executors on a cluster.

Rules: spec/engine.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import ClassVar, Protocol, TypeVar

from txlog.lazy import dataclass
from txlog.store.base import Store, is_far
from txlog.threads import map_ahead

Item = TypeVar("Item")
Result = TypeVar("Result")


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


def threads_for(store: Store) -> Threads:
    """Return an engine for a store: of one far away, threads wait more than they work."""
    if not is_far(store):
        return Threads()
    return Threads(max(store.reads_at_once, os.cpu_count() or 1))


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
