"""Bit arrays: packed numbers, and the positions of ones and zeros. Pure. Rules: spec/lookup.md."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlog.base.thresholds import Threshold
from txlog.lookup.keys import Encodings, Numbers

BLOCK_WORDS = 8  # The zeros before each group of eight words of a bit array are counted.

_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)


def ones(words: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the number of set bits of each unsigned number."""
    counts: NDArray[np.uint8]
    if hasattr(np, "bitwise_count"):  # Since numpy 2.
        counts = np.bitwise_count(words)
    else:
        octets = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape, words.itemsize)
        counts = _ONES[octets].sum(axis=-1, dtype=np.uint8)
    return counts


_GROUPS: Threshold = 1_024  # The values of one step: they fit into the cache of a processor.


def pack(values: Encodings, bits: int) -> Encodings:
    """Return values packed one after another with `bits` bits each; a word of zeros follows.

    Each 64 values take `bits` words.
    """
    whole = len(values) // 64 * 64
    last = np.zeros(64, np.uint64)
    last[: len(values) - whole] = values[whole:]
    packed = np.zeros(packed_words(len(values), bits), np.uint64)
    words = packed[:-1].reshape(-1, bits) if bits else packed[:0].reshape(0, 1)
    for begin in range(0, len(words), _GROUPS):
        given = values[64 * begin : min(64 * (begin + _GROUPS), whole)].reshape(-1, 64)
        _pack_groups(given, words[begin : begin + len(given)], bits)
    if whole < len(values) and bits:
        _pack_groups(last[None], words[-1:], bits)
    return packed


def _pack_groups(given: Encodings, words: Encodings, bits: int) -> None:
    for place in range(64):
        word, offset = divmod(place * bits, 64)
        words[:, word] |= given[:, place] << np.uint64(offset)
        if offset + bits > 64:
            words[:, word + 1] |= given[:, place] >> np.uint64(64 - offset)


def packed_words(count: int, bits: int) -> int:
    """Return the number of words that `pack` returns."""
    return -(-count // 64) * bits + 1


def unpack(words: Encodings, bits: int, count: int) -> Encodings:
    """Return the values that `pack` has packed."""
    if not bits:
        return np.zeros(count, np.uint64)
    groups = words[:-1].reshape(-1, bits)
    values = np.empty((len(groups), 64), np.uint64)
    for begin in range(0, len(groups), _GROUPS):
        some, given = values[begin : begin + _GROUPS], groups[begin : begin + _GROUPS]
        for place in range(64):
            word, offset = divmod(place * bits, 64)
            some[:, place] = given[:, word] >> np.uint64(offset)
            if offset + bits > 64:
                some[:, place] |= given[:, word + 1] << np.uint64(64 - offset)
    found: Encodings = values.reshape(-1)[:count] & low_mask(bits)
    return found


def packed_at(words: Encodings, bits: int, places: Numbers) -> Encodings:
    """Return the packed values at the given places."""
    if not bits:
        return np.zeros(len(places), np.uint64)
    starts = places * bits
    word = starts >> 6
    offset = (starts & 63).astype(np.uint64)
    high = (words[word + 1] << np.uint64(1)) << (np.uint64(63) - offset)
    found: Encodings = ((words[word] >> offset) | high) & low_mask(bits)
    return found


def low_mask(bits: int) -> np.uint64:
    """Return the number whose lowest `bits` bits are ones."""
    return np.uint64((1 << bits) - 1)


def _bit_table() -> NDArray[np.uint8]:
    """Return the position of the n-th one of each byte."""
    table = np.zeros((256, 8), np.uint8)
    for byte in range(256):
        places = [bit for bit in range(8) if byte >> bit & 1]
        table[byte, : len(places)] = places
    return table


BIT_PLACES = _bit_table()


def holding(counts: NDArray[np.uint8], left: Numbers, every: Numbers) -> tuple[Numbers, Numbers]:
    """Return for each row of counts the part with the n-th one, and the rank of that one in it."""
    sums = np.cumsum(counts, axis=1, dtype=np.int64)
    part = np.minimum((sums <= left[:, None]).sum(axis=1), counts.shape[1] - 1)
    return part, np.minimum(left - sums[every, part] + counts[every, part], 63)


def zeros_before(upper: Encodings) -> NDArray[np.uint32]:
    """Return the number of zeros before each block of words, and the total number."""
    blocks = ones(~upper).reshape(-1, BLOCK_WORDS).sum(axis=1, dtype=np.uint64)
    return np.append(np.uint64(0), np.cumsum(blocks)).astype(np.uint32)


def expanded(starts: Numbers, counts: Numbers) -> Numbers:
    """Return the numbers in ranges, one range after the other."""
    begins = starts - (np.cumsum(counts) - counts)
    found: Numbers = np.arange(int(counts.sum())) + np.repeat(begins, counts)
    return found
