"""Run several actors on one store in all orders of their steps, one order after another.

Actors are functions that work on a store of their own, around a common one. Each waits at every
step (a call of the store) until it is its turn. `all_schedules` chooses the order of the steps
until it has tried each order. It omits orders that differ only in steps that do not touch the same
files ("sleep sets", Godefroid 1996; "source sets", Abdulla, Aronis, Jonsson and Sagonas 2014). A
schedule is a list of choices; it can be printed, and `replay` runs it again. Actors must be
repeatable: the same choices lead to the same steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias

from txlog.base.errors import OutcomeUnknownError
from txlog.extend import Store
from txlog.testing.faults import _READS, FaultKind, FaultyStore

Actor: TypeAlias = Callable[[Store], object]


class Choice(NamedTuple):
    """The next actor, and the fault of its step: none, or a lost answer."""

    actor: int
    fault: FaultKind | None = None

    def __str__(self) -> str:
        return f"{self.actor}{'' if self.fault is None else f'({self.fault})'}"


class Step(NamedTuple):
    """The next request of an actor to the store."""

    operation: str
    path: str  # For a deletion: all paths.

    def touches(self, other: Step) -> bool:
        """Return whether the order of two steps of different actors may change the result."""
        return _touch(self, other)


@lru_cache(1 << 16)
def _touch(one: Step, other: Step) -> bool:
    if one.operation in _READS and other.operation in _READS:
        return False
    if one.operation.startswith("list"):
        return any(_is_below(path, one.path) for path in other.path.split(", "))
    if other.operation.startswith("list"):
        return _touch(other, one)
    return not set(one.path.split(", ")).isdisjoint(other.path.split(", "))


def _is_below(path: str, folder: str) -> bool:
    return not folder or path.startswith(f"{folder}/")


Enabled: TypeAlias = Mapping[int, Step]
Choose: TypeAlias = Callable[[Enabled], Choice | None]


class Abandoned(BaseException):
    """The rest of a schedule is not needed."""


class UnrepeatableError(Exception):
    """The same choices led to other steps, so that a search would omit orders."""

    def __init__(self, choices: str, expected: Enabled, found: Enabled) -> None:
        super().__init__(
            f"after the choices `{choices}` the next steps were {_text(expected)}, but when the "
            f"choices were repeated, they were {_text(found)}. Give the actors ids that repeat, "
            "and let them keep nothing from one schedule to the next"
        )


def _text(enabled: Enabled) -> str:
    steps = (f"{actor}: {step.operation} {step.path}" for actor, step in sorted(enabled.items()))
    return f"[{'; '.join(steps)}]"


@dataclass
class History:
    """The events of one schedule."""

    choices: list[Choice] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)  # The step of each choice.
    results: dict[int, Any] = field(default_factory=dict)  # The result or the error of each actor.
    is_whole: bool = True  # Otherwise it was abandoned.

    def __str__(self) -> str:
        return " ".join(map(str, self.choices))


def play(store: Store, actors: Sequence[Actor], choose: Choose) -> History:
    """Run actors in threads, step by step; only one thread runs at a time.

    Parameters
    ----------
    choose
        Gets the next step of each actor that is not done; None abandons the schedule.

    Raises
    ------
    ValueError
        An actor is chosen that is done.
    """
    history = History()
    turns = _Turns(len(actors))

    def work(number: int, actor: Actor) -> None:
        try:
            history.results[number] = actor(_Stepped(store, turns, number))
        except BaseException as error:
            history.results[number] = error
        finally:
            turns.end(number)

    threads = []
    for number, actor in enumerate(actors):
        thread = threading.Thread(target=work, args=(number, actor), daemon=True)
        threads.append(thread)
        thread.start()
        turns.wait()  # Until it is at its first step, or done.
    try:
        while turns.pending:
            choice = choose(dict(turns.pending))
            if choice is None:
                history.is_whole = False
                break
            if choice.actor not in turns.pending:
                raise ValueError(f"actor {choice.actor} has no next step after `{history}`")
            history.choices.append(choice)
            history.steps.append(turns.pending[choice.actor])
            turns.give(choice)
    finally:
        while turns.pending:
            turns.abandon(next(iter(turns.pending)))
        for thread in threads:
            thread.join()
    return history


class _Turns:
    """Turns of the scheduler and the actors: only one of their threads runs at a time."""

    def __init__(self, actors: int) -> None:
        self.pending: dict[int, Step] = {}
        self._mine = _Baton()
        self._theirs = [_Baton() for _ in range(actors)]
        self._fault: FaultKind | None = None
        self._abandoned = False

    def wait(self) -> None:
        self._mine.take()

    def give(self, choice: Choice) -> None:
        self._fault = choice.fault
        del self.pending[choice.actor]
        self._theirs[choice.actor].give()
        self._mine.take()

    def abandon(self, actor: int) -> None:
        self._abandoned = True
        self.give(Choice(actor))

    def at(self, actor: int, step: Step) -> FaultKind | None:
        """Wait for an actor's turn to do a step; return the step's fault."""
        if self._abandoned:
            raise Abandoned
        self.pending[actor] = step
        self._mine.give()
        self._theirs[actor].take()
        if self._abandoned:
            raise Abandoned
        return self._fault

    def end(self, actor: int) -> None:
        self._mine.give()


class _Baton:
    """A lock that one thread passes to another."""

    def __init__(self) -> None:
        lock = threading.Lock()
        lock.acquire()
        self.take = lock.acquire
        self.give = lock.release


class _Stepped(FaultyStore):
    """An actor's store: each call waits for its turn."""

    def __init__(self, inner: Store, turns: _Turns, actor: int) -> None:
        super().__init__(inner)
        self._turns = turns
        self._actor = actor

    @contextmanager
    def _call(self, operation: str, path: str) -> Iterator[FaultKind | None]:
        fault = self._turns.at(self._actor, Step(operation, path))
        if fault == "lost_request":
            raise OutcomeUnknownError(path=path, reason="the request was lost")
        yield fault
        if fault == "lost_answer":
            raise OutcomeUnknownError(path=path, reason="the answer was lost")


@dataclass
class _Node:
    chosen: Choice
    steps: Enabled
    open: list[Choice]  # The choices that are not tried yet.
    asleep: set[Choice]  # The choices whose schedules were already tried.


def all_schedules(
    play_one: Callable[[Choose], History], *, losses: int = 0, prune: bool = True
) -> Iterator[History]:
    """Yield the history of each schedule.

    Parameters
    ----------
    play_one
        Runs the actors from the same initial state, such as `play` with a new store. Only the
        choices may influence its result.
    losses
        The largest number of commits of a schedule whose request or answer is lost.
    prune
        Omit schedules that differ only in the order of steps that do not touch the same files.

    Raises
    ------
    UnrepeatableError
        The actors are not repeatable.
    """
    path: list[_Node] = []
    waits = prune and not losses  # Choices wait until a race shows that they make a difference.
    while True:
        depth, known = 0, len(path)

        def choose(enabled: Enabled) -> Choice | None:
            nonlocal depth
            if depth == len(path):
                node = _next_node(path, enabled, losses, prune)
                if node is None:
                    return None
                if waits:
                    node.open.clear()
                path.append(node)
            _require_same(path, depth, enabled)
            depth += 1
            return path[depth - 1].chosen

        history = play_one(choose)
        if depth < len(path):
            _require_same(path, depth, {})
        if waits:
            _open_races(path, max(known - 1, 0))
        if history.is_whole:
            yield history
        while path:
            node = path[-1]
            if prune:
                node.asleep.add(node.chosen)
            if node.open:
                node.chosen = node.open.pop(0)
                break
            path.pop()
        if not path:
            return


def _require_same(path: list[_Node], depth: int, found: Enabled) -> None:
    """Raise unless the next steps at some depth of a path are those that it has."""
    if path[depth].steps != found:
        before = " ".join(str(node.chosen) for node in path[:depth])
        raise UnrepeatableError(before, path[depth].steps, found)


def _next_node(path: list[_Node], enabled: Enabled, losses: int, prune: bool) -> _Node | None:
    lost = sum(node.chosen.fault is not None for node in path)
    choices = [Choice(actor) for actor in enabled]
    if lost < losses:
        puts = [actor for actor, step in enabled.items() if step.operation == "put_if_absent"]
        kinds: tuple[FaultKind, ...] = ("lost_answer", "lost_request")
        choices += [Choice(actor, kind) for actor in puts for kind in kinds]
    asleep: set[Choice] = set()
    if path and prune:
        last = path[-1]
        step = last.steps[last.chosen.actor]
        asleep = {
            choice
            for choice in last.asleep
            if choice.actor != last.chosen.actor and not last.steps[choice.actor].touches(step)
        }
    awake = [choice for choice in choices if choice not in asleep]
    return _Node(awake[0], enabled, awake[1:], asleep) if awake else None


def _open_races(path: list[_Node], first: int) -> None:
    """Add another order of each two racing steps if the later step is new.

    Two steps race if they touch each other, and no step between them has to come between. Before
    the earlier one, an actor is opened that can begin with what does not need it.

    Parameters
    ----------
    first
        The place of the first new step.
    """
    events = [(node.chosen.actor, node.steps[node.chosen.actor]) for node in path]
    before: list[int] = []  # By event, the events that it comes after in any order: a bit for each.
    for at, (actor, step) in enumerate(events):
        found, races = 0, []
        for earlier in range(at - 1, -1, -1):
            other, theirs = events[earlier]
            if found >> earlier & 1 or (other != actor and not theirs.touches(step)):
                continue
            found |= before[earlier] | 1 << earlier
            if other != actor and at >= first:
                races.append(earlier)
        before.append(found)
        for earlier in races:
            begin, passed = set(), 0  # Who can be the first of those that do not need it.
            for one in (*range(earlier + 1, at), at):
                if one == at or not before[one] >> earlier & 1:
                    if not before[one] & passed:
                        begin.add(events[one][0])
                    passed |= 1 << one
            node = path[earlier]
            if begin.isdisjoint(c.actor for c in (node.chosen, *node.open, *node.asleep)):
                node.open.append(Choice(min(begin)))


def some_schedule(seed: int, *, losses: float = 0.0) -> Choose:
    """Return random choices, the same for each seed; `losses` is the probability to lose a put."""
    drawn = 0

    def chance() -> float:
        nonlocal drawn
        drawn += 1
        digest = sha256(f"{seed}:{drawn}".encode()).digest()
        return int.from_bytes(digest[:6], "big") / 2**48

    def choose(enabled: Enabled) -> Choice:
        actor = sorted(enabled)[int(chance() * len(enabled))]
        if enabled[actor].operation == "put_if_absent" and chance() < losses:
            return Choice(actor, "lost_answer" if chance() < 0.5 else "lost_request")
        return Choice(actor)

    return choose


def replay(choices: str) -> Choose:
    """Return a function that repeats a printed schedule, such as `0 0 1(lost_answer) 0`."""
    remaining = [word.rstrip(")").partition("(") for word in choices.split()]

    def choose(_: Enabled) -> Choice | None:
        if not remaining:
            return None
        actor, _bracket, fault = remaining.pop(0)
        return Choice(int(actor), fault or None)  # type: ignore[arg-type]

    return choose
