"""The bytes of Arrow texts as NumPy arrays, to search many texts at once. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from txlog.base.thresholds import Threshold

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORD_BYTES = 8

Bytes: TypeAlias = "NDArray[np.uint8]"
Places: TypeAlias = "NDArray[np.int32]"


@dataclass(frozen=True)
class TextBytes:
    """The bytes of strings, and the offsets where each string begins and ends.

    Some bytes may belong to no string.
    """

    data: Bytes
    starts: Places
    ends: Places

    @property
    def used(self) -> Bytes:
        """The bytes from the first string to the last one."""
        return self.data[self.starts[0] : self.ends[-1]] if len(self.starts) else self.data[:0]


def text_bytes(texts: pa.Array) -> TextBytes:
    """Return the bytes of a `string` array of any offset, without a copy."""
    _, offsets, data = texts.buffers()
    if len(texts) == 0:
        nothing = np.zeros(0, np.int32)
        return TextBytes(np.zeros(0, np.uint8), nothing, nothing)
    places = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    characters = np.frombuffer(b"" if data is None else data, np.uint8)
    return TextBytes(characters, places[:-1], places[1:])


def words_of(characters: Bytes, kind: str = "<u8") -> NDArray[Any]:
    """Return a view with one item for each byte: the bytes from there, read as a NumPy type.

    It has at least one item; missing bytes are zeros. Reading sixteen bytes (`<c16`) is as fast as
    reading eight.
    """
    width = np.dtype(kind).itemsize
    if len(characters) < width:
        characters = np.concatenate([characters, np.zeros(width - len(characters), np.uint8)])
    return np.ndarray((len(characters) - width + 1,), np.dtype(kind), characters.data, strides=(1,))


_BLOCK_WORDS: Threshold = 1 << 16  # This much stays in the processor's cache.


def places_of(characters: Bytes, *wanted: int) -> NDArray[np.int64]:
    """Return the positions of bytes that have one of some rare values, ascending."""
    whole = len(characters) // WORD_BYTES * WORD_BYTES
    places, step = [], _BLOCK_WORDS * WORD_BYTES
    for start in range(0, whole, step):
        is_it = _is_one_of(characters[start : min(start + step, whole)], wanted)
        # Test eight bytes at once: most words have no such byte.
        words = np.flatnonzero(is_it.view(np.uint64) != 0)
        lanes = np.flatnonzero(is_it.reshape(-1, WORD_BYTES)[words])
        places.append(words[lanes >> 3] * WORD_BYTES + (lanes & 7) + start)
    return np.concatenate([*places, np.flatnonzero(_is_one_of(characters[whole:], wanted)) + whole])


def _is_one_of(characters: Bytes, wanted: tuple[int, ...]) -> NDArray[np.bool_]:
    is_one: NDArray[np.bool_] = characters == wanted[0]
    for byte in wanted[1:]:
        is_one |= characters == byte
    return is_one
