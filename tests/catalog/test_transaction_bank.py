"""Money moves between accounts in three tables; processes are killed; the total never changes."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.catalog.bank import ACCOUNTS, START, TABLES
from tests.catalog.conftest import SCHEMA, rows
from txlog import Catalog

TOTAL = len(TABLES) * ACCOUNTS * START


def balances(catalog: Catalog) -> list[int]:
    moment = catalog.snapshot()
    found: list[int] = []
    for name in TABLES:
        found += moment[name].to_arrow(["v"])["v"].to_pylist()
    return found


def worker(database: str, seed: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.catalog.bank", database, str(seed)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )


def ended(process: subprocess.Popen[str]) -> int:
    """Kill a process; return how many transfers it acknowledged that nobody has read."""
    process.kill()
    said, _ = process.communicate()
    return said.count("moved\n")


def play(folder: Path, processes: int, kills: int, database: str | None = None) -> int:
    """Let processes move money while some are killed; return the number of transfers."""
    database = database or str(folder / "lake.db")
    catalog = Catalog(database, folder / "lake")
    for name in TABLES:
        table = catalog.create_table(name, SCHEMA, managed="writes")
        table.append(rows(*((number, START) for number in range(ACCOUNTS))))
    chance = random.Random(processes)
    running = [worker(database, seed) for seed in range(processes)]
    moves = 0
    try:
        for number in range(kills):
            victim = chance.randrange(processes)
            # It has moved something, so it is at work, anywhere in a transaction.
            stdout = running[victim].stdout
            assert stdout is not None
            assert stdout.readline() == "moved\n"
            time.sleep(chance.random() / 5)
            moves += 1 + ended(running[victim])
            found = balances(catalog)
            assert (sum(found), min(found) >= 0) == (TOTAL, True), found
            running[victim] = worker(database, 1000 + number)
    finally:
        for one in running:
            moves += ended(one)
    found = balances(catalog)
    assert (sum(found), min(found) >= 0, len(found)) == (TOTAL, True, len(TABLES) * ACCOUNTS)
    groups: dict[str, set[str]] = {}
    for commit in catalog._database.commits_after(0, 1_000_000):
        if commit.transaction_id is not None:
            groups.setdefault(commit.transaction_id, set()).add(commit.table_id)
    assert len(groups) >= moves  # Each acknowledged transfer exists.
    return moves


@pytest.mark.slow
@pytest.mark.spec("CAT-6", "CAT-10")
def test_the_total_never_changes(tmp_path: Path) -> None:
    assert play(tmp_path, 3, 4) >= 4


@pytest.mark.exhaustive
@pytest.mark.spec("CAT-6", "CAT-10")
def test_the_total_never_changes_with_many_processes(tmp_path: Path) -> None:
    assert play(tmp_path, 16, 60) >= 60
