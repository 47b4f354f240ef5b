"""Find versions by number or time, the times of versions, and the history of commits.

From the version on that enables in-commit timestamps, these are the times of versions. Earlier
versions have the times of their commit files. Files may have equal or descending times, so each
time counts as at least a millisecond after the previous one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal

from txlog.errors import InvalidInputError, InvalidTypeError, NotFoundError
from txlog.log.catalog import CatalogCommits
from txlog.log.names import LogFile
from txlog.log.segment import rebuildable
from txlog.schema.timestamps import format_moment, parse_moment
from txlog.snapshot.commits import read_commit, told_by_commit
from txlog.snapshot.load import list_commits, list_log, load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store, map_many

OutOfRange = Literal["error", "nearest"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_timestamp(moment: str | datetime | int) -> int:
    """Convert ISO 8601 text, a datetime, or milliseconds to milliseconds since the epoch.

    Text and datetimes without a zone are in UTC.

    Raises
    ------
    InvalidInputError
        The text is not an ISO 8601 timestamp.
    """
    if isinstance(moment, bool):
        raise InvalidInputError(argument="timestamp", reason="a boolean is not a timestamp")
    if isinstance(moment, int):
        return moment
    if isinstance(moment, str):
        text = moment
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            return _spelt_otherwise(text)
    if not isinstance(moment, datetime):
        raise InvalidTypeError(
            argument="timestamp",
            reason=f"a timestamp was expected, not {type(moment).__name__}",
            remedy="Pass a datetime, text in ISO format, or whole milliseconds since the epoch",
        )
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (zoned - _EPOCH) // timedelta(milliseconds=1)


def _spelt_otherwise(moment: str) -> int:
    """Return milliseconds of a timestamp in SQL's form, such as `2026-8-22 1:05:00 UTC`."""
    try:
        return parse_moment(moment) // 1000
    except ValueError as error:
        raise InvalidInputError(
            argument="timestamp",
            reason=f"{moment!r} is not an ISO 8601 timestamp",
            remedy="Write it as 2026-08-22, 2026-08-22T10:00:00 or 2026-08-22T10:00:00+02:00",
        ) from error


def version_of(text: str | None) -> int | str | None:
    """Return the version that a text means: a number, or the name of a pin."""
    return int(text) if text is not None and text.isdecimal() else text


def pick_version(commits: Sequence[tuple[int, int]], moment_ms: int) -> int | None:
    """Return the last version at or before a time, or None if all versions are later.

    Pure. `commits` are (version, time in milliseconds), ascending by version. Each time counts as
    at least a millisecond after the previous one.
    """
    picked = None
    times = ascending(stamp for _, stamp in commits)
    for (version, _), made in zip(commits, times, strict=True):
        if made > moment_ms:
            break
        picked = version
    return picked


def version_at(
    store: Store, latest: Snapshot, moment_ms: int, *, out_of_range: OutOfRange = "error"
) -> int:
    """Return the version that was the latest at a time.

    The times are in-commit timestamps if these are enabled, else the times of the commit files.

    Raises
    ------
    NotFoundError
        The time is before the first existing version or after the last one, and `out_of_range` is
        not `nearest`.
    InvalidInputError
        `out_of_range` is neither `error` nor `nearest`.
    """
    if out_of_range not in ("error", "nearest"):
        raise InvalidInputError(
            argument="out_of_range", reason=f"{out_of_range!r} is not error or nearest"
        )
    commits = _kept(store, latest)
    picked = _pick(store, latest, commits, moment_ms)
    last_ms = _last_ms(latest, commits)
    if picked is not None and (
        picked < latest.version or moment_ms <= last_ms or out_of_range == "nearest"
    ):
        return picked
    if picked is None and out_of_range == "nearest":
        return commits[0].version
    when = "before the first" if picked is None else "after the last"
    raise NotFoundError(
        path=store.root,
        reason=f"{_text(moment_ms)} is {when} version "
        f"({commits[0].version} at {_text(_stamp(store, latest, commits[0]))}, "
        f"{latest.version} at {_text(last_ms)})",
        remedy="Choose a time between them, or omit the timestamp to open the latest version",
    )


def version_from(store: Store, latest: Snapshot, moment_ms: int) -> int:
    """Return the first version at or after a time.

    Raises
    ------
    NotFoundError
        The moment is after the last version, or so early that versions after it may have been
        cleaned up.
    """
    commits = _kept(store, latest)
    before = _pick(store, latest, commits, moment_ms - 1)
    if before is None and commits[0].version == 0:
        return 0
    if before is not None and before < latest.version:
        return before + 1
    if before is None:
        raise NotFoundError(
            path=store.root,
            version=commits[0].version,
            reason=f"{_text(moment_ms)} is before the first version that is kept, and there were "
            "versions before it",
            remedy=f"Begin with version {commits[0].version} or later",
        )
    raise NotFoundError(
        path=store.root,
        version=latest.version,
        reason=f"{_text(moment_ms)} is after the last version",
        remedy="Choose an earlier moment",
    )


def version_until(store: Store, latest: Snapshot, moment_ms: int) -> int:
    """Return the last version at or before a time.

    Raises
    ------
    NotFoundError
        The moment is before the first version that is kept.
    """
    commits = _kept(store, latest)
    picked = _pick(store, latest, commits, moment_ms)
    if picked is None:
        raise NotFoundError(
            path=store.root,
            version=commits[0].version,
            reason=f"{_text(moment_ms)} is before the first version that is kept, "
            f"{commits[0].version}",
            remedy="Choose a later moment",
        )
    return picked


def _kept(store: Store, latest: Snapshot) -> list[LogFile]:
    commits = _contiguous(list_commits(store, latest))
    if not commits:
        raise NotFoundError(
            path=store.root,
            reason="the log keeps no commit, so no version has a time",
            remedy="Open the table by version",
        )
    return commits


def _last_ms(latest: Snapshot, commits: list[LogFile]) -> int:
    """Return the last time that is not after the latest version."""
    if latest.is_active("inCommitTimestamp"):
        return latest.timestamp_ms
    return max(latest.timestamp_ms, *ascending(file.modified_ms for file in commits))


def _contiguous(commits: list[LogFile]) -> list[LogFile]:
    """Return the newest commits without a gap. Versions before a gap cannot be rebuilt."""
    run = commits[-1:]
    for file in reversed(commits[:-1]):
        if file.version != run[-1].version - 1:
            break
        run.append(file)
    return run[::-1]


def _pick(store: Store, latest: Snapshot, commits: list[LogFile], moment_ms: int) -> int | None:
    enabled_at = stamped_from(latest)
    if enabled_at is None:
        return pick_version([(file.version, file.modified_ms) for file in commits], moment_ms)
    enabled_ms = latest.properties.get("delta.inCommitTimestampEnablementTimestamp")
    stamped = [file for file in commits if file.version >= enabled_at]
    if enabled_ms is not None and moment_ms < enabled_ms:
        older = [file for file in commits if file.version < enabled_at]
        return pick_version([(file.version, file.modified_ms) for file in older], moment_ms)
    low, high = 0, len(stamped)  # In-commit timestamps strictly ascend.
    while low < high:
        middle = (low + high) // 2
        if _made_ms(store, latest, stamped[middle]) <= moment_ms:
            low = middle + 1
        else:
            high = middle
    return stamped[low - 1].version if low else None


def _stamp(store: Store, latest: Snapshot, file: LogFile) -> int:
    if latest.is_active("inCommitTimestamp"):
        return _made_ms(store, latest, file)
    return file.modified_ms


def _made_ms(store: Store, latest: Snapshot, file: LogFile) -> int:
    return read_commit(store, file).made_ms(latest.protocol, latest.metadata)


def _text(moment_ms: int) -> str:
    return format_moment(moment_ms * 1000, digits=3, zone="Z")


def ascending(stamps: Iterable[int]) -> Iterator[int]:
    """Yield times adjusted so that each is at least a millisecond after the one before. Pure."""
    floor = None
    for stamp in stamps:
        floor = stamp if floor is None else max(stamp, floor + 1)
        yield floor


def stamped_from(latest: Snapshot) -> int | None:
    """Return the first version with in-commit timestamps; None if there is none. Pure."""
    if not latest.is_active("inCommitTimestamp"):
        return None
    return latest.properties.get("delta.inCommitTimestampEnablementVersion") or 0


def file_times(latest: Snapshot, commits: Sequence[LogFile]) -> dict[int, int]:
    """Return the times of the versions that count by their files' times, in milliseconds.

    Pure. `commits` ascend by version; after a gap, times are counted again.
    """
    stamped = stamped_from(latest)
    found: dict[int, int] = {}
    for run in _runs([file for file in commits if stamped is None or file.version < stamped]):
        times = ascending(file.modified_ms for file in run)
        found |= zip((file.version for file in run), times, strict=True)
    return found


def _runs(commits: Iterable[LogFile]) -> list[list[LogFile]]:
    """Return commits in groups without a gap."""
    runs: list[list[LogFile]] = []
    for file in commits:
        if runs and file.version == runs[-1][-1].version + 1:
            runs[-1].append(file)
        else:
            runs.append([file])
    return runs


def made_ms(store: Store, snapshot: Snapshot) -> int:
    """Return the time of a snapshot's version; if its commit is missing, its checkpoint's time."""
    stamped = stamped_from(snapshot)
    if stamped is not None and stamped <= snapshot.version:
        return snapshot.timestamp_ms
    times = file_times(snapshot, list_commits(store, snapshot))
    return times.get(snapshot.version, snapshot.timestamp_ms)


def snapshot_at(
    store: Store,
    version: int | str | None = None,
    timestamp: str | datetime | int | None = None,
    *,
    out_of_range: OutOfRange = "error",
    catalog: CatalogCommits | None = None,
) -> Snapshot:
    """Load a version of a table: by number, by pin, by time, or the latest.

    Raises
    ------
    InvalidInputError
        Both are given, or the argument is not a version or not a timestamp.
    NotFoundError, UnsupportedFeatureError, LogCorruptError
        As for `load_snapshot`.
    """
    if version is not None and timestamp is not None:
        raise InvalidInputError(
            argument="timestamp",
            reason="version and timestamp are both given",
            remedy="Pass only one of them",
        )
    if isinstance(version, str):
        from txlog.snapshot.references import pinned_version

        version = pinned_version(load_snapshot(store, catalog=catalog), version)
    if version is not None and (type(version) is not int or version < 0):
        kind = InvalidInputError if type(version) is int else InvalidTypeError
        raise kind(
            argument="version",
            reason=f"{version!r} is not a whole number from 0",
            remedy="Pass a version number from history(), or the name of a pin",
        )
    snapshot = load_snapshot(store, version=version, catalog=catalog)
    if timestamp is None:
        return snapshot
    at = version_at(store, snapshot, parse_timestamp(timestamp), out_of_range=out_of_range)
    return load_snapshot(store, version=at, catalog=catalog)


def history(store: Store, snapshot: Snapshot, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the `commitInfo` of each commit up to a snapshot's version, newest first.

    Each entry has `version` and `timestamp` (milliseconds since the epoch). This is the time by
    which time travel finds the version, even if the writer recorded another one. Versions whose
    commits were cleaned up are not in the list.
    """
    commits = list_commits(store, snapshot)
    times = file_times(snapshot, commits)
    entry = partial(_entry, store, snapshot, times)
    return list(map_many(store, entry, commits[::-1][:limit]))


def versions(store: Store, snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return the versions up to a snapshot's version that can be opened, ascending.

    Each has `version`, `timestamp` (None if its commit is gone) and the `pins` of the latest
    version.
    """
    from txlog.snapshot.references import pins_of

    files = list_log(store, catalog=snapshot.catalog)
    commits = sorted((f for f in files if f.kind == "commit"), key=lambda file: file.version)
    by_version = {file.version: file for file in commits}
    times = file_times(snapshot, commits)
    latest = snapshot if snapshot.catalog is not None else load_snapshot(store)
    named: dict[int, list[str]] = {}
    for pin in pins_of(latest).values():
        named.setdefault(pin.version, []).append(pin.name)
    found = []
    for version in rebuildable(files):
        if version <= snapshot.version:
            made_ms = times.get(version)
            if made_ms is None and version in by_version:
                made_ms = _made_ms(store, snapshot, by_version[version])
            found.append({"version": version, "timestamp": made_ms, "pins": named.get(version, [])})
    return found


def _entry(
    store: Store, snapshot: Snapshot, times: Mapping[int, int], file: LogFile
) -> dict[str, Any]:
    commit = told_by_commit(store, file)
    made_ms = times.get(file.version)
    if made_ms is None:
        made_ms = commit.made_ms(snapshot.protocol, snapshot.metadata)
    info = commit.info.to_json() if commit.info else {}
    return {**info, "version": file.version, "timestamp": made_ms}
