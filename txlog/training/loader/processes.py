"""Processes that transform batches, in the order of the batches."""

from __future__ import annotations

import os
import sys
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
        self._owner = os.getpid()
        if not count:
            return
        if function is None:
            raise InvalidInputError(
                argument="processes", reason="they call transform, which was not given"
            )
        from multiprocessing.reduction import ForkingPickler  # Slow to import.

        try:
            ForkingPickler.dumps(function)
        except Exception as error:
            raise _not_importable(str(error)) from error
        main = sys.modules["__main__"]
        if getattr(function, "__module__", "") == "__main__" and not hasattr(main, "__file__"):
            raise _not_importable("it was defined in a notebook, or at a prompt")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._owner = os.getpid()

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
        if multiprocessing.current_process().daemon or self._owner != os.getpid():
            # A worker of PyTorch, say: it may start no processes, or is a fork, which has the locks
            # of a pool and not its threads. It is a process of its own already.
            for number, value in numbered:
                yield number, function(value)
            return
        if self._pool is None:
            # A fork would copy locks that threads of this process hold.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.count, mp_context=context)
        running: deque[tuple[int, Future[Any]]] = deque()
        try:
            for number, value in numbered:
                running.append((number, self._pool.submit(_called, function, value)))
                if len(running) > _AHEAD * self.count:
                    first, future = running.popleft()
                    yield first, _returned(future.result())
            while running:
                first, future = running.popleft()
                yield first, _returned(future.result())
        except BrokenProcessPool as error:
            self._pool = None
            raise OutOfMemoryError(
                reason="a process that runs transform was killed, or could not start",
                remedy="Use fewer processes, or smaller batches. A script needs the line "
                "if __name__ == '__main__' before what it runs",
            ) from error
        finally:
            for _, future in running:
                future.cancel()


def _called(function: Callable[[Any], Any], value: Any) -> tuple[Any, Exception | None]:
    """Return what a function returns, or its error in a form that pickles. Runs in a process."""
    try:
        return function(value), None
    except Exception as error:
        try:
            reduced: Any = error.__reduce__()
            reduced[0](*reduced[1])
        except Exception:
            # It cannot be made again from its arguments, as the caller's process would do.
            error = RuntimeError(f"{type(error).__name__}: {error}")
        return None, error


def _returned(answer: tuple[Any, Exception | None]) -> Any:
    value, error = answer
    if error is not None:
        raise error
    return value


def _not_importable(reason: str) -> InvalidInputError:
    return InvalidInputError(
        argument="transform",
        reason=f"processes cannot import it: {reason}",
        remedy="Define it at the top of a module, or leave processes out",
    )
