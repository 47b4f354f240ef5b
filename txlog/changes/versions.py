"""Which versions a feed covers."""

from __future__ import annotations

from datetime import datetime

from txlog.errors import InvalidInputError, NotFoundError
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.time_travel import parse_timestamp, version_from, version_until
from txlog.store.base import Store

Bound = tuple[int | None, str | datetime | int | None]
"""A version, or a moment, or neither."""


def feed_range(
    store: Store, snapshot: Snapshot, *, starting: Bound, ending: Bound
) -> tuple[int, Snapshot]:
    """Return the first version of a range, and its last one, loaded.

    Parameters
    ----------
    snapshot
        The version that the range ends with by default; it reaches no further.
    starting
        Default: the first version of the table.

    Raises
    ------
    InvalidInputError
        A bound has both a version and a moment, or the range ends before it begins.
    NotFoundError
        A bound is outside of the table's history.
    """
    first = _starting(store, snapshot, *_one_of("starting", *starting))
    last = _ending(store, snapshot, *_one_of("ending", *ending))
    for name, version in (("starting_version", first), ("ending_version", last)):
        if version > snapshot.version:
            raise NotFoundError(
                path=store.root,
                version=version,
                reason=f"{name} is later than the version that is open, {snapshot.version}",
                remedy="Refresh the table, or choose an earlier version",
            )
    if last < first:
        raise InvalidInputError(
            argument="ending_version",
            reason=f"the range ends with version {last}, before it begins with version {first}",
        )
    if last == snapshot.version:
        return first, snapshot
    return first, load_snapshot(store, version=last, catalog=snapshot.catalog)


def _one_of(
    name: str, version: int | None, moment: str | datetime | int | None
) -> tuple[int | None, int | None]:
    if version is not None and moment is not None:
        raise InvalidInputError(
            argument=f"{name}_timestamp",
            reason=f"{name}_version and {name}_timestamp both bound the range",
            remedy="Pass only one of them",
        )
    if version is not None and (type(version) is not int or version < 0):
        raise InvalidInputError(
            argument=f"{name}_version", reason=f"{version!r} is no whole number from 0"
        )
    return version, None if moment is None else parse_timestamp(moment)


def _starting(store: Store, snapshot: Snapshot, version: int | None, moment_ms: int | None) -> int:
    if moment_ms is not None:
        return version_from(store, snapshot, moment_ms)
    return version or 0


def _ending(store: Store, snapshot: Snapshot, version: int | None, moment_ms: int | None) -> int:
    if moment_ms is not None:
        return version_until(store, snapshot, moment_ms)
    return snapshot.version if version is None else version
