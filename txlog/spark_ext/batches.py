"""The batches in which Spark hands rows to Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    YearMonthIntervalType,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_MAX_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
# Spark adds up the bytes of all columns after each row, but not for this limit.
_UNCOUNTED = str(2**31 - 1)

_BATCH_BYTES = 64 * 1024 * 1024  # Spark's own limit, where a session has none.
_ROWS = 10_000  # As well.
_ROWS_WITH_TEXT = 1_000
_VALUE_BYTES = 16  # At most, with its share of what says whether it is null.
_OF_ONE_WIDTH = (
    NumericType,
    BooleanType,
    DateType,
    TimestampType,
    TimestampNTZType,
    DayTimeIntervalType,
    YearMonthIntervalType,
    NullType,
)
_OF_TEXT = (StringType, CharType, VarcharType)

_changing = Lock()


@contextmanager
def batches_by_rows(df: DataFrame) -> Iterator[None]:
    """Have Spark end batches by rows alone, where the frame lets their number bound their bytes.

    It holds for what is computed in the `with`, and for what else the session starts meanwhile. A
    limit of bytes that the session was given stays as it is.
    """
    spark = df.sparkSession
    rows = rows_in_batch(df.schema)
    if rows is None or _gives_python_rows(df):
        yield
        return
    with _changing:
        counted = spark.conf.get(_MAX_BYTES, None) is None
        asked = spark.conf.get(_MAX_ROWS, None) if counted else None
        if counted:
            spark.conf.set(_MAX_BYTES, _UNCOUNTED)
            spark.conf.set(_MAX_ROWS, str(_fewer(rows, asked)))
    try:
        yield
    finally:
        if counted:
            with _changing:
                spark.conf.unset(_MAX_BYTES)
                if asked is None:
                    spark.conf.unset(_MAX_ROWS)
                else:
                    spark.conf.set(_MAX_ROWS, asked)


def _gives_python_rows(df: DataFrame) -> bool:
    """Whether computing the frame may call other Python functions, with rows of other lengths."""
    # Nothing public returns the plan, and its Python functions have no common name. What is behind
    # an RDD it does not tell.
    if hasattr(df, "_jdf"):
        plan = df._jdf.queryExecution().executedPlan().toString()
    else:
        plan = df._explain_string()  # type: ignore[operator]  # Of Spark Connect.
    return re.search("(?i)python|pandas|arrow|rdd", plan) is not None


def rows_in_batch(schema: StructType) -> int | None:
    """Return how many rows a batch may have with no look at their bytes; None: it takes one. Pure.

    Texts of an uncommon length, over 64 KB on average, still make larger batches than Spark would.
    """
    leaves = list(_leaves(schema))
    if not all(isinstance(leaf, (*_OF_ONE_WIDTH, *_OF_TEXT)) for leaf in leaves):
        return None
    most = _ROWS_WITH_TEXT if any(isinstance(leaf, _OF_TEXT) for leaf in leaves) else _ROWS
    return max(1, min(most, _BATCH_BYTES // (_VALUE_BYTES * max(1, len(leaves)))))


def _leaves(kind: DataType) -> Iterator[DataType]:
    if not isinstance(kind, StructType):
        yield kind
        return
    for field in kind.fields:
        yield from _leaves(field.dataType)


def _fewer(rows: int, asked: str | None) -> int:
    """Return the lower of two limits; that of the session may be none, which is 0 or less."""
    limit = _ROWS if asked is None else int(asked)
    return min(rows, limit) if limit > 0 else rows
