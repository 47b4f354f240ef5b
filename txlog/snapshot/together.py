"""Load several versions that have the same checkpoint, and read each commit once.

A vacuum needs the files of all pins.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from txlog.actions.table import Metadata, Protocol
from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.columns import flat
from txlog.base.errors import LogCorruptError, NotFoundError
from txlog.log.names import LogFile
from txlog.log.segment import choose_segment, complete_checkpoints
from txlog.reconcile.files import file_keys
from txlog.snapshot.commits import DamagedError
from txlog.snapshot.live_files import require_sound
from txlog.snapshot.load import list_log, load_segment
from txlog.snapshot.snapshot import Snapshot, Tail, moved
from txlog.store.base import Store


@dataclass(frozen=True)
class Together:
    """Several versions with one checkpoint.

    Each file that is live in one of them is live in `first`, or is one of `others`, and all of
    these are live in one of them.
    """

    versions: list[int]  # Ascending.
    first: Snapshot  # The oldest of them.
    others: pa.Table  # `FILE_ROWS` that commits after it added. A path may occur several times.


def each_together(
    store: Store, versions: Collection[int]
) -> Iterator[tuple[list[int], Together | None]]:
    """Yield versions in groups that have the same checkpoint, loaded together.

    Each commit after a checkpoint is read once for its group, and again after a change of the
    protocol or the metadata. The value is None for a version without others, and if the versions
    must be loaded one by one (`load_together`).
    """
    if len(versions) < 2:
        yield from (([version], None) for version in versions)
        return
    files = sorted(list_log(store, briefly=True), key=_version_of)
    for base, group in by_checkpoint(files, versions):
        some = files[bisect_left(files, base, key=_version_of) :]
        some = some[: bisect_right(some, group[-1], key=_version_of)]
        left = group
        while left:
            together = load_together(store, some, left) if len(left) > 1 else None
            loaded = left if together is None else together.versions
            yield loaded, together
            left = left[: len(left) - len(loaded)]


def _version_of(file: LogFile) -> int:
    return file.version


def by_checkpoint(files: Iterable[LogFile], versions: Iterable[int]) -> list[tuple[int, list[int]]]:
    """Return versions in ascending groups, each with the version of its checkpoint, or -1. Pure.

    Parameters
    ----------
    files
        All listed files of the log.
    """
    bases = sorted(complete_checkpoints(files))
    groups: dict[int, list[int]] = {}
    for version in sorted(versions):
        at = bisect_right(bases, version)
        groups.setdefault(bases[at - 1] if at else -1, []).append(version)
    return list(groups.items())


def load_together(
    store: Store, files: Sequence[LogFile], versions: Sequence[int]
) -> Together | None:
    """Load the last versions of a group of `by_checkpoint`: those with one protocol and metadata.

    None if this may not be what each of them has alone: a file of the log is missing or damaged, a
    compaction replaces commits, or a commit names a file twice.

    Parameters
    ----------
    files
        The files of the log from the checkpoint to the last version.
    versions
        Two or more, ascending.
    """
    try:
        segment = choose_segment(files, version=versions[-1])
        if segment.checkpoint_version > versions[0] or any(
            file.kind != "commit" for file in segment.deltas
        ):
            return None
        newest, controls = load_segment(store, segment, files)
    except (DamagedError, LogCorruptError, NotFoundError):
        return None
    changes = (at for at, one in controls if isinstance(one, Protocol | Metadata))
    same = list(versions[bisect_left(versions, max(changes, default=0)) :])
    first = same[0]
    rows = newest.tail.rows
    is_later = pc.greater(rows["version"], first)
    others = live_in_any(rows.filter(is_later), same)
    if others is None:
        return None
    try:
        require_sound(newest, others)
    except LogCorruptError:
        return None
    tail = Tail(rows.filter(pc.invert(is_later)))
    return Together(same, moved(newest, version=first, tail=tail), others)


def live_in_any(rows: pa.Table, versions: Sequence[int]) -> pa.Table | None:
    """Return the adds of commits that are live in one of some versions, which ascend. Pure.

    `rows` are the `FILE_ROWS` of the commits. An add is live from its version on, up to the next
    action of its logical file. None if a commit names a file twice.
    """
    codes = numpy_array(flat(file_keys(rows)).dictionary_encode().indices)
    since = numpy_array(flat(rows["version"]))
    order = np.lexsort((since, codes))
    codes, since = codes[order], since[order]
    until = np.full(len(order), np.iinfo(np.int64).max)
    same = codes[1:] == codes[:-1]
    if (same & (since[1:] == since[:-1])).any():
        return None
    until[:-1][same] = since[1:][same]
    asked = np.append(np.asarray(versions, np.int64), np.iinfo(np.int64).max)
    is_live = asked[np.searchsorted(asked, since)] < until
    live = rows.take(arrow_array(order[is_live]))
    return live.filter(live["is_add"])
