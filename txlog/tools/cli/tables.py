"""How commands open their table."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from txlog import Table

_zone: ContextVar[str | None] = ContextVar("txlog.cli.zone", default=None)


_branch: ContextVar[str | None] = ContextVar("txlog.cli.branch", default=None)


def use_branch(name: str | None) -> None:
    """Set the branch that the command works on; None is the table itself."""
    _branch.set(name)


def use_zone(zone: str | None) -> None:
    """Set the time zone of SQL in the command that runs; None is UTC."""
    _zone.set(zone)


def opened(table: str, **more: Any) -> Table:
    """Open a table, or the branch of the command line.

    Its predicates and values have the time zone of the command line.

    `more` are other arguments of `Table`.

    Raises
    ------
    InvalidInputError
        There is no such zone.
    """
    return Table(table, time_zone=_zone.get(), **{"branch": _branch.get(), **more})


def on_main(table: str) -> Table:
    """Open a table itself, also if the command line chooses a branch."""
    return opened(table, branch=None)
