"""An export as one stream of bytes, for a service: no file is written."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any

import pyarrow as pa

from txlog.base.thresholds import Threshold
from txlog.training.datasets.formats.base import Writing

_CHUNK_BYTES: Threshold = 1 << 20
_CHUNKS = 4  # Chunks that wait for the reader.
_LOOK_S = 0.5  # The time after which a writer looks whether its reader is gone.
_ENDLESS = 1 << 62


class _GoneError(Exception):
    """Nobody reads the stream any more."""


class _Sink:
    """The only file of an export, whose bytes go into a queue in chunks."""

    shard_rows = shard_bytes = _ENDLESS

    def __init__(self) -> None:
        self.chunks: Queue[bytes | BaseException | None] = Queue(_CHUNKS)
        self.is_left = Event()
        self._bytes = bytearray()

    @contextmanager
    def open(self, _: str) -> Iterator[Any]:
        """Return this object."""
        yield self
        self._flush()

    def write(self, data: Any) -> int:
        """Take bytes; raises `_GoneError` if nobody reads them."""
        self._bytes += data
        if len(self._bytes) >= _CHUNK_BYTES:
            self._flush()
        return len(data)

    def _flush(self) -> None:
        if self._bytes:
            data, self._bytes = bytes(self._bytes), bytearray()
            self.put(data)

    def put(self, what: bytes | BaseException | None) -> None:
        """Put a chunk, an error or the end into the queue."""
        while not self.is_left.is_set():
            try:
                self.chunks.put(what, timeout=_LOOK_S)
            except Full:
                continue
            return
        raise _GoneError


def streamed(
    writer: Writing, opened: Callable[[], pa.RecordBatchReader]
) -> Generator[bytes, None, None]:
    """Yield the bytes of one file of a format. A thread writes it while it is read.

    Parameters
    ----------
    opened
        Returns the rows; it is called in the thread.

    Raises
    ------
    TxlogError
        An error of the rows or of the format, perhaps after some bytes.
    """
    sink = _Sink()

    def write() -> None:
        try:
            try:
                writer.write(opened(), sink)
            except _GoneError:
                return
            except BaseException as error:
                sink.put(error)
            else:
                sink.put(None)
        except _GoneError:
            return

    thread = Thread(target=write, name="txlog-export", daemon=True)
    thread.start()
    try:
        while True:
            found = sink.chunks.get()
            if found is None:
                return
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        sink.is_left.set()
        while True:  # A writer that waits for room ends at once.
            try:
                sink.chunks.get_nowait()
            except Empty:
                break
        thread.join(_LOOK_S)  # One that reads rows ends when it has them.
