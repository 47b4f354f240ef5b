"""Divide work into tasks: one task reads several small files, or several tasks a large one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from txlog.base.thresholds import Threshold
from txlog.changes.change_plan import ChangeFile
from txlog.fragments.fragment import Fragment
from txlog.scan.data_file import RowRange
from txlog.scan.plan import ScanPlan
from txlog.scan.read_plan import ReadPlan
from txlog.scan.scan import limited, packed, row_ranges
from txlog.spark_ext.source.tasks import ChangesPartition, FragmentPartition

_OPEN_BYTES: Threshold = 4 << 20  # Opening a file costs as much as reading so many. As in Spark.
_LEAST_BYTES: Threshold = 32 << 20  # A smaller task would take longer to start than to read.
_COUNTED_ROWS: Threshold = 1 << 22  # Of one partition. Spark counts so many rows in a second.
_TASKS: Threshold = 32  # Much work is divided into at least so many tasks of equal size.

Item = TypeVar("Item")


@dataclass(frozen=True)
class TaskShare(Generic[Item]):
    """The share of one task: several items, or some of the row groups of one."""

    items: tuple[Item, ...]
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
    sizes = [sum(file.size for file in one.files) for one in fragments]
    weights = [int(size * read) + _OPEN_BYTES for size in sizes]
    room = min(max_bytes, max(_LEAST_BYTES, sum(weights) // _TASKS))
    found: list[TaskShare[Item]] = []
    for places in packed(weights, room):
        parts: Sequence[RowRange | None] = [None]
        if len(places) == 1:
            parts = row_ranges(fragments[places[0]], max_bytes)
        found += [TaskShare(tuple(items[at] for at in places), rows) for rows in parts]
    return found


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
        left: list[Fragment] = []
        few: list[Fragment] = []  # An index names few rows of them.
        for fragment, count in zip(plan.fragments, plan.counts, strict=True):
            if count is not None and not plan.reading.columns:
                counted += count
            elif shared.candidates_in(fragment) is None:
                left.append(fragment)
            else:
                few.append(fragment)
        for places in packed([_OPEN_BYTES] * len(few), max_bytes):
            some = tuple(few[at] for at in places)
            found.append(FragmentPartition(shared.for_fragments(some), some))
        rest = shared.for_fragments(())
        found += [
            FragmentPartition(rest, share.items, share.rows)
            for share in task_shares(left, left, max_bytes, read=read)
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
