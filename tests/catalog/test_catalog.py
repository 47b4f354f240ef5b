"""Names of tables, and tables whose commits go through the catalog."""

import pickle
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pytest

import txlog
from tests.catalog.conftest import SCHEMA, Make, content, rows
from txlog import Catalog, Table
from txlog.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    LogCorruptError,
    NotFoundError,
    StoreError,
    TxlogError,
    TxlogWarning,
    UnsupportedFeatureError,
)
from txlog.store.catalog_database import CatalogDatabase, TableRow


def names(catalog: Catalog) -> list[str]:
    found: list[str] = catalog.tables()["name"].to_pylist()
    return found


@pytest.mark.spec("CAT-1")
def test_a_catalog_names_tables(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("sales.orders", SCHEMA).append(rows((1, 2)))
    catalog.create_table("sales.eu.orders", SCHEMA)
    catalog.create_table("people", SCHEMA, partition_by="id", description="all of them")
    assert names(catalog) == ["people", "sales.eu.orders", "sales.orders"]
    assert catalog.namespaces() == ["sales", "sales.eu"]
    assert catalog.tables("sales")["name"].to_pylist() == ["sales.eu.orders", "sales.orders"]
    again = Catalog(tmp_path / "lake.db")
    assert content(again.table("Sales.ORDERS")) == [(1, 2)]
    assert "sales.orders" in again
    assert "orders" not in again
    assert again.table("people").partition_columns == ["id"]
    assert Path(again.table("sales.orders").uri) == tmp_path / "lake" / "sales.orders"
    catalog.rename("sales.orders", "sales.Orders")  # Only the case.
    catalog.rename("people", "staff")
    assert names(again) == ["sales.Orders", "sales.eu.orders", "staff"]


def test_a_name_that_another_process_takes_meanwhile(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was in the folder before stays there; only the new log goes."""
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "notes.txt").write_text("mine")
    monkeypatch.setattr(Catalog, "_require_free", lambda *_: None)  # It was free then.
    catalog.create_table("a.t", SCHEMA)
    with pytest.raises(AlreadyExistsError):
        catalog.create_table("a.t", SCHEMA, location=tmp_path / "new")
    assert [one.name for one in (tmp_path / "new").rglob("*") if one.is_file()] == ["notes.txt"]


@pytest.mark.parametrize(
    "act",
    [
        lambda c: c.create_table("SALES.orders", SCHEMA),
        lambda c: c.register("sales.Orders", c.table("b").uri),
        lambda c: c.register("other", c.table("b").uri),
        lambda c: c.rename("b", "sales.ORDERS"),
    ],
    ids=["create", "register", "registered", "rename"],
)
@pytest.mark.spec("CAT-1")
def test_a_name_belongs_to_one_table_in_any_case(
    catalog: Catalog, act: Callable[[Catalog], object]
) -> None:
    catalog.create_table("sales.orders", SCHEMA)
    catalog.create_table("b", SCHEMA)
    with pytest.raises(AlreadyExistsError):
        act(catalog)
    assert names(catalog) == ["b", "sales.orders"]
    assert len(list(Path(catalog.location).iterdir())) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["", ".", "a.", ".a", "a..b", "a/b", "_a", "a._b", "..", "a\nb", " a", "a" * 500, 'a"b']
)
def test_a_name_must_be_fit_for_a_folder(catalog: Catalog, name: str) -> None:
    with pytest.raises(InvalidInputError, match="name"):
        catalog.create_table(name, SCHEMA)
    assert names(catalog) == []


def test_what_is_not_there_is_named(catalog: Catalog) -> None:
    for act in (catalog.table, catalog.drop, catalog.undrop, catalog.manage, catalog.release):
        with pytest.raises(NotFoundError, match="nothing"):
            act("nothing")


@pytest.mark.spec("CAT-2")
def test_a_dropped_table_comes_back_until_it_is_purged(catalog: Catalog, make: Make) -> None:
    table = make("a.t", (1, 1))
    catalog.drop("a.t")
    assert names(catalog) == []
    assert catalog.dropped()["name"].to_pylist() == ["a.t"]
    with pytest.raises(TxlogError):
        table.append(rows((2, 2)))
    make("A.T", (5, 5))  # The name is free.
    with pytest.raises(AlreadyExistsError):
        catalog.undrop("a.t")
    assert content(catalog.undrop("a.t", "a.old")) == [(1, 1)]
    catalog.table("a.old").append(rows((2, 2)))
    catalog.drop("a.old")
    assert catalog.purge() == []  # It was dropped just now.
    assert catalog.purge(0) == ["a.old"]
    assert content(catalog.undrop("a.old")) == [(1, 1), (2, 2)]
    catalog.drop("a.old")
    place = Path(table.uri)
    shutil.copytree(place, place.parent / "kept")
    assert catalog.purge(0, dry_run=False) == ["a.old"]
    assert not any(path.is_file() for path in place.rglob("*"))
    assert content(catalog.table("a.t")) == [(5, 5)]
    with pytest.raises(NotFoundError):
        catalog.undrop("a.old")


def test_the_files_of_a_registered_table_are_not_purged(catalog: Catalog, tmp_path: Path) -> None:
    txlog.write(tmp_path / "mine", rows((1, 1)))
    catalog.register("mine", tmp_path / "mine")
    catalog.drop("mine")
    assert catalog.purge(0, dry_run=False) == ["mine"]
    assert content(txlog.Table(tmp_path / "mine")) == [(1, 1)]
    assert content(catalog.register("mine", tmp_path / "mine")) == [(1, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("managed", [False, "writes", "all"])
@pytest.mark.spec("CAT-3")
def test_every_kind_of_table_has_all_verbs(catalog: Catalog, managed: Any) -> None:
    table = catalog.create_table(
        "t", SCHEMA, managed=managed, properties={"delta.checkpointInterval": "3"}
    )
    for number in range(5):
        table.append(rows((number, number)))
    table.update({"v": "v + 10"}, "id = 1")
    table.delete("id = 2")
    table.upsert(rows((3, 33), (9, 9)), on="id")
    table.optimize.compact()
    table.maintenance.checkpoint()
    table.maintenance.expire()
    table.vacuum(dry_run=False)
    table.restore(table.version)
    expected = [(0, 0), (1, 11), (3, 33), (4, 4), (9, 9)]
    assert content(catalog.table("t")) == expected
    assert content(pickle.loads(pickle.dumps(table))) == expected
    found = catalog.table("t")
    assert found.version == table.version
    assert found.doctor().findings == ()
    clone = found.clone(Path(found.uri).parent / "clone")
    assert content(clone) == expected
    clone.append(rows((100, 100)))  # It is no table of the catalog.
    assert content(catalog.table("t")) == expected


@pytest.mark.parametrize("managed", ["writes", "all"])
@pytest.mark.spec("CAT-3")
def test_a_writer_without_the_catalog_is_refused(make: Make, managed: Any) -> None:
    table = make("t", (1, 1), managed=managed)
    with pytest.raises(UnsupportedFeatureError, match="catalog"):
        txlog.Table(table.uri).append(rows((2, 2)))
    with pytest.raises(Exception, match=r"(?i)catalog|feature|unsupported"):
        deltalake.write_deltalake(table.uri, rows((2, 2)), mode="append")
    assert content(table) == [(1, 1)]


@pytest.mark.spec("CAT-3")
def test_other_engines_read_what_was_published(make: Make) -> None:
    table = make("t", (1, 1), (2, 2))
    assert deltalake.DeltaTable(table.uri).to_pyarrow_table().num_rows == 2
    assert pl.read_delta(table.uri).height == 2
    with duckdb.connect() as connection:
        try:
            connection.execute("LOAD delta")
        except duckdb.Error:
            return
        assert connection.execute(f"FROM delta_scan('{table.uri}')").fetchall() == [(1, 1), (2, 2)]


@pytest.mark.spec("CAT-3")
def test_readers_without_the_catalog_are_refused_if_it_manages_all(make: Make) -> None:
    table = make("t", (1, 1), managed="all")
    with pytest.raises(UnsupportedFeatureError, match="catalog"):
        txlog.Table(table.uri)
    with pytest.raises(Exception, match=r"(?i)catalog"):
        deltalake.DeltaTable(table.uri).to_pyarrow_table()


@pytest.mark.parametrize("managed", ["writes", "all"])
@pytest.mark.spec("CAT-4")
def test_a_table_is_taken_in_and_let_out(catalog: Catalog, tmp_path: Path, managed: Any) -> None:
    txlog.write(tmp_path / "t", rows((1, 1)))
    held = catalog.register("t", tmp_path / "t")
    catalog.manage("t", managed)
    assert catalog.manage("t", managed).version == 1  # Again changes nothing.
    with pytest.raises(UnsupportedFeatureError):
        held.append(rows((2, 2)))
    catalog.table("t").append(rows((2, 2)))
    other = Catalog(tmp_path / "other.db", tmp_path / "other")
    if managed == "writes":
        other.register("t", tmp_path / "t")
        with pytest.raises(UnsupportedFeatureError, match="already"):
            other.manage("t", managed)
    catalog.release("t")
    txlog.Table(tmp_path / "t").append(rows((3, 3)))
    deltalake.write_deltalake(tmp_path / "t", rows((4, 4)), mode="append")
    assert len(content(catalog.table("t"))) == 4
    assert catalog.tables()["managed"].to_pylist() == [None]


@pytest.mark.parametrize("managed", ["writes", "all"])
@pytest.mark.spec("CAT-4")
def test_what_ended_half_way_is_finished(
    catalog: Catalog, tmp_path: Path, managed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    txlog.write(tmp_path / "t", rows((1, 1)))
    catalog.register("t", tmp_path / "t")

    def fail(*_: object) -> bool:
        raise StoreError(operation="ask the catalog", path="lake.db", reason="it is away")

    with monkeypatch.context() as patch:
        patch.setattr(type(catalog._database), "manage", fail)
        with pytest.raises(StoreError):
            catalog.manage("t", managed)
    catalog.manage("t", managed).append(rows((2, 2)))
    with monkeypatch.context() as patch:
        patch.setattr(type(catalog._database), "release", fail)
        with pytest.raises(StoreError):
            catalog.release("t")
    txlog.Table(tmp_path / "t").append(rows((3, 3)))  # Its log has no feature any more.
    assert len(content(catalog.table("t"))) == 3
    assert catalog.tables()["managed"].to_pylist() == [None]


@pytest.mark.parametrize("managed", ["writes", "all"])
@pytest.mark.spec("CAT-5")
def test_a_catalog_from_an_older_copy_is_refused_with_what_is_missing(
    catalog: Catalog, make: Make, tmp_path: Path, managed: Any
) -> None:
    table = make("t", (1, 1), managed=managed)
    shutil.copy(tmp_path / "lake.db", tmp_path / "old.db")
    table.append(rows((2, 2)))
    held = catalog.table("t")
    held.append(rows((3, 3)))
    shutil.copy(tmp_path / "old.db", tmp_path / "lake.db")
    for act in (lambda: catalog.table("t"), lambda: held.append(rows((4, 4)))):
        with pytest.raises(LogCorruptError, match="versions up to 2") as caught:
            act()
        assert caught.value.version in (3, 4)
    assert len(content(catalog.repair("t"))) == 3
    catalog.table("t").append(rows((4, 4)))
    assert len(content(catalog.table("t"))) == 4


def test_a_table_whose_folder_moved_is_named(catalog: Catalog, make: Make, tmp_path: Path) -> None:
    table = make("t", (1, 1))
    Path(table.uri).rename(tmp_path / "elsewhere")
    with pytest.raises(NotFoundError) as caught:
        catalog.table("t")
    assert "moved or deleted" in str(caught.value)
    txlog.write(table.uri, rows((5, 5)))
    with pytest.raises(TxlogError):
        catalog.table("t")


def test_a_catalog_keeps_its_location(catalog: Catalog, tmp_path: Path) -> None:
    assert Catalog(tmp_path / "lake.db").location == catalog.location
    with pytest.raises(InvalidInputError, match="location"):
        Catalog(tmp_path / "lake.db", tmp_path / "else")
    assert Path(Catalog(tmp_path / "b" / ".." / "x.db").location) == tmp_path
    with pytest.raises(InvalidInputError, match="location"):
        Catalog("sqlite://")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["a?b", "a#b", "a%20b", "a%3Fb", "a b+c&d=e;f", "über", "a@b:c", "?mode=ro"]
)
def test_a_database_may_have_any_file_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    made = Catalog(folder / f"{name}.db")
    made.create_table("t", SCHEMA, managed="writes").append(rows((1, 1)))
    assert (folder / f"{name}.db").is_file()
    assert len(list(tmp_path.iterdir())) == 1
    assert {one.name for one in folder.iterdir()} <= {f"{name}.db", f"{name}.db-journal", "t"}
    opened = txlog.Table(folder / "t", storage_options=made.storage_options())
    pickle.loads(pickle.dumps(opened)).append(rows((3, 3)))
    opened.append(rows((2, 2)))
    assert content(Catalog(folder / f"{name}.db").table("t")) == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("database", ["no-such-dialect://x", 7, "", "a\0b", "\udcff"])
def test_a_wrong_database_is_named(database: Any) -> None:
    with pytest.raises(TxlogError, match="database"):
        Catalog(database)


def test_a_database_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="catalog"):
        Catalog(tmp_path / "no" / "such" / "folder" / "lake.db", tmp_path)
    (tmp_path / "text.db").write_text("this is not a database, whatever its name says" * 100)
    with pytest.raises(StoreError, match="catalog"):
        Catalog(tmp_path / "text.db", tmp_path)


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        Catalog("postgresql+psycopg://me:hunter2@127.0.0.1:9/none", tmp_path)
    assert "hunter2" not in str(caught.value)


@pytest.mark.spec("CAT-13")
def test_all_tables_are_read_as_of_one_moment(catalog: Catalog, make: Make) -> None:
    make("a", (1, 1))
    make("b", (1, 1))
    catalog.create_table("c", SCHEMA).append(rows((1, 1)))
    moment = catalog.snapshot()
    for name in ("a", "b", "c"):
        catalog.table(name).append(rows((2, 2)))
    assert content(moment["a"]) == content(moment["B"]) == [(1, 1)]
    assert moment.versions() == {"a": 2, "b": 2, "c": None}
    assert sorted(moment) == ["a", "b", "c"]
    with pytest.raises(NotFoundError):
        moment["d"]


@pytest.mark.spec("CAT-13")
def test_a_time_is_one_moment_for_all_tables(catalog: Catalog, make: Make) -> None:
    make("a", (1, 1))
    make("b", (1, 1))
    with catalog.transaction() as changes:
        changes["a"].append(rows((2, 2)))
        changes["b"].append(rows((2, 2)))
    commits = catalog._database.commits_after(0, 100)
    first, last = commits[0].at_ms, commits[-1].at_ms
    for at_ms in range(first, last + 1, max(1, (last - first) // 50)):
        found = catalog.at(at_ms)
        versions = found.versions()
        assert (versions.get("a") == 3) == (versions.get("b") == 3) == (at_ms >= last)
    assert content(catalog.at(last)["a"]) == [(1, 1), (2, 2)]
    make("late", (1, 1))
    assert "late" not in catalog.at(last).versions()


def test_the_options_open_a_table_by_its_place(catalog: Catalog, make: Make) -> None:
    table = make("t", (1, 1), managed="all")
    options = catalog.storage_options()
    again = txlog.Table(table.uri, storage_options=options)
    again.append(rows((2, 2)))
    assert content(catalog.table("t")) == [(1, 1), (2, 2)]
    assert txlog.sql(
        f"SELECT count(*) AS n FROM '{table.uri}'", storage_options=options
    ).to_pylist() == [{"n": 2}]
    with pytest.raises(InvalidInputError, match="URL"):
        txlog.Table(table.uri, storage_options={"txlog.catalog": 7})


def test_arrow_types_of_listings_are_fixed(catalog: Catalog) -> None:
    assert catalog.tables().schema.types == [
        pa.string(), pa.string(), pa.string(), pa.int64(), pa.timestamp("ms", "UTC")
    ]  # fmt: skip
    assert catalog.dropped().schema.names[-1] == "dropped"


@pytest.mark.spec("CAT-2")
def test_no_table_is_inside_another(catalog: Catalog, make: Make, tmp_path: Path) -> None:
    table = make("a", (1, 1))
    make("a.b", (2, 2))
    catalog.drop("a")
    catalog.purge(0, dry_run=False)
    assert content(catalog.table("a.b")) == [(2, 2)]
    inside = Path(catalog.table("a.b").uri) / "c"
    with pytest.raises(AlreadyExistsError, match="inside"):
        catalog.create_table("c", SCHEMA, location=inside)
    txlog.write(inside, rows((1, 1)))
    with pytest.raises(AlreadyExistsError, match="inside"):
        catalog.register("c", inside)
    with pytest.raises(AlreadyExistsError, match="inside"):
        catalog.create_table("c", SCHEMA, location=tmp_path)
    del table


@pytest.mark.parametrize("what", ["replaced", "cloned", "other catalog"])
@pytest.mark.spec("CAT-2")
def test_a_purge_leaves_files_that_others_need(
    catalog: Catalog, make: Make, tmp_path: Path, what: str
) -> None:
    table = make("a", (1, 1))
    place = Path(table.uri)
    if what == "cloned":
        clone = table.clone(tmp_path / "clone", shallow=True, register=True)
    elif what == "other catalog":
        catalog.release("a")
        Catalog(tmp_path / "other.db", tmp_path / "other").register("a", place, managed="writes")
    catalog.drop("a")
    if what == "replaced":
        shutil.rmtree(place)
        txlog.write(place, rows((7, 7)))
    catalog.purge(0, dry_run=False)
    if what == "cloned":
        assert content(clone) == [(1, 1)]
    else:
        assert txlog.Table(place).count() == 1


@pytest.mark.parametrize("days", [-1, float("nan"), float("inf"), "x"])
def test_a_purge_takes_days(catalog: Catalog, days: Any) -> None:
    with pytest.raises(InvalidInputError, match="days"):
        catalog.purge(days)


@pytest.mark.spec("CAT-4")
def test_no_commit_follows_the_release_through_the_catalog(
    catalog: Catalog, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = make("t", (1, 1))

    def fail(*_: object) -> bool:
        raise StoreError(operation="ask the catalog", path="lake.db", reason="it is away")

    with monkeypatch.context() as patch:
        patch.setattr(type(catalog._database), "release", fail)
        with pytest.raises(StoreError):
            catalog.release("t")
    txlog.Table(held.uri).append(rows((2, 2)))
    with pytest.raises(TxlogError):
        held.append(rows((3, 3)))
    assert content(catalog.table("t")) == [(1, 1), (2, 2)]
    assert catalog.manage("t").version == held.version + 3
    catalog.table("t").append(rows((4, 4)))


@pytest.mark.spec("CAT-3", "CAT-4")
def test_in_commit_timestamps_stay_as_long_as_they_are_needed(catalog: Catalog, make: Make) -> None:
    stamps = "delta.enableInCommitTimestamps"
    for before in (True, False):
        name = f"t{before}"
        table = catalog.create_table(name, SCHEMA, properties={stamps: "true"} if before else {})
        table = catalog.manage(name)
        with pytest.raises(UnsupportedFeatureError, match="timestamps"):
            table.alter.set_properties({stamps: "false"})
        for feature in ("inCommitTimestamp", "txlog.catalogWrites-dev"):
            with pytest.raises(UnsupportedFeatureError):
                table.alter.drop_feature(feature)
        assert (catalog.release(name).properties.get(stamps) == "true") is before


@pytest.mark.spec("CAT-13")
def test_a_time_after_a_release_is_that_of_the_log(catalog: Catalog, make: Make) -> None:
    make("t", (1, 1))
    catalog.create_table("plain", SCHEMA)
    catalog.release("t")
    now = 1 << 42
    assert catalog.at(now).versions() == {"plain": 0, "t": 3}
    txlog.Table(catalog.location_of("t")).append(rows((2, 2)))
    assert content(catalog.at(now)["t"]) == [(1, 1), (2, 2)]
    catalog.manage("t")
    assert content(catalog.at(now)["t"]) == [(1, 1), (2, 2)]


@pytest.mark.parametrize("pairs", [[], [(1, 1)]], ids=["empty", "rows"])
def test_a_new_table_that_somebody_registered_meanwhile_stays(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, pairs: list[tuple[int, int]]
) -> None:
    add = CatalogDatabase.add

    def after_another(self: CatalogDatabase, row: TableRow) -> None:
        monkeypatch.setattr(CatalogDatabase, "add", add)
        other = catalog.register("s.other", row.location)
        if pairs:
            other.append(rows(*pairs))
        add(self, row)

    monkeypatch.setattr(CatalogDatabase, "add", after_another)
    with pytest.raises(AlreadyExistsError):
        catalog.create_table("s.new", SCHEMA)
    assert content(catalog.table("s.other")) == pairs


@pytest.mark.parametrize("is_changed", [False, True], ids=["as it was", "changed"])
def test_only_our_own_version_of_a_refused_table_is_deleted(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, is_changed: bool
) -> None:
    """Another process takes the name; one more finds the folder, and writes there."""
    add = CatalogDatabase.add
    places: list[str] = []

    def after_another(self: CatalogDatabase, row: TableRow) -> None:
        monkeypatch.setattr(CatalogDatabase, "add", add)
        places.append(row.location)
        catalog.create_table("s.new", SCHEMA)
        if is_changed:
            Table(row.location).append(rows((1, 1)))
        add(self, row)

    monkeypatch.setattr(CatalogDatabase, "add", after_another)
    with pytest.raises(AlreadyExistsError):
        catalog.create_table("s.new", SCHEMA)
    assert Table.exists(places[0]) == is_changed


def test_a_database_on_a_network_disk_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "far"
    folder.mkdir()
    table = tmp_path / "mounts"
    table.write_text(f"server:/x {folder} nfs4 rw 0 0\n")
    monkeypatch.setattr("txlog.store.mounts._MOUNTS", table)
    with pytest.warns(TxlogWarning, match=r"lake\.db .*\(nfs4\).*postgresql") as caught:
        catalogs = [Catalog(folder / "lake.db") for _ in range(2)]
    assert len(caught) == 1
    assert catalogs[1].tables().num_rows == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Catalog(tmp_path / "near.db")
