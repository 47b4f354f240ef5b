"""Commits on stores without an atomic create: a database decides which writer was first.

A writer stages a commit under a unique name, inserts an entry into the database, and copies the
commit to its final name. The database accepts only one entry for each final name. Any process that
finds an entry without a copy makes the copy. delta-rs and delta-spark's `S3DynamoDBLogStore` work
in the same way; with DynamoDB, txlog's entries are compatible with theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

from txlog.effects import REAL
from txlog.errors import NotFoundError, OutcomeUnknownError, StoreError, TxlogError
from txlog.store.base import (
    BasicStore,
    ObjectInfo,
    OpenOutput,
    Put,
    Store,
    is_there,
    without_secrets,
)
from txlog.store.coordinators import CommitCoordinator, CommitEntry

_LOG = "_delta_log/"


@dataclass(frozen=True)
class CoordinatedStore(BasicStore):
    """Wraps a store without an atomic create; a coordinator decides which writer creates a file."""

    inner: Store
    coordinator: CommitCoordinator

    @property
    def reads_at_once(self) -> int:  # type: ignore[override]
        """The best number of concurrent reads of the wrapped store."""
        return self.inner.reads_at_once

    @property
    def root(self) -> str:
        """The location of the table."""
        return self.inner.root

    @property
    def options(self) -> Mapping[str, Any]:
        """The options with which the table was opened."""
        return self.inner.options

    def require_writable(self) -> None:
        """Accept the store: the coordinator's insert is atomic."""

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file atomically; return whether it was created or existed before."""
        name = path.removeprefix(_LOG)
        if self._finished(name) or is_there(self.inner, path):
            return "exists"
        previous = _previous(name)
        if previous is not None:  # The earlier commit must exist before another one follows it.
            self._finished(previous)
        folder, _, last = name.rpartition("/")
        entry = CommitEntry(name, f"{folder}/".lstrip("/") + f".tmp/{last}.{REAL.uuid()}", False)
        staged = _path_of(path, entry.temp_path)
        self.inner.write_new(staged, data)
        lost: StoreError | None = None
        try:
            won = self.coordinator.put_if_absent(self.root, entry)
        except StoreError as error:
            won, lost = False, error
        # A client may have tried again after a lost answer and found this call's own entry.
        if not won and not self._is_ours(entry, path, lost):
            with suppress(TxlogError):
                self.inner.delete([staged])
            self._finished(name)
            return "exists"
        # From now on this is a commit: if the copy fails, the next process makes it.
        with suppress(StoreError):
            self._finish(entry, path)
        return "created"

    def _is_ours(self, entry: CommitEntry, path: str, lost: StoreError | None) -> bool:
        """Return whether this call inserted the existing entry; raise if this is unknown."""
        try:
            found = self.coordinator.get(self.root, entry.file_name)
        except StoreError as error:
            found, lost = None, lost or error
        if found is None:  # The insert may still succeed.
            raise OutcomeUnknownError(
                path=path,
                table=without_secrets(self.root),
                reason=lost.reason if lost else "the entry of a commit was deleted",
                remedy="Check whether the commit exists before you write again",
            ) from lost
        return found.temp_path == entry.temp_path

    def _finished(self, name: str) -> bool:
        """Return whether a file has an entry. If the copy is missing, make it."""
        entry = self.coordinator.get(self.root, name)
        if entry is None:
            return False
        if not entry.complete:
            self._finish(entry, _LOG + name if _is_of_log(name) else name)
        return True

    def _finish(self, entry: CommitEntry, path: str) -> None:
        staged = _path_of(path, entry.temp_path)
        try:
            data = self.inner.read(staged)
        except NotFoundError:
            if not is_there(self.inner, path):
                raise
        else:
            self.inner.replace(path, data)
        self.coordinator.complete(self.root, entry.file_name)
        with suppress(TxlogError):
            self.inner.delete([staged])

    def _finish_latest(self) -> None:
        entry = self.coordinator.latest(self.root)
        if entry is not None and not entry.complete:
            self._finished(entry.file_name)

    def read(self, path: str) -> bytes:
        """Return a whole file. If it is a commit without a copy, make the copy first."""
        try:
            return self.inner.read(path)
        except NotFoundError:
            if not path.startswith(_LOG) or not self._finished(path.removeprefix(_LOG)):
                raise
        return self.inner.read(path)

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder whose names are not below `name`, by name, ascending."""
        if folder.strip("/") == _LOG.strip("/"):
            self._finish_latest()
        yield from self.inner.list_after(folder, name)

    def list_briefly(self, folder: str, name: str) -> Iterable[tuple[str, int, int | None]]:
        """Return what `list_after` yields."""
        if folder.strip("/") == _LOG.strip("/"):
            self._finish_latest()
        return self.inner.list_briefly(folder, name)

    def list_tree(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield all files below a folder."""
        return self.inner.list_tree(folder)

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        """Return a file for random reading."""
        return self.inner.open_input(path, size=size)

    def info(self, path: str) -> ObjectInfo:
        """Return the name, size and time of a file."""
        return self.inner.info(path)

    def open_output(self, path: str) -> AbstractContextManager[Any]:
        """Return a new file to be written in a `with`."""
        return self.inner.open_output(path)

    def new_files(self) -> AbstractContextManager[OpenOutput]:  # type: ignore[override]
        """Return a `with` whose value opens new files."""
        return self.inner.new_files()

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole new file."""
        self.inner.write_new(path, data)

    def replace(self, path: str, data: bytes) -> None:
        """Write a file over an existing one."""
        self.inner.replace(path, data)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files below the root."""
        self.inner.delete(paths)

    def resolve(self, path: str) -> str:
        """Return the absolute path or URI of a file."""
        return self.inner.resolve(path)

    def move(self, places: Sequence[tuple[str, str]]) -> None:
        """Move files to new places, durably."""
        self.inner.move(places)

    def local_path(self, path: str) -> str | None:
        """Return the path by which other libraries can open a file on a local disk; else None."""
        return self.inner.local_path(path)


def _previous(name: str) -> str | None:
    version, _, end = name.partition(".")
    if len(version) != 20 or not version.isdigit() or int(version) == 0 or end != "json":
        return None
    return f"{int(version) - 1:020d}.json"


def _is_of_log(name: str) -> bool:
    return name[:20].isdigit() and name[20:] == ".json"


def _path_of(path: str, temp_path: str) -> str:
    return _LOG + temp_path if path.startswith(_LOG) else temp_path
