"""The forms of a path: plain, `file:` URI, or URI of another scheme."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from txlog.errors import InvalidInputError

# One letter before a colon is a drive; `a::b://` is a chain of fsspec's.
_URI = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)(?:::[^/]*)?://")
_FILE = re.compile(r"file:", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(?<=://)[^/@]*@")
_QUERY = re.compile(r"(?<=[?&])([^=&]+)=[^&]*")

# Names for one and the same store.
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs"}


def scheme_of(path: str) -> str | None:
    """Return the scheme of a URI in lower case; `file` for an absolute path; else None."""
    if _FILE.match(path) or os.path.isabs(path):
        return "file"
    uri = _URI.match(path)
    return uri[1].lower() if uri else None


def same_store(scheme: str, other: str) -> bool:
    """Return whether two schemes mean the same store, as `s3` and `s3a` do."""
    return _ALIASES.get(scheme, scheme) == _ALIASES.get(other, other)


def is_file_uri(path: str) -> bool:
    """Return whether a text is a URI of a local file, as against a plain path."""
    return path[:5].lower() == "file:"


def file_path(uri: str, *, decode: bool) -> str:
    """Return the absolute path that a `file:` URI means: `file:/x`, `file:///x`, or of localhost.

    Parameters
    ----------
    decode
        Whether `%20` is a space: so in a URI as such, not in one taken out of a log, whose paths
        are decoded once already.

    Raises
    ------
    InvalidInputError
        It names another host, or is not absolute.
    """
    plain = uri[len("file:") :]
    if plain.startswith("//"):
        host, slash, rest = plain[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise InvalidInputError(
                argument="uri",
                reason=f"{uri!r} names the host {host!r}",
                remedy="A local file has three slashes: file:///folder",
            )
        plain = slash + rest
    if not plain.startswith("/"):
        raise InvalidInputError(
            argument="uri",
            reason=f"{uri!r} is not absolute",
            remedy="Use a plain path for one that is relative to the working folder",
        )
    # Bytes that are no UTF-8 come out as the operating system's own stand-ins for them.
    return unquote(plain, errors="surrogateescape") if decode else plain


def without_secrets(uri: str) -> str:
    """Return a URI for messages: no user, password, or values of its query."""
    return _QUERY.sub(r"\1=…", _CREDENTIALS.sub("…@", uri))
