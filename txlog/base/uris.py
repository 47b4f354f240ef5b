"""Texts of URIs and paths. Pure."""

from __future__ import annotations

import os
import re

from txlog.base.errors import InvalidInputError

# A single letter before a colon is a drive; `a::b://` is a chain of fsspec file systems.
_URI = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)(?:::[^/]*)?://")
_FILE = re.compile(r"file:", re.IGNORECASE)


def scheme_of(path: str) -> str | None:
    """Return the scheme of a URI in lower case, `file` for an absolute path, else None."""
    if _FILE.match(path) or os.path.isabs(path):
        return "file"
    uri = _URI.match(path)
    return uri[1].lower() if uri else None


def is_file_uri(path: str) -> bool:
    """Return whether a text is a `file:` URI, not a plain path."""
    return path[:5].lower() == "file:"


def file_path(uri: str, *, decode: bool) -> str:
    """Return the absolute path of a `file:` URI: `file:/x`, `file:///x`, or one of localhost.

    Parameters
    ----------
    decode
        Whether `%20` means a space. Pass False for a URI from a log, whose paths are already
        decoded.

    Raises
    ------
    InvalidInputError
        The URI names another host, or it is not absolute.
    """
    plain = uri[len("file:") :]
    if plain.startswith("//"):
        host, slash, rest = plain[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise InvalidInputError(
                argument="uri",
                reason=f"{uri!r} names the host {host.rpartition('@')[2]!r}",
                remedy="Write a local file with three slashes: file:///folder",
            )
        plain = slash + rest
    if not plain.startswith("/"):
        raise InvalidInputError(
            argument="uri",
            reason=f"{uri!r} is not absolute",
            remedy="Use a plain path for a location relative to the working folder",
        )
    if not decode:
        return plain
    from urllib.parse import unquote

    # Bytes that are not UTF-8 become surrogate escapes, as in the os module.
    return unquote(plain, errors="surrogateescape")
