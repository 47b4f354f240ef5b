"""One way for every change of a table: an `Operation` says what, `execute` commits it.

An operation decides its intent from a snapshot. `execute` asks it again for every newer snapshot
that a conflict makes necessary, and owns what all verbs share: whether the table may be written,
whether the application's version is recorded already, the text that the commit notes, what happens
to files that no commit refers to, and the deadline. Rules: spec/commit.md.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import field, replace

import orjson

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
)
from txlog.commit.loop import DEADLINE_S, Committed, Redo, commit, wait_after
from txlog.errors import (
    CommitConflictError,
    InvalidInputError,
    InvalidTypeError,
    OutcomeUnknownError,
    RetriesExhaustedError,
    TxlogError,
    UnsupportedFeatureError,
    warn_committed,
)
from txlog.lazy import dataclass
from txlog.observe import note, observed
from txlog.protocol.access import require_writable
from txlog.snapshot.commits import Commit
from txlog.snapshot.load import refresh
from txlog.snapshot.snapshot import Snapshot


@dataclass(frozen=True)
class Outcome:
    """What an operation did.

    `version` is the version that it made, or None if it changed nothing. `skipped` then says
    whether that is because its application's version was recorded before. `features_added` are
    table features that a table has only since then: engines without them can no longer read it
    (reader features), or write it. `features_dropped` are those that they no longer need.
    """

    operation: str
    version: int | None
    metrics: Mapping[str, int] = field(default_factory=dict)
    skipped: bool = False
    features_added: tuple[str, ...] = ()
    features_dropped: tuple[str, ...] = ()
    rehearsed: bool = False  # There is something to change, and it was only tried.

    def __bool__(self) -> bool:
        return self.version is not None

    def _repr_html_(self) -> str:
        from txlog.html import facts_html, titled

        made = f"made version {self.version}" if self else "committed nothing"
        reason = " (recorded before)" if self.skipped else ""
        features = {
            "features added": ", ".join(self.features_added) or None,
            "features dropped": ", ".join(self.features_dropped) or None,
        }
        return titled(f"{self.operation} {made}{reason}", facts_html({**self.metrics, **features}))


@dataclass(frozen=True)
class Done:
    """An outcome, and the snapshot after it."""

    outcome: Outcome
    snapshot: Snapshot

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether the table's `delta.checkpointInterval` asks for a checkpoint of the commit."""
        version = self.outcome.version
        if not version or version != self.snapshot.version:
            return False
        interval: int = self.snapshot.properties.get("delta.checkpointInterval")
        return version % interval == 0

    @property
    def wants_log_files(self) -> bool:
        """Whether properties ask for a checksum or a compaction of the log after the commit."""
        if self.outcome.version != self.snapshot.version:
            return False
        properties = self.snapshot.properties
        names = ("txlog.writeChecksums", "txlog.logCompactionInterval")
        return any(properties.get(name) for name in names)


class Operation(ABC):
    """One change of a table, decided anew for each version that it is tried on.

    A verb is one subclass: its fields are what the caller wants, and what the last attempt wrote.
    `intent` leaves the fields `txn`, `query_txns` and `user_metadata` to `execute`.
    """

    name: str  # As the commit calls it: DELETE, WRITE, …
    removes_rows = False  # An append-only table then refuses it.
    keeps_files = False  # Files of one attempt serve the next one: they are not discarded between.
    may_redo = True  # False: a conflict ends it, as `intent` cannot be asked again.
    deadline_s = DEADLINE_S

    def __init__(self, context: Context) -> None:
        self.context = context

    def base(self, latest: Snapshot) -> Snapshot:
        """Return the version that the operation reads. Default: the latest."""
        return latest

    @abstractmethod
    def intent(self, base: Snapshot) -> Intent | None:
        """Return the changes of `base`, or None if there are none."""

    def read(self) -> Reads:
        """Return what decided, when `intent` has returned None, that there is nothing to change."""
        return Reads(everything=True)

    def rebase(self, current: Snapshot, intent: Intent, winners: Sequence[Commit]) -> Intent | None:
        """Return the intent on top of winners that deleted other rows; None: ask `intent` again."""
        return None

    def discard(self) -> None:  # noqa: B027 (most verbs write no files)
        """Delete the files that were written for the operation; no commit refers to them."""

    def landed(self, intent: Intent) -> None:  # noqa: B027
        """Clean up after the commit: delete files that were written, but not committed."""


_rehearsing: ContextVar[bool] = ContextVar("txlog.rehearsing", default=False)


@contextmanager
def rehearsing(asked: bool = True) -> Iterator[None]:
    """Have `execute` try operations and commit none: what they write is deleted again."""
    token = _rehearsing.set(asked)
    try:
        yield
    finally:
        _rehearsing.reset(token)


def _without_indexes(base: Snapshot) -> Snapshot:
    """Return a snapshot whose files get no parts of indexes, which `discard` would not delete."""
    kept = {
        name: value
        for name, value in base.metadata.configuration.items()
        if not name.startswith("txlog.index.")
    }
    return replace(base, metadata=base.metadata.model_copy(update={"configuration": kept}))


def execute(
    operation: Operation,
    snapshot: Snapshot,
    *,
    txn: AnyAppVersion | None = None,
    user_metadata: UserMetadata | None = None,
) -> Done:
    """Commit an operation on top of a snapshot, or of a later version if the winners permit.

    Parameters
    ----------
    snapshot
        The latest version that the caller knows.
    txn
        An application's version. If the table records it already, nothing is done. Otherwise it is
        recorded, even if the operation has nothing to change (rule CON-20).
    user_metadata
        Text that the commit notes; or values by names, which become fields of `commitInfo`.

    Raises
    ------
    UnsupportedFeatureError
        txlog may not write the table, or the table is append-only and rows would go.
    CommitConflictError
        A winner forbids the operation. Nothing was committed.
    RetriesExhaustedError
        Conflicts went on until the deadline. Nothing was committed.
    OutcomeUnknownError
        The store's answer was lost. Files that were written stay.
    """
    with observed(operation.name, snapshot.root) as seen, discarding(operation.discard):
        seen.note("started", {"read_version": snapshot.version})
        if txn is not None:
            require_app_version(txn)
        require_user_metadata(user_metadata)
        require_table_writable(snapshot, removes_rows=operation.removes_rows)
        result: Done | Committed | None = skip_recorded(snapshot, txn, operation.name)
        if result is None and _rehearsing.get():
            intent = operation.intent(_without_indexes(operation.base(snapshot)))
            metrics = {} if intent is None else intent.metrics
            tried = Outcome(operation.name, None, metrics, rehearsed=intent is not None)
            result = Done(tried, snapshot)
        elif result is None:
            attempts = _Attempts(operation, txn, user_metadata)
            result = attempts.until_done(operation.base(snapshot))
        if isinstance(result, Done):
            reason = "recorded already" if result.outcome.skipped else "nothing to change"
            reason = "dry run" if result.outcome.rehearsed else reason
            seen.note("skipped", {"reason": reason})
    if isinstance(result, Done):
        operation.discard()
        return result
    # Nothing below may discard: the commit refers to files of the operation.
    intent, version = result.intent, result.snapshot.version
    try:
        operation.landed(intent)
    except TxlogError as error:  # As an error, it would be taken for that of a failed commit.
        warn_committed(
            f"version {version} is committed, but files that it does not need could not be "
            f"deleted: {error}",
            stacklevel=3,
        )
    outcome = Outcome(
        intent.operation,
        version,
        intent.metrics,
        features_added=tuple(sorted(result.features_added)),
        features_dropped=tuple(sorted(result.features_dropped)),
    )
    return Done(outcome, result.snapshot)


_PATIENCE = 2  # Conflicts, before others are asked to wait.


@dataclass
class _Attempts:
    """The attempts at one operation."""

    operation: Operation
    txn: AnyAppVersion | None
    user_metadata: UserMetadata | None

    def until_done(self, base: Snapshot) -> Done | Committed:
        """Return the commit; or what was done, if nothing was committed."""
        with ExitStack() as stack:
            return self._until_done(base, stack)

    def _until_done(self, base: Snapshot, stack: ExitStack) -> Done | Committed:
        operation, effects = self.operation, self.operation.context.effects
        started = effects.monotonic_s()
        conflicts, preferred = 0, False
        while True:
            intent = self._intent(base)
            if intent is None:
                return Done(Outcome(operation.name, None), base)
            result = self._committed(base, intent)
            if isinstance(result, Redo) and conflicts >= _PATIENCE and not preferred:
                preferred = stack.enter_context(operation.context.store.precedence())
                result = self._committed(base, intent)  # Judges who won while this was waited for.
            if not isinstance(result, Redo):
                return result
            note("conflict", {"version": result.version, "rule": result.verdict.rule})
            if recorded := skip_recorded(result.snapshot, self.txn, operation.name):
                return recorded
            if not operation.may_redo:
                raise _changed_base(result)
            if not operation.keeps_files:
                operation.discard()
            base = result.snapshot
            require_table_writable(base, removes_rows=operation.removes_rows)
            conflicts += 1
            wait_after(conflicts, effects)
            note("retried", {"read_version": base.version})
            if effects.monotonic_s() - started > operation.deadline_s:
                raise RetriesExhaustedError(
                    version=result.version,
                    rule=result.verdict.rule,
                    path=result.verdict.path,
                    reason="other writers' commits kept forbidding this one",
                    remedy="Try again when they are done, or touch other rows",
                )

    def _intent(self, base: Snapshot) -> Intent | None:
        """Return the operation's intent with what all operations note; None: nothing to commit."""
        intent = self.operation.intent(base)
        if intent is None:
            if self.txn is None:
                return None
            intent = Intent(self.operation.name, read_version=base.version, kind="append")
        noted = replace(intent, user_metadata=self.user_metadata)
        if self.txn is None:
            return noted
        return with_txn(noted, self.txn, self.operation.context.effects)

    def _committed(self, base: Snapshot, intent: Intent) -> Committed | Redo | Done:
        operation, context = self.operation, self.operation.context
        try:
            return commit(
                context.store,
                base,
                intent,
                effects=context.effects,
                deadline_s=operation.deadline_s,
                rebase=operation.rebase,
            )
        except CommitConflictError:
            if self.txn is not None:  # Another process may have made this very commit.
                recorded = skip_recorded(refresh(context.store, base), self.txn, operation.name)
                if recorded is not None:
                    return recorded
            raise


@contextmanager
def discarding(discard: Callable[[], None]) -> Iterator[None]:
    """Discard what was written for a commit, if the commit in the `with` certainly did not happen.

    An unknown outcome, or an interrupt, proves nothing: the files stay then.
    """
    try:
        yield
    except OutcomeUnknownError:
        raise
    except TxlogError:
        discard()
        raise


def skip_recorded(
    snapshot: Snapshot, txn: AnyAppVersion | None, name: str = "WRITE"
) -> Done | None:
    """Return that an operation is skipped if the table records `txn`; else None."""
    if txn is None or not is_recorded(snapshot, txn):
        return None
    return Done(Outcome(name, None, skipped=True), snapshot)


def require_user_metadata(given: object) -> None:
    """Raise unless what a commit is to note is text, a mapping of names to JSON values, or None.

    Raises
    ------
    InvalidTypeError
        It is something else.
    InvalidInputError
        A value is none of JSON, or commits fill in a field of this name themselves.
    """
    if given is None or isinstance(given, str):
        return
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidTypeError(
            argument="user_metadata",
            reason=f"text, or a mapping of names to values, was expected, not {_kind_of(given)}",
            remedy='Pass text, or a mapping such as {"job": "nightly"}; its keys must be strings',
        )
    for name, value in given.items():
        if fault := _fault_of(name, value):
            raise InvalidInputError(
                argument="user_metadata", field=name, reason=fault[0], remedy=fault[1]
            )


def _fault_of(name: str, value: object) -> tuple[str, str] | None:
    """Return what is wrong with a value that a commit is to note, and what to do; or None."""
    if name == "operationParameters" and isinstance(value, Mapping):
        name = ""  # They are noted beside the operation's own.
    if name in COMMIT_INFO_NAMES:
        return f"commits note {name} themselves", "Choose another name"
    if name in CALLERS_TEXTS and not isinstance(value, str):
        return f"{name} is text, not {type(value).__name__}", "Pass text"
    try:
        orjson.dumps(value)  # Refuses what `json` would turn into something else, such as keys.
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
    """
    snapshot.memo(_require_writable)
    if removes_rows and snapshot.is_active("appendOnly"):
        raise UnsupportedFeatureError(
            path=snapshot.root,
            features=("appendOnly",),
            reason="the table is append-only: no row may be removed or changed",
            remedy="Set delta.appendOnly to false first, if that is what you want",
        )


def _require_writable(snapshot: Snapshot) -> None:
    require_writable(snapshot.protocol, snapshot.metadata, path=snapshot.root)


def _changed_base(redo: Redo) -> CommitConflictError:
    return CommitConflictError(
        version=redo.version,
        rule=redo.verdict.rule,
        path=redo.verdict.path,
        reason="another writer changed what the fragments were made from",
        remedy="Nothing was committed; make them again from the latest version",
    )
