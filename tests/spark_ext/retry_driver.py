"""A driver whose cluster retries tasks, in a separate process.

Arguments: the table, and a file that tells whether a worker died already.
"""

import os
import sys
import warnings
from pathlib import Path

import pyarrow as pa

import txlog.spark_ext

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


def main(path: str, died: str) -> None:
    spark = txlog.spark_ext.session("txlog retries", **SETTINGS)

    def dies_once(batch: pa.RecordBatch) -> pa.Array:
        if batch.num_rows and batch["x"][0].as_py() == 40 and not Path(died).exists():
            Path(died).touch()
            os._exit(9)
        return batch["x"]

    # One task, so that other items of it have written their files when the worker dies.
    held = txlog.Table(path, engine=txlog.spark_ext.SparkEngine(spark, tasks=1))
    held.alter.add_columns({"y": dies_once})
    spark.stop()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], sys.argv[2])
