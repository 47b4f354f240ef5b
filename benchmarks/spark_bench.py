"""What the benchmarks of Spark share: rows, the CPU of all of Spark's processes, the report."""

import argparse
import os
import shutil
import threading
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from time import perf_counter, sleep
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench import CITIES, SEED, commit, machine, put_section
from pyspark.sql import SparkSession

import txlog.spark_ext

Works = Mapping[str, Callable[[], Any]]

PARTS = 10
FILES = 10
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


def timed(work: Callable[[], Any]) -> dict[str, float]:
    """Do work; return wall and CPU seconds, and the bytes that it says it wrote."""
    cpu, start = CPU.seconds(), perf_counter()
    size = work()
    seconds, cpu = perf_counter() - start, CPU.seconds() - cpu
    return {"seconds": seconds, "cpu": cpu, "bytes": size or 0}


def measure(groups: Mapping[str, Works], repeat: int, warm: int) -> list[str]:
    """Run the works of each group in turn; return a table for each, as ratios to its first work.

    The first `warm` runs are not counted.
    """
    lines = []
    for group, works in groups.items():
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in works}
        for number in range(repeat + warm):
            for name, work in works.items():
                found = timed(work)
                print(f"{number - warm + 1}/{repeat} {group} {name}: {found}", flush=True)
                if number >= warm:
                    runs[name].append(found)
        middle = {
            name: {key: median(run[key] for run in found) for key in found[0]}
            for name, found in runs.items()
        }
        base = next(iter(middle.values()))
        written = any(one["bytes"] for one in middle.values())
        lines += [
            "",
            f"| {group} | wall s | ratio | CPU s | ratio |" + (" MB |" if written else ""),
            "|---|---|---|---|---|" + ("---|" if written else ""),
        ]
        lines += [
            f"| {name} | {one['seconds']:.2f} | {one['seconds'] / base['seconds']:.2f} "
            f"| {one['cpu']:.2f} | {one['cpu'] / base['cpu']:.2f} |"
            + (f" {one['bytes'] / 1e6:.0f} |" if written else "")
            for name, one in middle.items()
        ]
    return lines


def arguments(
    description: str | None, rows: int, folder: str, *, repeat: int, warm: int
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rows", type=int, default=rows)
    parser.add_argument("--repeat", type=int, default=repeat)
    parser.add_argument("--warm", type=int, default=warm, help="rounds that warm the JVM up")
    parser.add_argument("--memory", default="2g", help="of the JVM")
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / folder)
    parser.add_argument("--dry", action="store_true", help="do not write RESULTS.md")
    return parser.parse_args()


def session(memory: str) -> SparkSession:
    warnings.simplefilter("ignore")
    return txlog.spark_ext.session(
        "txlog benchmark",
        spark__master="local[2]",
        spark__driver__memory=memory,
        spark__ui__enabled="false",
        spark__ui__showConsoleProgress="false",
        spark__log__level="ERROR",
    )


def report(title: str, told: str, lines: list[str], given: argparse.Namespace, spark: str) -> None:
    """Print what was found, and put it into RESULTS.md."""
    facts = (
        f"{datetime.now(UTC):%Y-%m-%d}, commit {commit()}. {told}; medians of {given.repeat} runs "
        f"of each, in turn, after {given.warm} that were not counted. Spark {spark}, local[2]. "
        f"{machine()}."
    )
    text = "\n".join([f"## {title}", "", facts, *lines]) + "\n"
    print("\n" + text)
    if not given.dry:
        put_section(text)
