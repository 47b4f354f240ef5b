"""Versions of applications, with which each write happens exactly once.

A commit may record that it contains version n of an application. A later write of the same version
finds the record and changes nothing. Rules: spec/commit.md, CON-3 and CON-20; spec/streaming.md,
STR-41, STR-42 and STR-49.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from txlog.actions.table import Txn
from txlog.base.effects import Effects
from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.commit.intent import Intent
from txlog.fragments.ids import ID_APP
from txlog.snapshot.snapshot import Snapshot

AppVersion = tuple[str, int]
"""An application's id, and the application's version of a write."""


class QueryBatch(NamedTuple):
    """A micro-batch of a streaming query that writes under an application's id.

    The query's checkpoint numbers the batches, so the commit records which query wrote the
    application's version. If the commit is the whole batch, it also records the query's version.
    """

    app_id: str
    version: int  # The batch's id.
    query_id: str
    whole_batch: bool = True  # False: a batch may write under several application ids.

    @property
    def app_ids(self) -> tuple[str, ...]:
        """The application ids that the commit records for the query."""
        return (self.pair, self.query_id) if self.whole_batch else (self.pair,)

    @property
    def pair(self) -> str:
        """The id of the application and the query together."""
        return f"{self.app_id}@{self.query_id}"


AnyAppVersion = AppVersion | QueryBatch


def require_app_version(txn: object) -> None:
    """Raise unless `txn` is None or an (application id, version) pair.

    Raises
    ------
    InvalidInputError
        The pair is malformed, or txlog reserves the id.
    """
    if txn is None:
        return
    is_pair = isinstance(txn, tuple | list) and (len(txn) == 2 or isinstance(txn, QueryBatch))
    app_id, version = (txn[0], txn[1]) if is_pair else (None, None)  # type: ignore[index]
    if not isinstance(app_id, str) or not app_id or type(version) is not int:
        # A pair with an empty id has the right types.
        kind = InvalidInputError if app_id == "" else InvalidTypeError
        raise kind(
            argument="txn",
            reason=f"{txn!r} is not a pair of an application id and a version",
            remedy='Write it as ("my-job", 17)',
        )
    if app_id == ID_APP or not 0 <= version < 2**63:
        raise InvalidInputError(
            argument="txn",
            reason=f"{txn!r}: the id is reserved, or the version is not a long from 0",
            remedy="Choose another id, and count versions from 0",
        )


def is_recorded(snapshot: Snapshot, txn: AnyAppVersion | None) -> bool:
    """Return whether the table records an application's version, or a later one.

    Raises
    ------
    InvalidInputError
        The versions of the application in the table are batches of another query (rule STR-42).
    """
    if txn is None:
        return False
    recorded = snapshot.transaction_version(txn[0])
    if not isinstance(txn, QueryBatch):
        return recorded is not None and txn[1] <= recorded
    # A query keeps its batch ids if its application id is added, removed or changed.
    counted = [snapshot.transaction_version(app_id) for app_id in txn.app_ids]
    if any(version is not None and txn.version <= version for version in counted):
        return True
    of_pair = counted[0]
    if recorded != of_pair:  # Both None: the application is new to the table.
        raise _written_by_others(txn, recorded, of_pair)
    return False


def _written_by_others(
    txn: QueryBatch, recorded: int | None, of_pair: int | None
) -> InvalidInputError:
    """Return the error for an application whose last version is not from this query."""
    if of_pair is None:
        why = (
            f"not from the streaming query {txn.query_id}: the query has a new checkpoint, which "
            "counts batches from 0 again, so new batches would be mistaken for recorded ones"
        )
    else:
        why = (
            f"the streaming query {txn.query_id} last wrote {of_pair}: another job uses the same "
            "application id"
        )
    name = "txnAppId" if txn.whole_batch else "name in txn"
    return InvalidInputError(
        argument="txnAppId" if txn.whole_batch else "txn",
        reason=f"the table records version {recorded} of the application {txn.app_id!r}, but {why}",
        remedy="Nothing was committed. Continue with the application's own checkpoint, or choose "
        f"another {name}",
    )


def with_txn(intent: Intent, txn: AnyAppVersion | None, effects: Effects) -> Intent:
    """Return an intent that records an application's version and its streaming query."""
    if txn is None:
        return intent
    now_ms = effects.now_ms()
    of_query = txn.app_ids if isinstance(txn, QueryBatch) else ()
    # A commit has one record of an application. What is published may have recorded it, too.
    records: dict[str, Txn] = {}
    for one in (
        *(Txn(app_id=name, version=txn[1], last_updated=now_ms) for name in (txn[0], *of_query)),
        *intent.query_txns,
    ):
        known = records.get(one.app_id)
        if known is None or known.version < one.version:
            records[one.app_id] = one
    first = records.pop(txn[0])
    return replace(intent, txn=first, query_txns=tuple(records.values()))


def dated(intent: Intent, snapshot: Snapshot) -> Intent:
    """Return an intent whose application versions are not dated before the last version.

    If a writer's clock is slow, the records would expire early, and a retry would write twice.
    """
    least = snapshot.timestamp_ms
    if least is None:
        return intent

    def later(txn: Txn) -> Txn:
        if txn.last_updated is None or txn.last_updated >= least:
            return txn
        return txn.model_copy(update={"last_updated": least})

    return replace(
        intent,
        txn=None if intent.txn is None else later(intent.txn),
        query_txns=tuple(map(later, intent.query_txns)),
    )
