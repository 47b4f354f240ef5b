"""The file actions of a large log file, read by Arrow from JSON straight into columns. Pure.

A commit of ten thousand files is megabytes of JSON in which all lines look alike. Arrow's own JSON
reader turns them into columns on several cores, and no line becomes a Python object. For example,

    {"commitInfo":{…}}                                       ← an object, by `orjson`
    {"add":{"path":"a","partitionValues":{"p":"1"},…}}       ← a row
    {"add":{"path":"b","partitionValues":{"p":null},…}}      ← a row

Arrow needs the names of `partitionValues` and `tags` in advance: they come from the first and the
last line. Arrow does not distinguish an absent name from a null, so lines with a null are checked
again. If anything does not fit, the result is None and not an error. Then the slower functions
(`ndjson.rows`, `columns.decode_rows`) read the file or raise the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.actions.columns import (
    DELETION_VECTOR,
    FIELDS,
    FILE_ROWS,
    MAPS,
    STRING_MAP,
    UNREADABLE,
    VECTOR_REQUIRED,
    require_fields,
    vector_ids,
)
from txlog.actions.ndjson import rows
from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.base.columns import flat
from txlog.base.errors import LogCorruptError
from txlog.base.text_bytes import WORD_BYTES, places_of, words_of
from txlog.base.thresholds import Threshold

_BLOCK_BYTES: Threshold = 1 << 20  # The bytes that one core reads at a time.
# The most lines of other actions; each of them splits the file actions into one more piece.
_MOST_OTHERS: Threshold = 64
_STARTS = (b'{"add"', b'{"remov')  # The length of a line's first word, without its spaces.

Object = dict[str, Any]


def decode_large(data: bytes, *, version: int) -> tuple[pa.Table, list[Object]] | None:
    """Return the file actions of a log file as `FILE_ROWS`, and its other actions as objects.

    Parameters
    ----------
    data
        The bytes of the file.
    version
        The version of the log file.

    Returns
    -------
    None if the file is not plain enough or is damaged: then use `ndjson.rows` and `decode_rows`.
    """
    try:
        if b"\0" in data:  # Arrow's reader takes this byte for the end of the text.
            return None
        if not data.isascii():
            _require_utf8(data)
        lines = _Lines.of(data)
        others = lines.others()
        segments = list(lines.segments())
        if not segments or len(others) > _MOST_OTHERS:
            return None
        samples = lines.samples()
        bodies = {
            kind: some
            for kind in ("add", "remove")
            if (some := [body for row in samples if (body := row.get(kind))])
        }
        types = pa.schema({kind: _struct_of(some) for kind, some in bodies.items()})
        table = pa.concat_tables([lines.read(*segment, types) for segment in segments])
        if set(table.column_names) != set(bodies):
            return None
        made = pa.concat_tables([_file_rows(table, kind, version, lines) for kind in bodies])
    except (*UNREADABLE, LogCorruptError):
        return None
    return (made, others) if made.num_rows == table.num_rows else None


def _require_utf8(data: bytes) -> None:
    """Raise if bytes are not UTF-8. Decoding them would take ten times as long."""
    offsets = pa.py_buffer(np.array([0, len(data)], np.int64))
    pa.LargeStringArray.from_buffers(1, offsets, pa.py_buffer(data)).validate(full=True)


@dataclass(frozen=True)
class _Lines:
    """The start and end of each line of a log file that is not empty."""

    data: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    are_files: NDArray[np.bool_]  # Which lines begin as file actions do.

    @classmethod
    def of(cls, data: bytes) -> _Lines:
        characters = np.frombuffer(data, np.uint8)
        breaks = places_of(characters, ord("\n"))
        starts = np.concatenate([np.zeros(1, np.int64), breaks + 1])
        ends = np.append(breaks, len(data))
        whole = ends - starts >= WORD_BYTES
        short = np.flatnonzero(~whole)
        blank = [at for at in short.tolist() if not data[starts[at] : ends[at]].strip()]
        starts, ends, whole = (np.delete(array, blank) for array in (starts, ends, whole))
        words = words_of(characters)[np.where(whole, starts, 0)]
        named = [word for word in np.unique(words) if _begins_a_file(word.tobytes())]
        return cls(data, starts, ends, np.isin(words, np.array(named, np.uint64)) & whole)

    def object_at(self, line: int) -> Object:
        """Return the object of one line."""
        found = rows(self.data[self.starts[line] : self.ends[line]], path="")
        if len(found) != 1:
            raise ValueError("a line is not one object")
        return found[0]

    def others(self) -> list[Object]:
        """Return the objects of all lines that are not file actions. Raise if too many."""
        lines = np.flatnonzero(~self.are_files)[: _MOST_OTHERS + 1].tolist()
        rows = [self.object_at(line) for line in lines]
        if any("add" in row or "remove" in row for row in rows):
            raise ValueError("a file action does not begin like the others")
        return rows

    def samples(self) -> list[Object]:
        """Return the first and the last object of each kind of file action."""
        lines = np.flatnonzero(self.are_files)
        heads = words_of(np.frombuffer(self.data, np.uint8))[self.starts[lines]]
        rows: list[Object] = []
        for head in np.unique(heads):
            alike = lines[heads == head]
            rows += [self.object_at(int(alike[0])), self.object_at(int(alike[-1]))]
        return rows

    def segments(self) -> Iterator[tuple[int, int]]:
        """Yield the runs of file action lines: the first line, and the line after the last."""
        edges = np.flatnonzero(np.diff(np.concatenate([[False], self.are_files, [False]])))
        yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)

    def read(self, first: int, end: int, kinds: pa.Schema) -> pa.Table:
        """Return the objects of a run of lines as columns, with those that Arrow adds."""
        import pyarrow.json as pj  # Only large commits need it.

        start, stop = int(self.starts[first]), int(self.ends[end - 1])
        longest = int((self.ends[first:end] - self.starts[first:end]).max())
        table = pj.read_json(
            pa.BufferReader(pa.py_buffer(self.data).slice(start, stop - start)),
            pj.ReadOptions(block_size=max(_BLOCK_BYTES, longest + 2)),
            pj.ParseOptions(explicit_schema=kinds, unexpected_field_behavior="infer"),
            # Text buffers grow during reading; the C library moves their pages without a copy.
            memory_pool=pa.system_memory_pool(),
        )
        if table.num_rows != end - first:
            raise ValueError("a line is not one object")
        return table


def _begins_a_file(word: bytes) -> bool:
    return b"".join(word.split()).startswith(_STARTS)


def _struct_of(bodies: list[Object]) -> pa.StructType:
    """Return the Arrow type of sample actions: their fields, with maps as structs.

    Each further field would cost time in each row.
    """
    fields = []
    for name in dict.fromkeys(name for body in bodies for name in body):
        if name in FIELDS:
            fields.append((name, FILE_ROWS.field(FIELDS[name]).type))
        elif name in MAPS:
            keys = dict.fromkeys(key for body in bodies for key in body.get(name) or ())
            fields.append((name, pa.struct([(key, pa.string()) for key in keys])))
        elif name == "deletionVector":
            fields.append((name, DELETION_VECTOR))
    return pa.struct(fields)


def _file_rows(table: pa.Table, kind: str, version: int, lines: _Lines) -> pa.Table:
    """Return the actions of one kind as `FILE_ROWS`."""
    actions = table[kind]
    places = np.flatnonzero(lines.are_files)
    if actions.null_count:
        places = places[numpy_array(flat(actions.is_valid()))]
        actions = actions.drop_null()
    if isinstance(actions, pa.Array):
        actions = pa.chunked_array([actions])
    names = [field.name for field in actions.type]
    fields = {
        name: values
        for name, values in zip(names, actions.flatten(), strict=True)
        if not pa.types.is_null(values.type)
    }
    count = len(actions)
    columns: dict[str, Any] = {
        "version": pa.repeat(arrow_scalar(version, pa.int64()), count),
        "is_add": pa.repeat(arrow_scalar(kind == "add"), count),
    }
    for name, column in FIELDS.items():
        target = FILE_ROWS.field(column).type
        columns[column] = (
            _of_type(fields[name], target) if name in fields else pa.nulls(count, target)
        )
    for name, column in MAPS.items():
        structs = fields.get(name)
        if structs is None:
            columns[column] = pa.nulls(count, STRING_MAP)
            continue
        columns[column] = _maps(structs)
        for place in places[np.flatnonzero(_has_null(structs))].tolist():
            body = lines.object_at(place)[kind]
            if tuple(body[name]) != tuple(field.name for field in structs.type):
                raise ValueError("a map with a null cannot be told from a map without the name")
    require_fields(columns)
    columns["data_change"] = pc.fill_null(columns["data_change"], True)
    vectors = fields.get("deletionVector", pa.chunked_array([pa.nulls(count, DELETION_VECTOR)]))
    columns["deletion_vector"], columns["dv_id"] = _vectors(vectors)
    return pa.table([columns[name] for name in FILE_ROWS.names], schema=FILE_ROWS)


def _of_type(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Return a column unchanged; raise if Arrow guessed another type for it."""
    if values.type != target:
        raise TypeError("a line has a field that the samples do not have")
    return values


def _has_null(structs: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return which structs have a null field."""
    has_null = np.zeros(len(structs), np.bool_)
    valid = numpy_array(flat(structs.is_valid()))
    for child in structs.flatten():
        if child.null_count:
            has_null |= numpy_array(flat(child.is_null())) & valid
    return has_null


def _maps(structs: pa.ChunkedArray) -> pa.Array:
    """Return structs of strings as maps with the same names; a null struct becomes a null map."""
    if any(field.type != pa.string() for field in structs.type):
        raise TypeError("a map has a name that the samples do not have")
    valid = numpy_array(flat(structs.is_valid()))
    names = [field.name for field in structs.type]
    if not valid.any():
        return pa.nulls(len(structs), STRING_MAP)
    there = flat(structs if valid.all() else structs.drop_null())
    lengths = np.where(valid, len(names), 0).astype(np.int32)
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    count = len(there)
    order = np.arange(count * len(names)).reshape(len(names), count).T.ravel()
    items = pa.concat_arrays([pa.nulls(0, pa.string()), *there.flatten()]).take(arrow_array(order))
    keys = arrow_array(names, pa.string()).take(arrow_array(np.tile(np.arange(len(names)), count)))
    mask = None if valid.all() else arrow_array(np.append(~valid, False))
    begins = arrow_array(offsets, mask=mask)
    return pa.MapArray.from_arrays(begins, keys, items)


def _vectors(structs: pa.ChunkedArray) -> tuple[Any, pa.ChunkedArray | pa.Array]:
    """Return deletion vectors and their unique ids; raise if a required field is missing."""
    if structs.null_count == len(structs):
        return pa.nulls(len(structs), DELETION_VECTOR), pa.nulls(len(structs), pa.string())
    array = flat(structs)
    parts = {field.name: _part(array, field) for field in DELETION_VECTOR}
    for name, part in parts.items():
        if name in VECTOR_REQUIRED and part.null_count > array.null_count:
            raise KeyError(name)
    vectors = pa.StructArray.from_arrays(
        list(parts.values()), fields=list(DELETION_VECTOR), mask=array.is_null()
    )
    return vectors, vector_ids(vectors)


def _part(vectors: pa.StructArray, field: pa.Field) -> pa.Array:
    """Return a field of deletion vectors, cast if Arrow guessed its type without samples."""
    if vectors.type.get_field_index(field.name) < 0:
        return pa.nulls(len(vectors), field.type)
    part = pc.struct_field(vectors, field.name)
    if part.type not in (field.type, pa.null()) and not pa.types.is_int64(part.type):
        raise TypeError(field.name)
    return part.cast(field.type)
