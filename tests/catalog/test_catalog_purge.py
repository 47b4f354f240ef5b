"""What a catalog forgets, and what it shows until then."""

from typing import Any

import pytest

from tests.catalog.conftest import SCHEMA, Make, content, rows
from tests.catalog.test_repair import Unpublished
from txlog import Catalog
from txlog.base.errors import InvalidInputError, NotFoundError


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
    (named,) = [name for name in moment if "@" in name]
    assert content(moment["a"]) == [(1, 1)]
    assert content(moment[named]) == [(1, 1), (2, 2)]
    if managed:
        with pytest.raises(NotFoundError, match="dropped"):
            moment[named].refresh().append(rows((4, 4)))
    catalog.purge(0, dry_run=False)
    assert sorted(catalog.at(at_ms)) == ["a"]


@pytest.mark.spec("CAT-13")
def test_followers_open_tables_that_were_dropped(catalog: Catalog, make: Make) -> None:
    follower = catalog.follow(timeout_s=0)
    table = make("a", (1, 1), managed="all")
    with Unpublished(table):
        table.append(rows((2, 2)))
    catalog.drop("a")
    make("a", (9, 9))
    found = list(follower)
    (named,) = {name for one in found for name in one.versions} - {"a"}
    changes = [one for one in found if named in one.versions]
    assert content(changes[-1].table(named)) == [(1, 1), (2, 2)]
    assert content(found[-1].table("a")) == [(9, 9)]


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
