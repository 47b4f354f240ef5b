"""List the files that a vacuum may delete, and delete them or move them to the trash."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal

import pyarrow as pa

from txlog.base.arrow import arrow_array
from txlog.base.effects import is_rehearsing
from txlog.base.errors import NotFoundError
from txlog.base.moments import duration_ms
from txlog.base.threads import map_all
from txlog.base.thresholds import Threshold
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.commit.operation import Operation
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import ObjectInfo, Store, is_part_of_file, map_many
from txlog.verbs.listing import DECISIONS

HOUR_MS = 3_600_000

TRASH = "_txlog_trash"  # Hidden from readers, and from the clean-ups of other engines.
_AT_ONCE: Threshold = 1000  # The number of files that one call of the store deletes.


def hours_ms(hours: float) -> int:
    """Return the argument `retention_hours` in milliseconds.

    Raises
    ------
    InvalidTypeError, InvalidInputError
        It is not a number, is below 0, or is not a time of this world.
    """
    return duration_ms("retention_hours", hours, "hours", HOUR_MS)


def delete_files(context: Context, paths: Iterable[str]) -> None:
    """Delete files of a table with the engine, many at a time.

    All are tried; the first error is raised at the end. A rehearsal deletes nothing, because it
    does not commit the note of the deletion either.
    """
    if is_rehearsing():
        return
    _in_shares(context, partial(_deleted, context.store), paths)


def _deleted(store: Store, paths: list[str]) -> None:
    store.delete(paths)


def _in_shares(
    context: Context, function: Callable[[list[str]], None], paths: Iterable[str]
) -> None:
    remaining = iter(paths)
    # A list, so that progress knows how many there are.
    shares = [*iter(lambda: list(islice(remaining, _AT_ONCE)), [])]
    map_all(context.engine, function, shares, undo=lambda _: None)


def move_to_trash(context: Context, paths: Iterable[str]) -> None:
    """Move files of a table to its trash; none in a rehearsal."""
    if is_rehearsing():
        return
    folder = f"{TRASH}/{context.effects.now_ms()}"
    _in_shares(context, partial(_moved, context.store, f"{folder}/"), paths)


def _moved(store: Store, folder: str, paths: list[str]) -> None:
    store.move([(path, folder + path) for path in paths])


def put_back(context: Context) -> pa.Table:
    """Move the files in a table's trash back to their places; return them as `DECISIONS`.

    If the place is taken, the file stays in the trash, unless the file at its place has the first
    bytes of it: an interrupted copy has left that. If there are several files for one place, the
    one that was moved last is moved back, or a larger one of which it is a part. After a crash, a
    second call moves the rest.
    """
    store = context.store
    store.require_writable()
    infos = list(store.list_tree(TRASH))
    chosen = _chosen(store, infos)
    rows, torn = [], []
    there = map_many(store, partial(_at_home, store), infos)
    for info, at_home in zip(infos, there, strict=True):
        name = _home(info)
        if info is not chosen[name]:
            decision, reason = "keep", "the trash has another file for its place"
        elif at_home == "taken":
            decision, reason = "keep", "there is a file at its place"
        else:
            decision, reason = "restore", "it was in the trash"
            torn += [name] if at_home == "torn" else []
        rows.append((info.name, name, info.size, info.modified_ms, decision, reason))
    if not is_rehearsing():
        store.delete(torn)
        back = [row[0] for row in rows if row[4] == "restore"]
        _in_shares(context, partial(_restored, store), back)
    columns = list(zip(*(row[1:] for row in rows), strict=True)) or [()] * len(DECISIONS)
    return pa.table(
        [arrow_array(list(c), f.type) for c, f in zip(columns, DECISIONS, strict=True)],
        schema=DECISIONS,
    )


def _home(info: ObjectInfo) -> str:
    """Return the path that a file in the trash had."""
    return info.name.partition("/")[2]


def _chosen(store: Store, infos: Iterable[ObjectInfo]) -> dict[str, ObjectInfo]:
    """Return for each place the file that is moved back: the last one, but no part of another."""
    found: dict[str, ObjectInfo] = {}
    for info in sorted(infos, key=_moved_ms):
        other = found.get(_home(info))
        if other is None or not (
            info.size < other.size
            and is_part_of_file(store, f"{TRASH}/{info.name}", f"{TRASH}/{other.name}")
        ):
            found[_home(info)] = info
    return found


def _moved_ms(info: ObjectInfo) -> tuple[int, str]:
    """Return the time at which a file was moved to the trash."""
    text = info.name.partition("/")[0]
    return (int(text) if text.isdecimal() else 0), info.name


def _at_home(store: Store, info: ObjectInfo) -> Literal["free", "torn", "taken"]:
    """Return whether the place of a file is free, or has a part of it."""
    name = _home(info)
    try:
        size = store.info(name).size
    except NotFoundError:
        return "free"
    is_torn = size < info.size and is_part_of_file(store, name, f"{TRASH}/{info.name}")
    return "torn" if is_torn else "taken"


def _restored(store: Store, names: list[str]) -> None:
    store.move([(f"{TRASH}/{name}", name.partition("/")[2]) for name in names])


def empty_trash(context: Context) -> int:
    """Delete the files in a table's trash permanently; return their number."""
    context.store.require_writable()
    found = [f"{TRASH}/{info.name}" for info in context.store.list_tree(TRASH)]
    delete_files(context, found)
    return len(found)


class DeletionNote(Operation):
    """A commit that only records that files are about to be deleted, or that they are."""

    def __init__(
        self,
        name: str,
        parameters: Mapping[str, Any],
        metrics: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self._parameters = parameters
        self._metrics = metrics

    def intent(self, base: Snapshot) -> Intent:
        """Return the intent with the information."""
        return Intent(
            operation=self.name,
            kind="append",
            read_version=base.version,
            parameters=self._parameters,
            metrics=self._metrics,
        )
