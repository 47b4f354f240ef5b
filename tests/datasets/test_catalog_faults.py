"""Catalogs that stop at any step, and two in all orders: nothing is lost or doubled."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.datasets.homes import Ticking, catalog_in, rows_of, texts
from txlog.datasets import Catalog, InlineRunner
from txlog.errors import NotFoundError, OutcomeUnknownError, TxlogError
from txlog.store.base import Store
from txlog.store.memory import MemoryStore
from txlog.testing import Crash, CrashingStore, CrashPoint, crash_points
from txlog.testing.schedules import Actor, History, all_schedules, play, some_schedule

Files = Mapping[str, bytes]


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    made = MemoryStore(f"memory://{uuid.uuid4()}")
    yield made
    clear(made)


def clear(store: MemoryStore) -> None:
    files = MemoryFileSystem()
    if files.exists(store.root):
        files.rm(store.root, recursive=True)


def files_in(store: Store) -> dict[str, bytes]:
    return {file.name: store.read(file.name) for file in store.list_tree("")}


def fill(store: MemoryStore, files: Files) -> None:
    clear(store)
    for name, data in files.items():
        store.write_new(name, data)


def seen(catalog: Catalog) -> list[Any]:
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


def create(catalog: Catalog) -> None:
    catalog.create("new", "TABLE", rows_of("ab"), txn=("job", 1))


def update(catalog: Catalog) -> None:
    catalog.dataset("t").update(rows_of("new"), "new", txn=("job", 1))


def prepare(catalog: Catalog) -> None:
    catalog.dataset("t").prepare()


def hide(catalog: Catalog) -> None:
    catalog.dataset("t").hide(1)


def purge_commit(catalog: Catalog) -> None:
    catalog.dataset("t").purge(2, confirm="t")


def purge_dataset(catalog: Catalog) -> None:
    try:
        catalog.dataset("t").purge(confirm="t")
    except NotFoundError:  # By its name it is not found any more.
        catalog.sweep()


VERBS: dict[str, Callable[[Catalog], None]] = {
    one.__name__: one for one in (create, update, prepare, hide, purge_commit, purge_dataset)
}


def begin(store: Store) -> None:
    catalog = catalog_in(store)
    ds = catalog.create("t", "TABLE", rows_of("xy"))
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
    begin(store)
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
    catalog = catalog_in(store, 3, effects=Later(3) if verb == "prepare" else None)
    if verb == "prepare":
        catalog.sweep()
    VERBS[verb](catalog)


def chosen(calls: list[tuple[str, str]], every: int) -> list[CrashPoint]:
    return crash_points(calls)[::every]


@pytest.mark.spec("DST-2", "DST-6", "DST-23", "DST-25")
@pytest.mark.parametrize("verb", list(VERBS))
def test_a_verb_that_breaks_off_has_its_effect_or_none(store: MemoryStore, verb: str) -> None:
    model = model_of(store, verb)
    assert model.before != model.after
    for point in chosen(model.calls, 97):
        break_off(store, model, verb, point)


@pytest.mark.exhaustive
@pytest.mark.parametrize("verb", list(VERBS))
def test_a_verb_breaks_off_at_every_step(store: MemoryStore, verb: str) -> None:
    model = model_of(store, verb)
    for point in crash_points(model.calls):
        break_off(store, model, verb, point)


# Interleavings -----------------------------------------------------------------------------------


def actor(number: int, verb: Callable[[Catalog], Any]) -> Actor:
    def act(store: Store) -> Any:
        try:
            return verb(catalog_in(store, number + 1))
        except OutcomeUnknownError:
            return verb(catalog_in(store, number + 1))  # With its `txn`, once more.

    return act


def made(name: str) -> Callable[[Catalog], Any]:
    return lambda catalog: catalog.create(name, "TABLE", rows_of(name)).dataset_id


def added(text: str, txn: tuple[str, int] | None = None) -> Callable[[Catalog], Any]:
    return lambda catalog: catalog.dataset("t").update(rows_of(text), text, txn=txn).commit_id


PAIRS: dict[str, tuple[Callable[[Catalog], Any], Callable[[Catalog], Any]]] = {
    "two names": (made("a"), made("b")),
    "one name": (made("a"), made("a")),
    "two updates": (added("one"), added("two")),
    "one update twice": (added("one", ("job", 1)), added("one", ("job", 1))),
    "update and purge": (added("one"), lambda catalog: purge_commit(catalog)),
    "update and delete": (added("one"), lambda catalog: catalog.dataset("t").delete()),
    "two prepare": (prepare, prepare),
}


def check(name: str, store: MemoryStore, history: History) -> None:
    """Hold what is there to what two catalogs one after the other may leave."""
    results = [history.results[number] for number in (0, 1)]
    state = {one[0]: one for one in seen(catalog_in(store, 9))}
    errors = [one for one in results if isinstance(one, BaseException)]
    assert all(isinstance(one, TxlogError) for one in errors), (results, str(history))
    commits = [message for message, _, _ in state["t"][2]]
    match name:
        case "two names":
            assert sorted(results) == [2, 3]
            assert set(state) == {"t", "a", "b"}
        case "one name":
            assert len(errors) == 1
            assert set(state) == {"t", "a"}
        case "two updates":
            assert sorted(results) == [3, 4]
            assert sorted(commits[2:]) == ["one", "two"]
        case "one update twice":
            assert results == [3, 3]
            assert commits[2:] == ["one"]
        case "update and purge":
            assert results == [3, None]
            assert [rows for _, _, rows in state["t"][2]] == ["xy", None, "one"]
        case "update and delete":
            assert len(errors) <= 1
            assert commits[2:] == ([] if errors else ["one"])
            assert state["t"][1]
        case "two prepare":
            assert not errors
            sets = [one for one in state["t"][3] if one[0] == (1, 2)]
            assert sets == [((1, 2), "READY")]
    folders = {file.name.partition("/")[0] for file in store.list_tree("data")}
    assert len(folders) == len(state)  # A lost race leaves no table.


@pytest.mark.spec("DST-3", "DST-5", "DST-21", "DST-23")
@pytest.mark.parametrize("name", list(PAIRS))
def test_two_catalogs_at_once(store: MemoryStore, name: str) -> None:
    begin(store)
    files = files_in(store)
    actors = [actor(number, verb) for number, verb in enumerate(PAIRS[name])]
    for seed in range(2):
        fill(store, files)
        history = play(store, actors, some_schedule(seed))
        check(name, store, history)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", list(PAIRS))
def test_two_catalogs_in_many_orders(store: MemoryStore, name: str) -> None:
    begin(store)
    files = files_in(store)
    actors = [actor(number, verb) for number, verb in enumerate(PAIRS[name])]

    def play_one(choose: Any) -> History:
        fill(store, files)
        return play(store, actors, choose)

    count = 0
    for history in islice(all_schedules(play_one), 120):
        check(name, store, history)
        count += 1
    assert count >= 4  # Others differ only in the order of steps that do not touch each other.


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["one update twice", "two prepare"])
def test_two_catalogs_whose_answers_are_lost(store: MemoryStore, name: str) -> None:
    begin(store)
    files = files_in(store)
    actors = [actor(number, verb) for number, verb in enumerate(PAIRS[name])]
    for seed in range(300):
        fill(store, files)
        check(name, store, play(store, actors, some_schedule(seed, losses=0.05)))


# Killed processes --------------------------------------------------------------------------------

WORKER = """
import itertools, random, sys
from tests.datasets.homes import rows_of
from txlog.datasets import Catalog, InlineRunner
from txlog.errors import TxlogError
root, name, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
chance = random.Random(seed)
catalog = Catalog(root, runner=InlineRunner())
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
            case _: ds.update(rows_of("abc"), f"{name}-{seed}-{step}", txn=(f"{name}-{seed}", step))
    except TxlogError as error:
        print(type(error).__name__, error, file=sys.stderr)
"""


@pytest.mark.exhaustive
def test_processes_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    Catalog(root).create("t", "TABLE", rows_of("ab"))
    log = (tmp_path / "errors").open("w")

    def start(name: str, seed: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", WORKER, str(root), name, str(seed)]
        return subprocess.Popen(command, stderr=log)

    running = {name: start(name, 0) for name in ("a", "b", "c")}
    for number in range(24):
        time.sleep(2 + 0.13 * (number % 5))
        name = "abc"[number % 3]
        running[name].kill()
        running[name].wait()
        running[name] = start(name, number + 1)
    for one in running.values():
        one.kill()
        one.wait()
    log.close()
    refused = {line.partition(" ")[0] for line in (tmp_path / "errors").read_text().splitlines()}
    catalog = Catalog(root, runner=InlineRunner())
    catalog.sweep()
    ds = catalog.dataset("t")
    commits = ds.commits()
    assert len(commits) > 20
    assert [one.commit_id for one in commits] == list(range(1, len(commits) + 1))
    messages = [one.message for one in commits]
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
