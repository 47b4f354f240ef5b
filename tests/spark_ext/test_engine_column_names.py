"""Names with dots, backticks and other case mean the same on Spark as in the core."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog import spark_ext
from txlog.spark_ext import DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STRUCT = pa.struct(
    [("a", pa.int64()), ("b.c", pa.int64()), ("d`e", pa.struct([("f", pa.string())]))]
)
ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "st": pa.array([{"a": 1, "b.c": 2, "d`e": {"f": "x"}}, None, {"a": 3}], STRUCT),
        "x.y": [5, 6, 7],
        "q`r": [8, 9, 10],
        "a b": ["k", "l", "m"],
    }
)
NAMES = [
    "id", "ID", "`id`", "st", "st.a", "ST.A", "`st`.`a`", "st.`b.c`", "st.`d``e`.f", "st.`d``e`",
    "x.y", "q`r", "a b", "_rowaddr",
]  # fmt: skip
WHERE = "st.a = 1 OR `x.y` = 6"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> txlog.Table:
    made = txlog.write(
        tmp_path_factory.mktemp("names") / "t",
        ROWS,
        properties={"delta.columnMapping.mode": "name"},
    )
    made.indexes.create("q`r")
    return made


@pytest.mark.slow
@settings(
    max_examples=examples(40),
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(names=st.lists(st.sampled_from(NAMES), min_size=1, unique_by=lambda n: n.lower().strip("`")))
def test_reads_find_the_columns_that_a_scan_finds(
    spark: "SparkSession", table: txlog.Table, names: list[str]
) -> None:
    expected = table.scan(columns=names, where=WHERE).to_arrow()
    if len({name.lower() for name in expected.column_names}) < len(names):
        return  # Two names of one column; Spark's sources do not return a column twice.
    found = spark_ext.read(spark, table.uri, columns=names, where=WHERE).toArrow()
    by_option = spark.read.format("txlog").option("columns", str(names).replace("'", '"'))
    by_option = by_option.option("where", WHERE).load(table.uri)
    spark_ext.create_view(spark, "names", table.uri, columns=names, where=WHERE)
    for one in (found, by_option.toArrow(), spark.table("names").toArrow()):
        assert one.column_names == expected.column_names
        key = str
        assert sorted(one.to_pylist(), key=key) == sorted(expected.to_pylist(), key=key)


@pytest.mark.slow
def test_names_in_an_option_are_separated_by_commas(
    spark: "SparkSession", table: txlog.Table
) -> None:
    frame = spark.read.format("txlog").option("columns", "st.a, id, st.`b.c`").load(table.uri)
    assert set(map(tuple, frame.collect())) == {(1, 1, 2), (3, 3, None), (None, 2, None)}


@pytest.mark.slow
def test_changes_and_streams_have_fields_of_structs(spark: "SparkSession", tmp_path: Path) -> None:
    made = txlog.write(tmp_path / "t", ROWS, properties={"delta.enableChangeDataFeed": "true"})
    names = '["st.`b.c`", "x.y"]'
    batch = spark.read.format("txlog").option("readChangeFeed", "true").option("columns", names)
    assert set(map(tuple, batch.load(made.uri).collect())) == {(2, 5), (None, 6), (None, 7)}
    stream = spark.readStream.format("txlog").option("columns", names).load(made.uri)
    seen: list[Any] = []
    query = (
        stream.writeStream.foreachBatch(lambda rows, _: seen.extend(rows.collect()))
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert set(map(tuple, seen)) == {(2, 5), (None, 6), (None, 7)}


@pytest.mark.slow
def test_look_ups_by_odd_names(spark: "SparkSession", table: txlog.Table) -> None:
    found = spark_ext.lookup(
        spark, table.uri, [9, 11], on="Q`R", columns=["x.y", "q`R", "_key"], missing="null"
    )
    assert found.columns == ["x.y", "q`r", "_key"]
    assert sorted(map(tuple, found.collect()), key=str) == [(6, 9, 0), (None, 11, 1)]
    keys = spark.createDataFrame([(8, "z"), (1, "y")], "`k.l` long, `m``n` string")
    joined = spark_ext.lookup_join(keys, table.uri, on={"k.l": "q`r"}, columns=["a b", "x.y"])
    assert joined.columns == ["k.l", "m`n", "a b", "x.y"]
    assert [tuple(row) for row in joined.collect()] == [(8, "z", "k", 5)]


def test_files_are_ordered_by_a_column_with_a_dot(spark: "SparkSession", tmp_path: Path) -> None:
    made = txlog.write(tmp_path / "t", pa.table({"id": [1, 2], "x.y": [2, 1]}))
    DeltaTable.forPath(spark, made.uri).optimize().executeZOrderBy("x.y")
    assert txlog.Table(made.uri).to_arrow()["x.y"].to_pylist() == [1, 2]
