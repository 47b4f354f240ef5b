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

from txlog.base.arrow import pc
from txlog.base.errors import InvalidInputError

_FORMAT = 1  # The version of an offset's JSON.
_FIELDS = {
    "format": int, "table": str, "changes": bool, "began": int, "initial": bool, "version": int,
    "index": int,
}  # fmt: skip
_NAMES = [name for name in _FIELDS if name != "format"]


@dataclass(frozen=True)
class StreamOffset:
    """All units before unit `index` of `version` were read. It can be stored as JSON."""

    table: str  # The table's id, because the path may have another table later.
    began: int  # The version at which the stream began.
    initial: bool  # Whether it began with all rows of this version, or only with its commit.
    version: int
    index: int = 0
    changes: bool = False  # Whether the units of commits are files of changes.
    branch: str | None = None  # The id of the branch whose versions are meant; None: the table's.
    is_branch_known: bool = True  # Older offsets do not name a branch, and may be of one.

    @property
    def in_snapshot(self) -> bool:
        """Whether the units of `version` are its live fragments."""
        return self.initial and self.version == self.began

    @property
    def start(self) -> StreamOffset:
        """The offset at which the stream began."""
        return replace(self, version=self.began, index=0)

    def next_version(self) -> StreamOffset:
        """Return the offset at the start of the next version."""
        return replace(self, version=self.version + 1, index=0)

    def to_json(self) -> dict[str, Any]:
        """Return it as a dict of plain values."""
        found = {"format": _FORMAT, **{name: getattr(self, name) for name in _NAMES}}
        return {**found, "branch": self.branch} if self.is_branch_known else found


UNDECIDED: Mapping[str, Any] = {"format": _FORMAT, "version": -1, "index": 0}
"""The offset of a stream that has not chosen its start yet; the first end has it (STR-2)."""


def is_undecided(offset: Mapping[str, Any]) -> bool:
    """Return whether JSON is the offset of a stream that has not begun."""
    return dict(offset) == dict(UNDECIDED)


def parse_offset(offset: Mapping[str, Any]) -> StreamOffset:
    """Parse an offset from JSON.

    Raises
    ------
    InvalidInputError
        It is the offset of another source, or has an unknown format.
    """
    branch = offset.get("branch")
    fields = _FIELDS if branch is None else {**_FIELDS, "branch": str}
    for name, kind in fields.items():
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
    known = {name: offset[name] for name in _NAMES}
    return StreamOffset(**known, branch=branch, is_branch_known="branch" in offset)


@dataclass(frozen=True)
class Limits:
    """The limits of a micro-batch; None means no limit."""

    files: int | None = None
    bytes: int | None = None

    def without(self, files: int, size: int) -> Limits:
        """Return the remaining limits."""
        return Limits(
            None if self.files is None else self.files - files,
            None if self.bytes is None else self.bytes - size,
        )

    @property
    def reached(self) -> bool:
        """Whether a limit is used up."""
        return (self.files is not None and self.files <= 0) or (
            self.bytes is not None and self.bytes <= 0
        )


@dataclass(frozen=True)
class Step:
    """The units of one version that are not read yet."""

    version: int
    sizes: pa.Array  # int64: the bytes of the files of each unit.
    whole: bool = False  # Its units must be read in one micro-batch.


def admitted(sizes: pa.Array, limits: Limits, *, first: bool) -> int:
    """Return how many units, beginning with the first one, fit the limits.

    The first unit of a micro-batch always fits, because a stream must make progress (rule STR-4).
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
        The start of the micro-batch.
    steps
        The next versions, beginning with that of `start`; lost versions may be omitted. Only as
        many are requested as the limits allow.
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
    stop: int | None  # None: up to the last unit.


def unit_ranges(start: StreamOffset, end: StreamOffset) -> Iterator[UnitRange]:
    """Yield the units between two offsets; each unit is between exactly one pair of offsets.

    If the start is after the end there are none: an unfinished batch may be planned again from a
    later start.
    """
    at = start
    while (at.version, at.index) < (end.version, end.index):
        last = at.version == end.version
        yield UnitRange(at.version, at.in_snapshot, at.index, end.index if last else None)
        at = at.next_version()
