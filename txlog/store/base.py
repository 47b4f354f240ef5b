"""What a store must do for a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol

Put = Literal["created", "exists"]


class ObjectInfo(NamedTuple):
    """A file in a store."""

    name: str  # Relative to the folder that was listed; of a single file, its last step.
    size: int  # Bytes.
    modified_ms: int  # By the store's clock, milliseconds since the epoch; 0 if it does not say.


class Store(Protocol):
    """The bytes below one table's root.

    A `path` is relative to the root, with `/` between its steps, and literal: percent signs in it
    mean themselves. An absolute path or URI of the same kind of store is taken too (and is literal
    as well), for logs that refer to files of other tables. Stores are values: they pickle, are
    equal if root and options are, and their `repr` shows no options.

    Besides those named below, every method that touches the store raises `StoreError` (it failed,
    and nothing was done) and `InvalidInputError` (the path cannot be one).

    A store of which each request takes its time has an attribute `reads_at_once`: how many reads
    it does at a time best. Of it larger parts are read, several at a time.
    """

    @property
    def root(self) -> str:
        """Where the table is: an absolute path, or a URI. It has no slash at its end."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """What the table was opened with; may hold secrets."""
        ...

    def require_writable(self) -> None:
        """Raise `UnsupportedFeatureError`, which says why, if txlog cannot write here."""
        ...

    def read(self, path: str) -> bytes:
        """Return a whole file. Raises `NotFoundError`."""
        ...

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        """Return a file for random reading, to be used in a `with`. Raises `NotFoundError`.

        A caller that knows the file's size, or how far it will read, says it: a store that would
        have to ask for it can do without, and then raises the error at the first read.
        """
        ...

    def open_output(self, path: str) -> AbstractContextManager[Any]:
        """Return a new file to be written in a `with`; folders are made as needed.

        When the block ends it is whole and durable; when an error ends it, the file is removed.
        A reader may see a part of it before, so nothing may refer to it until then.
        """
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole new file, durably. On an error nothing is left."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file, atomically, whole and durable; tell whether it was there before.

        Of any number of callers one is told `created`; nobody ever reads a part of the file.

        Raises
        ------
        OutcomeUnknownError
            The file may or may not be there: read it back. With `visible` it is there, but it may
            not survive a crash, which reading it back does not tell.
        StoreError
            It failed, and the file is certainly not there.
        UnsupportedFeatureError
            The store has no atomic create; nothing was done.
        """
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Write a file, replacing what was there; readers see the old bytes or the new ones.

        After a `StoreError` it may be either.
        """
        ...

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder whose names are not below `name`, by name, ascending.

        Names compare by code points. Folders, and files in them, are left out. A folder that does
        not exist has no files. Nothing is read or raised before the first item is asked for.
        """
        ...

    def list_tree(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield all files below a folder, by name, ascending; the names are relative to it.

        Symbolic links are neither followed nor yielded. A folder that does not exist has none.
        """
        ...

    def info(self, path: str) -> ObjectInfo:
        """Return what the store knows of a file. Raises `NotFoundError`."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files below the root; those that are not there are passed over.

        All are tried; the first error is raised at the end. A symbolic link is removed itself,
        and one that leads out of the table is not followed.

        Raises
        ------
        InvalidInputError
            A path is not below the root; nothing was deleted then.
        """
        ...

    def resolve(self, path: str) -> str:
        """Return the absolute path or URI of a file."""
        ...
