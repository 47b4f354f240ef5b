"""Branches of data sets: commits that nothing picks until their branch is published."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.examples import examples
from tests.training.datasets.homes import rows_of
from tests.training.service.servers import grpc_stub, http_client
from txlog.base.effects import Effects
from txlog.base.errors import (
    CommitConflictError,
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    TxlogError,
)
from txlog.training import Dataset, Datasets, InlineRunner
from txlog.training.datasets.branch_state import EndBranch
from txlog.training.datasets.ledger import Ledger

PLACES = count()
NAMES = ("try", "other")


class Idle:
    """A runner that makes nothing: these tests ask only what is picked."""

    def submit(self, work: Any) -> None:
        return None


@pytest.fixture
def made(tmp_path: Path) -> Dataset:
    datasets = Datasets(tmp_path, runner=InlineRunner())
    return datasets.create("d", "TABLE", rows_of("a"))


def texts(made: Dataset, **asked: Any) -> list[str]:
    found = made.fetch(made.prepare(**asked).version_hash, wait_s=60)
    return [str(text) for text in found.table().to_arrow()["label"].to_pylist()]


@settings(max_examples=examples(50), stateful_step_count=14, deadline=None)
class Branches(RuleBasedStateMachine):
    """Commits on main and on branches, beside sets of numbers."""

    def __init__(self) -> None:
        super().__init__()
        place = f"memory://branches-{next(PLACES)}"
        self.made = Datasets(place, runner=Idle()).create("d", "TABLE", rows_of("a"))
        self.main = {1}
        self.open: dict[str, set[int]] = {}
        self.hidden: set[int] = set()
        self.replaced: dict[int, set[int]] = {1: set()}

    def seen(self, name: str | None) -> set[int]:
        return self.main | (self.open[name] if name else set())

    @rule(name=st.sampled_from(NAMES))
    def branch(self, name: str) -> None:
        self.made.branch(name)
        self.open.setdefault(name, set())
        assert set(self.made.branches()) == set(self.open)

    @rule(name=st.sampled_from((None, *NAMES)), replaces=st.booleans() | st.integers(1, 9))
    def update(self, name: str | None, replaces: bool | int) -> None:
        last = len(self.replaced)
        if name is not None and name not in self.open:
            with pytest.raises(NotFoundError, match="no open branch"):
                self.made.update(rows_of("x"), branch=name)
            return
        if replaces is not True and replaces > last:
            return
        upto = last if replaces is True else int(replaces)
        commit = self.made.update(rows_of(f"text {last}"), branch=name, replace=replaces)
        assert (commit.commit_id, commit.branch) == (last + 1, name)
        self.replaced[last + 1] = {one for one in self.seen(name) if one <= upto}
        (self.main if name is None else self.open[name]).add(last + 1)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), publishes=st.booleans())
    def end(self, data: Any, publishes: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        commits = self.open.pop(name)
        if publishes:
            found = self.made.publish(name)
            assert {one.commit_id for one in found} == commits
            assert all(one.branch is None for one in found)
            self.main |= commits
        else:
            self.made.discard(name)
            self.hidden |= commits
            assert all(self.made.commit(one).hidden for one in commits)

    @rule(name=st.sampled_from((None, *NAMES)))
    def prepare(self, name: str | None) -> None:
        if name is not None and name not in self.open:
            return
        seen = self.seen(name)
        wanted = seen - set().union(*(self.replaced[one] for one in seen))
        assert self.made.prepare(branch=name).picked == tuple(sorted(wanted))

    @rule(data=st.data(), name=st.sampled_from((None, *NAMES)))
    def prepare_up_to(self, data: Any, name: str | None) -> None:
        last = data.draw(st.integers(1, len(self.replaced)))
        if name is not None and name not in self.open:
            return
        others = set().union(*(one for key, one in self.open.items() if key != name))
        if last in others:
            with pytest.raises(InvalidInputError, match="is on the branch"):
                self.made.prepare(last, branch=name)
            return
        if last in self.hidden:
            return
        seen = {one for one in self.seen(name) if one <= last}
        wanted = seen - set().union(*(self.replaced[one] for one in seen))
        assert self.made.prepare(last, branch=name).picked == tuple(sorted(wanted))


@pytest.mark.spec("DST-80", "DST-81", "DST-40")
class TestBranches(Branches.TestCase):
    """Runs the machine."""


@pytest.mark.spec("DST-80")
def test_a_training_set_of_a_branch_is_that_of_its_commits_when_published(made: Dataset) -> None:
    made.branch("try")
    made.update(rows_of("b"), branch="try", tags={"k": "v"})
    assert texts(made) == ["a"]
    assert texts(made, branch="try") == ["a", "b"]
    asked = made.prepare(branch="try")
    assert made.lineage(asked.version_hash).nodes
    assert made.commit().commit_id == 1  # The last one of all training sets.
    assert made.diff(1, 2).rows_added == 1
    (found,) = made.publish("try")
    assert found.tags == {"k": "v"}
    assert made.prepare() == made.fetch(asked.version_hash)
    assert made.commit().commit_id == 2
    assert [one.commit_id for one in made.verify()] == [1, 2]


@pytest.mark.spec("DST-82")
def test_a_commit_that_ends_after_its_branch_is_refused_and_never_picked(made: Dataset) -> None:
    for end in (made.publish, made.discard):
        made.branch("try")
        early = made.update(rows_of("early"), branch="try")

        def rows(end: Any = end) -> Iterator[pa.RecordBatch]:
            yield from rows_of("late").to_batches()
            end("try")

        late = pa.RecordBatchReader.from_batches(rows_of("late").schema, rows())
        with pytest.raises(CommitConflictError, match="the branch 'try' was") as caught:
            made.update(late, branch="try")
        assert caught.value.rule == "DST-82"
        number = early.commit_id + 1
        assert made.commit(number).hidden
        assert (early.commit_id in made.prepare().picked) == (end == made.publish)
        assert number not in made.prepare().picked


def ends_after(made: Dataset, text: str, end: Any) -> pa.RecordBatchReader:
    """Return rows; when they were read, something else happens."""

    def rows() -> Iterator[pa.RecordBatch]:
        yield from rows_of(text).to_batches()
        end()

    return pa.RecordBatchReader.from_batches(rows_of(text).schema, rows())


@pytest.mark.spec("DST-82")
@pytest.mark.parametrize("is_published", [True, False])
def test_a_retry_with_a_txn_tells_what_became_of_the_commit(
    made: Dataset, is_published: bool
) -> None:
    made.branch("try")
    early = made.update(rows_of("e"), branch="try", txn=("e", 1))
    end = made.publish if is_published else made.discard
    late = ends_after(made, "l", lambda: end("try"))
    with pytest.raises(CommitConflictError):
        made.update(late, branch="try", txn=("l", 1))
    if is_published:
        again = made.update(rows_of("e"), branch="try", txn=("e", 1))
        assert (again.commit_id, again.branch) == (early.commit_id, None)
    made.branch("other")
    lost = ["l"] if is_published else ["e", "l"]
    for name in lost:
        for branch in ("try", "other", None):
            with pytest.raises(
                CommitConflictError, match=f"was {'pub' if is_published else 'dis'}"
            ):
                made.update(rows_of(name), branch=branch, txn=(name, 1))
        made.update(rows_of(name), branch="other", txn=(name, 2))
    assert texts(made, branch="other") == ["a", "e", "l"]


@pytest.mark.spec("DST-82")
@pytest.mark.parametrize("kind", ["published", "discarded", None])
def test_a_commit_waits_for_the_end_of_a_publish(
    made: Dataset, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    made.branch("try")
    home, end = made._home, EndBranch(made.dataset_id, 1, "branch_closed")
    late = ends_after(made, "late", lambda: home.record(end))
    looks: list[float] = []

    class Watched(Effects):
        """Time passes only by sleeping, and the branch ends meanwhile."""

        def monotonic_s(self) -> float:
            return float(len(looks))

        def sleep_s(self, seconds: float) -> None:
            looks.append(seconds)
            if kind and len(looks) == 3:
                picked = (2,) if kind == "published" else ()
                home.record(EndBranch(made.dataset_id, 1, kind, picked))

    monkeypatch.setattr(home, "effects", Watched())
    if kind == "published":
        assert made.update(late, branch="try", txn=("a", 1)).branch is None
        assert made.prepare().picked == (1, 2)
        return
    wrong: Any = CommitConflictError if kind else OutcomeUnknownError
    with pytest.raises(wrong, match="was discarded" if kind else "not known yet whether with"):
        made.update(late, branch="try", txn=("a", 1))
    if kind is None:  # The publisher died; the next one publishes the commit.
        assert [one.commit_id for one in made.publish("try")] == [2]
        assert made.update(rows_of("late"), branch="try", txn=("a", 1)).commit_id == 2
        assert len(made.commits()) == 2


@pytest.mark.spec("DST-82")
@pytest.mark.parametrize("is_published", [True, False])
def test_a_training_set_of_a_branch_that_ends_meanwhile(
    made: Dataset, monkeypatch: pytest.MonkeyPatch, is_published: bool
) -> None:
    made.branch("try")
    made.update(rows_of("b"), branch="try")
    whole = Ledger.try_record

    def ends_first(ledger: Ledger, command: Any, *more: Any) -> Any:
        monkeypatch.undo()
        (made.publish if is_published else made.discard)("try")
        return whole(ledger, command, *more)

    monkeypatch.setattr(Ledger, "try_record", ends_first)
    if is_published:
        assert made.prepare(branch="try") == made.prepare()
        return
    with pytest.raises(CommitConflictError, match="the branch 'try' was discarded"):
        made.prepare(branch="try")
    assert made.training_sets() == []
    made.hide(2)
    with pytest.raises(CommitConflictError, match="discarded without commit 2"):
        made.show(2)


@pytest.mark.spec("DST-82")
def test_a_publish_that_broke_off_is_finished_by_the_next_one(
    made: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.branch("try")
    made.update(rows_of("b"), branch="try")
    whole = Ledger.record

    def dies(ledger: Ledger, command: Any, *more: Any) -> Any:
        if isinstance(command, EndBranch) and command.kind == "published":
            raise KeyboardInterrupt
        return whole(ledger, command, *more)

    monkeypatch.setattr(Ledger, "record", dies)
    with pytest.raises(KeyboardInterrupt):
        made.publish("try")
    monkeypatch.undo()
    assert made.branches() == ["try"]
    assert made.prepare().picked == (1,)
    for refused in (lambda: made.update(rows_of("c"), branch="try"), lambda: made.branch("try")):
        with pytest.raises(CommitConflictError, match="is being published"):
            refused()
    assert [one.commit_id for one in made.publish("try")] == [2]
    assert made.prepare().picked == (1, 2)
    with pytest.raises(NotFoundError, match="no open branch 'try'"):
        made.discard("try")


@pytest.mark.slow
@pytest.mark.spec("DST-83")
def test_a_step_waits_for_the_end_of_a_branch(tmp_path: Path) -> None:
    datasets = Datasets(tmp_path / "root", runner=InlineRunner())
    made = datasets.create("d", "TABLE", rows_of("a"))
    (tmp_path / "copy.py").write_text("def run(rows):\n    return rows\n")
    datasets.on_commit("d", run="copy.py", into="copy")
    made.branch("try")
    made.branch("bad")
    made.update(rows_of("b"), branch="try")
    made.update(rows_of("c"), branch="bad")
    made.update(rows_of("d"), replace=True)
    runs = datasets.run_steps(folder=tmp_path)
    assert [(one.commit_id, one.state) for one in runs] == [(1, "DONE")]
    held = datasets.steps()[0]
    assert (held.state, held.waiting, held.branch) == ("WAITING", (), "try")
    made.discard("bad")
    made.publish("try")
    freed = datasets.steps()[0]
    assert (freed.state, freed.waiting, freed.branch) == ("WAITING", (2, 4), None)
    runs = datasets.run_steps(folder=tmp_path)
    assert [(one.commit_id, one.state) for one in runs] == [(2, "DONE"), (4, "DONE")]
    # Commit 4 replaced what it saw: commit 1, and not 2, which was on a branch.
    assert texts(made) == texts(datasets.dataset("copy")) == ["b", "d"]


def test_what_a_branch_refuses(made: Dataset) -> None:
    for wrong in ("", "12", "a/b", "x" * 300):
        with pytest.raises(InvalidInputError):
            made.branch(wrong)
    made.branch("try")
    more = rows_of("b").append_column("more", pa.array([1]))
    with pytest.raises(InvalidInputError, match="the same columns"):
        made.update(more, branch="try", schema_mode="merge")
    assert made.update(rows_of("b"), branch="try", txn=("a", 1)) == made.update(
        rows_of("b"), branch="try", txn=("a", 1)
    )
    made.delete()
    for refused in (lambda: made.branch("new"), lambda: made.publish("try")):
        with pytest.raises(NotFoundError, match="is deleted"):
            refused()


def test_branches_over_http_and_grpc(made: Dataset, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = rows_of("b")
    pq.write_table(rows, tmp_path / "in/b.parquet")
    datasets = Datasets(tmp_path, sources={"in": tmp_path / "in"}, runner=InlineRunner())
    with http_client(datasets) as client:
        remote = client.dataset("d")
        remote.branch("try")
        assert remote.branches() == ["try"]
        commit = remote.update("in/b.parquet", branch="try")
        assert commit == made.commit(2)
        assert commit.branch == "try"
        assert remote.commit().commit_id == 1
        assert remote.prepare(branch="try").picked == (1, 2)
        with grpc_stub(datasets) as call:  # Its messages cannot say that a commit is on a branch.
            summary = call("GetDatasetSummary", dataset_id="1")
            assert [one.commit_id for one in summary.commits] == ["1"]
        assert remote.publish("try") == [made.commit(2)]
        remote.branch("again")
        remote.discard("again")
        for refused in (lambda: remote.publish("again"), lambda: remote.branch("1")):
            with pytest.raises(TxlogError):
                refused()
