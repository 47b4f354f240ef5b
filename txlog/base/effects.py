"""Clock, ids, randomness and sleep. Only these and the store reach outside the process.

Also whether changes are only tried.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Effects:
    """The real clock and randomness. Tests subclass it to make both repeatable."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never goes back."""
        return time.monotonic()

    def uuid(self) -> str:
        """Return a random UUID in canonical text."""
        return str(uuid.uuid4())

    def jitter(self) -> float:
        """Return a number in [0, 1)."""
        import random

        return random.random()

    def sleep_s(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


REAL = Effects()

_rehearsing: ContextVar[bool] = ContextVar("txlog.rehearsing", default=False)


@contextmanager
def rehearsing(asked: bool = True) -> Iterator[None]:
    """Let operations be tried without a commit; the files that they write are deleted.

    Nothing else is deleted, moved or dropped: a vacuum and the like only say what they would do.
    Methods that commit nothing and delete nothing, such as that for checkpoints, do their work; a
    build of an index only says how many files it would read. The clock of a store is not asked,
    because that needs a file.
    """
    token = _rehearsing.set(asked)
    try:
        yield
    finally:
        _rehearsing.reset(token)


def is_rehearsing() -> bool:
    """Return whether operations are tried without a commit. Threads of engines do not know it."""
    return _rehearsing.get()
