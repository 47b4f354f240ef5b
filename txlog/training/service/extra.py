"""The extras of the service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from txlog.base.errors import not_installed


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Name the extra if a package that it installs is missing.

    Raises
    ------
    UnsupportedFeatureError
        A package of the extra is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("txlog"):
            raise
        raise not_installed(extra, "the service of data sets", str(error)) from error
