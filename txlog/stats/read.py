"""Statistics of files as bounds: from the log's JSON, a checkpoint's structs, Parquet footers.

Reading is lenient: whatever is missing, odd or unparsable is unknown, never an error.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txlog.schema import DataType, DecimalType, PrimitiveType, StructField, StructType, arrow_type
from txlog.schema.moments import parse_date, parse_moment
from txlog.stats.bounds import Bounds, ColumnBounds, Path

_INTEGERS = frozenset({"byte", "short", "integer", "long"})
_TRUNCATED_US = 999  # Timestamps are cut to milliseconds, so the greatest may be this much later.
_EXACT_DIGITS = 15  # Decimal digits that a float64 holds without loss.


def kind_of(schema: StructType, path: Path) -> DataType | None:
    """Return the type of a column by its path, or None if it has no bounds by its nature."""
    kind: DataType = schema
    for name in path:
        field = kind.get(name) if isinstance(kind, StructType) else None
        if field is None:
            return None
        kind = field.type
    bounded = isinstance(kind, DecimalType) or (
        isinstance(kind, PrimitiveType) and kind.name not in ("void", "variant")
    )
    return kind if bounded else None


def bound_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type in which bounds of a type are held."""
    if isinstance(kind, PrimitiveType) and kind.name in _INTEGERS:
        return pa.int64()
    if kind == PrimitiveType("float"):
        return pa.float64()
    return arrow_type(kind)


def json_bounds(
    stats: pa.ChunkedArray, schema: StructType, paths: Sequence[Path], physical: Mapping[Path, Path]
) -> Bounds:
    """Return the bounds that JSON statistics give.

    Parameters
    ----------
    stats
        JSON texts; null for a file without.
    schema, paths
        The table's schema, and the columns wanted, by their logical paths.
    physical
        Where each of them is in the text.
    """
    documents = [_document(text) for text in stats.to_pylist()]
    rows = pa.array([_count(d.get("numRecords")) for d in documents], pa.int64())
    columns = {}
    for path in paths:
        kind = kind_of(schema, path)
        if kind is None:
            continue
        at = physical[path]
        low, high = _readers(kind)
        columns[path] = ColumnBounds(
            _typed([_get(d.get("minValues"), at) for d in documents], low, kind),
            _typed([_get(d.get("maxValues"), at) for d in documents], high, kind),
            pa.array([_null_count(d, at) for d in documents], pa.int64()),
        )
    return Bounds(rows, columns)


def _document(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _get(node: Any, path: Path) -> Any:
    for name in path:
        if not isinstance(node, dict):
            return None
        node = node.get(name)
    return node


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**63 else None


def _null_count(document: dict[str, Any], path: Path) -> int | None:
    """Return a null count; with wide bounds it means something only if none or all are null."""
    count = _count(_get(document.get("nullCount"), path))
    if document.get("tightBounds") is False and count not in (0, document.get("numRecords")):
        return None
    return count


Reader = Callable[[Any], Any]


def _typed(values: list[Any], read: Reader, kind: DataType) -> pa.Array:
    found = []
    for value in values:
        try:
            found.append(None if value is None else read(value))
        except (ValueError, TypeError, OverflowError, ArithmeticError):
            found.append(None)
    target = bound_type(kind)
    if pa.types.is_timestamp(target) or pa.types.is_date(target):
        numbers = pa.int32() if pa.types.is_date(target) else pa.int64()
        return pa.array(found, numbers).cast(target)
    return pa.array(found, target)


def _readers(kind: DataType) -> tuple[Reader, Reader]:
    """Return how a type's lower and upper bounds are read from JSON values."""
    if isinstance(kind, DecimalType):
        return (
            lambda value: _decimal(value, kind, up=False),
            lambda value: _decimal(value, kind, up=True),
        )
    match kind:
        case PrimitiveType(name) if name in _INTEGERS:
            return _integer, _integer
        case PrimitiveType("float"):
            return _short_float, _unknown
        case PrimitiveType("double"):
            # NaN is above all numbers, and many writers leave it out of their greatest value.
            return _float, _unknown
        case PrimitiveType("string"):
            return _text, _upper_text
        case PrimitiveType("date"):
            return _date, _date
        case PrimitiveType("timestamp" | "timestamp_ntz"):
            return _moment, lambda value: _moment(value) + _TRUNCATED_US
    return _unknown, _unknown


def _unknown(_: Any) -> None:
    return None


def _integer(value: Any) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise ValueError(value)
    return value


def _float(value: Any) -> float:
    number = float(value) if type(value) in (int, float) or value == "-Infinity" else math.nan
    if math.isnan(number):
        raise ValueError(value)
    return number


def _short_float(value: Any) -> float:
    """Return a bound below a 32-bit float, which its shortest decimal text may exceed."""
    number = _float(value)
    if math.isinf(number):
        return number
    return float(min(number, struct.unpack("f", struct.pack("f", number))[0]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _upper_text(value: Any) -> str:
    if _text(value).endswith("\ufffd"):
        raise ValueError(value)  # Once a mark of truncation, and not above every character.
    return _text(value)


def _date(value: Any) -> int:
    return parse_date(_text(value))


def _moment(value: Any) -> int:
    micros = parse_moment(_text(value))
    if not -(2**63) <= micros < 2**63 - _TRUNCATED_US:
        raise ValueError(value)
    return micros


def _decimal(value: Any, kind: DecimalType, *, up: bool) -> Decimal:
    """Return a decimal bound; a number that was rounded in reading is moved outwards."""
    with localcontext() as context:
        context.prec = 80
        if type(value) is float:
            number = Decimal(repr(value))
            if len(number.as_tuple().digits) >= _EXACT_DIGITS:
                number = Decimal(math.nextafter(value, math.inf if up else -math.inf))
        else:
            number = Decimal(value if isinstance(value, str) else _integer(value))
        step = Decimal(1).scaleb(-kind.scale)
        number = number.quantize(step, ROUND_CEILING if up else ROUND_FLOOR)
        if abs(number) >= Decimal(10) ** (kind.precision - kind.scale):
            raise ValueError(value)
        return number


def struct_bounds(
    parsed: pa.ChunkedArray,
    schema: StructType,
    paths: Sequence[Path],
    physical: Mapping[Path, Path],
) -> Bounds:
    """Return the bounds that a checkpoint's `stats_parsed` structs give."""
    array = parsed.combine_chunks()
    rows = _child(array, ("numRecords",), pa.int64())
    tight = _child(array, ("tightBounds",), pa.bool_())
    columns = {}
    for path in paths:
        kind = kind_of(schema, path)
        if kind is None:
            continue
        at, target = physical[path], bound_type(kind)
        low = _child(array, ("minValues", *at), target)
        high = _child(array, ("maxValues", *at), target)
        nulls = _child(array, ("nullCount", *at), pa.int64())
        wide = pc.equal(tight, False)
        telling = pc.or_kleene(pc.equal(nulls, 0), pc.equal(nulls, rows))
        misleading = pc.and_(pc.fill_null(wide, False), pc.invert(pc.fill_null(telling, False)))
        if pa.types.is_floating(target):
            low = pc.if_else(pc.is_nan(low), None, low)
            high = pa.nulls(len(array), target)
        elif pa.types.is_timestamp(target):
            micros = pc.add(high.cast(pa.int64()), _TRUNCATED_US)
            high = micros.cast(target)
        elif pa.types.is_string(target):
            high = pc.if_else(pc.ends_with(high, "\ufffd"), None, high)
        columns[path] = ColumnBounds(low, high, pc.if_else(misleading, None, nulls))
    return Bounds(rows, columns)


def _child(array: pa.StructArray, path: Path, target: pa.DataType) -> pa.Array:
    """Return a nested child in a type, or nulls if it is not there or cannot be of the type."""
    node = array
    for name in path:
        names = [f.name for f in node.type] if pa.types.is_struct(node.type) else []
        if name not in names:
            return pa.nulls(len(array), target)
        node = pc.struct_field(node, name)
    try:
        return node.cast(target)
    except pa.ArrowException:
        return pa.nulls(len(array), target)


def row_group_bounds(
    metadata: pq.FileMetaData, paths: Sequence[Path], columns: Sequence[StructField]
) -> Bounds:
    """Return the bounds of a Parquet file's row groups, one row for each.

    The file's columns must bear the logical names and types of `columns`.
    """
    schema = StructType(tuple(columns))
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    rows = pa.array([group.num_rows for group in groups], pa.int64())
    names = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    places = {name: at for at, name in enumerate(names) if names.count(name) == 1}
    found = {}
    for path in paths:
        kind = kind_of(schema, path)
        place = places.get(".".join(path))
        if kind is None or place is None:
            continue
        statistics = [group.column(place).statistics for group in groups]
        floating = pa.types.is_floating(bound_type(kind))
        found[path] = ColumnBounds(
            _footer([_edge(s, "min") for s in statistics], kind),
            _footer([None if floating else _edge(s, "max") for s in statistics], kind),
            pa.array([_footer_nulls(s) for s in statistics], pa.int64()),
        )
    return Bounds(rows, found)


def _edge(statistics: Any, name: str) -> Any:
    if statistics is None or not statistics.has_min_max:
        return None
    try:
        value = getattr(statistics, name)
    except (pa.ArrowException, ValueError, OverflowError):
        return None
    return None if value != value else value


def _footer_nulls(statistics: Any) -> int | None:
    if statistics is None or not statistics.has_null_count:
        return None
    return int(statistics.null_count)


def _footer(values: list[Any], kind: DataType) -> pa.Array:
    target = bound_type(kind)
    try:
        return pa.array(values, target)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return pa.nulls(len(values), target)
