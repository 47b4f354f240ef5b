"""The database of a catalog, in SQLite and in PostgreSQL."""

import multiprocessing
import pickle
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from servers import SECRET, missing, postgres

from txlog.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    StoreError,
    UnsupportedFeatureError,
)
from txlog.store import catalog_database
from txlog.store.catalog_database import CatalogDatabase, Proposed, TableRow


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if why := missing("postgres"):
        pytest.skip(why)
    with postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/lake.db"
    base: str = request.getfixturevalue("server")
    name = f"t{abs(hash(str(tmp_path)))}"
    import sqlalchemy as sql

    engine = sql.create_engine(base, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return base.removesuffix("postgres") + name


@pytest.fixture
def database(url: str) -> CatalogDatabase:
    made = CatalogDatabase(url)
    made.create({"id": "x", "location": "/lake"})
    for number in range(3):
        made.add(TableRow(f"id{number}", f"T{number}", f"/lake/{number}", None, None, 0, None))
        made.manage(f"id{number}", "writes", 4)
    return made


def proposed(number: int, version: int, name: str = "a") -> Proposed:
    return Proposed(f"id{number}", version, f"_staged_commits/{version:020d}.{name}.json")


def test_a_catalog_is_made_once(url: str) -> None:
    assert CatalogDatabase(url).facts() == {}
    CatalogDatabase(url).create({"id": "x", "location": "/lake"})
    CatalogDatabase(url).create({"id": "y", "location": "/else"})
    assert CatalogDatabase(url).facts() == {"id": "x", "location": "/lake", "format": "1"}


@pytest.mark.slow
def test_a_newer_format_is_refused(
    database: CatalogDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_database, "_FORMAT", "0")
    with pytest.raises(UnsupportedFeatureError, match="newer release"):
        database.facts()


@pytest.mark.slow
@pytest.mark.spec("CAT-1")
def test_names_ignore_case(database: CatalogDatabase) -> None:
    found = database.table("t1")
    assert found is not None
    assert found.name == "T1"
    with pytest.raises(AlreadyExistsError):
        database.add(TableRow("idx", "t1", "/x", None, None, 0, None))
    other = database.table("t2")
    assert other is not None
    with pytest.raises(AlreadyExistsError):
        database.give_name(other, "t1")
    assert database.give_name(found, "t1")
    assert not database.give_name(found._replace(table_id="nobody"), "u")
    assert [row.name for row in database.tables()] == sorted(["T0", "t1", "T2"], key=str)


@pytest.mark.slow
@pytest.mark.spec("CAT-6")
def test_all_are_ratified_or_none(database: CatalogDatabase) -> None:
    assert database.ratify([proposed(0, 5), proposed(1, 5)], transaction_id="t") == "ratified"
    assert database.ratify([proposed(0, 5, "b"), proposed(2, 5)]) == "lost"
    assert database.ratify([proposed(0, 6), proposed(2, 6)]) == "lost"  # 5 comes first.
    assert database.ratified("id0").latest_version == 5
    assert database.ratified("id2").latest_version == 4
    assert database.ratified("id0").staged == {5: proposed(0, 5).staged}
    assert database.ratified_as(proposed(0, 5)) is True
    assert database.ratified_as(proposed(0, 5, "b")) is False
    assert database.ratified_as(proposed(2, 5)) is None
    database.published("id0", [5])
    assert database.ratified("id0").staged == {}
    assert database.ratified_as(proposed(0, 5)) is True
    found = database.commits_after(3, 100)  # The first three took the tables in.
    assert [(one.table_id, one.version, one.transaction_id) for one in found] == [
        ("id0", 5, "t"), ("id1", 5, "t"),
    ]  # fmt: skip
    assert found[0].sequence == found[1].sequence


@pytest.mark.spec("CAT-11")
def test_tables_that_must_not_have_changed_are_compared(database: CatalogDatabase) -> None:
    assert database.ratify([proposed(0, 5)], unchanged=[("id1", 4)]) == "ratified"
    assert database.ratify([proposed(1, 5)], unchanged=[("id0", 4)]) == "lost"
    assert database.ratified("id1").latest_version == 4


@pytest.mark.spec("CAT-8")
def test_the_version_of_an_application_counts_once(database: CatalogDatabase) -> None:
    assert database.application_version("job") is None
    assert database.ratify([proposed(0, 5)], application=("job", 3)) == "ratified"
    assert database.ratify([proposed(0, 6)], application=("job", 3)) == "recorded"
    assert database.ratify([proposed(0, 6)], application=("job", 2)) == "recorded"
    assert database.ratify([proposed(0, 9)], application=("job", 4)) == "lost"
    assert database.application_version("job") == 3
    assert database.ratify([], application=("job", 4)) == "ratified"
    assert database.application_version("job") == 4


@pytest.mark.spec("CAT-2")
def test_a_dropped_table_has_no_commits(database: CatalogDatabase) -> None:
    database.drop("id0")
    assert database.ratify([proposed(0, 5)]) == "lost"
    with pytest.raises(NotFoundError, match="dropped"):
        database.ratified("id0")
    assert [row.table_id for row in database.tables(dropped=True)] == ["id0"]
    database.add(TableRow("idx", "T0", "/x", None, None, 0, None))
    database.forget("id0")
    assert database.table_of("id0") is None


def test_releasing_needs_the_latest_version(database: CatalogDatabase) -> None:
    assert not database.release("id0", 3)
    last = proposed(0, 5)._replace(is_last=True)
    assert database.ratify([last]) == "ratified"
    assert database.ratified("id0").is_leaving
    assert database.ratify([proposed(0, 6)]) == "lost"
    assert database.release("id0", 5)
    assert database.manage("id0", "all", 9)
    assert not database.manage("id0", "writes", 10)
    assert database.ratified("id0").latest_version == 9


@pytest.mark.spec("CAT-13")
def test_the_order_of_commits_is_that_of_their_ratification(database: CatalogDatabase) -> None:
    for version in range(5, 12):
        for number in range(3):
            database.ratify([proposed(number, version)])
    whole = database.commits_after(3, 1000)
    assert [one.sequence for one in whole] == sorted(one.sequence for one in whole)
    times = [one.at_ms for one in whole]
    assert times == sorted(set(times))
    parts, at = [], 3
    while part := database.commits_after(at, 4):
        parts += part
        at = part[-1].sequence
    assert parts == whole
    assert database.versions_at(times[4]) == {"id0": 6, "id1": 6, "id2": 5}
    assert database.versions_at(0) == {}


def race(url: str, name: int) -> list[int]:
    database = CatalogDatabase(url)

    def wins(version: int) -> bool:
        both = [proposed(0, version, str(name)), proposed(1, version, str(name))]
        return database.ratify(both) == "ratified"

    return [version for version in range(5, 15) if wins(version)]


@pytest.mark.slow
@pytest.mark.spec("CAT-6")
def test_processes_race_and_each_version_has_one_winner(
    database: CatalogDatabase, url: str
) -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(4, mp_context=context) as pool:
        won = list(pool.map(race, [url] * 4, range(4)))
    versions = [version for one in won for version in one]
    assert len(set(versions)) == len(versions)
    assert sorted(versions) == list(range(5, 5 + len(versions)))
    latest = 4 + len(versions)
    assert (
        database.ratified("id0").latest_version == database.ratified("id1").latest_version == latest
    )


def test_no_connection_is_kept(database: CatalogDatabase) -> None:
    again = pickle.loads(pickle.dumps(database))
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(len(again.tables())))
    thread.start()
    thread.join()
    assert found == [3]
    assert again == database
    assert SECRET not in repr(database)
    assert SECRET not in database.place


def test_a_locked_file_is_an_error_that_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_database, "_LOCK_S", 0.05)
    database = CatalogDatabase(f"sqlite:///{tmp_path}/lake.db")
    database.create({"id": "x", "location": "/lake"})
    database.add(TableRow("id0", "T0", "/lake/0", "writes", 4, 0, None))
    with sqlite3.connect(tmp_path / "lake.db", isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="locked") as caught:
            database.ratify([proposed(0, 5)])
        assert "Try again" in str(caught.value)
        other.execute("ROLLBACK")
    assert database.ratify([proposed(0, 5)]) == "ratified"


@pytest.mark.parametrize("url", ["sqlite:///", "nonsense", "no-such://x"])
def test_a_wrong_url_is_named(url: str) -> None:
    if url == "sqlite:///":
        assert CatalogDatabase(url).facts() == {}
        return
    with pytest.raises(InvalidInputError, match="database"):
        CatalogDatabase(url).facts()


@pytest.mark.spec("CAT-25")
def test_old_commits_are_forgotten_but_for_what_is_needed(database: CatalogDatabase) -> None:
    for version in range(5, 9):
        for number in (0, 1) if version < 7 else (0,):
            assert database.ratify([proposed(number, version)]) == "ratified"
    commits = database.commits_after(0, 100)  # Three of version 4, then those of above.
    for number in (0, 1):
        database.published(f"id{number}", [5, 7, 8])
    before = {one.at_ms: database.versions_at(one.at_ms) for one in commits}
    cut = commits[-2].at_ms  # Version 7 of the first table.
    assert database.prune(cut) == 4  # Versions 4 and 5 of two tables.
    assert database.commits_after(commits[-3].sequence, 100) == commits[-2:]
    assert set(database.ratified("id0").staged) == set(database.ratified("id1").staged) == {6}
    for one in commits[-2:]:
        assert database.versions_at(one.at_ms) == before[one.at_ms]
    for one in commits[:-2]:
        with pytest.raises(NotFoundError, match="forgotten"):
            database.versions_at(one.at_ms)
    with pytest.raises(NotFoundError, match="forgotten"):
        database.commits_after(0, 100)
    assert database.prune(cut) == database.prune(0) == 0
    assert database.versions_at(cut) == before[cut]
    assert database.ratify([proposed(1, 7)]) == "ratified"
