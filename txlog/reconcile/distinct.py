"""Whether texts are all different, told from hashes of their ends. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.actions.text_bytes import WORD_BYTES, TextBytes, text_bytes, words_of

_WORDS = 4
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)

Hashes = NDArray[np.uint64]


def text_hashes(texts: pa.Array) -> Hashes:
    """Return a number for each text: equal texts have equal ones, other texts mostly not.

    It is made of the length and of the last 32 bytes (less, of shorter texts, by whole eights),
    which is where the names of files differ. A null counts as the empty text.

    Parameters
    ----------
    texts
        A `string` array, of any offset.
    """
    held = text_bytes(texts)
    found = (held.ends - held.starts).astype(np.uint64) * _PRIME
    for word in _last_words(held):
        found = (found ^ word) * _PRIME
        found ^= found >> _SHIFT
    return found


def _last_words(texts: TextBytes) -> Iterator[NDArray[np.uint64]]:
    """Yield eight bytes of each text, backwards from its end; 0 where there are not as many."""
    starts, ends = texts.starts, texts.ends
    if (ends - starts >= WORD_BYTES * _WORDS).all():
        pairs = words_of(texts.held, "<c16")
        for back in range(2, _WORDS + 1, 2):
            pair = pairs[ends - WORD_BYTES * back].view("<u8").reshape(-1, 2)
            yield from (pair[:, 1], pair[:, 0])
        return
    words = words_of(texts.held)
    for back in range(1, _WORDS + 1):
        at = ends - WORD_BYTES * back
        yield np.where(at >= starts, words[np.maximum(at, 0)], 0)


def are_distinct(hashes: Hashes) -> bool:
    """Return whether no two numbers are equal."""
    ordered = np.sort(hashes)
    return not bool((ordered[1:] == ordered[:-1]).any())
