"""What a store must do for a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Put = Literal["created", "exists"]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """A file in a store."""

    name: str  # Relative to the folder that was listed.
    size: int  # Bytes.
    modified_ms: int  # By the store's clock, milliseconds since the epoch.


class Store(Protocol):
    """The bytes below one table's root.

    A `path` is relative to the root, with `/` between its steps, and literal: percent signs in it
    mean themselves. An absolute path of the same kind of store is taken too, for logs that refer
    to files of other tables. Stores are values: they pickle, and never show their options.
    """

    @property
    def root(self) -> str:
        """Where the table is, for messages."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """What the table was opened with; may hold secrets."""
        ...

    def require_writable(self) -> None:
        """Raise `UnsupportedFeatureError` if the store has no atomic create."""
        ...

    def read(self, path: str) -> bytes:
        """Return a whole file. Raises `NotFoundError`, `StoreError`."""
        ...

    def open_input(self, path: str) -> Any:
        """Return a file for random reading, to be used in a `with`. Raises `NotFoundError`."""
        ...

    def open_output(self, path: str) -> AbstractContextManager[Any]:
        """Return a new file to be written in a `with`.

        When the block ends it is whole and durable; when an error ends it, nothing is left.
        """
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole new file, durably."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file, atomically, whole and durable; tell whether it was there before.

        Raises
        ------
        OutcomeUnknownError
            The answer was lost: the file may or may not be there.
        StoreError
            It failed, and the file is not there.
        """
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Write a file, replacing what was there; readers see the old bytes or the new ones."""
        ...

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder whose names are not below `name`, by name, ascending.

        Folders in it are left out. A folder that does not exist has no files.
        """
        ...

    def info(self, path: str) -> ObjectInfo:
        """Return what the store knows of a file. Raises `NotFoundError`."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files below the root; those that are not there are passed over."""
        ...

    def resolve(self, path: str) -> str:
        """Return the absolute path or URI of a file."""
        ...
