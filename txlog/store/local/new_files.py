"""Write many new files to a local disk, and make them durable together."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import BufferedWriter, RawIOBase
from typing import Any

from txlog.base.errors import TxlogError, os_errors
from txlog.base.threads import Call, Workers
from txlog.base.thresholds import Threshold
from txlog.store.local.disk import Disk, Folders, parents_of
from txlog.store.local.put import forget

BUFFER_BYTES: Threshold = 1 << 20
_SYNCS_AT_ONCE = 16  # A disk writes its journal once for many waiting threads.
# Up to this number, folders are synced one after another, without a thread.
_FEW_FOLDERS: Threshold = 2
# At most this number of files is written and not yet synced; each of them is open.
_WAITING: Threshold = 64
# If there are more files, a thread syncs some of them in one call.
_SYNCED_TOGETHER: Threshold = 4


_Written = tuple[str, int]
"""A written file: its path, and its open descriptor."""


class NewFiles:
    """New files: a thread syncs each file, and each folder is synced once at the end.

    For use in a `with`. At its end, all files and their folders are durable. If an error ends it,
    or a sync fails, all files are removed.
    """

    def __init__(self, disk: Disk, folders: Folders, resolve: Callable[[str], str]) -> None:
        self._disk = disk
        self._folders = folders
        self._resolve = resolve
        self._stack = ExitStack()  # Ends the threads.
        self._workers: Workers | None = None  # Made for the first call.
        self._syncs: deque[Call[None]] = deque()
        self._unsynced: list[_Written] = []  # Their syncs have not begun.
        self._targets: list[str] = []
        self._made: dict[str, bool] = {}  # Folders from `Folders.make`.
        # Folders with new files, and the path of one file in each.
        self._filled: dict[str, str] = {}

    def __enter__(self) -> NewFiles:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            with self._stack:
                try:
                    if error is None:
                        self._finish()
                except BaseException:  # Also an interrupt.
                    self._remove()
                    raise
                if error is not None:
                    self._remove()
        finally:
            for call in self._syncs:  # After an interrupt; those that were dropped close files.
                call.run()

    @contextmanager
    def open(self, path: str) -> Iterator[Any]:
        """Return a new file for writing in a `with`; at its end, the sync begins."""
        target = self._resolve(path)
        folder = os.path.dirname(target)
        with os_errors("create", path, self._folders.root):
            for made, is_new in self._folders.make(folder).items():
                self._made[made] = is_new or self._made.get(made, False)
            descriptor = self._disk.create(target)
        self._targets.append(target)
        self._filled[folder] = path
        raw = Sink(self._disk, descriptor, path, self._folders.root)
        try:
            try:
                buffered = BufferedWriter(raw, BUFFER_BYTES)
                yield buffered
                if not buffered.closed:
                    buffered.flush()
            finally:
                raw.give_up()  # After an error, buffered bytes must not be written.
        except BaseException:
            with contextlib.suppress(OSError):
                self._disk.close(descriptor)
            forget(self._disk, target)
            raise
        self._unsynced.append((path, descriptor))
        count = len(self._targets)
        together = 1 if count <= _WAITING else max(1, _SYNCED_TOGETHER)
        if count == 1 or len(self._unsynced) < together:  # A single file needs no thread.
            return
        self._start_syncs(together)
        while len(self._syncs) * together > _WAITING:
            self._await_first()

    def _start_syncs(self, together: int) -> None:
        while self._unsynced:
            # What a call takes it closes, whatever fails; `_remove` closes the others.
            written = self._unsynced[:together]
            del self._unsynced[:together]
            self._start(self._sync, written)

    def _start(self, sync: Callable[[Any], None], item: Any) -> None:
        if not self._disk.syncs:
            sync(item)
            return
        if self._workers is None:
            self._workers = self._stack.enter_context(Workers(_SYNCS_AT_ONCE))
        self._syncs.append(self._workers.start(sync, item))

    def _await_first(self) -> None:
        try:
            self._syncs[0].result()
        finally:
            if self._syncs[0].is_done:  # Else an interrupt came, and `_remove` waits for the call.
                self._syncs.popleft()

    def _sync(self, written: Sequence[_Written]) -> None:
        with ExitStack() as stack:
            for path, descriptor in written:
                stack.callback(self._close, path, descriptor)
            for path, descriptor in written:
                with os_errors("write", path, self._folders.root):
                    self._disk.sync(descriptor)

    def _close(self, path: str, descriptor: int) -> None:
        with os_errors("close", path, self._folders.root):
            self._disk.close(descriptor)

    def _finish(self) -> None:
        if len(self._targets) == 1:
            written, self._unsynced = self._unsynced, []
            self._sync(written)
        self._start_syncs(together=1)
        while self._syncs:
            self._await_first()
        parents = parents_of(self._made)
        # A folder with both new folders and new files is synced once.
        paths = {**dict.fromkeys(parents, next(iter(self._filled.values()), "")), **self._filled}
        folders = [
            (folder, path, folder in self._filled or parents[folder])
            for folder, path in paths.items()
        ]
        if len(folders) <= _FEW_FOLDERS:
            self._sync_folders(folders)
        else:
            together = 1 + len(folders) // (_SYNCS_AT_ONCE * 4)
            for start in range(0, len(folders), together):
                self._start(self._sync_folders, folders[start : start + together])
        while self._syncs:
            self._await_first()
        self._folders.remember(self._made)

    def _sync_folders(self, folders: Sequence[tuple[str, str, bool]]) -> None:
        for folder, path, is_ours in folders:
            with os_errors("write", path, self._folders.root):
                self._folders.sync(folder, is_ours=is_ours)

    def _remove(self) -> None:
        try:
            for _, descriptor in self._unsynced:
                with contextlib.suppress(OSError):
                    self._disk.close(descriptor)
            self._unsynced.clear()
            while self._syncs:  # Even if they raise, they close their files.
                with contextlib.suppress(TxlogError):
                    self._await_first()
        finally:  # Also after a second interrupt.
            for target in self._targets:
                forget(self._disk, target)


class Sink(RawIOBase):
    """The raw stream of a new file, which writes through `Disk`. Flush and close do not sync.

    Errors of the disk are converted here and not around the caller's block, where they could be
    mixed up with the caller's own errors.
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
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._position

    def write(self, data: Any) -> int:
        """Write bytes; return how many were written. Raises `StoreError`."""
        view = memoryview(data).cast("B")
        if self._given_up:
            return len(view)
        with os_errors("write", self._path, self._root):
            written = self._disk.write(self._descriptor, view)
        self._position += written
        return written

    def sync(self) -> None:
        """Wait until all bytes are on the disk. Raises `StoreError`."""
        with os_errors("write", self._path, self._root):
            self._disk.sync(self._descriptor)

    def give_up(self) -> None:
        """Ignore further writes, such as those of a buffer that is flushed when it is deleted."""
        self._given_up = True
