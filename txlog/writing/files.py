"""Writing data files: batches in, `add` actions out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from txlog.actions.file import Add
from txlog.arrow import arrow_array, pc, pq
from txlog.effects import Effects
from txlog.errors import InvalidInputError, OutcomeUnknownError, TxlogError
from txlog.log.paths import decode_path, encode_path
from txlog.protocol.properties import Properties
from txlog.schema.arrow import arrow_schema
from txlog.schema.batches import gathered
from txlog.schema.types import ArrayType, DataType, StructField, StructType
from txlog.stats.collect import StatsCollector, stats_json
from txlog.store.base import Store
from txlog.writing.encoding import dictionary_columns, leaf_columns
from txlog.writing.partitions import by_partition, partition_folder

TARGET_FILE_BYTES = 128 * 1024 * 1024
ROW_GROUP_ROWS = 256 * 1024
_ROW_GROUP_BYTES = 64 * 1024 * 1024
_BUFFERED_BYTES = 512 * 1024 * 1024  # Over all open files.
_PINNED_BYTES = 64 * 1024 * 1024  # Of batches, for the sake of a few rows of theirs.
_OPEN_FILES = 200  # At once; a process may often open no more than a thousand.
_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}


@dataclass(frozen=True)
class FileLayout:
    """How a table's data files are written."""

    schema: StructType  # The whole table's.
    partition_by: tuple[str, ...]
    properties: Properties
    target_file_bytes: int = TARGET_FILE_BYTES
    max_rows_per_file: int | None = None
    # Behind the table's columns: ids and versions of rows that moved. They have no statistics.
    moved: tuple[StructField, ...] = ()

    @cached_property
    def row_schema(self) -> StructType:
        """The columns of the rows that are written."""
        return StructType((*self.schema.fields, *self.moved))

    @cached_property
    def stored_schema(self) -> StructType:
        """All columns that are in the files."""
        return StructType((*self.file_schema.fields, *self.moved))

    @cached_property
    def partition_kinds(self) -> dict[str, DataType]:
        """The partition columns, in their order, with their types."""
        kinds = {field.name: field.type for field in self.schema.fields}
        return {name: kinds[name] for name in self.partition_by}

    @cached_property
    def file_schema(self) -> StructType:
        """The table's columns that are in the files: all but the partition columns."""
        return StructType(tuple(f for f in self.schema.fields if f.name not in self.partition_by))


def check_partitioning(schema: StructType, partition_by: Sequence[str]) -> None:
    """Refuse partition columns that are not in the schema, nested, or all there is.

    Raises
    ------
    InvalidInputError
        Names the column.
    """
    for name in partition_by:
        column = next((f for f in schema.fields if f.name == name), None)
        if column is None:
            raise InvalidInputError(
                argument="partition_by",
                field=name,
                reason="the schema has no such column",
                remedy=f"Choose from {', '.join(schema.names())}",
            )
        kind = arrow_schema(StructType((column,))).field(0).type
        if pa.types.is_nested(kind) or pa.types.is_null(kind):
            raise InvalidInputError(
                argument="partition_by", field=name, reason=f"{kind} values cannot partition"
            )
    if len(set(partition_by)) != len(partition_by):
        raise InvalidInputError(argument="partition_by", reason="a column is named twice")
    if len(partition_by) == len(schema.fields):
        raise InvalidInputError(
            argument="partition_by",
            reason="all columns would be partition columns, so files would hold none",
            remedy="Leave one out",
        )


def write_data_files(
    store: Store, batches: Iterable[pa.RecordBatch], layout: FileLayout, *, effects: Effects
) -> list[Add]:
    """Write rows as data files and return their `add` actions, with statistics.

    Memory is bounded by a few row groups. If anything fails, the files written so far are
    deleted: nothing refers to them.

    Parameters
    ----------
    batches
        In the `row_schema` of `layout`, empty ones allowed.
    """
    writer = _Writer(store, layout, effects)
    try:
        for batch in gathered(batches) if layout.partition_by else batches:
            writer.write(batch)
        return writer.finish()
    except BaseException:
        writer.discard()
        raise


def discard_files(store: Store, adds: Iterable[Add]) -> None:
    """Delete data files that were written for a commit that certainly did not happen."""
    store.delete([decode_path(add.path) for add in adds])


@contextmanager
def discarding(discard: Callable[[], None]) -> Iterator[None]:
    """Discard what was written for a commit, if the commit in the `with` certainly did not happen.

    An outcome that is unknown, or an interrupt, proves nothing: the files stay then.
    """
    try:
        yield
    except OutcomeUnknownError:
        raise
    except TxlogError:
        discard()
        raise


@dataclass
class _OpenFile:
    """One data file being written."""

    path: str
    partition: Mapping[str, str | None]
    sink: Any
    stack: ExitStack
    stats: StatsCollector
    writer: pq.ParquetWriter | None = None  # Once there are rows to tell how to encode them.
    buffered: list[pa.RecordBatch] = field(default_factory=list)
    buffered_rows: int = 0
    buffered_bytes: int = 0
    rows: int = 0

    def compact(self) -> None:
        """Copy the rows that wait, so that they keep nothing else in memory."""
        if self.buffered:
            rows = pa.Table.from_batches(self.buffered)
            self.buffered = rows.take(pa.arange(0, rows.num_rows)).to_batches()


class _Writer:
    """Spreads rows over files, one open file for each partition."""

    def __init__(self, store: Store, layout: FileLayout, effects: Effects) -> None:
        self._store = store
        self._layout = layout
        self._effects = effects
        self._schema = arrow_schema(layout.stored_schema)
        self._leaves = leaf_columns(self._schema)
        self._open: dict[tuple[str | None, ...], _OpenFile] = {}
        self._pinned_bytes = 0  # Of batches that rows in buffers may be parts of.
        self._adds: list[Add] = []

    def write(self, batch: pa.RecordBatch) -> None:
        batch = _filled(batch, self._layout.row_schema)
        self._pinned_bytes += batch.nbytes
        for values, part in by_partition(batch, self._layout.partition_kinds):
            limit = self._layout.max_rows_per_file
            start = 0
            while start < part.num_rows:
                file = self._file(values)
                room = part.num_rows - start
                if limit is not None:
                    room = min(room, limit - file.rows - file.buffered_rows)
                self._append(values, file, part.slice(start, room))
                start += room
        self._bound_memory()

    def finish(self) -> list[Add]:
        for values in list(self._open):
            self._close(values)
        return self._adds

    def discard(self) -> None:
        for file in self._open.values():
            # An error in the block tells the store to leave nothing behind.
            file.stack.__exit__(RuntimeError, RuntimeError("discarded"), None)
        self._open.clear()
        discard_files(self._store, self._adds)

    def _file(self, values: tuple[str | None, ...]) -> _OpenFile:
        held = self._open.pop(values, None)
        if held is not None:
            self._open[values] = held  # Now the most recently used.
            return held
        if len(self._open) >= _OPEN_FILES:
            self._close(next(iter(self._open)))
        partition = dict(zip(self._layout.partition_by, values, strict=True))
        codec = self._layout.properties.get("delta.parquet.compression.codec")
        name = f"part-{self._effects.uuid()}.{codec}.parquet"
        folder = partition_folder(partition)
        path = f"{folder}/{name}" if folder else name
        stack = ExitStack()
        sink = stack.enter_context(_output(self._store, path))
        indexed = self._layout.properties.get("delta.dataSkippingNumIndexedCols")
        stats = StatsCollector(self._layout.file_schema, indexed=indexed)
        opened = _OpenFile(path, partition, sink, stack, stats)
        self._open[values] = opened
        return opened

    def _append(
        self, values: tuple[str | None, ...], file: _OpenFile, part: pa.RecordBatch
    ) -> None:
        file.buffered.append(part)
        file.buffered_rows += part.num_rows
        file.buffered_bytes += part.nbytes
        if file.buffered_rows >= ROW_GROUP_ROWS or file.buffered_bytes >= _ROW_GROUP_BYTES:
            self._flush(file)
        limit = self._layout.max_rows_per_file
        full = limit is not None and file.rows + file.buffered_rows >= limit
        if full or file.sink.tell() >= self._layout.target_file_bytes:
            self._close(values)

    def _flush(self, file: _OpenFile) -> None:
        """Write what is buffered as one row group."""
        if not file.buffered_rows:
            return
        table = pa.Table.from_batches(file.buffered, schema=self._schema)
        if file.writer is None:
            file.writer = self._parquet_writer(file, table)
        file.writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        file.stats.update(table)
        file.rows += file.buffered_rows
        file.buffered.clear()
        file.buffered_rows = file.buffered_bytes = 0

    def _parquet_writer(self, file: _OpenFile, rows: pa.Table) -> pq.ParquetWriter:
        codec = self._layout.properties.get("delta.parquet.compression.codec")
        return pq.ParquetWriter(
            file.sink,
            self._schema,
            compression=_CODECS.get(codec, codec),
            use_dictionary=dictionary_columns(self._leaves, rows),
            store_schema=False,
            write_page_index=True,
        )

    def _bound_memory(self) -> None:
        held = sum(file.buffered_bytes for file in self._open.values())
        if held > _BUFFERED_BYTES:
            for file in self._open.values():
                self._flush(file)
            held = 0
        if not held:
            self._pinned_bytes = 0
        elif self._pinned_bytes > 2 * held + _PINNED_BYTES:
            for file in self._open.values():
                file.compact()
            self._pinned_bytes = held

    def _close(self, values: tuple[str | None, ...]) -> None:
        file = self._open[values]
        self._flush(file)
        assert file.writer is not None  # Files are only opened for rows.
        file.writer.close()
        size = file.sink.tell()
        del self._open[values]
        try:
            file.stack.close()
        except BaseException:
            self._store.delete([file.path])
            raise
        self._adds.append(
            Add(
                path=encode_path(file.path),
                partition_values=dict(file.partition),
                size=size,
                modification_time=self._effects.now_ms(),
                data_change=True,
                stats=stats_json(file.stats.finish()),
            )
        )


def _filled(batch: pa.RecordBatch, schema: StructType) -> pa.RecordBatch:
    """Put values below null structs where a field must not be null: Parquet wants them there."""
    arrays = [
        _without_nulls_below(array, field.type)
        for array, field in zip(batch.columns, schema.fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _without_nulls_below(array: pa.Array, kind: DataType) -> pa.Array:
    mask = array.is_null() if array.null_count else None
    match kind:
        case StructType(fields) if fields:
            children = [
                _without_nulls_below(array.field(at), f.type) for at, f in enumerate(fields)
            ]
            for at, field in enumerate(fields):
                if not field.nullable and children[at].null_count:
                    children[at] = pc.coalesce(children[at], _any_value(children[at].type))
            return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)
        case ArrayType(StructType() as element):
            array = pa.concat_arrays([array]) if array.offset else array
            values = _without_nulls_below(array.values, element)
            return pa.ListArray.from_arrays(array.offsets, values, type=array.type, mask=mask)
    return array


def _any_value(kind: pa.DataType) -> pa.Scalar:
    """Return a value of a type, of no meaning: Arrow itself puts it below a null struct."""
    return arrow_array([None], pa.struct([pa.field("value", kind, False)])).field(0)[0]


def _output(store: Store, path: str) -> AbstractContextManager[Any]:
    return store.open_output(path)
