"""Indexes while processes die, threads look up, and others merge: answers stay right."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import deltalake
import numpy as np
import pytest

import txlog
from tests.lookup.test_indexes import SCHEMA, rows, segments_of
from tests.reliability.cases import Files, clear, files_below, fill
from tests.ticking import Ticking
from txlog.base.threads import Threads
from txlog.commit.context import Context
from txlog.snapshot.load import load_snapshot
from txlog.store.base import Store
from txlog.store.memory import MemoryStore
from txlog.testing import open_table
from txlog.testing.faults import Crash, CrashingStore, CrashKind, CrashPoint, crash_points
from txlog.testing.schedules import Choose, History, all_schedules, play

WORK: dict[str, Callable[[txlog.Table], Any]] = {
    "append": lambda t: t.append(rows(8)),
    "append and merge": lambda t: t.append(rows(8)),
    "compact": lambda t: t.optimize.compact(),
    "build": lambda t: t.indexes.build(rebuild=True),
    "optimize": lambda t: t.indexes.merge(),
    "create": lambda t: t.indexes.create("k"),
    "drop": lambda t: t.indexes.drop("k"),
}
IS_DONE_ONCE = ("append", "append and merge")


@pytest.fixture
def merging(monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    """Let an append of the works that merge find enough segments."""
    if work == "append and merge":
        monkeypatch.setattr("txlog.verbs.indexes.MOST_SEGMENTS", 2)


def _crashed(work: str, store: MemoryStore, point: CrashPoint | None) -> CrashingStore:
    """Return the store at which a work on a new table ended by an event, or without one."""
    txlog.Table.create(store.root, SCHEMA)
    table = open_table(store)
    table.append(rows(3, 1, None))
    if work != "create":
        table.indexes.create("k")
        table.append(rows(5))
    crashing = CrashingStore(store)
    opened = open_table(crashing)
    crashing.calls.clear()
    crashing.point = point
    with suppress(txlog.TxlogError, Crash, MemoryError, KeyboardInterrupt):
        WORK[work](opened)
    return crashing


def _require_right_answers(table: txlog.Table) -> None:
    held = set(table.to_arrow()["k"].to_pylist())
    assert {1, 3} <= held
    found = table.lookup([8, 1, 3, 5, 2], on="k")["k"].to_pylist()
    assert found == [key for key in (8, 1, 3, 5) if key in held]


def every_crash_point(work: str, kinds: Collection[str], step: int = 1) -> None:
    """Answers stay right, and a second try mends all."""
    whole = MemoryStore(f"memory://crash-{work}")
    calls = _crashed(work, whole, None).calls
    segments = list(whole.list_after("_txlog_index/k", "")) if work != "drop" else []
    assert len(segments) == {"append": 3, "compact": 3, "drop": 0}.get(work, 1)
    points = [point for point in crash_points(calls) if point.kind in kinds][::step]
    assert points
    for number, point in enumerate(points):
        store = MemoryStore(f"memory://crash-{work}-{number}-{len(points)}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert len(_crashed(work, store, point).calls) >= point.step, point
            _require_right_answers(open_table(store))
            after = open_table(store)
            if work not in IS_DONE_ONCE and (work != "drop" or after.indexes.list()):
                WORK[work](after)
            if after.indexes.list():
                after.indexes.build("k")
        assert bool(after.indexes.list()) == (work != "drop"), point
        assert all(info.files_covered == info.files for info in after.indexes.list().values()), (
            point
        )
        _require_right_answers(open_table(store))
        clear(store)
    clear(whole)


@pytest.mark.slow
@pytest.mark.usefixtures("merging")
@pytest.mark.parametrize("work", list(WORK))
def test_crash_points(work: str) -> None:
    """Some calls fail, before they are done or after."""
    every_crash_point(work, {"error", "lost_answer"}, step=4)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("merging")
@pytest.mark.parametrize("work", list(WORK))
def test_every_crash_point(work: str) -> None:
    every_crash_point(work, get_args(CrashKind))


# Readers and mergers in all orders ------------------------------------------------------------


def _opened(store: Store, actor: int) -> txlog.Table:
    return txlog.Table._of(Context(store, Ticking(actor=actor), Threads(1)), load_snapshot(store))


def looks_up(store: Store) -> list[int]:
    """Look up as a process does that has just opened the table, and once more."""
    table = _opened(store, 0)
    first = table.lookup([5, 9, 3, 1], on="k")["k"].to_pylist()
    assert table.refresh().lookup([5, 9, 3, 1], on="k")["k"].to_pylist() == first
    return list(first)


ACTORS: dict[str, Callable[[Store], Any]] = {
    "look up": looks_up,
    "merge": lambda store: _opened(store, 1).indexes.merge(),
    "merge too": lambda store: _opened(store, 2).indexes.merge(),
    "rebuild": lambda store: _opened(store, 3).indexes.build(rebuild=True),
    "append": lambda store: _opened(store, 4).append(rows(7)),
}


@pytest.fixture(scope="module")
def two_segments() -> Files:
    store = MemoryStore("memory://two-segments")
    table = txlog.Table.create(store.root, SCHEMA)
    table.indexes.create("k")
    table.append(rows(3, 1, None))
    table.append(rows(5))
    files = files_below(store)
    clear(store)
    return files


def schedules(files: Files, names: Collection[str]) -> Iterator[tuple[History, MemoryStore]]:
    """For each order of the actors' steps, yield its history and the table at its end."""
    store = MemoryStore("memory://schedules of indexes")

    def play_one(choose: Choose) -> History:
        clear(store)
        fill(store, files)
        return play(store, [ACTORS[name] for name in names], choose)

    for history in all_schedules(play_one):
        yield history, store
    clear(store)


def require_right_in_all_orders(files: Files, names: list[str], most: int | None = None) -> int:
    """Hold each actor to its result, and the table after them to a scan; return the orders."""
    count = 0
    for history, store in islice(schedules(files, names), most):
        count += 1
        for number, name in enumerate(names):
            result = history.results[number]
            assert not isinstance(result, BaseException), (name, str(history), result)
            if name == "look up":
                assert result == [5, 3, 1], str(history)
        after = open_table(store)
        held = set(after.to_arrow()["k"].to_pylist())
        assert held == {3, 1, None, 5} | ({7} if "append" in names else set())
        assert after.lookup([7, 5, 9, 3], on="k")["k"].to_pylist() == [
            key for key in (7, 5, 3) if key in held
        ]
    return count


@pytest.mark.spec("LKP-1", "LKP-9")
def test_readers_while_segments_are_replaced(
    two_segments: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert require_right_in_all_orders(two_segments, ["look up", "merge"], 4) == 4


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "names",
    [["look up", "merge"], ["look up", "rebuild"], ["merge", "merge too"], ["merge", "append"],
     ["merge", "rebuild"], ["look up", "append"], ["look up", "merge", "append"]],
    ids=" and ".join,
)  # fmt: skip
def test_readers_and_writers_in_all_orders(
    two_segments: Files, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two mergers at a time may leave the same runs twice, or a segment that the other lost."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert require_right_in_all_orders(two_segments, names, 200) >= 5


# Threads --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_eight_threads_while_the_table_moves_on(tmp_path: Path) -> None:
    """They share a table that others write to, too; what is deleted is never asked for."""
    table = txlog.write(tmp_path, rows(*range(2_000)), properties={"txlog.pageRows": "64"})
    table.indexes.create("k")
    problems: list[object] = []
    stop = threading.Event()

    def ask(seed: int) -> None:
        draw = np.random.default_rng(seed)
        while not stop.is_set():
            keys = draw.integers(0, 2_500, 10).tolist()
            try:
                found = table.lookup(keys, on="k")["k"].to_pylist()
            except BaseException as error:
                problems.append(error)
                return
            if found != [key for key in keys if key < 2_000]:
                problems.append((keys, found))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    try:
        for start in range(3_000, 3_020, 10):
            table.append(rows(*range(start, start + 10)))
            table.indexes.merge()
            table.refresh()
        deltalake.write_deltalake(tmp_path, rows(4_000), mode="append")
        txlog.Table(tmp_path).delete("k >= 3000 and k % 2 = 0")
        table.refresh()
        table.indexes.build(rebuild=True)
        table.optimize.compact()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert problems == []
    assert table.lookup([4_000, 3_001, 3_002], on="k")["k"].to_pylist() == [3_001]
    assert segments_of(table)
