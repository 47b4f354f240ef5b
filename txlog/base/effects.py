"""Clock, ids, randomness and sleep. Only these and the store reach outside the process."""

from __future__ import annotations

import time
import uuid
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
