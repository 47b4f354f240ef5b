"""A file being written, whose errors are ours."""

from __future__ import annotations

from io import RawIOBase
from typing import Any

from txlog.store.disk import Disk
from txlog.store.oserrors import os_errors


class Sink(RawIOBase):
    """The raw side of a new file: writes go through `Disk`; closing or flushing it syncs nothing.

    Errors of the disk are turned into ours here and not around the caller's block, where they
    would be mixed with errors of the caller's own.
    """

    def __init__(self, disk: Disk, descriptor: int, path: str, root: str) -> None:
        super().__init__()
        self._disk = disk
        self._descriptor = descriptor
        self._path = path
        self._root = root
        self._position = 0
        self._given_up = False

    def writable(self) -> bool:
        """Return that it is for writing."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._position

    def write(self, data: Any) -> int:
        """Return how many of the bytes were written. Raises `StoreError`."""
        view = memoryview(data).cast("B")
        if self._given_up:
            return len(view)
        with os_errors("write", self._path, self._root):
            written = self._disk.write(self._descriptor, view)
        self._position += written
        return written

    def sync(self) -> None:
        """Wait until all is on the disk. Raises `StoreError`."""
        with os_errors("write", self._path, self._root):
            self._disk.sync(self._descriptor)

    def give_up(self) -> None:
        """Drop what is written from now on, such as a buffer that is flushed when it dies."""
        self._given_up = True
