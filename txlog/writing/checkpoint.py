"""Checkpoints of a table: on demand, and when one is due."""

from __future__ import annotations

import warnings

from txlog.checkpoint import checkpoint_rows, write_checkpoint
from txlog.errors import TxlogWarning, UnsupportedFeatureError
from txlog.reconcile import TableState
from txlog.snapshot import Snapshot, load_files
from txlog.store import Store
from txlog.writing.operation import Done, Place, require_table_writable


def checkpoint(place: Place, snapshot: Snapshot) -> None:
    """Write a checkpoint of a version, and point `_last_checkpoint` at it.

    Raises
    ------
    UnsupportedFeatureError
        The store or the table cannot be written by txlog.
    """
    require_checkpointable(place.store, snapshot)
    state = TableState(snapshot.version, snapshot.controls, load_files(place.store, snapshot))
    groups = checkpoint_rows(
        state,
        now_ms=place.effects.now_ms(),
        file_retention_ms=snapshot.properties.get("delta.deletedFileRetentionDuration"),
        txn_retention_ms=snapshot.properties.get("delta.setTransactionRetentionDuration"),
        with_stats=snapshot.properties.get("delta.checkpoint.writeStatsAsJson"),
    )
    write_checkpoint(place.store, snapshot.version, groups)


def require_checkpointable(store: Store, snapshot: Snapshot) -> None:
    """Refuse a checkpoint that txlog cannot write as the table wants it; errors as above."""
    store.require_writable()
    require_table_writable(snapshot, removes_rows=False)
    if snapshot.properties.get("delta.checkpoint.writeStatsAsStruct"):
        raise UnsupportedFeatureError(
            path=snapshot.root,
            features=("delta.checkpoint.writeStatsAsStruct",),
            reason="the table wants statistics as structs in its checkpoints, "
            "which txlog does not write",
            remedy="Set the property to false, or let another engine write checkpoints",
        )


def maintain(place: Place, done: Done) -> None:
    """Write a checkpoint if the table's `delta.checkpointInterval` says that one is due.

    A checkpoint that fails is a `TxlogWarning`: the commit stands without it.
    """
    version = done.outcome.version
    interval = done.snapshot.properties.get("delta.checkpointInterval")
    if not version or version % interval or version != done.snapshot.version:
        return
    try:
        checkpoint(place, done.snapshot)
    except Exception as error:  # Whatever it is, a retry of the verb would double the rows.
        warnings.warn(
            f"version {version} is committed, but its checkpoint failed: {error}",
            TxlogWarning,
            stacklevel=4,
        )
