"""Leases: the right of one worker to do a piece of work for a time. A thread renews it.

If the worker dies, the lease ends, and another worker does the work again. Rule: spec/datasets.md,
DST-25.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Protocol, TypeVar

from txlog.base.errors import CommitConflictError, NotFoundError, TxlogError

LEASE_MS = 600_000
CLOCKS_DIFFER_MS = 60_000  # The largest difference between the clocks of two machines.
GONE = (CommitConflictError, NotFoundError)
"""Errors of a claim: another worker took the work over, or there is nothing to do any more."""

_RENEWED_AFTER = 1 / 3  # The duration of a lease.
_RETRY_S = 0.2


@dataclass(frozen=True)
class Lease:
    """A worker, and until when it may work: milliseconds since the epoch, by its clock."""

    worker: str
    claimed_ms: int
    until_ms: int

    def has_ended(self, now_ms: int) -> bool:
        """Whether another worker may take the work over."""
        # A claim from the future was made by a clock that is far ahead.
        return (
            self.until_ms + CLOCKS_DIFFER_MS < now_ms or self.claimed_ms > now_ms + CLOCKS_DIFFER_MS
        )


class Leased(Protocol):
    """A claim with a lease."""

    @property
    def lease_until_ms(self) -> int:
        """The end of the lease."""
        ...


C = TypeVar("C", bound=Leased)


class TakenOverError(Exception):
    """The lease has ended and another worker does the work, or there is nothing to do any more."""


class _Renewed:
    """The lease of an attempt. A thread renews it; without a thread, `require` does."""

    def __init__(self, claim: C, renew: Callable[[C], C], now_ms: Callable[[], int]) -> None:
        self.ended = Event()
        self._claim: Leased = claim
        self._renew_claim: Callable[..., Leased] = renew
        self._now_ms = now_ms
        self._lease_ms = claim.lease_until_ms - now_ms()
        self._is_lost = False
        self._has_thread = True

    def require(self) -> None:
        """Raise if the attempt is no longer the current one."""
        if not self._has_thread and not self._wait_s():
            self._renew()
        if self._is_lost:
            raise TakenOverError

    def start(self) -> Thread | None:
        """Start the thread; return None if the interpreter ends and starts no threads."""
        thread = Thread(target=self._run, name="txlog-lease", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._has_thread = False
            return None
        return thread

    def _run(self) -> None:
        while not self._is_lost and not self.ended.wait(self._wait_s() or _RETRY_S):
            self._renew()

    def _wait_s(self) -> float:
        """Return the seconds until the lease must be renewed; 0 if it must be renewed now."""
        left_ms = self._claim.lease_until_ms - self._now_ms()
        return max(0.0, left_ms - self._lease_ms * (1 - _RENEWED_AFTER)) / 1000

    def _renew(self) -> None:
        try:
            self._claim = self._renew_claim(self._claim)
        except GONE:
            self._is_lost = True
        except TxlogError:  # The store may work again before the lease ends.
            self._is_lost = self._now_ms() > self._claim.lease_until_ms


@contextmanager
def renewed(
    claim: C, renew: Callable[[C], C], now_ms: Callable[[], int]
) -> Iterator[Callable[[], None]]:
    """Renew a lease until the `with` ends, whose value raises `TakenOverError` if it is lost.

    Parameters
    ----------
    renew
        Returns a claim with a new lease; raises an error in `GONE` if the claim is not current.
    now_ms
        The time in milliseconds since the epoch, UTC.
    """
    lease = _Renewed(claim, renew, now_ms)
    thread = lease.start()
    try:
        yield lease.require
    finally:
        lease.ended.set()
        if thread is not None:
            thread.join()
