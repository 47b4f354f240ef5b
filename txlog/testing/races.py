"""Many writers that put the same names."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

from txlog.store.base import Store

_THREADS = 8
_PROCESSES = 3
_START_S = 60  # How long the writers wait for each other.

_barrier: Any = None


def body(who: int, n: int) -> bytes:
    """Return what a writer puts at the n-th name: the bytes tell who it was."""
    return f"{who}:{n};".encode() * 1000


def put_all(store: Store, who: int, names: int, barrier: Any) -> list[str]:
    """Put all the names, and return those that were created."""
    barrier.wait(_START_S)
    paths = [f"log/{n:020d}" for n in range(names)]
    return [
        path for n, path in enumerate(paths) if store.put_if_absent(path, body(who, n)) == "created"
    ]


def race_of_threads(store: Store, names: int) -> list[list[str]]:
    """Return what each of some threads created."""
    barrier = threading.Barrier(_THREADS)
    with ThreadPoolExecutor(_THREADS) as pool:
        runs = [pool.submit(put_all, store, who, names, barrier) for who in range(_THREADS)]
        return [run.result() for run in runs]


def race_of_processes(store: Store, names: int) -> list[list[str]]:
    """Return what each of some processes created."""
    context = multiprocessing.get_context("spawn")  # A fork would copy this one's threads' locks.
    barrier = context.Barrier(_PROCESSES)
    with ProcessPoolExecutor(
        _PROCESSES, mp_context=context, initializer=_use, initargs=(barrier,)
    ) as pool:
        runs = [pool.submit(_put_all_here, store, who, names) for who in range(_PROCESSES)]
        return [run.result() for run in runs]


def _use(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def _put_all_here(store: Store, who: int, names: int) -> list[str]:
    return put_all(store, who, names, _barrier)
