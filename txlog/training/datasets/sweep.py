"""Sweep a folder of data sets: delete files that dead processes, or refused calls, have left.

Rules: spec/datasets.md, DST-28.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from txlog.base.errors import warn_caller
from txlog.extend import Store, is_older, store_now_ms
from txlog.training.datasets.aside import removals_before
from txlog.training.datasets.commands import SWEEP_MS, Sweep, is_sweep_due
from txlog.training.datasets.events import LedgerState
from txlog.training.datasets.home import Home
from txlog.training.datasets.ingest import FILES, OBJECT_PATH, STAGED
from txlog.training.datasets.ledger import require_no_rehearsal
from txlog.training.datasets.objects import damage_warned, remove, used_by_any

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_TABLE = re.compile(_UUID)
_ATTEMPT = re.compile(rf"({_UUID})/(v1[0-9a-f]{{40}})/(\d+)")


@dataclass(frozen=True)
class _Old:
    """Files that are at least a day old. A folder is included only if all of its files are."""

    staged: list[str]
    objects: set[str]
    tables: dict[str, list[str]]  # The files of each table, by its uuid.
    attempts: dict[str, list[str]]  # The files of each attempt, by its folder below `sets`.
    removals: list[str]  # Those whose processes are dead: they have set objects aside.

    def __bool__(self) -> bool:
        return bool(self.staged or self.objects or self.tables or self.attempts or self.removals)


def sweep_leftovers(home: Home) -> int:
    """Delete files older than a day to which nothing refers; return their number.

    Such files are staged files and tables of processes that died, objects of updates that were
    refused, folders of attempts that other workers took over, and objects that dead processes have
    set aside. They are deleted once a day.
    """
    require_no_rehearsal()
    now_ms = home.effects.now_ms()
    state = home.ledger.state()
    if not is_sweep_due(state, now_ms) or not (state.datasets or _has_files(home.store)):
        return 0
    store_ms = store_now_ms(home.store, f"{STAGED}/{home.effects.uuid()}")
    if not store_ms:
        warn_caller(f"{home.root} is not swept: the store has no times of files")
        return 0
    # The store sets the times of files, and the clock of this process may be ahead of its clock.
    old = _old_files(home.store, min(now_ms, store_ms) - SWEEP_MS)
    if not (state.datasets or old):
        return 0
    # If a data set is registered after this event, its table was made after the listing, or the
    # event names its table, and the registration is refused.
    state, is_mine = home.ledger.try_record(Sweep(tuple(old.tables)))
    if not is_mine:
        return 0
    names = [*old.staged, *_without_owner(state, old)]
    if names:
        home.store.delete(names)
    count = len(names)
    if old.objects or old.removals:
        with damage_warned():
            count += remove(home, old.objects - used_by_any(home), old.removals)
    return count


def _has_files(store: Store) -> bool:
    folders = (FILES, "data", "sets")
    return any(next(iter(store.list_tree(folder)), None) is not None for folder in folders)


def _old_files(store: Store, before_ms: int) -> _Old:
    is_old = partial(is_older, before_ms=before_ms)
    files = [f"{FILES}/{f.name}" for f in store.list_tree(FILES) if is_old(f.modified_ms)]
    return _Old(
        staged=[path for path in files if path.startswith(f"{STAGED}/")],
        objects={path for path in files if re.match(OBJECT_PATH, path)},
        tables=_old_folders(store, "data", _TABLE, is_old),
        attempts=_old_folders(store, "sets", _ATTEMPT, is_old),
        removals=removals_before(store, before_ms),
    )


def _old_folders(
    store: Store, root: str, pattern: re.Pattern[str], is_old: Callable[[int | None], bool]
) -> dict[str, list[str]]:
    """Return the folders below a root whose names fit and whose files are all old."""
    found: dict[str, list[str]] = {}
    young: set[str] = set()
    for file in store.list_tree(root):
        begin = pattern.match(file.name)
        if begin is None or not file.name.startswith("/", begin.end()):
            continue
        if is_old(file.modified_ms):
            found.setdefault(begin[0], []).append(f"{root}/{file.name}")
        else:
            young.add(begin[0])
    return {folder: files for folder, files in found.items() if folder not in young}


def _without_owner(state: LedgerState, old: _Old) -> list[str]:
    """Return the files of tables and attempts that the ledger does not contain."""
    known = {one.uuid: one for one in state.datasets.values()}
    names = [name for uuid, files in old.tables.items() if uuid not in known for name in files]
    for folder, files in old.attempts.items():
        uuid, version_hash, attempt = folder.split("/")
        made = known[uuid].sets.get(version_hash) if uuid in known else None
        if made is None or int(attempt) < made.attempt:
            names += files
    return names
