"""Commit operations on several tables of a catalog at one moment, or none of them.

Each table's commit is staged, and the catalog ratifies all of them together. If one of them lost,
the winners of every table are judged as those of a single commit are. Rules: spec/catalog.md,
CAT-6 to CAT-12; Delta's proposal of transactions over several tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from txlog.actions.table import Participant, TransactionGroup
from txlog.base.effects import REAL, is_rehearsing
from txlog.base.errors import (
    CommitConflictError,
    DuplicateKeyError,
    InvalidInputError,
    RetriesExhaustedError,
    TxlogError,
    resource_errors,
    tidied,
)
from txlog.base.thresholds import Threshold
from txlog.commit.app_versions import AnyAppVersion, with_txn
from txlog.commit.context import Context
from txlog.commit.intent import Intent, Reads, UserMetadata, united
from txlog.commit.judge import refusal
from txlog.commit.loop import (
    DEADLINE_S,
    Attempt,
    Committed,
    changed_features,
    pass_winners,
    prepare,
    wait_after,
    with_time,
)
from txlog.commit.operation import (
    Companion,
    Done,
    Operation,
    Outcome,
    Uniqueness,
    begin,
    discarding,
    execute,
    intent_of,
    landed,
    rehearsed_outcome,
    require_table_writable,
    require_user_metadata,
)
from txlog.log.names import commit_name, log_path
from txlog.snapshot.commits import Commit
from txlog.snapshot.snapshot import Snapshot
from txlog.store.catalog_database import CatalogDatabase, Ratification
from txlog.store.managed import ManagedStore, commit_staged, stage_all


@dataclass
class Member:
    """One table of a transaction.

    Parameters
    ----------
    operation
        The changes; it may have none.
    base
        The version that the transaction reads.
    reads
        What the transaction read besides, which no winner may have changed.
    txns
        Versions of applications for this table alone. Default: that of the transaction.
    """

    name: str
    context: Context
    operation: Operation
    base: Snapshot
    reads: Reads = field(default_factory=Reads)
    txns: tuple[AnyAppVersion, ...] = ()

    def __post_init__(self) -> None:
        assert isinstance(self.context.store, ManagedStore)
        self.store = self.context.store
        self.snapshot = self.base  # The version on top of which it is committed.
        self.intent: Intent | None = None
        self.unchecked: list[Commit] = []
        self.losses = 0  # How often other writers were first.
        self.unique = Uniqueness(self.context)
        # What the operation puts into other tables of the catalog, such as a quarantine (CON-32).
        self.offered: list[Companion] = []

    @property
    def table_id(self) -> str:
        """The id of the table."""
        return self.store.table_id

    @property
    def judged(self) -> Intent:
        """The intent for the judgement of winners; of a table that was only read, the reads."""
        if self.intent is not None:
            return self.intent
        version = self.base.version
        return Intent("READ", version, "replace", reads=self.reads)


_PATIENCE: Threshold = 3  # Lost races before a transaction asks for precedence in a table.
Unite = Callable[[Context, Snapshot, Sequence[Operation]], Operation]


@dataclass(frozen=True)
class Terms:
    """What all commits of a transaction share.

    Parameters
    ----------
    redoes
        Whether an operation may be decided again after a conflict. It may not if values that the
        transaction read are part of it: they would be of an older version.
    """

    database: CatalogDatabase
    catalog_id: str
    txn: AnyAppVersion | None = None
    user_metadata: UserMetadata | None = None
    redoes: bool = True
    is_strict: bool = False  # Whether what was read must not have changed, either.
    unite: Unite | None = None  # Makes one operation of several that change one table.
    deadline_s: float = DEADLINE_S


@dataclass
class Companions:
    """What the members put into other tables of the catalog: one commit for each of these tables.

    `done` has, after the commit, where each of them was made.
    """

    terms: Terms
    members: dict[str, Member] = field(default_factory=dict)  # By the id of the table.
    done: list[tuple[Context, Done]] = field(default_factory=list)
    _offers: dict[str, list[Companion]] = field(default_factory=dict)

    def update(self, members: Sequence[Member]) -> None:
        """Replace the companions by those that the members offer now."""
        offers: dict[str, list[Companion]] = {}
        for member in members:
            for one in member.offered:
                offers.setdefault(_table_id(one.context), []).append(one)
        for table_id in self.members.keys() - offers.keys():
            del self.members[table_id], self._offers[table_id]
        for table_id, found in offers.items():
            before = self._offers.get(table_id, [])
            if [one.operation for one in found] != [one.operation for one in before]:
                self._offers[table_id] = found
                self.members[table_id] = self._united(found, self.members.get(table_id))

    def _united(self, offers: list[Companion], before: Member | None) -> Member:
        """Return a member with all that is to be put into one table."""
        context = offers[0].context
        snapshots = [one.snapshot for one in offers if one.snapshot is not None]
        known = snapshots if before is None else [*snapshots, before.snapshot]
        latest = max(known, key=lambda one: one.version)
        for one in offers:
            one.operation.context = context
        operation = offers[0].operation
        if len(offers) > 1:
            assert self.terms.unite is not None
            operation = self.terms.unite(context, latest, [one.operation for one in offers])
        txns = tuple(one.txn for one in offers if one.txn is not None)
        added = Member(context.store.root, context, operation, latest, txns=txns)
        begin(operation)
        operation.context = context
        _decide(added, replace(self.terms, txn=None), set())
        return added

    def finish(self, committed: Mapping[str, Committed] | None) -> None:
        """Clean up after the commit of the transaction."""
        for member in self.members.values():
            result = None if committed is None else committed.get(member.table_id)
            if result is None:
                tidied(member.operation.discard)
            else:
                self.done.append((member.context, landed(member.operation, result)))

    def discard(self) -> None:
        """Delete all written files."""
        for member in self.members.values():
            member.operation.discard()


def commit_group(
    members: Sequence[Member], terms: Terms, companions: Companions | None = None
) -> list[Done] | None:
    """Commit the operations of all members at one moment.

    Parameters
    ----------
    companions
        Where to note what was put into other tables.

    Returns
    -------
    For each member an outcome, which has no version if nothing changed. None: the catalog had
    recorded the application's version, and nothing was committed.

    Raises
    ------
    CommitConflictError
        A winner changed what a member read or changes. Nothing was committed.
    DuplicateKeyError
        Two rows of a table would have the same unique key. Nothing was committed.
    OutcomeUnknownError
        The answer of the catalog was lost. All or nothing was committed.
    """
    companions = Companions(terms) if companions is None else companions
    for member in members:
        begin(member.operation)
        member.operation.context = member.context
    with ExitStack() as stack:
        for member in members:
            stack.enter_context(discarding(member.operation.discard))
            stack.enter_context(discarding(partial(_discard_offered, member)))
        stack.enter_context(discarding(companions.discard))
        stack.enter_context(resource_errors())
        require_user_metadata(terms.user_metadata)
        if is_rehearsing():
            return _rehearsed(members, terms)
        committed = _until_ratified(members, companions, terms, stack.enter_context(_Precedence()))
    companions.finish(committed)
    done = []
    for member in members:
        result = None if committed is None else committed.get(member.table_id)
        if result is None:
            tidied(member.operation.discard)
            skipped = committed is None
            more = {} if skipped else member.operation.side_metrics()
            outcome = Outcome(member.operation.name, None, more, skipped=skipped)
            done.append(Done(outcome, member.snapshot))
        else:
            done.append(landed(member.operation, result))
    return None if committed is None else done


def _rehearsed(members: Sequence[Member], terms: Terms) -> list[Done]:
    """Commit nothing, and return what a commit would return."""
    own = {member.table_id for member in members}
    for member in members:
        _decide(member, terms, own)
    done = []
    for member in members:
        if member.intent is None:
            metrics = member.operation.side_metrics()
            outcome = Outcome(member.operation.name, None, metrics)
        else:
            effects = member.context.effects
            attempt = _attempt(member, None, effects.uuid(), effects.now_ms(), terms, own)
            assert attempt is not None  # Without winners, duplicate keys are an error.
            outcome = rehearsed_outcome(member.intent, member.snapshot, attempt.after)
        done.append(Done(outcome, member.snapshot))
    for member in members:
        tidied(member.operation.discard)
        tidied(partial(_discard_offered, member))
    return done


def _discard_offered(member: Member) -> None:
    for one in member.offered:
        one.operation.discard()


class _Precedence(ExitStack):
    """Precedence in the tables in which a transaction has lost several times."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: set[str] = set()

    def ask(self, members: Sequence[Member]) -> None:
        """Ask for precedence, once, in the tables of members that have lost often enough.

        All transactions ask in the same order, so that no two of them wait for each other.
        """
        stores = {one.store.root: one.store for one in members if one.losses >= _PATIENCE}
        if stores.keys() - self._asked:
            self.close()
            self._asked |= stores.keys()
            for root in sorted(stores):
                self.enter_context(stores[root].precedence(briefly=True))


def _until_ratified(
    members: Sequence[Member], companions: Companions, terms: Terms, precedence: _Precedence
) -> dict[str, Committed] | None:
    """Return the commits by table id; None if the application's version was recorded."""
    effects = members[0].context.effects if members else REAL
    transaction_id, made_ms = effects.uuid(), effects.now_ms()
    started, tried = effects.monotonic_s(), 0
    own = {member.table_id for member in members}
    for member in members:
        _decide(member, terms, own)
    while True:
        companions.update(members)
        every = [*members, *companions.members.values()]
        changed = [member for member in every if member.intent is not None]
        watched = [member for member in members if member.intent is None and member.reads]
        if not changed and terms.txn is None:
            return {}
        if not tried:
            for member in changed:  # Only wait for writers that have precedence.
                with member.store.attempts():
                    pass
        group = _group(changed, terms, transaction_id)
        attempts = [_attempt(one, group, transaction_id, made_ms, terms, own) for one in changed]
        found = [attempt for attempt in attempts if attempt is not None]
        if len(found) == len(changed):
            tried += 1
            answer = _ratified(changed, found, watched, terms, transaction_id)
            if answer == "recorded":
                return None
            if answer == "ratified":
                return {
                    member.table_id: _committed(member, attempt, tried)
                    for member, attempt in zip(changed, found, strict=True)
                }
        wait_after(tried, effects)
        precedence.ask([*changed, *watched])
        try:
            for member in (*changed, *watched):
                _pass(member, terms, own)
        except (CommitConflictError, InvalidInputError):
            # The winner may be another run of the application with the same version.
            if terms.txn is None or not terms.database.is_recorded((terms.txn[0], terms.txn[1])):
                raise
            return None
        waited = effects.monotonic_s() - started
        if waited > terms.deadline_s:
            raise RetriesExhaustedError(
                version=members[0].snapshot.version,
                rule="CON-0",
                reason=f"{tried} attempts in {waited:.0f} s were all lost to other writers",
                remedy="Write less often or in larger batches, then try again",
            )


def _decide(member: Member, terms: Terms, own: set[str]) -> None:
    """Ask an operation for its intent on the version of its table, and for its companions.

    `own` are the ids of the tables that take part. Companions for other tables of the catalog are
    noted (`offered`), and all others are committed.
    """
    txns = member.txns or (() if terms.txn is None else (terms.txn,))
    for txn in txns:
        _require_later(member, txn)
    require_table_writable(member.snapshot, removes_rows=member.operation.removes_rows)
    intent = intent_of(member.operation, member.snapshot)
    if intent is not None:
        if more := member.operation.side_metrics():
            intent = replace(intent, metrics={**intent.metrics, **more})
        if terms.user_metadata is not None:
            intent = replace(intent, user_metadata=terms.user_metadata)
        for txn in txns:
            if intent.txn is not None:  # That of another write.
                intent = replace(intent, query_txns=(*intent.query_txns, intent.txn))
            intent = with_txn(intent, txn, member.context.effects)
        if member.reads:
            intent = replace(intent, reads=united([intent.reads, member.reads]))
    elif terms.is_strict:  # That it has nothing to change may rest on what it read, too.
        member.reads = united([member.reads, member.operation.read()])
    member.intent = intent
    member.base = member.snapshot
    before, member.offered = member.offered, []
    for companion in before:
        tidied(companion.operation.discard)
    for one in member.operation.companions(terms.txn):
        if one.snapshot is not None and _joins(one.context, terms, own):
            member.offered.append(one)
        else:
            execute(one.operation, one.context, one.snapshot, txn=one.txn)


def _require_later(member: Member, txn: AnyAppVersion) -> None:
    """Raise if a table has recorded the version of an application, and the catalog has not.

    The commit would lower what the table has recorded, and a later run would repeat itself.
    """
    recorded = member.snapshot.transaction_version(txn[0])
    if recorded is not None and recorded >= txn[1]:
        raise InvalidInputError(
            argument="txn",
            reason=f"{member.name} has recorded version {recorded} of the application {txn[0]!r}, "
            "by a write outside of transactions of the catalog",
            remedy="Use one application id for transactions, and another one for other writes",
        )


def _joins(context: Context, terms: Terms, own: set[str]) -> bool:
    """Return whether a companion becomes a member: a table of the catalog that is none yet."""
    store = context.store
    if not isinstance(store, ManagedStore) or store.table_id in own:
        return False
    return store.database == terms.database


def _table_id(context: Context) -> str:
    assert isinstance(context.store, ManagedStore)
    return context.store.table_id


def _group(changed: Sequence[Member], terms: Terms, transaction_id: str) -> TransactionGroup | None:
    """Return the action that names all tables; one table alone is an ordinary commit."""
    if len(changed) < 2:
        return None
    participants = [
        Participant(table_id=member.table_id, proposed_version=member.snapshot.version + 1)
        for member in changed
    ]
    return TransactionGroup(
        transaction_id=transaction_id,
        participants=participants,
        coordinating_catalog=terms.catalog_id,
    )


def _attempt(
    member: Member,
    group: TransactionGroup | None,
    transaction_id: str,
    made_ms: int,
    terms: Terms,
    own: set[str],
) -> Attempt | None:
    """Return the bytes of a member's commit; None: its rows were decided again.

    Raises
    ------
    DuplicateKeyError
        Two rows would have the same unique key.
    """
    assert member.intent is not None
    intent = replace(member.intent, group=group)
    if group is None and terms.txn is not None:  # The catalog must know `txn` after a repair.
        intent = replace(intent, coordinator=terms.catalog_id)
    now_ms = member.context.effects.now_ms()
    attempt = prepare(
        member.store, member.snapshot, intent, transaction_id, made_ms=made_ms, now_ms=now_ms
    )
    try:
        member.unique.require(member.snapshot, intent, attempt.after, member.unchecked)
    except DuplicateKeyError:
        is_final = member.snapshot is member.base or intent.kind == "append"
        if is_final or not terms.redoes or not member.operation.may_redo:
            raise
        _redo(member, terms, own)
        return None
    member.unchecked = []
    return attempt


def _ratified(
    changed: Sequence[Member],
    attempts: Sequence[Attempt],
    watched: Sequence[Member],
    terms: Terms,
    transaction_id: str,
) -> Ratification:
    """Stage all commits, ask the catalog, and publish them if it ratified them."""
    staged = stage_all(
        [
            (member.store, member.snapshot.version + 1, attempt.data)
            for member, attempt in zip(changed, attempts, strict=True)
        ]
    )
    return commit_staged(
        terms.database,
        [(member.store, one) for member, one in zip(changed, staged, strict=True)],
        unchanged=[(member.table_id, member.snapshot.version) for member in watched],
        application=None if terms.txn is None else (terms.txn[0], terms.txn[1]),
        transaction_id=transaction_id,
    )


def _committed(member: Member, attempt: Attempt, tried: int) -> Committed:
    assert member.intent is not None
    made_ms: int | None = None
    with suppress(TxlogError):
        path = log_path(commit_name(member.snapshot.version + 1))
        made_ms = member.store.info(path).modified_ms
    after = with_time(attempt.after, made_ms)
    return Committed(after, member.intent, tried, *changed_features(member.snapshot, after))


def _pass(member: Member, terms: Terms, own: set[str]) -> None:
    """Judge the winners of a member's table, and move to the newest version.

    Raises
    ------
    CommitConflictError
        A winner forbids the changes or changed what was read.
    """
    passed: list[Commit] = []
    verdict, snapshot, at = pass_winners(member.store, member.snapshot, member.judged, passed, None)
    member.losses += bool(passed)
    member.unchecked += passed
    member.snapshot = snapshot
    if verdict is not None and verdict.outcome == "rebase" and member.intent is not None:
        rebased = member.operation.rebase(snapshot, member.intent, passed)
        if rebased is not None:
            member.intent, verdict = rebased, None
    if verdict is None:
        return
    if verdict.outcome == "fail" and verdict.rule not in member.operation.redo_on:
        raise refusal(verdict, at)
    if member.intent is None or not terms.redoes or not member.operation.may_redo:
        raise CommitConflictError(
            version=at,
            rule=verdict.rule,
            path=verdict.path,
            reason=f"another transaction changed rows of {member.name} that this one read or "
            "changes",
            remedy="Nothing was committed. Run the block again, as the catalog's method run does",
        )
    _redo(member, terms, own)


def _redo(member: Member, terms: Terms, own: set[str]) -> None:
    if not member.operation.keeps_files:
        tidied(member.operation.discard)
    _decide(member, terms, own)
