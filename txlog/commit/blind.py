"""The commonest case, decided without columns: two writers who only add files. Pure.

What it says is what `judge` says; whatever it cannot tell is left to that.
"""

from __future__ import annotations

from txlog.actions.table import Txn
from txlog.commit.intent import Intent
from txlog.fragments.ids import ID_APP
from txlog.fragments.rows import FIELDS_TAG
from txlog.log.paths import canonical_key
from txlog.snapshot.commits import Commit

_MANY = 64  # Files, of which columns are cheaper to look at.


def passes_blindly(intent: Intent, winner: Commit) -> bool:
    """Return whether an append that reads nothing certainly passes a winner that only adds rows.

    The winner's file actions must be such as the models accept.
    """
    if intent.kind != "append" or intent.reads or intent.removes:
        return False
    if intent.metadata is not None or intent.protocol is not None:
        return False
    if len(winner.rows) > _MANY or len(intent.adds) > _MANY:
        return False
    apps = {txn.app_id for txn in intent.txns} - {ID_APP}
    for _, action in winner.controls:
        if not isinstance(action, Txn) or action.app_id in apps:
            return False
    ours = {canonical_key(add.path) for add in intent.adds}
    for row in winner.rows:
        if row.get("remove") is not None:
            return False
        body = row.get("add")
        if body is None:
            continue
        if FIELDS_TAG in (body.get("tags") or ()) or canonical_key(body["path"]) in ours:
            return False
    return True
