"""Mappings that do not change, for values that several callers share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NoReturn, TypeVar

from txlog.base.errors import InvalidTypeError

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """A dict that refuses changes. It equals a dict with the same items, and pickles."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise InvalidTypeError(
            reason="this mapping belongs to a value that does not change",
            remedy="Copy it into another mapping, and change that one",
        )

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


def freeze(value: Any, *but: str) -> None:
    """Make the mappings in the fields of a new dataclass frozen; call it in `__post_init__`.

    Parameters
    ----------
    but
        Fields that stay as they are.
    """
    for field in fields(value):
        given = getattr(value, field.name)
        is_frozen = isinstance(given, FrozenDict) or field.name in but
        if isinstance(given, Mapping) and not is_frozen:
            object.__setattr__(value, field.name, FrozenDict(given))
