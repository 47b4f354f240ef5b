"""When versions were made, as time travel counts it.

Where in-commit timestamps are enabled they decide, from the version on that enabled them; else the
times of the commit files. Those may stand still or go back, so each counts as at least a
millisecond after the one before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from txlog.log.names import LogFile
from txlog.snapshot.load import list_commits
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store


def ascending(stamps: Iterable[int]) -> Iterator[int]:
    """Yield times, each at least a millisecond after the one before it. Pure."""
    floor = None
    for stamp in stamps:
        floor = stamp if floor is None else max(stamp, floor + 1)
        yield floor


def stamped_from(latest: Snapshot) -> int | None:
    """Return the first version that in-commit timestamps decide on; None if there is none. Pure."""
    if not latest.is_active("inCommitTimestamp"):
        return None
    return latest.properties.get("delta.inCommitTimestampEnablementVersion") or 0


def file_times(latest: Snapshot, commits: Sequence[LogFile]) -> dict[int, int]:
    """Return when the versions were made that go by the times of their files, in milliseconds.

    Pure. `commits` ascend by version; after a gap, times are counted anew.
    """
    stamped = stamped_from(latest)
    found: dict[int, int] = {}
    for run in _runs([file for file in commits if stamped is None or file.version < stamped]):
        times = ascending(file.modified_ms for file in run)
        found |= zip((file.version for file in run), times, strict=True)
    return found


def _runs(commits: Iterable[LogFile]) -> list[list[LogFile]]:
    """Cut commits where versions are missing."""
    runs: list[list[LogFile]] = []
    for file in commits:
        if runs and file.version == runs[-1][-1].version + 1:
            runs[-1].append(file)
        else:
            runs.append([file])
    return runs


def made_ms(store: Store, snapshot: Snapshot) -> int:
    """Return when a snapshot's version was made; if its commit is gone, its checkpoint's time."""
    stamped = stamped_from(snapshot)
    if stamped is not None and stamped <= snapshot.version:
        return snapshot.timestamp_ms
    times = file_times(snapshot, list_commits(store, snapshot))
    return times.get(snapshot.version, snapshot.timestamp_ms)
