"""Data sets: text examples to a training set, a summary of many commits, durable events.

python benchmarks/datasets.py [--rows N] [--commits N] [--events N] [--repeat N] [--dry]

Plain Python (`csv` and a dictionary) makes the same files beside it, in turn.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from typing import Any

import numpy as np
import pyarrow as pa
from bench import SEED, commit, machine, put_section

from txlog.training import Datasets, InlineRunner

TEXT = (
    "I am still waiting on my credit card could not purchase gas in the store please help me "
    "find out when where why how much it costs to send money abroad"
)
WORDS = np.array(TEXT.split())
LABELS = 151


def make(path: Path, rows: int) -> None:
    """Make a CSV of utterances of nine words, some with commas, with one or two labels each."""
    dice = np.random.default_rng(SEED)
    words = WORDS[dice.integers(0, len(WORDS), (rows, 9))]
    labels = dice.integers(0, LABELS, (rows, 2))
    with path.open("w", newline="") as sink:
        writer = csv.writer(sink)
        for number, (text, (one, other)) in enumerate(zip(words, labels, strict=True)):
            utterance = (", " if number % 7 == 0 else " ").join(text)
            more = [f"label_{other}"] if number % 10 == 0 and other != one else []
            writer.writerow([utterance, f"label_{one}", *more])


def plainly(source: Path, folder: Path) -> None:
    """Do what the form `csv` does, one row after another."""
    folder.mkdir(parents=True)
    ids: dict[str, int] = {}
    with source.open(newline="") as rows, (folder / "examples.csv").open("w", newline="") as sink:
        writer = csv.writer(sink, lineterminator="\n")
        for utterance, *labels in csv.reader(rows):
            numbers = [ids.setdefault(label.strip(), len(ids)) for label in labels]
            writer.writerow([utterance, ";".join(map(str, numbers))])
    with (folder / "labels.csv").open("w", newline="") as sink:
        csv.writer(sink, lineterminator="\n").writerows((n, label) for label, n in ids.items())


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def examples(folder: Path, rows: int, repeat: int) -> list[str]:
    source = folder / "examples.csv"
    make(source, rows)
    took: dict[str, list[tuple[float, float]]] = {}
    for number in range(repeat):
        home = folder / f"run-{number}"
        intents, *times = timed(
            lambda home=home: Datasets(home, runner=InlineRunner()).create(
                "intents", "TEXT_INTENT", source
            )
        )
        took.setdefault("`create` from the CSV", []).append((times[0], times[1]))
        for form in ("parquet", "csv"):
            made, *times = timed(lambda form=form, intents=intents: intents.prepare(form=form))
            if made.statistics != {"numExamples": rows, "numLabels": LABELS}:
                raise SystemExit(f"the training set holds {made.statistics}")
            took.setdefault(f"`prepare`, form `{form}`", []).append((times[0], times[1]))
        _, *times = timed(lambda home=home: plainly(source, home / "plain"))
        took.setdefault("plain Python, CSV to CSV", []).append((times[0], times[1]))
        for part in made.parts:
            if Path(part.uri).read_bytes() != (home / "plain" / part.name).read_bytes():
                raise SystemExit(f"{part.name} differs from what plain Python makes")
        shutil.rmtree(home)
    return [
        f"| {rows:,} examples: {name} | {median(w for w, _ in times):.2f} s | "
        f"{median(c for _, c in times):.2f} s |"
        for name, times in took.items()
    ]


def summaries(folder: Path, commits: int, repeat: int) -> list[str]:
    rows = pa.table({"x": [1]})
    datasets = Datasets(folder / "many", runner=InlineRunner())
    many = datasets.create("many", "TABLE", rows)
    _, made, _ = timed(lambda: [many.update(rows) for _ in range(commits - 1)])
    warm = [timed(many.summary)[1:] for _ in range(repeat)]
    cold = [
        timed(lambda: Datasets(folder / "many").dataset("many").summary())[1:]
        for _ in range(repeat)
    ]
    if len(many.summary().commits) != commits:
        raise SystemExit("commits are missing")
    return [
        f"| {commits:,} commits, one after another | {made:.2f} s | |",
        *(
            f"| a summary of {commits:,} commits, {name} | {median(w for w, _ in times) * 1e3:.1f} "
            f"ms | {median(c for _, c in times) * 1e3:.1f} ms |"
            for name, times in (("again", warm), ("of a new `Datasets`", cold))
        ),
    ]


def events(folder: Path, count: int) -> list[str]:
    datasets = Datasets(folder / "events", runner=InlineRunner())
    named = datasets.create("named", "TABLE", pa.table({"x": [1]}))
    _, wall, cpu = timed(lambda: [named.tag(f"name {n}", 1) for n in range(count)])
    return [f"| {count:,} events, on the disk when the call returns | {wall:.2f} s | {cpu:.2f} s |"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--events", type=int, default=500)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "txlog-datasets")
    parser.add_argument("--dry", action="store_true", help="only print")
    given = parser.parse_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    text = [
        "## Data sets",
        "",
        (
            f"{time.strftime('%Y-%m-%d')}, commit {commit()}, `python benchmarks/datasets.py "
            f"--rows {given.rows} --commits {given.commits} --events {given.events} --repeat "
            f"{given.repeat}`. Medians; imports are in the first run. {machine()}"
        ),
        "",
        "| what | time | CPU |",
        "|---|---|---|",
        *examples(given.folder, given.rows, given.repeat),
        *events(given.folder, given.events),
        *summaries(given.folder, given.commits, given.repeat),
    ]
    shutil.rmtree(given.folder)
    print("\n".join(text))
    if not given.dry:
        put_section("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
