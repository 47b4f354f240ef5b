"""Batches of 1,024 rows for training: rows a CPU second, beside other loaders.

    python benchmarks/loader.py [ROWS] [--folder FOLDER] [--repeat N]

Each run is a process of its own, and the engines take turns. Imports are not counted, opening is.
A row has a label, eight floats and a vector of 16 (104 bytes). All that read Parquet read the same
files. An engine that is not installed is left out. In an environment of its own:

    pip install -e . 'pylance>=14,<15' datasets torch==2.13.0 mosaicml-streaming==0.10.0
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import txlog
from txlog.training import Loader, Shuffle, Vector

# `datasets` is Hugging Face's library, and not the benchmark of that name beside this file.
HERE = Path(__file__).resolve().parent
sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != HERE]

BATCH = 1024
SEED = 1
SMALL = 50_000  # Rows that the slowest engine reads.
PAGES = (1024, 5000)  # Rows of a page.
FILES = 10_000  # Of the table whose first batch is timed.


def data(rows: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(SEED)
    for first in range(0, rows, 1_000_000):
        count = min(1_000_000, rows - first)
        columns = {"label": random.integers(0, 1000, count)}
        columns |= {f"f{number}": random.random(count, np.float32) for number in range(8)}
        offsets = (np.arange(count + 1) * 64).astype(np.int32)
        vectors = random.random((count, 16), np.float32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(vectors)]
        columns["vector"] = pa.Array.from_buffers(pa.binary(), count, buffers)
        yield pa.table(columns)


def make(folder: Path, rows: int) -> None:
    """Write the tables of the engines. Those that exist are kept."""
    for pages in PAGES:
        for part in data(rows) if not (folder / f"table-{pages}").exists() else ():
            txlog.write(
                folder / f"table-{pages}", part, mode="append",
                properties={"txlog.pageRows": str(pages)},
            )  # fmt: skip
    if find_spec("lance") and not (folder / "lance").exists():
        import lance

        for part in data(rows):
            lance.write_dataset(part.drop(["vector"]), str(folder / "lance"), mode="append")
    if find_spec("streaming") and not (folder / "mds").exists():
        from streaming import MDSWriter

        kinds = {"label": "int", "vector": "ndarray:float32:16"}
        kinds |= {f"f{number}": "float32" for number in range(8)}
        with MDSWriter(out=str(folder / "mds"), columns=kinds) as writer:
            for row in next(data(SMALL)).to_pylist():
                floats = {name: np.float32(row[name]) for name in row if name[0] == "f"}
                vector = np.frombuffer(row["vector"], np.float32)
                writer.write({"label": row["label"], "vector": vector, **floats})
    if not (folder / "files").exists():
        ids = np.arange(FILES * 100)
        table = txlog.write(
            folder / "files", pa.table({"file": ids // 100, "x": ids}), partition_by=["file"]
        )
        table.maintenance.checkpoint()


def pyarrow_in_order(folder: Path, pages: int) -> Iterator[Any]:
    for path in txlog.Table(folder / f"table-{pages}").scan().file_uris():
        for batch in pq.ParquetFile(path).iter_batches(batch_size=BATCH, use_threads=False):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            vectors = columns.pop("vector")
            numbers = {name: column.to_numpy() for name, column in columns.items()}
            made = np.frombuffer(vectors.buffers()[2], np.float32).reshape(-1, 16)
            first = vectors.offset
            yield numbers | {"vector": made[first : first + len(vectors)]}


def loader(folder: Path, pages: int, shuffle: Shuffle | None, *, vector: bool = True) -> Loader:
    return Loader(
        folder / f"table-{pages}", batch_size=BATCH, shuffle=shuffle,
        columns=None if vector else ["label", *(f"f{number}" for number in range(8))],
        views={"vector": Vector("float32", 16)} if vector else {},
    )  # fmt: skip


def lance_shuffled(folder: Path) -> Iterator[Any]:
    import lance
    from lance.sampler import ShardedBatchSampler
    from lance.torch.data import LanceDataset

    sampler = ShardedBatchSampler(rank=0, world_size=1, randomize=True, seed=SEED)
    yield from LanceDataset(lance.dataset(str(folder / "lance")), BATCH, sampler=sampler)


def datasets_buffered(folder: Path, pages: int) -> Iterator[Any]:
    from datasets import load_dataset

    files = sorted(txlog.Table(folder / f"table-{pages}").scan().file_uris())
    rows = load_dataset("parquet", data_files=files, split="train", streaming=True)
    shuffled = rows.with_format("numpy").shuffle(seed=SEED, buffer_size=10_000)
    yield from shuffled.iter(batch_size=BATCH)


def mosaic_shuffled(folder: Path) -> Iterator[Any]:
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    rows = StreamingDataset(
        local=str(folder / "mds"), shuffle=True, shuffle_seed=SEED, batch_size=BATCH
    )
    yield from DataLoader(rows, batch_size=BATCH)


def first_batch(folder: Path) -> Iterator[Any]:
    yield next(iter(Loader(folder / "files", batch_size=BATCH, columns=["x"])))


Engine = tuple[str, str, int, Callable[[Path], Any]]  # What it needs, its share of rows, its run.


def engines() -> dict[str, Engine]:
    found: dict[str, Engine] = {}
    for pages in PAGES:
        where = f"{pages} rows a page"
        found |= {
            f"pyarrow, in order, {where}": ("pyarrow", "order", pages,
                lambda f, p=pages: pyarrow_in_order(f, p)),
            f"txlog, in order, {where}": ("txlog", "order", pages,
                lambda f, p=pages: loader(f, p, None)),
            f"txlog, shuffled, {where}": ("txlog", "shuffled", pages,
                lambda f, p=pages: loader(f, p, Shuffle(seed=SEED))),
            f"txlog, shuffled, torch, {where}": ("torch", "shuffled", pages,
                lambda f, p=pages: loader(f, p, Shuffle(seed=SEED)).torch()),
            f"txlog, shuffled, torch, no vector, {where}": ("torch", "shuffled", pages,
                lambda f, p=pages: loader(f, p, Shuffle(seed=SEED), vector=False).torch()),
            f"txlog, first batch, {where}": ("txlog", "first", pages,
                lambda f, p=pages: [next(iter(loader(f, p, Shuffle(seed=SEED))))]),
            f"datasets, a buffer of 10,000, {where}": ("datasets", "buffer", pages,
                lambda f, p=pages: datasets_buffered(f, p)),
        }  # fmt: skip
    found["pylance, torch, batches shuffled, no vector"] = ("lance", "batches", 0, lance_shuffled)
    found["mosaicml-streaming, shuffled"] = ("streaming", "shuffled", 0, mosaic_shuffled)
    found["txlog, first batch of 10,000 files"] = ("txlog", "first", 0, first_batch)
    return found


def run(name: str, folder: Path) -> None:
    """Run one engine, and print its rows, CPU seconds and seconds."""
    needs, _, _, batches = engines()[name]
    __import__(needs)
    if needs in ("lance", "datasets", "streaming") and find_spec("torch"):
        __import__("torch")  # They import it themselves, if it is there.
    before, started = cpu(), time.perf_counter()
    rows = 0
    for batch in batches(folder):
        rows += len(next(iter(batch.values())))
        if needs == "datasets" and rows >= 1_000_000:
            break
    took = time.perf_counter() - started
    sys.stdout.write(json.dumps([rows, cpu() - before, took]) + "\n")
    sys.stdout.flush()
    os._exit(0)  # Some engines have threads that do not end.


def cpu() -> float:
    """Return the CPU seconds of this process and of those that it waited for."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=int, nargs="?", default=10_000_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "txlog-loader")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.engine:
        run(given.engine, given.folder)
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    if (given.folder / "rows").exists() and (given.folder / "rows").read_text() != str(given.rows):
        shutil.rmtree(given.folder)
        given.folder.mkdir()
    (given.folder / "rows").write_text(str(given.rows))
    make(given.folder, given.rows)
    best: dict[str, tuple[float, float]] = {}
    for _ in range(given.repeat):
        for name, (needs, *_) in engines().items():
            if find_spec(needs) is None:
                continue
            command = [sys.executable, __file__, "--folder", str(given.folder), "--engine", name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode or not done.stdout:
                print(f"{name}: failed: {done.stderr.strip().splitlines()[-1:]}")
                continue
            rows, busy, took = json.loads(done.stdout.splitlines()[-1])
            if "first batch" in name:
                best[name] = min(best.get(name, (busy, took)), (busy, took))
            else:
                million = (rows / busy / 1e6, rows / took / 1e6)
                best[name] = max(best.get(name, million), million)
    print("| stream | million rows a CPU second | a second |\n|---|---|---|")
    for name, (busy, took) in best.items():
        unit = " s" if "first batch" in name else ""
        print(f"| {name} | {busy:.3g}{unit} | {took:.3g}{unit} |")


if __name__ == "__main__":
    main()
