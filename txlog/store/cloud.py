"""Tables on S3, Google Cloud Storage and Azure Blob Storage, by obstore."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from txlog.effects import REAL
from txlog.errors import (
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
    TxlogError,
    UnsupportedFeatureError,
)
from txlog.store.base import (
    BasicStore,
    ObjectInfo,
    OpenOutput,
    Put,
    scheme_of,
    without_secrets,
)
from txlog.store.cloud_options import Place, connect, place_of, without_options
from txlog.store.ranged import PART_BYTES, RangedFile, Upload
from txlog.threads import Workers, map_ahead

if TYPE_CHECKING:
    from collections import deque

    from txlog.threads import Call

_NAMES_AT_ONCE = 1000  # Of a listing or a deletion, by one request.
_AT_ONCE = 16
_UPLOADS_AT_ONCE = 8  # Whole files that wait in memory, each smaller than a part.
_RETRIED = re.compile(r"after [1-9]\d* retries")
_NOTHING_DONE = ("PermissionDeniedError", "UnauthenticatedError")
_ENVIRONMENT = ("AWS_", "AZURE_", "GOOGLE_")

_used_by: int | None = None  # The process that uses obstore: its threads do not survive a fork.
_clients: dict[tuple[Any, ...], Any] = {}
_trusted: set[tuple[Any, ...]] = set()  # Stores of which a probe has shown that creating is atomic.


@dataclass(frozen=True)
class CloudStore(BasicStore):
    """A folder of a bucket. What a request has created is durable, and seen by all readers.

    A connection is made at the first use, and shared by all tables of the process with the same
    bucket, options and environment. It renews credentials of the environment or the machine by
    itself.
    """

    root: str  # With the scheme.
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    reads_at_once: ClassVar[int] = _AT_ONCE

    def __repr__(self) -> str:
        return f"CloudStore({without_secrets(self.root)!r})"

    def require_writable(self) -> None:
        """Pass: all three have a conditional put. Whether this one keeps it, the first put finds.

        See `put_if_absent`.
        """

    def resolve(self, path: str) -> str:
        """Return the URI of a file."""
        return path if scheme_of(path) else "/".join(part for part in (self.root, path) if part)

    def _at(self, path: str) -> tuple[Any, str]:
        """Return a client of the bucket that a path is in, and its key there."""
        place = place_of(self.resolve(path))
        return self._client(place), place.key

    def _connection(self, place: Place) -> tuple[Any, ...]:
        """Return all that a connection is made from; obstore reads the environment too."""
        environment = {
            name: value for name, value in os.environ.items() if name.startswith(_ENVIRONMENT)
        }
        return (*place[:3], _frozen(self.options), _frozen(environment))

    def _client(self, place: Place) -> Any:
        global _used_by
        process = os.getpid()
        if _used_by not in (None, process):
            raise StoreError(
                operation="connect",
                path=without_secrets(self.root),
                reason="this process was forked from one that uses an object store, whose "
                "connections do not survive that",
                remedy="Start processes by multiprocessing's 'spawn' or 'forkserver'",
            )
        _used_by = process
        key = self._connection(place)
        if key not in _clients:
            _clients[key] = connect(place, self.options)
        return _clients[key]

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        with self._errors("read", path):
            client, key = self._at(path)
            return bytes(client.get(key).bytes())

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        """Return a file for random reading, by exact ranges."""
        length = self.info(path).size if size is None else size
        return RangedFile(length, partial(self._range, path))

    def _range(self, path: str, start: int, end: int) -> bytes:
        with self._errors("read", path):
            client, key = self._at(path)
            return bytes(client.get_range(key, start=start, end=end))

    def info(self, path: str) -> ObjectInfo:
        """Return what the store knows of a file."""
        with self._errors("look at", path):
            client, key = self._at(path)
            found = client.head(key)
        return ObjectInfo(path.rsplit("/", 1)[-1], found["size"], _ms(found["last_modified"]))

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder whose names are not below `name`, by name, ascending.

        Stores list what is in folders of it, too: a long one is passed over by a new request.
        """
        found: list[ObjectInfo] = []
        # The offset is exclusive. Few names lie between a name and the same without its end.
        offset = name[:-1]
        while True:
            below = self._page_of_folders(folder, offset, found)
            if below is None:
                break
            offset = f"{below}0"  # `0` comes after the slash.
        yield from sorted((info for info in found if info.name >= name), key=lambda info: info.name)

    def _page_of_folders(self, folder: str, offset: str, found: list[ObjectInfo]) -> str | None:
        """Add files to `found`; return a folder whose files fill a page, to pass over, or None."""
        for infos in self._pages(folder, offset):
            found.extend(info for info in infos if "/" not in info.name)
            last = infos[-1].name
            if len(infos) == _NAMES_AT_ONCE and "/" in last:
                names = [info.name for info in infos]
                if names == sorted(names):  # Not all stores list in order.
                    return last.partition("/")[0]
        return None

    def list_tree(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield all files below a folder, by name, ascending."""
        found = [info for infos in self._pages(folder, "") for info in infos]
        yield from sorted(found, key=lambda info: info.name)

    def list_folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder; what is in them is not listed."""
        with self._errors("list", folder):
            client, key = self._at(folder)
            found = client.list_with_delimiter(key or None)["common_prefixes"]
        return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in found)

    def _pages(self, folder: str, offset: str) -> Iterator[list[ObjectInfo]]:
        with self._errors("list", folder):
            client, key = self._at(folder)
            prefix = f"{key}/" if key else ""
            after = prefix + offset if offset.strip(".") else None
            for page in client.list(key or None, offset=after, chunk_size=_NAMES_AT_ONCE):
                yield [
                    ObjectInfo(
                        info["path"].removeprefix(prefix), info["size"], _ms(info["last_modified"])
                    )
                    for info in page
                ]

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file, atomically; tell whether it was there before.

        Before the first one, a store that is not its provider's own is probed: a second create of
        a name must fail. Many servers that speak S3 overwrite silently, and are refused.
        """
        client, key = self._at(path)
        self._probe(client)
        return self._created(client, key, path, data)

    def _probe(self, client: Any) -> None:
        known = self._connection(place_of(self.root))
        if known in _trusted:
            return
        path = f"_delta_log/.txlog-probe-{REAL.uuid()}"
        key = place_of(self.resolve(path)).key
        try:
            self._created(client, key, path, b"probe")
            second = self._created(client, key, path, b"probe again")
        except OutcomeUnknownError as error:
            raise StoreError(
                operation="create",
                path=path,
                table=without_secrets(self.root),
                reason=f"the store could not be probed: {error.reason}",
                remedy="Check the address and the connection, and try again",
            ) from error
        finally:
            with suppress(Exception):
                client.delete([key])
        if second != "exists":  # So may the first be, if its answer was lost and it was sent again.
            raise UnsupportedFeatureError(
                path=without_secrets(self.root),
                features=("atomic create",),
                reason="the store overwrites a file that it was asked to create, so one writer's "
                "commit could overwrite another's",
                remedy="Have a commit coordinator decide, with the storage option "
                "'txlog.coordinator', or use a store with conditional puts; reading works",
            )
        _trusted.add(known)

    def _created(self, client: Any, key: str, path: str, data: bytes) -> Put:
        try:
            client.put(key, data, mode="create", use_multipart=False)
        except Exception as error:
            name = type(error).__name__
            if name == "AlreadyExistsError":  # Perhaps by ourselves, if the client tried again.
                return "exists"
            failure = self._error("create", path, error)
            # A try before this one may have landed.
            sure = name in _NOTHING_DONE or isinstance(error, FileNotFoundError | ValueError)
            if sure and not _RETRIED.search(str(error)):
                raise failure from error
            raise OutcomeUnknownError(
                path=path,
                table=without_secrets(self.root),
                reason=failure.reason,
                remedy="Look whether the file is there before writing it again",
            ) from error
        return "created"

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole new file."""
        if len(data) > PART_BYTES:
            with self.open_output(path) as sink:
                sink.write(data)
            return
        client, key = self._at(path)
        try:
            if self._created(client, key, path, data) == "created":
                return
            answer: OutcomeUnknownError | None = None
        except OutcomeUnknownError as error:
            answer = error
        # The file is ours if it says the same, whatever became of the answer.
        try:
            if self.read(path) == data:
                return
        except TxlogError:
            if answer is not None:  # It may still land; no other one has its name.
                with suppress(Exception):
                    client.delete([key])
        raise StoreError(
            operation="create",
            path=path,
            table=without_secrets(self.root),
            reason="there is another file of this name" if answer is None else answer.reason,
            remedy="Check what is there" if answer is None else "Try again",
        ) from answer

    def replace(self, path: str, data: bytes) -> None:
        """Write a file, replacing what was there."""
        with self._errors("replace", path):
            client, key = self._at(path)
            client.put(key, data, chunk_size=PART_BYTES)

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Return a new file to be written in a `with`.

        It goes up in parts while it is written, and appears when the block ends. Whether its name
        is free is looked at when the first part goes up, or else decided at the end.
        """
        with self._upload(path) as upload:
            yield upload
        self._finish(path, upload)

    @contextmanager
    def _upload(self, path: str) -> Iterator[Upload]:
        client, key = self._at(path)

        def send(parts: Iterator[bytes]) -> None:
            with self._errors("write", path):
                with suppress(FileNotFoundError):
                    client.head(key)
                    raise StoreError(
                        operation="create", path=path, reason="there is another file of this name"
                    )
                client.put(key, parts, use_multipart=True, chunk_size=PART_BYTES, max_concurrency=4)

        upload = Upload(send)
        try:
            yield upload
        except BaseException:
            upload.abort()
            raise

    def _finish(self, path: str, upload: Upload) -> None:
        rest = upload.finish()
        if rest is not None:
            self.write_new(path, rest)

    @contextmanager
    def new_files(self) -> Iterator[OpenOutput]:
        """Open new files; each goes up by a thread while the next one is written."""
        from collections import deque

        paths: list[str] = []
        waiting: deque[Call[None]] = deque()

        def finish(path: str, upload: Upload) -> None:
            self._finish(path, upload)
            paths.append(path)

        with Workers(_UPLOADS_AT_ONCE) as workers:

            @contextmanager
            def open_output(path: str) -> Iterator[Any]:
                with self._upload(path) as upload:
                    yield upload
                while len(waiting) >= _UPLOADS_AT_ONCE:
                    waiting.popleft().result()
                waiting.append(workers.start(partial(finish, path), upload))

            try:
                yield open_output
                while waiting:
                    waiting.popleft().result()
            except BaseException:
                _await(waiting)
                with suppress(TxlogError):
                    self.delete(paths)
                raise

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files below the root; those that are not there are passed over."""
        own = place_of(self.root)
        below = f"{own.key}/" if own.key else ""
        keys = []
        for path in paths:
            place = place_of(self.resolve(path)) if path else own
            if (
                not path
                or place[:3] != own[:3]
                or not place.key.startswith(below)
                or ".." in place.key.split("/")
            ):
                raise InvalidInputError(
                    argument="paths", reason=f"{path!r} is not a file below the table's root"
                )
            keys.append(place.key)
        if keys:
            with self._errors("delete", paths[0]):
                self._delete_all(self._client(own), keys)

    def _delete_all(self, client: Any, keys: list[str]) -> None:
        try:
            client.delete(keys)
        except Exception:  # A missing one, or a server that takes one at a time.
            errors = map_ahead(
                partial(_deleted, client), keys, workers=_AT_ONCE, ahead=2 * _AT_ONCE
            )
            failed = [error for error in errors if error is not None]
            if failed:
                raise failed[0] from None

    @contextmanager
    def _errors(self, operation: str, path: str) -> Iterator[None]:
        try:
            yield
        except TxlogError:
            raise
        except Exception as error:
            raise self._error(operation, path, error) from error

    def _error(self, operation: str, path: str, error: Exception) -> TxlogError:
        """Return our error for one of obstore."""
        shown, table = without_secrets(path), without_secrets(self.root)
        if isinstance(error, FileNotFoundError) and operation != "create":
            return NotFoundError(path=shown, reason="there is no such file", table=table)
        if isinstance(error, ValueError) and "parse path" in str(error):
            return InvalidInputError(
                argument="path", reason=f"{shown!r} cannot be the path of a file"
            )
        message = str(error).partition("\n\nDebug source")[0].strip()
        return StoreError(
            operation=operation,
            path=shown,
            table=table,
            reason=f"{type(error).__name__}: {without_options(message, self.options)}",
            remedy="Check the address, the credentials and the connection, and try again",
        )


def _deleted(client: Any, key: str) -> Exception | None:
    try:
        client.delete(key)
    except FileNotFoundError:
        return None
    except Exception as error:
        return error
    return None


def _await(calls: deque[Call[None]]) -> None:
    while calls:
        with suppress(Exception):
            calls.popleft().result()


def _ms(modified: Any) -> int:
    return int(modified.timestamp() * 1000)


def _frozen(options: Any) -> Any:
    if isinstance(options, Mapping):
        return tuple(sorted((str(name), _frozen(value)) for name, value in options.items()))
    return repr(options)
