"""Concurrent deletes in one file: different rows are merged, the same rows are a conflict."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from tests.verb_calls import delete
from txlog.commit.operation import Done
from txlog.data_files.deletions import delete_rows, united_with
from txlog.data_files.row_changes import RowChanges
from txlog.extend import context_of
from txlog.snapshot.snapshot import Snapshot

ROWS = 20


def made(root: Path, files: int = 1, rows: int = ROWS) -> txlog.Table:
    table = txlog.write(root, pa.table({"x": list(range(rows))}))
    for number in range(1, files):
        table.append(pa.table({"x": list(range(number * rows, (number + 1) * rows))}))
    return table


def left(root: Path) -> list[int]:
    return sorted(txlog.Table(root).to_arrow()["x"].to_pylist())


def delete_at(
    table: txlog.Table, seen: Snapshot, where: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[Done, int]:
    """Delete as a writer that saw an older version; count how often it had to begin anew."""
    runs = 0
    whole = delete_rows

    def counted(*arguments: Any) -> Any:
        nonlocal runs
        runs += 1
        return whole(*arguments)

    monkeypatch.setattr("txlog.verbs.delete.delete_rows", counted)
    done = delete(context_of(table), seen, where)
    monkeypatch.undo()
    return done, runs - 1


@pytest.mark.spec("CON-10")
def test_other_rows_of_a_file_are_united(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "t")
    seen = table.snapshot
    table.delete("x IN (1, 2)")
    done, again = delete_at(table, seen, "x IN (5, 6)", monkeypatch)
    assert again == 0  # The second one did not read the data again.
    assert done.outcome.version == 2
    assert done.outcome.metrics["numDeletedRows"] == 2
    assert left(tmp_path / "t") == [x for x in range(ROWS) if x not in (1, 2, 5, 6)]
    (fragment,) = txlog.Table(tmp_path / "t").fragments()
    assert (fragment.id, fragment.num_deletions) == (0, 4)


@pytest.mark.spec("CON-10")
def test_the_same_rows_are_found_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "t")
    seen = table.snapshot
    table.delete("x IN (1, 2)")
    done, again = delete_at(table, seen, "x IN (2, 3)", monkeypatch)
    assert again == 1
    assert done.outcome.metrics["numDeletedRows"] == 1  # Only one was left to delete.
    assert left(tmp_path / "t") == [x for x in range(ROWS) if x not in (1, 2, 3)]


@pytest.mark.spec("CON-10")
def test_a_file_that_both_empty_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "t")
    seen = table.snapshot
    table.delete("x < 10")
    _, again = delete_at(table, seen, "x >= 10", monkeypatch)
    assert again == 1
    assert left(tmp_path / "t") == []
    assert txlog.Table(tmp_path / "t").fragments() == []


@pytest.mark.spec("CON-10")
def test_rows_that_came_back_make_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "t")
    table.delete("x IN (1, 2)")
    seen = table.snapshot
    # A restore by another engine: the file again, with no vector.
    (held,) = [action for action in log_of(table, 0) if "add" in action]
    (removed,) = [action for action in log_of(table, 1) if "add" in action]
    remove = {
        name: removed["add"][name] for name in ("path", "partitionValues", "size", "deletionVector")
    }
    put(table, 2, [{"remove": {**remove, "dataChange": True, "deletionTimestamp": 0}}, held])
    _, again = delete_at(table, seen, "x <= 2", monkeypatch)
    assert again == 1
    assert left(tmp_path / "t") == list(range(3, ROWS))


def log_of(table: txlog.Table, version: int) -> list[dict[str, Any]]:
    path = Path(table.uri) / "_delta_log" / f"{version:020d}.json"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def put(table: txlog.Table, version: int, actions: list[dict[str, Any]]) -> None:
    path = Path(table.uri) / "_delta_log" / f"{version:020d}.json"
    path.write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")


@pytest.mark.spec("CON-10")
def test_deletes_from_other_files_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path / "t", files=3)
    seen = table.snapshot
    table.delete("x % 20 = 1 AND x < 20")
    _, again = delete_at(table, seen, "x % 20 = 2 AND x > 20", monkeypatch)
    assert again == 0
    assert len(left(tmp_path / "t")) == 57


def test_vectors_of_a_united_delete_leave_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 40_000
    table = made(tmp_path / "t", rows=rows)
    seen = table.snapshot
    table.delete("x % 7 = 0")
    done, again = delete_at(table, seen, "x % 7 = 3 OR x % 11 = 1 AND x % 7 > 0", monkeypatch)
    assert again == 0
    assert done.outcome
    vectors = {path.name for path in (tmp_path / "t").glob("*.bin")}
    named = {
        action["add"]["deletionVector"]["pathOrInlineDv"]
        for version in (1, 2)
        for action in log_of(table, version)
        if "add" in action
    }
    assert len(vectors) == len(named) == 2
    kept = [x for x in range(rows) if x % 7 and not (x % 7 == 3 or x % 11 == 1)]
    assert left(tmp_path / "t") == kept


OPERATIONS: dict[str, Callable[[txlog.Table], Any]] = {
    "delete 0, 1": lambda table: table.delete("x IN (0, 1)"),
    "delete 1, 2": lambda table: table.delete("x IN (1, 2)"),
    "delete 3": lambda table: table.delete("x = 3"),
    "delete all": lambda table: table.delete(None),
    "append": lambda table: table.append(pa.table({"x": [100, 3]})),
    "overwrite": lambda table: table.overwrite(pa.table({"x": [7, 3]})),
    "replace": lambda table: table.overwrite(pa.table({"x": [2]}), where="x = 2"),
}


def results(root: Path, names: tuple[str, ...]) -> list[int]:
    """Return what the operations leave, one after the other: the serial model."""
    table = made(root, rows=4)
    for name in names:
        OPERATIONS[name](table)
    return left(root)


@pytest.mark.slow
@pytest.mark.spec("CON-10")
@pytest.mark.parametrize("first", OPERATIONS)
@pytest.mark.parametrize("second", OPERATIONS)
def test_two_at_once_leave_what_one_after_the_other_would(
    tmp_path: Path, first: str, second: str
) -> None:
    """The second writer saw the version before the first one's commit."""
    table = made(tmp_path / "t", rows=4)
    late = txlog.Table(tmp_path / "t")
    seen = late.snapshot
    OPERATIONS[first](table)
    late._latest = lambda: seen  # type: ignore[method-assign]
    OPERATIONS[second](late)
    serial = [
        results(tmp_path / str(number), order)
        for number, order in enumerate(permutations((first, second)))
    ]
    assert left(tmp_path / "t") in serial


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", OPERATIONS)
@pytest.mark.parametrize("second", OPERATIONS)
@pytest.mark.parametrize("third", OPERATIONS)
def test_three_at_once_leave_what_one_after_the_other_would(
    tmp_path: Path, first: str, second: str, third: str
) -> None:
    table = made(tmp_path / "t", rows=4)
    seen = table.snapshot
    OPERATIONS[first](table)
    for name in (second, third):
        late = txlog.Table(tmp_path / "t")
        late._latest = lambda: seen  # type: ignore[method-assign]
        OPERATIONS[name](late)
    orders = permutations((first, second, third))
    serial = [results(tmp_path / str(number), order) for number, order in enumerate(orders)]
    assert left(tmp_path / "t") in serial


def test_many_threads_delete_from_one_file(tmp_path: Path) -> None:
    made(tmp_path / "t", rows=64)

    def work(number: int) -> None:
        txlog.Table(tmp_path / "t").delete(f"x % 8 = {number} AND x < 56")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert left(tmp_path / "t") == list(range(56, 64))
    assert txlog.Table(tmp_path / "t").version == 8


def test_nothing_to_unite_is_nothing_done(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    united = united_with(context_of(table), table.snapshot, RowChanges(), [])
    assert united is not None
    assert united.adds == ()
