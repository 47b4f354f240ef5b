"""Errors of a catalog name the arguments of its own methods."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog

SCHEMA = pa.schema([("x", pa.int64())])


def wrong(value: object) -> Any:
    """Return a value that types would refuse where it is passed."""
    return value


def test_a_catalog_that_cannot_be_opened(tmp_path: Path) -> None:
    place = tmp_path / "new.db"
    for call, argument in (
        (lambda: txlog.Catalog("nothing://x"), "database"),
        (lambda: txlog.Catalog(place, wrong(5)), "location"),
        (lambda: txlog.Catalog(place, storage_options=wrong(5)), "storage_options"),
    ):
        with pytest.raises(txlog.InvalidInputError) as caught:
            call()
        assert caught.value.argument == argument, caught.value


def test_a_call_that_cannot_be_done(tmp_path: Path) -> None:
    catalog = txlog.Catalog(tmp_path / "lake.db")
    catalog.create_table("a", SCHEMA)
    for call, argument in (
        (lambda: catalog.sql("SELECT nothing FROM a"), "statement"),
        (lambda: catalog.sql("INSERT INTO a VALUES ('text')"), "statement"),
        (lambda: catalog.sql("UPDATE a SET x = 'text'"), "statement"),
        (lambda: catalog.sql("DELETE FROM a WHERE nothing = 1"), "statement"),
        (lambda: catalog.register("b", wrong(5)), "uri"),
        (lambda: catalog.purge(dry_run=wrong("no")), "dry_run"),
        (lambda: catalog.run(len, attempts=0), "attempts"),
        (lambda: catalog.run(len, attempts=wrong("2")), "attempts"),
        (lambda: catalog.run(wrong(5)), "function"),
        (lambda: catalog.branches.create("dev", "a"), "tables"),
        (lambda: catalog.branches.create("dev", wrong(5)), "tables"),
        (lambda: catalog.branches.publish(wrong(5)), "branch"),
        (lambda: catalog.branches.discard(wrong(None)), "branch"),
    ):
        with pytest.raises(txlog.InvalidInputError) as caught:
            call()
        assert caught.value.argument == argument, caught.value
    assert catalog.table("a").version == 0


def test_a_purge_with_wrong_arguments_asks_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = txlog.Catalog(tmp_path / "lake.db")
    monkeypatch.setattr(catalog, "_database", None)
    for arguments in ({"dry_run": "no"}, {"retention_days": "1"}, {"history_days": -1}):
        with pytest.raises(txlog.InvalidInputError) as caught:
            catalog.purge(**wrong(arguments))
        assert caught.value.argument in arguments
