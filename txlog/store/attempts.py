"""One put-if-absent under several names, one after the other, until one is free."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from txlog.store.base import Put, Store
from txlog.store.local import LocalStore

PutIfAbsent: TypeAlias = Callable[[str, bytes], Put]


@contextmanager
def attempts(store: Store) -> Iterator[PutIfAbsent]:
    """Yield a store's `put_if_absent`, to be called until a name is free.

    A local disk keeps between the calls the file that it has written and synced; nothing of it is
    left at the end of the `with`.
    """
    if type(store) is not LocalStore:  # A store around it, or one made of it, has a put of its own.
        yield store.put_if_absent
        return
    with store.staging() as staging:
        yield staging.put
