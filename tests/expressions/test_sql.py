"""SQL text means the same as in Spark, or is refused with the terms of SQL."""

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog.expressions.bind import bind
from txlog.expressions.evaluate import evaluate, is_true
from txlog.expressions.sql import parse_sql, to_sql
from txlog.expressions.tree import Column, Comparison, Expression, Literal
from txlog.schema.arrow import from_arrow
from txlog.schema.types import PrimitiveType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORDS = re.findall(
    r"\w+",
    "alter analyze begin cache call comment commit copy create cross date declare delete desc "
    "describe drop end except execute explain fetch grant having if insert intersect kill lateral "
    "load merge minus on pivot pragma refresh rename revoke rollback set show timestamp truncate "
    "uncache union unpivot update use using values where with",
)


def rows_where(text: str | Expression, table: pa.Table) -> int:
    predicate = parse_sql(text) if isinstance(text, str) else text
    bound = bind(predicate, from_arrow(table.schema))
    return sum(is_true(bound, table).to_pylist())


def conditions(word: str) -> list[str]:
    return [
        f"{word} = 0", f"x = 0 and {word} < 1", f"{word} is not null", f"({word}) in (0)",
        f"0 = {word.upper()}",
    ]  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_words_of_sql_may_be_names(word: str) -> None:
    table = pa.table({word: [0, 5], "x": [0, 0]})
    for condition in conditions(word):
        expected = 2 if "is not null" in condition else 1
        assert rows_where(condition, table) == expected, condition
        assert rows_where(to_sql(parse_sql(condition)), table) == expected


@pytest.mark.slow
@pytest.mark.spark
def test_spark_takes_the_same_words_for_names(spark: "SparkSession") -> None:
    columns = ", ".join(f"0 AS `{word}`" for word in WORDS)
    frame = spark.sql(f"SELECT 0 AS x, {columns}")
    everything = " AND ".join(f"({text})" for word in WORDS for text in conditions(word))
    assert frame.where(everything).count() == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'it''s'", "it's"),
        ("''''", "'"),
        ("''", ""),
        ("'a''b''c'", "a'b'c"),
        ('"a""b"', 'a"b'),
        ("'a' 'b'", "ab"),
        (r"'it\'s'", "it's"),
        (r"r'a\d'", r"a\d"),
        ("'set commit'", "set commit"),
    ],
)
def test_constant_texts(text: str, value: str) -> None:
    parsed = parse_sql(text)
    assert isinstance(parsed, Literal)
    assert parsed.value == value
    equal = parse_sql(f"commit = {text}")
    assert isinstance(equal, Comparison)
    assert isinstance(equal.left, Column)
    assert isinstance(equal.right, Literal)
    assert (equal.left.path, equal.right.value) == (("commit",), value)


@pytest.mark.slow
@pytest.mark.spark
def test_spark_reads_texts_alike(spark: "SparkSession") -> None:
    for text in ("'it''s'", "''''", "'a''b''c'", '"a""b"', "'a' 'b'", r"r'a\d'", r"'it\'s'"):
        parsed = parse_sql(text)
        assert isinstance(parsed, Literal)
        assert spark.sql(f"SELECT {text}").collect()[0][0] == parsed.value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("soundex(s) = 'A'", "the SQL function SOUNDEX is not supported"),
        ("my_function(s)", "the SQL function MY_FUNCTION is not supported"),
        ("acosh(x) = y", "the SQL function ACOSH is not supported"),
        ("[1, 2] = a", "no lists in square brackets"),
        ("count(a) = 1", "the SQL function COUNT is not supported"),
        ("s ilike t", "only constants are allowed here"),
        ("1 +", "an operand is missing"),
        ("a = ", "an operand is missing"),
        ("(", "an operand is missing"),
        ("a = 1 union select 1", "not a SQL expression"),
        ("x = 1 where y", "not a SQL expression"),
        ("x in (select 1)", "is not supported"),
        ("'torn", "not a SQL expression"),
    ],
)
def test_refusals_speak_sql(text: str, says: str) -> None:
    with pytest.raises(txlog.InvalidInputError, match=says) as caught:
        parse_sql(text)
    assert "sqlglot" not in str(caught.value)
    assert "class" not in str(caught.value)


HUGE = 2**60 + 1
NUMBERS = pa.table({"x": pa.array([1, HUGE, None], pa.int64()), "half": [0.5, 0.5, 0.5]})


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("x / 2 > 1", 1),
        ("x / 2 = 576460752303423488", 1),
        ("x * 1.5e0 > 2", 1),
        ("x + half > 2", 1),
        ("x % half = 0", 2),
        ("cast(x as double) > 1", 1),
        ("cast(x as float) > 1", 1),
        ("try_divide(x, 0) is null", 3),
        ("try_mod(x, 0) is null", 3),
    ],
)
def test_large_integers_are_rounded_to_doubles(text: str, count: int) -> None:
    assert rows_where(text, NUMBERS) == count


def test_one_of_none_is_false_even_of_nulls() -> None:
    nothing = txlog.col("x").isin([])
    assert rows_where(nothing, NUMBERS) == 0
    assert rows_where(~nothing, NUMBERS) == 3
    assert rows_where(parse_sql(to_sql(bind(nothing, from_arrow(NUMBERS.schema)))), NUMBERS) == 0
    with pytest.raises(txlog.InvalidInputError, match="no column z"):
        bind(txlog.col("z").isin([]), from_arrow(NUMBERS.schema))


KINDS: dict[str, Any] = {
    "long": 1, "double": 1.5, "boolean": True, "string": "1", "binary": b"1", "date": 1,
    "timestamp": 1, "timestamp_ntz": 1,
}  # fmt: skip
REFUSED = {
    *((old, new) for old in ("long", "double") for new in ("date", "timestamp_ntz", "binary")),
    *(("boolean", new) for new in ("date", "timestamp", "timestamp_ntz", "binary")),
    *((old, new) for old in ("date", "timestamp_ntz")
      for new in ("long", "double", "boolean", "binary")),
    *(("timestamp", new) for new in ("boolean", "binary")),
    *(("binary", new) for new in KINDS if new not in ("binary", "string")),
}  # fmt: skip


@pytest.mark.parametrize("old", KINDS)
@pytest.mark.parametrize("new", KINDS)
def test_casts_that_would_not_mean_what_spark_means_are_refused(old: str, new: str) -> None:
    from txlog.schema.arrow import arrow_schema
    from txlog.schema.types import StructField, StructType

    schema = StructType((StructField("c", PrimitiveType(old)),))
    target = arrow_schema(schema).field(0).type
    values = pa.array([KINDS[old]], target if "time" not in old and old != "date" else None)
    table = pa.table({"c": values.cast("int32").cast(target) if old == "date"
                      else values.cast(target)})  # fmt: skip
    cast = txlog.col("c").cast(PrimitiveType(new))
    if (old, new) in REFUSED:
        with pytest.raises(txlog.InvalidInputError, match=f"a cast of {old} to {new}"):
            bind(cast.is_null(), schema)
        return
    bound = bind(cast.is_null(), schema)
    if (old, new) in {("string", "date"), ("string", "timestamp"), ("string", "timestamp_ntz")}:
        with pytest.raises(txlog.InvalidInputError, match="cannot be computed"):
            evaluate(bound, table)
    else:
        assert evaluate(bound, table).to_pylist() == [False]


def test_texts_are_trimmed_before_they_are_cast() -> None:
    table = pa.table({"s": [" 1", "2 ", "\t3\n"]})
    assert rows_where("cast(s as int) > 1", table) == 2
