"""Random expressions over random rows, with Spark's types, values and errors."""

from __future__ import annotations

import logging
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from random_sql import Result, by_txlog, differences, random_expression, random_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Refusals that docs/predicates.md states, by a part of their message.
REFUSED = (
    "named_struct needs different names",
    "needs whole numbers, not",  # A number is not cast to another type of number.
    "hexadecimal numbers",
    "depends on the day of the cast",
    "have no common type",
    "needs values of one type",
)
# Errors of Spark's analysis for what txlog computes.
COMPUTED = ("DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES", "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE")


def is_documented(text: str, ours: Result, theirs: Result, rows: pa.Table) -> bool:
    """Return whether docs/predicates.md states a difference."""
    if ours.refused:
        return any(part in ours.refused for part in REFUSED)
    if theirs.refused:
        return any(part in theirs.refused for part in COMPUTED)
    if theirs.failed:
        wide = "get(" in text and "CAST_OVERFLOW" in theirs.failed  # An index beyond 32 bits.
        return wide or ("-(" in text and "rounded half up" in theirs.failed)
    if ours.failed:
        return _is_unneeded(text, theirs, rows)
    return ours.kind == theirs.kind and _as_java_19(ours) == _as_java_19(theirs)


def _is_unneeded(text: str, theirs: Result, rows: pa.Table) -> bool:
    """Return whether only values fail that Spark does not compute, or computes without a check."""
    for place, value in enumerate(theirs.values):
        ours = by_txlog(text, rows.slice(place, 1))
        if not ours.failed and ours.values != (value,):
            return False
        wraps = ("so many days", "a timestamp is out of range", "cannot be cast to timestamp")
        unchecked = any(part in ours.failed for part in wraps) or " div " in text
        if ours.failed and value is not None and not unchecked and "nanvl" not in text:
            return False
    return True


_DIGITS = re.compile(r"\d+\.\d+E-?\d+")


def _as_java_19(one: Result) -> str:
    """Return values with the fewest digits of floats: before Java 19 there are more in texts."""
    return _DIGITS.sub(lambda found: repr(float(found[0])), repr(one.values))


@pytest.fixture
def quiet() -> Iterator[None]:
    """Spark's log of failed queries is not ours: many are meant to fail."""
    log = logging.getLogger("SQLQueryContextLogger")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    yield
    log.setLevel(level)


def compared(spark: SparkSession, seed: int, batches: int, size: int) -> Counter[str]:
    """Compare random expressions with Spark; return what became of them."""
    seen: Counter[str] = Counter()
    found = []
    for place in range(batches):
        chance = random.Random(seed * 10_000 + place)
        wild = 0.15 if place % 3 == 2 else 0.02
        found += differences(spark, chance, size, is_documented, seen, wild=wild)
    assert not found, "\n".join(str(one) for one in sorted(found, key=lambda one: len(one.text)))
    return seen


@pytest.mark.spark
@pytest.mark.usefixtures("quiet")
def test_random_expressions_mean_what_spark_means(spark: SparkSession) -> None:
    seen = compared(spark, 1, 3, 100)
    assert seen["equal"] > 200


@pytest.mark.spark
@pytest.mark.exhaustive
@pytest.mark.usefixtures("quiet")
def test_many_random_expressions_mean_what_spark_means(spark: SparkSession) -> None:
    seen = compared(spark, 2, 134, 150)
    assert seen.total() > 19_000
    assert seen["refused"] + seen["documented"] < seen.total() / 20


def test_only_errors_of_txlog_are_raised() -> None:
    chance = random.Random(3)
    for wild in (0.0, 0.5):
        rows = random_rows(chance, 8, wild=wild)
        for _ in range(300):
            by_txlog(random_expression(chance), rows)  # It catches these alone.
