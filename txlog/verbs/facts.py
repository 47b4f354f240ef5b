"""Facts about a version of a table: what it holds, what it costs, and how well scans skip files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.actions.told import told_pairs, told_text
from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.columns import flat
from txlog.base.texts import without_secrets
from txlog.commit.context import Context
from txlog.fragments.fragment import rows_left
from txlog.fragments.rows import deleted_counts
from txlog.log.names import LogFile
from txlog.log.segment import complete_checkpoints
from txlog.scan.files import partition_sums, typed_values
from txlog.schema.types import type_name
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import list_log
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.time_travel import history
from txlog.stats.files import num_records
from txlog.verbs.doctor import SMALL_BYTES, Finding, examine

MOST_VERSIONS = 1_000  # The number of newest versions on the time line.
MOST_COLUMNS = 32
MOST_PARTITIONS = 30
MOST_RANGES = 100_000  # The maximum number of files whose statistics are read.

_ROWS = (
    "numOutputRows",
    "numUpdatedRows",
    "numInsertedRows",
    "numTargetRowsInserted",
    "numAddedRows",
)
_DELETED = ("numDeletedRows", "numTargetRowsDeleted")
_BYTES = ("numOutputBytes", "numAddedBytes", "numTargetBytesAdded")


@dataclass(frozen=True)
class ColumnFacts:
    """How well the statistics of a column let a scan skip files.

    `known` is the share of files with its smallest and largest value. `depth` is the average number
    of files whose range contains the smallest value of a file: 1 is best, the number of files is
    worst.
    """

    name: str
    type: str
    known: float
    nulls: int | None
    depth: float | None


@dataclass(frozen=True)
class TableFacts:
    """What `table_facts` returns. Sizes are bytes, times milliseconds since the epoch."""

    uri: str
    name: str
    version: int
    made_ms: int | None
    protocol: str
    partition_columns: list[str]
    properties: dict[str, str]
    files: int
    bytes: int
    rows: int | None  # None if a file has no row count.
    deleted: int
    small: int
    versions: list[dict[str, Any]]
    sizes: list[dict[str, Any]]
    partitions: list[dict[str, Any]]
    partition_count: int
    columns: list[ColumnFacts]
    ranges: int  # Files whose statistics give `columns`; if there are more files, an estimate.
    log: dict[str, Any]
    findings: list[Finding]

    @property
    def live_rows(self) -> int | None:
        """The rows that are not deleted; None if a file has no row count."""
        return rows_left(self.rows, self.deleted)


def gather(
    context: Context, snapshot: Snapshot, made_ms: int | None, sample: int | None
) -> TableFacts:
    """Read the facts from the log, and from at most `sample` footers of data files."""
    loaded = load_files(context.store, snapshot)
    live = loaded.live
    looked_at = spread(live, MOST_RANGES)
    sizes, rows = pc.fill_null(flat(live["size"]), 0), num_records(live)
    partitions = partition_sums(snapshot, live) if snapshot.partition_columns else None
    return TableFacts(
        uri=without_secrets(context.store.root),
        name=snapshot.metadata.name or context.store.root.rstrip("/").rpartition("/")[2],
        version=snapshot.version,
        made_ms=made_ms,
        protocol=f"reader {snapshot.protocol.min_reader_version}, "
        f"writer {snapshot.protocol.min_writer_version}",
        partition_columns=snapshot.partition_columns,
        properties={
            name: value or "" for name, value in sorted(snapshot.metadata.configuration.items())
        },
        files=live.num_rows,
        bytes=pc.sum(sizes).as_py() or 0,
        rows=None if rows.null_count else (pc.sum(rows).as_py() or 0),
        deleted=pc.sum(flat(deleted_counts(live))).as_py() or 0,
        small=pc.sum(pc.less(sizes, SMALL_BYTES)).as_py() or 0,
        versions=[version_of(entry) for entry in history(context.store, snapshot, MOST_VERSIONS)],
        sizes=histogram(numpy_array(sizes)),
        partitions=[] if partitions is None else partitions.slice(0, MOST_PARTITIONS).to_pylist(),
        partition_count=0 if partitions is None else partitions.num_rows,
        columns=columns_of(
            typed_values(snapshot, looked_at, flatten=False), snapshot, live.num_rows
        ),
        ranges=looked_at.num_rows,
        log=log_of(list_log(context.store, catalog=snapshot.catalog), snapshot.version),
        findings=[*examine(context, snapshot, sample=sample, files=loaded)],
    )


def version_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a version for the time line: metrics with several names are summed."""
    metrics = told_pairs(entry, "operationMetrics")
    return {
        "version": entry["version"],
        "time": entry["timestamp"],
        "operation": told_text(entry, "operation") or "?",
        "by": told_text(entry, "userName", "engineInfo") or "?",
        "added": _first(metrics, _ROWS),
        "deleted": _first(metrics, _DELETED),
        "bytes": _first(metrics, _BYTES),
    }


def _first(metrics: Mapping[str, Any], names: Iterable[str]) -> int | None:
    for name in names:
        try:
            return int(metrics[name])
        except (KeyError, TypeError, ValueError):
            continue
    return None


def histogram(sizes: np.ndarray) -> list[dict[str, Any]]:
    """Return the number of files by size; the bins are powers of two, in bytes."""
    if not len(sizes):
        return []
    power = np.frexp(np.maximum(sizes, 1).astype(np.float64))[1] - 1
    found, place = np.unique(power, return_inverse=True)
    counts, totals = np.bincount(place), np.bincount(place, weights=sizes)
    by_power = {int(n): (int(c), int(b)) for n, c, b in zip(found, counts, totals, strict=True)}
    return [
        {"from": 1 << n, "to": 2 << n, "files": by_power.get(n, (0, 0))[0],
         "bytes": by_power.get(n, (0, 0))[1]}
        for n in range(int(found[0]), int(found[-1]) + 1)
    ]  # fmt: skip


def spread(files: pa.Table, most: int) -> pa.Table:
    """Return the files, or an even sample of so many of them, the same each time."""
    if files.num_rows <= most:
        return files
    chosen = np.zeros(files.num_rows, np.bool_)
    chosen[np.linspace(0, files.num_rows - 1, most).astype(np.int64)] = True
    return files.filter(arrow_array(chosen))  # `take` would first copy all files into one chunk.


def columns_of(actions: pa.Table, snapshot: Snapshot, files: int) -> list[ColumnFacts]:
    """Return the first columns that are not partition columns, and their statistics.

    `actions` may be a part of the table's files; then numbers are scaled to all of them.
    """
    scale = files / max(actions.num_rows, 1)
    named = [one for one in snapshot.schema.fields if one.name not in snapshot.partition_columns]
    found = []
    for one in named[:MOST_COLUMNS]:
        low, high = (_field(actions, side, one.name) for side in ("min", "max"))
        nulls = _field(actions, "null_count", one.name)
        known, depth = 0.0, None
        if low is not None and high is not None and actions.num_rows:
            both = pc.and_(pc.is_valid(low), pc.is_valid(high))
            known = (pc.sum(both).as_py() or 0) / actions.num_rows
            depth = mean_depth(low.filter(both), high.filter(both))
        if depth is not None:
            depth = 1 + (depth - 1) * scale  # Each range holds itself, and its share of the others.
        total = (
            None
            if nulls is None or nulls.null_count
            else round((pc.sum(nulls).as_py() or 0) * scale)
        )
        found.append(ColumnFacts(one.name, type_name(one.type), known, total, depth))
    return found


def _field(actions: pa.Table, side: str, name: str) -> Any:
    if side not in actions.column_names:
        return None
    column = actions[side].combine_chunks()
    kind = column.type
    if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
        return None
    value = pc.struct_field(column, [kind.get_field_index(name)])
    return None if pa.types.is_nested(value.type) else value


def mean_depth(low: Any, high: Any) -> float | None:
    """Return the average number of ranges that contain the smallest value of a range.

    A range contains its own value, so the result is at least 1. None without ranges.
    """
    if not len(low):
        return None
    both = pa.concat_arrays([low, high])
    rank = numpy_array(pc.rank(both, tiebreaker="dense"))
    starts, ends = rank[: len(low)], rank[len(low) :]
    begun = np.searchsorted(np.sort(starts), starts, side="right")
    ended = np.searchsorted(np.sort(ends), starts, side="left")
    return float(np.mean(begun - ended))


def log_of(files: Iterable[LogFile], version: int) -> dict[str, Any]:
    """Return the files that opening a version reads: the newest checkpoint and later commits."""
    files = [file for file in files if file.last_version <= version]
    whole = complete_checkpoints(files)
    last = max(whole, default=-1)
    return {
        "checkpoint": last if whole else None,
        "checkpoint_bytes": sum(file.size for file in whole.get(last, ())),
        "commits": sum(file.kind == "commit" and file.version > last for file in files),
    }
