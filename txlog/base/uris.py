"""Texts of URIs."""

from __future__ import annotations

import re

_CREDENTIALS = re.compile(r"(?<=://)[^/@]*@")
_QUERY = re.compile(r"(?<=[?&])([^=&]+)=[^&]*")


def without_secrets(uri: str) -> str:
    """Return a URI for messages, without user, password and values of the query."""
    if "@" not in uri and "=" not in uri:
        return uri
    return _QUERY.sub(r"\1=…", _CREDENTIALS.sub("…@", uri))
