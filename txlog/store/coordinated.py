"""Commits on stores without an atomic create: a database decides which writer was first.

A writer stages a commit under a unique name, inserts an entry into the database, and copies the
commit to its final name. The database accepts only one entry for each final name. Any process that
finds an entry without a copy makes the copy. delta-rs and delta-spark's `S3DynamoDBLogStore` work
in the same way; with DynamoDB, txlog's entries are compatible with theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeVar

from txlog.base.effects import REAL
from txlog.base.errors import NotFoundError, OutcomeUnknownError, StoreError, TxlogError
from txlog.log.names import LOG_FOLDER, commit_name, parse_name
from txlog.store.base import ForwardingStore, ObjectInfo, Put, Store, is_far, is_there
from txlog.store.coordinators import CommitCoordinator, CommitEntry

_LOG = f"{LOG_FOLDER}/"
_OF_BRANCH = ["_branches", LOG_FOLDER]
Listed = TypeVar("Listed", bound=tuple[Any, ...])  # A name with its size and time.


@dataclass(frozen=True)
class CoordinatedStore(ForwardingStore):
    """Wraps a store without an atomic create; a coordinator decides which writer creates a file."""

    inner: Store
    coordinator: CommitCoordinator

    def require_writable(self) -> None:
        """Accept the store: the coordinator's insert is atomic."""

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file atomically; return whether it was created or existed before."""
        name = path.removeprefix(_LOG)
        if self._finished(path) or is_there(self.inner, path):
            return "exists"
        previous = _previous(path)
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
            self._finished(path)
            return "exists"
        # From now on this is a commit: if the copy fails, however, the next process makes it.
        with suppress(TxlogError):
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
                table=self.root,
                reason=lost.reason if lost else "the entry of a commit was deleted",
                remedy="Check whether the commit exists before you write again",
            ) from lost
        return found.temp_path == entry.temp_path

    def _finished(self, path: str) -> bool:
        """Return whether a file has an entry. If the copy is missing, make it."""
        entry = self.coordinator.get(self.root, path.removeprefix(_LOG))
        if entry is None:
            return False
        if not entry.complete:
            self._finish(entry, path)
        return True

    def _finish(self, entry: CommitEntry, path: str) -> None:
        staged = _path_of(path, entry.temp_path)
        try:
            data = self.inner.read(staged)
        except NotFoundError:
            if not is_there(self.inner, path):
                raise
        else:
            try:
                self.inner.replace(path, data)
            except NotFoundError as error:  # Readers would take it for "there is no such commit".
                raise StoreError(operation="replace", path=path, reason=error.reason) from error
        self.coordinator.complete(self.root, entry.file_name)
        with suppress(TxlogError):
            self.inner.delete([staged])

    def read(self, path: str) -> bytes:
        """Return a whole file. If only its entry exists, make the copy first."""
        try:
            return self.inner.read(path)
        except NotFoundError:
            if not self._finished(path):
                raise
        return self.inner.read(path)

    def info(self, path: str) -> ObjectInfo:
        """Return the name, size and time of a file. If only its entry exists, make the copy first.

        So a handle or a stream that asks for the next commit finds it when a listing would.
        """
        try:
            return self.inner.info(path)
        except NotFoundError:
            # Only a commit whose previous one was copied has an entry. On a near store, this look
            # is cheaper than a question to the coordinator.
            # Before the first commit of a branch, its own log has none.
            is_plain = path.count("/") == 1 and not is_far(self.inner)
            previous = _previous(path) if is_plain else None
            if previous is not None and not is_there(self.inner, previous):
                raise
            if not self._finished(path):
                raise
        return self.inner.info(path)

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder whose names are not below `name`, by name, ascending."""
        if not _is_log(folder):
            return self.inner.list_after(folder, name)
        return iter(self._with_next(folder, list(self.inner.list_after(folder, name)), name))

    def list_briefly(self, folder: str, name: str) -> Iterable[tuple[str, int, int | None]]:
        """Return the files of `list_after`."""
        found = self.inner.list_briefly(folder, name)
        return self._with_next(folder, list(found), name) if _is_log(folder) else found

    def _with_next(self, folder: str, listed: list[Listed], name: str) -> list[Listed]:
        """Return a listing of the log with the commits after it that have only an entry.

        A writer copies the previous commit before it inserts its own entry, so only the commit
        after the last version can lack its copy. Its entry is asked for by its name: the last entry
        of a table need not be that of a commit.
        """
        since = int(name) if name.isdecimal() else 0
        files = [parse_name(file[0]) for file in listed]
        last = max((file.last_version for file in files if file is not None), default=since - 1)
        while self._finished(path := f"{folder.strip('/')}/{commit_name(max(last + 1, since))}"):
            try:
                info = self.inner.info(path)
            except NotFoundError:  # It was copied once, and was deleted since.
                break
            listed.append(info)  # type: ignore[arg-type]
            last = max(last + 1, since)
        return sorted(listed, key=itemgetter(0))


def _previous(path: str) -> str | None:
    """Return the path of the commit before a commit; None for other files and version 0."""
    folder, _, name = path.rpartition("/")
    file = parse_name(name) if _is_log(folder) else None
    if file is None or file.kind != "commit" or file.version == 0:
        return None
    return f"{folder}/{commit_name(file.version - 1)}"


def _is_log(folder: str) -> bool:
    """Return whether a folder is the log of the table or of one of its branches."""
    steps = folder.strip("/").split("/")
    return steps[0] == LOG_FOLDER and (len(steps) == 1 or steps[1:2] + steps[3:] == _OF_BRANCH)


def _path_of(path: str, temp_path: str) -> str:
    return _LOG + temp_path if path.startswith(_LOG) else temp_path
