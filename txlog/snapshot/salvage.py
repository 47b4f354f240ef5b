"""What is left of a table with damaged files in its log.

A damaged commit takes the versions from it to the next checkpoint with it, and no other. Rules:
spec/reconcile.md, REC-11.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from txlog.actions.table import Metadata, Protocol
from txlog.base.errors import LogCorruptError, TxlogError, TxlogWarning
from txlog.checkpoint.read import read_files
from txlog.checkpoint.table_state import read_controls
from txlog.log.catalog import CatalogCommits
from txlog.log.names import LogFile
from txlog.log.segment import complete_checkpoints, rebuildable
from txlog.reconcile.files import in_doubt, newer_of, newest, overlay, untouched
from txlog.snapshot.commits import (
    Commit,
    DamagedError,
    Replayed,
    is_gone,
    read_commit,
    read_deltas,
    read_whole,
)
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import list_log, load_snapshot, newest_sound, warn_of_damage
from txlog.snapshot.snapshot import Snapshot, advance, moved
from txlog.store.base import Store, map_many


@dataclass(frozen=True)
class Salvaged:
    """The latest version as far as sound files of the log describe it."""

    snapshot: Snapshot  # Its version is the latest; the actions of damaged commits are missing.
    opens: int  # The newest version that can be opened.
    cause: LogCorruptError  # Why the latest version cannot be loaded.


def salvaged(store: Store) -> Salvaged | None:
    """Return what is left of the latest version. None: the version can be loaded."""
    sound, cause = newest_sound(store)
    return None if cause is None else _left_above(store, sound, cause)


def _left_above(store: Store, sound: Snapshot, cause: LogCorruptError) -> Salvaged:
    files = list_log(store, since=sound.version + 1)
    left, last = sound, sound.version
    head_ms = sound.head_ms
    for file in sorted(files, key=lambda file: file.last_version):
        if file.last_version > last:
            last, head_ms = file.last_version, None
        if file.kind == "commit":
            head_ms = file.modified_ms
            with suppress(LogCorruptError):
                left = advance(left, [read_commit(store, file)])
    return Salvaged(moved(left, version=last, head_ms=head_ms), sound.version, cause)


def latest_left(store: Store) -> Snapshot:
    """Return the latest version, or what is left of it: to look for pins, and for times."""
    sound, cause = newest_sound(store)
    return sound if cause is None else _left_above(store, sound, cause).snapshot


class LiveLeft(NamedTuple):
    """What the log says about the live files of a version. All are `FILE_ROWS`."""

    live: pa.Table
    doubted: pa.Table  # Whether these are live is unknown: their last commit names them twice.
    is_readable: bool = True  # False: they contradict each other or the protocol (REC-5, FRG-13).


def live_left(store: Store, snapshot: Snapshot) -> LiveLeft:
    """Return the live files of a version, which need not be readable."""
    try:
        live = load_files(store, snapshot).live
        return LiveLeft(live, live.slice(0, 0))
    except LogCorruptError:
        settled, doubted = in_doubt(snapshot.tail.rows)
    if not doubted.num_rows:
        return LiveLeft(load_files(store, snapshot, checks=False).live, doubted, is_readable=False)
    base = read_files(store, snapshot.checkpoint, snapshot.sidecars, snapshot.footers)
    live = overlay(untouched(base, newer_of(doubted)), settled).live
    return LiveLeft(live, doubted, is_readable=False)


def read_sound_deltas(store: Store, files: list[LogFile]) -> Replayed:
    """Return the actions of those commits that are sound, with a warning for each other one."""
    left = list(files)
    while True:
        try:
            return read_deltas(store, left)
        except DamagedError as damage:
            warn_of_damage(damage)
            left = [file for file in left if file.name not in damage.names]


class Openable(NamedTuple):
    """The versions of a log that can be opened, and why others cannot."""

    versions: list[int]  # Ascending.
    # By the names of files: the reasons why versions that the log has files for do not open.
    damage: dict[str, str]
    left_out: list[int]  # These versions, ascending.


_LISTINGS = 3  # The listings of a log that is cleaned up meanwhile.


def openable(
    store: Store,
    last: int,
    look: Callable[[Commit], object],
    *,
    files: list[LogFile],
    catalog: CatalogCommits | None = None,
) -> Openable:
    """Return the versions up to `last` that open. All commits are read.

    A checkpoint or compaction is read if a version needs it, because a commit that it replaces is
    damaged or gone.

    Parameters
    ----------
    look
        Is called with each sound commit, in the order of the versions. A large commit is without
        its file actions.
    files
        The listed files of the log.
    """
    for _ in range(_LISTINGS):
        found = _openable(store, last, look, files, catalog)
        if found is not None:
            break
        files = list_log(store, catalog=catalog)  # It was cleaned up while it was read.
    return found or Openable([], {}, [])


def _openable(
    store: Store, last: int, look: Callable[[Commit], object], files: list[LogFile],
    catalog: CatalogCommits | None,
) -> Openable | None:  # fmt: skip
    """Return the versions that open; None if a file no longer exists."""
    files = [file for file in files if file.last_version <= last]
    commits = sorted((file for file in files if file.kind == "commit"), key=lambda f: f.version)
    damage: dict[str, LogCorruptError] = {}
    doubtful: list[LogFile] = []
    for file, found in zip(commits, map_many(store, partial(_whole, store), commits), strict=True):
        if isinstance(found, LogCorruptError):
            damage[file.name] = found
            continue
        commit, is_doubtful = found
        look(commit)
        if is_doubtful or not _stands(commit):
            doubtful.append(file)
    sound = {file.version for file in commits if file.name not in damage}
    spanned: set[int] = set()  # A compaction across a checkpoint is used if the latter is damaged.
    for file in files:
        versions = range(file.version, file.last_version + 1)
        if file.kind == "compaction" and not sound.issuperset(versions):
            try:
                read_deltas(store, [file])
                spanned.update(versions)
            except DamagedError as error:
                damage[file.name] = error.cause
    _try_checkpoints(store, files, sound - spanned, damage)
    if any(map(is_gone, damage.values())):
        return None
    listed = rebuildable(files)
    opens = rebuildable([file for file in files if file.name not in damage])
    for file in doubtful:
        cause = _end_doubt(store, opens, file.version, catalog)
        if cause is not None:
            damage[file.name] = cause
    left_out = sorted(set(listed).difference(opens))
    return Openable(opens, {n: e.reason for n, e in damage.items()}, left_out)


def _stands(commit: Commit) -> bool:
    """Return whether nothing but its file actions can keep a commit's version from opening."""
    kinds = {type(action) for _, action in commit.controls}
    if commit.version == 0 and not kinds >= {Protocol, Metadata}:
        return False
    try:
        return commit.info is None or True
    except LogCorruptError:
        return False  # A version with in-commit timestamps needs it.


def _whole(store: Store, file: LogFile) -> tuple[Commit, bool] | LogCorruptError:
    try:
        return read_whole(store, file)
    except LogCorruptError as error:
        return error


def _try_checkpoints(
    store: Store, files: Sequence[LogFile], sound: set[int], damage: dict[str, LogCorruptError]
) -> None:
    """Read the checkpoints that cannot be replaced by the sound commits before them."""
    while True:
        left = complete_checkpoints(file for file in files if file.name not in damage)
        before, bad = -1, len(damage)
        for version in sorted(left):
            if sound.issuperset(range(before + 1, version + 1)):
                before = version
                continue
            try:
                read_controls(store, left[version])
                before = version
            except LogCorruptError as error:
                damage.update({part.name: error for part in left[version]})
        if len(damage) == bad:  # Else a version may have another checkpoint.
            return


def _end_doubt(
    store: Store, versions: list[int], first: int, catalog: CatalogCommits | None
) -> LogCorruptError | None:
    """Leave out the versions from `first` to the first one that opens; return why.

    The rows are unknown from a commit that names a file twice to the next one that names the file,
    or to the next checkpoint (REC-5).
    """
    found: LogCorruptError | None = None
    for version in [version for version in versions if version >= first]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TxlogWarning)
                snapshot = load_snapshot(store, version=version, catalog=catalog)
            newest(snapshot.tail.rows)
            return found
        except LogCorruptError as error:
            found = found or error
            versions.remove(version)
        except TxlogError:
            return found  # It cannot be opened for a reason that is no damage.
    return found
