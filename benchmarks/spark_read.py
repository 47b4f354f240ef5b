"""What it costs Spark to read a table, against plain Parquet: the same files, by `spark.read`.

CPU seconds are those of everything Spark runs: the program, the JVM, the Python workers.
"""

import json
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from spark_bench import Works, arguments, make_source, measure, report, session

import txlog
from txlog.spark_ext import read
from txlog.spark_ext.reads.parquet_columns import POSITION

MANY = 100_000  # Files of the table that is only planned.


class PlainReader(DataSourceReader):
    """Reads one column of Parquet files, and nothing else: no Python source takes less."""

    def __init__(self, files: list[str]) -> None:
        self._files = files

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(file) for file in self._files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from pq.ParquetFile(partition.value).iter_batches(columns=["b"])


class PlainSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "plain"

    def schema(self) -> str:
        return "b double"

    def reader(self, schema: object) -> DataSourceReader:
        return PlainReader(json.loads(self.options["files"]))


def make_tables(folder: Path, rows: int) -> dict[str, Path]:
    """Make three tables of the same files: without deletions, 1% in each file, in one of five."""
    source = make_source(folder, rows)
    found = {name: folder / f"{name}-{rows}" for name in ("whole", "each", "fifth")}
    if found["fifth"].exists():
        return found
    shutil.rmtree(found["whole"], ignore_errors=True)
    table: txlog.Table | None = None
    for file in sorted(source.glob("*.parquet")):
        table = txlog.write(found["whole"], pq.read_table(file), mode="append")
    assert table is not None
    for name in ("each", "fifth"):
        shutil.rmtree(found[name], ignore_errors=True)
        shutil.copytree(found["whole"], found[name], copy_function=os.link)
    txlog.Table(found["each"]).delete("a % 100 = 7")
    fifth = [f["path"] for f in txlog.Table(found["fifth"]).files().to_pylist()][::5]
    spans = [
        json.loads(f["stats"])
        for f in txlog.Table(found["fifth"]).files().to_pylist()
        if f["path"] in fifth
    ]
    within = " OR ".join(
        f"id BETWEEN {one['minValues']['id']} AND {one['maxValues']['id']}" for one in spans
    )
    txlog.Table(found["fifth"]).delete(f"a % 100 = 7 AND ({within})")
    return found


def make_many(folder: Path) -> Path:
    """Make the log of a table of very many files, which are not there."""
    found = folder / f"many-{MANY}"
    if found.exists():
        return found
    table = txlog.Table.create(found, pq.read_schema(next((folder).glob("source-*/*.parquet"))))
    add = '{"add":{"path":"part-%05d.parquet","partitionValues":{},"size":1000000,'
    add += '"modificationTime":1,"dataChange":true,"stats":"{\\"numRecords\\":100000}"}}'
    lines = "\n".join(add % number for number in range(MANY))
    log = found / "_delta_log"
    (log / "00000000000000000001.json").write_text(lines + "\n", encoding="utf-8")
    table.refresh().maintenance.checkpoint()
    return found


def counted(frame: DataFrame) -> None:
    frame.count()


def summed(frame: DataFrame) -> None:
    frame.agg(F.sum("b")).collect()


def everything(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def works(spark: SparkSession, tables: dict[str, Path]) -> dict[str, Works]:
    files = [str(path) for path in tables["whole"].glob("*.parquet")]
    named = {
        "`txlog.spark_ext.read`, no deletions": "whole",
        "`txlog.spark_ext.read`, 1% deleted in each file": "each",
        "`txlog.spark_ext.read`, 1% deleted in one file of five": "fifth",
    }
    groups: dict[str, Works] = {}
    for group, query in (
        ("count", counted),
        ("sum of one column of ten", summed),
        ("all columns", everything),
    ):
        found = {"`spark.read.parquet`": lambda query=query: query(spark.read.parquet(*files))}
        for label, name in named.items():
            found[label] = partial(_native, spark, tables[name], query)
        if query is summed:
            found['`format("txlog")`, `columns`'] = partial(_by_format, spark, tables["whole"])
            found["`spark.read.parquet` with each row's position, as deletions need it"] = partial(
                _positions, spark, files
            )
            found["a Python source that only reads that column"] = partial(_plain, spark, files)
        groups[group] = found
    return groups


def _native(spark: SparkSession, table: Path, query: object) -> None:
    query(read(spark, str(table)))  # type: ignore[operator]


def _by_format(spark: SparkSession, table: Path) -> None:
    summed(spark.read.format("txlog").option("columns", "b").load(str(table)))


def _positions(spark: SparkSession, files: list[str]) -> None:
    schema = f"b double, {POSITION} bigint"
    summed(spark.read.schema(schema).parquet(*files).where(f"{POSITION} >= 0"))


def _plain(spark: SparkSession, files: list[str]) -> None:
    summed(spark.read.format("plain").option("files", json.dumps(files)).load())


def planning(spark: SparkSession, table: Path, repeat: int) -> str:
    """Return how long it takes until Spark has a plan for very many files."""
    found = []
    for _ in range(repeat + 1):
        start = perf_counter()
        frame = read(spark, str(table))
        opened = perf_counter() - start
        assert frame._jdf.queryExecution().executedPlan() is not None
        found.append((opened, perf_counter() - start))
    opened, planned = (sorted(times)[len(times) // 2] for times in zip(*found[1:], strict=True))
    return (
        f"Planning {MANY:,} files: {opened:.2f} s for `read`, {planned:.2f} s until Spark has its "
        f"plan (the first time, with a cold JVM: {found[0][1]:.2f} s)."
    )


def main() -> None:
    given = arguments(__doc__, 10_000_000, "txlog-spark-read", repeat=15, warm=12)
    tables = make_tables(given.folder, given.rows)
    many = make_many(given.folder)
    spark = session(given.memory)
    spark.dataSource.register(PlainSource)
    lines = measure(works(spark, tables), given.repeat, given.warm)
    lines += ["", planning(spark, many, given.repeat)]
    told = f"{given.rows:,} rows of 8 numbers and 2 strings in 10 files"
    report("Reading with Spark", told, lines, given, spark.version)
    spark.stop()


if __name__ == "__main__":
    main()
