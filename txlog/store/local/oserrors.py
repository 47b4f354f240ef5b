"""Errors of the operating system as errors of txlog."""

from __future__ import annotations

import errno

from txlog.errors import InvalidInputError, NotFoundError, StoreError, TxlogError

_FULL = "Free some space and try again"
_PERMISSION = "Check the owner and mode of the file and of the folders above it"
_DEFAULT = "Try again; if it stays so, look into the disk"

_MAKES = ("create", "replace")  # What is missing then is the folder, and it cannot be made.

REMEDIES = {
    errno.ENOENT: "No folder can be made there. Check the path",
    errno.ENOSPC: f"The disk is full. {_FULL}",
    errno.EDQUOT: f"The quota is used up. {_FULL}",
    errno.EFBIG: "The file system takes no file of this size",
    errno.EACCES: f"Permission is missing. {_PERMISSION}",
    errno.EPERM: f"The operation is not permitted. {_PERMISSION}",
    errno.EROFS: "The file system is mounted read-only. Mount it for writing",
    errno.ENAMETOOLONG: "The name is too long for the file system. Use a shorter one",
    errno.ENOTDIR: "A file is where a folder was expected. Check the path",
    errno.EISDIR: "A folder is where a file was expected. Check the path",
    errno.EEXIST: "The name is taken, though it should be a new one. Check what is there",
    errno.ELOOP: "Symbolic links lead in a circle. Check the path",
    errno.EMFILE: "The process has too many open files. Raise `ulimit -n`, or open fewer",
    errno.ENFILE: "The machine has too many open files. Raise its limit",
    errno.EIO: "The disk itself failed. Look into it before trusting what was written",
    errno.ESTALE: "A network file system lost the file. Mount it again",
}


def store_error(error: OSError, operation: str, path: str, table: str | None = None) -> TxlogError:
    """Return our error for one of the operating system: `NotFoundError` or `StoreError`."""
    if isinstance(error, FileNotFoundError) and operation not in _MAKES:
        return NotFoundError(path=path, reason="there is no such file", table=table)
    return StoreError(
        operation=operation,
        path=path,
        table=table,
        reason=error.strerror or str(error) or type(error).__name__,
        remedy=REMEDIES.get(error.errno or 0, _DEFAULT),
    )


class os_errors:  # noqa: N801  # Used as a function: a class of its own costs a file less.
    """Raise what the operating system raises in a `with` as an error of ours.

    Raises
    ------
    NotFoundError
        There is no such file.
    InvalidInputError
        The path cannot be one: it has a NUL, or characters that have no bytes.
    StoreError
        Anything else; its remedy is chosen by the errno.
    """

    __slots__ = ("operation", "path", "table")

    def __init__(self, operation: str, path: str, table: str | None = None) -> None:
        self.operation = operation
        self.path = path
        self.table = table

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, TxlogError):  # Some of ours are OSErrors too.
            return
        if isinstance(error, OSError):
            raise store_error(error, self.operation, self.path, self.table) from error
        if isinstance(error, ValueError):
            raise InvalidInputError(
                argument="path",
                table=self.table,
                reason=f"{self.path!r} cannot be the path of a file: {error}",
            ) from error
