"""A store that is far away, wherever its files are."""

from __future__ import annotations

from txlog.effects import REAL, Effects
from txlog.store.base import Store
from txlog.testing.watched import Request, WatchedStore

DELAY_S = 0.05


class LatencyStore(WatchedStore):
    """A store around another one, of which each request takes its time, as over a network.

    Parameters
    ----------
    delay_s
        By how many seconds a request is longer. At 0 it is still a store that counts as far away,
        of which txlog reads larger parts, and several at a time.

    Attributes
    ----------
    reads_at_once
        That of the store within; 16 if that is near.
    """

    def __init__(self, inner: Store, delay_s: float = DELAY_S, *, effects: Effects = REAL) -> None:
        super().__init__(inner)
        self._delay_s = delay_s
        self._effects = effects

    @property
    def reads_at_once(self) -> int:  # type: ignore[override]
        """How many reads it does at a time best."""
        return self.inner.reads_at_once if self.inner.reads_at_once > 1 else 16

    def _requested(self, request: Request) -> None:
        if self._delay_s > 0:
            self._effects.sleep_s(self._delay_s)
