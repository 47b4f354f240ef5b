"""Values of the changed rows that tasks read themselves, by the rows' addresses.

So Spark reads only the columns that conditions and new values name. A Python worker imports this
module for its first task, so the module imports no code of commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.base.arrow import arrow_array, pc
from txlog.base.columns import flat
from txlog.base.errors import InternalError
from txlog.base.thresholds import Threshold
from txlog.fragments.fragment import FRAGMENT_COLUMNS, FragmentSequence
from txlog.scan.positions import rows_at
from txlog.scan.read_plan import ReadPlan, read_plan

if TYPE_CHECKING:
    from txlog.fragments.rows import FragmentRows
    from txlog.scan.plan import ScanPlan
    from txlog.snapshot.snapshot import Snapshot
    from txlog.store.base import Store

# Tasks read rows by their addresses where the files have so many rows for each row that changes.
# CPU seconds of a merge into 1,000,000 rows of 10 columns in 10 files, by addresses and by a scan
# (2026-11-30, two runs each). Unique keys, which Spark joins with a shuffle: 8 to 14 and 12 to 22
# for 1,000 rows, 10 to 12 and 11 to 12 for 20,000, 17 to 18 and 11 to 12 for 100,000. Keys of
# 10,000 rows each: 4 and 4 to 5 for one key, 5 and 4 to 5 for 10, 10 and 5 to 8 for 50.
_SCANNED_ROWS: Threshold = 50
_FILES: Threshold = 20_000  # Of more files, each task would get too long a list.
_BYTES: Threshold = 16 << 20  # The bytes in files of the rows that are read at a time.
_ROWS = 1_024  # Rows at a time where the log has no counts.


def takes_rows(plan: ScanPlan, changed: int | None) -> bool:
    """Return whether tasks read the rows that change by their addresses.

    Parameters
    ----------
    plan
        Of the files that Spark scans.
    changed
        About how many rows change; None if nothing tells this.
    """
    if changed is None:
        return False
    files = plan.files
    scanned = pc.sum(files.live_rows).as_py() or 0
    return changed * _SCANNED_ROWS <= scanned and len(files.rows.ids) <= _FILES


@dataclass(frozen=True)
class TakenRows:
    """How a task reads values of rows by their addresses. It pickles.

    Parameters
    ----------
    at_once
        The number of rows to read at a time, so that their values fit into memory.
    """

    reading: ReadPlan
    rows: FragmentRows
    physical_rows: pa.Array
    at_once: int

    @classmethod
    def of(cls, base: Snapshot, plan: ScanPlan, columns: Sequence[str]) -> Self:
        """Return how to read some columns of the files of a plan of a version."""
        files = plan.files
        added = files.rows.columns
        narrow = added.rows.select(["path", "size", "default_row_commit_version"])
        rows = replace(
            files.rows,
            primaries=files.rows.primaries.select(FRAGMENT_COLUMNS),
            columns=replace(added, rows=narrow),
        )
        counted = pc.sum(files.physical_rows).as_py() or 0
        known = files.rows.primaries["size"].filter(files.physical_rows.is_valid())
        size = pc.sum(known).as_py() or 0
        at_once = max(1, _BYTES * counted // size) if counted and size else _ROWS
        reading = read_plan(base, columns=list(columns))
        return cls(reading, rows, files.physical_rows, at_once)

    def parts(self, batch: pa.RecordBatch, address: str) -> list[pa.RecordBatch]:
        """Return the rows of a batch in parts, ordered by the column with their addresses.

        So few parts have rows of the same file.
        """
        ordered = batch.take(pc.sort_indices(batch[address]))
        starts = range(0, ordered.num_rows, self.at_once)
        return [ordered.slice(start, self.at_once) for start in starts]

    def at(self, store: Store, addresses: NDArray[np.int64]) -> pa.RecordBatch:
        """Return the values of the rows at some addresses, in their order.

        Raises
        ------
        InternalError
            A file does not have the rows that Spark found in it.
        """
        ordered, places = np.unique(addresses, return_inverse=True)
        ids, starts = np.unique(ordered >> 32, return_index=True)
        wanted = pc.is_in(self.rows.ids, value_set=arrow_array(ids, pa.int64()))
        fragments = FragmentSequence(self.rows.filter(wanted), self.physical_rows.filter(wanted))
        positions = np.split(ordered & 0xFFFF_FFFF, starts[1:])
        if len(fragments) == len(ids):
            parts = list(zip(fragments, positions, strict=True)) if len(ids) else []
            found, _ = rows_at(store, self.reading, parts)
            if found.num_rows == len(ordered):
                taken = found.take(arrow_array(places))
                arrays = [flat(column) for column in taken.columns]
                return pa.RecordBatch.from_arrays(arrays, schema=found.schema)
        raise InternalError(
            reason="the version does not have some of the rows that Spark found",
            remedy="Nothing was committed. Please report this error with the table's log",
        )
