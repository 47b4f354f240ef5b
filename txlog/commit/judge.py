"""Judge whether an intent may be committed after another writer's commit. Pure and total.

The verdict is the hardest answer in the cells of `TABLE` for a winner's effects, and of a few rules
about names. A condition of the table refers to a winner's files or columns. If the log does not
show whether a condition is true, it counts as true. Rules: spec/commit.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from txlog.actions.file import Add, Remove
from txlog.actions.table import DomainMetadata, Txn
from txlog.base.arrow import arrow_array, pc
from txlog.base.errors import CommitConflictError, TxlogError
from txlog.base.thresholds import Threshold
from txlog.commit.conflict_table import TABLE, Answer, When
from txlog.commit.intent import Intent
from txlog.commit.winner import (
    Change,
    Effect,
    changes_of,
    keys_of,
    only_enables_vectors,
    schema_of,
    tightens,
)
from txlog.expressions.bind import columns_of
from txlog.fragments.ids import ID_APP, ID_TAG, tagged_ids, valid_id
from txlog.fragments.rows import FEATURE, FIELDS_TAG
from txlog.log.paths import canonical_key, canonical_keys
from txlog.protocol.access import features_of
from txlog.snapshot.branches import SEAL
from txlog.snapshot.commits import Commit
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.files import file_bounds
from txlog.stats.skip import EVERYTHING, Known, keep


@dataclass(frozen=True)
class Hit:
    """The first file, or a column, for which a condition is true."""

    path: str | None = None
    column: str | None = None


def find_hit(
    when: When, intent: Intent, effect: Effect, change: Change, base: Snapshot
) -> Hit | None:
    """Return the file or column for which a condition is true in an effect of a winner, or None.

    `base` is the version from which the intent was made.
    """
    files = change.files
    match when:
        case When.ALWAYS:
            return _first(files) or Hit()
        case When.TOUCHED:
            return _first(_at(files, _touched(intent)))
        case When.WHOLE:
            return _first(_at(files, _touched(intent) - _keys(intent.row_deletes)))
        case When.BY_ROWS:
            return _first(_at(files, _keys(intent.row_deletes)))
        case When.READ if effect is Effect.COLUMNS:
            return _columns_read(intent, change, base)
        case When.READ:
            return _first(_rows_read(intent, effect, files, base))
        case When.FRAGMENT:
            return _first(_of_fragments(files, _fragments(intent)))
        case When.FRAGMENT_GONE:
            return _first(_of_fragments(files, _fragments_gone(intent)))
        case When.GIVEN:
            return _first(_of_fragments(files, _fragments_given(intent)))
        case When.RECORDED:
            recorded = _fragments(intent) if intent.cdc else set()
            return _first(_of_fragments(files, recorded))
        case When.SAME_COLUMN:
            return _shared(change, _columns_given(intent, base))
        case When.TIGHTENS:
            return (_first(files) or Hit()) if _tightens(intent, base) else None


def _first(files: pa.Table) -> Hit | None:
    return Hit(str(files["path"][0].as_py())) if files.num_rows else None


def _keys(paths: Iterable[str]) -> set[str]:
    return set(canonical_keys(arrow_array(sorted(paths), pa.string())).to_pylist())


def _at(files: pa.Table, keys: set[str]) -> pa.Table:
    """Return the `FILE_ROWS` with one of some paths."""
    return files.filter(_is_at(files, keys))


def _is_at(files: pa.Table, keys: set[str]) -> pa.Array:
    return pc.is_in(keys_of(files), value_set=arrow_array(sorted(keys), pa.string()))


def _touched(intent: Intent) -> set[str]:
    return _keys({remove.path for remove in intent.removes} | {add.path for add in intent.adds})


def _rows_read(intent: Intent, effect: Effect, files: pa.Table, base: Snapshot) -> pa.Table:
    """Return the files that may contain rows which determined the intent."""
    blind = effect is Effect.ROWS_BLIND and intent.isolation == "WriteSerializable"
    if not intent.reads or intent.isolation == "SnapshotIsolation" or blind:
        return files.slice(0, 0)
    if effect is Effect.VECTORS:
        by_rows = _is_at(files, _keys(intent.row_deletes))  # `When.BY_ROWS` covers these files.
        # The `remove` of the same file has less information than its `add`.
        files = files.filter(pc.and_not(files["is_add"], by_rows))
    where = intent.reads.where
    if intent.reads.everything or where is None:
        return files
    # Another file may now provide the columns in an older file's statistics.
    stale = effect not in (Effect.ROWS, Effect.ROWS_BLIND)
    try:
        bounds = file_bounds(
            files,
            base.schema,
            base.partition_columns,
            where,
            mapping_mode=base.mapping_mode,
            known=[Known.PARTITIONS] if stale and base.supports(FEATURE) else EVERYTHING,
        )
        possible = keep(where, bounds)
    except TxlogError:
        return files  # The statistics of the files cannot be read.
    unknown = pc.is_null(files["partition_values"])
    return files.filter(pc.or_(unknown, possible))


def _columns_read(intent: Intent, change: Change, base: Snapshot) -> Hit | None:
    """Return a column that determined the intent and to which others wrote values."""
    by_name = _shared(change, _with_physical(intent.read_columns, base))
    if by_name is not None and intent.read_columns:
        return by_name
    if not intent.reads or intent.isolation == "SnapshotIsolation":
        return None
    if intent.reads.everything or intent.reads.where is None:
        # A delete of all rows reads no values; FRAGMENT_GONE covers the fragments.
        return None if intent.kind == "delete" else _first(change.files)
    paths = columns_of(intent.reads.where)
    return _shared(change, _with_physical((path[0] for path in paths), base))


def _with_physical(names: Iterable[str], base: Snapshot) -> dict[str, str]:
    """Return logical names and their physical names in lower case."""
    found = {}
    for name in names:
        field = base.schema.get(name)
        found[name.lower()] = name
        if field is not None:
            found[field.physical_name.lower()] = name
    return found


def _columns_given(intent: Intent, base: Snapshot) -> dict[str, str]:
    """Return all names of the columns to which an intent writes values."""
    found = {name.lower(): name for name in intent.columns}
    after = None if intent.metadata is None else schema_of(intent.metadata)
    for column in (*base.schema.fields, *(after.fields if after else ())):
        if column.physical_name in intent.columns:
            found[column.name.lower()] = found[column.physical_name.lower()] = column.name
    return found


def _shared(change: Change, names: dict[str, str]) -> Hit | None:
    """Return the first of some column names that a change affects."""
    path = _first(change.files) or Hit()
    if change.columns is None:
        return path
    shared = sorted(names[name] for name in change.columns & names.keys())
    return Hit(path.path, shared[0]) if shared else None


def _fragments(intent: Intent) -> set[int]:
    """Return the ids of fragments whose files an intent removes or to which it adds columns."""
    return _ids(intent.removes) | _fragments_given(intent)


def _fragments_given(intent: Intent) -> set[int]:
    """Return the ids of fragments to which an intent adds columns, or adds them again."""
    return _ids(add for add in intent.adds if FIELDS_TAG in (add.tags or {}))


def _fragments_gone(intent: Intent) -> set[int]:
    kept = {add.path for add in intent.adds}
    return _ids(remove for remove in intent.removes if remove.path not in kept)


def _ids(actions: Iterable[Add | Remove]) -> set[int]:
    found = ((action.tags or {}).get(ID_TAG) for action in actions)
    return {int(tag) for tag in found if tag is not None and valid_id(tag)}


def _of_fragments(files: pa.Table, ids: set[int]) -> pa.Table:
    """Return the files of some fragments; a file without a fragment id may belong to any."""
    if not ids:
        return files.slice(0, 0)
    theirs = tagged_ids(files)
    ours = pc.is_in(theirs, value_set=arrow_array(sorted(ids), pa.int64()))
    return files.filter(pc.or_(ours, pc.is_null(theirs)))


def _tightens(intent: Intent, base: Snapshot) -> bool:
    """Return whether other writers may have written rows that the intent forbids."""
    if intent.protocol is not None:
        now, then = features_of(intent.protocol), features_of(base.protocol)
        if then - now or FEATURE in now - then:  # With fragments, each file needs its own id.
            return True
    return intent.metadata is not None and tightens(base.metadata, intent.metadata)


_SEVERITY: tuple[Answer, ...] = ("ok", "rebase", "redo", "fail")

# Each attempt sets this domain again, so two writers may both set it.
_ROW_TRACKING = "delta.rowTracking"

# These kinds change rows, and may also change metadata. A redo writes no data file again.
_OF_ROWS = ("append", "delete", "replace", "overwrite")

_RULES = {
    When.ALWAYS: "CON-11",
    When.TOUCHED: "CON-5",
    When.WHOLE: "CON-5",
    When.BY_ROWS: "CON-10",
    When.READ: "CON-6",
    When.FRAGMENT: "CON-14",
    When.FRAGMENT_GONE: "CON-14",
    When.GIVEN: "CON-14",
    When.RECORDED: "CON-14",
    When.SAME_COLUMN: "CON-14",
    When.TIGHTENS: "CON-15",
}
_RULES_OF_EFFECTS = {
    Effect.PROTOCOL: "CON-1",
    Effect.DOMAIN: "CON-16",
    Effect.NOTE: "CON-16",
    Effect.ADDITIONS: "CON-2",
    Effect.METADATA: "CON-2",
}


@dataclass(frozen=True)
class Verdict:
    """What to do after a winner, and why."""

    outcome: Answer
    rule: str  # The rule's id in spec/commit.md.
    path: str | None = None
    column: str | None = None
    reason: str = field(default="", compare=False)


def judge(intent: Intent, winner: Commit, files: pa.Table, base: Snapshot) -> Verdict:
    """Return the verdict on an intent after one winner.

    The verdict depends on the winner's actions, never on the name of its operation. Of equally hard
    verdicts, the one with the lowest rule is returned, with its first file in the commit.

    Parameters
    ----------
    intent
        The intent to commit.
    winner
        The other writer's commit.
    files
        Its file actions as `FILE_ROWS`.
    base
        The table that the intent read; only its table state is used.
    """
    changes = changes_of(winner, files, base)
    found = [*_by_name(intent, winner)]
    if intent.revives:
        found.append(Verdict("redo", "CON-25", reason="committed"))
    if intent.is_idle and intent.reads.everything:
        found.append(Verdict("redo", "CON-20", reason="committed"))
    if only_enables_vectors(winner, base):
        changes.pop(Effect.PROTOCOL, None)
        changes.pop(Effect.METADATA, None)
        # The intent's metadata and protocol lack the feature that the winner added.
        if intent.metadata is not None or intent.protocol is not None:
            found.append(Verdict("redo", "CON-22", reason="enabled deletion vectors"))
    found += _by_table(intent, changes, base)
    return min(found, key=_place) if found else Verdict("ok", _why_ok(intent, changes))


def worse(one: Verdict, other: Verdict) -> bool:
    """Return whether a verdict is harder than another."""
    return _SEVERITY.index(one.outcome) > _SEVERITY.index(other.outcome)


def refusal(verdict: Verdict, version: int) -> CommitConflictError:
    """Return the error for a verdict that the caller must resolve; `version` is the winner's."""
    return CommitConflictError(
        version=version,
        rule=verdict.rule,
        path=verdict.path,
        field=verdict.column,
        reason=f"another writer {verdict.reason} meanwhile",
        remedy="Nothing was committed. Check the latest version of the table, and try again if "
        "the change is still needed",
    )


def _place(verdict: Verdict) -> tuple[int, int]:
    return -_SEVERITY.index(verdict.outcome), int(verdict.rule.removeprefix("CON-"))


def _by_name(intent: Intent, winner: Commit) -> Iterator[Verdict]:
    """Yield verdicts on shared names (applications, domains) and on changed metadata (CON-4)."""
    apps = {action.app_id for _, action in winner.controls if isinstance(action, Txn)}
    for same in (txn.app_id for txn in intent.txns if txn.app_id in apps - {ID_APP}):
        yield Verdict("redo", "CON-3", reason=f"wrote as the application {same}")
    if intent.kind in _OF_ROWS and (intent.metadata is not None or intent.protocol is not None):
        yield Verdict("redo", "CON-4", reason="committed")
    theirs = {action.domain for _, action in winner.controls if isinstance(action, DomainMetadata)}
    if any(
        isinstance(action, DomainMetadata) and action.domain == SEAL and not action.removed
        for _, action in winner.controls
    ):
        yield Verdict("fail", "CON-16", reason="closed the branch")
    shared = theirs & {action.domain for action in intent.domains} - {_ROW_TRACKING}
    if shared:
        outcome: Answer = "redo" if intent.kind == "restore" else "fail"
        yield Verdict(outcome, "CON-16", reason=f"set the metadata of the domain {min(shared)}")


def _by_table(
    intent: Intent, changes: Mapping[Effect, Change], base: Snapshot
) -> Iterator[Verdict]:
    """Yield the verdict of each condition that is true."""
    for effect, change in changes.items():
        for when, outcome in TABLE[intent.kind][effect].items():
            hit = find_hit(when, intent, effect, change, base)
            if hit is not None:
                yield _verdict(intent, effect, when, outcome, hit)


def _verdict(intent: Intent, effect: Effect, when: When, outcome: Answer, hit: Hit) -> Verdict:
    rule = _RULES_OF_EFFECTS.get(effect, _RULES[when])
    if effect is Effect.COLUMNS and when is When.READ:
        rule = "CON-14"
    if outcome == "rebase" and not intent.row_deletes:
        outcome = "redo"  # The intent has no vectors to merge with the winner's.
    if outcome == "rebase":
        rule = "CON-10"
    return Verdict(outcome, rule, hit.path, hit.column, effect.value)


def _why_ok(intent: Intent, changes: Mapping[Effect, Change]) -> str:
    rows = changes.keys() & {Effect.ROWS, Effect.ROWS_BLIND}
    if not rows or not intent.reads or intent.isolation == "SnapshotIsolation":
        return "CON-9"
    blind = intent.isolation == "WriteSerializable" and Effect.ROWS_BLIND in rows
    return "CON-7" if blind else "CON-8"


def adds_only(winner: Commit) -> bool:
    """Return whether a winner only adds rows, and perhaps records application versions.

    No cell of `TABLE` for this has an answer that is harder than a redo.
    """
    return all(isinstance(action, Txn) for _, action in winner.controls) and all(
        row.get("remove") is None and FIELDS_TAG not in ((row.get("add") or {}).get("tags") or ())
        for row in winner.rows
    )


_MANY: Threshold = 64  # From this number of files, Arrow columns are faster than models.


def passes_blindly(intent: Intent, winner: Commit) -> bool:
    """Return whether a blind append certainly passes a winner that only adds rows.

    The models must accept the winner's file actions.
    """
    if intent.kind != "append" or intent.reads or intent.removes or intent.revives:
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
