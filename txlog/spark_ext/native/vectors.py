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

from txlog.fragments import Fragment
from txlog.fragments.positions import as_array
from txlog.scan import Engine, FragmentReader, ReadPlan, load_deletions
from txlog.store import Store

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

    @property
    def starts(self) -> list[int]:
        """Where each fragment's words begin, if those of all are put in one line."""
        return [0, *np.cumsum([len(words) for words in self.words]).tolist()][:-1]


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
