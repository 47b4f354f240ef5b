"""Whether texts are all different, told from hashes of their ends. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_WORD = 8
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
    count = len(texts)
    _, offsets, data = texts.buffers()
    if count == 0:
        return np.zeros(0, np.uint64)
    places = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + count + 1]
    starts, ends = places[:-1], places[1:]
    found = (ends - starts).astype(np.uint64) * _PRIME
    held = b"" if data is None else data
    if len(memoryview(held)) < _WORD:  # A text has the same number in any array.
        held = bytes(_WORD)
    # All runs of eight bytes, wherever they begin.
    count = len(memoryview(held)) - _WORD + 1
    words = np.ndarray((count,), np.dtype("<u8"), buffer=held, strides=(1,))
    for back in range(_WORD, _WORD * _WORDS + 1, _WORD):
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
