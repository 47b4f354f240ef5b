"""Arrow texts as the bytes that they are, to look at many at once. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

WORD_BYTES = 8

Bytes = NDArray[np.uint8]
Places = NDArray[np.int32]


@dataclass(frozen=True)
class TextBytes:
    """The bytes of texts, some that are of no text perhaps, and where each begins and ends."""

    held: Bytes
    starts: Places
    ends: Places

    @property
    def used(self) -> Bytes:
        """The bytes from the first text to the last one."""
        return self.held[self.starts[0] : self.ends[-1]] if len(self.starts) else self.held[:0]


def text_bytes(texts: pa.Array) -> TextBytes:
    """Return the bytes of a `string` array, of any offset; nothing is copied."""
    _, offsets, data = texts.buffers()
    if len(texts) == 0:
        nothing = np.zeros(0, np.int32)
        return TextBytes(np.zeros(0, np.uint8), nothing, nothing)
    places = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    held = np.frombuffer(b"" if data is None else data, np.uint8)
    return TextBytes(held, places[:-1], places[1:])


def words_of(held: Bytes, kind: str = "<u8") -> NDArray[Any]:
    """Return each run of as many bytes as a NumPy type has, wherever it begins, in that type.

    There is at least one: zeros stand for bytes that are missing. To fetch sixteen bytes (`<c16`)
    takes no longer than eight.
    """
    width = np.dtype(kind).itemsize
    if len(held) < width:
        held = np.concatenate([held, np.zeros(width - len(held), np.uint8)])
    return np.ndarray((len(held) - width + 1,), np.dtype(kind), held.data, strides=(1,))


_BLOCK = 1 << 19  # What stays in the processor's cache.


def places_of(held: Bytes, *wanted: int) -> NDArray[np.int64]:
    """Return where bytes of one value, or of two, are among others that are many; ascending."""
    whole = len(held) // WORD_BYTES * WORD_BYTES
    found = []
    for start in range(0, whole, _BLOCK):
        is_it = _is_one_of(held[start : min(start + _BLOCK, whole)], wanted)
        # Eight bytes at once: in most words, there is none.
        words = np.flatnonzero(is_it.view(np.uint64) != 0)
        lanes = np.flatnonzero(is_it.reshape(-1, WORD_BYTES)[words])
        found.append(words[lanes >> 3] * WORD_BYTES + (lanes & 7) + start)
    return np.concatenate([*found, np.flatnonzero(_is_one_of(held[whole:], wanted)) + whole])


def _is_one_of(held: Bytes, wanted: tuple[int, ...]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = held == wanted[0]
    for byte in wanted[1:]:
        found |= held == byte
    return found
