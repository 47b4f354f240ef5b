"""Prefetching in threads keeps values, errors and order, and no thread remains."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import txlog
from tests.moved import moved
from txlog.base.threads import (
    Call,
    Threads,
    for_sizes,
    in_shares,
    map_ahead,
    map_all,
    prefetch,
    together,
    tracked,
)


def counted(up_to: int, closed: list[bool]) -> Generator[int, None, None]:
    try:
        yield from range(up_to)
        raise ValueError("no more")
    finally:
        closed.append(True)


def test_prefetching_yields_the_same_and_fails_where_that_does() -> None:
    closed: list[bool] = []
    numbers = prefetch(counted(3, closed))
    assert [next(numbers), next(numbers), next(numbers)] == [0, 1, 2]
    with pytest.raises(ValueError, match="no more"):
        next(numbers)
    assert closed
    with pytest.raises(ValueError, match="no more"):
        next(prefetch(counted(0, closed)))
    assert list(prefetch(one for one in ())) == []


def test_who_stops_early_leaves_no_thread_and_no_generator() -> None:
    closed: list[bool] = []
    before = set(threading.enumerate())
    numbers = prefetch(counted(9, closed))
    assert next(numbers) == 0
    (thread,) = set(threading.enumerate()) - before
    assert thread.name.startswith("txlog")
    numbers.close()
    assert closed
    assert not thread.is_alive()


def test_without_a_thread_it_is_read_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "_adjust_thread_count", refuse)
    assert list(prefetch(number for number in range(4))) == [0, 1, 2, 3]


def test_reading_goes_on_while_the_interpreter_ends() -> None:
    code = """
import atexit
from txlog.base.threads import prefetch
numbers = prefetch(number for number in range(5))
first = next(numbers)
atexit.register(lambda: print(first, *numbers, *prefetch(number for number in range(2))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == list("0123401")
    assert not done.stderr


@given(
    st.lists(st.integers(0, 5), max_size=12),
    st.integers(1, 4),
    st.integers(0, 5),
    st.integers(0, 9),
)
def test_a_map_is_as_without_threads(
    sizes: list[int], workers: int, ahead: int, ahead_size: int
) -> None:
    running: list[int] = []
    most = [0, 0]

    def work(number: int) -> int:
        running.append(number)
        most[0] = max(most[0], len(running))
        running.remove(number)
        return number * 2

    taken = 0
    started: list[int] = []

    def items() -> Generator[int, None, None]:
        for number in range(len(sizes)):
            started.append(number)
            most[1] = max(most[1], len(started) - taken)
            yield number

    results = []
    for result in map_ahead(
        work, items(), workers=workers, ahead=ahead, size=lambda n: sizes[n], ahead_size=ahead_size
    ):
        results.append(result)
        taken += 1
    assert results == [2 * number for number in range(len(sizes))]
    assert most[0] <= workers
    assert most[1] <= ahead + 1


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 100))
def test_shares_are_about_equal(sizes: list[int], most: int) -> None:
    places = list(range(len(sizes)))
    groups = in_shares(places, sizes, most)
    assert [place for group in groups for place in group] == places
    assert all(groups)
    needed = max(1, -(-sum(sizes) // most))
    assert len(groups) <= needed
    even = sum(sizes) / needed
    assert all(sum(sizes[at] for at in group) <= even + max(sizes) for group in groups)


def test_an_error_comes_when_its_turn_does() -> None:
    def work(number: int) -> int:
        if number == 2:
            raise ValueError("two")
        return number

    results = map_ahead(work, range(9), workers=3, ahead=4)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="two"):
        next(results)
    assert list(results) == []


def test_what_has_not_begun_is_dropped() -> None:
    began: list[int] = []

    def work(number: int) -> int:
        began.append(number)
        time.sleep(0.01)
        return number

    results = map_ahead(work, range(100), workers=1, ahead=50)
    assert next(results) == 0
    results.close()
    assert len(began) < 50


def test_a_call_is_made_once_though_no_further_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = ThreadPoolExecutor._adjust_thread_count
    began: list[int] = []

    def limited(pool: ThreadPoolExecutor) -> None:
        if pool._threads:
            raise RuntimeError("can't start new thread")
        start(pool)

    monkeypatch.setattr(ThreadPoolExecutor, "_adjust_thread_count", limited)

    def work(number: int) -> int:
        began.append(number)
        return number

    assert list(map_ahead(work, range(50), workers=4, ahead=8)) == list(range(50))
    assert sorted(began) == list(range(50))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_goes_on_without_the_threads() -> None:
    code = """
import os, signal
from txlog.base.threads import map_ahead
results = map_ahead(lambda number: number, range(20), workers=2, ahead=5)
first = next(results)
pid = os.fork()
signal.alarm(20)
assert [first, *results] == list(range(20))
if pid:
    assert os.waitpid(pid, 0)[1] == 0
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Bar:
    """A bar such as tqdm's, which notes what it is told."""

    made: ClassVar[list[Bar]] = []

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.told: list[int | str] = []
        self.made.append(self)

    def update(self, count: int) -> None:
        self.told.append(count)

    def close(self) -> None:
        self.told.append("closed")


@pytest.fixture
def bars() -> Iterator[list[Bar]]:
    Bar.made.clear()
    yield Bar.made
    Bar.made.clear()


class TestProgress:
    def test_parts_are_counted(self, bars: list[Bar]) -> None:
        with txlog.progress(Bar, after_s=0):
            assert [*Threads(2).map(abs, [-1, -2, -3])] == [1, 2, 3]
            assert [*Threads(1).map(abs, iter([-1]))] == [1]
        assert [*Threads(2).map(abs, [-1])] == [1]
        known, unknown = bars
        assert known.given == {"total": 3, "desc": "txlog", "unit": "parts"}
        assert known.told == [1, 1, 1, "closed"]
        assert unknown.given["total"] is None

    @pytest.mark.parametrize(("count", "told"), [(7, [3, 3, 1]), (6, [3, 3]), (2, [])])
    def test_many_parts_are_counted_together(
        self, bars: list[Bar], count: int, told: list[int]
    ) -> None:
        with txlog.progress(Bar, after_s=0):
            assert [*tracked(iter(range(count)), None, about="names", step=3)] == [*range(count)]
        assert [bar.told for bar in bars] == ([[*told, "closed"]] if told else [])
        assert all(bar.given["desc"] == "txlog: names" for bar in bars)

    def test_quick_work_has_no_bar(self, bars: list[Bar]) -> None:
        with txlog.progress(Bar, after_s=1000):
            assert [*Threads(2).map(abs, [-1, -2])] == [1, 2]
        assert bars == []

    def test_a_bar_is_closed_where_work_fails(self, bars: list[Bar]) -> None:
        with txlog.progress(Bar, after_s=0), pytest.raises(TypeError):
            list(Threads(1).map(abs, [-1, "x"]))  # type: ignore[list-item]
        (bar,) = bars
        assert bar.told == [1, "closed"]

    def test_threads_end_where_a_reader_stops(self, bars: list[Bar]) -> None:
        closed: list[bool] = []
        before = set(threading.enumerate())  # Threads of tests before this one may still end.
        with txlog.progress(Bar, after_s=0):
            results = Threads(2).map(abs, counted(1000, closed))
            next(results)
            results.close()  # type: ignore[attr-defined]
        started = set(threading.enumerate()) - before
        assert not [one for one in started if one.name.startswith("txlog")]
        assert bars[0].told == [1, "closed"]

    def test_verbs_have_bars_with_their_names(self, bars: list[Bar], tmp_path: Path) -> None:
        table = txlog.write(tmp_path / "things", pa.table({"a": [1]}))
        table.append(pa.table({"a": [2]}))
        with txlog.progress(Bar, after_s=0):
            table.to_arrow()
            list(table.to_batches())
            table.optimize.compact()
        assert [bar.given["desc"] for bar in bars] == [
            "SCAN things",
            "SCAN things",
            "OPTIMIZE things",
        ]
        assert bars[1].told == [1, 1, "closed"]

    def test_tqdm_is_the_default(self, capsys: pytest.CaptureFixture[str]) -> None:
        pytest.importorskip("tqdm")
        with txlog.progress(after_s=0):
            list(Threads(1).map(abs, [-1, -2]))
        assert "2/2" in capsys.readouterr().err

    def test_without_tqdm_the_error_says_what_to_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
        with pytest.raises(txlog.UnsupportedFeatureError, match="pip install tqdm"):
            txlog.progress().__enter__()


def test_more_threads_read_small_files() -> None:
    """As many as fit into the bytes that are read at the same time."""
    engine = Threads(4, most=16)
    with moved({"txlog.base.threads:_AT_ONCE_BYTES": 100}):
        assert for_sizes(engine, [1, 2, 3]) == Threads(16)
        assert for_sizes(engine, []) == Threads(16)
        assert for_sizes(engine, [1, 10]) == Threads(10)
        assert for_sizes(engine, [1, 90]) == Threads(4)
        assert for_sizes(Threads(4), [1]) == Threads(4)
        assert for_sizes(Threads(), [1]) == Threads()


@pytest.mark.parametrize("at_once", [False, True])
@given(fails=st.lists(st.booleans(), min_size=1, max_size=4))
def test_calls_are_all_made_or_undone(at_once: bool, fails: list[bool]) -> None:
    made: list[int] = []

    def made_by(number: int) -> int:
        if fails[number]:
            raise ValueError(number)
        made.append(number)
        return number

    def call() -> list[int]:
        calls = [partial(made_by, number) for number in range(len(fails))]
        return together(calls, at_once=at_once, undo=lambda found: [*map(made.remove, found)])

    if any(fails):
        with pytest.raises(ValueError, match=f"^{fails.index(True)}$"):
            call()
        assert made == []
    else:
        assert call() == sorted(made) == [*range(len(fails))]


@contextmanager
def first_wait_interrupted() -> Iterator[threading.Event]:
    """Interrupt who first waits for a call. The event is set then, and the call may go on."""
    happened = threading.Event()
    wait = Call.result

    def result(call: Call[Any]) -> Any:
        if happened.is_set():
            return wait(call)
        happened.set()
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Call, "result", result)
        yield happened


@pytest.mark.parametrize("fails", [False, True])
def test_an_interrupt_undoes_also_the_call_that_was_waited_for(fails: bool) -> None:
    made: list[int] = []

    def first() -> int:
        if fails:
            raise ValueError("an error does not hide the interrupt")
        made.append(0)
        return 0

    with first_wait_interrupted() as happened:

        def other(number: int) -> int:
            assert happened.wait(20)
            made.append(number)
            return number

        calls = [first, partial(other, 1), partial(other, 2)]
        with pytest.raises(KeyboardInterrupt):
            together(calls, at_once=True, undo=lambda found: [*map(made.remove, found)])
    assert made == []


def test_an_interrupt_undoes_all_items_that_were_done() -> None:
    made: list[int] = []
    began: list[int] = []

    with first_wait_interrupted() as happened:

        def work(number: int) -> int:
            began.append(number)
            assert happened.wait(20)
            made.append(number)
            return number

        with pytest.raises(KeyboardInterrupt):
            map_all(Threads(2), work, range(9), undo=lambda found: [*map(made.remove, found)])
    assert began
    assert made == []


def test_calls_at_once_do_not_wait_for_one_another() -> None:
    all_three = threading.Barrier(3)
    calls = [lambda: all_three.wait(20)] * 3
    assert sorted(together(calls, at_once=True, undo=len)) == [0, 1, 2]
