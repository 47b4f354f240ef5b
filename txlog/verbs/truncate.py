"""Truncate the log: delete the versions before a checkpoint, for a feature that is dropped."""

from __future__ import annotations

from txlog.base.errors import TxlogError
from txlog.commit.context import Context
from txlog.commit.operation import execute
from txlog.snapshot.load import list_log, refresh
from txlog.snapshot.references import held_versions
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.expire import (
    Expiry,
    delete_log,
    plan_expiry,
    protected_before,
    require_known_protocols,
    require_rebuildable,
)
from txlog.verbs.settle import settle
from txlog.verbs.trash import DeletionNote


def truncate(context: Context, snapshot: Snapshot, version: int) -> Snapshot:
    """Delete the log that is older than the checkpoint of a version; errors as for `expire`.

    What pins and clones that are being made need is kept, also those that were added after the
    snapshot. If these need protected versions (MNT-5), nothing is deleted. Two commits record the
    deletion as those of a vacuum do (VAC-8), so others refuse to pin or restore versions meanwhile.

    Returns
    -------
    The snapshot after the last of these commits.
    """
    latest = refresh(context.store, snapshot)
    if not _truncation(context, latest, version).gone:
        return latest
    parameters = {"truncateHistory": True}
    latest = _noted(context, latest, DeletionNote("VACUUM START", parameters))
    try:
        # After the first commit nobody can pin an older version, so this sees all pins.
        plan = _truncation(context, latest, version)
        if plan.gone:
            require_rebuildable(context.store, plan)
            if protected_before(latest):
                require_known_protocols(context.store, plan.gone, latest.root)
            delete_log(context, plan)
    except BaseException as error:  # Ctrl-C, too: others wait for the end of a deletion.
        try:
            _noted(context, latest, DeletionNote("VACUUM END", {**parameters, "status": "FAILED"}))
        except TxlogError as failure:
            error.add_note(f"Its end could not be recorded: {failure}")
        raise
    return _noted(
        context, latest, DeletionNote("VACUUM END", {**parameters, "status": "COMPLETED"})
    )


def _noted(context: Context, latest: Snapshot, note: DeletionNote) -> Snapshot:
    done = execute(note, context, latest)
    settle(context, done)
    return done.snapshot


def _truncation(context: Context, latest: Snapshot, version: int) -> Expiry:
    return plan_expiry(
        list_log(context.store),
        last_kept=version,
        hinted=version,
        held=held_versions(latest, context.effects.now_ms()),
        protected=min(version, protected_before(latest)),
    )
