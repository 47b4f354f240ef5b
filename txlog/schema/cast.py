"""Arrow arrays of any layout → the Arrow type of a Delta type, with every value checked. Pure."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from txlog.arrow import arrow_scalar, pc
from txlog.schema.types import ArrayType, DataType, MapType, StructType

_LARGEST_OFFSET = 2**31 - 1


def cast_array(array: pa.Array, kind: DataType, target: pa.DataType) -> pa.Array:
    """Return an array in the Arrow type of a Delta type; no value is changed.

    Fields of structs go by their names, in any case; fields that the array lacks are null. Any
    layout is taken: dictionaries, run ends, views, large and fixed-size lists, extension types.

    Parameters
    ----------
    target
        `arrow_type(kind)`.

    Raises
    ------
    pyarrow.ArrowException, ValueError
        A value does not fit the type.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        values = cast_array(array.dictionary, kind, target)
        return pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()
    if pa.types.is_run_end_encoded(array.type):
        values = cast_array(array.values, kind, target)
        runs = pa.RunEndEncodedArray.from_arrays(array.run_ends, values)
        return pc.run_end_decode(runs.slice(array.offset, len(array)))
    if array.type == target:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    match kind:
        case StructType() if pa.types.is_struct(array.type):
            return _struct(array, kind, target)
        case ArrayType() if is_list(array.type):
            return _list(array, kind, target)
        case MapType() if pa.types.is_map(array.type):
            return _map(array, kind, target)
    return array.cast(target)


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's five kinds of list."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _struct(array: pa.Array, kind: StructType, target: Any) -> pa.Array:
    positions = {field.name.lower(): position for position, field in enumerate(array.type)}
    children = []
    for field, inner in zip(kind.fields, target, strict=True):
        position = positions.get(field.name.lower())
        if position is None:
            children.append(pa.nulls(len(array), inner.type))
        else:
            children.append(cast_array(array.field(position), field.type, inner.type))
    return pa.StructArray.from_arrays(children, fields=list(target), mask=_mask(array))


def _list(array: pa.Array, kind: ArrayType, target: Any) -> pa.Array:
    if len(array) == 0:
        return pa.nulls(0, target)
    elements = array.flatten()  # Without those below null lists.
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths)
    if ends[-1].as_py() > _LARGEST_OFFSET:
        raise ValueError(f"a batch holds more than {_LARGEST_OFFSET} list elements")
    starts = pa.concat_arrays([pa.repeat(arrow_scalar(0, pa.int32()), 1), ends.cast(pa.int32())])
    # Arrow before 26 refuses a mask beside offsets with a validity bitmap, even without nulls.
    offsets = pa.Array.from_buffers(starts.type, len(starts), [None, starts.buffers()[1]])
    values = cast_array(elements, kind.element, target.value_type)
    return pa.ListArray.from_arrays(offsets, values, type=target, mask=_mask(array))


def _map(array: pa.Array, kind: MapType, target: Any) -> pa.Array:
    if array.offset or len(array.keys) != len(array.items):
        array = pa.concat_arrays([array])  # Its children then begin where it does.
    keys = cast_array(array.keys, kind.key, target.key_type)
    items = cast_array(array.items, kind.value, target.item_type)
    return pa.MapArray.from_arrays(array.offsets, keys, items, type=target, mask=_mask(array))
