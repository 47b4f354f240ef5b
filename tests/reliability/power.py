"""A disk that knows what was synced, and what remains of it after a power cut.

Files are real, below a folder. What a write, a new name or a removed one has changed since the last
sync of the file or of the folder is kept beside, and a cut undoes it: all of it, or by chance some,
files torn in the middle among them. So it is stricter than most file systems, which keep an order.
"""

from __future__ import annotations

import itertools
import os
import random
from dataclasses import dataclass
from pathlib import Path

from tests.store.broken_disk import Crash
from txlog.store.local.disk import Disk

Cut = random.Random | None
"""What decides on each change that was not synced: chance, or (None) all of them are lost."""


@dataclass
class _Inode:
    """A file's bytes that are on the disk for sure, and where its descriptor leads."""

    durable: bytes | None = None  # None: not even empty.


class PowerDisk(Disk):
    """A disk whose power is cut at its n-th step (0: never); then nothing works any more."""

    def __init__(self, root: Path, step: int = 0) -> None:
        self.root = str(root)
        self.step = step
        self.steps = 0
        self.is_cut = False
        self._ids: dict[int, int] = {}  # By inode number, which a later file may get again.
        self._inodes: dict[int, _Inode] = {}  # By id, of files that were made here.
        self._open: dict[int, int] = {}  # Descriptors, to ids.
        # By folder: what its names were at the last sync, of those that were changed since.
        self._names: dict[str, dict[str, int | None]] = {}
        self._next = itertools.count()
        self._kept: dict[int, bytes] = {}  # Bytes of files whose last name is gone.

    def _step(self) -> None:
        if self.is_cut:
            raise Crash
        self.steps += 1
        if self.steps == self.step:
            self.is_cut = True
            raise Crash

    def _change(self, path: str, before: int | None) -> None:
        folder, name = os.path.split(path)
        self._names.setdefault(folder, {}).setdefault(name, before)

    def create(self, path: str) -> int:
        self._step()
        descriptor = super().create(path)
        self._open[descriptor] = file = self._id(os.fstat(descriptor))
        self._inodes[file] = _Inode()
        self._change(path, None)
        return descriptor

    def reopen(self, path: str) -> int:
        self._step()
        descriptor = super().reopen(path)
        self._open[descriptor] = self._id(os.fstat(descriptor))
        return descriptor

    def write(self, descriptor: int, data: memoryview) -> int:
        self._step()
        return super().write(descriptor, data)

    def truncate(self, descriptor: int, length: int) -> None:
        self._step()
        super().truncate(descriptor, length)

    def sync(self, descriptor: int) -> None:
        self._step()
        self._synced(descriptor)

    def sync_data(self, descriptor: int) -> None:
        self._step()
        self._synced(descriptor)

    def _synced(self, descriptor: int) -> None:
        data = Path(f"/proc/self/fd/{descriptor}").read_bytes()
        self._inodes[self._open[descriptor]] = _Inode(data)

    def close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)  # A process that is gone has closed its files, too.
        super().close(descriptor)
        self._step()

    def sync_folder(self, path: str) -> None:
        self._step()
        self._names.pop(path, None)

    def link(self, source: str, target: str) -> None:
        self._step()
        super().link(source, target)
        self._change(target, None)

    def rename(self, source: str, target: str) -> None:
        self._step()
        moved, before = self._file(source), self._gone(target)
        super().rename(source, target)
        self._change(source, moved)
        self._change(target, before)

    def unlink(self, path: str) -> None:
        self._step()
        before = self._gone(path)
        super().unlink(path)
        self._change(path, before)

    def make_folder(self, path: str) -> None:
        self._step()
        super().make_folder(path)
        self._change(path, None)

    def _id(self, stat: os.stat_result) -> int:
        return self._ids.setdefault(stat.st_ino, next(self._next))

    def _file(self, path: str) -> int | None:
        """Return the id of the file that has a name."""
        try:
            return self._id(os.lstat(path))
        except FileNotFoundError:
            return None

    def _gone(self, path: str) -> int | None:
        """Keep the bytes of a file that loses a name, and return its id."""
        file = self._file(path)
        if file is not None:
            self._kept[file] = Path(path).read_bytes()
            self._free(path)
        return file

    def _free(self, path: str) -> None:
        """Let the next file with the inode number be another one, if this is its last name."""
        stat = os.lstat(path)
        if stat.st_nlink == 1:
            self._ids.pop(stat.st_ino, None)

    def cut(self, chance: Cut) -> None:
        """Leave on the disk what was synced, and of the rest what chance leaves."""
        self.is_cut = True
        for folder, names in sorted(self._names.items(), key=lambda item: -len(item[0])):
            for name, before in names.items():
                if chance is None or chance.random() < 0.5:
                    self._undo(f"{folder}/{name}", before)
        for path in Path(self.root).rglob("*"):
            if path.is_file() and (held := self._inodes.get(self._id(path.stat()))):
                self._tear(path, held, chance)

    def _undo(self, path: str, before: int | None) -> None:
        place = Path(path)
        if before is None:
            if place.is_dir():
                _remove(place)
            elif place.exists():
                self._free(path)
                place.unlink()
        elif before in self._kept and place.parent.exists():
            if place.exists():
                self._free(path)
                place.unlink()
            held = self._inodes.get(before)
            data = self._kept[before] if held is None else held.durable
            place.write_bytes(data or b"")

    def _tear(self, path: Path, held: _Inode, chance: Cut) -> None:
        now = path.read_bytes()
        if now == held.durable:
            return
        if chance is None:
            data = held.durable or b""
        else:  # Some of the new bytes are there, and zeros for others, as after a journal's replay.
            at = chance.randrange(len(now) + 1)
            data = now[:at] + bytes(len(now) - at) if chance.random() < 0.5 else now[:at]
        path.unlink()  # Not through another name of it.
        path.write_bytes(data)


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
