"""The store of a table of Unity Catalog, by who decides its commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.store.base import ForwardingStore, Put, Store
from txlog.store.cloud_options import UNITY
from txlog.store.managed import ManagedStore
from txlog.store.unity.commits import UnityCommits
from txlog.store.unity.tables import UnityTable


def through(store: Store) -> Store:
    """Return the store of a table with what its catalog decides: commits, or that nobody writes.

    Raises
    ------
    InvalidInputError
        The option was not made by the catalog.
    """
    table = store.options[UNITY]
    if not isinstance(table, UnityTable):
        raise InvalidInputError(
            argument="storage_options",
            field=UNITY,
            reason=f"{UNITY} is a {type(table).__name__}",
            remedy="Open the table by its address: uc://host/catalog/schema.table",
        )
    if table.commits == "nobody":
        return _Unwritten(store)
    if table.commits == "catalog" and table.table_id is not None:
        return ManagedStore(store, UnityCommits(table, store), table.table_id)
    return store


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
