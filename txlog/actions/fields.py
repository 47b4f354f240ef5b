"""What the fields of actions are: their names in the log, and what an absent value stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

OR_DEFAULT = "A null means that the field is absent: it has its default."
OR_NONE = "A value of another type means that the field is absent."


def texts_of(value: Any) -> Any:
    """Return a map in which bare numbers and booleans, which some writers leave, are JSON texts."""
    if not isinstance(value, dict):
        return value
    return {
        name: orjson.dumps(item).decode() if _is_number(item) else item
        for name, item in value.items()
    }


def _is_number(item: Any) -> bool:
    """Return whether a JSON value is a boolean, or a number that has a JSON text."""
    return isinstance(item, bool | float) or (isinstance(item, int) and -(2**63) <= item < 2**64)


class Made(NamedTuple):
    """The default of a field that is a new object each time."""

    default_factory: Callable[[], Any]


def made(*, default_factory: Callable[[], Any]) -> Any:
    """Return the default of a field that is a new object each time."""
    return Made(default_factory)


class FieldSpec(NamedTuple):
    """A field of an action: how its plain values are read, and what it is when absent."""

    name: str
    alias: str  # Its name on disk.
    read: Callable[[Any], Any]  # Returns `ODD` of a value that is not plain.
    is_nullable: bool
    or_default: bool
    or_none: bool
    default: Any = ...  # `...`: the field is required.
