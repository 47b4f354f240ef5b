"""Steps of pipelines: programs that make commits of one data set from those of another one.

Nothing here decides when steps run: `run_steps` runs what waits, and returns. Each commit of the
input has one result, because the result's commit records the input's number in its `txn`. Rules:
spec/datasets.md, DST-70 to DST-74.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pyarrow as pa

from txlog.base.errors import AlreadyExistsError, InvalidInputError, NotFoundError, TxlogError
from txlog.extend import SchemaMode
from txlog.training.datasets.access import OF_STEP, denied
from txlog.training.datasets.branch_state import spared
from txlog.training.datasets.commits import COMMIT_ID, commit_with_txn, read_rows
from txlog.training.datasets.events import DatasetState, LedgerState, printable
from txlog.training.datasets.home import Home
from txlog.training.datasets.lease import GONE, TakenOverError, renewed
from txlog.training.datasets.lifecycle import commit_request, create_dataset, update
from txlog.training.datasets.limits import require_no_number
from txlog.training.datasets.lineage import DATASET
from txlog.training.datasets.prepare import failure_of
from txlog.training.datasets.program import Program, ProgramError, required_run
from txlog.training.datasets.step_state import (
    APP,
    ROWS,
    AddStep,
    FinishStep,
    RemoveStep,
    Rows,
    StepState,
    held_at,
    waiting,
)
from txlog.training.datasets.training_set import pick
from txlog.training.datasets.types import type_of
from txlog.training.datasets.values import ANSWERED, Commit, Failure

State = Literal["IDLE", "WAITING", "RUNNING", "FAILED", "STOPPED"]


@dataclass(frozen=True)
class Step:
    """A step, and what it has done and has to do."""

    __pydantic_config__ = ANSWERED
    name: str
    input: str  # The name of the data set on whose commits it runs.
    into: str  # The name of the data set that it makes.
    run: str | tuple[str, ...]
    rows: Rows
    state: State
    done: int  # The last commit of the input for which it has run; 0 if there is none.
    waiting: tuple[int, ...]  # The commits of the input for which it has yet to run.
    attempt: int  # How often it was tried for the current or last commit.
    error: Failure | None  # Why it failed; or why it stopped, such as a deleted data set.
    user: str | None = None  # Who added it.
    input_id: int | None = None  # The number of the input; None while there is none.
    into_id: int | None = None  # The number of the result; None before the first run.
    # The open branch of the input that holds up later commits, until it is published or discarded.
    branch: str | None = None


@dataclass(frozen=True)
class Run:
    """What one run of a step did."""

    step: str
    commit_id: int  # The commit of the input.
    state: Literal["DONE", "FAILED"]
    made: Commit | None  # None if it failed, or made no rows.
    error: Failure | None
    log: str  # The end of what the program printed.


class _StoppedError(Exception):
    """A step was stopped while its program ran."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


def add_step(
    home: Home, wanted: int | str, run: Any, into: str, rows: Any, type: str, name: str | None
) -> StepState:
    """Add a step, or return the same one that exists."""
    if rows not in ROWS:
        raise InvalidInputError(
            argument="rows", reason=f"one of {', '.join(ROWS)} was expected, not {rows!r}"
        )
    state = home.ledger.state()
    kind = type_of(type)
    name = into if name is None else name
    for argument, text in (("into", into), ("name", name)):
        home.limits.require_name(argument, text)
        require_no_number(argument, text)
    is_made = any(one.into == wanted and not one.removed for one in state.steps.values())
    input_id, given = None, wanted
    if not is_made or state.live(wanted) is not None:
        found = state.find(wanted)
        input_id, given = found.dataset_id, found.name
    target = state.live(into)
    into_id = None if target is None else target.dataset_id
    made_as = kind.name if target is None else target.type
    limited_to = home.who.user if home.who.is_limited else None
    program = required_run(run)
    command = AddStep(name, str(given), input_id, into, into_id, made_as, program, rows, limited_to)
    return step_of(home.record(command), name)


def remove_step(home: Home, name: str) -> None:
    """Remove a step."""
    home.record(RemoveStep(step_of(home.ledger.state(), name).step_id))


def step_of(state: LedgerState, name: str) -> StepState:
    """Return a step by its name; raises `NotFoundError` with the names of the known steps."""
    live = [one for one in state.steps.values() if not one.removed]
    found = next((one for one in live if one.name == name), None)
    if found is None:
        known = ", ".join(one.name for one in live)
        raise NotFoundError(
            reason=f"there is no step {name!r}",
            remedy=f"Choose from {known}" if known else "There is none yet: add one",
        )
    return found


# Looking at steps ------------------------------------------------------------------------------


def steps_of(home: Home) -> list[Step]:
    """Return all steps that were not removed, in the order in which they were added."""
    state = home.ledger.state()
    return [describe(home, state, one) for one in state.steps.values() if not one.removed]


def describe(home: Home, state: LedgerState, step: StepState) -> Step:
    """Return a step with what it has to do."""
    stopped = _stopped(state, step)
    commits = () if stopped is not None else _commits(home, state, step)
    due, held = waiting(step, commits), held_at(step, commits)
    last = step.last
    shown: State
    if stopped is not None:
        shown = "STOPPED"
    elif last is not None and last.state == "FAILED":
        shown = "FAILED" if due else "IDLE"
    elif last is not None and last.is_running(home.effects.now_ms()):
        shown = "RUNNING"
    else:
        shown = "WAITING" if due or held is not None else "IDLE"
    return Step(
        name=step.name,
        input=step.input,
        into=step.into,
        run=step.run,
        rows=step.rows,
        state=shown,
        done=step.done,
        waiting=due,
        attempt=0 if last is None else last.attempt,
        error=stopped or (last.error if last is not None and shown == "FAILED" else None),
        user=step.user,
        input_id=_given(state, step),
        into_id=_into(state, step),
        branch=held,
    )


def _stopped(state: LedgerState, step: StepState) -> Failure | None:
    """Return why a step cannot run, or None if it can.

    One of its data sets is deleted, or something else made its result, or the user who added it may
    no longer use them (DST-69).
    """
    given, into = _given(state, step), _into(state, step)
    for number in (given, into):
        one = None if number is None else state.datasets[number]
        if one is not None and one.purged:
            text = f"the data set {one.name!r} ({number}) is purged. Remove the step"
            return Failure("not-found", text)
        if one is not None and one.deleted:
            text = (
                f"the data set {one.name!r} ({number}) is deleted. Undelete it, or remove the step"
            )
            return Failure("not-found", text)
    other = state.live(step.into) if into is None else None
    if other is not None:
        text = (
            f"the step did not make the data set {other.name!r} ({other.dataset_id}), which has "
            "the name of its result. Remove the step; add it again to add to that data set"
        )
        return Failure(AlreadyExistsError.code, text)
    for number, what in zip((given, into), OF_STEP, strict=True):
        one = None if number is None else state.datasets[number]
        if one is not None and (error := denied(step.limited_to, what, one.name, one.access)):
            text = f"{error.reason}. The step was added by {step.limited_to!r}. {error.remedy}"
            return Failure(error.code, text)
    return None


def _given(state: LedgerState, step: StepState) -> int | None:
    """Return the data set on whose commits a step runs, or None if there is none yet."""
    if step.input_id is not None:
        return step.input_id
    named = state.live(step.input)
    return None if named is None else named.dataset_id


def _commits(home: Home, state: LedgerState, step: StepState) -> list[Commit]:
    number = _given(state, step)
    return [] if number is None else home.if_whole(state.datasets[number], home.commits) or []


# Running them ----------------------------------------------------------------------------------


def run_steps(
    home: Home, name: str | None, folder: str | os.PathLike[str], timeout_s: float | None
) -> list[Run]:
    """Run all steps that wait, also for commits that other steps make, and return the runs.

    A step that failed is tried once in each call. One that another worker runs is left to it.
    """
    place = Path(folder).absolute()
    if not place.is_dir():
        raise InvalidInputError(
            argument="folder",
            reason=f"{place} is no folder",
            remedy="Name the folder of the programs",
        )
    wanted = None if name is None else step_of(home.ledger.state(), name).step_id
    failed: set[int] = set()
    runs: list[Run] = []
    while True:
        before = len(runs)
        for number in sorted(home.ledger.state().steps):
            state = home.ledger.state()
            step = state.steps[number]
            is_wanted = not step.removed and number not in failed and wanted in (None, number)
            if not is_wanted or _stopped(state, step) is not None:
                continue
            due = waiting(step, _commits(home, state, step))
            done = _run(home, step, due[0], place, timeout_s) if due else None
            if done is not None:
                runs.append(done)
                failed |= {number} if done.state == "FAILED" else set()
        if not any(one.state == "DONE" for one in runs[before:]):
            return runs


def _run(
    home: Home, step: StepState, commit_id: int, folder: Path, timeout_s: float | None
) -> Run | None:
    """Run a step for a commit; None if another worker does it, or the step was removed."""
    ledger = home.ledger
    try:
        claim = ledger.claim_step(step.step_id, commit_id)
        if claim is None:
            return None
        with (
            TemporaryDirectory(prefix="txlog-step-") as scratch,
            renewed(claim, ledger.renew_step, lambda: ledger.now_ms) as require,
        ):
            program = Program(step.run, folder, Path(scratch), timeout_s, require)
            try:
                into_id, made = _made(home, step, commit_id, program)
            except TakenOverError:
                raise
            except Exception as error:
                require()
                failure = _failure_of(error)
                home.record(FinishStep(claim, error=failure))
                return Run(step.name, commit_id, "FAILED", None, failure, program.log())
            except BaseException:  # Ctrl-C: nobody should wait for the end of the lease.
                stopped = Failure("interrupted", "the run was interrupted")
                with suppress(TxlogError):
                    home.record(FinishStep(claim, error=stopped))
                raise
            home.record(FinishStep(claim, into_id))
            return Run(step.name, commit_id, "DONE", made, None, program.log())
    except (TakenOverError, *GONE):
        return None


def _made(
    home: Home, step: StepState, commit_id: int, program: Program
) -> tuple[int | None, Commit | None]:
    """Return the data set and the commit that a run makes; None for a commit without rows."""
    state = home.ledger.state()
    input_id = _given(state, step)
    assert input_id is not None  # It has a commit.
    txn = (f"{APP}{step.step_id}", commit_id)
    into_id = _into(state, step)
    if into_id is not None:
        for app in _apps(state, step):
            made = _made_before(home, state.dataset(into_id), (app, commit_id))
            if made is not None:
                return into_id, made
    given = state.dataset(input_id)
    results = [] if into_id is None else home.commits(state.dataset(into_id))
    commits = home.commits(given)
    last = commits[commit_id - 1]
    picked = [last] if step.rows == "new" else pick(commits, commit_id)
    code = program.code()  # Before it runs, because its file may be changed meanwhile.
    rows = _nonempty(program.run(_rows(home, given, picked), _facts(home, step, given, commit_id)))
    is_all = step.rows == "all"
    replaced = len(results) if is_all else _results_up_to(results, given, last.replaces)
    spares = spared(results, replaced)
    if not is_all:
        spares += tuple(_results_of(results, given, set(last.spares)))
    if rows is None:
        if replaced:
            raise ProgramError(
                "the program wrote no rows, but a commit that replaces others needs a row. Hide "
                f"the commit {commit_id} of {given.name!r} to pass it over"
            )
        return into_id, None
    request = commit_request(
        home,
        f"{step.name}: {given.name} @ {commit_id}",
        last.tags if step.rows == "new" else None,
        picked,
        code,
        None if into_id is None else txn,
        replaces=replaced,
    )
    request = replace(request, spares=tuple(sorted({*spares})))
    now = home.ledger.state()
    if now.steps[step.step_id].removed:
        raise TakenOverError
    if (stopped := _stopped(now, step)) is not None:
        raise _StoppedError(stopped)
    kind = type_of(step.type if into_id is None else state.dataset(into_id).type)
    if into_id is None:
        found = create_dataset(
            home,
            kind,
            request,
            rows,
            name=step.into,
            description=None,
            txn=txn,
            owner=step.user or home.who.user,
            result_of=input_id,
        )
        return found.dataset_id, home.commits(found)[0]
    mode: SchemaMode = "merge" if kind.ingestion is None else None
    return into_id, update(home, state.dataset(into_id), kind, request, rows, mode)


def _results_up_to(results: Sequence[Commit], given: DatasetState, number: int) -> int:
    """Return the last commit of the result that was made from the first commits of the input."""
    return max(_results_of(results, given, range(1, number + 1)), default=0)


def _results_of(
    results: Sequence[Commit], given: DatasetState, numbers: Container[int]
) -> Iterator[int]:
    """Yield the commits of the result that were made from some commits of the input."""
    source = f"{DATASET}{given.uuid}"
    for one in results:
        if any(i.uri == source and i.version in numbers for i in one.inputs):
            yield one.commit_id


def _failure_of(error: Exception) -> Failure:
    """Return an error for the ledger, with its text: who runs programs may read their errors."""
    if isinstance(error, _StoppedError):
        return error.failure
    found = failure_of(error)
    if found.code != "failed":
        return found
    return Failure(found.code, printable(f"{found.text}: {error}"))


def _apps(state: LedgerState, step: StepState) -> Iterator[str]:
    """Yield the applications of the results of a step, and of removed ones in its place."""
    place = (_given(state, step), step.into)
    for one in state.steps.values():
        if (_given(state, one), one.into) == place:
            yield f"{APP}{one.step_id}"


def _into(state: LedgerState, step: StepState) -> int | None:
    """Return the data set of a step, also if a run broke off after it made the data set."""
    if step.into_id is not None:
        return step.into_id
    app = f"{APP}{step.step_id}"
    made = (one for one in state.datasets.values() if one.txn and one.txn[0] == app)
    found = next(made, None)
    return None if found is None else found.dataset_id


def _made_before(home: Home, into: DatasetState, txn: tuple[str, int]) -> Commit | None:
    """Return the commit that an earlier run made for a commit of the input."""
    if into.txn == txn:
        return home.commits(into)[0]
    return commit_with_txn(home.snapshot(into.uuid), into.uuid, txn)


def _rows(home: Home, given: DatasetState, picked: Sequence[Commit]) -> pa.RecordBatchReader:
    table = home.table(given.uuid)
    fields = [field for field in table.schema if field.name != COMMIT_ID]
    schema = pa.schema(fields, metadata=table.schema.metadata)
    batches = read_rows(table, [one.commit_id for one in picked], as_given=True)
    return pa.RecordBatchReader.from_batches(schema, batches)


def _nonempty(reader: pa.RecordBatchReader) -> pa.RecordBatchReader | None:
    """Return the same rows, or None if there are none."""
    for batch in reader:
        if batch.num_rows:
            return pa.RecordBatchReader.from_batches(reader.schema, chain([batch], reader))
    return None


def _facts(home: Home, step: StepState, given: DatasetState, commit_id: int) -> dict[str, str]:
    return {
        "TXLOG_COMMIT": str(commit_id),
        "TXLOG_DATASETS": home.root,
        "TXLOG_INPUT": given.name,
        "TXLOG_STEP": step.name,
    }
