"""Find the tables and data sets to show: at the given URIs and below them, and by a catalog.

The URL of a page contains a key and never a path. So only tables that were found can be requested.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from threading import Lock
from typing import Any, TypeVar

from txlog import Catalog, Table
from txlog.base.errors import LogCorruptError, NotFoundError, TxlogError
from txlog.extend import Store, folders_in, map_many, open_sound, open_store
from txlog.training import Datasets, is_ledger

MOST_FOLDERS = 10_000  # The largest number of folders that are listed below one URI.
_MOST_OPEN = 64  # The largest number of open tables.
_MOST_KEPT = 8  # The largest number of open versions, data sets and reports, which need memory.
_BRANCH = ".b-"  # Between the key of a table and the id of its branch.
# The folders of the tables in a folder of data sets.
_PART = re.compile(r"ledger|(data|sets)/[0-9a-f-]{36}(/.*)?", re.DOTALL)

Value = TypeVar("Value")


@dataclass(frozen=True)
class Place:
    """A table that pages show."""

    key: str  # Identifies the table in the URLs of pages.
    name: str  # Its name in the catalog, the path below the given URI, or its last part.
    uri: str
    is_named: bool = False  # Whether the catalog has the table.
    branch: str | None = None  # The branch of the table that pages show.


class Cache:
    """A cache of the values that were used last, by key. Threads may share an instance."""

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
        """Return the value of a key; make it if it is not cached or no longer fresh.

        Two threads that ask at the same time may both make it.
        """
        with self._lock:
            cached: Value | None = self._values.get(key)
            if cached is not None:
                self._values.move_to_end(key)
        if cached is not None and is_fresh(cached):
            return cached
        made = make()
        with self._lock:
            self._values[key] = made
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return made


class Places:
    """The tables that pages show, with a cache of open versions.

    Parameters
    ----------
    uris
        Tables, folders of data sets, and folders that contain them at any depth.
    catalog
        All tables of this catalog are shown by their names, and opened through it.
    """

    def __init__(self, uris: Sequence[str], catalog: Catalog | None = None) -> None:
        self._uris = list(uris)
        self._catalog = catalog
        self._found: dict[str, Place] = {}
        self._by_uri: dict[str, Place] = {}
        self.folders: dict[str, Place] = {}  # Folders of data sets, by key.
        self._newest = Cache(_MOST_OPEN)
        self._versions = Cache(_MOST_KEPT)
        self._datasets = Cache(_MOST_KEPT)
        self.reports = Cache(_MOST_KEPT)
        self._refused: dict[str, TxlogError] = {}  # Why the catalog does not open a table.
        self.damages: dict[str, LogCorruptError] = {}  # Why the latest version cannot be opened.
        self.is_complete = True  # False: there are more folders than were listed.

    def find_all(self) -> list[Place]:
        """Search for tables, and return them in the order of their names.

        Tables in a folder of data sets are not returned, because `folders` has this folder. `find`
        finds them.

        Raises
        ------
        NotFoundError
            There is no table at one of the URIs, nor below it.
        """
        found: dict[str, Place] = {}
        homes_found: dict[str, Place] = {}
        listed: list[Place] = []
        self.is_complete = True
        for uri in self._uris:
            store = open_store(uri)
            folders, is_complete = tables_below(store)
            self.is_complete &= is_complete
            if not folders:
                raise NotFoundError(
                    path=store.root,
                    reason="there is no table here, nor in the folders below",
                    remedy="Name a table, or a folder that contains tables",
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
                homes_found[place.key] = place
            listed += [
                place
                for folder, place in places.items()
                if not any(
                    folder.startswith(home) and _PART.fullmatch(folder[len(home) :])
                    for home in homes
                )
            ]
        named = self._named()
        # A table that a folder has, too, is shown once: by its name.
        uris = {place.uri for place in named}
        listed = [*named, *(place for place in listed if place.uri not in uris)]
        found |= {place.key: place for place in named}
        self._found = found
        self._by_uri = {place.uri: place for place in [*found.values(), *named]}
        self.folders = homes_found
        by_key = {place.key: place for place in listed}
        return sorted(by_key.values(), key=lambda place: (place.name, place.uri))

    def _named(self) -> list[Place]:
        """Return the tables of the catalog."""
        if self._catalog is None:
            return []
        rows = self._catalog.tables()
        found: list[Place] = []
        refused: dict[str, TxlogError] = {}
        names: list[str] = rows["name"].to_pylist()
        for name, location in zip(names, rows["location"].to_pylist(), strict=True):
            try:
                place = place_of(self._catalog.location_of(name), name)
            except NotFoundError:  # It was dropped meanwhile.
                continue
            except TxlogError as error:
                place = place_of(location, name)
                refused[place.key] = error
            found.append(replace(place, is_named=True))
        self._refused = refused
        return found

    def namespaces(self) -> list[str]:
        """Return the namespaces of the catalog, ascending."""
        return [] if self._catalog is None else self._catalog.namespaces()

    def _is_ledger(self, place: Place) -> bool:
        """Return whether a table is the ledger of a folder of data sets."""
        with suppress(TxlogError):
            return is_ledger(self.open(place))
        return False

    def at_uris(self, uris: Sequence[str | None]) -> list[Place | None]:
        """Return the table at each URI, or None if none was found there."""
        if any(uri and uri not in self._by_uri for uri in uris):
            self.find_all()  # It may be new.
        return [self._by_uri.get(uri or "") for uri in uris]

    def find_folder(self, key: str) -> tuple[Place, Datasets]:
        """Return the folder of data sets of a key.

        Raises
        ------
        NotFoundError
            None of the folders has this key.
        """
        if key not in self.folders:
            self.find_all()
        if key not in self.folders:
            raise NotFoundError(
                reason="these pages do not show this folder of data sets",
                remedy="Choose one on the first page",
            )
        place = self.folders[key]
        return place, self._datasets.get(place.uri, lambda: Datasets(place.uri))

    def find(self, key: str) -> Place:
        """Return the table of a key, or a branch of it.

        Raises
        ------
        NotFoundError
            None of the tables has this key, or the branch is closed.
        """
        key, mark, branch_id = key.partition(_BRANCH)
        if key not in self._found:
            self.find_all()  # It may be new.
        if key not in self._found:
            raise NotFoundError(
                reason="these pages do not show this table",
                remedy="Choose one from the list of tables",
            )
        place = self._found[key]
        if not mark:
            return place
        for branch, _ in self.branches(place):
            if branch.key == f"{key}{mark}{branch_id}":
                return branch
        raise NotFoundError(
            reason=f"{place.name} has no such open branch",
            remedy="Choose one on the table's page",
        )

    def branches(self, place: Place) -> list[tuple[Place, dict[str, Any]]]:
        """Return the open branches of a table as they are now, each with its row of the list."""
        if place.branch is not None:
            return []
        return [
            (replace(place, key=f"{place.key}{_BRANCH}{row['id']}", branch=row["name"]), row)
            for row in self.open(place).branches.list().to_pylist()
            if row["status"] == "open"
        ]

    def options(self, place: Place) -> dict[str, Any]:
        """Return the storage options with which a table, or a branch of it, is opened."""
        named = self._catalog.storage_options() if self._catalog and place.is_named else {}
        return named if place.branch is None else {**named, "txlog.branch": place.branch}

    def open(self, place: Place, version: int | str | None = None) -> Table:
        """Return a table at a version or a pin; None: the latest version.

        Pages share the table, so do not refresh it.
        """
        if place.key in self._refused:
            raise self._refused[place.key]
        newest = self._newest.get(place.key, lambda: self._sound(place), _is_newest)
        if version is None or version == newest.version:
            return newest
        if isinstance(version, str):  # Pins move.
            return newest.at(version)
        chosen = version
        return self._versions.get((place.key, version), lambda: newest.at(chosen))

    def _sound(self, place: Place) -> Table:
        table, damage = open_sound(place.uri, self.options(place))
        if damage is None:
            self.damages.pop(place.key, None)
        else:
            self.damages[place.key] = damage
        return table


def _is_newest(table: Table) -> bool:
    with suppress(TxlogError):  # Opening it again raises the right error.
        return table.at().version == table.version
    return False


def place_of(uri: str, name: str) -> Place:
    """Return the place of a URI. Its key depends on the name and the URI only, and fits a URL."""
    name = name or uri.rstrip("/").rpartition("/")[2] or uri
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "table"
    digest = sha256(uri.encode("utf-8", "surrogateescape")).hexdigest()[:10]
    return Place(f"{slug}-{digest}", name, uri)


def tables_below(store: Store) -> tuple[list[str], bool]:
    """Return the folders of a store that are tables, and whether all folders were listed.

    Folders within a table, folders whose names begin with a dot or an underscore, and symbolic
    links are skipped. A folder that cannot be listed counts as empty; for the root, this raises.
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
