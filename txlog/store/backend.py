"""Connections to fsspec's file systems, and what they say of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from txlog.errors import UnsupportedFeatureError
from txlog.store.base import ObjectInfo
from txlog.store.paths import scheme_of, without_secrets

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
            f"Install it: pip install 'pyspark-txlog[{extra}]'"
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
