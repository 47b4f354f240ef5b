"""How the cost of a work grows with the number of files, or of commits.

    python benchmarks/growth.py

Each run is a process of its own; imports are not timed. The slope is that of the logarithms,
between the last two sizes and over all of them: 1 is linear, 0 does not depend on the size.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from datetime import UTC, datetime
from math import log10
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from typing import Any

import log_tables
import log_works
import write_works
from bench import commit, machine, put_section
from compare import Case, of, run

TITLE = "How the cost grows"
FILES = (1_000, 10_000, 100_000, 1_000_000)
COMMITS = (100, 1_000, 10_000, 100_000)
MOST = 10_000_000


def one_commit(root: Path) -> Any:
    import txlog

    first, fragment = write_works.txlog_fragments(root, 20_000_000, 2)
    # The first one to a table of another writer looks for fragment ids in it, and notes the last.
    txlog.Table(root).commit(txlog.FragmentOperation.Append([first]))
    table = txlog.Table(root)
    return lambda: table.commit(txlog.FragmentOperation.Append([fragment])).version


WORKS = {
    "open, many files": ("sidecars", FILES, of(log_works.txlog_about), False),
    "list": ("sidecars", FILES, of(log_works.txlog_list), False),
    "plan, partition": ("sidecars", FILES, of(log_works.txlog_plan(log_works.IN_PARTITION)), False),
    "plan, range": ("sidecars", FILES, of(log_works.txlog_plan(log_works.IN_RANGE)), False),
    "one commit, many files": ("sidecars", FILES, one_commit, True),
    "checkpoint": ("sidecars", FILES, write_works.txlog_checkpoint, True),
    "open, many commits": ("commits", COMMITS, of(log_works.txlog_about), False),
    "plan, range, many commits": (
        "commits",
        COMMITS,
        of(log_works.txlog_plan(log_works.IN_RANGE)),
        False,
    ),
    "one commit, many commits": ("commits", COMMITS, one_commit, True),
    "checkpoint, many commits": ("commits", COMMITS, write_works.txlog_checkpoint, True),
    "plan, partition, ten million files": (
        "sidecars",
        (MOST,),
        of(log_works.txlog_plan(log_works.IN_PARTITION)),
        False,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--most", type=int, default=MOST, help="no more files or commits than that")
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "txlog-benchmarks-log")
    parser.add_argument("--dry", action="store_true", help="do not write RESULTS.md")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        name, size = given.run
        made, _, work, copied = WORKS[name]
        case = Case(name, {"txlog": work}, made, copied=copied)
        print(json.dumps(run(case, "txlog", given.folder, int(size))))
        return
    lines = []
    for name, (made, sizes, _, _) in WORKS.items():
        medians: list[tuple[int, float, float]] = []
        for size in sizes:
            if size > given.most:
                continue
            log_tables.make(given.folder, made, size)
            found = []
            for _ in range(given.repeat):
                command = [sys.executable, __file__, "--folder", str(given.folder)]
                done = subprocess.run(
                    [*command, "--run", name, str(size)], capture_output=True, text=True, check=True
                )
                found.append(json.loads(done.stdout.splitlines()[-1]))
            seconds, memory = (median(one[key] for one in found) for key in ("seconds", "memory"))
            medians.append((size, seconds, memory))
            print(name, medians[-1], flush=True)
        if medians:
            lines.append(row(name, medians))
    told = (
        f"{datetime.now(UTC):%Y-%m-%d}, commit {commit()}. Medians of {given.repeat}; "
        f"milliseconds, and MB beyond the imports. {machine()}."
    )
    text = "\n".join(
        [
            f"## {TITLE}",
            "",
            told,
            "",
            "| work | sizes | ms | MB | slope at the end | slope over all |",
            "|---|---|---|---|---|---|",
            *lines,
            "",
        ]
    )
    print("\n" + text)
    if not given.dry:
        put_section(text)


def row(name: str, medians: list[tuple[int, float, float]]) -> str:
    def slope(one: tuple[int, float, float], other: tuple[int, float, float]) -> str:
        if one == other:
            return "–"
        return f"{log10(other[1] / one[1]) / log10(other[0] / one[0]):.2f}"

    cells = [
        name,
        ", ".join(f"{size:,}" for size, _, _ in medians),
        ", ".join(f"{seconds * 1000:,.1f}" for _, seconds, _ in medians),
        ", ".join(f"{memory:,.0f}" for _, _, memory in medians),
        slope(medians[-2], medians[-1]) if len(medians) > 1 else "–",
        slope(medians[0], medians[-1]),
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
