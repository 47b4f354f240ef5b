"""Many texts side by side in memory, and where in them some bytes are. Pure."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.actions.text_bytes import WORD_BYTES, text_bytes, words_of

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

_BLOCK = 1 << 19  # What stays in the processor's cache.
_PAIR_BYTES = 2 * WORD_BYTES
_MISSED = _PAIR_BYTES - 1  # So many bytes at the end begin no pair of words.
_FEW = 32  # Texts that are looked at one by one.
_GUESSES = 24


class Haystack:
    """Texts, one behind the other. Places are those of bytes; -1 is none."""

    def __init__(self, texts: pa.Array) -> None:
        """Take a `string` array, of any offset."""
        found = text_bytes(texts)
        first = int(found.starts[0]) if len(texts) else 0
        self.bytes: Bytes = found.used
        self.starts: Places = found.starts.astype(np.int64) - first
        self.ends: Places = found.ends.astype(np.int64) - first
        if texts.null_count:  # A null may have bytes too.
            self.ends = np.where(texts.is_valid(), self.ends, self.starts)

    def where(self, begin: Places, end: Places, needle: bytes) -> Places:
        """Return where some bytes are, between two places in each text: not always at first.

        The texts of a table are alike: mostly, it is as far from the beginning as in another one.
        """
        found = np.full(len(begin), -1, np.int64)
        left = np.flatnonzero(end - begin >= len(needle))
        for _ in range(_GUESSES):
            if len(left) <= _FEW:
                break
            first = left[0]
            at = self._find(needle, int(begin[first]), int(end[first]))
            if at < 0:
                if self._find(needle, 0, len(self.bytes)) < 0:
                    return found
                break
            guess = begin[left] + (at - begin[first])
            fits = (guess + len(needle) <= end[left]) & self.is_at(guess, needle)
            fits[0] = True  # It was seen there, even if that is at the very end.
            found[left[fits]] = guess[fits]
            left = left[~fits]
        if len(left) > _FEW:
            found[left] = self._search(begin[left], end[left], needle)
            left = left[end[left] > len(self.bytes) - _MISSED]
        spans = zip(left.tolist(), begin[left].tolist(), end[left].tolist(), strict=True)
        for row, start, stop in spans:
            found[row] = self._find(needle, start, stop)
        return found

    def is_at(self, places: Places, needle: bytes) -> Mask:
        """Return at which places some bytes are; in the last `_MISSED`, they may be missed."""
        last = max(len(needle) - _PAIR_BYTES, 0)
        most = len(self._pairs) - last
        found: Mask = places < most
        if most <= 0:
            return found
        if not found.all():
            places = np.where(found, places, 0)
        for step in (*range(0, last, _PAIR_BYTES), last):
            part = needle[step : step + _PAIR_BYTES]
            held = self._pairs[places + step].view("<u8").reshape(-1, 2)
            for half in range(0, len(part), WORD_BYTES):
                word = part[half : half + WORD_BYTES]
                found &= held[:, half // WORD_BYTES] & _mask(word) == _word(word)
        return found

    def places_of(self, byte: int) -> Places:
        """Return where a byte is, of which there are few in a text."""
        whole = len(self.bytes) // WORD_BYTES * WORD_BYTES
        found = []
        for start in range(0, whole, _BLOCK):
            is_it = self.bytes[start : min(start + _BLOCK, whole)] == byte
            # Eight bytes at once: in most words, there is none.
            words = np.flatnonzero(is_it.view(np.uint64) != 0)
            lanes = np.flatnonzero(is_it.reshape(-1, WORD_BYTES)[words])
            found.append(words[lanes >> 3] * WORD_BYTES + (lanes & 7) + start)
        return np.concatenate([*found, np.flatnonzero(self.bytes[whole:] == byte) + whole])

    def has(self, byte: int) -> bool:
        """Return whether a byte is anywhere."""
        blocks = range(0, len(self.bytes), _BLOCK)
        return any((self.bytes[start : start + _BLOCK] == byte).any() for start in blocks)

    def _search(self, begin: Places, end: Places, needle: bytes) -> Places:
        """Return where some bytes are first, by all places where they are.

        At the end, they may be missed, as by `is_at`.
        """
        words, first = words_of(self.bytes), needle[:WORD_BYTES]
        wanted, mask = _word(first), _mask(first)
        found = [
            np.flatnonzero(words[start : start + _BLOCK] & mask == wanted) + start
            for start in range(0, len(words), _BLOCK)
        ]
        places = np.concatenate(found)
        places = np.append(places[self.is_at(places, needle)], np.iinfo(np.int64).max)
        at: Places = places[np.searchsorted(places, begin)]
        return np.where(at <= end - len(needle), at, -1)

    def _find(self, needle: bytes, start: int, end: int) -> int:
        """Return where some bytes are first between two places."""
        at = self.bytes[start:end].tobytes().find(needle)
        return at if at < 0 else start + at

    @cached_property
    def _pairs(self) -> NDArray[np.complex128]:
        """All runs of two words, wherever they begin."""
        return words_of(self.bytes, "<c16")


def _word(needle: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(needle, "little"))


def _mask(needle: bytes) -> np.uint64:
    """Return the bits of a word that so many bytes fill."""
    return np.uint64((1 << 8 * len(needle)) - 1)
