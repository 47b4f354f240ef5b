"""Events of the ledger, and the state that `fold` computes from them. Pure.

Rules: spec/datasets.md, DST-20 to DST-29.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from txlog.base.errors import InvalidInputError, NotFoundError
from txlog.training.datasets.branch_state import BRANCH_EVENTS, Branches, next_branches
from txlog.training.datasets.lease import Lease
from txlog.training.datasets.step_state import STEP_EVENTS, StepState, next_steps
from txlog.training.datasets.values import Access, Asked, Failure, Part, State


def canonical(value: Any) -> str:
    """Return canonical JSON: sorted keys, no spaces, UTF-8."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def text_or_none(facts: Mapping[str, Any], name: str) -> str | None:
    """Return a fact that is text or is absent; raises `ValueError` if it is something else."""
    found = facts.get(name)
    if found is None or isinstance(found, str):
        return found
    raise ValueError(f"{name} is not text, but {found!r}")


def printable(text: str) -> str:
    """Return a text that JSON can store: bytes that are not UTF-8 (in file names) are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True)
class Event:
    """One row of the ledger."""

    n: int  # From 1, without gaps.
    at_ms: int  # Milliseconds since the epoch, by the writer's clock.
    by: str
    kind: str
    body: Mapping[str, Any]


@dataclass(frozen=True)
class SetState:
    """The state of a training set in the ledger."""

    asked: Asked
    state: State = "RUNNING"
    attempt: int = 0  # 0: not claimed yet.
    lease: Lease | None = None
    parts: tuple[Part, ...] = ()
    statistics: Mapping[str, int] = field(default_factory=dict)
    error: Failure | None = None

    def is_free(self, now_ms: int) -> bool:
        """Whether a worker may claim it: it is requested, and there is no current lease."""
        return self.state == "RUNNING" and (self.lease is None or self.lease.has_ended(now_ms))


@dataclass(frozen=True)
class DatasetState:
    """The state of a data set in the ledger."""

    dataset_id: int
    uuid: str
    name: str
    type: str
    description: str | None
    created_ms: int
    txn: tuple[str, int] | None = None
    deleted: bool = False
    purged: bool = False
    hidden: frozenset[int] = frozenset()
    purged_commits: frozenset[int] = frozenset()
    names: Mapping[str, int | str] = field(default_factory=dict)
    sets: Mapping[str, SetState] = field(default_factory=dict)
    access: Access = field(default_factory=Access)
    branches: Branches = field(default_factory=dict)


@dataclass(frozen=True)
class LedgerState:
    """The state after all events up to `n`."""

    n: int = 0
    datasets: Mapping[int, DatasetState] = field(default_factory=dict)
    sweeps: int = 0
    swept_ms: int = 0  # The start of the last sweep, by its clock; 0 if there was none.
    swept_tables: frozenset[str] = frozenset()  # The uuids that sweeps deleted.
    cleared: int = 0  # How many times objects that were set aside were deleted.
    steps: Mapping[int, StepState] = field(default_factory=dict)

    def dataset(self, dataset_id: int) -> DatasetState:
        """Return a data set that is not purged; raises `NotFoundError` with the known data sets."""
        found = self.datasets.get(dataset_id)
        if found is None or found.purged:
            raise self.unknown(dataset_id)
        return found

    def find(self, wanted: int | str, *, purged: bool = False) -> DatasetState:
        """Return a data set by its number or uuid, or by its name if it is not deleted.

        Parameters
        ----------
        purged
            If there is none, not even a deleted one with the name, return the last one that was
            purged, to finish the purge.

        Raises
        ------
        NotFoundError
            There is no such data set; the error lists the existing ones.
        """
        is_number = isinstance(wanted, int) and not isinstance(wanted, bool)
        for one in self.datasets.values():
            if one.purged:
                continue
            if is_number:
                if one.dataset_id == wanted:
                    return one
            elif one.uuid == wanted or (one.name == wanted and not one.deleted):
                return one
        if purged and self._deleted(wanted) is None:
            for one in reversed(list(self.datasets.values())):
                if one.purged and wanted in (one.uuid, one.dataset_id if is_number else one.name):
                    return one
        raise self.unknown(wanted)

    def live(self, name: int | str) -> DatasetState | None:
        """Return the data set of a name that is not deleted, or None."""
        found = (one for one in self.datasets.values() if one.name == name and not one.deleted)
        return next(found, None)

    def _deleted(self, name: int | str) -> DatasetState | None:
        """Return the first data set of a name that is deleted and not purged, or None."""
        found = (one for one in self.datasets.values() if one.deleted and not one.purged)
        return next((one for one in found if one.name == name), None)

    def unknown(self, wanted: int | str) -> NotFoundError:
        """Return the error for a data set that does not exist."""
        one = self._deleted(wanted)
        if one is not None:
            return NotFoundError(
                reason=f"the data set {wanted!r} ({one.dataset_id}) is deleted",
                remedy=f"Bring it back with datasets.dataset({one.dataset_id}).undelete(), "
                "or choose another name",
            )
        known = [f"{d.name} ({d.dataset_id})" for d in self.datasets.values() if not d.deleted]
        listed = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
        return NotFoundError(
            reason=f"there is no data set {wanted!r}",
            remedy=f"Choose from {listed}" if known else "There is none yet: create one",
        )


def fold(state: LedgerState, events: Iterable[Event]) -> LedgerState:
    """Return the state after more events, in their order.

    Raises
    ------
    InvalidInputError
        This version of txlog does not know the kind of an event.
    """
    datasets = dict(state.datasets)
    opened: set[int] = set()  # The data sets whose dictionary of sets this call has copied.
    n, sweeps, swept_ms, cleared = state.n, state.sweeps, state.swept_ms, state.cleared
    swept_tables = state.swept_tables
    steps = state.steps
    for event in events:
        n = event.n
        body = event.body
        if event.kind == "swept":
            sweeps, swept_ms = sweeps + 1, event.at_ms
            swept_tables |= frozenset(body.get("tables", ()))
            continue
        if event.kind == "cleared":
            cleared += 1
            continue
        if event.kind == "created":
            datasets[body["id"]] = _new_dataset(event)
            continue
        if event.kind in STEP_EVENTS:
            steps = next_steps(steps, event.kind, body, event.at_ms)
            continue
        if "id" not in body:
            raise _unknown_kind(event)
        dataset = datasets[body["id"]]
        if event.kind in ("asked", "claimed", "ready", "failed"):
            if dataset.dataset_id not in opened:
                opened.add(dataset.dataset_id)
                dataset = replace(dataset, sets=dict(dataset.sets))
                datasets[dataset.dataset_id] = dataset
            sets = dataset.sets
            assert isinstance(sets, dict)
            sets[body["hash"]] = _next_set(sets.get(body["hash"]), event)
        else:
            datasets[dataset.dataset_id] = _next_dataset(dataset, event)
            opened.discard(dataset.dataset_id)
    return LedgerState(n, datasets, sweeps, swept_ms, swept_tables, cleared, steps)


def _new_dataset(event: Event) -> DatasetState:
    body = event.body
    txn = body.get("txn")
    return DatasetState(
        dataset_id=body["id"],
        uuid=body["uuid"],
        name=body["name"],
        type=body["type"],
        description=body["description"],
        created_ms=event.at_ms,
        txn=None if txn is None else (txn[0], txn[1]),
        access=access_of(body["access"])
        if "access" in body
        else Access(owner if isinstance(owner := body.get("user"), str) else None),
    )


def _next_dataset(dataset: DatasetState, event: Event) -> DatasetState:
    commit_id: Any = event.body.get("commit")
    match event.kind:
        case "deleted":
            return replace(dataset, deleted=True)
        case kind if kind in BRANCH_EVENTS:
            return replace(dataset, branches=next_branches(dataset.branches, kind, event.body))
        case "shared":
            return replace(dataset, access=access_of(event.body))
        case "undeleted":
            return replace(dataset, deleted=False)
        case "hidden":
            return replace(dataset, hidden=dataset.hidden | {commit_id})
        case "shown":
            return replace(dataset, hidden=dataset.hidden - {commit_id})
        case "purged" if commit_id is None:
            return replace(dataset, deleted=True, purged=True, sets={}, names={})
        case "purged":
            kept = {
                version_hash: one
                for version_hash, one in dataset.sets.items()
                if commit_id not in one.asked.commit_ids
            }
            gone = {commit_id, *(dataset.sets.keys() - kept.keys())}
            names = {name: to for name, to in dataset.names.items() if to not in gone}
            purged = dataset.purged_commits | {commit_id}
            return replace(dataset, purged_commits=purged, sets=kept, names=names)
        case "tagged":
            target = commit_id if commit_id is not None else event.body.get("hash")
            names = {k: v for k, v in dataset.names.items() if k != event.body["name"]}
            if target is not None:
                names[event.body["name"]] = target
            return replace(dataset, names=names)
    raise _unknown_kind(event)


def access_of(body: Mapping[str, Any]) -> Access:
    """Return the access in the body of `shared`, or in the field `access` of `created`."""
    readers, writers = (
        None if names is None else tuple(names) for names in (body["readers"], body["writers"])
    )
    return Access(body["owner"], readers, writers)


def _unknown_kind(event: Event) -> InvalidInputError:
    return InvalidInputError(
        field=event.kind,
        reason=f"event {event.n} of the ledger is {event.kind!r}, which this version of txlog "
        "does not know",
        remedy="A newer version wrote it: upgrade txlog",
    )


def _next_set(known: SetState | None, event: Event) -> SetState:
    body = event.body
    if event.kind == "asked":
        picked = tuple((number, digest) for number, digest in body["picked"])
        asked = Asked(body["hash"], body["type"], picked, body["form"], body["options"])
        return SetState(asked, attempt=0 if known is None else known.attempt)
    if known is None:
        raise InvalidInputError(
            field=event.kind,
            reason=f"event {event.n} of the ledger is {event.kind!r} for the training set "
            f"{body['hash']!r}, which no event before it asked for",
            remedy="The ledger is incomplete; restore its table from a copy",
        )
    if event.kind == "claimed":
        return replace(
            known,
            attempt=body["attempt"],
            lease=Lease(body["worker"], event.at_ms, body["lease_until_ms"]),
        )
    if event.kind == "failed":
        error = Failure(body["error"]["code"], body["error"]["text"])
        return replace(known, state="FAILED", error=error)
    parts = tuple(Part(**part) for part in body["parts"])
    return replace(known, state="READY", parts=parts, statistics=body["statistics"], error=None)


def pending(state: LedgerState, now_ms: int) -> Sequence[tuple[DatasetState, SetState]]:
    """Return the training sets that a worker may claim: unclaimed ones, and of dead workers.

    They include those of deleted data sets, so that waiting callers get a result.
    """
    return [
        (dataset, one)
        for dataset in state.datasets.values()
        for one in dataset.sets.values()
        if one.is_free(now_ms)
    ]
