"""One attempt at a commit: its bytes, and the version that they would make."""

from __future__ import annotations

from dataclasses import dataclass

from txlog.actions.file import Add
from txlog.actions.table import CommitInfo, DomainMetadata, Metadata, Protocol, Txn
from txlog.checkpoint.file_rows import Wanted
from txlog.commit.encode import Encoded, RowIds, encode_commit, highest_row_id
from txlog.commit.intent import Intent
from txlog.fragments.ids import ID_APP, highest_id
from txlog.log.names import LogFile, commit_name
from txlog.log.segment import Segment
from txlog.protocol.access import is_active, is_stamped
from txlog.protocol.properties import Properties
from txlog.protocol.row_tracking import ROW_TRACKING_DOMAIN, gives_row_ids, row_id_mark
from txlog.reconcile.table_state import controls_of
from txlog.snapshot.commits import FEW_FILES, Commit, commit_of, file_rows, parse_commit
from txlog.snapshot.live_files import fold_files, load_files
from txlog.snapshot.snapshot import Snapshot, advance, advance_lazily, make_snapshot
from txlog.store.base import Store

_CONTROLS = (Protocol, Metadata, Txn, DomainMetadata)
_PLAIN = frozenset({CommitInfo, Txn, Add})


@dataclass(frozen=True)
class Attempt:
    """What is put, and the version that it makes if it lands."""

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
) -> Attempt:
    """Prepare a commit on top of a snapshot (None: it makes the table).

    Whatever could fail about the new version fails here, before it is there. Two attempts at one
    commit have the same bytes if nothing in them depends on the version.

    Parameters
    ----------
    made_ms
        When the first attempt was made: the commit's own time, unless the table stamps commits.
    now_ms
        When this one is made.

    Raises
    ------
    LogCorruptError, UnsupportedFeatureError
        The version could not be opened.
    """
    found = _encoded(store, snapshot, intent, txn_id, made_ms=made_ms, now_ms=now_ms)
    version = 0 if snapshot is None else snapshot.version + 1
    file = LogFile(commit_name(version), "commit", version, modified_ms=now_ms)
    if snapshot is not None and _adds_only(intent, found) and len(found.rows) <= FEW_FILES:
        return Attempt(found.data, advance_lazily(snapshot, unparsed(found, file)))
    return Attempt(found.data, _version_after(store, snapshot, parse_commit(found.data, file)))


def unparsed(found: Encoded, file: LogFile) -> Commit:
    """Return what `parse_commit` makes of a commit's text, without reading it."""
    controls = tuple(
        (file.version, action) for action in found.actions if isinstance(action, _CONTROLS)
    )
    return commit_of(file, found.rows, controls)


def _adds_only(intent: Intent, found: Encoded) -> bool:
    """Whether all actions were checked when they were made, and say nothing of the table."""
    return intent.kind == "append" and all(type(a) in _PLAIN for a in found.actions)


def _encoded(
    store: Store,
    snapshot: Snapshot | None,
    intent: Intent,
    txn_id: str,
    *,
    made_ms: int,
    now_ms: int,
) -> Encoded:
    metadata = intent.metadata or (snapshot.metadata if snapshot else None)
    protocol = intent.protocol or (snapshot.protocol if snapshot else None)
    stamped, row_ids = False, None
    if protocol is not None and metadata is not None:
        properties = Properties(metadata.configuration)
        stamped = is_stamped(protocol, metadata)
        if gives_row_ids(protocol, properties):
            row_ids = RowIds(
                version=0 if snapshot is None else snapshot.version + 1,
                mark=_highest_row_id(store, snapshot, intent),
                enabled=is_active("rowTracking", protocol, properties),
            )
    if stamped:
        made_ms = now_ms if snapshot is None else max(now_ms, snapshot.timestamp_ms + 1)
    return encode_commit(
        intent,
        highest_id=_highest_id(store, snapshot, intent),
        timestamp_ms=made_ms,
        stamped=stamped,
        txn_id=txn_id,
        row_ids=row_ids,
    )


def _highest_id(store: Store, snapshot: Snapshot | None, intent: Intent) -> int:
    """Return the highest fragment id given so far.

    For what a checkpoint covers the recorded one suffices, so that the cost of a commit does not
    depend on the table's size; the tags of other writers' files are looked through once.
    """
    if snapshot is None or not intent.adds:
        return -1
    recorded = snapshot.transaction_version(ID_APP)
    if recorded is not None:
        return max(recorded, snapshot.tail.highest_id)
    return fold_files(
        store,
        snapshot,
        Wanted(("tags",)),
        lambda batches: max(highest_id(rows, None) for _, rows in batches),
        distinct=False,
    )


def _highest_row_id(store: Store, snapshot: Snapshot | None, intent: Intent) -> int:
    """Return the highest row id given so far, at the same cost as for fragment ids."""
    if snapshot is None or not intent.adds:
        return -1
    domain = snapshot.controls.domains.get(ROW_TRACKING_DOMAIN)
    recorded = row_id_mark(domain, path=snapshot.root)
    if recorded is not None:
        return max(recorded, highest_row_id(snapshot.tail.rows, exact=False))
    files = load_files(store, snapshot)
    return max(
        highest_row_id(files.live, exact=True), highest_row_id(files.tombstones, exact=False)
    )


def _version_after(store: Store, snapshot: Snapshot | None, mine: Commit) -> Snapshot:
    """Return the version that a commit makes of a snapshot, or of nothing; errors as of opening."""
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
    )
