"""What a catalog must accept after its database was restored from an older copy.

The commits of a transaction name its tables with their versions. So if one of them exists, all of
them did: the others are published, or staged. Rules: spec/catalog.md, CAT-5.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError

from txlog.actions.table import CommitInfo, TransactionGroup, Txn
from txlog.base.errors import LogCorruptError, NotFoundError, RetriesExhaustedError
from txlog.commit.intent import COORDINATOR_TAG
from txlog.log.catalog import STAGED_FOLDER
from txlog.log.names import LOG_FOLDER, commit_name, log_path
from txlog.snapshot.load import load_snapshot
from txlog.store.base import Store
from txlog.store.catalog_database import Accepted, CatalogDatabase, TableRow
from txlog.store.managed import ManagedStore, PublishedStore
from txlog.verbs.managed import catalog_of, managed_kind

_GROUP = b"transactionGroup"
_TXN = b"txn"
_INFO = b"commitInfo"
_COORDINATOR = COORDINATOR_TAG.encode()
Kind = TypeVar("Kind", TransactionGroup, Txn, CommitInfo)


@dataclass
class _Log:
    """The log of a table, beside what the catalog knows of it."""

    row: TableRow
    store: Store
    known: int  # The last version that the catalog knows.
    published: int
    until: int  # The last version that is accepted.
    managed: Any  # The kind of the table, by its log.
    staged: dict[int, str] = field(default_factory=dict)

    def commit(self, version: int) -> bytes | None:
        """Return a commit of the log, or one that is accepted; None if there is none."""
        names = [commit_name(version)]
        if version in self.staged:
            names.insert(0, self.staged[version])
        for name in names:
            with suppress(NotFoundError):
                return self.store.read(log_path(name))
        return None

    def candidates(self, version: int) -> Iterator[tuple[str, bytes]]:
        """Yield the staged commits of a version, by name."""
        folder = f"{LOG_FOLDER}/{STAGED_FOLDER}"
        for info in self.store.list_after(folder, f"{version:020d}."):
            if not info.name.startswith(f"{version:020d}."):
                return
            with suppress(NotFoundError):
                name = f"{STAGED_FOLDER}/{info.name}"
                yield name, self.store.read(log_path(name))


class Recovery:
    """Finds all commits that exist if those that the log of a table has exist."""

    def __init__(
        self, database: CatalogDatabase, catalog_id: str, store_of: Callable[[TableRow], Store]
    ) -> None:
        self._database = database
        self._catalog_id = catalog_id
        self._store_of = store_of
        self._rows = {row.table_id: row for row in database.all_tables()}
        self._logs: dict[str, _Log | None] = {}
        self._pending: deque[tuple[str, int, TransactionGroup]] = deque()
        self._applications: list[tuple[str, int]] = []  # Recorded by accepted transactions.

    def accept(self, table_id: str) -> bool:
        """Ratify what the log of a table has, with all other parts of its transactions.

        Returns
        -------
        False if another process changed one of the tables meanwhile.

        Raises
        ------
        LogCorruptError
            A part of a transaction is neither published nor staged, or its version is taken by
            another commit. Nothing was accepted.
        """
        log = self._log(table_id)
        if log is None:
            return True
        self._extend(log, log.published)
        self._settle()
        accepted = [
            Accepted(one.row.table_id, one.row.latest_version, one.until, one.managed, one.staged)
            for one in self._logs.values()
            if one is not None and (one.until > one.known or one.row.managed is None)
        ]
        if not self._database.accept(accepted, self._applications):
            return False
        for one in self._logs.values():
            if one is not None and one.managed is None and one.until == one.published:
                self._database.release(one.row.table_id, one.until)
        return True

    def _settle(self) -> None:
        """Follow the transactions of accepted commits, until each one is whole."""
        while True:
            while self._pending:
                self._require(*self._pending.popleft())
            for log in [log for log in self._logs.values() if log is not None]:
                self._begin_next(log)
            if not self._pending:
                return

    def _require(self, table_id: str, version: int, group: TransactionGroup) -> None:
        """Accept a table's part of a transaction that exists.

        A table that the catalog does not have, or whose folder is away, has no part that anybody
        could read.
        """
        log = self._log(table_id)
        if log is None:
            return
        if version <= log.until:
            data = self._made(log, version)
            if data is None:  # A clean-up deleted it: it was published.
                return
            found = self._group(log, data)
            if found is None or found.transaction_id != group.transaction_id:
                raise _half(group, log, version, "another commit has its version")
            return
        self._extend(log, version - 1, group)
        if version <= log.published:
            self._extend(log, version)
            self._require(table_id, version, group)
            return
        name = self._staged_of(log, version, group)
        if name is None:
            raise _half(group, log, version, "it is neither published nor staged")
        log.staged[version] = name
        log.until = version

    def _extend(self, log: _Log, version: int, group: TransactionGroup | None = None) -> None:
        """Accept the published commits up to a version, and note the rest of their groups."""
        while log.until < version:
            following = log.until + 1
            if following > log.published:
                assert group is not None
                raise _half(group, log, following, "it is neither published nor in a transaction")
            log.until = following
            data = log.commit(following)
            if data is None:
                continue
            found = self._group(log, data)
            if found is not None:
                self._note(log, found, data)
            elif self._is_alone(log, data):
                self._note_applications(log, data)

    def _begin_next(self, log: _Log) -> None:
        """Accept staged commits that follow, if another table has its part of the transaction."""
        if log.until < log.published:
            return
        for name, data in log.candidates(log.until + 1):
            group = self._group(log, data)
            if group is None or not any(
                self._has_part(one.table_id, one.proposed_version, group)
                for one in group.participants
                if one.table_id != log.row.table_id
            ):
                continue
            log.until += 1
            log.staged[log.until] = name
            self._note(log, group, data)
            return

    def _has_part(self, table_id: str, version: int, group: TransactionGroup) -> bool:
        """Return whether a table has its part of a transaction, known or published."""
        log = self._log(table_id)
        data = None if log is None else self._made(log, version)
        found = None if log is None or data is None else self._group(log, data)
        return found == group

    def _made(self, log: _Log, version: int) -> bytes | None:
        """Return a commit that is published, accepted, or known and not published yet."""
        data = log.commit(version)
        if data is None and version <= log.known and log.row.dropped_ms is None:
            with suppress(NotFoundError):
                managed = ManagedStore(log.store, self._database, log.row.table_id)
                return managed.read(log_path(commit_name(version)))
        return data

    def _staged_of(self, log: _Log, version: int, group: TransactionGroup) -> str | None:
        found = [n for n, data in log.candidates(version) if self._group(log, data) == group]
        return found[0] if found else None

    def _note(self, log: _Log, group: TransactionGroup, data: bytes) -> None:
        """Note what follows from an accepted commit: each one of a transaction says the same."""
        self._note_applications(log, data)
        for one in group.participants:
            if one.table_id != log.row.table_id:
                self._pending.append((one.table_id, one.proposed_version, group))

    def _note_applications(self, log: _Log, data: bytes) -> None:
        for txn in _actions(log, data, _TXN, Txn):
            self._applications.append((txn.app_id, txn.version))

    def _is_alone(self, log: _Log, data: bytes) -> bool:
        """Return whether a transaction of this catalog made a commit, and changed no other table.

        Writes of the table alone record their applications in the table, and not in the catalog.
        """
        if _COORDINATOR not in data:
            return False
        for info in _actions(log, data, _INFO, CommitInfo):
            tags = info.tags if isinstance(info.tags, Mapping) else {}
            return bool(tags.get(COORDINATOR_TAG) == self._catalog_id)
        return False

    def _group(self, log: _Log, data: bytes) -> TransactionGroup | None:
        """Return the action that names the tables of a transaction of this catalog."""
        groups = _actions(log, data, _GROUP, TransactionGroup)
        return next((g for g in groups if g.coordinating_catalog == self._catalog_id), None)

    def _log(self, table_id: str) -> _Log | None:
        """Return the log of a table that this catalog manages, or None."""
        if table_id not in self._logs:
            row = self._rows.get(table_id)
            self._logs[table_id] = None if row is None else self._loaded(row)
        return self._logs[table_id]

    def _loaded(self, row: TableRow) -> _Log | None:
        store = self._store_of(row)
        try:
            snapshot = load_snapshot(PublishedStore(store))
        except NotFoundError:
            return None
        if snapshot.metadata.id != row.table_id:
            return None
        known = row.latest_version
        if known is None:
            if catalog_of(snapshot) != self._catalog_id:
                return None
            known = self._taken_in(store, snapshot.version)
        known = min(known, snapshot.version) if row.managed is None else known
        return _Log(row, store, known, snapshot.version, known, managed_kind(snapshot))

    def _taken_in(self, store: Store, latest: int) -> int:
        """Return the version before the commits that went through the catalog, as far as known."""
        for version in range(latest, -1, -1):
            try:
                data = store.read(log_path(commit_name(version)))
            except NotFoundError:
                return version
            if b'"MANAGE TABLE"' in data:
                return version
        return -1


def _actions(log: _Log, data: bytes, key: bytes, kind: type[Kind]) -> Iterator[Kind]:
    """Yield the actions of a kind in a commit."""
    for line in data.splitlines() if key in data else ():
        if key not in line:
            continue
        try:
            body = json.loads(line)
            if not isinstance(body, Mapping) or key.decode() not in body:
                continue
            yield kind.model_validate(body[key.decode()])
        except (ValueError, RecursionError, ValidationError) as error:
            raise LogCorruptError(
                path=log.store.root,
                reason=f"a commit has the action {key.decode()} in a form that cannot be read",
                remedy="Compare the commit with a copy of the table",
            ) from error


def _half(group: TransactionGroup, log: _Log, version: int, reason: str) -> LogCorruptError:
    others = [one for one in group.participants if one.table_id != log.row.table_id]
    count = f"{len(others)} other table" + ("s" if len(others) > 1 else "")
    return LogCorruptError(
        path=log_path(commit_name(version)),
        table=log.row.location,
        version=version,
        reason=f"version {version} of {log.row.name.strip()} is part of the transaction "
        f"{group.transaction_id}, which also changed {count}, but {reason}",
        remedy="Bring back the commit from a copy of the table, or move the commits of this "
        "transaction and all later ones out of the logs of the other tables",
    )


def recovered(
    database: CatalogDatabase,
    catalog_id: str,
    store_of: Callable[[TableRow], Store],
    table_id: str,
) -> None:
    """Ratify what a table's log has, as `Recovery.accept` does; again if a race was lost."""
    for _ in range(_ATTEMPTS):
        if Recovery(database, catalog_id, store_of).accept(table_id):
            return
    raise RetriesExhaustedError(
        version=0,
        rule="CAT-5",
        reason="other processes change the catalog all the time",
        remedy="Try again when fewer processes write",
    )


_ATTEMPTS = 20
