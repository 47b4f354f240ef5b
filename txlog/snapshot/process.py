"""Settings of the whole process: reuse of freed memory, and Python's garbage collector."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

import numpy as np

_lock = Lock()
_paused: list[bool] = []
"""For each pause in progress, whether the collector was on before."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause garbage collection: reading a log creates many objects without garbage.

    Several threads may pause it. The end of the last pause restores the state before the first.
    """
    with _lock:
        _paused.append(gc.isenabled() if not _paused else _paused[0])
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            was_on = _paused.pop() if _paused else False  # Empty after a fork in the `with`.
            if was_on and not _paused:
                gc.enable()


def _after_fork() -> None:
    """Reset the state, because a forked process does not have the other threads."""
    global _lock
    _lock = Lock()
    if _paused and _paused[0]:
        gc.enable()
    _paused.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


_BYTES = 16 << 20


@cache
def keep_freed_memory() -> None:
    """Let the C library keep freed memory for later allocations, in the whole process.

    Columns of millions of files are processed batch by batch, and each step allocates and frees
    arrays of some hundred kilobytes. glibc returns them to the system and requests them again, page
    by page, until a larger array was freed: the size of this array determines how much free memory
    glibc keeps. Then it allocates arrays up to this size in its heap, and keeps twice as many free
    bytes at the heap's end, and all free memory before it. Nothing is written to the array, so it
    uses no physical memory. With other C libraries this has no effect.
    """
    np.empty(_BYTES, np.uint8)
