"""What it costs to change one column in some rows of a wide table.

    python benchmarks/update_columns.py --rows 1000000 --columns 100 --repeat 3

Each run copies the table, updates it, and reads the column. The bytes are those of all new files,
the log included.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import txlog
from txlog.data_files import column_updates

FEATURE = "txlog.fragments"
WAYS = {
    "rows move": {"_FILE_BYTES": 1 << 60},
    "files of all rows": {"_FILE_BYTES": -(1 << 60), "_MOST_LAYERS": 0},
    "as txlog chooses": {},
}


def make(root: Path, rows: int, columns: int, files: int) -> None:
    random = np.random.default_rng(0)
    schema = pa.schema([("id", pa.int64()), *((f"c{n}", pa.float64()) for n in range(columns))])
    table = txlog.Table.create(root, schema, properties={f"delta.feature.{FEATURE}": "supported"})
    step = rows // files
    for file in range(files):
        data = {f"c{n}": random.random(step) for n in range(columns)}
        table.append(pa.table({"id": np.arange(step) + file * step, **data}, schema=schema))


def sizes(root: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in root.rglob("*") if path.is_file()}


def run(made: Path, root: Path, way: str, where: str) -> tuple[float, float, int, float]:
    """Return wall and CPU seconds of the update, the bytes that it wrote, and seconds of a read."""
    shutil.copytree(made, root)
    table, before = txlog.Table(root), sizes(root)
    usual = {name: getattr(column_updates, name) for name in WAYS[way]}
    for name, value in WAYS[way].items():
        setattr(column_updates, name, value)
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        table.update({"c7": "c7 + 1"}, where)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    finally:
        for name, value in usual.items():
            setattr(column_updates, name, value)
    written = sum(size for path, size in sizes(root).items() if path not in before)
    again = time.perf_counter()
    txlog.Table(root).to_arrow(["c7"])
    again = time.perf_counter() - again
    shutil.rmtree(root)
    return wall, cpu, written, again


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made"
        make(made, given.rows, given.columns, given.files)
        print(f"{given.rows:,} rows, {given.columns} columns, {sum(sizes(made).values()):,} bytes")
        print("| rows changed | way | s | CPU s | bytes written | read the column, s |")
        print("|---|---|---|---|---|---|")
        for part in (1000, 100, 10, 1):
            where = f"id % {part} = 0"
            found: dict[str, list[tuple[float, float, int, float]]] = {way: [] for way in WAYS}
            for _ in range(given.repeat):
                for way in WAYS:
                    found[way].append(run(made, Path(folder) / "t", way, where))
            for way, runs in found.items():
                wall, cpu, written, again = map(statistics.median, zip(*runs, strict=True))
                print(
                    f"| {100 / part:g}% | {way} | {wall:.2f} | {cpu:.2f} | {written:,.0f} | "
                    f"{again:.3f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
