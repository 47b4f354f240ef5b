"""Check arguments as delta-spark does, and raise errors that are also errors of Spark.

Scripts for delta-spark catch `AnalysisException`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.errors import AnalysisException, ParseException, PySparkException

from txlog.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    InvalidTypeError,
    NotFoundError,
    TxlogError,
)
from txlog.spark_ext.engine import is_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Value = TypeVar("Value")

# The texts are those of delta-spark.
_NEEDED = {
    str: "needs to be a string but got",
    int: "needs to be an int but got",
    bool: "needs to be a boolean but got",
}
_OTHER = "must be a {}, found to be"

_HADOOP = ("fs.", "dfs.", "spark.hadoop.")


def of_type(kind: type[Value], value: Any, name: str, argument: str | None = None) -> Value:
    """Return an argument that must be of a type; a boolean is not a number.

    If it is a part of an argument, that one's name is given too.

    Raises
    ------
    InvalidTypeError
        The error names the argument. As with delta-spark, it is a `TypeError` and a `ValueError`.
    """
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        reason = f"{name} {_NEEDED.get(kind, _OTHER.format(kind.__name__))} '{type(value)}'"
        if value is None:
            reason = f"{name} cannot be None"
        raise InvalidTypeError(argument=argument or name, reason=reason)
    return value


def names_in(columns: tuple[Any, ...], argument: str) -> list[str]:
    """Return names that were passed as several arguments, or as one list or tuple."""
    one = len(columns) == 1 and isinstance(columns[0], list | tuple)
    return [of_type(str, name, argument) for name in (columns[0] if one else columns)]


def session_of(spark: SparkSession | None) -> SparkSession:
    """Return the session that was passed, or the active one."""
    from pyspark.sql import SparkSession

    found = spark if spark is not None else SparkSession.getActiveSession()
    if found is None:
        raise InvalidInputError(
            argument="sparkSession",
            reason="no session was passed, and no session is active",
            remedy="Pass the session",
        )
    return found


def storage_options_of(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a store in `hadoopConf`, which must have the names of fsspec.

    Raises
    ------
    InvalidInputError
        The options are those of Hadoop, which txlog does not use. The error shows no values.
    """
    options = dict(of_type(dict, conf, "hadoopConf"))
    hadoop = sorted(name for name in options if str(name).startswith(_HADOOP))
    if hadoop:
        raise InvalidInputError(
            argument="hadoopConf",
            field=hadoop[0],
            reason="this is an option of Hadoop's file systems, which txlog does not use",
            remedy='Pass the options of the fsspec backend, such as {"key": …, "secret": …} for s3',
        )
    return options


def merges_schema_in_session(spark: SparkSession | None) -> bool:
    """Return whether merges add columns, by delta-spark's setting of the session."""
    return spark is not None and is_on(spark, _AUTO_MERGE)


def checks_retention(spark: SparkSession) -> bool:
    """Return whether vacuum refuses a retention below the table's, by the session's setting."""
    return (spark.conf.get(_RETENTION_CHECK, "true") or "").strip().lower() != "false"


_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_AUTO_MERGE = "spark.databricks.delta.schema.autoMerge.enabled"


def expression_in(value: Any, argument: str) -> Any:
    """Return an expression of Spark: text or a Column, or None.

    Raises
    ------
    InvalidTypeError
        It is neither.
    """
    from pyspark.sql import Column

    if value is not None and not isinstance(value, str | Column):
        raise InvalidTypeError(
            argument=argument,
            reason=f"{argument} must be a Spark SQL Column or a string, not {type(value).__name__}",
        )
    return value


def updates_in(updates: Any, argument: str) -> Mapping[str, Any]:
    """Return the columns with their new values, checked; errors as for `of_type`."""
    from pyspark.sql import Column

    given = of_type(dict, updates, argument)
    for what, parts, kinds in (("Keys", given, str), ("Values", given.values(), str | Column)):
        odd = [part for part in parts if not isinstance(part, kinds)]
        if odd:
            raise InvalidTypeError(
                argument=argument,
                reason=f"{what} of dict in {argument} must contain only "
                f"{'names of columns' if what == 'Keys' else 'Columns or SQL text'}, not "
                f"{type(odd[0]).__name__}",
            )
    return given


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
    """Turn errors about missing and existing tables into errors that are also Spark's."""
    try:
        yield
    except TxlogError as error:
        kind = _KINDS.get(type(error))
        if kind is None:
            raise
        facts = {field.name: getattr(error, field.name) for field in fields(error)}
        raise kind(**facts).with_traceback(error.__traceback__) from error.__cause__
