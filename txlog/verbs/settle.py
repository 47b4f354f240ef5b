"""What follows a commit: a checkpoint, other files of the log, fewer segments of indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog.base.errors import CommitConflictError, warn_committed
from txlog.commit.context import Context
from txlog.commit.operation import Done
from txlog.protocol.properties import INDEX_PREFIX

if TYPE_CHECKING:
    from txlog.lookup.indexes import SegmentCache


def settle(
    context: Context,
    done: Done,
    segments: SegmentCache | None = None,
    *,
    segment_folder: str | None = None,
) -> None:
    """Do what is due after an operation: call it after each `execute` for a table of a user.

    It writes a checksum and a compaction of the log if properties request them, and a checkpoint
    if one is due by `delta.checkpointInterval`; then old files of the log are deleted, and small
    files are compacted, if a property requests it. Indexes with many small segments get fewer. The
    commit is valid without all of this, so a failure is a `TxlogWarning`: a retry of the operation
    would add rows twice.

    Parameters
    ----------
    segments
        The caller's cache of index segments. Default: an empty one, with `segment_folder`.
    """
    if done.is_settled:
        return
    if done.wants_log_files:
        _write_log_files(context, done)
    if done.is_checkpoint_due:
        _write_checkpoint(context, done)
        # Looking for small files costs as much as a checkpoint, so it is as rare.
        if done.snapshot.properties.get("delta.autoOptimize.autoCompact"):
            _compact(context, done)
    configuration = done.snapshot.metadata.configuration
    if done.outcome and any(name.startswith(INDEX_PREFIX) for name in configuration):
        from txlog.lookup.indexes import SegmentCache
        from txlog.verbs.indexes import merge_if_due

        merge_if_due(context, done.snapshot, segments or SegmentCache(segment_folder))


def _compact(context: Context, done: Done) -> None:
    from txlog.commit.operation import execute
    from txlog.verbs.compact import AUTO_FILES, Compact

    try:
        execute(Compact(None, auto_from=AUTO_FILES), context, done.snapshot)
    except CommitConflictError:
        return  # Other writers changed the small files. The next compaction finds the others.
    except Exception as error:
        warn_committed(
            f"version {done.outcome.version} is committed, but small files could not be "
            f"compacted: {error}"
        )


def _write_log_files(context: Context, done: Done) -> None:
    from txlog.verbs.log_files import write_if_wanted

    try:
        write_if_wanted(context, done)
    except Exception as error:  # Lack of memory, too: the commit is valid without these files.
        warn_committed(
            f"version {done.outcome.version} is committed, but a checksum or a compaction of its "
            f"log could not be written: {error}"
        )


def _write_checkpoint(context: Context, done: Done) -> None:
    from txlog.verbs.checkpoint import checkpoint
    from txlog.verbs.expire import expire_if_due

    try:
        checkpoint(context, done.snapshot)
    except Exception as error:
        warn_committed(
            f"version {done.outcome.version} is committed, but its checkpoint failed: {error}"
        )
        return
    try:
        expire_if_due(context, done.snapshot)
    except Exception as error:
        warn_committed(f"old files of the log could not be cleaned up: {error}")
