"""May a transaction still be committed after another writer's commit? Pure and total.

The answer is the hardest of the cells of `TABLE` that a winner's effects lead to, and of the few
rules that go by names. Rules: spec/commit.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from txlog.actions.table import DomainMetadata, Txn
from txlog.commit.conditions import Hit, find_hit
from txlog.commit.intent import Intent
from txlog.commit.table import TABLE, Outcome, When
from txlog.commit.winner import Change, Effect, changes_of
from txlog.errors import CommitConflictError
from txlog.fragments.ids import ID_APP
from txlog.fragments.rows import FIELDS_TAG
from txlog.log.paths import canonical_key
from txlog.snapshot.commits import Commit
from txlog.snapshot.snapshot import Snapshot

_SEVERITY: tuple[Outcome, ...] = ("ok", "rebase", "redo", "fail")

# Given afresh on every attempt, so that two writers may both set it.
_ROW_TRACKING = "delta.rowTracking"

# These carry metadata beside rows; making it anew costs no data file.
_OF_ROWS = ("append", "delete", "replace", "overwrite")

_RULES = {
    When.ALWAYS: "CON-11",
    When.TOUCHED: "CON-5",
    When.WHOLE: "CON-5",
    When.BY_ROWS: "CON-10",
    When.READ: "CON-6",
    When.FRAGMENT: "CON-14",
    When.FRAGMENT_GONE: "CON-14",
    When.SAME_COLUMN: "CON-14",
    When.TIGHTENS: "CON-15",
}
_RULES_OF_EFFECTS = {
    Effect.PROTOCOL: "CON-1",
    Effect.ADDITIONS: "CON-2",
    Effect.METADATA: "CON-2",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do after a winner, and why."""

    outcome: Outcome
    rule: str  # In spec/commit.md.
    path: str | None = None
    column: str | None = None
    reason: str = field(default="", compare=False)


def judge(intent: Intent, winner: Commit, files: pa.Table, base: Snapshot) -> Verdict:
    """Return the verdict on an intent after one commit that it did not see.

    Decided from the winner's actions, never from the name of its operation. Of equally hard
    verdicts, that of the lowest rule is returned, and for its first file in the commit.

    Parameters
    ----------
    intent
        What we want to commit.
    winner
        The other writer's commit.
    files
        Its file actions as `FILE_ROWS`.
    base
        The table as the intent read it; only its controls are looked at.
    """
    changes = changes_of(winner, files, base)
    found = [*_by_name(intent, winner), *_by_table(intent, changes, base)]
    return min(found, key=_place) if found else Verdict("ok", _why_ok(intent, changes))


def worse(one: Verdict, other: Verdict) -> bool:
    """Return whether a verdict is harder than another one."""
    return _SEVERITY.index(one.outcome) > _SEVERITY.index(other.outcome)


def refusal(verdict: Verdict, version: int) -> CommitConflictError:
    """Return the error for a verdict that only the caller can do something about.

    `version` is the winner's.
    """
    return CommitConflictError(
        version=version,
        rule=verdict.rule,
        path=verdict.path,
        field=verdict.column,
        reason=f"another writer {verdict.reason} meanwhile",
        remedy="Nothing was committed; look at the table as it is now, and try again if what "
        "you want is still to be done",
    )


def _place(verdict: Verdict) -> tuple[int, int]:
    return -_SEVERITY.index(verdict.outcome), int(verdict.rule.removeprefix("CON-"))


def _by_name(intent: Intent, winner: Commit) -> Iterator[Verdict]:
    """Yield what follows from names that both use, and from changing the table on the way."""
    apps = {action.app_id for _, action in winner.controls if isinstance(action, Txn)}
    for same in (txn.app_id for txn in intent.txns if txn.app_id in apps - {ID_APP}):
        yield Verdict("redo", "CON-3", reason=f"wrote as the application {same}")
    if intent.kind in _OF_ROWS and (intent.metadata is not None or intent.protocol is not None):
        yield Verdict("redo", "CON-4", reason="committed")
    theirs = {action.domain for _, action in winner.controls if isinstance(action, DomainMetadata)}
    shared = theirs & {action.domain for action in intent.domains} - {_ROW_TRACKING}
    if shared:
        outcome: Outcome = "redo" if intent.kind == "restore" else "fail"
        yield Verdict(outcome, "CON-16", reason=f"set the metadata of the domain {min(shared)}")


def _by_table(
    intent: Intent, changes: Mapping[Effect, Change], base: Snapshot
) -> Iterator[Verdict]:
    """Yield the outcome of every condition that holds."""
    for effect, change in changes.items():
        for when, outcome in TABLE[intent.kind][effect].items():
            hit = find_hit(when, intent, effect, change, base)
            if hit is not None:
                yield _verdict(intent, effect, when, outcome, hit)


def _verdict(intent: Intent, effect: Effect, when: When, outcome: Outcome, hit: Hit) -> Verdict:
    rule = _RULES_OF_EFFECTS.get(effect, _RULES[when])
    if effect is Effect.COLUMNS and when is When.READ:
        rule = "CON-14"
    if outcome == "rebase" and not intent.row_deletes:
        outcome = "redo"  # There are no vectors of ours to unite with theirs.
    if outcome == "rebase":
        rule = "CON-10"
    return Verdict(outcome, rule, hit.path, hit.column, effect.value)


def _why_ok(intent: Intent, changes: Mapping[Effect, Change]) -> str:
    rows = changes.keys() & {Effect.ROWS, Effect.ROWS_BLIND}
    if not rows or not intent.reads or intent.isolation == "SnapshotIsolation":
        return "CON-9"
    blind = intent.isolation == "WriteSerializable" and Effect.ROWS_BLIND in rows
    return "CON-7" if blind else "CON-8"


_MANY = 64  # From so many files on, Arrow columns are faster than models.


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
