"""`Catalog`: tables by name, in a database that decides which commits of managed tables exist."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

import pyarrow as pa

from txlog.base.effects import REAL, is_rehearsing
from txlog.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    InvalidInputError,
    InvalidTypeError,
    LogCorruptError,
    NotFoundError,
    StoreError,
    TxlogError,
    UnsupportedFeatureError,
    in_callers_words,
    named_for_callers,
    require_flags,
    require_mappings,
    require_texts,
    require_whole,
)
from txlog.base.texts import is_unicode, without_secrets
from txlog.base.threads import Engine
from txlog.catalog.moment import CatalogSnapshot, Naming, by_name, require_name
from txlog.commit.app_versions import AppVersion, require_app_version
from txlog.commit.context import Context
from txlog.commit.intent import UserMetadata
from txlog.commit.operation import execute as execute_on
from txlog.log.names import LOG_FOLDER, commit_name, log_path
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.references import clones_of
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.time_travel import parse_timestamp
from txlog.store.base import Store
from txlog.store.catalog_database import (
    CATALOG,
    LEAVING,
    CatalogDatabase,
    Managed,
    TableRow,
    path_of,
    url_of,
)
from txlog.store.managed import ManagedStore, PublishedStore, ReleasedStore
from txlog.store.open import open_store
from txlog.store.places import is_within
from txlog.table.seam import context_of, open_table, table_at
from txlog.table.table import Table
from txlog.verbs.managed import LetOut, TakeIn, catalog_of, managed_kind

if TYPE_CHECKING:
    from txlog.catalog.branches import CatalogBranches
    from txlog.catalog.follow import CatalogChange
    from txlog.catalog.transaction import CatalogTransaction, Isolation
    from txlog.commit.operation import Outcome
    from txlog.data_files.identity import Identity
    from txlog.schema.types import StructType

Result = TypeVar("Result")

_DAY_MS = 24 * 60 * 60 * 1000
_MOST_DAYS = 1_000_000.0
RETENTION_DAYS = 7.0
HISTORY_DAYS = 30.0


class Catalog:
    """Tables by name, in a database: SQLite by default.

    A table of a catalog is a folder like any other; the catalog knows its place. If the catalog
    *manages* a table, all its commits go through the catalog, which decides which of them exist. So
    several tables change at one moment (`transaction`), or are read as of one (`snapshot`).

    Parameters
    ----------
    database
        The file of an SQLite database, which is made if it does not exist, or a URL of SQLAlchemy,
        such as `postgresql+psycopg://host/name`. SQLite needs working file locks: do not put it on
        a network disk that lacks them. `uc://host/catalog` is a catalog of Unity Catalog, which
        does less (docs/catalog.md).
    location
        The folder for new tables, or its URI. The catalog keeps it, so it is needed only once.
        Default: the folder of the SQLite file.
    storage_options
        As for `Table`, for all tables of the catalog. They are not stored.
    token
        Only for Unity Catalog, also as a storage option: the token for its server, or a function
        without parameters that returns it. A function is called before each request, so that it can
        renew the token; let it keep one that is still valid.
    time_zone, engine
        As for `Table`.

    Raises
    ------
    StoreError
        The database cannot be reached.
    UnsupportedFeatureError
        SQLAlchemy is not installed, or a newer release of txlog wrote the catalog.
    InvalidInputError
        The catalog is new and `location` is missing, or the catalog has another location.
    """

    def __new__(cls, database: str | os.PathLike[str] = "", *_: Any, **__: Any) -> Self:
        """Return a catalog of the kind that knows such addresses."""
        kinds = Catalog.__subclasses__() if cls is Catalog else []
        kind = next((one for one in kinds if one._is_for(database)), cls)
        return cast(Self, object.__new__(kind))

    @classmethod
    def _is_for(cls, database: object) -> bool:  # noqa: ARG003  # Subclasses use it.
        """Return whether a subclass is for an address."""
        return False

    @in_callers_words
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
        if token is not None:
            raise InvalidInputError(
                argument="token",
                reason="only Unity Catalog has a token",
                remedy="Omit it, or open uc://host/catalog",
            )
        require_mappings(storage_options=storage_options)
        url = _url_of(database)
        self._database = CatalogDatabase(url)
        self._options = dict(storage_options or {})
        self._options.pop(CATALOG, None)
        self._time_zone = time_zone
        self._engine = engine
        facts = self._database.facts()
        if not facts:
            place = _location_of(url, location, self._options)
            self._database.create({"id": REAL.uuid(), "location": place})
            facts = self._database.facts()
        elif location is not None:
            place = open_store(location, self._options).root
            if place != facts["location"]:
                raise InvalidInputError(
                    argument="location",
                    reason=f"the catalog keeps its tables in {without_secrets(facts['location'])}",
                    remedy="Omit the location, or open another catalog",
                )
        self._id = facts["id"]
        self._location = facts["location"]

    @property
    def id(self) -> str:
        """The id of the catalog, a UUID."""
        return self._id

    @property
    def location(self) -> str:
        """The folder of new tables, or its URI."""
        return self._location

    def __repr__(self) -> str:
        return f"txlog.Catalog({self._database.place!r})"

    # Names -------------------------------------------------------------------------------------

    def tables(self, namespace: str | None = None) -> pa.Table:
        """Return the tables, by name, all at one moment.

        The columns are `name`, `location`, `managed` (`all`, `writes` or null), `version` (the last
        one that the catalog ratified; null for a table that it does not manage) and `created`.

        Parameters
        ----------
        namespace
            Only tables in it, such as `sales` for `sales.orders`, and in namespaces below.
        """
        require_texts(namespace=namespace)
        rows = self._database.tables()
        if namespace is not None:
            below = f"{namespace.casefold()}."
            rows = [row for row in rows if row.name.casefold().startswith(below)]
        return _as_arrow(rows, "created", [row.created_ms for row in rows])

    def namespaces(self) -> list[str]:
        """Return the namespaces that have tables, ascending: the parts of names before a dot."""
        found: set[str] = set()
        for row in self._database.tables():
            steps = row.name.split(".")[:-1]
            found.update(".".join(steps[:count]) for count in range(1, len(steps) + 1))
        return sorted(found)

    def table(
        self, name: str, version: int | str | None = None, *, branch: str | None = None
    ) -> Table:
        """Open a table, or a branch of it.

        Raises
        ------
        NotFoundError
            The catalog has no table of this name, or its folder has no table any more, or no such
            branch.
        """
        return self._open(self._row(name), version, branch)

    def __contains__(self, name: object) -> bool:
        """Return whether the catalog has a table of this name, in any case."""
        return isinstance(name, str) and self._database.table(name) is not None

    def location_of(self, name: str) -> str:
        """Return the folder or URI of a table."""
        return self._row(name).location

    def storage_options(self) -> dict[str, Any]:
        """Return the options with which locations of tables open through the catalog.

        They are needed where a table is named by its location: `txlog.Table`, Spark's doors, the
        command line. They contain the URL of the database.
        """
        return {**self._options, CATALOG: self._database.url}

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
        """Create a table.

        Parameters
        ----------
        name
            Such as `sales.orders`. Case is kept, and ignored in look-ups.
        managed
            False: the table is a folder like any other, and the catalog only names it. `writes`:
            all writers go through the catalog, and every engine reads what was published. `all`:
            readers go through the catalog too (the protocol's `catalogManaged`), so engines without
            it refuse the table.
        location
            Default: a folder in the catalog's location.
        partition_by, properties, cluster_by, generated, identity, description
            As for `Table.create`.

        Raises
        ------
        AlreadyExistsError
            The catalog has a table of this name, or there is a table at the location.
        """
        self._require_free(name)
        _require_managed(managed)
        place = os.fspath(location) if location is not None else self._place_of(name)
        store = open_store(place, self._options)
        self._require_apart(store.root)
        is_own = next(iter(store.list_tree("")), None) is None  # Else a purge would delete more.
        table = Table.create(
            place,
            schema,
            partition_by,
            properties,
            cluster_by=cluster_by,
            generated=generated,
            identity=identity,
            name=name,
            description=description,
            user_metadata=user_metadata,
            storage_options=self._options,
        )
        try:
            return self._take(name, table, managed, is_own=is_own)
        except AlreadyExistsError:  # Another process took the name meanwhile, or the place.
            made = table.snapshot.metadata.id
            with suppress(TxlogError):
                if self._database.table_of(made) is None:
                    discard_new_log(open_store(table.uri, self._options), made)
            raise

    def register(
        self,
        name: str,
        uri: str | os.PathLike[str],
        *,
        managed: Managed | Literal[False] = False,
    ) -> Table:
        """Add a table that exists; its files stay where they are.

        Raises
        ------
        AlreadyExistsError
            The catalog has a table of this name, or this table by another one.
        NotFoundError
            There is no table.
        """
        self._require_free(name)
        _require_managed(managed)
        # A table of this catalog that was lost from its database has its feature still.
        table = Table(uri, storage_options=self._options)
        return self._take(name, table, managed, is_own=False)

    def rename(self, name: str, new_name: str) -> None:
        """Give a table another name. Its files stay where they are.

        Raises
        ------
        AlreadyExistsError
            Another table has the new name.
        NotFoundError
            There is no table of this name, or another process renamed or dropped it meanwhile.
        """
        row = self._row(name)
        require_name(new_name)
        other = self._database.table(new_name)
        if other is not None and other.table_id != row.table_id:
            raise _exists(new_name)
        if not self._named(row, new_name):
            raise self._not_there(name)

    def drop(self, name: str) -> None:
        """Drop a table: its name is free, and managed tables take no commits any more.

        Files stay until `purge`. Before that, `undrop` brings the table back.
        """
        row = self._row(name)
        self._database.drop(row.table_id)

    def dropped(self) -> pa.Table:
        """Return the dropped tables, as `tables` does, with `dropped` in place of `created`."""
        rows = self._database.tables(dropped=True)
        return _as_arrow(rows, "dropped", [row.dropped_ms for row in rows])

    def undrop(self, name: str, new_name: str | None = None) -> Table:
        """Bring back the last dropped table of this name, as it was, also under a new name.

        Raises
        ------
        NotFoundError
            There is none: it was not dropped, or it was purged.
        AlreadyExistsError
            Another table has the name.
        """
        folded = require_name(name).casefold()
        rows = self._database.tables(dropped=True)
        rows = [row for row in rows if row.name.casefold() == folded]
        row = max(rows, key=lambda row: row.dropped_ms or 0, default=None)
        if row is not None:
            self._require_free(new_name or name)
        if row is None or not self._named(row, new_name or name):
            raise NotFoundError(
                path=name,
                reason=f"{self!r} has no dropped table {name!r}",
                remedy="Choose a name from the catalog's dropped tables",
            )
        if is_rehearsing():
            return self._open_dropped(row, None)
        return self.table(new_name or name)

    def purge(
        self,
        retention_days: float = RETENTION_DAYS,
        *,
        history_days: float = HISTORY_DAYS,
        dry_run: bool = True,
    ) -> list[str]:
        """Forget what is old: dropped tables, with the files of their folders, and the history.

        Files stay if the catalog did not make the table, if there were other files in the folder
        before, or if another table is there, another catalog manages the table, or a clone that is
        registered needs them.

        Parameters
        ----------
        retention_days
            How long dropped tables stay.
        history_days
            How long the catalog remembers when each version was ratified. For earlier times `at`
            raises, and so does `follow` with an older token. The tables keep their own histories.

        Returns
        -------
        The names of the tables; of a table whose purge ended half-way, its id. With `dry_run`,
        nothing is done.

        Raises
        ------
        LogCorruptError, StoreError
            A table could not be purged, and stays. All others were.
        """
        require_flags(dry_run=dry_run)
        retention_ms = _in_ms(retention_days, "retention_days")
        forgotten_ms = REAL.now_ms() - _in_ms(history_days, "history_days")
        # Drops have the times of the database.
        before = max(REAL.now_ms(), self._database.last_moment().at_ms) - retention_ms
        rows = [r for r in self._database.tables(dropped=True) if (r.dropped_ms or 0) <= before]
        names = [row.name.strip() for row in rows]  # Of one that is claimed, its id.
        if dry_run or is_rehearsing():
            return names
        failed: list[TxlogError] = []
        for row in rows:
            try:
                self._purge(row)
            except TxlogError as error:  # One table does not keep the others.
                failed.append(error)
        self._note_published()
        self._database.prune(forgotten_ms)
        if failed:
            for other in failed[1:]:
                failed[0].add_note(str(other))
            raise failed[0]
        return names

    def _purge(self, row: TableRow) -> None:
        """Delete the files of a dropped table, as far as only it needs them, and forget it."""
        assert row.dropped_ms is not None
        files = self._files_to_purge(row)  # Before the claim: if it fails, `undrop` is possible.
        if not self._database.claim(row.table_id, row.dropped_ms):
            return
        if files:
            # The log is deleted last: if the process ends before, it says whose the rest is.
            store = open_store(row.location, self._options)
            store.delete([path for path in files if not _is_of_log(path)])
            if _is_free_of_others(store, row.table_id):
                store.delete([path for path in files if _is_of_log(path)])
        self._database.forget(row.table_id)

    def _note_published(self) -> None:
        """Record commits as published whose copies are there: on near stores nobody said so."""
        for row in self._database.tables():
            if row.managed is None:
                continue
            store = open_store(row.location, self._options_of(row))
            if isinstance(store, ManagedStore):
                with suppress(TxlogError):  # A table that is away keeps its rows.
                    store.note_published()

    def _files_to_purge(self, row: TableRow) -> list[str]:
        """Return the files of a dropped table, if only it can have any there.

        Raises
        ------
        LogCorruptError
            The log cannot be read, so nobody knows whether a clone needs the files.
        """
        others = [one for one in self._database.all_tables() if one.table_id != row.table_id]
        if not row.is_own or any(_overlap(row.location, one.location) for one in others):
            return []
        store = open_store(row.location, self._options)
        try:
            snapshot = load_snapshot(PublishedStore(store))
            is_same = snapshot.metadata.id == row.table_id
            if is_same and snapshot.version < (row.latest_version or 0):
                # A clone may be registered in a commit that is ratified and not published.
                snapshot = self._open_dropped(row, None).snapshot
        except (NotFoundError, LogCorruptError) as error:
            files = [info.name for info in store.list_tree("")]
            if _is_claimed(row) and all(map(_is_of_log, files)):
                return files  # A purge ended while it deleted the log.
            if isinstance(error, NotFoundError):
                return []
            error.remedy = (
                "The purge went on with the other tables. If nobody needs the files in "
                f"{row.location}, delete this folder and purge again. Else restore the file of "
                "the log from a copy"
            )
            raise
        if not is_same or catalog_of(snapshot) not in (None, self._id) or clones_of(snapshot):
            return []
        return [info.name for info in store.list_tree("")]

    # Managed tables ----------------------------------------------------------------------------

    def manage(self, name: str, managed: Managed = "writes") -> Table:
        """Take a table in: from now on all its commits go through the catalog.

        A call that failed half-way can be repeated.

        Parameters
        ----------
        managed
            As for `create_table`.

        Raises
        ------
        UnsupportedFeatureError
            Another catalog manages the table, or this one in another way.
        """
        _require_managed(managed)
        self._open(self._row(name), None)  # It finishes what ended half-way.
        row = self._row(name)
        if row.managed == managed:
            return self._open(row, None)
        store = open_store(row.location, self._options)
        self._take_in(row, store, managed, load_snapshot(PublishedStore(store)))
        return self.table(name)

    def _take_in(self, row: TableRow, store: Store, managed: Managed, snapshot: Snapshot) -> None:
        done = execute_on(TakeIn(managed, self._id), Context(store), snapshot)
        # From here on only the catalog makes commits, so this is the latest version.
        self._database.manage(row.table_id, managed, done.snapshot.version)

    def release(self, name: str) -> Table:
        """Let a table out: its commits no longer go through the catalog, which only names it.

        Raises
        ------
        UnsupportedFeatureError
            The table has open branches: publish or discard them first.
        """
        table = self._open(self._row(name), None)  # It finishes what ended half-way.
        row = self._row(name)
        if row.managed is None:
            return table
        context = context_of(table)
        assert isinstance(context.store, ManagedStore)
        last = replace(context, store=replace(context.store, is_last=True))
        done = execute_on(LetOut(), last, table.refresh().snapshot)
        if not done.outcome.rehearsed:
            self._finish_release(self._row(name))
        return self.table(name)

    def _finish_release(self, row: TableRow) -> None:
        """Record that a table whose last commit through the catalog is published is let out."""
        store = open_store(row.location, self._options_of(row))
        latest = store.latest_version()
        if isinstance(store, ManagedStore) and latest is not None:
            store.require_published(latest)
            self._database.release(row.table_id, latest)

    def repair(self, name: str) -> Table:
        """Accept commits of a managed table that its log has and the catalog does not know.

        That is so if the catalog's database was restored from an older copy. Commits without a gap
        after the last known one become ratified. So do, at the same moment, the commits of other
        tables that belong to the same transactions, also if they are not published yet.

        Returns
        -------
        The table at its latest version.

        Raises
        ------
        LogCorruptError
            The commit of another table that belongs to a transaction is missing. Nothing was
            accepted.
        """
        row = self._row(name)
        if row.managed is not None and not is_rehearsing():
            self._recover(row)
        return self.table(name)

    def _recover(self, row: TableRow) -> None:
        from txlog.catalog.repair import recovered

        def store_of(row: TableRow) -> Store:
            return open_store(row.location, self._options)

        recovered(self._database, self._id, store_of, row.table_id)

    # Several tables ----------------------------------------------------------------------------

    @property
    def branches(self) -> CatalogBranches:
        """Branches of all managed tables: `create`, `publish`, `discard` and `list`."""
        from txlog.catalog.branches import CatalogBranches
        from txlog.commit.group import Terms

        return CatalogBranches(self.snapshot, Terms(self._database, self._id))

    def snapshot(self) -> CatalogSnapshot:
        """Return all tables as they are at one moment.

        A table that the catalog does not manage has the version that is its latest when it is
        opened.
        """
        rows = self._database.tables()
        return CatalogSnapshot(self._open, {row.name: (row, row.latest_version) for row in rows})

    def at(self, timestamp: str | datetime | int) -> CatalogSnapshot:
        """Return all tables as they were at a time.

        Of a managed table, the time of a version is when the catalog ratified it; of others, and of
        versions before the table was taken in, that of time travel. Each table has the name that it
        had then. Tables that were dropped later are shown until they are purged, as `NAME@ID` if
        another table has the name.

        Parameters
        ----------
        timestamp
            As for `Table`.

        Raises
        ------
        NotFoundError
            The catalog has forgotten what was there at that time (`purge`).

        If the log of a table cannot be read, the error is raised when that table is asked for.
        """
        at_ms = parse_timestamp(timestamp)
        versions = self._database.versions_at(at_ms)
        there = []
        failed: dict[str, TxlogError] = {}
        for row in Naming(*self._database.tables_and_former_names()).at(at_ms):
            if _is_claimed(row) or (row.dropped_ms is not None and row.dropped_ms <= at_ms):
                continue
            if row.table_id not in versions:
                try:
                    version = self._version_at(row, at_ms)
                except TxlogError as error:  # Only whoever asks for the table must know it.
                    failed[row.table_id] = error
                else:
                    if version is None:
                        continue
                    versions[row.table_id] = version
            there.append(row)
        named = by_name(there)
        return CatalogSnapshot(
            self._open,
            {name: (row, versions.get(row.table_id)) for name, row in named.items()},
            {n: failed[row.table_id] for n, row in named.items() if row.table_id in failed},
        )

    def _version_at(self, row: TableRow, at_ms: int) -> int | None:
        """Return the version that a table's log had at a time; None: there was no table."""
        is_optional = row.dropped_ms is not None  # Its folder may be gone.
        try:
            latest = self._open(row, None)
            is_optional = is_optional or row.created_ms > at_ms
            if latest.timestamp_ms is not None and latest.timestamp_ms <= at_ms:
                return latest.version
            return latest.at(timestamp=at_ms).version
        except NotFoundError:
            if is_optional:
                return None
            raise

    def follow(
        self, *, token: str | None = None, timeout_s: float | None = None, poll_s: float = 1.0
    ) -> Iterator[CatalogChange]:
        """Yield the changes of the managed tables, in the order of the catalog, and wait for more.

        The commits of a transaction are one change. `Table.follow` follows one table.

        Parameters
        ----------
        token
            The `token` of a change, after which to continue. Default: what follows this call.
        timeout_s
            End if nothing changed for so many seconds; 0 does not wait. Default: wait for ever.
        poll_s
            The most seconds between two looks at the catalog. The first ones are shorter.

        Raises
        ------
        InvalidInputError
            The token is none, or that of another catalog.
        NotFoundError
            While it goes on: the catalog has forgotten changes that follow (`purge`), or its
            database was restored from a copy that is older than the token.
        """
        from txlog.catalog.follow import followed

        return followed(
            self._database,
            self._id,
            self._open,
            token=token,
            timeout_s=timeout_s,
            poll_s=poll_s,
        )

    def sql(self, statement: str) -> pa.Table | Outcome:
        """Run `SELECT`, `DELETE`, `UPDATE` or `INSERT`; names are those of the catalog.

        A query sees all tables as of one moment, and so do the rows of an `INSERT`.

        Returns
        -------
        The rows of a query, or the outcome of a change.

        Raises
        ------
        InvalidInputError
            The text is another statement, or is not SQL.
        """
        from txlog.catalog.statements import run_statement

        return run_statement(statement, self.table, self.snapshot())

    @contextmanager
    def transaction(
        self,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
        isolation: Isolation = "snapshot",
    ) -> Iterator[CatalogTransaction]:
        """Change several tables at one moment, or none of them::

            with catalog.transaction() as tx:
                tx["orders"].append(rows)
                tx["totals"].update({"n": "n + 1"}, "day = '2026-11-29'")

        All reads in the block see the tables at the moment when it began, with the changes of the
        block. At its end all tables are committed, each by the rules for conflicts of its rows.
        The tables must be managed by the catalog.

        Parameters
        ----------
        txn
            The version of an application. If the catalog has recorded it, the block's changes are
            skipped (`tx.skipped`).
        isolation
            `snapshot`: two transactions that change the same rows conflict. `serializable`: so does
            one that read, through `tx`, what another one changed.

        Raises
        ------
        CommitConflictError
            Another transaction changed what this one read or changed. Nothing was committed. Run
            the block again, as `run` does.
        """
        from txlog.catalog.transaction import CatalogTransaction, Options

        require_app_version(txn)
        options = Options(self._database, self._id, txn, user_metadata, isolation)
        changes = CatalogTransaction(options, self.snapshot())
        try:
            yield changes
        except BaseException as error:
            changes._give_up(error)
            raise
        changes._commit_all()

    def run(
        self,
        function: Callable[[CatalogTransaction], Result],
        *,
        attempts: int = 10,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
        isolation: Isolation = "snapshot",
    ) -> Result:
        """Run a function in a transaction, and again after a conflict; return its result.

        The function gets the transaction. It is called up to `attempts` times, so what it does
        besides must be repeatable.
        """
        if not callable(function):
            raise InvalidTypeError(
                argument="function",
                reason=f"a function was expected, not {type(function).__name__}",
                remedy="Pass a function with one parameter, the transaction",
            )
        for attempt in range(require_whole("attempts", attempts, 1)):
            try:
                with self.transaction(
                    txn=txn, user_metadata=user_metadata, isolation=isolation
                ) as changes:
                    result = function(changes)
            except CommitConflictError:
                if attempt == attempts - 1:
                    raise
                REAL.sleep_s(min(1.0, 0.01 * 2**attempt) * REAL.jitter())
            else:
                return result
        raise AssertionError("the last attempt returned or raised")

    # -------------------------------------------------------------------------------------------

    def _row(self, name: str) -> TableRow:
        row = self._database.table(require_name(name))
        if row is None:
            raise self._not_there(name)
        return row

    def _not_there(self, name: str) -> NotFoundError:
        return NotFoundError(
            path=name,
            reason=f"{self!r} has no table {name!r}",
            remedy="Choose a name from the catalog's tables",
        )

    def _named(self, row: TableRow, name: str) -> bool:
        """Give a table a name; false if another process has changed its row since it was read."""
        try:
            return self._database.give_name(row, name)
        except AlreadyExistsError:  # Another process took the name meanwhile.
            raise _exists(name) from None

    def _options_of(self, row: TableRow) -> dict[str, Any]:
        if row.managed is None:
            return dict(self._options)
        return self.storage_options()

    def _open_dropped(self, row: TableRow, version: int | str | None) -> Table:
        """Open a dropped table, which can be read, but not changed through the catalog."""
        store = open_store(row.location, self._options)
        if row.managed is not None:
            database = replace(self._database, sees_dropped=True)
            store = ManagedStore(store, database, row.table_id, is_dropped=True)
        try:
            table = open_table(store, version, engine=self._engine)
        except UnsupportedFeatureError:
            released = self._open_released(row, version)
            if released is None:
                raise
            return released
        if table.snapshot.metadata.id != row.table_id:
            raise _replaced(row)
        return table_at(replace(context_of(table), time_zone=self._time_zone), table.snapshot)

    def _open_released(self, row: TableRow, version: int | str | None) -> Table | None:
        """Open a version of a released table that this catalog managed, to be read; else None."""
        if version is None or row.managed is not None:
            return None
        store = ReleasedStore(open_store(row.location, self._options))
        table = open_table(store, version, engine=self._engine)
        if catalog_of(table.snapshot) != self._id:
            return None
        return table_at(replace(context_of(table), time_zone=self._time_zone), table.snapshot)

    def _open(self, row: TableRow, version: int | str | None, branch: str | None = None) -> Table:
        try:
            return self._opened(row, version, branch)
        except NotFoundError as error:
            with suppress(StoreError):
                now = self._database.table_of(row.table_id)
                if now is None or _is_claimed(now):
                    raise _purged(row) from error
            raise

    def _opened(self, row: TableRow, version: int | str | None, branch: str | None) -> Table:
        if row.dropped_ms is not None:
            return self._open_dropped(row, version)
        if row.managed == LEAVING:
            self._finish_release(row)
            row = self._row(row.name)
        try:
            table = Table(
                row.location,
                version,
                branch=branch,
                storage_options=self._options_of(row),
                time_zone=self._time_zone,
                engine=self._engine,
            )
        except UnsupportedFeatureError:
            if self._finished_taking_in(row):
                return self._open(self._row(row.name), version, branch)
            released = self._open_released(row, version)
            if released is None:
                raise
            table = released
        except NotFoundError as error:
            with suppress(TxlogError):
                if not Table.exists(row.location, self._options):
                    error.remedy = (
                        f"The folder of {row.name} was moved or deleted: bring it back, or drop "
                        "the name and register the new place"
                    )
            raise
        if table.snapshot.metadata.id != row.table_id:
            raise _replaced(row)
        is_taken = row.managed is None and managed_kind(table.snapshot) is not None
        if is_taken and self._finished_taking_in(row):
            return self._open(self._row(row.name), version, branch)
        return table

    def _finished_taking_in(self, row: TableRow) -> bool:
        """Finish taking in a table whose log says that this catalog manages it; false if not so."""
        if row.managed is not None:
            return False
        snapshot = load_snapshot(PublishedStore(open_store(row.location, self._options)))
        if managed_kind(snapshot) is None or catalog_of(snapshot) != self._id:
            return False
        self._recover(row)
        return True

    def _take(
        self, name: str, table: Table, managed: Managed | Literal[False], *, is_own: bool
    ) -> Table:
        row = TableRow(
            table_id=table.snapshot.metadata.id,
            name=name,
            location=table.uri,
            managed=None,
            latest_version=None,
            created_ms=REAL.now_ms(),
            dropped_ms=None,
            is_own=is_own,
        )
        self._require_apart(row.location, row.table_id)
        try:
            self._database.add(row)
        except AlreadyExistsError:
            other = self._database.table_of(row.table_id)
            if other is None:
                raise _exists(name) from None
            is_dropped = other.dropped_ms is not None
            raise AlreadyExistsError(
                path=row.location,
                reason=f"the catalog has this table by the name {other.name!r}"
                + (", dropped" if is_dropped else ""),
                remedy="Bring it back with the catalog's method undrop"
                if is_dropped
                else "Use that name, or rename it",
            ) from None
        if is_rehearsing():  # The row is not there.
            if managed:
                store = open_store(row.location, self._options)
                self._take_in(row, store, managed, replace(table.snapshot, is_managed=True))
            return table
        return self.manage(name, managed) if managed else self._open(row, None)

    def _require_free(self, name: str) -> None:
        if self._database.table(require_name(name)) is not None:
            raise _exists(name)

    def _require_apart(self, location: str, table_id: str | None = None) -> None:
        """Raise if a place is that of another table, or inside or around it.

        Raises
        ------
        AlreadyExistsError
            It is. A vacuum or a purge of one would delete files of the other.
        InvalidInputError
            The file of the catalog's database is inside the place: a vacuum would delete it.
        """
        for row in self._database.all_tables():
            if row.table_id != table_id and _overlap(row.location, location):
                raise AlreadyExistsError(
                    path=location,
                    reason=f"the folder of the table {row.name.strip() or row.table_id} is there, "
                    "inside it or around it",
                    remedy="Choose another place. If that table was moved or deleted, drop and "
                    "purge its name first",
                )
        path = path_of(self._database.url)
        if path is not None and is_within(location, str(Path(path).parent)):
            raise InvalidInputError(
                argument="uri" if table_id else "location",
                reason=f"the catalog's database {path} is inside the folder {location}, and a "
                "vacuum of the table would delete it",
                remedy="Choose another folder for the table. If the table is there already, close "
                "the catalog, and move its database out of the folder",
            )

    def _place_of(self, name: str) -> str:
        """Return a folder for a new table: that of its name, unless a table is there already."""
        place = f"{self._location.rstrip('/')}/{name}"  # Not nested: a.b is no folder in a.
        known = {row.location for row in self._database.all_tables()}
        if place in known or Table.exists(place, self._options):
            return f"{place}-{REAL.uuid()[:8]}"
        return place


def discard_new_log(store: Store, table_id: str) -> None:
    """Delete the log of a table that was just created, if it has nothing but our version 0.

    Other files may have been there before. Whoever found the table may have changed it.
    """
    names = {info.name for info in store.list_tree(LOG_FOLDER)}
    first = commit_name(0)
    if not names <= {first, first.replace(".json", ".crc")}:
        return
    if load_snapshot(PublishedStore(store)).metadata.id == table_id:
        store.delete([log_path(name) for name in sorted(names)])


def _url_of(database: str | os.PathLike[str]) -> str:
    """Return the URL of SQLAlchemy for the argument of a catalog."""
    if not isinstance(database, str | os.PathLike):
        raise InvalidTypeError(
            argument="database",
            reason=f"a path or a URL was expected, not {type(database).__name__}",
            remedy='Pass the path of a file, such as "lake.db", or a URL of SQLAlchemy',
        )
    text = os.fspath(database)
    if not isinstance(text, str) or not text.strip() or "\0" in text or not is_unicode(text):
        raise InvalidInputError(argument="database", reason=f"{text!r} is not a path or a URL")
    if "://" in text:
        return text
    return url_of(str(Path(text).expanduser().absolute()))


def _location_of(
    url: str, location: str | os.PathLike[str] | None, options: Mapping[str, Any]
) -> str:
    """Return the location of a new catalog; by default the folder of its SQLite file."""
    if location is not None:
        return open_store(location, options).root
    path = path_of(url)
    if path is not None and Path(path).is_absolute():
        return open_store(Path(path).parent).root
    raise InvalidInputError(
        argument="location",
        reason="the catalog is new, and its database is not a file",
        remedy="Pass the folder for its tables",
    )


def _in_ms(days: object, argument: str) -> int:
    if not isinstance(days, int | float) or not 0 <= days < _MOST_DAYS:
        raise InvalidInputError(
            argument=argument,
            reason=f"{days!r} is not a number of days",
            remedy="Pass a number from 0 on",
        )
    return int(days * _DAY_MS)


def _overlap(one: str, other: str) -> bool:
    """Return whether two places are the same, or one is inside the other. Pure."""
    a, b = f"{one.rstrip('/')}/", f"{other.rstrip('/')}/"
    return a.startswith(b) or b.startswith(a)


def _is_free_of_others(store: Store, table_id: str) -> bool:
    """Return whether no other table is in the folder of one that is purged.

    Another purge may have finished meanwhile, and then a new table may be there. The names of its
    commits are those of the old one's.
    """
    try:
        return load_snapshot(PublishedStore(store)).metadata.id == table_id
    except (NotFoundError, LogCorruptError):  # A purge ended while it deleted the log.
        return True


def _is_of_log(path: str) -> bool:
    return path.startswith(f"{LOG_FOLDER}/")


def _is_claimed(row: TableRow) -> bool:
    """Return whether a purge of a table began, after which it cannot be brought back."""
    return not row.name.isprintable()


def _require_managed(managed: object) -> None:
    if managed not in (False, "all", "writes"):
        raise InvalidInputError(
            argument="managed",
            reason=f"{managed!r} is not False, 'writes' or 'all'",
            remedy="Choose 'writes', with which every engine can read the table, or 'all', with "
            "which they read it through the catalog only",
        )


def _replaced(row: TableRow) -> NotFoundError:
    return NotFoundError(
        path=row.location,
        reason=f"another table has replaced {row.name} in its folder",
        remedy="Drop the name, and register the folder",
    )


def _purged(row: TableRow) -> NotFoundError:
    return NotFoundError(
        path=row.location,
        reason=f"the table {row.name.strip()} was dropped and purged",
        remedy="Go on without it: its files are deleted, or belong to others",
    )


def _exists(name: str) -> AlreadyExistsError:
    return AlreadyExistsError(
        path=name,
        reason=f"the catalog has a table {name!r} (case is ignored)",
        remedy="Choose another name, or drop or rename that table",
    )


def _as_arrow(rows: Sequence[TableRow], time: str, times: Sequence[int | None]) -> pa.Table:
    return pa.table(
        {
            "name": pa.array([row.name for row in rows], pa.string()),
            "location": pa.array([without_secrets(row.location) for row in rows], pa.string()),
            "managed": pa.array([row.managed for row in rows], pa.string()),
            "version": pa.array([row.latest_version for row in rows], pa.int64()),
            time: pa.array(times, pa.timestamp("ms", "UTC")),
        }
    )


named_for_callers(Catalog)
