"""The table state in a checkpoint: protocol, metadata, transactions, domains and sidecars. These
are a few rows among many file actions, usually in one row group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from txlog.actions.action import Action
from txlog.actions.ndjson import decode_action, rows
from txlog.actions.table import Metadata, Protocol
from txlog.base.arrow import pc
from txlog.base.errors import LogCorruptError
from txlog.base.thresholds import Threshold
from txlog.checkpoint.parquet import KEYS, REMEDY, Footers, Opened, named, opened
from txlog.log.names import LogFile
from txlog.store.base import Store, map_many

_CONTROLS = ("protocol", "metaData", "txn", "domainMetadata", "sidecar")
_ROWS_AT_ONCE: Threshold = 16_384
# A field that each action has. If it occurs once, there is one action of the kind.
_REQUIRED = (
    "protocol.minReaderVersion", "protocol.minWriterVersion", "metaData.id",
    "metaData.format.provider", "metaData.schemaString", "txn.appId", "txn.version",
    "domainMetadata.domain", "domainMetadata.configuration", "domainMetadata.removed",
    "sidecar.path", "sidecar.sizeInBytes", "sidecar.modificationTime",
)  # fmt: skip
# Only required fields, and this optional one, because no decision depends on it.
_IN_FOOTERS = {*_REQUIRED, "metaData.createdTime"}
# The protocol version from which features are listed, and the field with the list.
_LISTS = (("minReaderVersion", 3, "readerFeatures"), ("minWriterVersion", 7, "writerFeatures"))


def read_controls(
    store: Store, parts: Sequence[LogFile], footers: Footers | None = None
) -> tuple[Action, ...]:
    """Return the actions of a checkpoint that are not file actions, including sidecars.

    Columns of a Parquet file whose values are in the footer are not read.

    Raises
    ------
    LogCorruptError
        A part is missing or is not Parquet (or JSON), or an action in it breaks the protocol.
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


def _group_controls(file: Opened, group: int) -> list[tuple[str, dict[str, Any]]]:
    """Return the table state in a row group. Reading stops after the last such action."""
    counts = {kind: file.actions(group, kind) for kind in _CONTROLS}
    leaves = [leaf for leaf in file.leaves if counts.get(_kind(leaf), 0) != 0]
    present = {_field(leaf) for leaf in leaves if file.values(group, leaf) != 0}
    # Skipping a million nulls takes time. Maps and lists are read completely or not at all.
    wanted = [leaf for leaf in leaves if _field(leaf) in present]
    values_of_kinds = _footer_values(file, group, counts, wanted)
    left = [leaf for leaf in wanted if leaf not in values_of_kinds.get(_kind(leaf), ())]
    found = list(_read(file, group, counts, left))
    for kind, body in found:
        _put(body, values_of_kinds.pop(kind, {}))
    for kind, values in values_of_kinds.items():
        found.append((kind, _put({}, values)))
    if any(kind == "protocol" and _lacks_features(body) for kind, body in found):
        # Only for lists of features, an absent list differs from an empty one.
        found = list(_read(file, group, counts, leaves))
    return found


def _footer_values(
    file: Opened, group: int, counts: Mapping[str, int | None], columns: Sequence[str]
) -> dict[str, dict[str, str | int]]:
    """Return the values in the footer of actions that are the only one of their kind.

    The result is by kind, then by column. If a column of a kind must be read, so must a column that
    identifies the row.
    """
    values_of_kinds = {}
    for kind in (kind for kind, count in counts.items() if count == 1):
        mine = [leaf for leaf in columns if _kind(leaf) == kind]
        found = {
            leaf: value
            for leaf in _IN_FOOTERS.intersection(mine)
            if (value := file.only_value(group, leaf)) is not None
        }
        left = [leaf for leaf in mine if leaf not in found]
        if left and _mark(file, group, kind, left) is None:
            found.pop(f"{kind}.{KEYS[kind]}", None)
        if found:
            values_of_kinds[kind] = found
    return values_of_kinds


def _mark(file: Opened, group: int, kind: str, columns: Collection[str]) -> str | None:
    """Return the field that identifies actions of a kind, if it is in one of some columns.

    It is the key or, if the footer contains the key, another field that only this action has.
    """
    if f"{kind}.{KEYS[kind]}" in columns:
        return KEYS[kind]
    fields = [leaf for leaf in _REQUIRED if _kind(leaf) == kind and leaf.count(".") == 1]
    marks = (leaf for leaf in fields if leaf in columns and file.values(group, leaf) == 1)
    return next((leaf.split(".")[1] for leaf in marks), None)


def _put(body: dict[str, Any], values: Mapping[str, str | int]) -> dict[str, Any]:
    """Add the values of columns to an action's fields."""
    for leaf, value in values.items():
        *steps, name = leaf.split(".")[1:]
        inner = body
        for step in steps:
            inner = inner.setdefault(step, {})
        inner[name] = value
    return body


def _read(
    file: Opened, group: int, counts: Mapping[str, int | None], columns: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the actions in some columns. The footer states their number."""
    if not columns:
        return
    kinds = dict.fromkeys(map(_kind, columns))
    marks = {kind: _mark(file, group, kind, columns) for kind in kinds}
    left = {kind: counts[kind] for kind in kinds}
    file.require_bounded(group, columns)
    room = file.most_bytes
    for batch in file.file.iter_batches(
        _ROWS_AT_ONCE, row_groups=[group], columns=columns, use_threads=False
    ):
        for kind, mark in marks.items():
            column = batch.column(kind)
            if column.null_count == len(column):
                continue
            present = pc.filter(column, pc.is_valid(column))
            room -= _text_bytes(present)
            if room < 0:
                raise file.too_large()
            for body in present.to_pylist(maps_as_pydicts="lossy"):
                if (
                    body.get(mark) is not None
                ):  # Some writers write a struct of nulls instead of a null.
                    yield kind, body
                    count = left[kind]
                    left[kind] = None if count is None else count - 1
        if all(count == 0 for count in left.values()):
            return
    if any(left.values()):
        raise pa.ArrowInvalid(f"it contains {left} actions fewer than its footer says")


def _text_bytes(array: pa.Array) -> int:
    """Return the bytes of all texts in an array, each as often as it occurs."""
    kind = array.type
    if pa.types.is_struct(kind):
        return sum(map(_text_bytes, array.flatten()))
    if pa.types.is_map(kind):
        return _text_bytes(array.keys) + _text_bytes(array.items)
    if pa.types.is_list(kind):
        return _text_bytes(array.flatten())
    if pa.types.is_dictionary(kind):
        lengths = pc.take(pc.binary_length(array.dictionary), array.indices)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        lengths = pc.binary_length(array)
    else:
        return 0
    return int(pc.sum(lengths.cast(pa.int64())).as_py() or 0)


def _lacks_features(protocol: Mapping[str, Any]) -> bool:
    """Whether a protocol's versions require a list of features that is missing."""
    return any(
        (protocol.get(version) or 0) >= least and protocol.get(features) is None
        for version, least, features in _LISTS
    )


def _kind(leaf: str) -> str:
    return leaf.split(".")[0]


def _field(leaf: str) -> str:
    """Return the action's field to which a column of the file belongs."""
    steps = leaf.split(".")
    return ".".join(steps[: 3 if steps[1] == "format" else 2])


def _require_whole(found: Sequence[Action], part: LogFile) -> None:
    """Raise if a JSON checkpoint was cut off between two lines, as far as this is detectable."""
    for name, kind in (("protocol", Protocol), ("metaData", Metadata)):
        if not any(isinstance(action, kind) for action in found):
            raise LogCorruptError(
                path=part.path,
                reason=f"the checkpoint is incomplete: it contains no {name} action",
                remedy=REMEDY,
            )
