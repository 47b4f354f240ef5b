"""The difference of two versions of a large table in which ten files changed: time and memory.

The table is log alone. Each way is a process of its own; deltalake has no such verb, so that its
lists of files are compared, which is less than what the others tell.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import gettempdir

import log_tables
from bench import commit, machine, put_section

WAYS = {
    "deltalake": "deltalake: two `get_add_actions`, paths compared",
    "commits": "txlog `diff(v - 1, v)`, of a commit that adds and removes",
    "look-up": "txlog, of a commit that moves rows: the files are looked up in the checkpoint",
    "lists": "txlog, where commits in between are gone: both lists of files",
}
CHANGED = 5  # Files that go, and as many that come.


def make(folder: Path, files: int) -> None:
    """Make a table for each way, whose last version takes five files away and adds five."""
    made = log_tables.make(folder, "checkpoint", files)
    version = 100 + log_tables.TRAILING
    for way, moves in (("commits", False), ("look-up", True)):
        root = folder / f"diff-{files}-{way}"
        if root.exists():
            continue
        shutil.copytree(made, root)
        gone = list(log_tables.adds(files // 2, CHANGED))
        came = list(log_tables.adds(2 * files, CHANGED))
        removes = [
            {key: add[key] for key in ("path", "partitionValues", "size")}
            | {"deletionTimestamp": 1, "dataChange": not moves, "extendedFileMetadata": True}
            for add in gone
        ]
        actions = [{"remove": one} for one in removes]
        actions += [{"add": one | {"dataChange": not moves}} for one in came]
        log_tables.write_commit(
            root / "_delta_log", version + 1, [log_tables.info(version + 1), *actions]
        )
    lists = folder / f"diff-{files}-lists"
    if not lists.exists():
        shutil.copytree(folder / f"diff-{files}-commits", lists)
        import txlog

        txlog.Table(lists, version=version).maintenance.checkpoint()
        txlog.Table(lists).maintenance.checkpoint()
        (lists / "_delta_log" / f"{version + 1:020}.json").unlink()


def memory_mb(field: str) -> float:
    """Return the memory of this process, as Linux reports it: `VmRSS` now, `VmHWM` at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def run_once(way: str, root: Path) -> None:
    if way == "deltalake":
        import deltalake
        import pyarrow as pa
        import pyarrow.compute as pc
    else:
        import txlog

        table = txlog.Table(root)
    before = memory_mb("VmRSS")
    cpu, start = time.process_time(), time.perf_counter()
    if way == "deltalake":
        last = deltalake.DeltaTable(root).version()
        paths = [
            pa.table(deltalake.DeltaTable(root, version=v).get_add_actions())["path"].cast("string")
            for v in (last - 1, last)
        ]
        found = sum(
            len(one) - pc.sum(pc.is_in(one, value_set=other)).as_py()
            for one, other in (paths, paths[::-1])
        )
    else:
        found = len(table.diff(table.version - 1, on=[]).files)
    seconds = time.perf_counter() - start
    assert found == 2 * CHANGED, found
    mb = memory_mb("VmHWM") - before
    print(json.dumps({"seconds": seconds, "cpu": time.process_time() - cpu, "mb": mb}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "txlog-bench")
    parser.add_argument("--dry", action="store_true", help="Print only.")
    parser.add_argument("--only", help="Do this way alone, once, and print JSON.")
    given = parser.parse_args()

    def root(way: str) -> Path:
        return given.folder / f"diff-{given.files}-{'commits' if way == 'deltalake' else way}"

    if given.only:
        run_once(given.only, root(given.only))
        return
    make(given.folder, given.files)
    runs: dict[str, list[dict[str, float]]] = {}
    for _ in range(given.repeat):
        for way in WAYS:
            command = [sys.executable, __file__, "--files", str(given.files)]
            command += ["--folder", str(given.folder), "--only", way]
            out = subprocess.check_output(command, text=True)
            runs.setdefault(way, []).append(json.loads(out.splitlines()[-1]))
    told = (
        f"{datetime.now(UTC):%Y-%m-%d}, commit {commit()}. {given.files:,} files, of which "
        f"{CHANGED} went and {CHANGED} came in the last version; medians of {given.repeat} runs of "
        f"each, in turn. The difference is planned: no data file is opened. {machine()}."
    )
    lines = [
        "## Comparing versions",
        "",
        told,
        "",
        "| | s | ratio | CPU s | memory, MB | ratio |",
        "|---|---|---|---|---|---|",
    ]
    base = {key: median(run[key] for run in runs["deltalake"]) for key in ("seconds", "cpu", "mb")}
    for way, label in WAYS.items():
        found = {key: median(run[key] for run in runs[way]) for key in base}
        lines.append(
            f"| {label} | {found['seconds']:.3f} | {found['seconds'] / base['seconds']:.3f} "
            f"| {found['cpu']:.2f} | {found['mb']:.0f} | {found['mb'] / base['mb']:.3f} |"
        )
    text = "\n".join(lines) + "\n"
    print("\n" + text)
    if not given.dry:
        put_section(text)


if __name__ == "__main__":
    main()
