"""The results of Delta's commands as Spark frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from txlog.commit.operation import Outcome
from txlog.protocol.access import features_of
from txlog.schema.timestamps import micros_of
from txlog.snapshot.commits import file_rows, read_commits
from txlog.snapshot.load import list_commits
from txlog.table.history import fitting
from txlog.table.seam import context_of
from txlog.table.table import Table
from txlog.verbs.mapped_columns import clustering_columns, logical_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TEXTS = pa.map_(pa.string(), pa.string())
_MOMENT = pa.timestamp("us", "UTC")


def _texts(*names: str) -> pa.DataType:
    return pa.struct([(name, pa.string()) for name in names])


HISTORY = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", _MOMENT),
        ("userId", pa.string()),
        ("userName", pa.string()),
        ("operation", pa.string()),
        ("operationParameters", _TEXTS),
        ("job", _texts("jobId", "jobName", "jobRunId", "runId", "jobOwnerId", "triggerType")),
        ("notebook", _texts("notebookId")),
        ("clusterId", pa.string()),
        ("readVersion", pa.int64()),
        ("isolationLevel", pa.string()),
        ("isBlindAppend", pa.bool_()),
        ("operationMetrics", _TEXTS),
        ("userMetadata", pa.string()),
        ("engineInfo", pa.string()),
    ]
)
DETAIL = pa.schema(
    [
        ("format", pa.string()),
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("location", pa.string()),
        ("createdAt", _MOMENT),
        ("lastModified", _MOMENT),
        ("partitionColumns", pa.list_(pa.string())),
        ("clusteringColumns", pa.list_(pa.string())),
        ("numFiles", pa.int64()),
        ("sizeInBytes", pa.int64()),
        ("properties", _TEXTS),
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("tableFeatures", pa.list_(pa.string())),
    ]
)
_SIZES = pa.struct(
    [
        ("min", pa.int64()),
        ("max", pa.int64()),
        ("avg", pa.float64()),
        ("totalFiles", pa.int64()),
        ("totalSize", pa.int64()),
    ]
)
_Z_ORDER = pa.struct([("strategyName", pa.string()), ("numOutputCubes", pa.int64())])
OPTIMIZE = pa.schema(
    [
        ("path", pa.string()),
        (
            "metrics",
            pa.struct(
                [
                    ("numFilesAdded", pa.int64()),
                    ("numFilesRemoved", pa.int64()),
                    ("filesAdded", _SIZES),
                    ("filesRemoved", _SIZES),
                    ("partitionsOptimized", pa.int64()),
                    ("totalConsideredFiles", pa.int64()),
                    ("totalFilesSkipped", pa.int64()),
                    ("zOrderStats", _Z_ORDER),
                ]
            ),
        ),
    ]
)
_RESTORED = {  # Columns of the frame, and their names in the commit's metrics.
    "table_size_after_restore": "tableSizeAfterRestore",
    "num_of_files_after_restore": "numOfFilesAfterRestore",
    "num_removed_files": "numRemovedFiles",
    "num_restored_files": "numRestoredFiles",
    "removed_files_size": "removedFilesSize",
    "restored_files_size": "restoredFilesSize",
}
RESTORE = pa.schema([(name, pa.int64()) for name in _RESTORED])


def as_frame(
    spark: SparkSession, rows: Sequence[Mapping[str, Any]], schema: pa.Schema
) -> DataFrame:
    """Return a few rows as a frame."""
    frame = spark.createDataFrame(pa.Table.from_pylist(list(rows) or [{}], schema=schema))
    return frame if rows else frame.limit(0)  # Spark Connect does not accept data without rows.


def history_rows(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the history of commits as rows of `HISTORY`. Pure.

    Values of other writers whose type differs from Delta's are omitted.
    """
    return [
        {
            **{name: fitting(entry.get(name), HISTORY.field(name).type) for name in HISTORY.names},
            "timestamp": micros_of(entry["timestamp"]),
        }
        for entry in entries
    ]


def detail_row(table: Table) -> dict[str, Any]:
    """Return the description of a table as a row of `DETAIL`."""
    files = table.files()
    metadata, protocol = table.metadata, table.protocol
    return {
        "format": "delta",
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "location": table.uri,
        "createdAt": micros_of(metadata.created_time),
        "lastModified": micros_of(table.timestamp_ms),
        "partitionColumns": table.partition_columns,
        "clusteringColumns": [
            ".".join(logical_path(table.snapshot, path))
            for path in clustering_columns(table.snapshot)
        ],
        "numFiles": files.num_rows,
        "sizeInBytes": pc.sum(files["size_bytes"]).as_py() or 0,
        "properties": list(table.properties.items()),
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "tableFeatures": sorted(features_of(protocol)),
    }


def restore_row(table: Table, outcome: Outcome) -> dict[str, int]:
    """Return the result of a restore, even one without a change, as a row of `RESTORE`."""
    metrics: Mapping[str, int] = outcome.metrics
    if not outcome:
        row = detail_row(table)
        metrics = {
            "tableSizeAfterRestore": row["sizeInBytes"],
            "numOfFilesAfterRestore": row["numFiles"],
        }
    return {name: metrics.get(metric, 0) for name, metric in _RESTORED.items()}


def optimize_row(table: Table, outcome: Outcome, *, all_files: bool = False) -> dict[str, Any]:
    """Return the result of a compaction as a row of `OPTIMIZE`.

    Parameters
    ----------
    all_files
        Whether all files were rewritten, as for a Z-order.
    """
    store = context_of(table).store
    files = list_commits(store, table.snapshot)
    commits = read_commits(store, (f for f in files if f.version == outcome.version))
    rows = file_rows(commits)
    added = rows.filter(rows["is_add"])
    removed = rows.filter(pc.invert(rows["is_add"]))
    partitions = {tuple(values or ()) for values in added["partition_values"].to_pylist()}
    return {
        "path": table.uri,
        "metrics": {
            "numFilesAdded": added.num_rows,
            "numFilesRemoved": removed.num_rows,
            "filesAdded": _sizes(added["size"]),
            "filesRemoved": _sizes(removed["size"]),
            "partitionsOptimized": len(partitions),
            "totalConsideredFiles": removed.num_rows if all_files else None,
            "totalFilesSkipped": 0 if all_files else None,
            "zOrderStats": {"strategyName": "all", "numOutputCubes": len(partitions)}
            if all_files
            else None,
        },
    }


def _sizes(sizes: pa.ChunkedArray) -> dict[str, Any]:
    span = pc.min_max(sizes)
    return {
        "min": span["min"].as_py(),
        "max": span["max"].as_py(),
        "avg": pc.mean(sizes).as_py() or 0.0,
        "totalFiles": len(sizes),
        "totalSize": pc.sum(sizes).as_py() or 0,
    }
