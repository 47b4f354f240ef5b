"""The version that a caller names, by number or by time."""

from __future__ import annotations

from datetime import datetime

from txlog.errors import InvalidInputError
from txlog.log.catalog import CatalogCommits
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.travel import OutOfRange, parse_timestamp, version_at
from txlog.store.base import Store


def snapshot_at(
    store: Store,
    version: int | None = None,
    timestamp: str | datetime | int | None = None,
    *,
    out_of_range: OutOfRange = "error",
    catalog: CatalogCommits | None = None,
) -> Snapshot:
    """Return a version of a table: of a number, at a moment, or the latest.

    Raises
    ------
    InvalidInputError
        Both are given, or one is no version or no moment.
    NotFoundError, UnsupportedFeatureError, LogCorruptError
        As for `load_snapshot`.
    """
    if version is not None and timestamp is not None:
        raise InvalidInputError(
            argument="timestamp",
            reason="version and timestamp both choose a version",
            remedy="Pass only one of them",
        )
    if version is not None and (type(version) is not int or version < 0):
        raise InvalidInputError(argument="version", reason=f"{version!r} is no whole number from 0")
    snapshot = load_snapshot(store, version=version, catalog=catalog)
    if timestamp is None:
        return snapshot
    at = version_at(store, snapshot, parse_timestamp(timestamp), out_of_range=out_of_range)
    return load_snapshot(store, version=at, catalog=catalog)
