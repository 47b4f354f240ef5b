"""Following a catalog: the commits of its tables, in the order in which it ratified them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from txlog.base.effects import REAL
from txlog.base.errors import InvalidInputError
from txlog.catalog.moment import Naming, by_name
from txlog.store.catalog_database import CatalogDatabase, Moment, RatifiedCommit, TableRow
from txlog.table.table import Table

_FORMAT = 1
_MOST = 1000  # Commits that are read from the database at a time.
_FIRST_WAIT_S = 0.05


@dataclass(frozen=True)
class CatalogChange:
    """What changed at one moment: one commit, or all commits of a transaction.

    `versions` has the new version of each table that changed, by the name that it had then.
    `transaction_id` is None for a commit of one table alone. `token` continues after this change
    (`Catalog.follow`).
    """

    token: str
    timestamp_ms: int
    transaction_id: str | None
    versions: dict[str, int]
    _rows: dict[str, TableRow]
    _open: Callable[[TableRow, int | None], Table]

    def __repr__(self) -> str:
        return f"<txlog.CatalogChange {self.versions}>"

    def table(self, name: str) -> Table:
        """Open a table that changed, at its new version; `KeyError` if it did not change."""
        return self._open(self._rows[name], self.versions[name])


def followed(
    database: CatalogDatabase,
    catalog_id: str,
    open_table: Callable[[TableRow, int | None], Table],
    *,
    token: str | None,
    timeout_s: float | None,
    poll_s: float,
) -> Iterator[CatalogChange]:
    """Yield the changes of a catalog; arguments and errors as for `Catalog.follow`."""
    at = database.last_moment() if token is None else _parsed(token, catalog_id)
    return _changes(database, catalog_id, open_table, at, timeout_s, poll_s)


def _changes(
    database: CatalogDatabase,
    catalog_id: str,
    open_table: Callable[[TableRow, int | None], Table],
    at: Moment,
    timeout_s: float | None,
    poll_s: float,
) -> Iterator[CatalogChange]:
    since, wait_s = REAL.monotonic_s(), _FIRST_WAIT_S
    while True:
        found = database.commits_after(at.sequence, _MOST, at_ms=at.at_ms)
        names = _Names(database) if found else None
        for _, group in groupby(found, key=attrgetter("sequence")):
            assert names is not None
            commits = list(group)
            rows = names.at(commits[0].at_ms)
            commits = [one for one in commits if one.table_id in rows]
            if commits:
                yield _change(commits, rows, catalog_id, open_table)
        if found:
            at = Moment(found[-1].sequence, found[-1].at_ms)
            since, wait_s = REAL.monotonic_s(), _FIRST_WAIT_S
            continue
        waited = REAL.monotonic_s() - since
        if timeout_s is not None and waited >= timeout_s:
            return
        left = wait_s if timeout_s is None else min(wait_s, timeout_s - waited)
        REAL.sleep_s(left)
        wait_s = min(max(poll_s, _FIRST_WAIT_S), 2 * wait_s)


Named = dict[str, tuple[str, TableRow]]


class _Names:
    """The tables of a catalog by id, with the unique names that they had at a time."""

    def __init__(self, database: CatalogDatabase) -> None:
        self._naming = Naming(*database.tables_and_former_names())
        self._last: tuple[int, Named] | None = None

    def at(self, at_ms: int) -> Named:
        """Return the tables of a time; a purged table is none of them.

        Each commit has its table: where times were taken from clocks that differ, the table of a
        commit may seem to be dropped.
        """
        if self._last is None or self._naming.changed_between(self._last[0], at_ms):
            named = by_name(self._naming.at(at_ms, all_tables=True))
            self._last = at_ms, {row.table_id: (name, row) for name, row in named.items()}
        return self._last[1]


def _change(
    commits: list[RatifiedCommit],
    rows: Named,
    catalog_id: str,
    open_table: Callable[[TableRow, int | None], Table],
) -> CatalogChange:
    first = commits[0]
    place = {
        "format": _FORMAT,
        "catalog": catalog_id,
        "after": first.sequence,
        "at": first.at_ms,  # After a restore of the database, the number may mean another change.
    }
    changed = {rows[one.table_id][0]: one for one in commits}
    return CatalogChange(
        json.dumps(place, separators=(",", ":")),
        first.at_ms,
        first.transaction_id,
        {name: one.version for name, one in changed.items()},
        {name: rows[one.table_id][1] for name, one in changed.items()},
        open_table,
    )


def _parsed(token: object, catalog_id: str) -> Moment:
    """Return the moment after which a token continues.

    Raises
    ------
    InvalidInputError
        The text is no token, or that of another catalog.
    """
    found: Any = None
    if isinstance(token, str):
        try:
            found = json.loads(token)
        except (ValueError, RecursionError):
            found = None
    kinds = {"format": int, "catalog": str, "after": int, "at": int}
    is_one = isinstance(found, dict) and {n: type(v) for n, v in found.items()} == kinds
    if (
        not is_one
        or found["format"] != _FORMAT
        or not all(0 <= found[name] < 1 << 63 for name in ("after", "at"))
    ):
        raise InvalidInputError(
            argument="token",
            reason=f"{token!r} is not the token of a change of a catalog",
            remedy="Pass the token of a change, as it is",
        )
    if found["catalog"] != catalog_id:
        raise InvalidInputError(
            argument="token",
            reason=f"the token is of another catalog (id {found['catalog']})",
            remedy="Pass the token to that catalog, or follow this one anew",
        )
    return Moment(found["after"], found["at"])
