"""Folders that survive a crash."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field

from txlog.store.disk import Disk


@dataclass(frozen=True)
class Folders:
    """Folders known to be durable: their names are on the disk, up to the table's root.

    A file is as durable as the folders above it. One that was there already may have been made a
    moment ago by somebody who has not waited for the disk, so each is synced once by a process.
    """

    root: str  # Absolute; the folder above it is synced as the last one.
    disk: Disk
    _durable: set[tuple[str, int, int]] = field(default_factory=set)

    def ensure(self, folder: str) -> None:
        """Make a folder and those above it, as needed, and all of them durable.

        Raises
        ------
        OSError
            One cannot be made, or one that was made cannot be synced.
        """
        missing = []
        at = folder
        while (key := _key(at)) is None:
            missing.append(at)
            above = os.path.dirname(at)
            if above == at:
                break  # Not even the root of the file system: `make_folder` will say why.
            at = above
        if key is not None and key not in self._durable:
            self._sync_found(at)
        for path in reversed(missing):
            # Another writer may make it at the same time; syncing twice does no harm.
            with contextlib.suppress(FileExistsError):
                self.disk.make_folder(path)
            self.disk.sync_folder(os.path.dirname(path))
            self._remember(path)

    def _sync_found(self, folder: str) -> None:
        at = folder
        while True:
            above = os.path.dirname(at)
            # A folder above the table may be closed to us; then it is not ours to keep, either.
            with contextlib.suppress(PermissionError):
                self.disk.sync_folder(above)
            self._remember(at)
            if at == self.root or not at.startswith(f"{self.root}/"):
                return
            at = above

    def _remember(self, folder: str) -> None:
        key = _key(folder)
        if key is not None:
            self._durable.add(key)


def _key(folder: str) -> tuple[str, int, int] | None:
    """Return what tells a folder from a later one of its name; None if nothing is there."""
    try:
        stat = os.stat(folder)
    except FileNotFoundError:
        return None
    return folder, stat.st_dev, stat.st_ino
