"""The axis of a chart along the time: whole ticks with different labels, for any span. Pure.

Vega's own ticks begin at milliseconds, and then the labels of a young table are alike (`.500`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MOST_TICKS = 6
LATEST_MS = 8_000_000_000_000_000
"""Of the times before and after 1970 that JavaScript knows, in whole thousands of years."""

_S, _MIN, _H, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_STEPS_MS = (
    *(n * _S for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MIN for n in (1, 2, 5, 10, 15, 30)),
    *(n * _H for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 5, 10)),
)
_STEPS_MONTHS = (
    *(1, 2, 3, 6),
    *(12 * n * 10**power for power in range(6) for n in (1, 2, 5)),
)


@dataclass(frozen=True)
class TimeAxis:
    """The ticks of an axis, in milliseconds since the epoch; the axis ends at the outer ones.

    `label` is Vega's expression of the label of a tick, which is `datum.value`.
    """

    ticks: tuple[int, ...]
    label: str


def time_axis(times: Sequence[int]) -> TimeAxis:
    """Return the axis of times, which are milliseconds within `LATEST_MS`; there is at least one.

    It has 2 to 6 ticks in UTC. They are at least one second apart.
    """
    first, last = min(times), max(times)
    for step in _STEPS_MS:
        ticks = _ticks(first, last, step)
        if len(ticks) <= MOST_TICKS:
            return TimeAxis(tuple(tick * step for tick in ticks), _label(step))
    month, last_month = _month_of(first), _month_of(last)
    if _start_of(last_month) < last:
        last_month += 1  # A month ends where the next one begins.
    for step in _STEPS_MONTHS:
        ticks = _ticks(month, last_month, step)
        if len(ticks) <= MOST_TICKS:
            break
    starts = tuple(_start_of(tick * step) for tick in ticks)
    return TimeAxis(starts, _dated("%Y-%m" if step % 12 else "%Y"))


def _ticks(first: int, last: int, step: int) -> range:
    """Return the ticks around two numbers, as multiples of a step."""
    start, end = first // step, -(-last // step)
    return range(start, end + 1) if start < end else range(start - 1, end + 2)


def _label(step_ms: int) -> str:
    if step_ms >= _DAY:
        return _dated("%Y-%m-%d")
    clock = "%H:%M" if step_ms % _MIN == 0 else "%H:%M:%S"
    return f"[{_dated(clock)}, {_dated('%Y-%m-%d')}]"


def _dated(form: str) -> str:
    return f"utcFormat(datum.value, '{form}')"


def _month_of(time_ms: int) -> int:
    """Return the number of whole months from 1970 to a time."""
    return int(np.datetime64(time_ms, "ms").astype("datetime64[M]").astype(np.int64))


def _start_of(month: int) -> int:
    return int(np.datetime64(month, "M").astype("datetime64[ms]").astype(np.int64))
