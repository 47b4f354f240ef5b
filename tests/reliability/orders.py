"""Which orders of steps some schedules have, and which they lack; found without a search.

Two schedules have the same order if they differ only in the order of steps that do not touch each
other. If there is a schedule, and for each two steps that race also one with these two in the other
order, then all orders are there: take an order that is lacking, and the schedule that agrees with
it for the most steps. They part where two steps race, and a schedule with these two in the other
order agrees with it for more steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from txlog.testing.faults import FaultKind
from txlog.testing.schedules import Choice, History, Step

KINDS: tuple[FaultKind, ...] = ("lost_answer", "lost_request")


class Event(NamedTuple):
    """A step of a schedule, and what comes before it in all schedules of the same order."""

    choice: Choice
    step: Step
    before: int  # The events before it: a bit for each.
    past: int  # A number for what its actor did so far, and for what came before each step of it.


class Orders:
    """The orders of some schedules of the same actors, with at most so many lost answers."""

    def __init__(self, histories: Iterable[History] = (), *, losses: int = 0) -> None:
        self._losses = losses
        self._schedules: list[list[Event]] = []
        self._numbers: dict[object, int] = {}  # Of pasts.
        # The schedules that have a past, or a number of lost answers: a bit for each.
        self._having: Counter[int] = Counter()
        self._losing: Counter[int] = Counter()
        self._found: set[frozenset[int]] = set()
        for history in histories:
            self.add(history)

    def __len__(self) -> int:
        """Return the number of different orders."""
        return len(self._found)

    def add(self, history: History) -> None:
        """Add a schedule that was not abandoned."""
        assert history.is_whole
        events: list[Event] = []
        for choice, step in zip(history.choices, history.steps, strict=True):
            events.append(self._event(events, _all(events), choice, step))
        bit = 1 << len(self._schedules)
        self._schedules.append(events)
        self._losing[_lost(events)] |= bit
        for event in events:
            self._having[event.past] |= bit
        self._found.add(frozenset(event.past for event in events))

    def lacking(self) -> Iterator[str]:
        """Yield a beginning of each order that is lacking, though another is there."""
        for events in self._schedules:
            more = _lost(events) < self._losses
            for at, event in enumerate(events):
                for earlier in _races(events, at):
                    yield from self._unless_there(events, _without(events, at, earlier), event)
                if more and event.step.operation == "put_if_absent":
                    for kind in KINDS:
                        other = event._replace(choice=Choice(event.choice.actor, kind))
                        yield from self._unless_there(events, _without(events, at), other)

    def _event(self, events: list[Event], among: int, choice: Choice, step: Step) -> Event:
        """Return the event of a step that comes after some of the events."""
        before, mine = 0, [-1]
        for at, event in enumerate(events):
            if among >> at & 1:
                if event.choice.actor == choice.actor:
                    mine.append(event.past)
                elif not event.step.touches(step):
                    continue
                before |= event.before | 1 << at
        seen = Counter(e.choice.actor for at, e in enumerate(events) if before >> at & 1)
        key = choice, step, mine[-1], frozenset(seen.items())
        return Event(choice, step, before, self._numbers.setdefault(key, len(self._numbers)))

    def _unless_there(self, events: list[Event], among: int, last: Event) -> Iterator[str]:
        """Yield some of the events and then a last one, unless a schedule begins so."""
        first = [event for at, event in enumerate(events) if among >> at & 1]
        last = self._event(events, among, last.choice, last.step)
        pasts = {event.choice.actor: event.past for event in (*first, last)}
        there = self._losing[_lost([*first, last])]
        for past in pasts.values():
            there &= self._having[past]
        if not there:
            yield " ".join(str(event.choice) for event in (*first, last))


def _all(events: list[Event]) -> int:
    return (1 << len(events)) - 1


def _lost(events: list[Event]) -> int:
    return sum(event.choice.fault is not None for event in events)


def _races(events: list[Event], at: int) -> Iterator[int]:
    """Yield the events of others that touch an event, and between which nothing has to be."""
    event = events[at]
    between = 0
    for earlier in reversed(range(at)):
        if not event.before >> earlier & 1:
            continue
        if not between >> earlier & 1 and events[earlier].choice.actor != event.choice.actor:
            yield earlier
        between |= events[earlier].before


def _without(events: list[Event], *gone: int) -> int:
    """Return all events but some, and those that come after these in any case."""
    bits = sum(1 << at for at in gone)
    return sum(1 << at for at, event in enumerate(events) if not (1 << at | event.before) & bits)
