"""A store that counts what another one is asked for."""

from __future__ import annotations

from collections import Counter

from txlog.store.base import Store
from txlog.testing.watched import Request, WatchedStore


class CountingStore(WatchedStore):
    """A store around another one, which counts requests and their bytes.

    What an object store costs does not depend on the machine, so that a test can hold it to a
    number. `open_table` makes a table of it.

    Attributes
    ----------
    calls
        All requests so far, as they ended. `reset` empties it.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls: list[Request] = []

    def _requested(self, request: Request) -> None:
        self.calls.append(request)  # One step, whatever the number of threads.

    @property
    def requests(self) -> Counter[str]:
        """How many requests there were of each kind."""
        return Counter(call.kind for call in self.calls)

    @property
    def bytes(self) -> Counter[str]:
        """How many bytes of files were sent or received by requests of each kind."""
        found: Counter[str] = Counter()
        for call in self.calls:
            found[call.kind] += call.size
        return found

    def reset(self) -> None:
        """Begin to count anew."""
        self.calls = []
