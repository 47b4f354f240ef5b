"""Where a few paths stand in the order of many, without sorting the many. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.actions.text_bytes import WORD_BYTES, text_bytes, words_of
from txlog.arrow import arrow_array, pc

_FIRST = np.array([(1 << 64) - (1 << 8 * (8 - count)) for count in range(9)], np.uint64)
"""Which bits of a word are its first bytes, so many."""

Words = NDArray[np.uint64]
Numbers = NDArray[np.int64]


def places_of(wanted: Sequence[bytes], paths: pa.Array) -> tuple[Numbers, Numbers]:
    """Return for each of some paths how many of the others are below it, by their bytes, and alike.

    Eight bytes at a time, from where paths begin to differ, tell ever more of them apart.

    Parameters
    ----------
    wanted
        Ascending, without a null.
    paths
        A `binary` or `string` array, of any offset, without a null.
    """
    if not len(paths) or not wanted:
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.int64)
    asked = arrow_array(wanted, pa.binary())
    ends = pc.min_max(paths.cast(pa.binary())).as_py()
    start = _shared(min(wanted[0], ends["min"]), max(wanted[-1], ends["max"]))
    longest = pc.max(pc.binary_length(asked)).as_py()
    found = np.zeros(len(paths), np.int64)  # For each path, at which of the wanted ones it stands.
    rows = np.arange(len(paths))
    # Of what is left, and of the wanted ones: the first of these that they are equal to so far.
    alike, ours_alike = np.zeros(len(paths), np.int64), np.zeros(len(wanted), np.int64)
    while len(rows) and start <= longest:
        words = _words(asked, start, np.arange(len(wanted)))
        distinct = np.unique(words)
        scale = 2 * len(distinct) + 2
        ours = ours_alike * scale + _ranks(words, distinct)
        theirs = alike * scale + _ranks(_words(paths, start, rows), distinct)
        first = np.searchsorted(ours, theirs, "left")
        found[rows] = first
        same = np.flatnonzero(first != np.searchsorted(ours, theirs, "right"))
        rows, alike = rows[same], first[same]
        ours_alike = np.searchsorted(ours, ours, "left")
        start += WORD_BYTES
    # They are wanted ones themselves, but for zeros at the end.
    same = np.zeros(len(wanted), np.int64)
    for row, path in zip(
        rows.tolist(), paths.take(arrow_array(rows)).cast(pa.binary()).to_pylist(), strict=True
    ):
        found[row] = bisect_right(wanted, path)
        same[bisect_left(wanted, path) : found[row]] += 1
    return np.cumsum(np.bincount(found, minlength=len(wanted) + 1))[: len(wanted)], same


def _ranks(words: Words, distinct: Words) -> Numbers:
    """Return numbers in the order of words: odd ones for those that are among the distinct."""
    at = np.searchsorted(distinct, words)
    found: Numbers = 2 * at + (distinct[np.minimum(at, len(distinct) - 1)] == words)
    return found


def _shared(least: bytes, greatest: bytes) -> int:
    """Return how many bytes all paths begin with alike: as many as the first and the last one."""
    pairs = enumerate(zip(least, greatest, strict=False))
    return next((at for at, (one, other) in pairs if one != other), len(least))


def _words(paths: pa.Array, start: int, rows: Numbers) -> Words:
    """Return eight bytes of some paths, from a place on, as numbers in the order of the bytes.

    Bytes that are missing count as zeros.
    """
    texts = text_bytes(paths)
    begins, ends = texts.starts[rows] + start, texts.ends[rows]
    words = words_of(texts.held, ">u8")
    # Of the last runs of eight bytes, what comes before is left out.
    last = len(words) - 1
    found: Words = words[np.minimum(begins, last)].astype(np.uint64)
    found <<= (8 * np.clip(begins - last, 0, WORD_BYTES - 1)).astype(np.uint64)
    found &= _FIRST[np.clip(ends - begins, 0, WORD_BYTES)]
    return found
