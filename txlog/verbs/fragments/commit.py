"""Committing fragments that workers wrote: one operation, one version.

Rules: spec/fragments.md, FRG-24 to FRG-27.
"""

from __future__ import annotations

from collections.abc import Sequence

from txlog.commit import operation as commits
from txlog.commit.context import Context
from txlog.data_files.write_plan import AddedFiles
from txlog.fragments.metadata import FragmentMetadata
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.append import Append
from txlog.verbs.fragments.column_commits import CommitColumns
from txlog.verbs.fragments.deletes import CommitDeletes
from txlog.verbs.fragments.operations import Operation, require_operation
from txlog.verbs.fragments.rewrites import CommitRewrites, Fit, new_files
from txlog.verbs.overwrite import Overwrite


def commit_fragments(
    context: Context, snapshot: Snapshot, request: Operation.Base
) -> commits.Operation:
    """Return the operation that commits fragments. It never deletes their files.

    Raises
    ------
    InvalidInputError
        A fragment is there twice, is not in the table or in it already, or is none.
    """
    require_operation(request)
    match request:
        case Operation.Append(fragments):
            return Append(context, _files(context, snapshot, fragments))
        case Operation.Overwrite(fragments):
            return Overwrite(context, _files(context, snapshot, fragments))
        case Operation.Delete():
            return CommitDeletes(context, snapshot, request)
        case Operation.Merge():
            return CommitColumns(context, snapshot, request)
        case Operation.Rewrite():
            return CommitRewrites(context, snapshot, request)
    raise AssertionError(f"no such operation: {request!r}")


def _files(
    context: Context, snapshot: Snapshot, fragments: Sequence[FragmentMetadata]
) -> AddedFiles:
    adds, fit = new_files(fragments), Fit(context, fragments)
    return AddedFiles.written(context, adds, snapshot.schema, fit, owned=False)
