"""A store whose requests last one tick of a clock that runs only while nothing else does."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Event, Thread

from txlog.store.base import Store
from txlog.testing import Request
from txlog.testing.stores import WatchedStore

_LOOK_S = 0.02
_BUSY_S = 0.0002  # Threads that wait use less time than this between two looks.
_LOOKS = 3


class TickingStore(WatchedStore):
    """A remote store, as `LatencyStore`. Its requests end when the whole process waits for them.

    All requests that are under way end together, at a tick. So the number of ticks is that of the
    requests that waited for one another: the time on a network divided by that of one request.

    Attributes
    ----------
    ticks
        For each tick, the requests that ended at it.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.ticks: list[list[Request]] = []
        self._under_way: list[Request] = []
        self._changed = Condition()

    @property
    def reads_at_once(self) -> int:  # type: ignore[override]  # As `LatencyStore` has it.
        """The best number of concurrent reads of a remote store."""
        return 16

    def _requested(self, request: Request) -> None:
        with self._changed:
            self._under_way.append(request)
            tick = len(self.ticks)
            assert self._changed.wait_for(lambda: len(self.ticks) > tick, timeout=60)

    def _tick(self, stop: Event) -> None:
        quiet, seen = 0, (0, 0.0)
        while not stop.wait(_LOOK_S):
            with self._changed:
                now = len(self._under_way), time.process_time() - time.thread_time()
                is_quiet = now[0] == seen[0] > 0 and now[1] - seen[1] < _BUSY_S
                quiet, seen = quiet + 1 if is_quiet else 0, now
                if quiet == _LOOKS:
                    self.ticks.append(self._under_way)
                    self._under_way, quiet = [], 0
                    self._changed.notify_all()


@contextmanager
def ticking(inner: Store) -> Iterator[TickingStore]:
    """Return a store around another one, whose clock runs in the `with` block."""
    store, stop = TickingStore(inner), Event()
    clock = Thread(target=store._tick, args=[stop], daemon=True)
    clock.start()
    try:
        yield store
    finally:
        stop.set()
        clock.join()
