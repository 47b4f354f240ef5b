"""Files of the log that no version needs: version checksums, and compactions of commits.

Rules: the Delta protocol, "Version Checksum File" and "Log Compaction Files"; spec/maintenance.md,
MNT-40 and MNT-41. Both are written after their commits, and only if they do not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from txlog.actions.columns import empty_rows
from txlog.actions.ndjson import encode_rows
from txlog.base.arrow import pc
from txlog.base.errors import (
    InvalidInputError,
    LogCorruptError,
    NotFoundError,
    UnsupportedFeatureError,
)
from txlog.commit.context import Context
from txlog.commit.operation import Done, require_table_writable
from txlog.fragments.rows import deleted_counts
from txlog.log.names import LogFile, commit_name, log_path
from txlog.log.paths import canonical_key
from txlog.reconcile.files import touched
from txlog.snapshot.checksum import VersionChecksum, checksum_path, read_checksum
from txlog.snapshot.commits import Commit, file_rows, read_commit
from txlog.snapshot.live_files import has_large_checkpoint, live_among, load_files
from txlog.snapshot.load import list_log, load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store

CHECKSUMS = "txlog.writeChecksums"
COMPACTION = "txlog.logCompactionInterval"


class _Totals(NamedTuple):
    """The sums over files that a checksum states."""

    files: int
    size: int
    vectors: int
    deleted: int


_COUNTED = ("size", "deletion_vector")  # With the keys, the columns for the sums.


def _totals(files: pa.Table) -> _Totals:
    return _Totals(
        files=files.num_rows,
        size=pc.sum(files["size"]).as_py() or 0,
        vectors=files.num_rows - files["dv_id"].null_count,
        deleted=pc.sum(deleted_counts(files)).as_py() or 0,
    )


def checksum_of(snapshot: Snapshot, live: pa.Table) -> VersionChecksum:
    """Return the content of the checksum of a version. Pure; `live` are its `FILE_ROWS`."""
    return _stated(snapshot, *_totals(live))


def _stated(
    snapshot: Snapshot, files: int, size: int, vectors: int, deleted: int
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
    before: VersionChecksum, actions: pa.Table, live: pa.Table, snapshot: Snapshot
) -> VersionChecksum | None:
    """Compute the checksum of a version from the previous checksum and the commit.

    Pure. None if the previous checksum lacks fields.

    Parameters
    ----------
    actions
        The commit's `FILE_ROWS`.
    live
        The files of the previous version that they name, as `FILE_ROWS`.
    """
    counted = before.num_deletion_vectors_opt is not None or "deletionVectors" not in _features(
        before
    )
    if snapshot.supports("deletionVectors") and not counted:
        return None
    files = touched(actions, live)
    then = _Totals(
        before.num_files,
        before.table_size_bytes,
        before.num_deletion_vectors_opt or 0,
        before.num_deleted_records_opt or 0,
    )
    lost, added = _totals(files.before), _totals(actions.filter(actions["is_add"]))
    sums = zip(then, lost, added, strict=True)
    return _stated(snapshot, *(total - less + more for total, less, more in sums))


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
    version = snapshot.version
    try:
        before = read_checksum(store, version - 1) if version else None
        if before is None:
            return None
        commit = read_commit(store, LogFile(commit_name(version), "commit", version))
        actions = file_rows([commit])
        return next_checksum(before, actions, _named_before(store, commit, actions), snapshot)
    except (LogCorruptError, NotFoundError, UnsupportedFeatureError):
        return None


def _named_before(store: Store, commit: Commit, actions: pa.Table) -> pa.Table:
    """Return the files of the previous version that a commit names."""
    if not actions.num_rows or (commit.info is not None and commit.info.is_blind_append):
        return empty_rows()  # Its adds are new files.
    return live_among(store, load_snapshot(store, version=commit.version - 1), actions, _COUNTED)


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
        except (LogCorruptError, NotFoundError):
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
    NotFoundError
        Commits were cleaned up; the error names the first one from which on all are there.
    LogCorruptError
        One of the commits is gone without a checkpoint that covers it, or damaged.
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
        try:
            commit = read_commit(store, LogFile(commit_name(version), "commit", version))
        except (LogCorruptError, NotFoundError):
            _require_there(store, start, end)
            raise
        file_rows([commit])  # Damaged content must not be written again without its checksum.
        for row in commit.rows:
            key = _key(row)
            if key is not None:
                kept.pop(key, None)
                kept[key] = row
    name = log_path(f"{start:020d}.{end:020d}.compacted.json")
    store.put_if_absent(name, encode_rows(kept.values()))
    return name


def _require_there(store: Store, start: int, end: int) -> None:
    """Raise `NotFoundError` if a clean-up of the log removed the first commits of a range."""
    listed = [file for file in list_log(store, since=start) if file.kind == "commit"]
    first = min((file.version for file in listed), default=end + 1)
    if start < first:
        enough = first < end
        raise NotFoundError(
            version=start,
            reason=f"the log has no commits before version {first}: they were cleaned up",
            remedy=f"Choose versions from {first}" if enough else "Choose later versions",
        )


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
