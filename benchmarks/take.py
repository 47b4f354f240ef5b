"""What it costs to take a few rows, by where they are, from a large table."""

import json
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow.parquet as pq
from bench import SEED, alternate, arguments, report, timed

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
    return list(table.rows_at(addresses)["id"].to_pylist())


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
    "txlog-10": (by_txlog, "txlog", 10, "10 rows: txlog `take`"),
    "lance-10": (by_lance, "lance", 10, "10 rows: pylance `take`"),
}


def main() -> None:
    given = arguments(__doc__ or "", list(WORKS))
    if given.only:
        take, made, count, _ = WORKS[given.only]
        chosen = offsets(count, given.rows)

        def work(root: Path) -> None:
            if take(root, chosen) != chosen:  # `id` counts the rows.
                raise SystemExit("these are other rows")

        print(json.dumps(timed(work, given.folder / made, given.folder / "scratch")))
        return
    runs = alternate(given, __file__, list(WORKS))
    report("Taking rows", given, runs, {w: row[3] for w, row in WORKS.items()}, "whole")


if __name__ == "__main__":
    main()
