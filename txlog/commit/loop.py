"""The commit loop: put a commit as the next version; if the name is taken, judge the winners.

Each attempt has its bytes and the snapshot that they would make.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

from txlog.actions.file import Add
from txlog.actions.table import CommitInfo, DomainMetadata, Metadata, Protocol, Txn
from txlog.base.effects import Effects
from txlog.base.errors import (
    DuplicateKeyError,
    LogCorruptError,
    RetriesExhaustedError,
)
from txlog.base.observe import note, observed
from txlog.base.thresholds import Threshold
from txlog.checkpoint.file_rows import Wanted
from txlog.commit.app_versions import dated
from txlog.commit.intent import (
    Duties,
    Encoded,
    Intent,
    RowIds,
    duties_of,
    encode_commit,
    highest_row_id,
)
from txlog.commit.judge import Verdict, adds_only, judge, passes_blindly, refusal, worse
from txlog.commit.landed import (
    PutCommit,
    put_commit,
    require_landed,
    unknown_without_memory,
    wait_s,
)
from txlog.commit.packs import with_packs
from txlog.fragments.ids import ID_APP, ROW_TRACKING_DOMAIN, highest_id, row_id_mark
from txlog.log.names import LogFile, commit_name
from txlog.log.segment import Segment
from txlog.protocol.access import (
    features_of,
    with_types,
    with_vectors,
)
from txlog.protocol.iceberg import require_compatible
from txlog.protocol.properties import STAMPED_SINCE
from txlog.reconcile.files import controls_of
from txlog.schema.json import parse_schema
from txlog.snapshot.commits import (
    Commit,
    are_readable_as_models,
    commit_of,
    file_rows,
    parse_commit,
    read_commit,
)
from txlog.snapshot.live_files import fold_files, load_files
from txlog.snapshot.load import (
    is_loaded,
    is_unchanged,
    load_snapshot,
    look_ahead,
    reloaded,
    require_successor,
)
from txlog.snapshot.snapshot import Snapshot, advance, advance_lazily, make_snapshot, moved
from txlog.snapshot.successor import require_same_version
from txlog.store.base import PutIfAbsent, Store, is_far

_CONTROLS = (Protocol, Metadata, Txn, DomainMetadata)
_PLAIN = frozenset({CommitInfo, Txn, Add})


@dataclass(frozen=True)
class Attempt:
    """The bytes to put, and the snapshot that they make."""

    data: bytes
    after: Snapshot


def prepare(
    store: Store,
    snapshot: Snapshot | None,
    intent: Intent,
    txn_id: str,
    *,
    made_ms: int,
    now_ms: int,
    pending_ids: int | None = None,
    first: Snapshot | None = None,
) -> Attempt:
    """Prepare a commit on top of a snapshot (None: it makes the table).

    An invalid new version raises here, before it exists. Two attempts of a commit have the same
    bytes if nothing in them depends on the version.

    Parameters
    ----------
    made_ms
        The time of the first attempt: the commit's time, unless the table has in-commit timestamps.
    now_ms
        The time of this attempt.
    pending_ids
        Of an operation of a transaction: the first pending id of its rows (`PENDING_ROW_IDS`).
    first
        Of an operation of a transaction: the version that the transaction changes.

    Raises
    ------
    LogCorruptError, UnsupportedFeatureError
        The version could not be opened.
    """
    found = _encoded(
        store,
        snapshot,
        intent,
        txn_id,
        made_ms=made_ms,
        now_ms=now_ms,
        pending_ids=pending_ids,
        first=first,
    )
    version = 0 if snapshot is None else snapshot.version + 1
    file = LogFile(commit_name(version), "commit", version, modified_ms=now_ms)
    if snapshot is not None and found.rows is not None and _adds_only(intent, found):
        return Attempt(found.data, advance_lazily(snapshot, unparsed(found, file)))
    return Attempt(found.data, _version_after(store, snapshot, parse_commit(found.data, file)))


def unparsed(found: Encoded, file: LogFile) -> Commit:
    """Return the result of `parse_commit` for a commit of few actions, without parsing its text."""
    assert found.rows is not None
    controls = tuple(
        (file.version, action) for action in found.actions if isinstance(action, _CONTROLS)
    )
    return commit_of(file, found.rows, controls)


def _adds_only(intent: Intent, found: Encoded) -> bool:
    """Whether all actions only add files and were already validated."""
    return intent.kind == "append" and all(type(a) in _PLAIN for a in found.actions)


def _encoded(
    store: Store,
    snapshot: Snapshot | None,
    intent: Intent,
    txn_id: str,
    *,
    made_ms: int,
    now_ms: int,
    pending_ids: int | None,
    first: Snapshot | None = None,
) -> Encoded:
    intent = _with_types_listed(_with_vectors_enabled(intent, snapshot), snapshot)
    intent = with_packs(store, snapshot, intent, first)
    if intent.txns and snapshot is not None:
        intent = dated(intent, snapshot)
    metadata = intent.metadata or (snapshot.metadata if snapshot else None)
    protocol = intent.protocol or (snapshot.protocol if snapshot else None)
    stamped, row_ids = False, None
    if protocol is not None and metadata is not None:
        if snapshot is None or intent.metadata or intent.protocol:
            needed = duties_of(protocol, metadata)
        else:
            needed = snapshot.memo(_own_duties)
        if needed.compatible:
            before = None if snapshot is None else snapshot.metadata
            require_compatible(protocol, metadata, path=store.root, before=before, adds=intent.adds)
        stamped = needed.stamped
        if needed.numbered:
            row_ids = RowIds(
                version=0 if snapshot is None else snapshot.version + 1,
                mark=-1 if pending_ids is not None else _highest_row_id(store, snapshot, intent),
                enabled=needed.tracked,
                pending=pending_ids,
            )
    if stamped:
        made_ms = now_ms if snapshot is None else _after(store, snapshot, now_ms)
    if stamped and snapshot is not None and not snapshot.is_active("inCommitTimestamp"):
        assert metadata is not None
        since = zip(STAMPED_SINCE, (str(snapshot.version + 1), str(made_ms)), strict=True)
        configuration = {**metadata.configuration, **dict(since)}
        intent = replace(
            intent, metadata=metadata.model_copy(update={"configuration": configuration})
        )
    return encode_commit(
        intent,
        highest_id=_highest_id(store, snapshot, intent),
        timestamp_ms=made_ms,
        stamped=stamped,
        txn_id=txn_id,
        row_ids=row_ids,
    )


def _own_duties(snapshot: Snapshot) -> Duties:
    return duties_of(snapshot.protocol, snapshot.metadata)


def _with_vectors_enabled(intent: Intent, snapshot: Snapshot | None) -> Intent:
    """Return an intent that enables deletion vectors if it writes any (rule CON-22)."""
    if snapshot is None or snapshot.is_active("deletionVectors") or not has_vectors(intent):
        return intent
    before = intent.protocol or snapshot.protocol, intent.metadata or snapshot.metadata
    protocol, metadata = with_vectors(*before)
    return replace(
        intent,
        protocol=intent.protocol if protocol is before[0] else protocol,
        metadata=intent.metadata if metadata is before[1] else metadata,
    )


def _with_types_listed(intent: Intent, snapshot: Snapshot | None) -> Intent:
    """Return an intent with the features that its new columns need (rule CON-26)."""
    if snapshot is None or intent.metadata is None:
        return intent
    if intent.metadata.schema_string == snapshot.metadata.schema_string:
        return intent
    before = intent.protocol or snapshot.protocol
    protocol = with_types(before, parse_schema(intent.metadata.schema_string or ""))
    return intent if protocol is before else replace(intent, protocol=protocol)


def has_vectors(intent: Intent) -> bool:
    """Return whether an intent adds a file with a deletion vector."""
    return any(add.deletion_vector is not None for add in intent.adds)


def _highest_id(store: Store, snapshot: Snapshot | None, intent: Intent) -> int:
    if snapshot is None or not intent.adds:
        return -1
    return highest_fragment_id(store, snapshot)


def highest_fragment_id(store: Store, snapshot: Snapshot) -> int:
    """Return the highest assigned fragment id; -1 if there is none.

    For the files of a checkpoint, the recorded id is enough, so the cost of a commit does not
    depend on the table's size. The tags of other writers' files are read once.
    """
    recorded = snapshot.transaction_version(ID_APP)
    if recorded is not None:
        return max(recorded, snapshot.tail.highest_id)
    return fold_files(
        store,
        snapshot,
        Wanted(("tags",)),
        lambda batches: max(highest_id(rows, None) for _, rows in batches),
        distinct=False,
        checks=False,  # The commit may make the files legal.
    )


def _highest_row_id(store: Store, snapshot: Snapshot | None, intent: Intent) -> int:
    """Return the highest assigned row id, at the same cost as for fragment ids."""
    if snapshot is None or not intent.adds:
        return -1
    domain = snapshot.controls.domains.get(ROW_TRACKING_DOMAIN)
    recorded = row_id_mark(domain, path=snapshot.root)
    if recorded is not None:
        return max(recorded, highest_row_id(snapshot.tail.rows, exact=False))
    files = load_files(store, snapshot, checks=False)
    return max(
        highest_row_id(files.live, exact=True), highest_row_id(files.tombstones, exact=False)
    )


def _after(store: Store, snapshot: Snapshot, now_ms: int) -> int:
    """Return the in-commit timestamp of the next version."""
    if snapshot.is_active("inCommitTimestamp"):
        before_ms = snapshot.timestamp_ms
        made_ms = now_ms if before_ms is None else max(now_ms, before_ms + 1)
    else:  # It is the first one, which follows the times of files.
        from txlog.snapshot.time_travel import least_ms  # Few commits need it.

        made_ms = max(now_ms, least_ms(store, snapshot))
    if made_ms >= 1 << 63:
        raise LogCorruptError(
            path=snapshot.root,
            version=snapshot.version,
            field="inCommitTimestamp",
            reason="the in-commit timestamp of this version is the largest possible one, so no "
            "later version is possible",
            remedy="The writer of this version made an error. Restore the log from a copy",
        )
    return made_ms


def _version_after(store: Store, snapshot: Snapshot | None, mine: Commit) -> Snapshot:
    """Return the snapshot after a commit; errors as for opening the table."""
    if snapshot is not None:
        return advance(snapshot, [mine])
    controls = controls_of(mine.controls)
    return make_snapshot(
        store.root,
        Segment(mine.version),
        controls,
        sidecars=(),
        tail=file_rows([mine]),
        timestamp_ms=mine.made_ms(controls.protocol, controls.metadata),
        head_ms=mine.modified_ms,
        is_managed=store.is_managed,
    )


DEADLINE_S = 120.0
# A put alone does not show a gap above its name. If the latest version was read longer ago than
# this, the log is looked at again before the first put; beside so long an operation, that is cheap.
LOOK_AGAIN_S = 10.0
# Lost races before the first wait. A writer that waits usually loses again.
_AT_ONCE: Threshold = 10
_PATIENCE: Threshold = 3  # Lost races before a commit asks for precedence.


@dataclass(frozen=True)
class Committed:
    """The intent was committed as version `snapshot.version`."""

    snapshot: Snapshot
    intent: Intent
    attempts: int
    features_added: frozenset[str] = frozenset()  # The changes of features of an existing table.
    features_dropped: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Redo:
    """A winner forbids the intent; run the operation again from `snapshot`."""

    snapshot: Snapshot
    verdict: Verdict
    version: int  # The winner's version.


Rebase = Callable[[Snapshot, Intent, list[Commit]], Intent | None]
"""A function that rebases an intent on a newer snapshot if the winners only deleted other rows."""

Check = Callable[[Snapshot | None, Intent, Snapshot, list[Commit]], None]
"""A function that raises `DuplicateKeyError` if an attempt would break a unique key.

It gets the version that the intent changes, the intent, the new version, and the winners since the
last attempt.
"""


def commit(
    store: Store,
    base: Snapshot | None,
    intent: Intent,
    *,
    effects: Effects,
    deadline_s: float = DEADLINE_S,
    rebase: Rebase | None = None,
    check: Check | None = None,
    looked_s: float | None = None,
) -> Committed | Redo:
    """Commit an intent on top of `base`, or of a later version if the winners permit it.

    Parameters
    ----------
    base
        The snapshot from which the intent was made; None if it creates the table.
    rebase
        Merges the rows that an intent deletes with those that winners deleted from the same files.
    check
        Compares the keys of new rows with those of all others, before each attempt.
    looked_s
        When `base` was the latest version, by the monotonic clock of `effects`. Default: now.

    Returns
    -------
    `Committed`, or `Redo` with the snapshot for a new intent. In that case nothing was committed.

    Raises
    ------
    CommitConflictError
        A winner forbids the intent, and running the operation again would be wrong too.
    DuplicateKeyError
        Two rows would have the same unique key.
    RetriesExhaustedError
        Other writers won until the deadline.
    OutcomeUnknownError
        An answer was lost, and the commit cannot be read back, or memory ran out meanwhile. Its
        data files must be kept.
    """
    store.require_writable()
    with (
        observed(intent.operation, store.root, within=True),
        store.attempts() as put,
        ExitStack() as stack,
    ):
        note("planned", intent.facts)
        result = _commit(
            store, put, base, intent, effects, deadline_s, rebase, check, looked_s, stack
        )
        if isinstance(result, Committed):
            version = result.snapshot.version
            note("committed", lambda: {"version": version, **result.intent.facts()})
        return result


def _commit(
    store: Store, put: PutIfAbsent, base: Snapshot | None, intent: Intent, effects: Effects,
    deadline_s: float, rebase: Rebase | None, check: Check | None, looked_s: float | None,
    stack: ExitStack,
) -> Committed | Redo:  # fmt: skip
    """Implement `commit` with a put that keeps its temporary file between attempts.

    `stack` holds the precedence that it asks for, until it ends.
    """
    # All attempts have the same id, which identifies this writer's commit.
    txn_id = effects.uuid()
    made_ms = effects.now_ms()
    started = effects.monotonic_s()
    is_old = base is not None and _is_old(store, base, started, looked_s)
    snapshot = base
    tried = 0
    unchecked: list[Commit] = []  # The winners since the last attempt.
    while True:
        passed: list[Commit] = []
        first: bytes | None = None
        if snapshot is None or not is_old:
            tried += 1
            version = 0 if snapshot is None else snapshot.version + 1
            now_ms = effects.now_ms()
            attempt = prepare(store, snapshot, intent, txn_id, made_ms=made_ms, now_ms=now_ms)
            if check is not None:
                try:
                    check(snapshot, intent, attempt.after, unchecked)
                except DuplicateKeyError:
                    if snapshot is base or intent.kind == "append":
                        raise
                    assert snapshot is not None  # It is not the base, so it has winners.
                    return Redo(snapshot, Verdict("redo", "CON-31"), snapshot.version)
                unchecked = []
            mine = PutCommit(
                version, attempt.data, txn_id, intent.own_files, began_ms=now_ms, before=snapshot
            )
            with unknown_without_memory(version, txn_id):
                first = put_commit(store, put, version, attempt.data, txn_id, effects)
                if first is None:
                    stamped = with_time(attempt.after, require_landed(store, mine, effects))
                    return Committed(stamped, intent, tried, *changed_features(snapshot, stamped))
        if snapshot is None:
            return Redo(load_snapshot(store), Verdict("redo", "CON-1"), version)
        is_old = False
        if first is not None:
            # First the wait, then the look: a writer that puts what it knew before the wait loses
            # each time to those that do not wait.
            wait_after(tried, effects)
            if tried == max(_PATIENCE, 1):
                stack.enter_context(store.precedence(briefly=True))
        verdict, snapshot, at = pass_winners(store, snapshot, intent, passed, first)
        unchecked += passed
        if verdict is not None and verdict.outcome == "rebase" and rebase is not None:
            rebased = rebase(snapshot, intent, passed)
            if rebased is not None:
                intent, verdict = rebased, None
        if verdict is not None and verdict.outcome == "fail":
            note("conflict", {"version": at, "rule": verdict.rule})
            raise refusal(verdict, at)
        if verdict is not None:
            return Redo(snapshot, verdict, at)
        if first is None:
            continue
        waited = effects.monotonic_s() - started
        if waited > deadline_s:
            raise RetriesExhaustedError(
                version=at,
                rule="CON-0",
                reason=f"{tried} attempts in {waited:.0f} s were all lost to other writers",
                remedy="Write less often or in larger batches, then try again",
            )
        note("retried", {"read_version": snapshot.version})


def _is_old(store: Store, base: Snapshot, now_s: float, looked_s: float | None) -> bool:
    """Return whether the log is looked at before the first put.

    The name after a version may be free in the log of another table, too, which took the place
    meanwhile. Before the put that costs nothing to see if the store is near. For others, the look
    after the put shows it.
    """
    if looked_s is not None and now_s - looked_s > LOOK_AGAIN_S:
        return True
    return not (store.ratifies or is_far(store) or is_unchanged(store, base))


def changed_features(
    before: Snapshot | None, after: Snapshot
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the features that a commit added to a table and those that it dropped."""
    if before is None or before.protocol is after.protocol:
        return frozenset(), frozenset()
    then, now = features_of(before.protocol), features_of(after.protocol)
    return now - then, then - now


def wait_after(losses: int, effects: Effects) -> bool:
    """Wait after every so many lost attempts, and return whether it did.

    Between the waits the attempts follow at once. Writers of other engines do not wait: after each
    wait an operation has their new files to look at, and would lose again. If it never waited, it
    would keep others of its kind from finishing.
    """
    turns, left = divmod(losses, max(_AT_ONCE, 1))
    if left or not turns:
        return False
    effects.sleep_s(wait_s(turns - 1) * effects.jitter())
    return True


def with_time(after: Snapshot, made_ms: int | None) -> Snapshot:
    """Return the new snapshot with the time of its file, which may be unknown."""
    stamped = after.memo(_own_duties).stamped
    return moved(after, head_ms=made_ms, timestamp_ms=after.timestamp_ms if stamped else made_ms)


def _with_added(snapshot: Snapshot, winner: Commit) -> Snapshot:
    """Return the version after a winner that only adds files."""
    with suppress(LogCorruptError):  # Columns may accept more than models.
        if are_readable_as_models([winner]):
            return advance_lazily(snapshot, winner)
    return advance(snapshot, [winner])


def pass_winners(
    store: Store, snapshot: Snapshot, intent: Intent, passed: list[Commit], first: bytes | None
) -> tuple[Verdict | None, Snapshot, int]:
    """Judge all commits after the snapshot; return the hardest verdict and the newest snapshot.

    The winners are appended to `passed`; `first` has the bytes of the first winner, if they are
    known. If winners are missing or cannot be read, nobody knows what they did, and a commit with
    the next name would fill a gap. Then the verdict is redo, from the table opened again.

    Raises
    ------
    CommitConflictError
        Another table replaced the snapshot's, or an older copy of it.
    """
    bad: Verdict | None = None
    bad_at = snapshot.version
    current = snapshot
    own, newer, is_whole = look_ahead(store, snapshot.version)
    if not (store.ratifies or is_loaded(own, snapshot)):
        from txlog.snapshot.salvage import latest_left  # Few commits need it.

        # These may be the winners of another table. The log may be damaged, as `restore` permits.
        require_successor(latest_left(store), snapshot, store.root)
        require_same_version(store, snapshot)
    for file in newer:
        if not passed and first is not None:
            file = file._replace(content=first)
        try:
            winner = read_commit(store, file)
        except LogCorruptError:
            is_whole = False
            break
        passed.append(winner)
        # All winners are judged, because a later winner may forbid a redo.
        few = intent.kind == "append" and are_readable_as_models([winner])
        if few and passes_blindly(intent, winner):
            current = advance_lazily(current, winner)
            continue
        if bad is not None and bad.outcome == "redo" and adds_only(winner):
            current = _with_added(current, winner)  # No verdict on it is harder.
            continue
        files = file_rows([winner])
        verdict = judge(intent, winner, files, snapshot)
        if verdict.outcome != "ok" and (bad is None or worse(verdict, bad)):
            bad, bad_at = verdict, winner.version
        current = advance(current, [winner], files=files)
    if not is_whole and (bad is None or bad.outcome != "fail"):
        current = reloaded(store, snapshot)
        return Verdict("redo", "CON-19"), current, current.version
    return bad, current, bad_at if bad else current.version
