"""What txlog and its peers take for the same work on a log: time, and memory.

    python benchmarks/compare.py --small    # Two minutes, printed only.
    python benchmarks/compare.py            # All of it: RESULTS.md, results.json, results.svg.

Each run is a process of its own, and the engines take turns. Imports are timed by themselves.
Memory is what the process held at most, less what it held before the work.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from typing import Any

import log_tables
import log_works
import write_works
from bench import HERE, commit, machine, peers, put_section

# Whatever an engine loads when it is first used is loaded before the clock starts.
IMPORTS = {
    "txlog": "import write_works, sqlglot.dialects.spark; write_works.load_txlog()",
    "deltalake": "import deltalake, pyarrow.dataset",
    "kernel": "import polars, polars_deltalake",
    "floor": "import orjson",
}
FOR_ALL = "import pyarrow, pyarrow.acero, pyarrow.parquet, pyarrow.compute; pyarrow.array([1])"
"""Also pandas, which pyarrow imports with the first array, if it is installed."""

LEGEND = (
    "Peers (the kernel is polars-deltalake's): their time by txlog's, with the target. Memory: "
    "txlog's by deltalake's, of what is held beyond the imports. Floor: txlog's time by that of "
    "reading and parsing the same bytes, or writing and syncing as many files, and nothing else."
)
Prepare = Callable[[Path], Callable[[], Any]]


@dataclass(frozen=True)
class Case:
    """A work, and who does it."""

    title: str
    works: dict[str, Prepare]
    made: str = ""  # The table of log_tables that it is about; else each run has an empty folder.
    files: tuple[int, int] = (0, 0)  # How many files that has, in the small set and in all of it.
    copied: bool = False  # Whether the work changes the table.
    targets: dict[str, float] = field(default_factory=dict)  # At least: the peer's time by ours.
    memory: float | None = None  # At most: our memory by deltalake's.
    compared: bool = True  # Whether txlog's answer and deltalake's are the same.


def of(work: Callable[[Path], Any]) -> Prepare:
    return lambda root: lambda: work(root)


LOG, WRITE = log_works, write_works
THIRD = date(2026, 1, 3)
MILLION = (50_000, 1_000_000)
CASES = {
    "commits": Case(
        "open and list, JSON commits of one add",
        {
            "txlog": of(LOG.txlog_list),
            "deltalake": of(LOG.delta_list),
            "kernel": of(LOG.kernel_plan()),
            "floor": of(LOG.floor_commits),
        },
        "commits", (1_000, 10_000), targets={"deltalake": 20, "kernel": 6}, memory=0.2,
    ),
    "commits-of-10": Case(
        "the same, 10 adds a commit",
        {
            "txlog": of(LOG.txlog_list),
            "deltalake": of(LOG.delta_list),
            "kernel": of(LOG.kernel_plan()),
            "floor": of(LOG.floor_commits),
        },
        "commits-of-10", (10_000, 100_000), targets={"deltalake": 7, "kernel": 6}, memory=0.5,
    ),
    "bulk": Case(
        "the same, 20 commits of 10,000 adds",
        {
            "txlog": of(LOG.txlog_list),
            "deltalake": of(LOG.delta_list),
            "floor": of(LOG.floor_lines),
        },
        "bulk", (20_000, 200_000), targets={"deltalake": 3}, memory=0.6,
    ),
    "bulk-spaced": Case(
        "the same, spaces after colons and commas",
        {
            "txlog": of(LOG.txlog_list),
            "deltalake": of(LOG.delta_list),
            "floor": of(LOG.floor_lines),
        },
        "bulk-spaced", (20_000, 200_000), targets={"deltalake": 3}, memory=0.6,
    ),
    "about": Case(
        "version, schema, protocol; a checkpoint of deltalake's, 20 commits",
        {
            "txlog": of(LOG.txlog_about),
            "deltalake": of(LOG.delta_about),
            "kernel": of(LOG.kernel_about),
        },
        "checkpoint", MILLION, targets={"deltalake": 300, "kernel": 15}, memory=0.15,
    ),
    "about-v2": Case(
        "the same, V2 checkpoint with sidecars",
        {
            "txlog": of(LOG.txlog_about),
            "deltalake": of(LOG.delta_about),
            "kernel": of(LOG.kernel_about),
        },
        "checkpoint-v2", MILLION, targets={"deltalake": 300}, memory=0.15,
    ),
    "list": Case(
        "all active paths and sizes as Arrow",
        {
            "txlog": of(LOG.txlog_list),
            "deltalake": of(LOG.delta_list),
            "kernel": of(LOG.kernel_plan()),
            "floor": of(LOG.floor_columns("path", "size", kept=True)),
        },
        "checkpoint", MILLION, targets={"deltalake": 25, "kernel": 4}, memory=0.35,
    ),
    "uris": Case(
        "the paths of all files as texts, `file_uris`",
        {"txlog": of(LOG.txlog_uris), "deltalake": of(LOG.delta_uris)},
        "checkpoint", MILLION, targets={"deltalake": 2}, memory=0.5,
    ),
    "fragments": Case(
        "all fragments, one of them opened (deltalake: all paths and sizes)",
        {"txlog": of(LOG.txlog_fragments), "deltalake": of(LOG.delta_list)},
        "checkpoint", MILLION, targets={"deltalake": 2}, memory=0.5,
    ),
    "count": Case(
        "plan all rows, explain, count (deltalake: the sum of its counts)",
        {"txlog": of(LOG.txlog_count), "deltalake": of(LOG.delta_count)},
        "checkpoint", MILLION, targets={"deltalake": 2}, memory=0.5,
    ),
    "small-files": Case(
        "read small files of 20 columns to Arrow",
        {"txlog": of(LOG.txlog_read), "deltalake": of(LOG.delta_read)},
        "small", (1_000, 10_000), targets={"deltalake": 1}, memory=1.0,
    ),
    "partition": Case(
        "plan, a partition filter that keeps 0.1%",
        {
            "txlog": of(LOG.txlog_plan(LOG.IN_PARTITION)),
            "deltalake": of(LOG.delta_plan(LOG.IN_PARTITION)),
            "kernel": of(LOG.kernel_plan(region=LOG.REGION, day=THIRD)),
            "floor": of(LOG.floor_columns("path", "size", "partitionValues")),
        },
        "checkpoint", MILLION, targets={"deltalake": 25, "kernel": 8}, memory=0.25,
    ),
    "range": Case(
        "plan, a range of one column, JSON statistics",
        {
            "txlog": of(LOG.txlog_plan(LOG.IN_RANGE)),
            "deltalake": of(LOG.delta_plan(LOG.IN_RANGE)),
            "kernel": of(LOG.kernel_plan(n0=(LOG.LOW, LOG.HIGH))),
            "floor": of(LOG.floor_columns("path", "size", "stats")),
        },
        "checkpoint", MILLION, targets={"deltalake": 6, "kernel": 5}, memory=0.5,
    ),
    "range-structs": Case(
        "the same, statistics as structs",
        {
            "txlog": of(LOG.txlog_plan(LOG.IN_RANGE)),
            "deltalake": of(LOG.delta_plan(LOG.IN_RANGE)),
            "kernel": of(LOG.kernel_plan(n0=(LOG.LOW, LOG.HIGH))),
            "floor": of(
                LOG.floor_columns(
                    "path", "size", "stats_parsed.minValues.n0", "stats_parsed.maxValues.n0",
                    "stats_parsed.nullCount.n0", "stats_parsed.numRecords",
                )
            ),
        },
        "checkpoint-structs", MILLION, targets={"deltalake": 40, "kernel": 8}, memory=0.3,
    ),
    "refresh": Case(
        "refresh after one new commit",
        {"txlog": LOG.txlog_refresh, "deltalake": LOG.delta_refresh},
        "checkpoint", MILLION, copied=True, targets={"deltalake": 100}, memory=0.3,
    ),
    "prepared": Case(
        "1,000 commits of a prepared add (txlog's are durable)",
        {
            "txlog": WRITE.txlog_commits,
            "deltalake": WRITE.delta_commits,
            "floor": WRITE.floor_commits,
        },
        targets={"deltalake": 20}, memory=0.6,
    ),
    "appends": Case(
        "append 1,000 rows, 200 times",
        {
            "txlog": WRITE.txlog_appends,
            "deltalake": WRITE.delta_appends,
            "floor": WRITE.floor_appends,
        },
        targets={"deltalake": 5}, memory=0.7,
    ),
    "writers": Case(
        "4 processes, 100 appends each, to one table",
        {
            "txlog": WRITE.writers(WRITE.txlog_appends),
            "deltalake": WRITE.writers(WRITE.delta_appends),
            "floor": WRITE.writers(WRITE.floor_appends),
        },
        targets={"deltalake": 20},
    ),
    "writers-prepared": Case(
        "4 processes, 100 commits of a prepared add each",
        {
            "txlog": WRITE.writers(WRITE.txlog_commits),
            "deltalake": WRITE.writers(WRITE.delta_commits),
            "floor": WRITE.writers(WRITE.floor_commits),
        },
        targets={"deltalake": 20},
    ),
    "checkpoint": Case(
        "write a checkpoint",
        {"txlog": WRITE.txlog_checkpoint, "deltalake": WRITE.delta_checkpoint},
        "checkpoint", MILLION, copied=True, targets={"deltalake": 2}, memory=0.35, compared=False,
    ),
    "checkpoint-next": Case(
        "the next V2 checkpoint, after 20 commits",
        {"txlog": WRITE.txlog_checkpoint, "deltalake": WRITE.delta_checkpoint},
        "checkpoint-v2", MILLION, copied=True, targets={"deltalake": 20}, memory=0.1,
        compared=False,
    ),
    "delete": Case(
        "delete one row in a thousand, 200,000 rows a file",
        {"txlog": WRITE.txlog_delete, "deltalake": WRITE.delta_delete},
        "rows", (10, 100), copied=True, targets={"deltalake": 15}, memory=0.4, compared=False,
    ),
}  # fmt: skip
SMALL = ("commits", "about", "list", "range", "refresh", "appends")


def held(name: str) -> float:
    """Return a figure of this process's memory, in MB."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise SystemExit("this system does not tell how much memory a process held")


def run(case: Case, engine: str, folder: Path, files: int) -> dict[str, Any]:
    """Do a work once, here."""
    exec(f"{FOR_ALL}\n{IMPORTS[engine]}", {})
    # One of its own, and all are deleted at the end: where many files were deleted a few seconds
    # ago, ext4 takes long to make new ones.
    root = folder / "scratch" / str(os.getpid())
    if case.made:
        made = log_tables.make(folder, case.made, files)
        if case.copied:
            shutil.copytree(made, root, copy_function=os.link)
        else:
            root = made
    work = case.works[engine](root)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before, cpu, start = held("VmHWM"), time.process_time(), time.perf_counter()
    answer = work()
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "cpu": time.process_time() - cpu,
        "memory": held("VmHWM") - before,
        "peak": held("VmHWM"),
        "answer": repr(answer),
    }


def measured(names: list[str], given: argparse.Namespace) -> dict[str, Any]:
    """Run cases, each engine in turn, and return their medians."""
    shutil.rmtree(given.folder / "scratch", ignore_errors=True)
    found: dict[str, Any] = {}
    for name in names:
        case = CASES[name]
        files = case.files[0 if given.small else 1]
        if case.made:
            log_tables.make(given.folder, case.made, files)
        runs: dict[str, list[dict[str, Any]]] = {engine: [] for engine in case.works}
        for _ in range(given.repeat):
            for engine in case.works:
                command = [sys.executable, __file__, "--run", name, engine, "--files", str(files)]
                command += ["--folder", str(given.folder)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise SystemExit(f"{name}, {engine}:\n{done.stderr}")
                runs[engine].append(json.loads(done.stdout.splitlines()[-1]))
        answers = {run["answer"] for engine in ("txlog", "deltalake") for run in runs[engine]}
        if case.compared and len(answers) > 1:
            raise SystemExit(f"{name}: the engines do not agree: {answers}")
        found[name] = {
            "title": case.title,
            "files": files,
            "targets": case.targets,
            "memory_target": case.memory,
            "engines": {
                engine: {
                    key: median(run[key] for run in kind)
                    for key in ("seconds", "cpu", "memory", "peak")
                }
                for engine, kind in runs.items()
            },
        }
        print(lines_of(found[name], given.small)[0], flush=True)
    shutil.rmtree(given.folder / "scratch", ignore_errors=True)
    return found


def importing(repeat: int) -> dict[str, Any]:
    """Time imports: whole processes, less one that imports nothing."""
    ways = {
        "nothing": "pass",
        "pyarrow, pydantic, fsspec": "import pyarrow, pydantic, fsspec",
        "txlog": "import txlog",
        "txlog.Table": "import txlog; txlog.Table",
        "deltalake": "import deltalake",
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeat):
        for way, code in ways.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            seconds[way].append(time.perf_counter() - start)
    medians = {way: median(found) for way, found in seconds.items()}
    return {way: spent - medians["nothing"] for way, spent in medians.items() if way != "nothing"}


def lines_of(case: dict[str, Any], small: bool) -> list[str]:
    """Return a case's line; targets are of the full set."""
    engines = case["engines"]
    ours = engines["txlog"]
    files = f" ({case['files']:,} files)" if case["files"] else ""
    cells = [case["title"] + files, f"{ours['seconds'] * 1000:,.1f} ms, {ours['memory']:,.0f} MB"]
    for peer in ("deltalake", "kernel"):
        if peer not in engines:
            cells.append("–")
            continue
        ratio = engines[peer]["seconds"] / ours["seconds"]
        target = case["targets"].get(peer)
        cells.append(f"{ratio:,.1f}" + (f" (≥ {target})" if target and not small else ""))
    limit = case["memory_target"]
    share = ours["memory"] / max(engines["deltalake"]["memory"], 1)
    told = f"{share:.2f}" + ("" if small else f" (≤ {limit})")
    cells.append(told if limit else "–")  # Without one, others do the work.
    floor = engines.get("floor")
    cells.append(f"{ours['seconds'] / floor['seconds']:.1f}" if floor else "–")
    return ["| " + " | ".join(cells) + " |"]


def report(found: dict[str, Any], imports: dict[str, Any], given: argparse.Namespace) -> str:
    told = (
        f"{datetime.now(UTC):%Y-%m-%d}, commit {commit()}"
        f"{', the small set' if given.small else ''}. {given.repeat} runs of each, in turn, "
        f"each in a process of its own; medians. {peers()}, {machine()}."
    )
    base = imports["pyarrow, pydantic, fsspec"]
    spent = ", ".join(f"`{way}` {s * 1000:.0f} ms ({s / base:.2f})" for way, s in imports.items())
    return "\n".join(
        [
            "## Against the native engines",
            "",
            told,
            "",
            LEGEND,
            "",
            "| work | txlog | deltalake | kernel | memory | floor |",
            "|---|---|---|---|---|---|",
            *(line for case in found.values() for line in lines_of(case, given.small)),
            "",
            f"Importing: {spent}.",
            "",
            "![The same, as a picture](results.svg)",
            "",
        ]
    )


def draw(found: dict[str, Any]) -> None:
    """Draw how many times as long the peers take."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    titles = [case["title"] for case in found.values()][::-1]
    figure, axes = pyplot.subplots(figsize=(9, 0.45 * len(titles) + 1.2))
    for place, peer, colour in ((0.2, "deltalake", "#3b6ea5"), (-0.2, "kernel", "#d98c3f")):
        ratios = [
            case["engines"][peer]["seconds"] / case["engines"]["txlog"]["seconds"]
            if peer in case["engines"]
            else 0
            for case in found.values()
        ][::-1]
        rows = [at + place for at in range(len(titles))]
        axes.barh(rows, ratios, height=0.38, label=peer, color=colour)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(titles)), titles, fontsize=8)
    axes.set_xlabel("times as long as txlog")
    axes.legend()
    figure.tight_layout()
    figure.savefig(HERE / "results.svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--small", action="store_true", help="fewer files, fewer works")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "txlog-benchmarks-log")
    parser.add_argument("--only", nargs="+", choices=list(CASES), help="these works")
    parser.add_argument("--dry", action="store_true", help="do not write RESULTS.md")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--files", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        name, engine = given.run
        print(json.dumps(run(CASES[name], engine, given.folder, given.files)), flush=True)
        os._exit(0)  # deltalake may abort a process while Python shuts down.
    names = given.only or (SMALL if given.small else CASES)
    found = measured(list(names), given)
    imports = importing(given.repeat if given.small else 2 * given.repeat + 1)
    text = report(found, imports, given)
    print("\n" + text)
    if given.dry or given.small:
        return
    results = {"commit": commit(), "machine": machine(), "cases": found, "imports": imports}
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    put_section(text)
    draw(found)


if __name__ == "__main__":
    main()
