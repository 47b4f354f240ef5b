"""What the verbs share: where they write, what came of it, exactly-once transactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from txlog.effects import REAL, Effects
from txlog.errors import InvalidInputError, UnsupportedFeatureError
from txlog.fragments.ids import ID_APP
from txlog.scan.engine import Engine, Threads, is_in_process
from txlog.store.base import Store
from txlog.store.memory import MemoryStore

if TYPE_CHECKING:
    from txlog.actions.table import Txn
    from txlog.commit.loop import Committed
    from txlog.snapshot.snapshot import Snapshot


@dataclass(frozen=True)
class Place:
    """Where an operation does its work: the table's bytes, time and chance, many hands."""

    store: Store
    effects: Effects = REAL
    engine: Engine = field(default_factory=Threads)

    def __post_init__(self) -> None:
        if not callable(getattr(self.engine, "map", None)):
            raise InvalidInputError(
                argument="engine",
                reason=f"a {type(self.engine).__name__} is no engine: it has no method map",
                remedy="Of a Spark session make one with txlog.spark_ext.SparkEngine(spark)",
            )
        if not is_in_process(self.engine):
            require_shared(
                self.store,
                argument="engine",
                remedy="Leave the engine out, or put the table where all of them reach it",
            )


def require_shared(store: Store, *, argument: str, remedy: str) -> None:
    """Refuse a store that workers in other processes do not see.

    Raises
    ------
    InvalidInputError
        It is in the memory of this process.
    """
    if isinstance(store, MemoryStore):
        raise InvalidInputError(
            argument=argument,
            reason=f"{store.root} is in the memory of this process, "
            "which workers of other processes cannot see",
            remedy=remedy,
        )


@dataclass(frozen=True)
class Outcome:
    """What an operation did.

    `version` is the one it made, or None if it changed nothing: `skipped` then tells whether
    that is because its transaction was recorded before.
    """

    operation: str
    version: int | None
    metrics: Mapping[str, int] = field(default_factory=dict)
    skipped: bool = False

    def __bool__(self) -> bool:
        return self.version is not None


@dataclass(frozen=True)
class Done:
    """An outcome, and the snapshot after it."""

    outcome: Outcome
    snapshot: Snapshot


AppTransaction = tuple[str, int]
"""An application's id, and the version of its own that a write belongs to."""


class QueryTransaction(NamedTuple):
    """A micro-batch of a streaming query that writes as an application of a given name.

    Batches are counted by the query's checkpoint, so the commit records which query wrote the
    application's version, and that of the query itself if it is the whole batch (rules STR-41,
    STR-42, STR-49).
    """

    app_id: str
    version: int  # The batch's id.
    query_id: str
    whole_batch: bool = True  # False: a batch may write as several applications.

    @property
    def app_ids(self) -> tuple[str, ...]:
        """The names that its commit records for the query: each tells that it is written."""
        return (self.pair, self.query_id) if self.whole_batch else (self.pair,)

    @property
    def pair(self) -> str:
        """The id of the application and the query together."""
        return f"{self.app_id}@{self.query_id}"


Transaction = AppTransaction | QueryTransaction


def require_transaction(txn: AppTransaction | None) -> None:
    """Refuse what is no pair of an application's id and a version.

    Raises
    ------
    InvalidInputError
        The pair is malformed, or the id is one that txlog keeps for itself.
    """
    if txn is None:
        return
    ok = isinstance(txn, tuple | list) and len(txn) == 2
    if not ok or not isinstance(txn[0], str) or not txn[0] or type(txn[1]) is not int:
        raise InvalidInputError(
            argument="txn",
            reason=f"{txn!r} is no pair of an application's id and a version",
            remedy='Write it as ("my-job", 17)',
        )
    if txn[0] == ID_APP or not 0 <= txn[1] < 2**63:
        raise InvalidInputError(
            argument="txn",
            reason=f"{txn!r}: the id is reserved, or the version is no long from 0",
            remedy="Choose another id, and count versions from 0",
        )


def is_recorded(snapshot: Snapshot, txn: Transaction | None) -> bool:
    """Return whether an application's version, or a later one, is in the table already.

    Raises
    ------
    InvalidInputError
        The application's versions in the table are batches of another query (rule STR-42).
    """
    if txn is None:
        return False
    recorded = snapshot.transaction_version(txn[0])
    if not isinstance(txn, QueryTransaction):
        return recorded is not None and txn[1] <= recorded
    # A query keeps its batches' ids when it gets, loses or changes the application's name.
    counted = [snapshot.transaction_version(app_id) for app_id in txn.app_ids]
    if any(version is not None and txn.version <= version for version in counted):
        return True
    of_pair = counted[0]
    if recorded != of_pair:  # None and None: the application is new to the table.
        raise _of_others(txn, recorded, of_pair)
    return False


def _of_others(
    txn: QueryTransaction, recorded: int | None, of_pair: int | None
) -> InvalidInputError:
    """Return the error for an application whose last version is not from this query."""
    if of_pair is None:
        why = (
            f"not from the streaming query {txn.query_id}: its checkpoint is a new one, which "
            "counts batches from 0 again, so batches would be taken for those that are there"
        )
    else:
        why = (
            f"the streaming query {txn.query_id} wrote {of_pair} as its last: another job counts "
            "its versions under the same name"
        )
    name = "txnAppId" if txn.whole_batch else "name in txn"
    return InvalidInputError(
        argument="txnAppId" if txn.whole_batch else "txn",
        reason=f"the table records version {recorded} of the application {txn.app_id!r}, but {why}",
        remedy="Nothing was committed; go on with the checkpoint that the application wrote "
        f"with, or choose another {name}",
    )


def skip_recorded(snapshot: Snapshot, txn: Transaction | None) -> Done | None:
    """Return the outcome of a write whose transaction is recorded already, or None.

    Raises
    ------
    InvalidInputError
        As `is_recorded`.
    """
    if not is_recorded(snapshot, txn):
        return None
    return Done(Outcome("WRITE", None, skipped=True), snapshot)


def txn_action(txn: Transaction | None, effects: Effects) -> Txn | None:
    """Return the action that records an application's version."""
    if txn is None:
        return None
    from txlog.actions.table import Txn

    return Txn(app_id=txn[0], version=txn[1], last_updated=effects.now_ms())


def query_actions(txn: Transaction | None, effects: Effects) -> tuple[Txn, ...]:
    """Return the actions that record which query an application's version comes from."""
    if not isinstance(txn, QueryTransaction):
        return ()
    from txlog.actions.table import Txn

    now_ms = effects.now_ms()
    return tuple(
        Txn(app_id=app_id, version=txn.version, last_updated=now_ms) for app_id in txn.app_ids
    )


def require_table_writable(snapshot: Snapshot, *, removes_rows: bool) -> None:
    """Refuse to write a table whose protocol or properties forbid it.

    Raises
    ------
    UnsupportedFeatureError
        The table lists features that txlog cannot write, or is append-only.
    """
    snapshot.once(_require_writable)
    if removes_rows and snapshot.is_active("appendOnly"):
        raise UnsupportedFeatureError(
            path=snapshot.root,
            features=("appendOnly",),
            reason="the table is append-only: no row may be removed or changed",
            remedy="Set delta.appendOnly to false first, if that is what you want",
        )


def _require_writable(snapshot: Snapshot) -> None:
    from txlog.protocol.access import require_writable

    require_writable(snapshot.protocol, snapshot.metadata, snapshot.schema, path=snapshot.root)


def done(operation: str, snapshot: Snapshot, committed: Committed | None, *, skipped: bool) -> Done:
    """Return the result of an operation from what the commit loop gave."""
    if committed is None:
        return Done(Outcome(operation, None, skipped=skipped), snapshot)
    outcome = Outcome(operation, committed.snapshot.version, committed.intent.metrics)
    return Done(outcome, committed.snapshot)
