"""Errors that are Spark's too: scripts for delta-spark catch `AnalysisException`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from pyspark.errors import AnalysisException, ParseException, PySparkException

from txlog.errors import AlreadyExistsError, InvalidInputError, NotFoundError, TxlogError


class _SparkError(TxlogError):
    def __init__(self, **facts: Any) -> None:
        super().__init__(**facts)
        PySparkException.__init__(self, str(self))  # type: ignore[arg-type]

    def getMessage(self) -> str:  # noqa: N802 (the name is Spark's)
        return str(self)


class MissingTableError(_SparkError, NotFoundError, AnalysisException):
    """The table does not exist."""


class ExistingTableError(_SparkError, AlreadyExistsError, AnalysisException):
    """A table is already there."""


class TypeTextError(_SparkError, InvalidInputError, ParseException):
    """Spark cannot parse the type of a column."""


_KINDS: dict[type[TxlogError], type[_SparkError]] = {
    NotFoundError: MissingTableError,
    AlreadyExistsError: ExistingTableError,
}


@contextmanager
def as_errors_of_spark() -> Iterator[None]:
    """Raise errors of missing and of existing tables as errors of Spark, too."""
    try:
        yield
    except TxlogError as error:
        kind = _KINDS.get(type(error))
        if kind is None:
            raise
        facts = {field.name: getattr(error, field.name) for field in fields(error)}
        raise kind(**facts).with_traceback(error.__traceback__) from error.__cause__
