"""The streaming sink, exactly once: a query that dies at every point between two logs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import streaming_driver as driver
from pyspark import cloudpickle
from streaming_driver import ABORTED, POINTS, SURVIVED, Run

import txlog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# Workers cannot import what is beside the tests.
cloudpickle.register_pickle_by_value(driver)

ROWS = 50  # Of a file; a batch takes two files, each in a task of its own.


def last_number(folder: Path) -> int:
    return max((int(path.name) for path in folder.glob("*[0-9]")), default=-1)


def recorded(path: Path, app_id: str) -> int:
    """Return the last batch that is in the table, from the text of its log: -1 for none."""
    found = -1
    for commit in sorted((path / "_delta_log").glob("*[0-9].json")):
        for line in commit.read_text().splitlines():
            txn = json.loads(line).get("txn", {})
            found = max(found, txn["version"]) if txn.get("appId") == app_id else found
    return found


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

    Every run gets the files of one more batch, and the point counts from that batch on.
    """

    def __init__(self, folder: Path, trigger: str, start: Callable[[Run], object]) -> None:
        for name in ("in", "notes"):
            (folder / name).mkdir()
        self.run = Run(
            table=str(folder / "t"),
            checkpoint=str(folder / "c"),
            source=str(folder / "in"),
            trigger=trigger,
            notes=str(folder / "notes"),
        )
        self.table, self.checkpoint, self.notes = folder / "t", folder / "c", folder / "notes"
        self.start = start
        self.sent: list[int] = []
        self.batches = 0
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
            pq.write_table(pa.table({"id": ids}), Path(self.run.source) / f"{ids[0]:06}.parquet")
            self.sent += ids
        self.start(replace(self.run, point=point, batch=self.batches))
        self.batches += 1

    @property
    def app_id(self) -> str:
        return json.loads((self.checkpoint / "metadata").read_text())["id"]

    def look(self, point: str) -> Found:
        """Compare both logs, and the rows, with what was sent and where the run has ended.

        What the run before has left behind is settled by now.
        """
        batch = self.batches - 1
        landed = batch if POINTS.get(point, True) else batch - 1
        ids: list[int] = []
        if landed >= 0:
            table = txlog.Table(self.table)
            ids = table.to_arrow()["id"].to_pylist()
            # Every batch is one version, whether Spark ran it once or twice.
            assert table.version == landed
            counts = [entry["operationMetrics"]["numOutputRows"] for entry in table.history()]
            assert counts == [str(2 * ROWS)] * (landed + 1)
        sent = set(self.sent[: (landed + 1) * 2 * ROWS])
        found = Found(
            point,
            self.run.trigger,
            batch,
            last_number(self.checkpoint / "commits"),
            recorded(self.table, self.app_id),
            rows_after=len(ids),
            lost=len(sent - set(ids)),
            doubled=len(ids) - len(set(ids)),
        )
        assert (found.table, found.lost, found.doubled) == (landed, 0, 0), found
        assert set(ids) == sent
        assert found.spark_log == (batch if point in SURVIVED | {""} else batch - 1), found
        if point:
            assert (self.notes / f"{batch}-struck").read_text() == point
        if point in ABORTED:
            assert int((self.notes / f"{batch}-aborted").read_text()) == 2
        return found


def in_own_process(run: Run) -> None:
    """Run the query as a driver of its own, in a session of processes of its own."""
    process = subprocess.run(
        [sys.executable, driver.__file__, json.dumps(asdict(run))],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(Path(txlog.__file__).parents[1]), *sys.path]),
        },
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    expected = -signal.SIGKILL if run.point else 0
    if run.point in SURVIVED:
        expected = 0
    elif run.point in ABORTED:
        expected = 3
    assert process.returncode == expected, process.stderr


def in_session(spark: "SparkSession") -> Callable[[Run], None]:
    """Run the query in a session that stays: only the process at the point dies."""
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


@pytest.mark.spec("STR-40", "STR-44")
def test_a_process_that_dies_loses_and_doubles_nothing(
    spark: "SparkSession", tmp_path: Path
) -> None:
    chain = Chain(tmp_path, "availableNow", in_session(spark))
    chain.go([driver.AFTER_TASK, driver.IN_CHECKPOINT, driver.LATE_ERROR])
    report(chain)


@pytest.mark.exhaustive
@pytest.mark.spec("STR-40", "STR-44")
@pytest.mark.parametrize(
    ("dies", "trigger"),
    [("process", "availableNow"), ("process", "processingTime"), ("driver", "availableNow")],
)
def test_a_query_may_die_at_every_point(
    request: pytest.FixtureRequest, tmp_path: Path, dies: str, trigger: str
) -> None:
    start = in_own_process
    if dies == "process":
        start = in_session(request.getfixturevalue("spark"))
    chain = Chain(tmp_path, trigger, start)
    chain.go(POINTS)
    report(chain)
    assert [(found.lost, found.doubled) for found in chain.matrix] == [(0, 0)] * len(POINTS)
