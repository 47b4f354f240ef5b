"""An engine that runs functions on Spark's executors, through public API: classic and Connect."""

from __future__ import annotations

import re
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark import cloudpickle

from txlog.base.effects import REAL
from txlog.base.errors import EngineError, InvalidInputError, TxlogError, TxlogWarning, warn_caller
from txlog.base.threads import Threads
from txlog.base.thresholds import Threshold
from txlog.spark_ext.zones import zone_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_dumps: Callable[[Any], bytes] = cloudpickle.dumps
_loads: Callable[[Any], Any] = cloudpickle.loads

Item = TypeVar("Item")
Result = TypeVar("Result")

_ITEMS = pa.schema([("task", pa.int32()), ("place", pa.int64()), ("item", pa.binary())])
_RESULTS = pa.schema([("place", pa.int64()), ("result", pa.binary())])
_RESULTS_DDL = "place long, result binary"
_JOB_ITEMS: Threshold = 10_000  # Of so many tasks the items and results are in memory at a time.
_SHOWN = 300  # The maximum number of characters of Spark's message.


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

    def _run(self, work: bytes, items: Sequence[bytes]) -> Iterator[_Answer]:
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


@dataclass(frozen=True)
class _Answer:
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


def run_items(work: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the items of a task, up to the first that fails; on an executor.

    Errors are returned as results, because Spark would run a failed task again.
    """
    function = _loads(zlib.decompress(work))
    for batch in batches:
        for place, item in zip(batch["place"].to_pylist(), batch["item"].to_pylist(), strict=True):
            answer = _answer(lambda data: function(_loads(data)), item)
            packed = pa.array([_packed(answer)], pa.binary())
            yield pa.RecordBatch.from_arrays(
                [pa.array([place], pa.int64()), packed], schema=_RESULTS
            )
            if answer.error is not None:
                return


def answered(function: Callable[[Item], Any], item: Item) -> bytes:
    """Return the pickled result or error of an item, with its warnings; on an executor."""
    return _packed(_answer(function, item))


def _answer(function: Callable[[Item], Any], item: Item) -> _Answer:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TxlogWarning)
        try:
            answer = _Answer(function(item))
        except TxlogError as error:
            answer = _Answer(error=error)
        except Exception as error:
            answer = _Answer(error=error, trace=traceback.format_exc(limit=-2))
    warnings_ = [str(one.message) for one in caught if issubclass(one.category, TxlogWarning)]
    return _Answer(answer.result, answer.error, answer.trace, tuple(warnings_))


def _packed(answer: _Answer) -> bytes:
    """Return a pickled answer; if it cannot be pickled, return a pickled error that says so."""
    try:
        packed = _dumps(answer)
        if answer.error is not None or isinstance(answer.result, Exception):
            _loads(packed)  # The pickle of an exception may fail to load.
    except Exception:
        failed = answer.error if answer.error is not None else answer.result
        error = EngineError(
            reason=f"a {type(failed).__name__} cannot be pickled: {_shortened(str(failed))}"
            if isinstance(failed, Exception)
            else f"a result ({type(failed).__name__}) cannot be pickled",
            remedy="Return and raise only values that can be pickled",
        )
        caught = isinstance(answer.result, Exception)
        packed = _dumps(
            _Answer(
                error if caught else None,
                None if caught else error,
                answer.trace,
                answer.warnings,
            )
        )
    return packed


def unpacked(result: pa.BinaryScalar) -> _Answer:
    """Return the answer of an item; its `value()` raises the error or returns the result."""
    answer: _Answer = _loads(result.as_buffer())
    return answer


def _pickled(value: Any) -> bytes:
    try:
        packed = _dumps(value)
    except Exception as error:
        raise InvalidInputError(
            argument="engine",
            reason="the work for executors cannot be pickled: "
            f"{type(error).__name__}: {_shortened(str(error))}",
            remedy="Use only functions and values that can be pickled, or omit the engine",
        ) from None
    return packed


_ABORTED = re.compile(r"Job aborted due to stage failure: (.*)")
_CRASHED = re.compile(
    r"Python worker exited unexpectedly|ExecutorLostFailure|executor lost|java\.io\.EOFException"
)
_NO_MODULE = re.compile(r"ModuleNotFoundError: (No module named \S+)")
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)+(\S.*)")


def engine_error(error: Exception) -> EngineError:
    """Return one clear error for any error of Spark."""
    text = str(error)
    missing = _NO_MODULE.search(text)
    if missing:
        return EngineError(
            reason=f"executors lack a module: {missing[1]}",
            remedy="Install the driver's version of txlog, and the modules that your functions "
            "import, in the Python of the executors (PYSPARK_PYTHON)",
        )
    if raised := _RAISED.findall(text):
        return EngineError(
            reason=f"Python code on an executor raised {_shortened(raised[-1])}",
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
        reason=f"Spark says {type(error).__name__}: {_shortened(message)}",
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
    """Turn the failure of a Spark job before the commit into an `EngineError`.

    An `AnalysisException`, which Spark raises before it runs a job, is not changed.
    """
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException:
        raise
    except Exception as error:
        failed = engine_error(error)
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


def _shortened(text: str) -> str:
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "…"
