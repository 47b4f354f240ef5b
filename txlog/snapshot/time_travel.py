"""Find versions by number or time, the times of versions, and the history of commits.

From the version on that enables in-commit timestamps, these are the times of versions. Earlier
versions have the times of their commit files. Files may have equal or descending times, so each
time counts as at least a millisecond after the previous one, and before the first in-commit
timestamp. A time that is not known is None. `VersionTimes` has the only answer: whoever shows the
time of a version, or looks for the version of a time, asks there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from txlog.base.arrow import table_of_rows
from txlog.base.errors import (
    InvalidInputError,
    InvalidTypeError,
    LogCorruptError,
    NotFoundError,
    TxlogError,
    require_whole,
    warn_caller,
)
from txlog.base.moments import format_moment
from txlog.base.texts import runs_of, runs_text
from txlog.log.catalog import CatalogCommits
from txlog.log.names import LogFile
from txlog.log.segment import rebuildable
from txlog.schema.timestamps import parse_moment
from txlog.snapshot.commits import Commit, is_gone, read_commit, told_by_commit
from txlog.snapshot.load import list_log, load_snapshot
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


def require_out_of_range(value: str) -> None:
    """Raise `InvalidInputError` unless a value is an `OutOfRange`."""
    if value not in ("error", "nearest"):
        raise InvalidInputError(
            argument="out_of_range", reason=f"{value!r} is not error or nearest"
        )


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


@dataclass(frozen=True)
class VersionTimes:
    """The times of the versions of a log, up to the version of a snapshot."""

    store: Store
    snapshot: Snapshot
    latest: Snapshot  # It says which versions have in-commit timestamps.
    files: list[LogFile]  # Of the log, of all versions.
    commits: list[LogFile]  # Up to the snapshot's version, ascending.
    by_file: dict[int, int | None]  # The times of the versions that have those of their files.
    _read: dict[int, int | None]  # In-commit timestamps that were read already.

    def of(self, file: LogFile) -> int | None:
        """Return the time of a commit's version; None if it is unknown, or in a damaged commit."""
        if file.version in self.by_file:
            return self.by_file[file.version]
        if file.version not in self._read:
            try:
                self._read[file.version] = self.of_commit(read_commit(self.store, file))
            except LogCorruptError:
                self._read[file.version] = None
        return self._read[file.version]

    def of_commit(self, commit: Commit) -> int | None:
        """Return the same for a commit that was read."""
        if commit.version in self.by_file:
            return self.by_file[commit.version]
        return commit.made_ms(self.latest.protocol, self.latest.metadata)

    def note(self, commit: Commit) -> None:
        """Keep the time of a commit that was read, so that `of` need not read it again."""
        if commit.version not in self.by_file:
            with suppress(LogCorruptError):
                self._read[commit.version] = self.of_commit(commit)

    def commit_of(self, version: int) -> LogFile | None:
        """Return the commit of a version; None if it was cleaned up."""
        return next((file for file in reversed(self.commits) if file.version == version), None)

    def pick(self, commits: Sequence[LogFile], moment_ms: int) -> LogFile | None:
        """Return the last of ascending commits that is known to be made at or before a time."""
        stamped = [file for file in commits if file.version not in self.by_file]
        low, high = 0, len(stamped)  # In-commit timestamps strictly ascend.
        while low < high:
            middle = probe = (low + high) // 2
            while (made_ms := self.of(stamped[probe])) is None and probe < high - 1:
                probe += 1  # The time of a damaged commit is not known.
            if made_ms is not None and made_ms <= moment_ms:
                low = probe + 1
            else:
                high = middle
        if low:
            return stamped[low - 1]
        older = {file.version: file for file in commits if file.version in self.by_file}
        known = [(v, ms) for v in older if (ms := self.by_file[v]) is not None]
        picked = pick_version(known, moment_ms)
        return None if picked is None else older[picked]

    def follows(self, file: LogFile, moment_ms: int) -> bool:
        """Return whether a version that `pick` found was the latest at the time, for certain.

        If the commit of the next version was cleaned up, or has no time, this is only certain for
        the very time of the version, because times strictly ascend.
        """
        if file.version == self.snapshot.version or self.of(file) == moment_ms:
            return True
        after = self.commit_of(file.version + 1)
        return after is not None and self.of(after) is not None


def version_times(
    store: Store, snapshot: Snapshot, *, latest: Snapshot | None = None
) -> VersionTimes:
    """List a log, and return the times of its versions up to that of a snapshot.

    Parameters
    ----------
    latest
        A version that is not older than the snapshot, if it is known. If the log has even newer
        commits, the latest version is loaded, because it may have enabled in-commit timestamps.
    """
    latest = latest or snapshot
    files = list_log(store, catalog=snapshot.catalog)
    every = sorted((f for f in files if f.kind == "commit"), key=lambda file: file.version)
    if every and every[-1].version > latest.version and latest.catalog is None:
        with suppress(TxlogError):  # It may have changed in a way that txlog lacks.
            newest = load_snapshot(store)  # With its checkpoint: there may be many newer commits.
            if newest.metadata.id == latest.metadata.id and newest.version > latest.version:
                latest = newest
    commits = [file for file in every if file.version <= snapshot.version]
    return VersionTimes(store, snapshot, latest, files, commits, file_times(latest, commits), {})


def version_at(
    store: Store, latest: Snapshot, moment_ms: int, *, out_of_range: OutOfRange = "error"
) -> int:
    """Return the version that was the latest at a time.

    The times are in-commit timestamps if these are enabled, else the times of the commit files.

    Raises
    ------
    NotFoundError
        The time is before the first existing version or after the last one, and `out_of_range` is
        not `nearest`; or it is unknown which version was the latest then: the store has no times of
        the commits, or commits of that time were cleaned up.
    InvalidInputError
        `out_of_range` is neither `error` nor `nearest`.
    """
    require_out_of_range(out_of_range)
    times = version_times(store, latest)
    known = set(rebuildable(times.files))
    commits = [file for file in times.commits if file.version in known]
    if not commits:
        raise _no_commit(store)
    picked = times.pick(commits, moment_ms)
    if picked is None:
        if times.of(commits[0]) is None:
            raise _no_time(store, commits[0])
        if out_of_range == "nearest":
            return commits[0].version
        raise _out_of_range(times, commits, moment_ms, "before the first")
    if picked.version == latest.version:
        made_ms = times.of(picked)
        if out_of_range == "nearest" or made_ms is None or moment_ms <= made_ms:
            return picked.version
        raise _out_of_range(times, commits, moment_ms, "after the last")
    if times.follows(picked, moment_ms):
        return picked.version
    after = next((file for file in commits if file.version > picked.version), None)
    if after is not None and after.version == picked.version + 1:
        raise _no_time(store, after)
    if out_of_range == "nearest":
        return picked.version
    if after is None:
        raise _out_of_range(times, commits, moment_ms, "after the last")
    raise NotFoundError(
        path=store.root,
        reason=f"{_text(moment_ms)} is between version {picked.version} at "
        f"{_time_text(times, picked)} and version {after.version} at {_time_text(times, after)}, "
        "and the versions between them were cleaned up",
        remedy=f"Open version {picked.version} or {after.version}",
    )


def _out_of_range(
    times: VersionTimes, commits: Sequence[LogFile], moment_ms: int, where: str
) -> NotFoundError:
    first, last = commits[0], commits[-1]
    return NotFoundError(
        path=times.store.root,
        reason=f"{_text(moment_ms)} is {where} version "
        f"({first.version} at {_time_text(times, first)}, "
        f"{last.version} at {_time_text(times, last)})",
        remedy="Choose a time between them, or omit the timestamp to open the latest version",
    )


def _no_commit(store: Store) -> NotFoundError:
    return NotFoundError(
        path=store.root,
        reason="the log keeps no commit, so no version has a time",
        remedy="Open the table by version",
    )


def _no_time(store: Store, file: LogFile) -> NotFoundError:
    return NotFoundError(
        path=store.root,
        version=file.version,
        reason=f"the store has no time of {file.path}, so it is unknown which version was the "
        "latest at a time",
        remedy="Choose a version by its number. New versions have times with "
        'Table.alter.set_properties({"delta.enableInCommitTimestamps": "true"})',
    )


def version_from(store: Store, latest: Snapshot, moment_ms: int) -> int:
    """Return the first version at or after a time.

    Raises
    ------
    NotFoundError
        The moment is after the last version, or so early that versions after it may have been
        cleaned up, or the store has no times of the commits.
    """
    times, commits = _kept(store, latest)
    before = times.pick(commits, moment_ms - 1)
    if before is None:
        if times.of(commits[0]) is None:
            raise _no_time(store, commits[0])
        if commits[0].version == 0:
            return 0
        raise NotFoundError(
            path=store.root,
            version=commits[0].version,
            reason=f"{_text(moment_ms)} is before the first version that is kept, and there were "
            "versions before it",
            remedy=f"Begin with version {commits[0].version} or later",
        )
    if before.version < latest.version:
        if not times.follows(before, moment_ms - 1):
            raise _no_time(store, times.commit_of(before.version + 1) or before)
        return before.version + 1
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
        The moment is before the first version that is kept, or the store has no times of the
        commits.
    """
    times, commits = _kept(store, latest)
    picked = times.pick(commits, moment_ms)
    if picked is None:
        if times.of(commits[0]) is None:
            raise _no_time(store, commits[0])
        raise NotFoundError(
            path=store.root,
            version=commits[0].version,
            reason=f"{_text(moment_ms)} is before the first version that is kept, "
            f"{commits[0].version}",
            remedy="Choose a later moment",
        )
    if not times.follows(picked, moment_ms):
        raise _no_time(store, times.commit_of(picked.version + 1) or picked)
    return picked.version


def _kept(store: Store, latest: Snapshot) -> tuple[VersionTimes, list[LogFile]]:
    times = version_times(store, latest)
    commits = _contiguous(times.commits)
    if not commits:
        raise _no_commit(store)
    return times, commits


def _contiguous(commits: list[LogFile]) -> list[LogFile]:
    """Return the newest commits without a gap. Versions before a gap cannot be rebuilt."""
    run = commits[-1:]
    for file in reversed(commits[:-1]):
        if file.version != run[-1].version - 1:
            break
        run.append(file)
    return run[::-1]


def _text(moment_ms: int) -> str:
    return format_moment(moment_ms * 1000, digits=3, zone="Z")


def _time_text(times: VersionTimes, file: LogFile) -> str:
    made_ms = times.of(file)
    return "an unknown time" if made_ms is None else _text(made_ms)


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


def file_times(latest: Snapshot, commits: Sequence[LogFile]) -> dict[int, int | None]:
    """Return the times of the versions that count by their files' times, in milliseconds.

    Pure. `commits` ascend by version. None: the store has no time of the file. The times strictly
    ascend, also to the first in-commit timestamp: a file may have a time in the future.
    """
    stamped = stamped_from(latest)
    enabled_ms = latest.properties.get("delta.inCommitTimestampEnablementTimestamp")
    older = [file for file in commits if stamped is None or file.version < stamped]
    known = [(file.version, file.modified_ms) for file in older if file.modified_ms is not None]
    times = ascending(ms for _, ms in known)
    found: dict[int, int | None] = {file.version: None for file in older}
    for (version, _), made_ms in zip(known, times, strict=True):
        if stamped is not None and enabled_ms is not None:
            made_ms = min(made_ms, enabled_ms - (stamped - version))
        found[version] = made_ms
    return found


def least_ms(store: Store, snapshot: Snapshot) -> int:
    """Return the least in-commit timestamp of the next version, if no version before it has one.

    With it, the times of these versions stay as they are (`file_times`).
    """
    following = snapshot.version + 1
    times = version_times(store, snapshot).by_file.items()
    return max((ms + following - version for version, ms in times if ms is not None), default=0)


def made_ms(store: Store, snapshot: Snapshot) -> int | None:
    """Return the time of a snapshot's version; None if its commit is gone or has no time."""
    stamped = stamped_from(snapshot)
    if stamped is not None and stamped <= snapshot.version:
        newer = list_log(store, since=snapshot.version, catalog=snapshot.catalog)
        found = [file.version for file in newer if file.kind == "commit"]
        if found == [snapshot.version] and snapshot.timestamp_ms is not None:
            return snapshot.timestamp_ms
    times = version_times(store, snapshot)
    own = times.commit_of(snapshot.version)
    return None if own is None else times.of(own)


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
        Both are given, or an argument is not a version, not a timestamp, or not an `OutOfRange`.
    NotFoundError, UnsupportedFeatureError, LogCorruptError
        As for `load_snapshot`.
    """
    require_out_of_range(out_of_range)
    if version is not None and timestamp is not None:
        raise InvalidInputError(
            argument="timestamp",
            reason="version and timestamp are both given",
            remedy="Pass only one of them",
        )
    if isinstance(version, str):
        from txlog.snapshot.references import pinned_version

        version = pinned_version(_to_ask(store, catalog), version)
    if version is not None:
        remedy = "Pass a version number from history(), or the name of a pin"
        number = require_whole("version", version, remedy=remedy)
        return load_snapshot(store, version=number, catalog=catalog)
    if timestamp is None:
        return load_snapshot(store, catalog=catalog)
    moment_ms = parse_timestamp(timestamp)
    latest = _to_ask(store, catalog)
    at = version_at(store, latest, moment_ms, out_of_range=out_of_range)
    return load_snapshot(store, version=at, catalog=catalog)


def _to_ask(store: Store, catalog: CatalogCommits | None) -> Snapshot:
    """Return the latest version, or what is left of it, to look for a pin or a time."""
    if catalog is not None:
        return load_snapshot(store, catalog=catalog)
    from txlog.snapshot.salvage import latest_left

    return latest_left(store)


def history(store: Store, snapshot: Snapshot, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the `commitInfo` of each commit up to a snapshot's version, newest first.

    Each entry has `version` and `timestamp` (milliseconds since the epoch). This is the time by
    which time travel finds the version, even if the writer recorded another one; None if the store
    has no time of the commit. Versions whose commits were cleaned up are not in the list. For a
    damaged commit, the entry has the reason as `damage` in place of its `commitInfo`.
    """
    times = version_times(store, snapshot)
    return list(map_many(store, partial(_entry, times), times.commits[::-1][:limit]))


VERSIONS = pa.schema(
    [
        pa.field("version", pa.int64(), False),
        pa.field("timestamp", pa.int64()),
        pa.field("pins", pa.list_(pa.string()), False),
    ]
)


def versions(store: Store, snapshot: Snapshot) -> pa.Table:
    """Return the versions up to a snapshot's version that can be opened, ascending, in `VERSIONS`.

    The timestamp is null if the version's commit is gone or has no time; the pins are those of the
    latest version. A `TxlogWarning` names the versions that damaged files take with them.
    """
    from txlog.snapshot.references import pins_of
    from txlog.snapshot.salvage import openable

    latest = snapshot if snapshot.catalog is not None else _to_ask(store, None)
    times = version_times(store, snapshot, latest=latest)
    named: dict[int, list[str]] = {}
    for pin in pins_of(latest).values():
        named.setdefault(pin.version, []).append(pin.name)
    by_version = {file.version: file for file in times.commits}
    opens = openable(
        store, snapshot.version, times.note, files=times.files, catalog=snapshot.catalog
    )
    if opens.left_out:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in sorted(opens.damage.items()))
        warn_caller(f"versions {runs_text(runs_of(opens.left_out))} cannot be opened ({reasons})")
    found = []
    for version in opens.versions:
        made_ms = times.of(by_version[version]) if version in by_version else None
        found.append({"version": version, "timestamp": made_ms, "pins": named.get(version, [])})
    return table_of_rows(found, VERSIONS)


def _entry(times: VersionTimes, file: LogFile) -> dict[str, Any]:
    try:
        commit = told_by_commit(times.store, file)
        info = commit.info.to_json() if commit.info else {}
    except LogCorruptError as error:
        if is_gone(error):
            raise
        return {"version": file.version, "timestamp": times.of(file), "damage": error.reason}
    return {**info, "version": file.version, "timestamp": times.of_commit(commit)}
