"""Write rows as the data files of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from io import RawIOBase
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txlog.actions.file import Add
from txlog.actions.stats_text import stats_json
from txlog.base.arrow import arrow_array, pc, pq
from txlog.base.columns import gathered, nulled
from txlog.base.effects import Effects, is_rehearsing
from txlog.base.errors import InvalidInputError, tidied
from txlog.base.threads import cached_property
from txlog.base.thresholds import Threshold
from txlog.data_files.bloom_columns import BLOOM_COLUMNS, FALSE_MATCHES, bloom_columns
from txlog.data_files.nan_spans import nan_spans
from txlog.data_files.options import (
    DEFAULT,
    TARGET_FILE_BYTES,
    WriterProperties,
    encoding_errors,
    leaf_columns,
    parquet_writer,
    written_footer,
)
from txlog.data_files.sort_order import SORT_BY, in_order, sort_columns
from txlog.fragments.packs import (
    PACKS_TAG,
    head_of,
    own_packs,
    pack_of,
    packs_in,
    packs_text,
)
from txlog.log.paths import decode_path, encode_path
from txlog.protocol.form import physical_path
from txlog.protocol.mapping import in_files, parquet_schema, with_names
from txlog.protocol.properties import Properties, compatibilities, index_definitions
from txlog.schema.arrow import arrow_schema
from txlog.schema.blobs import have_pack_names, may_name_packs
from txlog.schema.types import (
    DataType,
    StructField,
    StructType,
    columns_named,
    stored_batch,
    stored_fields,
)
from txlog.stats.collect import StatsCollector, stats_leaves
from txlog.stats.partition import by_partition, partition_folder
from txlog.store.base import OpenOutput, Store, is_far

if TYPE_CHECKING:
    from txlog.lookup.segments import SegmentWriter
    from txlog.parquet.nan_bounds import Span

ROW_GROUP_ROWS: Threshold = 256 * 1024
_ROW_GROUP_BYTES: Threshold = 64 * 1024 * 1024
_BUFFERED_BYTES: Threshold = 512 * 1024 * 1024  # The buffered bytes of all open files.
_PINNED_BYTES: Threshold = 64 * 1024 * 1024  # The bytes of batches with buffered rows.
# The bytes of a file of sorted rows in memory, where they are sorted. It is at least one row group.
_SORTED_BYTES: Threshold = 256 * 1024 * 1024
_SORTED_TIMES: Threshold = 4  # So many bytes in memory have about one byte in a file.
_KEPT_BYTES: Threshold = 8 * 1024 * 1024  # Of the end of a file, for the index.
_PACK_BYTES: Threshold = 1 << 30  # The bytes of a pack from which on its data file ends.
# The number of open files; the usual limit of a process is a thousand.
_OPEN_FILES: Threshold = 200


@dataclass(frozen=True)
class FileLayout:
    """The columns, partitioning, properties and sizes of data files to write."""

    schema: StructType  # The schema of the whole table.
    partition_by: tuple[str, ...]
    properties: Properties
    target_file_bytes: int = TARGET_FILE_BYTES
    max_rows_per_file: int | None = None
    # After the table's columns: the ids and versions of moved rows. They have no statistics.
    moved: tuple[StructField, ...] = ()
    folder: str = ""  # The folder below the table's root that contains the folders of partitions.
    prefix: str = "part"  # The beginning of the names of files.
    mapping_mode: str = "none"  # The column mapping; the columns above have logical names.
    writer_properties: WriterProperties = DEFAULT
    materializes: bool = False  # Whether files also have partition columns.
    sorts: bool = True  # Whether rows get the order that the table's property declares.
    # Whether parts of indexes are written: the files have all keys of their rows, and stay.
    is_indexed: bool = field(default_factory=lambda: not is_rehearsing())

    @cached_property
    def codec(self) -> str:
        """The name of the compression of the files."""
        asked = self.writer_properties.compression
        return asked or str(self.properties.get("delta.parquet.compression.codec"))

    @cached_property
    def sort_by(self) -> tuple[str, ...]:
        """The columns by which the rows of each file are sorted, by their names in files."""
        if not self.sorts or self.properties.raw.get(SORT_BY) is None:
            return ()
        names = sort_columns(self.properties, self.schema, self.partition_by)
        columns = {one.name: one.name_in_files(self.mapping_mode) for one in self.schema.fields}
        return tuple(columns[name] for name in names)

    @cached_property
    def blobs(self) -> dict[str, int]:
        """The columns of `may_name_packs` by their names in files, with their sizes."""
        columns = {one.name: one.name_in_files(self.mapping_mode) for one in self.schema.fields}
        return {columns[name]: above for name, above in may_name_packs(self.schema).items()}

    @cached_property
    def row_schema(self) -> StructType:
        """The columns of the rows that are written."""
        return StructType((*self.schema.fields, *self.moved))

    @cached_property
    def named_schema(self) -> pa.Schema:
        """The stored columns of `row_schema`, by their names in files."""
        fields = StructType(stored_fields(self.row_schema.fields))
        return self._parquet_schema(in_files(fields, self.mapping_mode))

    @cached_property
    def parquet_schema(self) -> pa.Schema:
        """All columns of the files, in their form."""
        names = self.partition_by if self.materializes else ()
        parts = StructType(tuple(field for field in self.schema.fields if field.name in names))
        last = in_files(parts, self.mapping_mode).fields
        return self._parquet_schema(StructType((*self.file_schema.fields, *last, *self.moved)))

    def _parquet_schema(self, schema: StructType) -> pa.Schema:
        return arrow_schema(schema) if self.mapping_mode == "none" else parquet_schema(schema)

    @cached_property
    def partition_kinds(self) -> dict[str, DataType]:
        """The partition columns by their names in the log, in their order, with their types."""
        columns = {field.name: field for field in self.schema.fields}
        return {
            columns[name].name_in_files(self.mapping_mode): columns[name].type
            for name in self.partition_by
        }

    @cached_property
    def file_schema(self) -> StructType:
        """The table's columns in the files, without partition columns and columns of void."""
        return in_files(self._stored_schema, self.mapping_mode)

    @cached_property
    def _stored_schema(self) -> StructType:
        return StructType(
            stored_fields([f for f in self.schema.fields if f.name not in self.partition_by])
        )

    @cached_property
    def stats_columns(self) -> frozenset[tuple[str, ...]]:
        """The leaf columns that get bounds and null counts, by their paths in files."""
        leaves = stats_leaves(self._stored_schema, self.properties)
        if self.mapping_mode == "none":
            return frozenset(leaves)
        return frozenset(
            physical_path(self._stored_schema, path, self.mapping_mode) for path in leaves
        )


def partitioning(schema: StructType, partition_by: Iterable[str]) -> tuple[str, ...]:
    """Return the names of partition columns as the schema spells them.

    Raises
    ------
    InvalidInputError
        A column is not in the schema, is nested or named twice, or no other column is left.
    """
    columns = columns_named(schema, partition_by, argument="partition_by")
    for column in columns:
        kind = arrow_schema(StructType((column,))).field(0).type
        if pa.types.is_nested(kind) or pa.types.is_null(kind):
            raise InvalidInputError(
                argument="partition_by",
                field=column.name,
                reason=f"values of type {kind} cannot partition a table",
                remedy="Choose a column of another type",
            )
    if len(columns) == len(schema.fields):
        raise InvalidInputError(
            argument="partition_by",
            reason="all columns would be partition columns, so files would have no columns",
            remedy="Omit one of them",
        )
    return tuple(column.name for column in columns)


def write_data_files(
    store: Store, batches: Iterable[pa.RecordBatch], layout: FileLayout, *, effects: Effects
) -> list[Add]:
    """Write rows as data files and return their `add` actions, with statistics.

    Memory is bounded by a few row groups. If anything fails, the files written so far are
    deleted: nothing refers to them. When this returns, all files and their folders are durable. It
    also writes a segment of each index of the table, if possible.

    Parameters
    ----------
    batches
        Batches with the `row_schema` of `layout`; empty ones are allowed.
    """
    with store.new_files() as open_output:
        writer = _Writer(open_output, layout, effects, far=is_far(store))
        try:
            for batch in gathered(batches) if layout.partition_by else batches:
                writer.write(batch)
            adds = writer.finish()
        except BaseException:
            writer.give_up()
            raise
        if writer.segments is not None and writer.has_ends:  # Meanwhile the last files are sent.
            writer.segments.write(store, effects)
    if writer.segments is not None and not writer.has_ends:
        writer.segments.write(store, effects)
    return adds


def discard_files(store: Store, adds: Iterable[Add], *, kept: Iterable[Add] = ()) -> None:
    """Delete data files that no commit needs, with their packs; a failure is a warning.

    Parameters
    ----------
    kept
        Files of the same operation that stay: they may have taken over packs.
    """
    gone = list(adds)
    needed = {place for add in kept for place in packs_in(add.tags)}
    paths = [add.path for add in gone] + [one for one in own_packs(gone) if one not in needed]
    tidied(lambda: store.delete([decode_path(path) for path in paths]))


def discard_groups(store: Store, groups: Iterable[Iterable[Add]]) -> None:
    """Delete the data files of several tasks, for `map_all`."""
    discard_files(store, [add for adds in groups for add in adds])


class _KeptEnd(RawIOBase):
    """A file that is written, whose last bytes are kept, so that nobody has to fetch them again."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self._inner = inner
        self._parts: list[bytes] | None = None
        self._kept = 0

    def keep(self) -> None:
        """Keep what is written from now on, up to a limit."""
        self._parts = []

    @property
    def end(self) -> bytes:
        """The bytes that were kept."""
        return b"".join(self._parts or ())

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._inner.tell())

    def write(self, data: Any) -> int:
        self._inner.write(data)
        size = memoryview(data).nbytes
        if self._parts is not None:
            self._kept += size
            if self._kept > _KEPT_BYTES:
                self._parts = None
            else:
                self._parts.append(bytes(data))
        return size


@dataclass
class _OpenFile:
    """One data file being written."""

    path: str
    partition: Mapping[str, str | None]
    sink: Any
    stack: ExitStack
    stats: StatsCollector
    writer: pq.ParquetWriter | None = None  # Created with the first rows.
    buffered: list[pa.RecordBatch] = field(default_factory=list)
    buffered_rows: int = 0
    buffered_bytes: int = 0
    rows: int = 0
    nans: list[Span] = field(default_factory=list)
    packs: dict[str, None] = field(default_factory=dict)  # The logged paths of packs, in order.
    pack: Any = None  # The pack with the large values of the rows; None if there is none yet.

    def compact(self) -> None:
        """Copy the buffered rows, so that their batches can be freed."""
        if self.buffered:
            rows = pa.Table.from_batches(self.buffered)
            self.buffered = rows.take(pa.arange(0, rows.num_rows)).to_batches()


class _Writer:
    """Distributes rows over files, one open file for each partition."""

    def __init__(
        self, open_output: OpenOutput, layout: FileLayout, effects: Effects, *, far: bool
    ) -> None:
        self._open_output = open_output
        self._is_far = far
        self._layout = layout
        self._effects = effects
        self._schema = layout.parquet_schema
        self._leaves = leaf_columns(self._schema)
        asked = layout.writer_properties.max_row_group_size
        self._row_group_rows = (
            asked or layout.properties.get("txlog.rowGroupRows") or ROW_GROUP_ROWS
        )
        self._open: dict[tuple[str | None, ...], _OpenFile] = {}
        self._pinned_bytes = 0  # The bytes of batches of which buffered rows may be slices.
        self._adds: list[Add] = []
        self.segments = _segments(layout)
        self.has_ends = self._is_far  # Whether the segments need not read the files.

    def write(self, batch: pa.RecordBatch) -> None:
        batch = stored_batch(_filled(batch), self._layout.row_schema)
        if self._layout.mapping_mode != "none":
            batch = with_names(batch, self._layout.named_schema)
        self._pinned_bytes += batch.nbytes
        kinds = self._layout.partition_kinds
        kept = self._schema.names if self._layout.materializes else None
        parts = by_partition(batch, kinds, columns=kept) if kinds else [((), batch)]
        for values, part in parts:
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

    def give_up(self) -> None:
        for file in self._open.values():
            # After an error in the block, the store leaves no file.
            file.stack.__exit__(RuntimeError, RuntimeError("discarded"), None)
        self._open.clear()

    def _file(self, values: tuple[str | None, ...]) -> _OpenFile:
        file = self._open.pop(values, None)
        if file is not None:
            self._open[values] = file  # Now the most recently used.
            return file
        if len(self._open) >= _OPEN_FILES:
            self._close(next(iter(self._open)))
        partition = dict(zip(self._layout.partition_kinds, values, strict=True))
        name = f"{self._layout.prefix}-{self._effects.uuid()}.{self._layout.codec}.parquet"
        folder = partition_folder(partition) if partition else ""
        path = "/".join(filter(None, (self._layout.folder, folder, name)))
        stack = ExitStack()
        sink = stack.enter_context(self._open_output(path))
        if self._is_far and self.segments is not None:
            sink = _KeptEnd(sink)
        only = self._layout.stats_columns
        stats = StatsCollector(self._layout.file_schema, indexed=-1, only=only)
        opened = _OpenFile(path, partition, sink, stack, stats)
        self._open[values] = opened
        return opened

    def _append(
        self, values: tuple[str | None, ...], file: _OpenFile, part: pa.RecordBatch
    ) -> None:
        if self._layout.blobs:
            part = self._packed(file, part)
        file.buffered.append(part)
        file.buffered_rows += part.num_rows
        file.buffered_bytes += part.nbytes
        sorts = bool(self._layout.sort_by)
        if sorts and file.buffered_bytes >= min(
            _SORTED_BYTES, _SORTED_TIMES * self._layout.target_file_bytes
        ):
            self._close(values)
            return
        if not sorts and (
            file.buffered_rows >= self._row_group_rows or file.buffered_bytes >= _ROW_GROUP_BYTES
        ):
            self._flush(file)
        limit = self._layout.max_rows_per_file
        full = limit is not None and file.rows + file.buffered_rows >= limit
        most = max(_PACK_BYTES, self._layout.target_file_bytes)
        large = file.pack is not None and file.pack.tell() >= most
        if full or large or file.sink.tell() >= self._layout.target_file_bytes:
            self._close(values)

    def _packed(self, file: _OpenFile, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows whose large values are in the pack of their file."""
        columns = rows.columns
        for place, name in enumerate(rows.schema.names):
            if name in self._layout.blobs:
                columns[place] = self._packed_column(file, columns[place], self._layout.blobs[name])
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema)

    def _packed_column(self, file: _OpenFile, blobs: pa.StructArray, above: int) -> pa.Array:
        path, offset, size, data = blobs.flatten()
        named = path.filter(pc.and_(path.is_valid(), data.is_null()))
        # A struct of a column that is no blob may name anything.
        for carried in pc.unique(named.filter(have_pack_names(named))).to_pylist():
            file.packs.setdefault(carried)
        large = pc.fill_null(pc.greater(pc.binary_length(data), above), False)
        values = data.filter(large)
        if not len(values):
            return blobs
        own = pack_of(encode_path(file.path))
        if file.pack is None:
            file.pack = file.stack.enter_context(self._open_output(decode_path(own)))
            file.packs.setdefault(own)
        starts = []
        for value in values:
            buffer = value.as_buffer()
            file.pack.write(head_of(buffer))
            starts.append(file.pack.tell())
            file.pack.write(buffer)
        children = [
            pc.if_else(large, own, path),
            pc.replace_with_mask(offset, large, arrow_array(starts, pa.int64())),
            size,
            nulled(data, large),
        ]
        mask = blobs.is_null() if blobs.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(blobs.type), mask=mask)

    def _flush(self, file: _OpenFile) -> None:
        """Write the buffered rows as one row group; those of a sorted file as all of its groups."""
        if not file.buffered_rows:
            return
        table = pa.Table.from_batches(file.buffered, schema=self._schema)
        if self._layout.sort_by:
            table = in_order(table, self._layout.sort_by)
        with encoding_errors(self._layout.writer_properties):
            if file.writer is None:
                file.writer = self._parquet_writer(file, table)
            file.writer.write_table(table, row_group_size=self._row_group_rows)
        file.nans += nan_spans(table, file.rows, self._row_group_rows)
        file.stats.update(table)
        if self.segments is not None:
            self.segments.add(encode_path(file.path), table)
        file.rows += file.buffered_rows
        file.buffered.clear()
        file.buffered_rows = file.buffered_bytes = 0

    def _parquet_writer(self, file: _OpenFile, rows: pa.Table) -> pq.ParquetWriter:
        layout = self._layout
        schema = layout.schema
        named = partial(physical_path, schema, mode=layout.mapping_mode)
        page_rows = layout.properties.get("txlog.pageRows")
        arguments = layout.writer_properties.arguments(layout.codec, self._leaves, rows, named)
        arguments["store_decimal_as_integer"] = bool(compatibilities(layout.properties.raw))
        asked = {
            "max_rows_per_page": ("txlog.pageRows", "limit the rows of a page", page_rows),
            "bloom_filter_options": (
                BLOOM_COLUMNS, "write Bloom filters", self._bloom_filters(rows.num_rows)
            ),
        }  # fmt: skip
        ours = {
            name: one for name, one in asked.items() if one[2] is not None and name not in arguments
        }
        arguments |= {name: value for name, (_, _, value) in ours.items()}
        try:
            return parquet_writer(file.sink, self._schema, **arguments)
        except TypeError as error:
            refused = [one for name, one in ours.items() if name in str(error)]
            if not refused:
                raise
            raise InvalidInputError(
                argument="properties",
                field=refused[0][0],
                reason=f"pyarrow {pa.__version__} cannot {refused[0][1]}",
                remedy="Install a newer pyarrow, or unset the property",
            ) from error

    def _bloom_filters(self, rows: int) -> dict[str, dict[str, float]] | None:
        """Return the options of filters of the columns that the table's property names."""
        layout = self._layout
        if layout.properties.raw.get(BLOOM_COLUMNS) is None:
            return None
        names = [
            one.name_in_files(layout.mapping_mode)
            for one in bloom_columns(layout.properties, layout.schema, layout.partition_by)
        ]
        options = {"ndv": max(1, min(rows, self._row_group_rows)), "fpp": FALSE_MATCHES}
        return {name: options for name in names if name in self._leaves} or None

    def _bound_memory(self) -> None:
        buffered = sum(file.buffered_bytes for file in self._open.values())
        if buffered > _BUFFERED_BYTES:
            if self._layout.sort_by:
                self.finish()
            for file in self._open.values():
                self._flush(file)
            buffered = 0
        if not buffered:
            self._pinned_bytes = 0
        elif self._pinned_bytes > 2 * buffered + _PINNED_BYTES:
            for file in self._open.values():
                file.compact()
            self._pinned_bytes = buffered

    def _close(self, values: tuple[str | None, ...]) -> None:
        file = self._open[values]
        self._flush(file)
        assert file.writer is not None  # Files are opened only if there are rows.
        if isinstance(file.sink, _KeptEnd):
            file.sink.keep()
        file.writer.close()
        if file.nans:
            from txlog.parquet.nan_bounds import footer_end  # Few files have NaN.

            file.sink.write(footer_end(written_footer(file.writer), file.nans))
        size = file.sink.tell()
        del self._open[values]
        file.stack.close()
        if self.segments is not None:
            end = file.sink.end if isinstance(file.sink, _KeptEnd) else b""
            self.has_ends = self.has_ends and bool(end)
            self.segments.close(encode_path(file.path), size, end)
        self._adds.append(
            Add(
                path=encode_path(file.path),
                partition_values=dict(file.partition),
                size=size,
                modification_time=self._effects.now_ms(),
                data_change=True,
                stats=stats_json(file.stats.finish()),
                tags={PACKS_TAG: packs_text(file.packs)} if file.packs else None,
            )
        )


def _segments(layout: FileLayout) -> SegmentWriter | None:
    """Return the writer of runs of the files; None without an index or a table."""
    found = index_definitions(layout.properties.raw)
    if not found or not layout.is_indexed or layout.folder.startswith("_"):
        return None
    from txlog.lookup.segments import SegmentWriter

    return SegmentWriter(list(found.values()), layout.file_schema)


def _filled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with values in NOT NULL fields of null structs.

    Parquet needs a value there.
    """
    arrays = [_without_nulls_below(array) for array in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _without_nulls_below(array: pa.Array) -> pa.Array:
    """Return an array of which no NOT NULL field of a struct is null; it is itself if none was."""
    kind: Any = array.type
    if not pa.types.is_nested(kind):
        return array
    mask = pc.is_null(array) if array.null_count else None
    if pa.types.is_struct(kind):
        stored = [array.field(place) for place in range(kind.num_fields)]
        children = [_without_nulls_below(child) for child in stored]
        for place, field in enumerate(kind):
            if not field.nullable and children[place].null_count:
                children[place] = pc.coalesce(children[place], _any_value(field.type))
        if all(one is other for one, other in zip(stored, children, strict=True)):
            return array
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_list(kind) and pa.types.is_nested(kind.value_type):
        array = pa.concat_arrays([array]) if array.offset else array
        below = array.values
        values = _without_nulls_below(below)
        if values is below:
            return array
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=mask)
    if pa.types.is_map(kind) and pa.types.is_nested(kind.item_type):
        array = pa.concat_arrays([array]) if array.offset else array
        below = array.items
        items = _without_nulls_below(below)
        if items is below:
            return array
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=kind, mask=mask)
    return array


def _any_value(kind: pa.DataType) -> pa.Scalar:
    """Return a placeholder of a type: the value that Arrow itself writes below a null struct."""
    return arrow_array([None], pa.struct([pa.field("value", kind, False)])).field(0)[0]
