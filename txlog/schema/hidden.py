"""Values that an Arrow array stores although no row has them. Pure.

Arrow may store any value below a null struct, list or map, in an entry of a dictionary that no row
names, and in a run outside of a slice. Such a value need not fit anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, pc
from txlog.base.columns import map_entries
from txlog.schema.arrow import is_list

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LARGEST_OFFSET = 2**31 - 1


def without_hidden(array: pa.Array) -> pa.Array:
    """Return an array with the same rows that stores no value that no row has.

    Hidden values of fields become null, others are left out. The array is returned itself if
    nothing is hidden; else its dictionaries, runs and lists may have a plain layout.
    """
    kind: Any = array.type
    if isinstance(array, pa.ExtensionArray):
        return _extension(array)
    if pa.types.is_dictionary(kind):
        named = pc.count_distinct(array.indices).as_py()
        return array if named == len(array.dictionary) else array.dictionary_decode()
    if pa.types.is_run_end_encoded(kind):
        ends = array.run_ends
        is_whole = not array.offset and len(ends) and ends[-1].as_py() == len(array)
        return array if is_whole else pc.run_end_decode(array)
    if pa.types.is_struct(kind) and kind.num_fields:
        return _struct(array)
    if pa.types.is_map(kind):
        return _map(array)
    # Elements below a null list are left out by all that flattens it.
    if is_list(kind) and _may_hide(kind.value_type):
        return _list(array)
    return array


def _may_hide(kind: Any) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _may_hide(kind.storage_type)
    if is_list(kind):
        return _may_hide(kind.value_type)
    return bool(pa.types.is_nested(kind) or pa.types.is_dictionary(kind))


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _extension(array: pa.Array) -> pa.Array:
    storage = without_hidden(array.storage)
    if storage is array.storage or not _may_hide(storage.type):
        return array
    same = storage.type == array.type.storage_type
    return pa.ExtensionArray.from_storage(array.type, storage) if same else storage


def _struct(array: pa.Array) -> pa.Array:
    stored = [array.field(at) for at in range(array.type.num_fields)]
    seen = array.flatten() if array.null_count else stored
    found = [without_hidden(child) for child in seen]
    if all(one is other for one, other in zip(stored, found, strict=True)):
        return array
    fields = [field.with_type(child.type) for field, child in zip(array.type, found, strict=True)]
    return pa.StructArray.from_arrays(found, fields=fields, mask=_mask(array))


def _list(array: pa.Array) -> pa.Array:
    elements = array.flatten()
    found = without_hidden(elements)
    if found is elements:
        return array
    offsets = _offsets(pc.fill_null(pc.list_value_length(array), 0).to_numpy())
    field = array.type.value_field.with_type(found.type)
    if offsets.type == pa.int64():
        kind = pa.large_list(field)
        return pa.LargeListArray.from_arrays(offsets, found, type=kind, mask=_mask(array))
    return pa.ListArray.from_arrays(offsets, found, type=pa.list_(field), mask=_mask(array))


def _map(array: pa.Array) -> pa.Array:
    keys, items, lengths = map_entries(array)
    found = [without_hidden(keys), without_hidden(items)]
    is_whole = not array.null_count and not array.offset and len(array.items) == len(items)
    if is_whole and found[0] is keys and found[1] is items:
        return array
    kind = pa.map_(
        array.type.key_field.with_type(found[0].type),
        array.type.item_field.with_type(found[1].type),
        keys_sorted=array.type.keys_sorted,
    )
    return pa.MapArray.from_arrays(_offsets(lengths), *found, type=kind, mask=_mask(array))


def _offsets(lengths: NDArray[np.int64]) -> pa.Array:
    """Return the offsets of lists or maps of some lengths: 64 bits wide if they need it."""
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return arrow_array(ends, pa.int64() if ends[-1] > _LARGEST_OFFSET else pa.int32())
