"""What a commit tells about itself, for people: typed values of its `commitInfo`. Pure.

The content of `commitInfo` is free: a field may have a value of any JSON type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson


def told_text(info: Mapping[str, Any], *names: str) -> str | None:
    """Return the first of some fields that has a value; one that is no text as JSON."""
    for name in names:
        value = info.get(name)
        if value not in (None, "", [], {}):
            return json_of(value)
    return None


def told_pairs(info: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return a field that has names with values, as texts; empty if it has another type.

    Names without a value are omitted.
    """
    value = info.get(name)
    if not isinstance(value, Mapping):
        return {}
    return {str(key): json_of(one) for key, one in value.items() if one is not None}


def json_of(value: Any) -> str:
    """Return a text as it is, and another JSON value as JSON."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError):  # It is nested deeply, or has a text that UTF-8 cannot encode.
        return "…"
