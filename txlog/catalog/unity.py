"""`txlog.Catalog("uc://host/catalog")`: the tables of Unity Catalog by name.

The catalog can what its published interface allows. Everything else is refused, with what to use
instead. Rules: spec/catalog.md, CAT-18 to CAT-24.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import pyarrow as pa

from txlog.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    TxlogError,
    UnsupportedFeatureError,
    named_for_callers,
    require_texts,
)
from txlog.base.threads import Engine
from txlog.base.uris import scheme_of
from txlog.catalog.catalog import Catalog, discard_new_log
from txlog.catalog.moment import CatalogSnapshot, require_name
from txlog.commit.context import Context
from txlog.commit.intent import Intent, UserMetadata
from txlog.commit.operation import execute
from txlog.data_files.definition import Definition
from txlog.data_files.options import as_schema
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store, threads_for
from txlog.store.catalog_database import Managed, TableRow
from txlog.store.cloud_options import UNITY
from txlog.store.managed import PublishedStore
from txlog.store.open import open_store
from txlog.store.unity.address import TOKEN, access_of, is_address, is_step
from txlog.store.unity.client import Client, RefusedError, TableInfo
from txlog.store.unity.columns import TABLE_ID, columns_of, properties_of
from txlog.store.unity.tables import UnityTable, is_delta, table_of
from txlog.table.table import Table
from txlog.verbs.create import CreateTable, new_table
from txlog.verbs.managed import through_catalog

if TYPE_CHECKING:
    from txlog.data_files.identity import Identity
    from txlog.schema.types import StructType


class UnityCatalog(Catalog):
    """A catalog of Unity Catalog; what it cannot do raises `UnsupportedFeatureError`."""

    def __init__(
        self,
        database: str | os.PathLike[str],
        location: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        *,
        token: str | Callable[[], str] | None = None,
        time_zone: str | None = None,
        engine: Engine | None = None,
    ) -> None:
        """Open the catalog, which must exist; errors as for `Catalog`."""
        given = dict(storage_options or {})
        if token is not None:
            given = {n: value for n, value in given.items() if str(n).lower() != "token"}
            given["token"] = token
        access, rest = access_of(str(database), given)
        if access.address.table is not None:
            raise InvalidInputError(
                argument="database",
                reason=f"{access.address} is the address of a table, not of a catalog",
                remedy="Open it as a table, or leave out what follows the catalog's name",
            )
        if location is not None:
            raise InvalidInputError(
                argument="location",
                reason="the server of Unity Catalog decides where its tables are",
                remedy="Omit the location",
            )
        self._client = Client(access)
        self._options = rest
        self._time_zone = time_zone
        self._engine = engine
        found = self._client.catalog()
        self._id = found.id or str(access.address)
        self._location = str(access.address)

    @classmethod
    def _is_for(cls, database: object) -> bool:
        return is_address(database)

    def __repr__(self) -> str:
        return f"txlog.Catalog({self._location!r})"

    def __reduce__(self) -> Any:
        return _opened, (self._location, self._options, self._time_zone, self._engine)

    # Names -------------------------------------------------------------------------------------

    def tables(self, namespace: str | None = None) -> pa.Table:
        """Return the Delta tables, by name, as `Catalog.tables`; `version` is null."""
        require_texts(namespace=namespace)
        rows = self._rows(namespace)
        return pa.table(
            {
                "name": pa.array([row.name for row in rows], pa.string()),
                "location": pa.array([row.location for row in rows], pa.string()),
                "managed": pa.array([row.managed for row in rows], pa.string()),
                "version": pa.nulls(len(rows), pa.int64()),
                "created": pa.array([row.created_ms for row in rows], pa.timestamp("ms", "UTC")),
            }
        )

    def namespaces(self) -> list[str]:
        """Return the schemas of the catalog, ascending, also empty ones."""
        return self._client.schemas()

    def table(
        self, name: str, version: int | str | None = None, *, branch: str | None = None
    ) -> Table:
        """Open a table, or a branch of it; errors as for `Catalog.table`.

        Raises
        ------
        UnsupportedFeatureError
            It is not a Delta table, or in a storage that txlog does not know.
        """
        return self._at(self._name(name), version, branch)

    def __contains__(self, name: object) -> bool:
        """Return whether the catalog has a table of this name, in any case."""
        try:
            return isinstance(name, str) and self._info(name) is not None
        except (InvalidInputError, NotFoundError):
            return False

    def location_of(self, name: str) -> str:
        """Return the address of a table, with which every call opens it through the catalog."""
        return f"{self._location}/{self._row(name).name}"

    def storage_options(self) -> dict[str, Any]:
        """Return the options with which addresses of tables open: those given, and the token.

        Printed or pickled, they do not show the token. `json.dumps` and `str` of it do.
        """
        return {**self._options, TOKEN: self._client.access.given}

    def snapshot(self) -> CatalogSnapshot:
        """Return all tables; each has the version that is its latest when it is opened.

        The interface has no moment that several tables share.
        """
        return CatalogSnapshot(self._open, {row.name: (row, None) for row in self._rows(None)})

    def create_table(
        self,
        name: str,
        schema: pa.Schema | StructType,
        partition_by: Sequence[str] | str | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        managed: Managed | Literal[False] = False,
        location: str | os.PathLike[str] | None = None,
        cluster_by: Sequence[str] | str | None = None,
        generated: Mapping[str, str] | None = None,
        identity: Mapping[str, Identity] | Sequence[str] | str | None = None,
        description: str | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Table:
        """Create an external table at a location, or with `managed="all"` a managed table.

        The other parameters are those of `Catalog.create_table`.

        Raises
        ------
        AlreadyExistsError
            The catalog has a table of this name, or there is a table at the location.
        InvalidInputError
            An external table has no location, or a managed one has.
        UnsupportedFeatureError
            The kind `writes` is txlog's own.
        """
        name = self._name(name)
        if managed not in (False, "all"):
            raise self._lacking(f"managed={managed!r}", "Only 'all' is possible")
        if (location is None) == (managed is False):
            raise InvalidInputError(
                argument="location",
                reason="an external table needs a location"
                if location is None
                else "the server decides where a managed table is",
                remedy="Give an external table a location, and a managed one none",
            )
        if name in self:
            raise AlreadyExistsError(
                path=name,
                reason=f"{self!r} has a table {name!r} (case is ignored)",
                remedy="Choose another name, or drop that table",
            )
        definition = Definition(
            partition_by=partition_by,
            cluster_by=cluster_by,
            generated=generated,
            identity=identity,
            properties=properties,
            name=name,
            description=description,
        )
        columns = as_schema(schema, nanos=definition.keeps_nanos)
        if location is None:
            staged = self._client.stage(name)
            place, table_id = staged.staging_location, staged.id
            definition = replace(definition, properties=_of_managed(properties or {}, table_id))
        else:
            place, table_id = _uri_of(location), None
        access = UnityTable(self._client, name, table_id, place, "anybody")
        store: Store = open_store(place, {**self._options, UNITY: access})
        if location is None:
            store = PublishedStore(store)
        context = Context(store, engine=self._engine or threads_for(store))
        done = execute(
            CreateTable(partial(_creation, context, columns, definition, table_id)),
            context,
            None,
            user_metadata=user_metadata,
        )
        try:
            self._client.create(name, _stated(done.snapshot, place, is_managed=location is None))
        except RefusedError as refused:
            made = done.snapshot.metadata.id
            with suppress(TxlogError):
                if self._is_free(refused.error, name, place):
                    discard_new_log(store, made)
            raise refused.error from None
        return self.table(name)

    def register(
        self,
        name: str,
        uri: str | os.PathLike[str],
        *,
        managed: Managed | Literal[False] = False,
    ) -> Table:
        """Add a table that exists, as an external one; its files stay where they are.

        Raises
        ------
        AlreadyExistsError
            The catalog has a table of this name.
        NotFoundError
            There is no table.
        UnsupportedFeatureError
            `managed` is set: the server makes the places of managed tables.
        """
        name, place = self._name(name), _uri_of(uri)
        if managed is not False:
            raise self._lacking(
                f"register(managed={managed!r})",
                "Make a new managed table in the catalog, and copy the rows",
            )
        access = UnityTable(self._client, name, None, place, "anybody", is_new=False)
        snapshot = load_snapshot(open_store(place, {**self._options, UNITY: access}))
        try:
            self._client.create(name, _stated(snapshot, place, is_managed=False))
        except RefusedError as refused:
            raise refused.error from None
        return self.table(name)

    def drop(self, name: str) -> None:
        """Drop a table. The files of an external table stay; those of a managed one are deleted."""
        row = self._row(name)
        self._client.drop(row.name, row.table_id or None)

    # What the interface does not have ----------------------------------------------------------

    def rename(self, name: str, new_name: str) -> NoReturn:
        """Raise `UnsupportedFeatureError`."""
        raise self._lacking("rename", "Register its location under the new name, then drop the old")

    def dropped(self) -> NoReturn:
        """Raise `UnsupportedFeatureError`."""
        raise self._lacking("dropped", _NO_UNDROP)

    def undrop(self, name: str, new_name: str | None = None) -> NoReturn:
        """Raise `UnsupportedFeatureError`."""
        raise self._lacking("undrop", _NO_UNDROP)

    def purge(
        self, retention_days: float = 0, *, history_days: float = 0, dry_run: bool = True
    ) -> NoReturn:
        """Raise `UnsupportedFeatureError`."""
        raise self._lacking("purge", "The server deletes the files of managed tables itself")

    def manage(self, name: str, managed: Managed = "writes") -> NoReturn:
        """Raise `UnsupportedFeatureError`."""
        raise self._lacking("manage", "Make a new managed table in the catalog, and copy the rows")

    def release(self, name: str) -> NoReturn:
        """Raise `UnsupportedFeatureError`."""
        raise self._lacking("release", "Copy the rows into an external table")

    def repair(self, name: str) -> NoReturn:
        """Raise `UnsupportedFeatureError`."""
        raise self._lacking("repair", "Ask the operator of the server")

    @property
    def branches(self) -> NoReturn:
        """Raise `UnsupportedFeatureError`."""
        raise self._lacking("branches", "Branch each external table: catalog.table(name).branches")

    def at(self, timestamp: object) -> NoReturn:
        """Raise `UnsupportedFeatureError`."""
        raise self._lacking(
            "at", "Open each table at the time: catalog.table(name).at(timestamp=…)"
        )

    def follow(self, **_: object) -> NoReturn:
        """Raise `UnsupportedFeatureError`."""
        raise self._lacking("follow", "Follow each table: catalog.table(name).follow()")

    def transaction(self, **_: object) -> NoReturn:
        """Raise `UnsupportedFeatureError`."""
        raise self._lacking(
            "transaction",
            "Write one table after the other, with txn= so that each is written once, or keep "
            "tables that change together in a catalog of a database: txlog.Catalog('lake.db')",
        )

    def run(self, function: object, **_: object) -> NoReturn:
        """Raise `UnsupportedFeatureError`."""
        self.transaction()

    def _lacking(self, what: str, instead: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            path=self._location,
            features=(what,),
            reason=f"the published interface of Unity Catalog has nothing for {what}",
            remedy=instead,
        )

    # -------------------------------------------------------------------------------------------

    def _is_free(self, refused: TxlogError, name: str, place: str) -> bool:
        """Return whether nobody registered the place of a table that the server refused.

        A table that the token may not see may have it, so a conflict must be about the name.
        """
        is_taken = isinstance(refused, AlreadyExistsError)
        return not (is_taken and name not in self) and not self._client.has_at(place)

    def _info(self, name: str) -> TableInfo:
        return self._client.table(self._name(name))

    def _name(self, name: str) -> str:
        """Return `schema.table`; raise if a name is none.

        The server decides which names tables may have, except for those that no address has.
        """
        steps = (name if isinstance(name, str) else require_name(name)).split(".")
        if (
            len(steps) == 3
            and steps[0].casefold() == self._client.access.address.catalog.casefold()
        ):
            steps = steps[1:]
        if len(steps) != 2 or not all(map(is_step, steps)):
            raise InvalidInputError(
                argument="name",
                reason=f"{name!r} is not the name of a table in Unity Catalog",
                remedy="Write schema.table",
            )
        return ".".join(steps)

    def _rows(self, namespace: str | None) -> list[TableRow]:
        names = [namespace] if namespace is not None else self._client.schemas()
        infos = [info for name in names for info in self._client.tables(name) if is_delta(info)]
        return sorted((_row_of(info) for info in infos), key=lambda row: row.name)

    def _row(self, name: str) -> TableRow:
        info = self._info(name)
        found = f"{info.schema_name}.{info.name}"
        table_of(self._client, found, info)  # It raises if the table cannot be opened.
        return _row_of(info)

    def _open(self, row: TableRow, version: int | str | None, branch: str | None = None) -> Table:
        return self._at(row.name, version, branch)

    def _at(self, name: str, version: int | str | None, branch: str | None) -> Table:
        return Table(
            f"{self._location}/{name}",
            version,
            branch=branch,
            storage_options=self.storage_options(),
            time_zone=self._time_zone,
            engine=self._engine,
        )


_NO_UNDROP = (
    "The files of an external table stay: register its location again. Those of a managed table "
    "are the server's"
)


def _row_of(info: TableInfo) -> TableRow:
    return TableRow(
        table_id=info.table_id or "",
        name=f"{info.schema_name}.{info.name}",
        location=info.storage_location or "",
        managed="all" if info.table_type == "MANAGED" else None,
        latest_version=None,
        created_ms=info.created_at or 0,
        dropped_ms=None,
    )


def _uri_of(location: str | os.PathLike[str]) -> str:
    """Return a location as a URI; a server does not know the working folder."""
    root = open_store(location).root
    return Path(root).as_uri() if scheme_of(root) == "file" else root


def _of_managed(properties: Mapping[str, str], table_id: str) -> dict[str, str]:
    """Return the properties of a new managed table with those that the catalog asks for."""
    return {
        **properties,
        "delta.checkpointPolicy": "v2",
        "delta.enableDeletionVectors": "true",
        "delta.enableInCommitTimestamps": "true",
        "delta.feature.v2Checkpoint": "supported",
        "delta.feature.vacuumProtocolCheck": "supported",
        TABLE_ID: table_id,
    }


def _creation(
    context: Context, columns: StructType, definition: Definition, table_id: str | None
) -> Intent:
    """Return the intent of version 0."""
    intent = new_table(columns, definition, effects=context.effects).intent()
    return intent if table_id is None else through_catalog(intent)


def _stated(snapshot: Snapshot, place: str, *, is_managed: bool) -> dict[str, Any]:
    """Return how a table is registered."""
    metadata, protocol = snapshot.metadata, snapshot.protocol
    features = {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "readerFeatures": protocol.reader_features or (),
        "writerFeatures": protocol.writer_features or (),
    }
    properties = properties_of(metadata.configuration, features, {})
    if is_managed:
        properties["delta.lastUpdateVersion"] = str(snapshot.version)
        properties["delta.lastCommitTimestamp"] = str(snapshot.timestamp_ms)
    comment = {} if metadata.description is None else {"comment": metadata.description}
    return {
        "table_type": "MANAGED" if is_managed else "EXTERNAL",
        "data_source_format": "DELTA",
        "columns": columns_of(metadata.schema_string or "", metadata.partition_columns),
        "storage_location": place,
        "properties": properties,
        **comment,
    }


def _opened(
    location: str, options: Mapping[str, Any], time_zone: str | None, engine: Engine | None
) -> Catalog:
    """Open a catalog in another process, with the token of the environment."""
    return Catalog(location, storage_options=options, time_zone=time_zone, engine=engine)


named_for_callers(UnityCatalog, "Catalog")
