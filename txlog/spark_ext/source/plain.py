"""Errors of txlog as Spark shows them: their own sentence comes first.

Spark shows a failure of a Python source as Python prints it: causes, then the traceback, and the
error itself at the end. Tasks import this module too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from copy import copy
from functools import wraps
from typing import Any, TypeVar

from txlog.base.errors import TxlogError

Result = TypeVar("Result")
Item = TypeVar("Item")


_HIDES = "SPARK_HIDE_TRACEBACK"  # A worker of Spark reads it when it shows an error.
_WORKERS = ("pyspark.", "txlog.spark_ext.daemon")  # With what the modules begin that workers run.


def _shown_first(error: TxlogError) -> TxlogError:
    """Return an error without a traceback and causes, which Spark shows before all lines of code.

    In a worker of Spark, no lines of code are shown at all: it ends with this error, so no error of
    others is affected. Elsewhere, a copy of the error is its cause, which Python prints first.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is not None and main.name.startswith(_WORKERS):
        os.environ[_HIDES] = "1"
    said = copy(error).with_traceback(None)
    said.__cause__, said.__context__, said.__suppress_context__ = None, None, True
    error.__cause__ = said
    return error.with_traceback(None)


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
        raise _shown_first(failed)

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
        raise _shown_first(failed)

    return called
