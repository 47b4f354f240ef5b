"""What verbs cost by the number of files and of commits: requests, memory, time.

    python benchmarks/scale.py

The tables are log alone: their data files do not exist. Those that grow in files have a V2
checkpoint with sidecars of 100,000 files each, in 1,000 partitions. Those that grow in commits have
one file for each commit, and no checkpoint. Each run is a process of
its own; imports and the same work on a table of 1,000 files come first and are not timed. A request
is what an object store would get: one for a file or a range of it, and one for 1,000 names.
docs/scale.md has the table.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import log_tables
from bench import commit, machine

RELAXED = {"txlog.durability": "relaxed"}
PARTITION = "region = 'r03' and day = '2026-01-05'"
BY_FILES: dict[str, Callable[[Any], Any]] = {
    "open": lambda table: table.version,
    "plan of one of 1,000 partitions": lambda table: table.scan(where=PARTITION).fragments(),
    "`count()`": lambda table: table.count(),
    "`files()`": lambda table: table.files(),
    "a commit": lambda table: table.alter.set_properties({"a.b": "c"}),
    "`delete` of a partition": lambda table: table.delete(PARTITION),
    "`maintenance.checkpoint()`": lambda table: table.maintenance.checkpoint(),
    "`vacuum()` (a dry run)": lambda table: table.vacuum(),
    "`doctor()`": lambda table: table.doctor(),
}
BY_COMMITS: dict[str, Callable[[Any], Any]] = {
    "open": lambda table: table.version,
    "`history(10)`": lambda table: table.history(10),
    "a commit": lambda table: table.alter.set_properties({"a.b": "c"}),
    "`doctor()`": lambda table: table.doctor(),
}
WARM = 1_000


def made(kind: str, size: int, folder: Path) -> Path:
    root = folder / f"{kind}-{size}"
    if not root.exists():
        if kind == "files":
            log_tables.write_sidecars(root, size)
        else:
            log_tables.write_commits(root, size, 1)
    return root


def once(kind: str, name: str, size: int, folder: Path) -> dict[str, float]:
    from txlog.extend import open_table
    from txlog.store.open import open_store
    from txlog.testing import CountingStore

    work = (BY_FILES if kind == "files" else BY_COMMITS)[name]
    root = folder / "work"
    for count in (WARM, size):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(made(kind, count, folder), root, copy_function=os.link)
        store = CountingStore(open_store(str(root), RELAXED))
        cpu, start = time.process_time(), time.perf_counter()
        work(open_table(store))
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    shutil.rmtree(root, ignore_errors=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    requests = sum(store.requests.values())
    return {"seconds": seconds, "cpu": cpu, "peak": peak, "requests": requests}


def measured(kind: str, name: str, size: int, given: argparse.Namespace) -> dict[str, float] | None:
    command = [sys.executable, __file__, "--folder", str(given.folder)]
    command += ["--only", json.dumps([kind, name, size])]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=given.patience
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def cell(found: dict[str, float] | None, patience: int) -> str:
    if found is None:
        return f"more than {patience} s"
    return (
        f"{found['seconds']:.2f} s ({found['cpu']:.2f}), {found['peak']:,.0f} MB, "
        f"{found['requests']:,.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "txlog-scale")
    parser.add_argument("--files", type=int, nargs="+", default=[30_000, 300_000, 3_000_000])
    parser.add_argument("--commits", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--patience", type=int, default=600, help="seconds for each work")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.only:
        kind, name, size = json.loads(given.only)
        print(json.dumps(once(kind, name, size, given.folder)))
        return
    for kind, works, sizes in (
        ("files", BY_FILES, given.files),
        ("commits", BY_COMMITS, given.commits),
    ):
        print(f"\n| | {' | '.join(f'{size:,} {kind}' for size in sizes)} |")
        print(f"|---|{'---|' * len(sizes)}")
        for size in (WARM, *sizes):  # Not in the process that is measured.
            made(kind, size, given.folder)
        for name in works:
            cells = [cell(measured(kind, name, size, given), given.patience) for size in sizes]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print(f"\nCommit {commit()}. {machine()}.")


if __name__ == "__main__":
    main()
