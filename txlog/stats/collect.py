"""Statistics of a data file, from its rows or from its Parquet footer.

Rules: the Delta protocol, "Per-file Statistics". Bounds follow Spark's order of values.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from txlog.actions.stats_text import Path, put
from txlog.base.arrow import pc
from txlog.base.errors import InvalidInputError
from txlog.base.moments import DAY_US, days_of, format_date, format_moment
from txlog.parquet.file_footer import FileFooter
from txlog.protocol.properties import Properties
from txlog.schema.arrow import arrow_type
from txlog.schema.types import DataType, DecimalType, PrimitiveType, StructType, type_name

STRING_PREFIX = 32  # The number of characters of a string that its bounds keep.
_FIRST_DAY, _LAST_DAY = days_of(1, 1, 1), days_of(9999, 12, 31)
_UNBOUNDED = frozenset({"binary", "boolean", "void", "variant"})


@dataclass(frozen=True)
class Extent:
    """The number of nulls, the minimum and the maximum of a column in a file.

    Bounds are Arrow's plain values (days, microseconds or nanoseconds, Decimals). They are None if
    all rows are null or the type has no bounds.
    """

    nulls: int
    low: Any = None
    high: Any = None


@dataclass
class _Leaf:
    """A leaf column and its statistics so far."""

    path: Path
    kind: DataType
    nulls: int = 0
    low: Any = None
    high: Any = None
    has_nan: bool = False


def has_bounds(kind: DataType) -> bool:
    """Return whether txlog writes bounds for columns of a type."""
    if isinstance(kind, PrimitiveType):
        return kind.name not in _UNBOUNDED
    return isinstance(kind, DecimalType)


def leaf_types(schema: StructType, *, indexed: int = -1) -> dict[Path, DataType]:
    """Return the types of the leaf columns by their paths, in the schema's order.

    `indexed` limits their number; -1 means all.
    """
    types = {leaf.path: leaf.kind for leaf in _leaves(schema, ())}
    return types if indexed < 0 else dict(list(types.items())[:indexed])


class StatsCollector:
    """Collects the statistics of one file from all batches that are written to it.

    Parameters
    ----------
    schema
        The columns of the file, with the names that the statistics use.
    indexed
        How many leaf columns, in the schema's order, get bounds and null counts; -1 means all.
    only
        If given, only these leaf columns get them.
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
        """The columns of the schema whose statistics `update` collects."""
        return frozenset(leaf.path[0] for leaf in self._open)

    def settle(self, rows: int, known: Mapping[Path, Extent]) -> None:
        """Set the number of rows and the statistics of some columns before the first `update`.

        `update` then collects the statistics of the other columns.
        """
        self._rows, self._counts = rows, False
        for leaf in self._leaves:
            if (extent := known.get(leaf.path)) is not None:
                leaf.nulls, leaf.low, leaf.high = extent.nulls, extent.low, extent.high
        self._open = [leaf for leaf in self._leaves if leaf.path not in known]

    def update(self, data: pa.Table | pa.RecordBatch) -> None:
        """Add the statistics of more rows."""
        self._rows += data.num_rows if self._counts else 0
        for leaf in self._open:
            column = data.column(leaf.path[0])
            if len(leaf.path) > 1:
                column = pc.struct_field(column, list(leaf.path[1:]))
            leaf.nulls += column.null_count
            if has_bounds(leaf.kind) and column.null_count < len(column):
                _widen(leaf, column)

    def finish(self) -> dict[str, Any]:
        """Return the statistics as a JSON object; `stats_json` converts it to text."""
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


def _leaves(kind: StructType, above: Path) -> Iterator[_Leaf]:
    for field in kind.fields:
        path = (*above, field.name)
        if isinstance(field.type, StructType):
            yield from _leaves(field.type, path)
        else:
            yield _Leaf(path, field.type)


def _widen(leaf: _Leaf, column: Any) -> None:
    low, high = _ends(leaf, column)
    if low is not None:
        leaf.low = low if leaf.low is None else min(leaf.low, low)
        leaf.high = high if leaf.high is None else max(leaf.high, high)


def _ends(leaf: _Leaf, column: Any) -> tuple[Any, Any]:
    if pa.types.is_floating(column.type):
        nan = pc.is_nan(column)
        if pc.any(nan).as_py():
            leaf.has_nan = True
            column = pc.filter(column, pc.invert(nan))
    elif pa.types.is_date(column.type):
        column = pc.cast(column, pa.int32())  # Python's dates end with the year 9999.
    elif pa.types.is_timestamp(column.type):
        column = pc.cast(column, pa.int64())
    extremes = pc.min_max(column)
    return extremes["min"].as_py(), extremes["max"].as_py()


def _json_bounds(leaf: _Leaf) -> tuple[Any, Any]:
    """Return a leaf's bounds as JSON values; None for a value that JSON cannot hold."""
    low, high = leaf.low, leaf.high
    match leaf.kind:
        case PrimitiveType("float" | "double"):
            # Zeros of both signs compare as equal, and NaN is above every bound.
            least = -0.0 if low == 0 else low
            greatest = None if leaf.has_nan else 0.0 if high == 0 else high
            return _finite(least), _finite(greatest)
        case PrimitiveType("date"):
            return _date(low), _date(high)
        case PrimitiveType("timestamp"):
            return _moment(low, "Z"), _moment(high, "Z")
        case PrimitiveType("timestamp_ntz"):
            return _moment(low, ""), _moment(high, "")
        case PrimitiveType("timestamp_nanos" | "timestamp_nanos_ntz" as name):
            zone = "" if name.endswith("_ntz") else "Z"
            return _moment(low // 1000, zone), _moment(high // 1000, zone)
        case PrimitiveType("string"):
            return low[:STRING_PREFIX], upper_prefix(high)
        case PrimitiveType():
            return low, high
    return low, high


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _date(days: int) -> str | None:
    return format_date(days) if _FIRST_DAY <= days <= _LAST_DAY else None


def _moment(micros: int, zone: str) -> str | None:
    """Return a timestamp cut to milliseconds; readers allow for the cut digits."""
    if not _FIRST_DAY <= micros // DAY_US <= _LAST_DAY:
        return None
    return format_moment(micros, digits=3, zone=zone)


def upper_prefix(text: str) -> str | None:
    """Return a short string that is not below `text`, or None if there is none.

    The string is cut, and a character above the first cut character is appended. The result is not
    below `text` in the order of UTF-8 bytes and in the order of UTF-16.
    """
    if len(text) <= STRING_PREFIX:
        return text
    for end in range(STRING_PREFIX, 2 * STRING_PREFIX):
        if end >= len(text):
            return text
        if text[end] < "\x7f":
            return text[:end] + "\x7f"
        # In UTF-16, characters from U+E000 on sort above all characters of two units.
        if text[end] < "\ue000" or "\uffff" < text[end] < "\U0010ffff":
            return text[:end] + "\U0010ffff"
    return None


# A footer does not show whether a column contains NaN.
_SILENT = (PrimitiveType("float"), PrimitiveType("double"))


def footer_extents(footer: FileFooter, columns: Mapping[Path, DataType]) -> dict[Path, Extent]:
    """Return the statistics of columns from a footer, without columns that must be read.

    Parameters
    ----------
    columns
        Leaf columns and their types, by their names in the file.
    """
    schema = footer.schema
    folded = {name.lower() for name in schema.names}
    extents = {}
    for path, kind in columns.items():
        if path[0].lower() not in folded:
            extents[path] = Extent(footer.num_rows)
        elif (leaf := footer.leaf(path)) is not None and _is_stored(schema, path, kind):
            extent = _extent(footer, leaf, kind)
            if extent is not None:
                extents[path] = extent
    return extents


def _is_stored(schema: pa.Schema, path: Path, kind: DataType) -> bool:
    """Return whether the file stores a column in this type, with one value per row."""
    if schema.get_field_index(path[0]) < 0:  # It is absent, or there are two.
        return False
    field = schema.field(path[0])
    for name in path[1:]:
        if not pa.types.is_struct(field.type) or field.type.get_field_index(name) < 0:
            return False
        field = field.type.field(name)
    if kind == PrimitiveType("string"):
        return bool(pa.types.is_string(field.type) or pa.types.is_large_string(field.type))
    primitive = isinstance(kind, PrimitiveType | DecimalType)
    return primitive and kind not in _SILENT and field.type == arrow_type(kind)


def _extent(footer: FileFooter, leaf: int, kind: DataType) -> Extent | None:
    """Return the extent of a column over all row groups; None if one has no statistics."""
    nulls, low, high = 0, None, None
    for group in footer.groups:
        missing = footer.nulls(group, leaf)
        if missing is None:
            return None
        nulls += missing
        if not has_bounds(kind) or footer.values(group, leaf) == 0:
            continue
        statistics = footer.statistics(group, leaf)
        if not statistics.has_min_max:
            return None
        least, greatest = _value(statistics.min_raw, kind), _value(statistics.max_raw, kind)
        if least is None or greatest is None or least > greatest:
            return None
        low = least if low is None else min(low, least)
        high = greatest if high is None else max(high, greatest)
    return Extent(nulls, low, high)


def _value(raw: Any, kind: DataType) -> Any:
    """Return a value of a footer in the form of `Extent`; None if it cannot be converted."""
    if isinstance(kind, DecimalType):
        number = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
        # Arithmetic would round it to the context's precision.
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -kind.scale))
    if isinstance(raw, bytes):
        try:
            return raw.decode()
        except UnicodeDecodeError:  # The writer cut the bytes inside a character.
            return None
    return raw


LISTED = "delta.dataSkippingStatsColumns"
_INDEXED = "delta.dataSkippingNumIndexedCols"


def stats_leaves(stored: StructType, properties: Properties) -> dict[Path, DataType]:
    """Return the leaf columns of data files that get statistics, with their types.

    A listed column that the files lack is ignored: another writer may have dropped it.

    Parameters
    ----------
    stored
        The columns of the files.
    """
    listed: Sequence[Path] | None = properties.get(LISTED)
    if listed is None:
        return leaf_types(stored, indexed=properties.get(_INDEXED))
    folded = {_folded(path) for path in listed}
    return {
        path: kind
        for path, kind in leaf_types(stored).items()
        if any(_folded(path[:end]) in folded for end in range(1, len(path) + 1))
    }


def require_stats_columns(
    schema: StructType, partition_by: Sequence[str], properties: Properties
) -> None:
    """Raise if `delta.dataSkippingStatsColumns` names a column that cannot have statistics.

    Raises
    ------
    InvalidInputError
        A column is unknown, is a partition column, has a type without bounds, or occurs twice.
    """
    listed: Sequence[Path] = properties.get(LISTED) or ()
    partitions = {name.lower() for name in partition_by}
    seen = set[Path]()
    for path in listed:
        fields = schema.along(path)
        kind = fields[-1].type if len(fields) == len(path) else None
        if kind is None:
            reason = "the schema has no such column"
        elif path[0].lower() in partitions:
            reason = "it is a partition column, and partition columns have no statistics"
        elif not isinstance(kind, StructType) and not has_bounds(kind):
            reason = f"values of type {type_name(kind)} have no bounds"
        elif _folded(path) in seen:
            reason = "it is named twice"
        else:
            seen.add(_folded(path))
            continue
        given = {_folded(one) for one in listed if len(one) == 1}
        others = [
            field.name
            for field in schema.fields
            if field.name.lower() not in partitions
            and _folded((field.name,)) not in given
            and (isinstance(field.type, StructType) or has_bounds(field.type))
        ]
        raise InvalidInputError(
            argument="properties",
            field=".".join(path),
            reason=f"{LISTED} names {'.'.join(path)}, but {reason}",
            remedy=f"Choose from {', '.join(others)}; separate fields of structs by dots, "
            "and put names that contain dots in backticks"
            if others
            else "Omit it",
        )


def _folded(path: Path) -> Path:
    return tuple(name.lower() for name in path)
