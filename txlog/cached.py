"""`cached_property` without a lock.

Before Python 3.12, `functools.cached_property` holds a lock, one for all objects of a class, while
a value is found. A process that is forked meanwhile inherits the lock as it is, and nobody there
ever releases it. Values here are found anew with the same result, so two threads may both find one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


class cached_property(Generic[Value]):  # noqa: N801  # The name that everybody knows.
    """A property that is found when it is first asked for, and kept in the object's `__dict__`."""

    def __init__(self, find: Callable[[Any], Value]) -> None:
        self._find = find
        self._name = find.__name__
        self.__doc__ = find.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> cached_property[Value]: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Value: ...

    def __get__(
        self, instance: object | None, owner: type | None = None
    ) -> cached_property[Value] | Value:
        """Return the value; an error is not kept."""
        if instance is None:
            return self
        # Not a data descriptor: from now on Python finds the value without coming here.
        value = instance.__dict__[self._name] = self._find(instance)
        return value
