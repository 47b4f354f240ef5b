"""Remedies of Spark's doors that name calls of Python are followed to the letter.

A case is a function that lets a call fail, and follows each piece of Python in the remedy.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from tests.remedies import adding_to, refused, remedies_with_calls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Case = Callable[["SparkSession", Path], object]
CASES: dict[str, Case] = {}
ROWS = pa.table({"a": [1, 2], "s": ["x", "y"]})
NAMES = {"delta.columnMapping.mode": "name"}
case = adding_to(CASES)


def value(code: str, **names: Any) -> Any:
    """Return the value of a piece of Python."""
    import txlog.spark_ext

    space = {"txlog": txlog, "Table": txlog.Table, "spark_ext": txlog.spark_ext}
    return eval(code, space | names)


def plain(path: Path, **options: Any) -> txlog.Table:
    return txlog.write(path / "t", ROWS, **options)


def of_table(code: str, table: txlog.Table) -> Any:
    """Return the method of a table that a remedy names."""
    return value(code.removeprefix("Table."), **{name: getattr(table, name) for name in (
        "alter", "lookup", "optimize", "to_arrow", "to_polars", "delete")})  # fmt: skip


def sql(spark: "SparkSession", text: str, **options: Any) -> Any:
    from txlog.spark_ext import sql as run

    return run(spark, text, **options)


def at(table: txlog.Table) -> str:
    return f"delta.`{table.uri}`"


@case("spark_ext/delta/builder.py: location(path) | tableName(name)")
def _(spark: "SparkSession", path: Path) -> None:
    from txlog.spark_ext import DeltaTable

    def builder() -> Any:
        return DeltaTable.create(spark).addColumn("a", "BIGINT")

    codes = refused(lambda: builder().execute())
    for number, code in enumerate(codes):
        names = {"path": str(path / "new"), "name": f"txlog_remedy_{number}"}
        value(f"builder.{code}", builder=builder(), **names).execute()
    spark.sql("DROP TABLE txlog_remedy_1")


@case("spark_ext/delta/builder.py: location(path)")
def _(spark: "SparkSession", path: Path) -> None:
    from txlog.spark_ext import DeltaTable

    (path / "full").mkdir()
    (path / "full" / "file").write_text("x")

    def builder() -> Any:
        return DeltaTable.create(spark).addColumn("a", "BIGINT")

    wrongs = (builder().tableName("default.`a-b`"), builder().location(str(path / "full")))
    for number, wrong in enumerate(wrongs):
        (code,) = refused(wrong.execute)
        place = str(path / f"new{number}")
        value(f"builder.{code}", builder=builder(), path=place).execute()


@case("spark_ext/reads/lookups.py: Table.lookup")
def _(spark: "SparkSession", path: Path) -> None:
    from txlog.spark_ext import lookup

    table = plain(path)
    wrong: Any = "error"
    (code,) = refused(lambda: lookup(spark, table.uri, [1], on="a", missing=wrong))
    assert of_table(code, table)([1], on="a", missing="error").num_rows == 1


@case("spark_ext/source/options.py: Table.optimize.compact")
def _(spark: "SparkSession", path: Path) -> None:
    table = plain(path)
    frame = spark.createDataFrame([(1, "z")], "a BIGINT, s STRING")
    write = frame.write.format("txlog").mode("append").option("dataChange", "false")
    with pytest.raises(Exception, match=r"call Table\.optimize\.compact"):
        write.save(table.uri)
    table.append(ROWS)
    assert of_table("Table.optimize.compact", table)().metrics["numRemovedFiles"] == 2


@case("spark_ext/spark_types.py: Table.to_arrow | Table.to_polars")
def _(spark: "SparkSession", path: Path) -> None:
    from txlog.spark_ext import read

    nanos = pa.table({"t": pa.array([1], pa.timestamp("ns"))})
    table = txlog.write(path / "t", nanos, properties={"delta.feature.timestampNanos": "supported"})
    for code in refused(lambda: read(spark, table.uri)):
        assert len(of_table(code, table)()) == 1


@case("spark_ext/statements/alterations.py: Table.alter.set_name")
def _(spark: "SparkSession", path: Path) -> None:
    table = plain(path)
    (code,) = refused(lambda: sql(spark, f"ALTER TABLE {at(table)} RENAME TO other"))
    of_table(code, table)("other")
    assert txlog.Table(table.uri).snapshot.metadata.name == "other"


@case("spark_ext/statements/alterations.py: Table.alter.move_column")
def _(spark: "SparkSession", path: Path) -> None:
    table = plain(path, properties={"delta.feature.txlog.fragments": "supported"})
    add = f"ALTER TABLE {at(table)} ADD COLUMN c INT"
    (code,) = refused(lambda: sql(spark, f"{add} FIRST"))
    sql(spark, add)
    of_table(code, table.refresh())("c", first=True)
    assert table.refresh().schema.names == ["c", "a", "s"]
    sql(spark, f"ALTER TABLE {at(table)} ALTER COLUMN c AFTER a")
    assert table.refresh().schema.names == ["a", "c", "s"]


@case("spark_ext/statements/alterations.py: Table.alter.rename_column")
def _(spark: "SparkSession", path: Path) -> None:
    table = plain(path, properties=NAMES)
    change = "ALTER TABLE {} CHANGE COLUMN {} b BIGINT COMMENT 'x'"
    (code,) = refused(lambda: sql(spark, change.format(at(table), "a")))
    of_table(code, table)("a", "b")
    sql(spark, change.format(at(table), "b"))


@case("spark_ext/statements/alterations.py: Table.alter")
def _(spark: "SparkSession", path: Path) -> None:
    table = plain(path)
    (code,) = refused(lambda: sql(spark, f"ALTER TABLE {at(table)} RECOVER PARTITIONS"))
    assert of_table(code, table).set_properties({"some.name": "1"}).version == 1


@case("spark_ext/statements/columns.py: Table.alter.set_default")
def _(spark: "SparkSession", path: Path) -> None:
    table = plain(path, properties={"delta.feature.allowColumnDefaults": "supported"})
    add = f"ALTER TABLE {at(table)} ADD COLUMN c INT"
    (code,) = refused(lambda: sql(spark, f"{add} DEFAULT 5"))
    sql(spark, add)
    of_table(code, table.refresh())("c", "5")
    sql(spark, f"ALTER TABLE {at(table)} ALTER COLUMN c SET DEFAULT 5")


@case('spark_ext/statements/definitions.py: Table.delete("true")')
def _(spark: "SparkSession", path: Path) -> None:
    table = plain(path)
    (code,) = refused(lambda: sql(spark, f"DROP TABLE {at(table)}"))
    assert of_table(code, table).version == 1
    assert table.count() == 0


@case("spark_ext/statements/definitions.py: spark_ext.sql(…, storage_options={…})")
def _(spark: "SparkSession", path: Path) -> None:
    create = f"CREATE TABLE delta.`{path / 'new'}` (a INT) USING delta"
    (code,) = refused(lambda: sql(spark, f"{create} OPTIONS ('key' = 'v')"))
    value(code.replace("{…}", "{}").replace("…", "spark, text"), spark=spark, text=create)
    assert txlog.Table.exists(path / "new")


@case("spark_ext/transactions.py: txlog.spark_ext.write(df, uri, txn=…)")
def _(spark: "SparkSession", path: Path) -> None:
    from txlog.spark_ext.transactions import of_stream

    table = plain(path)
    (code,) = refused(lambda: of_stream(None, None, 1))
    frame = spark.createDataFrame([(3, "z")], "a BIGINT, s STRING")
    for _ in range(2):
        value(code.replace("…", "('stream', 1)"), df=frame, uri=table.uri)
    assert table.refresh().count() == 3


@case("spark_ext/writes/merge.py: .whenMatchedUpdateAll()")
def _(spark: "SparkSession", path: Path) -> None:
    from txlog.spark_ext import DeltaTable

    frame = spark.createDataFrame([(1, "z")], "a BIGINT, s STRING")
    target = DeltaTable.forPath(spark, plain(path).uri).alias("t")
    merging = target.merge(frame.alias("s"), "t.a = s.a")
    (code,) = refused(merging.execute)
    value(f"merging{code}", merging=merging).execute()


@case("spark_ext/writes/write_frame.py: txlog.write")
def _(spark: "SparkSession", path: Path) -> None:
    from txlog.spark_ext import write

    wrong: Any = ROWS
    (code,) = refused(lambda: write(wrong, str(path / "new")))
    assert value(code)(path / "new", ROWS).count() == 2


@case('spark_ext/writes/write_frame.py: df.writeStream.format("txlog")')
def _(spark: "SparkSession", path: Path) -> None:
    from txlog.spark_ext import write

    table = plain(path)
    stream = spark.readStream.format("txlog").load(table.uri)
    (code,) = refused(lambda: write(stream, str(path / "new")))
    writer = value(code, df=stream).option("checkpointLocation", str(path / "checkpoints"))
    writer.trigger(availableNow=True).start(str(path / "new")).awaitTermination(120)
    assert txlog.Table(path / "new").count() == 2


@case('spark_ext/delta/arguments.py: {"key": …, "secret": …}')
def _(spark: "SparkSession", path: Path) -> None:
    from txlog.spark_ext import DeltaTable

    table = plain(path)
    hadoop = {"fs.s3a.access.key": "x"}
    (code,) = refused(lambda: DeltaTable.forPath(spark, table.uri, hadoop))
    DeltaTable.forPath(spark, table.uri, value(code.replace("…", "'x'")))


@case("spark_ext/source/writer.py: txlog.spark_ext.write")
def _(spark: "SparkSession", path: Path) -> None:
    table = plain(path)
    stream = spark.readStream.format("txlog").load(table.uri).groupBy("a").count()
    writing = stream.writeStream.format("txlog").outputMode("complete")
    writing = writing.option("checkpointLocation", str(path / "c")).option("replaceWhere", "a = 1")
    with pytest.raises(Exception, match=r"use foreachBatch with txlog\.spark_ext\.write"):
        writing.start(str(path / "new")).awaitTermination(120)
    txlog.write(path / "new", pa.table({"a": [1, 5], "count": [0, 0]}))
    write = value("txlog.spark_ext.write")

    def some(frame: Any, _: int) -> None:
        write(frame.where("a = 1"), str(path / "new"), mode="overwrite", where="a = 1")

    again = stream.writeStream.outputMode("complete").foreachBatch(some)
    again = again.option("checkpointLocation", str(path / "d")).trigger(availableNow=True)
    again.start().awaitTermination(120)
    assert txlog.Table(path / "new").to_arrow().sort_by("a").to_pydict() == {
        "a": [1, 5], "count": [1, 0]
    }  # fmt: skip


@case("spark_ext/engine.py: txlog.Table")
def _(spark: "SparkSession", path: Path) -> None:
    from txlog.spark_ext import DeltaTable

    table = txlog.write(f"memory://remedy-{path.name}", ROWS)
    (code,) = refused(lambda: DeltaTable.forPath(spark, table.uri))
    assert value(code)(table.uri).count() == ROWS.num_rows


# Remedies that no case provokes, each with the reason.
ELSEWHERE: Mapping[str, str] = {
    "spark_ext/catalog.py: DeltaTable.replace(…).property": "test_delta_table_builder.py",
    "spark_ext/engine.py: txlog.spark_ext.register(spark)": "needs a session without txlog",
    'spark_ext/reads/frame.py: spark.read.format("txlog") | optimize.compact': "needs a driver "
    "without memory: test_spark_ext_small_driver.py",
    'spark_ext/reads/parquet_columns.py: spark.read.format("txlog")': "no public call asks for it",
    'spark_ext/reads/places.py: spark.read.format("txlog")': "needs a store that Spark cannot read",
    "spark_ext/reads/read_frame.py: txlog.Table": "needs a store that workers cannot read",
    "spark_ext/source/options.py: load(path) | save(path) | txlog.spark_ext.write | "
    "txlog.spark_ext.table_location": "needs a table of Spark's catalog: test_source_sql.py",
    "spark_ext/zones.py: txlog.spark_ext": "needs tasks without the session's zone",
}


@pytest.mark.slow
def test_each_remedy_with_a_call_has_a_case() -> None:
    written = remedies_with_calls("spark_ext/")
    assert {key: written[key] for key in written.keys() - CASES.keys() - ELSEWHERE.keys()} == {}
    assert (CASES.keys() | ELSEWHERE.keys()) - written.keys() == set()
    assert not CASES.keys() & ELSEWHERE.keys()


@pytest.mark.slow(cases=6)
@pytest.mark.spark
@pytest.mark.parametrize("key", CASES)
def test_a_remedy_can_be_followed(spark: "SparkSession", key: str, tmp_path: Path) -> None:
    CASES[key](spark, tmp_path)
