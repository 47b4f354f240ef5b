"""The store of a table whose commits go through a catalog."""

import dataclasses
import multiprocessing
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from txlog import Catalog
from txlog.base.errors import (
    LogCorruptError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
    TxlogError,
)
from txlog.commit.context import Context
from txlog.log.names import commit_name, log_path
from txlog.snapshot.load import load_snapshot
from txlog.store.base import Store
from txlog.store.catalog_database import CatalogDatabase, UnknownAnswerError
from txlog.store.local.local import LocalStore
from txlog.store.managed import ManagedStore, PublishedStore, stage_all
from txlog.store.open import open_store
from txlog.testing import Fault, FaultyStore
from txlog.verbs.expire import expire

SCHEMA = pa.schema([("id", pa.int64())])
UNKNOWN = StoreError(operation="ask the catalog", path="lake.db", reason="the line was cut")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=SCHEMA)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    found = Catalog(tmp_path / "lake.db", tmp_path / "lake")
    found.create_table("t", SCHEMA, managed="writes").append(rows(1))
    return found


def store_of(catalog: Catalog, name: str = "t") -> ManagedStore:
    store = open_store(catalog.table(name).uri, catalog.storage_options())
    assert isinstance(store, ManagedStore)
    return store


def unpublished(catalog: Catalog) -> ManagedStore:
    """Return a store in which version 3 is ratified and not published."""
    store = store_of(catalog)
    table = txlog.extend.open_table(store)
    data = store.read(log_path(commit_name(2))).replace(b'"version":2', b'"version":3')
    proposed = store.stage(3, data)
    assert store.database.ratify([proposed]) == "ratified"
    assert not (Path(table.uri) / "_delta_log" / commit_name(3)).exists()
    return store


ASK: dict[str, Callable[[ManagedStore], object]] = {
    "read": lambda store: store.read(log_path(commit_name(3))),
    "info": lambda store: store.info(log_path(commit_name(3))),
    "open": lambda store: store.open_input(log_path(commit_name(3))).read(),
    "list": lambda store: [i for i in store.list_after("_delta_log", "") if i.name[19] == "3"],
    "briefly": lambda store: [n for n, *_ in store.list_briefly("_delta_log", "") if n[19] == "3"],
    "latest": lambda store: store.latest_version() == 3,
}


@pytest.mark.spec("CAT-14")
def test_a_version_is_published_after_the_one_before_it(catalog: Catalog) -> None:
    """If publishing version 3 failed, readers by path do not see version 4 without it."""
    store = unpublished(catalog)
    proposed = store.stage(4, store.inner.read(log_path(commit_name(2))))
    with pytest.raises(StoreError, match="version 4 is to be published, but the version before"):
        store.publish({4: proposed.staged})
    published = Path(store.root) / "_delta_log" / commit_name(4)
    assert not published.exists()
    assert store.database.ratify([proposed]) == "ratified"
    assert store.latest_version() == 4  # Finds both.
    store.read(log_path(commit_name(4)))
    assert published.exists()


@pytest.mark.parametrize("ask", list(ASK))
@pytest.mark.spec("CAT-14")
def test_whoever_finds_a_ratified_commit_publishes_it(catalog: Catalog, ask: str) -> None:
    store = unpublished(catalog)
    assert ASK[ask](store)
    assert store.inner.info(log_path(commit_name(3))).size > 0
    assert not list(store.inner.list_after("_delta_log/_staged_commits", ""))


@pytest.mark.parametrize("ask", list(ASK))
@pytest.mark.spec("CAT-14")
def test_who_cannot_write_reads_the_staged_bytes(catalog: Catalog, ask: str) -> None:
    store = unpublished(catalog)
    right = ASK[ask](dataclasses.replace(store, inner=ReadOnly(store.inner)))
    assert right
    with pytest.raises(NotFoundError):
        store.inner.info(log_path(commit_name(3)))


class ReadOnly(FaultyStore):
    """A store that refuses every write."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner, [Fault("replace", call, "not_done") for call in range(1, 50)])


@pytest.mark.spec("CAT-14")
def test_a_checkpoint_waits_for_the_commits_before_it(catalog: Catalog) -> None:
    store = unpublished(catalog)
    blocked = dataclasses.replace(store, inner=ReadOnly(store.inner))
    name = log_path("00000000000000000003.checkpoint.parquet")
    for write in (blocked.write_new, blocked.put_if_absent):
        with pytest.raises(StoreError, match="could not be published"):
            write(name, b"x")
    blocked.write_new("part-1.parquet", b"x")
    store.write_new(name, b"x")
    assert store.inner.info(log_path(commit_name(3)))


@pytest.mark.spec("CAT-14")
def test_the_commit_of_the_catalog_counts(catalog: Catalog) -> None:
    store = unpublished(catalog)
    store.inner.write_new(log_path(commit_name(3)), b"written by somebody else")
    store.latest_version()
    assert b"somebody" not in store.read(log_path(commit_name(3)))


@pytest.mark.spec("CAT-5")
def test_a_commit_that_the_catalog_does_not_know_is_an_error(catalog: Catalog) -> None:
    store = store_of(catalog)
    store.inner.write_new(log_path(commit_name(3)), b"written by somebody else")
    for act in (
        lambda: store.put_if_absent(log_path(commit_name(3)), b"{}"),
        lambda: list(store.list_after("_delta_log", "")),
        lambda: store.list_briefly("_delta_log", ""),
        lambda: catalog.table("t"),
    ):
        with pytest.raises(LogCorruptError, match="versions up to 2"):
            act()
    assert not list(store.inner.list_after("_delta_log/_staged_commits", ""))


@pytest.mark.parametrize("answer", ["done", "not done", "unknown"])
@pytest.mark.spec("CAT-6")
def test_a_lost_answer_is_asked_for(
    catalog: Catalog, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, store = CatalogDatabase.ratify, store_of(catalog)

    def cut(database: CatalogDatabase, proposed: Any, **named: Any) -> str:
        monkeypatch.setattr(CatalogDatabase, "ratify", right)
        if answer == "done":
            right(database, proposed, **named)
        elif answer == "not done":
            catalog.table("t").append(rows(77))
        raise UnknownAnswerError(UNKNOWN)

    monkeypatch.setattr(CatalogDatabase, "ratify", cut)
    path = log_path(commit_name(3))
    if answer == "unknown":
        with pytest.raises(OutcomeUnknownError):
            store.put_if_absent(path, b"{}\n")
    else:
        assert store.put_if_absent(path, b"{}\n") == ("created" if answer == "done" else "exists")


@pytest.mark.spec("CAT-6")
def test_after_a_lost_answer_an_append_is_there_once(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = CatalogDatabase.ratify

    def cut(database: CatalogDatabase, proposed: Any, **named: Any) -> str:
        monkeypatch.setattr(CatalogDatabase, "ratify", right)
        raise UnknownAnswerError(UNKNOWN)

    monkeypatch.setattr(CatalogDatabase, "ratify", cut)
    catalog.table("t").append(rows(2))
    assert sorted(catalog.table("t").to_arrow()["id"].to_pylist()) == [1, 2]


def test_the_catalog_away_before_a_commit_changes_nothing(catalog: Catalog, tmp_path: Path) -> None:
    table = catalog.table("t")
    (tmp_path / "lake.db").rename(tmp_path / "away.db")
    with pytest.raises(TxlogError):
        table.append(rows(2))
    (tmp_path / "lake.db").unlink(missing_ok=True)
    (tmp_path / "away.db").rename(tmp_path / "lake.db")
    table.append(rows(3))
    assert sorted(catalog.table("t").to_arrow()["id"].to_pylist()) == [1, 3]


def test_a_store_pickles_without_showing_its_database(catalog: Catalog) -> None:
    store = store_of(catalog)
    again = pickle.loads(pickle.dumps(store))
    assert again == store
    assert again.latest_version() == 2
    assert "sqlite" not in repr(store)


def test_options_for_another_place_do_not_ask_the_catalog(catalog: Catalog, tmp_path: Path) -> None:
    options = catalog.storage_options()
    assert isinstance(open_store(tmp_path / "other", options), LocalStore)


def test_several_commits_are_staged_or_none(catalog: Catalog) -> None:
    store = store_of(catalog)
    broken = dataclasses.replace(
        store, inner=FaultyStore(store.inner, [Fault("write_new", 1, "not_done")])
    )
    with pytest.raises(StoreError):
        stage_all([(store, 3, b"{}"), (broken, 3, b"{}"), (store, 3, b"{}")])
    assert not list(store.inner.list_after("_delta_log/_staged_commits", ""))


def test_what_is_published_can_be_compared_with_the_catalog(catalog: Catalog) -> None:
    store = PublishedStore(unpublished(catalog).inner)
    assert store.is_managed
    assert store.latest_version() is None


def append_in_process(url: str, number: int) -> int:
    catalog = Catalog(url)
    for step in range(5):
        catalog.table("t").append(rows(1000 * number + step))
    return number


@pytest.mark.slow
def test_processes_append_without_losing_a_row(catalog: Catalog, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(4, mp_context=context) as pool:
        done = list(pool.map(append_in_process, [str(tmp_path / "lake.db")] * 4, range(1, 5)))
    assert done == [1, 2, 3, 4]
    expected = {1, *(1000 * number + step for number in range(1, 5) for step in range(5))}
    table = catalog.table("t")
    assert set(table.to_arrow()["id"].to_pylist()) == expected
    assert table.version == 22


@pytest.mark.spec("CAT-17")
def test_a_clean_up_deletes_staged_commits_that_lost(catalog: Catalog) -> None:
    store = unpublished(catalog)
    needed = store.database.ratified(store.table_id).staged[3]
    lost = store.stage(3, b"{}").staged
    young, old = store.stage(4, b"{}").staged, store.stage(4, b"{}").staged
    os.utime(store.resolve(log_path(old)), (0, 1))
    blocked = dataclasses.replace(store, inner=ReadOnly(store.inner))
    context = Context(blocked)
    decided = expire(context, load_snapshot(blocked), dry_run=False, hours=None)
    found = dict(zip(decided["file"].to_pylist(), decided["decision"].to_pylist(), strict=True))
    assert {name: found[log_path(name)] for name in (needed, lost, young, old)} == {
        needed: "keep", lost: "delete", young: "keep", old: "delete",
    }  # fmt: skip
    left = {info.name for info in store.inner.list_tree("_delta_log/_staged_commits")}
    assert left == {needed.rpartition("/")[2], young.rpartition("/")[2]}
    assert catalog.table("t").version == 3
