"""Work on many files of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from txlog.store.base import Store
from txlog.threads import map_ahead

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD_BYTES = 64 << 20  # Of what is read before its turn.


def is_far(store: Store) -> bool:
    """Return whether a request to a store takes long, however little is asked for."""
    return store.reads_at_once > 1


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
    workers = store.reads_at_once
    if workers < 2 or len(items) < 2:
        yield from map(function, items)
        return
    yield from map_ahead(
        function, items, workers=workers, ahead=2 * workers, size=size, ahead_size=_AHEAD_BYTES
    )
