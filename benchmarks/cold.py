"""What the first second of a process costs: whole processes, from their start to their end.

This process imports nothing large before they have run: on Linux, the peak memory of a process is
at least that of the one that started it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from typing import NamedTuple

COMMITS, ROWS = 10, 100  # Of the small table: commits, and rows of each.
AFTER = 3  # Commits after the checkpoint of the other table.


class Work(NamedTuple):
    """What a process runs: Python code, or the arguments of the command line."""

    label: str
    run: str | list[str]
    table: str = "small"
    compared: str = ""  # The work that the ratio is to.


ROW = "import pyarrow; row = pyarrow.ipc.open_file({row}).read_all()"
OPEN = "import txlog; table = txlog.Table({table})"
DELTA = "import pyarrow, deltalake; table = deltalake.DeltaTable({table})"
WORKS = {
    "nothing": Work("`pass`", "pass"),
    "pyarrow": Work("`import pyarrow`", "import pyarrow"),
    "delta-alone": Work(
        "deltalake `version()`, without pyarrow",
        "import deltalake; deltalake.DeltaTable({table}).version()",
    ),
    "delta-open": Work("deltalake `version()`, pyarrow imported", DELTA + ".version()"),
    "open": Work("txlog `Table(uri).version`", OPEN + ".version", compared="pyarrow"),
    "count": Work("`txlog count TABLE`", ["count", "{table}"], compared="open"),
    "delta-read": Work("deltalake `to_pyarrow_table()`", DELTA + ".to_pyarrow_table()"),
    "read": Work("txlog `to_arrow()`", OPEN + ".to_arrow()", compared="delta-read"),
    "delta-append": Work(
        "deltalake `write_deltalake`, one row",
        ROW + "; import deltalake; deltalake.write_deltalake({table}, row, mode='append')",
    ),
    "append": Work(
        "txlog `append`, one row",
        ROW + "; import txlog; txlog.Table({table}).append(row)",
        compared="delta-append",
    ),
    "delta-delete": Work("deltalake `delete`", DELTA + ".delete('id < 5')"),
    "delete": Work("txlog `delete`", OPEN + ".delete('id < 5')", compared="delta-delete"),
    "delta-open-2": Work(
        "with a checkpoint: deltalake `version()`", DELTA + ".version()", "checkpointed"
    ),
    "open-2": Work(
        "with a checkpoint: txlog `Table(uri).version`",
        OPEN + ".version",
        "checkpointed",
        compared="pyarrow",
    ),
    "delta-read-2": Work(
        "with a checkpoint: deltalake `to_pyarrow_table()`",
        DELTA + ".to_pyarrow_table()",
        "checkpointed",
    ),
    "read-2": Work(
        "with a checkpoint: txlog `to_arrow()`",
        OPEN + ".to_arrow()",
        "checkpointed",
        compared="delta-read-2",
    ),
}


def make(folder: Path) -> None:
    """Make a table of ten commits, and one with a checkpoint and three commits after it."""
    import pyarrow as pa

    import txlog

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows = pa.table(
        {
            "id": pa.array(range(ROWS)),
            "name": pa.array([f"name {i}" for i in range(ROWS)]),
            "value": pa.array([i / 7 for i in range(ROWS)]),
        }
    )
    # Not every peer reads deletion vectors.
    table = txlog.write(folder / "small", rows, properties={"delta.enableDeletionVectors": "false"})
    for _ in range(COMMITS - 1):
        table.append(rows)
    shutil.copytree(folder / "small", folder / "checkpointed")
    table = txlog.Table(folder / "checkpointed")
    table.maintenance.checkpoint()
    for _ in range(AFTER):
        table.append(rows)
    with pa.ipc.new_file(folder / "row.arrow", rows.schema) as writer:
        writer.write_table(rows.slice(0, 1))


def run(work: Work, folder: Path) -> dict[str, float]:
    """Run a process on a copy of its table; return its seconds, CPU seconds and peak memory."""
    scratch = folder / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(folder / work.table, scratch)
    if isinstance(work.run, str):
        code = work.run.format(table=repr(str(scratch)), row=repr(str(folder / "row.arrow")))
        command = [sys.executable, "-c", code]
    else:
        script = Path(sys.executable).with_name("txlog")
        command = [str(script), *(word.replace("{table}", str(scratch)) for word in work.run)]
    # Bytecode is written by the first process, wherever the code is.
    prefix = {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    start = time.perf_counter()
    process = subprocess.Popen(
        command, env={**os.environ, **prefix}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.stderr is not None
    told = process.stderr.read().decode()
    process.stderr.close()
    return {
        "seconds": seconds,
        "cpu": used.ru_utime + used.ru_stime,
        "mb": used.ru_maxrss / 1024,
        "failed": float(_require(work, process.returncode, told)),
    }


def _require(work: Work, code: int, told: str) -> bool:
    """Return whether a process ended by a signal after its work; raise for all other failures."""
    if code and (code > 0 or "Traceback" in told):
        raise SystemExit(f"{work.label} failed ({code}):\n{told}")
    return code != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "txlog-cold")
    parser.add_argument("--only", nargs="+", choices=list(WORKS), help="run these alone")
    parser.add_argument("--dry", action="store_true", help="do not write RESULTS.md")
    parser.add_argument("--make", action="store_true", help="only make the tables")
    given = parser.parse_args()
    if given.make:
        make(given.folder)
        return
    folder = ["--folder", str(given.folder)]
    subprocess.run([sys.executable, __file__, "--make", *folder], check=True)
    chosen = {name: work for name, work in WORKS.items() if name in (given.only or WORKS)}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    for number in range(given.repeat + 1):
        for name, work in chosen.items():
            found = run(work, given.folder)
            if number:  # The first one compiles bytecode, and brings files into memory.
                runs[name].append(found)
    from bench import put_section

    text = report(runs, given.repeat)
    print(text)
    if not given.dry and not given.only:
        put_section(text)


def report(runs: dict[str, list[dict[str, float]]], repeat: int) -> str:
    from bench import commit, machine

    def middle(name: str, what: str) -> float:
        return median(run[what] for run in runs[name])

    told = (
        f"{datetime.now(UTC):%Y-%m-%d}, commit {commit()}. Whole processes, bytecode compiled; "
        f"tables of {COMMITS} commits of {ROWS} rows. Medians of {repeat} runs of each, in turn, "
        f"after one that was not counted. deltalake {version('deltalake')}, pandas "
        f"{version('pandas')} installed. {machine()}."
    )
    lines = [
        "## The first second",
        "",
        told,
        "",
        "| process | median s | fastest s | CPU s | peak MB | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in runs.items():
        work = WORKS[name]
        ratio = ""
        if work.compared in runs:
            wall, cpu = (middle(name, w) / middle(work.compared, w) for w in ("seconds", "cpu"))
            ratio = f"{wall:.2f} (CPU {cpu:.2f}) of {WORKS[work.compared].label}"
        ended = sum(run["failed"] for run in found)
        note = f" (ended by a signal in {ended:.0f} runs)" if ended else ""
        lines.append(
            f"| {work.label}{note} | {middle(name, 'seconds'):.3f} "
            f"| {min(run['seconds'] for run in found):.3f} | {middle(name, 'cpu'):.3f} "
            f"| {middle(name, 'mb'):.0f} | {ratio} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
