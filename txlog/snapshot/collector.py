"""The garbage collector of Python, told to wait."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_paused: list[bool] = []
"""For each that is doing without it now, whether it was on before."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Do without garbage collection: what a log becomes is many objects, and none is garbage.

    Several threads may do so; when the last of them is done, it is as it was before the first.
    """
    with _lock:
        _paused.append(gc.isenabled() if not _paused else _paused[0])
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            was_on = _paused.pop() if _paused else False  # None, after a fork in the `with`.
            if was_on and not _paused:
                gc.enable()


def _after_fork() -> None:
    """Forget the threads that a forked process does not have, and what they held."""
    global _lock
    _lock = Lock()
    if _paused and _paused[0]:
        gc.enable()
    _paused.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
