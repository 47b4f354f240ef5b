"""A streaming driver, run as a process of its own so that it can die.

Arguments: the table, the checkpoint folder, how many batches to run, and the batch after whose
commit (in the table, not yet in Spark's log) the driver is killed; -1 for never.
"""

import os
import signal
import sys
import threading
import warnings

from pyspark.sql.streaming import StreamingQueryListener

import txlog.spark_ext
from txlog.spark_ext.options import Options
from txlog.spark_ext.source import TxlogDataSource
from txlog.spark_ext.writer import StreamWriter, stream_writer

SETTINGS = {
    "spark__master": "local[2]",
    "spark__ui__enabled": "false",
    "spark__ui__showConsoleProgress": "false",
    "spark__log__level": "OFF",
    "spark__driver__bindAddress": "127.0.0.1",
    "spark__driver__host": "127.0.0.1",
    "spark__driver__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class DyingWriter(StreamWriter):
    def commit(self, messages, batchId):  # noqa: N803
        super().commit(messages, batchId)
        options = self._target.options
        if batchId == options.number("killAfter"):
            for process in options.names("driver"):  # Spark's JVM, and the program itself.
                os.kill(int(process), signal.SIGKILL)
            threading.Event().wait()  # This process goes down with the driver.


class DyingSource(TxlogDataSource):
    @classmethod
    def name(cls) -> str:
        return "dying-txlog"

    def streamWriter(self, schema, overwrite):  # noqa: N802
        return DyingWriter(plan_spark_write(Options(self.options), schema, overwrite))


class Stopper(StreamingQueryListener):
    """Tells when the last batch is in Spark's own log."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.reached = threading.Event()

    def onQueryStarted(self, event):  # noqa: N802
        pass

    def onQueryProgress(self, event):  # noqa: N802
        if event.progress.batchId >= self.last:
            self.reached.set()

    def onQueryTerminated(self, event):  # noqa: N802
        self.reached.set()


def main(table: str, checkpoint: str, batches: int, kill_after: int) -> None:
    spark = txlog.spark_ext.session("txlog streaming test", **SETTINGS)
    spark.dataSource.register(DyingSource)
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    stopper = Stopper(batches - 1)
    spark.streams.addListener(stopper)
    query = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 100)
        .option("numPartitions", 2)
        .load()
        .writeStream.format("dying-txlog")
        .option("checkpointLocation", checkpoint)
        .option("killAfter", str(kill_after))
        .option("driver", f"{jvm},{os.getpid()}")
        .start(table)
    )
    stopper.reached.wait(120)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
