"""The ledger: one list of events for any number of writers."""

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

import txlog
from tests.examples import examples
from tests.training.datasets.homes import Ticking
from txlog.base.effects import Effects
from txlog.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    InvalidInputError,
    LogCorruptError,
    NotFoundError,
    TxlogError,
    UnsupportedFeatureError,
)
from txlog.base.threads import Threads, map_ahead
from txlog.commit.context import Context
from txlog.store.base import Store
from txlog.store.local.local import LocalStore
from txlog.store.memory import MemoryStore
from txlog.testing.faults import Fault, FaultyStore
from txlog.testing.schedules import Actor, History, all_schedules, play
from txlog.training.datasets.commands import (
    Ask,
    ClaimSet,
    Clear,
    Command,
    Create,
    Finish,
    Mark,
    Sweep,
    Tag,
    decide,
)
from txlog.training.datasets.events import Event, LedgerState, fold, pending
from txlog.training.datasets.ledger import APP, Ledger
from txlog.training.datasets.values import Asked, Claim, Failure, Part


class Clock(Effects):
    """A clock that a test moves."""

    ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


ASKED = Asked("v1ab", "table/1", ((1, "d1"), (2, "d2")))
PARTS = (Part("examples", "sets/u1/v1ab/1/examples", 10, 2, "ff"),)


def memory(name: str, effects: Effects | None = None) -> Context:
    return Context(MemoryStore(f"memory://{name}"), effects or Clock(), Threads(1))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(memory(f"ledger-{tmp_path.name}-{tmp_path.parent.name}"), "me")


def other(ledger: Ledger) -> Ledger:
    """Return the ledger as another process has it."""
    return Ledger(ledger._context, "other")


@pytest.mark.spec("DST-20", "DST-21")
def test_the_ledger_is_a_table_of_events(ledger: Ledger) -> None:
    ledger.record(Create("u1", "intents", "TABLE", "what for", ("job", 1)))
    other(ledger).record(Mark("hidden", 1, 3))
    table = txlog.Table(ledger._context.store.root)
    rows = table.to_arrow().sort_by("n").to_pylist()
    assert [(row["n"], row["by"], row["kind"]) for row in rows] == [
        (1, "me", "created"), (2, "other", "hidden"),
    ]  # fmt: skip
    assert rows[0]["body"] == (
        '{"description":"what for","id":1,"name":"intents","txn":["job",1],"type":"TABLE",'
        '"uuid":"u1"}'
    )
    assert table.transaction_version(APP) == 2
    assert table.properties["delta.appendOnly"] == "true"
    assert ledger.state() == other(ledger).state()


def test_a_ledger_of_nothing_is_empty(tmp_path: Path) -> None:
    ledger = Ledger(Context(LocalStore(str(tmp_path / "none"))))
    assert ledger.state() == LedgerState()
    assert ledger.events() == []
    assert not (tmp_path / "none").exists()


def test_another_table_is_no_ledger(tmp_path: Path) -> None:
    txlog.write(str(tmp_path / "t"), pa.table({"x": [1]}))
    ledger = Ledger(Context(LocalStore(str(tmp_path / "t"))))
    with pytest.raises(InvalidInputError, match="no ledger of data sets"):
        ledger.state()


def test_a_ledger_that_others_changed_is_refused(ledger: Ledger) -> None:
    ledger.record(Create("u1", "a", "TABLE"))
    ledger.record(Create("u2", "b", "TABLE"))
    table = txlog.Table(ledger._context.store.root)
    table.alter.set_properties({"delta.appendOnly": "false"})
    table.delete("n = 1")
    with pytest.raises(LogCorruptError, match="records 2 events"):
        other(ledger).state()


@pytest.mark.spec("DST-21")
@pytest.mark.parametrize("kind", ["lost_answer", "lost_request", "exists_though_created"])
def test_a_lost_answer_appends_once(tmp_path: Path, kind: Any) -> None:
    inner = MemoryStore(f"memory://lost-{kind}-{tmp_path.name}")
    Ledger(Context(inner)).record(Create("u0", "first", "TABLE"))
    store = FaultyStore(inner, [Fault("put_if_absent", 1, kind)])
    state = Ledger(Context(store, engine=Threads(1))).record(Create("u1", "a", "TABLE"))
    assert [one.name for one in state.datasets.values()] == ["first", "a"]
    assert Ledger(Context(inner)).state() == state


@pytest.mark.spec("DST-27")
def test_files_are_joined_now_and_then(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txlog.training.datasets.ledger.COMPACT_EVERY", 10)
    slow = other(ledger)
    for number in range(25):
        ledger.record(Create(f"u{number}", f"n{number}", "TABLE"))
        if number in (3, 19):
            slow.state()
    table = txlog.Table(ledger._context.store.root)
    assert len(table.fragments()) == 1 + 5
    assert slow.state() == ledger.state() == other(ledger).state()
    assert [event.n for event in ledger.events(20)] == [21, 22, 23, 24, 25]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_waits_for_no_thread(tmp_path: Path) -> None:
    ledger = Ledger(Context(LocalStore(str(tmp_path / "ledger"))), "parent")
    ledger.record(Create("u1", "a", "TABLE"))
    with ledger._lock, warnings.catch_warnings():  # As a thread has it when another one forks.
        warnings.simplefilter("ignore")  # Of forks beside threads, and of pylance.
        pid = os.fork()
        if pid == 0:
            try:
                signal.alarm(30)
                ledger.record(Create("u2", "b", "TABLE"))
            except BaseException:
                os._exit(1)
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(ledger.state().datasets) == 2


def test_an_interrupt_after_an_append_does_no_harm(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.record(Create("u1", "a", "TABLE"))
    with monkeypatch.context() as patch:
        patch.setattr("txlog.training.datasets.ledger.fold", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ledger.record(Create("u2", "b", "TABLE"))
    assert [one.name for one in ledger.state().datasets.values()] == ["a", "b"]
    ledger.record(Create("u3", "c", "TABLE"))
    assert other(ledger).state() == ledger.state()


# What is decided --------------------------------------------------------------------------------


def after(*commands: Command, now_ms: int = 0) -> LedgerState:
    state = LedgerState()
    for command in commands:
        decided = decide(state, command, now_ms)
        assert decided is not None, command
        state = fold(state, [Event(state.n + 1, now_ms, "me", *decided)])
    return state


CREATED = Create("u1", "intents", "TABLE")
CLAIM = Claim(1, "v1ab", 1, "w1", 600_000)


@pytest.mark.spec("DST-23")
def test_names_are_unique_among_what_is_not_deleted() -> None:
    again = Create("u2", "intents", "TABLE")
    state = after(CREATED)
    with pytest.raises(AlreadyExistsError, match="'intents' already, with the id 1"):
        decide(state, again, 0)
    state = after(CREATED, Mark("deleted", 1), again)
    assert state.find("intents").dataset_id == 2
    assert state.find("u1").deleted
    with pytest.raises(AlreadyExistsError):
        decide(state, Mark("undeleted", 1), 0)
    state = after(CREATED, Mark("deleted", 1), Mark("undeleted", 1))
    assert state.find("intents").dataset_id == 1


@pytest.mark.spec("DST-23")
def test_a_txn_makes_one_data_set() -> None:
    state = after(Create("u1", "a", "TABLE", None, ("job", 1)))
    assert decide(state, Create("u2", "a", "TABLE", None, ("job", 1)), 0) is None
    assert decide(state, Create("u2", "b", "TABLE", None, ("job", 2)), 0) is not None


@pytest.mark.spec("DST-24", "DST-25")
def test_a_training_set_is_claimed_and_made_once() -> None:
    asked = after(CREATED, Ask(1, ASKED))
    assert decide(asked, Ask(1, ASKED), 0) is None
    assert [one.asked for _, one in pending(asked, 0)] == [ASKED]
    claimed = after(CREATED, Ask(1, ASKED), ClaimSet(1, "v1ab", "w1", 600_000))
    for now_ms in (0, 600_000, 660_000):  # The lease runs, or clocks differ.
        assert decide(claimed, ClaimSet(1, "v1ab", "w2"), now_ms) is None
        assert not pending(claimed, now_ms)
    taken = decide(claimed, ClaimSet(1, "v1ab", "w2"), 660_001)
    assert taken is not None
    assert taken[1]["attempt"] == 2
    state = fold(claimed, [Event(4, 660_001, "x", *taken)])
    with pytest.raises(CommitConflictError, match=r"attempt 1 .* is not the current one"):
        decide(state, Finish(CLAIM, PARTS), 0)
    with pytest.raises(CommitConflictError, match="not the current one"):
        decide(state, ClaimSet(1, "v1ab", "w1", attempt=1), 0)
    second = replace(CLAIM, attempt=2, worker="w2")
    done = decide(state, Finish(second, PARTS, {"numExamples": 2}), 0)
    assert done is not None
    state = fold(state, [Event(5, 0, "x", *done)])
    one = state.dataset(1).sets["v1ab"]
    assert (one.state, one.parts, one.statistics) == ("READY", PARTS, {"numExamples": 2})
    assert decide(state, Ask(1, ASKED), 0) is None
    assert decide(state, ClaimSet(1, "v1ab", "w3"), 10**12) is None
    with pytest.raises(CommitConflictError, match="is READY"):
        decide(state, Finish(second, ()), 0)


@pytest.mark.spec("DST-24")
def test_one_that_failed_may_be_asked_for_again() -> None:
    why = Finish(CLAIM, error=Failure("data-file", "a file is gone"))
    failed = after(CREATED, Ask(1, ASKED), ClaimSet(1, "v1ab", "w1"), why)
    assert failed.dataset(1).sets["v1ab"].error == Failure("data-file", "a file is gone")
    assert not pending(failed, 10**12)
    state = after(CREATED, Ask(1, ASKED), ClaimSet(1, "v1ab", "w1"), why, Ask(1, ASKED),
                  ClaimSet(1, "v1ab", "w1"))  # fmt: skip
    one = state.dataset(1).sets["v1ab"]
    assert (one.state, one.attempt, one.error) == ("RUNNING", 2, None)


@pytest.mark.spec("DST-25")
def test_the_worker_renews_its_lease() -> None:
    renewal = ClaimSet(1, "v1ab", "w1", 600_000, attempt=1)
    state = after(CREATED, Ask(1, ASKED), ClaimSet(1, "v1ab", "w1", 1000))
    renewed = decide(state, renewal, 900)
    assert renewed is not None
    assert (renewed[1]["attempt"], renewed[1]["lease_until_ms"]) == (1, 600_900)


@pytest.mark.spec("DST-21")
def test_what_is_said_twice_is_said_once() -> None:
    """An event whose answer was lost may land after it was looked for."""
    state = after(CREATED)
    assert decide(state, CREATED, 0) is None
    done = Finish(CLAIM, PARTS, {"numExamples": 2})
    why = Finish(CLAIM, error=Failure("data-file", "a file is gone"))
    for command in (done, why):
        state = after(CREATED, Ask(1, ASKED), ClaimSet(1, "v1ab", "w1"), command)
        assert decide(state, command, 0) is None
        with pytest.raises(CommitConflictError):
            decide(state, why if command is done else done, 0)


def test_a_ledger_of_a_newer_format_is_refused(ledger: Ledger) -> None:
    ledger.record(CREATED)
    table = txlog.Table(ledger._context.store.root)
    table.alter.set_properties({"txlog.dataset.ledger": "2"})
    with pytest.raises(UnsupportedFeatureError, match="the ledger has the format 2"):
        other(ledger).state()


@pytest.mark.spec("DST-25")
def test_a_clock_that_jumped_binds_nobody_for_long() -> None:
    year_ms = 365 * 86_400_000
    state = after(CREATED, Ask(1, ASKED))
    claimed = decide(state, ClaimSet(1, "v1ab", "w1"), year_ms)
    assert claimed is not None
    state = fold(state, [Event(3, year_ms, "w1", *claimed)])
    taken = decide(state, ClaimSet(1, "v1ab", "w2"), 1000)
    assert taken is not None
    assert taken[1]["attempt"] == 2


@pytest.mark.spec("DST-26")
def test_what_is_purged_is_gone() -> None:
    base = (CREATED, Ask(1, ASKED), Tag(1, "golden", "v1ab"), Tag(1, "first", 1), Tag(1, "last", 9))
    state = after(*base, Mark("purged", 1, 2))
    assert state.dataset(1).sets == {}
    assert state.dataset(1).names == {"first": 1, "last": 9}
    with pytest.raises(NotFoundError, match=r"the commits \[2\] of 'intents' are purged"):
        decide(state, Ask(1, ASKED), 0)
    with pytest.raises(NotFoundError, match="no training set"):
        decide(state, Finish(CLAIM, PARTS), 0)
    assert decide(state, Mark("purged", 1, 2), 0) is None
    state = after(*base, Mark("purged", 1))
    assert decide(state, Mark("purged", 1), 0) is None
    for command in (Ask(1, ASKED), Mark("undeleted", 1), Tag(1, "x", 1), Mark("hidden", 1, 1)):
        with pytest.raises(NotFoundError, match="no data set 1"):
            decide(state, command, 0)
    assert after(*base, Mark("purged", 1), Create("u2", "intents", "TABLE")).find("intents")


def test_commands_for_what_is_not_there_are_refused() -> None:
    state = after(CREATED)
    for command in (Mark("deleted", 2), Ask(2, ASKED), Tag(2, "x", 1)):
        with pytest.raises(NotFoundError, match="no data set 2") as caught:
            decide(state, command, 0)
        assert "intents (1)" in str(caught.value)
    with pytest.raises(NotFoundError, match="no training set 'v1zz'"):
        decide(state, ClaimSet(1, "v1zz", "w"), 0)
    with pytest.raises(NotFoundError, match="no training set 'v1zz'"):
        decide(state, Tag(1, "x", "v1zz"), 0)


@pytest.mark.spec("DST-22")
def test_events_of_an_unknown_kind_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="event 2 of the ledger is 'merged'"):
        fold(after(CREATED), [Event(2, 0, "x", "merged", {"id": 1})])
    with pytest.raises(InvalidInputError, match="event 2 of the ledger is 'merged'"):
        fold(after(CREATED), [Event(2, 0, "x", "merged", {})])


@pytest.mark.spec("DST-22")
@pytest.mark.parametrize("kind", ["claimed", "ready", "failed"])
def test_events_of_a_training_set_that_nobody_asked_for_are_refused(kind: str) -> None:
    with pytest.raises(InvalidInputError, match=f"event 2 of the ledger is '{kind}'.*'v1ab'"):
        fold(after(CREATED), [Event(2, 0, "x", kind, {"id": 1, "hash": "v1ab"})])


@pytest.mark.spec("DST-28")
def test_a_catalog_is_swept_once_a_day() -> None:
    day = 24 * 3600_000
    state = after(CREATED)
    made = state.datasets[1].created_ms
    assert decide(LedgerState(), Sweep(), 50 * day) == ("swept", {})  # Of refused ones.
    assert decide(state, Sweep(), made + day - 1) is None
    assert decide(state, Sweep(), made + day) == ("swept", {})
    swept = fold(state, [Event(2, made + day, "x", "swept", {})])
    assert (swept.n, swept.sweeps) == (2, 1)
    assert decide(swept, Sweep(), made + 2 * day - 1) is None
    assert decide(swept, Sweep(), made + 2 * day) == ("swept", {})
    assert decide(swept, Sweep(), made) == ("swept", {})  # The other clock was a day ahead.


@pytest.mark.spec("DST-28")
def test_a_data_set_whose_table_a_sweep_names_is_refused() -> None:
    state = after(CREATED)
    sweep = Sweep((state.datasets[1].uuid, "u9", "u8"))
    kind, body = decide(state, sweep, 50 * 24 * 3600_000) or ("", {})
    assert (kind, body) == ("swept", {"tables": ["u8", "u9"]})  # The data set is known.
    swept = fold(state, [Event(2, 5, "x", kind, body)])
    assert decide(swept, Create("u7", "new", "TABLE"), 5) is not None
    with pytest.raises(CommitConflictError, match="a sweep deletes the table u9") as caught:
        decide(swept, Create("u9", "new", "TABLE"), 5)
    assert caught.value.rule == "DST-28"
    old = fold(state, [Event(2, 5, "x", "swept", {})])  # By an earlier version of txlog.
    assert decide(old, Create("u9", "new", "TABLE"), 5) is not None


@pytest.mark.spec("DST-29")
def test_a_data_set_that_has_not_seen_a_clearing_is_refused() -> None:
    assert decide(LedgerState(), Clear(), 0) == ("cleared", {})
    state = fold(after(CREATED), [Event(2, 5, "x", "cleared", {})])
    assert (state.n, state.cleared) == (2, 1)
    for cleared in (None, 1):  # It has no objects; it looked for them after the clearing.
        assert decide(state, Create("u9", "new", "TABLE", cleared=cleared), 5) is not None
    with pytest.raises(CommitConflictError, match="contents were removed") as caught:
        decide(state, Create("u9", "new", "TABLE", cleared=0), 5)
    assert (caught.value.rule, caught.value.version) == ("DST-29", 1)


# Against a plain model ---------------------------------------------------------------------------

HASHES = ("v1a", "v1b")
IDS = st.integers(1, 3)


class LedgerMachine(RuleBasedStateMachine):
    """Two processes with one ledger, against a dict."""

    number = 0

    @initialize()
    def begin(self) -> None:
        LedgerMachine.number += 1
        self.clock = Clock()
        self.clock.ms = 1_000_000
        context = memory(f"ledger-machine-{LedgerMachine.number}", self.clock)
        self.ledgers = [Ledger(context, "one"), Ledger(context, "two")]
        self.plain: dict[int, dict[str, Any]] = {}

    def attempt(self, who: int, command: Command) -> TxlogError | None:
        try:
            self.ledgers[who].record(command)
        except TxlogError as error:
            return error
        return None

    def live(self, dataset_id: int) -> dict[str, Any] | None:
        found = self.plain.get(dataset_id)
        return None if found is None or found["purged"] else found

    @rule(who=st.integers(0, 1), name=st.sampled_from("ab"))
    def create(self, who: int, name: str) -> None:
        error = self.attempt(who, Create(f"u{len(self.plain)}", name, "TABLE"))
        taken = any(d["name"] == name and not d["deleted"] for d in self.plain.values())
        assert (error is not None) == taken
        if not taken:
            self.plain[len(self.plain) + 1] = {
                "name": name, "deleted": False, "purged": False, "hidden": set(), "names": {},
                "sets": {}, "gone": set(),
            }  # fmt: skip

    @rule(who=st.integers(0, 1), at=IDS, kind=st.sampled_from(["deleted", "undeleted", "purged"]))
    def mark(self, who: int, at: int, kind: str) -> None:
        error = self.attempt(who, Mark(kind, at))
        found = self.plain.get(at)
        if found is None or (found["purged"] and kind != "purged"):
            assert isinstance(error, NotFoundError)
            return
        clash = [
            k for k, d in self.plain.items()
            if k != at and d["name"] == found["name"] and not d["deleted"]
        ]  # fmt: skip
        if kind == "undeleted" and found["deleted"] and clash:
            assert isinstance(error, AlreadyExistsError)
            return
        assert error is None
        found["deleted"] = kind != "undeleted"
        if kind == "purged":
            found |= {"purged": True, "sets": {}, "names": {}}

    @rule(who=st.integers(0, 1), at=IDS, commit=st.integers(1, 2),
          kind=st.sampled_from(["hidden", "shown", "purged"]))  # fmt: skip
    def mark_commit(self, who: int, at: int, commit: int, kind: str) -> None:
        error = self.attempt(who, Mark(kind, at, commit))
        found = self.live(at)
        again = kind == "purged" and self.plain.get(at, {}).get("purged", False)
        assert (error is None) == (found is not None or again)
        if found is None:
            return
        if kind == "purged":
            found["gone"].add(commit)
            going = [h for h in found["sets"] if commit == 1 or h == "v1b"]
            found["sets"] = {h: s for h, s in found["sets"].items() if h not in going}
            found["names"] = {n: t for n, t in found["names"].items() if t not in [*going, commit]}
        elif kind == "hidden":
            found["hidden"].add(commit)
        else:
            found["hidden"].discard(commit)

    @rule(who=st.integers(0, 1), at=IDS, to=st.none() | st.integers(1, 2) | st.sampled_from(HASHES))
    def tag(self, who: int, at: int, to: int | str | None) -> None:
        error = self.attempt(who, Tag(at, "golden", to))
        found = self.live(at)
        known = found is not None and (not isinstance(to, str) or to in found["sets"])
        assert (error is None) == known
        if known and found is not None:
            found["names"].pop("golden", None)
            if to is not None:
                found["names"]["golden"] = to

    @rule(who=st.integers(0, 1), at=IDS, wanted=st.sampled_from(HASHES))
    def ask(self, who: int, at: int, wanted: str) -> None:
        picked = ((1, "d"),) if wanted == "v1a" else ((1, "d"), (2, "d"))
        error = self.attempt(who, Ask(at, Asked(wanted, "table/1", picked)))
        found = self.live(at)
        can = found is not None and not found["gone"] & {number for number, _ in picked}
        assert (error is None) == can
        if can and found is not None:
            one = found["sets"].setdefault(wanted, {"state": "RUNNING", "attempt": 0, "until": 0})
            if one["state"] == "FAILED":
                one |= {"state": "RUNNING", "by": None}

    @rule(who=st.integers(0, 1), at=IDS, wanted=st.sampled_from(HASHES))
    def claim(self, who: int, at: int, wanted: str) -> None:
        found = self.live(at)
        one = None if found is None else found["sets"].get(wanted)
        try:
            claim = self.ledgers[who].claim(at, wanted, f"w{who}", 1000)
        except NotFoundError:
            assert one is None
            return
        assert one is not None
        free = one["state"] == "RUNNING" and (
            one.get("by") is None
            or one["until"] + 60_000 < self.clock.ms
            or one["at"] > self.clock.ms + 60_000
        )
        assert (claim is not None) == free
        if claim is not None:
            one |= {"attempt": one["attempt"] + 1, "at": self.clock.ms, "by": f"w{who}",
                    "until": self.clock.ms + 1000}  # fmt: skip
            assert claim.attempt == one["attempt"]

    @rule(who=st.integers(0, 1), at=IDS, wanted=st.sampled_from(HASHES),
          attempt=st.integers(1, 2), ok=st.booleans())  # fmt: skip
    def finish(self, who: int, at: int, wanted: str, attempt: int, ok: bool) -> None:
        claim = Claim(at, wanted, attempt, f"w{who}", 0)
        found = self.live(at)
        one = None if found is None else found["sets"].get(wanted)
        current = one is not None and one["state"] == "RUNNING" and (
            (one["attempt"], one.get("by")) == (attempt, f"w{who}")
        )  # fmt: skip
        error = self.attempt(who, Finish(claim, error=None if ok else Failure("x", "y")))
        said = "READY" if ok else "FAILED"
        again = one is not None and (one["state"], one["attempt"], one.get("by")) == (
            said, attempt, f"w{who}"
        )  # fmt: skip
        assert (error is None) == (current or again)
        if one is not None and current:
            one["state"] = said

    @rule(ms=st.sampled_from([1, 1000, 100_000, -200_000]))
    def wait(self, ms: int) -> None:
        self.clock.ms += ms

    @invariant()
    def the_state_is_the_same_for_all(self) -> None:
        if not hasattr(self, "plain"):
            return
        one, two = (ledger.state() for ledger in self.ledgers)
        assert one == two == fold(LedgerState(), self.ledgers[0].events())
        assert {number: seen(dataset) for number, dataset in one.datasets.items()} == {
            number: {**{k: found[k] for k in ("name", "deleted", "purged", "hidden", "names")},
                     "gone": found["gone"],
                     "sets": {h: (s["state"], s["attempt"]) for h, s in found["sets"].items()}}
            for number, found in self.plain.items()
        }  # fmt: skip


def seen(dataset: Any) -> Mapping[str, Any]:
    return {
        "name": dataset.name, "deleted": dataset.deleted, "purged": dataset.purged,
        "hidden": set(dataset.hidden), "names": dict(dataset.names),
        "gone": set(dataset.purged_commits),
        "sets": {h: (s.state, s.attempt) for h, s in dataset.sets.items()},
    }  # fmt: skip


TestLedgerMachine: Any = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(
    max_examples=examples(30), stateful_step_count=15, deadline=None
)


# Races -------------------------------------------------------------------------------------------


def make_and_claim(ledgers: list[Ledger], sets: int) -> None:
    """Have each ledger claim every training set; each is won once."""
    ledgers[0].record(Create("u1", "a", "TABLE"))
    for number in range(sets):
        ledgers[0].record(Ask(1, replace(ASKED, version_hash=f"v{number}")))

    def claims(ledger: Ledger) -> list[Claim | None]:
        return [ledger.claim(1, f"v{number}") for number in range(sets)]

    won = [*map_ahead(claims, ledgers, workers=len(ledgers), ahead=len(ledgers))]
    for number in range(sets):
        assert sum(of_one[number] is not None for of_one in won) == 1
    assert [event.n for event in ledgers[0].events()] == list(range(1, 2 + 2 * sets))


@pytest.mark.spec("DST-21", "DST-25")
def test_threads_race_for_claims(ledger: Ledger) -> None:
    make_and_claim([ledger, other(ledger), other(ledger)], sets=4)


BEGUN = (Create("u1", "t", "TABLE"), Ask(1, ASKED))
AT_ONCE: dict[str, tuple[Command, Command]] = {
    "two names": (Create("u2", "a", "TABLE"), Create("u3", "b", "TABLE")),
    "one name": (Create("u2", "a", "TABLE"), Create("u3", "a", "TABLE")),
    "one txn": (
        Create("u2", "a", "TABLE", None, ("job", 1)),
        Create("u3", "a", "TABLE", None, ("job", 1)),
    ),
    "one claim": (ClaimSet(1, "v1ab", "w1"), ClaimSet(1, "v1ab", "w2")),
    "ask and purge": (Ask(1, replace(ASKED, version_hash="v1cd")), Mark("purged", 1, 2)),
    "claim and purge": (ClaimSet(1, "v1ab", "w1"), Mark("purged", 1)),
    "tag and purge": (Tag(1, "golden", "v1ab"), Mark("purged", 1, 1)),
    "hide and delete": (Mark("hidden", 1, 2), Mark("deleted", 1)),
}


class Repeating(Ticking):
    """The same ids and the same time at each play."""

    def now_ms(self) -> int:
        return Clock.ms


@pytest.mark.spec("DST-21", "DST-23", "DST-25")
@pytest.mark.parametrize(
    "name",
    [
        name
        if name in ("one name", "one claim", "ask and purge")
        else pytest.param(name, marks=pytest.mark.exhaustive)
        for name in AT_ONCE
    ],
)
def test_two_writers_in_all_orders(name: str, tmp_path: Path) -> None:
    """Every interleaving of their requests ends as one writer after the other would."""
    files = MemoryFileSystem()
    serial = [after_or_refused(*BEGUN, *order) for order in permutations(AT_ONCE[name])]
    count = 0

    def ledger_in(store: Store, number: int) -> Ledger:
        return Ledger(Context(store, Repeating(number), Threads(1)), f"w{number}")

    def play_one(choose: Any) -> History:
        if files.exists(inner.root):
            files.rm(inner.root, recursive=True)
        for file, data in begun.items():
            inner.write_new(file, data)
        return play(inner, actors, choose)

    def actor(number: int) -> Actor:
        def act(store: Store) -> Any:
            return ledger_in(store, number).try_record(AT_ONCE[name][number])[1]

        return act

    inner = MemoryStore(f"memory://all-orders-{tmp_path.name}")
    for command in BEGUN:
        ledger_in(inner, 9).record(command)
    begun = {file.name: inner.read(file.name) for file in inner.list_tree("")}
    actors = [actor(0), actor(1)]
    for history in all_schedules(play_one):
        state = ledger_in(inner, 9).state()
        assert state in serial, str(history)
        refused = [one for one in history.results.values() if isinstance(one, BaseException)]
        assert all(isinstance(one, AlreadyExistsError | NotFoundError) for one in refused)
        count += 1
    assert count > 1


def after_or_refused(*commands: Command) -> LedgerState:
    """Return the state after commands. A refused command does nothing."""
    state = LedgerState()
    for command in commands:
        with suppress(TxlogError):
            if (decided := decide(state, command, Clock.ms)) is not None:
                state = fold(state, [Event(state.n + 1, Clock.ms, "me", *decided)])
    return state


CLAIMER = """
import sys
from txlog.commit.context import Context
from txlog.training.datasets.ledger import Ledger
from txlog.store.local.local import LocalStore
ledger = Ledger(Context(LocalStore(sys.argv[1])))
print(*[n for n in range(int(sys.argv[2])) if ledger.claim(1, f"v{n}")])
"""


@pytest.mark.exhaustive
@pytest.mark.spec("DST-21")
def test_processes_race_for_claims(tmp_path: Path) -> None:
    root = str(tmp_path / "ledger")
    ledger = Ledger(Context(LocalStore(root)))
    ledger.record(Create("u1", "a", "TABLE"))
    for number in range(20):
        ledger.record(Ask(1, replace(ASKED, version_hash=f"v{number}")))
    command = [sys.executable, "-c", CLAIMER, root, "20"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    won = [one.communicate()[0].split() for one in running]
    assert sorted(int(number) for numbers in won for number in numbers) == list(range(20))
