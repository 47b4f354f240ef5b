"""Frames of an engine whose own workers write their rows: the engine registers how.

The engine belongs to a later storey. Tasks import this module, so it imports nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Frames(Protocol):
    """What an engine does with its frames, where rows of any kind are taken."""

    def files(self, frame: Any, modes: Any, options: Any, quarantine: Any, txn: Any) -> Any:
        """Return an `AddedFiles` that the engine's workers write when it is needed, and `Rejects`.

        Parameters
        ----------
        modes, options
            A `WriteModes` and a `WriteOptions`.
        quarantine
            A `Quarantine` for rows that do not fit, or None. Then the `Rejects` are None, too.
        txn
            The application's version that names the rows in the quarantine, or None.
        """

    def version_read(self, frame: Any, store: Any, latest: int) -> int | None:
        """Return the earliest version of the table in a store that a frame reads; None: of none.

        Parameters
        ----------
        latest
            The version for frames that read the latest one when they are computed.
        """

    def merge(
        self, request: Any, clauses: Any, table: Any, store: Any, *, begun: Callable[[], Any] | None
    ) -> Any:
        """Return the `Operation` of a `MergeRequest` whose source is a frame.

        Parameters
        ----------
        table, store
            The schema and the store of the table.
        begun
            Returns the version of the log on which the transaction began that has changed the table
            before. None: the version that the merge changes is in the log; workers can open it.
        """


_loaders: list[Callable[[], Frames]] = []


def registers_frames(load: Callable[[], Frames]) -> Callable[[], Frames]:
    """Register a function that returns what an engine does; it is called for the first frame."""
    _loaders[:] = [load]
    return load


def is_frame(data: object) -> bool:
    """Return whether data is a frame of an engine, and not rows in this process."""
    return hasattr(data, "mapInArrow")


def frames_of(data: object) -> Frames | None:
    """Return the functions of an engine for its frames; None if no engine has such data."""
    return _loaders[0]() if _loaders and is_frame(data) else None
