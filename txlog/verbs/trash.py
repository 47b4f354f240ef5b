"""List the files that a vacuum may delete, and delete them or move them to the trash."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal

import pyarrow as pa

from txlog.base.arrow import arrow_array
from txlog.base.errors import NotFoundError
from txlog.base.moments import duration_ms
from txlog.base.threads import map_all
from txlog.base.thresholds import Threshold
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.commit.operation import Operation, is_rehearsing
from txlog.data_files.change_files import FOLDER as CHANGES_FOLDER
from txlog.fragments.deletion_file import DELETIONS_FOLDER, is_deletion_file
from txlog.fragments.packs import is_pack
from txlog.fragments.rows import FEATURE
from txlog.snapshot.process import collector_paused
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import ObjectInfo, Store, is_part_of_file, map_many

DECISIONS = pa.schema(
    [
        pa.field("file", pa.string(), False),
        pa.field("bytes", pa.int64(), False),
        pa.field("modified_ms", pa.int64(), True),
        pa.field("decision", pa.string(), False),
        pa.field("reason", pa.string(), False),
    ]
)
"""A row for each file: its path below the table, its size, when it was written or removed (null:
unknown), `keep` or `delete`, and the reason."""

HOUR_MS = 3_600_000

TRASH = "_txlog_trash"  # Hidden from readers, and from the clean-ups of other engines.
_AT_ONCE: Threshold = 1000  # The number of files that one call of the store deletes.


# Temporary files that dead writers left beside log files, manifests and segments of indexes.
_TEMPORARY = re.compile(
    r"(_delta_log|_symlink_format_manifest|_txlog_index)/(.+/)?\.[^/]+"
    r"\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp"
)


def listed_files(infos: Iterable[ObjectInfo], snapshot: Snapshot) -> pa.Table:
    """Return the files below a table's root that may be its data, change or deletion files.

    Temporary files of its log are among them, and deletion files from before `txlog.fragments` was
    dropped. Packs are among them if the table has `txlog.blobs-dev`: in other tables the folder of
    packs belongs to others.
    """
    has_packs = snapshot.supports("txlog.blobs-dev")
    ours = {CHANGES_FOLDER, DELETIONS_FOLDER} if snapshot.supports(FEATURE) else {CHANGES_FOLDER}
    with collector_paused():
        kept = [
            info
            for info in infos
            # Most names are plain. For a million names, a call for each takes half a second.
            if ("/_" not in (name := info.name) and "/." not in name and name[0] not in "_.")
            or _is_visible(name, ours)
            or _TEMPORARY.fullmatch(name)
            or is_deletion_file(name)
            or (has_packs and is_pack(name))
        ]
        columns = [
            arrow_array([info.name for info in kept], pa.string()),
            arrow_array([info.size for info in kept], pa.int64()),
            arrow_array([info.modified_ms for info in kept], pa.int64()),
        ]
    return pa.table(columns, names=DECISIONS.names[:3])


def _is_visible(name: str, ours: set[str]) -> bool:
    """Return whether a vacuum may check a file: it ignores hidden files of others.

    Names that begin with `_` or `.` are hidden, except for folders of partitions.
    """
    steps = name.split("/")
    return all(
        step[0] not in "_."
        or ("=" in step and place < len(steps) - 1)
        or (not place and step in ours)
        for place, step in enumerate(steps)
    )


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
