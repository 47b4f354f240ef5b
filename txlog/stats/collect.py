"""Statistics of a file, from its rows or from what its footer tells.

Rules: the Delta protocol, "Per-file Statistics"; bounds by Spark's order of values.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from txlog.arrow import pc
from txlog.schema.moments import DAY_US, days_of, format_date, format_moment
from txlog.schema.types import DataType, DecimalType, PrimitiveType, StructType
from txlog.stats.bounds import Path

STRING_PREFIX = 32  # Characters of a text that its bounds keep.
_FIRST_DAY, _LAST_DAY = days_of(1, 1, 1), days_of(9999, 12, 31)
_UNBOUNDED = frozenset({"binary", "boolean", "void", "variant"})


@dataclass(frozen=True)
class Extent:
    """What is known of a column over all rows of a file.

    Bounds are those of Arrow's values: days, microseconds, Decimals; None if all rows are null, or
    the type has none.
    """

    nulls: int
    low: Any = None
    high: Any = None


@dataclass
class _Leaf:
    """A column without children, and what was seen of it so far."""

    path: Path
    kind: DataType
    nulls: int = 0
    low: Any = None
    high: Any = None
    has_nan: bool = False


def has_bounds(kind: DataType) -> bool:
    """Return whether txlog writes bounds of a type's values."""
    if isinstance(kind, PrimitiveType):
        return kind.name not in _UNBOUNDED
    return isinstance(kind, DecimalType)


def leaf_types(schema: StructType, *, indexed: int = -1) -> dict[Path, DataType]:
    """Return the types of the columns without children, by their paths, in the schema's order.

    `indexed` says how many of them; -1 for all.
    """
    found = {leaf.path: leaf.kind for leaf in _leaves(schema, ())}
    return found if indexed < 0 else dict(list(found.items())[:indexed])


class StatsCollector:
    """Collects the statistics of one file over all batches that are written to it.

    Parameters
    ----------
    schema
        The columns of the file, by the names that the statistics are to bear.
    indexed
        How many leaf columns, in the schema's order, get bounds and null counts; -1 for all.
    only
        Of these, the ones that do.
    """

    def __init__(
        self, schema: StructType, *, indexed: int = 32, only: Collection[Path] | None = None
    ) -> None:
        paths = leaf_types(schema, indexed=indexed)
        self._leaves = [
            _Leaf(path, kind) for path, kind in paths.items() if only is None or path in only
        ]
        self._open = self._leaves
        self._rows = 0
        self._counts = True

    @property
    def open_columns(self) -> frozenset[str]:
        """The columns of the schema whose values `update` has still to see."""
        return frozenset(leaf.path[0] for leaf in self._open)

    def settle(self, rows: int, known: Mapping[Path, Extent]) -> None:
        """Take over what is known of some columns, and the number of rows, before any is seen.

        `update` then looks at the other columns alone.
        """
        self._rows, self._counts = rows, False
        for leaf in self._leaves:
            if (extent := known.get(leaf.path)) is not None:
                leaf.nulls, leaf.low, leaf.high = extent.nulls, extent.low, extent.high
        self._open = [leaf for leaf in self._leaves if leaf.path not in known]

    def update(self, data: pa.Table | pa.RecordBatch) -> None:
        """Take more rows into account."""
        self._rows += data.num_rows if self._counts else 0
        for leaf in self._open:
            column = data.column(leaf.path[0])
            if len(leaf.path) > 1:
                column = pc.struct_field(column, list(leaf.path[1:]))
            leaf.nulls += column.null_count
            if has_bounds(leaf.kind) and column.null_count < len(column):
                _widen(leaf, column)

    def finish(self) -> dict[str, Any]:
        """Return the statistics as the log's object; `stats_json` makes it text."""
        low: dict[str, Any] = {}
        high: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        for leaf in self._leaves:
            put(nulls, leaf.path, leaf.nulls)
            if leaf.low is not None:
                least, greatest = _json_bounds(leaf)
                put(low, leaf.path, least)
                put(high, leaf.path, greatest)
        return {
            "numRecords": self._rows,
            "minValues": low,
            "maxValues": high,
            "nullCount": nulls,
            "tightBounds": True,
        }


def stats_json(stats: dict[str, Any]) -> str:
    """Return statistics as the text that an `add` carries."""
    return orjson.dumps(stats).decode()


def _leaves(kind: StructType, above: Path) -> Iterator[_Leaf]:
    for field in kind.fields:
        path = (*above, field.name)
        if isinstance(field.type, StructType):
            yield from _leaves(field.type, path)
        else:
            yield _Leaf(path, field.type)


def put(node: dict[str, Any], path: Path, value: Any) -> None:
    """Put a column's value into an object of statistics, unless it is None."""
    if value is None:
        return
    for name in path[:-1]:
        node = node.setdefault(name, {})
    node[path[-1]] = value


def _widen(leaf: _Leaf, column: Any) -> None:
    if pa.types.is_floating(column.type):
        nan = pc.is_nan(column)
        if pc.any(nan).as_py():
            leaf.has_nan = True
            column = column.filter(pc.invert(nan))
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())  # Python's dates end with the year 9999.
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    found = pc.min_max(column)
    low, high = found["min"].as_py(), found["max"].as_py()
    if low is not None:
        leaf.low = low if leaf.low is None else min(leaf.low, low)
        leaf.high = high if leaf.high is None else max(leaf.high, high)


def _json_bounds(leaf: _Leaf) -> tuple[Any, Any]:
    """Return a leaf's bounds as JSON values; None for one that JSON cannot say."""
    low, high = leaf.low, leaf.high
    match leaf.kind:
        case PrimitiveType("float" | "double"):
            # Zeros have two signs that compare equal, and NaN is above every bound.
            least = -0.0 if low == 0 else low
            greatest = None if leaf.has_nan else 0.0 if high == 0 else high
            return _finite(least), _finite(greatest)
        case PrimitiveType("date"):
            return _date(low), _date(high)
        case PrimitiveType("timestamp"):
            return _moment(low, "Z"), _moment(high, "Z")
        case PrimitiveType("timestamp_ntz"):
            return _moment(low, ""), _moment(high, "")
        case PrimitiveType("string"):
            return low[:STRING_PREFIX], upper_prefix(high)
        case PrimitiveType():
            return low, high
    return orjson.Fragment(format(low, "f")), orjson.Fragment(format(high, "f"))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _date(days: int) -> str | None:
    return format_date(days) if _FIRST_DAY <= days <= _LAST_DAY else None


def _moment(micros: int, zone: str) -> str | None:
    """Return a timestamp cut to milliseconds; readers allow for what was cut."""
    if not _FIRST_DAY <= micros // DAY_US <= _LAST_DAY:
        return None
    return format_moment(micros, digits=3, zone=zone)


def upper_prefix(text: str) -> str | None:
    """Return a text not below `text` of few characters, or None if there is none.

    What is cut off is made up for by a character above it: in the order of UTF-8 bytes, and
    in that of UTF-16 too.
    """
    if len(text) <= STRING_PREFIX:
        return text
    for end in range(STRING_PREFIX, 2 * STRING_PREFIX):
        if end >= len(text):
            return text
        if text[end] < "\x7f":
            return text[:end] + "\x7f"
        # From U+E000 on, UTF-16 puts characters above all those of two units.
        if text[end] < "\ue000" or "\uffff" < text[end] < "\U0010ffff":
            return text[:end] + "\U0010ffff"
    return None
