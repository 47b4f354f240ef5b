"""Spark's reads that an index narrows have the rows of those without it."""

from collections.abc import Callable, Iterator
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
from txlog.lookup.indexes import SegmentCache
from txlog.snapshot.load import load_snapshot
from txlog.spark_ext import DeltaTable
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


def merged(spark: SparkSession, path: str) -> None:
    source = spark.range(5, 12, 3).selectExpr("id AS k", "'new' AS v").alias("b")
    merging = DeltaTable.forPath(spark, path).alias("a").merge(source, "a.k = b.k")
    merging.whenMatchedUpdateAll().execute()


# What changes by Spark's doors make of some rows; None: they are deleted.
CHANGES: dict[str, tuple[Callable[[SparkSession, str], Any], dict[int, str | None]]] = {
    "delete": (
        lambda spark, path: DeltaTable.forPath(spark, path).delete("k IN (7, 302) AND v > ''"),
        {7: None, 302: None},
    ),
    "update": (
        lambda spark, path: DeltaTable.forPath(spark, path).update("k = 9", {"v": "repeat(v, 2)"}),
        {9: "99"},
    ),
    "statement": (
        lambda spark, path: spark_ext.sql(spark, f"DELETE FROM delta.`{path}` WHERE k = 11"),
        {11: None},
    ),
    "engine": (
        lambda spark, path: spark_ext.table(spark, path).update({"v": "'new'"}, "k IN (0, 399)"),
        {0: "new", 399: "new"},
    ),
    "merge": (merged, {5: "new", 8: "new", 11: "new"}),
}


@pytest.mark.slow
@pytest.mark.usefixtures("always_used")
@pytest.mark.parametrize("name", CHANGES)
def test_changes(
    spark: SparkSession, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file of four has no part of the index, and is scanned."""
    properties = {"txlog.pageRows": "10", "delta.enableDeletionVectors": "true"}
    table = txlog.Table.create(tmp_path / "t", numbers(0).schema, properties=properties)
    table.indexes.create("k")
    for start in range(4):
        table.append(numbers(*range(start, 400, 4)))
    min(tmp_path.glob("t/_txlog_index/k/*.idx")).unlink()
    assert txlog.Table(table.uri).indexes.list()["k"].files_covered == 3
    named: list[int] = []
    search = SegmentCache.search

    def watched(self: SegmentCache, *given: Any) -> Any:
        coverage, parts = search(self, *given)
        named.append(sum(len(at) for _, at in parts))
        return coverage, parts

    monkeypatch.setattr(SegmentCache, "search", watched)
    change, changed = CHANGES[name]
    change(spark, str(tmp_path / "t"))
    expected = {k: changed.get(k, str(k)) for k in range(400)}
    found = txlog.Table(table.uri).to_arrow().to_pydict()
    assert dict(zip(found["k"], found["v"], strict=True)) == {
        k: v for k, v in expected.items() if v is not None
    }
    assert len(named) == 1
    assert named[0] <= len(changed)
