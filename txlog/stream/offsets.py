"""Offsets of a stream in a table's history, and the size of micro-batches. Pure.

A version has a list of *units* for a stream, which never changes. The units of the first version
are its live fragments; those of later versions are the files that the commits add. An offset counts
units. Rules: spec/streaming.md, STR-1 to STR-5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from txlog.arrow import pc
from txlog.errors import InvalidInputError

_FORMAT = 1  # Of an offset's JSON.
_FIELDS = {
    "format": int, "table": str, "changes": bool, "began": int, "initial": bool, "version": int,
    "index": int,
}  # fmt: skip
_NAMES = [name for name in _FIELDS if name != "format"]


@dataclass(frozen=True)
class StreamOffset:
    """All units before unit `index` of `version` were read. A value; JSON keeps it."""

    table: str  # The table's id, which a path does not keep when another table takes its place.
    began: int  # The version that the stream began with.
    initial: bool  # Whether it began with all rows of that version, or with its commit.
    version: int
    index: int = 0
    changes: bool = False  # Whether units of commits are files of changes.

    @property
    def in_snapshot(self) -> bool:
        """Whether the units of `version` are its live fragments."""
        return self.initial and self.version == self.began

    @property
    def start(self) -> StreamOffset:
        """Where the stream began."""
        return replace(self, version=self.began, index=0)

    def next_version(self) -> StreamOffset:
        """Return where the following version begins."""
        return replace(self, version=self.version + 1, index=0)

    def to_json(self) -> dict[str, Any]:
        """Return it as an object of plain values."""
        return {"format": _FORMAT, **{name: getattr(self, name) for name in _NAMES}}


UNDECIDED: Mapping[str, Any] = {"format": _FORMAT, "version": -1, "index": 0}
"""The offset of a stream that has not chosen yet where it begins. The first end tells (STR-2)."""


def is_undecided(offset: Mapping[str, Any]) -> bool:
    """Return whether JSON is the offset of a stream that has not begun."""
    return dict(offset) == dict(UNDECIDED)


def parse_offset(offset: Mapping[str, Any]) -> StreamOffset:
    """Parse an offset from JSON.

    Raises
    ------
    InvalidInputError
        It is the offset of another source, or of a format that this version does not know.
    """
    for name, kind in _FIELDS.items():
        value = offset.get(name)
        fits = type(value) is kind and not (isinstance(value, int) and value < 0)
        if not fits or (name == "format" and value != _FORMAT):
            raise InvalidInputError(
                argument="checkpointLocation",
                field=name,
                reason=f"the offset is not from txlog: {name} is {value!r}",
                remedy="Start the query with a new checkpoint, and set startingVersion to the "
                "version where the other source stopped",
            )
    return StreamOffset(**{name: offset[name] for name in _NAMES})


@dataclass(frozen=True)
class Limits:
    """The limits of a micro-batch; None means no limit."""

    files: int | None = None
    bytes: int | None = None

    def without(self, files: int, size: int) -> Limits:
        """Return what is left of the limits."""
        return Limits(
            None if self.files is None else self.files - files,
            None if self.bytes is None else self.bytes - size,
        )

    @property
    def reached(self) -> bool:
        """Whether nothing is left."""
        return (self.files is not None and self.files <= 0) or (
            self.bytes is not None and self.bytes <= 0
        )


@dataclass(frozen=True)
class Step:
    """What is ahead in one version."""

    version: int
    sizes: pa.Array  # int64, for each unit: the bytes of its files.
    whole: bool = False  # Its units are read in one micro-batch.


def admitted(sizes: pa.Array, limits: Limits, *, first: bool) -> int:
    """Return how many units, from the first one on, fit the limits.

    The first unit of a micro-batch always does: a stream must go on (rule STR-4).
    """
    count = len(sizes)
    if limits.files is not None:
        count = min(count, limits.files)
    if limits.bytes is not None and count > 0:
        fits = pc.less_equal(pc.cumulative_sum(sizes.slice(0, count)), limits.bytes)
        count = pc.sum(fits).as_py() or 0
    return max(count, 1 if first and len(sizes) else 0)


def advance(start: StreamOffset, steps: Iterable[Step], limits: Limits) -> StreamOffset:
    """Return the end of a micro-batch.

    Parameters
    ----------
    start
        Where it begins.
    steps
        The versions ahead, beginning with that of `start`; versions that are lost may be left
        out. No more of them are asked for than the limits let in.
    """
    at = start
    first = True
    for step in steps:
        if step.version != at.version:
            at = replace(at, version=step.version, index=0)
        ahead = step.sizes.slice(at.index)
        taken = admitted(ahead, limits, first=first)
        if taken < len(ahead):
            if not step.whole:
                return replace(at, index=at.index + taken)
            if not first:
                return at
            taken = len(ahead)
        if taken:
            first = False
            limits = limits.without(taken, pc.sum(ahead).as_py() or 0)
        at = at.next_version()
        if limits.reached:
            break
    return at


@dataclass(frozen=True)
class UnitRange:
    """Units of one version."""

    version: int
    in_snapshot: bool
    first: int
    stop: int | None  # None: up to the last one.


def unit_ranges(start: StreamOffset, end: StreamOffset) -> Iterator[UnitRange]:
    """Yield the units between two offsets: each is between exactly one pair that meet.

    A start behind the end has none: an unfinished batch may be planned from a later beginning.
    """
    at = start
    while (at.version, at.index) < (end.version, end.index):
        last = at.version == end.version
        yield UnitRange(at.version, at.in_snapshot, at.index, end.index if last else None)
        at = at.next_version()
