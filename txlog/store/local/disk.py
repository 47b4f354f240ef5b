"""A local disk: the system calls that change it, durable folders, and listings."""

from __future__ import annotations

import contextlib
import errno
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import attrgetter

from txlog.base.errors import InvalidInputError
from txlog.base.threads import Workers
from txlog.base.thresholds import Threshold
from txlog.store.base import ObjectInfo, known_ms

_PAGE: Threshold = 10_000  # The number of files that a listing, or a thread, has in memory.
_FOLDERS: Threshold = 64  # From so many folders on, threads list them.
_GROUP: Threshold = 16  # The folders that a thread lists one after the other.
_THREADS = 8

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_OLD = os.O_WRONLY | getattr(os, "O_BINARY", 0)
_SYNC_DATA = getattr(os, "fdatasync", os.fsync)
# The errors of file systems that cannot sync a folder.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)


class Disk:
    """The system calls that change a disk, as methods, so that tests can make each of them fail.

    All raise `OSError`, which the store converts.
    """

    syncs = True  # Whether a sync waits for the disk, so that threads are worth their cost.

    def create(self, path: str) -> int:
        """Create an empty file, whose name must be free, and return its descriptor."""
        return os.open(path, _NEW, 0o666)

    def reopen(self, path: str) -> int:
        """Open an existing file to write from its start, and return its descriptor."""
        return os.open(path, _OLD)

    def write(self, descriptor: int, data: memoryview) -> int:
        """Write bytes; return how many were written: at least one, perhaps not all."""
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        """Wait until a file's bytes are on the disk."""
        os.fsync(descriptor)

    def sync_data(self, descriptor: int) -> None:
        """Wait until a file's bytes, and the metadata to find them, are on the disk."""
        _SYNC_DATA(descriptor)

    def truncate(self, descriptor: int, length: int) -> None:
        """Shorten a file to `length` bytes."""
        os.ftruncate(descriptor, length)

    def close(self, descriptor: int) -> None:
        """Close a file."""
        os.close(descriptor)

    def sync_folder(self, path: str) -> None:
        """Wait until the names in a folder are on the disk, if the file system supports it."""
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
        """Rename a file, and replace a file of the new name."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a name. For a symbolic link, remove the link, not its target."""
        os.unlink(path)

    def make_folder(self, path: str) -> None:
        """Make a folder, whose parent must exist."""
        os.mkdir(path)


class RelaxedDisk(Disk):
    """A disk without syncs: the operating system decides when it writes.

    Other processes see written files at once, even if the writing process dies. After a power cut,
    the last commits and their files may be lost, and the table may be unreadable.
    """

    syncs = False

    def sync(self, descriptor: int) -> None:
        """Do not wait."""

    def sync_data(self, descriptor: int) -> None:
        """Do not wait."""

    def sync_folder(self, path: str) -> None:
        """Do not wait."""


DURABILITY = "txlog.durability"


def disk_of(options: Mapping[str, object]) -> Disk:
    """Return the disk for the storage option `txlog.durability`, which is `full` or `relaxed`.

    Raises
    ------
    InvalidInputError
        The option has another value.
    """
    asked = options.get(DURABILITY, "full")
    if asked not in ("full", "relaxed"):
        raise InvalidInputError(
            argument="storage_options",
            field=DURABILITY,
            reason=f"{asked!r} is neither 'full' nor 'relaxed'",
            remedy="Omit the option: then all files are on the disk when a verb returns",
        )
    return Disk() if asked == "full" else RelaxedDisk()


@dataclass(frozen=True)
class Folders:
    """Folders that are durable: their names are on the disk, up to the table's root.

    A file is only as durable as its parent folders. Another process may have just created a folder
    without a sync, so each process syncs each folder once.
    """

    root: str  # An absolute path. Its parent folder is synced last.
    disk: Disk
    _durable: set[tuple[str, int, int]] = field(default_factory=set)
    _inside: set[tuple[str, int, int]] = field(default_factory=set)  # No link leads out there.

    def ensure(self, folder: str) -> None:
        """Make a folder and its parents as needed, and make all of them durable.

        Raises
        ------
        OSError
            A folder cannot be made, or a new folder cannot be synced.
        """
        made = self.make(folder)
        for parent, is_ours in parents_of(made).items():
            self.sync(parent, is_ours=is_ours)
        self.remember(made)

    def make(self, folder: str) -> dict[str, bool]:
        """Make a folder and its parents as needed.

        Return the folders that may not be durable, each with whether this call created it. After a
        sync of their parents they are durable: then call `remember`.
        """
        missing = []
        at = folder
        while (key := _key(at)) is None:
            missing.append(at)
            above = os.path.dirname(at)
            if above == at:
                break  # Not even the root of the file system exists: `make_folder` will raise.
            at = above
        undurable = {}
        if key is not None and key not in self._durable:
            if key not in self._inside:
                self._require_no_way_out(at)
                self._inside.add(key)
            while True:
                undurable[at] = False
                if at == self.root or not at.startswith(f"{self.root}/"):
                    break
                at = os.path.dirname(at)
        for path in reversed(missing):
            # Another writer may create it at the same time. A second sync does no harm.
            with contextlib.suppress(FileExistsError):
                self.disk.make_folder(path)
            undurable[path] = True
        return undurable

    def _require_no_way_out(self, folder: str) -> None:
        """Raise `OSError` if a link below the root leads out of it: vacuum ignores such links."""
        if is_below(folder, self.root) and not is_below(
            os.path.realpath(folder), os.path.realpath(self.root)
        ):
            raise OSError(
                errno.EXDEV, "a symbolic link leads out of the table, and vacuum does not follow it"
            )

    def sync(self, parent: str, *, is_ours: bool) -> None:
        """Make the names in a folder durable; raises `OSError`.

        The process may lack permission for a folder above the table. If it created nothing in that
        folder (`is_ours` is false), it need not sync it.
        """
        try:
            self.disk.sync_folder(parent)
        except PermissionError:
            if is_ours:
                raise

    def remember(self, folders: Iterable[str]) -> None:
        """Record that folders are durable."""
        for folder in folders:
            self._remember(folder)

    def _remember(self, folder: str) -> None:
        key = _key(folder)
        if key is not None:
            self._durable.add(key)


def is_below(path: str, root: str) -> bool:
    """Return whether a path is a folder or is inside it. Pure: links are not resolved."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def parents_of(made: Mapping[str, bool]) -> dict[str, bool]:
    """Return the folders to sync after `Folders.make`, and whether the sync is required."""
    parents: dict[str, bool] = {}
    for folder, is_new in made.items():
        parent = os.path.dirname(folder)
        parents[parent] = parents.get(parent, False) or is_new
    return parents


def _key(folder: str) -> tuple[str, int, int] | None:
    """Return a folder's identity, which a later folder of the same name lacks; None if absent."""
    try:
        stat = os.stat(folder)
    except FileNotFoundError:
        return None
    return folder, stat.st_dev, stat.st_ino


_NAME = attrgetter("name")
# Below a file there is no folder.
_NO_FOLDER = (FileNotFoundError, NotADirectoryError)


def list_files(folder: str, name: str) -> list[ObjectInfo]:
    """Return the files in a folder from `name` on, in ascending order of names.

    A symbolic link to a file counts as the file. Raises `OSError`; a missing folder is empty.
    """
    found: list[ObjectInfo] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                at = entry.name
                if at >= name and _is_file(entry):
                    _add(found, entry, at)
    except _NO_FOLDER:
        return []
    found.sort(key=_NAME)
    return found


def list_names(folder: str, name: str) -> list[str]:
    """Return only the names of `list_files`, without a system call for each file."""
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if entry.name >= name]
        try:
            return sorted([entry.name for entry in found if entry.is_file()])
        except OSError:  # Perhaps a link to itself.
            return sorted([entry.name for entry in found if _is_file(entry)])
    except _NO_FOLDER:
        return []


def list_below(folder: str) -> list[ObjectInfo]:
    """Return the files below a folder in ascending order of names, without links.

    Raises `OSError`; a missing folder is empty.
    """
    return sorted(chain.from_iterable(pages_below(folder)), key=_NAME)


def pages_below(folder: str) -> Iterator[list[ObjectInfo]]:
    """Yield the files of `list_below` in parts, in no order.

    Many folders are listed by several threads, since a disk that does not have them in memory
    makes each of them wait.
    """
    waiting = deque([(folder, "")])
    yield from _pages(waiting, most=_FOLDERS)
    if not waiting:
        return
    folders = list(waiting)
    groups = (folders[at : at + _GROUP] for at in range(0, len(folders), _GROUP))
    with Workers(_THREADS) as threads:
        rest = (_pages(deque(group)) for group in groups)
        calls = deque((one, threads.start(_next, one)) for one in islice(rest, 2 * _THREADS))
        while calls:
            pages, call = calls.popleft()
            found = call.result()
            following = next(rest, None) if found is None else pages
            if following is not None:
                calls.append((following, threads.start(_next, following)))
            if found:
                yield found


def _next(pages: Iterator[list[ObjectInfo]]) -> list[ObjectInfo] | None:
    return next(pages, None)


def _pages(waiting: deque[tuple[str, str]], most: int | None = None) -> Iterator[list[ObjectInfo]]:
    """Yield the files below folders in parts, until `most` folders wait to be listed.

    A folder is its path, and what the names of its files begin with.
    """
    found: list[ObjectInfo] = []
    # One loop, without a call for each file: there may be a million of them.
    while waiting and (most is None or len(waiting) < most):
        place, above = waiting.popleft()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, f"{above}{entry.name}/"))
                    elif entry.is_file(follow_symlinks=False):
                        try:
                            stat = entry.stat(follow_symlinks=False)
                        except FileNotFoundError:
                            continue  # Deleted after the listing; the others are still there.
                        changed_ms = stat.st_mtime_ns // 1_000_000
                        known = changed_ms if changed_ms > 0 else None  # As `known_ms`.
                        found.append(ObjectInfo(above + entry.name, stat.st_size, known))
                        if len(found) == _PAGE:
                            yield found
                            found = []
        except _NO_FOLDER:
            continue  # The folder was removed meanwhile, or it never existed.
    yield found


def links_below(folder: str) -> list[str]:
    """Return the symbolic links below a folder, ascending; those to folders end with a slash.

    A missing folder has none, and neither has a folder that may not be read.
    """
    found: list[str] = []
    waiting = [(folder, "")]
    while waiting:
        place, above = waiting.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        end = "/" if os.path.isdir(entry.path) else ""
                        found.append(above + entry.name + end)
                    elif entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, f"{above}{entry.name}/"))
        except OSError:
            continue  # The listing of files raises it, if it must.
    return sorted(found)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError as error:
        if error.errno == errno.ELOOP:  # A link to itself counts like a link to a missing file.
            return False
        raise


def _add(found: list[ObjectInfo], entry: os.DirEntry[str], name: str) -> None:
    try:
        stat = entry.stat()
    except FileNotFoundError:
        return  # The file was deleted after the listing. The others still exist.
    found.append(ObjectInfo(name, stat.st_size, known_ms(stat.st_mtime_ns // 1_000_000)))
