"""A driver whose cluster retries tasks, in a separate process.

Arguments: `columns` or `plan`, the table, and a file that tells whether a worker died already.
`columns` adds one; `plan` prints the numbers of the rows that `spark_ext.read` finds.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import txlog.spark_ext
from tests.moved import moved
from txlog.spark_ext.engine import PLAN_FILES, SparkEngine
from txlog.spark_ext.reads import read_frame

SETTINGS = {
    "spark__master": "local[2,3]",  # Three attempts.
    "spark__ui__enabled": "false",
    "spark__ui__showConsoleProgress": "false",
    "spark__log__level": "OFF",
    "spark__driver__memory": "1g",
    "spark__driver__bindAddress": "127.0.0.1",
    "spark__driver__host": "127.0.0.1",
    "spark__driver__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def main(work: str, path: str, died: str) -> None:
    spark = txlog.spark_ext.session("txlog retries", **SETTINGS)
    {"columns": add_column, "plan": plan}[work](spark, path, died)
    spark.stop()


def plan(spark: SparkSession, path: str, died: str) -> None:
    """Let executors plan; the worker of the last share dies before its first answer."""

    class Dying(SparkEngine):
        def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
            *_, last = items = list(items)

            def dies_once(item: Any) -> Any:
                if item == last and not Path(died).exists():
                    Path(died).touch()
                    os._exit(9)
                return function(item)

            return super().map(dies_once, items)

    read_frame.SparkEngine = Dying  # type: ignore[misc]  # In this process.
    with moved({"txlog.snapshot.live_files:_LARGE_BYTES": 1}):
        spark.conf.set(PLAN_FILES, "1")
        found = txlog.spark_ext.read(spark, path, where="x > 3").toArrow()
    print(sorted(found["x"].to_pylist()))


def add_column(spark: SparkSession, path: str, died: str) -> None:
    def dies_once(batch: pa.RecordBatch) -> pa.Array:
        if batch.num_rows and batch["x"][0].as_py() == 40 and not Path(died).exists():
            Path(died).touch()
            os._exit(9)
        return batch["x"]

    # One task, so that other items of it have written their files when the worker dies.
    held = txlog.Table(path, engine=txlog.spark_ext.SparkEngine(spark, tasks=1))
    held.alter.add_columns({"y": dies_once})


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
