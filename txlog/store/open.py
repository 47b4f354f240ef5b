"""From a URI to a store."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from txlog.errors import InvalidInputError, UnsupportedFeatureError
from txlog.store.base import Store
from txlog.store.local import LocalStore
from txlog.store.memory import MemoryStore
from txlog.store.remote import FsspecStore

ALLOWED_SCHEMES = "txlog.allowed_schemes"  # A storage option: schemes that a log may refer to.

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://")


def open_store(
    uri: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> Store:
    """Return the store of the table at `uri`, which need not exist.

    A plain path is literal, whatever characters it has, and made absolute. `file:` URIs are
    percent-decoded. `memory://` is this process's memory; other schemes go to fsspec.

    Raises
    ------
    InvalidInputError
        The URI is empty, or a `file:` URI names another host.
    """
    text = os.fspath(uri)
    if not isinstance(text, str) or not text.strip():
        raise InvalidInputError(argument="uri", reason="a path or URI was expected")
    if "\0" in text:
        raise InvalidInputError(argument="uri", reason="a path has no NUL character")
    options = dict(storage_options or {})
    if text.startswith("file:"):
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost"):
            raise InvalidInputError(
                argument="uri",
                reason=f"{text!r} names the host {parts.netloc!r}",
                remedy="A local file has three slashes: file:///folder",
            )
        plain = text.removeprefix("file:").removeprefix(f"//{parts.netloc}")
        return LocalStore(_absolute(unquote(plain)), options)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return LocalStore(_absolute(text), options)
    if scheme[1].lower() == "memory":
        return MemoryStore("memory://" + text[scheme.end() :].strip("/"), options)
    return FsspecStore(text.rstrip("/"), options)


def _absolute(path: str) -> str:
    # `abspath` would resolve nothing else than `.`, `..` and doubled slashes: links stay.
    return os.path.abspath(path)


def locate(store: Store, path: str) -> tuple[Store, str]:
    """Return the store that holds a decoded path of a log, and the path in it.

    A log may refer to files outside its table, of the same kind of store. Those of another
    scheme are followed only if the table was opened with the storage option
    `txlog.allowed_schemes`, a comma-separated list.

    Raises
    ------
    UnsupportedFeatureError
        The scheme is another one, and not allowed.
    """
    scheme = _SCHEME.match(path)
    own = _SCHEME.match(store.root)
    if scheme is None and (own is None or not path.startswith("/")):
        return store, path
    name = scheme[1].lower() if scheme else "file"
    if own is not None and own[1].lower() == name:
        return store, path
    allowed = [part.strip() for part in str(store.options.get(ALLOWED_SCHEMES, "")).split(",")]
    if name not in allowed:
        raise UnsupportedFeatureError(
            path=path,
            features=(name,),
            reason=f"the log of {store.root} refers to a file of another scheme, {name}",
            remedy=f"If you trust it, pass storage_options={{{ALLOWED_SCHEMES!r}: {name!r}}}",
        )
    folder, _, file = path.rpartition("/")
    return open_store(folder, store.options), file
