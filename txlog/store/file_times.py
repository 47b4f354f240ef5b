"""When a file was last written, by the clock of its store, and what that clock says now.

A time that a store does not know is None, never 0. Who deletes files takes None for young, and who
looks for a time raises an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from txlog.base.effects import Effects, is_rehearsing
from txlog.base.errors import NotFoundError
from txlog.store.base import Store, known_ms

_SECOND_MS = 1000.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The field of each file system of fsspec, and how many milliseconds a number in it counts.
_FIELDS = {
    "mtime": _SECOND_MS,  # Local disks, SFTP, SMB, HDFS by Arrow, tar and other archives.
    "LastModified": _SECOND_MS,  # S3, Alibaba.
    "last_modified": _SECOND_MS,  # Azure, Jupyter.
    "updated": _SECOND_MS,  # Google.
    "modified": _SECOND_MS,  # WebDAV.
    "modifiedTime": _SECOND_MS,  # Google Drive.
    "modificationTime": 1.0,  # WebHDFS.
    "modification_time": 1.0,  # Databricks.
    "last_modification_time_ms": 1.0,  # Alluxio.
    "modify": _SECOND_MS,  # FTP.
    "Last-Modified": _SECOND_MS,  # HTTP.
    # Memory and Git. The log and the data files are written once, so it is the same time.
    "created": _SECOND_MS,
}


def modified_ms(entry: Mapping[str, Any]) -> int | None:
    """Return the time of a file from an entry of fsspec, in milliseconds; None if it has none.

    Each file system has its own name and type for it: a number, a datetime or text. Pure. Text and
    datetimes without a zone are in UTC.
    """
    for name, unit_ms in _FIELDS.items():
        found = _milliseconds(entry.get(name), unit_ms)
        if found is not None:
            return found
    return None


def _milliseconds(value: Any, unit_ms: float) -> int | None:
    if isinstance(value, str):
        value = _moment(value.strip())
    if isinstance(value, datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
        return known_ms((zoned - _EPOCH) // timedelta(milliseconds=1))
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):  # NaN and infinity are no times.
            return known_ms(int(value * unit_ms))
    return None


def _moment(text: str) -> datetime | None:
    """Return the moment of a text in ISO 8601, in the form of HTTP, or in that of FTP."""
    if text[:14].isdecimal():
        with suppress(ValueError):
            return datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    with suppress(ValueError):
        return datetime.fromisoformat(text)
    from email.utils import parsedate_to_datetime

    with suppress(ValueError):
        return parsedate_to_datetime(text)
    return None


_ROUNDING_MS = 2_000  # Stores round times: to seconds, FAT to two of them.


def clock_mark(effects: Effects) -> str:
    """Return a path for `store_now_ms` in a table.

    It is that of a temporary file of the log, so that a vacuum deletes it if this process dies.
    """
    return f"_delta_log/.clock.{effects.uuid()}.tmp"


def store_now_ms(store: Store, mark: str) -> int | None:
    """Return the time of a store's clock in milliseconds; None if it has no times of files.

    A file `mark` is written and deleted for this.
    """
    for last in (False, False, True):
        try:
            store.write_new(mark, b"")
            return store.info(mark).modified_ms or None
        except NotFoundError:  # A vacuum of other writers, without a retention, was faster.
            if last:
                raise
        finally:
            store.delete([mark])
    return None


def clock_ms(store: Store, effects: Effects) -> int | None:
    """Return the time of a store's clock in milliseconds; None if it has no times of files.

    A rehearsal writes nothing, so it takes the time of this process.
    """
    if is_rehearsing():
        return effects.now_ms()
    return store_now_ms(store, clock_mark(effects))


def ahead_ms(store: Store, effects: Effects) -> int:
    """Return how far the clock of this process is ahead of the clock of a store.

    It is 0 if it is not ahead, if the difference is so small that it may be rounding, or if the
    store tells no times. Subtract it from the process's time before comparing that with the times
    of files: else files would seem older than they are.
    """
    theirs = clock_ms(store, effects)
    return 0 if theirs is None else difference_ms(effects.now_ms(), theirs)


def difference_ms(now_ms: int, store_ms: int) -> int:
    """Return by how much a time is after the time of a store. Pure."""
    ahead = now_ms - store_ms
    return ahead if ahead > _ROUNDING_MS else 0
