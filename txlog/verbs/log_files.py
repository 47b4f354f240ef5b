"""Files of the log that no version needs: version checksums, and compactions of commits.

Rules: the Delta protocol, "Version Checksum File" and "Log Compaction Files"; spec/maintenance.md,
MNT-40 and MNT-41. Both are written after their commits, and only if they do not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
import pyarrow as pa

from txlog.actions.ndjson import encode_rows
from txlog.actions.ndjson import rows as log_rows
from txlog.arrow import pc
from txlog.commit.context import Context
from txlog.commit.operation import Done, require_table_writable
from txlog.errors import InvalidInputError, LogCorruptError, NotFoundError
from txlog.fragments.rows import deleted_counts
from txlog.log.names import LogFile, commit_name, log_path
from txlog.log.paths import canonical_key
from txlog.snapshot.checksum import VersionChecksum, checksum_path, read_checksum
from txlog.snapshot.commits import file_rows, read_commit
from txlog.snapshot.live_files import has_large_checkpoint, load_files
from txlog.snapshot.load import list_log
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store

CHECKSUMS = "txlog.writeChecksums"
COMPACTION = "txlog.logCompactionInterval"


def checksum_of(snapshot: Snapshot, live: pa.Table) -> VersionChecksum:
    """Return the content of the checksum of a version. Pure; `live` are its `FILE_ROWS`."""
    return _stated(
        snapshot,
        files=live.num_rows,
        size=pc.sum(live["size"]).as_py() or 0,
        vectors=live.num_rows - live["dv_id"].null_count,
        deleted=pc.sum(deleted_counts(live)).as_py() or 0,
    )


def _stated(
    snapshot: Snapshot, *, files: int, size: int, vectors: int, deleted: int
) -> VersionChecksum:
    stamped = snapshot.is_active("inCommitTimestamp")
    counts = snapshot.supports("deletionVectors")
    return VersionChecksum(
        table_size_bytes=size,
        num_files=files,
        num_metadata=1,
        num_protocol=1,
        in_commit_timestamp_opt=snapshot.timestamp_ms if stamped else None,
        set_transactions=list(snapshot.controls.txns.values()),
        domain_metadata=[one for one in snapshot.controls.domains.values() if not one.removed],
        metadata=snapshot.metadata,
        protocol=snapshot.protocol,
        num_deletion_vectors_opt=vectors if counts else None,
        num_deleted_records_opt=deleted if counts else None,
    )


def next_checksum(
    before: VersionChecksum, commit: Iterable[Mapping[str, Any]], snapshot: Snapshot
) -> VersionChecksum | None:
    """Compute the checksum of a version from the previous checksum and the commit.

    Pure. None if fields are missing: a `remove` of another writer may lack its size.
    """
    counted = before.num_deletion_vectors_opt is not None
    counts = [before.num_files, before.table_size_bytes, 0, 0]
    if counted:
        counts[2:] = before.num_deletion_vectors_opt or 0, before.num_deleted_records_opt or 0
    elif snapshot.supports("deletionVectors") and "deletionVectors" in _features(before):
        return None
    for row in commit:
        for kind, sign in (("add", 1), ("remove", -1)):
            body = row.get(kind)
            if body is None:
                continue
            if body.get("size") is None:
                return None
            vector = body.get("deletionVector") or {}
            change = (1, body["size"], bool(vector), vector.get("cardinality", 0))
            counts = [one + sign * more for one, more in zip(counts, change, strict=True)]
    files, size, vectors, deleted = counts
    return _stated(snapshot, files=files, size=size, vectors=vectors, deleted=deleted)


def _features(checksum: VersionChecksum) -> list[str]:
    return list(checksum.protocol.writer_features or ()) if checksum.protocol else []


def write_checksum(store: Store, snapshot: Snapshot, live: pa.Table | None = None) -> None:
    """Write the checksum of a version, unless it exists or would cost too much.

    Parameters
    ----------
    live
        The version's `FILE_ROWS`. Default: it is computed from the previous checksum and the
        commit, or else from the files of the log, unless the checkpoint is large.
    """
    checksum = None if live is None else checksum_of(snapshot, live)
    if checksum is None:
        checksum = _by_the_one_before(store, snapshot)
    if checksum is None:
        if has_large_checkpoint(snapshot):
            return
        checksum = checksum_of(snapshot, load_files(store, snapshot).live)
    data = orjson.dumps(checksum.to_json())
    store.put_if_absent(checksum_path(snapshot.version), data)


def _by_the_one_before(store: Store, snapshot: Snapshot) -> VersionChecksum | None:
    try:
        before = read_checksum(store, snapshot.version - 1) if snapshot.version else None
        path = log_path(commit_name(snapshot.version))
        return before and next_checksum(before, log_rows(store.read(path), path=path), snapshot)
    except (LogCorruptError, NotFoundError):
        return None


def write_if_wanted(context: Context, done: Done) -> None:
    """Write the checksum and the compaction that the properties of a table ask for."""
    snapshot = done.snapshot
    if snapshot.properties.get(CHECKSUMS):
        write_checksum(context.store, snapshot)
    interval = snapshot.properties.get(COMPACTION)
    if interval and interval > 1 and (snapshot.version + 1) % interval == 0:
        _compact_latest(context, snapshot, snapshot.version + 1 - interval)


def _compact_latest(context: Context, snapshot: Snapshot, start: int) -> None:
    """Compact the commits from a version on; those that were cleaned up are left out."""
    end = snapshot.version
    while start < end:
        try:
            compact_log(context, snapshot, start, end)
        except LogCorruptError:
            listed = list_log(context.store, since=start)
            there = {file.version for file in listed if file.kind == "commit"}
            first = max(set(range(start, end + 1)) - there, default=start - 1) + 1
            if first == start:  # All are there, so one is damaged.
                raise
            start = first
        else:
            return


def compact_log(context: Context, snapshot: Snapshot, start: int, end: int) -> str:
    """Write one file that replaces the commits from `start` to `end`, and return its path.

    Raises
    ------
    InvalidInputError
        The versions do not exist, or are fewer than two.
    LogCorruptError, NotFoundError
        One of the commits is gone or damaged.
    """
    store = context.store
    store.require_writable()
    require_table_writable(snapshot, removes_rows=False)
    if not 0 <= start < end <= snapshot.version:
        raise InvalidInputError(
            argument="start_version",
            reason=f"{start} to {end} are not two or more versions of the table",
            remedy=f"Choose versions from 0 to {snapshot.version}",
        )
    kept: dict[tuple[object, ...], dict[str, Any]] = {}
    for version in range(start, end + 1):
        commit = read_commit(store, LogFile(commit_name(version), "commit", version))
        file_rows([commit])  # Damaged content must not be written again without its checksum.
        for row in commit.rows:
            key = _key(row)
            if key is not None:
                kept.pop(key, None)
                kept[key] = row
    name = log_path(f"{start:020d}.{end:020d}.compacted.json")
    store.put_if_absent(name, encode_rows(kept.values()))
    return name


def _key(row: Mapping[str, Any]) -> tuple[object, ...] | None:
    """Return the key of an action; None to omit it. Of each key the newest action is kept."""
    match row:
        case {"add": {"path": path} as body} | {"remove": {"path": path} as body}:
            vector = body.get("deletionVector") or {}
            names = ("storageType", "pathOrInlineDv", "offset")
            return "file", canonical_key(path), *(vector.get(name) for name in names)
        case {"txn": {"appId": app}}:
            return "txn", app
        case {"domainMetadata": {"domain": domain}}:
            return "domainMetadata", domain
        case {"protocol": _}:
            return ("protocol",)
        case {"metaData": _}:
            return ("metaData",)
    return None
