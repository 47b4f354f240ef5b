"""Leaving deleted rows out, inside of Spark.

Rule: spec/spark.md, SPK-6.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from txlog.spark_ext.native.columns import POSITION
from txlog.spark_ext.native.places import FRAGMENT_COLUMN
from txlog.spark_ext.native.types import Constant
from txlog.spark_ext.native.vectors import Vectors

# Up to here all words are one value of the plan, which each task gets a copy of: that is the
# quickest to look up. More of them are broadcast, once for each executor.
INLINE_BYTES = 16 * 1024 * 1024

_ROWS = "_txlog_rows"
_START = "_txlog_start"
_WORDS = "_txlog_words"
_OWNER = "_txlog_owner"

# Without nulls in the array, a look-up is one load.
_ARROW_WORDS = pa.list_(pa.field("element", pa.int64(), False))
_SPARK_WORDS = ArrayType(LongType(), containsNull=False)

_WORD = f"CAST(shiftright({POSITION}, 6) AS INT)"
# Where a position is missing, Spark must not leave the row out before it is an error: it does for
# an expression that is null with it.
_BIT = f"shiftleft(1L, CAST(coalesce({POSITION}, 0L) & 63 AS INT))"
# It is part of SQL as it is, so it has no quotes.
_DISTRUST = (
    "[data-file] a file has more rows than the log says, so its deletion vector cannot be trusted: "
    "numRecords is wrong, and the writer of the log is at fault"
)


def constants(vectors: Vectors, ids: pa.Array) -> list[Constant]:
    """Return what looking up needs of each file; the vectors are ordered by fragment id."""
    places = pc.array_sort_indices(pc.array_sort_indices(ids))  # The rank of each.
    rows = pa.array(vectors.rows, pa.int64()).cast(pa.string()).take(places)
    starts = pa.array(vectors.starts, pa.int64()).cast(pa.string()).take(places)
    return [
        Constant(_ROWS, rows, _ROWS, kind="long"),
        Constant(_START, starts, _START, kind="integer"),
    ]


def alive(spark: SparkSession, frame: DataFrame, vectors: Vectors, ids: pa.Array) -> DataFrame:
    """Return the rows of a frame, which has the constants, that are not deleted."""
    if vectors.line_bytes <= INLINE_BYTES:
        line = vectors.line()
        held = pa.ListArray.from_arrays([0, len(line)], line)
        table = pa.table([held.cast(_ARROW_WORDS)], names=[_WORDS])
        schema = StructType([StructField(_WORDS, _SPARK_WORDS, False)])
        words = spark.createDataFrame(table, schema).scalar()
        word = F.get(words, F.expr(_checked(f"{_WORD} | {_START}")))
        return frame.where(word.bitwiseAND(F.expr(_BIT)) == 0)
    offsets = pa.array(np.cumsum([0, *map(len, vectors.words)]), pa.int32())
    held = pa.ListArray.from_arrays(offsets, pa.concat_arrays(vectors.words)).cast(_ARROW_WORDS)
    table = pa.table([ids.sort(), held], names=[_OWNER, _WORDS])
    schema = StructType(
        [StructField(_OWNER, LongType(), False), StructField(_WORDS, _SPARK_WORDS, False)]
    )
    owned = F.broadcast(spark.createDataFrame(table, schema))
    found = frame.join(owned, F.col(FRAGMENT_COLUMN) == F.col(_OWNER))
    found = found.where(f"get({_WORDS}, {_checked(_WORD)}) & {_BIT} = 0")
    return found.drop(_OWNER, _WORDS)


def _checked(place: str) -> str:
    """Return SQL for the place of a row's word.

    A position that is not there, or too high, would bring deleted rows back: it is an error.
    """
    return f"IF({POSITION} < {_ROWS}, {place}, CAST(raise_error('{_DISTRUST}') AS INT))"
