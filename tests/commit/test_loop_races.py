"""Many threads and many processes appending to one table."""

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import txlog
from txlog.commit.intent import Intent
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.update import Update

WRITER = """
import sys
import pyarrow as pa
import txlog

root, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
table = txlog.Table(root)
for x in range(first, first + count):
    table.append(pa.table({"x": pa.array([x], pa.int64())}))
"""


def versions(root: str) -> list[int]:
    return sorted(int(path.stem) for path in Path(root, "_delta_log").glob("*.json"))


def check(root: str, rows: int) -> None:
    table = txlog.Table(root)
    assert sorted(table.to_arrow()["x"].to_pylist()) == list(range(rows))
    assert versions(root) == list(range(table.version + 1))
    assert table.version == rows
    assert table.files()["fragment_id"].to_pylist() == list(range(rows))
    for path in Path(root, "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert "commitInfo" in lines[0]


@pytest.mark.parametrize("interval", ["7", "1000"])
def test_many_threads_append(tmp_path: Path, interval: str) -> None:
    root = str(tmp_path / "t")
    schema = pa.schema([("x", pa.int64())])
    txlog.Table.create(root, schema, properties={"delta.checkpointInterval": interval})

    def work(first: int) -> None:
        table = txlog.Table(root)
        for x in range(first, first + 5):
            table.append(pa.table({"x": pa.array([x], pa.int64())}))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(0, 30, 5)))
    check(root, 30)


@pytest.mark.slow
def test_many_processes_append(tmp_path: Path) -> None:
    root = str(tmp_path / "t")
    txlog.Table.create(root, pa.schema([("x", pa.int64())]))
    script = tmp_path / "writer.py"
    script.write_text(WRITER, encoding="utf-8")
    command = [sys.executable, str(script), root]
    running = [subprocess.Popen([*command, str(first), "10"]) for first in (0, 10, 20)]
    assert [process.wait(timeout=60) for process in running] == [0, 0, 0]
    check(root, 30)


def test_one_of_many_makes_the_table(tmp_path: Path) -> None:
    root = str(tmp_path / "t")

    def make(x: int) -> str:
        try:
            txlog.write(root, pa.table({"x": [x]}), "error")
        except txlog.AlreadyExistsError:
            return "exists"
        return "made"

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(make, range(8)))
    assert outcomes.count("made") == 1
    table = txlog.Table(root)
    assert (table.version, table.count()) == (0, 1)
    assert len(list(Path(root).glob("*.parquet"))) == 1  # The losers' files are gone.


def test_all_of_many_append_though_none_found_a_table(tmp_path: Path) -> None:
    root = str(tmp_path / "t")

    def add(x: int) -> None:
        txlog.write(root, pa.table({"x": [x]}), "append")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(8)))
    assert sorted(txlog.Table(root).to_arrow()["x"].to_pylist()) == list(range(8))


def test_threads_that_delete_and_append_at_once(tmp_path: Path) -> None:
    root = str(tmp_path / "t")
    txlog.write(
        root, pa.table({"x": list(range(40))}), options=txlog.WriteOptions(max_rows_per_file=10)
    )

    def work(number: int) -> None:
        table = txlog.Table(root)
        if number % 2:
            table.delete(f"x % 8 = {number}")
        else:
            table.append(pa.table({"x": [100 + number]}))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    expected = [x for x in range(40) if x % 2 == 0] + [100, 102, 104, 106]
    assert sorted(txlog.Table(root).to_arrow()["x"].to_pylist()) == sorted(expected)


@pytest.mark.spec("GUA-13")
@pytest.mark.skipif(os.name == "nt", reason="nobody waits for a turn there")
def test_who_is_slow_wins_at_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer changes the same rows whenever the slow one has read them."""
    root = str(tmp_path / "t")
    txlog.write(root, pa.table({"x": [1], "n": [0]}))
    done, intent, attempts = threading.Event(), Update.intent, []

    def slow(self: Update, base: Snapshot) -> Intent | None:
        made = intent(self, base)
        if threading.current_thread() is threading.main_thread():
            attempts.append(base.version)
            for _ in range(40):  # Others who may commit do so within that time.
                if versions(root)[-1] > base.version:
                    break
                time.sleep(0.01)
        return made

    monkeypatch.setattr(Update, "intent", slow)

    def others() -> None:
        table = txlog.Table(root)
        while not done.is_set():
            table.update({"n": "n + 1"}, "x = 1")

    other = threading.Thread(target=others)
    other.start()
    try:
        outcome = txlog.Table(root).update({"n": "n + 1000"}, "x = 1")
    finally:
        done.set()
        other.join()
    assert len(attempts) <= 5
    table = txlog.Table(root)
    assert outcome.version in range(1, table.version + 1)
    assert table.to_arrow()["n"].to_pylist() == [1000 + table.version - 1]
