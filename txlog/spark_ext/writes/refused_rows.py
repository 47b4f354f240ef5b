"""The source rows of a Spark merge that go to its quarantine: found by tasks, before the merge.

Rules: spec/spark.md, SPK-28.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it

from txlog.base.arrow import arrow_array
from txlog.base.thresholds import Threshold
from txlog.spark_ext.answers import answered, unpacked
from txlog.spark_ext.engine import before_commit, map_in_arrow
from txlog.spark_ext.writes.change_tasks import SOURCE_ROW
from txlog.spark_ext.writes.refused_tasks import FindTask, FoundRefused, find_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from txlog.data_files.sieve import Rejects
    from txlog.snapshot.snapshot import Snapshot

_ANSWER = "answer binary"
_ASKED = "_txlog_asked"
_ROWS: Threshold = 100_000  # So many refused rows come to this process at a time.


class FixedSource:
    """The rows of a merge's source, computed once and numbered, and those that are refused.

    Executors keep the rows. If one of them is lost, the merge fails: other rows could have the
    numbers if the source were computed again.

    Parameters
    ----------
    source
        The frame. Its aliases and Columns are also those of `frame`.
    rejects
        Takes the refused rows.
    """

    def __init__(self, source: DataFrame, rejects: Rejects) -> None:
        numbered = source.withColumn(SOURCE_ROW, F.monotonically_increasing_id())
        with before_commit():
            self.frame = numbered.localCheckpoint()
        self._names = source.columns
        self._rejects = rejects
        self._refused: NDArray[np.int64] = np.zeros(0, np.int64)  # Numbers, ascending.

    def without_refused(self, rows: DataFrame) -> DataFrame:
        """Return rows of a join without those that refused rows of the source would change."""
        if not len(self._refused):
            return rows
        refused = F.broadcast(self._asked(self._refused))
        return rows.join(refused, F.col(SOURCE_ROW) == F.col(_ASKED), "left_anti")

    def find(self, task: FindTask, frame: DataFrame) -> FoundRefused:
        """Let tasks find the source rows of a frame that make rows at fault."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            work: Callable[[Iterable[pa.RecordBatch]], FoundRefused] = partial(find_task, task)
            answer = pa.array([answered(work, batches)], pa.binary())
            yield pa.RecordBatch.from_arrays([answer], names=["answer"])

        with before_commit():
            answers = map_in_arrow(frame, run, _ANSWER).toArrow()["answer"]
        together = FoundRefused()
        for one in answers:
            together.unite(unpacked(one).value())
        return together

    def refuse(self, found: FoundRefused, operation: str, base: Snapshot) -> None:
        """Give rows to the quarantine, and leave them out from now on."""
        for start in range(0, len(found.rows), _ROWS):
            part = found.rows[start : start + _ROWS]
            asked = F.broadcast(self._asked(part))
            wanted = F.col(SOURCE_ROW) == F.col(_ASKED)
            with before_commit():
                rows = self.frame.join(asked, wanted, "left_semi").toArrow().sort_by(SOURCE_ROW)
            at = start
            for batch in rows.select(self._names).combine_chunks().to_batches():
                faults = found.of(at, at + batch.num_rows)
                self._rejects.take(operation, base, batch, faults)
                at += batch.num_rows
        self._refused = np.union1d(self._refused, found.rows)

    def _asked(self, rows: NDArray[np.int64]) -> DataFrame:
        numbers = pa.table({_ASKED: arrow_array(rows)})
        return self.frame.sparkSession.createDataFrame(numbers)
