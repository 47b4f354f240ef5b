"""How the command line prints: tables for people, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from txlog.errors import TxlogError

if TYPE_CHECKING:
    from rich.console import Console


def console() -> Console:
    """Return the console; without a terminal, lines are as long as they need to be."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console()
    return Console(width=200, force_terminal=False, color_system=None)


def print_json(value: Any) -> None:
    """Print a value as JSON, indented."""
    data = orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str)
    sys.stdout.write(data.decode() + "\n")


def print_text(text: str) -> None:
    """Print a line."""
    sys.stdout.write(text + "\n")


def print_table(title: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows as a table."""
    from rich.markup import escape
    from rich.table import Table as Grid

    grid = Grid(title=title or None, show_header=any(names), title_justify="left")
    for at, name in enumerate(names):
        number = bool(rows) and all(type(row[at]) in (int, float) for row in rows)
        grid.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(escape(_text(value)) for value in row))
    console().print(grid)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name}={_text(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def error_text(error: TxlogError) -> str:
    """Return an error in one line, for standard error."""
    return f"txlog: {error}"
