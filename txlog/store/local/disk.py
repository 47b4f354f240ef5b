"""A local disk: the calls that change it, its folders, and what is in them."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from operator import attrgetter

from txlog.errors import InvalidInputError
from txlog.lazy import dataclass
from txlog.store.base import ObjectInfo

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_OLD = os.O_WRONLY | getattr(os, "O_BINARY", 0)
_SYNC_DATA = getattr(os, "fdatasync", os.fsync)
# What file systems answer that have nothing to wait for in a folder.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)


class Disk:
    """The system calls that change a disk, as methods, so that a test can make any of them fail.

    All raise `OSError`; what it means is for the store to say.
    """

    def create(self, path: str) -> int:
        """Return the descriptor of a new, empty file; the name must be free."""
        return os.open(path, _NEW, 0o666)

    def reopen(self, path: str) -> int:
        """Return the descriptor of a file that is there, to be written from its start."""
        return os.open(path, _OLD)

    def write(self, descriptor: int, data: memoryview) -> int:
        """Return how many of the bytes were written: at least one, perhaps not all."""
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        """Wait until a file's bytes are on the disk."""
        os.fsync(descriptor)

    def sync_data(self, descriptor: int) -> None:
        """Wait until a file's bytes are on the disk, and what is needed to find them."""
        _SYNC_DATA(descriptor)

    def truncate(self, descriptor: int, length: int) -> None:
        """Shorten a file to `length` bytes."""
        os.ftruncate(descriptor, length)

    def close(self, descriptor: int) -> None:
        """Close a file."""
        os.close(descriptor)

    def sync_folder(self, path: str) -> None:
        """Wait until the names in a folder are on the disk, where the file system has that."""
        if os.name == "nt":
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise
        finally:
            os.close(descriptor)

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; `FileExistsError` if the name is taken."""
        os.link(source, target)

    def rename(self, source: str, target: str) -> None:
        """Rename a file over whatever has the name."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a name; a symbolic link loses itself, not what it points to."""
        os.unlink(path)

    def make_folder(self, path: str) -> None:
        """Make a folder; the one above it must be there."""
        os.mkdir(path)


class RelaxedDisk(Disk):
    """A disk that nobody waits for: the operating system writes when it likes.

    What a process has written is there for others at once, also if the process dies. When the power
    is cut, the last commits may be lost, and files that they name; the table may be unreadable.
    """

    def sync(self, descriptor: int) -> None:
        """Do not wait."""

    def sync_data(self, descriptor: int) -> None:
        """Do not wait."""

    def sync_folder(self, path: str) -> None:
        """Do not wait."""


DURABILITY = "txlog.durability"


def disk_of(options: Mapping[str, object]) -> Disk:
    """Return the disk that storage options ask for: `txlog.durability` is `full` or `relaxed`.

    Raises
    ------
    InvalidInputError
        It is something else.
    """
    asked = options.get(DURABILITY, "full")
    if asked not in ("full", "relaxed"):
        raise InvalidInputError(
            argument="storage_options",
            field=DURABILITY,
            reason=f"{asked!r} is neither 'full' nor 'relaxed'",
            remedy="Leave it out: then all is on the disk when a verb returns",
        )
    return Disk() if asked == "full" else RelaxedDisk()


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
            self._require_no_way_out(at)
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

    def _require_no_way_out(self, folder: str) -> None:
        """Raise `OSError` if a link below the root leads out of it: clean-up never follows it."""
        if is_below(folder, self.root) and not is_below(
            os.path.realpath(folder), os.path.realpath(self.root)
        ):
            raise OSError(
                errno.EXDEV, "a symbolic link leads out of the table, where vacuum never follows"
            )

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


def is_below(path: str, root: str) -> bool:
    """Return whether a path is a folder, or something in it. Pure: both are as they are spelled."""
    return path == root or path.startswith(root.rstrip("/") + "/")


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


_NAME = attrgetter("name")


def list_files(folder: str, name: str) -> list[ObjectInfo]:
    """Return the files in a folder whose names are not below `name`, by name, ascending.

    A symbolic link to a file counts as the file. Raises `OSError`; a folder that is not there is
    empty.
    """
    found: list[ObjectInfo] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                at = entry.name
                if at >= name and _is_file(entry):
                    _add(found, entry, at)
    except FileNotFoundError:
        return []
    found.sort(key=_NAME)
    return found


def list_names(folder: str, name: str) -> list[str]:
    """Return the names alone of what `list_files` returns: nothing is asked about each file."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                [at for entry in entries if (at := entry.name) >= name and _is_file(entry)]
            )
    except FileNotFoundError:
        return []


def list_below(folder: str) -> list[ObjectInfo]:
    """Return the files below a folder, by name, ascending; links to files or folders are left out.

    Raises `OSError`; a folder that is not there is empty.
    """
    found: list[ObjectInfo] = []
    add, made = found.append, ObjectInfo._make
    for entry, name in _walk(folder):
        try:
            stat = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # Deleted between the listing and the look; the others are still there.
        add(made((name, stat.st_size, stat.st_mtime_ns // 1_000_000)))
    found.sort(key=_NAME)
    return found


def _walk(folder: str) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Yield files with their paths below a folder."""
    waiting = [(folder, "")]
    while waiting:
        place, above = waiting.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, f"{above}{entry.name}/"))
                    elif entry.is_file(follow_symlinks=False):
                        yield entry, above + entry.name
        except FileNotFoundError:
            continue  # Removed meanwhile, or never there.


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError as error:
        if error.errno == errno.ELOOP:  # A link to itself is as much a file as one to nothing.
            return False
        raise


def _add(found: list[ObjectInfo], entry: os.DirEntry[str], name: str) -> None:
    try:
        stat = entry.stat()
    except FileNotFoundError:
        return  # Deleted between the listing and the look; the others are still there.
    found.append(ObjectInfo(name, stat.st_size, stat.st_mtime_ns // 1_000_000))
