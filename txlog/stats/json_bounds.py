"""Statistics of files as bounds, from the JSON texts of the log. Pure.

What can be read off the bytes is not parsed (`json_texts`); the rest is. Whatever is missing, odd
or unparsable is unknown, never an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from txlog.arrow import arrow_array, pc
from txlog.schema.batches import gathered
from txlog.schema.types import DataType, StructType
from txlog.stats.bounds import EVERYTHING, Bounds, ColumnBounds, Known, Path, value_at
from txlog.stats.haystack import Mask
from txlog.stats.json_texts import NAMES, Found, Texts
from txlog.stats.json_values import plain_values
from txlog.stats.read import Reader, bound_type, kind_of, readers, typed, without_contradictions

_FEW = 64
"""So few texts are parsed at once."""
_MANY = 16 * 1024
"""So many are looked at together, where they come in smaller pieces."""


def json_counts(stats: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the number of rows that JSON statistics state; null where they do not."""
    nothing = pa.nulls(0, pa.int64())
    return pa.concat_arrays([nothing, *(_counts_of(texts) for texts in _parts(stats))])


def _counts_of(texts: pa.Array) -> pa.Array:
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), pa.int64())
    return _Documents(texts, plain=True).rows


def _parts(stats: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """Yield texts in pieces: of a large table they are more than one array can hold.

    Small ones, as commits are read in, are put together; they are not held longer than needed.
    """
    for batch in gathered(pa.table([stats], ["stats"]).to_batches(), rows=_MANY):
        yield batch["stats"]


def json_bounds(
    stats: pa.ChunkedArray,
    schema: StructType,
    paths: Sequence[Path],
    physical: Mapping[Path, Path],
    *,
    rows: pa.Array | None = None,
    known: Collection[Known] = EVERYTHING,
) -> Bounds:
    """Return the bounds that JSON statistics give.

    Parameters
    ----------
    stats
        JSON texts; null for a file without.
    schema, paths
        The table's schema, and the columns wanted, by their logical paths.
    physical
        Where each of them is in the text.
    rows
        How many rows the files have, if the caller knows.
    known
        What is asked for; all else is unknown.
    """
    if rows is None:
        asked = Known.COUNTS in known
        rows = json_counts(stats) if asked else pa.nulls(len(stats), pa.int64())
    if stats.null_count == len(stats):
        return Bounds(rows)
    plain = _names(schema).isdisjoint(NAMES)
    kinds = {path: kind for path in paths if (kind := kind_of(schema, path)) is not None}
    found: dict[Path, list[ColumnBounds]] = {path: [] for path in kinds}
    for texts in _parts(stats):
        documents = _Documents(texts, plain)
        for path, kind in kinds.items():
            found[path].append(documents.bounds(physical[path], kind, known))
    return Bounds(rows, {path: _joined(parts) for path, parts in found.items()})


def _joined(parts: Sequence[ColumnBounds]) -> ColumnBounds:
    return ColumnBounds(
        pa.concat_arrays([part.low for part in parts]),
        pa.concat_arrays([part.high for part in parts]),
        pa.concat_arrays([part.nulls for part in parts]),
    )


def parsed_bounds(
    stats: pa.ChunkedArray, schema: StructType, paths: Sequence[Path], physical: Mapping[Path, Path]
) -> Bounds:
    """Return what `json_bounds` does, by parsing all of each text: slow, and plain."""
    documents = [_document(text) for text in stats.to_pylist()]
    rows = arrow_array([_count(document.get("numRecords")) for document in documents], pa.int64())
    columns = {}
    for path in paths:
        kind = kind_of(schema, path)
        if kind is None:
            continue
        at = physical[path]
        low, high = readers(kind)
        columns[path] = without_contradictions(
            typed([value_at(d.get("minValues"), at) for d in documents], low, kind),
            typed([value_at(d.get("maxValues"), at) for d in documents], high, kind),
            arrow_array([_null_count(d, at) for d in documents], pa.int64()),
        )
    return Bounds(rows, columns)


@dataclass(frozen=True)
class _Documents:
    """JSON texts, each of which is parsed at most once, and only if it must be."""

    texts: pa.Array
    plain: bool  # Whether no column is called as a part of statistics is.

    @cached_property
    def rows(self) -> pa.Array:
        """How many rows the files have."""
        found = self._bytes.first("numRecords")
        counts = _counts(found)
        return self._filled(counts, found.unclear, lambda d: _count(d.get("numRecords")))

    def bounds(self, path: Path, kind: DataType, known: Collection[Known]) -> ColumnBounds:
        """Return the bounds of a column, whose path in the texts is given."""
        count = len(self.texts)
        nulls = self._nulls(path) if Known.COUNTS in known else pa.nulls(count, pa.int64())
        if Known.RANGES not in known:
            nothing = pa.nulls(count, bound_type(kind))
            return ColumnBounds(nothing, nothing, nulls)
        low, high = readers(kind)
        return without_contradictions(
            self._side("minValues", path, low, kind),
            self._side("maxValues", path, high, kind),
            nulls,
        )

    def _side(self, section: str, path: Path, read: Reader, kind: DataType) -> pa.Array:
        found = self._found(section, path)
        values = _read(found, read, kind, up=section == "maxValues")

        def parsed(document: dict[str, Any]) -> Any:
            return value_at(document.get(section), path)

        at = np.flatnonzero(found.unclear)
        if not len(at):
            return values
        more = typed([parsed(document) for document in self._parsed(at)], read, kind)
        return pc.replace_with_mask(values, arrow_array(found.unclear), more)

    def _nulls(self, path: Path) -> pa.Array:
        found = self._found("nullCount", path)
        unclear = found.unclear | self._bytes.loose
        counts = _counts(found)
        return self._filled(counts, unclear, lambda document: _null_count(document, path))

    def _found(self, section: str, path: Path) -> Found:
        # Between the quotes of two texts there is a comma or colon: such a name may be found there.
        if (
            self.plain
            and len(path) == 1
            and not set(path[0]) & set(",:")
            and len(self.texts) > _FEW
        ):
            return self._bytes.values(section, path[0])
        everything = np.ones(len(self.texts), np.bool_)
        return Found(pa.nulls(len(self.texts), pa.int64()), everything)

    def _filled(self, values: pa.Array, unclear: Mask, read: Any) -> pa.Array:
        at = np.flatnonzero(unclear)
        if not len(at):
            return values
        more = arrow_array([read(document) for document in self._parsed(at)], pa.int64())
        return pc.replace_with_mask(values, arrow_array(unclear), more)

    def _parsed(self, at: Any) -> list[dict[str, Any]]:
        missing = [row for row in at.tolist() if row not in self._kept]
        texts = self.texts.take(arrow_array(missing, pa.int64())).to_pylist()
        self._kept.update(zip(missing, map(_document, texts), strict=True))
        return [self._kept[row] for row in at.tolist()]

    @cached_property
    def _kept(self) -> dict[int, dict[str, Any]]:
        return {}

    @cached_property
    def _bytes(self) -> Texts:
        return Texts(self.texts)


def _names(schema: StructType) -> set[str]:
    """Return the names of columns, and of columns in them."""
    found = set()
    for field in schema.fields:
        found |= {field.name, field.physical_name}
        if isinstance(field.type, StructType):
            found |= _names(field.type)
    return found


def _read(found: Found, read: Reader, kind: DataType, *, up: bool) -> pa.Array:
    """Return the JSON of values as bounds; what cannot be read is null."""
    tokens = found.values
    if tokens.null_count == len(tokens):
        return pa.nulls(len(tokens), bound_type(kind))
    plain = plain_values(tokens, kind, up=up)
    if plain is not None:
        return plain
    if found.whole:
        return typed(tokens.to_pylist(), read, kind)
    joined = ",".join(pc.fill_null(tokens, "null").to_pylist())
    try:
        values = orjson.loads(f"[{joined}]")
    except orjson.JSONDecodeError:  # One that only looks like JSON.
        values = [_value(token) for token in tokens.to_pylist()]
    return typed(values, read, kind)


def _value(token: str | None) -> Any:
    try:
        return None if token is None else orjson.loads(token)
    except orjson.JSONDecodeError:
        return None


def _counts(found: Found) -> pa.Array:
    """Return the JSON of counts; what is none is null."""
    if found.whole:
        return pc.if_else(pc.greater_equal(found.values, 0), found.values, None)
    return arrow_array([_count(_value(token)) for token in found.values.to_pylist()], pa.int64())


def _document(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**63 else None


def _null_count(document: dict[str, Any], path: Path) -> int | None:
    """Return a null count; with wide bounds it means something only if none or all are null."""
    count = _count(value_at(document.get("nullCount"), path))
    tight = document.get("tightBounds") in (None, True)
    return count if tight or count in (0, document.get("numRecords")) else None
