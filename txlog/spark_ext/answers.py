"""Results and errors of the calls on Spark's executors, as values that go to the driver.

Executors import this module, so it imports nothing else of Spark's room.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import cloudpickle

from txlog.base.errors import EngineError, TxlogError, TxlogWarning, warn_caller

dumps: Callable[[Any], bytes] = cloudpickle.dumps
loads: Callable[[Any], Any] = cloudpickle.loads

Item = TypeVar("Item")

_SHOWN = 300  # The maximum number of characters of Spark's message.


@dataclass(frozen=True)
class Answer:
    """The result or the error of one item."""

    result: Any = None
    error: Exception | None = None
    trace: str = ""  # Only for an error that is not a `TxlogError`.
    warnings: tuple[str, ...] = ()

    def value(self) -> Any:
        """Return the result, or raise the error; give the warnings of the executor again."""
        for text in self.warnings:
            warn_caller(text)
        if self.error is None:
            return self.result
        if self.trace:
            self.error.add_note(f"On a Spark executor:\n{self.trace}")
        raise self.error


def answered(function: Callable[[Item], Any], item: Item, *, retries: bool = False) -> bytes:
    """Return the pickled result or error of an item, with its warnings; on an executor.

    Parameters
    ----------
    retries
        Raise an error that another attempt may not have, so that Spark makes one.
    """
    answer = answer_of(function, item)
    error = answer.error
    if retries and error is not None and not _is_final(error):
        raise error
    return packed(answer)


def _is_final(error: Exception) -> bool:
    return isinstance(error, TxlogError) and error.retry == "never"


def answer_of(function: Callable[[Item], Any], item: Item) -> Answer:
    """Return the result or error of an item, with its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TxlogWarning)
        try:
            answer = Answer(function(item))
        except TxlogError as error:
            answer = Answer(error=error)
        except Exception as error:
            answer = Answer(error=error, trace=traceback.format_exc(limit=-2))
    warnings_ = [str(one.message) for one in caught if issubclass(one.category, TxlogWarning)]
    return Answer(answer.result, answer.error, answer.trace, tuple(warnings_))


def packed(answer: Answer) -> bytes:
    """Return a pickled answer; if it cannot be pickled, return a pickled error that says so."""
    try:
        data = dumps(answer)
        if answer.error is not None or isinstance(answer.result, Exception):
            loads(data)  # The pickle of an exception may fail to load.
    except Exception:
        failed = answer.error if answer.error is not None else answer.result
        error = EngineError(
            reason=f"a {type(failed).__name__} cannot be pickled: {shortened(str(failed))}"
            if isinstance(failed, Exception)
            else f"a result ({type(failed).__name__}) cannot be pickled",
            remedy="Return and raise only values that can be pickled",
        )
        caught = isinstance(answer.result, Exception)
        data = dumps(
            Answer(
                error if caught else None,
                None if caught else error,
                answer.trace,
                answer.warnings,
            )
        )
    return data


def unpacked(result: pa.BinaryScalar) -> Answer:
    """Return the answer of an item; its `value()` raises the error or returns the result."""
    answer: Answer = loads(result.as_buffer())
    return answer


def shortened(text: str) -> str:
    """Return the beginning of the first line of a text."""
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "…"
