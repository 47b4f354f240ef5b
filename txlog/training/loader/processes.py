"""Processes that transform batches, in the order of the batches."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from txlog.base.errors import InvalidInputError, OutOfMemoryError

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

_AHEAD = 2  # Batches for each process, so that none waits for the next one.


class Processes:
    """A number of processes that call one function. They start at the first batch.

    Parameters
    ----------
    count
        0 stands for none.

    Raises
    ------
    InvalidInputError
        Processes cannot import the function.
    """

    def __init__(self, count: int, function: Callable[[Any], Any] | None) -> None:
        self.count = count
        self._function = function
        self._pool: ProcessPoolExecutor | None = None
        if not count:
            return
        if function is None:
            raise InvalidInputError(
                argument="processes", reason="they call transform, which was not given"
            )
        try:
            pickle.dumps(function)
        except Exception as error:
            raise InvalidInputError(
                argument="transform",
                reason=f"processes cannot import it: {error}",
                remedy="Define it at the top of a module, or leave processes out",
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}

    def results(
        self, numbered: Iterator[tuple[int, Any]]
    ) -> Generator[tuple[int, Any], None, None]:
        """Yield what the function returns for each value, with the number of the value.

        Raises
        ------
        OutOfMemoryError
            A process was killed, as it is if memory runs out. The next iteration starts others.
        """
        import multiprocessing  # Slow to import, and few loaders have processes.
        from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor

        function = self._function
        assert function is not None, "the constructor refuses processes without a function"
        if self._pool is None:
            # A fork would copy locks that threads of this process hold.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.count, mp_context=context)
        running: deque[tuple[int, Future[Any]]] = deque()
        try:
            for number, value in numbered:
                running.append((number, self._pool.submit(function, value)))
                if len(running) > _AHEAD * self.count:
                    first, future = running.popleft()
                    yield first, future.result()
            while running:
                first, future = running.popleft()
                yield first, future.result()
        except BrokenProcessPool as error:
            self._pool = None
            raise OutOfMemoryError(
                reason="a process that runs transform was killed",
                remedy="Use fewer processes, smaller batches, or a transform that needs less",
            ) from error
        finally:
            for _, future in running:
                future.cancel()
