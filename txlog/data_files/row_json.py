"""Rows as JSON texts, whatever their types are. Pure.

Numbers, booleans and null are those of JSON. Other values are texts: dates and times as Arrow casts
them (in UTC; numbers beyond the years 1 to 9999), bytes and texts that are not UTF-8 in base64. NaN
and the infinities, which JSON does not have, are texts as well.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa

from txlog.base.arrow import arrow_array, pc
from txlog.base.columns import is_readable, map_entries, plain_type
from txlog.base.errors import InvalidInputError
from txlog.base.thresholds import Threshold
from txlog.schema.arrow import is_list

_ESCAPED = {"\\": "\\\\", '"': '\\"'} | {
    chr(code): {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}.get(code, f"\\u{code:04x}")
    for code in range(32)
}
_NULL = "null"
_PART_BYTES: Threshold = 256 * 1024 * 1024  # The most bytes of texts that are made at a time.
_TEXT_BYTES = 2**31 - 2**20  # What a text of Arrow, with 32-bit offsets, can have.
_ESCAPED_BYTES = 6  # A byte of a text as JSON, at most.
_VALUE_BYTES = 128  # Any other value as JSON, with what separates it from the next, at most.


def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield rows in parts whose texts are not long together: Arrow does not notice an overflow.

    Raises
    ------
    InvalidInputError
        The text of a single row could be longer than a text of Arrow can be.
    """
    waiting = [batch]
    while waiting:
        part = waiting.pop()
        if part.num_rows <= 1 or _most_bytes(part) <= _PART_BYTES:
            if part.num_rows == 1 and _most_bytes(part) > _TEXT_BYTES:
                raise InvalidInputError(
                    argument="data",
                    reason="a row that does not fit is too long to be kept as JSON in a quarantine",
                    remedy="Shorten its values, or write without a quarantine",
                )
            yield part
            continue
        half = part.num_rows // 2
        waiting += [part.slice(half), part.slice(0, half)]


def _most_bytes(batch: pa.RecordBatch) -> int:
    """Return a number of bytes that the texts of all rows do not exceed."""
    names = sum(_ESCAPED_BYTES * len(name.encode()) + 8 for name in batch.schema.names)
    return sum(map(_most_of, batch.columns), batch.num_rows * (names + 2))


def _most_of(array: pa.Array) -> int:
    types, kind, count = pa.types, array.type, len(array)
    if isinstance(array, pa.ExtensionArray):
        return _most_of(array.storage)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        values = array.dictionary if types.is_dictionary(kind) else array.values
        if _has_bytes(values.type):
            longest = pc.max(pc.binary_length(values)).as_py() or 0
            return count * (_ESCAPED_BYTES * int(longest) + _VALUE_BYTES)
        return count * _most_of(values)
    if types.is_struct(kind):
        names = sum(_ESCAPED_BYTES * len(field.name.encode()) + 8 for field in kind)
        return sum(map(_most_of, array.flatten()), count * (names + _VALUE_BYTES))
    if types.is_map(kind):
        keys, values, _ = map_entries(array)
        # Keys are quoted, so what is escaped in them is escaped again.
        return 2 * _most_of(keys) + _most_of(values) + count * _VALUE_BYTES
    if is_list(kind):
        return _most_of(pc.list_flatten(array)) + count * _VALUE_BYTES
    if types.is_string_view(kind) or types.is_binary_view(kind):
        array = array.cast(plain_type(kind))
    size = array.nbytes if _has_bytes(array.type) or types.is_fixed_size_binary(kind) else 0
    return _ESCAPED_BYTES * size + count * _VALUE_BYTES


def _has_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    tests = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(test(kind) for test in tests)


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
    if types.is_timestamp(kind) or types.is_date(kind):
        return _moments(array)
    try:
        return _quoted(array.cast(pa.string()))
    except pa.ArrowException:  # Such as intervals, or a zone that this machine does not know.
        return _quoted(arrow_array([str(one) for one in array], pa.string()))


_DAY_S = 24 * 60 * 60
_FIRST_DAY, _END_DAY = -719_162, 2_932_897  # Of the years 1 to 9999, counted from 1970.
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def _moments(array: pa.Array) -> pa.StringArray:
    """Return dates and times as texts, in UTC if they have a zone.

    Those before the year 1 or after 9999, which most readers refuse, are numbers: days, or the
    column's units, since 1970.
    """
    kind = array.type
    if pa.types.is_date32(kind):
        scale, numbers = 1, array.cast(pa.int32()).cast(pa.int64())
    elif pa.types.is_date64(kind):
        scale, numbers = _DAY_S * 1000, array.cast(pa.int64())
    else:
        scale, numbers = _DAY_S * _UNITS[kind.unit], array.cast(pa.int64())
        kind = pa.timestamp(kind.unit, "UTC" if kind.tz else None)
        array = numbers.cast(kind)
    first, last = max(_FIRST_DAY * scale, -(2**63)), min(_END_DAY * scale - 1, 2**63 - 1)
    far = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
    if not pc.any(far).as_py():
        return _quoted(array.cast(pa.string()))
    near = pc.if_else(far, pa.scalar(0, array.type), array)
    return pc.if_else(far, numbers.cast(pa.string()), _quoted(near.cast(pa.string())))


def _base64(array: pa.Array) -> pa.StringArray:
    encoded = [None if one is None else b64encode(one).decode() for one in array.to_pylist()]
    return arrow_array(encoded, pa.string())


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    if pc.any(pc.match_substring_regex(texts, r'[\x00-\x1f"\\]')).as_py():
        for found, escaped in _ESCAPED.items():
            texts = pc.replace_substring(texts, found, escaped)
    return pc.binary_join_element_wise('"', texts, '"', "")
