"""What it costs Spark to write a table, against plain Parquet files.

CPU seconds are those of everything Spark runs: the program, the JVM, the Python workers.
"""

import argparse
import os
import shutil
import threading
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from time import perf_counter, sleep

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench import CITIES, HERE, SEED, commit, machine
from pyspark.sql import DataFrame, SparkSession

import txlog
import txlog.spark_ext

PARTS = 10
FILES = 8
TICK = os.sysconf("SC_CLK_TCK")


def rows(start: int, count: int) -> pa.Table:
    """Return rows of eight numbers and two strings; `part` has ten values."""
    dice = np.random.default_rng([SEED, start])
    return pa.table(
        {
            "id": np.arange(start, start + count),
            "a": dice.integers(0, 1_000_000, count),
            "b": dice.normal(0.0, 100.0, count),
            "count": dice.poisson(5.0, count).astype(np.int32),
            "part": dice.integers(0, PARTS, count).astype(np.int32),
            "price": np.round(dice.gamma(2.0, 20.0, count), 2),
            "weight": dice.random(count, dtype=np.float32),
            "at": 1_700_000_000_000_000 + dice.integers(0, 10**13, count),
            "city": CITIES[dice.integers(0, len(CITIES), count)],
            "code": np.char.add("c", dice.integers(0, 10_000_000, count).astype("U7")),
        }
    )


def make_source(folder: Path, total: int) -> Path:
    """Make the Parquet files that are read, unless they are there."""
    source = folder / f"source-{total}"
    if not source.exists():
        shutil.rmtree(folder, ignore_errors=True)
        made = folder / "made"
        made.mkdir(parents=True)
        each = -(-total // FILES)
        for at in range(FILES):
            count = min(each, total - at * each)
            pq.write_table(rows(at * each, count), made / f"{at}.parquet", row_group_size=250_000)
        made.rename(source)
    return source


class TreeCpu:
    """The CPU seconds of this process and of all below it, looked at twice a second.

    What has ended counts as far as it was seen: Spark ends idle Python workers, and nobody is left
    whose time would include theirs.
    """

    def __init__(self) -> None:
        self._used: dict[tuple[int, str], int] = {}  # By process and its start.
        self._lock = threading.Lock()
        threading.Thread(target=self._look_on, daemon=True).start()

    def seconds(self) -> float:
        with self._lock:
            self._look()
            return sum(self._used.values()) / TICK

    def _look_on(self) -> None:
        while True:
            self.seconds()
            sleep(0.5)

    def _look(self) -> None:
        found: dict[int, tuple[str, int]] = {}
        children: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # It has just ended.
            pid = int(stat.parent.name)
            children.setdefault(int(fields[1]), []).append(pid)
            found[pid] = fields[19], int(fields[11]) + int(fields[12])
        left = [os.getpid()]
        while left:
            pid = left.pop()
            if pid in found:
                start, ticks = found[pid]
                self._used[pid, start] = ticks
            left.extend(children.get(pid, ()))


CPU = TreeCpu()


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


GROUPS = {
    "unpartitioned": {
        "`df.write.parquet`": by_parquet,
        '`df.write.format("txlog")`': by_format,
        "`txlog.spark_ext.write`": by_function,
    },
    f"partitioned by a column of {PARTS} values": {
        "`df.write.parquet`": by_parquet_partitioned,
        '`df.write.format("txlog")`': by_format_partitioned,
        "`txlog.spark_ext.write`": by_function_partitioned,
    },
}


def timed(
    work: Callable[[DataFrame, Path], None], data: DataFrame, target: Path
) -> dict[str, float]:
    shutil.rmtree(target, ignore_errors=True)
    cpu, start = CPU.seconds(), perf_counter()
    work(data, target)
    seconds, cpu = perf_counter() - start, CPU.seconds() - cpu
    size = sum(path.stat().st_size for path in target.rglob("*.parquet"))
    shutil.rmtree(target)
    return {"seconds": seconds, "cpu": cpu, "bytes": size}


def measure(spark: SparkSession, given: argparse.Namespace, source: Path) -> list[str]:
    data = spark.read.parquet(str(source))
    lines = []
    for group, works in GROUPS.items():
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in works}
        for number in range(given.repeat + 1):  # The first round warms the JVM up.
            for name, work in works.items():
                found = timed(work, data, given.folder / "target")
                print(f"{number}/{given.repeat} {group} {name}: {found}", flush=True)
                if number:
                    runs[name].append(found)
        middle = {
            name: {key: median(run[key] for run in found) for key in found[0]}
            for name, found in runs.items()
        }
        base = next(iter(middle.values()))
        lines += [
            "",
            f"| {group} | wall s | ratio | CPU s | ratio | MB |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {name} | {one['seconds']:.2f} | {one['seconds'] / base['seconds']:.2f} "
            f"| {one['cpu']:.2f} | {one['cpu'] / base['cpu']:.2f} | {one['bytes'] / 1e6:.0f} |"
            for name, one in middle.items()
        ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--memory", default="1g", help="of the JVM")
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "txlog-spark-write")
    parser.add_argument("--dry", action="store_true", help="do not write RESULTS.md")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    source = make_source(given.folder, given.rows)
    spark = txlog.spark_ext.session(
        "txlog benchmark",
        spark__master="local[2]",
        spark__driver__memory=given.memory,
        spark__ui__enabled="false",
        spark__ui__showConsoleProgress="false",
        spark__log__level="ERROR",
    )
    lines = measure(spark, given, source)
    spark.stop()
    told = (
        f"{datetime.now(UTC):%Y-%m-%d}, commit {commit()}. {given.rows:,} rows of 8 numbers and 2 "
        f"strings, read from {FILES} Parquet files; medians of {given.repeat} runs of each, in "
        f"turn, after one that was not counted. Spark {spark.version}, local[2]. {machine()}."
    )
    text = "\n".join(["## Writing with Spark", "", told, *lines]) + "\n"
    print("\n" + text)
    if not given.dry:
        with (HERE / "RESULTS.md").open("a", encoding="utf-8") as file:
            file.write("\n" + text)


if __name__ == "__main__":
    main()
