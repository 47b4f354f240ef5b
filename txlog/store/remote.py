"""Tables on any other file system that fsspec knows: for reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NoReturn

from txlog.errors import NotFoundError, StoreError, TxlogError, UnsupportedFeatureError
from txlog.store.base import ObjectInfo, Put

_EXTRAS = {
    "s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "abfss": "azure",
    "az": "azure", "adl": "azure",
}  # fmt: skip


@dataclass(frozen=True)
class FsspecStore:
    """A folder of a file system of fsspec. It has no atomic create that txlog knows of."""

    root: str  # With the scheme.
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    def _files(self) -> Any:
        import fsspec

        scheme = self.root.split("://", 1)[0]
        try:
            # A listing kept from earlier would hide other writers' commits.
            return fsspec.filesystem(
                scheme, **{"use_listings_cache": False, "skip_instance_cache": True, **self.options}
            )
        except ImportError as error:
            extra = _EXTRAS.get(scheme)
            raise UnsupportedFeatureError(
                path=self.root,
                features=(scheme,),
                reason=f"a package for {scheme}:// is missing: {error}",
                remedy=f"Install it: pip install 'pyspark-txlog[{extra}]'"
                if extra
                else "Install the fsspec package of this scheme",
            ) from error
        except ValueError as error:
            raise UnsupportedFeatureError(
                path=self.root,
                features=(scheme,),
                reason=f"fsspec knows no file system for {scheme}://",
                remedy="Check the URI's spelling",
            ) from error

    def require_writable(self) -> None:
        """Refuse: two writers could both create the same commit."""
        raise UnsupportedFeatureError(
            path=self.root,
            features=("atomic create",),
            reason="txlog knows no atomic create for this store, so a commit of another writer "
            "could be overwritten",
            remedy="Write to a local path; reading from this store works",
        )

    def _refuse(self) -> NoReturn:
        self.require_writable()
        raise AssertionError

    def resolve(self, path: str) -> str:
        """Return the URI of a file."""
        return path if "://" in path else f"{self.root}/{path}"

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        with _errors("read", path):
            return bytes(self._files().cat_file(self.resolve(path)))

    def open_input(self, path: str) -> Any:
        """Return a file for random reading."""
        with _errors("open", path):
            return self._files().open(self.resolve(path), "rb")

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

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder whose names are not below `name`, by name, ascending."""
        found = []
        with _errors("list", folder):
            try:
                entries = self._files().ls(self.resolve(folder), detail=True)
            except FileNotFoundError:
                return
            found = [_info(entry) for entry in entries if entry["type"] == "file"]
        chosen = [info for info in found if info.name >= name]
        yield from sorted(chosen, key=lambda info: info.name)

    def info(self, path: str) -> ObjectInfo:
        """Return what the store knows of a file."""
        with _errors("look at", path):
            return _info(self._files().info(self.resolve(path)))

    def delete(self, paths: Sequence[str]) -> None:
        """Refuse, unless there is nothing to delete."""
        if paths:
            self._refuse()


def _info(entry: Mapping[str, Any]) -> ObjectInfo:
    name = str(entry["name"]).rstrip("/").rsplit("/", 1)[-1]
    return ObjectInfo(name, int(entry.get("size") or 0), _modified_ms(entry))


def _modified_ms(entry: Mapping[str, Any]) -> int:
    """Return when a file was modified; every backend has its own name and type for it."""
    for name in ("mtime", "LastModified", "last_modified", "updated", "modified", "created"):
        value = entry.get(name)
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1000)
        if isinstance(value, int | float):
            return int(value * 1000)
    return 0


@contextmanager
def _errors(operation: str, path: str) -> Iterator[None]:
    """Turn whatever a backend raises into one error of ours."""
    try:
        yield
    except TxlogError:
        raise
    except FileNotFoundError as error:
        raise NotFoundError(path=path, reason="there is no such file") from error
    except Exception as error:  # Backends raise errors of their own libraries.
        raise StoreError(
            operation=operation,
            path=path,
            reason=f"{type(error).__name__}: {error}",
            remedy="Check the address, the credentials and the connection, and try again",
        ) from error
