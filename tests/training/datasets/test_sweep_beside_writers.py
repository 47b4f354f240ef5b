"""A create or an update beside a sweep or a purge, in all orders of their steps.

To the sweep every file is older than a day, also those that were just written, as if the other
process had stopped for so long. So only the ledger and the tables protect them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from tests.training.datasets.homes import Ticking, catalog_in, files_in, fill, rows_of
from txlog.base.errors import DataFileError, LogCorruptError, TxlogError
from txlog.store.base import ObjectInfo, Store
from txlog.store.local.local import LocalStore
from txlog.store.memory import MemoryStore
from txlog.testing.faults import Crash, CrashingStore, CrashPoint, FaultyStore, crash_points
from txlog.testing.schedules import (
    Actor,
    Choice,
    Choose,
    Enabled,
    History,
    all_schedules,
    play,
    some_schedule,
)
from txlog.training import Datasets
from txlog.training.datasets.aside import ASIDE
from txlog.training.datasets.ingest import StoredObjects
from txlog.training.datasets.limits import Limits
from txlog.training.datasets.objects import CLEARED

DAY_MS = 24 * 3600_000
LIMITS = Limits(row_bytes=4)
LEFT = b"left by a refused update"
SHARED = b"of a commit that is purged"
OLD = b"used by another data set"


class DaysLater(Ticking):
    """A clock that is days ahead: twice as many as its actor's number."""

    def now_ms(self) -> int:
        return super().now_ms() + 2 * self.actor * DAY_MS


class OldFiles(FaultyStore):
    """A store that lists every file as an old one, except for what may be of a living remover."""

    young = ASIDE

    def list_tree(self, folder: str) -> Iterator[ObjectInfo]:
        for file in super().list_tree(folder):
            if not f"{folder}/{file.name}".startswith(self.young):
                file = file._replace(modified_ms=file.modified_ms - 100 * DAY_MS)
            yield file


class DeadProcesses(OldFiles):
    """The same, a day after all other processes have stopped."""

    young = "no such folder"


def files(*contents: bytes) -> pa.Table:
    return pa.table({"name": [f"f{n}" for n in range(len(contents))], "content": list(contents)})


def begin(store: Store) -> None:
    catalog = catalog_in(store, limits=LIMITS)
    ds = catalog.create("t", "GENERIC", files(OLD))
    ds.update(files(SHARED), "second")
    StoredObjects(store).put(LEFT)


def create(source: pa.Table, catalog: Datasets) -> Any:
    kind = "TABLE" if "label" in source.schema.names else "GENERIC"
    return catalog.create("new", kind, source).dataset_id


def update(source: pa.Table, catalog: Datasets) -> Any:
    return catalog.dataset("t").update(source).commit_id


def writes(verb: Callable[[Datasets], Any]) -> Actor:
    return lambda store: verb(catalog_in(store, 1, limits=LIMITS))


def sweeps(store: Store, actor: int = 2) -> None:
    catalog_in(OldFiles(store), actor, effects=DaysLater(actor), limits=LIMITS).sweep()


def purges(store: Store) -> None:
    catalog_in(store, 2, limits=LIMITS).dataset("t").purge(2, confirm="t")


OF_COMMIT = "update of a content of a commit"
VERBS: dict[str, Callable[[Datasets], Any]] = {
    "create of new rows": partial(create, rows_of("ab")),
    "create of a new content": partial(create, files(b"another content")),
    "create of a content that is left": partial(create, files(LEFT)),
    "create of a content that is used": partial(create, files(OLD)),
    "create of a content of a commit": partial(create, files(SHARED)),
    "update of a new content": partial(update, files(b"another content")),
    "update of a content that is left": partial(update, files(LEFT)),
    OF_COMMIT: partial(update, files(SHARED)),
}


def check(store: MemoryStore, name: str, history: History) -> None:
    assert history.results == {0: 2 if "create" in name else 3, 1: None}, history.results
    require_whole(store, 2 if "create" in name else 1)


def require_whole(store: MemoryStore, count: int) -> None:
    """Nothing is lost, and after one more sweep there is nothing more than what is in use."""
    used_in(store)
    catalog_in(DeadProcesses(store), 8, effects=DaysLater(8), limits=LIMITS).sweep()
    used, catalog = used_in(store), catalog_in(store, 9, limits=LIMITS)
    assert {f"files/{file.name}" for file in store.list_tree("files")} == used
    tables = {file.name.partition("/")[0] for file in store.list_tree("data")}
    assert len(tables) == len(catalog.list()) == count


def used_in(store: MemoryStore) -> set[str]:
    """Verify all commits, and return the objects in use."""
    catalog, used = catalog_in(store, 9, limits=LIMITS), set[str]()
    for summary in catalog.list(deleted=True):
        ds = catalog.dataset(summary.uuid)
        assert len(ds.verify()) == sum(not one.purged for one in summary.commits)
        if summary.type == "GENERIC":
            used |= {*ds.table().to_arrow()["uri"].to_pylist()}
    return used


OTHERS: dict[str, Actor] = {"sweep": sweeps, "purge": purges}


def run(store: MemoryStore, name: str, other: str) -> int:
    """Play all orders; return how many there are."""
    begin(store)
    held = files_in(store)
    actors = [writes(VERBS[name]), OTHERS[other]]

    def play_one(choose: Choose) -> History:
        fill(store, held)
        return play(store, actors, choose)

    count = 0
    for history in all_schedules(play_one):
        count += 1
        check_one(store, name, history)
    return count


def check_one(store: MemoryStore, name: str, history: History) -> None:
    try:
        check(store, name, history)
    except BaseException as error:
        error.add_note(f"{name}; replay: {history}; {history.results}")
        raise


class Stops:
    """The choices of a schedule: an actor stops before a step, until the others are done."""

    def __init__(self, actor: int, operation: str, path: str) -> None:
        self.actor, self.operation, self.path = actor, operation, path
        self.has_stopped = False

    def __call__(self, enabled: Enabled) -> Choice:
        step = enabled.get(self.actor)
        if step is not None and step.operation == self.operation and self.path in step.path:
            self.has_stopped = True
        others = [actor for actor in sorted(enabled) if actor != self.actor]
        is_next = step is not None and not (self.has_stopped and others)
        return Choice(self.actor if is_next else others[0])


OBJECT = f"files/{sha256(LEFT).hexdigest()[:2]}/"
OBJECT_OF_COMMIT = f"files/{sha256(SHARED).hexdigest()[:2]}/"
CLEARING = "ledger/_delta_log/00000000000000000003.json"


@pytest.mark.slow
@pytest.mark.spec("DST-28", "DST-29")
@pytest.mark.parametrize(
    ("name", "actor", "operation", "path"),
    [
        ("create of new rows", 0, "put_if_absent", "ledger/"),
        ("create of a content that is left", 0, "put_if_absent", "ledger/"),
        ("create of a content that is left", 1, "delete", OBJECT),
        ("update of a content that is left", 0, "put_if_absent", "data/"),
        ("update of a content that is left", 1, "delete", OBJECT),
        ("update of a content that is left", 1, "put_if_absent", CLEARING),
        ("update of a content that is left", 1, "delete", ASIDE),
    ],
)
def test_one_stops_while_the_other_is_done(
    store: MemoryStore, name: str, actor: int, operation: str, path: str
) -> None:
    begin(store)
    choose = Stops(actor, operation, path)
    history = play(store, [writes(VERBS[name]), sweeps], choose)
    assert choose.has_stopped
    if path == CLEARING:
        assert b"cleared" in b"".join(of_event(store, path))
    check_one(store, name, history)


def of_event(store: Store, log: str) -> Iterator[bytes]:
    """Yield the files of an event."""
    for line in store.read(log).splitlines():
        if add := orjson.loads(line).get("add"):
            yield store.read(f"ledger/{add['path']}")


THREE: dict[str, tuple[Actor, Actor, Actor]] = {
    "sweep, update, purge": (partial(sweeps, actor=3), writes(VERBS[OF_COMMIT]), purges),
    "update, sweep, purge": (writes(VERBS[OF_COMMIT]), partial(sweeps, actor=3), purges),
    "purge, update, sweep": (purges, writes(VERBS[OF_COMMIT]), partial(sweeps, actor=3)),
}


@pytest.mark.spec("DST-29")
@pytest.mark.parametrize("names", ["sweep, update, purge", "update, sweep, purge"])
def test_one_stops_between_its_copy_and_its_deletion_until_two_others_are_done(
    store: MemoryStore, names: str
) -> None:
    """The update finds the content in place and commits; then it is deleted."""
    begin(store)
    choose = Stops(2, "delete", OBJECT_OF_COMMIT)
    history = play(store, THREE[names], choose)
    assert choose.has_stopped
    assert sorted(map(str, history.results.values())) == ["3", "None", "None"], history.results
    require_whole(store, 1)


@pytest.mark.exhaustive
@pytest.mark.spec("DST-29")
@pytest.mark.parametrize("names", THREE)
def test_three_in_many_orders(store: MemoryStore, names: str) -> None:
    begin(store)
    held = files_in(store)
    for seed in range(100):
        fill(store, held)
        history = play(store, THREE[names], some_schedule(seed))
        assert sorted(map(str, history.results.values())) == ["3", "None", "None"], (seed, history)
        require_whole(store, 1)


def begin_two(store: Store) -> str:
    """Make two data sets, and return the folder of the second one's table."""
    catalog = catalog_in(store, limits=LIMITS)
    catalog.create("a", "GENERIC", files(b"only of a"))
    return f"data/{catalog.create('b', 'GENERIC', files(b'only of b')).uuid}"


def purge_of(name: str, actor: int) -> Actor:
    return lambda store: catalog_in(store, actor, limits=LIMITS).dataset(name).purge(confirm=name)


@pytest.mark.spec("DST-29")
@pytest.mark.parametrize("operation", ["read", "list_after", "open_input"])
def test_two_purges_at_once(store: MemoryStore, operation: str) -> None:
    """One of them stops while it reads the table that the other one removes."""
    choose = Stops(0, operation, begin_two(store))
    history = play(store, [purge_of("a", 1), purge_of("b", 2)], choose)
    assert choose.has_stopped
    assert history.results == {0: None, 1: None}
    assert not list(store.list_tree("files"))


@pytest.mark.spec("DST-29")
def test_a_purge_beside_a_damaged_data_set_names_it(store: MemoryStore) -> None:
    folder = begin_two(store)
    log = f"{folder}/_delta_log/{0:020}.json"
    text = store.read(log)
    store.replace(log, text[:-20])
    with pytest.raises(DataFileError, match=r"the data set 'b' \(2\) is damaged"):
        purge_of("a", 1)(store)
    assert len(list(store.list_tree("files"))) == 2
    store.replace(log, text)
    catalog_in(store, 2, limits=LIMITS).sweep()  # It finishes the purge.
    assert len(list(store.list_tree("files"))) == 1


@pytest.mark.spec("DST-29")
def test_a_table_may_have_a_higher_number_than_the_ledger(store: MemoryStore) -> None:
    """The ledger was restored from a backup; a number that is none is an error."""
    begin(store)
    catalog = catalog_in(store, limits=LIMITS)
    ds = catalog.dataset("t")
    ds.table().alter.set_properties({CLEARED: "7"})
    assert ds.update(files(LEFT)).commit_id == 3
    assert len(ds.verify()) == 3
    log = f"data/{ds.uuid}/_delta_log/{ds.table().version - 1:020}.json"
    changed = store.read(log).replace(b'"7"', b'"many"')
    store.replace(log, changed.replace(b"txlogCrc32", b"anotherCrc"))
    with pytest.raises(LogCorruptError, match="'many'"):
        update(files(b"another content"), catalog_in(store, 1, limits=LIMITS))


@pytest.mark.spec("DST-29")
def test_a_file_that_vanishes_while_it_is_moved_is_skipped() -> None:
    inner = MemoryStore(f"memory://{uuid.uuid4()}")
    inner.write_new("a", b"x")
    gone = {("open_input", 1): lambda: inner.delete(["a"])}
    FaultyStore(inner, before=gone).move([("a", "b"), ("c", "d")])
    assert not list(inner.list_tree(""))


@pytest.mark.spec("DST-29")
def test_no_content_is_lost_on_a_local_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A purge stops between its copy and its deletion, until a sweep and an update are done."""
    catalog = Datasets(tmp_path / "root", limits=LIMITS)
    ds, other = (catalog.create(n, "GENERIC", files(n.encode() * 9)) for n in "ab")
    path = ds.table().to_arrow()["uri"][0].as_py()
    delete, deleted = LocalStore.delete, list[str]()

    def slow(local: LocalStore, paths: Sequence[str]) -> None:
        if path in paths and not deleted:
            deleted.append(path)
            catalog.sweep()
            other.update(files(b"a" * 9))
        delete(local, paths)

    monkeypatch.setattr(LocalStore, "delete", slow)
    ds.purge(confirm="a")
    assert deleted
    assert len(other.verify()) == 2
    assert not list((tmp_path / "root" / ASIDE).iterdir())


@pytest.mark.exhaustive
@pytest.mark.spec("DST-28", "DST-29")
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", VERBS)
def test_a_writer_beside_a_sweep_or_a_purge_in_all_orders(
    store: MemoryStore, name: str, other: str
) -> None:
    assert run(store, name, other) > 10


HALF_A_COPY = ("open_output", "half")


def is_of_removal(call: tuple[str, str]) -> bool:
    """Whether a call sets an object aside, puts it back or deletes it."""
    operation, path = call
    return operation in ("open_output", "delete") and "files/" in path and ".staged" not in path


def of_removals(calls: list[tuple[str, str]]) -> list[CrashPoint]:
    """Return the points after each such call, and in the middle of a copy."""
    return [
        point
        for point in crash_points(calls)
        if is_of_removal(calls[point.step - 1])
        and (point.kind == "after" or (calls[point.step - 1][0], point.kind) == HALF_A_COPY)
    ]


def break_off(
    store: MemoryStore, other: str, chosen: Callable[[list[tuple[str, str]]], list[CrashPoint]]
) -> int:
    """Let a sweep or a purge break off, and do it again: at each call, or where it removes."""
    begin(store)
    held = files_in(store)
    counting = CrashingStore(store)
    OTHERS[other](counting)
    points = chosen(counting.calls)
    for point in points:
        fill(store, held)
        crashing = CrashingStore(store, point)
        with suppress(Crash, KeyboardInterrupt, MemoryError, TxlogError):
            OTHERS[other](crashing)
        assert len(crashing.calls) >= point.step
        if other == "purge":
            catalog_in(store, 3, limits=LIMITS).dataset("t").purge(2, confirm="t")
        require_whole(store, 1)
    return len(points)


@pytest.mark.slow
@pytest.mark.spec("DST-28", "DST-29")
@pytest.mark.parametrize("other", OTHERS)
def test_what_breaks_off_is_finished_by_the_next_one(store: MemoryStore, other: str) -> None:
    assert break_off(store, other, of_removals) > 3


@pytest.mark.exhaustive
@pytest.mark.parametrize("other", OTHERS)
def test_what_breaks_off_at_any_step_is_finished(store: MemoryStore, other: str) -> None:
    assert break_off(store, other, crash_points) > 200
