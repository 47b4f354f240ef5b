"""An engine that runs functions on Spark's executors, through public API: classic and Connect."""

from __future__ import annotations

import ast
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from txlog.base.effects import REAL
from txlog.base.errors import (
    EngineError,
    InvalidInputError,
    SchemaMismatchError,
    TxlogError,
)
from txlog.base.threads import Threads
from txlog.base.thresholds import Threshold
from txlog.spark_ext.answers import Answer, answer_of, dumps, loads, packed, shortened, unpacked
from txlog.spark_ext.zones import zone_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


Item = TypeVar("Item")
Result = TypeVar("Result")

_ITEMS = pa.schema([("task", pa.int32()), ("place", pa.int64()), ("item", pa.binary())])
_RESULTS = pa.schema([("place", pa.int64()), ("result", pa.binary())])
_RESULTS_DDL = "place long, result binary"
PLAN_FILES = "spark.txlog.planFiles"
_JOB_ITEMS: Threshold = 10_000  # Of so many tasks the items and results are in memory at a time.


class SparkEngine:
    """An engine that runs work on Spark's executors.

    Each call of `map` is a Spark job, or several jobs if there are very many items. Executors need
    the same versions of Python and txlog as the driver, and access to the table's store. They get a
    function and items, but not the log. If an executor is lost, Spark may run an item again; then
    the first attempt may leave files to which no version refers. A pickled copy is an engine of
    threads, because a session cannot be pickled.

    Parameters
    ----------
    spark
        A session, classic or of Spark Connect.
    tasks
        The maximum number of tasks of a job. Default: the current number of cores of the cluster
        (Spark's `spark.sql.leafNodeDefaultParallelism`). Set it if the number of executors changes.
    local_items
        For at most so many items, threads of this process do the work, because a job usually costs
        more. Set it to 0 if this process has too little memory for one file.
    """

    in_process = False

    def __init__(
        self, spark: SparkSession, *, tasks: int | None = None, local_items: int = 2
    ) -> None:
        for name, value, least in (("tasks", tasks, 1), ("local_items", local_items, 0)):
            if value is not None and (type(value) is not int or value < least):
                raise InvalidInputError(
                    argument=name, reason=f"{value!r} is not a whole number from {least}"
                )
        self._spark = spark
        self._tasks = tasks
        self._local_items = local_items

    @property
    def time_zone(self) -> str:
        """The time zone of the session, in which tables with this engine take predicates."""
        return zone_of(self._spark)

    @property
    def apart_from(self) -> int | None:
        """The number of files from which on executors plan; None without the session's setting.

        Raises
        ------
        InvalidInputError
            The setting `spark.txlog.planFiles` is not a whole number.
        """
        text = self._spark.conf.get(PLAN_FILES, None)
        if not text:
            return None
        try:
            return int(text)
        except ValueError as error:
            raise InvalidInputError(
                argument=PLAN_FILES,
                reason=f"{text!r} is not a whole number",
                remedy="Set it to the number of files from which on executors plan, or to 0 to "
                "plan in this process",
            ) from error

    def __repr__(self) -> str:
        return "txlog.spark_ext.SparkEngine(…)"

    def __reduce__(self) -> tuple[Any, ...]:
        return Threads, ()

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield `function(item)` for each item, in order; an error ends the iteration.

        Raises
        ------
        EngineError
            Spark could not run the work, or lost its workers.
        InvalidInputError
            The function or an item does not pickle.
        Exception
            The error that the function raised, unchanged.
        """
        remaining = iter(items)
        work: bytes | None = None
        while chosen := list(islice(remaining, _JOB_ITEMS)):
            if len(chosen) <= self._local_items:
                yield from Threads().map(function, chosen)
                continue
            work = work or zlib.compress(_pickled(function), 1)
            for answer in self._run(work, [_pickled(item) for item in chosen]):
                yield answer.value()

    def _run(self, work: bytes, items: Sequence[bytes]) -> Iterator[Answer]:
        """Run a job, and yield the answers in order up to the first that is an error."""
        count = len(items)
        tasks = min(self._tasks or count, count)
        tasks_table = pa.table(
            [
                pa.array([place * tasks // count for place in range(count)], pa.int32()),
                pa.array(range(count), pa.int64()),
                pa.array(items, pa.binary()),
            ],
            schema=_ITEMS,
        )
        found = {
            place: result
            for batch in self._collected(tasks_table, tasks, work).to_batches()
            for place, result in zip(batch["place"].to_pylist(), batch["result"], strict=True)
        }
        for place in range(count):
            if place not in found:  # A task ends at its first error, without its other items.
                yield next(a for a in map(unpacked, found.values()) if a.error is not None)
                return
            yield unpacked(found.pop(place))

    def _collected(self, items: pa.Table, tasks: int, work: bytes) -> pa.Table:
        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return run_items(work, batches)

        tag = f"txlog-{REAL.uuid()}"
        self._spark.addTag(tag)
        try:
            frame = self._spark.createDataFrame(items)
            if self._tasks is not None:
                frame = frame.repartitionById(tasks, "task")
            return map_in_arrow(frame, run, _RESULTS_DDL).toArrow()
        except Exception as error:
            # Spark's message has hundreds of lines, so it is not the cause.
            raise engine_error(error) from None
        except BaseException:
            self._spark.interruptTag(tag)
            raise
        finally:
            self._spark.removeTag(tag)


@contextmanager
def of_own_engine(argument: str) -> Iterator[None]:
    """Name the place of a table in errors about its engine, which the caller did not give."""
    try:
        yield
    except InvalidInputError as error:
        if error.argument == "engine":
            error.argument = argument
            error.remedy = "Open it with txlog.Table, or put it where all workers can read it"
        raise


def run_items(work: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the items of a task, up to the first that fails; on an executor.

    Errors are returned as results, because Spark would run a failed task again.
    """
    function = loads(zlib.decompress(work))
    for batch in batches:
        for place, item in zip(batch["place"].to_pylist(), batch["item"].to_pylist(), strict=True):
            answer = answer_of(lambda data: function(loads(data)), item)
            found = pa.array([packed(answer)], pa.binary())
            yield pa.RecordBatch.from_arrays(
                [pa.array([place], pa.int64()), found], schema=_RESULTS
            )
            if answer.error is not None:
                return


def _pickled(value: Any) -> bytes:
    try:
        packed = dumps(value)
    except Exception as error:
        raise InvalidInputError(
            argument="engine",
            reason="the work for executors cannot be pickled: "
            f"{type(error).__name__}: {shortened(str(error))}",
            remedy="Use only functions and values that can be pickled, or omit the engine",
        ) from None
    return packed


_ABORTED = re.compile(r"Job aborted due to stage failure: (.*)")
_CRASHED = re.compile(
    r"Python worker exited unexpectedly|ExecutorLostFailure|executor lost|java\.io\.EOFException"
)
_TOO_LARGE = re.compile(
    r"Total size of serialized results of .*? is bigger than spark\.driver\.maxResultSize[^\n]*"
)
_NO_MODULE = re.compile(r"ModuleNotFoundError: (No module named \S+)")
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)+(\S.*)")


# How Spark shows an error of its own or of SQL. Class 22 of the SQL states is that of data, and
# `raise_error` has P0001.
# Messages have values of rows, and these may have line breaks. A message of Spark ends with its
# state, and a line of the JVM's stack, or the next message, is none of it.
_WRONG_VALUE = re.compile(
    r"\[[A-Z0-9_.]+\] ((?:(?!SQLSTATE: |\n\s+at |\n.*Exception: \[).)*?)"
    r"\s*SQLSTATE: (?:22\w{3}|P0001)",
    re.DOTALL,
)
_NOT_FITTING = "a value of column {} does not fit its type: "
_DOES_NOT_FIT = re.compile(
    _NOT_FITTING.format("(.*?)") + r"(?:(?!\n\s+at ).)*?(?=\s*SQLSTATE: P0001)", re.DOTALL
)
# A message in a traceback ends where the stack of the JVM begins, or a text of Python's or Spark's.
_TOLD = re.compile(
    rf"\b{re.escape(TxlogError.__module__)}\.(\w+): \[[a-z-]+\] "
    r"(.*?)(?=\n\s+at |\n\s*SQLSTATE: |\s*\Z|\n+(?:===|Driver stacktrace|JVM stacktrace|"
    r"Caused by|During handling|The above exception|Traceback \())",
    re.DOTALL,
)
_REMEDY = re.compile(r"\)(?:\. |$)")


def not_fitting(column: str) -> str:
    """Return how the message of Spark's `raise_error` about a value of a column begins."""
    return _NOT_FITTING.format(column)


def engine_error(error: Exception) -> TxlogError:
    """Return one clear error for any error of Spark.

    If txlog raised an error on an executor, or if a value is wrong, the error is that of the same
    fault in this process: its class, argument, field and remedy.
    """
    text = str(error)
    return _told(text) or _wrong_value(text) or _failure(error, text)


def _told(text: str) -> TxlogError | None:
    """Return the error of txlog in the last traceback of a text, or None without one."""
    for found in reversed(list(_TOLD.finditer(text))):
        kind = getattr(sys.modules[TxlogError.__module__], found[1], None)
        if isinstance(kind, type) and issubclass(kind, TxlogError):
            with suppress(TypeError):  # Without its facts: the error has another form.
                return kind(**_parts(kind, found[2]))
    return None


def _parts(kind: type[TxlogError], body: str) -> dict[str, Any]:
    """Return the fields of an error from its message, which has one form, without the code."""
    names = {field.name for field in fields(kind)}
    for begin in re.finditer(r" \((?=\w+=)", body):
        for end in _REMEDY.finditer(body, begin.end()):
            try:
                call = ast.parse(f"f({body[begin.end() : end.start()]})", mode="eval").body
                assert isinstance(call, ast.Call)
                facts = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
            except (SyntaxError, ValueError):
                continue
            if not call.args and facts.keys() <= names:
                reason, remedy = body[: begin.start()], body[end.end() :].rstrip()
                return {"reason": reason, "remedy": remedy, **facts}
    return {"reason": body.rstrip()}


def _wrong_value(text: str) -> TxlogError | None:
    """Return the error for a value that does not fit its column, or that cannot be computed."""
    from txlog.data_files.incoming import CORRECT  # Executors need it for nothing.

    if unfit := _DOES_NOT_FIT.search(text):
        return SchemaMismatchError(
            argument="data", field=unfit[1], reason=shortened(unfit[0]), remedy=CORRECT
        )
    if wrong := _WRONG_VALUE.search(text):
        said = shortened(wrong[1].partition(" If necessary set ")[0]).rstrip(".")
        return InvalidInputError(
            reason=f"Spark cannot compute a value: {said}",
            remedy="Nothing was committed. Correct the value or the expression",
        )
    return None


def _failure(error: Exception, text: str) -> EngineError:
    missing = _NO_MODULE.search(text)
    if missing:
        return EngineError(
            reason=f"executors lack a module: {missing[1]}",
            remedy="Install the driver's version of txlog, and the modules that your functions "
            "import, in the Python of the executors (PYSPARK_PYTHON)",
        )
    if large := _TOO_LARGE.search(text):
        return EngineError(
            reason=f"the results of executors are too large for the driver: {large[0]}",
            remedy="Do less at a time, for example with a predicate that selects fewer files, or "
            "raise spark.driver.maxResultSize",
        )
    if raised := _RAISED.findall(text):
        return EngineError(
            reason=f"Python code on an executor raised {shortened(raised[-1])}",
            remedy="See the logs of Spark's executors for the whole traceback",
        )
    if _CRASHED.search(text):
        return EngineError(
            reason="Spark lost a worker, and its retries failed too",
            remedy="Workers are often killed because memory is short. Give executors more memory "
            "(spark.executor.pyspark.memory, spark.executor.memoryOverhead) or fewer cores, and "
            "try again",
        )
    aborted = _ABORTED.search(text)
    lines = [line.strip() for line in (aborted[1] if aborted else text).splitlines()]
    message = next((line for line in lines if line and not line.startswith("An error occ")), "")
    return EngineError(
        reason=f"Spark says {type(error).__name__}: {shortened(message)}",
        remedy="See the logs of Spark's executors, and try again",
    )


def is_on(spark: SparkSession, setting: str) -> bool:
    """Return whether a setting is true. As in Spark, case and surrounding spaces do not matter."""
    return (spark.conf.get(setting, "false") or "").strip().lower() == "true"


def map_in_arrow(frame: DataFrame, function: Any, schema: StructType | str) -> DataFrame:
    """Return `frame.mapInArrow(function, schema)`, without PySpark's warning about pandas."""
    from txlog.spark_ext.sessions import quiet_about_pandas

    with quiet_about_pandas():
        return frame.mapInArrow(function, schema)


@contextmanager
def before_commit() -> Iterator[None]:
    """Turn the failure of a Spark job before the commit into a `TxlogError`: see `engine_error`.

    An `AnalysisException`, which Spark raises before it runs a job, is not changed.
    """
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException:
        raise
    except Exception as error:
        failed = engine_error(error)
        if not isinstance(failed, EngineError):  # Spark's message only repeats it.
            raise failed from None
        failed.remedy = f"Nothing was committed. {failed.remedy}"
        raise failed from error


@contextmanager
def format_known() -> Iterator[None]:
    """Raise an `EngineError` with a remedy if Spark does not know the format `txlog`."""
    try:
        yield
    except Exception as error:
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        raise EngineError(
            reason="Spark does not know the format txlog: the Python that Spark starts cannot "
            "import txlog, or no session is active in this thread",
            remedy="Set PYSPARK_PYTHON to an interpreter that has txlog before the session "
            "starts, or call txlog.spark_ext.register(spark) in this thread",
        ) from error
