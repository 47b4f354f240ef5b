"""Find the tables and data sets to show: named ones, and those below named folders.

A page names a table by a key, never by a path. So only tables that were found can be requested.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock
from typing import Any, TypeVar

from txlog.datasets import Catalog
from txlog.datasets.ledger import MARK
from txlog.errors import NotFoundError, TxlogError
from txlog.store.base import Store, map_many, without_secrets
from txlog.store.open import folders_in, open_store
from txlog.table.table import Table

MOST_FOLDERS = 10_000  # The number of folders that are listed below one argument to find tables.
_MOST_OPEN = 64  # The most tables that stay open; of large values fewer are kept.
_MOST_KEPT = 8
_PARTS = ("ledger", "data/", "sets/")  # The folder of the tables in a folder of data sets.

Value = TypeVar("Value")


@dataclass(frozen=True)
class Place:
    """A table that pages show."""

    key: str  # In addresses of pages.
    name: str  # The path below the named folder, or the last part of the URI.
    uri: str


class Kept:
    """The values that were made last, by their keys. Threads may share an instance."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[object, Any] = OrderedDict()
        self._lock = Lock()

    def get(
        self,
        key: object,
        make: Callable[[], Value],
        is_fresh: Callable[[Value], bool] = lambda _: True,
    ) -> Value:
        """Return the value of a key; make it if none is kept or it is no longer fresh.

        Two threads that ask at once may both make it.
        """
        with self._lock:
            held: Value | None = self._values.get(key)
            if held is not None:
                self._values.move_to_end(key)
        if held is not None and is_fresh(held):
            return held
        made = make()
        with self._lock:
            self._values[key] = made
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return made


class Places:
    """The tables that pages show, and those of their versions that are open.

    Parameters
    ----------
    uris
        Tables, and folders with tables below them.

    Raises
    ------
    NotFoundError
        Raised by `find_all`: there is no table at one of them, nor below it.
    """

    def __init__(self, uris: Sequence[str]) -> None:
        self._uris = list(uris)
        self._found: dict[str, Place] = {}
        self._by_uri: dict[str, Place] = {}
        self.catalogs: dict[str, Place] = {}  # Folders of data sets, by key.
        self._newest = Kept(_MOST_OPEN)
        self._versions = Kept(_MOST_KEPT)
        self._catalogs = Kept(_MOST_KEPT)
        self.reports = Kept(_MOST_KEPT)
        self.is_complete = True  # False: there are more folders than were listed.

    def find_all(self) -> list[Place]:
        """Look for tables, and return them by name.

        Tables within a folder of data sets are omitted, but `find` knows them: `catalogs` has the
        folder instead.
        """
        found: dict[str, Place] = {}
        catalogs: dict[str, Place] = {}
        listed: list[Place] = []
        self.is_complete = True
        for uri in self._uris:
            store = open_store(uri)
            folders, is_complete = tables_below(store)
            self.is_complete &= is_complete
            if not folders:
                raise NotFoundError(
                    path=without_secrets(store.root),
                    reason="there is no table, and none in the folders below",
                    remedy="Name a table, or a folder with tables in it",
                )
            places = {one: place_of(store.resolve(one), one) for one in folders}
            found |= {place.key: place for place in places.values()}
            homes = [
                folder.removesuffix("ledger")
                for folder, place in places.items()
                if f"/{folder}".endswith("/ledger") and self._is_ledger(place)
            ]
            for home in homes:
                place = place_of(store.resolve(home.rstrip("/")), home.rstrip("/"))
                catalogs[place.key] = place
            within = tuple(home + part for home in homes for part in _PARTS)
            listed += [place for folder, place in places.items() if not folder.startswith(within)]
        self._found = found
        self._by_uri = {place.uri: place for place in found.values()}
        self.catalogs = catalogs
        by_key = {place.key: place for place in listed}
        return sorted(by_key.values(), key=lambda place: (place.name, place.uri))

    def _is_ledger(self, place: Place) -> bool:
        """Return whether a table holds the events of data sets."""
        with suppress(TxlogError):
            return MARK in self.open(place).properties
        return False

    def at_uris(self, uris: Sequence[str | None]) -> list[Place | None]:
        """Return the table at each URI, or None if none was found there."""
        if any(uri and uri not in self._by_uri for uri in uris):
            self.find_all()  # It may be new.
        return [self._by_uri.get(uri or "") for uri in uris]

    def find_catalog(self, key: str) -> tuple[Place, Catalog]:
        """Return the folder of data sets of a key.

        Raises
        ------
        NotFoundError
            None of the folders has this key.
        """
        if key not in self.catalogs:
            self.find_all()
        if key not in self.catalogs:
            raise NotFoundError(
                reason="this folder of data sets is not among the shown ones",
                remedy="Choose one on the first page",
            )
        place = self.catalogs[key]
        return place, self._catalogs.get(place.uri, lambda: Catalog(place.uri))

    def find(self, key: str) -> Place:
        """Return the table of a key.

        Raises
        ------
        NotFoundError
            None of the tables has this key.
        """
        if key not in self._found:
            self.find_all()  # It may be new.
        if key not in self._found:
            raise NotFoundError(
                reason="this table is not among the shown ones",
                remedy="Choose one from the list of tables",
            )
        return self._found[key]

    def open(self, place: Place, version: int | str | None = None) -> Table:
        """Return a table at a version, or a pin; None: the latest. Do not refresh the table."""
        newest = self._newest.get(place.uri, lambda: Table(place.uri), _is_newest)
        if version is None or version == newest.version:
            return newest
        if isinstance(version, str):  # Pins move.
            return newest.checkout_version(version)
        chosen = version
        return self._versions.get((place.uri, version), lambda: newest.checkout_version(chosen))


def _is_newest(table: Table) -> bool:
    with suppress(TxlogError):  # Opening it again raises the right error.
        return table.latest_version == table.version
    return False


def place_of(uri: str, name: str) -> Place:
    """Return a table by its URI; its key is the same each time, and safe in an address."""
    name = name or uri.rstrip("/").rpartition("/")[2] or uri
    told = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "table"
    digest = sha256(uri.encode("utf-8", "surrogateescape")).hexdigest()[:10]
    return Place(f"{told}-{digest}", name, uri)


def tables_below(store: Store) -> tuple[list[str], bool]:
    """Return the folders of a store that are tables, and whether all folders were listed.

    Folders within a table, folders whose names begin with a dot or an underscore, and symbolic
    links are skipped. A folder that cannot be listed counts as empty, unless it is the first one.
    """
    found: list[str] = []
    level = [""]
    left = MOST_FOLDERS
    while level and left >= len(level):
        left -= len(level)
        listings = map_many(store, lambda folder: _folders(store, folder), level)
        deeper: list[str] = []
        for folder, names in zip(level, listings, strict=True):
            if "_delta_log" in names:
                found.append(folder)
            else:
                inside = f"{folder}/" if folder else ""
                deeper += [inside + name for name in names if name[0] not in "._"]
        level = deeper
    return found, not level


def _folders(store: Store, folder: str) -> list[str]:
    if not folder:
        return folders_in(store, folder)
    with suppress(TxlogError):
        return folders_in(store, folder)
    return []
