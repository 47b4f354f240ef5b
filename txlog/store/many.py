"""Many files of a store: listed, or read beside each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, TypeVar

from txlog.store.base import Store
from txlog.store.local import LocalStore

if TYPE_CHECKING:
    from concurrent.futures import Future

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD_BYTES = 64 << 20  # Of what is read before its turn.


def reads_at_once(store: Store) -> int:
    """Return how many reads a store does at a time best, by its attribute of this name."""
    return int(getattr(store, "reads_at_once", 1))


def is_far(store: Store) -> bool:
    """Return whether a request to a store takes long, however little is asked for."""
    return reads_at_once(store) > 1


def list_briefly(store: Store, folder: str, name: str) -> Iterable[tuple[str, int, int]]:
    """Return what `Store.list_after` yields, but without sizes and times where these cost more.

    They are 0 then: on a local disk each file would have to be asked for them.
    """
    if isinstance(store, LocalStore):
        return zip(store.names_after(folder, name), repeat(0), repeat(0), strict=False)
    return list(store.list_after(folder, name))


def read_many(store: Store, files: Sequence[tuple[str, int]]) -> Iterator[bytes]:
    """Yield whole files, in the order given; from a store far away, several are on their way.

    Errors are those of `Store.read`, raised when the file's turn comes.

    Parameters
    ----------
    files
        The path of each, and how many bytes a listing said that it has; 0 if none did.
    """
    if isinstance(store, LocalStore):
        return store.read_listed(files)
    return map_many(store, store.read, [path for path, _ in files])


def map_many(
    store: Store,
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    size: Callable[[Item], int] = lambda _: 0,
) -> Iterator[Result]:
    """Yield `function(item)` for each item, in order; an error is raised when its turn comes.

    Parameters
    ----------
    store
        What the function reads from. If it is far away, several calls run at a time.
    size
        About how many bytes a result holds: of results that wait for their turn, a bounded number
        is held, besides the next one.
    """
    at_once = reads_at_once(store)
    if at_once < 2 or len(items) < 2:
        yield from map(function, items)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(at_once, thread_name_prefix="txlog-read") as pool:
        waiting: deque[tuple[Future[Result], int]] = deque()
        held = 0
        try:
            for item in items:
                weight = size(item)
                while waiting and (len(waiting) > 2 * at_once or held + weight > _AHEAD_BYTES):
                    future, freed = waiting.popleft()
                    held -= freed
                    yield future.result()
                waiting.append((pool.submit(function, item), weight))
                held += weight
            while waiting:
                yield waiting.popleft()[0].result()
        finally:
            for future, _ in waiting:
                future.cancel()
