"""Mappings that do not change, for values that several callers share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import fields
from typing import Any, NoReturn, TypeVar

from txlog.base.errors import InvalidTypeError

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """A dict that refuses changes. It equals a dict with the same items, and pickles.

    Copies by `copy`, `copy.copy` and `copy.deepcopy` are plain dicts, which can be changed.
    """

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise InvalidTypeError(
            reason="this mapping belongs to a value that does not change",
            remedy="Make a dict of it, and change that one",
        )

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)

    def __copy__(self) -> dict[K, V]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[K, V]:
        return deepcopy(dict(self), memo)

    @classmethod
    def fromkeys(cls, keys: Iterable[Any], value: Any = None) -> FrozenDict[Any, Any]:
        """Return a mapping of each key to one value."""
        return cls(dict.fromkeys(keys, value))


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
