"""Statistics of one file as the JSON text that its action carries: read, and changed. Pure.

All other modules go through this one, so that spaces, the order of keys and the spelling of numbers
never decide what statistics mean. Whatever is missing or no JSON object is unknown, never an error.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from decimal import Decimal
from typing import Any

import orjson

from txlog.lazy import dataclass
from txlog.threads import cached_property

SECTIONS = ("minValues", "maxValues", "nullCount")
"""The objects in statistics; each has a value for each of some columns."""
_LEAST, _MOST = -(2**63), 2**64 - 1  # What `orjson` writes as an integer.

Path = tuple[str, ...]
Document = dict[str, Any]


class _Number(Decimal):
    """A number of a JSON text, which is written again as it was."""

    text: str

    def __new__(cls, text: str) -> _Number:
        number = super().__new__(cls, text)
        number.text = text
        return number


def quick_document(text: str | None) -> Document:
    """Return the object of a text, its numbers as `int` and `float`; empty if it is none."""
    try:
        document = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}


def exact_document(text: str | None) -> Document | None:
    """Return the object of a text, its numbers as `int` and `Decimal`; None if it is none.

    The constants that are no JSON, such as `NaN`, are texts.
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
    """Return the text of statistics. Decimals that were read from a text are as they were there."""
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
"""More rows than any file has. Sums of such counts fit 64 bits."""


def count_of(value: Any) -> int | None:
    """Return a JSON value as a number of rows; None if it is no such number."""
    return value if type(value) is int and 0 <= value <= MOST_ROWS else None


@dataclass(frozen=True)
class StatsText:
    """The statistics of one file. A value: a change returns another one.

    `text` is None if the file has none. All other numbers stay as they are written.
    """

    text: str | None = None

    @cached_property
    def document(self) -> Document:
        """The object that the text is; empty if it is none."""
        # Half of a pair of UTF-16 can be read, but not be written.
        is_odd = "\\ud" in (self.text or "").lower() and not quick_document(self.text)
        return {} if is_odd else exact_document(self.text) or {}

    @property
    def num_records(self) -> int | None:
        """The rows of the file; None if the text does not say."""
        return count_of(quick_document(self.text).get("numRecords"))

    def value(self, section: str, path: Path) -> Any:
        """Return the entry of a column in one of `SECTIONS`, or None."""
        return value_at(self.document.get(section), path)

    def with_num_records(self, rows: int) -> StatsText:
        """Return the same with a number of rows."""
        first = {"numRecords": rows}  # Where fast readers look first.
        return _of(first | self.document | first)

    def loosened(self, rows: int | None = None) -> StatsText:
        """Return the same as of a file of which some rows are deleted: its bounds are not tight.

        `rows` is how many the file has, deleted ones included; it counts if the text does not say.
        """
        known = self
        if rows is not None and self.num_records is None:
            known = self.with_num_records(rows)
        return _of({**known.document, "tightBounds": False})

    def with_columns(
        self, computed: StatsText, columns: Collection[Path], *, tight: bool
    ) -> StatsText:
        """Return the same with the number of rows, and what is computed of some columns.

        Parameters
        ----------
        computed
            Statistics of `columns` alone.
        tight
            Whether no row has been deleted of those that `computed` is about.
        """
        after = StatsText(self.text).document  # Another copy, to be changed.
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
    """Take a value out, and objects that are empty without it."""
    if len(path) > 1 and isinstance(inner := node.get(path[0]), dict):
        _drop(inner, path[1:])
        if inner:
            return
    node.pop(path[0], None)
