"""The fields of actions: their names in the log, and the defaults of absent values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

OR_DEFAULT = "A null means that the field is absent: it has its default."
OR_NONE = "A value of another type means that the field is absent."


def texts_of(value: Any) -> Any:
    """Return a map in which bare numbers and booleans, which some writers write, are JSON texts."""
    if not isinstance(value, dict):
        return value
    return {
        name: orjson.dumps(item).decode() if _is_number(item) else item
        for name, item in value.items()
    }


def _is_number(item: Any) -> bool:
    """Return whether a JSON value is a boolean or a finite number."""
    return isinstance(item, bool | float) or (isinstance(item, int) and -(2**63) <= item < 2**64)


class Made(NamedTuple):
    """A field's default that is created anew for each action."""

    default_factory: Callable[[], Any]


def made(*, default_factory: Callable[[], Any]) -> Any:
    """Return a default that is created anew for each action."""
    return Made(default_factory)


class FieldSpec(NamedTuple):
    """A field of an action: the reader of its plain values, and its default."""

    name: str
    alias: str  # Its name on disk.
    read: Callable[[Any], Any]  # Returns `ODD` for a value that is not plain.
    is_nullable: bool
    or_default: bool
    or_none: bool
    default: Any = ...  # `...`: the field is required.
