"""Each step of each verb fails once, or is the last of its process; nothing is lost.

Each run begins with the same table, ends at one step, and then: the table opens, and is what it
was or what the verb makes of it; the verb once more, with its `txn`, has its effect once; others
can write; a vacuum removes what was left.
"""

from __future__ import annotations

import re
import uuid
import warnings
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any, get_args

import pytest

import txlog
from tests.reliability.cases import (
    CASES,
    SCHEMA,
    TXN,
    Case,
    Files,
    clear,
    context_of,
    files_below,
    fill,
    opened,
    operations,
    rows,
    state_of,
)
from txlog.base.errors import OutcomeUnknownError, TxlogError
from txlog.store.base import Store
from txlog.store.memory import MemoryStore
from txlog.testing import Crash, CrashingStore, CrashPoint, crash_points
from txlog.testing.faults import CrashKind

KINDS = get_args(CrashKind)

QUICK = (
    "append",
    "append with an index",
    "append with a unique key",
    "append with a quarantine",
    "append blobs",
    "delete by rewriting",
    "clone, shallow and registered",
)


@dataclass(frozen=True)
class Model:
    """What a case does when nothing fails."""

    case: Case
    files: Files  # Of the table before.
    calls: list[tuple[str, str]]
    before: Any  # None: there is no table.
    after: Any
    between: list[Any]  # What it may be between two commits.
    version: int  # After it.
    left: Counter[str]  # What is there in the end, by folder and kind.


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    made = MemoryStore(f"memory://{uuid.uuid4()}")
    yield made
    clear(made)


def handle_of(case: Case, store: Store) -> txlog.Table | None:
    return None if case.new else opened(store, case.hours)


def run(case: Case, store: Store, handle: txlog.Table | None) -> None:
    context = context_of(store, case.hours)
    with warnings.catch_warnings():  # Those of clean-ups that fail are meant.
        warnings.simplefilter("ignore", txlog.TxlogWarning)
        case.run(context, handle)


def finish(case: Case, store: MemoryStore) -> Counter[str]:
    """Write once more, clean up, and return what is there then."""
    case.frees(context_of(store))
    table = opened(store)
    before, names = table.count(), table.schema.names
    more = rows(900, 901).select([name for name in names if name in SCHEMA.names])
    table.append(more if more.num_columns else table.schema.empty_table())
    later = opened(store, 24 * 8)
    later.vacuum(0, False, False)
    later.maintenance.expire(24, False)
    later.maintenance.empty_trash()
    assert opened(store).count() == before + min(more.num_columns, 1)
    return Counter(kind for info in store.list_tree("") if (kind := _kind(info.name)))


_OF_THE_LOG = re.compile(r"_delta_log/(_last_checkpoint|\d{20}\..*)")


def _kind(path: str) -> str:
    """Return the folder and the form of a file that something must refer to."""
    folder, _, name = path.rpartition("/")
    if _OF_THE_LOG.fullmatch(path):
        return ""
    return f"{folder}/hidden" if name[0] == "." else f"{folder}/*.{name.rpartition('.')[2]}"


def model_of(case: Case, store: MemoryStore) -> Model:
    """Run a case without a fault."""
    case.make(context_of(store))
    files = files_below(store)
    before = None if case.new else state_of(opened(store))
    counted = CrashingStore(store)
    handle = handle_of(case, counted)
    opening = len(counted.calls)
    run(case, counted, handle)
    table = opened(store)
    after, version = state_of(table), table.version
    assert version == version_in(files) + case.commits
    case.holds(store)
    if case.retries:
        assert after[6] == TXN[1]
    left = finish(case, store)
    clear(store)
    between = []
    if case.between is not None:
        fill(store, files)
        case.between(context_of(store, case.hours), handle_of(case, store))
        between.append(state_of(opened(store)))
        clear(store)
    return Model(case, files, counted.calls[opening:], before, after, between, version, left)


def version_in(files: Files) -> int:
    """Return the version of a table; -1 if there is none."""
    commits = (key for key in files if key.startswith("/_delta_log/0"))
    return max((int(key.rpartition("/")[2][:20]) for key in commits), default=-1)


def check(model: Model, point: CrashPoint, store: MemoryStore) -> None:
    """Break a case off at a point, and look at what is left; then do it again, and look."""
    case = model.case
    fill(store, model.files)
    broken = CrashingStore(store)
    handle = handle_of(case, broken)
    broken.calls.clear()
    broken.point = point
    failure: BaseException | None = None
    try:
        run(case, broken, handle)
    except (TxlogError, MemoryError, KeyboardInterrupt, Crash) as error:
        failure = error
    crashed = broken.crashed
    broken.point = None
    table = opened(store) if txlog.Table.exists(store.root) else None
    state = None if table is None else state_of(table)
    assert state in (model.before, model.after, *model.between)
    if failure is None:  # What fails after the first commit is a warning.
        assert state in (model.after, *model.between)
    elif _tells_outcome(failure) and case.commits == 1 and not case.new:
        assert state == model.before or isinstance(failure, OutcomeUnknownError)
    again = store if crashed else broken  # The handle of a process that is gone is gone.
    run(case, again, handle_of(case, store) if crashed else handle)
    done = opened(store)
    assert state_of(done) == model.after
    if case.commits == 1:
        assert done.version - model.version in (0, case.gives_up)
    case.holds(store)
    assert finish(case, store) <= model.left
    clear(store)


def _tells_outcome(failure: BaseException) -> bool:
    """Return whether the error tells if the verb committed; a memory error does not."""
    return isinstance(failure, TxlogError) and not isinstance(failure, MemoryError)


def check_all(name: str, store: MemoryStore, kinds: Container[str] = KINDS) -> int:
    """Check each point of a case; return how many there are."""
    case = CASES[name]
    model = model_of(case, store)
    points = [point for point in crash_points(model.calls) if point.kind in kinds]
    failed = []
    for point in points:
        try:
            check(model, point, store)
        except BaseException as error:
            failed.append((point, model.calls[point.step - 1], repr(error)[:300]))
            clear(store)
    assert failed == []
    return len(points)


@pytest.mark.slow
@pytest.mark.spec("GUA-4", "GUA-5", "GUA-10")
@pytest.mark.parametrize("name", QUICK)
def test_a_verb_may_end_at_any_step(name: str, store: MemoryStore) -> None:
    assert check_all(name, store, ("half", "after", "lost_answer", "interrupt")) > 10


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-4", "GUA-5", "GUA-10")
@pytest.mark.parametrize("name", CASES)
def test_every_verb_may_end_at_any_step(name: str, store: MemoryStore) -> None:
    assert check_all(name, store) > 7


def test_every_verb_has_a_case() -> None:
    """A new `Operation` needs one."""
    covered = {kind for case in CASES.values() for kind in case.covers}
    assert [kind.__name__ for kind in operations() if kind not in covered] == []
