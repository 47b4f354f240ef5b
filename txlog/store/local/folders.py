"""Folders that survive a crash."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from txlog.store.local.disk import Disk


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
        made = self.make(folder)
        for parent, is_ours in parents_of(made).items():
            self.sync(parent, is_ours=is_ours)
        self.remember(made)

    def make(self, folder: str) -> dict[str, bool]:
        """Make a folder and those above it, as needed.

        Returns those that are not known to be durable, each with whether it was made now. They are
        when their parents were synced; then they are to be remembered.
        """
        missing = []
        at = folder
        while (key := _key(at)) is None:
            missing.append(at)
            above = os.path.dirname(at)
            if above == at:
                break  # Not even the root of the file system: `make_folder` will say why.
            at = above
        undurable = {}
        if key is not None and key not in self._durable:
            while True:
                undurable[at] = False
                if at == self.root or not at.startswith(f"{self.root}/"):
                    break
                at = os.path.dirname(at)
        for path in reversed(missing):
            # Another writer may make it at the same time; syncing twice does no harm.
            with contextlib.suppress(FileExistsError):
                self.disk.make_folder(path)
            undurable[path] = True
        return undurable

    def sync(self, parent: str, *, is_ours: bool) -> None:
        """Make the names in a folder durable; raises `OSError`.

        A folder above the table may be closed to us. If we made nothing in it (`is_ours` is
        false), it is not ours to sync, either.
        """
        try:
            self.disk.sync_folder(parent)
        except PermissionError:
            if is_ours:
                raise

    def remember(self, folders: Iterable[str]) -> None:
        """Take note that folders are durable."""
        for folder in folders:
            self._remember(folder)

    def _remember(self, folder: str) -> None:
        key = _key(folder)
        if key is not None:
            self._durable.add(key)


def parents_of(made: Mapping[str, bool]) -> dict[str, bool]:
    """Return the folders to sync for what `Folders.make` returned, with whether they must be."""
    parents: dict[str, bool] = {}
    for folder, is_new in made.items():
        parent = os.path.dirname(folder)
        parents[parent] = parents.get(parent, False) or is_new
    return parents


def _key(folder: str) -> tuple[str, int, int] | None:
    """Return what identifies a folder, also after another one took its name; None if absent."""
    try:
        stat = os.stat(folder)
    except FileNotFoundError:
        return None
    return folder, stat.st_dev, stat.st_ino
