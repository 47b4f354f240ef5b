"""Tables on a local disk or on a mounted file system."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from io import BufferedWriter
from itertools import repeat
from typing import Any, TypeVar

import pyarrow as pa

from txlog.base.errors import InvalidInputError, TxlogError, os_errors
from txlog.base.threads import map_ahead
from txlog.base.thresholds import Threshold
from txlog.base.uris import file_path, is_file_uri
from txlog.store.base import (
    BasicStore,
    ObjectInfo,
    OpenOutput,
    Put,
    PutIfAbsent,
    is_confined,
    known_ms,
    leads_out,
    within,
)
from txlog.store.local.disk import (
    Disk,
    Folders,
    is_below,
    list_below,
    list_files,
    list_names,
    pages_below,
)
from txlog.store.local.new_files import BUFFER_BYTES, NewFiles, Sink
from txlog.store.local.put import (
    Staging,
    forget,
    give_way,
    link_or_rename,
    precedence,
    temporary,
    write_whole,
)

_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_SHORT_BYTES: Threshold = 64 * 1024
_BLOCK_BYTES = 512
Result = TypeVar("Result")

_WAITERS = 16  # The number of threads. A link or an unlink may wait milliseconds for the disk.
_AT_ONCE: Threshold = 50  # The number of files that one thread deletes or moves in a call.


@dataclass(frozen=True)
class LocalStore(BasicStore):
    """A folder of a local file system. Written files are durable before a call returns.

    Notes
    -----
    A put writes a temporary file (`Staging`), which may remain after a crash. Its name begins with
    a dot, so readers of the log ignore it.
    """

    root: str  # Absolute.
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    disk: Disk = field(default_factory=Disk, repr=False, compare=False)
    _folders: Folders = field(init=False, repr=False, compare=False)
    _is_confined: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_folders", Folders(self.root, self.disk))
        object.__setattr__(self, "_is_confined", is_confined(self.options))

    def __reduce__(self) -> tuple[Any, ...]:
        # The folders that one process synced are not known to another process.
        return type(self), (self.root, self.options, self.disk)

    def require_writable(self) -> None:
        """Accept the store: a hard link to a taken name fails, which is an atomic create.

        The first put fails if the file system has no hard links.
        """

    def resolve(self, path: str) -> str:
        """Return the absolute path of a file; raise if it leads out of a confined table."""
        if self._is_confined:
            target = os.path.join(
                self.root, file_path(path, decode=False) if is_file_uri(path) else path
            )
            if not _is_inside(os.path.realpath(target), self.root):
                raise leads_out(path, self.root)
            return target.rstrip("/") if not path else target
        if is_file_uri(path):
            return file_path(path, decode=False)
        if path[:1] == "/" or os.sep != "/":
            return os.path.join(self.root, path)
        return f"{self.root}/{path}" if path else self.root

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        with os_errors("read", path, self.root):
            # If the file is a pipe, do not wait forever for a writer.
            descriptor = os.open(self.resolve(path), _READ)
            try:
                found = os.fstat(descriptor)
                _require_file(found)
                most = max(found.st_size + 1, _SHORT_BYTES)
                data = os.read(descriptor, most)
                if len(data) == found.st_size:
                    return data
                chunks = [data]  # The file grows, or the file system returns a part at a time.
                while chunk := os.read(descriptor, most):
                    chunks.append(chunk)
                return b"".join(chunks)
            finally:
                os.close(descriptor)

    def read_many(self, files: Sequence[tuple[str, int]]) -> Iterator[bytes]:
        """Yield whole files in order. A file is given by its path and its listed size.

        Errors are those of `read`, raised when the file's turn comes.
        """
        below, plain = f"{self.root}/", os.sep == "/" and not self._is_confined
        for path, size in files:
            target = below + path if path[:1] == "_" and plain else self.resolve(path)
            data = _read_listed(target, size)
            yield self.read(path) if data is None else data

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        """Return a file for random reading."""
        target = self.resolve(path)
        with os_errors("open", path, self.root):
            _require_file(os.stat(target))
            # Not memory-mapped: if a mapped file shrinks, the process is killed.
            return pa.OSFile(target, "rb")

    def info(self, path: str) -> ObjectInfo:
        """Return the name, size and time of a file."""
        with os_errors("look at", path, self.root):
            found = os.stat(self.resolve(path))
            _require_file(found)
        changed_ms = known_ms(found.st_mtime_ns // 1_000_000)
        return ObjectInfo(path.rsplit("/", 1)[-1], found.st_size, changed_ms)

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder whose names are not below `name`, by name, ascending."""
        with os_errors("list", folder, self.root):
            found = list_files(self.resolve(folder), name)
        yield from found

    def list_briefly(self, folder: str, name: str) -> Iterable[tuple[str, int, int | None]]:
        """Return the files of `list_after` without sizes and times, which cost system calls."""
        with os_errors("list", folder, self.root):
            names = list_names(self.resolve(folder), name)
        return zip(names, repeat(0), repeat(None), strict=False)

    def list_tree(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield all files below a folder in ascending order of names, without links."""
        with os_errors("list", folder, self.root):
            found = list_below(self.resolve(folder))
        yield from found

    def list_pages(self, after: str, until: str | None) -> Iterator[list[ObjectInfo]]:
        """Yield the files of `list_tree` in parts, so that not all of them are in memory."""
        with os_errors("list", "", self.root):
            for infos in pages_below(self.resolve("")):
                yield within(infos, after, until)

    def list_folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder, ascending; links are left out."""
        with os_errors("list", folder, self.root):
            try:
                with os.scandir(self.resolve(folder)) as entries:
                    return sorted(one.name for one in entries if one.is_dir(follow_symlinks=False))
            except (FileNotFoundError, NotADirectoryError):
                return []

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Return a new file to be written in a `with`."""
        target = self.resolve(path)
        folder = os.path.dirname(target)
        with os_errors("create", path, self.root):
            self._folders.ensure(folder)
            descriptor = self.disk.create(target)
        raw = Sink(self.disk, descriptor, path, self.root)
        try:
            try:
                buffered = BufferedWriter(raw, BUFFER_BYTES)
                yield buffered
                if not buffered.closed:
                    buffered.flush()
                raw.sync()
            finally:
                raw.give_up()  # The bytes that are still buffered are not needed.
                with os_errors("close", path, self.root):
                    self.disk.close(descriptor)
            with os_errors("write", path, self.root):
                self.disk.sync_folder(folder)
        except BaseException:
            forget(self.disk, target)
            raise

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole new file, durably."""
        target = self.resolve(path)
        folder = os.path.dirname(target)
        with os_errors("create", path, self.root):
            self._folders.ensure(folder)
            write_whole(self.disk, target, data)
            try:
                self.disk.sync_folder(folder)
            except BaseException:
                forget(self.disk, target)
                raise

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a complete, durable file atomically; return whether it was created or existed."""
        with self._staging() as staging:
            return staging.put(path, data, last=True)

    @contextmanager
    def attempts(self) -> Iterator[PutIfAbsent]:
        """Yield a `put_if_absent` that keeps its temporary file for another attempt.

        First, wait for a writer that has precedence.
        """
        give_way(self.root)
        with self._staging() as staging:
            yield staging.put

    def precedence(self, *, briefly: bool = False) -> AbstractContextManager[bool]:
        """Let other writers on this machine delay their commits, for a limited time."""
        return precedence(self.root, briefly=briefly)

    def _staging(self) -> Staging:
        return Staging(self.disk, self._folders, self.resolve)

    @contextmanager
    def new_files(self) -> Iterator[OpenOutput]:
        """Open new files. Threads sync them, and each folder is synced once at the end."""
        with NewFiles(self.disk, self._folders, self.resolve) as files:
            yield files.open

    def local_path(self, path: str) -> str | None:
        """Return the absolute path of a file."""
        return self.resolve(path)

    def replace(self, path: str, data: bytes) -> None:
        """Write a file over an existing one; readers see either the old or the new bytes."""
        target = self.resolve(path)
        folder = os.path.dirname(target)
        with os_errors("replace", path, self.root):
            self._folders.ensure(folder)
            fresh = temporary(target)
            write_whole(self.disk, fresh, data)
            try:
                self.disk.rename(fresh, target)
            except BaseException:
                forget(self.disk, fresh)
                raise
            self.disk.sync_folder(folder)

    def move(self, places: Sequence[tuple[str, str]]) -> None:
        """Give files their new names, and remove the old names when the new ones are on the disk.

        If hard links are not possible (another user's files, some file systems), files are renamed.
        """
        folders = {os.path.dirname(self.resolve(place)): place for _, place in places}
        for folder, place in folders.items():
            with os_errors("move", place, self.root):
                self._folders.ensure(folder)
        shares = list(_in_threads(self._linked, places))
        failed = [error for *_, error in shares if error is not None]
        if failed:
            raise failed[0]
        linked = [pair for share, _, _ in shares for pair in share]
        renamed = [pair for _, share, _ in shares for pair in share]
        named = {os.path.dirname(self.resolve(place)): path for path, place in linked + renamed}
        left = {os.path.dirname(self.resolve(path)): path for path, _ in renamed}
        for folder, path in (*named.items(), *left.items()):
            with os_errors("move", path, self.root):
                self.disk.sync_folder(folder)
        self.delete([path for path, _ in linked])

    def _linked(
        self, places: Sequence[tuple[str, str]]
    ) -> tuple[list[tuple[str, str]], list[tuple[str, str]], TxlogError | None]:
        """Return the files with two names, the renamed files, and the first error."""
        linked, renamed = list[tuple[str, str]](), list[tuple[str, str]]()
        try:
            for path, place in places:
                with os_errors("move", path, self.root), contextlib.suppress(FileNotFoundError):
                    has_both = link_or_rename(self.disk, self.resolve(path), self.resolve(place))
                    (linked if has_both else renamed).append((path, place))
        except TxlogError as error:
            return linked, renamed, error
        return linked, renamed, None

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files below the root; those that are not there are skipped."""
        delete_below(self.root, [(path, self.resolve(path)) for path in paths], self.disk)


def _is_inside(target: str, root: str) -> bool:
    """Return whether a path without links is inside a folder, by whatever name it has."""
    if is_below(target, os.path.realpath(root)):
        return True
    from txlog.store.places import name_in

    return name_in(root, target) is not None


def _read_listed(target: str, size: int) -> bytes | None:
    """Return a whole file with one read, without a request for its size.

    The result is None if one read does not show the end of the file, or after an error: then use
    `read`. A size of 0 means unknown.
    """
    most = size + 1 if size >= _SHORT_BYTES else _SHORT_BYTES
    try:
        descriptor = os.open(target, _READ)
        try:
            data = os.read(descriptor, most)
        finally:
            os.close(descriptor)
    except (OSError, ValueError, OverflowError):
        return None
    found = len(data)
    if size and found == size:
        return data
    # A shorter read reached the end, or an error at a block boundary. A pipe returns nothing.
    return data if found < most and found % _BLOCK_BYTES and not size else None


def _require_file(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "Use a regular file instead of a pipe, socket or device")


def delete_below(root: str, paths: Sequence[tuple[str, str]], disk: Disk) -> None:
    """Delete files below a folder; missing files are ignored.

    Parameters
    ----------
    paths
        Pairs of the path that the caller passed, for messages, and the absolute path.

    Raises
    ------
    InvalidInputError
        A path is not below `root`, or a symbolic link leads out of it. Nothing was deleted.
    StoreError
        Some files could not be deleted; the error names the first one. All others were deleted.
    """
    top = os.path.realpath(root)

    @lru_cache(maxsize=1024)
    def is_inside(folder: str) -> bool:
        # Only folders are resolved: if the last step is a link, the link itself is removed.
        return is_below(os.path.realpath(folder), top)

    for path, target in paths:
        with os_errors("delete", path, root):
            inside = is_inside(os.path.dirname(target))
        if not path or path.endswith(("/", "/.", "/..")) or not inside:
            raise InvalidInputError(
                argument="paths", reason=f"{path!r} is not a file below the table's root"
            )
    failures = _in_threads(partial(_unlink, root, disk), paths)
    failed = [error for error in failures if error is not None]
    if failed:
        raise failed[0]


def _in_threads(
    function: Callable[[Sequence[tuple[str, str]]], Result], files: Sequence[tuple[str, str]]
) -> Iterator[Result]:
    """Yield the results of a function for shares of the files; threads help if there are many."""
    shares = [files[start : start + _AT_ONCE] for start in range(0, len(files), _AT_ONCE)]
    if len(shares) < 2:
        return map(function, shares)
    return map_ahead(function, shares, workers=_WAITERS, ahead=_WAITERS)


def _unlink(root: str, disk: Disk, paths: Sequence[tuple[str, str]]) -> TxlogError | None:
    """Delete files, and return the first error."""
    failed: TxlogError | None = None
    for path, target in paths:
        try:
            with os_errors("delete", path, root), contextlib.suppress(FileNotFoundError):
                disk.unlink(target)
        except TxlogError as error:
            failed = failed or error
    return failed
