"""Statistics of files as bounds: from a checkpoint's structs, Parquet footers, and JSON values.

Reading is lenient: a value that is missing or cannot be read is unknown, never an error.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Any

import pyarrow as pa

from txlog.actions.stats_text import MOST_ROWS, Path
from txlog.base.arrow import arrow_array, pc
from txlog.base.columns import flat, nulled, within
from txlog.parquet.file_footer import FileFooter
from txlog.schema.arrow import arrow_type
from txlog.schema.casts import Reading, reading
from txlog.schema.timestamps import parse_date, parse_moment
from txlog.schema.types import (
    NANOS,
    WHOLE_NUMBERS,
    DataType,
    DecimalType,
    PrimitiveType,
    StructType,
)
from txlog.stats.skip import EVERYTHING, Bounds, ColumnBounds, Known

# Timestamps are cut to milliseconds, so the true maximum may be later by this much.
TRUNCATED_US = 999
# Up to this value, a float64 holds the unscaled number of a decimal exactly.
_EXACT_STEPS = 9 * 10**14
# The relative error of a decimal that a writer computed as a float64.
_FLOAT_ERROR = Decimal(2) ** -49
# Offsets of local mean times have seconds, but Spark writes only their minutes. The last such
# offset, Liberia's, ended in 1972.
LAST_ODD_OFFSET_US = parse_moment("1972-05-01") - 1
_ODD_OFFSET_US = 59_999_999
_NUMERIC_OFFSET = re.compile(r"[+-]\d{2}(?::?\d{2})?\s*$")


def kind_of(schema: StructType, path: Path) -> DataType | None:
    """Return the type of the column at a path; None if columns of the type have no bounds."""
    fields = schema.along(path)
    if len(fields) < len(path):
        return None
    kind = fields[-1].type
    bounded = isinstance(kind, DecimalType) or (
        isinstance(kind, PrimitiveType)
        and kind.name not in ("void", "variant")
        and not kind.name.startswith("interval")
    )
    return kind if bounded else None


def bound_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a column's bounds."""
    if isinstance(kind, PrimitiveType) and kind.name in WHOLE_NUMBERS:
        return pa.int64()
    if kind == PrimitiveType("float"):
        return pa.float64()
    return arrow_type(kind)


def without_contradictions(low: pa.Array, high: pa.Array, nulls: pa.Array) -> ColumnBounds:
    """Return bounds, null for files whose minimum is above the maximum."""
    wrong = pc.fill_null(pc.greater(low, high), False)
    if not pc.any(wrong).as_py():
        return ColumnBounds(low, high, nulls)
    return ColumnBounds(nulled(low, wrong), nulled(high, wrong), nulls)


Reader = Callable[[Any], Any]


def typed(values: list[Any], read: Reader, kind: DataType) -> pa.Array:
    """Return JSON values as an array of bounds, null for a value that cannot be read."""
    bounds = []
    for value in values:
        try:
            bounds.append(None if value is None else read(value))
        except (ValueError, TypeError, OverflowError, ArithmeticError):
            bounds.append(None)
    target = bound_type(kind)
    if pa.types.is_timestamp(target) or pa.types.is_date(target):
        numbers = pa.int32() if pa.types.is_date(target) else pa.int64()
        return pc.cast(arrow_array(bounds, numbers), target)
    return arrow_array(bounds, target)


def readers(kind: DataType) -> tuple[Reader, Reader]:
    """Return the functions that read a type's lower and upper bounds from JSON values."""
    if isinstance(kind, DecimalType):
        return (
            lambda value: _decimal(value, kind, up=False),
            lambda value: _decimal(value, kind, up=True),
        )
    match kind:
        case PrimitiveType(name) if name in WHOLE_NUMBERS:
            return _integer, _integer
        case PrimitiveType("float" | "double"):
            # NaN is above all numbers, and many writers ignore it in the maximum.
            return _float, _unknown
        case PrimitiveType("string"):
            return _text, _upper_text
        case PrimitiveType("date"):
            return _date, _date
        case PrimitiveType("timestamp" | "timestamp_ntz"):
            return _moment, _upper_moment
        case PrimitiveType("timestamp_nanos" | "timestamp_nanos_ntz"):
            return (
                lambda value: _nanos(_moment(value) * 1000),
                lambda value: _nanos(_upper_moment(value) * 1000 + 999),
            )
    return _unknown, _unknown


def _unknown(_: Any) -> None:
    return None


def _integer(value: Any) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise ValueError(value)
    return value


def _float(value: Any) -> float:
    """Return a lower bound that also holds for 32-bit floats.

    The shortest decimal text of such a float may be above it, and the text of a double may have
    been written for a 32-bit float.
    """
    number = float(value) if type(value) in (int, float) or value == "-Infinity" else math.nan
    if math.isnan(number):
        raise ValueError(value)
    try:
        return min(number, float(struct.unpack("f", struct.pack("f", number))[0]))
    except OverflowError:  # The value is not a 32-bit float.
        return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _upper_text(value: Any) -> str:
    if _text(value).endswith("\ufffd"):
        # Old writers marked truncation with it, and it is not above every character.
        raise ValueError(value)
    return _text(value)


def _date(value: Any) -> int:
    return parse_date(_text(value))


def _moment(value: Any) -> int:
    micros = parse_moment(_text(value))
    if not -(2**63) <= micros - _ODD_OFFSET_US - TRUNCATED_US < 2**63:
        raise ValueError(value)
    # Before the epoch, numbers are negative, so cutting digits makes them greater.
    return micros - (TRUNCATED_US if micros < 0 else 0) - _odd_offset(value, micros)


def _upper_moment(value: Any) -> int:
    micros = parse_moment(_text(value))
    if not -(2**63) <= micros < 2**63 - _ODD_OFFSET_US - TRUNCATED_US:
        raise ValueError(value)
    return micros + TRUNCATED_US + _odd_offset(value, micros)


def _nanos(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise ValueError(value)
    return value


def _odd_offset(text: str, micros: int) -> int:
    """Return the possible error, in microseconds, of an offset whose seconds were not written."""
    odd = micros <= LAST_ODD_OFFSET_US and _NUMERIC_OFFSET.search(text, 10)
    return _ODD_OFFSET_US if odd else 0


def _decimal(value: Any, kind: DecimalType, *, up: bool) -> Decimal:
    """Return a decimal bound, moved outwards if it may have been rounded."""
    with localcontext() as context:
        context.prec = 80
        exact = value if isinstance(value, str | float) else _integer(value)
        return _fitted(_outwards(Decimal(str(exact)), kind, up=up), kind, up=up)


def _outwards(number: Decimal, kind: DecimalType, *, up: bool) -> Decimal:
    """Return a bound moved outwards by the error of a float64.

    A number with many digits may have been rounded: 0.10000000000000000001 to 0.1.
    """
    if abs(number).scaleb(kind.scale) < _EXACT_STEPS:
        return number
    error = abs(number) * _FLOAT_ERROR
    return number + error if up else number - error


def _fitted(number: Decimal, kind: DecimalType, *, up: bool) -> Decimal:
    number = number.quantize(Decimal(1).scaleb(-kind.scale), ROUND_CEILING if up else ROUND_FLOOR)
    if abs(number) >= Decimal(10) ** (kind.precision - kind.scale):
        raise ValueError(number)
    return number


def struct_bounds(
    parsed: pa.ChunkedArray,
    schema: StructType,
    paths: Sequence[Path],
    physical: Mapping[Path, Path],
    *,
    known: Collection[Known] = EVERYTHING,
) -> Bounds:
    """Return the bounds of columns from the `stats_parsed` structs of a checkpoint.

    `known` names the kinds of statistics to read; all others are unknown.
    """
    array = flat(parsed)
    nothing = pa.nulls(len(array), pa.int64())
    counted = Known.COUNTS in known
    rows = struct_count(array, ("numRecords",)) if counted else nothing
    columns = {}
    for path in paths:
        kind = kind_of(schema, path)
        if kind is None:
            continue
        path_in_files, target = physical[path], bound_type(kind)
        low = high = pa.nulls(len(array), target)
        if Known.RANGES in known:
            low = child_of(array, ("minValues", *path_in_files), target)
            high = child_of(array, ("maxValues", *path_in_files), target)
            low, high = _loosened(low, high, kind)
        nulls = _struct_nulls(array, path_in_files, rows) if counted else nothing
        columns[path] = without_contradictions(low, high, nulls)
    return Bounds(rows, columns)


def _struct_nulls(array: pa.Array, path: Path, rows: pa.Array) -> pa.Array:
    """Return null counts. If bounds are not tight, only the counts "none" and "all" are exact."""
    nulls = struct_count(array, ("nullCount", *path))
    tight = pc.fill_null(child_of(array, ("tightBounds",), pa.bool_()), True)
    telling = pc.or_kleene(pc.equal(nulls, 0), pc.equal(nulls, rows))
    usable = pc.or_(tight, pc.fill_null(telling, False))
    return pc.if_else(usable, nulls, None)


def _loosened(low: pa.Array, high: pa.Array, kind: DataType) -> tuple[pa.Array, pa.Array]:
    """Return bounds from structs, moved outwards: they may come from rounded JSON texts."""
    if isinstance(kind, DecimalType) and 10**kind.precision > _EXACT_STEPS:
        return _loose_decimals(low, kind, up=False), _loose_decimals(high, kind, up=True)
    if pa.types.is_floating(low.type):
        low = pc.if_else(pc.is_nan(low), None, low)
        return loose_floats(low), pa.nulls(len(low), low.type)
    if pa.types.is_timestamp(low.type):
        return _loose_moments(low, up=False), _loose_moments(high, up=True)
    if pa.types.is_string(low.type):
        return low, without_cut(high)
    if pa.types.is_binary(low.type):  # The protocol does not say how writers may cut binary bounds.
        return pa.nulls(len(low), low.type), pa.nulls(len(low), low.type)
    return low, high


def loose_floats(low: pa.Array) -> pa.Array:
    """Return lower bounds that also hold for 32-bit floats, as `_float` does for one value."""
    short = low.cast(pa.float32(), safe=False).cast(pa.float64())
    return pc.min_element_wise(low, short, skip_nulls=False)


def without_cut(high: pa.Array) -> pa.Array:
    """Return upper bounds, null for strings that end with U+FFFD, an old mark of truncation."""
    return nulled(high, pc.ends_with(high, "\ufffd"))


def _loose_decimals(bounds: pa.Array, kind: DecimalType, *, up: bool) -> pa.Array:
    def moved(number: Decimal) -> Decimal:
        with localcontext() as context:
            context.prec = 80
            return _fitted(_outwards(number, kind, up=up), kind, up=up)

    return typed(bounds.to_pylist(), moved, kind)


def _loose_moments(bounds: pa.Array, *, up: bool) -> pa.Array:
    units = bounds.cast(pa.int64())
    scale = 1000 if bounds.type.unit == "ns" else 1
    most = (TRUNCATED_US + 1) * scale - 1
    cut = most if up else pc.if_else(pc.less(units, 0), most, 0)
    error = _ODD_OFFSET_US * scale if bounds.type.tz else 0
    odd = pc.if_else(pc.less_equal(units, LAST_ODD_OFFSET_US * scale), error, 0)
    margin = pc.add(odd, cut)
    moved = pc.add(units, margin) if up else pc.subtract(units, margin)
    # Near the limits of int64 the sum or difference overflows, and then it has the wrong order.
    turned = pc.less(moved, units) if up else pc.greater(moved, units)
    return pc.if_else(turned, None, moved).cast(bounds.type)


def struct_count(array: pa.Array, path: Path) -> pa.Array:
    """Return a count from statistics structs; null if it is missing or invalid."""
    return within(child_of(array, path, pa.int64()), 0, MOST_ROWS)


# These keep the order of values. Nanoseconds in a table of microseconds come from INT96, and may
# have overflowed.
_IN_ORDER = (Reading.SAME, Reading.NULLS, Reading.LAYOUT, Reading.CHECKED, Reading.NEAREST)


def child_of(array: pa.Array, path: Path, target: pa.DataType) -> pa.Array:
    """Return a nested child cast to a type; nulls if it is missing or cannot be cast."""
    node = array
    for name in path:
        # The index is negative if the child is absent, or if there are two.
        if not pa.types.is_struct(node.type) or node.type.get_field_index(name) < 0:
            return pa.nulls(len(array), target)
        node = pc.struct_field(node, name)
    if reading(node.type, target) not in _IN_ORDER:
        return pa.nulls(len(array), target)
    try:
        return node.cast(target)
    except pa.ArrowException:
        return pa.nulls(len(array), target)


def row_group_bounds(footer: FileFooter, leaves: Mapping[Path, Path], schema: StructType) -> Bounds:
    """Return the bounds of a Parquet file's row groups, one row for each.

    Parameters
    ----------
    leaves
        For paths of columns, their paths in the file, where they have the types of `schema`.
    """
    groups = footer.groups
    rows = arrow_array([footer.rows(group) for group in groups], pa.int64())
    bounds = {}
    for path, in_file in leaves.items():
        kind = kind_of(schema, path)
        leaf = footer.leaf(in_file)
        if kind is None or leaf is None:
            continue
        statistics = [footer.statistics(group, leaf) for group in groups]
        raw = "_raw" if isinstance(kind, PrimitiveType) and kind.name in NANOS else ""
        floating = pa.types.is_floating(bound_type(kind))
        bounds[path] = without_contradictions(
            _footer([_edge(s, f"min{raw}") for s in statistics], kind),
            _footer([None if floating else _edge(s, f"max{raw}") for s in statistics], kind),
            arrow_array([footer.nulls(group, leaf) for group in groups], pa.int64()),
        )
    return Bounds(rows, bounds)


def _edge(statistics: Any, name: str) -> Any:
    if statistics is None or not statistics.has_min_max:
        return None
    try:
        value = getattr(statistics, name)
    except (pa.ArrowException, ValueError, OverflowError):
        return None
    return None if value != value else value


def _footer(values: list[Any], kind: DataType) -> pa.Array:
    target = bound_type(kind)
    try:
        return arrow_array(values, target)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return pa.nulls(len(values), target)
