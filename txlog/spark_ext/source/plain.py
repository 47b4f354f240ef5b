"""Errors of txlog as Spark shows them: their own sentence comes first.

Spark shows a failure of a Python source as Python prints it: causes, then the traceback, and the
error itself at the end. Tasks import this module too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from functools import wraps
from typing import Any, TypeVar

from txlog.base.errors import TxlogError

Result = TypeVar("Result")
Item = TypeVar("Item")


def _first(error: TxlogError) -> TxlogError:
    """Return a copy of an error that Python prints, as its cause, before all lines of code."""
    said = copy(error).with_traceback(None)
    said.__cause__, said.__context__, said.__suppress_context__ = None, None, True
    return said


def plainly(method: Callable[..., Result]) -> Callable[..., Result]:
    """Let errors of txlog leave a method that Spark calls so that their sentence is shown first.

    They lose their traceback and causes. Users see only the first lines of Spark's text.
    """

    @wraps(method)
    def called(*args: Any, **named: Any) -> Result:
        try:
            return method(*args, **named)
        except TxlogError as error:
            failed = error
        raise failed.with_traceback(None) from _first(failed)

    return called


def plainly_each(method: Callable[..., Iterator[Item]]) -> Callable[..., Iterator[Item]]:
    """Do what `plainly` does for a method whose result is read later, item by item."""

    @wraps(method)
    def called(*args: Any, **named: Any) -> Iterator[Item]:
        try:
            yield from method(*args, **named)
        except TxlogError as error:
            failed = error
        else:
            return
        raise failed.with_traceback(None) from _first(failed)

    return called
