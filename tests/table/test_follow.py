"""Following a table: each version once and in order; waits, ends, tokens, and what may go wrong."""

import json
import os
import shutil
import threading
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.effects import Effects
from txlog.commit.context import Context
from txlog.extend import context_of
from txlog.log.names import commit_name, log_path
from txlog.snapshot.load import load_snapshot

FRESH = count()
FEED = {"delta.enableChangeDataFeed": "true"}


def xs(*numbers: int) -> pa.Table:
    return pa.table({"x": pa.array(numbers, pa.int64())})


def fresh() -> txlog.Table:
    return txlog.write(f"memory://follow-{next(FRESH)}", xs(1), properties=FEED)


class Clock(Effects):
    """A clock that waits at once; something may happen at each wait."""

    def __init__(self, happen: Any = lambda: None) -> None:
        object.__setattr__(self, "now_s", 0.0)
        object.__setattr__(self, "waits", [])
        object.__setattr__(self, "happen", happen)

    now_s: float
    waits: list[float]
    happen: Any

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep_s(self, seconds: float) -> None:
        object.__setattr__(self, "now_s", self.now_s + seconds)
        self.waits.append(seconds)
        self.happen()


def at_clock(table: txlog.Table, clock: Clock) -> txlog.Table:
    store = context_of(table).store
    return txlog.Table._of(Context(store, clock), load_snapshot(store))


@pytest.mark.spec("STR-60", "STR-61")
@settings(max_examples=examples(60))
@given(
    steps=st.lists(
        st.sampled_from(["append", "delete", "alter", "compact", "follow", "one", "checkpoint"]),
        max_size=20,
    )
)
def test_each_version_comes_once_and_in_order(steps: list[str]) -> None:
    table = fresh()
    came, token = [], None

    def follow(most: int) -> None:
        nonlocal token
        start = 0 if token is None else None
        for change in table.at().follow(start, token=token, timeout_s=0):
            came.append((change.version, change.operation))
            token = change.token
            most -= 1
            if not most:
                break

    for number, step in enumerate([*steps, "follow"]):
        match step:
            case "append":
                table.append(xs(number))
            case "delete":
                table.delete(f"x = {number - 1}")
            case "alter":
                table.alter.add_columns({f"y{number}": pa.int64()})
            case "compact":
                table.optimize.compact()
            case "checkpoint":
                table.maintenance.checkpoint()
            case "one":
                follow(1)
            case _:
                follow(1000)
    told = [(one["version"], one["operation"]) for one in reversed(table.history())]
    assert came == told


def test_what_a_change_has() -> None:
    table = fresh()
    writer = table.at()
    writer.append(xs(2), user_metadata="a note")
    writer.append(xs(3))
    (first, second) = table.follow(until="latest")
    assert (first.version, second.version, table.version) == (1, 2, 0)
    assert (first.operation, first.info["userMetadata"]) == ("WRITE", "a note")
    assert (first.table.version, first.table.count()) == (1, 2)
    assert "version 1" in repr(first)
    with pytest.raises(txlog.InvalidInputError, match="Follow the changes"):
        _ = first.rows


@pytest.mark.spec("STR-60")
def test_rows_of_changes_have_the_columns_of_their_version() -> None:
    table = fresh()
    writer = table.at()
    writer.append(xs(2))
    writer.alter.add_columns({"y": pa.string()})
    writer.update({"y": "'new'"}, "x = 2")
    found = list(table.follow(changes=True, until="latest"))
    assert [one.rows.count() for one in found] == [1, 0, 2]
    assert [one.rows.schema.names[:2] for one in found] == [
        ["x", "_change_type"], ["x", "y"], ["x", "y"],
    ]  # fmt: skip
    last = found[-1].rows.to_arrow().to_pylist()
    assert {(row["y"], row["_change_type"]) for row in last} == {
        (None, "update_preimage"), ("new", "update_postimage"),
    }  # fmt: skip
    (only,) = table.follow(1, changes=True, until=1, columns=["x"], where="x > 5")
    assert only.rows.to_arrow().num_rows == 0


def test_a_feed_that_ends() -> None:
    table = fresh()
    writer = table.at()
    writer.alter.set_properties({"delta.enableChangeDataFeed": "false"})
    writer.append(xs(2))
    last = list(table.follow(changes=True, timeout_s=0))[-1]
    with pytest.raises(txlog.UnsupportedFeatureError):
        _ = last.rows
    with pytest.raises(txlog.UnsupportedFeatureError):
        writer.follow(changes=True)


def test_it_waits_for_what_comes_and_ends_when_nothing_does() -> None:
    table = fresh()
    writer, left = table.at(), [2, 3]

    def happen() -> None:
        if len(clock.waits) % 4 == 0 and left:
            writer.append(xs(left.pop(0)))

    clock = Clock(happen)
    follower = at_clock(table, clock)
    assert [one.version for one in follower.follow(timeout_s=30, poll_s=4)] == [1, 2]
    assert max(clock.waits) == 4
    assert clock.waits[:4] == [0.05, 0.1, 0.2, 0.4]
    assert sum(clock.waits[8:]) == pytest.approx(30)
    assert list(follower.follow(2, until=1)) == []


def test_it_waits_for_other_threads(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", xs(1))

    def write() -> None:
        for number in range(5):
            txlog.Table(tmp_path / "t").append(xs(number))

    thread = threading.Thread(target=write)
    thread.start()
    found = [one.version for one in table.follow(until=5, timeout_s=60, poll_s=0.01)]
    thread.join()
    assert found == [1, 2, 3, 4, 5]


@pytest.mark.spec("STR-62")
def test_commits_that_are_gone(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", xs(1))
    writer = table.at()
    for number in range(5):
        writer.append(xs(number))
    writer.maintenance.checkpoint()
    follower = table.follow(timeout_s=0)
    assert next(follower).version == 1
    store = context_of(table).store
    store.delete([log_path(commit_name(version)) for version in range(4)])
    with pytest.raises(txlog.NotFoundError, match="version 2 was cleaned up") as caught:
        next(follower)
    assert caught.value.version == 2
    assert "failOnDataLoss" not in str(caught.value)
    assert [one.version for one in table.follow(4, timeout_s=0)] == [4, 5]
    with pytest.raises(txlog.NotFoundError, match="latest one is 5"):
        table.follow(7)
    clock = Clock()
    follower = at_clock(table, clock).follow(timeout_s=60)
    shutil.rmtree(tmp_path / "t")
    clock.sleep_s(11)
    with pytest.raises(txlog.NotFoundError, match="removed"):
        next(follower)


@pytest.mark.spec("STR-63")
def test_a_table_that_takes_the_place_of_another() -> None:
    table, other = fresh(), fresh()
    writer = table.at()
    writer.append(xs(2))
    store = context_of(table).store
    metadata = json.dumps({"metaData": other.metadata.to_json()})
    follower = table.follow(timeout_s=0)
    assert next(follower).version == 1
    store.put_if_absent(log_path(commit_name(2)), (metadata + "\n").encode())
    with pytest.raises(txlog.CommitConflictError, match="another table"):
        next(follower)
    with pytest.raises(txlog.CommitConflictError, match="another table"):
        table.follow()


@pytest.mark.spec("STR-61")
def test_tokens_and_arguments_that_do_not_fit() -> None:
    table, other = fresh(), fresh()
    table.append(xs(2))
    (one,) = table.follow(1, until=1)
    with pytest.raises(txlog.InvalidInputError, match="another table"):
        other.follow(token=one.token)
    with pytest.raises(txlog.InvalidInputError, match="Pass changes=False"):
        table.follow(token=one.token, changes=True)
    for wrong in ("", "{}", "7", json.dumps({**json.loads(one.token), "format": 2})):
        with pytest.raises(txlog.InvalidInputError) as caught:
            table.follow(token=wrong)
        assert caught.value.argument == "token"
    given: list[dict[str, Any]] = [
        {"start": 1, "token": one.token}, {"columns": ["x"]}, {"where": "x = 1"},
        {"poll_s": 0}, {"timeout_s": -1}, {"start": -1}, {"until": -1},
    ]  # fmt: skip
    for arguments in given:
        with pytest.raises(txlog.InvalidInputError):
            table.follow(**arguments)
    table.pins.create("first", version=0)
    assert next(table.follow("first")).version == 0


@pytest.mark.spec("STR-61")
def test_tokens_of_branches() -> None:
    table = fresh()
    table.append(xs(2))
    main = next(table.follow(1)).token
    table.branches.create("b")

    def on_branch() -> str:
        branch = txlog.Table(table.uri, branch="b")
        branch.append(xs(3))
        token = next(branch.follow(branch.version)).token
        branch.append(xs(4))
        (last,) = branch.follow(token=token, timeout_s=0)
        assert last.version == txlog.Table(table.uri, branch="b").version
        return token

    first = on_branch()
    table.branches.create("c")
    for name, token in ((None, first), ("b", main), ("c", first)):
        with pytest.raises(txlog.InvalidInputError, match="token is of") as caught:
            txlog.Table(table.uri, branch=name).follow(token=token)
        assert caught.value.argument == "token"
    table.branches.discard("b")
    table.branches.create("b")
    on_branch()
    with pytest.raises(txlog.InvalidInputError, match="token is of the branch"):
        txlog.Table(table.uri, branch="b").follow(token=first)


@pytest.mark.spec("STR-61")
def test_a_token_that_is_nested_too_deeply() -> None:
    with pytest.raises(txlog.InvalidInputError, match="not a token"):
        fresh().follow(token="[" * 100_000)


@pytest.mark.spec("STR-63")
def test_a_table_that_is_removed_is_an_error_at_the_end_of_the_wait(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", xs(1))
    clock = Clock(lambda: shutil.rmtree(tmp_path / "t", ignore_errors=True))
    with pytest.raises(txlog.NotFoundError, match="removed"):
        next(at_clock(table, clock).follow(timeout_s=0.2))


@pytest.mark.spec("STR-63")
@pytest.mark.parametrize(("start", "taken"), [(0, [0]), (0, [0, 1]), (1, [1]), (1, []), (None, [])])
def test_a_log_whose_commits_were_replaced_is_noticed_without_metadata(
    tmp_path: Path, start: int | None, taken: list[int]
) -> None:
    table = txlog.write(tmp_path / "t", xs(1))
    table.append(xs(2))
    follower = at_clock(table, Clock()).follow(start)
    assert [next(follower).version for _ in taken] == taken
    shutil.rmtree(tmp_path / "t")
    other = txlog.write(tmp_path / "t", xs(1))
    for number in range(3):
        other.append(xs(number))
    with pytest.raises(txlog.CommitConflictError, match="another table"):
        next(follower)


@pytest.mark.spec("STR-63")
def test_a_commit_that_was_copied_is_the_same(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", xs(1))
    follower = at_clock(table, Clock()).follow(0)
    assert next(follower).version == 0
    path = tmp_path / "t" / log_path(commit_name(0))
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    os.utime(path, (1, 1))
    table.append(xs(2))
    assert next(follower).version == 1


def test_columns_and_rows_of_changes_are_checked_at_the_call() -> None:
    table = fresh()
    table.append(xs(2))
    given: list[dict[str, Any]] = [{"columns": ["y"]}, {"where": "y = 1"}]
    for arguments in given:
        for start in (None, 1):
            with pytest.raises(txlog.TxlogError, match="y"):
                table.follow(start, changes=True, **arguments)
    assert next(table.follow(1, changes=True, columns=["x"])).rows.to_arrow().num_rows == 1
