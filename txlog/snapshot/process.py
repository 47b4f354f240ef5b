"""Settings of the whole process: freed memory, and the garbage collector of Python."""

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


_BYTES = 16 << 20


@cache
def keep_freed_memory() -> None:
    """Have the C library keep what is freed for what is asked for next, in the whole process.

    Columns of millions of files are looked at batch by batch, and each step takes and frees arrays
    of some hundred kilobytes. glibc gives them back to the system and asks for them again, page by
    page, for as long as it saw no larger array freed: by that it tells how much free memory to
    keep. From then on it takes arrays of up to so many bytes from its heap and leaves twice as many
    free at its end; what is free below something that lives on stays too. Nothing is written to
    the array, so no memory becomes real. Elsewhere this has no effect.
    """
    np.empty(_BYTES, np.uint8)
