"""Values of JSON statistics as bounds, many at once. Pure.

The forms that writers use are read by Arrow, which reads them as the parser does; values of any
other form are for the parser.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from txlog.arrow import pc
from txlog.schema.types import DataType, PrimitiveType
from txlog.stats.read import (
    LAST_ODD_OFFSET_US,
    TRUNCATED_US,
    bound_type,
    loose_floats,
    without_cut,
)

_NUMBER = r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?"
_TEXT = r'"[^"\\\x00-\x1f]*"'
_DATE = r"[1-9]\d{3}-\d{2}-\d{2}"
_TIME = r"[T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?"
_MOMENTS = {
    f'"{_DATE}{_TIME}(Z|[+-]\\d{{2}}:\\d{{2}})"': pa.timestamp("us", "UTC"),
    f'"{_DATE}{_TIME}"': pa.timestamp("us"),
}


def plain_values(tokens: pa.Array, kind: DataType, *, up: bool) -> pa.Array | None:
    """Return values as bounds of a type, in the type that they are held in.

    None: one of them has another form, or the type has no quick way.

    Parameters
    ----------
    tokens
        The JSON of each, as text, or whole numbers; null where there is none.
    up
        Whether the bounds are upper ones.
    """
    match kind:
        case PrimitiveType("float" | "double"):
            return _nothing(tokens) if up else _floats(tokens)
        case PrimitiveType("string"):
            return _texts(tokens, up)
        case PrimitiveType("date"):
            return _cast(tokens, f'"{_DATE}"', pa.date32())
        case PrimitiveType("timestamp" | "timestamp_ntz"):
            return _moments(tokens, bound_type(kind), up)
    whole = pa.types.is_int64(tokens.type) and pa.types.is_int64(bound_type(kind))
    return tokens if whole else None


def _nothing(tokens: pa.Array) -> pa.Array:
    return pa.nulls(len(tokens), pa.float64())


def _floats(tokens: pa.Array) -> pa.Array | None:
    if pa.types.is_int64(tokens.type):
        found = tokens.cast(pa.float64(), safe=False)
    else:
        found = _cast(tokens, _NUMBER, pa.float64(), quotes=0)
    if found is None or pc.any(pc.is_inf(found)).as_py():
        return None
    return loose_floats(found)


def _texts(tokens: pa.Array, up: bool) -> pa.Array | None:
    found = _cast(tokens, _TEXT, pa.string())
    return without_cut(found) if found is not None and up else found


def _moments(tokens: pa.Array, target: pa.DataType, up: bool) -> pa.Array | None:
    forms = map(partial(_cast, tokens), _MOMENTS, _MOMENTS.values())
    found = next((one for one in forms if one is not None), None)
    if found is None:
        return None
    micros = found.cast(pa.int64())
    if pc.min(micros).as_py() <= LAST_ODD_OFFSET_US:
        return None
    return pc.add(micros, TRUNCATED_US if up else 0).cast(target)


def _cast(
    tokens: pa.Array, pattern: str, target: pa.DataType, *, quotes: int = 1
) -> pa.Array | None:
    """Return what is between the quotes in a type, or None if a token has another form."""
    if not pa.types.is_string(tokens.type):
        return None
    if not pc.all(pc.match_substring_regex(tokens, f"^{pattern}$")).as_py():
        return None
    try:
        held = pc.utf8_slice_codeunits(tokens, quotes, -quotes) if quotes else tokens
        return held.cast(target)
    except pa.ArrowInvalid:  # It is no day of the calendar, or too great a number.
        return None
