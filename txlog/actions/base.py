"""The base class of the action models, and the types of their fields."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

Long = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Integer = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]


def texts_of(value: Any) -> Any:
    """Return a map in which bare numbers and booleans, which some writers leave, are JSON texts."""
    if not isinstance(value, dict):
        return value
    return {
        name: orjson.dumps(item).decode() if isinstance(item, bool | int | float) else item
        for name, item in value.items()
    }


Texts = Annotated[dict[str, str | None], BeforeValidator(texts_of)]


def or_default(default: Callable[[], Any]) -> BeforeValidator:
    """Return a validator that replaces a null by the field's default."""
    return BeforeValidator(lambda value: default() if value is None else value)


class Action(BaseModel):
    """A record of the log: immutable, camelCase on disk, its fields named as in the protocol.

    An absent field and a null one mean the same: both read as `None`, neither is written.
    A null inside a map (a null partition value) is a value, and is written. Unknown fields are
    ignored. Types are strict: a number in quotes is not a number.
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        defer_build=True,
    )

    def to_json(self) -> dict[str, Any]:
        """Return the action's JSON object, without absent fields."""
        held = self.__dict__
        return {
            alias: value if type(value) in _ATOMS else _plain(value)
            for name, alias in _aliases(type(self))
            if (value := held[name]) is not None
        }


_ATOMS = frozenset({str, int, bool})


@cache
def _aliases(model: type[Action]) -> tuple[tuple[str, str], ...]:
    """Return the fields of a model as pairs: its name in Python, its name in the log."""
    return tuple((name, info.alias or name) for name, info in model.model_fields.items())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, Action):
        return value.to_json()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
