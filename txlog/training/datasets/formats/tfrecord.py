"""TFRecord: files of records, each a `tf.train.Example` with named lists of values.

A record is its length, the checksum of the length, the bytes, and their checksum. The checksums
need the package `crc32c` (extra `tfrecord`). Rules: spec/datasets.md, DST-59.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, pc
from txlog.base.errors import SchemaMismatchError, TxlogError, not_installed
from txlog.training.datasets.formats.base import Chunks, Output, batched
from txlog.training.datasets.formats.samples import classes_of, has_files
from txlog.training.datasets.limits import Limits
from txlog.training.datasets.sources import SourceFile, refused

_ENDINGS = (".tfrecord", ".tfrecords")
_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_MASK = 0xA282EAD8
_VALUE_BYTES = (1 << 31) - 1
_SKIPPED_BYTES = 1 << 20
# The lists of a feature, by their numbers in the protocol buffer.
_KINDS = {1: pa.binary(), 2: pa.float32(), 3: pa.int64()}
_NUMBERS = {kind: number for number, kind in _KINDS.items()}
# What TensorFlow calls the columns of images.
_IMAGES = {"content": "image/encoded", "filename": "image/filename", "label": "image/class/label"}
_CLASS_TEXT = "image/class/text"


class TFRecord:
    """Records of examples. Each feature is a column, of lists if a record has several values."""

    name = "tfrecord"

    def is_of(self, name: str) -> bool:
        """Return whether a file has records, by its name; it may be packed by gzip."""
        return name.lower().removesuffix(".gz").endswith(_ENDINGS)

    def schema(
        self, files: Sequence[SourceFile], columns: pa.Schema | None, limits: Limits
    ) -> pa.Schema:
        """Return the features in the order of their names; it reads all records."""
        kinds: dict[str, int] = {}
        lists: set[str] = set()
        for file in files:
            for place, record in _records(file, limits):
                for name, kind, values in _features(record, place):
                    if not kind:
                        kinds.setdefault(name, 0)
                        continue
                    if kinds.get(name, 0) not in (0, kind):
                        raise SchemaMismatchError(
                            field=name,
                            reason=f"{place} has {_KINDS[kind]} values, and an earlier record has "
                            f"{_KINDS[kinds[name]]} values",
                        )
                    kinds[name] = kind
                    if len(values) != 1:
                        lists.add(name)
        if not kinds:
            raise refused(f"{files[0].name} has no record with a feature")
        known = {} if columns is None else {one.name: one.type for one in columns}
        fields = []
        for name, number in sorted(kinds.items()):
            kind = _KINDS.get(number, pa.binary())
            wanted = known.get(name)
            if wanted is not None and pa.types.is_list(wanted):
                lists.add(name)
                wanted = wanted.value_type
            if wanted == pa.string() and kind == pa.binary():
                kind = pa.string()
            fields.append(pa.field(name, pa.list_(kind) if name in lists else kind))
        return pa.schema(fields)

    def batches(
        self, files: Sequence[SourceFile], schema: pa.Schema, limits: Limits
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records in the order of the files and of the records in them."""
        yield from batched((row for file in files for row in _rows(file, schema, limits)), schema)

    def write(self, rows: pa.RecordBatchReader, out: Output) -> None:
        """Write the files `00000.tfrecord` and so on.

        Images are the features `image/encoded`, `image/filename`, `image/class/label` and
        `image/class/text`. A null is no feature.
        """
        checksum = _checksum()
        columns = _columns_of(rows.schema)
        batches = iter(rows)
        batch: pa.RecordBatch | None = next(batches, None)
        number = 0
        while number == 0 or batch is not None:
            count = size = 0
            with out.open(f"{number:05d}.tfrecord") as sink:
                while batch is not None and count < out.shard_rows and size < out.shard_bytes:
                    taken = batch.slice(0, out.shard_rows - count)
                    for record in _examples(taken, columns):
                        head = struct.pack("<Q", len(record))
                        sink.write(head + _CHECKSUM.pack(checksum(head)) + record)
                        sink.write(_CHECKSUM.pack(checksum(record)))
                        size += len(record)
                    count += taken.num_rows
                    left = batch.slice(taken.num_rows)
                    batch = left if left.num_rows else next(batches, None)
            number += 1


# Records ---------------------------------------------------------------------------------------


def _checksum() -> Callable[[Any], int]:
    """Return the function of the masked CRC-32C."""
    try:
        from crc32c import crc32c
    except ImportError as error:
        raise not_installed("tfrecord", "tfrecord", f"TFRecord needs crc32c: {error}") from error

    def masked(data: Any) -> int:
        found: int = crc32c(data)
        return ((found >> 15 | found << 17) + _MASK) & 0xFFFFFFFF

    return masked


def _records(file: SourceFile, limits: Limits) -> Iterator[tuple[str, memoryview]]:
    """Yield the records of a file, each with its place for messages; check both checksums."""
    checksum = _checksum()
    chunks = io.BufferedReader(Chunks(file))
    is_packed = file.name.lower().endswith(".gz")
    stream: Any = gzip.GzipFile(fileobj=chunks) if is_packed else chunks
    most = min(limits.total_bytes, max(file.size * limits.zip_ratio, 1 << 20))
    number = at = 0

    def damaged(wrong: str) -> Exception:
        return refused(
            f"record {number} of {file.name} {wrong} (it begins at byte {at})",
            "Copy the file again from its origin",
        )

    try:
        while True:
            number += 1
            head = stream.read(_HEADER.size)
            if not head:
                break
            if len(head) < _HEADER.size:
                raise damaged("is cut off")
            size, found = _HEADER.unpack(head)
            if checksum(head[:8]) != found:
                raise damaged("has a damaged length")
            if size > min(limits.file_bytes, _VALUE_BYTES):
                raise damaged(f"has {size} bytes, {_VALUE_BYTES} are allowed")
            if is_packed and at + size > most:
                raise refused(f"{file.name} has more than {most} bytes when unpacked")
            data = stream.read(size + _CHECKSUM.size)
            if len(data) < size + _CHECKSUM.size:
                raise damaged("is cut off")
            record = memoryview(data)[:size]
            if checksum(record) != _CHECKSUM.unpack_from(data, size)[0]:
                raise damaged("has damaged bytes")
            yield f"record {number} of {file.name}", record
            at += _HEADER.size + size + _CHECKSUM.size
        while chunks.read(_SKIPPED_BYTES):  # So that the digest is that of all bytes.
            pass
    except TxlogError:
        raise
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(f"cannot be unpacked: {error}") from error


def _rows(
    file: SourceFile, schema: pa.Schema, limits: Limits
) -> Iterator[tuple[dict[str, Any], int]]:
    types = {one.name: one.type for one in schema}
    for place, record in _records(file, limits):
        row: dict[str, Any] = {}
        for name, number, values in _features(record, place):
            if name not in types:
                raise refused(f"{file.name} was changed while it was read")
            kind = types[name]
            is_list = pa.types.is_list(kind)
            if (kind.value_type if is_list else kind) == pa.string():
                try:
                    values = [value.decode() for value in values]
                except UnicodeDecodeError as error:
                    raise SchemaMismatchError(
                        field=name, reason=f"{place} has text that is not UTF-8: {error}"
                    ) from error
            if not number:
                row[name] = None
            else:
                row[name] = values if is_list else values[0] if values else None
        yield row, len(record)


# Examples: a protocol buffer -------------------------------------------------------------------


def _features(record: memoryview, place: str) -> Iterator[tuple[str, int, list[Any]]]:
    """Yield the features of an example: the name, the number of its kind, the values.

    The kind is 0 if the feature has no list.
    """
    try:
        found = {}
        for _, features in _fields(record, {1: 2}):
            for _, entry in _fields(features, {1: 2}):
                name, feature = "", memoryview(b"")
                for field, value in _fields(entry, {1: 2, 2: 2}):
                    if field == 1:
                        name = str(value, "utf-8")
                    else:
                        feature = value
                found[name] = _list_of(feature)
    except (ValueError, IndexError, struct.error) as error:
        raise SchemaMismatchError(
            reason=f"{place} is no tf.train.Example: {error}",
            remedy="Write its records as tf.train.Example",
        ) from error
    for name, (kind, values) in found.items():
        yield name, kind, values


def _list_of(feature: memoryview) -> tuple[int, list[Any]]:
    kind = 0
    values: list[Any] = []
    for field, data in _fields(feature, dict.fromkeys(_KINDS, 2)):
        if field != kind:  # The last list of a feature counts.
            kind, values = field, []
        if kind == 1:
            values += [bytes(value) for _, value in _fields(data, {1: 2})]
            continue
        for _, packed in _fields(data, {1: (2, 5 if kind == 2 else 0)}):
            if kind == 2:
                if len(packed) % 4:
                    raise ValueError("a list of floats is cut off")
                values += np.frombuffer(packed, "<f4").tolist()
            else:
                values += _whole_numbers(packed)
    return kind, values


def _whole_numbers(packed: memoryview) -> list[int]:
    found, at = [], 0
    while at < len(packed):
        value, at = _varint(packed, at)
        found.append(value - (1 << 64) if value >> 63 else value)
    return found


def _fields(
    data: memoryview, wanted: Mapping[int, int | tuple[int, ...]]
) -> Iterator[tuple[int, memoryview]]:
    """Yield the wanted fields of a message; others are skipped.

    Parameters
    ----------
    wanted
        The wire types of each field that is wanted.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        field, kind = key >> 3, key & 7
        start = at
        if kind == 0:
            _, at = _varint(data, at)
        elif kind == 2:
            size, start = _varint(data, at)
            at = start + size
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"the wire type {kind} is unknown")
        if field == 0 or at > len(data):
            raise ValueError("a field is cut off")
        expected = wanted.get(field)
        if expected is None:
            continue
        if kind != expected and (isinstance(expected, int) or kind not in expected):
            raise ValueError(f"field {field} has the wire type {kind}")
        yield field, data[start:at]


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise ValueError("a number has more than 64 bits")
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def _bytes_of(number: int) -> bytes:
    """Return a whole number as a varint."""
    number &= (1 << 64) - 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _message(field: int, data: bytes) -> bytes:
    return _bytes_of(field << 3 | 2) + _bytes_of(len(data)) + data


# Write -----------------------------------------------------------------------------------------

Column = tuple[str, str, pa.DataType, Callable[[pa.Array], pa.Array]]
"""The column, its feature, the type of its values there, and how they become these."""


def _columns_of(schema: pa.Schema) -> list[Column]:
    is_image = has_files(schema)
    found: list[Column] = []
    for field in schema:
        kind = field.type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        is_list = is_list or pa.types.is_fixed_size_list(kind)
        part = kind.value_type if is_list else kind
        stored = _stored(part, field.name)
        name = _IMAGES.get(field.name, field.name) if is_image else field.name
        wanted = pa.list_(stored) if is_list else stored
        found.append((field.name, name, stored, partial(_cast, wanted)))
        if (classes := classes_of(schema, field.name)) is not None:
            named = arrow_array([one.encode() for one in classes], pa.binary())
            text = _CLASS_TEXT if name == _IMAGES["label"] else f"{name}/text"
            found.append((field.name, text, pa.binary(), partial(_taken, named)))
    return found


def _stored(kind: pa.DataType, column: str) -> pa.DataType:
    types = pa.types
    if types.is_boolean(kind) or (types.is_integer(kind) and not types.is_uint64(kind)):
        return pa.int64()
    if types.is_float32(kind) or types.is_float16(kind):
        return pa.float32()
    if types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind):
        return pa.binary()
    if types.is_large_binary(kind):
        return pa.binary()
    raise SchemaMismatchError(
        field=column,
        reason=f"a tf.train.Example cannot hold values of {kind}",
        remedy="Cast the column to whole numbers, float32, text or bytes, or leave it out",
    )


def _cast(wanted: pa.DataType, values: pa.Array) -> pa.Array:
    return values if values.type == wanted else values.cast(wanted)


def _taken(names: pa.Array, values: pa.Array) -> pa.Array:
    if pa.types.is_large_list(values.type) or pa.types.is_fixed_size_list(values.type):
        values = values.cast(pa.list_(values.type.value_type))
    if not pa.types.is_list(values.type):
        known = pc.and_(pc.greater_equal(values, 0), pc.less(values, len(names)))
        return names.take(pc.if_else(known, values, None))  # Without a class, there is no text.
    taken = _taken(names, values.flatten())
    counts = pc.fill_null(pc.list_value_length(values), 0)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    mask = pc.is_null(values) if values.null_count else None
    return pa.ListArray.from_arrays(arrow_array(offsets), taken, mask=mask)


def _examples(batch: pa.RecordBatch, columns: Sequence[Column]) -> Iterator[bytes]:
    made = [
        (name.encode(), _NUMBERS[kind], convert(batch[column]).to_pylist())
        for column, name, kind, convert in columns
    ]
    for row in range(batch.num_rows):
        entries = []
        for name, kind, values in made:
            value = values[row]
            if value is not None:
                feature = _message(
                    kind, _list_bytes(kind, value if isinstance(value, list) else [value])
                )
                entries.append(_message(1, _message(1, name) + _message(2, feature)))
        yield _message(1, b"".join(entries))


def _list_bytes(kind: int, values: list[Any]) -> bytes:
    if not values:
        return b""
    if None in values:
        raise SchemaMismatchError(reason="a list of a tf.train.Example cannot hold a null")
    if kind == 1:
        return b"".join(_message(1, value) for value in values)
    if kind == 2:
        return _message(1, np.array(values, "<f4").tobytes())
    return _message(1, b"".join(map(_bytes_of, values)))
