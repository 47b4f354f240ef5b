"""A driver whose tasks are retried. Its argument is the folder of its tables."""

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from streaming_driver import SETTINGS

import txlog.spark_ext
from txlog.spark_ext.source.source import TxlogDataSource
from txlog.spark_ext.source.writer import BatchWriter


class LateWriter(BatchWriter):
    """Its first attempts write all their files, and fail then."""

    def write(self, iterator: Any) -> Any:
        written = super().write(iterator)
        if TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("after the files were written")
        return written


class LateSource(TxlogDataSource):
    @classmethod
    def name(cls) -> str:
        return "late-txlog"

    def writer(self, schema: Any, overwrite: bool) -> Any:
        writer = super().writer(schema, overwrite)
        return LateWriter(writer.target, writer._txn)


def at_first(work: Callable[[], None]) -> Callable[[DataFrame], DataFrame]:
    """Return a step that does some work in the first attempt of each task, after all its rows."""

    def step(df: DataFrame) -> DataFrame:
        def batches(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from given
            if TaskContext.get().attemptNumber() == 0:
                work()

        return df.mapInArrow(batches, df.schema)

    return step


def fail() -> None:
    raise RuntimeError("a first attempt")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def by_format(df: DataFrame, path: str, name: str = "txlog") -> None:
    df.write.format(name).mode("append").save(path)


def by_function(df: DataFrame, path: str) -> None:
    txlog.spark_ext.write(df, path)


def tried_again(spark: SparkSession, folder: Path) -> None:
    """Write every table in spite of failing attempts."""
    rows = spark.range(0, 1000, 1, 2)
    failing, dying = at_first(fail), at_first(die)
    for name, write in (("format", by_format), ("function", by_function)):
        write(failing(rows), str(folder / f"{name}-fails"))
        write(dying(rows), str(folder / f"{name}-dies"))
    by_format(rows, str(folder / "late"), "late-txlog")


def main(folder: Path) -> None:
    settings = {**SETTINGS, "spark__master": "local[2,3]"}
    spark = txlog.spark_ext.session("txlog writing test", **settings)
    spark.dataSource.register(LateSource)
    tried_again(spark, folder)
    spark.stop()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
