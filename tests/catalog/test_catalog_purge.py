"""What a catalog forgets, and what it shows until then."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import txlog
from tests.catalog.conftest import SCHEMA, Make, content, rows
from tests.catalog.test_repair import Unpublished
from txlog import Catalog
from txlog.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    LogCorruptError,
    NotFoundError,
)
from txlog.store.catalog_database import CatalogDatabase, TableRow
from txlog.store.local.local import LocalStore


def now_of(catalog: Catalog) -> int:
    """Return the time of the last ratification."""
    return max(one.at_ms for one in catalog._database.commits_after(0, 10_000))


@pytest.mark.parametrize("managed", ["writes", "all", False])
@pytest.mark.spec("CAT-13")
def test_a_time_shows_tables_that_were_dropped_later(
    catalog: Catalog, make: Make, managed: Any
) -> None:
    table = make("a", (1, 1), managed=managed)
    if managed:
        with Unpublished(table):
            table.append(rows((2, 2)))
    else:
        table.append(rows((2, 2)))
    make("b", (1, 1))
    at_ms = now_of(catalog)
    table.append(rows((3, 3)))
    catalog.drop("a")
    after = now_of(catalog) + 60_000
    assert sorted(catalog.at(at_ms)) == ["a", "b"]
    assert content(catalog.at(at_ms)["A"]) == [(1, 1), (2, 2)]
    assert sorted(catalog.at(after)) == ["b"]
    make("a", (7, 7))
    moment = catalog.at(at_ms)
    assert content(moment["a"]) == [(1, 1), (2, 2)]  # The new one was not there yet.
    catalog.drop("a")
    catalog.rename("b", "a")
    moment = catalog.at(at_ms)
    assert sorted(moment) == ["a", "b"]  # The names of then: another table is called a now.
    assert content(moment["a"]) == [(1, 1), (2, 2)]
    assert content(moment["b"]) == [(1, 1)]
    if managed:
        with pytest.raises(NotFoundError, match="dropped"):
            moment["a"].refresh().append(rows((4, 4)))
    catalog.purge(0, dry_run=False)
    assert sorted(catalog.at(at_ms)) == ["b"]


@pytest.mark.spec("CAT-13")
def test_followers_open_tables_that_were_dropped(catalog: Catalog, make: Make) -> None:
    follower = catalog.follow(timeout_s=0)
    table = make("a", (1, 1), managed="all")
    with Unpublished(table):
        table.append(rows((2, 2)))
    catalog.drop("a")
    make("a", (9, 9))
    tables = [one.table("a") for one in follower]  # Both had this name at their times.
    place = tables[0].uri
    of_first = [one for one in tables if one.uri == place]
    assert tables[: len(of_first)] == of_first
    assert content(of_first[-1]) == [(1, 1), (2, 2)]
    assert tables[-1].uri != place
    assert content(tables[-1]) == [(9, 9)]


@pytest.mark.spec("CAT-25")
def test_history_is_forgotten_while_readers_are_at_work(catalog: Catalog, make: Make) -> None:
    table = make("a", (1, 1))
    make("b", (1, 1))
    slow = catalog.follow(timeout_s=0)
    moment = catalog.snapshot()
    for number in range(2, 6):
        table.append(rows((number, number)))
    before = catalog._database.commits_after(0, 1000)
    at_ms = now_of(catalog)
    token = next(slow).token
    late = list(catalog.follow(token=token, timeout_s=0))[-1].token
    assert catalog.purge(history_days=0) == []  # A dry run.
    assert catalog._database.commits_after(0, 1000) == before
    catalog.purge(history_days=0, dry_run=False)
    assert [one.versions for one in slow] == [{"a": number} for number in (4, 5, 6)]
    with pytest.raises(NotFoundError, match="forgotten"):
        list(catalog.follow(token=token, timeout_s=0))
    table.append(rows((6, 6)))
    (change,) = catalog.follow(token=late, timeout_s=0)
    assert change.versions == {"a": catalog.table("a").version}
    assert content(moment["a"]) == [(1, 1)]
    with pytest.raises(NotFoundError, match="forgotten"):
        catalog.at(at_ms)
    assert len(content(catalog.at(now_of_after(catalog, late))["a"])) == 6
    assert content(catalog.table("b")) == [(1, 1)]
    with catalog.transaction(txn=("job", 1)) as changes:
        changes["a"].append(rows((7, 7)))
    catalog.purge(history_days=0, dry_run=False)
    with catalog.transaction(txn=("job", 1)) as changes:
        changes["a"].append(rows((7, 7)))
    assert changes.skipped
    assert len(content(catalog.table("a"))) == 7


def now_of_after(catalog: Catalog, token: str) -> int:
    return max(one.timestamp_ms for one in catalog.follow(token=token, timeout_s=0))


@pytest.mark.spec("CAT-25")
def test_a_database_that_is_purged_does_not_grow_with_commits(catalog: Catalog, make: Make) -> None:
    make("a", (1, 1))
    counts = []
    for number in range(2, 8):
        catalog.table("a").append(rows((number, number)))
        catalog.purge(history_days=0, dry_run=False)
        with catalog._database._reading() as run:
            counts.append(len(run(catalog._database._database.commits.select()).all()))
    assert counts == [1] * 6


@pytest.mark.parametrize("days", [-1, "1", None, float("nan")])
def test_the_history_takes_days(catalog: Catalog, days: Any) -> None:
    catalog.create_table("t", SCHEMA)
    with pytest.raises(InvalidInputError, match="history_days"):
        catalog.purge(history_days=days)


@pytest.mark.spec("CAT-2")
def test_a_clone_that_an_unpublished_commit_registered_keeps_its_files(
    catalog: Catalog, make: Make, tmp_path: Path
) -> None:
    table = make("a", (1, 1))
    with Unpublished(table):
        clone = table.clone(tmp_path / "clone", storage_options={}, shallow=True, register=True)
    catalog.drop("a")
    assert catalog.purge(0, dry_run=False) == ["a"]
    assert content(txlog.Table(clone.uri)) == [(1, 1)]


def damage(table: txlog.Table) -> None:
    (Path(table.uri) / "_delta_log" / f"{0:020d}.json").write_text("no commit")


@pytest.mark.spec("CAT-2")
def test_a_damaged_table_does_not_keep_the_others_from_a_purge(
    catalog: Catalog, make: Make
) -> None:
    tables = {name: make(name, (1, 1)) for name in ("a", "b")}
    keeper = make("c", (1, 1))
    last = catalog._database.last_moment().sequence
    damage(tables["a"])
    for name in tables:
        catalog.drop(name)
    for _ in range(2):
        with pytest.raises(LogCorruptError, match="delete this folder"):
            catalog.purge(0, history_days=0, dry_run=False)
        assert catalog.dropped()["name"].to_pylist() == ["a"]
    assert not Path(tables["b"].uri, "_delta_log", f"{0:020d}.json").exists()
    assert len(catalog._database.commits_after(last - 1, 9)) == 1
    shutil.rmtree(tables["a"].uri)
    assert catalog.purge(0, dry_run=False) == ["a"]
    assert catalog._database.all_tables() == catalog._database.tables()
    assert content(keeper) == [(1, 1)]


@pytest.mark.parametrize("count", range(4))
@pytest.mark.spec("CAT-2")
def test_a_purge_that_ended_half_way_is_finished_by_the_next(
    catalog: Catalog, make: Make, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make("a", (1, 1))
    make("b", (1, 1))
    at_ms = now_of(catalog)
    catalog.drop("a")
    right, left = LocalStore.delete, [count]

    def delete(store: LocalStore, paths: list[str]) -> None:
        for path in paths:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            right(store, [path])

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "delete", delete)
        with pytest.raises(KeyboardInterrupt):
            catalog.purge(0, dry_run=False)
    assert sorted(catalog.at(at_ms)) == ["b"]  # The claim came before the deletes.
    catalog.purge(0, dry_run=False)
    assert [one for one in Path(table.uri).rglob("*") if one.is_file()] == []
    assert [row.name for row in catalog._database.all_tables()] == ["b"]


@pytest.mark.spec("CAT-13")
def test_a_time_shows_the_tables_beside_a_damaged_one(
    catalog: Catalog, make: Make, tmp_path: Path
) -> None:
    make("a", (1, 1))
    at_ms = now_of(catalog)
    damage(catalog.register("b", txlog.write(tmp_path / "b", rows((1, 1))).uri))
    moment = catalog.at(at_ms)
    assert content(moment["a"]) == [(1, 1)]
    assert moment.versions()["b"] is None
    with pytest.raises(LogCorruptError):
        moment["B"]


@pytest.mark.spec("CAT-13")
def test_a_follower_names_a_table_that_was_purged(catalog: Catalog, make: Make) -> None:
    follower = catalog.follow(timeout_s=0)
    table = make("a", (1, 1))
    change = next(follower)
    catalog.drop("a")
    dropped = list(catalog.follow(token=change.token, timeout_s=0))[-1]
    catalog.purge(0, dry_run=False)
    for one in (change, dropped):
        with pytest.raises(NotFoundError, match="purged"):
            one.table("a")
    assert not Path(table.uri, "_delta_log", f"{0:020d}.json").exists()


@pytest.mark.parametrize("other", ["purge", "drop", "rename", "take"])
@pytest.mark.spec("CAT-2")
def test_a_table_that_another_process_changed_meanwhile_gets_no_name(
    catalog: Catalog, make: Make, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make("a", (1, 1))
    if other == "purge":
        catalog.drop("a")
    acts: dict[str, Callable[[], object]] = {
        "purge": lambda: catalog._database.claim(
            table.snapshot.metadata.id, catalog._database.tables(dropped=True)[0].dropped_ms or 0
        ),
        "drop": lambda: catalog.drop("a"),
        "rename": lambda: catalog.rename("a", "c"),
        "take": lambda: make("b", (2, 2)),
    }
    right = CatalogDatabase.give_name

    def give_name(database: CatalogDatabase, row: TableRow, name: str) -> bool:
        monkeypatch.setattr(CatalogDatabase, "give_name", right)
        acts[other]()
        return right(database, row, name)

    monkeypatch.setattr(CatalogDatabase, "give_name", give_name)

    if other == "purge":
        with pytest.raises(NotFoundError, match="no dropped table"):
            catalog.undrop("a")
        catalog.purge(0, dry_run=False)
        assert catalog._database.all_tables() == []
        return
    kind = AlreadyExistsError if other == "take" else NotFoundError
    with pytest.raises(kind, match=r"a table 'b'|no table 'a'"):
        catalog.rename("a", "b")

    names = {"drop": [], "rename": ["c"], "take": ["a", "b"]}[other]
    assert catalog.tables()["name"].to_pylist() == names


@pytest.mark.spec("CAT-2")
def test_a_slow_purge_leaves_a_table_that_was_made_after_another_purge(
    catalog: Catalog, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_id = make("a", (1, 1)).snapshot.metadata.id
    catalog.drop("a")
    right = LocalStore.delete

    def delete(store: LocalStore, paths: list[str]) -> None:
        monkeypatch.setattr(LocalStore, "delete", right)
        assert catalog.purge(0, dry_run=False) == [table_id]  # The first one claimed its name.
        make("a", (2, 2))
        right(store, paths)

    monkeypatch.setattr(LocalStore, "delete", delete)
    catalog.purge(0, dry_run=False)
    assert content(catalog.table("a")) == [(2, 2)]


@pytest.mark.spec("CAT-2")
def test_a_purge_leaves_files_that_were_there_before_the_table(
    catalog: Catalog, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("precious")
    catalog.create_table("a", SCHEMA, location=tmp_path / "mine")
    catalog.create_table("b", SCHEMA, location=tmp_path / "new")
    for name in ("a", "b"):
        catalog.drop(name)
    assert sorted(catalog.purge(0, dry_run=False)) == ["a", "b"]
    assert (tmp_path / "mine" / "notes.txt").read_text() == "precious"
    assert [one for one in (tmp_path / "new").rglob("*") if one.is_file()] == []


@pytest.mark.spec("CAT-1")
def test_no_table_is_around_the_database_of_its_catalog(tmp_path: Path) -> None:
    place = tmp_path / "x"
    table = txlog.write(place, rows((1, 1)))
    catalog = Catalog(place / "lake.db", tmp_path / "lake")
    (tmp_path / "link").symlink_to(place)
    for around in (place, tmp_path, tmp_path / "link"):
        with pytest.raises(InvalidInputError, match="close the catalog, and move its database"):
            catalog.create_table("a", SCHEMA, location=around)
    with pytest.raises(InvalidInputError, match=r"argument=.uri"):
        catalog.register("a", table.uri)
    (place / "lake.db").rename(tmp_path / "lake.db")
    moved = Catalog(tmp_path / "lake.db")
    assert content(moved.register("a", table.uri)) == [(1, 1)]
