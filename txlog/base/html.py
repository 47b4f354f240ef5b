"""Small pieces of HTML with which notebooks show values: escaped, without scripts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_LINE = "border:0;border-bottom:1px solid rgba(128,128,128,.35);padding:.15em .8em .15em 0;"
_LEFT = f'style="{_LINE}text-align:left;vertical-align:top"'
_RIGHT = f'style="{_LINE}text-align:right;vertical-align:top"'
_TABLE = '<table style="border-collapse:collapse;font-size:90%;background:none">'
_MOST_LETTERS = 200


def titled(title: str, *parts: str) -> str:
    """Return parts under a title."""
    return f"<div><b>{_shown(title)}</b>{''.join(parts)}</div>"


def facts_html(facts: Mapping[str, Any]) -> str:
    """Return names with their values, one pair on each line; None values are omitted."""
    lines = [
        f'<tr><th {_LEFT} scope="row">{_shown(name)}</th><td {_LEFT}>{_shown(value)}</td></tr>'
        for name, value in facts.items()
        if value is not None
    ]
    return f"{_TABLE}<tbody>{''.join(lines)}</tbody></table>" if lines else ""


def rows_html(names: Sequence[str], rows: Iterable[Sequence[Any]], *, most: int = 30) -> str:
    """Return rows as a table with a head: the first `most` rows, and the number of the others."""
    listed = list(rows)
    head = "".join(f'<th {_LEFT} scope="col">{_shown(name)}</th>' for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in listed[:most])
    more = f"<div>… and {len(listed) - most:,} more</div>" if len(listed) > most else ""
    return f"{_TABLE}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"<td {_RIGHT if is_number else _LEFT}>{_shown(value)}</td>"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = f"{value:,}" if isinstance(value, int) else str(value)
    if len(text) > _MOST_LETTERS:
        text = f"{text[: _MOST_LETTERS - 1]}…"
    return escape(text)
