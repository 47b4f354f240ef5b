"""A cluster of two hosts, and a driver whose tasks run twice at a time, or lose their executor.

Spark runs no speculative attempt on the host of the first one, so `local-cluster` has none: this is
a standalone cluster, of whose two workers each has a loopback address of its own. Its programs are
in the package from PyPI.

Its argument is a folder: tables go there, and to `notes` which attempts of which tasks began.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from streaming_driver import SETTINGS

import txlog.spark_ext
from txlog.spark_ext.sessions import ensure_java

HOSTS = ("127.0.0.1", "127.0.0.2")
TASKS, ROWS = 4, 200_000
FILE_ROWS = 5_000  # So a task has closed files while it waits for its last rows.
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PATIENCE_S = 120.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind((HOSTS[0], 0))
        return int(free.getsockname()[1])


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.05)


def answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex((HOSTS[0], port)) == 0


@contextmanager
def program(folder: Path, *arguments: str) -> Iterator[None]:
    """Run one of Spark's programs, and end it with all that it has started."""
    home = Path(pyspark.__file__).parent
    with (
        (folder / "cluster.log").open("ab") as said,
        subprocess.Popen(
            [home / "bin" / "spark-class", *arguments],
            env={
                **os.environ, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": LIGHT,
            },
            stdout=said, stderr=said, start_new_session=True,
        ) as process,
    ):  # fmt: skip
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Run a master, and a worker of one core on each host; yield the master's URL."""
    ensure_java()
    port = free_port()
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        stack.enter_context(
            program(
                folder, f"{deploy}.master.Master",
                "--host", HOSTS[0], "--port", str(port), "--webui-port", "0",
            )
        )  # fmt: skip
        wait_for(lambda: answers(port))
        for host in HOSTS:
            stack.enter_context(
                program(
                    folder, f"{deploy}.worker.Worker", "--host", host, "--webui-port", "0",
                    "--cores", "1", "--memory", "1g", "--work-dir", str(folder / host),
                    f"spark://{HOSTS[0]}:{port}",
                )
            )  # fmt: skip
        yield f"spark://{HOSTS[0]}:{port}"


def note(notes: Path, name: str, task: int, attempt: int) -> Path:
    return notes / f"{name}-{task}-{attempt}"


def slow_copy(began: Callable[[int], bool], attempt: int) -> None:
    """The first attempt waits for the second one, which then is in no hurry."""
    if attempt == 0:
        wait_for(lambda: began(1))
    else:
        time.sleep(PATIENCE_S)


def slow_first(began: Callable[[int], bool], attempt: int) -> None:
    if attempt == 0:
        time.sleep(PATIENCE_S)


def abreast(began: Callable[[int], bool], attempt: int) -> None:
    """Both end at about the same time."""
    wait_for(lambda: began(1 - attempt))


def executor_dies(began: Callable[[int], bool], attempt: int) -> None:
    """The JVM that started this worker's daemon is gone at once.

    It happens to the first attempt that begins: after an executor's death in the job before, Spark
    may give the attempt 0 to it, which then never begins.
    """
    if not any(map(began, range(attempt))):
        stat = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)


FATES = {
    "slow copy": slow_copy,
    "slow first": slow_first,
    "abreast": abreast,
    "executor dies": executor_dies,
}
FATED = 0  # The task that it happens to.


def struck(frame: DataFrame, name: str, notes: Path) -> DataFrame:
    """Let an attempt meet its fate when it has handed over all its rows."""
    fate = FATES[name.partition(",")[0]]

    def batches(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task, attempt = context.partitionId(), context.attemptNumber()
        note(notes, name, task, attempt).touch()
        yield from given
        if task == FATED:
            fate(lambda other: note(notes, name, task, other).exists(), attempt)

    return frame.mapInArrow(batches, frame.schema)


def by_format(frame: DataFrame, path: str) -> None:
    written = frame.write.format("txlog").mode("append")
    written.option("maxRecordsPerFile", FILE_ROWS).save(path)


def by_function(frame: DataFrame, path: str) -> None:
    txlog.spark_ext.write(frame, path, options=txlog.WriteOptions(max_rows_per_file=FILE_ROWS))


WAYS = {"format": by_format, "function": by_function}


def write_all(spark: SparkSession, folder: Path) -> None:
    rows = spark.range(0, ROWS, 1, TASKS)
    for fate in FATES:
        for way, write in WAYS.items():
            name = f"{fate}, {way}"
            write(struck(rows, name, folder / "notes"), str(folder / name))


def main(folder: Path) -> None:
    (folder / "notes").mkdir()
    with cluster(folder) as master:
        settings = {
            **SETTINGS,
            "spark__master": master,
            "spark__executor__memory": "512m",
            "spark__executor__extraJavaOptions": LIGHT,
            "spark__speculation": "true",
            "spark__speculation__interval": "100ms",
            "spark__speculation__quantile": "0.5",
            "spark__speculation__multiplier": "1.1",
            "spark__speculation__minTaskRuntime": "100ms",
        }
        spark = txlog.spark_ext.session("txlog cluster test", **settings)
        write_all(spark, folder)
        spark.stop()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
