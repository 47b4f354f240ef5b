"""The files of a snapshot: all that the log says of them, or some columns, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from txlog.checkpoint import Footers, Source, Wanted, file_batches, read_files, sources_of
from txlog.errors import LogCorruptError, NotFoundError
from txlog.fragments import FEATURE, require_fragments_feature
from txlog.reconcile import FileState, Hashes, are_distinct, key_hashes, left_of, newest, overlay
from txlog.snapshot.load import load_snapshot, warn_of_damage
from txlog.snapshot.replay import DamagedError
from txlog.snapshot.snapshot import Snapshot
from txlog.store import Store

Result = TypeVar("Result")

ANYWHERE = Source("", 0)
"""Where files are that nobody knows a row group of."""

_LARGE_BYTES = 4 << 20
# To tell files apart, and to see what the protocol must list.
_ALWAYS = ("is_add", "path", "deletion_vector", "dv_id", "tags")


def load_files(store: Store, snapshot: Snapshot) -> FileState:
    """Return the live files and tombstones of a snapshot.

    A checkpoint whose files cannot be read is passed over with a `TxlogWarning`, if other files
    make it redundant.

    Raises
    ------
    LogCorruptError
        A checkpoint or sidecar is unreadable, or commits contradict themselves.
    """

    def read(current: Snapshot) -> FileState:
        base = read_files(store, current.checkpoint, current.sidecars, current.footers)
        found = overlay(base, current.tail)
        require_sound(current, found.live)
        return found

    return _from_sound_files(store, snapshot, read)


def has_large_checkpoint(snapshot: Snapshot) -> bool:
    """Return whether the checkpoint that a snapshot begins with is one to be read by columns."""
    parts = sum(part.size for part in snapshot.checkpoint)
    sidecars = sum(sidecar.size_in_bytes for sidecar in snapshot.sidecars)
    return parts + sidecars >= _LARGE_BYTES


def fold_files(
    store: Store,
    snapshot: Snapshot,
    wanted: Wanted,
    fold: Callable[[Iterator[tuple[Source | None, pa.Table]]], Result],
    sources: Sequence[Source] | None = None,
) -> Result:
    """Return what a function makes of the live files of a snapshot, of which few are held at once.

    Parameters
    ----------
    wanted
        The columns that it needs; more may come.
    fold
        Gets each live file once, in batches of `FILE_ROWS` columns, in no order. With each batch
        comes the row group of the checkpoint that it is out of, `ANYWHERE`, or None for what the
        commits after it say. It may be called again, from the beginning, should a checkpoint turn
        out to be damaged.
    sources
        Of the checkpoint, those row groups alone; with `ANYWHERE` among them, all.

    Raises
    ------
    LogCorruptError
        As `load_files`.
    """

    def read(current: Snapshot) -> Result:
        if current.checkpoint == snapshot.checkpoint:
            of_this = None if ANYWHERE in (sources or ()) else sources
            return fold(_live_batches(store, current, wanted, of_this))
        # Row groups of another checkpoint say nothing to whoever asks for them next.
        batches = _live_batches(store, current, wanted, None)
        return fold((source and ANYWHERE, rows) for source, rows in batches)

    try:
        return _from_sound_files(store, snapshot, read)
    except _TwiceError:  # Perhaps: only a look at all of them tells.
        live = load_files(store, snapshot).live
        return fold(iter([(ANYWHERE, live)]))


class _TwiceError(Exception):
    """Two files of a checkpoint may be the same."""


def _live_batches(
    store: Store, snapshot: Snapshot, wanted: Wanted, sources: Sequence[Source] | None
) -> Iterator[tuple[Source | None, pa.Table]]:
    wanted = Wanted(
        (*_ALWAYS, *(name for name in wanted.columns if name not in _ALWAYS)),
        removes=False,
        bounds_of=wanted.bounds_of,
    )
    tail = newest(snapshot.tail)
    live = tail.filter(tail["is_add"])
    require_sound(snapshot, live)
    yield None, live
    if not snapshot.checkpoint:
        return
    touched = key_hashes(tail)
    seen: list[Hashes] = []
    whole = sources_of(snapshot.checkpoint, snapshot.sidecars)
    version = snapshot.checkpoint[0].version
    for source, batch in file_batches(
        store, whole if sources is None else sources, version, wanted, footers=snapshot.footers
    ):
        hashes = key_hashes(batch)
        seen.append(hashes)
        rows = left_of(batch, tail).live if np.isin(hashes, touched).any() else batch
        require_sound(snapshot, rows)
        yield source, rows
    if seen and not are_distinct(np.concatenate(seen)):
        raise _TwiceError


def _from_sound_files(
    store: Store, snapshot: Snapshot, read: Callable[[Snapshot], Result]
) -> Result:
    """Return what is read of a snapshot, by way of other files of the log if some are damaged."""
    names: list[str] = []
    current, again = snapshot, bool(snapshot.footers)
    while True:
        try:
            found = read(current)
        except LogCorruptError as error:
            if not current.checkpoint:
                raise
            if again:  # A classic checkpoint may have been written anew since it was opened.
                current, again = replace(current, footers=Footers()), False
                continue
            damage = DamagedError(current.checkpoint, error)
            names.extend(damage.names)
            try:
                current = load_snapshot(
                    store, version=snapshot.version, unusable=names, catalog=snapshot.catalog
                )
            except (LogCorruptError, NotFoundError):
                raise error from None
            warn_of_damage(damage)
        else:
            return found


def require_sound(snapshot: Snapshot, live: pa.Table) -> None:
    """Refuse live `FILE_ROWS` of a snapshot that break its protocol; errors as `load_files`.

    Without the column `partition_values`, those are not looked at.
    """
    require_fragments_feature(live, snapshot.supports(FEATURE), path=snapshot.root)
    if "partition_values" in live.column_names:
        _require_partition_values(snapshot, live)


def _require_partition_values(snapshot: Snapshot, live: pa.Table) -> None:
    if snapshot.partition_columns and live["partition_values"].null_count:
        at = live.filter(live["partition_values"].is_null())
        raise LogCorruptError(
            path=at["path"][0].as_py(),
            version=snapshot.version,
            field="partitionValues",
            reason="a file of a partitioned table has no partition values",
            remedy="The writer of this log is at fault",
        )
