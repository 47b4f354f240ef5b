"""Put a commit, and check whether it is a version of the table.

A put-if-absent succeeds if no file has the name. Then the name belongs to the table's next version,
or to an old version whose commit a clean-up deleted. In the second case, a checkpoint of that
version or a later one exists. Readers begin at the checkpoint, so they never see the commit. Rule:
CON-19.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from txlog.actions.ndjson import rows as log_rows
from txlog.actions.table import DomainMetadata, Metadata, Txn
from txlog.base.arrow import arrow_array, pc
from txlog.base.columns import flat
from txlog.base.effects import Effects
from txlog.base.errors import (
    CommitConflictError,
    LogCorruptError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
    TxlogError,
    resource_error,
)
from txlog.checkpoint.hint import hinted_version
from txlog.commit.intent import txn_id_of
from txlog.log.names import LogFile, commit_name, log_path
from txlog.log.paths import canonical_keys
from txlog.reconcile.files import FileState, file_keys
from txlog.snapshot.commits import Commit, file_rows, parse_commit
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import (
    commit_at,
    is_loaded,
    list_log,
    load_snapshot,
    require_successor,
)
from txlog.snapshot.snapshot import Snapshot, moved
from txlog.snapshot.successor import require_same_version
from txlog.store.base import PutIfAbsent, Store, is_far

_FIRST_WAIT_S = 0.005
_LONGEST_WAIT_S = 1.0
_LEAST_KEPT_MS = 3_600_000  # How long tombstones must last: clocks of writers differ.
_UNKNOWN_AGE_MS = 1 << 62
_CLEANING_S = 1.0  # Longer than a clean-up takes from one commit to the next one.
_LOST_ANSWERS = 10  # Consecutive failures before the outcome counts as unknown.


def wait_s(attempts: int) -> float:
    """Return the seconds to wait after failed attempts; they double up to a second."""
    return min(_LONGEST_WAIT_S, _FIRST_WAIT_S * float(2 ** min(attempts, 12)))


@contextmanager
def unknown_without_memory(version: int, txn_id: str) -> Iterator[None]:
    """Raise `OutcomeUnknownError` if memory or threads run out in the `with` block.

    In it a commit is put. It may have landed, so its files must be kept.
    """
    try:
        yield
    except Exception as error:
        if (lacking := resource_error(error)) is None:
            raise
        raise _unknown(
            log_path(commit_name(version)), version, txn_id,
            reason=f"the commit may have landed, but {lacking.reason or lacking.summary}",
        ) from error  # fmt: skip


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


@dataclass(frozen=True)
class PutCommit:
    """A commit that was put."""

    version: int
    data: bytes
    txn_id: str
    own_files: frozenset[str]  # As in `Intent.own_files`.
    began_ms: int  # A time before it was put.
    before: Snapshot | None = None  # The version on top of which it was put; None for the first.

    @property
    def path(self) -> str:
        """The path of its file, relative to the table's root."""
        return log_path(commit_name(self.version))


def require_landed(store: Store, put: PutCommit, effects: Effects) -> int | None:
    """Return the store's time of the commit that was put; raise if it is not valid.

    None means that the store has no time. Usually this costs one request each for the commit, the
    commit before it and `_last_checkpoint`, or one listing for a remote store. If the commit before
    it is another one than the writer loaded, another table may have taken the place. If the log may
    have been cleaned up, the latest version is searched for something that only this commit has. A
    commit that is not part of the table is deleted, so that no reader ever sees it.

    Raises
    ------
    CommitConflictError
        The table had moved to a later version, and the log was cleaned up, or another table
        replaced it. Nothing was committed.
    OutcomeUnknownError
        The log may have been cleaned up, and it is unknown whether the table contains the commit;
        or others have committed on top of it in the log of another table.
    """
    if store.ratifies:  # The catalog ratified the commit.
        return _made_ms(store, put.path)
    try:
        seen = _seen_far(store, put) if is_far(store) else _seen_near(store, put)
        if seen.may_be_of_another:
            _require_same_table(store, put)
        if seen.may_be_behind:
            _search_latest(store, put, effects)
    except (CommitConflictError, OutcomeUnknownError):
        raise
    except TxlogError as error:  # The commit is there, so no error may say that it is not.
        raise _unknown(put.path, put.version, put.txn_id) from error
    return seen.made_ms


def _made_ms(store: Store, path: str) -> int | None:
    try:
        return store.info(path).modified_ms
    except (NotFoundError, StoreError):
        return None


class _Seen(NamedTuple):
    may_be_of_another: bool  # The commit before it is gone or another one than was loaded.
    may_be_behind: bool  # The commit's version and later ones may have been cleaned up.
    made_ms: int | None


def _seen_near(store: Store, put: PutCommit) -> _Seen:
    version, is_gone, is_own = put.version, False, True
    if put.before is not None:
        try:
            own = commit_at(store, version - 1)
            is_gone, is_own = own is None, is_loaded(own, put.before)
        except StoreError:  # The error says nothing about the log.
            pass
    behind = hinted_version(store) >= version or is_gone
    return _Seen(not is_own, behind, _made_ms(store, put.path))


def _seen_far(store: Store, put: PutCommit) -> _Seen:
    version = put.version
    try:
        files = list_log(store, since=max(0, version - 1))
    except StoreError:  # The error says nothing about the log.
        return _Seen(False, False, None)
    commits = {file.version: file for file in files if file.kind == "commit"}
    covered = any(file.kind == "checkpoint" and file.version >= version for file in files)
    own, mine = commits.get(version - 1), commits.get(version)
    is_own = put.before is None or is_loaded(own, put.before)
    behind = covered or (version > 0 and own is None)
    return _Seen(not is_own, behind, None if mine is None else mine.modified_ms)


def _require_same_table(store: Store, put: PutCommit) -> None:
    """Raise if a commit was put into the log of another table that took the place of its own.

    The commit is deleted, unless others have committed on top of it. So is one in a log that was
    replaced by an older copy of itself: it would leave a gap above the end of the copy, or change
    files that the copy does not have.
    """
    before, name = put.before, commit_name(put.version)
    assert before is not None
    others: list[LogFile] = []
    try:
        others = [file for file in list_log(store) if file.name != name]
        last = max((file.last_version for file in others), default=-1)
        if last < 0:
            raise CommitConflictError(
                version=before.version,
                rule="CON-2",
                path=store.root,
                reason="the table was removed before the commit was put",
                remedy="Check who removed it, and create it again if it is still needed",
            )
        found = _without(store, put, last)
        require_successor(found, before, store.root)
        if found.version == before.version:
            require_same_version(store, before, found)
    except CommitConflictError as error:
        if any(file.kind == "commit" and file.version > put.version for file in others):
            raise _unknown(
                put.path, put.version, put.txn_id,
                reason="another table, or an older copy, replaced this one before the commit was "
                "put, and others have committed on top of it",
                remedy="Open the table again with txlog.Table, and see in its history whether "
                f"restore({put.version - 1}) is needed",
            ) from error  # fmt: skip
        _delete_stray(store, put.path, put.txn_id)
        raise
    except TxlogError as error:
        raise _cleaned(put) from error


def _without(store: Store, put: PutCommit, last: int) -> Snapshot:
    """Return the version below a commit, or the last one if the log no longer has that version."""
    try:
        return load_snapshot(store, version=min(last, put.version - 1))
    except (NotFoundError, LogCorruptError):
        if last < put.version:
            raise
        return load_snapshot(store)


def _search_latest(store: Store, put: PutCommit, effects: Effects) -> None:
    """Raise unless the latest version is built on a commit or contains something of it alone."""
    version = put.version
    try:
        latest = load_snapshot(store)
        if _is_read(latest, version):
            return
        commit = parse_commit(put.data, LogFile(commit_name(version), "commit", version))
        age_ms = effects.now_ms() - put.began_ms
        if age_ms < 0:  # A clock that went back tells nothing.
            age_ms = _UNKNOWN_AGE_MS
        landed = is_part_of(commit, put.own_files, latest, load_files(store, latest), age_ms=age_ms)
        before_stays = version > 0 and landed is not True and _stays(store, commit, latest, effects)
        if landed is None and before_stays:
            return
        if landed is False and before_stays:
            raise _cleaned(put)  # Both cannot be: other writers do something unusual.
        if landed is False:
            _delete_stray(store, put.path, put.txn_id)
    except OutcomeUnknownError:
        raise
    except TxlogError as error:
        raise _cleaned(put) from error
    if landed is None:
        raise _cleaned(put)
    if not landed:
        raise CommitConflictError(
            version=latest.version,
            rule="CON-19",
            path=put.path,
            reason=f"the table had moved from version {version - 1} to {latest.version}, and the "
            "commits in between were cleaned up, so they cannot be checked for conflicts",
            remedy="Nothing was committed. Refresh the table and run the operation again",
        )


def _stays(store: Store, commit: Commit, latest: Snapshot, effects: Effects) -> bool:
    """Return whether no clean-up has reached a commit that was put.

    Clean-ups delete commits from the oldest on, some of them several at once. So if the commit
    before it and all later ones exist, and still do after a moment, none of them was deleted. The
    later ones count, too, because a clean-up may fail to delete a single file. What a pin or a
    clone of others needs is left out by clean-ups, so then the commits show nothing.
    """
    from txlog.snapshot.references import held_versions  # Few commits need it.

    before = commit.version - 1
    own = [action for _, action in commit.controls if isinstance(action, DomainMetadata)]
    domains = {k: v for k, v in latest.controls.domains.items() if v not in own}
    others = moved(latest, controls=replace(latest.controls, domains=domains))
    if any(held.version >= before for held in held_versions(others, effects.now_ms())):
        return False
    if not _is_whole(store, before):
        return False
    effects.sleep_s(_CLEANING_S)
    return _is_whole(store, before)


def _is_whole(store: Store, version: int) -> bool:
    """Return whether the log has the commits of a version and of all later ones."""
    files = list_log(store, since=version, briefly=True)
    last = max((file.last_version for file in files), default=version)
    commits = {file.version for file in files if file.kind == "commit"}
    return commits.issuperset(range(version, last + 1))


def _is_read(latest: Snapshot, version: int) -> bool:
    """Return whether the latest version is a commit's, or starts at a checkpoint before it.

    The protocol lets a clean-up delete the commits below a checkpoint, and never that of the
    checkpoint's own version. So if there is no later version, the name was not free again.
    """
    below = latest.checkpoint[0].version if latest.checkpoint else -1
    return latest.version == version or below < version <= latest.version


def is_part_of(
    commit: Commit,
    own_files: frozenset[str],
    latest: Snapshot,
    files: FileState,
    *,
    age_ms: int,
) -> bool | None:
    """Return whether the latest version contains a commit; None if this is unknown.

    Pure. Only what no other commit can have shows that it does: a file that was written for it, or
    the id of the table that it makes. Everything else may come from another commit with the same
    effect: files that are live anyway and are logged again, restored or shared files, properties.
    A file of its own that is neither live nor a tombstone shows that it does not, and so does a
    version of an application that is not recorded. If it only removes files, and one of them is
    live, nothing is left of it: it is not part of the table, or was undone.

    Parameters
    ----------
    own_files
        As in `Intent.own_files`.
    age_ms
        The time since before the commit was put: since then tombstones may have expired.
    """
    rows = file_rows([commit])
    adds, removes = rows.filter(rows["is_add"]), rows.filter(pc.invert(rows["is_add"]))
    own = _own_names(adds, own_files)
    if own:
        names = arrow_array(sorted(own), pa.string())
        for state in (files.live, files.tombstones):
            for known in (canonical_keys(state["path"]), state["dv_id"]):
                if pc.any(pc.is_in(known, value_set=names)).as_py():
                    return True
        kept_ms = latest.properties.get("delta.deletedFileRetentionDuration")
        return False if kept_ms - age_ms >= _LEAST_KEPT_MS else None
    actions = [action for _, action in commit.controls]
    metadata = [action for action in actions if isinstance(action, Metadata)]
    if commit.version == 0 and metadata:
        return metadata[0].id == latest.metadata.id
    expires = latest.properties.get("delta.setTransactionRetentionDuration") is not None
    txns = [action for action in actions if isinstance(action, Txn)]
    if not expires and any(not _recorded(latest, txn) for txn in txns):
        return False
    if removes.num_rows == rows.num_rows and not actions:
        undone = pc.any(pc.is_in(file_keys(removes), value_set=flat(file_keys(files.live))))
        return False if undone.as_py() else None
    return None


def _recorded(latest: Snapshot, txn: Txn) -> bool:
    version = latest.transaction_version(txn.app_id)
    return version is not None and version >= txn.version


def _own_names(adds: pa.Table, own_files: frozenset[str]) -> set[str]:
    """Return the names of files that only this commit can have, by the spelling of keys."""
    own = arrow_array(sorted(own_files), pa.string())
    paths = canonical_keys(adds["path"].filter(pc.is_in(adds["path"], value_set=own)))
    vectors = adds["dv_id"].filter(pc.is_in(adds["dv_id"], value_set=own))
    return {*paths.to_pylist(), *vectors.to_pylist()}


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


def _cleaned(put: PutCommit) -> OutcomeUnknownError:
    return _unknown(
        put.path,
        put.version,
        put.txn_id,
        reason="the commit was put, but the log was cleaned up or replaced meanwhile, and it is "
        "unknown whether the table contains the commit",
        remedy="Open the table, and check whether its rows, columns and properties are those that "
        "the operation makes. If they are not, run it again",
    )
