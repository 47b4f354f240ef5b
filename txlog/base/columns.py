"""Columns and batches of Arrow: joined, cut, and as Python values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.thresholds import Threshold

if TYPE_CHECKING:
    from numpy.typing import NDArray


def within(numbers: pa.Array, least: int, most: int) -> pa.Array:
    """Return numbers, with null in place of each number outside of the bounds."""
    fits = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, most))
    return pc.if_else(fits, numbers, None)


def nulled(values: pa.Array, where: pa.Array) -> pa.Array:
    """Return values, with null where a condition is true or unknown.

    There is one null for each value: with a single one, `if_else` of pyarrow 22 and 23 returns
    wrong texts for slices of texts.
    """
    return pc.if_else(where, pa.nulls(len(values), values.type), values)


def holds_text(kind: pa.DataType) -> bool:
    """Return whether values of an Arrow type are or contain texts."""
    if pa.types.is_nested(kind):
        return any(holds_text(kind.field(at).type) for at in range(kind.num_fields))
    if pa.types.is_dictionary(kind):
        return holds_text(kind.value_type)
    return any(of(kind) for of in (pa.types.is_string, pa.types.is_large_string))


def is_readable(array: pa.Array) -> bool:
    """Return whether all texts in an array are UTF-8, as Arrow does not check by itself."""
    if not holds_text(array.type):
        return True
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        # Perhaps it is behind a null, as in a null list, where it is no value.
        try:
            array.take(pa.array(range(len(array)), pa.int64())).validate(full=True)
        except pa.ArrowInvalid:
            return False
    return True


_EXACT_DIGITS = 15  # Whole numbers and powers of ten up to so many digits are doubles.


def nearest_floats(decimals: Any, target: pa.DataType | None = None) -> Any:
    """Return decimals as the nearest floats; null stays null.

    Arrow's own cast multiplies by an inexact power of ten: many values are not the nearest ones.

    Parameters
    ----------
    decimals
        An array, chunked array or scalar.
    target
        The type of the floats; double by default.
    """
    kind, target = decimals.type, target or pa.float64()
    is_short = pa.types.is_decimal128(kind) and kind.precision <= _EXACT_DIGITS
    is_exact = is_short and 0 <= kind.scale <= _EXACT_DIGITS and pa.types.is_float64(target)
    if not is_exact or not isinstance(decimals, pa.Array) or not len(decimals):
        return decimals.cast(pa.string()).cast(target)
    words = np.frombuffer(decimals.buffers()[1], np.int64, 2 * (decimals.offset + len(decimals)))
    floats = words[2 * decimals.offset :: 2] / 10.0**kind.scale  # Of exact numbers: the nearest.
    mask = numpy_array(decimals.is_null()) if decimals.null_count else None
    return arrow_array(floats, target, mask=mask)


def rows_among(rows: Any, places: NDArray[np.int64]) -> Any:
    """Return the rows of a batch or table at ascending positions; a range is not copied."""
    if len(places) and places[-1] - places[0] == len(places) - 1:
        return rows.slice(int(places[0]), len(places))
    return rows.take(arrow_array(places))


_AT_ONCE: Threshold = 1 << 16  # So many rows come to their places at a time.


def in_places(parts: list[pa.Table], places: NDArray[np.int64]) -> pa.Table:
    """Return rows in another order. The list of parts is emptied, so that few rows are held twice.

    Parameters
    ----------
    parts
        One table or more, of one schema without views.
    places
        For each row of all parts, in order, its place in the result: each of 0 to n - 1 once.
    """
    schema = parts[0].schema
    groups: list[list[tuple[NDArray[np.int64], pa.Table]]]
    groups = [[] for _ in range(-(-len(places) // _AT_ONCE))]
    bounds = np.arange(1, len(groups)) * _AT_ONCE
    start = 0
    pool = pa.default_memory_pool()
    parts.reverse()
    while parts:
        part = parts.pop()
        own = places[start : start + part.num_rows]
        start += part.num_rows
        order = np.argsort(own)
        shares = np.split(order, np.searchsorted(own[order], bounds))
        for group, share in zip(groups, shares, strict=False):
            if len(share):  # A slice would hold the whole part.
                group.append((own[share], part.take(arrow_array(share))))
        del part
        pool.release_unused()
    found = [schema.empty_table()]
    for group in groups:
        order = np.argsort(np.concatenate([own for own, _ in group]))
        rows = pa.concat_tables([rows for _, rows in group])
        group.clear()
        found.append(rows.take(arrow_array(order)))
        del rows
        pool.release_unused()
    return pa.concat_tables(found)


def without_views(rows: pa.Table) -> pa.Table:
    """Return rows with view columns cast to plain ones: Arrow cannot take rows of views."""
    kinds = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    for place, field in enumerate(rows.schema):
        if field.type in kinds:
            array = rows.column(place).cast(kinds[field.type])
            rows = rows.set_column(place, field.with_type(kinds[field.type]), array)
    return rows


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without views of texts and bytes, at any depth: Arrow cannot take these."""
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    if types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(plain_type(key.type)), item.with_type(plain_type(item.type)))
    if types.is_list(kind) or types.is_list_view(kind):
        value = kind.value_field
        return pa.list_(value.with_type(plain_type(value.type)))
    if types.is_large_list(kind) or types.is_large_list_view(kind):
        value = kind.value_field
        return pa.large_list(value.with_type(plain_type(value.type)))
    if types.is_fixed_size_list(kind):
        value = kind.value_field
        return pa.list_(value.with_type(plain_type(value.type)), kind.list_size)
    return kind


def decoded(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows without views and run-end encoding, whose rows Arrow can take and filter."""
    for place, field in enumerate(rows.schema):
        array = rows.column(place)
        if pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        kind = plain_type(array.type)
        if kind != field.type:
            rows = rows.set_column(place, field.with_type(kind), array.cast(kind))
    return rows


_GATHERED_ROWS: Threshold = 64 * 1024
_GATHERED_BYTES: Threshold = 64 * 1024 * 1024


def flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if not isinstance(values, pa.ChunkedArray):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.nulls(0, values.type)


def map_entries(maps: pa.MapArray) -> tuple[pa.Array, pa.Array, NDArray[np.int64]]:
    """Return the keys and values of all maps, and the number of entries of each.

    A null map has none, whatever Arrow stores below it.
    """
    present = pa.concat_arrays([maps.drop_null()])  # In the copy, offsets begin at 0.
    offsets = present.offsets.to_numpy().astype(np.int64)
    lengths = np.zeros(len(maps), np.int64)
    lengths[maps.is_valid().to_numpy(zero_copy_only=False)] = np.diff(offsets)
    first, end = int(offsets[0]), int(offsets[-1])
    return present.keys[first:end], present.items[first:end], lengths


def gathered(
    batches: Iterable[pa.RecordBatch], *, rows: int = _GATHERED_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of at least `rows` rows.

    A large batch is not copied: it is yielded unchanged, after the rows before it.
    """
    waiting: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        if waiting and batch.nbytes >= _GATHERED_BYTES:  # Too large to copy.
            yield from _together(waiting)
            waiting, count, size = [], 0, 0
        waiting.append(batch)
        count += batch.num_rows
        size += batch.nbytes
        if count >= rows or size >= _GATHERED_BYTES:
            yield from _together(waiting)
            waiting, count, size = [], 0, 0
    if waiting:
        yield from _together(waiting)


def _together(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Combine batches into one, or into several if one array cannot hold their strings."""
    if len(batches) == 1:
        return batches
    combined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return combined


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a column, as text if no Python type can hold them.

    Python has no nanoseconds, and no years after 9999.
    """
    if not str(column.type).startswith(("timestamp[ns", "time64[ns", "duration[ns")):
        try:
            values: list[Any] = column.to_pylist()
            return values
        except (ValueError, OverflowError):  # Such values may also be within a struct.
            pass
    try:
        texts: list[Any] = pc.cast(column, pa.string()).to_pylist()
        return texts
    except (pa.ArrowException, ValueError):
        return [_python_value(value) for value in column]


def _python_value(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return f"a value of {value.type} that cannot be shown"


def first_rows(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the first rows of batches, without requesting batches that are not needed."""
    if rows <= 0:
        return
    for batch in batches:
        yield batch.slice(0, rows)
        rows -= batch.num_rows
        if rows <= 0:
            return
