"""A store whose data files are kept on a fast disk, in parts, for all processes of a machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any
from warnings import warn
from zlib import crc32

from txlog.base.effects import REAL
from txlog.base.errors import InvalidInputError, TxlogWarning, require_whole
from txlog.base.thresholds import Threshold
from txlog.store.base import ForwardingStore, ObjectInfo, Store
from txlog.store.ranged import RangedFile

_PART_BYTES: Threshold = 1 << 20
_NAME, _NEW = "part-", "new-"
_FOLDER = re.compile("[0-9a-f]{2}")  # Of parts, by the start of their keys.
_SUM_BYTES = 4  # Of the checksum, with which a part ends.
_FRESH_S = 3600  # A use within this time is not written down again.
_LOOKS = 20  # The folder is measured after each twentieth of its limit that was written.


@dataclass(frozen=True)
class Cache:
    """A folder on a fast disk that keeps parts of remote files, for all processes of a machine.

    A part belongs to a path, size and time of a file, so a file that was replaced is read anew.
    What was not used for the longest time is deleted first. Whoever may write to the folder can
    change the rows that are read.

    Parameters
    ----------
    folder
        It is created, only for the user, if it does not exist.
    max_bytes
        The most bytes in the folder. Each process that writes at the same time may exceed it by a
        twentieth.

    Raises
    ------
    InvalidInputError
        The folder cannot be created.
    """

    folder: str | os.PathLike[str]
    max_bytes: int = 64 << 30

    def __post_init__(self) -> None:
        require_whole("max_bytes", self.max_bytes, 1)
        try:
            Path(self.folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInputError(
                argument="folder",
                reason=f"the folder {os.fspath(self.folder)} cannot be created: {error}",
                remedy="Choose a folder on a local disk",
            ) from error


class CachedStore(ForwardingStore):
    """A store around a remote one, whose files for random reading are read once.

    Each process asks the store once for size and time of a file. Other requests are forwarded.
    """

    def __init__(self, inner: Store, cache: Cache) -> None:
        self.inner = inner
        self.cache = cache
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._parts = _Parts(self.cache)
        self._infos: dict[str, ObjectInfo] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"inner": self.inner, "cache": self.cache}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def open_input(self, path: str, *, size: int | None = None) -> Any:  # Asked.
        """Return a file for random reading, whose parts come from the cache if they are there."""
        if self._process != os.getpid():  # A fork has no threads that would end its waiting.
            self._begin()
        info = self._infos.get(path)
        if info is None:
            info = self._infos[path] = self.inner.info(path)
        whose = f"{self.resolve(path)}\n{info.size}\n{info.modified_ms}"
        key = sha256(whose.encode("utf-8", "surrogateescape")).hexdigest()
        return RangedFile(info.size, partial(self._range, path, info.size, key))

    def _range(self, path: str, size: int, key: str, start: int, end: int) -> bytes:
        """Return the bytes from a start to an end."""
        first = start // _PART_BYTES
        numbers = range(first, -(-end // _PART_BYTES))
        found = self._parts.get(
            [f"{key}-{number}" for number in numbers],
            lambda some, stop: self._asked(path, size, first + some, first + stop),
        )
        data = b"".join(found)
        at = start - first * _PART_BYTES
        return data[at : at + end - start]

    def _asked(self, path: str, size: int, first: int, stop: int) -> list[bytes]:
        """Return adjacent parts of a file, by one request."""
        start = first * _PART_BYTES
        with self.inner.open_input(path, size=size) as source:
            source.seek(start)
            count = min(stop * _PART_BYTES, size) - start
            data = bytes(source.read(count))
        if len(data) != count:
            raise OSError(f"{len(data)} of {count} bytes were returned: the file was replaced")
        return [data[at : at + _PART_BYTES] for at in range(0, len(data), _PART_BYTES)]


class _Parts:
    """The parts in a folder, by their keys."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._lock = Lock()
        self._coming: dict[str, Future[bytes]] = {}  # What a thread of this process reads.
        self._written = cache.max_bytes  # The first write measures the folder.
        self._fails = False

    def get(self, keys: list[str], ask: Any) -> list[bytes]:
        """Return parts; those that are not there come from `ask(first, stop)`, by their places."""
        found: dict[int, bytes] = {}
        waited: dict[int, Future[bytes]] = {}
        mine: dict[int, Future[bytes]] = {}
        for place, key in enumerate(keys):
            data = self._kept(key)
            if data is not None:
                found[place] = data
                continue
            with self._lock:
                coming = self._coming.get(key)
                if coming is None:
                    mine[place] = self._coming[key] = Future()
                else:
                    waited[place] = coming
        try:
            for first, stop in _runs(list(mine)):
                for place, data in zip(range(first, stop), ask(first, stop), strict=True):
                    found[place] = data
                    self._keep(keys[place], data)
                    mine[place].set_result(data)
        finally:
            with self._lock:
                for place, future in mine.items():
                    del self._coming[keys[place]]
                    future.cancel()  # Without effect if it has a result.
        for place, coming in waited.items():
            # If the other thread failed, this one asks itself, and raises its own error.
            data = _result(coming)
            (found[place],) = [data] if data is not None else ask(place, place + 1)
        return [found[place] for place in range(len(keys))]

    def _path(self, key: str) -> Path:
        return Path(self._cache.folder, key[:2], f"{_NAME}{key}")

    def _kept(self, key: str) -> bytes | None:
        """Return a part of the folder; None if it is not there, or damaged."""
        path = self._path(key)
        try:
            with path.open("rb") as file:
                data = file.read()
                if REAL.now_ms() / 1000 - os.fstat(file.fileno()).st_mtime > _FRESH_S:
                    os.utime(path)
        except OSError:
            return None
        body, checksum = data[:-_SUM_BYTES], data[-_SUM_BYTES:]
        return body if checksum == crc32(body).to_bytes(_SUM_BYTES, "little") else None

    def _keep(self, key: str, data: bytes) -> None:
        """Write a part; if that fails, warn once."""
        path = self._path(key)
        made = path.with_name(f"{_NEW}{REAL.uuid()}")
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            try:
                made.write_bytes(data + crc32(data).to_bytes(_SUM_BYTES, "little"))
                made.replace(path)
            except OSError:
                made.unlink(missing_ok=True)
                raise
            with self._lock:
                self._written += len(data)
                is_due = self._written * _LOOKS > self._cache.max_bytes
                if is_due:
                    self._written = 0
            if is_due:
                self._sweep()
        except OSError as error:
            if not self._fails:
                self._fails = True
                warn(
                    f"The cache {os.fspath(self._cache.folder)} cannot be written: {error}. "
                    "Files are read from their store each time.",
                    TxlogWarning,
                    stacklevel=2,
                )

    def _sweep(self) -> None:
        """Delete the parts that were not used for the longest time, down to the limit."""
        files = sorted(_files(Path(self._cache.folder)), reverse=True)
        total = 0
        most = self._cache.max_bytes * (_LOOKS - 1) // _LOOKS
        before = REAL.now_ms() / 1000 - _FRESH_S
        for used, size, path in files:
            total += size
            is_left = not path.name.startswith(_NAME) and used < before  # Of a killed process.
            if total > most or is_left:
                total -= size
                path.unlink(missing_ok=True)


def _result(coming: Future[bytes]) -> bytes | None:
    try:
        return coming.result()
    except BaseException:  # Cancelled, as the thread that asked failed.
        return None


def _files(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield the time of the last use, the size and the path of each file."""
    for inner in folder.iterdir():
        if not _FOLDER.fullmatch(inner.name) or not inner.is_dir():
            continue
        with os.scandir(inner) as entries:
            for entry in entries:
                if entry.name.startswith((_NAME, _NEW)):
                    with suppress(FileNotFoundError):  # Another process deleted it.
                        found = entry.stat()
                        yield found.st_mtime, found.st_size, Path(entry.path)


def _runs(places: list[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of adjacent numbers."""
    for _, run in groupby(enumerate(places), lambda pair: pair[1] - pair[0]):
        numbers = [place for _, place in run]
        yield numbers[0], numbers[-1] + 1
