"""Merges and updates of a large table, beside deltalake: time and peak memory of a process each."""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
from bench import SCHEMA, SEED, batches, commit, machine
from write_works import load_txlog

import txlog

HERE = Path(__file__).parent
ON = "target.id = source.id"
CASES = {
    "updates": "100,000 rows of the source update rows all over the table",
    "inserts": "a source of 99,000 new rows and 1,000 rows that the table has",
    "narrow": "1% of the keys, all in 1% of the files",
    "update": "`update({'a': 'a + 1'}, 'a < 10000')`: 1% of the rows",
}
ENGINES = {
    "deltalake": "deltalake",
    "vectors": "txlog, deletion vectors",
    "rewrite": "txlog, without deletion vectors",
}


def source(case: str, rows: int) -> pa.Table:
    """Return the rows that are merged, in the columns of the table."""
    dice = np.random.default_rng(SEED + 1)
    ids = {
        "updates": dice.choice(rows, rows // 100, replace=False),
        "inserts": np.concatenate(
            [
                dice.choice(rows, rows // 10_000, replace=False),
                rows + np.arange(rows * 99 // 10_000),
            ]
        ),
        "narrow": rows // 2 + dice.choice(rows // 100, rows // 10_000, replace=False),
    }[case]
    (batch,) = batches(len(ids), len(ids))
    return pa.Table.from_batches([batch]).set_column(0, SCHEMA.field(0), pa.array(ids))


def make(folder: Path, rows: int, files: int) -> None:
    for name, vectors in (("vectors", "true"), ("rewrite", "false")):
        root = folder / f"{name}-{rows}-{files}"
        if root.exists():
            continue
        properties = {"delta.enableDeletionVectors": vectors}
        table = txlog.Table.create(root, SCHEMA, properties=properties)
        reader = pa.RecordBatchReader.from_batches(SCHEMA, batches(rows, rows // files))
        table.append(reader, options=txlog.WriteOptions(max_rows_per_file=rows // files))


def work(engine: str, root: Path, data: pa.Table | None) -> Any:
    if engine == "deltalake":
        theirs = deltalake.DeltaTable(root)
        if data is None:
            return theirs.update({"a": "a + 1"}, predicate="a < 10000")
        merger = theirs.merge(data, ON, source_alias="source", target_alias="target")
        return merger.when_matched_update_all().when_not_matched_insert_all().execute()
    table = txlog.Table(root)
    if data is None:
        return table.update({"a": "a + 1"}, "a < 10000")
    return table.upsert(data, on="id")


def run_once(given: argparse.Namespace) -> None:
    case, engine = given.only.split("/")
    name = "vectors" if engine == "vectors" else "rewrite"
    made = given.folder / f"{name}-{given.rows}-{given.files}"
    scratch = given.folder / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(made, scratch, copy_function=os.link)
    data = None if case == "update" else source(case, given.rows)
    load_txlog()  # As deltalake, before the clock starts.
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu, start = time.process_time(), time.perf_counter()
    work(engine, scratch, data)
    done = {
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - cpu,
        "mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }
    shutil.rmtree(scratch)
    print(json.dumps(done))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "txlog-merges")
    parser.add_argument("--only", help="case/engine: do this alone, once, and print JSON")
    given = parser.parse_args()
    if given.only:
        run_once(given)
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    make(given.folder, given.rows, given.files)
    options = ["--rows", str(given.rows), "--files", str(given.files), "--folder", given.folder]
    runs: dict[tuple[str, str], list[dict[str, float]]] = {}
    for _ in range(given.repeat):
        for case in CASES:
            for engine in ENGINES:
                command = [sys.executable, __file__, *map(str, options), "--only"]
                out = subprocess.check_output([*command, f"{case}/{engine}"], text=True)
                runs.setdefault((case, engine), []).append(json.loads(out.splitlines()[-1]))
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, commit {commit()}. {given.rows:,} rows in {given.files} "
        f"files; medians of {given.repeat} runs of each, in turn. {machine()}.\n"
    )
    print("| | | s | ratio | CPU s | memory, MB | ratio |\n|---|---|---|---|---|---|---|")
    for case, label in CASES.items():
        base = runs[case, "deltalake"]
        for engine, name in ENGINES.items():
            found = {key: median(run[key] for run in runs[case, engine]) for key in base[0]}
            ratios = {key: found[key] / median(run[key] for run in base) for key in found}
            print(
                f"| {label} | {name} | {found['seconds']:.2f} | {ratios['seconds']:.2f} "
                f"| {found['cpu']:.2f} | {found['mb']:.0f} | {ratios['mb']:.2f} |"
            )


if __name__ == "__main__":
    main()
