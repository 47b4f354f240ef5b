"""Reading one batch ahead."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Item = TypeVar("Item")


def read_ahead(batches: Generator[Item, Any, Any]) -> Generator[Item, None, None]:
    """Yield what a generator yields; while one is looked at, a thread gets the next.

    It is for batches whose making leaves the interpreter free, as decoding Parquet does. The
    generator runs in that thread; its errors are raised when the batch's turn comes. It is closed
    when this is, once the batch that it is at is done: whoever may stop early must close this.
    """
    end = object()
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="txlog-ahead") as pool:

            def get_next() -> Future[Any] | None:
                try:
                    return pool.submit(next, batches, end)
                except RuntimeError:  # The interpreter is about to end, and starts no thread.
                    return None

            following = get_next()
            while following is not None and (batch := following.result()) is not end:
                following = get_next()
                yield batch
        yield from batches
    finally:
        batches.close()
