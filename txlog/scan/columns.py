"""From the columns of a data file to those of the table.

A file may lack columns, hold a narrower type from before a change, name things physically, or
spell lists and maps in its own way. Pure.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from txlog.arrow import arrow_array, pc
from txlog.errors import DataFileError
from txlog.schema.arrow import arrow_type
from txlog.schema.types import (
    MONTH_INTERVALS,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from txlog.variant.shredding import unshred

_FIELD_ID = b"PARQUET:field_id"


def find_column(fields: pa.Schema | pa.StructType, want: StructField, mode: str) -> int | None:
    """Return the index of the file's column for a table column, or None if the file has none.

    `mode` is the table's column mapping: `id` goes by Parquet field ids, `name` by physical
    names, `none` by names. A column without an id goes by its name.
    """
    if mode == "id" and want.field_id is not None:
        for index, field in enumerate(fields):
            if (field.metadata or {}).get(_FIELD_ID) == str(want.field_id).encode():
                return index
        return None
    name = want.name_in_files(mode)
    names = [field.name for field in fields]
    if name in names:
        return names.index(name)
    folded = [other.lower() for other in names]
    return folded.index(name.lower()) if name.lower() in folded else None


def conform(array: pa.Array, want: DataType, mode: str, *, path: str, column: str) -> pa.Array:
    """Return a file's column in the table's type.

    Raises
    ------
    DataFileError
        The file's type cannot become the table's without loss; names file and column.
    """
    target = arrow_type(want)
    try:
        return _conform(array, want, target, mode)
    except DataFileError as error:
        error.path = error.path or path
        error.reason = f"column {column}: {error.reason}"
        raise
    except (pa.ArrowException, ValueError, TypeError, AttributeError, KeyError) as error:
        raise DataFileError(
            path=path,
            reason=f"column {column} is {array.type}, which cannot be read as {target}: {error}",
            remedy="The file does not fit the table's schema; its writer is at fault",
        ) from error


def _conform(array: pa.Array, want: DataType, target: pa.DataType, mode: str) -> pa.Array:
    if array.type == target and (mode == "none" or not pa.types.is_nested(target)):
        return array  # Under column mapping, equal names below need not mean equal columns.
    if isinstance(array.type, pa.BaseExtensionType):
        return _conform(array.storage, want, target, mode)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    match want:
        case PrimitiveType("variant"):
            return unshred(array)
        case PrimitiveType(name) if name in MONTH_INTERVALS and pa.types.is_int32(array.type):
            return _months(array, target)
        case StructType(fields) if pa.types.is_struct(array.type):
            children = [_child(array, field, mode) for field in fields]
            return _struct(children, target, array)
        case ArrayType(element) if _is_list(array.type):
            array = _from_zero(array)
            held = array.values
            if _is_bare(held, array.type, element):  # Two-level lists leave a group of one out.
                held = pa.StructArray.from_arrays([held], [array.type.value_field.name])
            values = _conform(held, element, target.value_type, mode)
            return pa.ListArray.from_arrays(
                array.offsets.cast(pa.int32()), values, type=target, mask=_nulls(array)
            )
        case MapType(key, value) if pa.types.is_map(array.type):
            array = _from_zero(array)
            return _map(
                array,
                _conform(array.keys, key, target.key_type, mode),
                _conform(array.items, value, target.item_type, mode),
                target,
            )
    if pa.types.is_timestamp(array.type):
        finer = pa.types.is_timestamp(target) and array.type.unit == "ns"
        # Tables have no nanoseconds: what is finer than theirs is cut off.
        return array.cast(target, safe=False) if finer else _cast(array, target)
    return _cast(array, target)


def _is_bare(values: pa.Array, kind: pa.DataType, element: DataType) -> bool:
    """Whether a list holds the only field of the structs that it should hold."""
    return (
        isinstance(element, StructType)
        and len(element.fields) == 1
        and not pa.types.is_struct(values.type)
        and kind.value_field.name.lower() == element.fields[0].physical_name.lower()
    )


def _months(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return numbers of months as intervals, which Arrow keeps as months, days, nanoseconds."""
    low = pc.bit_wise_and(pc.fill_null(array.cast(pa.int64()), 0), 0xFFFF_FFFF)
    pairs = pa.concat_arrays([low, arrow_array(np.zeros(len(low), np.int64))])
    order = arrow_array([at for row in range(len(low)) for at in (row, row + len(low))], pa.int64())
    validity = None if array.null_count == 0 else array.is_valid().buffers()[1]
    return pa.Array.from_buffers(target, len(low), [validity, pairs.take(order).buffers()[1]])


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    if not _may_become(array.type, target):
        raise TypeError("the types are of different kinds")
    return array.cast(target)


def _may_become(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether a cast keeps the meaning; Arrow itself would also read numbers from text."""
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    bytes_ = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    )
    have_text = any(is_kind(have) for is_kind in texts)
    want_text = any(is_kind(want) for is_kind in texts)
    have_bytes = any(is_kind(have) for is_kind in bytes_)
    want_bytes = any(is_kind(want) for is_kind in bytes_)
    if have_text or want_text:
        return (have_text or have_bytes) and (want_text or want_bytes)
    if have_bytes or want_bytes:
        return have_bytes and want_bytes  # Arrow would read numbers from their text.
    if pa.types.is_boolean(have) or pa.types.is_boolean(want):
        return bool(have == want)
    return True


def _child(array: pa.StructArray, field: StructField, mode: str) -> pa.Array:
    index = find_column(array.type, field, mode)
    target = arrow_type(field.type)
    if index is None:
        return pa.nulls(len(array), target)
    return _conform(array.field(index), field.type, target, mode)


def _struct(children: list[pa.Array], target: pa.DataType, like: pa.Array) -> pa.Array:
    if not children:
        return arrow_array([None if null else {} for null in like.is_null().to_pylist()], target)
    return pa.StructArray.from_arrays(children, fields=list(target), mask=_nulls(like))


def _map(array: pa.MapArray, keys: pa.Array, items: pa.Array, target: pa.DataType) -> pa.Array:
    entries = pa.StructArray.from_arrays(
        [keys, items], fields=[target.key_field, target.item_field]
    )
    validity = None if array.null_count == 0 else array.is_valid().buffers()[1]
    return pa.MapArray.from_buffers(
        target, len(array), [validity, array.offsets.buffers()[1]], children=[entries]
    )


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _from_zero(array: pa.Array) -> pa.Array:
    """Return the same values with buffers that begin at zero, as `from_arrays` wants them."""
    return pa.concat_arrays([array]) if array.offset else array


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )
