"""The garbage collector of Python, told to wait."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_LOCK = Lock()
_paused: list[bool] = []
"""For each that is doing without it now, whether it was on before."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Do without garbage collection: what a log becomes is many objects, and none is garbage.

    Several threads may do so; when the last of them is done, it is as it was before the first.
    """
    with _LOCK:
        _paused.append(gc.isenabled() if not _paused else _paused[0])
        gc.disable()
    try:
        yield
    finally:
        with _LOCK:
            if _paused.pop() and not _paused:
                gc.enable()
