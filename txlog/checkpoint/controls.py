"""Whatever a checkpoint holds besides files: a few rows among many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from txlog.actions import Action, Metadata, Protocol, decode_action, rows
from txlog.checkpoint.footer import Footers
from txlog.checkpoint.opened import KEYS, REMEDY, Opened, named, opened
from txlog.errors import LogCorruptError
from txlog.log import LogFile
from txlog.store import Store, map_many

_CONTROLS = ("protocol", "metaData", "txn", "domainMetadata", "sidecar")
_ROWS_AT_ONCE = 16_384


def read_controls(
    store: Store, parts: Sequence[LogFile], footers: Footers | None = None
) -> tuple[Action, ...]:
    """Return every action of a checkpoint that is no file action, its sidecars included.

    Of Parquet, no more is read than the footer calls for.

    Raises
    ------
    LogCorruptError
        A part is missing, is no Parquet (or JSON), or an action in it breaks the protocol.
    """

    def read(part: LogFile) -> list[Action]:
        if part.name.endswith(".json"):
            with named(part.path):
                data = store.read(part.path)
            objects = rows(data, path=part.path)
            pairs = [(name, row[name]) for row in objects for name in _CONTROLS if row.get(name)]
        else:
            with opened(store, part.path, part.size, footers) as file:
                pairs = [pair for at in file.groups for pair in _group_controls(file, at)]
        found = [decode_action(name, body, path=part.path) for name, body in pairs]
        if part.name.endswith(".json"):
            _require_whole(found, part)
        return found

    return tuple(action for found in map_many(store, read, parts) for action in found)


def _group_controls(file: Opened, group: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the actions of a row group, and read no further than to the last of them."""
    left = {kind: file.actions(group, kind) for kind in _CONTROLS}
    kinds = [kind for kind, count in left.items() if count != 0]
    if not kinds:
        return
    columns = [leaf for kind in kinds for leaf in _leaves(file, group, kind)]
    for batch in file.file.iter_batches(
        _ROWS_AT_ONCE, row_groups=[group], columns=columns, use_threads=False
    ):
        for kind in kinds:
            column = batch.column(kind)
            if column.null_count == len(column):
                continue
            for body in column.filter(column.is_valid()).to_pylist(maps_as_pydicts="lossy"):
                if body.get(KEYS[kind]) is not None:  # Some writers leave structs of nulls.
                    yield kind, body
                    count = left[kind]
                    left[kind] = None if count is None else count - 1
        if all(count == 0 for count in left.values()):
            return
    if any(left.values()):
        raise pa.ArrowInvalid(f"of its actions it holds {left} fewer than its footer says")


def _leaves(file: Opened, group: int, kind: str) -> list[str]:
    """Return the columns of a kind of action that hold something.

    To skip a million nulls takes its time. What is absent and what is empty mean the same but in
    a protocol. Of a map or a list all is read, or nothing.
    """
    leaves = [leaf for leaf in file.leaves if leaf.startswith(f"{kind}.")]
    if kind == "protocol":
        return leaves
    held = {_field(leaf) for leaf in leaves if file.values(group, leaf) != 0}
    return [leaf for leaf in leaves if _field(leaf) in held]


def _field(leaf: str) -> str:
    """Return the field that a column of the file is of, or is a part of."""
    steps = leaf.split(".")
    return ".".join(steps[: 3 if steps[1] == "format" else 2])


def _require_whole(found: Sequence[Action], part: LogFile) -> None:
    """Refuse a checkpoint in JSON that was torn between two lines, as far as that shows."""
    for name, kind in (("protocol", Protocol), ("metaData", Metadata)):
        if not any(isinstance(action, kind) for action in found):
            raise LogCorruptError(
                path=part.path,
                reason=f"the checkpoint was torn: it holds no {name} action",
                remedy=REMEDY,
            )
