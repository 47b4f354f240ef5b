"""Tables on any other file system that fsspec knows: for reading."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, NoReturn

from txlog.errors import NotFoundError, StoreError, TxlogError, UnsupportedFeatureError
from txlog.store.base import BasicStore, ObjectInfo, Put, scheme_of, without_secrets
from txlog.store.ranged import RangedFile


@dataclass(frozen=True)
class FsspecStore(BasicStore):
    """A folder of a file system of fsspec. It has no atomic create that txlog knows of.

    The connection is made at the first use, once for each process.
    """

    root: str  # With the scheme.
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    _backends: dict[int, Backend] = field(init=False, repr=False, compare=False)
    reads_at_once: ClassVar[int] = 16

    def __post_init__(self) -> None:
        object.__setattr__(self, "_backends", {})

    def __repr__(self) -> str:
        return f"FsspecStore({without_secrets(self.root)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.root, self.options)

    def _backend(self) -> Backend:
        # A connection does not outlive a fork.
        process = os.getpid()
        if process not in self._backends:
            self._backends[process] = connect(self.root, self.options)
        return self._backends[process]

    def require_writable(self) -> None:
        """Refuse: two writers could both create the same commit."""
        raise UnsupportedFeatureError(
            path=without_secrets(self.root),
            features=("atomic create",),
            reason=f"txlog knows no atomic create for {scheme_of(self.root)}://, so one writer's "
            "commit could overwrite another's",
            remedy="Keep tables that are written on a local or mounted file system; reading from "
            "this store works",
        )

    def _refuse(self) -> NoReturn:
        self.require_writable()
        raise AssertionError

    def resolve(self, path: str) -> str:
        """Return the URI of a file."""
        return path if scheme_of(path) else "/".join(part for part in (self.root, path) if part)

    def _at(self, path: str) -> str:
        """Return a path as the backend itself knows it."""
        backend = self._backend()
        if scheme_of(path):
            return str(backend.files._strip_protocol(path))
        # Not by way of a URI: `#` and `?` would mean something there.
        return "/".join(part for part in (backend.root.rstrip("/"), path) if part)

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        with self._errors("read", path):
            return bytes(self._backend().files.cat_file(self._at(path)))

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        """Return a file for random reading; where the backend can, by exact ranges."""
        with self._errors("open", path):
            files, at = self._backend().files, self._at(path)
            if getattr(files, "async_impl", False):  # Of others, a range is an opening of its own.
                length = files.info(at).get("size") if size is None else size
                if isinstance(length, int):
                    return RangedFile(length, partial(self._range, path))
            return files.open(at, "rb")

    def _range(self, path: str, start: int, end: int) -> bytes:
        with self._errors("read", path):
            data = bytes(self._backend().files.cat_file(self._at(path), start=start, end=end))
        # Some servers know of no ranges, and send the whole file.
        return data if len(data) <= end - start else data[start:end]

    def info(self, path: str) -> ObjectInfo:
        """Return what the store knows of a file."""
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

    def _listed(self, folder: str, *, deep: bool) -> Iterator[ObjectInfo]:
        found = []
        with self._errors("list", folder):
            files, at = self._backend().files, self._at(folder)
            # A listing kept from earlier would hide other writers' commits.
            files.invalidate_cache(at)
            try:
                entries = (
                    files.find(at, detail=True).values() if deep else files.ls(at, detail=True)
                )
            except FileNotFoundError:
                return
            prefix = at.strip("/") + "/" if at.strip("/") else ""
            for entry in entries:
                name = str(entry["name"]).lstrip("/")
                # A file of the folder's own name, or its marker, may be listed too.
                if entry["type"] == "file" and name.startswith(prefix) and name != prefix:
                    found.append(info_of(entry, name.removeprefix(prefix)))
        yield from sorted(found, key=lambda info: info.name)

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Refuse."""
        self._refuse()
        yield path

    def write_new(self, path: str, data: bytes) -> None:
        """Refuse."""
        self._refuse()

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Refuse."""
        self._refuse()

    def replace(self, path: str, data: bytes) -> None:
        """Refuse."""
        self._refuse()

    def delete(self, paths: Sequence[str]) -> None:
        """Refuse, unless there is nothing to delete."""
        if paths:
            self._refuse()

    @contextmanager
    def _errors(self, operation: str, path: str) -> Iterator[None]:
        """Turn whatever a backend raises into one error of ours."""
        shown = without_secrets(path)
        try:
            yield
        except TxlogError:
            raise
        except FileNotFoundError as error:
            raise NotFoundError(
                path=shown, reason="there is no such file", table=without_secrets(self.root)
            ) from error
        except Exception as error:  # Backends raise errors of their own libraries.
            raise StoreError(
                operation=operation,
                path=shown,
                table=without_secrets(self.root),
                reason=f"{type(error).__name__}: {_without(str(error), self.options)}",
                remedy="Check the address, the credentials and the connection, and try again",
            ) from error


def _without(text: str, options: Mapping[str, Any]) -> str:
    """Return a backend's message without the option values that it may quote."""
    for value in options.values():
        if isinstance(value, Mapping):
            text = _without(text, value)
        elif isinstance(value, str) and len(value) > 3:
            text = text.replace(value, "…")
    return without_secrets(text)


_EXTRAS = {
    "s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "abfss": "azure",
    "az": "azure", "adl": "azure",
}  # fmt: skip
_MODIFIED = (
    "mtime", "LastModified", "last_modified", "updated", "modified", "modifiedTime", "created",
)  # fmt: skip


@dataclass(frozen=True)
class Backend:
    """A file system of fsspec, and the table's root as it knows it."""

    files: Any
    root: str


def connect(uri: str, options: Mapping[str, Any]) -> Backend:
    """Return a connection of its own, which keeps no listings.

    Raises
    ------
    UnsupportedFeatureError
        fsspec has no such scheme, or its package is not installed.
    """
    from fsspec.core import url_to_fs

    scheme = scheme_of(uri) or ""
    own = {name: value for name, value in options.items() if not name.startswith("txlog.")}
    settings = {"use_listings_cache": False, "skip_instance_cache": True, **own}
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
    else:  # Some schemes become known only with their package.
        reason = f"a package for {scheme}:// is missing: {error}"
        remedy = (
            f"Install one: pip install 'pyspark-txlog[cloud]' (or 'pyspark-txlog[{extra}]')"
            if extra
            else "Install the package that fsspec needs for this scheme"
        )
    return UnsupportedFeatureError(
        path=without_secrets(uri), features=(scheme,), reason=reason, remedy=remedy
    )


def info_of(entry: Mapping[str, Any], name: str) -> ObjectInfo:
    """Return what an entry of fsspec says of a file."""
    return ObjectInfo(name, int(entry.get("size") or 0), _modified_ms(entry))


def _modified_ms(entry: Mapping[str, Any]) -> int:
    """Return when a file was modified; every backend has its own name and type for it."""
    for name in _MODIFIED:
        value = entry.get(name)
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                continue
        if isinstance(value, datetime):
            return int(value.timestamp() * 1000)
        if isinstance(value, int | float):
            return int(value * 1000)
    return 0
