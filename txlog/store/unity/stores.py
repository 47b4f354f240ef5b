"""The store of a table of Unity Catalog, by who decides its commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.store.base import ForwardingStore, Put, Store
from txlog.store.cloud_options import UNITY
from txlog.store.managed import ManagedStore
from txlog.store.places import is_within, same_place
from txlog.store.unity.commits import UnityCommits
from txlog.store.unity.tables import UnityTable, root_of


def options_at(place: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for a place, without the table of the catalog if it is another place.

    Other tables are opened with the options of a table, such as its clone or its quarantine. They
    have neither its commits nor its credentials. What is below the table has its credentials.

    Raises
    ------
    InvalidInputError
        The option was not made by the catalog.
    """
    table = _table_of(options)
    if is_within(root_of(table.location), root_of(place)):
        return dict(options)
    return {name: value for name, value in options.items() if name != UNITY}


def through(store: Store) -> Store:
    """Return the store of a table with what its catalog decides: commits, or that nobody writes.

    A store below the table remains as it is.

    Raises
    ------
    InvalidInputError
        The option was not made by the catalog.
    """
    table = _table_of(store.options)
    if not same_place(root_of(table.location), store.root):
        return store
    if table.commits == "nobody":
        return _Unwritten(store)
    if table.commits == "catalog" and table.table_id is not None:
        return ManagedStore(store, UnityCommits(table, store), table.table_id)
    return store


def _table_of(options: Mapping[str, Any]) -> UnityTable:
    table = options[UNITY]
    if not isinstance(table, UnityTable):
        raise InvalidInputError(
            argument="storage_options",
            field=UNITY,
            reason=f"{UNITY} is a {type(table).__name__}",
            remedy="Open the table by its address: uc://host/catalog/schema.table",
        )
    return table


@dataclass(frozen=True)
class _Unwritten(ForwardingStore):
    """Wraps the store of a table that only the server's own engine writes."""

    inner: Store

    def require_writable(self) -> None:
        """Raise `UnsupportedFeatureError`."""
        raise self._refused()

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Raise `UnsupportedFeatureError`, as all that would change the table."""
        raise self._refused()

    def open_output(self, path: str) -> NoReturn:
        """Raise `UnsupportedFeatureError`."""
        raise self._refused()

    def write_new(self, path: str, data: bytes) -> None:
        """Raise `UnsupportedFeatureError`."""
        raise self._refused()

    def replace(self, path: str, data: bytes) -> None:
        """Raise `UnsupportedFeatureError`."""
        raise self._refused()

    def delete(self, paths: Sequence[str]) -> None:
        """Raise `UnsupportedFeatureError`."""
        raise self._refused()

    def _refused(self) -> UnsupportedFeatureError:
        table: UnityTable = self.options[UNITY]
        return UnsupportedFeatureError(
            path=table.location,
            features=("a managed table without catalogManaged",),
            reason=f"Unity Catalog manages {table.client.full_name(table.name)}, and its commits "
            "do not go through the published interface",
            remedy="Write it with the engine of the catalog, or enable catalogManaged there. "
            "Reading works",
        )
