"""Costs per column and per file: wide tables, many small files, large logs, and Spark's reads.

    python benchmarks/lake.py
    python benchmarks/lake.py --parts spark --files 100000 1000000
    python benchmarks/lake.py --parts source changes checkpoint pages doors

A run replaces the rows that it measures, and leaves the others.

Each run is a process of its own; imports and a first small call are not timed. deltalake does the
same beside txlog, on a table of its own. Beside merges on Spark, and beside reads of wide tables by
Spark, Spark reads and writes the same rows as plain Parquet files, in the same session. The data
files of the tables of many files that Spark reads do not exist: what is timed is the call that
makes the frame, in which Spark reads the list of files. Nor do those of large logs: what is
measured there is planning, committing, and writing checkpoints. Of the tables that are changed,
only the files with rows that a change reads exist.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from threading import Event, Thread
from typing import Any

import log_tables
import pyarrow as pa
from bench import HERE, commit, machine, put_section
from cluster_plan import SIDECAR, children, cpu_of_all, name_of, peak
from cluster_plan import make as make_many

TITLE = "The size of a lake"
WIDE_ROWS = 3
RELAXED = {"txlog.durability": "relaxed"}


def wide(columns: int) -> pa.Table:
    return pa.table({f"c{at}": [float(at), 1.0, 2.0] for at in range(columns)})


def small(files: int) -> pa.Table:
    numbers = range(files)
    return pa.table({"p": [f"k{at}" for at in numbers], "x": numbers, "y": map(float, numbers)})


def by_txlog(case: str, size: int, root: Path) -> Callable[[], Any]:
    import txlog

    uri = str(root)
    rows = wide(size) if case.startswith("wide") else small(size)
    options = None if case == "partitions, synced" else RELAXED
    if case.startswith("wide"):
        for _ in range(2):
            txlog.write(uri, rows, mode="append", storage_options=options)
    if case == "small files, read":
        txlog.write(uri, rows, partition_by="p", storage_options=options)
    source = rows.slice(0, 1)
    works: dict[str, Callable[[], Any]] = {
        "wide, append": lambda: txlog.write(uri, rows, mode="append", storage_options=options),
        "wide, read": lambda: txlog.Table(uri).to_arrow(),
        "wide, update": lambda: txlog.Table(uri, storage_options=options).update({"c3": "4"}),
        "wide, upsert": lambda: txlog.Table(uri, storage_options=options).upsert(source, on="c1"),
        "partitions, synced": lambda: txlog.write(uri, rows, partition_by="p"),
        "partitions, relaxed": lambda: txlog.write(
            uri, rows, partition_by="p", storage_options=options
        ),
        "small files, read": lambda: txlog.Table(uri).to_arrow(),
    }
    return works[case]


def by_deltalake(case: str, size: int, root: Path) -> Callable[[], Any]:
    from deltalake import DeltaTable, write_deltalake

    uri = str(root)
    rows = wide(size) if case.startswith("wide") else small(size)
    if case.startswith("wide"):
        for _ in range(2):
            write_deltalake(uri, rows, mode="append")
    if case == "small files, read":
        write_deltalake(uri, rows, partition_by=["p"])

    def upsert() -> None:
        merging = DeltaTable(uri).merge(
            rows.slice(0, 1), "s.c1 = t.c1", source_alias="s", target_alias="t"
        )
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    works: dict[str, Callable[[], Any]] = {
        "wide, append": lambda: write_deltalake(uri, rows, mode="append"),
        "wide, read": lambda: DeltaTable(uri).to_pyarrow_table(),
        "wide, update": lambda: DeltaTable(uri).update({"c3": "4"}),
        "wide, upsert": upsert,
        "partitions, synced": lambda: write_deltalake(uri, rows, partition_by=["p"]),
        "partitions, relaxed": lambda: write_deltalake(uri, rows, partition_by=["p"]),
        "small files, read": lambda: DeltaTable(uri).to_pyarrow_table(),
    }
    return works[case]


ENGINES = {"txlog": by_txlog, "deltalake": by_deltalake}
WIDE = ("wide, append", "wide, read", "wide, update", "wide, upsert")
SMALL = ("partitions, synced", "partitions, relaxed", "small files, read")


def spark_read(case: str, size: int, folder: Path, memory: str) -> dict[str, float]:
    """Time `spark_ext.read` of a table with `size` files in 1,000 partitions, after a small one."""
    from pyspark.sql import SparkSession

    from txlog import spark_ext

    columns, vectors = SPARK[case]
    name = "vectors" if vectors else "files"
    tables = {count: folder / f"{name}-{count}" for count in (1_000, size)}
    for count, root in tables.items():
        if not root.exists():
            log_tables.write_sidecars(root, count, vectors=vectors)
    builder: Any = SparkSession.builder
    builder = builder.master("local[2]").config("spark.driver.memory", memory)
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    for _ in range(3):
        spark_ext.read(spark, str(tables[1_000]), columns=columns)
    java = [one for one in children(os.getpid()) if name_of(one) == "java"]
    before, start = cpu_of_all(java), time.perf_counter()
    frame = spark_ext.read(spark, str(tables[size]), columns=columns)
    seconds = time.perf_counter() - start
    cpu = sum(cpu_of_all(java).values()) - sum(before.values())
    spark._jvm.java.lang.System.gc()
    heap = spark._jvm.java.lang.Runtime.getRuntime()
    held = heap.totalMemory() - heap.freeMemory()
    assert frame.columns == columns
    spark.stop()
    return {"seconds": seconds, "cpu": cpu, "heap": held / 1e6}


ROWS_PER_FILE = 20
MERGE = {
    # Nine of ten rows of the table have one key, so every file has rows that change.
    "merge, one key in 9 of 10 rows": "SELECT id AS k, id % 5 = 0 AS gone FROM range(0, {most}, 4)",
    "merge, 2% of the keys": "SELECT id AS k, id % 5 = 0 AS gone FROM range(0, {few})",
}


def merge_table(case: str, files: int, folder: Path) -> Path:
    import txlog

    is_skewed = case.startswith("merge, one key")
    root = folder / f"merge-{'skewed' if is_skewed else 'sorted'}-{files}"
    if not root.exists():
        rows = files * ROWS_PER_FILE
        keys = [0 if n % 10 and is_skewed else n for n in range(rows)]
        each = txlog.WriteOptions(max_rows_per_file=ROWS_PER_FILE)
        data = pa.table({"k": keys, "n": range(rows)})
        txlog.write(root, data, options=each, storage_options=RELAXED)
    return root


def spark_merges(case: str, size: int, folder: Path, memory: str) -> dict[str, dict[str, float]]:
    """Time a merge, and the same join of the same files with Spark's own reader and writer."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it

    from txlog import spark_ext

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    builder = builder.master("local[2]").config("spark.driver.memory", memory)
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()

    def source(files: int) -> Any:
        rows = files * ROWS_PER_FILE
        return spark.sql(MERGE[case].format(most=rows * 4 // 3, few=rows // 50))

    def by_txlog(files: int, root: Path, target: Path) -> None:
        shutil.copytree(root, target, copy_function=os.link)
        merger = spark_ext.table(spark, target).merge(source(files), "target.k = source.k")
        merger = merger.when_matched_delete("source.gone AND target.k > 0")
        merger = merger.when_matched_update({"n": "-target.n"})
        start = time.perf_counter()
        merger.when_not_matched_insert({"k": "source.k", "n": "0"}).execute()
        seconds.append(time.perf_counter() - start)

    def by_parquet(files: int, root: Path, target: Path) -> None:
        start = time.perf_counter()
        old = spark.read.parquet(str(root)).withColumn("old", F.lit(True)).alias("target")
        new = source(files).withColumn("new", F.lit(True)).alias("source")
        rows = old.join(new, F.expr("target.k = source.k"), "full")
        rows = rows.where(
            "NOT coalesce(old AND new AND source.gone AND target.k > 0, false)"
        ).selectExpr(
            "coalesce(target.k, source.k) AS k",
            "CASE WHEN old IS NULL THEN 0 WHEN new THEN -target.n ELSE target.n END AS n",
        )
        rows.write.parquet(str(target))
        seconds.append(time.perf_counter() - start)

    seconds: list[float] = []
    found = {}
    # What comes first also pays for the first reading of the files, so the second time counts.
    for files in (100, size, size):
        for name, work in (("txlog", by_txlog), ("Spark", by_parquet)):
            target = folder / "work"
            shutil.rmtree(target, ignore_errors=True)
            work(files, merge_table(case, files, folder), target)
            found[name] = {"seconds": seconds[-1], "cpu": 0.0, "heap": 0.0}
    spark.stop()
    return found


WARM = 10_000  # The files of the table for the first call.
ONE_PARTITION = "region = 'r03' and day = '2026-01-05'"


def of_log(case: str, size: int, root: Path, folder: Path) -> Callable[[], Any]:
    """Return work on a table of `size` files in 1,000 partitions, with a V2 checkpoint."""
    import txlog

    made = folder / f"files-{size}"
    shutil.copytree(made, root, copy_function=os.link)
    table = txlog.Table(root)
    works: dict[str, Callable[[], Any]] = {
        "log, plan of a partition": lambda: table.scan(where=ONE_PARTITION).fragments(),
        "log, delete of a partition": lambda: table.delete(ONE_PARTITION),
        "log, checkpoint": lambda: table.maintenance.checkpoint(),
        "log, first batch of a stream": lambda: first_batch(root),
    }
    return works[case]


def first_batch(root: Path) -> None:
    from txlog.store.local.local import LocalStore
    from txlog.stream.offsets import UNDECIDED, Limits
    from txlog.stream.stream import StreamOptions, TableStream

    stream = TableStream(LocalStore(str(root)), StreamOptions(limits=Limits(files=1_000)))
    end = stream.latest(UNDECIDED)
    assert len(stream.work(UNDECIDED, end)) == 1_000


def bulk_table(case: str, size: int, folder: Path) -> Path:
    return folder / f"{case.partition(', ')[2].replace(' ', '-')}-{size}"


def make(case: str, size: int, folder: Path) -> None:
    """Write the tables of a case. Their writer needs much memory, so it is a process of its own."""
    if case in CHECKPOINTS:
        for files in (4 * SIDECAR, size):
            make_many(folder / str(files), files)
        return
    for files in (WARM, size):
        root = folder / f"files-{files}"
        if case in (*LOG, *SOURCE, *CHANGES) and not root.exists():
            log_tables.write_sidecars(root, files)
        if case in CHANGES and not (folder / f"real-{files}").exists():
            log_tables.write_real(folder / f"real-{files}", root, range(files // 2))
        if case in BULK and not (root := bulk_table(case, files, folder)).exists():
            log_tables.write_shape(root, files, case.partition(", ")[2])


def of_bulk(case: str, size: int, folder: Path, engine: str) -> Callable[[], Any]:
    """Return opening and listing a table of 20 commits."""
    root = bulk_table(case, size, folder)
    if engine == "txlog":
        import txlog

        return lambda: txlog.Table(root).scan().file_uris()
    from deltalake import DeltaTable

    return lambda: DeltaTable(root).file_uris()


def of_changes(case: str, size: int, root: Path, folder: Path) -> Callable[[], Any]:
    """Return a change of the half of one partition, whose files exist: 1,500 of 3,000,000."""
    import txlog

    shutil.copytree(folder / f"real-{size}", root, copy_function=os.link)
    half = size // 2 * log_tables.SPAN
    where = f"{ONE_PARTITION} and id < {half}"
    table = txlog.Table(root, storage_options=RELAXED)
    paths = (root / log_tables.REAL).glob("*.parquet")
    ids = sorted(int(path.name[len("part-") :][:8]) * log_tables.SPAN for path in paths)
    days = pa.array([date(2026, 1, 5)] * len(ids))
    source = pa.table(
        {"region": ["r03"] * len(ids), "day": days, "id": ids}
        | {"at": pa.nulls(len(ids), pa.timestamp("us", "UTC"))}
        | dict.fromkeys(log_tables.NUMBERS, ids)
        | dict.fromkeys(log_tables.TEXTS, ["a"] * len(ids))
    )

    def merge() -> None:
        merger = table.merge(source, "target.id = source.id").when_matched_update({"n1": "7"})
        merger.when_not_matched_insert_all().execute()

    works: dict[str, Callable[[], Any]] = {
        "changes, plan of a scan": lambda: table.scan(where=where).fragments(),
        "changes, delete": lambda: table.delete(where),
        "changes, update": lambda: table.update({"n1": "n1 + 1"}, where),
        "changes, upsert": lambda: table.upsert(source, on="id"),
        "changes, merge": merge,
        "changes, compact": lambda: table.optimize.compact(
            ONE_PARTITION,
            min_file_bytes=500_000,  # The files that exist are small.
        ),
        "changes, overwrite": lambda: table.overwrite(source.slice(0, 10), where),
    }
    return works[case]


CHANGES = tuple(
    f"changes, {name}"
    for name in ("plan of a scan", "delete", "update", "upsert", "merge", "compact", "overwrite")
)


def of_checkpoint(case: str, size: int, root: Path, folder: Path) -> Callable[[], Any]:
    """Return writing a checkpoint of a table whose checkpoint another writer wrote, or txlog."""
    import txlog

    shutil.copytree(folder / str(size), root, copy_function=os.link)
    table = txlog.Table(root, storage_options=RELAXED)
    if case == "checkpoint after a commit":
        table.maintenance.checkpoint()
        table.delete(f"day = '2021-03-04' and id < {size * 500}")
        Path("/proc/self/clear_refs").write_text("5")  # The peak begins anew.
    return table.maintenance.checkpoint


CHECKPOINTS = ("checkpoint, all sidecars anew", "checkpoint after a commit")


def of_pages(case: str, size: int, root: Path, _: Path) -> Callable[[], Any]:
    """Return a page of a table with many columns, or its report."""
    import txlog
    from txlog.tools.report.page import report

    for _ in range(2):
        txlog.write(root, wide(size), mode="append", storage_options=RELAXED)
    table = txlog.Table(root, storage_options=RELAXED)
    table.update({f"c{at}": "c0 + 1" for at in range(3, size, 7)}, "c0 = 0")
    if case == "report":
        return lambda: report(table).save(root / "report.html")
    from fastapi.testclient import TestClient

    from txlog.tools.ui.app import make_app
    from txlog.tools.ui.places import Places, place_of

    client = TestClient(make_app(Places([table.uri]), "token", 8765), "http://127.0.0.1:8765")
    client.cookies.set("txlog-ui-8765", "token", domain="127.0.0.1")
    name = PAGES[case]

    def get() -> None:
        answer = client.get(f"/tables/{place_of(table.uri, '').key}/{name}")
        assert answer.status_code == 200, answer.text

    return get


PAGES = {
    "page Rows": "rows", "page Schema": "schema", "page Compare": "diff", "page Report": "report",
    "report": "",
}  # fmt: skip


def session(memory: str) -> Any:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    builder = builder.master("local[2]").config("spark.driver.memory", memory)
    return builder.config("spark.ui.enabled", "false").getOrCreate()


def spark_source(size: int, folder: Path, memory: str) -> dict[str, Any]:
    """Plan a read by `format("txlog")`: what its process and the heap of the driver need."""
    spark = session(memory)
    peaks: dict[int, float] = {}
    done = Event()

    def watch() -> None:  # The process that plans ends with the plan.
        while not done.wait(0.02):
            for one in children(os.getpid()):
                with suppress(OSError, IndexError):
                    peaks[one] = peak(one) if name_of(one) == "python" else 0

    def plan(files: int) -> None:
        reader = spark.read.format("txlog").option("columns", "id,day")
        reader.load(str(folder / f"files-{files}")).rdd.getNumPartitions()

    plan(WARM)
    java = [one for one in children(os.getpid()) if name_of(one) == "java"]
    before, start = cpu_of_all(java), time.perf_counter()
    watching = Thread(target=watch)
    watching.start()
    plan(size)
    done.set()
    watching.join()
    seconds = time.perf_counter() - start
    cpu = sum(cpu_of_all(java).values()) - sum(before.values())
    spark._jvm.java.lang.System.gc()
    heap = spark._jvm.java.lang.Runtime.getRuntime()
    held = (heap.totalMemory() - heap.freeMemory()) / 1e6
    python = max(peaks.values())
    spark.stop()
    return {"seconds": seconds, "cpu": cpu, "heap": held, "python": python}


def spark_doors(case: str, size: int, folder: Path, memory: str) -> dict[str, Any]:
    """Read a wide table by a door of Spark, and its files with Spark's own Parquet reader."""
    import txlog
    from txlog import spark_ext

    door, _, asked = case.partition(", ")
    columns = None if asked == "all columns" else ["c1", "c3"]
    spark = session(memory)
    root = folder / f"wide-{size}"
    if not root.exists():
        for _ in range(2):
            txlog.write(root, wide(size), mode="append", storage_options=RELAXED)

    def by_txlog(root: Path) -> Any:
        if door == "spark_ext.read":
            return spark_ext.read(spark, str(root), columns=columns)
        reader = spark.read.format("txlog")
        if columns:
            reader = reader.option("columns", ",".join(columns))
        return reader.load(str(root))

    def by_parquet(root: Path) -> Any:
        frame = spark.read.parquet(str(root))
        return frame.select(*columns) if columns else frame

    found = {}
    java = [one for one in children(os.getpid()) if name_of(one) == "java"]
    for _ in range(2):  # The JVM compiles in the first round what both ways run in the second one.
        for engine, way in (("txlog", by_txlog), ("Spark", by_parquet)):
            before, start = cpu_of_all(java), time.perf_counter()
            way(root).write.format("noop").mode("overwrite").save()
            seconds = time.perf_counter() - start
            cpu = sum(cpu_of_all(java).values()) - sum(before.values())
            found[engine] = {"seconds": seconds, "cpu": cpu, "heap": max(map(peak, java))}
    spark.stop()
    return found


DOORS = tuple(
    f"{door}, {asked}"
    for door in ("spark_ext.read", 'format("txlog")')
    for asked in ("all columns", "two columns")
)
SOURCE = ('format("txlog"), plan',)


LOG = (
    "log, plan of a partition", "log, delete of a partition", "log, checkpoint",
    "log, first batch of a stream",
)  # fmt: skip
BULK = tuple(f"bulk, {shape}" for shape in log_tables.SHAPES)
SPARK = {
    "not partitioned": (["id", "n0"], False),
    "partitioned": (["id", "day"], False),
    "partitioned, deletions in 1%": (["id", "day"], True),
}
"""The columns that are read, and whether one file of 100 has deleted rows."""


def once(part: str, case: str, engine: str, size: int, given: argparse.Namespace) -> Any:
    if part == "merge":
        return spark_merges(case, size, given.folder, given.memory)
    if part == "spark":
        return spark_read(case, size, given.folder, given.memory)
    if part == "source":
        return spark_source(size, given.folder, given.memory)
    if part == "doors":
        return spark_doors(case, size, given.folder, given.memory)
    if part == "make":
        return make(case, size, given.folder)
    root = given.folder / "work"
    for warm in (True, False):
        shutil.rmtree(root, ignore_errors=True)
        if part in OF_FOLDER:
            small = {"pages": 10, "checkpoint": 4 * SIDECAR}.get(part, WARM)
            work = OF_FOLDER[part](case, small if warm else size, root, given.folder)
        elif part == "bulk":
            work = of_bulk(case, WARM if warm else size, given.folder, engine)
        else:
            work = ENGINES[engine](case, 10 if warm else size, root)
        cpu, start = time.process_time(), time.perf_counter()
        work()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    shutil.rmtree(root, ignore_errors=True)
    return {"seconds": seconds, "cpu": cpu, "heap": peak(os.getpid())}


OF_FOLDER = {"log": of_log, "changes": of_changes, "checkpoint": of_checkpoint, "pages": of_pages}


HEAD = (
    "| | columns or files | s | CPU s | MB | deltalake s | CPU s | MB | ratio, CPU | measured |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


def merged(lines: Iterable[str]) -> list[str]:
    """Return rows beside those of the report that were not measured again."""
    _, _, section = (HERE / "RESULTS.md").read_text(encoding="utf-8").partition(f"## {TITLE}\n")
    table = section.partition(f"{HEAD[1]}\n")[2].partition("\n\n")[0]
    rows = {tuple(line.split(" | ")[:2]): line for line in (*table.splitlines(), *lines)}
    return list(rows.values())


def measured(part: str, case: str, engine: str, size: int, given: argparse.Namespace) -> Any:
    command = [sys.executable, __file__, "--folder", str(given.folder), "--memory", given.memory]
    command += ["--only", json.dumps([part, case, engine, size])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{case} of {engine} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def when() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}, {commit()}, {os.getloadavg()[0]:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "txlog-lake")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--columns", type=int, nargs="+", default=[500, 2_000, 10_000])
    parser.add_argument("--partitions", type=int, nargs="+", default=[3_000])
    parser.add_argument("--files", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--log-files", type=int, nargs="+", default=[1_000_000, 3_000_000])
    parser.add_argument("--bulk-files", type=int, nargs="+", default=[200_000])
    parser.add_argument("--merge-files", type=int, nargs="+", default=[10_000])
    parser.add_argument("--source-files", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--change-files", type=int, nargs="+", default=[3_000_000])
    parser.add_argument("--checkpoint-files", type=int, nargs="+", default=[10_000_000])
    parser.add_argument("--works", nargs="+", help="only works with one of these words")
    parser.add_argument("--memory", default="3g", help="of Spark's driver")
    parser.add_argument(
        "--parts",
        nargs="+",
        default=[
            "wide",
            "small",
            "log",
            "bulk",
            "spark",
            "merge",
            "source",
            "changes",
            "checkpoint",
            "pages",
            "doors",
        ],
    )
    parser.add_argument("--dry", action="store_true", help="only print")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.only:
        part, case, engine, size = json.loads(given.only)
        print(json.dumps(once(part, case, engine, size, given)))
        return
    cases = [
        *(("wide", case, size) for case in WIDE for size in given.columns),
        *(("small", case, size) for case in SMALL for size in given.partitions),
        *(("log", case, size) for size in given.log_files for case in LOG),
        *(("bulk", case, size) for size in given.bulk_files for case in BULK),
        *(("spark", case, size) for size in given.files for case in SPARK),
        *(("merge", case, size) for size in given.merge_files for case in MERGE),
        *(("source", case, size) for case in SOURCE for size in given.source_files),
        *(("changes", case, size) for size in given.change_files for case in CHANGES),
        *(("checkpoint", case, size) for size in given.checkpoint_files for case in CHECKPOINTS),
        *(("pages", case, size) for case in PAGES for size in given.columns),
        *(("doors", case, size) for case in DOORS for size in given.columns),
    ]
    lines: list[str] = []
    for part, case, size in cases:
        if part not in given.parts:
            continue
        if given.works and not any(word in case for word in given.works):
            continue
        if part == "merge":  # Both in one session.
            both = [measured(part, case, "", size, given) for _ in range(given.repeat)]
            mine, other = (median(r[n]["seconds"] for r in both) for n in ("txlog", "Spark"))
            cells = f"{mine:.2f} | – | – | {other:.2f} (plain Spark) | – | – | {mine / other:.2f}"
            lines.append(f"| {case} | {size:,} | {cells} (s) | {when()} |")
            print(lines[-1], flush=True)
            continue
        engines = list(ENGINES) if part in ("wide", "small", "bulk", "doors") else ["txlog"]
        runs: dict[str, list[Any]] = {engine: [] for engine in engines}
        if part in ("log", "bulk", "source", "changes", "checkpoint"):
            measured("make", case, "", size, given)
        for _ in range(given.repeat):
            if part == "doors":  # Both in one session.
                both = measured(part, case, "", size, given)
                runs["txlog"].append(both["txlog"])
                runs["deltalake"].append(both["Spark"])
                continue
            for engine in engines:
                runs[engine].append(measured(part, case, engine, size, given))
        found = {
            engine: [median(run[what] for run in of) for what in ("seconds", "cpu", "heap")]
            for engine, of in runs.items()
        }
        cells = [f"{s:.2f} | {c:.2f} | {m:,.0f}" for s, c, m in found.values()]
        if part == "source":
            python = median(run["python"] for run in runs["txlog"])
            cells = [f"{cells[0]} (heap), {python:,.0f} (Python)"]
        if len(engines) == 1:
            cells.append(" | | | ")
        else:
            cells.append(f"{found['txlog'][1] / found['deltalake'][1]:.2f}")
        lines.append(f"| {case} | {size:,} | {' | '.join(cells)} | {when()} |")
        print(lines[-1], flush=True)
    told = (
        "Each row says when it was measured: the date, the commit, and the load average, which is "
        "that of other work, too. So look at the CPU seconds. Medians. MB: the peak of the "
        "process, or of Spark the heap of the driver after the call; of Spark's doors, the peak of "
        "the JVM in both ways. Beside merges and Spark's doors stands Spark's own Parquet reader "
        f"in place of deltalake. {machine()}."
    )
    text = "\n".join([f"## {TITLE}", "", told, "", *HEAD, *merged(lines)]) + "\n"
    print("\n" + text)
    if not given.dry:
        put_section(text)


if __name__ == "__main__":
    main()
