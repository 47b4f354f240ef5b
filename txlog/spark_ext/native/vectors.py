"""Deleted positions as words of bits, which Spark looks rows up in.

Rule: spec/spark.md, SPK-6.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from txlog.fragments import Fragment
from txlog.fragments.positions import as_array
from txlog.scan import Engine, load_deletions
from txlog.store import Store

WORD = 64

# Spark's tasks look each row's bit up: without nulls in the array, that is one load.
VECTORS = pa.schema(
    [
        pa.field("_txlog_vector", pa.int64(), False),  # The fragment's id.
        pa.field("_txlog_words", pa.list_(pa.field("element", pa.int64(), False)), False),
    ]
)


def deletion_words(deleted: BitMap64 | None) -> pa.Array:
    """Return positions as int64 words: bit i of word w is position 64 × w + i.

    There are no more words than the last position needs.
    """
    if not deleted:
        return pa.array([], pa.int64())
    bits = np.zeros(-(-(deleted.max() + 1) // WORD) * WORD, np.bool_)
    bits[as_array(deleted).to_numpy()] = True
    return pa.array(np.packbits(bits, bitorder="little").view("<i8"))


def deletion_table(store: Store, fragments: Sequence[Fragment], engine: Engine) -> pa.Table:
    """Return the deleted positions of fragments, one row of `VECTORS` for each.

    Errors are those of `load_deletions`.
    """
    found = list(engine.map(partial(_words, store), fragments))
    ids = pa.array([fragment.id for fragment in fragments], pa.int64())
    offsets = pa.array(np.cumsum([0, *(len(words) for words in found)]), pa.int32())
    words = pa.concat_arrays(found or [deletion_words(None)])
    lists = pa.ListArray.from_arrays(offsets, words, type=VECTORS.field("_txlog_words").type)
    return pa.table([ids, lists], schema=VECTORS)


def _words(store: Store, fragment: Fragment) -> pa.Array:
    return deletion_words(load_deletions(store, fragment))
