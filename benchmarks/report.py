"""How long the report of a table of many files takes, and how large its page is.

    python benchmarks/report.py FOLDER [--files 1000000]

The table is made in the folder, once: 20 large commits, a checkpoint, and for each file of the log
one of its size that takes no room on the disk. The few files that a report looks into are hence
found damaged.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from pathlib import Path

from log_tables import BULK_COMMITS, adds, compact, write_bulk

import txlog
from txlog.tools.report import report


def make(root: Path, files: int, kept: int) -> None:
    """Write the table; of its commits, the newest `kept` stay."""
    write_bulk(root, files, compact)
    txlog.Table(root).maintenance.checkpoint()
    for version in range(BULK_COMMITS - kept):
        (root / "_delta_log" / f"{version:020}.json").unlink()
    folders: set[Path] = set()
    for add in adds(0, files // BULK_COMMITS * BULK_COMMITS):
        path = root / add["path"]
        if path.parent not in folders:
            path.parent.mkdir(parents=True)
            folders.add(path.parent)
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
        os.ftruncate(descriptor, add["size"])
        os.close(descriptor)


def main() -> None:
    """Make the table if it is not there, and take the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, default=BULK_COMMITS, help="that stay in the log")
    asked = parser.parse_args()
    root = asked.folder / f"files-{asked.files}-commits-{asked.commits}"
    if not txlog.Table.exists(root):
        make(root, asked.files, asked.commits)
    begin, busy = time.perf_counter(), time.process_time()
    made = report(txlog.Table(root))
    took, worked = time.perf_counter() - begin, time.process_time() - busy
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    facts = made.facts
    print(
        f"{facts.files:,} files, {len(facts.findings)} findings: {took:.1f} s ({worked:.1f} s of "
        f"CPU), {len(made.html) / 1e6:.2f} MB, {memory:,} MiB at most"
    )


if __name__ == "__main__":
    main()
