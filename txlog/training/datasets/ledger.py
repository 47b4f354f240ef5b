"""The ledger: a Delta table of events, to which one event at a time is appended.

Event n is appended with `txn=(APP, n)`. If the table already records this version, another process
was first, and the command is decided again. Rules: spec/datasets.md, DST-20 to DST-29.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock

import orjson
import pyarrow as pa

from txlog import Table, col, lit
from txlog.base.arrow import table_of_rows
from txlog.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    LogCorruptError,
    OutcomeUnknownError,
    RetriesExhaustedError,
    TxlogError,
    UnsupportedFeatureError,
    warn_committed,
)
from txlog.base.thresholds import Threshold
from txlog.extend import (
    Append,
    Context,
    create_table,
    execute,
    is_rehearsing,
    open_snapshot,
    open_table,
    wait_after,
)
from txlog.training.datasets.commands import ClaimSet, Command, Finish, decide
from txlog.training.datasets.events import Event, LedgerState, canonical, fold
from txlog.training.datasets.lease import LEASE_MS
from txlog.training.datasets.step_state import ClaimStep, StepClaim
from txlog.training.datasets.values import FORMAT, NOBODY, Claim, Failure, Part, Who

APP = "txlog.datasets.ledger"
MARK = "txlog.dataset.ledger"
_SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), False),
        pa.field("at_ms", pa.int64(), False),
        pa.field("by", pa.string(), False),
        pa.field("kind", pa.string(), False),
        pa.field("body", pa.string(), False),
    ]
)
_PROPERTIES = {
    "delta.appendOnly": "true",
    "delta.checkpointInterval": "50",
    MARK: FORMAT,
    # With one row in a file, bounds of texts cannot exclude anything.
    "delta.dataSkippingStatsColumns": "n",
}
COMPACT_EVERY: Threshold = 200
_DEADLINE_S = 120.0


def require_no_rehearsal() -> None:
    """Raise `UnsupportedFeatureError` if changes are only rehearsed: the ledger cannot be."""
    if is_rehearsing():
        raise UnsupportedFeatureError(
            features=("rehearsing",),
            reason="changes of data sets cannot be rehearsed",
            remedy="Repeat the call without a rehearsal",
        )


class Ledger:
    """The events of a folder of data sets, and the state after them.

    Threads may share it; each process has its own.

    Parameters
    ----------
    context
        The context of the ledger's table, which the first event creates.
    by
        The name of this writer: a text that no other writer has.
    """

    def __init__(self, context: Context, by: str | None = None) -> None:
        self._context = context
        self.by = by or f"{os.getpid()}@{socket.gethostname()}/{context.effects.uuid()[:8]}"
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = Lock()  # Only one thread at a time reads new events or appends.
        self._table: Table | None = None
        self._state = LedgerState()
        self._compacted = 0

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock. A forked process makes a new one: a thread may have held the old lock."""
        if self._process != os.getpid():
            self._reset()
        with self._lock:
            yield

    @property
    def now_ms(self) -> int:
        """The time in milliseconds since the epoch, UTC."""
        return self._context.effects.now_ms()

    def state(self) -> LedgerState:
        """Return the current state after all events."""
        with self._locked():
            self._read_on()
            return self._state

    def events(self, after: int = 0) -> list[Event]:
        """Return the events after the first `after`, in order."""
        table = self._opened()
        return [] if table is None else _events(table, after)

    def record(self, command: Command, who: Who = NOBODY) -> LedgerState:
        """Append the event of a command, and return the state after it.

        Raises
        ------
        RetriesExhaustedError
            Other processes appended first until the deadline.
        TxlogError
            The command is refused; see `decide`. Nothing was appended.
        """
        return self.try_record(command, who)[0]

    def try_record(self, command: Command, who: Who = NOBODY) -> tuple[LedgerState, bool]:
        """Do the same, and return also whether an event was appended: False if none was needed."""
        require_no_rehearsal()
        effects = self._context.effects
        started = effects.monotonic_s()
        losses = 0
        with self._locked():
            while True:
                self._read_on()
                now_ms = effects.now_ms()
                decided = decide(self._state, command, now_ms)
                if decided is None:
                    return self._state, False
                kind, body = decided
                event = Event(self._state.n + 1, now_ms, self.by, kind, {**body, **who.to_json()})
                if self._append(event):
                    self._state = fold(self._state, [event])
                    self._compact_if_due()
                    return self._state, True
                losses += 1
                wait_after(losses, effects)
                if effects.monotonic_s() - started > _DEADLINE_S:
                    raise RetriesExhaustedError(
                        version=event.n,
                        rule="DST-21",
                        path=self._context.store.root,
                        reason="other writers kept appending to the ledger first",
                        remedy="Try again when they are done",
                    )

    # What jobs call -------------------------------------------------------------------------

    def claim(
        self,
        dataset_id: int,
        version_hash: str,
        worker: str | None = None,
        lease_ms: int = LEASE_MS,
    ) -> Claim | None:
        """Claim a training set, or return None: it is made, or another worker's lease runs."""
        who = worker or self.by
        state, appended = self.try_record(ClaimSet(dataset_id, version_hash, who, lease_ms))
        if not appended:
            return None
        return _claim_of(state, dataset_id, version_hash)

    def renew(self, claim: Claim, lease_ms: int = LEASE_MS) -> Claim:
        """Return the claim with a new lease.

        Raises
        ------
        CommitConflictError
            The attempt is no longer the current one.
        NotFoundError
            The training set, or the data set, was purged.
        """
        state = self.record(
            ClaimSet(
                claim.dataset_id, claim.version_hash, claim.worker, lease_ms, attempt=claim.attempt
            )
        )
        return _claim_of(state, claim.dataset_id, claim.version_hash)

    def ready(self, claim: Claim, parts: Sequence[Part], statistics: Mapping[str, int]) -> None:
        """Record that a training set is made; errors as for `renew`."""
        self.record(Finish(claim, tuple(parts), dict(statistics)))

    def failed(self, claim: Claim, error: Failure) -> None:
        """Record why a training set cannot be made; errors as for `renew`."""
        self.record(Finish(claim, error=error))

    def claim_step(
        self, step_id: int, commit_id: int, lease_ms: int = LEASE_MS
    ) -> StepClaim | None:
        """Claim a step for a commit, or return None: it is done, or another worker runs the step.

        Raises
        ------
        NotFoundError
            The step was removed.
        """
        worker = f"{self.by}/{self._context.effects.uuid()[:8]}"
        command = ClaimStep(step_id, commit_id, worker, lease_ms)
        state, appended = self.try_record(command)
        return _step_claim(state, step_id) if appended else None

    def renew_step(self, claim: StepClaim, lease_ms: int = LEASE_MS) -> StepClaim:
        """Return the claim with a new lease; errors as for `renew`."""
        command = ClaimStep(
            claim.step_id, claim.commit_id, claim.worker, lease_ms, attempt=claim.attempt
        )
        return _step_claim(self.record(command), claim.step_id)

    # The table ------------------------------------------------------------------------------

    def _opened(self) -> Table | None:
        """Open the table at its latest version; None if there is none."""
        context = self._context
        snapshot = open_snapshot(context.store)
        if snapshot is None:
            return None
        return open_table(
            context.store, snapshot=snapshot, effects=context.effects, engine=context.engine
        )

    def _read_on(self) -> None:
        """Read the new events."""
        table = self._table
        if table is not None:
            table.refresh()
        elif (table := self._opened()) is None:
            return
        else:
            _require_ledger(table)
        n = table.transaction_version(APP) or 0
        if n > self._state.n:  # An interrupt may have come between an append and the state.
            new = _events(table, self._state.n)
            expected = list(range(self._state.n + 1, n + 1))
            if [event.n for event in new] != expected:
                raise LogCorruptError(
                    path=self._context.store.root,
                    field="n",
                    reason=f"the ledger records {n} events, but those after {self._state.n} are "
                    f"{[event.n for event in new][:5]} …",
                    remedy="Only txlog.training may write the ledger; restore a version before",
                )
            self._state = fold(self._state, new)
        self._table = table

    def _append(self, event: Event) -> bool:
        """Append an event; return False if another event has its number."""
        if self._table is None:
            self._table = self._made()
            return False  # Another process may have created it, with events.
        row = {"n": event.n, "at_ms": event.at_ms, "by": event.by, "kind": event.kind}
        rows = table_of_rows([{**row, "body": canonical(dict(event.body))}], _SCHEMA)
        append = Append(rows)
        try:
            done = execute(self._table, append, txn=(APP, event.n), refresh=False)
        except OutcomeUnknownError as unknown:
            try:
                n = self._table.refresh().transaction_version(APP) or 0
                if n >= event.n:
                    return _events(self._table, event.n - 1)[0] == event
            except TxlogError as error:
                raise unknown from error
            raise  # The event may still appear, so nothing that it names may be deleted.
        return not done.skipped

    def _made(self) -> Table:
        """Create the table, or return the one that another process has created."""
        try:
            return create_table(self._context, _SCHEMA, properties=_PROPERTIES, name="ledger")
        except AlreadyExistsError:
            found = self._opened()
            if found is None:
                raise
            _require_ledger(found)
            return found

    def _compact_if_due(self) -> None:
        """Merge the files of the events from time to time; a failure loses no event."""
        due = self._state.n // COMPACT_EVERY
        if due == self._compacted or self._state.n % COMPACT_EVERY:
            return
        self._compacted = due
        try:
            self.compact()
        except TxlogError as error:
            warn_committed(
                f"event {self._state.n} is in the ledger, but its files could not be joined: "
                f"{error}"
            )

    def compact(self) -> None:
        """Merge the files of the events, and delete files that were merged a week ago."""
        assert self._table is not None
        self._table.optimize.compact()
        self._table.vacuum(dry_run=False, lite=True)


def _claim_of(state: LedgerState, dataset_id: int, version_hash: str) -> Claim:
    found = state.dataset(dataset_id).sets[version_hash]
    assert found.lease is not None
    lease = found.lease
    return Claim(dataset_id, version_hash, found.attempt, lease.worker, lease.until_ms)


def _step_claim(state: LedgerState, step_id: int) -> StepClaim:
    last = state.steps[step_id].last
    assert last is not None
    lease = last.lease
    return StepClaim(step_id, last.commit_id, last.attempt, lease.worker, lease.until_ms)


def is_ledger(table: Table) -> bool:
    """Return whether a table is the ledger of a folder of data sets."""
    return MARK in table.properties


def _require_ledger(table: Table) -> None:
    if not is_ledger(table):
        raise InvalidInputError(
            argument="root",
            reason=f"{table.uri} is a table, but no ledger of data sets",
            remedy="Choose another folder",
        )
    if (found := table.properties[MARK]) != FORMAT:
        raise UnsupportedFeatureError(
            path=table.uri,
            features=(f"{MARK}={found}",),
            reason=f"the ledger has the format {found}, and this version of txlog knows {FORMAT}",
            remedy="Upgrade txlog",
        )


def _events(table: Table, after: int) -> list[Event]:
    """Return the events of a ledger after the first ones, in order."""
    rows = table.to_arrow(where=col("n") > lit(after)) if after else table.to_arrow()
    columns = [rows[name].to_pylist() for name in _SCHEMA.names]
    found = [
        Event(n, at_ms, by, kind, orjson.loads(body))
        for n, at_ms, by, kind, body in zip(*columns, strict=True)
    ]
    return sorted(found, key=lambda event: event.n)
