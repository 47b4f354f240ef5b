"""Commands of the ledger. `decide` returns the event of a command, or refuses the command. Pure.

Rules: spec/datasets.md, DST-20 to DST-29.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from txlog.base.errors import AlreadyExistsError, CommitConflictError, NotFoundError
from txlog.training.datasets.access import (
    OF_STEP,
    UNCHANGED,
    Unchanged,
    Users,
    denied,
    inherited,
    refused,
)
from txlog.training.datasets.branch_state import (
    EndBranch,
    MakeBranch,
    decide_branch,
    require_kept,
)
from txlog.training.datasets.events import DatasetState, LedgerState, SetState
from txlog.training.datasets.lease import CLOCKS_DIFFER_MS, LEASE_MS
from txlog.training.datasets.step_state import (
    AddStep,
    ClaimStep,
    FinishStep,
    RemoveStep,
    StepCommand,
    decide_step,
)
from txlog.training.datasets.values import Access, Asked, Claim, Failure, Part, require_same_request

SWEEP_MS = 24 * 3600 * 1000
"""The time between two sweeps, and the age of what they delete."""
SWEPT_RULE = "DST-28"
CLEARED_RULE = "DST-29"


@dataclass(frozen=True)
class Create:
    """Register a data set whose table exists already.

    `cleared` is the number of the last event `cleared` before its objects were found. None means
    that it has no objects.
    """

    uuid: str
    name: str
    type: str
    description: str | None = None
    txn: tuple[str, int] | None = None
    cleared: int | None = None
    owner: str | None = None  # None: the user of the event.
    result_of: int | None = None  # The input of a step, whose readers may read it, too.


@dataclass(frozen=True)
class Mark:
    """A change: `deleted`, `undeleted`, `purged`; of a commit `hidden`, `shown`, `purged`."""

    kind: str
    dataset_id: int
    commit_id: int | None = None


@dataclass(frozen=True)
class Tag:
    """Give a name to a commit or a training set; a target of None removes it."""

    dataset_id: int
    name: str
    target: int | str | None


@dataclass(frozen=True)
class Share:
    """Change who may use a data set at a service. What is not given stays as it is."""

    dataset_id: int
    owner: str | None = None
    readers: Users | Unchanged = UNCHANGED
    writers: Users | Unchanged = UNCHANGED
    only: str | None = None  # The user who must own it when this is decided; None: anybody.


@dataclass(frozen=True)
class Ask:
    """Request a training set; `branch`: a branch and the commits that are picked from it."""

    dataset_id: int
    asked: Asked
    branch: tuple[int, tuple[int, ...]] | None = None


@dataclass(frozen=True)
class ClaimSet:
    """Claim a training set for a worker, or renew its claim."""

    dataset_id: int
    version_hash: str
    worker: str
    lease_ms: int = LEASE_MS
    attempt: int | None = None  # The attempt whose claim is renewed.


@dataclass(frozen=True)
class Finish:
    """Record that a training set is made, or why it cannot be made."""

    claim: Claim
    parts: tuple[Part, ...] = ()
    statistics: Mapping[str, int] = field(default_factory=dict)
    error: Failure | None = None


@dataclass(frozen=True)
class Sweep:
    """Begin to delete files to which nothing refers; at most once a day.

    `tables` are the uuids of old tables. The event omits tables that belong to data sets.
    """

    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Clear:
    """Begin to delete the objects that were set aside, and that nothing refers to."""


Command = (
    Create
    | Mark
    | Tag
    | Share
    | MakeBranch
    | EndBranch
    | Ask
    | ClaimSet
    | Finish
    | Sweep
    | Clear
    | StepCommand
)
Decided = tuple[str, dict[str, Any]]


def decide(state: LedgerState, command: Command, now_ms: int) -> Decided | None:
    """Return the kind and body of a command's event; None if the state needs no change.

    Raises
    ------
    NotFoundError
        The data set or the training set does not exist.
    AccessError
        The user does not own the data set, or may not use those of a step.
    AlreadyExistsError
        The name is taken.
    CommitConflictError
        The worker does not have the current claim; a branch ended in another way; or a sweep has
        named the table of a new data set (DST-28), or objects were cleared since it saw its own
        (DST-29).
    """
    match command:
        case Create():
            return _created(state, command)
        case Mark():
            return _marked(state, command)
        case Tag():
            return _tagged(state, command)
        case Share():
            return _shared(state, command)
        case MakeBranch() | EndBranch():
            return decide_branch(state.dataset(command.dataset_id).branches, command)
        case Ask():
            return _asked(state, command)
        case ClaimSet():
            return _claimed(state, command, now_ms)
        case Finish():
            return _finished(state, command)
        case Sweep():
            return _swept(state, command, now_ms)
        case Clear():
            return "cleared", {}
        case AddStep() | RemoveStep() | ClaimStep() | FinishStep():
            if isinstance(command, AddStep):
                _require_step(state, command)
            return decide_step(state.steps, command, now_ms)


def by_txn(state: LedgerState, txn: tuple[str, int] | None) -> DatasetState | None:
    """Return the data set that an application's version made, or None.

    Raises
    ------
    InvalidInputError
        The application is an `Idempotency-Key` that belongs to another request.
    """
    if txn is None:
        return None
    for one in state.datasets.values():
        if one.txn is not None and one.txn[0] == txn[0]:
            require_same_request(txn, one.txn[1])
    return next((one for one in state.datasets.values() if one.txn == tuple(txn)), None)


def require_free_name(state: LedgerState, name: str, but: int | None = None) -> None:
    """Raise if a data set that is not deleted has a name.

    Raises
    ------
    AlreadyExistsError
        The error names this data set.
    """
    one = state.live(name)
    if one is not None and one.dataset_id != but:
        raise AlreadyExistsError(
            reason=f"there is a data set {name!r} already, with the id {one.dataset_id}",
            remedy="Choose another name, or update that data set",
        )


def _created(state: LedgerState, command: Create) -> Decided | None:
    if by_txn(state, command.txn) is not None or any(
        one.uuid == command.uuid for one in state.datasets.values()
    ):  # The second value is an event whose answer the store lost.
        return None
    require_free_name(state, command.name)
    if command.uuid in state.swept_tables:
        raise swept_table(state, command.uuid)
    if command.cleared is not None and command.cleared < state.cleared:
        raise CommitConflictError(
            version=state.cleared,
            rule=CLEARED_RULE,
            reason="contents were removed from the folder while the data set was made",
            remedy="Check whether its contents exist, and try again",
        )
    body: dict[str, Any] = {
        "description": command.description,
        "id": len(state.datasets) + 1,
        "name": command.name,
        "txn": None if command.txn is None else list(command.txn),
        "type": command.type,
        "uuid": command.uuid,
    }
    if command.result_of is not None:
        given = state.dataset(command.result_of).access
        body["access"] = _access_body(inherited(command.owner, given))
    return "created", body


def _marked(state: LedgerState, command: Mark) -> Decided | None:
    kind, commit_id = command.kind, command.commit_id
    known = state.datasets.get(command.dataset_id)
    if kind == "purged" and known is not None and known.purged:
        return None
    dataset = state.dataset(command.dataset_id)
    body: dict[str, Any] = {"id": dataset.dataset_id}
    if commit_id is not None:
        done = dataset.purged_commits if kind == "purged" else dataset.hidden
        if (commit_id in done) == (kind != "shown"):
            return None
        return kind, {**body, "commit": commit_id}
    if kind == "undeleted":
        if not dataset.deleted:
            return None
        require_free_name(state, dataset.name)
    if kind == "deleted" and dataset.deleted:
        return None
    return kind, body


def _tagged(state: LedgerState, command: Tag) -> Decided | None:
    dataset = state.dataset(command.dataset_id)
    if isinstance(command.target, str):
        _set_of(dataset, command.target)
    if command.target in dataset.purged_commits:
        raise NotFoundError(reason=f"commit {command.target} of {dataset.name!r} is purged")
    if dataset.names.get(command.name) == command.target:
        return None
    field_name = "commit" if isinstance(command.target, int) else "hash"
    return "tagged", {"id": dataset.dataset_id, "name": command.name, field_name: command.target}


def _shared(state: LedgerState, command: Share) -> Decided | None:
    dataset = state.dataset(command.dataset_id)
    known = dataset.access
    if command.only is not None and command.only != known.owner:
        raise refused(command.only, "say who may use", dataset.name, known.owner)
    access = Access(
        known.owner if command.owner is None else command.owner,
        known.readers if isinstance(command.readers, Unchanged) else command.readers,
        known.writers if isinstance(command.writers, Unchanged) else command.writers,
    )
    if access == known:
        return None
    return "shared", {"id": dataset.dataset_id, **_access_body(access)}


def _access_body(access: Access) -> dict[str, Any]:
    readers, writers = (
        None if names is None else list(names) for names in (access.readers, access.writers)
    )
    return {"owner": access.owner, "readers": readers, "writers": writers}


def _require_step(state: LedgerState, command: AddStep) -> None:
    """Raise unless the user may read the input and change the result, if they exist."""
    user = command.limited_to
    for number, what in zip((command.input_id, command.into_id), OF_STEP, strict=True):
        one = None if user is None or number is None else state.dataset(number)
        if one is not None and (error := denied(user, what, one.name, one.access)):
            raise error


def _asked(state: LedgerState, command: Ask) -> Decided | None:
    dataset = state.dataset(command.dataset_id)
    gone = dataset.purged_commits & set(command.asked.commit_ids)
    if gone:
        raise NotFoundError(
            reason=f"the commits {sorted(gone)} of {dataset.name!r} are purged",
            remedy="Prepare the training set again, without them",
        )
    if command.branch is not None:
        require_kept(dataset.branches, *command.branch)
    known = dataset.sets.get(command.asked.version_hash)
    if known is not None and known.state != "FAILED":
        return None
    return "asked", {
        "form": command.asked.form,
        "hash": command.asked.version_hash,
        "id": dataset.dataset_id,
        "options": dict(command.asked.options),
        "picked": [list(one) for one in command.asked.picked],
        "type": command.asked.type,
    }


def _claimed(state: LedgerState, command: ClaimSet, now_ms: int) -> Decided | None:
    dataset = state.dataset(command.dataset_id)
    known = _set_of(dataset, command.version_hash)
    if command.attempt is not None:
        _require_current(known, command.version_hash, command.attempt, command.worker)
    elif not known.is_free(now_ms):
        return None
    return "claimed", {
        "attempt": known.attempt + 1 if command.attempt is None else command.attempt,
        "hash": command.version_hash,
        "id": dataset.dataset_id,
        "lease_until_ms": now_ms + command.lease_ms,
        "worker": command.worker,
    }


def _finished(state: LedgerState, command: Finish) -> Decided | None:
    claim = command.claim
    dataset = state.dataset(claim.dataset_id)
    known = _set_of(dataset, claim.version_hash)
    outcome = ("FAILED", (), command.error) if command.error else ("READY", command.parts, None)
    is_same_attempt = (known.attempt, _worker(known)) == (claim.attempt, claim.worker)
    if is_same_attempt and (known.state, known.parts, known.error) == outcome:
        return None  # The event exists already: the store lost the answer.
    _require_current(known, claim.version_hash, claim.attempt, claim.worker)
    body: dict[str, Any] = {
        "attempt": claim.attempt,
        "hash": claim.version_hash,
        "id": dataset.dataset_id,
    }
    if command.error is not None:
        error = {"code": command.error.code, "text": command.error.text}
        return "failed", {**body, "error": error}
    parts = [
        {"bytes": p.bytes, "name": p.name, "rows": p.rows, "sha256": p.sha256, "uri": p.uri}
        for p in command.parts
    ]
    return "ready", {**body, "parts": parts, "statistics": dict(command.statistics)}


def swept_table(state: LedgerState, uuid: str) -> CommitConflictError:
    """Return the error for a data set whose table a sweep deletes before the set is registered."""
    return CommitConflictError(
        version=state.sweeps,
        rule=SWEPT_RULE,
        reason=f"a sweep deletes the table {uuid}: all its files are older than a day",
        remedy="Make the data set again",
    )


def is_sweep_due(state: LedgerState, now_ms: int) -> bool:
    """Return whether the last sweep, or the first data set, is at least a day old."""
    made_ms = (one.created_ms for one in state.datasets.values())
    last_ms = state.swept_ms or min(made_ms, default=0)
    return not now_ms - SWEEP_MS < last_ms <= now_ms + CLOCKS_DIFFER_MS


def _swept(state: LedgerState, command: Sweep, now_ms: int) -> Decided | None:
    if not is_sweep_due(state, now_ms):
        return None
    tables = sorted(set(command.tables) - {one.uuid for one in state.datasets.values()})
    return "swept", {"tables": tables} if tables else {}


def _set_of(dataset: DatasetState, version_hash: str) -> SetState:
    found = dataset.sets.get(version_hash)
    if found is None:
        raise NotFoundError(
            reason=f"{dataset.name!r} has no training set {version_hash!r}",
            remedy="Call prepare: it returns the hash of a training set",
        )
    return found


def _worker(known: SetState) -> str | None:
    return None if known.lease is None else known.lease.worker


def _require_current(known: SetState, version_hash: str, attempt: int, worker: str) -> None:
    """Raise unless an attempt is the last one, not finished, and of this worker."""
    if known.state == "RUNNING" and (known.attempt, _worker(known)) == (attempt, worker):
        return
    raise CommitConflictError(
        version=known.attempt,
        rule="DST-25",
        reason=f"attempt {attempt} at the training set {version_hash} of the worker {worker!r} is "
        f"not the current one: attempt {known.attempt} of {_worker(known)!r} is {known.state}",
        remedy="Delete what this attempt wrote: another worker makes the training set",
    )
