"""The calls that change a local disk."""

from __future__ import annotations

import errno
import os

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
