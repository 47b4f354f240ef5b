"""What it costs to take a few rows, by where they are, from a large table.

Each process has taken a row of a small table before, so that imports are not counted. Of txlog
there are two tables: files as it makes them, and files with lz4 and 1,024 rows a page.
"""

import json
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow.parquet as pq
from bench import FEATURE, SCHEMA, SEED, alternate, arguments, make_tables, report, timed

import txlog


def offsets(count: int, rows: int) -> list[int]:
    return sorted(np.random.default_rng(SEED).choice(rows, count, replace=False).tolist())


def by_txlog(root: Path, chosen: list[int]) -> list[int]:
    table = txlog.Table(root)
    starts, total = [], 0
    for fragment in table.fragments():
        starts.append((total, fragment.id))
        total += fragment.physical_rows or 0
    firsts = np.array([start for start, _ in starts])
    places = np.searchsorted(firsts, chosen, side="right") - 1
    addresses = [
        (starts[at][1] << 32) + row - starts[at][0]
        for at, row in zip(places.tolist(), chosen, strict=True)
    ]
    return list(table.take(addresses=addresses)["id"].to_pylist())


def by_lance(root: Path, chosen: list[int]) -> list[int]:
    return list(lance.dataset(str(root)).take(chosen)["id"].to_pylist())


def by_reading_all(root: Path, chosen: list[int]) -> list[int]:
    adds = [fragment.files[0].path for fragment in txlog.Table(root).fragments()]
    return list(pq.read_table([str(root / path) for path in adds]).take(chosen)["id"].to_pylist())


Take = Callable[[Path, list[int]], list[int]]
WORKS: dict[str, tuple[Take, str, int, str]] = {
    "whole": (by_reading_all, "txlog", 1000, "1,000 rows: pyarrow reads all Parquet files"),
    "txlog-1000": (by_txlog, "txlog", 1000, "1,000 rows: txlog `take`"),
    "lance-1000": (by_lance, "lance", 1000, "1,000 rows: pylance `take`"),
    "lz4-1000": (by_txlog, "lz4", 1000, "1,000 rows: txlog `take`, lz4, 1,024 rows a page"),
    "txlog-10": (by_txlog, "txlog", 10, "10 rows: txlog `take`"),
    "lz4-10": (by_txlog, "lz4", 10, "10 rows: txlog `take`, lz4, 1,024 rows a page"),
    "lance-10": (by_lance, "lance", 10, "10 rows: pylance `take`"),
}


def make_lz4(folder: Path) -> None:
    """Make the table with small pages from the other one, unless it is there."""
    if not (folder / "lz4").exists():
        source = txlog.Table(folder / "txlog")
        properties = {
            **FEATURE,
            "txlog.pageRows": "1024",
            "delta.parquet.compression.codec": "lz4_raw",
        }
        table = txlog.Table.create(folder / "lz4.part", SCHEMA, properties=properties)
        for fragment in source.fragments():
            table.append(
                fragment.to_table(),
                options=txlog.WriteOptions(max_rows_per_file=1 << 30, target_file_bytes=1 << 40),
            )
        (folder / "lz4.part").rename(folder / "lz4")


def main() -> None:
    given = arguments((__doc__ or "").partition("\n")[0], list(WORKS))
    if given.only:
        take, made, count, _ = WORKS[given.only]
        chosen = offsets(count, given.rows)
        take(given.folder / "small" / made.replace("lz4", "txlog"), [0])

        def work(root: Path) -> None:
            if take(root, chosen) != chosen:  # `id` counts the rows.
                raise SystemExit("these are other rows")

        print(json.dumps(timed(work, given.folder / made, given.folder / "scratch")))
        return
    make_tables(given.folder, given.rows, given.fragments)
    make_tables(given.folder / "small", 100, 1)
    make_lz4(given.folder)
    runs = alternate(given, __file__, list(WORKS))
    report("Taking rows", given, runs, {w: row[3] for w, row in WORKS.items()}, "whole")


if __name__ == "__main__":
    main()
