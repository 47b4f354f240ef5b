"""Spark's reads that an index narrows have the rows of those without it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import txlog
from tests.lookup.test_indexed import ALWAYS_USED, numbers
from tests.moved import moved
from txlog import spark_ext
from txlog.expressions.sql import as_expression
from txlog.snapshot.load import load_snapshot
from txlog.spark_ext.source.reader import FragmentsReader
from txlog.spark_ext.spark_types import read_schema
from txlog.store.open import open_store

pytestmark = [pytest.mark.spark, pytest.mark.spec("LKP-13")]

PREDICATES = [
    "k = 7",
    "k IN (3, 8, 399, 1000)",
    "k = 10 AND v > '0'",
    "(k = 1 AND v = '1') OR k = 302",
    "k = 1000",
    "k % 7 = 3 AND k IN (3, 10, 11)",
    "k <=> NULL",
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path of a table of four files, one without a part of the index, two deletions."""
    root = str(tmp_path_factory.mktemp("indexed") / "t")
    properties = {"txlog.pageRows": "10", "delta.enableDeletionVectors": "true"}
    table = txlog.Table.create(root, numbers(0).schema, properties=properties)
    for start in range(4):
        table.append(numbers(*range(start, 400, 4)))
    table.delete("k IN (8, 302)")
    table.indexes.create("k")
    segments = Path(root).glob("_txlog_index/*/*.idx")
    assert len([*segments]) == 1
    return root


@pytest.fixture
def always_used() -> Iterator[None]:
    with moved(ALWAYS_USED):
        yield


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()))


@pytest.mark.slow
@pytest.mark.usefixtures("always_used")
@pytest.mark.parametrize("where", PREDICATES)
def test_frames(spark: SparkSession, path: str, where: str) -> None:
    found = spark_ext.read(spark, path, where=where)
    without = spark_ext.read(spark, path, where=where, use_index=False)
    assert rows_of(found) == rows_of(without)
    if where == "k = 7":
        assert (len(found.inputFiles()), len(without.inputFiles())) == (1, 4)


@pytest.mark.usefixtures("always_used")
@pytest.mark.parametrize("limit", [None, 1])
@pytest.mark.parametrize("where", PREDICATES)
def test_the_data_source(path: str, where: str, limit: int | None) -> None:
    found = []
    for use_index in (True, False):
        snapshot = load_snapshot(store := open_store(path))
        reader = FragmentsReader(
            store,
            snapshot,
            read_schema(snapshot.schema),
            as_expression(where),
            limit=limit,
            max_partition_bytes=1 << 20,
            use_index=use_index,
        )
        partitions: list[Any] = list(reader.partitions())
        tables = [
            pa.Table.from_batches(reader.read(one), reader._arrow_schema) for one in partitions
        ]
        found.append(pa.concat_tables(tables).sort_by("k"))
        named = [one.plan.candidates.positions for one in partitions if one.plan.candidates]
        assert use_index or not named
        if where == "k = 7" and use_index:
            assert [len(one) for one in named] == [1] * len(named)
            assert [list(at) for one in named for at in one.values()] == [[1]]
    assert found[0].num_rows == found[1].num_rows
    assert limit is not None or found[0].equals(found[1])


@pytest.mark.slow
def test_the_option_of_the_data_source(spark: SparkSession, path: str) -> None:
    for used in ("true", "false"):
        reader = spark.read.format("txlog").option("where", "k = 7").option("useIndex", used)
        assert rows_of(reader.load(path)) == [(7, "7")]
    with pytest.raises(Exception, match="true or false was expected"):
        spark.read.format("txlog").option("useIndex", "no").load(path).collect()
    with pytest.raises(Exception, match="useIndex"):
        spark.range(1).write.format("txlog").mode("append").option("useIndex", "false").save(
            path + "-new"
        )
