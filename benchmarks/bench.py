"""What the benchmarks share: data of a fixed seed, runs in fresh processes, and the report."""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import sqlglot  # noqa: F401  # As lance, before the clock starts.

import txlog

HERE = Path(__file__).parent
SEED = 20260101
FEATURE = {"delta.feature.txlog.fragments": "supported"}
CITIES = np.array(["Aachen", "Bergen", "Cadiz", "Delft", "Évora", "Fiume", "Ghent", "Hobart"])

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("a", pa.int64()),
        ("b", pa.float64()),
        ("count", pa.int32()),
        ("city", pa.string()),
        ("code", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("flag", pa.bool_()),
        ("price", pa.float64()),
    ]
)


def batches(rows: int, per_batch: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows for the same numbers, wherever it runs."""
    for start in range(0, rows, per_batch):
        count = min(per_batch, rows - start)
        dice = np.random.default_rng([SEED, start])
        price = np.round(dice.gamma(2.0, 20.0, count), 2)
        columns = [
            np.arange(start, start + count),
            dice.integers(0, 1_000_000, count),
            dice.normal(0.0, 100.0, count),
            dice.poisson(5.0, count).astype(np.int32),
            CITIES[dice.integers(0, len(CITIES), count)],
            np.char.add("c", dice.integers(0, 10_000_000, count).astype("U7")),
            1_700_000_000_000_000 + dice.integers(0, 10**13, count),
            (19_000 + dice.integers(0, 1000, count)).astype(np.int32),
            dice.random(count) < 0.3,
            np.where(dice.random(count) < 0.1, np.nan, price),
        ]
        arrays = []
        for values, field in zip(columns, SCHEMA, strict=True):
            array = pa.array(values, from_pandas=True)
            arrays.append(array if array.type == field.type else array.cast(field.type))
        yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def reader(rows: int, fragments: int) -> pa.RecordBatchReader:
    # Whole batches fill whole files, so that both formats have the same fragments.
    return pa.RecordBatchReader.from_batches(SCHEMA, batches(rows, -(-rows // fragments // 4)))


def make_tables(folder: Path, rows: int, fragments: int) -> None:
    """Make the same table in both formats, unless it is there."""
    note = folder / f"made-{rows}-{fragments}"
    if note.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    per_file = -(-rows // fragments // 4) * 4
    print(f"making {rows:,} rows in {fragments} fragments …", flush=True)
    table = txlog.Table.create(folder / "txlog", SCHEMA, properties=FEATURE)
    table.append(
        reader(rows, fragments),
        options=txlog.WriteOptions(max_rows_per_file=per_file, target_file_bytes=1 << 40),
    )
    lance.write_dataset(
        reader(rows, fragments),
        str(folder / "lance"),
        max_rows_per_file=per_file,
        max_bytes_per_file=1 << 40,
    )
    note.touch()


def sizes(root: Path) -> dict[str, int]:
    return {str(p.relative_to(root)): p.stat().st_size for p in root.rglob("*") if p.is_file()}


def timed(work: Callable[[Path], Any], made: Path, scratch: Path) -> dict[str, Any]:
    """Do work on a copy of a table that shares its files; return seconds and new bytes."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(made, scratch, copy_function=os.link)
    before = sizes(scratch)
    cpu = time.process_time()
    start = time.perf_counter()
    work(scratch)
    seconds = time.perf_counter() - start
    cpu = time.process_time() - cpu
    new = {name: size for name, size in sizes(scratch).items() if name not in before}
    shutil.rmtree(scratch)
    return {"seconds": seconds, "cpu": cpu, "bytes": sum(new.values())}


def arguments(description: str, works: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--fragments", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "txlog-benchmarks")
    parser.add_argument("--dry", action="store_true", help="do not write RESULTS.md")
    parser.add_argument("--only", choices=works, help="do this alone, once, and print JSON")
    return parser.parse_args()


def alternate(
    given: argparse.Namespace, script: str, works: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Run all works in turn, again and again, each run in a process of its own."""
    make_tables(given.folder, given.rows, given.fragments)
    runs: dict[str, list[dict[str, Any]]] = {work: [] for work in works}
    options = ["--rows", str(given.rows), "--folder", str(given.folder)]
    for number in range(given.repeat):
        for work in works:
            command = [sys.executable, script, *options, "--only", work]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{work} failed:\n{done.stderr}")
            runs[work].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"{number + 1}/{given.repeat} {work}: {runs[work][-1]}", flush=True)
    return runs


def machine() -> str:
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    names = ("pyarrow", "pylance", "numpy")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores, {pages / 2**30:.0f} GiB, {platform.system()} "
        f"{platform.machine()}, Python {platform.python_version()}, {versions}; "
        f"load average at the end {load:.1f}"
    )


def commit() -> str:
    def git(*words: str) -> str:
        return subprocess.check_output(["git", *words], cwd=HERE, text=True).strip()

    changed = git("status", "--porcelain", "--", "../txlog")
    return git("rev-parse", "--short", "HEAD") + (" and changes" if changed else "")


def report(
    title: str,
    given: argparse.Namespace,
    runs: dict[str, list[dict[str, Any]]],
    labels: dict[str, str],
    ratio_to: str,
) -> None:
    """Print medians and ratios, and put them into RESULTS.md."""
    base = median(run["seconds"] for run in runs[ratio_to])
    table_bytes = sum(
        size for name, size in sizes(given.folder / "txlog").items() if name.endswith(".parquet")
    )
    told = (
        f"{datetime.now(UTC):%Y-%m-%d}, commit {commit()}. {given.rows:,} rows, {len(SCHEMA)} "
        f"columns, {given.fragments} fragments, {table_bytes / 1e6:,.0f} MB of Parquet. "
        f"{given.repeat} runs of each, in turn. {machine()}."
    )
    lines = [
        f"## {title}",
        "",
        told,
        "",
        "| | median s | fastest s | slowest s | ratio | CPU s | MB written |",
        "|---|---|---|---|---|---|---|",
    ]
    for work, found in runs.items():
        seconds = [run["seconds"] for run in found]
        lines.append(
            f"| {labels[work]} | {median(seconds):.3f} | {min(seconds):.3f} | {max(seconds):.3f} "
            f"| {median(seconds) / base:.2f} | {median(run['cpu'] for run in found):.2f} "
            f"| {median(run['bytes'] for run in found) / 1e6:.1f} |"
        )
    text = "\n".join(lines) + "\n"
    print("\n" + text)
    if not given.dry:
        put_section(text)


PEERS = ("polars", "deltalake", "polars-deltalake")


def peers() -> str:
    """Return the versions of the engines that txlog is compared with."""
    return ", ".join(f"{name} {version(name)}" for name in PEERS)


NOTES = "<!-- Written by hand: the next run leaves it as it is. -->"


def put_section(text: str) -> None:
    """Put a section into RESULTS.md, in the place of the one that has its title.

    What follows `NOTES` in that one stays.
    """
    path = HERE / "RESULTS.md"
    title, _, _ = text.partition("\n")
    before, _, after = path.read_text(encoding="utf-8").partition(f"{title}\n")
    old, next_title, rest = after.partition("\n## ")
    _, mark, notes = old.partition(NOTES)
    kept = f"\n{mark}{notes}" if mark else ""
    path.write_text(f"{before.rstrip()}\n\n{text}{kept}{next_title}{rest}", encoding="utf-8")
