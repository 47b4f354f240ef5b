"""The database of a catalog of tables: names, ratified commits, versions of applications.

A catalog decides which commits exist (`ratify`): all of a group, or none of them. One row counts
the ratifications, so they have one order in the catalog, and each of them sees all earlier ones.
Rules: spec/catalog.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import quote, unquote

from txlog.base.effects import REAL, is_rehearsing
from txlog.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    StoreError,
    TxlogError,
    UnsupportedFeatureError,
    not_installed,
    warn_caller,
)
from txlog.base.moments import moment_text
from txlog.base.texts import without_secrets
from txlog.store.cloud_options import without_options
from txlog.store.mounts import network_disk

CATALOG = "txlog.catalog"
"""The storage option with the URL of a catalog's database, for its tables."""

Managed = Literal["all", "writes"]
LEAVING = "leaving"
"""The kind of a table whose last commit through the catalog is ratified: no other one follows."""
Ratification = Literal["ratified", "lost", "recorded"]

_FORMAT = "1"
_SQLITE = "sqlite:///"
_PRUNED = ("pruned_sequence", "pruned_ms")  # Facts: up to where commits were forgotten.
_RELEASED = " released"  # Behind the origin of a commit: with it the catalog let the table out.
_LOCK_S = 30.0  # How long SQLite waits for another process that writes.


class Ratified(NamedTuple):
    """The commits of a table that its catalog ratified."""

    latest_version: int
    # Those that are not published: version → path of the staged commit, relative to `_delta_log`.
    staged: Mapping[int, str] = MappingProxyType({})
    is_leaving: bool = False  # Whether the catalog lets the table out, so no commit follows.


class Proposed(NamedTuple):
    """A staged commit that a catalog is asked to ratify."""

    table_id: str
    version: int
    staged: str  # Its path, relative to `_delta_log`.
    is_whole: bool = False  # Whether all earlier commits were seen under their final names.
    is_last: bool = False  # Whether the catalog lets the table out with it.
    data: bytes = b""  # The commit.


class Accepted(NamedTuple):
    """Commits of a table that exist, although the catalog did not ratify them."""

    table_id: str
    known: (
        int | None
    )  # The last version that the catalog knows; None: it does not manage the table.
    version: int  # The last version that exists.
    managed: Managed | None  # The kind of the table, if `known` is None.
    staged: Mapping[int, str] = MappingProxyType({})  # As in `Ratified`.


class CommitCatalog(Protocol):
    """Who decides which commits of a table exist.

    Each method raises `StoreError` if it cannot be asked. Then nothing was changed, except where a
    method says more.
    """

    @property
    def place(self) -> str:
        """Its address, for messages."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether engines other than txlog follow it, too.

        They read ratified commits under the names that it gave them, until it forgets these names:
        so staged commits stay after they are published, and it is told each time.
        """
        ...

    def ratified(self, table_id: str) -> Ratified:
        """Return the last ratified version of a table, and the commits that are not published.

        Raises
        ------
        NotFoundError
            It does not manage the table any more.
        """
        ...

    def ratify(
        self,
        proposed: Sequence[Proposed],
        *,
        unchanged: Sequence[tuple[str, int]] = (),
        application: tuple[str, int] | None = None,
        transaction_id: str | None = None,
    ) -> Ratification:
        """Ratify staged commits, all or none; the arguments are those of `CatalogDatabase.ratify`.

        Raises
        ------
        UnknownAnswerError
            The answer was lost: the commits may be ratified.
        """
        ...

    def ratified_as(self, proposed: Proposed) -> bool | None:
        """Return whether a proposed commit is ratified; None if its version is still free."""
        ...

    def published(self, table_id: str, versions: Sequence[int]) -> None:
        """Record that commits are in the log, under their final names, and all before them."""
        ...


class FormerName(NamedTuple):
    """The name that a table had until it was renamed.

    `until_ms` is in the order of the times of commits: those before it are of the former name. The
    name is empty if the table was dropped until then.
    """

    table_id: str
    name: str
    until_ms: int


class TableRow(NamedTuple):
    """A table of a catalog."""

    table_id: str  # The id of the Delta table.
    name: str
    location: str
    managed: Managed | Literal["leaving"] | None
    latest_version: int | None  # None: the catalog does not manage the table.
    created_ms: int
    dropped_ms: int | None
    is_own: bool = False  # Whether the catalog made the table, in a folder without files.

    def named(self, name: str) -> TableRow:
        """Return the row with another name."""
        return self._replace(name=name)


class RatifiedCommit(NamedTuple):
    """A commit in the history of a catalog."""

    sequence: int  # Grows with each ratification; the commits of one transaction share it.
    at_ms: int  # Grows with the sequence.
    table_id: str
    version: int
    transaction_id: str | None


class Moment(NamedTuple):
    """The place of a ratification in the order of a catalog."""

    sequence: int
    at_ms: int


@dataclass(frozen=True)
class CatalogDatabase:
    """The database of a catalog, by a URL of SQLAlchemy. It pickles, and its `repr` has no secrets.

    Each method raises `StoreError` if the database fails; then nothing was changed, except where a
    method says more. No connection is kept, so none crosses a fork, a thread or a time-out.
    """

    url: str = field(repr=False)
    sees_dropped: bool = False  # Whether `ratified` answers for dropped tables, too.

    @property
    def place(self) -> str:
        """The URL without secrets, for messages."""
        return without_secrets(self.url)

    @property
    def is_shared(self) -> bool:
        """False: all who use it publish before they read."""
        return False

    # Facts of the catalog ----------------------------------------------------------------------

    def create(self, facts: Mapping[str, str]) -> None:
        """Create the tables of the database if there are none, with facts of the catalog.

        Of several processes that create it, one succeeds, and the others find what it made.
        """
        database = self._database
        with suppress(Exception):  # Another process creates them. If none can, the next use raises.
            database.metadata.create_all(database.engine)
        with suppress(AlreadyExistsError), self._changing(is_kept=True) as run:
            # One transaction, so that a catalog with a format has all the rest too.
            given = {"format": _FORMAT, **facts}
            rows = [{"name": name, "value": value} for name, value in given.items()]
            run(database.facts.insert(), rows)
            run(database.clock.insert().values(one=1, sequence=0, at_ms=0))

    def facts(self) -> dict[str, str]:
        """Return the facts of the catalog: `id`, `location`, `format`; none if there is no catalog.

        Raises
        ------
        UnsupportedFeatureError
            A newer release of txlog wrote the catalog.
        """
        database = self._database  # It raises if SQLAlchemy is not installed.
        from sqlalchemy import inspect

        with self._reading() as run:
            if not inspect(database.engine).has_table(database.facts.name):
                return {}
            has_names = inspect(database.engine).has_table(database.names.name)
            rows = run(database.facts.select()).all()
        found = {row.name: row.value for row in rows}
        if found and found.get("format", _FORMAT) != _FORMAT:
            raise UnsupportedFeatureError(
                path=self.place,
                features=(f"catalog format {found['format']}",),
                reason="a newer release of txlog wrote the catalog",
                remedy="Upgrade txlog",
            )
        if found and not has_names:  # An earlier release made the catalog.
            with suppress(Exception):  # Another process may. If none can, the next use raises.
                database.names.create(database.engine, checkfirst=True)
        return found

    # Tables ------------------------------------------------------------------------------------

    def tables(self, *, dropped: bool = False) -> list[TableRow]:
        """Return all tables at one moment, by name; with `dropped`, only the dropped ones."""
        rows = self._database.tables
        is_chosen = rows.c.dropped_ms.is_not(None) if dropped else rows.c.dropped_ms.is_(None)
        with self._reading() as run:
            found = run(rows.select().where(is_chosen).order_by(rows.c.name)).all()
        return [_table_row(row) for row in found]

    def all_tables(self) -> list[TableRow]:
        """Return all tables at one moment, also the dropped ones, which come last; by name."""
        rows = self._database.tables
        with self._reading() as run:
            found = run(rows.select().order_by(rows.c.name)).all()
        return sorted(map(_table_row, found), key=lambda row: row.dropped_ms is not None)

    def tables_and_former_names(self) -> tuple[list[TableRow], list[FormerName]]:
        """Return `all_tables` and `former_names` of one moment."""
        former = self.former_names()
        while True:  # Not every database lets a transaction read what was there when it began.
            rows, before, former = self.all_tables(), former, self.former_names()
            if before == former:
                return rows, former

    def table(self, name: str) -> TableRow | None:
        """Return the table with a name, in any case, or None."""
        rows = self._database.tables
        with self._reading() as run:
            is_it = (rows.c.folded == _folded(name)) & rows.c.dropped_ms.is_(None)
            row = run(rows.select().where(is_it)).first()
        return None if row is None else _table_row(row)

    def table_of(self, table_id: str) -> TableRow | None:
        """Return the table with an id, also if it was dropped, or None."""
        rows = self._database.tables
        with self._reading() as run:
            row = run(rows.select().where(rows.c.table_id == table_id)).first()
        return None if row is None else _table_row(row)

    def table_at(self, location: str) -> TableRow | None:
        """Return the table at a location that was not dropped, or None."""
        rows = self._database.tables
        is_there = (rows.c.location == location) & rows.c.dropped_ms.is_(None)
        with self._reading() as run:
            row = run(rows.select().where(is_there)).first()
        return None if row is None else _table_row(row)

    def add(self, table: TableRow) -> None:
        """Add a table.

        Raises
        ------
        AlreadyExistsError
            The catalog has a table with this name (in any case) or id.
        """
        with self._changing() as run:
            values = {**table._asdict(), "folded": _folded(table.name)}
            run(self._database.tables.insert().values(**values))

    def give_name(self, table: TableRow, name: str) -> bool:
        """Give a table another name; one that was dropped is brought back.

        Returns
        -------
        False if another process renamed, dropped, brought back or claimed it since it was read.
        Then nothing was changed.

        Raises
        ------
        AlreadyExistsError
            Another table has the name.
        """
        rows = self._database.tables
        is_it = (rows.c.table_id == table.table_id) & (rows.c.name == table.name)
        is_it &= rows.c.dropped_ms == table.dropped_ms  # Of None, SQLAlchemy makes IS NULL.
        changes = {"name": name, "folded": _folded(name), "dropped_ms": None}
        with self._changing() as run:
            _, at_ms = self._tick(run)
            if run(rows.update().where(is_it).values(**changes)).rowcount != 1:
                return False
            self._note_former(run, table, name, at_ms)
            return True

    def drop(self, table_id: str) -> None:
        """Drop a table, at the next time of the catalog; one that was dropped stays as it is.

        No clock of a machine counts: all commits of the table are of earlier times.
        """
        rows = self._database.tables
        is_it = (rows.c.table_id == table_id) & rows.c.dropped_ms.is_(None)
        with self._changing() as run:
            _, at_ms = self._tick(run)
            changes = {"dropped_ms": at_ms, "folded": f"\n{table_id}"}  # The name is free again.
            run(rows.update().where(is_it).values(**changes))

    def _note_former(
        self, run: Callable[..., Any], table: TableRow, new_name: str, at_ms: int
    ) -> None:
        """Note the name of a table that gets another one, or is brought back, at a time."""
        names = self._database.names
        found = []
        if table.dropped_ms is not None:
            query = names.select().where(names.c.table_id == table.table_id)
            last = max((row.until_ms for row in run(query)), default=0)
            # Earlier releases took the time of a drop from the clock of a machine.
            dropped_ms = min(max(table.dropped_ms, last + 1), at_ms - 1)
            found = [FormerName(table.table_id, "", at_ms)]
            if dropped_ms > last:
                found.append(FormerName(table.table_id, table.name, dropped_ms))
        elif table.name != new_name:
            found = [FormerName(table.table_id, table.name, at_ms)]
        if found:
            run(names.insert(), [one._asdict() for one in found])

    def former_names(self) -> list[FormerName]:
        """Return the names that tables had before they were renamed, in the order of the times."""
        rows = self._database.names
        with self._reading() as run:
            found = run(rows.select().order_by(rows.c.until_ms)).all()
        return [FormerName(row.table_id, row.name, row.until_ms) for row in found]

    def claim(self, table_id: str, dropped_ms: int) -> bool:
        """Claim a dropped table for a purge: it cannot be brought back; false if it was."""
        rows = self._database.tables
        is_it = (rows.c.table_id == table_id) & (rows.c.dropped_ms == dropped_ms)
        with self._changing() as run:
            # A name that no user can write.
            result = run(rows.update().where(is_it).values(name=f"\n{table_id}"))
            return bool(result.rowcount == 1)

    def manage(self, table_id: str, managed: Managed, latest_version: int) -> bool:
        """Begin to manage a table; return whether it was not managed before."""
        rows = self._database.tables
        with self._changing() as run:
            result = run(
                rows.update()
                .where(rows.c.table_id == table_id, rows.c.managed.is_(None))
                .values(managed=managed, latest_version=latest_version)
            )
            if result.rowcount == 1:
                self._note(run, table_id, latest_version, self._tick(run))
            return bool(result.rowcount == 1)

    def accept(
        self, accepted: Sequence[Accepted], applications: Sequence[tuple[str, int]] = ()
    ) -> bool:
        """Take commits as ratified, all at one moment: logs have them, and the catalog does not.

        Parameters
        ----------
        applications
            Versions of applications that transactions with these commits recorded.

        Returns
        -------
        False if a table has another last version than expected. Then nothing was changed.
        """
        rows = self._database.tables
        try:
            with self._changing(is_kept=True) as run:
                tick = self._tick(run)
                for one in accepted:
                    values: dict[str, Any] = {"latest_version": one.version}
                    is_it = rows.c.latest_version == one.known
                    if one.known is None:
                        values["managed"] = one.managed
                        is_it = rows.c.latest_version.is_(None)
                    is_it &= rows.c.table_id == one.table_id
                    if run(rows.update().where(is_it).values(**values)).rowcount != 1:
                        raise _UndoneError("lost")
                    for version in sorted({one.version, *one.staged}):
                        self._note(run, one.table_id, version, tick, one.staged.get(version))
                for application in applications:
                    _record(run, self._database.applications, application)
        except _UndoneError:
            return False
        return True

    def _note(
        self,
        run: Callable[..., Any],
        table_id: str,
        version: int,
        tick: tuple[int, int],
        staged: str | None = None,
    ) -> None:
        """Note a version that exists already, at a place in the order of the catalog.

        Later versions of the table are forgotten: its folder was brought back to an earlier one.
        """
        commits = self._database.commits
        is_it = (commits.c.table_id == table_id) & (commits.c.version >= version)
        run(commits.delete().where(is_it))
        values = {"table_id": table_id, "version": version, "staged": staged}
        run(commits.insert().values(**values, sequence=tick[0], at_ms=tick[1]))

    def release(self, table_id: str, latest_version: int | None) -> bool:
        """End managing a table whose commits are published.

        Returns
        -------
        False if it is managed and has another latest version.
        """
        from sqlalchemy import func

        rows, commits = self._database.tables, self._database.commits
        with self._changing(is_kept=True) as run:
            result = run(
                rows.update()
                .where(rows.c.table_id == table_id, rows.c.latest_version == latest_version)
                .values(managed=None, latest_version=None)
            )
            if result.rowcount != 1:
                return False
            # The history stays: the commits of a transaction are seen together afterwards, too.
            run(self._as_published(table_id))
            is_last = (commits.c.table_id == table_id) & (commits.c.version == latest_version)
            origin = func.coalesce(commits.c.origin, "").concat(_RELEASED)
            run(commits.update().where(is_last).values(origin=origin))
            return True

    def forget(self, table_id: str) -> None:
        """Delete all that the catalog knows of a table."""
        database = self._database
        with self._changing() as run:
            for rows in (database.commits, database.names, database.tables):
                run(rows.delete().where(rows.c.table_id == table_id))

    # Commits -----------------------------------------------------------------------------------

    def ratified(self, table_id: str) -> Ratified:
        """Return the last ratified version of a table, and the commits that are not published.

        Raises
        ------
        NotFoundError
            The catalog does not manage the table, or it was dropped.
        """
        rows, commits = self._database.tables, self._database.commits
        # Staged commits of two reads would not belong to one moment: one statement reads both.
        joined = rows.outerjoin(
            commits,
            (commits.c.table_id == rows.c.table_id) & commits.c.staged.is_not(None),
        )
        columns = (
            rows.c.latest_version, rows.c.dropped_ms, rows.c.managed, commits.c.version,
            commits.c.staged,
        )  # fmt: skip
        query = joined.select().with_only_columns(*columns).where(rows.c.table_id == table_id)
        with self._reading() as run:
            found = run(query).all()
        is_gone = not found or (found[0].dropped_ms is not None and not self.sees_dropped)
        if is_gone or found[0].latest_version is None:
            raise NotFoundError(
                path=self.place,
                reason=f"the catalog does not manage the table with id {table_id}: it was dropped "
                "or let out after it was opened",
                remedy="Open the table again by its name in the catalog",
            )
        staged = {row.version: row.staged for row in found if row.staged is not None}
        return Ratified(found[0].latest_version, staged, found[0].managed == LEAVING)

    def ratify(
        self,
        proposed: Sequence[Proposed],
        *,
        unchanged: Sequence[tuple[str, int]] = (),
        application: tuple[str, int] | None = None,
        transaction_id: str | None = None,
    ) -> Ratification:
        """Ratify staged commits, all or none.

        Parameters
        ----------
        unchanged
            Tables with the versions that must still be their latest ones.
        application
            The version of an application, which is recorded in the catalog.

        Returns
        -------
        `ratified`; `lost` if a proposed version is not the next one of its table, or another table
        changed; `recorded` if the application's version was recorded before.

        Raises
        ------
        UnknownAnswerError
            The answer to the database's commit was lost: the commits may be ratified.
        """
        try:
            with self._changing(is_unknown=True) as run:
                self._ratify(run, sorted(proposed), unchanged, application, transaction_id)
        except _UndoneError as undone:
            return undone.answer
        return "ratified"

    def _ratify(
        self,
        run: Callable[..., Any],
        proposed: Sequence[Proposed],
        unchanged: Sequence[tuple[str, int]],
        application: tuple[str, int] | None,
        transaction_id: str | None,
    ) -> None:
        """Change the rows of a ratification; `_UndoneError` if one is not as it must be."""
        database = self._database
        tables = database.tables
        # All ratifications change this row, so they run one after the other.
        sequence, at_ms = self._tick(run)
        if application is not None and not _record(run, database.applications, application):
            raise _UndoneError("recorded")

        def stands_at(table_id: str, version: int) -> Any:
            return (
                (tables.c.table_id == table_id)
                & (tables.c.latest_version == version)
                & (tables.c.managed != LEAVING)
                & tables.c.dropped_ms.is_(None)
            )

        for one in proposed:
            is_next = stands_at(one.table_id, one.version - 1)
            leaving = {"managed": LEAVING} if one.is_last else {}
            values = {"latest_version": one.version, **leaving}
            changed = tables.update().where(is_next).values(**values)
            if run(changed).rowcount != 1:
                raise _UndoneError("lost")
            if one.is_whole:
                run(
                    self._as_published(one.table_id).where(database.commits.c.version < one.version)
                )
        for table_id, version in unchanged:
            if run(tables.select().where(stands_at(table_id, version))).first() is None:
                raise _UndoneError("lost")
        commits = [
            {
                "table_id": one.table_id, "version": one.version, "sequence": sequence,
                "at_ms": at_ms, "staged": one.staged, "transaction_id": transaction_id,
            }
            for one in proposed
        ]  # fmt: skip
        if commits:
            run(database.commits.insert(), commits)

    def ratified_as(self, proposed: Proposed) -> bool | None:
        """Return whether a proposed commit is ratified; None if its version is still free."""
        rows = self._database.commits
        with self._reading() as run:
            row = run(
                rows.select().where(
                    rows.c.table_id == proposed.table_id, rows.c.version == proposed.version
                )
            ).first()
        if row is None:
            return None
        # After publishing, the name of the staged commit is kept as the commit's origin.
        origin = row.origin and row.origin.removesuffix(_RELEASED)
        return bool(proposed.staged in (row.staged, origin))

    def published(self, table_id: str, versions: Sequence[int]) -> None:
        """Record that commits are in the log, under their final names."""
        rows = self._database.commits
        with self._changing(is_kept=True) as run:
            run(self._as_published(table_id).where(rows.c.version.in_(versions)))

    def _as_published(self, table_id: str) -> Any:
        rows = self._database.commits
        is_staged = (rows.c.table_id == table_id) & rows.c.staged.is_not(None)
        return rows.update().where(is_staged).values(staged=None, origin=rows.c.staged)

    def application_version(self, app_id: str) -> int | None:
        """Return the last recorded version of an application, or None."""
        rows = self._database.applications
        with self._reading() as run:
            row = run(rows.select().where(rows.c.app_id == app_id)).first()
        return None if row is None else int(row.version)

    def is_recorded(self, application: tuple[str, int]) -> bool:
        """Return whether the same or a later version of an application is recorded."""
        recorded = self.application_version(application[0])
        return recorded is not None and recorded >= application[1]

    def commits_after(
        self, sequence: int, limit: int, *, at_ms: int | None = None
    ) -> list[RatifiedCommit]:
        """Return the first ratified commits after a sequence number, in order.

        The commits of one transaction are returned together.

        Parameters
        ----------
        at_ms
            The time of the ratification with this number. Default: it is not compared.

        Raises
        ------
        NotFoundError
            Some of them were forgotten (`prune`), or the number had another time: the database was
            restored from an older copy, so the numbers after it mean other commits.
        """
        rows = self._database.commits
        query = rows.select().where(rows.c.sequence > sequence).order_by(
            rows.c.sequence, rows.c.table_id, rows.c.version
        )  # fmt: skip
        with self._reading() as run:
            found = run(query.limit(limit)).all()
            if len(found) == limit:  # The last transaction may be cut.
                last = rows.select().where(rows.c.sequence == found[-1].sequence)
                found = [row for row in found if row.sequence < found[-1].sequence]
                found += run(last.order_by(rows.c.table_id, rows.c.version)).all()
            if at_ms is not None:
                self._require_moment(run, Moment(sequence, at_ms), found)
            pruned = self._pruned(run)[0]  # Read last: what was deleted before is in it.
        if sequence < pruned:
            raise NotFoundError(
                path=self.place,
                reason=f"the catalog has forgotten changes after number {sequence}, as far as "
                f"{pruned}",
                remedy="Read the tables as they are now, and follow the catalog from now on",
            )
        names = RatifiedCommit._fields
        return [RatifiedCommit(*(getattr(row, name) for name in names)) for row in found]

    def _require_moment(
        self, run: Callable[..., Any], moment: Moment, following: Sequence[Any]
    ) -> None:
        """Raise unless a moment is one of this catalog; `following` are commits after it.

        Numbers and times grow together, so the neighbours of a number show whether it had its time.
        The commit itself may be forgotten.
        """
        rows = self._database.commits
        until = rows.select().where(rows.c.sequence <= moment.sequence)
        last = run(until.order_by(rows.c.sequence.desc()).limit(1)).first()
        known = [*([] if last is None else [last]), *following[:1]]
        known.append(run(self._database.clock.select()).one())
        if known[-1].sequence >= moment.sequence and all(
            _order(one.sequence, moment.sequence) == _order(one.at_ms, moment.at_ms)
            for one in known
        ):
            return
        raise NotFoundError(
            path=self.place,
            reason=f"the catalog has no change number {moment.sequence} of "
            f"{moment_text(moment.at_ms)}: its database was restored from an older copy",
            remedy="Repair its tables, read them as they are now, and follow the catalog from now "
            "on",
        )

    def last_moment(self) -> Moment:
        """Return the number and the time of the last ratification; zeros before the first one."""
        with self._reading() as run:
            row = run(self._database.clock.select()).one()
        return Moment(row.sequence, row.at_ms)

    def versions_at(self, at_ms: int) -> dict[str, int]:
        """Return the last version that was ratified up to a time, of each table managed then.

        Raises
        ------
        NotFoundError
            Commits of that time were forgotten (`prune`).
        """
        from sqlalchemy import func

        rows = self._database.commits
        latest = func.max(rows.c.version).label("latest")
        query = rows.select().with_only_columns(rows.c.table_id, latest)
        last = query.where(rows.c.at_ms <= at_ms).group_by(rows.c.table_id).subquery()
        joined = rows.join(
            last, (rows.c.table_id == last.c.table_id) & (rows.c.version == last.c.latest)
        )
        columns = (rows.c.table_id, rows.c.version, rows.c.origin)
        with self._reading() as run:
            found = run(joined.select().with_only_columns(*columns)).all()
            pruned_ms = self._pruned(run)[1]  # Read last, as above.
        if at_ms < pruned_ms:
            raise NotFoundError(
                path=self.place,
                reason=f"the catalog has forgotten which versions were there before "
                f"{moment_text(pruned_ms)}",
                remedy="Choose a later time, or open one table as of that time with its method at",
            )
        return {
            row.table_id: int(row.version)
            for row in found
            if not (row.origin or "").endswith(_RELEASED)
        }

    def prune(self, before_ms: int) -> int:
        """Forget ratified commits up to a time; return how many.

        What stays: each commit that is not known to be published, and the last one of each table up
        to that time, so `versions_at` answers for all later times.
        """
        from sqlalchemy import func

        database = self._database
        commits = database.commits
        kept = commits.alias()
        last = (
            kept.select()
            .with_only_columns(func.max(kept.c.version))
            .where(kept.c.table_id == commits.c.table_id, kept.c.at_ms <= before_ms)
            .scalar_subquery()
        )
        is_old = (
            (commits.c.at_ms <= before_ms) & commits.c.staged.is_(None) & (commits.c.version < last)
        )
        with self._changing() as run:
            run(database.clock.update().values(at_ms=database.clock.c.at_ms))  # It locks the row.
            query = commits.select().with_only_columns(func.max(commits.c.sequence))
            newest = run(query.where(is_old)).scalar()
            if newest is None:
                return 0
            run(database.names.delete().where(database.names.c.until_ms <= before_ms))
            count = run(commits.delete().where(is_old)).rowcount
            before = self._pruned(run)
            facts = database.facts
            run(facts.delete().where(facts.c.name.in_(_PRUNED)))
            now = (max(before[0], newest), max(before[1], before_ms))
            values = zip(_PRUNED, now, strict=True)
            run(facts.insert(), [{"name": name, "value": str(value)} for name, value in values])
            return int(count)

    def _pruned(self, run: Callable[..., Any]) -> tuple[int, int]:
        """Return the last sequence number and the time up to which commits were forgotten."""
        facts = self._database.facts
        found = {
            row.name: int(row.value)
            for row in run(facts.select().where(facts.c.name.in_(_PRUNED))).all()
        }
        return found.get(_PRUNED[0], 0), found.get(_PRUNED[1], 0)

    def _tick(self, run: Callable[..., Any]) -> tuple[int, int]:
        """Return the next number in the order of ratifications, and its time."""
        clock = self._database.clock
        run(clock.update().values(sequence=clock.c.sequence + 1))  # It locks the row.
        row = run(clock.select()).one()
        at_ms = max(REAL.now_ms(), row.at_ms + 1)
        run(clock.update().values(at_ms=at_ms))
        return row.sequence, at_ms

    # Connections -------------------------------------------------------------------------------

    @property
    def _database(self) -> _Database:
        return _opened(self.url)

    @contextmanager
    def _reading(self) -> Iterator[Callable[..., Any]]:
        engine = self._database.engine
        try:
            with engine.connect() as connection:
                yield connection.execute
        except TxlogError:
            raise
        except Exception as error:
            raise self._failed(error) from error

    @contextmanager
    def _changing(
        self, *, is_unknown: bool = False, is_kept: bool = False
    ) -> Iterator[Callable[..., Any]]:
        """Yield a function that runs statements in one transaction of the database.

        A rehearsal runs them too, so it meets the same errors, and then rolls them back.

        Parameters
        ----------
        is_unknown
            A failed commit raises `UnknownAnswerError`: it may have succeeded.
        is_kept
            Also in a rehearsal: the statements record what the logs of tables say already, which
            is done whenever somebody opens them.
        """
        engine = self._database.engine
        is_committing = False
        try:
            with engine.connect() as connection:
                if engine.dialect.name == "sqlite":
                    # A transaction that begins by reading could not always become a writing one.
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                yield connection.execute
                if is_rehearsing() and not is_kept:
                    connection.rollback()
                    return
                is_committing = True
                connection.commit()
        except (TxlogError, _UndoneError):
            raise
        except Exception as error:
            if type(error).__name__ == "IntegrityError":
                raise AlreadyExistsError(
                    path=self.place, reason="the catalog has this entry already"
                ) from error
            failed = self._failed(error)
            if is_committing and is_unknown:
                raise UnknownAnswerError(failed) from error
            raise failed from error

    def _failed(self, error: Exception) -> StoreError:
        text = str(error).partition("\n")[0]
        password = self.url.partition("@")[0].rpartition(":")[2] if "@" in self.url else ""
        text = without_options(text, {"url": self.url, "password": password})
        busy = "database is locked" in text
        return StoreError(
            operation="ask the catalog",
            path=self.place,
            reason=f"the catalog failed: {type(error).__name__}: {text}",
            remedy="Another process has been writing for a long time. Try again; for many writers, "
            "put the catalog into a database with a server"
            if busy
            else "Check the database of the catalog, then try again",
        )


class UnknownAnswerError(Exception):
    """The answer to a database's commit was lost. It becomes an error of the table's store."""

    def __init__(self, cause: StoreError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _UndoneError(Exception):
    """Ends a transaction of the database without a change."""

    def __init__(self, answer: Ratification) -> None:
        super().__init__(answer)
        self.answer = answer


@dataclass(frozen=True)
class _Database:
    """An engine of SQLAlchemy, and the tables of a catalog."""

    engine: Any
    metadata: Any
    facts: Any
    tables: Any
    names: Any
    commits: Any
    applications: Any
    clock: Any


@lru_cache(maxsize=64)  # An engine without connections, so processes and threads may share it.
def _opened(url: str) -> _Database:
    try:
        import sqlalchemy as sql
    except ImportError as error:
        reason = f"a package for the catalog is missing: sqlalchemy: {error}"
        raise not_installed("sql", "catalog", reason, path=without_secrets(url)) from error
    from sqlalchemy.pool import NullPool

    try:
        path = path_of(url)
        # SQLAlchemy decodes the path of a URL in some of its versions.
        named = sql.make_url(url) if path is None else sql.URL.create("sqlite", database=path)
        is_sqlite = named.get_backend_name() == "sqlite"
        given = {"connect_args": {"timeout": _LOCK_S}} if is_sqlite else {}
        engine = sql.create_engine(named, poolclass=NullPool, **given)
    except Exception as error:
        raise InvalidInputError(
            argument="catalog",
            reason=f"the database cannot be opened: {str(error).partition(chr(10))[0]}",
            remedy="Pass the path of a file for SQLite, or a URL of SQLAlchemy, such as "
            "postgresql+psycopg://host/name",
        ) from None
    if is_sqlite:
        sql.event.listen(engine, "connect", _set_up_sqlite)
        _warn_of_network(named.database)
    metadata = sql.MetaData()
    long = sql.BigInteger

    def table(name: str, *columns: Any) -> Any:
        return sql.Table(f"txlog_{name}", metadata, *columns)

    return _Database(
        engine=engine,
        metadata=metadata,
        facts=table(
            "catalog",
            sql.Column("name", sql.String(40), primary_key=True),
            sql.Column("value", sql.Text, nullable=False),
        ),
        tables=table(
            "tables",
            sql.Column("table_id", sql.String(100), primary_key=True),
            sql.Column("name", sql.String(400), nullable=False),
            sql.Column("folded", sql.String(400), nullable=False, unique=True),
            sql.Column("location", sql.Text, nullable=False),
            sql.Column("managed", sql.String(10)),
            sql.Column("latest_version", long),
            sql.Column("created_ms", long, nullable=False),
            sql.Column("dropped_ms", long),
            sql.Column("is_own", sql.Boolean, nullable=False),
        ),
        names=table(
            "names",
            sql.Column("table_id", sql.String(100), primary_key=True),
            sql.Column("name", sql.String(400), nullable=False),
            sql.Column("until_ms", long, primary_key=True, autoincrement=False),
        ),
        commits=table(
            "commits",
            sql.Column("table_id", sql.String(100), primary_key=True),
            sql.Column("version", long, primary_key=True, autoincrement=False),
            sql.Column("sequence", long, nullable=False, index=True),
            sql.Column("at_ms", long, nullable=False, index=True),
            sql.Column("staged", sql.String(200), index=True),
            sql.Column("origin", sql.String(200)),
            sql.Column("transaction_id", sql.String(40)),
        ),
        applications=table(
            "applications",
            sql.Column("app_id", sql.String(400), primary_key=True),
            sql.Column("version", long, nullable=False),
        ),
        clock=table(
            "clock",
            sql.Column("one", sql.Integer, primary_key=True, autoincrement=False),
            sql.Column("sequence", long, nullable=False),
            sql.Column("at_ms", long, nullable=False),
        ),
    )


def _warn_of_network(path: str | None) -> None:
    """Warn once of a database whose locks depend on a network."""
    kind = network_disk(path) if path else None
    if kind is not None:
        warn_caller(
            f"The catalog {path} is an SQLite database on a network disk ({kind}). If its file "
            "locks do not work on all machines, commits are lost. Keep it on a disk of one "
            "machine, or use a database with a server, such as "
            "Catalog('postgresql+psycopg://host/name')."
        )


def url_of(path: str) -> str:
    """Return the URL of an SQLite file. Characters that have a meaning in URLs are encoded."""
    for mark in "%?#":
        path = path.replace(mark, quote(mark))
    return _SQLITE + path


def path_of(url: str) -> str | None:
    """Return the path in the URL of an SQLite file; None for other URLs, or with parameters."""
    path = url.removeprefix(_SQLITE)
    return None if path == url or not path or "?" in path else unquote(path)


def _set_up_sqlite(connection: Any, _: Any) -> None:
    # Python's driver begins transactions late, and never before a read; txlog begins them itself.
    connection.isolation_level = None
    # The rollback journal works wherever locks do; a write-ahead log needs shared memory, which
    # network disks lack. FULL: a power cut after a commit does not undo it.
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA journal_mode=TRUNCATE")  # Making and deleting the journal costs more.
    cursor.close()


def _record(run: Callable[..., Any], rows: Any, application: tuple[str, int]) -> bool:
    """Record the version of an application; return false if it was recorded before."""
    app_id, version = application
    found = run(rows.select().where(rows.c.app_id == app_id)).first()
    if found is None:
        run(rows.insert().values(app_id=app_id, version=version))
        return True
    if found.version >= version:
        return False
    run(rows.update().where(rows.c.app_id == app_id).values(version=version))
    return True


def _order(one: int, other: int) -> int:
    return (one > other) - (one < other)


def _folded(name: str) -> str:
    return name.casefold()


def _table_row(row: Any) -> TableRow:
    return TableRow(*(getattr(row, name) for name in TableRow._fields))
