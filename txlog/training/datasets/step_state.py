"""Steps of pipelines in the ledger: their state, and the events of their commands. Pure.

A step makes commits of one data set from those of another one. Rules: spec/datasets.md, DST-70 to
DST-74.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Literal

from txlog.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    InvalidInputError,
    NotFoundError,
)
from txlog.training.datasets.lease import LEASE_MS, Lease
from txlog.training.datasets.values import Commit, Failure

Rows = Literal["new", "all"]
ROWS = ("new", "all")
APP = "txlog.datasets.step."
"""Before the number of a step: the application of the `txn` of its commits."""


@dataclass(frozen=True)
class RunState:
    """The last run of a step."""

    commit_id: int  # The commit of the input.
    attempt: int
    lease: Lease
    state: Literal["RUNNING", "DONE", "FAILED"] = "RUNNING"
    error: Failure | None = None

    def is_running(self, now_ms: int) -> bool:
        """Whether a worker has the lease of it."""
        return self.state == "RUNNING" and not self.lease.has_ended(now_ms)


@dataclass(frozen=True)
class StepState:
    """A step, and what it has done."""

    step_id: int  # 1, 2, 3 … in the order in which they were added.
    name: str
    input: str  # The name of the data set on whose commits it runs.
    input_id: int | None  # None if a step makes it, and has not run yet.
    into: str  # The name of the data set that the first run makes, or that was there.
    into_id: int | None  # None before the first run, if there was no data set of this name.
    type: str  # The type of the data set that the first run makes.
    run: str | tuple[str, ...]
    rows: Rows
    removed: bool = False
    user: str | None = None  # Who added it, and owns the data set that it makes.
    limited_to: str | None = None  # Each run needs the access of this user; None: of nobody.
    done: int = 0  # The last commit of the input for which it has run.
    last: RunState | None = None


@dataclass(frozen=True)
class StepClaim:
    """The right to run a step on a commit for a time."""

    step_id: int
    commit_id: int
    attempt: int  # From 1, for each commit.
    worker: str
    lease_until_ms: int  # Milliseconds since the epoch, UTC.


@dataclass(frozen=True)
class AddStep:
    """Add a step. The ids are those of the data sets, if they exist."""

    name: str
    input: str
    input_id: int | None
    into: str
    into_id: int | None
    type: str
    run: str | tuple[str, ...]
    rows: Rows
    limited_to: str | None = None  # The user whose access each run needs.


@dataclass(frozen=True)
class RemoveStep:
    """Remove a step; what it made stays."""

    step_id: int


@dataclass(frozen=True)
class ClaimStep:
    """Claim a step for a commit of its input, or renew the claim."""

    step_id: int
    commit_id: int
    worker: str
    lease_ms: int = LEASE_MS
    attempt: int | None = None  # The attempt whose claim is renewed.


@dataclass(frozen=True)
class FinishStep:
    """Record what a run made: a commit, nothing (no rows), or an error."""

    claim: StepClaim
    into_id: int | None = None
    error: Failure | None = None


StepCommand = AddStep | RemoveStep | ClaimStep | FinishStep
Steps = Mapping[int, StepState]
STEP_EVENTS = frozenset({"step_added", "step_removed", "step_claimed", "step_done", "step_failed"})


def next_steps(
    steps: Steps, kind: str, body: Mapping[str, Any], at_ms: int
) -> dict[int, StepState]:
    """Return the steps after one more event of a kind in `STEP_EVENTS`."""
    number = body["step"]
    if kind == "step_added":
        run = body["run"]
        made = StepState(
            step_id=number,
            name=body["name"],
            input=body["input"],
            input_id=body["input_id"],
            into=body["into"],
            into_id=body["into_id"],
            type=body["type"],
            run=run if isinstance(run, str) else tuple(run),
            rows=body["rows"],
            done=body["done"],
            user=body.get("user"),
            limited_to=body.get("limited_to"),
        )
        return {**steps, number: made}
    known = steps[number]
    if kind == "step_removed":
        return {**steps, number: replace(known, removed=True)}
    commit_id, attempt = body["commit"], body["attempt"]
    if kind == "step_claimed":
        lease = Lease(body["worker"], at_ms, body["lease_until_ms"])
        return {**steps, number: replace(known, last=RunState(commit_id, attempt, lease))}
    last = known.last
    assert last is not None  # `decide_step` makes no end of a run that nobody began.
    if kind == "step_failed":
        error = Failure(body["error"]["code"], body["error"]["text"])
        return {**steps, number: replace(known, last=replace(last, state="FAILED", error=error))}
    into_id = body["into_id"]
    done = replace(last, state="DONE", error=None)
    following = {
        one.step_id: replace(one, input_id=into_id)
        for one in steps.values()
        if one.input_id is None and one.input == known.into
    }
    made = replace(known, last=done, done=commit_id, into_id=into_id)
    return {**steps, **following, number: made}


def decide_step(
    steps: Steps, command: StepCommand, now_ms: int
) -> tuple[str, dict[str, Any]] | None:
    """Return the kind and body of a command's event; None if the state needs no change.

    Raises
    ------
    AlreadyExistsError
        Another step has the name, or makes the data set.
    InvalidInputError
        The step would run on what it made.
    NotFoundError
        The step was removed.
    CommitConflictError
        The worker does not have the current claim.
    """
    match command:
        case AddStep():
            return _added(steps, command)
        case RemoveStep():
            known = steps[command.step_id]
            return None if known.removed else ("step_removed", {"step": command.step_id})
        case ClaimStep():
            return _claimed(steps, command, now_ms)
        case FinishStep():
            return _finished(steps, command)


def _added(steps: Steps, command: AddStep) -> tuple[str, dict[str, Any]] | None:
    live = [one for one in steps.values() if not one.removed]
    for one in live:
        is_same = (one.name, one.input, one.input_id, one.into, one.run, one.rows) == (
            command.name, command.input, command.input_id, command.into, command.run, command.rows,
        )  # fmt: skip
        if is_same and one.into_id in (None, command.into_id):
            return None
        if one.name == command.name:
            raise AlreadyExistsError(
                reason=f"there is a step {command.name!r} already, with another input or program",
                remedy="Remove that step first, or choose another name",
            )
        if one.into == command.into:
            # A user to whom access is limited may not know the names of other steps and data sets.
            maker = f"the step {one.name!r}" if command.limited_to is None else "a step"
            raise AlreadyExistsError(
                reason=f"{maker} makes the data set {command.into!r} already",
                remedy="Choose another data set, or remove that step first",
            )
    _require_no_loop(live, command)
    # The step goes on where a removed one stopped, so that no commit has two results.
    before = [
        one.done
        for one in steps.values()
        if (one.input_id, one.into_id) == (command.input_id, command.into_id)
        and None not in (command.input_id, command.into_id)
    ]
    limited = {} if command.limited_to is None else {"limited_to": command.limited_to}
    return "step_added", {
        **limited,
        "done": max(before, default=0),
        "input": command.input,
        "input_id": command.input_id,
        "into": command.into,
        "into_id": command.into_id,
        "name": command.name,
        "rows": command.rows,
        "run": command.run if isinstance(command.run, str) else list(command.run),
        "step": len(steps) + 1,
        "type": command.type,
    }


def _require_no_loop(live: Iterable[StepState], command: AddStep) -> None:
    """Raise if a step's input is made from its result. Each data set is made by one step."""
    maker = {one.into: one for one in live}
    names = [command.into]
    above: str | None = command.input
    while above is not None:
        names.append(above)
        if above == command.into:
            raise InvalidInputError(
                argument="into",
                reason="the step would run on its own result"
                + (": " + " ← ".join(names) if command.limited_to is None else ""),
                remedy="Choose a data set from which the input is not made",
            )
        one = maker.get(above)
        above = None if one is None else one.input


def _claimed(steps: Steps, command: ClaimStep, now_ms: int) -> tuple[str, dict[str, Any]] | None:
    step = _live(steps, command.step_id)
    last = step.last
    attempt = command.attempt
    if attempt is not None:
        _require_current(step, command.commit_id, attempt, command.worker)
    else:
        if command.commit_id <= step.done:
            return None
        if last is not None and last.is_running(now_ms):
            return None
        is_again = last is not None and last.commit_id == command.commit_id
        attempt = last.attempt + 1 if is_again and last is not None else 1
    return "step_claimed", {
        "attempt": attempt,
        "commit": command.commit_id,
        "lease_until_ms": now_ms + command.lease_ms,
        "step": command.step_id,
        "worker": command.worker,
    }


def _finished(steps: Steps, command: FinishStep) -> tuple[str, dict[str, Any]] | None:
    claim = command.claim
    step = steps[claim.step_id]
    last = step.last
    if last is not None and (last.commit_id, last.attempt, last.lease.worker) == (
        claim.commit_id, claim.attempt, claim.worker,
    ):  # fmt: skip
        wanted = "DONE" if command.error is None else "FAILED"
        if (last.state, last.error) == (wanted, command.error):
            return None  # The event exists already: the store lost the answer.
    _require_current(step, claim.commit_id, claim.attempt, claim.worker)
    body: dict[str, Any] = {
        "attempt": claim.attempt, "commit": claim.commit_id, "step": claim.step_id,
    }  # fmt: skip
    if command.error is not None:
        error = {"code": command.error.code, "text": command.error.text}
        return "step_failed", {**body, "error": error}
    into_id = step.into_id if command.into_id is None else command.into_id
    return "step_done", {**body, "into_id": into_id}


def _live(steps: Steps, step_id: int) -> StepState:
    found = steps[step_id]
    if found.removed:
        raise NotFoundError(reason=f"the step {found.name!r} was removed")
    return found


def _require_current(step: StepState, commit_id: int, attempt: int, worker: str) -> None:
    """Raise unless a run is the last one, not finished, and of this worker."""
    last = step.last
    if last is not None and (last.state, last.commit_id, last.attempt, last.lease.worker) == (
        "RUNNING", commit_id, attempt, worker,
    ):  # fmt: skip
        return
    raise CommitConflictError(
        version=commit_id,
        rule="DST-73",
        reason=f"attempt {attempt} of the step {step.name!r} at the commit {commit_id}, by the "
        f"worker {worker!r}, is not the current one",
        remedy="Another worker runs the step: leave it to that one",
    )


def _left(step: StepState, commits: Sequence[Commit]) -> Iterator[Commit]:
    """Yield the commits of the input that come after those that are done."""
    return (one for one in commits if one.commit_id > step.done and not (one.hidden or one.purged))


def held_at(step: StepState, commits: Sequence[Commit]) -> str | None:
    """Return the open branch at whose commit a step waits for its end; None if there is none."""
    return next((one.branch for one in _left(step, commits) if one.branch is not None), None)


def waiting(step: StepState, commits: Sequence[Commit]) -> tuple[int, ...]:
    """Return the commits of the input for which a step has yet to run, in order.

    With all rows it runs once, up to the last of them. Commits after one on an open branch wait,
    because that one may be published.
    """
    plain = takewhile(lambda one: one.branch is None, _left(step, commits))
    found = tuple(one.commit_id for one in plain)
    return found if step.rows == "new" else found[-1:]
