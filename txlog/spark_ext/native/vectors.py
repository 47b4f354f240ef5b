"""Deleted positions as words of bits, which Spark looks rows up in.

Rule: spec/spark.md, SPK-6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from txlog.fragments.deletion_vector import as_array
from txlog.fragments.fragment import Fragment
from txlog.scan.deletions import load_deletions
from txlog.scan.engine import Engine
from txlog.scan.plan import ReadPlan
from txlog.scan.read import FragmentReader
from txlog.store.base import Store
from txlog.threads import cached_property

WORD = 64
WORD_BYTES = 8


@dataclass(frozen=True)
class Vectors:
    """The deleted rows of fragments: for each its number of rows, and their words."""

    rows: tuple[int, ...]
    words: tuple[pa.Array, ...]  # int64; as many as the rows need.

    @property
    def nbytes(self) -> int:
        """How many bytes all words have."""
        return sum(words.nbytes for words in self.words)

    @cached_property
    def starts(self) -> list[int]:
        """Where each fragment's words begin, if those of all are put in one line.

        All bits of a start are above those that number the fragment's own words. So the place of a
        word is the two of them joined, and no sum, which Spark would check for an overflow.
        """
        starts, free = [0] * len(self.words), 0
        spans = [1 << max(len(words) - 1, 0).bit_length() for words in self.words]
        for at in sorted(range(len(spans)), key=spans.__getitem__, reverse=True):
            starts[at], free = free, free + spans[at]
        return starts

    @property
    def line_bytes(self) -> int:
        """How many bytes the words of all take in one line."""
        return max(self._ends, default=0) * WORD_BYTES

    def line(self) -> pa.Array:
        """Return all words in one line; what is between those of fragments is empty."""
        line = np.zeros(max(self._ends, default=0), np.int64)
        for start, end, words in zip(self.starts, self._ends, self.words, strict=True):
            line[start:end] = words
        return pa.array(line)

    @property
    def _ends(self) -> list[int]:
        return [start + len(words) for start, words in zip(self.starts, self.words, strict=True)]


def word_bytes(rows: int) -> int:
    """Return how many bytes the words of so many rows have."""
    return -(-rows // WORD) * WORD_BYTES


def deletion_words(deleted: BitMap64 | None, rows: int) -> pa.Array:
    """Return positions as int64 words, for all of a file's rows.

    Bit i of word w is position 64 × w + i.
    """
    bits = np.zeros(word_bytes(rows) * 8, np.bool_)
    if deleted:
        bits[as_array(deleted).to_numpy()] = True
    return pa.array(np.packbits(bits, bitorder="little").view("<i8"))


def load_vectors(
    store: Store, plan: ReadPlan, fragments: Sequence[Fragment], engine: Engine
) -> Vectors:
    """Return the deleted rows of fragments; errors are those of `load_deletions`."""
    found = list(engine.map(partial(_load, store, plan), fragments))
    return Vectors(tuple(rows for rows, _ in found), tuple(words for _, words in found))


def _load(store: Store, plan: ReadPlan, fragment: Fragment) -> tuple[int, pa.Array]:
    rows = fragment.physical_rows
    if rows is None:
        rows = FragmentReader(store, plan, fragment).count_rows()
    deleted = load_deletions(store, replace(fragment, physical_rows=rows))
    return rows, deletion_words(deleted, rows)
