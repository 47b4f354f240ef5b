"""How commands open their table: by its place, or by its name in a catalog."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from txlog import Catalog, Table
from txlog.base.errors import InvalidInputError, NotFoundError

_zone: ContextVar[str | None] = ContextVar("txlog.cli.zone", default=None)
_branch: ContextVar[str | None] = ContextVar("txlog.cli.branch", default=None)
_catalog: ContextVar[Catalog | None] = ContextVar("txlog.cli.catalog", default=None)


def use_zone(zone: str | None) -> None:
    """Set the time zone of SQL in the command that runs; None is UTC."""
    _zone.set(zone)


def use_branch(name: str | None) -> None:
    """Set the branch that the command works on; None is the table itself."""
    _branch.set(name)


def use_catalog(database: str | None) -> None:
    """Set the catalog whose names the command that runs knows.

    Raises
    ------
    NotFoundError
        There is no such file: a command makes no catalog by accident.
    """
    if database is not None and "://" not in database and not Path(database).exists():
        raise NotFoundError(
            path=database,
            reason="there is no catalog here",
            remedy="Make one with `txlog catalog init lake.db`",
        )
    _catalog.set(None if database is None else Catalog(database))


def catalog() -> Catalog:
    """Return the catalog of the command that runs.

    Raises
    ------
    InvalidInputError
        None was named.
    """
    found = _catalog.get()
    if found is None:
        raise InvalidInputError(
            argument="catalog",
            reason="no catalog was named",
            remedy="Write --catalog DATABASE before the command",
        )
    return found


def named() -> Catalog | None:
    """Return the catalog of the command that runs, or None."""
    return _catalog.get()


def shown(given: Sequence[str]) -> tuple[list[str], Catalog | None]:
    """Return folders and tables for the pages, and the catalog whose tables they show by name.

    Raises
    ------
    InvalidInputError
        Nothing is to be shown, or there are two catalogs.
    """
    files = [one for one in given if is_database(one)]
    found = named()
    if len(files) + (found is not None) > 1:
        raise InvalidInputError(
            argument="catalog",
            reason="the pages show one catalog, and several were named",
            remedy="Start txlog ui once for each of them",
        )
    if files:
        found = Catalog(files[0])
    others = [one for one in given if one not in files and not (found and one in found)]
    if not given and found is None:
        raise InvalidInputError(
            argument="tables",
            reason="no table, folder or catalog was named",
            remedy="Write txlog ui FOLDER, or txlog ui lake.db",
        )
    return others, found


def is_database(path: str) -> bool:
    """Return whether a path is that of an SQLite file."""
    with suppress(OSError, ValueError), Path(path).open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"
    return False


def place_of(table: str) -> tuple[str, dict[str, Any] | None]:
    """Return the location and the storage options of a table.

    Parameters
    ----------
    table
        A name in the catalog, or a folder or URI. A name that is in the catalog counts as such.

    Raises
    ------
    NotFoundError
        It is neither a name in the catalog nor a place.
    """
    found = _catalog.get()
    if found is None:
        return table, None
    is_place = "/" in table or os.sep in table or Path(table).exists()
    if is_place and table not in found:
        return table, None
    return found.location_of(table), found.storage_options()


def opened(table: str, **more: Any) -> Table:
    """Open a table, or the branch of the command line.

    Its predicates and values have the time zone of the command line.

    `more` are other arguments of `Table`.

    Raises
    ------
    InvalidInputError
        There is no such zone.
    """
    place, options = place_of(table)
    named = {"branch": _branch.get(), **more}
    return Table(place, time_zone=_zone.get(), storage_options=options, **named)


def on_main(table: str) -> Table:
    """Open a table itself, also if the command line chooses a branch."""
    return opened(table, branch=None)
