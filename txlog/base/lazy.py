"""Packages whose names are imported at their first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str], names: Collection[str], *, within: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that imports its modules at their first use.

    Parameters
    ----------
    homes
        The module of each name, relative to the package, or to the package `within`.
    names
        The package's `__all__`.
    """
    known = vars(sys.modules[package])

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{within or package}.{homes[name]}"), name)
        known[name] = value  # The next use finds the name without this function.
        return value

    return find, lambda: [*names]
