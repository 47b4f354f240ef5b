"""Dataclasses, regular expressions and names of packages that are made at their first use.

A dataclass costs a quarter of a millisecond, a pattern a fifth, and a process that opens a table
imports a hundred of them. Use `dataclass` like `dataclasses.dataclass`, and `compiled` like
`re.compile`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import re
    from dataclasses import dataclass as dataclass

    compiled = re.compile
else:
    import dataclasses
    import os
    import re
    from threading import RLock

    _BUILDING = RLock()  # Two threads may use a class for the first time at once.
    _PENDING = {}  # The options of each class that is not built yet.
    # A forked child must not inherit a class that is half built.
    if hasattr(os, "register_at_fork"):
        release = _BUILDING.release
        os.register_at_fork(
            before=_BUILDING.acquire, after_in_parent=release, after_in_child=release
        )

    def dataclass(cls=None, /, **options):
        """Turn a class into a dataclass when its first instance is created or unpickled.

        The instances are the same as with `dataclasses.dataclass`. `dataclasses.fields`
        needs a value, not the class.
        """
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        if options.get("slots") or "__new__" in vars(cls):
            raise TypeError(f"{cls.__qualname__} needs `dataclasses.dataclass` itself")
        _PENDING[cls] = options
        cls.__new__ = staticmethod(_first)
        cls.__signature__ = _Signature()
        return cls

    class _Signature:
        """The signature of a class for `inspect.signature` and `help`; `__new__` has none."""

        def __get__(self, value, cls):
            import inspect

            _build(cls)
            found = inspect.signature(cls.__init__)
            return found.replace(parameters=list(found.parameters.values())[1:])

    def _build(cls):
        with _BUILDING:
            for owner in reversed(cls.__mro__):
                if owner in _PENDING:
                    dataclasses.dataclass(**_PENDING[owner])(owner)
                    # `__new__` must be replaced and not deleted: `object.__new__` accepts no
                    # arguments.
                    new = _new_error if issubclass(owner, BaseException) else _new
                    owner.__new__ = staticmethod(new)
                    del _PENDING[owner]

    def _first(cls, *_args, **_kwargs):
        _build(cls)
        return cls.__new__(cls)

    def _new(cls, *_args, **_kwargs):
        return object.__new__(cls)

    def _new_error(cls, *_args, **_kwargs):
        base = cls
        while base.__module__ != "builtins":
            base = base.__base__  # The base with the layout of the class; it need not be the first.
        return base.__new__(cls)

    class _Pattern:
        """A pattern that is compiled when one of its attributes is used first."""

        def __init__(self, text, flags=0):
            self._given = text, flags

        def __getattr__(self, name):
            value = getattr(re.compile(*self._given), name)
            setattr(self, name, value)  # The next call finds the method without `__getattr__`.
            return value

    compiled = _Pattern


def lazy_names(
    package: str, homes: Mapping[str, str], names: Collection[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that imports its modules at their first use.

    Parameters
    ----------
    homes
        The module of each name, relative to the package.
    names
        The package's `__all__`.
    """
    known = vars(sys.modules[package])

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        known[name] = value  # The next use finds the name without this function.
        return value

    return find, lambda: sorted({*known, *names})
