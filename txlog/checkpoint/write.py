"""Write classic checkpoints, and make the rows that all kinds of checkpoints contain.

The table state (protocol, metadata, transactions, domains) has its own row group, so a reader that
needs no files reads none. In each other row group, files are sorted by partition and path. They are
sorted in the whole checkpoint, too, unless it is large and the one before it was not sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO, RawIOBase
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.actions.action import Action
from txlog.actions.columns import COLUMNS, FILE_ROWS, STRING_MAP, empty_rows, struct_of
from txlog.actions.file import Add, Remove
from txlog.actions.ndjson import BLANK, FOOTER_MARK, NAMES, sealed
from txlog.actions.table import DomainMetadata, Metadata, Protocol, Txn
from txlog.base.arrow import (
    arrow_array,
    arrow_scalar,
    empty_table,
    numpy_array,
    pc,
    pq,
    table_of_rows,
)
from txlog.base.columns import flat
from txlog.base.errors import LogCorruptError, NotFoundError, StoreError, TxlogError
from txlog.base.texts import is_unicode
from txlog.base.thresholds import Threshold
from txlog.checkpoint.file_rows import united
from txlog.checkpoint.hint import HINT_PATH, Hint, decode_hint, encode_hint
from txlog.fragments.ids import tag_texts
from txlog.fragments.packs import PACKS_TAG
from txlog.log.names import LOG_FOLDER, log_path, parse_name
from txlog.parquet.file_footer import FOOTER_END, footer_start
from txlog.reconcile.files import Controls, FileState
from txlog.schema.arrow import arrow_type
from txlog.schema.types import StructField
from txlog.stats.structs import typed_partition_values, typed_stats, with_json_stats
from txlog.store.base import Store, is_there

_NOT_OF_TOMBSTONES = {"stats", "tags"}  # The fields of `remove` that checkpoints leave out.
_TYPES: dict[str, pa.DataType] = {
    NAMES[model]: struct_of(model)
    for model in (Txn, Add, Remove, Metadata, Protocol, DomainMetadata)
}
_TYPES["remove"] = pa.struct(
    [field for field in _TYPES["remove"] if field.name not in _NOT_OF_TOMBSTONES]
)
SCHEMA = pa.schema(list(_TYPES.items()))


@dataclass(frozen=True)
class Structs:
    """What a table's checkpoints have beside the usual columns.

    They are the struct types of statistics and partition values, and the tags of removed files.
    """

    stats: pa.StructType | None = None  # From `stats_type`. None: without these structs.
    partitions: tuple[StructField, ...] = ()
    mapping_mode: str = "none"
    packs: bool = False  # Whether removed files say which packs they need (BLB-5).


def checkpoint_schema(structs: Structs | None = None) -> pa.Schema:
    """Return the schema of a checkpoint's rows."""
    if structs is None:
        return SCHEMA
    schema = SCHEMA
    if structs.packs:
        kind = pa.struct([*_TYPES["remove"], pa.field("tags", STRING_MAP)])
        schema = schema.set(schema.get_field_index("remove"), pa.field("remove", kind))
    if structs.stats is None:
        return schema
    fields = list(_TYPES["add"])
    if structs.partitions:
        names = [column.name_in_files(structs.mapping_mode) for column in structs.partitions]
        kinds = [arrow_type(column.type) for column in structs.partitions]
        fields.append(
            pa.field("partitionValues_parsed", pa.struct(list(zip(names, kinds, strict=True))))
        )
    fields.append(pa.field("stats_parsed", structs.stats))
    return schema.set(schema.get_field_index("add"), pa.field("add", pa.struct(fields)))


_ROW_GROUP: Threshold = 50_000


def checkpoint_rows(
    controls: Controls,
    states: Iterable[FileState],
    *,
    now_ms: int,
    file_retention_ms: int,
    txn_retention_ms: int | None = None,
    with_stats: bool = True,
    structs: Structs | None = None,
) -> Iterator[pa.Table]:
    """Yield the rows of a classic checkpoint, one table for each row group; some may be empty.

    Pure. The files of each of the `states` are sorted; the states of `row_group_states` have the
    size of a row group. Tombstones past their retention, removed domains and expired transactions
    are omitted. JSON statistics are omitted without `with_stats`, and structs without `structs`.
    Memory holds at most one table, one state and the tombstones.
    """
    yield control_rows(controls, now_ms=now_ms, txn_retention_ms=txn_retention_ms, structs=structs)
    gone = [empty_rows()]
    for state in states:
        for live in _in_order(state.live):
            yield _adds(live, with_stats, structs)
        tombstones = _kept_tombstones(state.tombstones, now_ms, file_retention_ms)
        if tombstones.num_rows:  # A slice of zero rows would keep the memory of the whole table.
            gone.append(tombstones)
    kept = pa.concat_tables([rows.select(FILE_ROWS.names) for rows in gone])
    yield _file_structs(kept, "remove", checkpoint_schema(structs))


def row_group_states(states: Iterable[FileState]) -> Iterator[FileState]:
    """Yield the same files in states with as many live files as a row group holds. Pure.

    The first state holds the commits after a checkpoint, as `fold_states` yields them. Its files
    are merged by path into the others, so that sorted files stay sorted.
    """
    waiting: list[pa.Table] = []
    newer: pa.Table | None = None
    for state in states:
        yield FileState(empty_rows(), state.tombstones)
        if newer is None:
            newer = _sorted(state.live)
            continue
        due = _count_up_to(newer, pc.max(state.live["path"]))
        waiting += [newer.slice(0, due), state.live]
        newer = newer.slice(due)
        while sum(rows.num_rows for rows in waiting) >= _ROW_GROUP:
            live = _sorted(united(waiting))
            yield FileState(live.slice(0, _ROW_GROUP), empty_rows())
            waiting = [live.slice(_ROW_GROUP)]
    left = [empty_rows(), *waiting, *([] if newer is None else [newer])]
    yield FileState(united(left), empty_rows())


def _sorted(rows: pa.Table) -> pa.Table:
    """Return rows sorted by path. Sorted rows are not copied."""
    order = _order(rows)
    return rows if order is None else rows.take(order)


def _order(rows: pa.Table) -> pa.Array | None:
    """Return the row numbers in the order of the paths, or None if the rows are sorted."""
    # Paths of partitioned tables begin with the partition, so one sort covers both.
    order = pc.sort_indices(rows["path"])
    return None if order.equals(pa.arange(0, len(order)).cast(order.type)) else order


def _count_up_to(rows: pa.Table, path: pa.Scalar) -> int:
    """Return how many rows have this path or one before it."""
    return int(pc.sum(pc.less_equal(rows["path"], path)).as_py() or 0)


def action_rows(
    files: FileState,
    *,
    now_ms: int,
    file_retention_ms: int,
    with_stats: bool = True,
    structs: Structs | None = None,
) -> list[pa.Table]:
    """Return the rows of files in the form of a checkpoint: live files, then tombstones."""
    schema = checkpoint_schema(structs)
    adds = [_adds(live, with_stats, structs) for live in _in_order(files.live)]
    gone = _kept_tombstones(files.tombstones, now_ms, file_retention_ms)
    return [
        pa.concat_tables(adds) if adds else empty_table(schema),
        _file_structs(gone, "remove", schema),
    ]


def _adds(live: pa.Table, with_stats: bool, structs: Structs | None) -> pa.Table:
    parsed = {} if structs is None or structs.stats is None else _parsed(live, structs)
    live = with_json_stats(live) if with_stats else _without_stats(live)
    return _file_structs(live, "add", checkpoint_schema(structs), parsed)


def _parsed(live: pa.Table, structs: Structs) -> dict[str, pa.Array]:
    found: dict[str, pa.Array] = {"stats_parsed": typed_stats(live, structs.stats)}
    if structs.partitions:
        found["partitionValues_parsed"] = typed_partition_values(
            live["partition_values"], structs.partitions, mapping_mode=structs.mapping_mode
        )
    return found


def control_rows(
    controls: Controls,
    *,
    now_ms: int,
    txn_retention_ms: int | None = None,
    structs: Structs | None = None,
) -> pa.Table:
    """Return the rows of a checkpoint that are not file actions."""
    kinds = {Protocol, Metadata, Txn, DomainMetadata}
    kept = _kept_controls(controls, now_ms, txn_retention_ms)
    rows = [{NAMES[type(action)]: action.to_json()} for action in kept if type(action) in kinds]
    try:
        return table_of_rows(rows, checkpoint_schema(structs))
    except UnicodeEncodeError as error:
        raise _no_text(rows, error) from error


def _another_text(field: str | None) -> str:
    """Return how a field gets another text."""
    if field == "metaData.name":
        return "Give the table another name with alter.set_name"
    if field == "metaData.description":
        return "Give the table another description with alter.set_description"
    if field == "metaData.configuration":
        return "Give the property another value with alter.set_properties"
    return "Write the rows to another table with txlog.write"


def _no_text(rows: Iterable[Mapping[str, Any]], error: UnicodeEncodeError) -> LogCorruptError:
    """Return the error for an action with a text that is no UTF-8."""
    names = (
        f"{kind}.{name}"
        for row in rows
        for kind, body in row.items()
        for name, value in body.items()
        if not _is_unicode(value)
    )
    field = next(names, None)
    return LogCorruptError(
        field=field,
        reason=f"a text of the log has a lone surrogate ({error.reason}), which no Parquet file "
        "can hold, so no checkpoint can be written",
        remedy=_another_text(field),
    )


def _is_unicode(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_unicode, chain(value.keys(), value.values())))
    if isinstance(value, list | tuple):
        return all(map(_is_unicode, value))
    return not isinstance(value, str) or is_unicode(value)


@dataclass
class _Counts:
    rows: int = 0
    adds: int = 0

    def over(self, groups: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Count the rows of tables while they pass."""
        for group in groups:
            self.rows += group.num_rows
            self.adds += group.num_rows - group["add"].null_count
            yield group

    def hint(self, version: int, size: int) -> Hint:
        return Hint(version, self.rows, size_in_bytes=size, num_of_add_files=self.adds)


@dataclass(frozen=True)
class Encoded:
    """The bytes of a classic checkpoint, and the hint to it."""

    data: bytes
    hint: Hint


@dataclass(frozen=True)
class Staged:
    """A classic checkpoint that was written under a name which no reader knows."""

    path: str
    hint: Hint


def encode_checkpoint(version: int, groups: Iterable[pa.Table]) -> Encoded:
    """Encode rows as a classic checkpoint. Pure."""
    counts = _Counts()
    data = encode_groups(counts.over(groups))
    return Encoded(data, counts.hint(version, len(data)))


def stage_checkpoint(
    store: Store, version: int, groups: Iterable[pa.Table], *, uuid: str
) -> Staged:
    """Write rows as a classic checkpoint. Only one row group at a time is in memory.

    After an error nothing remains.
    """
    path = log_path(f".{_classic_name(version)}.{uuid}.tmp")
    counts = _Counts()
    with store.open_output(path) as sink:
        size = _write_groups(sink, counts.over(groups))
    return Staged(path, counts.hint(version, size))


def _classic_name(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def write_checkpoint(store: Store, found: Encoded | Staged) -> None:
    """Write a checkpoint, and point `_last_checkpoint` to it unless that is already newer."""
    path = log_path(_classic_name(found.hint.version))
    # Two checkpoints of a version have the same content.
    if isinstance(found, Encoded):
        store.replace(path, found.data)
    else:
        _unveil(store, found.path, path)
    leave_hint(store, found.hint)


def _unveil(store: Store, staged: str, path: str) -> None:
    try:
        if is_there(store, path):  # It is replaced at once: perhaps no older log can do without it.
            store.replace(path, store.read(staged))
        else:
            try:
                store.move([(staged, path)])
            except StoreError:
                if not is_there(store, path):
                    raise  # Otherwise another process has written it meanwhile.
    finally:
        with suppress(TxlogError):  # Readers ignore it.
            store.delete([staged])


def leave_hint(store: Store, hint: Hint) -> None:
    """Point `_last_checkpoint` to a checkpoint unless that is already newer."""
    try:
        latest = decode_hint(store.read(HINT_PATH))
    except NotFoundError:
        latest = None
    if (
        latest is None
        or latest.version <= hint.version
        or not _has_checkpoint(store, latest.version)
    ):
        store.replace(HINT_PATH, encode_hint(hint))


def encode_groups(groups: Iterable[pa.Table]) -> bytes:
    """Encode a checkpoint as Parquet with checksums in its pages and a seal in its footer.

    All groups have the same schema, and each one begins a row group.
    """
    sink = BytesIO()
    _write_groups(sink, groups)
    return sink.getvalue()


class _Sealing(RawIOBase):
    """A stream that keeps what is written last, so that the footer gets its seal."""

    def __init__(self, sink: Any) -> None:
        super().__init__()
        self._sink = sink
        self._size = 0
        self._last: list[bytes] | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._size += view.nbytes
        if self._last is None:
            self._sink.write(view)
        else:
            self._last.append(bytes(view))
        return view.nbytes

    def keep(self) -> None:
        """Keep what is written from now on."""
        self._last = []

    def finish(self) -> int:
        """Write the rest of the file with a seal; return the size of the file in bytes."""
        rest = b"".join(self._last or ())
        start = len(rest) - self._size + footer_start(rest[-FOOTER_END:], self._size)
        self._sink.write(rest[:start] + sealed(rest[start:], FOOTER_MARK))
        return self._size


def _write_groups(sink: Any, groups: Iterable[pa.Table]) -> int:
    """Write what `encode_groups` returns; return its size."""
    remaining = iter(groups)
    first = next(remaining)
    sealing = _Sealing(sink)
    writer = pq.ParquetWriter(
        sealing,
        first.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=["add.partitionValues.key_value.key", "add.partitionValues.key_value.value"],
        write_page_checksum=True,
    )
    writer.add_key_value_metadata({"txlog": FOOTER_MARK.decode() + BLANK})
    for group in chain([first], remaining):
        if group.num_rows:
            writer.write_table(group, row_group_size=_ROW_GROUP)
    sealing.keep()  # All row groups are written; the end of the file follows.
    writer.close()
    return sealing.finish()


def _has_checkpoint(store: Store, version: int) -> bool:
    """Return whether a checkpoint of `version` or later exists, so that its hint is useful."""
    found = (parse_name(info.name) for info in store.list_after(LOG_FOLDER, f"{version:020d}"))
    return any(file is not None and file.kind == "checkpoint" for file in found)


def _kept_controls(
    controls: Controls, now_ms: int, txn_retention_ms: int | None
) -> Iterable[Action]:
    if controls.protocol is not None:
        yield controls.protocol
    if controls.metadata is not None:
        yield controls.metadata
    for txn in controls.txns.values():
        expired = (
            txn_retention_ms is not None
            and txn.last_updated is not None
            and txn.last_updated + txn_retention_ms < now_ms
        )
        if not expired:
            yield txn
    yield from (domain for domain in controls.domains.values() if not domain.removed)


def _kept_tombstones(rows: pa.Table, now_ms: int, retention_ms: int) -> pa.Table:
    deleted_ms = rows["deletion_timestamp"]
    late = pc.greater_equal(deleted_ms, now_ms - retention_ms)
    # Writers that do not know a time omit it or write 0: then the file may be removed only now.
    kept = rows.filter(pc.fill_null(pc.or_(late, pc.less_equal(deleted_ms, 0)), True))
    return kept.set_column(kept.column_names.index("tags"), "tags", _pack_tags(kept))


def _pack_tags(rows: pa.Table) -> pa.Array:
    """Return the tags of removed files that name packs, which a vacuum keeps with them (BLB-5).

    All other tags are left out: nobody asks for them.
    """
    texts = tag_texts(rows, PACKS_TAG)
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), STRING_MAP)
    tags = [None if text is None else [(PACKS_TAG, text)] for text in texts.to_pylist()]
    return arrow_array(tags, STRING_MAP)


def _without_stats(rows: pa.Table) -> pa.Table:
    rows = rows.select([name for name in rows.column_names if name != "stats_parsed"])
    at = rows.column_names.index("stats")
    return rows.set_column(at, "stats", pa.nulls(rows.num_rows, pa.string()))


def _in_order(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield rows in the order of paths, one row group at a time."""
    order = _order(rows)
    if order is not None and rows.num_rows <= _ROW_GROUP:
        yield rows.take(order)  # Column by column, so that only one of them is copied twice.
        return
    batches = rows.to_batches()
    for start in range(0, rows.num_rows, _ROW_GROUP):
        if order is None:
            yield rows.slice(start, _ROW_GROUP)
        else:
            yield _taken(batches, order.slice(start, _ROW_GROUP))


def _taken(batches: Sequence[pa.RecordBatch], rows: pa.Array) -> pa.Table:
    """Return the rows with the given numbers, in their order, without copying other rows."""
    places = pc.sort_indices(rows)  # Each batch then takes its own rows with one call.
    stored = rows.take(places)
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    ends = np.searchsorted(numpy_array(stored), starts)
    found = pa.Table.from_batches(
        [
            batch.take(pc.subtract(stored[first:last], int(start)))
            for batch, start, first, last in zip(batches, starts, ends, ends[1:], strict=False)
            if first < last
        ]
    )
    found = found.combine_chunks()  # The parts are freed before the next copy.
    return found.take(pc.sort_indices(places))


def _file_structs(
    rows: pa.Table, name: str, schema: pa.Schema, parsed: Mapping[str, pa.Array] | None = None
) -> pa.Table:
    kind = schema.field(name).type
    rows = rows.combine_chunks()
    count = rows.num_rows
    children = []
    for field in kind:
        if parsed and field.name in parsed:
            children.append(parsed[field.name])
            continue
        column = flat(rows[COLUMNS[field.name]])
        if field.name == "dataChange":
            column = pa.repeat(arrow_scalar(False), count)
        children.append(column.cast(field.type))
    structs = pa.StructArray.from_arrays(children, fields=list(kind))
    return pa.table(
        [structs if field.name == name else pa.nulls(count, field.type) for field in schema],
        schema=schema,
    )
