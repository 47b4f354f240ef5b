"""A join of few rows with a large table in Spark: by look-ups, and by Spark's own join.

python benchmarks/lookup_join.py [--rows N] [--repeat N] [--dry]

Both are done in turn, each after one run that is not counted, and give the same rows.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import gettempdir

import numpy as np
import pyarrow as pa
from bench import SEED, commit, machine, put_section
from pyspark.sql import DataFrame, SparkSession
from spark_bench import session

import txlog
from txlog import spark_ext

COUNTS = (1, 100, 10_000)


def make(home: Path, rows: int) -> None:
    """Make a table in no order of its key, 1% deleted, with an index."""
    shutil.rmtree(home, ignore_errors=True)
    dice = np.random.default_rng(SEED)
    properties = {"txlog.pageRows": "256", "delta.parquet.compression.codec": "lz4_raw"}
    for keys in np.array_split(dice.permutation(rows), 20):
        data = pa.table(
            {"k": keys, "a": dice.integers(0, 1 << 60, len(keys)), "b": dice.random(len(keys))}
        )
        txlog.write(home, data, "append", properties=properties)
    table = txlog.Table(home)
    table.indexes.create("k")
    table.delete("a % 100 = 0")


def by_lookups(home: Path, frame: DataFrame) -> DataFrame:
    return spark_ext.lookup_join(frame, str(home), on="k")


def by_spark(home: Path, frame: DataFrame) -> DataFrame:
    return frame.join(spark_ext.read(frame.sparkSession, str(home)), "k")


WAYS: dict[str, Callable[[Path, DataFrame], DataFrame]] = {
    "`lookup_join`": by_lookups,
    "Spark's own join": by_spark,
}


def measured(spark: SparkSession, home: Path, rows: int, repeat: int) -> list[str]:
    dice = np.random.default_rng(SEED + 1)
    lines = []
    for count in COUNTS:
        keys = dice.choice(rows, count, replace=False).tolist()
        frame = spark.createDataFrame([(key,) for key in keys], "k long").repartition(2).cache()
        frame.count()
        took: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(repeat + 1):
            answers = []
            for way, join in WAYS.items():
                began = time.perf_counter()
                found = join(home, frame).select("k", "a", "b").collect()
                if number:
                    took[way].append(time.perf_counter() - began)
                answers.append(sorted(map(tuple, found)))
            if answers[0] != answers[1] or (not answers[0] and count > 1):
                raise SystemExit(f"the joins of {count} rows differ")
        own = median(took["Spark's own join"])
        lines += [
            f"| {count:,} | {way} | {median(times):.3f} | {own / median(times):.1f} |"
            for way, times in took.items()
        ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "txlog-lookup-join")
    parser.add_argument("--dry", action="store_true", help="only print")
    given = parser.parse_args()
    make(given.folder, given.rows)
    spark = session("4g")
    text = [
        "## Joins of few rows in Spark",
        "",
        (
            f"{time.strftime('%Y-%m-%d')}, commit {commit()}, `python benchmarks/lookup_join.py "
            f"--rows {given.rows} --repeat {given.repeat}`. A table of {given.rows:,} rows in 20 "
            "files in no order of the key, 1% deleted, with an index. Medians of wall time; "
            f"{machine()}"
        ),
        "",
        "| rows of the frame | by | s | Spark's own / it |",
        "|---|---|---|---|",
        *measured(spark, given.folder, given.rows, given.repeat),
    ]
    spark.stop()
    print("\n".join(text))
    if not given.dry:
        put_section("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
