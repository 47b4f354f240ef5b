"""All changes of a table: an `Operation` describes the change, and `execute` commits it.

An operation makes its intent from a snapshot. After a conflict, `execute` calls it again with a
newer snapshot. `execute` does the work that all verbs share: it checks that the table may be
written and that the application's version is not recorded yet, adds the caller's notes to the
commit, deletes files to which no commit refers, and keeps the deadline. Rules: spec/commit.md.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import orjson

from txlog.base.effects import is_rehearsing
from txlog.base.errors import (
    CommitConflictError,
    InvalidInputError,
    InvalidTypeError,
    NotFoundError,
    OutcomeUnknownError,
    RetriesExhaustedError,
    TxlogError,
    UnsupportedFeatureError,
    clean_after,
    resource_errors,
    tidied,
)
from txlog.base.observe import note, observed
from txlog.base.thresholds import Threshold
from txlog.commit.app_versions import (
    AnyAppVersion,
    is_recorded,
    require_app_version,
    with_txn,
)
from txlog.commit.context import Context
from txlog.commit.intent import (
    CALLERS_TEXTS,
    COMMIT_INFO_NAMES,
    Intent,
    Reads,
    UserMetadata,
    contradiction,
)
from txlog.commit.judge import Verdict
from txlog.commit.loop import (
    DEADLINE_S,
    Committed,
    Redo,
    changed_features,
    commit,
    prepare,
    wait_after,
)
from txlog.protocol.access import require_writable
from txlog.protocol.properties import UNIQUE_PREFIX
from txlog.snapshot.branches import sealed_by
from txlog.snapshot.commits import Commit
from txlog.snapshot.load import load_snapshot, refresh
from txlog.snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from txlog.commit.unique_keys import UniqueCheck
    from txlog.store.base import Store


@dataclass(frozen=True)
class Outcome:
    """The result of an operation.

    `version` is the new version, or None if nothing changed. `skipped` is true if nothing changed
    because the application's version was already recorded. `features_added` are the table features
    that the operation added: engines without them can no longer read the table (reader features) or
    write it. `features_dropped` are the features that the operation removed.
    """

    operation: str
    version: int | None
    metrics: Mapping[str, int] = field(default_factory=dict)
    skipped: bool = False
    features_added: tuple[str, ...] = ()
    features_dropped: tuple[str, ...] = ()
    rehearsed: bool = False

    def __bool__(self) -> bool:
        return self.version is not None

    def _repr_html_(self) -> str:
        from txlog.base.html import facts_html, titled

        made = f"made version {self.version}" if self else "committed nothing"
        reason = " (recorded before)" if self.skipped else ""
        features = {
            "features added": ", ".join(self.features_added) or None,
            "features dropped": ", ".join(self.features_dropped) or None,
        }
        return titled(f"{self.operation} {made}{reason}", facts_html({**self.metrics, **features}))


@dataclass(frozen=True)
class Done:
    """An outcome, and the snapshot after the operation."""

    outcome: Outcome
    snapshot: Snapshot
    is_settled: bool = False  # Whether what follows a commit (`settle`) is done already.

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether a checkpoint is due by the table's `delta.checkpointInterval`."""
        version = self.outcome.version
        if not version or version != self.snapshot.version:
            return False
        interval: int = self.snapshot.properties.get("delta.checkpointInterval")
        return version % interval == 0

    @property
    def wants_log_files(self) -> bool:
        """Whether the properties request a checksum or a log compaction after the commit."""
        if self.outcome.version != self.snapshot.version:
            return False
        properties = self.snapshot.properties
        names = ("txlog.writeChecksums", "txlog.logCompactionInterval")
        return any(properties.get(name) for name in names)


@dataclass(frozen=True)
class Companion:
    """An operation on another table that must be committed before the operation that names it.

    `snapshot` is the latest one of the other table; None: the operation makes it. `execute` commits
    companions one by one. Whoever commits several tables in one moment may take them along.
    """

    context: Context
    snapshot: Snapshot | None
    operation: Operation
    txn: AnyAppVersion | None = None


class Operation(ABC):
    """One change of a table, which makes a new intent for each version on which it is tried.

    Each verb is a subclass. Its fields hold the caller's arguments and the files of the last
    attempt, so an object is executed once. `execute` fills in the intent's fields `txn`,
    `query_txns` and `user_metadata`.
    """

    name: str  # The operation's name in the commit: DELETE, WRITE, …
    removes_rows = False  # True: an append-only table refuses it.
    # True: the next attempt reuses the files of the last one, so they are not discarded.
    keeps_files = False
    # False: a conflict ends the operation, because `intent` cannot be called again.
    may_redo = True
    # Rules of spec/commit.md after whose conflict `intent` is called again, as after a redo.
    redo_on: frozenset[str] = frozenset()
    deadline_s = DEADLINE_S
    context: Context  # Set by `execute`, before it calls a method.
    is_part = False  # Set by a transaction: rows of its earlier operations have no final ids yet.
    is_executed = False  # Set by `execute`, which refuses to execute an operation twice.

    def base(self, latest: Snapshot) -> Snapshot:
        """Return the snapshot that the operation reads. Default: the latest."""
        return latest

    @abstractmethod
    def intent(self, base: Snapshot) -> Intent | None:
        """Return the changes of `base`, or None if there are none."""

    def creation(self) -> Intent:
        """Return the intent of version 0 of a new table. Default: the operation makes no table.

        If another writer makes the table first, `intent` is called with that table.

        Raises
        ------
        NotFoundError
            The operation changes existing tables only.
        """
        raise NotFoundError(
            path=self.context.store.root,
            reason=f"there is no Delta table, and {self.name} makes none",
            remedy="Create the table first",
        )

    def read(self) -> Reads:
        """Return the rows that `intent` read before it returned None.

        Default: all rows, after which an operation with nothing but a `txn` to commit is decided
        again after every winner. `Reads()`: no rows; only a winner with other metadata, or another
        protocol, lets it decide again.
        """
        return Reads(everything=True)

    def rebase(self, current: Snapshot, intent: Intent, winners: Sequence[Commit]) -> Intent | None:
        """Return the intent on top of winners that deleted other rows; None to call `intent`."""
        return None

    def companions(self, txn: AnyAppVersion | None) -> Sequence[Companion]:
        """Return operations on other tables, to be committed before the last intent (CON-32).

        It is called after each `intent`, also after one that was None. What has been committed by
        then is not returned again. `txn` is that of the operation. Default: nothing.
        """
        return ()

    def side_metrics(self) -> Mapping[str, int]:
        """Return metrics that the outcome has even if nothing is committed. Default: none."""
        return {}

    def discard(self) -> None:  # noqa: B027 (many verbs write no files)
        """Delete the files that were written for the operation. No commit refers to them."""

    def landed(self, intent: Intent) -> None:  # noqa: B027
        """Clean up after the commit: delete written files that were not committed."""


def _name_of(operation: Operation) -> str:
    """Return an operation's name; raises `InvalidInputError` if it has none."""
    name = getattr(operation, "name", None)
    if not isinstance(name, str) or not name:
        raise InvalidInputError(
            argument="operation",
            field="name",
            reason=f"the class {type(operation).__name__} has no text in the attribute name",
            remedy='Give it the name of the operation in the commit, such as name = "DELETE"',
        )
    return name


def begin(operation: Operation) -> None:
    """Mark an operation as executed; raise if it was executed before.

    It holds the files of its last attempt, which a second execution would commit again or delete.
    """
    if not isinstance(operation, Operation):
        raise InvalidTypeError(
            argument="operation",
            reason=f"an Operation was expected, not a {type(operation).__name__}",
            remedy="Make an object of a subclass of txlog.extend.Operation",
        )
    if operation.is_executed:
        raise InvalidInputError(
            argument="operation",
            reason=f"this {type(operation).__name__} was executed before, and holds the files that "
            "it wrote then",
            remedy="Make a new one from the same arguments, also to try again after an error",
        )
    operation.is_executed = True


def intent_of(operation: Operation, base: Snapshot | None) -> Intent | None:
    """Return the intent of an operation on a version; None: on a table that it makes.

    Raises
    ------
    InvalidInputError
        The intent contradicts itself.
    """
    intent = operation.creation() if base is None else operation.intent(base)
    if intent is None:
        return None
    if not isinstance(intent, Intent):
        raise InvalidTypeError(
            argument="intent",
            reason=f"the method intent of {type(operation).__name__} returned a "
            f"{type(intent).__name__}, not an Intent",
            remedy="Return an Intent, or None if there is nothing to change",
        )
    require_user_metadata(intent.user_metadata)
    version = -1 if base is None else base.version
    found = contradiction(intent, version, removes_rows=operation.removes_rows)
    if found is not None:
        raise InvalidInputError(
            argument="intent",
            field=found[0],
            reason=f"the intent of {type(operation).__name__} contradicts itself: {found[1]}",
            remedy="Nothing was committed. Correct the method intent of the operation",
        )
    return intent


def execute(
    operation: Operation,
    context: Context,
    snapshot: Snapshot | None,
    *,
    txn: AnyAppVersion | None = None,
    user_metadata: UserMetadata | None = None,
    looked_s: float | None = None,
) -> Done:
    """Commit an operation on top of a snapshot, or of a later version if winners permit it.

    Parameters
    ----------
    context
        The table's store, with the effects and the engine for the work on files.
    snapshot
        The latest snapshot that the caller knows. None: there is no table, and the operation makes
        it (`Operation.creation`).
    txn
        An application's version. If the table already records it, nothing is done. Otherwise it is
        recorded, even if the operation has nothing to change (rule CON-20).
    user_metadata
        Text for the commit, or a mapping of names to values, which become fields of `commitInfo`.
    looked_s
        When the snapshot was the latest version, by the monotonic clock of the effects. Default:
        now.

    Raises
    ------
    InvalidTypeError
        The operation, or what its method `intent` returns, is of another type.
    InvalidInputError
        The operation has no name, was executed before, or its intent contradicts itself; the error
        names the field.
    UnsupportedFeatureError
        txlog cannot write the table, or the table is append-only and rows would be removed.
    CommitConflictError
        A winner forbids the operation. Nothing was committed.
    RetriesExhaustedError
        Conflicts continued until the deadline. Nothing was committed.
    OutcomeUnknownError
        The store's answer was lost, or memory ran out meanwhile. Written files are kept.
    """
    begin(operation)
    operation.context = context
    with (
        observed(_name_of(operation), context.store.root) as seen,
        discarding(operation.discard),
        resource_errors(),
    ):
        seen.note("started", {"read_version": -1 if snapshot is None else snapshot.version})
        if txn is not None:
            require_app_version(txn)
        require_user_metadata(user_metadata)
        base: Snapshot | None = None
        result: Done | Committed | None = None
        if snapshot is not None:
            require_table_writable(snapshot, removes_rows=operation.removes_rows)
            result = skip_recorded(snapshot, txn, operation.name)
            base = operation.base(snapshot) if result is None else None
        if result is None and is_rehearsing():
            attempts = _Attempts(operation, txn, user_metadata)
            result = attempts.rehearsed(base, snapshot)
        elif result is None:
            result = _Attempts(operation, txn, user_metadata).until_done(base, looked_s)
        if isinstance(result, Done):
            reason = "recorded already" if result.outcome.skipped else "nothing to change"
            reason = "dry run" if result.outcome.rehearsed else reason
            seen.note("skipped", {"reason": reason})
    if isinstance(result, Done):
        tidied(operation.discard)
        return result
    return landed(operation, result)


def landed(operation: Operation, result: Committed) -> Done:
    """Return the outcome of a committed operation, after it has cleaned up.

    From now on nothing may be discarded: the commit refers to the operation's files.
    """
    intent, version = result.intent, result.snapshot.version
    tidied(partial(operation.landed, intent), f"version {version} is committed, but ")
    outcome = _outcome(intent, version, result.features_added, result.features_dropped)
    return Done(outcome, result.snapshot)


def rehearsed_outcome(intent: Intent, base: Snapshot | None, after: Snapshot) -> Outcome:
    """Return the outcome of a commit that was not made."""
    return replace(_outcome(intent, None, *changed_features(base, after)), rehearsed=True)


def _outcome(
    intent: Intent, version: int | None, added: frozenset[str], dropped: frozenset[str]
) -> Outcome:
    return Outcome(
        intent.operation,
        version,
        intent.metrics,
        features_added=tuple(sorted(added)),
        features_dropped=tuple(sorted(dropped)),
    )


def planned(context: Context, intent: Intent, before: Snapshot | None = None) -> Snapshot:
    """Return the version that an intent would make on top of another; None: its version 0."""
    now_ms, uuid = context.effects.now_ms(), context.effects.uuid()
    return prepare(context.store, before, intent, uuid, made_ms=now_ms, now_ms=now_ms).after


def _latest(store: Store, base: Snapshot | None) -> Snapshot | None:
    """Return the latest version of a table; None: there is none."""
    if base is not None:
        return refresh(store, base)
    try:
        return load_snapshot(store)
    except NotFoundError:
        return None


_PATIENCE: Threshold = 2  # The number of conflicts before the operation asks for precedence.


@dataclass
class _Attempts:
    """The attempts to commit one operation."""

    operation: Operation
    txn: AnyAppVersion | None
    user_metadata: UserMetadata | None
    unique: Uniqueness | None = None

    def until_done(self, base: Snapshot | None, looked_s: float | None) -> Done | Committed:
        """Return the commit, or an outcome if there was nothing to commit."""
        with ExitStack() as stack:
            return self._until_done(base, stack, looked_s)

    def _until_done(
        self, base: Snapshot | None, stack: ExitStack, looked_s: float | None
    ) -> Done | Committed:
        operation, effects = self.operation, self.operation.context.effects
        started = effects.monotonic_s()
        conflicts, preferred, was_new = 0, False, base is None
        looked_s = started if looked_s is None else looked_s
        while True:
            intent = self._intent(base)
            if was_new and base is not None:  # First the operation says whether it takes a table.
                require_table_writable(base, removes_rows=operation.removes_rows)
            if recorded := self._with_companions(base):
                return recorded
            if intent is None:
                assert base is not None
                return Done(Outcome(operation.name, None, operation.side_metrics()), base)
            result = self._committed(base, intent, looked_s)
            if isinstance(result, Redo) and conflicts >= _PATIENCE and not preferred:
                preferred = stack.enter_context(operation.context.store.precedence())
                # Other writers may have won during the wait.
                result = self._committed(base, intent, looked_s)
            if isinstance(result, Redo) and wait_after(conflicts + 1, effects):
                # The winners of the wait are judged like all others: one may forbid the intent.
                result = self._committed(base, intent, looked_s)
            if not isinstance(result, Redo):
                return result
            note("conflict", {"version": result.version, "rule": result.verdict.rule})
            if recorded := skip_recorded(result.snapshot, self.txn, operation.name):
                return recorded
            if not operation.may_redo:
                raise _changed_base(result)
            if not operation.keeps_files:
                tidied(operation.discard)
            base, looked_s = result.snapshot, effects.monotonic_s()
            if not was_new:
                require_table_writable(base, removes_rows=operation.removes_rows)
            conflicts += 1
            note("retried", {"read_version": base.version})
            if effects.monotonic_s() - started > operation.deadline_s:
                raise RetriesExhaustedError(
                    version=result.version,
                    rule=result.verdict.rule,
                    path=result.verdict.path,
                    reason="commits of other writers continued to conflict with this one",
                    remedy="Try again when the other writers are done, or change other rows",
                )

    def rehearsed(self, base: Snapshot | None, snapshot: Snapshot | None) -> Done:
        """Commit nothing, and return what a commit would return.

        `snapshot` is the table's version. Without one there is no table yet, and the result has the
        snapshot of the table that the commit would create.
        """
        operation = self.operation
        intent = self._intent(base)
        if intent is None:
            assert snapshot is not None  # Else `creation` returns an intent.
            return Done(Outcome(operation.name, None, operation.side_metrics()), snapshot)
        recorded = self._with_companions(base)
        if recorded is not None:
            return recorded
        after = planned(operation.context, intent, base)
        self.check(base, intent, after, [])
        outcome = rehearsed_outcome(intent, base, after)
        return Done(outcome, after if snapshot is None else snapshot)

    def _with_companions(self, base: Snapshot | None) -> Done | None:
        """Commit what must be committed to other tables before the last intent.

        Another run with the same `txn` may have been committed meanwhile. What it committed to the
        other tables must stay, so the outcome is then that of a skipped operation.
        """
        operation, store = self.operation, self.operation.context.store
        for _ in range(2):
            overtaken = False
            for one in operation.companions(self.txn):
                if self.txn is not None:
                    latest = _latest(store, base)
                    recorded = latest and skip_recorded(latest, self.txn, operation.name)
                    if recorded:
                        return recorded
                done = execute(one.operation, one.context, one.snapshot, txn=one.txn)
                # Another run has committed its companion first. It may differ from this one.
                overtaken = overtaken or done.outcome.skipped
            if not overtaken:
                break
        return None

    def _intent(self, base: Snapshot | None) -> Intent | None:
        """Return the operation's intent with `txn` and notes; None: nothing to commit."""
        try:
            intent = intent_of(self.operation, base)
        except TxlogError:
            raise
        except Exception as error:  # No commit is under way, so the files are not needed.
            clean_after(error, self.operation.discard)
            raise
        if intent is None:
            if self.txn is None or base is None:
                return None
            # A winner may give it something to do, so what it read is judged (CON-20).
            intent = Intent(
                self.operation.name,
                read_version=base.version,
                kind="append",
                reads=self.operation.read(),
            )
        if self.user_metadata is not None:
            intent = replace(intent, user_metadata=self.user_metadata)
        if more := self.operation.side_metrics():
            intent = replace(intent, metrics={**intent.metrics, **more})
        if self.txn is None:
            return intent
        return with_txn(intent, self.txn, self.operation.context.effects)

    def _committed(
        self, base: Snapshot | None, intent: Intent, looked_s: float
    ) -> Committed | Redo | Done:
        operation, context = self.operation, self.operation.context
        try:
            return commit(
                context.store,
                base,
                intent,
                effects=context.effects,
                deadline_s=operation.deadline_s,
                rebase=operation.rebase,
                check=self.check,
                looked_s=looked_s,
            )
        except CommitConflictError as error:
            is_over = isinstance(error, RetriesExhaustedError)
            redoes = error.rule in operation.redo_on and not is_over
            if base is None or (self.txn is None and not redoes):
                raise
            latest = refresh(context.store, base)
            # Another process may have made the same commit.
            recorded = skip_recorded(latest, self.txn, operation.name)
            if recorded is not None:
                return recorded
            if redoes:
                return Redo(latest, Verdict("redo", error.rule, error.path), error.version)
            raise

    def check(
        self, before: Snapshot | None, intent: Intent, after: Snapshot, winners: list[Commit]
    ) -> None:
        self.unique = self.unique or Uniqueness(self.operation.context)
        self.unique.require(before, intent, after, winners)


class Uniqueness:
    """The check of a table's unique keys before each attempt to commit, if it has any."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._check: UniqueCheck | None = None  # Made when the table has unique keys.

    def require(
        self, before: Snapshot | None, intent: Intent, after: Snapshot, winners: list[Commit]
    ) -> None:
        """Raise `DuplicateKeyError` if an attempt would break a unique key; see `Check`."""
        if not any(name.startswith(UNIQUE_PREFIX) for name in after.metadata.configuration):
            return
        if self._check is None:
            from txlog.commit.unique_keys import UniqueCheck

            self._check = UniqueCheck(self._context)
        self._check.require(before, intent, after, winners)


@contextmanager
def discarding(discard: Callable[[], None]) -> Iterator[None]:
    """Discard the written files if the commit in the `with` block certainly failed.

    After an unknown outcome or an interrupt, the files are kept.
    """
    try:
        yield
    except OutcomeUnknownError:
        raise
    except TxlogError as error:
        clean_after(error, discard)
        raise


def skip_recorded(
    snapshot: Snapshot, txn: AnyAppVersion | None, name: str = "WRITE"
) -> Done | None:
    """Return a skipped outcome if the table records `txn`, else None."""
    if txn is None or not is_recorded(snapshot, txn):
        return None
    return Done(Outcome(name, None, skipped=True), snapshot)


def require_user_metadata(given: object) -> None:
    """Raise unless a commit's notes are text, a mapping of names to JSON values, or None.

    Raises
    ------
    InvalidTypeError
        The argument has another type.
    InvalidInputError
        A value cannot be JSON, or txlog itself sets a field with this name.
    """
    if given is None or isinstance(given, str):
        return
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidTypeError(
            argument="user_metadata",
            reason=f"text or a mapping of names to values was expected, not {_kind_of(given)}",
            remedy='Pass text, or a mapping such as {"job": "nightly"}; its keys must be strings',
        )
    for name, value in given.items():
        if fault := _fault_of(name, value):
            raise InvalidInputError(
                argument="user_metadata", field=name, reason=fault[0], remedy=fault[1]
            )


# Some readers ignore the case of names, and would find two fields.
_TAKEN_NAMES = frozenset(name.lower() for name in COMMIT_INFO_NAMES)
_TEXTS = {name.lower(): name for name in CALLERS_TEXTS}


def _fault_of(name: str, value: object) -> tuple[str, str] | None:
    """Return the error in a value for a commit's notes and its remedy, or None."""
    if name == "operationParameters" and isinstance(value, Mapping):
        name = ""  # They are added to the operation's own parameters.
    if name.lower() in _TAKEN_NAMES:
        return f"txlog itself sets the field {name}", "Choose another name"
    if (known := _TEXTS.get(name.lower(), name)) != name:
        return f"{name} differs from the field {known} only in case", f"Write {known}"
    if name in CALLERS_TEXTS and not isinstance(value, str):
        return f"{name} must be text, not {type(value).__name__}", "Pass text"
    try:
        # Refuses values that `json` would change, such as keys that are not strings.
        orjson.dumps(value)
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        return f"the value cannot be written as JSON: {error}", "Pass text, numbers, lists or dicts"
    return None


def _kind_of(given: object) -> str:
    keys = given if isinstance(given, Mapping) else ()
    odd = next((key for key in keys if not isinstance(key, str)), given)
    return type(odd).__name__ if odd is given else f"a key of type {type(odd).__name__}"


def require_table_writable(snapshot: Snapshot, *, removes_rows: bool) -> None:
    """Raise if the protocol or the properties of a table forbid a write.

    Raises
    ------
    UnsupportedFeatureError
        The table lists features that txlog cannot write, or is append-only.
    CommitConflictError
        It is a branch, and it is closed.
    """
    snapshot.memo(_require_writable)
    if sealed_by(snapshot) is not None:
        raise closed_branch(snapshot)
    if removes_rows and snapshot.is_active("appendOnly"):
        raise UnsupportedFeatureError(
            path=snapshot.root,
            features=("appendOnly",),
            reason="the table is append-only: rows cannot be removed or changed",
            remedy="Set delta.appendOnly to false first if rows should be removed",
        )


def closed_branch(snapshot: Snapshot) -> CommitConflictError:
    """Return the error for a write to a branch whose log is closed (BRA-15)."""
    return CommitConflictError(
        version=snapshot.version,
        rule="CON-16",
        path=snapshot.root,
        reason="the branch is closed: it was published or discarded, or a publish of it has not "
        "finished",
        remedy="Nothing was committed. Write to the table, or to another branch. If the branch is "
        "still open, publish or discard it again",
    )


def _require_writable(snapshot: Snapshot) -> None:
    require_writable(
        snapshot.protocol, snapshot.metadata, path=snapshot.root, managed=snapshot.is_managed
    )


def _changed_base(redo: Redo) -> CommitConflictError:
    return CommitConflictError(
        version=redo.version,
        rule=redo.verdict.rule,
        path=redo.verdict.path,
        reason="another writer changed the rows or columns from which the fragments were made",
        remedy="Nothing was committed. Make the fragments again from the latest version",
    )
