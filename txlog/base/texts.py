"""Texts."""

from __future__ import annotations


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode a text: it contains no lone UTF-16 surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
