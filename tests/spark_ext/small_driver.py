"""A driver with little memory, in a separate process: it deletes rows of a large table.

Arguments: the table, the predicate, `spark` or `threads`, and how many bytes more this process may
use than it does when Spark has started. The limit is on the data of this Python process
(RLIMIT_DATA); the JVM and Spark's Python workers were started before it, and have none.
"""

import resource
import sys
import threading
import warnings

import pyarrow as pa

import txlog
import txlog.spark_ext

SETTINGS = {
    "spark__master": "local[2]",
    "spark__ui__enabled": "false",
    "spark__ui__showConsoleProgress": "false",
    "spark__log__level": "OFF",
    "spark__driver__memory": "1g",
    "spark__driver__bindAddress": "127.0.0.1",
    "spark__driver__host": "127.0.0.1",
    "spark__driver__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def data_bytes() -> int:
    """Return what the kernel holds against RLIMIT_DATA."""
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123
        (line,) = (line for line in status if line.startswith("VmData:"))
    return int(line.split()[1]) * 1024


def main(path: str, where: str, kind: str, more: int) -> None:
    spark = txlog.spark_ext.session("txlog small driver", **SETTINGS)
    # Two groups of files are rewritten: so few would be done here.
    warm = txlog.spark_ext.SparkEngine(spark, local_items=0)
    assert list(warm.map(abs, range(4))) == [0, 1, 2, 3]
    # Whatever is loaded lazily, is loaded now, and threads are started that take their stacks.
    threading.stack_size(1024 * 1024)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    little = txlog.write(
        "memory://little",
        pa.table({"noise": ["8", "7"] * 4}),
        options=txlog.WriteOptions(max_rows_per_file=2),
    )
    little.delete(where)
    held = txlog.Table(path, engine=warm if kind == "spark" else None)
    assert held.count("x < 0") == 0
    limit = data_bytes() + more
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        print("deleted", held.delete(where).metrics["numDeletedRows"])
    except MemoryError:
        print("no memory")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
