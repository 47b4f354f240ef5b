"""Tables on the other file systems that fsspec supports."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any, Literal

from txlog.base.effects import REAL
from txlog.base.errors import (
    NotFoundError,
    TxlogError,
    UnsupportedFeatureError,
)
from txlog.base.threads import map_ahead
from txlog.base.uris import scheme_of
from txlog.store.base import ObjectInfo, Put, kind_of, require_below
from txlog.store.cloud_options import fsspec_options
from txlog.store.file_times import modified_ms
from txlog.store.ranged import PART_BYTES, RangedFile, Upload
from txlog.store.server import ServerStore, frozen

# Their rename fails atomically if the target exists, but their create overwrites.
_RENAME = ("hdfs", "webhdfs", "viewfs", "ofs")
_NAMES, _RACERS = 6, 6  # In a probe, six threads race for each of six names.
_EXISTS = ("PreconditionFailed", "ConditionalRequestConflict", "412")

_trusted: set[tuple[str, Any]] = set()  # Roots for which a probe showed that create is atomic.


@dataclass(frozen=True, repr=False)
class FsspecStore(ServerStore):
    """A folder in a file system of fsspec.

    It connects at the first use, once in each process. Commits are created with the file system's
    conditional put, or on HDFS with a rename. File systems with neither have no atomic create and
    are refused.
    """

    root: str  # With the scheme.
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    is_coordinated: bool = field(default=False, repr=False)  # A coordinator creates the commits.
    _backends: dict[int, Backend] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_backends", {})

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.root, self.options, self.is_coordinated)

    def _backend(self) -> Backend:
        # A connection does not survive a fork.
        process = os.getpid()
        if process not in self._backends:
            self._backends[process] = connect(self.root, self.options)
        return self._backends[process]

    def require_writable(self) -> None:
        """Raise if two writers could both create the same commit."""
        if not self.is_coordinated and self._creates_by is None:
            raise self._without_create(
                f"there is no known atomic create for {scheme_of(self.root)}://"
            )

    @property
    def _creates_by(self) -> Literal["put", "rename"] | None:
        if scheme_of(self.root) in _RENAME:
            return "rename"
        # On other file systems, fsspec's create checks first and writes later.
        own = getattr(type(self._backend().files), "_pipe_file", None)
        is_native = own is not None and "mode" in signature(own).parameters
        return "put" if is_native and kind_of(scheme_of(self.root) or "") is not None else None

    def resolve(self, path: str) -> str:
        """Return the URI of a file."""
        return path if scheme_of(path) else "/".join(part for part in (self.root, path) if part)

    def _at(self, path: str) -> str:
        """Return a path in the form that the backend uses."""
        backend = self._backend()
        if scheme_of(path):
            return str(backend.files._strip_protocol(path))
        # Not parsed as a URI, in which `#` and `?` have a meaning.
        return "/".join(part for part in (backend.root.rstrip("/"), path) if part)

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        with self._errors("read", path):
            return bytes(self._backend().files.cat_file(self._at(path)))

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        """Return a file for random reading, with exact ranges if the backend supports them."""
        with self._errors("open", path):
            files, at = self._backend().files, self._at(path)
            if getattr(files, "async_impl", False):  # Elsewhere each range opens it anew.
                length = files.info(at).get("size") if size is None else size
                if isinstance(length, int):
                    return RangedFile(length, partial(self._range, path))
            return files.open(at, "rb")

    def _range(self, path: str, start: int, end: int) -> bytes:
        with self._errors("read", path):
            data = bytes(self._backend().files.cat_file(self._at(path), start=start, end=end))
        # Some servers do not support ranges and send the whole file.
        return data if len(data) <= end - start else data[start:end]

    def info(self, path: str) -> ObjectInfo:
        """Return the name, size and time of a file."""
        with self._errors("look at", path):
            found = self._backend().files.info(self._at(path))
            if found["type"] == "directory":
                raise IsADirectoryError("it is a folder")
            return info_of(found, path.rsplit("/", 1)[-1])

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder whose names are not below `name`, by name, ascending."""
        for info in self._listed(folder, deep=False):
            if "/" not in info.name and info.name >= name:
                yield info

    def list_tree(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield all files below a folder, by name, ascending."""
        return self._listed(folder, deep=True)

    def list_folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder; what is in them is not listed."""
        entries = self._entries(folder, deep=False)
        return sorted(name.strip("/") for name, one in entries if one["type"] == "directory")

    def _listed(self, folder: str, *, deep: bool) -> Iterator[ObjectInfo]:
        entries = self._entries(folder, deep=deep)
        found = (info_of(one, name) for name, one in entries if one["type"] == "file")
        yield from sorted(found, key=lambda info: info.name)

    def _entries(self, folder: str, *, deep: bool) -> list[tuple[str, Any]]:
        """Return the files in a folder, or below it: names relative to it, and known facts."""
        with self._errors("list", folder):
            files, at = self._backend().files, self._at(folder)
            # A cached listing would hide commits of other writers.
            files.invalidate_cache(at)
            try:
                found = files.find(at, detail=True).values() if deep else files.ls(at, detail=True)
            except FileNotFoundError:
                return []
        prefix = at.strip("/") + "/" if at.strip("/") else ""
        named = ((str(entry["name"]).lstrip("/"), entry) for entry in found)
        # A file with the folder's own name, or its marker, may be listed too.
        return [(n[len(prefix) :], e) for n, e in named if n.startswith(prefix) and n != prefix]

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Return a new file for writing in a `with`; the upload of a large one begins at once."""
        self.require_writable()
        upload = Upload(partial(self._send, path))
        try:
            yield upload
        except BaseException:
            upload.abort()
            raise
        rest = upload.finish()
        if rest is not None:
            self.write_new(path, rest)

    def _send(self, path: str, parts: Iterator[bytes]) -> None:
        with self._errors("write", path):
            at = self._free(path)
            files = self._backend().files
            sink = files.open(at, "wb", block_size=PART_BYTES)
            sent, is_whole = 0, False
            try:
                for part in parts:
                    sink.write(part)
                    sent += len(part)
                is_whole = True
                sink.close()
            except BaseException:
                with suppress(Exception):
                    sink.discard()
                with suppress(Exception):
                    sink.closed = True  # Otherwise its deletion would complete the file.
                # In object stores a file is there as a whole, or not at all. A whole one may be of
                # another process, which stored the same content under the same name.
                if kind_of(scheme_of(self.root) or "") is None:
                    with suppress(Exception):
                        if files.info(at)["size"] < sent + (not is_whole):
                            files.rm_file(at)
                raise

    def _free(self, path: str) -> str:
        """Make a path's folder, and return the path in the backend's form; raise if it is taken."""
        files, at = self._backend().files, self._at(path)
        if files.exists(at):
            raise FileExistsError("there is another file of this name")
        self._make_folder(at)
        return at

    def _make_folder(self, at: str) -> None:
        files = self._backend().files
        if kind_of(scheme_of(self.root) or "") is None:  # Object stores have no folders.
            files.makedirs(at.rpartition("/")[0], exist_ok=True)

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole new file."""
        self.require_writable()
        files, free = self._backend().files, None
        try:
            with self._errors("create", path):
                if self._creates_by == "put":
                    files.pipe_file(self._at(path), data, mode="create")
                else:
                    free = self._free(path)
                    files.pipe_file(free, data)
        except TxlogError:
            if self._has(path, data):
                return
            if free is not None:
                with suppress(Exception):
                    # It is a part of this file, and not another one that came meanwhile.
                    if data.startswith(self.read(path)):
                        files.rm_file(free)
            raise

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file atomically; return whether it was created or existed before.

        Before the first create, the store is probed: threads race for names, and each name must
        have exactly one winner.
        """
        self.require_writable()
        known = (self.root, frozen(self.options))
        if known not in _trusted:
            self._probe()
            _trusted.add(known)
        return self._created(path, data)

    def _probe(self) -> None:
        folder = f"_delta_log/.txlog-probe-{REAL.uuid()}"
        paths = [f"{folder}/{n}" for n in range(_NAMES)]
        racers = [path for path in paths for _ in range(_RACERS)]

        def create(path: str) -> Put | TxlogError:
            try:
                return self._created(path, path.encode())
            except TxlogError as error:
                return error

        try:
            answers = list(map_ahead(create, racers, workers=_RACERS, ahead=len(racers)))
        finally:
            with suppress(TxlogError):
                self.delete(paths)
            with suppress(Exception):
                self._backend().files.rmdir(self._at(folder))
        for path in paths:
            mine = [a for at, a in zip(racers, answers, strict=True) if at == path]
            failed = next((a for a in mine if isinstance(a, TxlogError)), None)
            if failed is not None:
                raise self._not_probed(path, failed.reason) from failed
            if mine.count("created") > 1:
                raise self._without_create(
                    "several writers that created the same file at once succeeded"
                )

    def _created(self, path: str, data: bytes) -> Put:
        if self._creates_by == "rename":
            return self._renamed(path, data)
        try:
            self._backend().files.pipe_file(self._at(path), data, mode="create")
        except FileExistsError:
            return "exists"
        except Exception as error:
            if isinstance(error, OSError) and any(
                word in f"{one!r}{one}" for one in (error, error.__cause__) for word in _EXISTS
            ):
                return "exists"
            failure = self._error("create", path, error)
            if isinstance(error, ImportError):
                raise failure from error
            # Also after a refusal: the library may have tried before without an answer. Whoever may
            # not write at all is refused by the probe.
            raise self._unknown(path, failure.reason) from error
        return "created"

    def _renamed(self, path: str, data: bytes) -> Put:
        """Write a temporary file and rename it; if it still exists then, the name was taken."""
        files, at = self._backend().files, self._at(path)
        folder, _, name = at.rpartition("/")
        temporary = f"{folder}/.{name}.{REAL.uuid()}.tmp"
        with self._errors("write", path):
            self._make_folder(at)
            files.pipe_file(temporary, data)
        try:
            with suppress(Exception):  # An error does not matter: the files show the outcome.
                files.mv(temporary, at)
            if not files.exists(temporary):
                return "created"
            if not files.exists(at):
                raise OSError("the rename failed")
        except Exception as error:
            raise self._unknown(path, str(error)) from error
        with suppress(Exception):
            files.rm_file(temporary)
        return "exists"

    def replace(self, path: str, data: bytes) -> None:
        """Write a file over an existing one."""
        self.require_writable()
        with self._errors("replace", path):
            at = self._at(path)
            self._make_folder(at)
            self._backend().files.pipe_file(at, data)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files below the root; those that are not there are skipped."""
        if not paths:
            return
        self.require_writable()
        root = self._at("")
        targets = [self._at(path) for path in paths]
        for path, at in zip(paths, targets, strict=True):
            require_below(path, at, root)

        def remove(item: tuple[str, str]) -> TxlogError | None:
            try:
                with self._errors("delete", item[0]):
                    self._backend().files.rm_file(item[1])
            except NotFoundError:
                return None
            except TxlogError as error:
                return error
            return None

        workers = self.reads_at_once
        done = map_ahead(remove, zip(paths, targets, strict=True), workers=workers, ahead=workers)
        failed = [error for error in done if error is not None]
        if failed:
            raise failed[0]


_EXTRAS = {
    "s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "abfss": "azure",
    "az": "azure", "adl": "azure",
}  # fmt: skip


@dataclass(frozen=True)
class Backend:
    """A file system of fsspec, and the table's root in the form that it uses."""

    files: Any
    root: str


def connect(uri: str, options: Mapping[str, Any]) -> Backend:
    """Return a new connection, which does not cache listings.

    Raises
    ------
    UnsupportedFeatureError
        fsspec does not know the scheme, or its package is not installed.
    """
    from fsspec.core import url_to_fs

    scheme = scheme_of(uri) or ""
    given = {name: value for name, value in options.items() if not name.startswith("txlog.")}
    own = fsspec_options(kind_of(scheme), given)
    settings = {"use_listings_cache": False, "skip_instance_cache": True, **own}
    if kind_of(scheme) == "gs":  # Its other write method overwrites silently.
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    try:
        files, root = url_to_fs(uri, **settings)
    except (ImportError, ValueError) as error:
        unknown = "protocol not known" in str(error).lower()
        if isinstance(error, ValueError) and not unknown:
            raise
        raise _unsupported(uri, scheme, error, unknown=unknown) from error
    return Backend(files, str(root))


def _unsupported(
    uri: str, scheme: str, error: Exception, *, unknown: bool
) -> UnsupportedFeatureError:
    extra = _EXTRAS.get(scheme)
    if unknown and extra is None:
        reason = f"fsspec knows no file system for {scheme}://"
        remedy = "Check the spelling of the URI"
    else:  # Some schemes are known only if their package is installed.
        reason = f"a package for {scheme}:// is missing: {error}"
        remedy = (
            f"Install one: pip install 'pyspark-txlog[cloud]' (or 'pyspark-txlog[{extra}]')"
            if extra
            else "Install the package that fsspec needs for this scheme"
        )
    return UnsupportedFeatureError(path=uri, features=(scheme,), reason=reason, remedy=remedy)


def info_of(entry: Mapping[str, Any], name: str) -> ObjectInfo:
    """Return a file's `ObjectInfo` from an entry of fsspec."""
    return ObjectInfo(name, int(entry.get("size") or 0), modified_ms(entry))
