"""Verbs of several commits, with other verbs and the end of the process between any two steps.

A registered clone is three commits in two tables; to drop a feature and its history is four. At no
time may a vacuum or a clean-up delete what such a verb needs, or what somebody pinned meanwhile.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.reliability.cases import beside, clear, context_of, opened, plain, rows
from txlog.base.errors import CommitConflictError, DataFileError, NotFoundError, TxlogError
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.references import clones_of
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store
from txlog.store.memory import MemoryStore
from txlog.testing import Crash, FaultyStore
from txlog.verbs.clone import CloneOptions, clone
from txlog.verbs.drop_feature import drop_feature

HOURS = 2  # How old all files are for those who clean up.
DAYS = 48  # So many hours later, no clone is being made any more.
TXN = ("job", 1)
CLONED = 3  # The latest version does not have its files.


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    made = MemoryStore(f"memory://{uuid.uuid4()}")
    yield made
    clear(made)


@dataclass
class Steps:
    """The steps of a process, and what others do before them; at `ends` the process ends."""

    others: Mapping[int, Sequence[Callable[[], object]]] = field(default_factory=dict)
    ends: int = 0
    count: int = 0
    is_ended: bool = False

    def next(self) -> None:
        self.count += 1
        for other in self.others.get(self.count, ()):
            other()
        self.is_ended = self.is_ended or self.count == self.ends
        if self.is_ended:
            raise Crash


class Stepped(FaultyStore):
    """A store of a process."""

    def __init__(self, inner: Store, steps: Steps) -> None:
        super().__init__(inner)
        self._steps = steps

    @contextmanager
    def _call(self, operation: str, path: str) -> Iterator[Any]:
        self._steps.next()
        yield None


# What others do -------------------------------------------------------------------------------


def pin(store: Store) -> None:
    table = opened(store)
    # A version may be gone, and a vacuum or the deletion of a log may be under way.
    with suppress(NotFoundError, DataFileError, CommitConflictError):
        table.pins.create(f"pin{len(table.pins.list())}", version=2)


def clean_log(store: Store) -> None:
    opened(store).maintenance.checkpoint()
    opened(store, HOURS).maintenance.expire(0, False)


OTHERS: dict[str, Callable[[Store], object]] = {
    "pin": pin,
    "clean the log": clean_log,
    "vacuum": lambda store: opened(store, HOURS).vacuum(0, False, False),
    "append": lambda store: opened(store).append(rows(900, 901)),
}
Plan = Mapping[int, Sequence[str]]


def at_steps(plan: Plan, store: Store) -> dict[int, list[Callable[[], object]]]:
    return {
        step: [lambda name=name: OTHERS[name](store) for name in names]  # type: ignore[misc]
        for step, names in plan.items()
    }


def require_pins(store: Store) -> None:
    """Raise unless all that is pinned can be read."""
    table = opened(store)
    for found in table.pins.list().values():
        version = txlog.Table._of(table._context, load_snapshot(store, version=found.version))
        assert version.to_arrow().num_rows == 20


# A registered clone ---------------------------------------------------------------------------


def make_source(store: Store) -> None:
    """Make a table of which version 3 has files that the latest version, 5, does not need."""
    table = plain(context_of(store))
    table.overwrite(rows(50, 60))


def run_clone(store: MemoryStore, snapshot: Snapshot, steps: Steps) -> None:
    source = Stepped(beside(store), steps)
    options = CloneOptions(shallow=True, register=True, replace=True)
    target = context_of(Stepped(store, steps))
    clone(context_of(source), snapshot, target, options, txn=TXN)


def check_clone(store: MemoryStore, plan: Plan, ends: int = 0) -> int:
    """Clone while others do something; return the number of steps."""
    clear(store)
    make_source(beside(store))
    # Afterwards the log of this version may be cleaned up.
    snapshot = load_snapshot(beside(store), version=CLONED)
    steps = Steps(at_steps(plan, beside(store)), ends)
    refused = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", txlog.TxlogWarning)
        try:
            run_clone(store, snapshot, steps)
        except Crash:
            OTHERS["vacuum"](beside(store))
            OTHERS["clean the log"](beside(store))
            try:
                run_clone(store, snapshot, Steps())
            except (CommitConflictError, DataFileError, NotFoundError) as error:
                refused = error
        except (CommitConflictError, DataFileError, NotFoundError) as error:
            refused = error
    if refused is not None:  # Others have deleted what it needs, or a vacuum was under way.
        assert not txlog.Table.exists(store.root)
        assert [one for one in clones_of(opened(beside(store)).snapshot) if one.is_made] == []
    else:
        made = opened(store)
        (known,) = clones_of(opened(beside(store)).snapshot)
        assert (known.id, known.uri, known.is_made) == (made.metadata.id, store.root, True)
    for hours in (HOURS, DAYS):
        opened(beside(store), hours).vacuum(0, False, False)
        if refused is None:
            assert opened(store).to_arrow()["id"].to_pylist() == list(range(30))
    require_pins(beside(store))
    return steps.count


def steps_of_clone(store: MemoryStore) -> int:
    return check_clone(store, {})


@pytest.mark.slow
@pytest.mark.spec("MNT-15", "MNT-11")
def test_a_clone_never_needs_files_that_a_vacuum_deletes(store: MemoryStore) -> None:
    """Others pin a version, clean the log, and vacuum before any step of it."""
    for step in range(1, steps_of_clone(store) + 1):
        check_clone(store, {step: ["pin", "clean the log", "vacuum"]})


@pytest.mark.exhaustive
@pytest.mark.spec("MNT-15", "MNT-11")
@pytest.mark.parametrize("other", OTHERS)
def test_a_clone_beside_each_other_verb(store: MemoryStore, other: str) -> None:
    last = steps_of_clone(store)
    for step in range(1, last + 1):
        check_clone(store, {step: [other]})
        check_clone(store, {}, ends=step)
        for again in range(step, last + 1, 9):
            check_clone(store, {step: ["vacuum"], again: [other, "vacuum"]}, ends=again + 1)


plans = st.dictionaries(
    st.integers(1, 60),
    st.lists(st.sampled_from(sorted(OTHERS)), min_size=1, max_size=3),
    max_size=4,
)


@pytest.mark.slow
@pytest.mark.spec("MNT-15", "MNT-11")
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plans, st.integers(0, 60))
def test_a_clone_in_any_order(store: MemoryStore, plan: Plan, ends: int) -> None:
    check_clone(store, plan, ends)


# To drop a feature and its history ------------------------------------------------------------


def check_drop(store: MemoryStore, plan: Plan, ends: int = 0) -> int:
    """Drop a feature while others do something; return the number of steps."""
    clear(store)
    plain(context_of(store))  # Version 4 has a deletion vector.
    steps = Steps(at_steps(plan, store), ends)

    def run(process: Steps) -> None:
        context = context_of(Stepped(store, process))
        drop_feature(
            context, load_snapshot(store), "deletionVectors", truncate_history=True, txn=TXN
        )

    refused: TxlogError | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", txlog.TxlogWarning)
        try:
            run(steps)
        except Crash:
            OTHERS["pin"](store)
            try:
                run(Steps())
            except txlog.UnsupportedFeatureError as error:
                refused = error
        except txlog.UnsupportedFeatureError as error:
            refused = error
    require_pins(store)
    table = opened(store)
    assert sorted(set(table.to_arrow()["id"].to_pylist()) - {900}) == [*range(5), *range(6, 30)]
    features = [*(table.protocol.reader_features or ()), *(table.protocol.writer_features or ())]
    oldest = min(one["version"] for one in table.versions().to_pylist())
    if refused is not None:
        assert "deletionVectors" in features
        assert table.pins.list()
    else:
        assert "deletionVectors" not in features
        assert oldest > 4 or "checkpointProtection" in features
        assert oldest > 4 or table.pins.list()
        assert "checkpointProtection" not in features or table.pins.list()
    return steps.count


@pytest.mark.slow
@pytest.mark.spec("CON-24", "MNT-11")
def test_a_pin_of_a_version_whose_log_is_to_be_deleted(store: MemoryStore) -> None:
    for step in range(1, check_drop(store, {}) + 1):
        check_drop(store, {step: ["pin"]})


@pytest.mark.slow
@pytest.mark.spec("CON-24", "MNT-11")
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plans, st.integers(0, 70))
def test_a_feature_and_its_history_are_dropped_in_any_order(
    store: MemoryStore, plan: Plan, ends: int
) -> None:
    check_drop(store, plan, ends)


def test_the_steps_of_both_are_few_enough_for_the_plans(store: MemoryStore) -> None:
    """The plans choose from all steps."""
    assert steps_of_clone(store) <= 60
    assert check_drop(store, {}) <= 70
