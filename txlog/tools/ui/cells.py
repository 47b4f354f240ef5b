"""Tables for pages, whose values are texts of limited length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import orjson
import pyarrow as pa

from txlog.base.columns import python_values

MOST_CHARACTERS = 500
_MOST_BYTES = 32


@dataclass(frozen=True)
class Cell:
    """A value in a table; `style` is a CSS class, and `href` makes the text a link."""

    text: str
    style: str = ""
    href: str = ""


@dataclass(frozen=True)
class Head:
    """The header of a column: its name, and a note in small letters."""

    name: str
    note: str = ""
    style: str = ""


@dataclass(frozen=True)
class Grid:
    """A table of a page. `label` names it, also for screen readers."""

    label: str
    heads: Sequence[Head]
    rows: list[list[Cell]] = field(default_factory=list)


_LONG = 24  # In characters. Longer texts may be wrapped within words.

NOTHING = Cell("null", "null")


def link(path: str, **parameters: Any) -> str:
    """Return a URL with query parameters; those that are None or empty are omitted."""
    query = {name: value for name, value in parameters.items() if value not in (None, "", [])}
    return f"{path}?{urlencode(query, errors='surrogatepass')}" if query else path


def cell(value: Any, style: str = "", href: str = "") -> Cell:
    """Return a Python value as a cell: integers with thousands separators, None as no text."""
    if value is None:
        return Cell("", style, href)
    if isinstance(value, bool):
        return Cell("yes" if value else "no", style, href)
    if isinstance(value, int):
        return Cell(f"{value:,}", style or "n", href)
    text = shortened(str(value))
    return Cell(text, style or long_style(text), href)


def long_style(text: str) -> str:
    """Return the CSS class of a text: a long one may be wrapped within words."""
    return "long" if len(text) > _LONG else ""


def grid(label: str, heads: Iterable[str | Head], rows: Iterable[Sequence[Any]]) -> Grid:
    """Return a table of values, which may already be cells."""
    made = [[one if isinstance(one, Cell) else cell(one) for one in row] for row in rows]
    found = []
    for place, head in enumerate(heads):
        column = head if isinstance(head, Head) else Head(head)
        numbers = [row[place].style == "n" for row in made]
        is_number = bool(numbers) and all(numbers)
        found.append(Head(column.name, column.note, "n") if is_number else column)
    return Grid(label, found, made)


def rows_grid(label: str, rows: pa.Table) -> Grid:
    """Return Arrow rows as a table; the header of each column has its name and type."""
    columns = [column_cells(column) for column in rows.columns]
    heads = [
        Head(one.name, str(one.type) if len(str(one.type)) < 60 else f"{str(one.type)[:59]}…",
             "n" if is_number(one.type) else "")
        for one in rows.schema
    ]  # fmt: skip
    return Grid(label, heads, list(map(list, zip(*columns, strict=True))))


def column_cells(column: pa.ChunkedArray) -> list[Cell]:
    """Return the values of a column as cells."""
    style = "n" if is_number(column.type) else ""
    texts = (value if value is None else value_text(value) for value in python_values(column))
    return [NOTHING if text is None else Cell(text, style or long_style(text)) for text in texts]


def is_number(kind: pa.DataType) -> bool:
    """Return whether the values of a type are numbers, which are aligned to the right."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def value_text(value: Any) -> str:
    """Return a value as text of bounded length."""
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, bytes):
        more = f"… ({len(value):,} bytes)" if len(value) > _MOST_BYTES else ""
        return f"0x{value[:_MOST_BYTES].hex()}{more}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict | tuple):
        return shortened(json_text(value))
    return shortened(str(value))


def json_text(value: Any) -> str:
    """Return nested values as JSON, with texts for values that JSON does not have."""
    try:
        return orjson.dumps(value, default=value_text, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):  # Integers of more than 64 bits, or text that is not UTF-8.
        return repr(value)


def shortened(text: str) -> str:
    """Return a text; if it is too long, its beginning and its length."""
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}… ({len(text):,} characters)"


def pairs_text(values: Mapping[str, Any] | None) -> str:
    """Return names with values in one line; names without a value are omitted."""
    pairs = (
        (name, value) for name, value in (values or {}).items() if value not in (None, "", "[]")
    )
    return shortened(", ".join(f"{name}: {value}" for name, value in pairs))
