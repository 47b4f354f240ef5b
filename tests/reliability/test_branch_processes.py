"""Processes write to branches that others publish, and are killed: no acknowledged row is lost.

Writers append to the branch that is open now, and tell each row that was acknowledged. Publishers
create branches and publish them. Some are killed at any time. In the end the table has each row
that was told, once.
"""

import multiprocessing
import os
import random
import time
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    NotFoundError,
    OutcomeUnknownError,
)

EXPECTED = (NotFoundError, CommitConflictError, AlreadyExistsError, OutcomeUnknownError)


def write(root: str, ledger: str, stop: str) -> None:
    file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    number = 0
    while not Path(stop).exists():
        with suppress(*EXPECTED):
            branch = txlog.Table(root, branch="b")
            for _ in range(3):  # The same handle, also after the branch was published.
                number += 1
                row = f"{Path(ledger).name}-{number}"
                branch.append(pa.table({"x": [row]}))
                os.write(file, f"{row}\n".encode())


def publish(root: str, stop: str) -> None:
    table = txlog.Table(root)
    while not Path(stop).exists():
        with suppress(*EXPECTED):
            table.branches.create("b")
        while not Path(stop).exists() and not has_commits(table):
            time.sleep(0.02)
        time.sleep(random.uniform(0, 0.1))
        with suppress(*EXPECTED):
            table.branches.publish("b")


def has_commits(table: txlog.Table) -> bool:
    """Return whether the open branch has commits, or there is none, so that nobody waits."""
    opened = [one for one in table.branches.list().to_pylist() if one["status"] == "open"]
    return all(one["version"] > one["base_version"] for one in opened)


def told_in(folder: Path) -> list[str]:
    ledgers = [path for path in folder.iterdir() if path.name.startswith("w")]
    return [line for path in ledgers for line in path.read_text().splitlines()]


def wait_for(folder: Path, count: int) -> None:
    until = time.monotonic() + 120
    while len(told_in(folder)) < count:
        assert time.monotonic() < until, "nobody comes forward"
        time.sleep(0.05)


def run(tmp_path: Path, rounds: int, *, kills: bool) -> tuple[int, int]:
    """Return how many rows were told, and how many branches were published."""
    root, stop = str(tmp_path / "t"), str(tmp_path / "stop")
    table = txlog.write(root, pa.table({"x": ["first"]}))
    context = multiprocessing.get_context("spawn")
    chance = random.Random(7)

    def started(place: int, life: int) -> BaseProcess:
        if place % 2:
            process = context.Process(target=publish, args=(root, stop))
        else:
            ledger = str(tmp_path / f"w{place}-{life}")
            process = context.Process(target=write, args=(root, ledger, stop))
        process.start()
        return process

    processes = [started(place, 0) for place in range(4)]
    try:
        for life in range(1, rounds + 1):
            wait_for(tmp_path, len(told_in(tmp_path)) + 5)
            if kills:
                time.sleep(chance.uniform(0, 0.3))
                place = chance.randrange(4)
                processes[place].kill()
                processes[place].join()
                processes[place] = started(place, life)
    finally:
        Path(stop).touch()
        for process in processes:
            process.join(120)
    assert {process.exitcode for process in processes} == {0}
    while "open" in table.branches.list()["status"].to_pylist():
        table.branches.publish("b")
    told, held = told_in(tmp_path), txlog.Table(root).to_arrow()["x"].to_pylist()
    assert len(set(held)) == len(held)
    assert set(told) <= set(held)
    history = [one["operation"] for one in txlog.Table(root).history()]
    return len(told), history.count("PUBLISH BRANCH")


@pytest.mark.slow(cases=1)
@pytest.mark.spec("BRA-15", "BRA-16", "GUA-4")
@pytest.mark.parametrize("kills", [False, True])
def test_no_acknowledged_row_of_a_branch_is_lost(tmp_path: Path, kills: bool) -> None:
    told, published = run(tmp_path, 4, kills=kills)
    assert told > 10
    assert published


@pytest.mark.exhaustive
@pytest.mark.spec("BRA-15", "BRA-16", "GUA-4")
def test_no_acknowledged_row_of_a_branch_is_lost_for_long(tmp_path: Path) -> None:
    told, published = run(tmp_path, 60, kills=True)
    assert min(told, published) > 20
    print(f"{told} rows were told, {published} branches were published")
