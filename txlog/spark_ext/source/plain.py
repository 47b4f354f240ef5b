"""Errors of txlog as Spark shows them: without tracebacks and causes, which it puts before them.

Tasks import this module too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

from txlog.base.errors import TxlogError

Result = TypeVar("Result")
Item = TypeVar("Item")


def plainly(method: Callable[..., Result]) -> Callable[..., Result]:
    """Let errors of txlog leave a method that Spark calls without their traceback and causes.

    Spark shows both in one text, before the error. Users see only its first lines.
    """

    @wraps(method)
    def called(*args: Any, **named: Any) -> Result:
        try:
            return method(*args, **named)
        except TxlogError as error:
            failed = error
        raise failed.with_traceback(None) from None

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
        raise failed.with_traceback(None) from None

    return called
