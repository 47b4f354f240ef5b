"""Whether the log in a table's place still has a version as it was read there before."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from contextlib import suppress

import pyarrow as pa

from txlog.base.columns import flat
from txlog.base.errors import CommitConflictError, LogCorruptError, NotFoundError, TxlogError
from txlog.log.names import LogFile
from txlog.reconcile.files import file_keys
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import (
    commit_at,
    is_loaded,
    list_log,
    load_snapshot,
    other_table,
    require_successor,
)
from txlog.snapshot.snapshot import Place, Snapshot
from txlog.store.base import Store


def require_in_place(store: Store, read: Snapshot) -> None:
    """Raise if another table, or an older copy, took the place of one that was read before.

    This costs one request for the commit of the version, and a listing if the store tells times
    more exactly in listings. Only if the commit is another one by now, the log is read.

    Raises
    ------
    CommitConflictError
        The log is of another table, ends below the version, or has another version in its place.
    NotFoundError
        The table was removed.
    """
    if store.ratifies or read.catalog is not None:
        return  # Commits of these may have other names.
    own = _commit_as_listed(store, read.version, read.head_ms)
    if is_loaded(own, read):
        return
    from txlog.snapshot.salvage import latest_left  # Few calls need it.

    try:
        latest = latest_left(store)
    except LogCorruptError:  # It does not say whose log it is.
        return
    if own is None and latest.version > read.version:
        return  # The commit was cleaned up, and a later version may name another id.
    require_successor(latest, read, store.root)
    require_same_version(store, read)


def found_in_place(store: Store, place: Place, known: Collection[int | None]) -> int | None:
    """Return the time of a version's commit if its table is in its place; None if it has no commit.

    Only the ids of the tables are compared. A version that was not committed yet counts, too.

    Parameters
    ----------
    known
        Results for the same place: they are not checked again.

    Raises
    ------
    CommitConflictError
        Another table took the place.
    """
    own = _commit_as_listed(store, place.version, place.made_ms)
    made_ms = None if own is None else own.modified_ms
    if made_ms == place.made_ms or made_ms in known:
        return made_ms
    with suppress(LogCorruptError, NotFoundError):  # These do not say whose log it is.
        try:
            found = load_snapshot(store, version=place.version)
        except NotFoundError:
            found = load_snapshot(store)
        cleaned = own is None and found.version > place.version
        if found.metadata.id != place.table_id and not cleaned:
            raise other_table(found.version, store.root)
    return made_ms


def _commit_as_listed(store: Store, version: int, known_ms: int | None) -> LogFile | None:
    """Return the commit of a version, or None; its time is exact enough for the known one.

    Google's store and MinIO list milliseconds, but give whole seconds for a file alone.
    """
    own = commit_at(store, version)
    if own is None or own.modified_ms is None or known_ms is None:
        return own
    is_whole = own.modified_ms % 1000 == 0
    if is_whole and 0 < abs(own.modified_ms - known_ms) < 1000:
        listed = (file for file in list_log(store, since=version) if file.name == own.name)
        return next(listed, own)
    return own


def require_same_version(store: Store, read: Snapshot, found: Snapshot | None = None) -> None:
    """Raise if the log has another version in place of one that was read from it.

    An older copy of the log may have taken its place, and others may have committed to the copy: a
    version of the same table has the same number then, and other files. A version that cannot be
    loaded again is not compared, as after a clean-up.

    Parameters
    ----------
    found
        The version as the log has it now. Default: it is loaded.

    Raises
    ------
    CommitConflictError
        The live files, columns, properties, protocol or domains of the two differ.
    """
    try:
        found = found or load_snapshot(store, version=read.version)
        is_same = _facts(found) == _facts(read) and _files(store, found).equals(_files(store, read))
    except TxlogError:
        return
    if not is_same:
        raise CommitConflictError(
            version=read.version,
            rule="CON-2",
            path=store.root,
            reason=f"version {read.version} of the log is another one than was read from it before:"
            " an older copy replaced the log, and others have committed to the copy",
            remedy="Open it again with txlog.Table, and run the operation again",
        )


def _facts(snapshot: Snapshot) -> Hashable:
    """Return the facts with which a version is read. Commits and checkpoints state them alike."""
    metadata, protocol = snapshot.metadata, snapshot.protocol
    domains = snapshot.controls.domains.values()
    return (
        metadata.id,
        metadata.schema_string,
        tuple(metadata.partition_columns),
        frozenset(metadata.configuration.items()),
        (protocol.min_reader_version, protocol.min_writer_version),
        frozenset(protocol.reader_features or ()),
        frozenset(protocol.writer_features or ()),
        frozenset((one.domain, one.configuration) for one in domains if not one.removed),
    )


def _files(store: Store, snapshot: Snapshot) -> pa.Array:
    """Return the sorted keys of the live files of a version."""
    live = load_files(store, snapshot, explains=False, checks=False).live
    return flat(file_keys(live)).sort()
