"""Deleted positions as bits in 64-bit words, in which Spark looks up rows.

Rule: spec/spark.md, SPK-6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from txlog.base.threads import Engine, cached_property
from txlog.base.thresholds import Threshold
from txlog.fragments.deletion_vector import as_array
from txlog.fragments.fragment import Fragment
from txlog.scan.deletions import load_deletions
from txlog.scan.read import FragmentReader
from txlog.scan.read_plan import ReadPlan
from txlog.spark_ext.reads.parquet_columns import POSITION
from txlog.spark_ext.reads.places import FRAGMENT_COLUMN, Constant
from txlog.store.base import Store

WORD = 64
WORD_BYTES = 8


@dataclass(frozen=True)
class Vectors:
    """The deleted rows of fragments: for each, the number of all rows and the words."""

    rows: tuple[int, ...]
    words: tuple[pa.Array, ...]  # int64; enough words for all rows.

    @property
    def nbytes(self) -> int:
        """The bytes of all words."""
        return sum(words.nbytes for words in self.words)

    @cached_property
    def starts(self) -> list[int]:
        """The start of each fragment's words in one sequence of all words.

        A start and the number of a word within its fragment have no bits in common. So their
        bitwise OR is the place of the word. It is faster than a sum, for which Spark checks
        overflows.
        """
        starts, free = [0] * len(self.words), 0
        spans = [1 << max(len(words) - 1, 0).bit_length() for words in self.words]
        for at in sorted(range(len(spans)), key=spans.__getitem__, reverse=True):
            starts[at], free = free, free + spans[at]
        return starts

    @property
    def is_small(self) -> bool:
        """Whether rows are looked up in one sequence of all words, not by their fragment's id."""
        return max(self._ends, default=0) * WORD_BYTES <= INLINE_BYTES

    def line(self) -> pa.Array:
        """Return the sequence of all words, with zeros between those of the fragments."""
        line = np.zeros(max(self._ends, default=0), np.int64)
        for start, end, words in zip(self.starts, self._ends, self.words, strict=True):
            line[start:end] = words
        return pa.array(line)

    @property
    def _ends(self) -> list[int]:
        return [start + len(words) for start, words in zip(self.starts, self.words, strict=True)]


def word_bytes(rows: int) -> int:
    """Return the bytes of the words for a number of rows."""
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


# Up to this size all words are one constant of the plan, and each task gets a copy of it: this is
# the fastest look-up. Larger sequences are broadcast: each executor gets one copy.
INLINE_BYTES: Threshold = 16 * 1024 * 1024

_ROWS = "_txlog_rows"
_START = "_txlog_start"
_WORDS = "_txlog_words"
_OWNER = "_txlog_owner"

# If the array has no nulls, a look-up is a single memory access.
_ARROW_WORDS = pa.list_(pa.field("element", pa.int64(), False))
_SPARK_WORDS = ArrayType(LongType(), containsNull=False)

_WORD = f"CAST(shiftright({POSITION}, 6) AS INT)"
# A missing position must be an error. If this expression were null, Spark would drop the row
# without an error.
_BIT = f"shiftleft(1L, CAST(coalesce({POSITION}, 0L) & 63 AS INT))"
# It has no quotes, because it is inserted into SQL.
_DISTRUST = (
    "[data-file] a file has more rows than the log states, so its deletion vector is not reliable: "
    "the writer of the log wrote a wrong numRecords"
)


def vector_constants(vectors: Vectors, ids: pa.Array) -> list[Constant]:
    """Return the constants of each file for look-ups; the vectors are ordered by fragment id."""
    places = pc.array_sort_indices(pc.array_sort_indices(ids))  # The rank of each id.
    rows = pa.array(vectors.rows, pa.int64()).cast(pa.string()).take(places)
    starts = pa.array(vectors.starts, pa.int64()).cast(pa.string()).take(places)
    return [
        Constant(_ROWS, rows, _ROWS, kind="long"),
        Constant(_START, starts, _START, kind="integer"),
    ]


def alive(spark: SparkSession, frame: DataFrame, vectors: Vectors, ids: pa.Array) -> DataFrame:
    """Return the rows of a frame that are not deleted; it has the columns of `vector_constants`."""
    if vectors.is_small:
        line = vectors.line()
        lists = pa.ListArray.from_arrays([0, len(line)], line)
        table = pa.table([lists.cast(_ARROW_WORDS)], names=[_WORDS])
        schema = StructType([StructField(_WORDS, _SPARK_WORDS, False)])
        words = spark.createDataFrame(table, schema).scalar()
        word = F.get(words, F.expr(_checked(f"{_WORD} | {_START}")))
        return frame.where(word.bitwiseAND(F.expr(_BIT)) == 0)
    offsets = pa.array(np.cumsum([0, *map(len, vectors.words)]), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, pa.concat_arrays(vectors.words)).cast(_ARROW_WORDS)
    table = pa.table([ids.sort(), lists], names=[_OWNER, _WORDS])
    schema = StructType(
        [StructField(_OWNER, LongType(), False), StructField(_WORDS, _SPARK_WORDS, False)]
    )
    owned = F.broadcast(spark.createDataFrame(table, schema))
    found = frame.join(owned, F.col(FRAGMENT_COLUMN) == F.col(_OWNER))
    found = found.where(f"get({_WORDS}, {_checked(_WORD)}) & {_BIT} = 0")
    return found.drop(_OWNER, _WORDS)


def _checked(place: str) -> str:
    """Return SQL for the place of a row's word.

    A missing or too large position is an error, because deleted rows would reappear.
    """
    return f"IF({POSITION} < {_ROWS}, {place}, CAST(raise_error('{_DISTRUST}') AS INT))"
