"""The tables of a catalog at one moment."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from txlog.base.errors import InvalidInputError, InvalidTypeError, NotFoundError, TxlogError
from txlog.store.catalog_database import FormerName, TableRow
from txlog.table.table import Table

_LONGEST_NAME = 400


def by_name(rows: Iterable[TableRow]) -> dict[str, TableRow]:
    """Return tables by unique names: a dropped one whose name another has is `NAME@ID`. Pure."""
    found: dict[str, TableRow] = {}
    folded: set[str] = set()
    for row in rows:
        name = row.name if row.name.casefold() not in folded else f"{row.name}@{row.table_id}"
        if row.name.isprintable():  # One that is being purged has no name.
            found[name] = row
            folded.add(name.casefold())
    return found


class Naming:
    """The names that tables had at a time. Pure.

    Parameters
    ----------
    rows
        All tables, with their present names; dropped ones come last.
    former
        Earlier names, in the order of their times.
    """

    def __init__(self, rows: Sequence[TableRow], former: Sequence[FormerName]) -> None:
        self._rows = rows
        self._former = former
        self._times = [one.until_ms for one in former]

    def at(self, at_ms: int, *, all_tables: bool = False) -> list[TableRow]:
        """Return the tables with their names of a time; those that were not there come last.

        A table that had been dropped then, and was brought back later, is none of them; with
        `all_tables`, it has the name of the time after.
        """
        later = self._former[bisect_right(self._times, at_ms) :]
        later = [one for one in later if one.name or not all_tables]
        names = {one.table_id: one.name for one in reversed(later)}  # The first one counts.
        rows = [
            row.named(names.get(row.table_id, row.name)) if row.name.isprintable() else row
            for row in self._rows
        ]
        return sorted(filter(_is_named, rows), key=lambda row: not _is_there(row, at_ms))

    def changed_between(self, first_ms: int, last_ms: int) -> bool:
        """Return whether names at two times may differ."""
        return first_ms != last_ms and (
            bisect_right(self._times, first_ms) != bisect_right(self._times, last_ms)
            or any(_is_there(row, first_ms) != _is_there(row, last_ms) for row in self._rows)
        )


def _is_named(row: TableRow) -> bool:
    return bool(row.name)


def _is_there(row: TableRow, at_ms: int) -> bool:
    return row.created_ms <= at_ms and (row.dropped_ms is None or row.dropped_ms > at_ms)


@dataclass(frozen=True)
class CatalogSnapshot(Mapping[str, Table]):
    """The tables of a catalog at one moment: `snapshot["sales.orders"]` opens one of them.

    It is a mapping, for `txlog.sql(query, catalog.snapshot())`.
    """

    _open: Callable[[TableRow, int | None], Table]
    _found: Mapping[str, tuple[TableRow, int | None]]
    _failed: Mapping[str, TxlogError] = field(default_factory=dict)  # Why one has no version.

    def __repr__(self) -> str:
        return f"<txlog.CatalogSnapshot: {len(self._found)} tables at one moment>"

    def __getitem__(self, name: str) -> Table:
        """Return a table at its version of the moment; `NotFoundError` if there was none."""
        return self._open(*self.row(name))

    def __iter__(self) -> Iterator[str]:
        """Return an iterator over the names."""
        return iter(self._found)

    def __len__(self) -> int:
        """Return the number of tables."""
        return len(self._found)

    def __contains__(self, name: object) -> bool:
        """Return whether there was a table of this name, in any case."""
        return isinstance(name, str) and name.casefold() in {one.casefold() for one in self._found}

    def get(self, name: str, default: Any = None) -> Any:
        """Return a table, or something else if there was none."""
        if name not in self:
            return default
        return self[name]

    def row(self, name: str) -> tuple[TableRow, int | None]:
        """Return the row of a table in the catalog, and its version; errors as for an item."""
        folded = name.casefold() if isinstance(name, str) else require_name(name)
        for known, found in self._found.items():
            if known.casefold() == folded:
                if known in self._failed:
                    raise self._failed[known]
                return found
        require_name(name)  # Else the error is about the name. Another catalog may have others.
        raise NotFoundError(
            path=name,
            reason=f"there was no table {name!r} at that moment",
            remedy=f"Choose from {', '.join(self._found)}"
            if self._found
            else "Name a later moment",
        )

    def versions(self) -> dict[str, int | None]:
        """Return the versions by name.

        None: the catalog does not manage the table, and reads its version when it is opened.
        """
        return {name: version for name, (_, version) in self._found.items()}


def require_name(name: object) -> str:
    """Return the name of a table; raise unless it has steps between dots that can be folders."""
    if not isinstance(name, str):
        raise InvalidTypeError(
            argument="name",
            reason=f"the name of a table was expected, not {type(name).__name__}",
            remedy='Pass text such as "sales.orders"',
        )
    is_fit = all(
        step and step == step.strip() and not step.startswith("_") and step.isprintable()
        for step in name.split(".")
    )
    odd = next((mark for mark in _ODD if mark in name), None)
    if not is_fit or odd is not None or len(name) > _LONGEST_NAME:
        raise InvalidInputError(
            argument="name",
            reason=f"{name!r} cannot be the name of a table",
            remedy="Write words with dots between them, such as sales.orders. A word does not "
            f"begin with an underscore, and has none of {' '.join(_ODD)}",
        )
    return name


_ODD = ("/", "\\", ":", "*", "?", '"', "<", ">", "|", "`", "'", "%", "=")
