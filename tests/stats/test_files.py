"""The log's facts about files: row counts, and bounds from partition values."""

import math
from typing import Any

import pyarrow as pa
import pytest

from txlog.expressions.bind import bind, columns_of
from txlog.expressions.sql import parse_sql
from txlog.expressions.tree import col
from txlog.schema.types import PrimitiveType, StructField, StructType
from txlog.stats.files import file_bounds, num_records
from txlog.stats.json_bounds import json_bounds
from txlog.stats.skip import always, keep

KINDS = {"f": "double", "flag": "boolean", "raw": "binary", "i": "integer", "short": "float"}
SCHEMA = StructType(tuple(StructField(n, PrimitiveType(kind)) for n, kind in KINDS.items()))


def answers(where: str, values: list[dict[str, str | None]]) -> tuple[list[Any], list[Any]]:
    bound = bind(parse_sql(where), SCHEMA)
    maps = pa.array([list(v.items()) for v in values], pa.map_(pa.string(), pa.string()))
    stats = pa.nulls(len(values), pa.string())
    files = pa.table({"stats": stats, "partition_values": maps})
    bounds = file_bounds(files, SCHEMA, list(KINDS), bound)
    return keep(bound, bounds).to_pylist(), always(bound, bounds).to_pylist()


@pytest.mark.parametrize(
    ("where", "true_of"),
    [
        ("f > 5", [False, True, False]), ("f <= 5", [True, False, False]),
        ("flag", [True, False, False]), ("NOT flag", [False, True, False]),
        ("flag = true AND f < 9", [True, False, False]), ("raw = X'61'", [True, False, False]),
        ("raw <> X'61'", [False, True, False]), ("i IN (1, 5)", [True, False, False]),
        ("i NOT IN (1, 5)", [False, True, False]), ("i NOT IN (7, NULL)", [False, False, False]),
        ("i IS NULL", [False, False, True]), ("i IS NOT NULL", [True, True, False]),
    ],
)  # fmt: skip
def test_partition_values_are_exact(where: str, true_of: list[bool]) -> None:
    values: list[dict[str, str | None]] = [
        {"f": "3", "flag": "true", "raw": "a", "i": "1"},
        {"f": "NaN", "flag": "false", "raw": "b", "i": "9"},
        {"f": None, "flag": None, "raw": "", "i": None},
    ]
    assert answers(where, values) == (true_of, true_of)


def test_nan_is_above_infinity() -> None:
    kept, _ = answers("f > CAST('Infinity' AS DOUBLE)", [{"f": "NaN"}])
    assert kept == [True]


@pytest.mark.parametrize("constants", [[*range(500)], [*range(500), None], [math.nan] * 200])
def test_a_long_list_is_held_against_the_bounds(constants: list[Any]) -> None:
    name = "f" if constants[0] != constants[0] else "i"
    bound = bind(col(name).isin(constants), SCHEMA)
    values = [[(name, "1")], [(name, "900")], [(name, None)]]
    files = pa.table(
        {
            "stats": pa.nulls(3, pa.string()),
            "partition_values": pa.array(values, pa.map_(pa.string(), pa.string())),
        }
    )
    bounds = file_bounds(files, SCHEMA, [name], bound)
    kept = keep(bound, bounds).to_pylist()
    assert kept[0]
    assert not kept[2]
    assert kept[1] == (name == "f")
    assert always(bound, bounds).to_pylist() == [False] * 3


def test_a_short_float_may_lie_below_its_own_text() -> None:
    # The 32-bit float that is written as 0.7 is less than the 64-bit one.
    bound = bind(col("short") < 0.7, SCHEMA)
    paths = columns_of(bound)
    texts = pa.chunked_array([['{"numRecords":1,"minValues":{"short":0.7}}']])
    assert keep(bound, json_bounds(texts, SCHEMA, paths, {p: p for p in paths})).to_pylist() == [
        True
    ]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('{"numRecords":7}', 7), (' { "numRecords" : 7 , "x":{"numRecords":1}}', 7),
        ('{"x":1,"numRecords":7}', 7), ('{"nullCount":{"numRecords":0}}', None),
        ('{"numRecords":1.5}', None), ('{"numRecords":-1}', None), ('{"numRecords":"7"}', None),
        ("{", None), ("", None), (None, None), ('{"numRecords":', None),
    ],
)  # fmt: skip
def test_only_the_records_own_number_counts(text: str | None, rows: int | None) -> None:
    files = pa.table({"stats": pa.array([text], pa.string())})
    assert num_records(files).to_pylist() == [rows]


def test_a_partition_is_found_by_either_name() -> None:
    """By the physical one first; some writers log the other."""
    names = {"delta.columnMapping.physicalName": "i"}
    schema = StructType(
        (
            StructField("i", PrimitiveType("integer"), metadata={
                "delta.columnMapping.physicalName": "other"}),
            StructField("k", PrimitiveType("integer"), metadata=names),
        )
    )  # fmt: skip
    values = [[("other", "1"), ("i", "9")], [("i", "1"), ("k", "9")], [("other", None), ("i", "1")]]
    files = pa.table(
        {
            "stats": pa.nulls(3, pa.string()),
            "partition_values": pa.array(values, pa.map_(pa.string(), pa.string())),
        }
    )
    bound = bind(parse_sql("i = 1"), schema)
    bounds = file_bounds(files, schema, ["i", "k"], bound, mapping_mode="name")
    assert keep(bound, bounds).to_pylist() == [True, True, False]
