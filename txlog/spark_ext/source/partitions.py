"""Divide work into tasks: one task reads several small files, or several tasks a large one."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from txlog.base.thresholds import Threshold
from txlog.changes.change_plan import ChangeFile
from txlog.fragments.fragment import Fragment, FragmentSequence
from txlog.scan.data_file import RowRange
from txlog.scan.plan import ScanPlan
from txlog.scan.read_plan import ReadPlan
from txlog.scan.scan import limited, packed, row_ranges
from txlog.spark_ext.answers import dumps
from txlog.spark_ext.source.tasks import ChangesPartition, FragmentPartition, unpacked

_OPEN_BYTES: Threshold = 4 << 20  # Opening a file costs as much as reading so many. As in Spark.
_LEAST_BYTES: Threshold = 32 << 20  # A smaller task would take longer to start than to read.
_COUNTED_ROWS: Threshold = 1 << 22  # Of one partition. Spark counts so many rows in a second.
_TASKS: Threshold = 32  # Much work is divided into at least so many tasks of equal size.

_AT_ONCE: Threshold = 1 << 14  # So many fragments become values together.

Item = TypeVar("Item")


class _Blocks(Generic[Item]):
    """A sequence that makes its values in blocks, and keeps the last block alone."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items
        self._first = 0
        self._block: Sequence[Item] = ()

    def value(self, at: int) -> Item:
        if not self._first <= at < self._first + len(self._block):
            self._first, self._block = at, self._items[at : at + _AT_ONCE]
        return self._block[at - self._first]


class Share(Sequence[Item]):
    """Some items of a sequence, made when they are asked for. It pickles as a tuple of them.

    Partitions of millions of files would need gigabytes as values. Spark pickles them one by one,
    in order, so that only one block of values is in memory. Its driver keeps the pickles, so they
    are compressed: to a quarter.
    """

    def __init__(self, blocks: _Blocks[Item], places: Sequence[int]) -> None:
        self._blocks = blocks
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, at: int) -> Item: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Item]: ...
    def __getitem__(self, at: int | slice) -> Item | Sequence[Item]:
        """Return an item, or the share of a slice."""
        if isinstance(at, slice):
            return Share(self._blocks, self._places[at])
        return self._blocks.value(self._places[at])

    def __iter__(self) -> Iterator[Item]:
        return map(self._blocks.value, self._places)

    def __reduce__(self) -> tuple[Any, ...]:
        return unpacked, (zlib.compress(dumps((*self,)), 1),)


@dataclass(frozen=True)
class TaskShare(Generic[Item]):
    """The share of one task: several items, or some of the row groups of one."""

    items: Sequence[Item]
    rows: RowRange | None = None


def task_shares(
    items: Sequence[Item], fragments: Sequence[Fragment], max_bytes: int, *, read: float = 1.0
) -> list[TaskShare[Item]]:
    """Return the shares of tasks, in the order of the items. Pure.

    Each row of an item is in one share. Only an item of more than `max_bytes` is in several shares.

    Parameters
    ----------
    fragments
        The fragment of each item.
    max_bytes
        The limit of a share of several items. A larger fragment is cut into several shares, by row
        groups.
    read
        The fraction of the bytes that is read, if only some columns are read.
    """
    return _shares(items, fragments, range(len(items)), max_bytes, read)


def _shares(
    items: Sequence[Item],
    fragments: Sequence[Fragment],
    chosen: Sequence[int],
    max_bytes: int,
    read: float,
) -> list[TaskShare[Item]]:
    """Return the shares of the items at some ascending places."""
    sizes = _sizes_of(fragments)
    weights = [int(sizes[at] * read) + _OPEN_BYTES for at in chosen]
    room = min(max_bytes, max(_LEAST_BYTES, sum(weights) // _TASKS))
    values, blocks = _Blocks(items), _Blocks(fragments)
    found: list[TaskShare[Item]] = []
    for among in packed(weights, room):
        places = chosen[among.start : among.stop]
        parts: Sequence[RowRange | None] = [None]
        if len(places) == 1 and sizes[places[0]] > max_bytes:
            parts = row_ranges(blocks.value(places[0]), max_bytes)
        found += [TaskShare(Share(values, places), rows) for rows in parts]
    return found


def _sizes_of(fragments: Sequence[Fragment]) -> list[int]:
    """Return the bytes of each fragment's files."""
    if isinstance(fragments, FragmentSequence):
        sizes: list[int] = fragments.file_bytes().tolist()
        return sizes
    return [sum(file.size for file in one.files) for one in fragments]


def fragment_partitions(
    plan: ScanPlan, limit: int | None, max_bytes: int, read: float
) -> list[FragmentPartition]:
    """Return one partition for each task, and at least one, because Spark requires it.

    Parameters
    ----------
    limit
        Read only so many rows from the start.
    max_bytes, read
        As for `task_shares`.
    """
    shared = plan.reading
    found: list[FragmentPartition] = []
    counted = 0
    if limit is not None:
        for share in limited(plan, limit):
            if share.counted and not plan.reading.columns:
                counted += share.rows
            else:
                own = shared.for_fragments(share.fragments)
                found.append(FragmentPartition(own, share.fragments, limit=share.rows))
    else:
        fragments = plan.fragments
        blocks = _Blocks(fragments)
        left: Sequence[int] = range(len(fragments))
        if not plan.reading.columns:
            counted = sum(count for count in plan.counts if count is not None)
            left = [at for at, count in enumerate(plan.counts) if count is None]
        few: list[int] = []  # An index names few rows of them.
        if shared.candidates is not None:
            few = [at for at in left if shared.candidates_in(blocks.value(at)) is not None]
            left = sorted({*left}.difference(few))
        for among in packed([_OPEN_BYTES] * len(few), max_bytes):
            some = Share(blocks, few[among.start : among.stop])
            found.append(FragmentPartition(shared.for_fragments(some), some))
        rest = shared.for_fragments(())
        found += [
            FragmentPartition(rest, share.items, share.rows)
            for share in _shares(fragments, fragments, left, max_bytes, read)
        ]
    shared = shared.for_fragments(())
    for start in range(0, counted, _COUNTED_ROWS):
        found.append(FragmentPartition(shared, counted=min(_COUNTED_ROWS, counted - start)))
    return found or [FragmentPartition(shared)]


def change_partitions(
    plan: ReadPlan, files: Sequence[ChangeFile], max_bytes: int
) -> list[ChangesPartition]:
    """Return one partition for each task."""
    shares = task_shares(files, [file.fragment for file in files], max_bytes)
    return [ChangesPartition(plan, share.items, share.rows) for share in shares]
