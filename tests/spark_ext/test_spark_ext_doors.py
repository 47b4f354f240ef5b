"""The same rows mean the same at every door: in the core, and at each of Spark's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog.spark_ext import DeltaTable, sql, write
from txlog.spark_ext import table as spark_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FIELDS = pa.struct([("a", pa.int64()), ("b", pa.string())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("p", pa.string()), ("s", pa.string()), ("x", pa.float64()),
        ("st", FIELDS), ("l", pa.list_(FIELDS)), ("m", pa.map_(pa.string(), FIELDS)),
    ]
)  # fmt: skip
FULL = {"a": 1, "b": "b"}
ROW = {"id": 1, "p": "p", "s": "s", "x": 1.0, "st": FULL, "l": [FULL], "m": [("k", FULL)]}

# The values of the columns as SQL. Each case changes some of them.
PLAIN = {
    "id": "7L", "p": "'p'", "s": "'s'", "x": "1.5D", "st": "named_struct('a', 5L, 'b', 'n')",
    "l": "array(named_struct('a', 5L, 'b', 'n'))", "m": "map('k', named_struct('a', 5L, 'b', 'n'))",
}  # fmt: skip
CASES: dict[str, dict[str, str]] = {
    "plain": {},
    "reordered": {
        "st": "named_struct('B', 'n', 'A', 5L)",
        "l": "array(named_struct('b', 'n', 'a', 5L), named_struct('b', 'o', 'a', 6L))",
        "m": "map('k', named_struct('b', 'n', 'a', 5L))",
    },
    "fewer": {"st": "named_struct('b', 'n')"},
    "fewer in a list": {"l": "array(named_struct('b', 'n'))"},
    "fewer in a map": {"m": "map('k', named_struct('a', 5L))"},
    "more": {"st": "named_struct('a', 5L, 'b', 'n', 'c', 0)"},
    "more in a list": {"l": "array(named_struct('a', 5L, 'b', 'n', 'c', 0))"},
    "unnamed": {"st": "struct(5L, 'n')"},
    "empty texts": {"p": "''", "s": "''", "st": "named_struct('a', 5L, 'b', '')"},
    "nulls": dict.fromkeys(["p", "s", "x", "st", "l", "m"], "NULL"),
    "null fields": {
        "st": "named_struct('a', NULL, 'b', NULL)",
        "l": "array(named_struct('a', NULL, 'b', 'n'))",
    },
    "NaN": {"x": "double('NaN')"},
    "minus zero": {"x": "-0.0D"},
    "infinity": {"x": "double('-Infinity')"},
}
UNFIT = {"more", "more in a list", "unnamed"}
FEWER = {"fewer", "fewer in a list", "fewer in a map"}

# ruff: noqa: ARG005 (each door takes the session)
Door = Callable[["SparkSession", str, "DataFrame"], object]


def by_stream(spark: SparkSession, uri: str, rows: DataFrame) -> None:
    rows.write.format("parquet").save(f"{uri}-source")
    frames = spark.readStream.schema(rows.schema).parquet(f"{uri}-source")
    query = frames.writeStream.format("txlog").trigger(availableNow=True)
    query.option("checkpointLocation", f"{uri}-checkpoint").start(uri).awaitTermination()


def merger(table: Any, rows: Any) -> Any:
    return table.merge(rows, "target.id = source.id")


def delta_merger(spark: SparkSession, uri: str, rows: DataFrame) -> Any:
    return DeltaTable.forPath(spark, uri).alias("t").merge(rows.alias("s"), "t.id = s.id")


def by_sql(clause: str) -> Door:
    def run(spark: SparkSession, uri: str, rows: DataFrame) -> object:
        rows.createOrReplaceTempView("door_rows")
        return sql(spark, f"MERGE INTO delta.`{uri}` t USING door_rows s ON t.id = s.id {clause}")

    return run


def in_core(spark: SparkSession, uri: str, rows: DataFrame) -> None:
    txlog.Table(uri).append(rows.toArrow())


APPENDS: dict[str, Door] = {
    "core": in_core,
    "write": lambda spark, uri, rows: write(rows, uri),
    "format": lambda spark, uri, rows: rows.write.format("txlog").mode("append").save(uri),
    "stream": by_stream,
}
INSERTS: dict[str, Door] = {
    "core": lambda spark, uri, rows: (
        merger(txlog.Table(uri), rows.toArrow()).when_not_matched_insert_all().execute()
    ),
    "table": lambda spark, uri, rows: (
        merger(spark_table(spark, uri), rows).when_not_matched_insert_all().execute()
    ),
    "DeltaTable": lambda spark, uri, rows: (
        delta_merger(spark, uri, rows).whenNotMatchedInsertAll().execute()
    ),
    "sql": by_sql("WHEN NOT MATCHED THEN INSERT *"),
}
UPDATES: dict[str, Door] = {
    "core": lambda spark, uri, rows: (
        merger(txlog.Table(uri), rows.toArrow()).when_matched_update_all().execute()
    ),
    "table": lambda spark, uri, rows: (
        merger(spark_table(spark, uri), rows).when_matched_update_all().execute()
    ),
    "DeltaTable": lambda spark, uri, rows: (
        delta_merger(spark, uri, rows).whenMatchedUpdateAll().execute()
    ),
    "sql": by_sql("WHEN MATCHED THEN UPDATE SET *"),
}


def done(door: Door, spark: SparkSession, uri: str, rows: DataFrame) -> Any:
    """Return the rows after a write, or the name of the error's class."""
    txlog.write(uri, pa.Table.from_pylist([ROW], SCHEMA), partition_by=["p"])
    try:
        door(spark, uri, rows)
    except Exception as error:
        assert txlog.Table(uri).version == 0
        if isinstance(error, txlog.TxlogError):
            return type(error).__name__
        found = re.search(r"txlog\.base\.errors\.(\w+): ", str(error))
        return found[1] if found else repr(error)
    found_rows = txlog.Table(uri).to_arrow().sort_by("id").to_pylist()
    return repr(found_rows)  # In which NaN equals NaN, and -0.0 is not 0.0.


@pytest.mark.slow(cases=7)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("doors", [APPENDS, INSERTS, UPDATES], ids=["append", "insert", "update"])
def test_all_doors_store_the_same_rows_or_raise_the_same_class(
    spark: SparkSession, tmp_path: Path, doors: dict[str, Door], case: str
) -> None:
    values = {**PLAIN, **CASES[case]}
    if doors is UPDATES:
        values["id"] = "1L"
    rows = spark.sql("SELECT " + ", ".join(f"{text} AS {name}" for name, text in values.items()))
    found = {name: done(door, spark, str(tmp_path / name), rows) for name, door in doors.items()}
    expected = found["core"]
    assert found == dict.fromkeys(doors, expected)
    refused = case in UNFIT or (doors is UPDATES and case in FEWER)
    assert expected.endswith("Error") == refused, expected
    if case == "empty texts":  # A partition has no empty text.
        assert "'p': None, 's': ''" in expected
    if case == "fewer" and not refused:
        assert "'st': {'a': None, 'b': 'n'}" in expected
