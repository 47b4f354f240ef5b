"""Put a commit, and check whether it is a version of the table.

A put-if-absent succeeds if no file has the name. Then the name belongs to the table's next version,
or to an old version whose commit a clean-up deleted. In the second case, a checkpoint of that
version or a later one exists. Readers begin at the checkpoint, so they never see the commit. Rule:
CON-19.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from txlog.actions.columns import flat
from txlog.actions.ndjson import rows as log_rows
from txlog.actions.table import Metadata, Protocol, Txn
from txlog.arrow import pc
from txlog.checkpoint.hint import hinted_version
from txlog.commit.intent import txn_id_of
from txlog.effects import Effects
from txlog.errors import (
    CommitConflictError,
    LogCorruptError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
    TxlogError,
)
from txlog.log.names import LogFile, commit_name, log_path
from txlog.reconcile.files import FileState, file_keys
from txlog.snapshot.commits import Commit, file_rows, parse_commit
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import list_log, load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import PutIfAbsent, Store, is_far

_FIRST_WAIT_S = 0.005
_LONGEST_WAIT_S = 1.0
_LOST_ANSWERS = 10  # Consecutive failures before the outcome counts as unknown.


def wait_s(attempts: int) -> float:
    """Return the seconds to wait after failed attempts; they double up to a second."""
    return min(_LONGEST_WAIT_S, _FIRST_WAIT_S * float(2 ** min(attempts, 12)))


def put_commit(
    store: Store, put: PutIfAbsent, version: int, data: bytes, txn_id: str, effects: Effects
) -> bytes | None:
    """Put a commit; return None on success, or the bytes of the winner that has the name.

    Raises
    ------
    StoreError
        The store failed. Nothing was committed.
    OutcomeUnknownError
        An answer was lost, and the commit cannot be read back.
    """
    path = log_path(commit_name(version))
    lost: OutcomeUnknownError | None = None
    for attempt in range(_LOST_ANSWERS):
        try:
            if put(path, data) == "created":
                return None
        except OutcomeUnknownError as error:
            if error.visible:  # Reading it back would not show whether it survives a crash.
                error.version, error.txn_id = version, txn_id
                raise
            lost = error
        except StoreError as error:
            if lost is None:
                raise
            raise _unknown(path, version, txn_id) from error  # The lost put may still succeed.
        # Also if it exists: a client may have retried a put that had succeeded.
        try:
            content = store.read(path)
        except NotFoundError:
            effects.sleep_s(wait_s(attempt) * effects.jitter())
            continue  # It does not exist, so the same bytes may be put again.
        except StoreError as error:
            raise _unknown(path, version, txn_id) from (lost or error)
        return None if is_ours(content, txn_id, path) else content
    raise _unknown(path, version, txn_id)


def require_landed(
    store: Store, data: bytes, txn_id: str, version: int, base: Snapshot | None = None
) -> int | None:
    """Return the store's time of the commit that was put as `version`; raise if it is not valid.

    None means that the store has no time. Usually this costs one request each for the commit, the
    commit before it and `_last_checkpoint`, or one listing for a remote store. If the log may have
    been cleaned up, the latest version is searched for the commit's changes. A commit that is not
    part of it is deleted, so that no reader ever sees it.

    Parameters
    ----------
    base
        The version from which the writer began. If the changes do not show whether the table
        contains the commit, the commits since this version may show that nothing was cleaned up.

    Raises
    ------
    CommitConflictError
        The table had moved to a later version, and the log was cleaned up. Nothing was committed.
    OutcomeUnknownError
        The log may have been cleaned up, and it is unknown whether the table contains the commit.
    """
    seen = _seen_far(store, version) if is_far(store) else _seen_near(store, version)
    if seen.may_be_behind:
        _search_latest(store, data, txn_id, version, base)
    return seen.made_ms


class _Seen(NamedTuple):
    may_be_behind: bool  # The commit's version and later ones may have been cleaned up.
    made_ms: int | None


def _seen_near(store: Store, version: int) -> _Seen:
    behind = hinted_version(store) >= version or (version > 0 and _is_gone(store, version - 1))
    try:
        return _Seen(behind, store.info(log_path(commit_name(version))).modified_ms)
    except (NotFoundError, StoreError):
        return _Seen(behind, None)


def _seen_far(store: Store, version: int) -> _Seen:
    try:
        files = list_log(store, since=max(0, version - 1))
    except StoreError:  # The error says nothing about the log.
        return _Seen(False, None)
    commits = {file.version: file.modified_ms for file in files if file.kind == "commit"}
    covered = any(file.kind == "checkpoint" and file.version >= version for file in files)
    behind = covered or (version > 0 and version - 1 not in commits)
    return _Seen(behind, commits.get(version))


def _is_gone(store: Store, version: int) -> bool:
    try:
        store.info(log_path(commit_name(version)))
    except NotFoundError:
        return True
    except StoreError:  # The error says nothing about the log.
        return False
    return False


def _search_latest(
    store: Store, data: bytes, txn_id: str, version: int, base: Snapshot | None
) -> None:
    """Raise unless the latest version is built on a commit or contains its changes."""
    path = log_path(commit_name(version))
    try:
        latest = load_snapshot(store)
        if _is_read(latest, version):
            return
        commit = parse_commit(data, LogFile(commit_name(version), "commit", version))
        landed = is_part_of(commit, latest, load_files(store, latest))
        if landed is False:
            _delete_stray(store, path, txn_id)
        elif landed is None and base is not None:
            landed = _is_unbroken(store, base) or None
    except TxlogError as error:
        raise _cleaned(path, version, txn_id) from error
    if landed is None:
        raise _cleaned(path, version, txn_id)
    if not landed:
        raise CommitConflictError(
            version=latest.version,
            rule="CON-19",
            path=path,
            reason=f"the table had moved from version {version - 1} to {latest.version}, and the "
            "commits in between were cleaned up, so they cannot be checked for conflicts",
            remedy="Nothing was committed. Refresh the table and run the operation again",
        )


def _is_unbroken(store: Store, base: Snapshot) -> bool:
    """Return whether the log has all commits since a version, from that version's own one on.

    A checkpoint above a commit alone does not show a clean-up: another writer may have written it
    on top of the commit. A clean-up deletes all commits before a checkpoint. So if it had freed the
    name of the commit, it would also have deleted the older commit of the base. (Only one that is
    still running and deletes in another order looks the same, for a moment.)
    """
    files = list_log(store, since=base.version)
    commits = {file.version: file for file in files if file.kind == "commit"}
    own = commits.get(base.version)
    if own is None or own.modified_ms != base.head_ms:
        return False
    last = max(file.last_version for file in files if file.kind != "checksum")
    return last - base.version < len(commits) and all(
        version in commits for version in range(base.version, last + 1)
    )


def _is_read(latest: Snapshot, version: int) -> bool:
    """Return whether the latest version starts at a checkpoint before a commit and includes it."""
    below = latest.checkpoint[0].version if latest.checkpoint else -1
    return below < version <= latest.version


def is_part_of(commit: Commit, latest: Snapshot, files: FileState) -> bool | None:
    """Return whether the latest version contains a commit's changes; None if this is unknown.

    Pure. Paths of new files are unique, so a file that the commit adds is live, or a tombstone if
    a later commit removed it again.
    """
    rows = file_rows([commit])
    adds, removes = rows.filter(rows["is_add"]), rows.filter(pc.invert(rows["is_add"]))
    if adds.num_rows:
        known = pc.or_(_are_in(adds, files.live), _are_in(adds, files.tombstones))
        return _all_or_none(known)
    if removes.num_rows:
        return not pc.any(_are_in(removes, files.live)).as_py()
    actions = [action for _, action in commit.controls]
    txns = [action for action in actions if isinstance(action, Txn)]
    if txns:
        return all(_recorded(latest, txn) for txn in txns)
    metadata = [action for action in actions if isinstance(action, Metadata)]
    protocol = [action for action in actions if isinstance(action, Protocol)]
    if commit.version == 0 and metadata:
        return metadata[0].id == latest.metadata.id
    same = all(action == latest.metadata for action in metadata) and all(
        action == latest.protocol for action in protocol
    )
    # A later commit may have changed them again.
    return True if same and (metadata or protocol) else None


def _recorded(latest: Snapshot, txn: Txn) -> bool:
    version = latest.transaction_version(txn.app_id)
    return version is not None and version >= txn.version


def _are_in(rows: pa.Table, others: pa.Table) -> pa.Array:
    """Return for each of `FILE_ROWS` whether its logical file is in other `FILE_ROWS`."""
    return pc.is_in(file_keys(rows), value_set=flat(file_keys(others)))


def _all_or_none(known: pa.Array) -> bool | None:
    if pc.all(known).as_py():
        return True
    return None if pc.any(known).as_py() else False


def _delete_stray(store: Store, path: str, txn_id: str) -> None:
    """Delete this writer's commit, so that no reader mistakes it for the deleted version."""
    if is_ours(store.read(path), txn_id, path):
        store.delete([path])


def is_ours(data: bytes, txn_id: str, path: str) -> bool:
    """Return whether the bytes of a commit contain this attempt's transaction id."""
    try:
        return any(txn_id_of(row) == txn_id for row in log_rows(data, path=path))
    except LogCorruptError:
        return False


def _unknown(
    path: str,
    version: int,
    txn_id: str,
    reason: str = "the store's answer was lost and the commit could not be read back",
    remedy: str = "Open the table and look for the txnId in its history before you write again",
) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        path=path, version=version, txn_id=txn_id, reason=reason, remedy=remedy
    )


def _cleaned(path: str, version: int, txn_id: str) -> OutcomeUnknownError:
    return _unknown(
        path,
        version,
        txn_id,
        reason="the commit was put, but the log was cleaned up meanwhile, and it is unknown "
        "whether the table contains the commit",
        remedy="Open the table and check whether it contains the written rows",
    )
