"""Catalogs that stop at any step, and two in all orders: nothing is lost or doubled."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.training.datasets.homes import (
    Files,
    Ticking,
    catalog_in,
    clear,
    files_in,
    fill,
    rows_of,
    texts,
)
from txlog.base.errors import NotFoundError, OutcomeUnknownError, StoreError, TxlogError
from txlog.store.base import Store
from txlog.store.memory import MemoryStore
from txlog.testing import Crash, CrashingStore, CrashPoint, crash_points
from txlog.testing.faults import Fault, FaultyStore
from txlog.testing.schedules import Actor, Choose, History, all_schedules, play, some_schedule
from txlog.training import Datasets, InlineRunner
from txlog.training.datasets.program import Program


def seen(catalog: Datasets) -> list[Any]:
    """Return all that users see of a catalog, and check that every row is as it was committed."""
    told = []
    for summary in catalog.list(deleted=True):
        ds = catalog.dataset(summary.uuid)
        commits = []
        for one in summary.commits:
            rows = None
            if not one.purged:
                ds.verify(one.commit_id)
                rows = texts(ds.table().to_arrow(where=f"commit_id = {one.commit_id}"))
            commits.append((one.message, one.hidden, rows))
        sets = [(one.picked, one.state) for one in ds.training_sets()]
        told.append((summary.name, summary.deleted, commits, sets))
    assert [one.dataset_id for one in catalog.list()] == sorted(
        one.dataset_id for one in catalog.list()
    )
    return told


# Crash points ------------------------------------------------------------------------------------


def create(catalog: Datasets) -> None:
    catalog.create("new", "TABLE", rows_of("ab"), txn=("job", 1))


def update(catalog: Datasets) -> None:
    catalog.dataset("t").update(rows_of("new"), "new", txn=("job", 1))


def prepare(catalog: Datasets) -> None:
    catalog.dataset("t").prepare()


def hide(catalog: Datasets) -> None:
    catalog.dataset("t").hide(1)


def purge_commit(catalog: Datasets) -> None:
    catalog.dataset("t").purge(2, confirm="t")


def purge_dataset(catalog: Datasets) -> None:
    try:
        catalog.dataset("t").purge(confirm="t")
    except NotFoundError:  # By its name it is not found any more.
        catalog.sweep()


def run_steps(catalog: Datasets) -> None:
    for run in catalog.run_steps():
        if run.error is not None:  # An error of the store is one of the run.
            raise StoreError(operation="run", path=run.step, reason=run.error.text)


def run_first_step(catalog: Datasets) -> None:
    run_steps(catalog)


VERBS: dict[str, Callable[[Datasets], None]] = {
    one.__name__: one
    for one in (
        create, update, prepare, hide, purge_commit, purge_dataset, run_steps, run_first_step,
    )
}  # fmt: skip
LEASED = ("prepare", "run_steps", "run_first_step")  # A dead worker's lease ends before a retry.


@pytest.fixture(autouse=True)
def _programs_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of a step doubles the rows; it is no process."""

    def twice(_: Program, rows: pa.RecordBatchReader, facts: Any) -> pa.RecordBatchReader:
        table = rows.read_all()
        return pa.concat_tables([table, table]).to_reader()

    monkeypatch.setattr(Program, "run", twice)


def begin(store: Store, verb: str = "") -> None:
    catalog = catalog_in(store)
    ds = catalog.create("t", "TABLE", rows_of("xy"))
    if verb in ("run_steps", "run_first_step"):
        catalog.on_commit("t", run="twice.py", into="doubled")
    if verb == "run_first_step":
        return
    catalog.run_steps()
    ds.update(rows_of("z"), "second", {"for": "training"})
    ds.prepare(tags={"for": "training"})


@dataclass(frozen=True)
class Model:
    """What a verb does when nothing fails."""

    files: Files
    calls: list[tuple[str, str]]
    before: list[Any]
    after: list[Any]
    left: int  # How many files of rows and parts there are in the end, leftovers apart.


def model_of(store: MemoryStore, verb: str) -> Model:
    clear(store)
    begin(store, verb)
    files, before = files_in(store), seen(catalog_in(store))
    counting = CrashingStore(store)
    VERBS[verb](catalog_in(counting, 1))
    return Model(files, counting.calls, before, seen(catalog_in(store)), len(parquet_in(store)))


def parquet_in(store: Store) -> list[str]:
    names = (file.name for file in store.list_tree(""))
    return [n for n in names if n.endswith(".parquet") and n.startswith(("data/", "sets/"))]


def break_off(store: MemoryStore, model: Model, verb: str, point: CrashPoint) -> None:
    fill(store, model.files)
    faulty = CrashingStore(store, point)
    done = False
    try:
        VERBS[verb](catalog_in(faulty, 1))
        done = True
    except (Crash, KeyboardInterrupt, MemoryError, TxlogError):
        pass
    state = seen(catalog_in(store, 2))
    if verb == "prepare":  # Between asking and making it is RUNNING.
        state = [(*one[:3], [s for s in one[3] if s[1] != "RUNNING"]) for one in state]
    assert state in (model.before, model.after), point
    if done:
        assert state == model.after, point
    finish(store, verb)
    assert seen(catalog_in(store, 4)) == model.after, point
    if verb.startswith("purge"):
        assert len(parquet_in(store)) == model.left, point
        catalog_in(store, 5).dataset(1).verify() if verb == "purge_commit" else None


class Later(Ticking):
    """A clock an hour ahead: leases are over."""

    def now_ms(self) -> int:
        return super().now_ms() + 3_600_000


def finish(store: Store, verb: str) -> None:
    """Do the verb again, as a user does after a call without an answer."""
    catalog = catalog_in(store, 3, effects=Later(3) if verb in LEASED else None)
    if verb == "prepare":
        catalog.sweep()
    VERBS[verb](catalog)


def chosen(calls: list[tuple[str, str]], every: int) -> list[CrashPoint]:
    return crash_points(calls)[::every]


@pytest.mark.slow
@pytest.mark.spec("DST-2", "DST-6", "DST-23", "DST-25", "DST-72")
@pytest.mark.parametrize("verb", list(VERBS))
def test_a_verb_that_breaks_off_has_its_effect_or_none(store: MemoryStore, verb: str) -> None:
    model = model_of(store, verb)
    assert model.before != model.after
    for point in chosen(model.calls, 97):
        break_off(store, model, verb, point)


def test_a_data_set_stays_if_memory_runs_out_after_its_event(store: MemoryStore) -> None:
    model = model_of(store, "create")
    event = max(n for n, (call, _) in enumerate(model.calls, 1) if call == "put_if_absent")
    points = [one for one in crash_points(model.calls) if one.kind == "no_memory"]
    after = [one for one in points if one.step > event]
    assert len(after) >= 3
    for point in after:
        break_off(store, model, "create", point)


class Outage(FaultyStore):
    """A store that loses the answer of a put, and then reads nothing."""

    def __init__(self, inner: Store, put: int) -> None:
        super().__init__(inner, [Fault("put_if_absent", put, "lost_answer")])
        self._put = put

    @contextmanager
    def _call(self, operation: str, path: str) -> Iterator[Any]:
        is_out = self._counts["put_if_absent"] >= self._put
        if is_out and operation in ("read", "open_input", "info", "list_after"):
            raise StoreError(path=path, operation=operation, reason="no connection")
        with super()._call(operation, path) as kind:
            yield kind


def test_a_data_set_stays_if_the_answer_is_lost_and_nothing_can_be_read(store: MemoryStore) -> None:
    model = model_of(store, "create")
    puts = sum(call == "put_if_absent" for call, _ in model.calls)
    fill(store, model.files)
    with pytest.raises(OutcomeUnknownError):
        create(catalog_in(Outage(store, puts), 1))
    assert seen(catalog_in(store, 2)) == model.after
    create(catalog_in(store, 3))
    assert seen(catalog_in(store, 4)) == model.after


class Late(FaultyStore):
    """A store whose put appears only after some reads; one of these reads fails."""

    def __init__(self, inner: Store, put: int, failing: int) -> None:
        super().__init__(inner)
        self._target, self._put, self._failing = inner, put, failing
        self._late: tuple[str, bytes] | None = None
        self._reads = 0

    def put_if_absent(self, path: str, data: bytes) -> Any:
        if self._counts["put_if_absent"] + 1 < self._put or "ledger" not in path:
            return super().put_if_absent(path, data)
        self._counts["put_if_absent"] += 1
        self._late = (path, data)
        raise OutcomeUnknownError(path=path, reason="no answer")

    @contextmanager
    def _call(self, operation: str, path: str) -> Iterator[Any]:
        if self._late is not None and operation in ("read", "info", "list_after"):
            self._reads += 1
            if self._reads == self._failing:
                raise StoreError(path=path, operation=operation, reason="no connection")
        with super()._call(operation, path) as kind:
            yield kind

    def arrive(self) -> None:
        assert self._late is not None
        self._target.put_if_absent(*self._late)


@pytest.mark.slow
@pytest.mark.parametrize("failing", range(1, 12))
def test_a_data_set_stays_if_its_event_arrives_late(store: MemoryStore, failing: int) -> None:
    model = model_of(store, "create")
    puts = sum(call == "put_if_absent" for call, _ in model.calls)
    fill(store, model.files)
    late = Late(store, puts, failing)
    with pytest.raises(OutcomeUnknownError):
        create(catalog_in(late, 1))
    late.arrive()
    assert seen(catalog_in(store, 2)) == model.after


@pytest.mark.exhaustive
@pytest.mark.parametrize("verb", list(VERBS))
def test_a_verb_breaks_off_at_every_step(store: MemoryStore, verb: str) -> None:
    model = model_of(store, verb)
    for point in crash_points(model.calls):
        break_off(store, model, verb, point)


# Interleavings -----------------------------------------------------------------------------------


def actor(number: int, verb: Callable[[Datasets], Any]) -> Actor:
    def act(store: Store) -> Any:
        try:
            return verb(catalog_in(store, number + 1))
        except OutcomeUnknownError:
            return verb(catalog_in(store, number + 1))  # With its `txn`, once more.

    return act


def made(name: str) -> Callable[[Datasets], Any]:
    return lambda catalog: catalog.create(name, "TABLE", rows_of(name)).dataset_id


def added(text: str, txn: tuple[str, int] | None = None) -> Callable[[Datasets], Any]:
    return lambda catalog: catalog.dataset("t").update(rows_of(text), text, txn=txn).commit_id


def tagged(target: int) -> Callable[[Datasets], Any]:
    return lambda catalog: catalog.dataset("t").tag("golden", target)


def deleted(catalog: Datasets) -> None:
    with suppress(NotFoundError):  # It is deleted already.
        catalog.dataset("t").delete()


def picked(catalog: Datasets) -> tuple[int, ...]:
    return catalog.dataset("t").prepare().picked


Act = Callable[[Datasets], Any]
ACTS: dict[str, tuple[Act, Act]] = {  # Each as one catalog does it, and as the other one does.
    "step": (run_steps, run_steps),
    "create": (made("a"), made("a")),
    "update": (added("one"), added("two")),
    "prepare": (picked, picked),
    "purge": (purge_commit, purge_commit),
    "tag": (tagged(1), tagged(2)),
    "hide": (hide, hide),
    "delete": (deleted, deleted),
    "create another": (made("b"), made("b")),
    "update with a txn": (added("one", ("job", 1)), added("one", ("job", 1))),
}
VERBS_OF_PAIRS = ("create", "update", "prepare", "purge", "tag", "hide", "delete")
PAIRS = [
    *((one, other) for at, one in enumerate(VERBS_OF_PAIRS) for other in VERBS_OF_PAIRS[at:]),
    ("create", "create another"),
    ("update with a txn", "update with a txn"),
    ("step", "step"),
    ("step", "hide"),
]
MANY = {("create", "prepare"), ("update", "prepare"), ("prepare", "prepare"), ("prepare", "tag"),
        ("prepare", "delete"), ("prepare", "purge"), ("purge", "purge")}  # fmt: skip
"""Pairs with too many orders: the search's first `MOST` are played, and others at random."""
MOST = 2_000
End = tuple[tuple[Any, Any], list[Any], list[str]]


def end(store: Store, results: Sequence[Any]) -> End:
    """Return the results of two catalogs, an error as its class, and what is in the store."""
    first, second = (
        type(one).__name__ if isinstance(one, BaseException) else one for one in results
    )
    state = seen(catalog_in(store, 9))
    names = [file.name for file in store.list_tree("") if not file.name.startswith("ledger/")]
    parts = sorted({name.partition("/")[0] for name in names})
    tables = {name.split("/")[1] for name in names if name.startswith("data/")}
    assert len(tables) == len(state)  # A lost race leaves no table.
    return (first, second), state, parts


def one_after_the_other(store: MemoryStore, files: Files, pair: tuple[str, str]) -> list[End]:
    """Return the ends of both orders."""
    acts = [actor(number, ACTS[name][number]) for number, name in enumerate(pair)]
    ends = []
    for order in ((0, 1), (1, 0)):
        fill(store, files)
        results: dict[int, Any] = {}
        for number in order:
            try:
                results[number] = acts[number](store)
            except TxlogError as error:
                results[number] = error
        ends.append(end(store, [results[0], results[1]]))
    if pair == ("prepare", "purge"):  # It is refused if a picked commit is purged meanwhile.
        (_, told), *left = ends[0]
        ends.append((("NotFoundError", told), *left))
    return ends


def run_pair(store: MemoryStore, pair: tuple[str, str], *, seeds: int = 0) -> int:
    """Play the orders that the search finds, up to `MOST`, and return their number.

    Parameters
    ----------
    seeds
        How many orders are played at random after them.
    """
    begin(store, "run_steps" if "step" in pair else "")
    files = files_in(store)
    allowed = one_after_the_other(store, files, pair)
    actors = [actor(number, ACTS[name][number]) for number, name in enumerate(pair)]

    def play_one(choose: Choose) -> History:
        fill(store, files)
        return play(store, actors, choose)

    count = 0
    drawn = (play_one(some_schedule(seed)) for seed in range(seeds))
    for history in chain(islice(all_schedules(play_one), MOST), drawn):
        count += 1
        found = end(store, [history.results[0], history.results[1]])
        assert found in allowed, (found, allowed, str(history))
    return count - seeds


@pytest.mark.slow
@pytest.mark.spec("DST-3", "DST-21", "DST-23")
@pytest.mark.parametrize(
    ("pair", "orders"),
    [(("create", "update"), 5), (("update", "update"), 6), (("update", "hide"), 7)],
    ids=str,
)
def test_two_catalogs_in_all_orders(store: MemoryStore, pair: tuple[str, str], orders: int) -> None:
    """Others differ only in the order of steps that do not touch each other."""
    assert orders <= run_pair(store, pair) < MOST


@pytest.mark.exhaustive
@pytest.mark.spec("DST-3", "DST-5", "DST-21", "DST-23", "DST-26")
@pytest.mark.parametrize("pair", PAIRS, ids=" | ".join)
def test_any_two_catalogs_in_all_orders(store: MemoryStore, pair: tuple[str, str]) -> None:
    if pair in MANY:
        run_pair(store, pair, seeds=200)
    else:
        assert 5 <= run_pair(store, pair) < MOST


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["update with a txn", "prepare"])
def test_two_catalogs_whose_answers_are_lost(store: MemoryStore, name: str) -> None:
    begin(store)
    files = files_in(store)
    allowed = one_after_the_other(store, files, (name, name))
    actors = [actor(number, ACTS[name][number]) for number in (0, 1)]
    lost = 0
    for seed in range(100):
        fill(store, files)
        history = play(store, actors, some_schedule(seed, losses=0.2))
        lost += any(choice.fault is not None for choice in history.choices)
        found = end(store, [history.results[0], history.results[1]])
        assert found in allowed, str(history)
    assert lost > 20


# Killed processes --------------------------------------------------------------------------------

WORKER = """
import itertools, random, sys
from tests.training.datasets.homes import rows_of
from txlog.training import Datasets, InlineRunner
from txlog.base.errors import TxlogError
root, name, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
chance = random.Random(seed)
catalog = Datasets(root, runner=InlineRunner())
for step in itertools.count():
    ds = catalog.dataset("t")
    try:
        match chance.randrange(8):
            case 0: ds.hide(chance.randint(1, len(ds.commits())))
            case 1: ds.prepare(chance.randint(1, len(ds.commits())))
            case 2: ds.table().optimize.compact()
            case 3: ds.tag("x", chance.randint(1, len(ds.commits())))
            case 4 if step % 5 == 0: catalog.create(f"{name}-{seed}-{step}", "TABLE", rows_of("a"))
            case 5 if step % 7 == 0: ds.purge(chance.randint(1, len(ds.commits())), confirm="t")
            case _:
                text = f"{name}-{seed}-{step}"
                made = ds.update(rows_of("abc"), text, txn=(f"{name}-{seed}", step))
                print(made.commit_id, text, flush=True)
    except TxlogError as error:
        print(type(error).__name__, error, file=sys.stderr)
"""


@pytest.mark.exhaustive
def test_processes_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    Datasets(root).create("t", "TABLE", rows_of("ab"))
    log = (tmp_path / "errors").open("a")
    told = tmp_path / "acknowledged"
    acknowledged = told.open("a")

    def start(name: str, seed: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", WORKER, str(root), name, str(seed)]
        return subprocess.Popen(command, stdout=acknowledged, stderr=log)

    running = {name: start(name, 0) for name in ("a", "b", "c")}
    lives = dict.fromkeys(running, 0)
    for number in range(24):
        name = "abc"[number % 3]
        begun, deadline = f" {name}-{lives[name]}-", time.monotonic() + 120
        while begun not in told.read_text():  # It has not committed anything yet.
            assert time.monotonic() < deadline, (tmp_path / "errors").read_text()
            time.sleep(0.05)
        time.sleep(0.13 * (number % 5))
        running[name].kill()
        running[name].wait()
        lives[name] = number + 1
        running[name] = start(name, lives[name])
    for one in running.values():
        one.kill()
        one.wait()
    log.close()
    acknowledged.close()
    refused = {line.partition(" ")[0] for line in (tmp_path / "errors").read_text().splitlines()}
    catalog = Datasets(root, runner=InlineRunner())
    catalog.sweep()
    ds = catalog.dataset("t")
    commits = ds.commits()
    assert len(commits) > 20
    assert [one.commit_id for one in commits] == list(range(1, len(commits) + 1))
    messages = [one.message for one in commits]
    for number, message in map(str.split, told.read_text().splitlines()):
        made = commits[int(number) - 1]
        assert made.purged or made.message == message
    assert len(set(messages)) == len(messages)  # No update is there twice.
    assert len(ds.verify()) == sum(not one.purged for one in commits)
    for summary in catalog.list():
        assert catalog.dataset(summary.uuid).verify()
    for one in ds.training_sets():
        if one.state == "READY":
            rows = sum(commit.rows for commit in one.commits)
            assert one.table().count() == rows
        assert one.state != "FAILED", one.error
    assert ds.update(rows_of("z")).commit_id == len(commits) + 1
    assert refused <= {"InvalidInputError", "NotFoundError", "CommitConflictError", "DataFileError"}
