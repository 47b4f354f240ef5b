"""Tables on a local disk, or one that is mounted like it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal, NoReturn

import pyarrow as pa

from txlog.effects import REAL
from txlog.errors import (
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
    TxlogError,
    UnsupportedFeatureError,
)
from txlog.store.base import ObjectInfo, Put

_REMEDIES = {
    errno.ENOSPC: "The disk is full: free some space and try again",
    errno.EDQUOT: "The disk quota is used up: free some space and try again",
    errno.EACCES: "Permission is missing: check the owner and mode of the folder",
    errno.EPERM: "Permission is missing: check the owner and mode of the folder",
    errno.EROFS: "The file system is mounted read-only",
    errno.ENAMETOOLONG: "The name is too long for the file system",
    errno.ENOTDIR: "A file is where a folder was expected",
    errno.EISDIR: "A folder is where a file was expected",
}
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class Disk:
    """The calls that change a disk, in one place so that tests can make each of them fail."""

    def write(self, path: str, data: bytes) -> None:
        """Make a file with this content, and wait until it is on the disk."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    def sync(self, descriptor: int) -> None:
        """Wait until an open file is on the disk."""
        os.fsync(descriptor)

    def sync_folder(self, path: str) -> None:
        """Wait until the names in a folder are on the disk."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def link(self, source: str, target: str) -> None:
        """Give a file a second name, unless that is taken."""
        os.link(source, target)

    def rename(self, source: str, target: str) -> None:
        """Rename a file over whatever has the name."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        os.unlink(path)

    def make_folder(self, path: str) -> None:
        """Make a folder."""
        os.mkdir(path)


@dataclass(frozen=True)
class LocalStore:
    """A folder of a local file system. Everything written is durable before a call returns."""

    root: str  # Absolute.
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    disk: Disk = field(default_factory=Disk, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"LocalStore({self.root!r})"

    def require_writable(self) -> None:
        """Pass: a hard link to a taken name fails, which is an atomic create."""

    def resolve(self, path: str) -> str:
        """Return the absolute path of a file."""
        return path if path.startswith("/") else os.path.join(self.root, path)

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        with _errors("read", path):
            descriptor = os.open(self.resolve(path), os.O_RDONLY)
            try:
                size = os.fstat(descriptor).st_size
                chunks = []
                while chunk := os.read(descriptor, max(size + 1, 32 * 1024)):
                    chunks.append(chunk)
                return b"".join(chunks)
            finally:
                os.close(descriptor)

    def open_input(self, path: str) -> Any:
        """Return a file for random reading."""
        with _errors("open", path):
            return pa.OSFile(self.resolve(path), "rb")

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Return a new file to be written in a `with`."""
        target = self.resolve(path)
        with _errors("create", path):
            self._make_folders(os.path.dirname(target))
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with _errors("write", path), os.fdopen(descriptor, "wb", 1 << 20) as sink:
                yield sink
                sink.flush()
                self.disk.sync(sink.fileno())
            with _errors("write", path):
                self.disk.sync_folder(os.path.dirname(target))
        except BaseException:
            with contextlib.suppress(OSError):
                self.disk.unlink(target)
            raise

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole new file, durably."""
        with self.open_output(path) as sink:
            sink.write(data)

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file, atomically, whole and durable; tell whether it was there before."""
        target = self.resolve(path)
        folder = os.path.dirname(target)
        with _errors("create", path):
            self._make_folders(folder)
            temporary = self._temporary(target)
            try:
                self.disk.write(temporary, data)
                outcome = self._link(temporary, target, path)
                if outcome == "created":
                    self._sync_created(folder, path)
                return outcome
            finally:
                with contextlib.suppress(FileNotFoundError):
                    self.disk.unlink(temporary)

    def _sync_created(self, folder: str, path: str) -> None:
        try:
            self.disk.sync_folder(folder)
        except OSError as error:
            raise OutcomeUnknownError(
                path=path,
                reason=f"the file was created, but may not survive a crash: {error.strerror}",
                remedy="Read it back; look into the disk",
            ) from error

    def _link(self, temporary: str, target: str, path: str) -> Put:
        try:
            self.disk.link(temporary, target)
        except FileExistsError:
            return "exists"
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise UnsupportedFeatureError(
                    path=path,
                    features=("hard links",),
                    reason="the file system has no hard links, so a commit cannot be made "
                    f"without the risk of overwriting another: {error.strerror}",
                    remedy="Keep the table on a file system with hard links",
                ) from error
            raise
        return "created"

    def replace(self, path: str, data: bytes) -> None:
        """Write a file, replacing what was there; readers see the old bytes or the new ones."""
        target = self.resolve(path)
        folder = os.path.dirname(target)
        with _errors("replace", path):
            self._make_folders(folder)
            temporary = self._temporary(target)
            try:
                self.disk.write(temporary, data)
                self.disk.rename(temporary, target)
            except BaseException:
                with contextlib.suppress(OSError):
                    self.disk.unlink(temporary)
                raise
            self.disk.sync_folder(folder)

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder whose names are not below `name`, by name, ascending."""
        found = []
        with _errors("list", folder):
            try:
                with os.scandir(self.resolve(folder)) as entries:
                    for entry in entries:
                        if entry.name >= name and entry.is_file():
                            stat = entry.stat()
                            found.append(
                                ObjectInfo(entry.name, stat.st_size, stat.st_mtime_ns // 1_000_000)
                            )
            except FileNotFoundError:
                return
        yield from sorted(found, key=lambda info: info.name)

    def info(self, path: str) -> ObjectInfo:
        """Return what the store knows of a file."""
        with _errors("look at", path):
            stat = os.stat(self.resolve(path))
        return ObjectInfo(PurePosixPath(path).name, stat.st_size, stat.st_mtime_ns // 1_000_000)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files below the root; those that are not there are passed over."""
        for path in paths:
            if path.startswith("/") or ".." in path.split("/"):
                raise InvalidInputError(
                    argument="paths", reason=f"{path!r} is not below the table's root"
                )
            with _errors("delete", path), contextlib.suppress(FileNotFoundError):
                self.disk.unlink(self.resolve(path))

    def _temporary(self, target: str) -> str:
        folder, name = os.path.split(target)
        return f"{folder}/.{name}.{REAL.uuid()}.tmp"

    def _make_folders(self, folder: str) -> None:
        """Make a folder and those above it, each made durable in the one above."""
        missing = []
        at = folder
        while not os.path.isdir(at):
            missing.append(at)
            at = os.path.dirname(at)
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError):
                self.disk.make_folder(path)
            self.disk.sync_folder(os.path.dirname(path))


class _errors:  # noqa: N801 - reads as a statement.
    """Turn an operating system's error into ours, with its remedy."""

    def __init__(self, operation: str, path: str) -> None:
        self._operation = operation
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> Literal[False]:
        if isinstance(error, OSError) and not isinstance(error, TxlogError):
            self._raise(error)
        return False

    def _raise(self, error: OSError) -> NoReturn:
        if isinstance(error, FileNotFoundError):
            raise NotFoundError(path=self._path, reason="there is no such file") from error
        raise StoreError(
            operation=self._operation,
            path=self._path,
            reason=error.strerror or str(error),
            remedy=_REMEDIES.get(error.errno or 0, "Try again, or look into the disk"),
        ) from error
