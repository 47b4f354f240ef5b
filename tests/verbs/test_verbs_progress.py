"""The bars that verbs show within `txlog.progress`: each one knows its end, and reaches it."""

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from tests.moved import moved
from tests.reliability.cases import CASES, clear, context_of, opened
from txlog.store.memory import MemoryStore

LISTING = ": files listed"  # Nobody knows how many files a store has.


class Bar:
    """A bar that only counts."""

    made: list["Bar"]

    def __init__(self, total: int | None, desc: str, unit: str) -> None:
        self.total, self.desc, self.unit = total, desc, unit
        self.count = 0
        self.made.append(self)

    def update(self, count: int) -> None:
        self.count += count

    def close(self) -> None: ...


@pytest.fixture
def bars() -> list[Bar]:
    Bar.made = []
    return Bar.made


@pytest.mark.slow(cases=30)
@pytest.mark.parametrize("name", CASES)
def test_each_bar_of_a_verb_has_a_total_and_reaches_it(name: str, bars: list[Bar]) -> None:
    case = CASES[name]
    store = MemoryStore(f"memory://{uuid.uuid4()}")
    try:
        case.make(context_of(store))
        with txlog.progress(Bar, after_s=0):
            context = context_of(store, case.hours)
            case.run(context, None if case.new else opened(store, case.hours))
    finally:
        clear(store)
    known = [bar for bar in bars if not bar.desc.endswith(LISTING)]
    assert [(bar.desc, bar.total) for bar in known] == [(bar.desc, bar.count) for bar in known]


def test_a_vacuum_counts_all_its_rounds(tmp_path: Path, bars: list[Bar]) -> None:
    """Files are deleted in rounds of shares; no bar begins again from nothing."""
    table = txlog.write(tmp_path / "t", pa.table({"x": [0]}))
    for x in range(11):
        table.overwrite(pa.table({"x": [x]}))
    rounds = {"txlog.verbs.vacuum:_AT_ONCE": 4, "txlog.verbs.trash:_AT_ONCE": 2}
    with moved(rounds), txlog.progress(Bar, after_s=0):
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    of_rounds = [bar for bar in bars if bar.desc.startswith("VACUUM") and ": " not in bar.desc]
    counted = [(bar.count, bar.total) for bar in of_rounds]
    assert counted.count((3, 3)) == 1  # 11 files: rounds of 4, 4 and 3.
    assert all(count == total for count, total in counted)


@pytest.mark.parametrize("verb", ["doctor", "vacuum"])
def test_reading_the_log_and_listing_are_counted(
    tmp_path: Path, bars: list[Bar], verb: str
) -> None:
    """Of large tables these two take most of the time, and come first."""
    properties = {"delta.checkpointPolicy": "v2", "delta.feature.v2Checkpoint": "supported"}
    table = txlog.write(tmp_path / "t", pa.table({"x": [0]}), properties=properties)
    for x in range(6):
        table.append(pa.table({"x": [x]}))
    with moved({"txlog.checkpoint.sidecars:PART_ROWS": 2}):
        table.maintenance.checkpoint()
    table = txlog.Table(table.uri)
    with moved({"txlog.verbs.listing:_LISTED": 3}), txlog.progress(Bar, after_s=0):
        _ = table.doctor() if verb == "doctor" else table.vacuum()
    told = {bar.desc.rpartition(": ")[2]: (bar.total, bar.count) for bar in reversed(bars)}
    total, count = told["files of the log"]
    assert total == count
    assert (total or 0) > 1
    assert told["files listed"] == (
        None,
        len([one for one in tmp_path.rglob("*") if one.is_file()]),
    )


def test_the_line_of_a_terminal_has_one_count(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    from txlog.tools.cli import output

    monkeypatch.setattr(output, "_PATIENCE_S", 1000)
    line = output._Working("Deleting")
    try:
        outer = line.bar(total=5)
        outer.update(2)
        inner = line.bar(total=100)
        inner.update(90)
        inner.close()
        outer.update(1)
        (task,) = line._shown.tasks
        assert (task.completed, task.total) == (3, 5)
        outer.close()
        (task,) = line._shown.tasks
        assert task.total is None
        other: Any = line.bar(total=7)
        other.update(1)
        assert (line._shown.tasks[0].completed, line._shown.tasks[0].total) == (1, 7)
        other.close()
    finally:
        line.stop()
