"""A rehearsal changes neither the catalog nor its tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import txlog
from tests.catalog.conftest import SCHEMA, Make, rows
from txlog import Catalog
from txlog.extend import rehearsing

CALLS: dict[str, Callable[[Catalog], object]] = {
    "create_table": lambda catalog: catalog.create_table("new", SCHEMA, managed="all"),
    "register": lambda catalog: catalog.register("other", f"{catalog.location}/../other"),
    "rename": lambda catalog: catalog.rename("a", "b"),
    "drop": lambda catalog: catalog.drop("a"),
    "undrop": lambda catalog: catalog.undrop("dropped"),
    "purge": lambda catalog: catalog.purge(0, dry_run=False),
    "manage": lambda catalog: catalog.manage("named", "all"),
    "release": lambda catalog: catalog.release("a"),
}
# Each call fails, in a rehearsal as else: another table has the name, the place or the id.
FAILING: dict[str, Callable[[Catalog], object]] = {
    "create_table": lambda catalog: catalog.create_table("a", SCHEMA),
    "create_table at a place": lambda catalog: catalog.create_table(
        "new", SCHEMA, location=f"{catalog.table('a').uri}/inner"
    ),
    "register a name": lambda catalog: catalog.register("a", f"{catalog.location}/../other"),
    "register a table": lambda catalog: catalog.register("other", catalog.table("named").uri),
    "register a dropped table": lambda catalog: catalog.register("other", place_of(catalog)),
    "register a place": lambda catalog: catalog.register("other", inside(catalog)),
    "rename": lambda catalog: catalog.rename("a", "named"),
    "drop": lambda catalog: catalog.drop("nothing"),
    "undrop": lambda catalog: catalog.undrop("dropped", "named"),
    "manage": lambda catalog: catalog.manage("a", "writes"),
    "manage elsewhere": lambda catalog: catalog.manage("taken"),
    "release": lambda catalog: catalog.release("nothing"),
}


def place_of(catalog: Catalog) -> str:
    return str(catalog.dropped()["location"][0].as_py())


def inside(catalog: Catalog) -> str:
    """Return the place of a table inside the folder of another one."""
    place = f"{catalog.table('a').uri}/inner"
    if not txlog.Table.exists(place):
        txlog.write(place, rows((1, 1)))
    return place


def content(path: Path) -> dict[str, bytes]:
    files = (one for one in sorted(path.rglob("*")) if one.is_file() and "lake.db" not in one.name)
    return {str(one): one.read_bytes() for one in files}


def names(catalog: Catalog) -> list[object]:
    return [
        found.select(["name", "location", "managed"]).to_pylist()
        for found in (catalog.tables(), catalog.dropped())
    ]


@pytest.mark.parametrize("name", CALLS)
def test_a_rehearsal_leaves_the_catalog_as_it_is(
    catalog: Catalog, make: Make, tmp_path: Path, name: str
) -> None:
    make("a", (1, 1))
    make("dropped", (1, 1))
    catalog.drop("dropped")
    txlog.write(tmp_path / "other", rows((1, 1)))
    catalog.register("named", txlog.write(tmp_path / "named", rows((1, 1))).uri)
    before, known = content(tmp_path), names(catalog)
    with rehearsing():
        CALLS[name](catalog)
    assert (content(tmp_path), names(catalog)) == (before, known)
    CALLS[name](catalog)
    assert (content(tmp_path), names(catalog)) != (before, known)


@pytest.mark.parametrize("name", FAILING)
def test_a_rehearsal_makes_the_checks_of_a_call(
    catalog: Catalog, make: Make, tmp_path: Path, name: str
) -> None:
    make("a", (1, 1), managed="all")
    make("dropped", (1, 1))
    catalog.drop("dropped")
    catalog.register("named", txlog.write(tmp_path / "named", rows((1, 1))).uri)
    txlog.write(tmp_path / "other", rows((1, 1)))
    inside(catalog)
    theirs = Catalog(tmp_path / "their_lake.db", tmp_path)
    theirs.create_table("elsewhere", SCHEMA, managed="writes")
    catalog.register("taken", tmp_path / "elsewhere")
    before, known = content(tmp_path), names(catalog)
    said = []
    for is_tried in (True, False):
        with rehearsing(is_tried), pytest.raises(txlog.TxlogError) as caught:
            FAILING[name](catalog)
        said.append((type(caught.value), caught.value.reason, caught.value.remedy))
        if is_tried:
            assert (content(tmp_path), names(catalog)) == (before, known)
    assert said[0] == said[1]


def test_a_rehearsed_transaction_says_what_the_commit_does(
    catalog: Catalog, make: Make, tmp_path: Path
) -> None:
    table = make("a", (1, 1))
    table.alter.add_constraint({"pk": "UNIQUE (id)"})
    table.indexes.create("id")

    def change(key: int) -> txlog.Outcome:
        with catalog.transaction() as tx:
            tx["a"].append(rows((key, 1)))
        return tx.outcomes["a"]

    before = content(tmp_path)
    with rehearsing():
        would = change(2)
        with pytest.raises(txlog.DuplicateKeyError):
            change(1)
    assert content(tmp_path) == before
    assert (would.rehearsed, would.version) == (True, None)
    assert change(2).metrics == would.metrics
