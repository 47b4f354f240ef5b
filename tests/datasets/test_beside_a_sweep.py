"""A create or an update beside a sweep or a purge, in all orders of their steps.

To the sweep every file is older than a day, also those that were just written, as if the other
process had stopped for so long. So only the ledger and the tables protect them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pytest

from tests.datasets.homes import Ids, Ticking, catalog_in, rows_of
from tests.datasets.test_catalog_faults import clear, files_in, fill
from txlog.datasets import Catalog
from txlog.datasets.ingest import StoredObjects
from txlog.datasets.limits import Limits
from txlog.datasets.objects import ASIDE
from txlog.effects import Effects
from txlog.errors import TxlogError
from txlog.store.base import ObjectInfo, Store
from txlog.store.memory import MemoryStore
from txlog.testing.faults import Crash, CrashingStore, FaultyStore, crash_points
from txlog.testing.schedules import (
    Actor,
    Choice,
    Choose,
    Enabled,
    History,
    all_schedules,
    play,
)

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
    """A store that lists every file as an old one."""

    def list_tree(self, folder: str) -> Iterator[ObjectInfo]:
        for file in super().list_tree(folder):
            yield file._replace(modified_ms=file.modified_ms - 100 * DAY_MS)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryStore]:
    monkeypatch.setattr(Effects, "uuid", Ids.next)
    made = MemoryStore(f"memory://{uuid.uuid4()}")
    yield made
    clear(made)


def files(*contents: bytes) -> pa.Table:
    return pa.table({"name": [f"f{n}" for n in range(len(contents))], "content": list(contents)})


def begin(store: Store) -> None:
    catalog = catalog_in(store, limits=LIMITS)
    ds = catalog.create("t", "GENERIC", files(OLD))
    ds.update(files(SHARED), "second")
    StoredObjects(store).put(LEFT)


def create(source: pa.Table, catalog: Catalog) -> Any:
    kind = "TABLE" if "label" in source.schema.names else "GENERIC"
    return catalog.create("new", kind, source).dataset_id


def update(source: pa.Table, catalog: Catalog) -> Any:
    return catalog.dataset("t").update(source).commit_id


def writes(verb: Callable[[Catalog], Any]) -> Actor:
    return lambda store: verb(catalog_in(store, 1, limits=LIMITS))


def sweeps(store: Store, actor: int = 2) -> None:
    catalog_in(OldFiles(store), actor, effects=DaysLater(actor), limits=LIMITS).sweep()


def purges(store: Store) -> None:
    catalog_in(store, 2, limits=LIMITS).dataset("t").purge(2, confirm="t")


VERBS: dict[str, Callable[[Catalog], Any]] = {
    "create of new rows": partial(create, rows_of("ab")),
    "create of a new content": partial(create, files(b"another content")),
    "create of a content that is left": partial(create, files(LEFT)),
    "create of a content that is used": partial(create, files(OLD)),
    "create of a content of a commit": partial(create, files(SHARED)),
    "update of a new content": partial(update, files(b"another content")),
    "update of a content that is left": partial(update, files(LEFT)),
    "update of a content of a commit": partial(update, files(SHARED)),
}


def check(store: MemoryStore, name: str, history: History) -> None:
    assert history.results == {0: 2 if "create" in name else 3, 1: None}, history.results
    require_whole(store, 2 if "create" in name else 1)


def require_whole(store: MemoryStore, count: int) -> None:
    """Nothing is lost, and after one more sweep there is nothing more than what is in use."""
    sweeps(store, 8)
    catalog = catalog_in(store, 9, limits=LIMITS)
    used: set[str] = set()
    for summary in catalog.list(deleted=True):
        ds = catalog.dataset(summary.uuid)
        assert len(ds.verify()) == sum(not one.purged for one in summary.commits)
        if summary.type == "GENERIC":
            used |= {*ds.table().to_arrow()["uri"].to_pylist()}
    assert {f"files/{file.name}" for file in store.list_tree("files")} == used
    tables = {file.name.partition("/")[0] for file in store.list_tree("data")}
    assert len(tables) == len(catalog.list()) == count


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
    """The choices of a schedule in which an actor stops before a step, until the other is done."""

    def __init__(self, actor: int, operation: str, path: str) -> None:
        self.actor, self.operation, self.path = actor, operation, path
        self.has_stopped = False

    def __call__(self, enabled: Enabled) -> Choice:
        step = enabled.get(self.actor)
        if step is not None and step.operation == self.operation and self.path in step.path:
            self.has_stopped = True
        wanted = 1 - self.actor if self.has_stopped else self.actor
        return Choice(wanted if wanted in enabled else 1 - wanted)


OBJECT = f"files/{sha256(LEFT).hexdigest()[:2]}/"
CLEARING = "ledger/_delta_log/00000000000000000003.json"


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
    check_one(store, name, play(store, [writes(VERBS[name]), sweeps], choose))
    assert choose.has_stopped


@pytest.mark.exhaustive
@pytest.mark.spec("DST-28", "DST-29")
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", VERBS)
def test_a_writer_beside_a_sweep_or_a_purge_in_all_orders(
    store: MemoryStore, name: str, other: str
) -> None:
    assert run(store, name, other) > 10


def break_off(store: MemoryStore, other: str, every: int) -> int:
    """Let a sweep or a purge break off at points so far apart, and do it again."""
    begin(store)
    held = files_in(store)
    counting = CrashingStore(store)
    OTHERS[other](counting)
    points = crash_points(counting.calls)[::every]
    for point in points:
        fill(store, held)
        with suppress(Crash, KeyboardInterrupt, MemoryError, TxlogError):
            OTHERS[other](CrashingStore(store, point))
        if other == "purge":
            catalog_in(store, 3, limits=LIMITS).dataset("t").purge(2, confirm="t")
        require_whole(store, 1)
    return len(points)


@pytest.mark.spec("DST-28", "DST-29")
@pytest.mark.parametrize("other", OTHERS)
def test_what_breaks_off_is_finished_by_the_next_one(store: MemoryStore, other: str) -> None:
    assert break_off(store, other, 97) > 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("other", OTHERS)
def test_what_breaks_off_at_any_step_is_finished(store: MemoryStore, other: str) -> None:
    assert break_off(store, other, 1) > 200
