"""Whether texts are all different, told from hashes of their ends. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.actions import WORD_BYTES, text_bytes, words_of

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
    starts, ends = held.starts, held.ends
    found = (ends - starts).astype(np.uint64) * _PRIME
    words = words_of(held.held)
    for back in range(WORD_BYTES, WORD_BYTES * _WORDS + 1, WORD_BYTES):
        at = ends - back
        inside = at >= starts
        word = words[at] if inside.all() else np.where(inside, words[np.maximum(at, 0)], 0)
        found = (found ^ word) * _PRIME
        found ^= found >> _SHIFT
    return found


def are_distinct(hashes: Hashes) -> bool:
    """Return whether no two numbers are equal."""
    ordered = np.sort(hashes)
    return not bool((ordered[1:] == ordered[:-1]).any())
