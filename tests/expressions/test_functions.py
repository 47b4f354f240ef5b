"""SQL functions, held to Spark's own answers, and to the rules that they state."""

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.errors import InvalidInputError
from txlog.expressions.bind import bind, bind_value, columns_of
from txlog.expressions.evaluate import evaluate
from txlog.expressions.functions import FUNCTIONS
from txlog.expressions.sql import parse_sql, to_sql
from txlog.schema.arrow import from_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("d", pa.decimal128(9, 2)),
        ("s", pa.string()),
        ("t", pa.string()),
        ("f", pa.bool_()),
        ("day", pa.date32()),
        ("day2", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("l", pa.list_(pa.int64())),
        ("m", pa.map_(pa.string(), pa.int64())),
    ]
)
VALUES: dict[str, list[Any]] = {
    "i": [0, 1, -1, 7, 2**31 - 1, -(2**31) + 1],
    "n": [0, 3, -3, 2**53 + 1, -(2**62), 10],
    "x": [0.0, -0.0, 1.5, -2.5, math.nan, math.inf, 1e300, -7.25],
    "d": [Decimal("0.00"), Decimal("1.50"), Decimal("-99.99")],
    "s": ["", "abc", " a b ", "Straße", "ÄÖ😀x", "aXbXc", "%_"],
    "t": ["", "abc", "zz", "Ünïcode", "0"],
    "f": [True, False],
    "day": [date(1970, 1, 1), date(2024, 2, 29), date(1999, 12, 31), date(2021, 1, 3)],
    "day2": [date(2000, 1, 1), date(1969, 7, 20)],
    "at": [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2024, 2, 29, 23, 59, 59, 999_999, UTC),
        datetime(1965, 6, 5, 4, 3, 2, 1, UTC),
    ],
    "l": [[], [1], [1, None, 3]],
    "m": [[], [("k", 1)], [("k", None), ("q", 2)]],
}
TEXTS = [
    "coalesce(i, 5)", "coalesce(x, n)", "coalesce(s, t, '?')", "nvl(day, day2)", "ifnull(d, n)",
    "nullif(i, 7)", "nullif(s, t)", "nvl2(i, s, t)", "if(f, s, t)", "if(i > 0, 1, -1)",
    "CASE WHEN i > 0 THEN 'p' WHEN i < 0 THEN 'm' ELSE s END", "CASE WHEN f THEN x END",
    "CASE i WHEN 1 THEN day WHEN 7 THEN day2 END", "CASE WHEN s = '' THEN 0 ELSE length(s) END",
    "greatest(i, n)", "greatest(x, 1.5e0)", "greatest(s, t)", "greatest(day, day2)",
    "least(i, n, 3)", "least(x, 0e0)", "least(s, t)", "isnull(i)", "isnotnull(s)", "isnan(x)",
    "upper(s)", "lower(t)", "ucase(t)", "lcase(s)", "length(s)", "char_length(t)",
    "concat(s, t)", "s || '-' || t", "concat(s, i)", "concat(day, '!')", "substring(s, 2, 3)",
    "substring(s, 0, 2)", "substring(s, -3, 2)", "substring(s, -9, 8)", "substr(s, 2)",
    "substr(s, -2)", "substring(s, 2, -1)", "left(s, 2)", "left(s, -1)", "right(s, 2)",
    "right(s, 0)", "right(s, 99)", "trim(s)", "ltrim(s)", "rtrim(s)", "reverse(s)",
    "replace(s, 'X', '--')", "replace(s, '', 'q')", "repeat(s, 2)", "repeat(s, -1)",
    "lpad(s, 5, '*')", "rpad(s, 2)", "lpad(t, 0)", "startswith(s, 'a')", "endswith(s, 'c')",
    "contains(s, 'X')", "abs(x)", "abs(n)", "floor(i)", "ceil(n)", "floor(i / 2)", "sqrt(i)",
    "i div 2", "n div i", "year(day)", "month(day)", "day(day)", "dayofmonth(at)", "quarter(day)",
    "dayofweek(day)", "weekday(day)", "dayofyear(day)", "weekofyear(day)", "year(at)", "hour(at)",
    "minute(at)", "second(at)", "last_day(day)", "date_add(day, 3)", "date_sub(day, i % 100)",
    "datediff(day, day2)", "trunc(day, 'MM')", "trunc(day, 'YEAR')", "trunc(day, 'QUARTER')",
    "trunc(day, 'WEEK')", "date_trunc('HOUR', at)", "date_trunc('WEEK', at)",
    "date_trunc('MONTH', at)", "size(l)", "m['k']", "m['none']",
]  # fmt: skip
LEGACY = {"n div i"}  # Spark raises for a divisor of 0, of which txlog makes null.
TYPES = from_arrow(SCHEMA)


def random_rows(count: int) -> pa.Table:
    """Return rows in which all values meet, nulls among them."""
    columns = {}
    for place, (name, values) in enumerate(VALUES.items()):
        cycle = [*values, None]
        columns[name] = [cycle[(row * (place + 1) + row // 7) % len(cycle)] for row in range(count)]
    return pa.table(columns, SCHEMA)


def ours(text: str, rows: pa.Table) -> list[Any]:
    (batch,) = rows.combine_chunks().to_batches()
    bound, _ = bind_value(parse_sql(text), TYPES)
    found = evaluate(bound, batch)
    return found.to_pylist()


def plain(values: Sequence[Any]) -> list[Any]:
    """Return values so that NaN equals NaN, and numbers of two types compare."""
    result = []
    for value in values:
        if isinstance(value, float) and math.isnan(value):
            value = "NaN"
        if isinstance(value, datetime):
            value = value.replace(tzinfo=None)
        result.append(value)
    return result


@pytest.mark.spark
def test_functions_mean_what_spark_means(spark: "SparkSession") -> None:
    rows = random_rows(120)
    frame = spark.createDataFrame(rows)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        texts = [text for text in TEXTS if text not in LEGACY]
        theirs = frame.selectExpr(
            *(f"{text} AS c{n}" for n, text in enumerate(texts)), "try_divide(n, i) AS last"
        ).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
    for n, text in enumerate(texts):
        assert plain(ours(text, rows)) == plain(theirs[f"c{n}"].to_pylist()), text


def test_divisors_of_zero_give_null() -> None:
    assert ours("n div i", random_rows(9).slice(0, 1)) == [None]


@pytest.mark.parametrize("text", TEXTS)
def test_calls_are_written_and_read_back(text: str) -> None:
    parsed = parse_sql(text)
    again = parse_sql(to_sql(parsed))
    assert repr(again) == repr(parsed)
    bound, kind = bind_value(parsed, TYPES)
    assert bind_value(parse_sql(to_sql(bound)), TYPES)[1] == kind
    assert {path[0] for path in columns_of(bound)} <= set(SCHEMA.names)


def test_every_function_is_tried() -> None:
    tried = " ".join(map(to_sql, map(parse_sql, TEXTS)))
    names = {"div": " div ", "map_value": "["}
    assert [name for name in FUNCTIONS if names.get(name, f"{name}(") not in tried] == []


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.sampled_from(range(120)), max_size=6), st.sampled_from(TEXTS))
def test_rows_do_not_depend_on_others(chosen: list[int], text: str) -> None:
    rows = random_rows(120)
    whole = plain(ours(text, rows))
    if chosen:
        assert plain(ours(text, rows.take(chosen))) == [whole[row] for row in chosen]
    (none,) = rows.slice(0, 0).combine_chunks().to_batches() or [
        pa.RecordBatch.from_pylist([], SCHEMA)
    ]
    bound, _ = bind_value(parse_sql(text), TYPES)
    assert len(evaluate(bound, none)) == 0


def test_case_computes_values_of_its_rows_alone() -> None:
    rows = pa.table({"s": ["1", "x", None]}, pa.schema([("s", pa.string())]))
    (batch,) = rows.to_batches()
    text = "CASE WHEN s = 'x' THEN -1 ELSE CAST(s AS BIGINT) END"
    bound, _ = bind_value(parse_sql(text), from_arrow(rows.schema))
    assert evaluate(bound, batch).to_pylist() == [1, -1, None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("upper(i)", "upper takes string, not integer"),
        ("year(s)", "year takes date"),
        ("coalesce(s, i)", "coalesce needs values of one type, not string, integer"),
        ("CASE WHEN i THEN 1 END", "AND, OR and NOT combine truth values"),
        ("CASE WHEN f THEN 1 ELSE s END", "the values of CASE are not of one type"),
        ("substring(s, i, 2)", "needs constants"),
        ("left(s, n)", "needs constants"),
        ("trunc(day, 'HOUR')", "knows no unit"),
        ("size(s)", "takes an array"),
        ("l['k']", "takes a map"),
        ("abs(d)", "abs takes"),
        ("my_udf(s)", "the SQL function MY_UDF is not supported"),
        ("round(x, 2)", "the SQL function ROUND is not supported"),
        ("lpad(s, 5, 'ab')", "one character"),
    ],
)
def test_what_spark_would_compute_otherwise_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ours(text, random_rows(3))


def test_functions_in_predicates() -> None:
    (batch,) = random_rows(60).combine_chunks().to_batches()
    bound = bind(parse_sql("upper(s) = 'ABC' AND year(day) BETWEEN 1990 AND 2030"), TYPES)
    true = evaluate(bound, batch).to_pylist()
    rows = batch.to_pylist()
    expected = [
        None not in (row["s"], row["day"])
        and row["s"].upper() == "ABC"
        and 1990 <= row["day"].year <= 2030
        for row in rows
    ]
    assert [bool(one) for one in true] == expected
