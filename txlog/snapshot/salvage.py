"""What is left of a table whose latest version cannot be loaded.

A damaged commit takes the versions from it to the next checkpoint with it, and no other. Rules:
spec/reconcile.md, REC-11.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from txlog.base.errors import LogCorruptError
from txlog.checkpoint.read import read_files
from txlog.log.names import LogFile
from txlog.reconcile.files import in_doubt, newer_of, overlay, untouched
from txlog.snapshot.commits import DamagedError, Replayed, read_commit, read_deltas
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import list_log, newest_sound, warn_of_damage
from txlog.snapshot.snapshot import Snapshot, advance, moved
from txlog.store.base import Store


@dataclass(frozen=True)
class Salvaged:
    """The latest version as far as sound files of the log describe it."""

    snapshot: Snapshot  # Its version is the latest; the actions of damaged commits are missing.
    opens: int  # The newest version that can be opened.
    cause: LogCorruptError  # Why the latest version cannot be loaded.


def salvaged(store: Store) -> Salvaged | None:
    """Return what is left of the latest version; None if it can be loaded."""
    sound, cause = newest_sound(store)
    return None if cause is None else _left_above(store, sound, cause)


def _left_above(store: Store, sound: Snapshot, cause: LogCorruptError) -> Salvaged:
    files = list_log(store, since=sound.version + 1)
    left, last = sound, sound.version
    for file in sorted(files, key=lambda file: file.last_version):
        last = max(last, file.last_version)
        if file.kind == "commit":
            with suppress(LogCorruptError):
                left = advance(left, [read_commit(store, file)])
    return Salvaged(moved(left, version=last), sound.version, cause)


def latest_left(store: Store) -> Snapshot:
    """Return the latest version, or what is left of it: to look for pins, and for times."""
    sound, cause = newest_sound(store)
    return sound if cause is None else _left_above(store, sound, cause).snapshot


def live_left(store: Store, snapshot: Snapshot) -> tuple[pa.Table, pa.Table]:
    """Return the live files of a version, and those of which it is unknown whether they are live.

    Both are `FILE_ROWS`. The latter are those that their last commit names twice (rule REC-5).
    """
    try:
        live = load_files(store, snapshot).live
        return live, live.slice(0, 0)
    except LogCorruptError:
        settled, doubted = in_doubt(snapshot.tail.rows)
        if not doubted.num_rows:
            raise
    base = read_files(store, snapshot.checkpoint, snapshot.sidecars, snapshot.footers)
    return overlay(untouched(base, newer_of(doubted)), settled).live, doubted


def read_sound_deltas(store: Store, files: list[LogFile]) -> Replayed:
    """Return the actions of those commits that are sound, with a warning for each other one."""
    left = list(files)
    while True:
        try:
            return read_deltas(store, left)
        except DamagedError as damage:
            warn_of_damage(damage)
            left = [file for file in left if file.name not in damage.names]
