"""Random expressions over random rows, with Spark's types, values and errors."""

from __future__ import annotations

import logging
import random
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal, localcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from random_sql import (
    LEAVES,
    SCHEMA,
    TYPES,
    Result,
    by_txlog,
    differences,
    random_expression,
    random_rows,
    type_text,
)

from tests.examples import examples
from txlog.base.errors import InvalidInputError, TxlogError
from txlog.expressions.bind import bind_value
from txlog.expressions.evaluate import evaluate
from txlog.expressions.functions import FUNCTIONS
from txlog.expressions.sql import parse_sql
from txlog.schema.arrow import arrow_type, from_arrow
from txlog.schema.types import DecimalType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Refusals that docs/predicates.md states, by a part of their message.
REFUSED = (
    "named_struct needs different names",
    "needs whole numbers",  # A number is not cast to another type of number.
    "hexadecimal numbers",
    "depends on the day of the cast",
    "have no common type",
    "needs values of one type",
    "does not support array<",  # Sets of floats.
)
# Errors of Spark's analysis for what txlog computes. It does not read `a | f((x, y) -> x)`.
COMPUTED = ("DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES", "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE",
            "ParseException", "Syntax error at or near '|'")  # fmt: skip


def is_documented(text: str, ours: Result, theirs: Result, rows: pa.Table, zone: str) -> bool:
    """Return whether docs/predicates.md states a difference."""
    if ours.refused:
        return any(part in ours.refused for part in REFUSED)
    if theirs.refused:
        return any(part in theirs.refused for part in COMPUTED)
    if theirs.failed and "<=>" in text and set(ours.values) == {False}:
        return True  # No value of the type equals the constant, so none is computed.
    if theirs.failed:
        wide = "get(" in text and "CAST_OVERFLOW" in theirs.failed  # An index beyond 32 bits.
        return wide or ("-(" in text and "rounded half up" in theirs.failed)
    if ours.failed:
        return _is_unneeded(text, theirs, rows, zone)
    return ours.kind == theirs.kind and _as_java_19(ours) == _as_java_19(theirs)


def _is_unneeded(text: str, theirs: Result, rows: pa.Table, zone: str) -> bool:
    """Return whether only values fail that Spark does not compute, or computes without a check."""
    for place, value in enumerate(theirs.values):
        ours = by_txlog(text, rows.slice(place, 1), zone)
        if not ours.failed and ours.values != (value,):
            return False
        wraps = ("so many days", "a timestamp is out of range", "cannot be cast to timestamp")
        unchecked = any(part in ours.failed for part in wraps) or " div " in text
        if ours.failed and not _is_empty(value) and not unchecked and "nanvl" not in text:
            return False
    return True


def _is_empty(value: Any) -> bool:
    """Return whether a value is null, or an array that has only such values."""
    return value is None or (isinstance(value, tuple) and all(map(_is_empty, value)))


_DIGITS = re.compile(r"\d+\.\d+E-?\d+")


def _as_java_19(one: Result) -> str:
    """Return values with seven digits of floats in texts: before Java 19 there are more."""
    return _DIGITS.sub(lambda found: f"{float(found[0]):.6e}", repr(one.values))


@pytest.fixture
def quiet() -> Iterator[None]:
    """Spark's log of failed queries is not ours: many are meant to fail."""
    from pyspark.logger import PySparkLogger

    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    yield
    log.setLevel(level)


def compared(
    spark: SparkSession, seed: int, batches: int, size: int, zone: str = "UTC"
) -> Counter[str]:
    """Compare random expressions with Spark; return what became of them."""
    seen: Counter[str] = Counter()
    found = []
    for place in range(batches):
        chance = random.Random(seed * 10_000 + place)
        wild = 0.15 if place % 3 == 2 else 0.02
        found += differences(spark, chance, size, is_documented, seen, wild=wild, zone=zone)
    assert not found, "\n".join(str(one) for one in sorted(found, key=lambda one: len(one.text)))
    return seen


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("quiet")
def test_random_expressions_mean_what_spark_means(spark: SparkSession) -> None:
    seen = compared(spark, 1, 3, 100)
    assert seen["equal"] > 200


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Melbourne", "+05:30"])
def test_random_expressions_mean_what_spark_means_in_a_zone(spark: SparkSession, zone: str) -> None:
    seen = compared(spark, 3, 1, 100, zone)
    assert seen["equal"] > 60


@pytest.mark.spark
@pytest.mark.exhaustive
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Melbourne"])
def test_many_random_expressions_mean_what_spark_means_in_a_zone(
    spark: SparkSession, zone: str
) -> None:
    seen = compared(spark, 4, 40, 150, zone)
    assert seen.total() > 5_000


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


ODD = ["NULL", "e -> e", "(a, b) -> a", "-1", "2147483648", "'MM'", "'yyyy'", "'$.a'", "'[('"]
ODD += [f"CAST(NULL AS {kind})" for kind in ("STRING", "INT", "DATE", "BOOLEAN", "DECIMAL(5, 2)")]


@pytest.mark.slow
def test_calls_of_any_arguments_raise_errors_of_txlog() -> None:
    chance = random.Random(4)
    (batch,) = random_rows(chance, 8, wild=0.3).combine_chunks().to_batches()
    values = [*ODD, *(value for values in LEAVES.values() for value in values)]
    causes: list[BaseException | None] = []
    for name in FUNCTIONS:
        for _ in range(40):
            given = ", ".join(chance.choice(values) for _ in range(chance.choice((0, 1, 2, 2, 3))))
            try:
                bound, kind = bind_value(parse_sql(f"{name}({given})"), TYPES)
                assert type_text(evaluate(bound, batch).type) == type_text(arrow_type(kind))
            except TxlogError as error:
                causes.append(error.__cause__)
    # A cause that only our own mistakes have would say nothing to the caller.
    assert not [one for one in causes if isinstance(one, TypeError | AttributeError | LookupError)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("d / 2", "decimal128(14, 6): 0.025000"),
        ("(100.00 - e) % 2", "decimal128(5, 4): -1.9999"),
        ("ceil(e)", "decimal128(6, 0): 100000"),
        ("CAST(d AS BOOLEAN)", "bool: True"),
        ("CAST(x AS STRING)", "string: 1.0E7"),
        ("CAST(at AS STRING)", "string: 2024-03-04 05:06:07.5"),
        ("CAST(tu AS TIMESTAMP)", "timestamp: 2024-01-02 03:04:00+00:00"),
        ("CAST(tu AS DATE)", "date32[day]: 2024-01-02"),
        ("try_cast(s AS TIMESTAMP)", "timestamp: None"),
        ("locate(NULL, s)", "int32: None"),
        ("locate(CAST(NULL AS STRING), s)", "int32: None"),
        ("locate('x', s, NULL)", "int32: 0"),
        ("1.25 + locate('x', s, NULL)", "decimal128(13, 2): 1.25"),  # The 0 is no constant.
        ("1.25 + 0", "decimal128(4, 2): 1.25"),
        (
            "CAST(TIMESTAMP '9999-12-31 23:59:59.999999' AS DECIMAL(20, 6))",
            "decimal128(20, 6): 253402300799.999999",
        ),
        ("greatest(at, TIMESTAMP '2020-01-01')", "timestamp: 2024-03-04 05:06:07.500000+00:00"),
        ("st <=> named_struct('a', 1, 'b', 'x')", "bool: True"),
        ("st IN (named_struct('a', 1, 'b', 'x'))", "bool: True"),
        ("li = array(1, 2)", "bool: True"),
        ("num < i", "bool: True"),
        ("date_trunc('DAY', day)", "timestamp: 2024-02-29 00:00:00+00:00"),
        ("sequence(1, 2)", "list<int32>: [1, 2]"),
        ("array_remove(li, 1L)", "list<int64>: [2]"),
    ],
)
def test_a_value_has_the_type_and_form_that_spark_gives_it(text: str, expected: str) -> None:
    moment = datetime(2024, 3, 4, 5, 6, 7, 500_000, UTC)
    row = {
        "d": Decimal("0.05"), "e": Decimal("99999.9999"), "x": 1e7, "at": moment,
        "tu": "2024-01-02 03:04", "s": "x", "st": {"a": 1, "b": "x"}, "li": [1, 2], "num": "7",
        "i": 8, "day": date(2024, 2, 29),
    }  # fmt: skip
    (batch,) = pa.Table.from_pylist([row], SCHEMA).to_batches()
    found = evaluate(bind_value(parse_sql(text), TYPES)[0], batch)
    assert f"{type_text(found.type)}: {found[0].as_py()}" == expected


@pytest.mark.parametrize(
    "text",
    [
        "add_months(day, 2147483647)",
        "day + INTERVAL 9999999 YEARS",
        "at + INTERVAL 300000 YEARS",
        "date_add(day, 2147483647)",
        "at + INTERVAL 200000000 DAYS",
        "w * w",
        "b * 100Y",
    ],
)
def test_values_beyond_the_range_are_errors(text: str) -> None:
    row = {"day": date(2024, 2, 29), "at": datetime(2024, 1, 1, tzinfo=UTC), "b": 100}
    row["w"] = Decimal("9" * 20 + "." + "9" * 18)  # type: ignore[assignment]
    (batch,) = pa.Table.from_pylist([row], SCHEMA).to_batches()
    with pytest.raises(InvalidInputError, match="cannot be computed"):
        evaluate(bind_value(parse_sql(text), TYPES)[0], batch)


LONG = st.decimals(
    min_value=Decimal(-(10**30)), max_value=Decimal(10**30), allow_nan=False, places=6
)


@pytest.mark.slow
@example([Decimal(2**63 - 1)], [Decimal(1)] * 5)
@example([Decimal(2**63 - 1) * 10**11], [Decimal(10**11)] * 5)
@given(st.lists(st.none() | LONG, min_size=1, max_size=5), st.lists(LONG, min_size=5, max_size=5))
@settings(max_examples=examples(200))
@pytest.mark.parametrize("sign", "+-*/%")
@pytest.mark.parametrize("kinds", [((38, 6), (38, 6)), ((38, 0), (37, 6)), ((12, 2), (38, 18))])
def test_decimals_are_those_of_exact_arithmetic(
    sign: str,
    kinds: tuple[tuple[int, int], tuple[int, int]],
    left: list[Decimal | None],
    right: list[Decimal],
) -> None:
    with localcontext() as context:
        context.prec = 120
        sides = []
        for values, (precision, scale) in zip((left, right), kinds, strict=True):
            end = Decimal(10) ** (precision - scale)
            step = Decimal(1).scaleb(-scale)
            cut = [one and (one % end).quantize(step, rounding=ROUND_DOWN) for one in values]
            sides.append(cut[: len(left)])
        types = {name: pa.decimal128(*kind) for name, kind in zip("ab", kinds, strict=True)}
        rows = pa.table({"a": sides[0], "b": sides[1]}, pa.schema(list(types.items())))
        bound, kind = bind_value(parse_sql(f"a {sign} b"), from_arrow(rows.schema))
        assert isinstance(kind, DecimalType)
        functions = {"+": context.add, "-": context.subtract, "*": context.multiply,
                     "/": context.divide, "%": context.remainder}  # fmt: skip
        for a, b in zip(*sides, strict=True):
            (row,) = pa.table({"a": [a], "b": [b]}, rows.schema).to_batches()
            if a is None or (sign in "/%" and not b):
                continue
            exact = functions[sign](a, b).quantize(
                Decimal(1).scaleb(-kind.scale), rounding=ROUND_HALF_UP
            )
            if abs(exact) >= Decimal(10) ** (kind.precision - kind.scale):
                with pytest.raises(InvalidInputError):
                    evaluate(bound, row)
            else:
                assert evaluate(bound, row)[0].as_py() == exact
