"""Statistics and partition values of checkpoints as typed structs. Pure.

Rules: the Delta protocol, "Checkpoint Schema" (`stats_parsed`, `partitionValues_parsed`). A value
that is missing or has another type is null, never an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from txlog.actions.stats_text import Path, exact_document, stats_json, value_at
from txlog.base.arrow import arrow_array, arrow_scalar, pc
from txlog.base.columns import flat
from txlog.base.errors import LogCorruptError
from txlog.base.moments import format_date, format_moment
from txlog.base.thresholds import Threshold
from txlog.protocol.form import logged_partition_values
from txlog.schema.arrow import arrow_type
from txlog.schema.timestamps import parse_date, parse_moment
from txlog.schema.types import DataType, DecimalType, PrimitiveType, StructField, StructType
from txlog.stats.file_bounds import child_of
from txlog.stats.partition import parse_partition_values

_UNCOUNTED = ("void", "variant")
_UNBOUNDED = ("binary", "boolean", *_UNCOUNTED)
# The number of texts that are read together. An unusual text slows down only these.
_CHUNK_ROWS: Threshold = 32 * 1024
_BOUNDS = ("minValues", "maxValues")
_PLAIN_MOMENT = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?$"
_PLAIN_DATE = r"^\d{4}-\d\d-\d\d$"


def stats_type(schema: StructType, *, indexed: int, mapping_mode: str = "none") -> pa.StructType:
    """Return the type of `stats_parsed`, with the columns' names in data files.

    Parameters
    ----------
    schema
        The columns of data files, without partition columns.
    indexed
        How many leaf columns have statistics, in the schema's order; -1 means all.
    """
    left = [indexed]
    counts = _children(schema, mapping_mode, left, _count_type, _UNCOUNTED)
    left = [indexed]
    bounds = _children(schema, mapping_mode, left, _bound_type, _UNBOUNDED)
    fields = [pa.field("numRecords", pa.int64())]
    fields += [pa.field("nullCount", pa.struct(counts))] if counts else []
    fields += [pa.field(name, pa.struct(bounds)) for name in _BOUNDS if bounds]
    return pa.struct([*fields, pa.field("tightBounds", pa.bool_())])


def _children(
    kind: StructType,
    mode: str,
    left: list[int],
    typed: Callable[[DataType], pa.DataType | None],
    without: tuple[str, ...],
) -> list[pa.Field]:
    fields = []
    for field in kind.fields:
        name = field.name_in_files(mode)
        if isinstance(field.type, StructType):
            below = _children(field.type, mode, left, typed, without)
            fields += [pa.field(name, pa.struct(below))] if below else []
            continue
        if left[0] == 0:
            break
        left[0] -= 1
        excluded = isinstance(field.type, PrimitiveType) and (
            field.type.name in without or field.type.name.startswith("interval")
        )
        target = None if excluded else typed(field.type)
        fields += [] if target is None else [pa.field(name, target)]
    return fields


def _count_type(_: DataType) -> pa.DataType:
    return pa.int64()


def _bound_type(kind: DataType) -> pa.DataType | None:
    return arrow_type(kind) if isinstance(kind, PrimitiveType | DecimalType) else None


def typed_stats(files: pa.Table, kind: pa.StructType) -> pa.StructArray:
    """Return the statistics of `FILE_ROWS` as structs of a type that `stats_type` made.

    They come from the JSON text, or, without a text, from the structs of an older checkpoint.
    """
    texts = flat(files["stats"])
    chunks = [
        _read_chunk(texts.slice(start, _CHUNK_ROWS), kind)
        for start in range(0, len(texts), _CHUNK_ROWS)
    ]
    structs = pa.concat_arrays(chunks) if chunks else arrow_array([], kind)
    if "stats_parsed" not in files.column_names or not structs.null_count:
        return structs
    older = _cast(flat(files["stats_parsed"]), kind)
    return pc.if_else(pc.is_valid(texts), structs, older)


def _cast(array: pa.Array, kind: pa.StructType) -> pa.StructArray:
    """Return structs cast to another type; null for fields that are missing or cannot be cast."""

    def child(path: Path, target: pa.DataType) -> pa.Array:
        if not pa.types.is_struct(target):
            return child_of(array, path, target)
        below = [child((*path, field.name), field.type) for field in target]
        return pa.StructArray.from_arrays(below, fields=list(target))

    children = [child((field.name,), field.type) for field in kind]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())


def _read_chunk(texts: pa.Array, kind: pa.StructType) -> pa.StructArray:
    quick = _read_quickly(texts, kind)
    return _read_plainly(texts, kind) if quick is None else quick


def _read_plainly(texts: pa.Array, kind: pa.StructType) -> pa.StructArray:
    """Return texts as structs, read value by value in Python. Slow, but correct for each text."""
    documents = [exact_document(text) for text in texts.to_pylist()]

    def child(path: Path, target: pa.DataType) -> pa.Array:
        if pa.types.is_struct(target):
            below = [child((*path, field.name), field.type) for field in target]
            return pa.StructArray.from_arrays(below, fields=list(target))
        return _values([value_at(document, path) for document in documents], target)

    children = [child((field.name,), field.type) for field in kind]
    absent = arrow_array([document is None for document in documents], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=absent)


def _values(values: list[Any], target: pa.DataType) -> pa.Array:
    read = _reader(target)
    typed = []
    for value in values:
        try:
            typed.append(None if value is None else read(value))
        except (ValueError, TypeError, ArithmeticError, pa.ArrowException):
            typed.append(None)
    if pa.types.is_timestamp(target) or pa.types.is_date(target):
        numbers = pa.int32() if pa.types.is_date(target) else pa.int64()
        return arrow_array(typed, numbers).cast(target)
    return arrow_array(typed, target)


def _reader(target: pa.DataType) -> Callable[[Any], Any]:
    kinds = pa.types
    if kinds.is_boolean(target):
        return lambda value: _of(value, bool)
    if kinds.is_integer(target):
        return lambda value: _whole(_of(value, int), target.bit_width)
    if kinds.is_floating(target):
        return _float
    if kinds.is_decimal(target):
        return lambda value: arrow_scalar(_decimal(value), target).as_py()
    if kinds.is_date(target):
        return lambda value: parse_date(_of(value, str))
    if kinds.is_timestamp(target):
        digits = 9 if target.unit == "ns" else 6
        return lambda value: _whole(parse_moment(_of(value, str), digits=digits), 64)
    return lambda value: _encodable(_of(value, str))


def _of(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(value)
    return value


def _whole(value: int, bits: int) -> int:
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise OverflowError(value)
    return value


def _encodable(text: str) -> str:
    text.encode()  # A lone UTF-16 surrogate is not a character.
    return text


def _float(value: Any) -> float | None:
    if isinstance(value, str) and value not in ("Infinity", "-Infinity"):
        raise ValueError(value)
    return None if isinstance(value, bool) else float(value)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool):
        raise TypeError(value)
    return Decimal(value)


def _read_quickly(texts: pa.Array, kind: pa.StructType) -> pa.StructArray | None:
    """Return texts as structs, read by Arrow's JSON reader; None if `_read_plainly` is needed."""
    import pyarrow.json as pj  # Only checkpoints with structs need this.

    if not len(texts) or pc.any(pc.match_substring_regex(texts, r"[\r\n]|\\u[dD]")).as_py():
        return None
    lines = pc.binary_join_element_wise(
        '{"s":', pc.fill_null(texts, "{}"), "}\n", "", null_handling="emit_null"
    )
    data = pa.concat_arrays([lines]).buffers()[2]
    asked = pa.schema([("s", _asked(kind))])
    try:
        table = pj.read_json(
            pa.BufferReader(data),
            pj.ReadOptions(use_threads=False, block_size=max(data.size, 1)),
            pj.ParseOptions(explicit_schema=asked, unexpected_field_behavior="ignore"),
        )
        if table.num_rows != len(texts):
            return None
        structs = flat(table["s"])
        if structs.null_count:
            return None
        return _typed(structs, kind, mask=texts.is_null())
    except (pa.ArrowException, ValueError):
        return None


def _asked(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _asked(field.type)) for field in kind])
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_temporal(kind):
        return pa.string()
    return kind


def _typed(values: pa.Array, kind: pa.DataType, mask: pa.Array | None = None) -> pa.Array:
    """Return the values that Arrow read, cast to a type; raise if `_read_plainly` is needed."""
    if pa.types.is_struct(kind):
        children = [_typed(pc.struct_field(values, f.name), f.type) for f in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(values)).as_py():
        raise ValueError("NaN")
    if pa.types.is_timestamp(kind):
        bare = values
        if kind.tz is not None:
            if not pc.all(pc.ends_with(values, "Z")).as_py() and values.null_count < len(values):
                raise ValueError("another zone")
            bare = pc.utf8_slice_codeunits(values, 0, -1)
        _require_like(bare, _PLAIN_MOMENT)
        micros = bare.cast(pa.timestamp("us")).cast(pa.int64())
        return (micros if kind.unit == "us" else pc.multiply_checked(micros, 1000)).cast(kind)
    if pa.types.is_date(kind):
        _require_like(values, _PLAIN_DATE)
        return values.cast(kind)
    return values if values.type == kind else values.cast(kind)


def _require_like(texts: pa.Array, pattern: str) -> None:
    if pc.all(pc.match_substring_regex(texts, pattern)).as_py() is False:
        raise ValueError("a value is not in the usual form")


def typed_partition_values(
    values: pa.Array | pa.ChunkedArray, columns: Sequence[StructField], *, mapping_mode: str
) -> pa.StructArray:
    """Return logged partition values (maps of strings) as structs with physical names."""
    maps = flat(values)
    names = [column.name_in_files(mapping_mode) for column in columns]
    children = [
        _partition_values(logged_partition_values(maps, column, mapping_mode), column.type)
        for column in columns
    ]
    fields = [pa.field(name, child.type) for name, child in zip(names, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=maps.is_null())


def _partition_values(texts: pa.Array, kind: DataType) -> pa.Array:
    try:
        return parse_partition_values(texts, kind)
    except LogCorruptError:
        encoded = pc.dictionary_encode(texts)
        return pa.concat_arrays(list(_one_by_one(encoded.dictionary, kind))).take(encoded.indices)


def _one_by_one(texts: pa.Array, kind: DataType) -> Iterator[pa.Array]:
    for text in texts.to_pylist():
        try:
            yield parse_partition_values(arrow_array([text], pa.string()), kind)
        except LogCorruptError:
            yield pa.nulls(1, arrow_type(kind))


def with_json_stats(rows: pa.Table) -> pa.Table:
    """Return `FILE_ROWS` with JSON texts for statistics that exist only as structs.

    The column of structs, `stats_parsed`, is dropped.
    """
    if "stats_parsed" not in rows.column_names:
        return rows
    parsed = rows["stats_parsed"]
    kind = parsed.type
    # Timestamps as numbers, because Python's types end with the year 9999.
    nodes = parsed.cast(_numbered(kind)).to_pylist()
    texts = [
        text if text is not None or node is None else stats_json(_stats_value(node, kind))
        for text, node in zip(rows["stats"].to_pylist(), nodes, strict=True)
    ]
    place = rows.column_names.index("stats")
    rows = rows.set_column(place, "stats", arrow_array(texts, pa.string()))
    return rows.drop_columns(["stats_parsed"])


def _numbered(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_numbered(field.type)) for field in kind])
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(kind) else kind


def _stats_value(value: Any, kind: pa.DataType) -> Any:
    """Return a struct's value as a JSON value without null fields."""
    if isinstance(value, dict):
        children = {field.name: field.type for field in kind}
        return {
            name: _stats_value(child, children[name])
            for name, child in value.items()
            if child is not None
        }
    if pa.types.is_timestamp(kind):
        micros = value * 1_000_000 // _UNITS[kind.unit]
        return format_moment(micros, digits=6, zone="Z" if kind.tz else "")
    if pa.types.is_date32(kind):
        return format_date(value)
    return value.decode("latin-1") if isinstance(value, bytes) else value


_UNITS = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}  # Microseconds in a second.
