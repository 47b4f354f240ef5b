"""Count steps, so that a test of costs needs no clock."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import txlog

OWN = str(Path(txlog.__file__).parent)


def steps_of(work: Callable[[], object]) -> int:
    """Return how many lines of txlog run in this thread; each turn of a loop is one."""
    steps = 0

    def of_line(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal steps
        steps += 1
        return of_line

    def of_call(frame: FrameType, event: str, arg: object) -> Any:
        return of_line if frame.f_code.co_filename.startswith(OWN) else None

    before = sys.gettrace()
    sys.settrace(of_call)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps
