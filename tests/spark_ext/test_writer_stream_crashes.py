"""Streams into a table, exactly once, with queries that die at every point between two logs."""

import json
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import streaming_driver as driver
from commit_text import transactions
from own_driver import run_driver
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from streaming_driver import ABORTED, FUNCTION_POINTS, MISSING, POINTS, SURVIVED, Run

import txlog
from txlog.spark_ext import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# Workers cannot import what is beside the tests.
cloudpickle.register_pickle_by_value(driver)

ROWS = 50  # Of a file; a batch takes two files, each in a task of its own.


def last_number(folder: Path, suffix: str = "") -> int:
    return max((int(path.stem) for path in folder.glob(f"*[0-9]{suffix}")), default=-1)


@dataclass(frozen=True)
class Found:
    """A line of the matrix: what a crash left behind, and what the next run made of it."""

    point: str
    trigger: str
    batch: int
    spark_log: int  # The last batch there, when the query was gone.
    table: int  # The same of the table's log.
    rows_after: int
    lost: int
    doubled: int

    def __str__(self) -> str:
        return (
            f"| {self.point} | {self.trigger} | {self.batch} | {self.spark_log} | {self.table} "
            f"| {self.rows_after} | {self.lost} | {self.doubled} |"
        )


HEAD = """
| point | trigger | batch | last in Spark's log | in ours | rows after next run | lost | doubled |
|---|---|---|---|---|---|---|---|"""


class Chain:
    """One query, one run after another: each recovers from the crash before, and has its own.

    Every run gets the files of one more batch, and the point counts from that batch on. The runs
    take the names of the application in turn.
    """

    def __init__(
        self,
        folder: Path,
        start: Callable[[Run], object],
        *,
        trigger: str = "availableNow",
        names: Sequence[str] = ("",),
        function: bool = False,
    ) -> None:
        self.table, self.checkpoint, self.notes = folder / "t", folder / "c", folder / "notes"
        self.source = folder / "in"
        for made in (self.source, self.notes):
            made.mkdir()
        self.run = Run(
            table=str(self.table),
            checkpoint=str(self.checkpoint),
            source=str(self.source),
            trigger=trigger,
            notes=str(self.notes),
            function=function,
        )
        self.start = start
        self.names = cycle(names)
        self.sent: list[int] = []
        self.batch = -1
        self.recorded: list[dict[str, int]] = []  # What each version is to say of applications.
        self.matrix: list[Found] = []

    def go(self, points: Iterable[str]) -> None:
        """Run to every point in turn, and at last to the end."""
        before: Found | None = None
        for point in [*points, ""]:
            self.once(point)
            found = self.look(point)
            if before is not None:
                self.matrix.append(replace(before, rows_after=found.rows_after))
            before = found

    def once(self, point: str) -> None:
        for _ in range(2):
            ids = list(range(len(self.sent), len(self.sent) + ROWS))
            pq.write_table(pa.table({"id": ids}), self.source / f"{ids[0]:06}.parquet")
            self.sent += ids
        self.batch += 1
        self.run = replace(self.run, point=point, batch=self.batch, name=next(self.names))
        self.start(self.run)

    def expected(self, version: int) -> dict[str, int]:
        """Return what a version says of applications if this run has made it."""
        query, name = json.loads((self.checkpoint / "metadata").read_text())["id"], self.run.name
        app_ids = [name, f"{name}@{query}"] if name else []
        return dict.fromkeys(app_ids if self.run.function else [*app_ids, query], version)

    def look(self, point: str) -> Found:
        """Compare both logs, and the rows, with what was sent and where the run has ended.

        What the run before has left behind is settled by now.
        """
        landed = self.batch - (point in MISSING)
        self.recorded += map(self.expected, range(len(self.recorded), landed + 1))
        ids: list[int] = []
        if landed >= 0:
            table = txlog.Table(self.table)
            ids = table.to_arrow()["id"].to_pylist()
            # Every batch is one version, whether Spark ran it once or twice.
            assert table.version == landed
            counts = [entry["operationMetrics"]["numOutputRows"] for entry in table.history()]
            assert counts == [str(2 * ROWS)] * (landed + 1)
        last = last_number(self.table / "_delta_log", ".json")
        texts = [transactions(self.table, version) for version in range(last + 1)]
        assert texts == self.recorded
        sent = set(self.sent[: (landed + 1) * 2 * ROWS])
        found = Found(
            point,
            self.run.trigger,
            self.batch,
            last_number(self.checkpoint / "commits"),
            max((max(said.values()) for said in texts), default=-1),
            rows_after=len(ids),
            lost=len(sent - set(ids)),
            doubled=len(ids) - len(set(ids)),
        )
        assert (found.table, found.lost, found.doubled) == (landed, 0, 0), found
        assert set(ids) == sent
        assert found.spark_log == self.batch - (point not in SURVIVED | {""}), found
        if point:
            assert (self.notes / f"{self.batch}-struck").read_text() == point
        if point in ABORTED:
            assert int((self.notes / f"{self.batch}-aborted").read_text()) == 2
            assert ABORTED[point] in (self.notes / f"{self.batch}-error").read_text()
        return found


def in_own_process(run: Run) -> None:
    """Run the query as a driver of its own."""
    returns = -signal.SIGKILL if run.point else 0
    if run.point in SURVIVED:
        returns = 0
    elif run.point in ABORTED:
        returns = 3
    run_driver("streaming_driver.py", json.dumps(asdict(run)), returns=returns)


def in_session(spark: "SparkSession") -> Callable[[Run], None]:
    """Run the query in a session that stays: only the process at the point dies."""
    spark.createDataFrame([(1,)], "id int")  # Spark looks for sources in the active session.
    spark.dataSource.register(driver.CrashingSource)

    def start(run: Run) -> None:
        ended = driver.run_to_end(spark, replace(run, whole=False))
        assert ended == (not run.point or run.point in SURVIVED)

    return start


def report(chain: Chain) -> None:
    """Show the matrix (pytest -s), and leave it beside the table."""
    text = "\n".join([HEAD, *map(str, chain.matrix)])
    print(text)
    (chain.notes / "matrix.md").write_text(text + "\n")


@pytest.mark.slow
@pytest.mark.spec("STR-40", "STR-44")
def test_a_process_that_dies_loses_and_doubles_nothing(
    spark: "SparkSession", tmp_path: Path
) -> None:
    chain = Chain(tmp_path, in_session(spark))
    chain.go([driver.AFTER_TASK, driver.IN_CHECKPOINT, driver.LATE_ERROR])
    report(chain)


@pytest.mark.exhaustive
@pytest.mark.spec("STR-40", "STR-44")
@pytest.mark.parametrize("dies", ["process", "driver"])
@pytest.mark.parametrize("trigger", ["availableNow", "processingTime"])
def test_a_query_may_die_at_every_point(
    request: pytest.FixtureRequest, tmp_path: Path, dies: str, trigger: str
) -> None:
    start = in_own_process
    if dies == "process":
        start = in_session(request.getfixturevalue("spark"))
    chain = Chain(tmp_path, start, trigger=trigger)
    chain.go(POINTS)
    report(chain)


FAST = {driver.AFTER_PUT, driver.LOST_ANSWER}


@pytest.mark.slow
@pytest.mark.spec("STR-40", "STR-44")
@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=[] if point in FAST else pytest.mark.exhaustive)
        for point in POINTS
        if point not in driver.OF_CHECKPOINTS  # Version 0 gets none.
    ],
)
def test_a_query_may_die_in_the_batch_that_makes_the_table(
    spark: "SparkSession", tmp_path: Path, point: str
) -> None:
    chain = Chain(tmp_path, in_session(spark))
    chain.go([point])
    report(chain)


@pytest.mark.exhaustive
@pytest.mark.spec("STR-40", "STR-41")
@pytest.mark.parametrize("names", [["ingest"], ["", "ingest", "again"]], ids=["fixed", "changing"])
def test_a_query_with_a_name_may_die_at_every_point(
    spark: "SparkSession", tmp_path: Path, names: list[str]
) -> None:
    chain = Chain(tmp_path, in_session(spark), names=names)
    chain.go(reversed(POINTS))  # So that the first version lands, and its process dies.
    report(chain)


@pytest.mark.exhaustive
@pytest.mark.spec("STR-45", "STR-49")
def test_a_driver_may_die_around_a_write_of_foreach_batch(tmp_path: Path) -> None:
    chain = Chain(tmp_path, in_own_process, names=["ingest"], function=True)
    chain.go(FUNCTION_POINTS)
    report(chain)


@pytest.mark.slow
@pytest.mark.spec("STR-45", "STR-49")
def test_a_function_that_raises_between_two_writes_goes_on_with_the_second(
    spark: "SparkSession", tmp_path: Path
) -> None:
    seen: list[tuple[str, int, bool]] = []

    def start(run: Run) -> None:
        driver.stream(spark, run).foreachBatch(load).start().awaitTermination()

    def load(df: "DataFrame", batch_id: int) -> None:
        for name in ("one", "two"):
            seen.append((name, batch_id, write(df, chain.table, txn=(name, batch_id)).skipped))
            if len(seen) == 1:
                raise RuntimeError("between the two")

    chain = Chain(tmp_path, start)
    with pytest.raises(StreamingQueryException, match="between the two"):
        chain.once("")
    chain.once("")
    assert seen == [
        *[("one", 0, False), ("one", 0, True), ("two", 0, False)],
        *[("one", 1, False), ("two", 1, False)],
    ]
    assert sorted(txlog.Table(chain.table).to_arrow()["id"].to_pylist()) == sorted(2 * chain.sent)
