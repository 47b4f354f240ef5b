"""What it costs Spark to write a table, against plain Parquet files.

CPU seconds are those of everything Spark runs: the program, the JVM, the Python workers. "Bytes not
counted" is a setting of Spark's; docs/spark.md tells when to use it.
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame
from spark_bench import FILES, PARTS, arguments, make_source, measure, report, session

import txlog
import txlog.spark_ext


def by_parquet(data: DataFrame, target: Path) -> None:
    data.write.parquet(str(target))


def by_parquet_partitioned(data: DataFrame, target: Path) -> None:
    data.write.partitionBy("part").parquet(str(target))


def by_format(data: DataFrame, target: Path) -> None:
    data.write.format("txlog").mode("append").save(str(target))


def by_format_partitioned(data: DataFrame, target: Path) -> None:
    data.write.format("txlog").mode("append").option("partitionBy", "part").save(str(target))


def by_function(data: DataFrame, target: Path) -> None:
    txlog.spark_ext.write(data, target)


def by_function_partitioned(data: DataFrame, target: Path) -> None:
    txlog.spark_ext.write(data, target, partition_by="part")


# Spark adds up the bytes of a batch for Python after every row, but not for this limit, which
# `txlog.spark_ext.write` sets by itself.
LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
NO_LIMIT = str(2**31 - 1)


def uncounted(work: Callable[[DataFrame, Path], None], data: DataFrame, target: Path) -> None:
    data.sparkSession.conf.set(LIMIT, NO_LIMIT)
    try:
        work(data, target)
    finally:
        data.sparkSession.conf.unset(LIMIT)


GROUPS = {
    "unpartitioned": {
        "`df.write.parquet`": by_parquet,
        '`df.write.format("txlog")`': by_format,
        "`txlog.spark_ext.write`": by_function,
        '`df.write.format("txlog")`, bytes not counted': partial(uncounted, by_format),
    },
    f"partitioned by a column of {PARTS} values": {
        "`df.write.parquet`": by_parquet_partitioned,
        '`df.write.format("txlog")`': by_format_partitioned,
        "`txlog.spark_ext.write`": by_function_partitioned,
        '`df.write.format("txlog")`, bytes not counted': partial(uncounted, by_format_partitioned),
    },
}


def written(work: Callable[[DataFrame, Path], None], data: DataFrame, target: Path) -> int:
    """Write to a new folder, and return the bytes of Parquet in it."""
    shutil.rmtree(target, ignore_errors=True)
    work(data, target)
    return sum(path.stat().st_size for path in target.rglob("*.parquet"))


def main() -> None:
    given = arguments(__doc__, 5_000_000, "txlog-spark-write", repeat=5, warm=2)
    source = make_source(given.folder, given.rows)
    spark = session(given.memory)
    data = spark.read.parquet(str(source))
    target = given.folder / "target"
    groups = {
        group: {name: partial(written, work, data, target) for name, work in works.items()}
        for group, works in GROUPS.items()
    }
    lines = measure(groups, given.repeat, given.warm)
    told = f"{given.rows:,} rows of 8 numbers and 2 strings, read from {FILES} Parquet files"
    report("Writing with Spark", told, lines, given, spark.version)
    spark.stop()
    shutil.rmtree(target, ignore_errors=True)


if __name__ == "__main__":
    main()
