"""Conditions of `DeltaTable` that txlog evaluates itself, because Spark reads them the same."""

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import txlog
from txlog.schema.arrow import from_arrow
from txlog.schema.types import StructField, StructType
from txlog.spark_ext.writes.conditions import as_predicate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = pa.schema(
    [
        ("l", pa.int64()), ("i", pa.int32()), ("f", pa.float32()), ("d", pa.float64()),
        ("m", pa.decimal128(10, 2)), ("b", pa.bool_()), ("t", pa.string()), ("n", pa.date32()),
        ("s", pa.struct([("x", pa.int32())])),
    ]
)  # fmt: skip
SCHEMA = from_arrow(DATA)
LARGE = 2**53


@pytest.mark.parametrize(
    "text",
    [
        "l = 1", "i < l", "-5 <= i", "i BETWEEN 1 AND 3", "i IN (1, 2)", "s.x <> 3", "1 = 1",
        "t = 'a'", "t LIKE 'a%'", "t IN ('a', 'b')", "b", "NOT b", "b = true", "b IS TRUE", "true",
        "n >= DATE '2020-01-31'", "n IN (DATE '2020-01-31')", "f IS NULL", "m IS NOT NULL",
        "(l = 1 OR t <=> 'a') AND NOT (n < DATE '2020-01-31')", "(l = 1) IS NULL",
    ],
)  # fmt: skip
def test_values_of_one_kind_are_decided_without_spark(text: str) -> None:
    assert as_predicate(text, SCHEMA, None) is not None


CAST = [
    "l = 9007199254740993e0", "l = 1.0", "i = '5.0'", "i = '1'", "f = '0.1'", "f = 16777217",
    "f = 0.1", "d = 1e400", "d = 1", "f = d", "f < l", "m = 1", "m = 1.5", "b IN ('true')",
    "b = 'true'", "b = 1", "null", "i = null", "i IN (1, null)", "i IN (1, '2')", "t = 1",
    "n = '2020-01-31'", "n IN ('2020-01-31')", "n = CAST('2020-1' AS DATE)", "NOT null",
    f"l = {2**63}", "l = 1 AND f = 0.1", "l = CAST('1' AS BIGINT)", "n = 1", "i LIKE '1'",
    r"t = 'a\\b'", 't = "a"', "(l = 1) = true",
]  # fmt: skip


@pytest.mark.parametrize("text", CAST)
def test_values_that_spark_may_cast_are_left_to_it(text: str) -> None:
    assert as_predicate(text, SCHEMA, None) is None


@pytest.mark.parametrize("key", ["__COLLATIONS", "__CHAR_VARCHAR_TYPE_STRING"])
def test_text_that_spark_compares_otherwise_is_left_to_it(key: str) -> None:
    field = from_arrow(pa.schema([("t", pa.string())])).fields[0]
    schema = StructType((StructField("t", field.type, metadata={key: "x"}),))
    assert as_predicate("t = 'a'", schema, None) is None
    assert as_predicate("t IS NULL", schema, None) is not None


@pytest.mark.slow
@pytest.mark.spark
def test_rows_are_deleted_that_spark_takes(spark: "SparkSession", tmp_path: Path) -> None:
    """Each condition, on a table of its own, against what Spark's own filter leaves."""
    from pyspark.errors import AnalysisException

    from txlog.spark_ext import DeltaTable

    days = [dt.date(2020, 1, 31), dt.date(2020, 2, 1), None]
    rows = pa.table(
        [
            pa.array([LARGE, LARGE + 1, 1], pa.int64()),
            pa.array([5, 1, None], pa.int32()),
            pa.array([0.1, 16777216.0, math.nan], pa.float32()),
            pa.array([math.inf, 1.0, None], pa.float64()),
            pa.array([Decimal(1), Decimal("1.5"), None], pa.decimal128(10, 2)),
            pa.array([True, False, None]),
            pa.array(["a", "1", None]),
            pa.array(days, pa.date32()),
            pa.array([{"x": 1}, {"x": None}, None], pa.struct([("x", pa.int32())])),
        ],
        schema=DATA,
    )
    made = txlog.write(tmp_path / "t", rows)
    told = [
        "l = 9007199254740993e0", "i = '5'", "f = '0.1'", "f = 16777217", "b IN ('true')",
        "l = 9007199254740993", "n = DATE '2020-01-31'", "t = 'a' OR i = 1",
    ]  # fmt: skip
    for text in told:
        frame = spark.read.format("txlog").load(made.uri)
        taken = {row.l for row in frame.where(text).collect()}
        before = made.refresh().version
        DeltaTable.forPath(spark, made.uri).delete(text)
        left = set(txlog.Table(made.uri).to_arrow()["l"].to_pylist())
        assert left == {LARGE, LARGE + 1, 1} - taken, text
        made.restore(before)
    before = made.refresh().version
    for text in ("null", "d = 1e400"):  # Spark refuses both.
        with pytest.raises(AnalysisException):
            DeltaTable.forPath(spark, made.uri).delete(text)
    assert made.refresh().version == before
