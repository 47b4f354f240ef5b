"""Reading many files of a store."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from txlog.store.base import Store


def read_many(store: Store, paths: Sequence[str]) -> Iterator[bytes]:
    """Yield whole files, in the order given; from a store far away, several are on their way.

    A store says by its attribute `reads_at_once` how many reads it does at a time best; most do
    one. Errors are those of `Store.read`, raised when the file's turn comes.
    """
    at_once = int(getattr(store, "reads_at_once", 1))
    if at_once < 2 or len(paths) < 2:
        yield from map(store.read, paths)
        return
    with ThreadPoolExecutor(at_once, thread_name_prefix="txlog-read") as pool:
        waiting: deque[Future[bytes]] = deque()
        try:
            for path in paths:
                waiting.append(pool.submit(store.read, path))
                if len(waiting) > 2 * at_once:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
