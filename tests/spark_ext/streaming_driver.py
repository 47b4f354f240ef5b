"""A streaming query that dies at a given place: in txlog's sink, or in `foreachBatch`.

As a program it is a driver of its own, which dies as a whole: the program, the JVM, all Python
workers. Its argument is a `Run` as JSON. Tests that hand `CrashingSource` to their own session let
only the Python process die that has come to the point.
"""

import json
import os
import signal
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

import txlog.spark_ext
from txlog.base.errors import OutcomeUnknownError, StoreError
from txlog.spark_ext.source.options import Options
from txlog.spark_ext.source.source import TxlogDataSource
from txlog.spark_ext.source.writer import StreamWriter, stream_writer
from txlog.spark_ext.writes import write_frame
from txlog.spark_ext.writes.write_tasks import task_property
from txlog.store.base import BasicStore
from txlog.store.open import open_store

SETTINGS = {
    "spark__master": "local[2]",
    "spark__driver__memory": "1g",
    "spark__ui__enabled": "false",
    "spark__ui__showConsoleProgress": "false",
    "spark__log__level": "OFF",
    "spark__driver__bindAddress": "127.0.0.1",
    "spark__driver__host": "127.0.0.1",
    "spark__driver__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

BEFORE_TASK = "before a task writes"
HALF_WRITTEN = "in a task, its files half written"
AFTER_TASK = "after a task wrote"
BEFORE_PUT = "before the put of our commit"
IN_PUT = "in the put, its bytes not yet linked"
AFTER_PUT = "after the put, before the checkpoint"
IN_CHECKPOINT = "in the middle of our checkpoint"
BEFORE_HINT = "after the checkpoint, before the hint"
AFTER_COMMIT = "after our commit, before Spark's"
LATE_ERROR = "our commit raises after the put"
LOST_ANSWER = "the put's answer is lost"
UNREADABLE = "the put's answer is lost, the log unreadable"

BEFORE_WRITE = "in the function, before its write"
UNMARKED = "after the function, before Spark's commit"

OF_CHECKPOINTS = (IN_CHECKPOINT, BEFORE_HINT)
POINTS = (
    *(BEFORE_TASK, HALF_WRITTEN, AFTER_TASK, BEFORE_PUT, IN_PUT, AFTER_PUT, *OF_CHECKPOINTS),
    *(AFTER_COMMIT, LATE_ERROR, LOST_ANSWER, UNREADABLE),
)
FUNCTION_POINTS = (AFTER_COMMIT, BEFORE_WRITE, HALF_WRITTEN, IN_PUT, AFTER_PUT, UNMARKED)

# The batch is not in the table when the query is gone.
MISSING = {BEFORE_TASK, HALF_WRITTEN, AFTER_TASK, BEFORE_PUT, IN_PUT, BEFORE_WRITE}
SURVIVED = {LOST_ANSWER}  # The query goes on.
# Nobody dies, but Spark calls `abort`, and says this.
ABORTED = {LATE_ERROR: "raised after the put", UNREADABLE: "could not be read back"}

INTERVAL = {"delta.checkpointInterval": "1"}


@dataclass(frozen=True)
class Run:
    """A run of the query, and where it is to end."""

    table: str
    checkpoint: str
    source: str  # A folder of Parquet files.
    trigger: str  # availableNow or processingTime
    point: str = ""  # One of POINTS or FUNCTION_POINTS, or none.
    batch: int = 0  # From which on the point counts.
    name: str = ""  # Of the application.
    function: bool = False  # Whether a function of foreachBatch writes, or our sink.
    notes: str = ""  # A folder, where it is noted what has happened.
    whole: bool = True  # Whether the driver dies, or only the process at the point.


@dataclass
class Crash:
    """Ends the process, or the whole session of processes, at a point; once."""

    run: Run
    batch: int = -1

    def due(self, point: str) -> bool:
        """Tell whether this is the point, and note that it was reached."""
        note = Path(self.run.notes) / f"{self.run.batch}-struck"
        if point != self.run.point or self.batch < self.run.batch or note.exists():
            return False
        note.write_text(point)
        return True

    def at(self, point: str) -> None:
        if self.due(point):
            die(whole=self.run.whole)


def die(*, whole: bool) -> None:
    """Kill this process, and with `whole` all of its session before: nobody can clean up."""
    if whole:
        mine = os.getsid(0)
        for stat in Path("/proc").glob("[0-9]*/stat"):
            pid = int(stat.parent.name)
            try:
                session = int(stat.read_text().rpartition(")")[2].split()[3])
                if session == mine and pid != os.getpid():
                    os.kill(pid, signal.SIGKILL)
            except OSError:
                continue  # It has ended by itself.
    os.kill(os.getpid(), signal.SIGKILL)


class CrashingStore(BasicStore):
    """A store around another one, with the points between the bytes of a commit."""

    def __init__(self, inner: Any, crash: Crash) -> None:
        self.inner = inner
        self.crash = crash
        self.deaf = False

    def __reduce__(self) -> Any:
        return type(self), (self.inner, self.crash)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def read(self, path: str) -> bytes:
        if self.deaf:
            raise StoreError(operation="read", path=path, reason="the store is away")
        return self.inner.read(path)

    def put_if_absent(self, path: str, data: bytes) -> Any:
        self.crash.at(BEFORE_PUT)
        if self.crash.due(IN_PUT):
            os.link = self._die
        answer = self.inner.put_if_absent(path, data)
        self.crash.at(AFTER_PUT)
        if self.crash.due(LOST_ANSWER):
            raise OutcomeUnknownError(path=path)
        if self.crash.due(UNREADABLE):
            self.deaf = True
            raise OutcomeUnknownError(path=path)
        return answer

    def _die(self, *arguments: Any, **more: Any) -> None:
        die(whole=self.crash.run.whole)

    def replace(self, path: str, data: bytes) -> None:
        if path.endswith("_last_checkpoint"):
            self.crash.at(BEFORE_HINT)
        elif self.crash.due(IN_CHECKPOINT):
            Path(self.inner.resolve(path) + ".tmp").write_bytes(data[: len(data) // 2])
            die(whole=self.crash.run.whole)
        self.inner.replace(path, data)


class CrashingWriter(StreamWriter):
    def __init__(self, writer: StreamWriter, run: Run) -> None:
        self.crash = Crash(run)
        store = CrashingStore(writer.target.store, self.crash)
        super().__init__(replace(writer.target, store=store), writer._app_id)

    def write(self, iterator: Any) -> Any:
        self.crash.batch = int(task_property("streaming.sql.batchId") or -1)
        self.crash.at(BEFORE_TASK)

        def batches() -> Any:
            yield from iterator
            self.crash.at(HALF_WRITTEN)

        written = super().write(batches())
        self.crash.at(AFTER_TASK)
        return written

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        self.crash.batch = self.target.store.crash.batch = batchId
        super().commit(messages, batchId)
        self.crash.at(AFTER_COMMIT)
        if self.crash.due(LATE_ERROR):
            raise RuntimeError("raised after the put")

    def abort(self, messages: Any, batchId: int) -> None:  # noqa: N803
        files = sum(len(held.adds) for held in messages if held is not None)
        (Path(self.crash.run.notes) / f"{batchId}-aborted").write_text(str(files))
        super().abort(messages, batchId)


class CrashingSource(TxlogDataSource):
    @classmethod
    def name(cls) -> str:
        return "crashing-txlog"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        options = Options(self.options)
        run = Run(**json.loads(options.text("run") or ""))
        return CrashingWriter(stream_writer(options, schema, overwrite), run)


def to_table(run: Run) -> Callable[[DataFrame, int], None]:
    """Return a function for foreachBatch, with points in its write and around it."""

    def load(df: DataFrame, batch_id: int) -> None:
        crash = Crash(run, batch_id)

        def batches(given: Any) -> Any:
            yield from given
            crash.at(HALF_WRITTEN)

        def opened(uri: str, options: Any) -> Any:
            return CrashingStore(open_store(uri, options), crash)

        crash.at(BEFORE_WRITE)
        rows, txn = df.mapInArrow(batches, df.schema), (run.name, batch_id)
        with mock.patch.object(write_frame, "open_store", opened):
            write_frame.write(rows, run.table, txn=txn, properties=INTERVAL)
        crash.at(AFTER_COMMIT)

    return load


def to_sink(run: Run) -> dict[str, str]:
    """Return the options of the sink."""
    named = {"txnAppId": run.name} if run.name else {}
    return {"tableProperties": json.dumps(INTERVAL), "run": json.dumps(asdict(run)), **named}


def stream(spark: SparkSession, run: Run) -> DataStreamWriter:
    """Return the query but for what takes its rows."""
    triggers: dict[str, Any] = {
        "availableNow": {"availableNow": True},
        "processingTime": {"processingTime": "0 seconds"},
    }
    return (
        spark.readStream.schema("id LONG")
        .option("maxFilesPerTrigger", 2)
        .parquet(run.source)
        .writeStream.option("checkpointLocation", run.checkpoint)
        .trigger(**triggers[run.trigger])
    )


def start(spark: SparkSession, run: Run) -> StreamingQuery:
    if run.function:
        return stream(spark, run).foreachBatch(to_table(run)).start()
    return stream(spark, run).format("crashing-txlog").options(**to_sink(run)).start(run.table)


def run_to_end(spark: SparkSession, run: Run) -> bool:
    """Run the query until its source is used up; return whether it got there."""
    query = start(spark, run)
    wait: Callable[[], Any] = query.processAllAvailable
    if run.trigger == "availableNow":
        wait = query.awaitTermination
    try:
        wait()
    except StreamingQueryException as error:
        (Path(run.notes) / f"{run.batch}-error").write_text(str(error))
        return False
    finally:
        query.stop()
    return True


def unmark(run: Run) -> None:
    """Leave behind what a crash does just before Spark marks the batch as done."""
    for name in (f"{run.batch}", f".{run.batch}.crc"):
        (Path(run.checkpoint) / "commits" / name).unlink()


def main(run: Run) -> bool:
    spark = txlog.spark_ext.session("txlog streaming test", **SETTINGS)
    spark.dataSource.register(CrashingSource)
    ended = run_to_end(spark, run)
    if Crash(run, run.batch).due(UNMARKED):
        unmark(run)
        die(whole=True)
    spark.stop()
    return ended


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(0 if main(Run(**json.loads(sys.argv[1]))) else 3)
