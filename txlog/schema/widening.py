"""Type widening: the changes of column types that field metadata records.

Rules: the Delta protocol, "Type Widening".
"""

from __future__ import annotations

import re
from typing import Any

from txlog.errors import UnsupportedFeatureError
from txlog.schema.types import (
    TYPE_CHANGES,
    WHOLE_NUMBERS,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
# Digits that the values need. The protocol's list asks for more, but real tables have fewer.
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}


def is_widening(old: str, new: str) -> bool:
    """Return whether the protocol allows a type change, given the names of both types."""
    if old in WHOLE_NUMBERS and new in WHOLE_NUMBERS:
        return WHOLE_NUMBERS.index(old) < WHOLE_NUMBERS.index(new)
    if (old, new) in {("float", "double"), ("date", "timestamp_ntz")}:
        return True
    if new == "double":
        return old in ("byte", "short", "integer")
    wide = _DECIMAL.fullmatch(new)
    if wide is None:
        return False
    precision, scale = int(wide[1]), int(wide[2])
    if old in _DIGITS:
        return precision - scale >= _DIGITS[old]
    narrow = _DECIMAL.fullmatch(old)
    if narrow is None:
        return False
    more_scale = scale - int(narrow[2])
    return more_scale >= 0 and precision - int(narrow[1]) >= more_scale


def require_known_changes(schema: StructType, *, path: str) -> None:
    """Raise if a table records a type change that is not in the protocol's list.

    Raises
    ------
    UnsupportedFeatureError
        Names each column and its change, all at once.
    """
    odd = [
        f"{name}: {change.get('fromType')} to {change.get('toType')}"
        for name, change in _changes("", schema)
        if not is_widening(str(change.get("fromType")), str(change.get("toType")))
    ]
    if odd:
        raise UnsupportedFeatureError(
            path=path,
            features=("typeWidening",),
            reason=f"recorded type changes are not among those of the protocol: {'; '.join(odd)}",
            remedy="Read the table with the engine that made the change",
        )


def _changes(prefix: str, kind: DataType) -> list[tuple[str, dict[str, Any]]]:
    match kind:
        case StructType(fields):
            return [change for field in fields for change in _of_field(prefix, field)]
        case ArrayType(element):
            return _changes(f"{prefix}element.", element)
        case MapType(key, value):
            return _changes(f"{prefix}key.", key) + _changes(f"{prefix}value.", value)
    return []


def _of_field(prefix: str, field: StructField) -> list[tuple[str, dict[str, Any]]]:
    name = f"{prefix}{field.name}"
    own = field.metadata.get(TYPE_CHANGES) or ()
    recorded = [(name, change) for change in own if isinstance(change, dict)]
    return recorded + _changes(f"{name}.", field.type)
