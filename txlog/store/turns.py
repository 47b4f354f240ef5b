"""Turns of those who lost a race for a name in a folder: one after the other, they lose no more."""

from __future__ import annotations

import os
from contextlib import suppress

from txlog.effects import REAL

try:
    import fcntl
except ImportError:  # Elsewhere nobody waits for a turn.
    fcntl = None  # type: ignore[assignment]

_LONGEST_S = 0.1
_POLL_S = 0.0002


class Turn:
    """A lock on a folder, which others respect of their own accord and for a short time only.

    Nothing depends on it but speed: whoever has no lock, or is tired of waiting, goes on without,
    and what two do at a time is decided by the names that they take. A process that dies loses it.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def wait_for(self, folder: str) -> None:
        """Wait until it is ours to go on, or the time is up."""
        if self._descriptor is not None or fcntl is None:
            return
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except OSError:
            return
        try:
            if _locked(descriptor):
                self._descriptor = descriptor
        finally:
            if self._descriptor is None:
                os.close(descriptor)

    def leave(self) -> None:
        """Let the next one go on."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            try:
                with suppress(OSError):  # A child that was forked meanwhile holds it too.
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
            finally:
                os.close(descriptor)


def _locked(descriptor: int) -> bool:
    until = REAL.monotonic_s() + _LONGEST_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if REAL.monotonic_s() > until:
                return False
            REAL.sleep_s(_POLL_S)
        except OSError:  # The file system has no locks.
            return False
        else:
            return True
