"""Other writers that commit between what an operation looked at and its commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import txlog
from txlog.commit import loop


@contextmanager
def losing(path: Path, winners: list[Callable[[Any], Any]]) -> Iterator[None]:
    """Let a winner commit before each put, between what was looked at and the commit."""
    left, put = list(winners), loop.put_commit

    def late(*args: Any, **kwargs: Any) -> Any:
        if left:
            winner = left.pop(0)
            loop.put_commit = put
            try:
                winner(txlog.Table(path))
            finally:
                loop.put_commit = late
        return put(*args, **kwargs)

    loop.put_commit = late
    try:
        yield
    finally:
        loop.put_commit = put
