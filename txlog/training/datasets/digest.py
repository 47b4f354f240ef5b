"""The digest of a commit: a hash of its rows, independent of files and batches.

Rules: spec/datasets.md, DST-30 to DST-33.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import numpy_array, pc
from txlog.base.thresholds import Threshold
from txlog.extend import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    type_name,
)
from txlog.training.datasets.events import canonical

_STEP: Threshold = 1 << 20  # The number of rows that are hashed at once.
_NESTED = {StructType: "struct", ArrayType: "array", MapType: "map"}
_TEXTS = ("string", "binary")


class Digest:
    """The digest of batches of rows, in the columns and types of a table.

    Each column, and each part of a nested column, has its own hashes. So no rows are kept, and the
    sizes of batches have no effect.
    """

    def __init__(self, fields: Iterable[StructField]) -> None:
        self.rows = 0
        self._fields = tuple(fields)
        self._nodes: dict[tuple[str, ...], _Node] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; columns are found by their names, and other columns are ignored."""
        self.rows += batch.num_rows
        for field in self._fields:
            self._take((field.name,), field.type, batch.column(field.name))

    def result(self) -> str:
        """Return 64 hex digits."""
        whole = sha256(f"{self.rows}\n".encode())
        for path in sorted(self._nodes):
            whole.update(self._nodes[path].line(path))
        return whole.hexdigest()

    def _take(self, path: tuple[str, ...], kind: DataType, array: pa.Array) -> None:
        node = self._nodes.get(path)
        if node is None:
            node = self._nodes[path] = _Node(_NESTED.get(type(kind)) or type_name(kind))
        node.take_validity(array)
        match kind:
            case StructType(fields):
                # The children from `flatten` are null where the struct is null.
                for field, child in zip(fields, array.flatten(), strict=True):
                    self._take((*path, field.name), field.type, child)
            case ArrayType(element):
                node.take_lengths(array)
                self._take((*path, "element"), element, array.flatten())
            case MapType(key, value):
                entries = _as_list(array)
                node.take_lengths(entries)
                keys, values = entries.flatten().flatten()
                self._take((*path, "key"), key, keys)
                self._take((*path, "value"), value, values)
            case PrimitiveType(name) if name in _TEXTS:
                node.take_bytes(array)
            case PrimitiveType("variant"):
                for name, child in zip(("metadata", "value"), array.flatten(), strict=True):
                    self._take((*path, name), PrimitiveType("binary"), child)
            case _:
                node.take_values(array)


class _Node:
    """The hashes of one column, or of a part of a nested one."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._rows = self._nulls = 0
        self._validity = sha256()  # One byte for each row. It stays empty until the first null.
        self._lengths = sha256()
        self._values = sha256()

    def line(self, path: tuple[str, ...]) -> bytes:
        """Return the parts of a column's digest; nothing if there is no value."""
        if self._rows == self._nulls:
            return b""  # A column that was added later does not change older commits.
        hashes = [self._values.hexdigest(), self._lengths.hexdigest()]
        validity = self._validity.hexdigest() if self._nulls else None
        facts = [list(path), self._kind, self._rows, validity, *hashes]
        return canonical(facts).encode() + b"\n"

    def take_validity(self, array: pa.Array) -> None:
        if array.null_count:
            if not self._nulls:
                for start in range(0, self._rows, _STEP):
                    self._validity.update(b"\1" * min(_STEP, self._rows - start))
            self._nulls += array.null_count
            self._validity.update(numpy_array(array.is_valid()).view(np.uint8))
        elif self._nulls:
            self._validity.update(b"\1" * len(array))
        self._rows += len(array)

    def take_lengths(self, lists: pa.Array) -> None:
        lengths = pc.fill_null(pc.list_value_length(lists), 0)
        self._lengths.update(_little(numpy_array(lengths).astype(np.int64)))

    def take_bytes(self, texts: pa.Array) -> None:
        if texts.null_count:  # Arrow may store values where the array is null.
            texts = pc.fill_null(texts, "" if pa.types.is_string(texts.type) else b"")
        if len(texts) == 0:
            return
        _, offsets, data = texts.buffers()
        ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
        self._lengths.update(_little(np.diff(ends.astype(np.int64))))
        if data is not None:
            self._values.update(memoryview(data)[int(ends[0]) : int(ends[-1])])

    def take_values(self, array: pa.Array) -> None:
        if pa.types.is_null(array.type):
            return
        if pa.types.is_boolean(array.type):
            self._values.update(numpy_array(pc.fill_null(array, False)).view(np.uint8))
            return
        width = array.type.bit_width // 8
        buffer = array.buffers()[1]
        if len(array) == 0 or buffer is None:
            return
        start = array.offset * width
        numbers = np.frombuffer(buffer, np.uint8, len(array) * width, start)
        if array.null_count:
            numbers = numbers.reshape(-1, width) * numpy_array(array.is_valid())[:, None]
        self._values.update(np.ascontiguousarray(numbers).data)


def _little(numbers: Any) -> Any:
    return np.ascontiguousarray(numbers, dtype="<i8")


def _as_list(maps: pa.Array) -> pa.Array:
    """Return maps as lists of entries."""
    kind = maps.type
    entry = pa.struct([kind.key_field, kind.item_field])
    buffers = maps.buffers()[:2]
    entries = pa.StructArray.from_arrays([maps.keys, maps.items], fields=list(entry))
    return pa.Array.from_buffers(
        pa.list_(pa.field("entries", entry, False)),
        len(maps),
        buffers,
        maps.null_count,
        maps.offset,
        children=[entries],
    )
