"""The files of a table as Arrow columns, decoded straight from the log's JSON.

A table may have millions of files, so they never become models: `FILE_ROWS` has one row for each
`add` or `remove`, whichever log file it came from. The models in `file.py` describe the same
fields, and a property test holds the two decodings equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from txlog.actions.base import texts_of
from txlog.actions.ndjson import decode_action
from txlog.errors import LogCorruptError

DELETION_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
STRING_MAP = pa.map_(pa.string(), pa.string())

FILE_ROWS = pa.schema(
    [
        ("version", pa.int64()),  # Of the log file that the row came from.
        ("is_add", pa.bool_()),  # False for a `remove`.
        ("path", pa.string()),  # As in the log.
        ("deletion_vector", DELETION_VECTOR),
        ("dv_id", pa.string()),  # The vector's unique id; null without one.
        ("partition_values", STRING_MAP),
        ("size", pa.int64()),
        ("modification_time", pa.int64()),
        ("data_change", pa.bool_()),
        ("stats", pa.string()),
        ("tags", STRING_MAP),
        ("base_row_id", pa.int64()),
        ("default_row_commit_version", pa.int64()),
        ("clustering_provider", pa.string()),
        ("deletion_timestamp", pa.int64()),
        ("extended_file_metadata", pa.bool_()),
    ]
)

# Log field → column, for the fields that are taken as they are.
FIELDS = {
    "path": "path",
    "size": "size",
    "modificationTime": "modification_time",
    "dataChange": "data_change",
    "stats": "stats",
    "baseRowId": "base_row_id",
    "defaultRowCommitVersion": "default_row_commit_version",
    "clusteringProvider": "clustering_provider",
    "deletionTimestamp": "deletion_timestamp",
    "extendedFileMetadata": "extended_file_metadata",
}

# Whatever a body of another shape than the protocol's can lead to.
_UNREADABLE = (
    pa.ArrowException,
    KeyError,
    TypeError,
    AttributeError,
    ValueError,
    OverflowError,
)
_REQUIRED = ("path", "partitionValues", "size", "modificationTime", "dataChange")


def flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    found = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found


def empty_rows() -> pa.Table:
    """Return `FILE_ROWS` without rows."""
    return FILE_ROWS.empty_table()


def decode_rows(commits: Iterable[tuple[int, list[dict[str, Any]], str]]) -> pa.Table:
    """Return the `add` and `remove` actions of log files as `FILE_ROWS`.

    Parameters
    ----------
    commits
        For each log file its version, its JSON objects (from `ndjson.rows`), and its name.

    Raises
    ------
    LogCorruptError
        A field is missing or of a wrong type; the error names file, line and field.
    """
    versions: list[int] = []
    is_add: list[bool] = []
    bodies: list[dict[str, Any]] = []
    places: list[tuple[str, int]] = []
    for version, rows, name in commits:
        for line, row in enumerate(rows, start=1):
            for kind in ("add", "remove"):
                body = row.get(kind)
                if body is not None:
                    versions.append(version)
                    is_add.append(kind == "add")
                    bodies.append(body)
                    places.append((name, line))
    if not bodies:
        return empty_rows()
    try:
        return _columns(versions, is_add, bodies)
    except _UNREADABLE as error:
        # The models know the field at fault; where they accept, the columns must too.
        for add, body, (name, line) in zip(is_add, bodies, places, strict=True):
            decode_action("add" if add else "remove", body, path=name, line=line)
        name, line = places[0]
        raise LogCorruptError(
            path=name, line=line, reason=f"a file action cannot be read: {error}"
        ) from error


def _columns(versions: list[int], is_add: list[bool], bodies: list[dict[str, Any]]) -> pa.Table:
    for add, body in zip(is_add, bodies, strict=True):
        if body["path"] is None or (add and any(body[name] is None for name in _REQUIRED)):
            raise KeyError("a required field is null")
    columns: dict[str, pa.Array] = {
        "version": pa.array(versions, pa.int64()),
        "is_add": pa.array(is_add, pa.bool_()),
        "partition_values": _maps([body.get("partitionValues") for body in bodies]),
        "tags": _maps([body.get("tags") for body in bodies]),
    }
    for name, column in FIELDS.items():
        kind = FILE_ROWS.field(column).type
        values = [body.get(name) for body in bodies]
        if pa.types.is_int64(kind) and any(type(v) not in (int, type(None)) for v in values):
            raise TypeError(f"{name} is no integer")
        columns[column] = pa.array(values, kind)
    columns["data_change"] = columns["data_change"].fill_null(True)
    vectors = [body.get("deletionVector") for body in bodies]
    columns["deletion_vector"], columns["dv_id"] = _vectors(vectors)
    return pa.table([columns[name] for name in FILE_ROWS.names], schema=FILE_ROWS)


def _maps(values: list[Mapping[str, str | None] | None]) -> pa.Array:
    """Return string maps column by column: offsets, keys, items."""
    offsets: list[int | None] = []
    keys: list[str] = []
    items: list[str | None] = []
    for value in values:
        offsets.append(None if value is None else len(keys))
        if value is not None:
            keys.extend(value.keys())
            items.extend(value.values())
    offsets.append(len(keys))
    try:
        texts = pa.array(items, pa.string())
    except pa.ArrowException:
        texts = pa.array(texts_of(dict(enumerate(items))).values(), pa.string())
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(keys, pa.string()), texts
    )


def _vectors(values: list[dict[str, Any] | None]) -> tuple[pa.Array, pa.Array]:
    if not any(values):
        return pa.nulls(len(values), DELETION_VECTOR), pa.nulls(len(values), pa.string())
    for value in values:
        if value is None:
            continue
        for name in ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality"):
            if value[name] is None:
                raise KeyError(name)
        for name in ("sizeInBytes", "cardinality", "offset"):
            if type(value.get(name)) not in (int, type(None)):
                raise TypeError(f"{name} is no integer")
    return pa.array(values, DELETION_VECTOR), pa.array(map(_unique_id, values), pa.string())


def _unique_id(value: dict[str, Any] | None) -> str | None:
    if value is None:
        return None
    offset = value.get("offset")
    suffix = "" if offset is None else f"@{offset}"
    return f"{value['storageType']}{value['pathOrInlineDv']}{suffix}"
