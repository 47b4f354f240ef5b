"""Ordered encodings of keys of several columns: bits of each column, side by side. Pure.

Rule: LKP-2. A run states which bits it has, as windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from txlog.lookup.keys import Encodings, Numbers, is_number
from txlog.schema.types import StructField

Box = tuple[tuple[int, int], ...]
"""The least and the largest ordered encoding of each of the first key columns."""

_BITS = 64
_LEAST_WIDTH = 16  # Files with a few near values of a column so have the same windows.


@dataclass(frozen=True, slots=True)
class Window:
    """The bits of a column's ordered encoding: `(encoding >> shift) - base`, in `width` bits."""

    base: int
    shift: int
    width: int

    @property
    def largest(self) -> int:
        """The largest number in the window."""
        return (1 << self.width) - 1


def windows_of(
    columns: Sequence[StructField], encodings: Sequence[Encodings]
) -> tuple[Window, ...]:
    """Return windows for the ordered encodings of some rows; columns without room have none."""
    found: list[Window] = []
    room = _BITS
    for place, (column, of) in enumerate(zip(columns, encodings, strict=True)):
        # Short texts end with zeros.
        used = 0 if is_number(column) else int(np.bitwise_or.reduce(of))
        shift = ((used & -used).bit_length() - 1) // 8 * 8 if used else 0
        least = room if place == len(columns) - 1 else min(_LEAST_WIDTH, room)
        window = _window(int(of.min()), int(of.max()), shift, least)
        while window.width > room:
            shift += window.width - room
            window = _window(int(of.min()), int(of.max()), shift, room)
        found.append(window)
        room -= window.width
        if not room:
            break
    return tuple(found)


def _window(least: int, most: int, shift: int, width: int) -> Window:
    """Return the narrowest window of at least some bits, whose base is as round as possible."""
    least, most = least >> shift, most >> shift
    width = max(width, (most - least).bit_length())
    while True:
        half = max(width - 1, 0)
        base = least >> half << half if width else least
        if most - base < 1 << width:
            return Window(base, shift, width)
        width += 1


def combined(windows: Sequence[Window], encodings: Sequence[Encodings]) -> Encodings:
    """Return the encodings of rows that are within all windows."""
    found: Encodings | None = None
    for window, of in zip(windows, encodings, strict=False):
        part = (of >> np.uint64(window.shift)) - np.uint64(window.base)
        found = part if found is None else found << np.uint64(window.width) | part
    assert found is not None
    return found


def are_within(windows: Sequence[Window], encodings: Sequence[Encodings]) -> Numbers:
    """Return the places of the keys that are within all windows; a run has no others."""
    within = np.ones(len(encodings[0]), bool)
    for window, of in zip(windows, encodings, strict=False):
        part = of >> np.uint64(window.shift)
        within &= (part >= np.uint64(window.base)) & (
            part - np.uint64(window.base) <= np.uint64(window.largest)
        )
    return np.flatnonzero(within)


def span(windows: Sequence[Window], box: Box) -> tuple[int, int] | None:
    """Return between which encodings all keys in a box are; None if no key is in all windows."""
    first = last = 0
    for place, window in enumerate(windows):
        least, most = 0, window.largest
        if place < len(box):
            least = max((box[place][0] >> window.shift) - window.base, least)
            most = min((box[place][1] >> window.shift) - window.base, most)
        if least > most:
            return None
        first, last = first << window.width | least, last << window.width | most
    return first, last
