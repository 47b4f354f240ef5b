"""What is read ahead is as it comes, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from txlog.errors import LogCorruptError
from txlog.snapshot import ahead, files
from txlog.snapshot.ahead import read_ahead


def counted(up_to: int, closed: list[bool]) -> Generator[int, None, None]:
    try:
        yield from range(up_to)
        raise ValueError("no more")
    finally:
        closed.append(True)


def test_reading_ahead_yields_the_same_and_fails_where_that_does() -> None:
    closed: list[bool] = []
    numbers = read_ahead(counted(3, closed))
    assert [next(numbers), next(numbers), next(numbers)] == [0, 1, 2]
    with pytest.raises(ValueError, match="no more"):
        next(numbers)
    assert closed
    with pytest.raises(ValueError, match="no more"):
        next(read_ahead(counted(0, closed)))
    assert list(read_ahead(one for one in ())) == []


def test_who_stops_early_leaves_no_thread_and_no_generator() -> None:
    closed: list[bool] = []
    before = set(threading.enumerate())
    numbers = read_ahead(counted(9, closed))
    assert next(numbers) == 0
    (thread,) = set(threading.enumerate()) - before
    assert thread.name.startswith("txlog-ahead")
    numbers.close()
    assert closed
    assert not thread.is_alive()


def test_without_a_thread_it_is_read_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ahead.ThreadPoolExecutor, "_adjust_thread_count", refuse)
    assert list(read_ahead(number for number in range(4))) == [0, 1, 2, 3]


def test_reading_goes_on_while_the_interpreter_ends() -> None:
    code = """
import atexit
from txlog.snapshot.ahead import read_ahead
numbers = read_ahead(number for number in range(5))
first = next(numbers)
atexit.register(lambda: print(first, *numbers, *read_ahead(number for number in range(2))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == list("0123401")
    assert not done.stderr


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> txlog.Table:
    """A table with a checkpoint that counts as large."""
    monkeypatch.setattr(files, "_LARGE_BYTES", 0)
    made = txlog.write(tmp_path / "t", pa.table({"id": [1]}))
    made.append(pa.table({"id": [5]}))
    made.checkpoint()
    return txlog.Table(tmp_path / "t")


@pytest.mark.parametrize(("where", "left"), [("id > 3", 1), (None, 2)])
def test_large_checkpoints_are_read_ahead(
    table: txlog.Table, monkeypatch: pytest.MonkeyPatch, where: str | None, left: int
) -> None:
    calls: list[str] = []

    def seen(batches: Generator[Any, Any, Any]) -> Generator[Any, None, None]:
        calls.append("ahead")
        return read_ahead(batches)

    monkeypatch.setattr(files, "read_ahead", seen)
    monkeypatch.setattr(files, "keep_freed_memory", lambda: calls.append("kept"))
    assert table.scan(where=where).explain().files_to_read == left
    assert calls == ["kept", "ahead"]


def test_whoever_fails_leaves_no_thread(
    table: txlog.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[list[str]] = []

    def refuse(*_: Any, **__: Any) -> None:
        raise files.TwiceError

    def load(*given: Any) -> Any:
        alive.append([thread.name for thread in threading.enumerate()])
        raise LogCorruptError(path="x", reason="enough")

    monkeypatch.setattr(files, "left_of", refuse)
    monkeypatch.setattr(files, "load_files", load)
    with pytest.raises(LogCorruptError, match="enough"):
        table.scan(where="id > 3").explain()
    (names,) = alive
    assert not [name for name in names if name.startswith("txlog-ahead")]
