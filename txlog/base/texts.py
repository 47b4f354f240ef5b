"""Texts."""

from __future__ import annotations

from collections.abc import Iterable


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode a text: it contains no lone UTF-16 surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def number_or_name(text: str) -> int | str:
    """Return a text of digits that fits 64 bits as a number, and other texts unchanged."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else text


def version_of(text: str | None) -> int | str | None:
    """Return the version that a text means, a number or the name of a pin; None for None.

    Digits are a number, however many: no pin has such a name, and a number says which versions
    exist. Python reads no number of thousands of digits, so such a text stays a name.
    """
    if text is None or len(text) > 200 or not (text.isascii() and text.isdigit()):
        return text
    return int(text)


def runs_text(numbers: Iterable[int], most: int = 5) -> str:
    """Return ascending whole numbers as text, runs of them by their ends: `3, 5 to 9 and 2 more`.

    `most`: the number of runs that are named.
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [f"{low} to {high}" if high > low else str(low) for low, high in runs[:most]]
    left = sum(high - low + 1 for low, high in runs[most:])
    return ", ".join(texts) + (f" and {left} more" if left else "")
