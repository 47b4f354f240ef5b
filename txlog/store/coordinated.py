"""Commits for stores without an atomic create: a database decides who was first.

A commit is staged under a name of its own, entered into the database, which takes one entry for a
name, and copied to its name. Whoever meets an entry that was not copied copies it. So did delta-rs
and does delta-spark's `S3DynamoDBLogStore`; with DynamoDB the entries are theirs, too.
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
    """A store around one without an atomic create; a coordinator decides who creates a file."""

    inner: Store
    coordinator: CommitCoordinator

    @property
    def reads_at_once(self) -> int:  # type: ignore[override]
        """How many reads the store within does at a time best."""
        return self.inner.reads_at_once

    @property
    def root(self) -> str:
        """Where the table is."""
        return self.inner.root

    @property
    def options(self) -> Mapping[str, Any]:
        """What the table was opened with."""
        return self.inner.options

    def require_writable(self) -> None:
        """Pass: the coordinator's insert is atomic."""

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file, atomically; tell whether it was there before."""
        name = path.removeprefix(_LOG)
        if self._finished(name) or is_there(self.inner, path):
            return "exists"
        previous = _previous(name)
        if previous is not None:  # It must be there before anything follows it.
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
        # A client below may have tried again after an answer was lost, and met our own entry.
        if not won and not self._is_ours(entry, path, lost):
            with suppress(TxlogError):
                self.inner.delete([staged])
            self._finished(name)
            return "exists"
        # It is a commit from now on: if the copy fails, whoever comes next makes it.
        with suppress(StoreError):
            self._finish(entry, path)
        return "created"

    def _is_ours(self, entry: CommitEntry, path: str, lost: StoreError | None) -> bool:
        """Return whether the entry that is there is ours; raise if that cannot be told."""
        try:
            found = self.coordinator.get(self.root, entry.file_name)
        except StoreError as error:
            found, lost = None, lost or error
        if found is None:  # It may still land.
            raise OutcomeUnknownError(
                path=path,
                table=without_secrets(self.root),
                reason=lost.reason if lost else "the entry of a commit was taken away",
                remedy="Look whether the commit is there before writing again",
            ) from lost
        return found.temp_path == entry.temp_path

    def _finished(self, name: str) -> bool:
        """Return whether a file has an entry; its copy is made if it was not."""
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
        """Return a whole file; a commit is copied to its name first, if it was not."""
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

    def list_briefly(self, folder: str, name: str) -> Iterable[tuple[str, int, int]]:
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
        """Return what the store knows of a file."""
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
        """Write a file, replacing what was there."""
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
