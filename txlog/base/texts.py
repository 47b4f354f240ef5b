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


def version_of(text: str | None) -> int | str | None:
    """Return the version that a text means: a number, or the name of a pin."""
    return int(text) if text is not None and text.isdecimal() else text
