"""Who waits between attempts does not lose because of the wait."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from tests.commit.conftest import FakeEffects
from txlog.base.errors import CommitConflictError
from txlog.base.threads import Threads
from txlog.commit import loop, operation
from txlog.commit.context import Context
from txlog.commit.operation import execute
from txlog.snapshot.load import load_snapshot
from txlog.store.local.local import LocalStore
from txlog.verbs.append import Append

ROWS = pa.table({"x": pa.array([1], pa.int64())})


class Beside(FakeEffects):
    """Another writer, which never waits, commits during each wait."""

    root: Path

    def sleep_s(self, seconds: float) -> None:
        super().sleep_s(seconds)
        txlog.Table(self.root).append(ROWS)


@pytest.mark.spec("CON-29")
def test_a_writer_looks_again_after_a_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It loses as many races as are tried without a wait, and wins after the first wait."""
    txlog.write(tmp_path / "t", ROWS)
    effects = Beside()
    object.__setattr__(effects, "root", tmp_path / "t")
    store = LocalStore(str(tmp_path / "t"))
    place = Context(store, effects, Threads(1))
    put, tries = loop.put_commit, list[int]()

    def late(*args: Any, **kwargs: Any) -> Any:
        if args[5] is effects:
            tries.append(args[2])
            if not effects.slept:
                txlog.Table(tmp_path / "t").append(ROWS)
        return put(*args, **kwargs)

    monkeypatch.setattr(loop, "put_commit", late)
    done = execute(Append(ROWS), place, load_snapshot(store))
    assert len(effects.slept) == 1
    assert done.outcome.version == tries[-1] == tries[-2] + 2


@pytest.mark.spec("CON-29")
def test_a_writer_that_loses_again_and_again_waits_seldom_and_asks_for_precedence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside writers that do not wait, it would never end if it waited each time."""
    txlog.write(tmp_path / "t", ROWS)
    effects, store = FakeEffects(), LocalStore(str(tmp_path / "t"))
    put, losses, asked = loop.put_commit, list[int](), list[int]()

    def late(*args: Any, **kwargs: Any) -> Any:
        if args[5] is effects and len(losses) < 35:
            losses.append(args[2])
            txlog.Table(tmp_path / "t").append(ROWS)
        return put(*args, **kwargs)

    def in_vain(self: LocalStore, *, briefly: bool) -> Any:
        assert briefly
        asked.append(len(losses))
        return nullcontext(False)

    monkeypatch.setattr(loop, "put_commit", late)
    monkeypatch.setattr(LocalStore, "precedence", in_vain)
    execute(Append(ROWS), Context(store, effects, Threads(1)), load_snapshot(store))
    assert (len(losses), len(effects.slept), asked) == (35, 3, [3])
    assert txlog.Table(tmp_path / "t").count() == 37


@pytest.mark.spec("CON-17", "CON-29")
def test_a_winner_of_the_wait_may_forbid_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends win; when the writer waits, a change of properties lands."""
    path = tmp_path / "t"
    table = txlog.write(path, ROWS)
    table.alter.add_constraint({"first": "x > -5"})
    put, left = loop.put_commit, [*range(11)]

    def late(*args: Any, **kwargs: Any) -> Any:
        if left:
            left.pop()
            monkeypatch.setattr(loop, "put_commit", put)
            txlog.Table(path).append(ROWS)
            monkeypatch.setattr(loop, "put_commit", late)
        return put(*args, **kwargs)

    waited = operation.wait_after

    def wait(conflicts: int, effects: Any) -> bool:
        has_waited = waited(conflicts, effects)
        if has_waited:
            txlog.Table(path).alter.set_properties({"a.b": "1"})
        return has_waited

    monkeypatch.setattr(loop, "put_commit", late)
    monkeypatch.setattr(operation, "wait_after", wait)
    with pytest.raises(CommitConflictError) as caught:
        table.alter.add_constraint({"second": "x > -1"})
    assert (caught.value.rule, left) == ("CON-2", [])
    assert "second" not in str(txlog.Table(path).properties)
