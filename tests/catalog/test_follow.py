"""Following the changes of all tables of a catalog."""

import json
import random
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import txlog
from tests.catalog.conftest import SCHEMA, Make, content, rows
from tests.catalog.test_repair import restored, saved
from txlog import Catalog
from txlog.base.effects import Effects
from txlog.base.errors import InvalidInputError, NotFoundError, UnsupportedFeatureError


@pytest.mark.spec("CAT-13")
def test_changes_come_in_the_order_of_the_catalog(catalog: Catalog, make: Make) -> None:
    make("a", (1, 1))
    make("b", (1, 1))
    before = list(catalog.follow(token=beginning(catalog), timeout_s=0))
    assert [one.versions for one in before] == [{"a": 1}, {"a": 2}, {"b": 1}, {"b": 2}]
    at = before[-1].token
    catalog.table("b").append(rows((2, 2)))
    with catalog.transaction() as changes:
        changes["a"].append(rows((2, 2)))
        changes["b"].append(rows((3, 3)))
    catalog.table("a").delete("id = 1")
    found = list(catalog.follow(token=at, timeout_s=0))
    assert [one.versions for one in found] == [{"b": 3}, {"a": 3, "b": 4}, {"a": 4}]
    assert [one.transaction_id is None for one in found] == [True, False, True]
    assert content(found[1].table("a")) == [(1, 1), (2, 2)]
    assert content(found[1].table("b")) == [(1, 1), (2, 2), (3, 3)]
    assert list(catalog.follow(token=found[-1].token, timeout_s=0)) == []
    assert [one.versions for one in catalog.follow(token=found[0].token, timeout_s=0)] == [
        one.versions for one in found[1:]
    ]


@pytest.mark.slow
@pytest.mark.spec("CAT-13")
def test_tables_have_the_names_that_they_had_at_a_time(catalog: Catalog, make: Make) -> None:
    """Two tables change their names, and one of them is dropped; a third one takes its name."""
    make("a", (1, 1))
    make("b", (1, 1))
    start = list(catalog.follow(token=beginning(catalog), timeout_s=0))[-1].token
    expected: list[dict[str, int]] = []

    def grow(name: str) -> None:
        outcome = catalog.table(name).append(rows((7, 7)))
        assert outcome.version is not None
        expected.append({name: outcome.version})

    def rename(name: str, new_name: str) -> Callable[[], None]:
        return lambda: catalog.rename(name, new_name)

    times: list[tuple[int, set[str]]] = []
    steps: list[Callable[[], object]] = [
        rename("a", "c"), rename("b", "a"), rename("c", "b"), rename("b", "B"),
        lambda: catalog.drop("a"), lambda: make("a", (1, 1)), lambda: catalog.undrop("a", "d"),
        rename("a", "e"), lambda: catalog.drop("e"), lambda: catalog.undrop("e", "a"),
    ]  # fmt: skip
    for step in [*steps, lambda: None]:
        names = set(catalog.tables()["name"].to_pylist())
        for name in sorted(names):
            grow(name)
        times.append((catalog._database.last_moment().at_ms, names))
        before = catalog._database.last_moment().sequence
        step()
        commits = catalog._database.commits_after(before, 10)
        expected += [{"a": one.version} for one in commits]  # Those of a new table.
    changes = list(catalog.follow(token=start, timeout_s=0))
    assert [one.versions for one in changes] == expected
    for change in changes:
        (name,) = change.versions
        assert change.table(name).version == change.versions[name]
    for at_ms, names in times:
        found = catalog.at(at_ms)
        assert {name for name in found if "@" not in name} == names
        at_that_time = [one.versions for one in changes if one.timestamp_ms <= at_ms]
        last = {name: version for one in at_that_time for name, version in one.items()}
        assert all(found[name].version == last[name] for name in names)


class Clocks(Effects):
    """The clocks of several machines, which differ by up to some seconds."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@pytest.mark.slow
@pytest.mark.spec("CAT-13")
@pytest.mark.parametrize("seed", range(3))
def test_the_clocks_of_machines_take_no_change_from_followers(
    catalog: Catalog, make: Make, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is taken by a machine with another clock."""
    clocks, chance = Clocks(), random.Random(seed)
    for module in ("txlog.store.catalog_database", "txlog.catalog.catalog"):
        monkeypatch.setattr(f"{module}.REAL", clocks)
    make("a", (1, 1))
    start = list(catalog.follow(token=beginning(catalog), timeout_s=0))[-1].token
    expected: list[dict[str, int]] = []
    name, times = "a", []
    for step in range(25):
        clocks.ahead_ms = chance.randint(-8000, 8000)
        match chance.choice(["append", "append", "rename", "drop"]):
            case "append":
                expected.append({name: catalog.table(name).append(rows((7, 7))).version or 0})
            case "rename":
                catalog.rename(name, f"t{step}")
                name = f"t{step}"
            case "drop":
                catalog.drop(name)
                clocks.ahead_ms = chance.randint(-8000, 8000)
                assert catalog._database.all_tables()[0].dropped_ms is not None
                if chance.random() < 0.5:
                    catalog.undrop(name)
                else:
                    catalog.undrop(name, f"u{step}")
                    name = f"u{step}"
        times.append((catalog._database.last_moment().at_ms, name))
    found = list(catalog.follow(token=start, timeout_s=0))
    assert [one.versions for one in found] == expected
    for at_ms, then in times:
        assert list(catalog.at(at_ms)) == [then]
    catalog.drop(name)
    assert catalog.purge(0, dry_run=False) == [name]


@pytest.mark.spec("CAT-13")
def test_a_drop_at_the_time_of_another_clock_takes_no_change_from_followers(
    catalog: Catalog, make: Make, tmp_path: Path
) -> None:
    """As earlier releases dropped tables: here at a time before the table's last changes."""
    make("a", (1, 1))
    at_ms = catalog._database.last_moment().at_ms
    catalog.rename("a", "b")
    catalog.table("b").append(rows((2, 2)))
    catalog.table("b").append(rows((3, 3)))
    catalog.drop("b")
    with sqlite3.connect(tmp_path / "lake.db") as database:
        database.execute("UPDATE txlog_tables SET dropped_ms = ?", (at_ms - 1000,))
    database.close()
    catalog.undrop("b", "c")
    found = list(catalog.follow(token=beginning(catalog), timeout_s=0))
    assert [version for one in found for version in one.versions.values()] == [1, 2, 3, 4]
    assert {name for one in found[-2:] for name in one.versions} <= {"b", "c"}
    with sqlite3.connect(tmp_path / "lake.db") as database:  # No time is left between the two.
        database.execute("DELETE FROM txlog_names")
    database.close()
    catalog.rename("c", "d")
    last_ms = catalog._database.last_moment().at_ms
    with sqlite3.connect(tmp_path / "lake.db") as database:
        database.execute("UPDATE txlog_tables SET dropped_ms = ?", (at_ms,))
        database.execute("UPDATE txlog_clock SET at_ms = ?", (last_ms + 60_000,))
        database.execute("UPDATE txlog_names SET until_ms = ?", (last_ms + 60_000,))
    database.close()
    assert catalog.undrop("d").version == 4


@pytest.mark.spec("CAT-13")
def test_a_catalog_of_an_earlier_release_gets_the_table_of_names(
    catalog: Catalog, make: Make, tmp_path: Path
) -> None:
    make("a", (1, 1))
    at_ms = catalog._database.last_moment().at_ms
    with sqlite3.connect(tmp_path / "lake.db") as database:
        database.execute("DROP TABLE txlog_names")
    database.close()
    opened = Catalog(tmp_path / "lake.db")
    opened.rename("a", "b")
    assert list(opened.at(at_ms)) == ["a"]
    opened.drop("b")
    assert opened.purge(0, history_days=0, dry_run=False) == ["b"]


def test_a_follower_waits_for_what_comes(catalog: Catalog, make: Make) -> None:
    table = make("a", (1, 1))
    follower = catalog.follow(timeout_s=20, poll_s=0.1)  # From now on.
    thread = threading.Timer(0.2, lambda: table.append(rows((2, 2))))
    thread.start()
    assert next(follower).versions == {"a": 3}
    thread.join()
    assert list(catalog.follow(timeout_s=0)) == []


@pytest.mark.parametrize(
    "token", ["", "no token", "{}", '{"format":1,"catalog":"x","after":1,"at":1}', 7, "[" * 100_000]
)
def test_wrong_tokens_are_refused(catalog: Catalog, token: str, tmp_path: Path) -> None:
    catalog.create_table("t", SCHEMA)
    with pytest.raises(InvalidInputError, match="token"):
        catalog.follow(token=token)


@pytest.mark.parametrize("later", range(4))
@pytest.mark.spec("CAT-13")
def test_a_follower_of_lost_history_is_refused(
    catalog: Catalog, make: Make, tmp_path: Path, later: int
) -> None:
    """However many commits were made after the restore, none of them is passed over."""
    make("a", (1, 1))
    make("b", (1, 1))
    known = list(catalog.follow(token=beginning(catalog), timeout_s=0))[-1].token
    saved(tmp_path)
    follower = catalog.follow(timeout_s=0)
    for number in (2, 3):
        catalog.table("b").append(rows((number, number)))
    token = next(follower).token
    again = restored(tmp_path)
    if later:
        again.repair("b")
    for number in range(1, later):
        again.table("a").append(rows((number, number)))
    with pytest.raises(NotFoundError, match="restored from an older copy"):
        list(again.follow(token=token, timeout_s=0))
    with pytest.raises(NotFoundError, match="restored from an older copy"):
        list(follower)
    repaired = [{"b": 4}] if later else []
    found = [one.versions for one in again.follow(token=known, timeout_s=0)]
    assert found == repaired + [{"a": number + 2} for number in range(1, later)]


def beginning(catalog: Catalog) -> str:
    return json.dumps({"format": 1, "catalog": catalog.id, "after": 0, "at": 0})


@pytest.mark.slow
@pytest.mark.parametrize("managed", ["writes", "all"])
@pytest.mark.parametrize("then", ["released", "managed", "dropped"])
@pytest.mark.spec("CAT-13")
def test_a_release_leaves_transactions_whole(
    catalog: Catalog, make: Make, managed: Any, then: str
) -> None:
    make("a", (1, 1), managed=managed)
    make("b", (1, 1), managed=managed)
    follower = catalog.follow(timeout_s=0)
    with catalog.transaction() as changes:
        changes["a"].append(rows((2, 2)))
        changes["b"].append(rows((2, 2)))
    catalog.table("b").append(rows((3, 3)))
    catalog.release("b")
    txlog.Table(catalog.location_of("b")).append(rows((4, 4)))
    if then == "managed":
        catalog.manage("b", managed)
        catalog.table("b").append(rows((5, 5)))
    elif then == "dropped":
        catalog.drop("b")
    whole, single, *others = follower
    assert sorted(whole.versions) == ["a", "b"]
    assert content(whole.table("b")) == content(whole.table("a")) == [(1, 1), (2, 2)]
    moment = catalog.at(whole.timestamp_ms)
    assert content(moment["b"]) == content(moment["a"]) == [(1, 1), (2, 2)]
    assert content(catalog.at(single.timestamp_ms)["b"]) == [(1, 1), (2, 2), (3, 3)]
    release = others.pop(0)
    assert len(content(release.table("b"))) == 3
    assert [len(content(one.table("b"))) for one in others] == ([4, 5] * (then == "managed"))
    if then == "released":
        assert len(content(catalog.at(1 << 42)["b"])) == 4
    if managed == "all" and then == "released":
        with pytest.raises(UnsupportedFeatureError, match="latest version"):
            moment["b"].append(rows((6, 6)))
