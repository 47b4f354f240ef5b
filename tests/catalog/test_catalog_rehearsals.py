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
    "release": lambda catalog: catalog.release("a"),
}


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
    before, known = content(tmp_path), names(catalog)
    with rehearsing():
        CALLS[name](catalog)
    assert (content(tmp_path), names(catalog)) == (before, known)
    CALLS[name](catalog)
    assert (content(tmp_path), names(catalog)) != (before, known)


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
