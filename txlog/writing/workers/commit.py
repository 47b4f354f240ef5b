"""Committing fragments that workers wrote: one operation, one version.

Rules: spec/fragments.md, FRG-24 to FRG-27.
"""

from __future__ import annotations

from typing import Any

from txlog.snapshot.refresh import refresh
from txlog.snapshot.snapshot import Snapshot
from txlog.writing.append import commit_append
from txlog.writing.operation import (
    AppTransaction,
    Done,
    Place,
    require_table_writable,
    require_transaction,
    skip_recorded,
)
from txlog.writing.options import WriteOptions
from txlog.writing.overwrite import commit_overwrite
from txlog.writing.workers.columns import commit_columns
from txlog.writing.workers.deletes import commit_deletes
from txlog.writing.workers.new_files import Fit, new_files
from txlog.writing.workers.operations import Operation, require_operation
from txlog.writing.workers.rewrites import commit_rewrites


def commit_fragments(
    place: Place,
    snapshot: Snapshot,
    operation: Operation.Base,
    *,
    txn: AppTransaction | None = None,
    options: WriteOptions | None = None,
) -> Done:
    """Commit fragments in one version. Their files are never deleted, whatever comes of it.

    Raises
    ------
    InvalidInputError
        A fragment is there twice, is not in the table or in it already, or is none.
    CommitConflictError
        What the fragments were made from has changed since: nothing was committed.
    UnsupportedFeatureError
        The table may not be written by txlog.
    """
    options = options or WriteOptions()
    require_operation(operation)
    require_transaction(txn)
    require_table_writable(snapshot, removes_rows=False)
    latest = refresh(place.store, snapshot)
    if recorded := skip_recorded(latest, txn):
        return recorded
    match operation:
        case Operation.Append(fragments) | Operation.Overwrite(fragments):
            adds = new_files(fragments)
            arguments: Any = {
                "schema_mode": None,
                "txn": txn,
                "options": options,
                "require_fit": Fit(place, fragments),
                "owned": False,
            }
            if isinstance(operation, Operation.Append):
                return commit_append(place, latest, adds, latest.schema, **arguments)
            require_table_writable(snapshot, removes_rows=True)
            arguments |= {"predicate": None, "partition_mode": "static"}
            return commit_overwrite(place, latest, adds, latest.schema, **arguments)
        case Operation.Delete():
            return commit_deletes(place, snapshot, operation, txn, options)
        case Operation.Merge():
            return commit_columns(place, snapshot, operation, txn, options)
        case Operation.Rewrite():
            return commit_rewrites(place, snapshot, operation, txn, options)
    raise AssertionError(f"no such operation: {operation!r}")
