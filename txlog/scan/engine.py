"""The one door for work over many fragments: threads here, executors on a cluster."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Protocol):
    """Runs one function over many items."""

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield `function(item)` for each item, in order; an error ends the iteration."""
        ...


@dataclass(frozen=True)
class Threads:
    """An engine of threads on this machine, a bounded number of items ahead of the consumer."""

    workers: int = 0  # 0: one for each CPU.

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield `function(item)` for each item, in order; an error ends the iteration."""
        workers = self.workers or os.cpu_count() or 1
        if workers == 1:
            yield from map(function, items)
            return
        with ThreadPoolExecutor(workers, thread_name_prefix="txlog") as pool:
            waiting: deque[Future[Result]] = deque()
            try:
                for item in items:
                    waiting.append(pool.submit(function, item))
                    if len(waiting) > workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()
