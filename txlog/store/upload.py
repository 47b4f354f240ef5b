"""A file that goes up in parts while it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import RawIOBase
from queue import Full, Queue
from threading import Thread
from typing import Any

PART_BYTES = 8 << 20
"""Of one part. S3 takes 10,000 of them, so a file may have 80 GB."""

_WAITING = 2  # Parts between the writer and those on their way.
_LOOK_S = 0.1  # How often a writer that waits looks whether the upload failed.


class _GivenUp(Exception):  # noqa: N818  # It is no error: it tells the sender to drop the parts.
    """The writer failed."""


class Upload(RawIOBase):
    """The file that a writer sees. What is less than a part is not sent, but returned at the end.

    Parameters
    ----------
    send
        Sends all parts of an iterator, and makes them a file when that ends. If the iterator
        raises, it must drop them. It runs in a thread of its own.
    """

    def __init__(self, send: Callable[[Iterator[bytes]], None]) -> None:
        super().__init__()
        self._send = send
        self._buffer = bytearray()
        self._position = 0
        self._thread: Thread | None = None
        self._parts: Queue[bytes | _GivenUp | None] = Queue(_WAITING)
        self._error: BaseException | None = None

    def writable(self) -> bool:
        """Return that it is for writing."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._position

    def write(self, data: Any) -> int:
        """Return how many bytes were taken: all. Raises what the sender raised."""
        view = memoryview(data).cast("B")
        self._buffer += view
        self._position += len(view)
        while len(self._buffer) >= PART_BYTES:
            part = bytes(self._buffer[:PART_BYTES])
            del self._buffer[:PART_BYTES]
            self._hand_over(part)
        return len(view)

    def finish(self) -> bytes | None:
        """Send the rest, and wait; return all bytes if they are less than a part, and not sent."""
        if self._thread is None:
            return bytes(self._buffer)
        if self._buffer:
            self._hand_over(bytes(self._buffer))
        self._hand_over(None)
        self._thread.join()
        if self._error is not None:
            raise self._error
        return None

    def abort(self) -> None:
        """Drop what was sent. Raises nothing."""
        self._buffer.clear()
        if self._thread is not None and self._error is None:
            try:
                self._hand_over(_GivenUp())
            except Exception:  # It failed by itself meanwhile.
                return
            self._thread.join()

    def _hand_over(self, part: bytes | _GivenUp | None) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name="txlog-upload", daemon=True)
            self._thread.start()
        while True:
            if self._error is not None:
                raise self._error
            try:
                self._parts.put(part, timeout=_LOOK_S)
            except Full:
                continue
            return

    def _run(self) -> None:
        try:
            self._send(self._taken())
        except BaseException as error:
            self._error = error

    def _taken(self) -> Iterator[bytes]:
        while (part := self._parts.get()) is not None:
            if isinstance(part, _GivenUp):
                raise part
            yield part
