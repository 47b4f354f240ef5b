"""Plans of a table of very many files: in one process, and on Spark's executors.

    python benchmarks/cluster_plan.py
    python benchmarks/cluster_plan.py --files 1000000 --dry

The table is log alone, made from Arrow columns: a V2 checkpoint with sidecars of 50,000 files each,
and a newer commit. Each run is a process of its own, with a local Spark of one or two cores. What
is timed is the plan (`read_files`, as for `spark_ext.read`), after the same plan of a table of
200,000 files. The heap of Spark's driver is 700 MB; a local
Spark also executes in it.

If others use the machine too, look at the CPU seconds: what the workers need is divided by the
cores, and what this process and the JVM need is not. The last column is the ratio of one and two
cores that this allows at most.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bench import commit, machine, put_section

TITLE = "Plans on the cluster"
SIDECAR = 50_000
DAYS = 2_000
ROWS = 1_000
KINDS = {"id": "long", "day": "date", "n": "long", "price": "double", "t": "string"}
PREDICATES = {
    "one of 2,000 partitions": "day = '2021-03-04'",
    "a range of ids, 0.01% of the files": "id BETWEEN {low} AND {high}",
    "statistics of a column without order": "n = 17",
}


def text(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def number(values: Any) -> pa.Array:
    return pa.array(values).cast(pa.string())


def adds(first: int, count: int) -> pa.StructArray:
    """Return `add` actions of about 450 bytes; the same number is always the same file."""
    at = np.arange(first, first + count)
    dice = (at.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)
    days = np.datetime64("2020-01-01") + (dice % np.uint64(DAYS)).astype(np.int64)
    day = pa.array(days.astype("datetime64[D]")).cast(pa.string())
    hexes = pa.array([f"{one:011x}" for one in dice.tolist()])
    path = text(
        "day=", day, "/part-00000-", hexes, "-4d53-9b7e-", number(at), "-c000.snappy.parquet"
    )
    low = (dice % np.uint64(1_000_003)).astype(np.int64)
    stats = text(
        f'{{"numRecords":{ROWS},"minValues":{{"id":', number(at * ROWS),
        ',"n":', number(low), ',"price":', number(low % 977),
        '.25,"t":"a', hexes, '"},"maxValues":{"id":', number(at * ROWS + ROWS - 1),
        ',"n":', number(low + 40), ',"price":', number(low % 977 + 100),
        '.75,"t":"z', hexes, '"},"nullCount":{"id":0,"n":0,"price":0,"t":0}}',
    )  # fmt: skip
    offsets = pa.array(np.arange(count + 1, dtype=np.int32))
    values = pa.MapArray.from_arrays(offsets, pa.repeat("day", count), day)
    columns = {
        "path": path,
        "partitionValues": values,
        "size": pa.array(1_000_000 + (low % 1000)),
        "modificationTime": pa.repeat(pa.scalar(1_700_000_000_000), count),
        "dataChange": pa.repeat(False, count),
        "stats": stats,
    }
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def make(root: Path, files: int) -> None:
    """Make the table, unless it is there."""
    log = root / "_delta_log"
    done = root / "done"
    if done.exists():
        return
    shutil.rmtree(root, ignore_errors=True)
    (log / "_sidecars").mkdir(parents=True)
    fields = [{"name": k, "type": v, "nullable": True, "metadata": {}} for k, v in KINDS.items()]
    features = ["v2Checkpoint"]
    protocol = {
        "minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": features, "writerFeatures": features,
    }  # fmt: skip
    metadata = {
        "id": "5f9f1c1e-6b1f-4d53-9b7e-000000000046",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": orjson.dumps({"type": "struct", "fields": fields}).decode(),
        "partitionColumns": ["day"],
        "configuration": {"delta.checkpointPolicy": "v2"},
        "createdTime": 1_700_000_000_000,
    }
    lines = [{"protocol": protocol}, {"metaData": metadata}, {"checkpointMetadata": {"version": 1}}]
    for part, first in enumerate(range(0, files, SIDECAR)):
        rows = pa.table({"add": adds(first, min(SIDECAR, files - first))})
        path = log / "_sidecars" / f"{part:08}-0000-4000-8000-000000000000.parquet"
        pq.write_table(rows, path, compression="zstd", row_group_size=SIDECAR)
        about = {
            "path": path.name, "sizeInBytes": path.stat().st_size,
            "modificationTime": 1_700_000_000_000,
        }  # fmt: skip
        lines.append({"sidecar": about})
    manifest = log / f"{1:020}.checkpoint.00000000-0000-4000-8000-000000000001.json"
    manifest.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    info = {"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "WRITE"}}
    for version, actions in enumerate([lines[:2], [], newer(files)]):
        commit_of = b"\n".join(map(orjson.dumps, [info, *actions]))
        (log / f"{version:020}.json").write_bytes(commit_of)
    hint = {"version": 1, "size": files + len(lines)}
    (log / "_last_checkpoint").write_bytes(orjson.dumps(hint))
    done.touch()


def newer(files: int) -> list[Any]:
    """Return a commit that replaces 1,000 files of the checkpoint."""
    gone = adds(files // 2, 1000).to_pylist(maps_as_pydicts="strict")
    new = adds(files, 1000).to_pylist(maps_as_pydicts="strict")
    removes = [
        {"path": one["path"], "deletionTimestamp": 1_700_000_000_000, "dataChange": True,
         "extendedFileMetadata": False}
        for one in gone
    ]  # fmt: skip
    return [*({"remove": one} for one in removes), *({"add": one} for one in new)]


def peak(process: int | str) -> float:
    """Return the peak memory of a process in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1e3


def children(of: int) -> list[int]:
    """Return all processes below one. A child of a thread is in the file of the thread."""
    found = []
    for task in Path(f"/proc/{of}/task").glob("*/children"):
        with suppress(OSError):  # The process ended.
            found += map(int, task.read_text().split())
    return [one for child in found for one in (child, *children(child))]


def cpu(process: int) -> float:
    """Return the CPU seconds of a process and of those of its children that ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:  # It ended.
        return 0.0
    times = text.rpartition(")")[2].split()[11:15]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def cpu_of_all(java: list[int]) -> dict[str, float]:
    """Return the CPU seconds of this process, the JVM, and the workers below it."""
    below = {child for one in java for child in children(one)}
    found = {"driver": time.process_time(), "jvm_cpu": sum(map(cpu, java))}
    return {**found, "workers": sum(map(cpu, below))}


def name_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:  # It ended.
        return ""


def once(root: Path, cores: int, where: str, warm: Path) -> dict[str, Any]:
    from txlog.expressions.sql import as_expression
    from txlog.scan.lazy_plan import plan_snapshot
    from txlog.snapshot.live_files import load_files
    from txlog.snapshot.load import load_snapshot
    from txlog.store.open import open_store

    engine = spark = None
    if cores:
        from txlog import spark_ext

        spark = spark_ext.session(
            "plans",
            spark__master=f"local[{cores}]",
            spark__driver__memory="700m",
            spark__ui__enabled="false",
            spark__ui__showConsoleProgress="false",
            spark__log__level="OFF",
            spark__driver__bindAddress="127.0.0.1",
            spark__driver__host="127.0.0.1",
        )
        engine = spark_ext.SparkEngine(spark, local_items=0)
        spark.conf.set("spark.txlog.planFiles", "1")

    def plan(path: Path) -> Any:
        store = open_store(str(path))
        snapshot = load_snapshot(store)
        found = plan_snapshot(
            store, snapshot, lambda: load_files(store, snapshot).live,
            columns=["id", "day"], where=as_expression(where), engine=engine,
        )  # fmt: skip
        return found.read_files

    plan(warm)
    java = [one for one in children(os.getpid()) if name_of(one) == "java"]
    before = cpu_of_all(java)
    start = time.perf_counter()
    files = plan(root)
    seconds = time.perf_counter() - start
    after = cpu_of_all(java)
    me = os.getpid()
    result = {
        "seconds": seconds,
        **{name: after[name] - before[name] for name in after},
        "files": len(files.rows.ids),
        "paths": hash(tuple(sorted(files.paths.to_pylist()))),
        "python": peak(me),
        "jvm": sum(map(peak, java)),
        "load": os.getloadavg()[0],
    }
    if spark is not None:
        spark.stop()
    return result


def measured(root: Path, cores: int, where: str, warm: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--only", json.dumps([str(root), cores, where, str(warm)])]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{cores} cores, {where}:\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "txlog-cluster-plan")
    parser.add_argument("--files", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--predicates", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--cores", type=int, nargs="+", default=[0, 1, 2], help="0: no Spark")
    parser.add_argument("--dry", action="store_true", help="only print")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        root, cores, where, warm = json.loads(given.only)
        print(json.dumps(once(Path(root), cores, where, Path(warm))))
        return
    root = given.folder / str(given.files)
    warm = given.folder / "warm"
    make(root, given.files)
    make(warm, 4 * SIDECAR)
    middle = given.files * ROWS // 3
    span = given.files * ROWS // 10_000
    lines = [
        (
            "| predicate | files | where | s | CPU s: driver, JVM, workers "
            "| driver: Python MB, JVM MB | 1 core ÷ 2 cores | at most, by CPU |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]
    loads = []
    for name, pattern in [list(PREDICATES.items())[at] for at in given.predicates]:
        where = pattern.format(low=middle, high=middle + span - 1)
        runs: dict[int, list[dict[str, Any]]] = {cores: [] for cores in given.cores}
        for _ in range(given.repeat):
            for cores in given.cores:
                runs[cores].append(measured(root, cores, where, warm))
        best = {c: min(of, key=lambda run: run["seconds"]) for c, of in runs.items()}
        loads += [run["load"] for of in runs.values() for run in of]
        assert len({run["paths"] for of in runs.values() for run in of}) == 1
        for cores, run in best.items():
            place = f"{cores} cores of Spark" if cores else "one process"
            python = max(one["python"] for one in runs[cores])
            jvm = max(one["jvm"] for one in runs[cores])
            cells = [
                f"{run['seconds']:.1f}",
                f"{run['driver']:.1f}, {run['jvm_cpu']:.1f}, {run['workers']:.1f}",
                f"{python:,.0f}, {jvm:,.0f}",
                "",
                "",
            ]
            if cores == 2 and 1 in best:
                alone, divided = run["driver"] + run["jvm_cpu"], run["workers"]
                cells[3] = f"{best[1]['seconds'] / run['seconds']:.2f}"
                cells[4] = f"{(alone + divided) / (alone + divided / 2):.2f}"
            lines.append(f"| {name} | {run['files']:,} | {place} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    told = (
        f"{datetime.now(UTC):%Y-%m-%d}, commit {commit()}. {given.files:,} files in sidecars of "
        f"{SIDECAR:,}. The fastest of {given.repeat} runs; peaks of memory are the greatest of all "
        f"runs. Load averages {min(loads):.1f} to {max(loads):.1f}. {machine()}."
    )
    text_of = "\n".join([f"## {TITLE}", "", told, "", *lines]) + "\n"
    print("\n" + text_of)
    if not given.dry:
        put_section(text_of)


if __name__ == "__main__":
    main()
