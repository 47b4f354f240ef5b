"""Tables on any store."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from txlog.commit.context import Context
from txlog.scan.engine import threads_for
from txlog.snapshot.time_travel import snapshot_at
from txlog.store.base import Store

if TYPE_CHECKING:
    from txlog.table.table import Table


def open_table(
    store: Store, version: int | None = None, timestamp: str | datetime | int | None = None
) -> Table:
    """Return the table in a store, such as a `CountingStore`; otherwise as `txlog.Table`."""
    from txlog.table.table import Table

    context = Context(store, engine=threads_for(store))
    return Table._of(context, snapshot_at(store, version, timestamp))


_SEAL = re.compile(rb'"txlogCrc32":"[0-9a-f]*",|,"txlogCrc32":"[0-9a-f]*"')


def unsealed(commit: bytes) -> bytes:
    """Return the bytes of a commit without the checksum that txlog put into it.

    A commit that is changed by hand must lose it, or it is refused as damaged.
    """
    return _SEAL.sub(b"", commit, count=1)
