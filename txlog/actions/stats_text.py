"""Read and change the statistics of one file: the JSON text in its action. Pure.

All other modules use this one, so that spaces, the order of keys and the spelling of numbers do not
change the meaning. A value that is missing or invalid is unknown, never an error.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import orjson

from txlog.base.threads import cached_property

SECTIONS = ("minValues", "maxValues", "nullCount")
"""The objects in statistics that have values for columns."""
_LEAST, _MOST = -(2**63), 2**64 - 1  # The integers that `orjson` writes.

Path = tuple[str, ...]
Document = dict[str, Any]


class _Number(Decimal):
    """A number of a JSON text, which is written with the same digits again."""

    text: str

    def __new__(cls, text: str) -> _Number:
        number = super().__new__(cls, text)
        number.text = text
        return number


def quick_document(text: str | None) -> Document:
    """Return a text's JSON object, with numbers as `int` and `float`; {} if it is not an object."""
    try:
        document = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}


def exact_document(text: str | None) -> Document | None:
    """Return a text's JSON object, with numbers as `int` and `Decimal`; None if it is not one.

    Constants that are not JSON, such as `NaN`, become strings.
    """
    try:
        document = json.loads(
            text or "null", parse_int=_integer, parse_float=_Number, parse_constant=str
        )
    except (ValueError, RecursionError, ArithmeticError):
        return None
    return document if isinstance(document, dict) else None


def _integer(text: str) -> int | Decimal:
    number = int(text)
    return number if _LEAST <= number <= _MOST else _Number(text)


def stats_json(document: Document) -> str:
    """Return the text of statistics. Decimals that were read from a text keep their digits."""
    return orjson.dumps(document, default=_as_written).decode()


def _as_written(number: Any) -> orjson.Fragment:
    return orjson.Fragment(number.text if isinstance(number, _Number) else format(number, "f"))


def value_at(node: Any, path: Path) -> Any:
    """Return the value at a path of names in a JSON object; None if a name is missing."""
    for name in path:
        if not isinstance(node, dict):
            return None
        node = node.get(name)
    return node


def put(node: Document, path: Path, value: Any) -> None:
    """Put a column's value into an object of statistics, unless it is None."""
    if value is None:
        return
    for name in path[:-1]:
        node = node.setdefault(name, {})
    node[path[-1]] = value


MOST_ROWS = 2**40
"""No file has more rows than this. Sums of such counts fit 64 bits."""


def count_of(value: Any) -> int | None:
    """Return a JSON value as a number of rows; None if it is not a valid number of rows."""
    return value if type(value) is int and 0 <= value <= MOST_ROWS else None


@dataclass(frozen=True)
class StatsText:
    """The statistics of one file. An immutable value: a change returns a new one.

    `text` is None if the file has no statistics. Numbers that do not change keep their digits.
    """

    text: str | None = None

    @cached_property
    def document(self) -> Document:
        """The object of the text; empty if the text is not an object."""
        # A lone UTF-16 surrogate can be read, but not written.
        is_odd = "\\ud" in (self.text or "").lower() and not quick_document(self.text)
        return {} if is_odd else exact_document(self.text) or {}

    @property
    def num_records(self) -> int | None:
        """The number of rows of the file; None if the text does not state it."""
        return count_of(quick_document(self.text).get("numRecords"))

    def value(self, section: str, path: Path) -> Any:
        """Return a column's entry in one of `SECTIONS`, or None."""
        return value_at(self.document.get(section), path)

    def with_num_records(self, rows: int) -> StatsText:
        """Return the statistics with a number of rows."""
        first = {"numRecords": rows}  # Fast readers look here first.
        return _of(first | self.document | first)

    def loosened(self, rows: int | None = None) -> StatsText:
        """Return the statistics of the file after a delete: the bounds are no longer tight.

        `rows` is the number of rows, including deleted ones; it is used if the text does not state
        it.
        """
        known = self
        if rows is not None and self.num_records is None:
            known = self.with_num_records(rows)
        return _of({**known.document, "tightBounds": False})

    def with_columns(
        self, computed: StatsText, columns: Collection[Path], *, tight: bool
    ) -> StatsText:
        """Return the statistics with new values for the number of rows and for some columns.

        Parameters
        ----------
        computed
            Statistics of `columns` alone.
        tight
            Whether none of the rows that `computed` describes has been deleted.
        """
        after = StatsText(self.text).document  # A copy that may be changed.
        after["numRecords"] = computed.document["numRecords"]
        for section in SECTIONS:
            values = after[section] if isinstance(after.get(section), dict) else {}
            after[section] = values
            for path in columns:
                _drop(values, path)
        others = any(after[section] for section in SECTIONS)
        after["tightBounds"] = tight and not (others and self.document.get("tightBounds") is False)
        for section in SECTIONS:
            for path in columns:
                put(after[section], path, computed.value(section, path))
        return self if after == self.document else _of(after)


def _of(document: Document) -> StatsText:
    return StatsText(stats_json(document))


def _drop(node: Document, path: Path) -> None:
    """Delete a value, and the objects that become empty."""
    if len(path) > 1 and isinstance(inner := node.get(path[0]), dict):
        _drop(inner, path[1:])
        if inner:
            return
    node.pop(path[0], None)
