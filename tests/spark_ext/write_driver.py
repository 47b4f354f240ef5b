"""A driver whose tasks are tried again, which tells Spark's logs all that it does.

Its argument is a folder: tables go there, Spark's event log to `events`, what was seen to
`seen.json`. Whatever Spark logs goes to the standard streams.
"""

import contextlib
import io
import json
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
from txlog.spark_ext.source import TxlogDataSource
from txlog.spark_ext.writer import BatchWriter

SECRET = "correct-horse-battery-staple"
STORAGE = json.dumps({"key": SECRET, "txlog.note": SECRET})


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
    df.write.format(name).mode("append").option("storageOptions", STORAGE).save(path)


def by_function(df: DataFrame, path: str) -> None:
    txlog.spark_ext.write(df, path, storage_options=json.loads(STORAGE))


def tried_again(spark: SparkSession, folder: Path) -> None:
    """Write every table in spite of failing attempts."""
    rows = spark.range(0, 1000, 1, 2)
    failing, dying = at_first(fail), at_first(die)
    for name, write in (("format", by_format), ("function", by_function)):
        write(failing(rows), str(folder / f"{name}-fails"))
        write(dying(rows), str(folder / f"{name}-dies"))
    by_format(rows, str(folder / "late"), "late-txlog")


def shown(spark: SparkSession, folder: Path) -> list[str]:
    """Return what Spark says of reads, writes and a stream that have secrets in their options."""
    said = io.StringIO()
    table, secret = str(folder / "format-fails"), {"storageOptions": STORAGE}
    found = spark.read.format("txlog").options(**secret).load(table)
    with contextlib.redirect_stdout(said):
        for mode in ("extended", "formatted", "cost", "codegen"):
            found.where("id > 3").explain(mode=mode)
        txlog.spark_ext.write(found.limit(2), folder / "copy", storage_options=json.loads(STORAGE))
    for wrong in (
        lambda: by_format(found.selectExpr("cast(id AS string) AS id"), table),
        lambda: by_function(found.selectExpr("id", "1 AS x"), table),
        lambda: by_format(found.selectExpr("raise_error('no') AS id"), str(folder / "none")),
        lambda: (
            found.write.format("txlog")
            .mode("append")
            .options(storageOptions=f"{{{SECRET}")
            .save(table)
        ),
    ):
        try:
            wrong()
        except Exception as error:
            said.write(f"{error!r} {error} {error.__cause__}\n")
    stream = spark.readStream.schema("id LONG").parquet(str(folder / "copy"))
    query = (
        stream.writeStream.format("txlog")
        .options(**secret)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "streamed"))
    )
    query.awaitTermination()
    with contextlib.redirect_stdout(said):
        query.explain(True)
    said.write(str([progress.json for progress in query.recentProgress]))
    spark.sql(f"CREATE TEMPORARY VIEW v USING txlog OPTIONS (path '{table}')")
    said.write(str(spark.sql("DESCRIBE EXTENDED v").collect()))
    return [said.getvalue()]


def main(folder: Path) -> None:
    (folder / "events").mkdir()
    settings = {**SETTINGS, "spark__master": "local[2,3]", "spark__log__level": "INFO"}
    spark = txlog.spark_ext.session(
        "txlog writing test",
        spark__eventLog__enabled="true",
        spark__eventLog__compress="false",
        spark__eventLog__dir=(folder / "events").as_uri(),
        spark__sql__ui__explainMode="extended",
        **settings,
    )
    spark.dataSource.register(LateSource)
    tried_again(spark, folder)
    said = shown(spark, folder)
    # Without `register`, only the other name of the option is kept out of plans.
    spark.conf.unset("spark.sql.redaction.options.regex")
    spark.range(3).write.format("txlog").mode("append").options(secretStorageOptions=STORAGE).save(
        str(folder / "copy")
    )
    spark.stop()
    (folder / "seen.json").write_text(json.dumps(said))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
