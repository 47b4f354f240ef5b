"""Texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SCHEME = r"[a-zA-Z][a-zA-Z0-9+.-]*(?:::[^\s/'\"`]*)?://"
# A key of S3 may contain slashes. `host:80/` is no password, but a bucket has no port.
_USER = re.compile(r"(\w*)://([^/\s]*|[^/:@\s]+:(?!\d+/)[^@]*)@")
_KEY = re.compile(
    r"\b(s3[an]?|gc?s|az|azure|adl|abfss?|wasbs?|oss|cosn?|obs|r2|memory)://([^/:@\s]+:[^@]*)@",
    re.IGNORECASE,
)
_VALUE = re.compile(r"(?:(?<=&)|^)([^=&]+)=[^&]*")
_CONTAINERS = ("abfs", "abfss", "wasb", "wasbs")  # `abfss://container@account…` has no user.
_IN_SENTENCE = re.compile(
    rf"""(?P<quote>['"`])(?P<quoted>{_SCHEME}(?:\\.|(?!(?P=quote)).)*)(?=(?P=quote))"""
    rf"""|{_SCHEME}\S*[^\s.,;:)'"`\]]"""
)


def without_secrets(uri: str) -> str:
    """Return a URI for messages, without user, password and values of the query.

    Paths are returned unchanged. In a `file:` URI, `?` belongs to the path.
    """
    # A URI begins with its scheme, and a path may contain `://`.
    if "://" not in uri or "/" in uri.partition("://")[0]:
        return uri
    shown = uri
    if "@" in uri:
        shown = _USER.sub(_without_user, _KEY.sub(r"\1://…@", uri))
    place, mark, query = shown.partition("?")  # A password may contain `?`, too.
    if mark and uri[:5].lower() != "file:":
        query = _VALUE.sub(r"\1=…", query)
    return place + mark + query


def _without_user(found: re.Match[str]) -> str:
    is_container = found[1].lower() in _CONTAINERS and ":" not in found[2]
    return found[0] if is_container else f"{found[1]}://…@"


def without_secrets_within(sentence: str) -> str:
    """Return a sentence with each URI in it as `without_secrets` writes it."""
    if "://" not in sentence:
        return sentence
    return _IN_SENTENCE.sub(_cleaned, sentence)


def _cleaned(found: re.Match[str]) -> str:
    if found["quote"]:
        return found["quote"] + without_secrets(found["quoted"])
    return without_secrets(found[0])


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode a text: it contains no lone UTF-16 surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# Control characters but the line feed, separators of lines, marks of direction, lone surrogates.
_UNSEEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
    "\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """Return a text as a terminal shall show it: characters that would steer it as escapes.

    Line feeds stay. So a value can neither move the cursor nor hide or reorder other text.
    """
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def unique_names(names: Iterable[str]) -> list[str]:
    """Return names in their order, each once: the second `a` is `a_1`."""
    given = list(names)
    taken = set(given)
    found: list[str] = []
    seen: set[str] = set()
    for name in given:
        own, number = name, 0
        while own in seen or (number and own in taken):
            number += 1
            own = f"{name}_{number}"
        seen.add(own)
        found.append(own)
    return found


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


def runs_of(numbers: Iterable[int]) -> list[range]:
    """Return ascending whole numbers as runs of those that follow each other."""
    runs: list[range] = []
    for number in numbers:
        if runs and number == runs[-1].stop:
            runs[-1] = range(runs[-1].start, number + 1)
        else:
            runs.append(range(number, number + 1))
    return runs


def runs_text(runs: Sequence[range], most: int = 5) -> str:
    """Return runs of whole numbers as text, by their ends: `3, 5 to 9 and 2 more`.

    A run may have any length: its numbers are not counted one by one.

    Parameters
    ----------
    runs
        None is empty.
    most
        The number of runs that are named.
    """
    texts = [
        f"{run.start} to {run.stop - 1}" if run.stop - run.start > 1 else str(run.start)
        for run in runs[:most]
    ]
    left = sum(run.stop - run.start for run in runs[most:])
    return ", ".join(texts) + (f" and {left} more" if left else "")
