"""Rows as JSON texts, whatever their types are. Pure.

Numbers, booleans and null are those of JSON. Other values are texts: dates and times as Arrow casts
them (in UTC), bytes and texts that are not UTF-8 in base64. NaN and the infinities, which JSON does
not have, are texts as well.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import orjson
import pyarrow as pa

from txlog.base.arrow import arrow_array, pc
from txlog.base.columns import is_readable, map_entries
from txlog.schema.arrow import is_list

_ESCAPED = {"\\": "\\\\", '"': '\\"'} | {
    chr(code): {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}.get(code, f"\\u{code:04x}")
    for code in range(32)
}
_NULL = "null"


def row_texts(batch: pa.RecordBatch) -> pa.StringArray:
    """Return each row as a JSON object, with the columns in their order."""
    names = [field.name for field in batch.schema]
    return _object(names, batch.columns, batch.num_rows)


def _object(names: list[str], columns: list[pa.Array], count: int) -> pa.StringArray:
    parts: list[Any] = []
    for place, (name, column) in enumerate(zip(names, columns, strict=True)):
        start = "{" if not place else ", "
        parts += [f"{start}{orjson.dumps(name).decode()}: ", _texts(column)]
    if not parts:
        return pa.repeat(pa.scalar("{}"), count)
    return pc.binary_join_element_wise(*parts, "}", "")


def _texts(array: pa.Array) -> pa.StringArray:
    """Return values as JSON; null becomes the text null."""
    types, kind = pa.types, array.type
    if isinstance(array, pa.ExtensionArray):
        return _texts(array.storage)
    if types.is_dictionary(kind):
        return _texts(array.dictionary_decode())
    if types.is_run_end_encoded(kind):
        return _texts(pc.run_end_decode(array))
    if types.is_null(kind):
        return pa.repeat(pa.scalar(_NULL), len(array))
    if types.is_struct(kind):
        names = [field.name for field in kind]
        found = _object(names, array.flatten(), len(array))
    elif types.is_map(kind):
        keys, values, lengths = map_entries(array)
        quoted = _texts(keys)
        if not (types.is_string(keys.type) or types.is_large_string(keys.type)):
            quoted = _quoted(quoted)
        entries = pc.binary_join_element_wise(quoted, _texts(values), ": ")
        found = _joined(entries, lengths, "{", "}")
    elif is_list(kind):
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        found = _joined(_texts(pc.list_flatten(array)), lengths, "[", "]")
    else:
        found = _plain(array)
    return pc.if_else(array.is_valid(), found, _NULL) if array.null_count else found


def _joined(parts: pa.StringArray, lengths: Any, start: str, end: str) -> pa.StringArray:
    offsets = pa.concat_arrays(
        [pa.array([0], pa.int32()), pc.cumulative_sum(arrow_array(lengths, pa.int32()))]
    )
    inner = pc.binary_join(pa.ListArray.from_arrays(offsets, parts), ", ")
    return pc.binary_join_element_wise(start, inner, end, "")


def _plain(array: pa.Array) -> pa.StringArray:
    """Return values that are not nested as JSON; null stays null, or is any text."""
    types, kind = pa.types, array.type
    if types.is_boolean(kind) or types.is_integer(kind):
        return array.cast(pa.string())
    if types.is_decimal(kind):
        return array.cast(pa.string())
    if types.is_floating(kind):
        wide = array.cast(pa.float32()) if types.is_float16(kind) else array
        texts = wide.cast(pa.string())
        odd = pc.invert(pc.is_finite(wide))
        return pc.if_else(odd, _quoted(texts), texts) if pc.any(odd).as_py() else texts
    if types.is_string_view(kind) or types.is_large_string(kind) or types.is_string(kind):
        if is_readable(array):
            return _quoted(array.cast(pa.string()))
        array = array.cast(pa.large_binary())
    if "binary" in str(array.type):
        return _quoted(_base64(array))
    if types.is_duration(kind):
        return array.cast(pa.int64()).cast(pa.string())
    try:
        return _quoted(array.cast(pa.string()))
    except pa.ArrowException:  # Such as intervals, or a zone that this machine does not know.
        return _quoted(arrow_array([str(one) for one in array], pa.string()))


def _base64(array: pa.Array) -> pa.StringArray:
    encoded = [None if one is None else b64encode(one).decode() for one in array.to_pylist()]
    return arrow_array(encoded, pa.string())


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    if pc.any(pc.match_substring_regex(texts, r'[\x00-\x1f"\\]')).as_py():
        for found, escaped in _ESCAPED.items():
            texts = pc.replace_substring(texts, found, escaped)
    return pc.binary_join_element_wise('"', texts, '"', "")
