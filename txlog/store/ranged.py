"""Files read in ranges of bytes, and files of remote stores sent in parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from io import RawIOBase
from itertools import islice
from queue import Full, Queue
from threading import Thread
from typing import Any, NamedTuple

from txlog.base.errors import os_errors
from txlog.base.thresholds import Threshold
from txlog.parquet.file_footer import TAIL_BYTES
from txlog.store.base import Store, is_far, map_many


class RangedFile(RawIOBase):
    """A file that sends one request for each range of bytes that is read.

    Parameters
    ----------
    fetch
        A function that returns the bytes from a start to an end; fewer if the file ends before.
    """

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self._size = size
        self._fetch = fetch
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the current position."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position, and return it."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Return `size` bytes or all remaining ones; errors as for `Store.read`."""
        left = max(0, self._size - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        if not wanted:
            return b""
        data = self._fetch(self._at, self._at + wanted)
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return the number of bytes read."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Tailed(RangedFile):
    """A file that caches its last bytes after the first read of them."""

    def __init__(self, source: Any, size: int | None, tail: bytes | None) -> None:
        self._source = source
        super().__init__(source.seek(0, os.SEEK_END) if size is None else size, self._part)
        self._tail = tail
        self._tail_start = max(0, self._size - (TAIL_BYTES if tail is None else len(tail)))
        self._kept: list[tuple[int, bytes]] = []

    def keep(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read ranges of bytes, and keep them until the next call, so that they are read once."""
        self._kept = [(start, self._asked(start, end)) for start, end in ranges]

    @property
    def tail(self) -> bytes | None:
        """The last bytes of the file, if they were read."""
        return self._tail

    def _part(self, start: int, end: int) -> bytes:
        for begin, data in self._kept:
            if begin <= start and end <= begin + len(data):
                return data[start - begin : end - begin]
        if start < self._tail_start:
            # Single reads almost never cross the start of the cached bytes.
            return self._asked(start, end)
        if self._tail is None:
            self._tail = self._asked(self._tail_start, self._size)
        return self._tail[start - self._tail_start : end - self._tail_start]

    def _asked(self, start: int, end: int) -> bytes:
        self._source.seek(start)
        return bytes(self._source.read(end - start))

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


def open_ranged(
    store: Store, path: str, size: int | None = None, *, tail: bytes | None = None
) -> Any:
    """Return a file for random reading, for use in a `with`, as `Store.open_input` does.

    For a remote store, the end of the file is read once and cached.

    Parameters
    ----------
    size
        The size in bytes, if it is known. Then a remote store gets no request for the size, and a
        missing file raises at the first read.
    tail
        The last bytes of the file, if they are known. They are not requested from a remote store.
    """
    if not is_far(store):
        return store.open_input(path)
    return _Tailed(store.open_input(path, size=size), size, tail)


PART_BYTES = 8 << 20
"""The size of one part. S3 accepts 10,000 parts, so a file may have 80 GB."""

_WAITING = 2  # The number of parts that wait between the writer and the uploads.
_LOOK_S = 0.1  # How often a waiting writer checks whether the upload failed.


class _GivenUp(Exception):  # noqa: N818  # It is a signal: the sender drops the parts.
    """The writer failed."""


class Upload(RawIOBase):
    """The file that a writer uses. If the file is smaller than a part, `finish` returns it unsent.

    Parameters
    ----------
    send
        A function that sends all parts of an iterator and completes the file at its end. If the
        iterator raises, the function must drop the parts. It runs in its own thread.
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
        """Return true: the file is for writing."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._position

    def write(self, data: Any) -> int:
        """Accept all bytes, and return their number. Raises the sender's error."""
        view = memoryview(data).cast("B")
        self._buffer += view
        self._position += len(view)
        while len(self._buffer) >= PART_BYTES:
            part = bytes(self._buffer[:PART_BYTES])
            del self._buffer[:PART_BYTES]
            self._hand_over(part)
        return len(view)

    def finish(self) -> bytes | None:
        """Send the rest and wait. If the file is smaller than a part, return it unsent."""
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
        """Drop the sent parts. Never raises."""
        self._buffer.clear()
        if self._thread is not None and self._error is None:
            try:
                self._hand_over(_GivenUp())
            except Exception:  # The upload has failed.
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


_OPEN_FILES: Threshold = 64  # The number of files that are open at a time.


class FileRanges(NamedTuple):
    """Ranges of a file's bytes: each is the first byte and the end (exclusive)."""

    store: Store
    path: str
    ranges: Sequence[tuple[int, int]]
    size: int  # The size of the file in bytes.


def read_ranges(files: Sequence[FileRanges]) -> list[list[bytes]]:
    """Read ranges of files. A range that exceeds the end of its file is cut at the end.

    All ranges are announced to a local disk before the first read, so that it reads many at a time.
    """
    found: list[list[bytes]] = []
    for begin in range(0, len(files), _OPEN_FILES):
        found += _read_together(files[begin : begin + _OPEN_FILES])
    return found


def read_concurrently(files: Sequence[FileRanges]) -> list[list[bytes]]:
    """Read ranges of files as `read_ranges` does; those of a remote store at the same time."""
    if not any(is_far(file.store) for file in files):
        return read_ranges(files)
    single = [file._replace(ranges=[place]) for file in files for place in file.ranges]
    singles = map_many(files[0].store, lambda one: read_ranges([one])[0][0], single)
    return [list(islice(singles, len(file.ranges))) for file in files]


def _read_together(files: Sequence[FileRanges]) -> list[list[bytes]]:
    descriptors: list[int] = []  # -1 for a file that is not on a local disk.
    try:
        descriptors.extend(map(_opened, files))
        if hasattr(os, "posix_fadvise"):
            for file, descriptor in zip(files, descriptors, strict=True):
                for start, stop in file.ranges if descriptor >= 0 else ():
                    os.posix_fadvise(descriptor, start, stop - start, os.POSIX_FADV_WILLNEED)
        return list(map(_ranges, files, descriptors))
    finally:
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)


def _opened(file: FileRanges) -> int:
    here = file.store.local_path(file.path) if file.ranges and hasattr(os, "pread") else None
    if here is None:
        return -1
    with os_errors("open", file.path, file.store.root):
        # Non-blocking: if the file is a pipe, do not wait forever for a writer.
        return os.open(here, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def _ranges(file: FileRanges, descriptor: int) -> list[bytes]:
    if not file.ranges:
        return []
    if descriptor >= 0:
        with os_errors("read", file.path, file.store.root):
            return [os.pread(descriptor, stop - start, start) for start, stop in file.ranges]
    parts = []
    with file.store.open_input(file.path, size=file.size) as source:
        for start, stop in file.ranges:
            source.seek(start)
            parts.append(bytes(source.read(stop - start)))
    return parts
