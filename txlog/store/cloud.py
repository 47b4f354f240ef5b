"""Tables on S3, Google Cloud Storage and Azure Blob Storage, accessed with obstore."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from txlog.base.effects import REAL
from txlog.base.errors import (
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
)
from txlog.base.threads import map_ahead
from txlog.base.uris import scheme_of
from txlog.store.base import (
    ObjectInfo,
    Put,
    RangesBy,
    known_ms,
    pages_in_folders,
    require_below,
    within,
)
from txlog.store.cloud_options import Place, connect, place_of
from txlog.store.ranged import PART_BYTES, RangedFile, Upload
from txlog.store.server import ServerStore, frozen

_NAMES_AT_ONCE = 1000  # The number of files in one request to list or delete.
_AT_ONCE = 16
_RETRIED = re.compile(r"after [1-9]\d* retries")
_NOTHING_DONE = ("PermissionDeniedError", "UnauthenticatedError")
_ENVIRONMENT = ("AWS_", "AZURE_", "GOOGLE_")

_used_by: int | None = None  # The process that uses obstore, whose threads do not survive a fork.
_clients: dict[tuple[Any, ...], Any] = {}
_trusted: set[tuple[Any, ...]] = set()  # Stores for which a probe showed that create is atomic.


@dataclass(frozen=True, repr=False)
class CloudStore(ServerStore):
    """A folder of a bucket. A created file is durable and visible to all readers.

    It connects at the first use. All tables of the process with the same bucket, options and
    environment share the connection, which renews credentials of the environment or the machine.
    """

    root: str  # Includes the scheme.
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    def require_writable(self) -> None:
        """Accept all three stores, which have a conditional put. The first put tests this one.

        See `put_if_absent`.
        """

    def resolve(self, path: str) -> str:
        """Return the URI of a file."""
        return path if scheme_of(path) else "/".join(part for part in (self.root, path) if part)

    def _at(self, path: str) -> tuple[Any, str]:
        """Return a client of a path's bucket, and the path's key in the bucket."""
        place = place_of(self.resolve(path))
        return self._client(place), place.key

    def _connection(self, place: Place) -> tuple[Any, ...]:
        """Return the settings of a connection, including the environment, which obstore reads."""
        environment = {
            name: value for name, value in os.environ.items() if name.startswith(_ENVIRONMENT)
        }
        return (*place[:3], frozen(self.options), frozen(environment))

    def _client(self, place: Place) -> Any:
        global _used_by
        process = os.getpid()
        if _used_by not in (None, process):
            raise StoreError(
                operation="connect",
                path=self.root,
                reason="this process was forked from one that uses an object store, and its "
                "connections do not survive a fork",
                remedy="Start processes with multiprocessing's method 'spawn' or 'forkserver'",
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
        """Return a file for random reading with exact ranges."""
        length = self.info(path).size if size is None else size
        return RangedFile(length, partial(self._range, path))

    def _range(self, path: str, start: int, end: int) -> bytes:
        with self._errors("read", path):
            client, key = self._at(path)
            return bytes(client.get_range(key, start=start, end=end))

    def signed_url(self, path: str, seconds: int) -> str | None:
        """Return an address at which anybody can read a file for a time; None without a key."""
        from obstore import sign

        client, key = self._at(path)
        try:
            return str(sign(client, "GET", key, timedelta(seconds=seconds)))
        except Exception:  # obstore has many kinds of errors for credentials that cannot sign.
            return None

    def info(self, path: str) -> ObjectInfo:
        """Return the name, size and time of a file."""
        with self._errors("look at", path):
            client, key = self._at(path)
            found = client.head(key)
        return ObjectInfo(path.rsplit("/", 1)[-1], found["size"], _ms(found["last_modified"]))

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder whose names are not below `name`, by name, ascending.

        Stores also list files in subfolders. A subfolder with many files is skipped by a new
        request.
        """
        found: list[ObjectInfo] = []
        # The offset is exclusive, so it is the name without its last character. Few files have
        # names between the offset and `name`.
        offset = name[:-1]
        while True:
            below = self._page_of_folders(folder, offset, found)
            if below is None:
                break
            offset = f"{below}0"  # `0` is the character after the slash.
            with suppress(NotFoundError):  # A file of this very name is not after it.
                name_there = f"{folder}/{offset}" if folder else offset
                found.append(self.info(name_there))
        yield from sorted((info for info in found if info.name >= name), key=lambda info: info.name)

    def _page_of_folders(self, folder: str, offset: str, found: list[ObjectInfo]) -> str | None:
        """Add files to `found`. Return a folder to skip if its files fill a page, else None."""
        for infos in self._pages(folder, offset):
            found.extend(info for info in infos if "/" not in info.name)
            last = infos[-1].name
            if len(infos) == _NAMES_AT_ONCE and "/" in last:
                names = [info.name for info in infos]
                if names == sorted(names):  # Some stores do not list in order.
                    return last.partition("/")[0]
        return None

    def list_tree(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield all files below a folder, by name, ascending."""
        found = [info for infos in self._pages(folder, "") for info in infos]
        yield from sorted(found, key=lambda info: info.name)

    def list_pages(self, after: str, until: str | None) -> Iterator[list[ObjectInfo]]:
        """Yield the files of `list_tree` in parts, a request each."""
        if self.ranges_by() == "folders" and (after or until is not None):
            yield from pages_in_folders(self._level, self._below, after, until)
            return
        for infos in self._pages("", after):
            yield within(infos, after, until)
            names = [info.name for info in infos]
            if until is not None and names and names[-1] > until and names == sorted(names):
                return  # Names ascend, so all later ones are above `until`, too.

    def ranges_by(self) -> RangesBy:
        """Return `names` if the store lists names in their order from any one on, else `folders`.

        Directory buckets of S3 have another order. So may accounts of Azure with a hierarchical
        namespace, where a folder comes before a file such as `x=1-2`: a name at which a request
        begins would then hide files.
        """
        place = place_of(self.root)
        return "folders" if place.kind == "az" or place.bucket.endswith("--x-s3") else "names"

    def _level(self, folder: str) -> tuple[list[ObjectInfo], list[str]]:
        """Return the files in a folder, and the folders in it: names from the root on."""
        with self._errors("list", folder):
            client, key = self._at(folder.rstrip("/"))
            found = client.list_with_delimiter(key or None)
        own = place_of(self.root).key
        start = len(f"{own}/") if own else 0
        folders = [f"{prefix[start:].rstrip('/')}/" for prefix in found["common_prefixes"]]
        return [_info_of(one, start) for one in found["objects"]], folders

    def _below(self, folder: str) -> Iterator[list[ObjectInfo]]:
        """Yield the files below a folder in parts, with names from the root on."""
        for page in self._pages(folder.rstrip("/"), ""):
            yield [info._replace(name=folder + info.name) for info in page]

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
                yield [_info_of(one, len(prefix)) for one in page]

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file atomically; return whether it was created or existed before.

        Before the first create, a store that is not the provider's own is probed: a second create
        of a name must fail. Many servers with the S3 protocol overwrite silently and are refused.
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
            raise self._not_probed(path, error.reason) from error
        finally:
            with suppress(Exception):
                client.delete([key])
        # The first create may fail too, if its answer was lost and it was sent again.
        if second != "exists":
            raise self._without_create(
                "the store overwrites a file instead of refusing to create it"
            )
        _trusted.add(known)

    def _created(self, client: Any, key: str, path: str, data: bytes) -> Put:
        try:
            client.put(key, data, mode="create", use_multipart=False)
        except Exception as error:
            name = type(error).__name__
            # If the client tried again, this call itself may have created the file.
            if name == "AlreadyExistsError":
                return "exists"
            failure = self._error("create", path, error)
            # An earlier try may have succeeded.
            sure = name in _NOTHING_DONE or isinstance(error, FileNotFoundError | ValueError)
            if sure and not _RETRIED.search(str(error)):
                raise failure from error
            raise self._unknown(path, failure.reason) from error
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
        if self._has(path, data):
            return
        # If the put still succeeds, the file takes space. It is not deleted: another process may
        # have stored the same content under the same name.
        raise StoreError(
            operation="create",
            path=path,
            table=self.root,
            reason="another file has this name" if answer is None else answer.reason,
            remedy="Check the content of that file" if answer is None else "Try again",
        ) from answer

    def replace(self, path: str, data: bytes) -> None:
        """Write a file over an existing one."""
        with self._errors("replace", path):
            client, key = self._at(path)
            client.put(key, data, chunk_size=PART_BYTES)

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Return a new file to be written in a `with`.

        It is uploaded in parts while it is written, and it appears when the block ends. The first
        upload of a part checks whether its name is free; otherwise the end of the block does.
        """
        client, key = self._at(path)

        def send(parts: Iterator[bytes]) -> None:
            with self._errors("write", path):
                with suppress(FileNotFoundError):
                    client.head(key)
                    raise StoreError(
                        operation="create", path=path, reason="another file has this name"
                    )
                client.put(key, parts, use_multipart=True, chunk_size=PART_BYTES, max_concurrency=4)

        upload = Upload(send)
        try:
            yield upload
        except BaseException:
            upload.abort()
            raise
        rest = upload.finish()
        if rest is not None:
            self.write_new(path, rest)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files below the root; those that are not there are skipped."""
        own = place_of(self.root)
        keys = []
        for path in paths:
            place = place_of(self.resolve(path))
            require_below(path, place.key if place[:3] == own[:3] else "", own.key)
            keys.append(place.key)
        if keys:
            with self._errors("delete", paths[0]):
                self._delete_all(self._client(own), keys)

    def _delete_all(self, client: Any, keys: list[str]) -> None:
        try:
            client.delete(keys)
        except Exception:  # A file is missing, or the server deletes only one file at a time.
            errors = map_ahead(
                partial(_deleted, client), keys, workers=_AT_ONCE, ahead=2 * _AT_ONCE
            )
            failed = [error for error in errors if error is not None]
            if failed:
                raise failed[0] from None


def _deleted(client: Any, key: str) -> Exception | None:
    try:
        client.delete(key)
    except FileNotFoundError:
        return None
    except Exception as error:
        return error
    return None


def _info_of(found: Mapping[str, Any], start: int) -> ObjectInfo:
    """Return a file of an answer, whose name begins at a place of its key."""
    return ObjectInfo(found["path"][start:], found["size"], _ms(found["last_modified"]))


def _ms(modified: Any) -> int | None:
    return known_ms(int(modified.timestamp() * 1000))
